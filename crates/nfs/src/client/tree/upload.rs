//! Upload of a file to the server: under a temporary name until the file is complete, or in place.
//!
//! *Temporary names.* [`Temporary`] removes them: directly after a failed copy, and in a separate task if the
//! copy is dropped. Such a task also makes the name. So the name is removed even if no caller waits any more.

use super::identity::Identity;
use super::local::PRIVATE_FILE;
use super::partial::resume_at;
use super::{CopyRun, Copying, Kept, Owned};
use crate::client::walk::Place;
use crate::client::{Client, Error, File, Node};
use crate::wire::{
    Attributes, CreateArgs, CreateHow, DirOpArgs, FileHandle, FileName, FileType, LinkArgs, NfsTime,
    RemoveArgs, RenameArgs, SetAttributes, SetTime, SetattrArgs, Status, SymlinkArgs, SymlinkData,
};

/// Attempts to find or make an incomplete file that other copies make and rename at this time.
const PART_ATTEMPTS: u32 = 3;

/// Name at the server that is removed unless it is renamed.
pub(super) struct Temporary {
    client: Client,
    place: DirOpArgs,
    made: bool,
    /// Whether the object stays for a later copy.
    lasting: bool,
    run: CopyRun,
}

impl Temporary {
    fn beside(client: &Client, place: &Place, copying: &Copying) -> Self {
        let name = FileName::from(super::temporary_name().as_bytes());
        let place = DirOpArgs { dir: place.dir, name };
        Self { client: client.clone(), place, made: false, lasting: false, run: copying.run.clone() }
    }

    /// Returns a name beside another one that stays, for a later copy.
    fn lasting(client: &Client, dir: FileHandle, name: &[u8], copying: &Copying) -> Self {
        let place = DirOpArgs { dir, name: FileName::from(name) };
        Self { client: client.clone(), place, made: false, lasting: true, run: copying.run.clone() }
    }

    /// Makes the name by `make`, whether or not the caller waits until the end. If the result is unknown, the
    /// name is removed.
    async fn make<T, F>(
        mut self,
        make: impl FnOnce(Client, DirOpArgs) -> F + Send + 'static,
    ) -> Result<(Self, T), Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let making = tokio::spawn(async move {
            self.made = true;
            match make(self.client.clone(), self.place.clone()).await {
                Ok(made) => Ok((self, made)),
                Err(error) => {
                    // After a status the name does not exist.
                    if error.status().is_some() {
                        self.forget();
                    }
                    Err(error)
                }
            }
        });
        match making.await {
            Ok(made) => made,
            Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
            // A task is cancelled only when the runtime ends.
            Err(_) => std::future::pending().await,
        }
    }

    /// Forgets the name: nothing needs to be removed.
    const fn forget(&mut self) {
        self.made = false;
    }

    /// Renames the object to `place` and replaces an object there. `object` is the file system and number of
    /// this object: a server that restarted may have renamed it and forgotten that. `made` tells whether this run made
    /// the object. `path` is for messages.
    async fn rename(mut self, place: &Place, object: ObjectId, made: bool, path: &str) -> Result<(), Error> {
        let run = self.run.clone();
        let turn = run.turn(place).await;
        let refused = if turn.alone {
            None
        } else {
            match self.client.lookup_in(place.dir, place.name.clone()).await {
                Ok(node) => spare_at(place, &node, &run, path).err(),
                Err(error) if error.status() == Some(Status::NoEnt) => None,
                Err(error) => Some(error),
            }
        };
        if let Some(error) = refused {
            return Err(self.give_up(error).await);
        }
        let arguments = RenameArgs { from: self.place.clone(), to: place.args() };
        let Err(error) = self.client.procedures().rename(&arguments).await else {
            self.forget();
            made.then(|| run.take(object));
            return Ok(());
        };
        if error.status() == Some(Status::NoEnt)
            && self
                .client
                .lookup_in(place.dir, place.name.clone())
                .await
                .is_ok_and(|node| id_of(&node) == object)
        {
            self.forget();
            made.then(|| run.take(object));
            return Ok(());
        }
        Err(self.give_up(error).await)
    }

    /// Removes the name after this error. Returns the error, with the name if it may be left.
    async fn give_up(self, why: Error) -> Error {
        if self.lasting {
            return why;
        }
        if why.ends_everything() {
            // A separate task tries to remove the name, and no caller waits for it.
            return Error::Unfinished { leftover: self.place.name.to_string(), error: Box::new(why) };
        }
        self.remove().await;
        why
    }

    async fn remove(mut self) {
        self.forget();
        remove(&self.client, self.place.clone()).await;
    }
}

