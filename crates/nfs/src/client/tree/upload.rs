//! A file on its way to the server: under a temporary name until it is complete, or in place.
//!
//! *Temporary names.* [`Temporary`] removes them: on the way out of a failed copy, and in a task of its own if the copy is
//! dropped. A task makes the name too. So the name is removed even if nobody waits for it any more.

use super::Kept;
use crate::client::walk::Place;
use crate::client::{Client, Error, File, Node};
use crate::wire::{
    Attributes, CreateArgs, CreateHow, DirOpArgs, FileHandle, FileName, FileType, LinkArgs, RemoveArgs,
    RenameArgs, SetAttributes, SetTime, Status, SymlinkArgs, SymlinkData,
};

/// A name at the server that is removed if it is not renamed.
pub(super) struct Temporary {
    client: Client,
    place: DirOpArgs,
    made: bool,
}

impl Temporary {
    fn beside(client: &Client, place: &Place) -> Self {
        let name = FileName::from(super::temporary_name().as_bytes());
        Self { client: client.clone(), place: DirOpArgs { dir: place.dir, name }, made: false }
    }

    /// Makes the name by `make`, whether or not the caller waits for it to the end.
    async fn make<T, F>(
        mut self,
        make: impl FnOnce(Client, DirOpArgs) -> F + Send + 'static,
    ) -> Result<(Self, T), Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let making = tokio::spawn(async move {
            let made = make(self.client.clone(), self.place.clone()).await?;
            self.made = true;
            Ok::<_, Error>((self, made))
        });
        match making.await {
            Ok(made) => made,
            Err(lost) if lost.is_panic() => std::panic::resume_unwind(lost.into_panic()),
            // Only a runtime that ends cancels.
            Err(_) => std::future::pending().await,
        }
    }

    /// Makes it the name of the object, in the place of what has that name.
    async fn rename(mut self, place: &Place) -> Result<(), Error> {
        let arguments = RenameArgs { from: self.place.clone(), to: place.args() };
        match self.client.procedures().rename(&arguments).await {
            Ok(_) => {
                self.made = false;
                Ok(())
            }
            Err(error) => {
                self.remove().await;
                Err(error)
            }
        }
    }

    async fn remove(mut self) {
        self.made = false;
        remove(&self.client, self.place.clone()).await;
    }
}

async fn remove(client: &Client, object: DirOpArgs) {
    if let Err(error) = client.procedures().remove(&RemoveArgs { object: object.clone() }).await {
        tracing::warn!(name = %object.name, %error, "a temporary file is left at the server");
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.made
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (client, place) = (self.client.clone(), self.place.clone());
            runtime.spawn(async move { remove(&client, place).await });
        }
    }
}

/// See the module's introduction.
pub(super) struct Upload {
    client: Client,
    pub(super) file: File,
    /// Attributes when it was made or found.
    now: Attributes,
    place: Place,
    temporary: Option<Temporary>,
    /// Attributes of the file that it replaces.
    replaced: Option<Attributes>,
}

impl Upload {
    /// Opens what is to have the name `place`, in the place of `existing`. `mode` is for a new file; `path` for messages.
    pub(super) async fn open(
        client: &Client,
        place: Place,
        existing: Option<Node>,
        mode: u32,
        in_place: bool,
        path: &str,
    ) -> Result<Self, Error> {
        if let Some(Node { attributes, .. }) = &existing
            && attributes.file_type != FileType::Regular
        {
            let what = super::get::article(attributes.file_type);
            return Err(Error::Exists { path: path.to_owned(), what });
        }
        match existing {
            Some(node) if in_place || node.attributes.nlink > 1 => {
                Self::existing(client, place, node, path).await
            }
            None if in_place => Self::create(client, place, mode, path).await,
            existing => match (Self::part(client, &place, existing.as_ref(), mode, path).await, existing) {
                // A user who may not make files here, or not give them away, may still write to this one.
                (Err(error), Some(node)) if is_refusal(&error) => {
                    Self::existing(client, place, node, path).await
                }
                (part, _) => part,
            },
        }
    }

    async fn part(
        client: &Client,
        place: &Place,
        existing: Option<&Node>,
        mode: u32,
        path: &str,
    ) -> Result<Self, Error> {
        // Nobody reads it before it is what it replaces.
        let first = if existing.is_some() { 0o600 } else { mode & 0o777 };
        let made = Temporary::beside(client, place).make(move |client, place| async move {
            let attributes = SetAttributes { mode: Some(first), size: Some(0), ..SetAttributes::default() };
            let how = CreateHow::Unchecked(attributes);
            let made = client.procedures().create(&CreateArgs { place: place.clone(), how }).await;
            client.made(made, place).await
        });
        let (temporary, node) = made.await?;
        let mut upload = Self {
            client: client.clone(),
            file: client.file(node.handle, path),
            now: node.attributes,
            place: place.clone(),
            temporary: Some(temporary),
            replaced: existing.map(|node| node.attributes),
        };
        if let Some(node) = existing
            && let Err(error) = upload.take_owner(&node.attributes).await
        {
            upload.discard(&error).await;
            return Err(error);
        }
        Ok(upload)
    }

    /// Gives the new file the owner of what it replaces.
    async fn take_owner(&mut self, of: &Attributes) -> Result<(), Error> {
        let Attributes { uid, gid, .. } = *of;
        if (self.now.uid, self.now.gid) == (uid, gid) {
            return Ok(());
        }
        let owner = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.client.set_attributes_of(self.file.handle(), owner).await
    }

    /// Takes a file that is there. It is cut to nothing.
    async fn existing(client: &Client, place: Place, node: Node, path: &str) -> Result<Self, Error> {
        let file = client.file(node.handle, path);
        file.set_len(0).await?;
        let client = client.clone();
        Ok(Self { client, file, now: node.attributes, place, temporary: None, replaced: None })
    }

