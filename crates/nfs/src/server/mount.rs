//! The MOUNT version 3 server (RFC 1813 Appendix I): from a path to the handle of an export, or of a directory or
//! file below one.
//!
//! RFC 1813 §5.2.1 speaks of directories only. Servers of Linux mount regular files too, and clients rely on it: an
//! export of one file, or `nfs-ls` of libnfs on a file. The handle gives nothing that LOOKUP would not give. Links and
//! special files are refused with MNT3ERR_NOTDIR.
//!
//! Only version 3 is served: versions 1 and 2 return handles of NFS version 2. The list of mounts serves DUMP
//! only. It is kept in memory with a bound for each host and for all hosts, and no decision depends on it.
//!
//! Each mount and unmount is a line of the log, target `rpcrdma::mounts`; [`Allowance`] bounds them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpcrdma::log::Allowance;
use rpcrdma::{Procedure, typed};
use rpcrdma_oncrpc::{
    CallContext, CallFailure, Credential, Origin, ProcedureInfo, ResponseFuture, Shown, User,
};
use rpcrdma_xdr::{Decoder, Stream, Text};

use super::{
    Caller, Crossing, Exports as ServedExports, Known, Purpose, Refusal, Security, Served, Shared, Work,
    boxed, components, decoded, failed,
};
use crate::fs::{FileId, FileKind, FsError, Identity, LookupName};
use crate::mount::{
    DirPath, Dump, Export, ExportNode, Exports, Groups, MAX_MOUNT_PATH, MOUNT_PROGRAM, MOUNT_VERSION, Mnt,
    MountBody, MountList, MountName, MountOk, MountProcedure, MountResult, MountStatus, Umnt, UmntAll,
};
use crate::wire::Status;

/// Mounts remembered for DUMP. Beyond this number, the host or IPv6 network with the most mounts loses its
/// oldest.
pub const MOUNTS_MAX: usize = 1024;
/// Mounts remembered for one host or one IPv6 network, which loses its oldest beyond this number.
pub const MOUNTS_PER_HOST: usize = 64;

/// Target of the log of mounts.
const TARGET: &str = "rpcrdma::mounts";

/// Hosts and the paths that they mounted, each path in its canonical form, oldest first.
type Mounts = BTreeMap<Origin, VecDeque<(IpAddr, Vec<u8>)>>;

/// All remembered mounts, and the log of mounts.
#[derive(Debug, Default)]
pub(crate) struct MountTable {
    origins: Mutex<Mounts>,
    lines: Allowance,
}

/// Event of the log of mounts.
#[derive(Clone, Copy, Debug)]
enum Told {
    Mounted,
    Unmounted,
}

/// The caller of MOUNT, for the log.
#[derive(Debug)]
struct Visitor {
    peer: Option<SocketAddr>,
    user: User,
    /// Name of the machine as AUTH_SYS claims it.
    machine: Text,
}

impl Visitor {
    fn new(context: &CallContext) -> Self {
        let machine = match &context.credential {
            Credential::Sys(sys) => sys.machine_name.clone(),
            _ => Text::default(),
        };
        Self { peer: context.peer, user: User::of(&context.credential), machine }
    }
}

impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "by {peer}")?,
            None => f.write_str("by an unknown address")?,
        }
        write!(f, ", user {}", self.user)?;
        if self.machine.is_empty() { Ok(()) } else { write!(f, " of \"{}\"", Shown(&self.machine)) }
    }
}

/// Returns the canonical form of a path, without empty and "." components.
fn canonical(path: &[u8]) -> Vec<u8> {
    let mut spelt = Vec::with_capacity(path.len());
    for component in components(path) {
        spelt.push(b'/');
        spelt.extend_from_slice(component);
    }
    if spelt.is_empty() {
        spelt.push(b'/');
    }
    spelt
}

