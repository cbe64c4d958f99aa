//! The exports: their rules, the identities of callers, and the export that an object belongs to.
//!
//! **Exports inside of one another.** An object belongs to the export whose root is the nearest above the
//! name by which a client reaches it. So a name that stands for the root of another export is a border
//! ([`Exports::crossing`]). It leads into that export, under that export's rules, or nowhere if the caller is
//! not admitted there. The client gets a handle that is sealed for the entered export, and a handle is valid
//! for its own export only.
//!
//! A local user can move directories over a border, so each call checks the place of a directory
//! ([`FileSystem::is_within`]). The number of an export depends on the exports inside it. So handles from
//! before these exports existed are stale. A file has no other place than those of its names. A file with
//! names in two exports belongs to both. Handles of a file stay valid wherever a local user moves that file.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use ipnet::IpNet;
use rpcrdma_oncrpc::Credential;
use rpcrdma_oncrpc::auth::flavor;
use thiserror::Error;

use super::caller::Caller;
use super::clients::{ClientRule, Clients, Terms};
use super::handle::{ExportId, HandleKey};
use super::security::{Acting, Denied, Purpose, Security};
use crate::fs::{Attributes, FileId, FileSystem, FsError, Identity, Location, NAME_MAX, Place};
use crate::mount::MAX_MOUNT_PATH;
use crate::wire::{FileHandle, Status};

/// User and group of a caller that is nobody here.
pub const NOBODY: u32 = 65534;

/// Callers that lose their identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// No caller.
    Nobody,
    /// User 0 and group 0. The default.
    #[default]
    Root,
    /// Every caller.
    Everybody,
}

/// Clients that an export admits by its own terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admitted {
    /// All clients to which no [`Export::rules`] apply. The default.
    #[default]
    Everybody,
    /// Clients of these networks; without any, nobody. Callers without an address, those of the simulated fabric, belong
    /// to no network.
    Networks(Vec<IpNet>),
}

impl Admitted {
    /// Returns the networks; none if everybody is admitted.
    #[must_use]
    pub fn networks(&self) -> &[IpNet] {
        match self {
            Self::Everybody => &[],
            Self::Networks(networks) => networks,
        }
    }

    /// Returns whether clients of any address are admitted.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        matches!(self, Self::Everybody)
    }

    /// Admits nobody, if everybody was admitted. Networks that were named stay.
    pub fn close(&mut self) {
        if self.is_everybody() {
            *self = Self::Networks(Vec::new());
        }
    }

    /// Admits one more network. Admits it alone, if everybody was admitted.
    pub fn add(&mut self, network: IpNet) {
        match self {
            Self::Everybody => *self = Self::Networks(vec![network]),
            Self::Networks(networks) => networks.push(network),
        }
    }
}

impl From<Vec<IpNet>> for Admitted {
    /// Admits clients of these networks alone: an empty list admits nobody.
    fn from(networks: Vec<IpNet>) -> Self {
        Self::Networks(networks)
    }
}

/// Whether the clients of an export may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportAccess {
    /// No client may.
    ReadOnly,
    /// Each client may.
    ReadWrite,
    /// Some clients may, and others may only read ([`Export::rules`], [`Export::apart`]).
    Mixed,
}

impl ExportAccess {
    /// Returns the access of clients of which each is read-only or not.
    #[must_use]
    pub fn of(read_only: impl IntoIterator<Item = bool>) -> Self {
        let (readers, writers) =
            read_only.into_iter().fold((false, false), |(readers, writers), read_only| {
                (readers || read_only, writers || !read_only)
            });
        match (readers, writers) {
            (true, true) => Self::Mixed,
            (true, false) => Self::ReadOnly,
            (false, _) => Self::ReadWrite,
        }
    }

    /// Returns the name: `ro`, `rw` or `mixed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
            Self::Mixed => "mixed",
        }
    }
}

