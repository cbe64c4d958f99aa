//! What is exported, to whom, and as whom they act.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use rpcrdma_oncrpc::Credential;
use thiserror::Error;

use super::handle::{ExportId, HandleKey};
use crate::fs::{FileId, FileSystem, Identity, NAME_MAX};
use crate::mount::MAX_MOUNT_PATH;
use crate::wire::{FileHandle, Status};

/// User and group of somebody who is nobody here.
pub const NOBODY: u32 = 65534;

/// Which callers lose their identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// None.
    Nobody,
    /// User 0 and group 0. The default.
    #[default]
    Root,
    /// All.
    Everybody,
}

/// One exported file system with its rules.
#[derive(Clone)]
pub struct Export {
    /// The path that clients mount: begins with `/`, has no empty, `.` or `..` component.
    pub name: String,
    /// What is exported.
    pub file_system: Arc<dyn FileSystem>,
    /// Whether nothing can be changed through it.
    pub read_only: bool,
    /// From where it can be used; empty: from everywhere. With networks named, a caller without an address (of the
    /// simulated fabric) is refused.
    pub allow: Vec<IpNet>,
    /// Who acts as [`Self::anonymous`].
    pub squash: Squash,
    /// The identity of callers without one. Default: user and group [`NOBODY`].
    pub anonymous: Identity,
}

impl Export {
    /// A read-write export to everybody, with root squashed.
    pub fn new(name: impl Into<String>, file_system: Arc<dyn FileSystem>) -> Self {
        Self {
            name: name.into(),
            file_system,
            read_only: false,
            allow: Vec::new(),
            squash: Squash::default(),
            anonymous: Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
        }
    }

    /// Whether a peer may use it.
    #[must_use]
    pub fn admits(&self, peer: Option<IpAddr>) -> bool {
        let peer = peer.map(|peer| peer.to_canonical());
        let named = |network: &IpNet| peer.is_some_and(|peer| network.contains(&peer));
        self.allow.is_empty() || self.allow.iter().any(named)
    }

    /// As whom a caller acts.
    #[must_use]
    pub fn identity(&self, credential: &Credential) -> Identity {
        let Credential::Sys(sys) = credential else { return self.anonymous.clone() };
        let squashed_group = |gid: u32| {
            if gid == 0 && self.squash == Squash::Root { self.anonymous.gid } else { gid }
        };
        match self.squash {
            Squash::Everybody => self.anonymous.clone(),
            Squash::Root if sys.uid == 0 => self.anonymous.clone(),
            Squash::Root | Squash::Nobody => Identity {
                uid: sys.uid,
                gid: squashed_group(sys.gid),
                groups: sys.gids.iter().copied().map(squashed_group).collect(),
            },
        }
    }
}

/// Why exports cannot be served together.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportError {
    /// No path.
    #[error(
        "export name {0:?}: it has to begin with \"/\" and must not have empty, \".\" or \"..\" components"
    )]
    Name(String),
    /// Longer than MOUNT can carry.
    #[error("export name of {length} octets: at most {MAX_MOUNT_PATH} are allowed (RFC 1813 §5.1.2)")]
    NameTooLong {
        /// Its length.
        length: usize,
    },
    /// Two of one name.
    #[error("two exports named {0:?}")]
    Duplicate(String),
}

/// An export that is served.
pub(crate) struct Served {
    pub(crate) export: Export,
    pub(crate) id: ExportId,
    pub(crate) root: FileId,
}

/// All exports of a server and the key of its handles.
pub(crate) struct Exports {
    key: HandleKey,
    served: Vec<Arc<Served>>,
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|octet| *octet == b'/').filter(|component| !component.is_empty())
}

fn is_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('/') else { return false };
    let part =
        |part: &str| !matches!(part, "" | "." | "..") && part.len() <= NAME_MAX && !part.contains('\0');
    rest.is_empty() || rest.split('/').all(part)
}

impl Exports {
    pub(crate) fn new(key: HandleKey, exports: Vec<Export>) -> Result<Self, ExportError> {
        let mut served: Vec<Arc<Served>> = Vec::new();
        for export in exports {
            if !is_name(&export.name) {
                return Err(ExportError::Name(export.name));
            }
            if export.name.len() > MAX_MOUNT_PATH {
                return Err(ExportError::NameTooLong { length: export.name.len() });
            }
            let root = export.file_system.root();
            let id = key.export_id(export.name.as_bytes(), &root);
            // A collision of numbers would mix handles up; it is as unlikely as it would be bad.
            if served.iter().any(|other| other.export.name == export.name || other.id == id) {
                return Err(ExportError::Duplicate(export.name));
            }
            served.push(Arc::new(Served { export, id, root }));
        }
        Ok(Self { key, served })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    /// The export that a path lies in, by the longest name, and the rest of the path.
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

    /// A handle for an object.
    pub(crate) fn seal(&self, served: &Served, id: &FileId) -> FileHandle {
        self.key.seal(served.id, id)
    }

    /// What a handle names.
    ///
    /// RFC 1813 §2.6: NFS3ERR_BADHANDLE if this server did not make it, NFS3ERR_STALE if access to what it names has
    /// been revoked.
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