impl MountTable {
    fn lock(&self) -> MutexGuard<'_, Mounts> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, host: IpAddr, path: &[u8]) {
        let mount = (host.to_canonical(), canonical(path));
        let mut origins = self.lock();
        let mounts = origins.entry(Origin::of(host)).or_default();
        mounts.retain(|mounted| *mounted != mount);
        if mounts.len() >= MOUNTS_PER_HOST {
            mounts.pop_front();
        }
        mounts.push_back(mount);
        let total: usize = origins.values().map(VecDeque::len).sum();
        if total > MOUNTS_MAX
            && let Some(most) = origins.values_mut().max_by_key(|mounts| mounts.len())
        {
            most.pop_front();
            origins.retain(|_, mounts| !mounts.is_empty());
        }
    }

    /// Removes mounts of a host, all or those of a path. Returns whether there was any.
    fn remove(&self, host: IpAddr, path: Option<&[u8]>) -> bool {
        let mut removed = false;
        let (origin, host, path) = (Origin::of(host), host.to_canonical(), path.map(canonical));
        let mut origins = self.lock();
        if let Some(mounts) = origins.get_mut(&origin) {
            let before = mounts.len();
            mounts.retain(|(other, mounted)| {
                *other != host || path.as_ref().is_some_and(|path| path != mounted)
            });
            removed = mounts.len() < before;
            if mounts.is_empty() {
                origins.remove(&origin);
            }
        }
        removed
    }

    /// Logs that a client has mounted or unmounted a path; without one it has unmounted all of its paths.
    fn tell(&self, told: Told, visitor: &Visitor, path: Option<&DirPath>, served: Option<&Arc<Served>>) {
        if !tracing::enabled!(target: TARGET, tracing::Level::INFO) {
            return;
        }
        let Some(not_logged) = self.lines.take() else { return };
        let not_logged = Some(not_logged).filter(|count| *count > 0);
        let (peer, user) = (visitor.peer.map(tracing::field::display), &visitor.user);
        let machine = Some(Shown(&visitor.machine))
            .filter(|_| !visitor.machine.is_empty())
            .map(tracing::field::display);
        let shown = path.map(|path| Shown(path.as_bytes()));
        let path = shown.map(tracing::field::display);
        let export = served.map(|served| served.export.name.as_str());
        let what = match (shown, export) {
            (Some(path), Some(export)) => format!("\"{path}\" (export {export:?})"),
            (Some(path), None) => format!("\"{path}\""),
            (None, _) => "all paths".to_owned(),
        };
        match told {
            Told::Mounted => tracing::info!(
                target: TARGET, peer, %user, machine, path, export, not_logged, "mounted {what} {visitor}"
            ),
            Told::Unmounted => tracing::info!(
                target: TARGET, peer, %user, machine, path, export, not_logged, "unmounted {what} {visitor}"
            ),
        }
    }

    /// Forgets all mounts but those for which `stays` returns true.
    pub(super) fn retain(&self, stays: impl Fn(IpAddr, &[u8]) -> bool) {
        let mut origins = self.lock();
        for mounts in origins.values_mut() {
            mounts.retain(|(host, path)| stays(*host, path));
        }
        origins.retain(|_, mounts| !mounts.is_empty());
    }

    /// Returns all remembered mounts. Those of a host stand together, oldest first.
    pub(crate) fn all(&self) -> Vec<(IpAddr, Vec<u8>)> {
        let mut mounts: Vec<_> = self.lock().values().flatten().cloned().collect();
        mounts.sort_by_key(|(host, _)| *host);
        mounts
    }

    fn list(&self) -> MountList {
        let mounts = self.all().into_iter().map(|(host, path)| MountBody {
            hostname: MountName::new(host.to_string()),
            directory: DirPath::new(path),
        });
        MountList { mounts: mounts.collect() }
    }
}

/// MOUNT version 3 as an RPC program.
pub struct MountProgram {
    shared: Arc<Shared>,
}

fn status(error: FsError) -> MountStatus {
    match error {
        FsError::NotPermitted => MountStatus::Perm,
        FsError::NotFound | FsError::Stale => MountStatus::NoEnt,
        FsError::Io => MountStatus::Io,
        FsError::AccessDenied => MountStatus::Acces,
        FsError::NotDirectory => MountStatus::NotDir,
        FsError::InvalidArgument => MountStatus::Inval,
        FsError::NameTooLong => MountStatus::NameTooLong,
        FsError::NotSupported => MountStatus::NotSupp,
        _ => MountStatus::ServerFault,
    }
}

/// Result of a walk along a path in one export.
enum Walked {
    /// The path ends at this directory or regular file.
    Ends(Arc<Served>, FileId),
    /// The path enters the root of another export after this many components.
    Enters(Arc<Served>, usize),
}