/// An exported file system with its rules.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount. It begins with `/` and has no empty, `.` or `..` component.
    pub name: String,
    /// The exported file system.
    pub file_system: Arc<dyn FileSystem>,
    /// The origin of the file system, such as its directory, for the administrator. The server does not interpret it, and
    /// clients do not see it. Default: none.
    pub origin: Option<String>,
    /// Whether clients may not change anything.
    pub read_only: bool,
    /// Admitted clients. Default: [`Admitted::Everybody`].
    pub allow: Admitted,
    /// Whether callers over TCP must use a source port below 1024, which only root of their machine can open;
    /// MOUNT included. Callers over RDMA are not checked: an adapter has no such port, and software iWARP is
    /// a socket of any user. Default false.
    pub secure: bool,
    /// Callers that act as [`Self::anonymous`].
    pub squash: Squash,
    /// Identity of callers without one. Default: user and group [`NOBODY`].
    pub anonymous: Identity,
    /// Flavours that calls may have, in the order in which clients should prefer them. Default: [`Security::Sys`] only.
    pub security: Vec<Security>,
    /// Other terms for calls of some of these flavours ([`Terms::apart`]). Default: none.
    pub apart: Vec<Terms>,
    /// Other terms for clients of some networks, instead of the fields above. Of all networks of these rules and of
    /// [`Self::allow`], the smallest one that contains a client decides; of equal ones the first, those of `allow` before
    /// others. Default: none.
    pub rules: Vec<ClientRule>,
}

impl Export {
    /// Creates a read-write export for all clients, with root squashed.
    pub fn new(name: impl Into<String>, file_system: Arc<dyn FileSystem>) -> Self {
        Self {
            name: name.into(),
            file_system,
            origin: None,
            read_only: false,
            allow: Admitted::default(),
            secure: false,
            squash: Squash::default(),
            anonymous: Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
            security: vec![Security::Sys],
            apart: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Returns what clients get to which no rule of [`Self::rules`] applies.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            read_only: self.read_only,
            secure: self.secure,
            squash: self.squash,
            anonymous: self.anonymous.clone(),
            security: self.security.clone(),
            apart: self.apart.clone(),
        }
    }

    /// Returns the networks of clients that may mount: `None` if all may, and an empty list if nobody may.
    #[must_use]
    pub fn admitted(&self) -> Option<Vec<IpNet>> {
        let own = match &self.allow {
            Admitted::Everybody => return None,
            Admitted::Networks(networks) => networks,
        };
        Some(own.iter().chain(self.rules.iter().flat_map(|rule| &rule.networks)).copied().collect())
    }

    /// Returns whether clients may write: all of them, some or none.
    #[must_use]
    pub fn access(&self) -> ExportAccess {
        ExportAccess::of(self.other_terms().map(|terms| terms.read_only).chain([self.read_only]))
    }

    /// Returns the flavours of the export, and of each rule.
    pub(super) fn flavors(&self) -> impl Iterator<Item = &[Security]> {
        let others = self.other_terms().map(|terms| terms.security.as_slice());
        [self.security.as_slice()].into_iter().chain(others)
    }

    /// Returns the terms of some clients or flavours that differ from the fields of the export.
    fn other_terms(&self) -> impl Iterator<Item = &Terms> {
        let rules = self.rules.iter().map(|rule| &rule.terms);
        self.apart.iter().chain(rules.flat_map(|terms| std::iter::once(terms).chain(&terms.apart)))
    }
}

/// Reason why exports cannot be served together.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is not a valid path.
    #[error(
        "export name {0:?}: it has to begin with \"/\" and must not have empty, \".\" or \"..\" components"
    )]
    Name(String),
    /// The name is longer than MOUNT can carry.
    #[error("export name of {length} bytes: at most {MAX_MOUNT_PATH} are allowed (RFC 1813 §5.1.2)")]
    NameTooLong {
        /// Length in bytes.
        length: usize,
    },
    /// Two exports have this name.
    #[error("two exports named {0:?}")]
    Duplicate(String),
    /// The export allows no flavour of security.
    #[error("export {0:?} allows no flavour of security")]
    NoSecurity(String),
    /// The root cannot be examined.
    #[error("export {name:?}: {error}")]
    Root {
        /// The export.
        name: String,
        /// Error of its file system.
        error: FsError,
    },
    /// Two exports whose rules would be violated if one lies in the other.
    #[error(
        "exports {first:?} and {second:?} are on one file system, and whether one lies inside of the other cannot be \
         determined without the list of mounts (/proc/self/mountinfo): serve each by a server of its own"
    )]
    Overlap {
        /// The first of them.
        first: String,
        /// The second.
        second: String,
    },
}