async fn remove(client: &Client, object: DirOpArgs) {
    match client.procedures().remove(&RemoveArgs { object: object.clone() }).await {
        Ok(_) => {}
        Err(error) if error.status() == Some(Status::NoEnt) => {}
        Err(error) => tracing::warn!(name = %object.name, %error, "a temporary file is left at the server"),
    }
}

/// Identity of an object at the server: file system and number.
type ObjectId = (u64, u64);

const fn id_of(node: &Node) -> ObjectId {
    (node.attributes.fsid, node.attributes.fileid)
}

/// Refuses an existing object that belongs to an earlier source: the server treats two names as one.
fn spare(existing: &Node, run: &CopyRun, path: &str) -> Result<(), Error> {
    if run.has(id_of(existing)) { Err(Error::JustMade { path: path.to_owned() }) } else { Ok(()) }
}

/// As [`spare`], for an object with this name. The run may have given the name to an older object.
fn spare_at(place: &Place, existing: &Node, run: &CopyRun, path: &str) -> Result<(), Error> {
    let taken = run.has_name(id_of(existing), &place.dir, place.name.as_bytes());
    if taken { Err(Error::JustMade { path: path.to_owned() }) } else { Ok(()) }
}

/// Claims a new object for a source; fails if an earlier source has it.
fn take(object: &Node, run: &CopyRun, path: &str) -> Result<(), Error> {
    if run.take(id_of(object)) { Ok(()) } else { Err(Error::JustMade { path: path.to_owned() }) }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.made
            && !self.lasting
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (client, place) = (self.client.clone(), self.place.clone());
            runtime.spawn(async move { remove(&client, place).await });
        }
    }
}

/// Requirements of a new file beside its content.
pub(super) struct Wanted<'a> {
    /// Mode of a new file; `None` if the attributes of another file will be set.
    pub(super) mode: Option<u32>,
    /// Whether the other names of an existing file get the new content too.
    pub(super) with_other_names: bool,
    /// Identity of the source, if it is a regular file.
    pub(super) source: Option<Identity>,
    /// Copy that the file belongs to.
    pub(super) copying: &'a Copying,
    /// Path for messages.
    pub(super) path: &'a str,
    /// Name of the incomplete file that stays and is continued, if any.
    pub(super) part: Option<Vec<u8>>,
}

impl Wanted<'_> {
    /// Returns the initial attributes of a new file.
    fn first(&self, mode: Option<u32>) -> SetAttributes {
        let mode = Some(mode.or(self.mode).unwrap_or(PRIVATE_FILE));
        SetAttributes { mode, size: Some(0), ..SetAttributes::default() }
    }

    /// Checks that the file would not be copied onto itself.
    pub(super) fn differs(&self, existing: &Node) -> Result<(), Error> {
        if self.source == Some(Identity::from(&existing.attributes)) {
            return Err(Error::SameFile { path: self.path.to_owned() });
        }
        Ok(())
    }

    /// Claims a file to write it in place. Returns whether this is the first time.
    fn take_in_place(&self, node: &Node) -> Result<bool, Error> {
        let run = &self.copying.run;
        // With one link, another name that leads here is another spelling of this name.
        if node.attributes.nlink <= 1 {
            take(node, run, self.path)?;
        } else {
            spare(node, run, self.path)?;
        }
        Ok(run.first_in_place(id_of(node)))
    }
}

/// Upload of a file; see the module documentation.
pub(super) struct Upload {
    client: Client,
    pub(super) file: File,
    object: ObjectId,
    /// Whether old content must be removed.
    old: bool,
    /// Attributes after the file was made or found.
    now: Attributes,
    place: Place,
    temporary: Option<Temporary>,
    /// Attributes of the replaced file.
    replaced: Option<Attributes>,
    /// Bytes from the beginning that an earlier copy left.
    pub(super) resumed: u64,
    /// Whether the file stays if this copy ends early.
    pub(super) lasting: bool,
}