/// Walks from the root of an export to the end of the path, or to another export. The root lies after the
/// given number of components. Links are not followed, and no component leads upwards. A slash or a dot after the
/// name of a file makes it the name of a directory, which the file is not.
fn walk(
    exports: &ServedExports,
    served: &Arc<Served>,
    (caller, who): (&Caller, &Identity),
    (path, behind): (&DirPath, usize),
) -> Result<Walked, FsError> {
    let file_system = &served.export.file_system;
    let mut at = served.root;
    let mut kind = file_system.attributes(&at)?.kind;
    let bytes = path.as_bytes();
    let names_directory = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    let mut path = components(path.as_bytes()).enumerate().skip(behind).peekable();
    while let Some((index, component)) = path.next() {
        match LookupName::new(component)? {
            LookupName::SelfEntry => {}
            LookupName::Parent => return Err(FsError::AccessDenied),
            name @ LookupName::Entry(_) => {
                let found = file_system.lookup(who, &at, name)?.node;
                kind = found.attributes.kind;
                at = found.id;
                match exports.crossing(served, &found.attributes, (caller, Purpose::Mount)) {
                    Crossing::Stays => {}
                    Crossing::Enters(inner) if path.peek().is_none() => {
                        return Ok(Walked::Ends(Arc::clone(inner), inner.root));
                    }
                    Crossing::Enters(inner) => return Ok(Walked::Enters(Arc::clone(inner), index + 1)),
                    Crossing::Closed => return Err(FsError::AccessDenied),
                }
            }
        }
    }
    match kind {
        FileKind::Directory => Ok(Walked::Ends(Arc::clone(served), at)),
        FileKind::Regular if !names_directory => Ok(Walked::Ends(Arc::clone(served), at)),
        _ => Err(FsError::NotDirectory),
    }
}

impl MountProgram {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Answers MNT (RFC 1813 §5.2.1).
    fn mount(&self, context: CallContext, path: DirPath) -> ResponseFuture {
        let shared = Arc::clone(&self.shared);
        let path = Arc::new(path);
        let visitor = Visitor::new(&context);
        let caller = Caller::new(context);
        boxed(async move {
            let results = match mount(&shared, caller, &path).await {
                Ok((results, served)) => {
                    if let Some(peer) = visitor.peer {
                        shared.mounts.add(peer.ip(), path.as_bytes());
                    }
                    shared.mounts.tell(Told::Mounted, &visitor, Some(&path), Some(&served));
                    MountResult::Ok(results)
                }
                Err(status) => {
                    shared.counters.refused_mount(status);
                    let refusal = Refusal::Mount(Shown(path.as_bytes()));
                    shared.refusals.refuse(refusal, visitor.peer, &status);
                    MountResult::Fail(status)
                }
            };
            typed::results::<Mnt>(&results)
        })
    }

    /// Answers EXPORT (RFC 1813 §5.2.5).
    fn exports(&self) -> Exports {
        let node = |served: &Arc<Served>| {
            let admitted = served.export.admitted();
            // An empty list of groups would say that everybody may mount.
            if admitted.as_ref().is_some_and(Vec::is_empty) {
                return None;
            }
            let names = admitted.iter().flatten().map(|net| MountName::new(net.to_string())).collect();
            Some(ExportNode { directory: DirPath::new(served.export.name.clone()), groups: Groups { names } })
        };
        Exports { exports: self.shared.exports().iter().filter_map(node).collect() }
    }

    /// Answers with a list. Memory for its results comes from the share of the caller's address, as with
    /// listings of NFS.
    fn list<P: Procedure>(
        &self,
        context: &CallContext,
        list: impl Fn(&Self) -> P::Results + Send + 'static,
    ) -> ResponseFuture {
        let this = Self { shared: Arc::clone(&self.shared) };
        let peer = context.peer.map(|peer| peer.ip());
        boxed(async move {
            let length = typed::results::<P>(&list(&this))?.len();
            let room = this.shared.room(peer, length).await.ok_or(CallFailure::SystemError)?;
            Ok(room.keep(&typed::results::<P>(&list(&this))?))
        })
    }

    /// Answers UMNT and, without a path, UMNTALL (RFC 1813 §5.2.3, §5.2.4).
    fn unmount(&self, context: &CallContext, path: Option<&DirPath>) -> ResponseFuture {
        let mounts = &self.shared.mounts;
        // Anybody can send this call: the log has what had a line of its own before.
        if context.peer.is_some_and(|peer| mounts.remove(peer.ip(), path.map(DirPath::as_bytes))) {
            let exports = self.shared.exports();
            let export = path.and_then(|path| exports.find(path.as_bytes()));
            let export = export.as_ref().map(|(served, _)| *served);
            mounts.tell(Told::Unmounted, &Visitor::new(context), path, export);
        }
        boxed(std::future::ready(Ok(Stream::default())))
    }
}

