//! The attacks, and the code that runs and measures them.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rpcrdma_nfs::wire::FileHandle;
use tokio::runtime::Runtime;

use crate::fixture::Fixture;
use crate::server::Process;
use crate::table::Measured;
use crate::victim::{Caller, Victim};
use crate::{Failure, Options, flood, hoard, rdma};

/// Last byte of the address of a single attacker.
const ONE: u8 = 2;
/// Last bytes of the addresses that attack together.
const MANY: std::ops::RangeInclusive<u8> = 2..=17;
/// Time for which the other client calls before an attack.
const QUIET: Duration = Duration::from_secs(2);

/// Addresses of the attackers. The memory limit follows from their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    One,
    Many,
}

/// Kinds of attack.
#[derive(Clone, Copy, Debug)]
enum Kind {
    UnreadNull(u32),
    UnreadDump,
    UnreadRead,
    UnreadList,
    UnreadReadlink,
    Unfinished { fragment: u32 },
    SilentTcp,
    HalfOpen,
    RdmaUnreadGetattr,
    RdmaUnreadRead,
    RdmaUnreadList,
    TcpWrites,
    TcpLists,
    TcpLookups,
    TcpGetattrs,
    RdmaWrites,
    RdmaLists,
    RdmaLookups,
    Frozen(u32),
    FrozenRdma,
}

/// Attack with its name and description.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) who: Who,
    kind: Kind,
}

const fn one(name: &'static str, kind: Kind, what: &'static str) -> Attack {
    Attack { name, what, who: Who::One, kind }
}

const fn many(name: &'static str, kind: Kind, what: &'static str) -> Attack {
    Attack { name, what, who: Who::Many, kind }
}

/// All attacks.
pub(crate) const ATTACKS: &[Attack] = &[
    one("tcp-unread", Kind::UnreadNull(60), "60 connections call NULL and read no reply"),
    one("tcp-unread-dump", Kind::UnreadDump, "1,024 mounts of one path, then DUMP without reading"),
    one("tcp-unread-read", Kind::UnreadRead, "60 connections call READ and read no reply"),
    one("tcp-unread-list", Kind::UnreadList, "60 connections call READDIRPLUS and read no reply"),
    one("tcp-unread-readlink", Kind::UnreadReadlink, "200 connections call READLINK and read no reply"),
    one(
        "tcp-small-fragments",
        Kind::Unfinished { fragment: 12_000 },
        "200 records of short fragments, never ended",
    ),
    one(
        "tcp-tiny-fragments",
        Kind::Unfinished { fragment: 5000 },
        "200 records of shorter fragments, never ended",
    ),
    one("tcp-silent", Kind::SilentTcp, "256 connections that say one byte"),
    one("rdma-half-open", Kind::HalfOpen, "256 RDMA connections that are never set up"),
    one("rdma-unread", Kind::RdmaUnreadGetattr, "100 RDMA connections call GETATTR and take no reply"),
    one("rdma-unread-read", Kind::RdmaUnreadRead, "20 RDMA connections call READ and take no reply"),
    one("rdma-unread-list", Kind::RdmaUnreadList, "20 RDMA connections call READDIRPLUS and take no reply"),
    many("many-tcp-unread", Kind::UnreadNull(30), "16 addresses with 30 connections each, as tcp-unread"),
    many(
        "many-tcp-unread-read",
        Kind::UnreadRead,
        "16 addresses with 30 connections each, as tcp-unread-read",
    ),
    many(
        "many-rdma-unread",
        Kind::RdmaUnreadRead,
        "16 addresses with 10 connections each, as rdma-unread-read",
    ),
    one("tcp-writes", Kind::TcpWrites, "16 connections with 64 WRITEs in flight, FILE_SYNC, to one file"),
    one("tcp-lists", Kind::TcpLists, "16 connections with 64 READDIRPLUS in flight"),
    one("tcp-lookups", Kind::TcpLookups, "16 connections with 64 LOOKUPs in flight"),
    one("tcp-getattrs", Kind::TcpGetattrs, "16 connections with 64 GETATTRs in flight"),
    one(
        "rdma-writes",
        Kind::RdmaWrites,
        "8 RDMA connections with 64 WRITEs in flight, FILE_SYNC, to one file",
    ),
    one("rdma-lists", Kind::RdmaLists, "8 RDMA connections with 64 READDIRPLUS in flight"),
    one("rdma-lookups", Kind::RdmaLookups, "8 RDMA connections with 64 LOOKUPs in flight"),
    one(
        "tcp-frozen",
        Kind::Frozen(16),
        "16 connections with 64 WRITEs in flight to an export whose file system is frozen",
    ),
    one("tcp-frozen-wide", Kind::Frozen(256), "256 connections, as tcp-frozen"),
    one("rdma-frozen", Kind::FrozenRdma, "8 RDMA connections with 64 WRITEs in flight to that export"),
];

/// Handles for the attacks.
#[derive(Clone, Copy)]
struct Handles {
    file: FileHandle,
    large: FileHandle,
    link: FileHandle,
    frozen: Option<FileHandle>,
}