/// An export in service.
pub(crate) struct Served {
    pub(crate) export: Export,
    pub(crate) id: ExportId,
    pub(crate) root: FileId,
    place: Option<Place>,
    /// Roots of all exports in order, if this export overlaps any other.
    borders: Option<Arc<[Place]>>,
    clients: Clients,
}

impl Served {
    /// Returns whether another export lies in this one, or this one in another.
    pub(crate) fn overlaps(&self) -> bool {
        self.borders.is_some()
    }

    /// Returns whether an object still is in this export, and in no export inside it.
    pub(crate) fn holds(&self, id: &FileId) -> Result<bool, FsError> {
        match &self.borders {
            Some(borders) => self.export.file_system.is_within(id, borders),
            None => Ok(true),
        }
    }

    /// Returns the terms of a caller's client, whatever the flavour of the call. `None` if the export does not admit the
    /// caller's address.
    pub(crate) fn client_terms(&self, caller: &Caller) -> Option<&Terms> {
        self.clients.find(caller.ip())
    }

    /// Returns what a call gets here, by its address and flavour. `None` if the export does not admit the address.
    pub(crate) fn terms(&self, caller: &Caller) -> Option<&Terms> {
        let terms = self.client_terms(caller)?;
        Some(Security::of(&caller.credential).map_or(terms, |flavor| terms.of(flavor)))
    }

    /// Returns whether clients at this address may mount.
    pub(crate) fn admits_address(&self, host: IpAddr) -> bool {
        self.clients.find(Some(host)).is_some()
    }

    /// Returns as whom a caller may do something with the export, and what the caller gets here.
    ///
    /// Calls have one of the export's flavours, with the exceptions of RFC 2623 §2.3.2 for the time of mounting: clients
    /// often have AUTH_SYS only then. MNT may have any flavour; the Linux kernel always sends AUTH_SYS. GETATTR and FSINFO
    /// of the root may have AUTH_SYS or AUTH_NONE. Such a caller is anonymous, whatever it claims.
    ///
    /// # Errors
    /// The export does not admit the caller.
    pub(crate) fn admits(&self, caller: &Caller, purpose: Purpose) -> Result<(Acting, &Terms), Denied> {
        let terms = self.client_terms(caller).ok_or(Denied::Address)?;
        let flavor = Security::of(&caller.credential);
        let own = flavor.map_or(terms, |flavor| terms.of(flavor));
        // A caller by Kerberos has proven who it is, so its port says nothing more (exports(5), `secure`).
        let proven = matches!(caller.credential, Credential::Gss(_));
        if own.secure && !proven && !caller.has_reserved_port() {
            return Err(Denied::Address);
        }
        match (flavor, purpose) {
            (Some(flavor), _) if terms.security.contains(&flavor) => Ok((Acting::Caller, own)),
            (_, Purpose::Mount) | (Some(Security::Sys), Purpose::Probe) => Ok((Acting::Anonymous, terms)),
            _ => Err(Denied::Flavor),
        }
    }
}

/// Destination of a name in an export.
pub(crate) enum Crossing<'a> {
    /// The name stays in the export.
    Stays,
    /// The name enters the root of another export.
    Enters(&'a Arc<Served>),
    /// The name enters the root of an export that does not admit the caller.
    Closed,
}