/// Returns the results of MNT, and the export of the object.
async fn mount(
    shared: &Arc<Shared>,
    caller: Caller,
    path: &Arc<DirPath>,
) -> Result<(MountOk, Arc<Served>), MountStatus> {
    // RFC 1813 §5.1.2: MNTPATHLEN.
    if path.as_bytes().len() > MAX_MOUNT_PATH {
        return Err(MountStatus::NameTooLong);
    }
    let exports = shared.exports();
    let (served, rest) = exports.find(path.as_bytes()).ok_or(MountStatus::NoEnt)?;
    let count = components(path.as_bytes()).count();
    let (mut served, mut behind) = (Arc::clone(served), count.saturating_sub(rest.len()));
    loop {
        let Known { who, room } =
            shared.identity(&served, &caller, Purpose::Mount).await.map_err(|refused| match refused {
                Status::Acces => MountStatus::Acces,
                // RFC 1813 §5.2.1 has no status for "try again later".
                _ => MountStatus::ServerFault,
            })?;
        // The path is split only during the walk: the components of a waiting call would need many times its
        // memory.
        let (job_exports, job_served, job_caller) =
            (Arc::clone(&exports), Arc::clone(&served), caller.clone());
        let job_path = Arc::clone(path);
        let job = move || {
            let _room = room;
            walk(&job_exports, &job_served, (&job_caller, &who), (&job_path, behind))
        };
        let walked = shared.blocking(&served, caller.ip(), Work::Look, job).await;
        match walked.map_err(|_| MountStatus::ServerFault)?.map_err(status)? {
            Walked::Ends(entered, id) => {
                let terms = entered.client_terms(&caller).ok_or(MountStatus::Acces)?;
                let results = MountOk {
                    handle: exports.seal(&entered, &id),
                    auth_flavors: Security::numbers(&terms.security),
                };
                return Ok((results, entered));
            }
            Walked::Enters(inner, until) => (served, behind) = (inner, until),
        }
    }
}

impl typed::Version for MountProgram {
    fn number(&self) -> u32 {
        MOUNT_PROGRAM
    }

    fn version(&self) -> u32 {
        MOUNT_VERSION
    }

    fn procedure(&self, procedure: u32) -> Option<ProcedureInfo> {
        MountProcedure::from_number(procedure).map(MountProcedure::info)
    }

    fn eligibility(&self, procedure: u32) -> (usize, usize) {
        MountProcedure::from_number(procedure).map_or((0, 0), MountProcedure::eligibility)
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        self.shared.exports().accept_flavor(flavor)
    }

    fn call(self: Arc<Self>, context: CallContext, arguments: Decoder) -> ResponseFuture {
        match MountProcedure::from_number(context.procedure) {
            // The dispatcher answers NULL.
            None | Some(MountProcedure::Null) => failed(CallFailure::ProcedureUnavailable),
            Some(MountProcedure::Mnt) => decoded::<Mnt>(arguments, |path| self.mount(context, path)),
            Some(MountProcedure::Dump) => {
                decoded::<Dump>(arguments, |()| self.list::<Dump>(&context, |this| this.shared.mounts.list()))
            }
            Some(MountProcedure::Umnt) => {
                decoded::<Umnt>(arguments, |path| self.unmount(&context, Some(&path)))
            }
            Some(MountProcedure::UmntAll) => decoded::<UmntAll>(arguments, |()| self.unmount(&context, None)),
            Some(MountProcedure::Export) => {
                decoded::<Export>(arguments, |()| self.list::<Export>(&context, Self::exports))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn i6_hosts_without_mounts_are_forgotten() {
        let table = MountTable::default();
        let hosts = u32::try_from(MOUNTS_MAX).unwrap() + 10;
        for host in 0..hosts {
            table.add(Ipv4Addr::from(host).into(), b"/");
        }
        assert_eq!(table.lock().len(), MOUNTS_MAX);
        for host in 0..hosts {
            table.remove(Ipv4Addr::from(host).into(), None);
        }
        assert!(table.lock().is_empty());
    }

    #[test]
    fn the_mounts_of_a_host_stand_together() {
        let table = MountTable::default();
        for (host, path) in [("2001:db8::2", "/a"), ("2001:db8::1", "/b"), ("2001:db8::2", "/c")] {
            table.add(host.parse().unwrap(), path.as_bytes());
        }
        let paths: Vec<String> =
            table.list().mounts.iter().map(|mount| mount.directory.to_string()).collect();
        assert_eq!(paths, ["/b", "/a", "/c"]);
    }

    /// RFC 1813 §5.1.5.
    #[test]
    fn failures_have_the_status_of_their_name() {
        for (error, expected) in [
            (FsError::NotPermitted, MountStatus::Perm),
            (FsError::NotFound, MountStatus::NoEnt),
            (FsError::Stale, MountStatus::NoEnt),
            (FsError::Io, MountStatus::Io),
            (FsError::AccessDenied, MountStatus::Acces),
            (FsError::NotDirectory, MountStatus::NotDir),
            (FsError::InvalidArgument, MountStatus::Inval),
            (FsError::NameTooLong, MountStatus::NameTooLong),
            (FsError::NotSupported, MountStatus::NotSupp),
            (FsError::TryLater, MountStatus::ServerFault),
        ] {
            assert_eq!(status(error), expected, "{error:?}");
        }
    }
}