impl Upload {
    /// Opens a file that will have the name `place` and replace `existing`.
    pub(super) async fn open(
        client: &Client,
        place: Place,
        existing: Option<Node>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Error> {
        let in_place = wanted.copying.options.in_place;
        let node = match existing {
            Some(node) => node,
            None if !in_place => return Self::part(client, &place, None, wanted).await,
            None => match Self::create(client, &place, wanted).await {
                // Another client was faster. Or a server made the file, restarted and forgot that; then the
                // file is empty.
                Err(error) if error.status() == Some(Status::Exist) => {
                    let node = client.lookup_in(place.dir, place.name.clone()).await?;
                    wanted.differs(&node)?;
                    node
                }
                created => return created,
            },
        };
        let Attributes { file_type, nlink, .. } = node.attributes;
        if file_type != FileType::Regular {
            return Err(Error::Exists { path: wanted.path.to_owned(), what: super::article(file_type) });
        }
        spare(&node, &wanted.copying.run, wanted.path)?;
        if (in_place || (nlink > 1 && wanted.with_other_names)) && wanted.take_in_place(&node)? {
            return Ok(Self::existing(client, place, node, wanted));
        }
        match Self::part(client, &place, Some(&node), wanted).await {
            // A user who may not make files here, or not give them away, may still write to the existing
            // file.
            Err(error) if is_refusal(&error) => {
                if wanted.take_in_place(&node)? {
                    Ok(Self::existing(client, place, node, wanted))
                } else {
                    Err(error)
                }
            }
            part => part,
        }
    }

    async fn part(
        client: &Client,
        place: &Place,
        existing: Option<&Node>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Error> {
        // The file stays private until it has the attributes of the file that it replaces.
        let first = wanted.first(existing.map(|_| PRIVATE_FILE));
        let mut attempts = PART_ATTEMPTS;
        let (temporary, node) = loop {
            attempts -= 1;
            if let Some(name) = &wanted.part
                && let Some(upload) = Self::continued(client, place, existing, wanted, name).await?
            {
                return Ok(upload);
            }
            let (temporary, how) = match &wanted.part {
                // Another copy of this source may just have made the file: its content must not be cut off.
                Some(name) => {
                    (Temporary::lasting(client, place.dir, name, wanted.copying), CreateHow::Guarded(first))
                }
                None => (Temporary::beside(client, place, wanted.copying), CreateHow::Unchecked(first)),
            };
            let made = temporary.make(move |client, place| async move {
                let made = client.procedures().create(&CreateArgs { place: place.clone(), how }).await;
                client.made(made, place).await
            });
            match made.await {
                Err(error) if error.status() == Some(Status::Exist) && attempts > 0 => {}
                made => break made?,
            }
        };
        let mut upload = Self {
            client: client.clone(),
            file: client.file(node.handle, wanted.path),
            object: id_of(&node),
            old: false,
            now: node.attributes,
            place: place.clone(),
            temporary: Some(temporary),
            replaced: existing.map(|node| node.attributes),
            resumed: 0,
            lasting: wanted.part.is_some(),
        };
        if let Some(node) = existing
            && let Err(error) = upload.take_owner(&node.attributes).await
        {
            return Err(upload.discard(error).await);
        }
        Ok(upload)
    }

    /// Continues the incomplete file of an earlier copy. Removes an object that no such copy has left.
    async fn continued(
        client: &Client,
        place: &Place,
        existing: Option<&Node>,
        wanted: &Wanted<'_>,
        name: &[u8],
    ) -> Result<Option<Self>, Error> {
        let mut temporary = Temporary::lasting(client, place.dir, name, wanted.copying);
        let node = match client.lookup_in(place.dir, temporary.place.name.clone()).await {
            Ok(node) => node,
            Err(error) if error.status() == Some(Status::NoEnt) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Attributes { file_type, nlink, size, uid, .. } = node.attributes;
        let source = wanted.source.map_or(0, |source| source.size());
        let ours = existing.is_some_and(|node| node.attributes.uid == uid)
            || client.owns_new_files(uid, place, wanted.copying).await?;
        if file_type != FileType::Regular || nlink != 1 || size > source || !ours {
            client.procedures().remove(&RemoveArgs { object: temporary.place.clone() }).await?;
            return Ok(None);
        }
        temporary.made = true;
        let mut upload = Self {
            client: client.clone(),
            file: client.file(node.handle, wanted.path),
            object: id_of(&node),
            old: false,
            now: node.attributes,
            place: place.clone(),
            temporary: Some(temporary),
            replaced: existing.map(|node| node.attributes),
            resumed: resume_at(size, wanted.copying.options.partial_step),
            lasting: true,
        };
        if let Some(node) = existing {
            upload.take_owner(&node.attributes).await?;
        }
        Ok(Some(upload))
    }

    /// Gives the new file the owner of the file that it replaces.
    async fn take_owner(&mut self, of: &Attributes) -> Result<(), Error> {
        let Attributes { uid, gid, .. } = *of;
        if (self.now.uid, self.now.gid) == (uid, gid) {
            return Ok(());
        }
        let owner = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.client.set_attributes_of(self.file.handle(), owner).await
    }

    /// Uses an existing file.
    fn existing(client: &Client, place: Place, node: Node, wanted: &Wanted<'_>) -> Self {
        let file = client.file(node.handle, wanted.path);
        Self {
            client: client.clone(),
            file,
            object: id_of(&node),
            old: true,
            now: node.attributes,
            place,
            temporary: None,
            replaced: None,
            resumed: 0,
            lasting: false,
        }
    }

    /// Makes a file under its final name. If a file has that name by now, it stays as it is.
    async fn create(client: &Client, place: &Place, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let how = CreateHow::Guarded(wanted.first(None));
        let made = client.procedures().create(&CreateArgs { place: place.args(), how }).await;
        let node = client.made(made, place.args()).await?;
        take(&node, &wanted.copying.run, wanted.path)?;
        Ok(Self { old: false, ..Self::existing(client, place.clone(), node, wanted) })
    }

    /// Truncates old content, not before the first new content is available.
    pub(super) async fn begin(&mut self) -> Result<(), Error> {
        if self.old {
            self.file.set_len(0).await?;
            self.old = false;
        }
        Ok(())
    }

    /// Sets the attributes to keep (`None`: those of the replaced file), and last the name. All data is
    /// stable already. Returns whether owner and group could be kept.
    pub(super) async fn finish(mut self, kept: Option<Kept>) -> Result<Owned, Error> {
        match (self.settle(kept).await, self.temporary.take()) {
            (Ok(owned), Some(temporary)) => {
                temporary.rename(&self.place, self.object, true, self.file.path()).await.map(|()| owned)
            }
            (Err(error), temporary) => {
                self.temporary = temporary;
                Err(self.discard(error).await)
            }
            (owned, None) => owned,
        }
    }

    async fn settle(&mut self, kept: Option<Kept>) -> Result<Owned, Error> {
        self.begin().await?;
        match (kept, &self.replaced) {
            (Some(kept), _) => self.client.keep(self.file.handle(), kept, false).await,
            (None, Some(replaced)) => {
                let mode = replaced.mode & self.client.settable(Owned::ALL);
                let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.client.set_attributes_of(self.file.handle(), attributes).await.map(|()| Owned::ALL)
            }
            (None, None) => Ok(Owned::ALL),
        }
    }

    /// Removes the temporary file, even one that stays for a later copy.
    pub(super) async fn abandon(mut self) {
        if let Some(temporary) = self.temporary.take() {
            temporary.remove().await;
        }
    }

    /// Removes the temporary file of a copy that failed. Returns the error, with the name if it may be left.
    pub(super) async fn discard(mut self, why: Error) -> Error {
        match self.temporary.take() {
            Some(temporary) => temporary.give_up(why).await,
            None => why,
        }
    }
}

/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID: u32 = 0o6000;

/// Returns whether the server refused for lack of rights.
fn is_refusal(error: &Error) -> bool {
    matches!(error.status(), Some(Status::Acces | Status::Perm))
}

impl Client {
    /// Returns whether calls are made as root: only then owners are set.
    pub(super) fn calls_as_root(&self) -> bool {
        let options = &self.inner.options;
        // A Kerberos user is root only where the server's administrator says so, which nobody tells a client.
        options.gss.is_none()
            && matches!(&options.credential, rpcrdma_oncrpc::Credential::Sys(sys) if sys.uid == 0)
    }

    /// Returns the bits of a mode that may be set. Set-id bits are set only by root, and only together with
    /// the owner and group that they stand for.
    fn settable(&self, owned: Owned) -> u32 {
        if owned.all() && self.calls_as_root() { 0o7777 } else { 0o777 }
    }

    /// Sets owner (as root), group, mode and time of an object; a symbolic link has no mode. Returns whether
    /// owner and group could be kept; only root is expected to keep the owner.
    pub(super) async fn keep(&self, object: FileHandle, kept: Kept, link: bool) -> Result<Owned, Error> {
        let Kept { mode, mtime, uid, gid } = kept;
        let root = self.calls_as_root();
        let attempts = [
            (root, Some(uid), Some(gid), Owned::ALL),
            // The server may treat root as nobody; and a user may give a file to one of the user's groups.
            (true, None, Some(gid), Owned { owner: !root, group: true }),
        ];
        for (_, uid, gid, owned) in attempts.into_iter().filter(|(possible, ..)| *possible) {
            let attributes = self.attributes_kept(uid, gid, mode, mtime, owned, link);
            match self.set_with_owner(object, attributes).await {
                Ok(()) => return Ok(owned),
                Err(error)
                    if matches!(error.status(), Some(Status::Inval | Status::NotSupp))
                        || is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let owned = Owned { owner: !root, group: false };
        self.set_attributes_of(object, self.attributes_kept(None, None, mode, mtime, owned, link)).await?;
        Ok(owned)
    }

    /// Sets attributes, with owner or group among them. Servers of Linux and NFS-Ganesha then clear the set-ID bits of a
    /// file, those of the same call too. So these bits are set again, alone.
    async fn set_with_owner(&self, object: FileHandle, new_attributes: SetAttributes) -> Result<(), Error> {
        let set = self.procedures().setattr(&SetattrArgs { object, new_attributes, guard: None }).await?;
        let wanted = new_attributes.mode.unwrap_or(0);
        let there = set.after.map_or(0, |after| after.mode);
        if wanted & SET_ID & !there == 0 {
            return Ok(());
        }
        let mode = SetAttributes { mode: new_attributes.mode, ..SetAttributes::default() };
        self.set_attributes_of(object, mode).await
    }

    fn attributes_kept(
        &self,
        uid: Option<u32>,
        gid: Option<u32>,
        mode: u32,
        mtime: NfsTime,
        owned: Owned,
        link: bool,
    ) -> SetAttributes {
        let mode = (!link).then(|| mode & self.settable(owned));
        SetAttributes { uid, gid, mode, mtime: SetTime::ClientTime(mtime), ..SetAttributes::default() }
    }

    /// Returns whether a new file of this caller in a directory belongs to this user. The server may treat the caller
    /// as somebody else, so a file is made if the number is not that of the caller.
    async fn owns_new_files(&self, uid: u32, place: &Place, copying: &Copying) -> Result<bool, Error> {
        if self.inner.options.gss.is_none()
            && matches!(&self.inner.options.credential, rpcrdma_oncrpc::Credential::Sys(sys) if sys.uid == uid)
        {
            return Ok(true);
        }
        let made = Temporary::beside(self, place, copying).make(move |client, place| async move {
            let attributes = SetAttributes { mode: Some(PRIVATE_FILE), ..SetAttributes::default() };
            let how = CreateHow::Unchecked(attributes);
            let made = client.procedures().create(&CreateArgs { place: place.clone(), how }).await;
            client.made(made, place).await
        });
        let (temporary, node) = made.await?;
        temporary.remove().await;
        Ok(node.attributes.uid == uid)
    }

    /// Returns the groups that the caller may give to files, as far as the credential tells them.
    pub(super) fn calling_groups(&self) -> Vec<u32> {
        match &self.inner.options.credential {
            rpcrdma_oncrpc::Credential::Sys(sys) => sys.gids.iter().copied().chain([sys.gid]).collect(),
            _ => Vec::new(),
        }
    }

    /// Makes a symbolic link in the place of another one; with `over_files` also of a file. Returns the handle of
    /// the link.
    pub(super) async fn put_symlink(
        &self,
        place: &Place,
        target: bytes::Bytes,
        path: &str,
        copying: &Copying,
        over_files: bool,
    ) -> Result<FileHandle, Error> {
        let existing = match self.lookup_in(place.dir, place.name.clone()).await {
            Ok(node) if over_files && node.attributes.file_type == FileType::Regular => Some(node),
            Ok(node) if node.attributes.file_type != FileType::Symlink => {
                let what = super::article(node.attributes.file_type);
                return Err(Error::Exists { path: path.to_owned(), what });
            }
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let run = &copying.run;
        if let Some(node) = existing {
            spare(&node, run, path)?;
            let link = node.attributes.file_type == FileType::Symlink;
            if link && self.read_link_of(node.handle).await? == target {
                take(&node, run, path)?;
                return Ok(node.handle);
            }
        }
        let make = move |client: Self, place: DirOpArgs| async move {
            let symlink = SymlinkData { attributes: SetAttributes::default(), target: target.clone() };
            let made = client.procedures().symlink(&SymlinkArgs { place: place.clone(), symlink }).await;
            match client.made(made, place.clone()).await {
                Err(error) if error.status() == Some(Status::Exist) => {
                    client.link_made_before(place, &target).await.ok_or(error)
                }
                made => made,
            }
        };
        if existing.is_none() {
            let node = make(self.clone(), place.args()).await?;
            take(&node, run, path)?;
            return Ok(node.handle);
        }
        let (temporary, node) = Temporary::beside(self, place, copying).make(make).await?;
        temporary.rename(place, id_of(&node), true, path).await?;
        Ok(node.handle)
    }

    /// Returns a link with this target that a server made before a restart and forgot.
    async fn link_made_before(&self, place: DirOpArgs, target: &[u8]) -> Option<Node> {
        let node = self.lookup_in(place.dir, place.name).await.ok()?;
        let ours = node.attributes.file_type == FileType::Symlink
            && self.read_link_of(node.handle).await.ok()? == target;
        ours.then_some(node)
    }

    /// Makes a further name of a file, in the place of any other file; with `over_links` also of a symbolic link.
    /// Returns `false` if that file has the name already.
    pub(super) async fn put_link(
        &self,
        file: FileHandle,
        place: &Place,
        copying: &Copying,
        over_links: bool,
    ) -> Result<bool, Error> {
        let existing = match self.lookup_in(place.dir, place.name.clone()).await {
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let attributes = self.attributes(file).await?;
        let object = id_of(&Node { handle: file, attributes });
        let make = move |client: Self, link: DirOpArgs| async move {
            match client.procedures().link(&LinkArgs { file, link: link.clone() }).await {
                Ok(_) => Ok(()),
                // A server that restarted may have made the name before.
                Err(error)
                    if error.status() == Some(Status::Exist)
                        && client
                            .lookup_in(link.dir, link.name)
                            .await
                            .is_ok_and(|node| id_of(&node) == object) =>
                {
                    Ok(())
                }
                Err(error) => Err(error),
            }
        };
        let claim = || copying.run.claim(place);
        let link = || copying.run.link(object, &place.dir, place.name.as_bytes());
        match existing {
            None => {
                link();
                make(self.clone(), place.args()).await?;
                // LINK replaces nothing, so no other source had the name.
                claim();
                Ok(true)
            }
            Some(node)
                if !(node.attributes.file_type == FileType::Regular
                    || (over_links && node.attributes.file_type == FileType::Symlink)) =>
            {
                let what = super::article(node.attributes.file_type);
                Err(Error::Exists { path: place.name.to_string(), what })
            }
            // Renaming one name of a file to another name of that file does nothing.
            Some(node) if id_of(&node) == object => {
                link();
                Ok(false)
            }
            Some(node) => {
                let path = place.name.to_string();
                spare_at(place, &node, &copying.run, &path)?;
                link();
                let (temporary, ()) = Temporary::beside(self, place, copying).make(make).await?;
                // Claimed only here, because a copy of the content may need the name.
                if !claim() {
                    temporary.remove().await;
                    return Err(Error::JustMade { path });
                }
                temporary.rename(place, object, false, &path).await.map(|()| true)
            }
        }
    }
}