/// Runs an attack on a fresh server. Returns `None` if this machine does not support it.
pub(crate) fn run(
    attack: &Attack,
    runtime: &Runtime,
    program: &Path,
    fixture: &Fixture,
    options: &Options,
) -> Result<Option<Measured>, Failure> {
    let freezes = matches!(attack.kind, Kind::Frozen(_) | Kind::FrozenRdma);
    if freezes && !fixture.can_freeze() {
        println!("{:<22} left out: this machine cannot mount a file system to freeze", attack.name);
        return Ok(None);
    }
    let server = Process::start(program, fixture, options)?;
    let mut caller = Caller::connect(server.tcp)?;
    let root = caller.mount("/")?;
    let handles = Handles {
        file: caller.lookup(root, "file")?,
        large: caller.lookup(root, "large")?,
        link: caller.lookup(root, "link")?,
        frozen: if fixture.can_freeze() {
            let root = caller.mount("/frozen")?;
            Some(caller.lookup(root, "file")?)
        } else {
            None
        },
    };
    let victim = Victim::start(caller, root);
    std::thread::sleep(QUIET);
    let quiet = victim.delays()?;
    let rest = server.resident()?.now;

    let frozen = if freezes { Some(fixture.freeze()?) } else { None };
    let victim = Victim::start(Caller::connect(server.tcp)?, root);
    runtime.block_on(carry_out(attack, &server, handles, options.length()))?;
    victim.tell();
    let end = server.resident()?;
    // Calls to a frozen file system wait until this moment, and perhaps those of the other client too.
    if freezes {
        std::thread::sleep(Duration::from_secs(2));
    }
    drop(frozen);
    let attacked = victim.delays()?;
    Ok(Some(Measured { rest, end, quiet, attacked }))
}

async fn carry_out(
    attack: &Attack,
    server: &Process,
    handles: Handles,
    length: Duration,
) -> Result<(), Failure> {
    let Handles { file, large, link, frozen } = handles;
    let (tcp, rdma): (SocketAddr, SocketAddr) = (server.tcp, server.rdma);
    let sources = if attack.who == Who::One { ONE..=ONE } else { MANY };
    let each = |alone, together| if attack.who == Who::One { alone } else { together };
    let frozen_file = || frozen.ok_or("no frozen file system");
    match attack.kind {
        Kind::UnreadNull(count) => hoard::unread(tcp, sources, count, hoard::Call::Null, length).await,
        Kind::UnreadDump => {
            hoard::spellings(tcp, ONE, 1024).await?;
            hoard::unread(tcp, sources, 60, hoard::Call::Dump, length).await
        }
        Kind::UnreadRead => hoard::unread(tcp, sources, each(60, 30), hoard::Call::Read(file), length).await,
        Kind::UnreadList => hoard::unread(tcp, sources, 60, hoard::Call::List(large), length).await,
        Kind::UnreadReadlink => hoard::unread(tcp, sources, 200, hoard::Call::Readlink(link), length).await,
        Kind::Unfinished { fragment } => hoard::unfinished(tcp, ONE, 200, fragment, length).await,
        Kind::SilentTcp => hoard::silent(tcp, sources, 256, &[0x80], length).await,
        Kind::HalfOpen => hoard::silent(rdma, sources, 256, b"MPA ID Req Frame", length).await,
        Kind::RdmaUnreadGetattr => rdma::unread(rdma, sources, 100, rdma::Call::Getattr(file), length).await,
        Kind::RdmaUnreadRead => {
            rdma::unread(rdma, sources, each(20, 10), rdma::Call::Read(file), length).await
        }
        Kind::RdmaUnreadList => rdma::unread(rdma, sources, 20, rdma::Call::List(large), length).await,
        Kind::TcpWrites => flood::flood(tcp, ONE, 16, 64, flood::Call::Write(file, 512), length).await,
        Kind::TcpLists => flood::flood(tcp, ONE, 16, 64, flood::Call::List(large), length).await,
        Kind::TcpLookups => flood::flood(tcp, ONE, 16, 64, flood::Call::Lookup(large), length).await,
        Kind::TcpGetattrs => flood::flood(tcp, ONE, 16, 64, flood::Call::Getattr(file), length).await,
        Kind::RdmaWrites => rdma::flood(rdma, ONE, 8, 64, rdma::Call::Write(file, 512), length).await,
        Kind::RdmaLists => rdma::flood(rdma, ONE, 8, 64, rdma::Call::List(large), length).await,
        Kind::RdmaLookups => rdma::flood(rdma, ONE, 8, 64, rdma::Call::Lookup(large), length).await,
        Kind::Frozen(count) => {
            let call = flood::Call::Write(frozen_file()?, 512);
            flood::flood(tcp, ONE, count, 64, call, length).await
        }
        Kind::FrozenRdma => {
            let call = rdma::Call::Write(frozen_file()?, 512);
            rdma::flood(rdma, ONE, 8, 64, call, length).await
        }
    }
}