/// All exports of a server, and the key of its handles.
pub(crate) struct Exports {
    key: HandleKey,
    served: Vec<Arc<Served>>,
    /// Exports by their numbers.
    numbers: HashMap<ExportId, Arc<Served>>,
    /// Exports by their names.
    names: HashMap<String, Arc<Served>>,
    /// Greatest number of components in a name.
    depth: usize,
    /// Exports by the places of their roots, in the given order.
    roots: HashMap<Place, Vec<Arc<Served>>>,
    /// Whether any export allows Kerberos.
    kerberos: bool,
}

/// The exports in force. A call keeps the exports that it began with.
pub(crate) struct Current(RwLock<Arc<Exports>>);

impl Current {
    pub(crate) fn new(exports: Exports) -> Self {
        Self(RwLock::new(Arc::new(exports)))
    }

    /// Returns the exports in force now.
    pub(crate) fn get(&self) -> Arc<Exports> {
        // No code that can panic runs under the lock.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other exports in force. Returns the previous ones.
    pub(crate) fn replace(&self, exports: Arc<Exports>) -> Arc<Exports> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), exports)
    }
}

/// Returns the parts of a path between slashes, without empty ones and ".".
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|component| !matches!(component, [] | [b'.']))
}

fn is_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('/') else { return false };
    let part =
        |part: &str| !matches!(part, "" | "." | "..") && part.len() <= NAME_MAX && !part.contains('\0');
    rest.is_empty() || rest.split('/').all(part)
}

/// Relations of exports to one another, by their positions in the list.
struct Overlaps {
    /// Exports that lie inside of each one.
    inner: Vec<Vec<usize>>,
    /// Whether each one lies inside of another, or has others inside.
    any: Vec<bool>,
}

