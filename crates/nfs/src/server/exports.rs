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
use std::sync::Arc;

use ipnet::IpNet;
use rpcrdma_oncrpc::Credential;
use rpcrdma_oncrpc::auth::flavor;
use thiserror::Error;

use super::caller::Caller;
use super::handle::{ExportId, HandleKey};
use super::security::{Acting, Denied, Purpose, Security};
use crate::fs::{Attributes, FileId, FileSystem, FsError, Identity, NAME_MAX, Place};
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

/// An exported file system with its rules.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount. It begins with `/` and has no empty, `.` or `..` component.
    pub name: String,
    /// The exported file system.
    pub file_system: Arc<dyn FileSystem>,
    /// Whether clients may not change anything.
    pub read_only: bool,
    /// Networks of admitted clients; an empty list admits all. A list refuses callers without an address,
    /// those of the simulated fabric.
    pub allow: Vec<IpNet>,
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
}

impl Export {
    /// Creates a read-write export for all clients, with root squashed.
    pub fn new(name: impl Into<String>, file_system: Arc<dyn FileSystem>) -> Self {
        Self {
            name: name.into(),
            file_system,
            read_only: false,
            allow: Vec::new(),
            secure: false,
            squash: Squash::default(),
            anonymous: Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
            security: vec![Security::Sys],
        }
    }

    /// Returns whether a peer may use the export.
    #[must_use]
    pub fn admits(&self, peer: Option<IpAddr>) -> bool {
        let peer = peer.map(|peer| peer.to_canonical());
        let named = |network: &IpNet| peer.is_some_and(|peer| network.contains(&peer));
        self.allow.is_empty() || self.allow.iter().any(named)
    }

    /// Returns whether a caller with this user ID acts as [`Self::anonymous`].
    pub(super) fn squashes(&self, user: u32) -> bool {
        match self.squash {
            Squash::Everybody => true,
            Squash::Root => user == 0,
            Squash::Nobody => false,
        }
    }

    /// Returns the identity under which a caller acts. For callers of RPCSEC_GSS that is [`Self::anonymous`]: the server
    /// gives the user of their principal as AUTH_SYS.
    #[must_use]
    pub fn identity(&self, credential: &Credential) -> Identity {
        let Credential::Sys(sys) = credential else { return self.anonymous.clone() };
        let squashed_group = |gid: u32| {
            if gid == 0 && self.squash == Squash::Root { self.anonymous.gid } else { gid }
        };
        if self.squashes(sys.uid) {
            return self.anonymous.clone();
        }
        Identity {
            uid: sys.uid,
            gid: squashed_group(sys.gid),
            groups: sys.gids.iter().copied().map(squashed_group).collect(),
        }
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
    /// Roots of the other exports, if there is any overlap.
    borders: Vec<Place>,
}

impl Served {
    /// Returns whether another export lies in this one, or this one in another.
    pub(crate) fn overlaps(&self) -> bool {
        !self.borders.is_empty()
    }

    /// Returns whether an object still is in this export, and in no export inside it.
    pub(crate) fn holds(&self, id: &FileId) -> Result<bool, FsError> {
        if self.overlaps() { self.export.file_system.is_within(id, &self.borders) } else { Ok(true) }
    }