    /// Makes a file under its own name.
    async fn create(client: &Client, place: Place, mode: u32, path: &str) -> Result<Self, Error> {
        let attributes =
            SetAttributes { mode: Some(mode & 0o777), size: Some(0), ..SetAttributes::default() };
        let how = CreateHow::Unchecked(attributes);
        let made = client.procedures().create(&CreateArgs { place: place.args(), how }).await;
        let node = client.made(made, place.args()).await?;
        let (file, client) = (client.file(node.handle, path), client.clone());
        Ok(Self { client, file, now: node.attributes, place, temporary: None, replaced: None })
    }

    /// Gives it what it is to keep (`None`: of what it replaces), and last its name. All data is stable already.
    /// Whether the owner could be kept.
    pub(super) async fn finish(mut self, kept: Option<Kept>) -> Result<bool, Error> {
        let mut owned = true;
        let kept = match (kept, &self.replaced) {
            (Some(kept), _) => {
                self.client.keep(self.file.handle(), kept, false).await.map(|kept| owned = kept)
            }
            (None, Some(replaced)) => {
                let mode = replaced.mode & self.client.settable(true);
                let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.client.set_attributes_of(self.file.handle(), attributes).await
            }
            (None, None) => Ok(()),
        };
        let result = match (kept, self.temporary.take()) {
            (Ok(()), Some(temporary)) => temporary.rename(&self.place).await,
            (Ok(()), None) => Ok(()),
            (Err(error), temporary) => {
                self.temporary = temporary;
                self.discard(&error).await;
                return Err(error);
            }
        };
        result.map(|()| owned)
    }

    /// Removes the temporary file of a copy that failed.
    pub(super) async fn discard(mut self, why: &Error) {
        // A server that is lost is told by a task that nobody waits for.
        if let Some(temporary) = self.temporary.take()
            && !why.ends_everything()
        {
            temporary.remove().await;
        }
    }
}

/// Whether the server refused this because of rights.
fn is_refusal(error: &Error) -> bool {
    matches!(error.status(), Some(Status::Acces | Status::Perm))
}

impl Client {
    /// Whether the server is asked as root: only then owners are set.
    fn calls_as_root(&self) -> bool {
        matches!(&self.inner.options.credential, rpcrdma_oncrpc::Credential::Sys(sys) if sys.uid == 0)
    }

    /// Which bits of a mode may be set: set-id bits only by root, and only together with the owner that they stand for.
    fn settable(&self, owned: bool) -> u32 {
        if owned && self.calls_as_root() { 0o7777 } else { 0o777 }
    }

    /// Sets owner (as root), mode and time of an object; a symbolic link has no mode. Whether the owner could be kept.
    pub(super) async fn keep(&self, object: FileHandle, kept: Kept, link: bool) -> Result<bool, Error> {
        let Kept { mode, mtime, uid, gid } = kept;
        let rest = |owned| SetAttributes {
            mode: (!link).then(|| mode & self.settable(owned)),
            mtime: SetTime::ClientTime(mtime),
            ..SetAttributes::default()
        };
        if self.calls_as_root() {
            let all = SetAttributes { uid: Some(uid), gid: Some(gid), ..rest(true) };
            match self.set_attributes_of(object, all).await {
                Ok(()) => return Ok(true),
                // A server that makes nobody of root.
                Err(error)
                    if matches!(error.status(), Some(Status::Inval | Status::NotSupp))
                        || is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.set_attributes_of(object, rest(false)).await?;
        Ok(!self.calls_as_root())
    }

    /// Makes a symbolic link, in the place of another one. The handle of the link, if the server tells it.
    pub(super) async fn put_symlink(
        &self,
        place: &Place,
        target: bytes::Bytes,
        path: &str,
    ) -> Result<FileHandle, Error> {
        let existing = match self.lookup_in(place.dir, place.name.clone()).await {
            Ok(node) if node.attributes.file_type != FileType::Symlink => {
                let what = super::get::article(node.attributes.file_type);
                return Err(Error::Exists { path: path.to_owned(), what });
            }
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        if let Some(node) = existing
            && self.read_link_of(node.handle).await? == target
        {
            return Ok(node.handle);
        }
        let make = move |client: Self, place: DirOpArgs| async move {
            let symlink = SymlinkData { attributes: SetAttributes::default(), target };
            let made = client.procedures().symlink(&SymlinkArgs { place: place.clone(), symlink }).await;
            client.made(made, place).await
        };
        if existing.is_none() {
            return Ok(make(self.clone(), place.args()).await?.handle);
        }
        let (temporary, node) = Temporary::beside(self, place).make(make).await?;
        temporary.rename(place).await?;
        Ok(node.handle)
    }

    /// Makes a further name of a file, in the place of any other file.
    pub(super) async fn put_link(&self, file: FileHandle, place: &Place) -> Result<(), Error> {
        let existing = match self.lookup_in(place.dir, place.name.clone()).await {
            Ok(node) => Some(node),
            Err(error) if error.status() == Some(Status::NoEnt) => None,
            Err(error) => return Err(error),
        };
        let make = move |client: Self, link: DirOpArgs| async move {
            client.procedures().link(&LinkArgs { file, link }).await.map(|_| ())
        };
        match existing {
            None => make(self.clone(), place.args()).await,
            // To rename one name of a file to another one of it does nothing.
            Some(node) if node.attributes.fileid == self.attributes(file).await?.fileid => Ok(()),
            Some(_) => {
                let (temporary, ()) = Temporary::beside(self, place).make(make).await?;
                temporary.rename(place).await
            }
        }
    }
}