impl Overlaps {
    /// Finds the exports inside of one another by the directories above each root.
    fn of(all: &[Served]) -> Result<Self, ExportError> {
        // Each is read once: a directory may be moved meanwhile.
        let locations: Vec<_> = all.iter().map(|one| one.export.file_system.location()).collect();
        let mut places: HashMap<&Location, Vec<usize>> = HashMap::new();
        for (number, location) in locations.iter().enumerate() {
            if let Some(location) = location {
                places.entry(location).or_default().push(number);
            }
        }
        check_known(all, &locations)?;
        let mut found = Self { inner: vec![Vec::new(); all.len()], any: vec![false; all.len()] };
        for (number, (one, location)) in all.iter().zip(&locations).enumerate() {
            let Some(location) = location else { continue };
            for above in location.ancestors() {
                for outer in places.get(&above).into_iter().flatten().copied() {
                    if all.get(outer).is_none_or(|outer| outer.place == one.place) {
                        continue;
                    }
                    found.inner.get_mut(outer).into_iter().for_each(|inner| inner.push(number));
                    for overlapping in [outer, number] {
                        found.any.get_mut(overlapping).into_iter().for_each(|any| *any = true);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Checks that the location of each root is known, if another root is on its file system.
fn check_known(all: &[Served], locations: &[Option<Location>]) -> Result<(), ExportError> {
    let mut lost = HashMap::new();
    for (number, (one, location)) in all.iter().zip(locations).enumerate() {
        if let Some(place) = one.place.filter(|_| location.is_none()) {
            lost.entry(place.file_system).or_insert((number, one));
        }
    }
    for (number, one) in all.iter().enumerate() {
        let Some(place) = one.place else { continue };
        if let Some((at, lost)) = lost.get(&place.file_system)
            && lost.place != one.place
        {
            let (first, second) = if *at < number { (*lost, one) } else { (one, *lost) };
            return Err(ExportError::Overlap {
                first: first.export.name.clone(),
                second: second.export.name.clone(),
            });
        }
    }
    Ok(())
}

impl Exports {
    pub(crate) fn new(key: HandleKey, exports: Vec<Export>) -> Result<Self, ExportError> {
        let mut served: Vec<Served> = Vec::new();
        for export in exports {
            if !is_name(&export.name) {
                return Err(ExportError::Name(export.name));
            }
            if export.name.len() > MAX_MOUNT_PATH {
                return Err(ExportError::NameTooLong { length: export.name.len() });
            }
            let rules = export.rules.iter().map(|rule| &rule.terms.security);
            if rules.chain([&export.security]).any(Vec::is_empty) {
                return Err(ExportError::NoSecurity(export.name));
            }
            let root = export.file_system.root();
            let attributes = export.file_system.attributes(&root);
            let place =
                attributes.map_err(|error| ExportError::Root { name: export.name.clone(), error })?.place;
            let id = key.export_id(export.name.as_bytes(), &root, &BTreeSet::new());
            let clients = Clients::new(&export);
            served.push(Served { export, id, root, place, borders: None, clients });
        }
        let overlaps = Overlaps::of(&served)?;
        let mut borders: Vec<Place> = served.iter().filter_map(|one| one.place).collect();
        borders.sort_unstable();
        let borders: Arc<[Place]> = borders.into();
        let ids: Vec<ExportId> = served
            .iter()
            .zip(&overlaps.inner)
            .map(|(one, inner)| {
                let inner = inner.iter().filter_map(|inner| served.get(*inner));
                let inner = inner.map(|inner| inner.root.as_bytes()).collect();
                key.export_id(one.export.name.as_bytes(), &one.root, &inner)
            })
            .collect();
        for ((one, id), overlaps) in served.iter_mut().zip(ids).zip(overlaps.any) {
            one.id = id;
            one.borders = overlaps.then(|| Arc::clone(&borders));
        }
        Self::index(key, served.into_iter().map(Arc::new).collect())
    }

    /// Makes the tables of the exports.
    fn index(key: HandleKey, served: Vec<Arc<Served>>) -> Result<Self, ExportError> {
        let (mut numbers, mut names) = (HashMap::new(), HashMap::new());
        let mut roots: HashMap<Place, Vec<Arc<Served>>> = HashMap::new();
        for one in &served {
            let name = &one.export.name;
            // A collision of numbers would confuse handles; that is as unlikely as harmful.
            if names.insert(name.clone(), Arc::clone(one)).is_some()
                || numbers.insert(one.id, Arc::clone(one)).is_some()
            {
                return Err(ExportError::Duplicate(name.clone()));
            }
            if let Some(place) = one.place {
                roots.entry(place).or_default().push(Arc::clone(one));
            }
        }
        let depth = names.keys().map(|name| components(name.as_bytes()).count()).max().unwrap_or_default();
        let kerberos = served.iter().any(|one| one.clients.use_kerberos());
        Ok(Self { key, served, numbers, names, depth, roots, kerberos })
    }

    /// Returns the key of the handles.
    pub(crate) fn key(&self) -> HandleKey {
        self.key.clone()
    }

    /// Returns the export of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Served>> {
        self.names.get(name)
    }

    /// Returns the destination of a caller for an object that was found in an export. Of several exports of
    /// one directory, the first that admits the caller for this purpose is entered; the caller could mount any of them.
    pub(crate) fn crossing(
        &self,
        from: &Served,
        found: &Attributes,
        (caller, purpose): (&Caller, Purpose),
    ) -> Crossing<'_> {
        if found.place == from.place {
            return Crossing::Stays;
        }
        match found.place.and_then(|place| self.roots.get(&place)) {
            None => Crossing::Stays,
            Some(exports) => exports
                .iter()
                .find(|inner| inner.admits(caller, purpose).is_ok())
                .map_or(Crossing::Closed, Crossing::Enters),
        }
    }

    /// Returns whether any export takes calls with credentials of this flavour of RPC.
    pub(crate) fn accept_flavor(&self, number: u32) -> bool {
        match number {
            flavor::AUTH_NONE | flavor::AUTH_SYS => true,
            flavor::RPCSEC_GSS => self.kerberos,
            _ => false,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    /// Returns the export that contains a path, by the longest name, and the rest of the path.
    pub(crate) fn find<'a, 'p>(&'a self, path: &'p [u8]) -> Option<(&'a Arc<Served>, Vec<&'p [u8]>)> {
        let path: Vec<&[u8]> = components(path).collect();
        (0..=path.len().min(self.depth)).rev().find_map(|depth| {
            let (name, rest) = path.split_at_checked(depth)?;
            let name: Vec<u8> = name.iter().flat_map(|part| [b"/", *part].concat()).collect();
            // Names of exports are text.
            let name = if name.is_empty() { "/" } else { str::from_utf8(&name).ok()? };
            Some((self.named(name)?, rest.to_vec()))
        })
    }

    /// Returns a handle for an object.
    pub(crate) fn seal(&self, served: &Served, id: &FileId) -> FileHandle {
        self.key.seal(served.id, id)
    }

    /// Returns the object of a handle.
    ///
    /// RFC 1813 §2.6: NFS3ERR_BADHANDLE if this server did not make the handle, NFS3ERR_STALE if access to
    /// its object has been revoked.
    pub(crate) fn open(&self, handle: &FileHandle) -> Result<(&Arc<Served>, FileId), Status> {
        let (export, id) = self.key.open(handle).ok_or(Status::BadHandle)?;
        let served = self.numbers.get(&export).ok_or(Status::Stale)?;
        Ok((served, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{MemoryFs, MemoryOptions};

    fn export(name: &str) -> Export {
        Export::new(name, Arc::new(MemoryFs::new(MemoryOptions::default())))
    }

    #[test]
    fn names_of_exports() {
        for good in ["/", "/a", "/a/b c", "/ünïcode"] {
            Exports::new(HandleKey::random(), vec![export(good)]).map(drop).unwrap();
        }
        for bad in ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b"] {
            let error = Exports::new(HandleKey::random(), vec![export(bad)]).map(drop).unwrap_err();
            assert_eq!(error, ExportError::Name(bad.into()));
        }
        let twice = Exports::new(HandleKey::random(), vec![export("/a"), export("/a")]).map(drop);
        assert_eq!(twice.unwrap_err(), ExportError::Duplicate("/a".into()));
        let none = Export { security: Vec::new(), ..export("/a") };
        let none = Exports::new(HandleKey::random(), vec![none]).map(drop);
        assert_eq!(none.unwrap_err(), ExportError::NoSecurity("/a".into()));
    }

    #[test]
    fn the_longest_name_wins() {
        let exports =
            Exports::new(HandleKey::random(), vec![export("/"), export("/a"), export("/a/b")]).unwrap();
        let found = |path: &str| {
            let (served, rest) = exports.find(path.as_bytes()).unwrap();
            let rest: Vec<_> = rest.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
            (served.export.name.clone(), rest.join("/"))
        };
        assert_eq!(found("/"), ("/".into(), String::new()));
        assert_eq!(found("/x/y"), ("/".into(), "x/y".into()));
        assert_eq!(found("/a"), ("/a".into(), String::new()));
        assert_eq!(found("//a//c/"), ("/a".into(), "c".into()));
        assert_eq!(found("/a/b/c"), ("/a/b".into(), "c".into()));
        assert_eq!(found("/ab"), ("/".into(), "ab".into()));
        let only = Exports::new(HandleKey::random(), vec![export("/a")]).unwrap();
        assert!(only.find(b"/b").is_none());
        assert!(only.find(b"/").is_none());
    }

    /// Each file system of memory stands for a directory. Look-ups of calls do not go through all exports.
    #[test]
    fn thousands_of_exports_are_found() {
        let shared: Arc<dyn FileSystem> = Arc::new(MemoryFs::new(MemoryOptions::default()));
        let all = (0..5000).map(|number| Export::new(format!("/srv/{number}"), Arc::clone(&shared)));
        let exports = Exports::new(HandleKey::random(), all.collect()).unwrap();
        let (served, rest) = exports.find(b"/srv/4321/a/b").unwrap();
        assert_eq!((served.export.name.as_str(), rest), ("/srv/4321", vec![b"a".as_slice(), b"b"]));
        let handle = exports.seal(served, &served.root);
        assert_eq!(exports.open(&handle).unwrap().0.id, served.id);
        assert!(exports.find(b"/srv").is_none() && exports.find(b"/srv/5000").is_none());
        assert!(exports.find(b"/srv/\xff").is_none());
    }
}