    /// Returns as whom a caller may do something with the export.
    ///
    /// Calls have one of the export's flavours, with the exceptions of RFC 2623 §2.3.2 for the time of mounting: clients
    /// often have AUTH_SYS only then. MNT may have any flavour; the Linux kernel always sends AUTH_SYS. GETATTR and FSINFO
    /// of the root may have AUTH_SYS or AUTH_NONE. Such a caller is anonymous, whatever it claims.
    ///
    /// # Errors
    /// The export does not admit the caller.
    pub(crate) fn admits(&self, caller: &Caller, purpose: Purpose) -> Result<Acting, Denied> {
        if !self.export.admits(caller.ip()) || (self.export.secure && !caller.has_reserved_port()) {
            return Err(Denied::Address);
        }
        match (Security::of(&caller.credential), purpose) {
            (Some(flavor), _) if self.export.security.contains(&flavor) => Ok(Acting::Caller),
            (_, Purpose::Mount) | (Some(Security::Sys), Purpose::Probe) => Ok(Acting::Anonymous),
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
    /// Exports by the places of their roots, in the given order.
    roots: HashMap<Place, Vec<Arc<Served>>>,
    /// Whether any export allows Kerberos.
    kerberos: bool,
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

/// Returns the number of an export among all exports, and its borders: the roots of all others, if any of
/// them overlaps it.
fn overlap(key: &HandleKey, one: &Served, all: &[Served]) -> Result<(ExportId, Vec<Place>), ExportError> {
    let mut inner: BTreeSet<&[u8]> = BTreeSet::new();
    let mut overlaps = false;
    let others = || all.iter().filter(|other| other.place != one.place);
    for other in others() {
        match (one.export.file_system.location(), other.export.file_system.location()) {
            (Some(here), Some(there)) => {
                if here.contains(there) {
                    inner.insert(other.root.as_bytes());
                    overlaps = true;
                }
                overlaps |= there.contains(here);
            }
            _ if one.place.map(|place| place.file_system) == other.place.map(|place| place.file_system) => {
                return Err(ExportError::Overlap {
                    first: one.export.name.clone(),
                    second: other.export.name.clone(),
                });
            }
            _ => {}
        }
    }
    let id = key.export_id(one.export.name.as_bytes(), &one.root, &inner);
    let borders = if overlaps { others().filter_map(|other| other.place).collect() } else { Vec::new() };
    Ok((id, borders))
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
            if export.security.is_empty() {
                return Err(ExportError::NoSecurity(export.name));
            }
            let root = export.file_system.root();
            let attributes = export.file_system.attributes(&root);
            let place =
                attributes.map_err(|error| ExportError::Root { name: export.name.clone(), error })?.place;
            let id = key.export_id(export.name.as_bytes(), &root, &BTreeSet::new());
            served.push(Served { export, id, root, place, borders: Vec::new() });
        }
        let overlaps: Vec<(ExportId, Vec<Place>)> =
            served.iter().map(|one| overlap(&key, one, &served)).collect::<Result<_, _>>()?;
        for (one, (id, borders)) in served.iter_mut().zip(overlaps) {
            (one.id, one.borders) = (id, borders);
        }
        for (number, one) in served.iter().enumerate() {
            // A collision of numbers would confuse handles; that is as unlikely as harmful.
            let same = |other: &Served| other.export.name == one.export.name || other.id == one.id;
            if served.iter().take(number).any(same) {
                return Err(ExportError::Duplicate(one.export.name.clone()));
            }
        }
        let served: Vec<Arc<Served>> = served.into_iter().map(Arc::new).collect();
        let mut roots: HashMap<Place, Vec<Arc<Served>>> = HashMap::new();
        for one in &served {
            if let Some(place) = one.place {
                roots.entry(place).or_default().push(Arc::clone(one));
            }
        }
        let kerberos = served.iter().any(|one| one.export.security.iter().any(|flavor| flavor.is_kerberos()));
        Ok(Self { key, served, roots, kerberos })
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
        let depth = |served: &Served| {
            let name: Vec<&[u8]> = components(served.export.name.as_bytes()).collect();
            let inside = name.len() <= path.len() && name.iter().zip(&path).all(|(name, part)| name == part);
            inside.then_some(name.len())
        };
        let (depth, served) = self
            .served
            .iter()
            .filter_map(|served| Some((depth(served)?, served)))
            .max_by_key(|(depth, _)| *depth)?;
        Some((served, path.get(depth..)?.to_vec()))
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
        let served = self.served.iter().find(|served| served.id == export).ok_or(Status::Stale)?;
        Ok((served, id))
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_oncrpc::AuthSys;

    use super::*;
    use crate::fs::{MemoryFs, MemoryOptions};

    fn export(name: &str) -> Export {
        Export::new(name, Arc::new(MemoryFs::new(MemoryOptions::default())))
    }

    fn sys(uid: u32, gid: u32, gids: Vec<u32>) -> Credential {
        Credential::Sys(AuthSys { uid, gid, gids, ..AuthSys::default() })
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

    #[test]
    fn squashing() {
        let mut export = export("/");
        let nobody = export.anonymous.clone();
        let user = Identity { uid: 5, gid: 6, groups: vec![7] };
        assert_eq!(export.identity(&sys(0, 0, vec![0])), nobody);
        assert_eq!(export.identity(&sys(5, 6, vec![7])), user);
        // Group 0 is root's too.
        assert_eq!(export.identity(&sys(5, 0, vec![0, 7])).gid, NOBODY);
        assert_eq!(export.identity(&sys(5, 0, vec![0, 7])).groups, [NOBODY, 7]);
        assert_eq!(export.identity(&Credential::None), nobody);
        export.squash = Squash::Nobody;
        assert_eq!(export.identity(&sys(0, 0, vec![])), Identity::superuser());
        export.squash = Squash::Everybody;
        assert_eq!(export.identity(&sys(5, 6, vec![7])), nobody);
    }

    #[test]
    fn networks() {
        let mut export = export("/");
        assert!(export.admits(Some("192.0.2.1".parse().unwrap())));
        assert!(export.admits(None));
        export.allow = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        assert!(export.admits(Some("192.0.2.1".parse().unwrap())));
        assert!(export.admits(Some("::ffff:192.0.2.1".parse().unwrap())), "IPv4 on an IPv6 socket");
        assert!(export.admits(Some("2001:db8::1".parse().unwrap())));
        assert!(!export.admits(Some("192.0.3.1".parse().unwrap())));
        assert!(!export.admits(None), "nobody knows from where");
    }
}
