//! Our client on the kernel's server (knfsd on siw).

use super::Case;

pub(super) mod calls;
mod commands;
mod connects;
pub(super) mod copies;
mod errors;
pub(super) mod remote;
mod versions;

pub(super) const CASES: &[Case] = &[
    Case::new("ping", "knfsd answers NULL calls over RDMA", connects::ping),
    Case::new(
        "connects",
        "200 connections, one after the other: each gets its first call answered, without a fixed wait",
        connects::connects,
    )
    .within(180)
    .unseen()
    .thorough(),
    Case::new("given-up", "A connection attempt that is abandoned half-way leaves the listener intact", connects::given_up)
        .within(120),
    Case::new("commands", "exports, mkdir, put, ls, stat, cat, mv, ln and rm have their documented effects", commands::commands),
    Case::new(
        "sizes",
        "Files of 0, 1, 3, 4095, 4096, 4097, 65536, 1 MiB, 1 MiB + 1 and 64 MiB, put and got, have equal checksums",
        copies::sizes,
    )
    .within(240)
    .unseen(),
    Case::new(
        "interrupted",
        "SIGINT in the middle of puts, more often than knfsd has threads: no thread hangs",
        copies::interrupted,
    ),
    Case::new("crc", "CRCs in both directions when only we ask for them, none when neither side asks; all sizes without CRCs", copies::crc),
    Case::new("tree", "put -r and get -r of a tree with long and foreign names and links: both ends are equal", copies::tree)
        .within(180)
        .unseen(),
    Case::new(
        "fallback",
        "knfsd refuses Version Two of every profile once; the tree is copied in both directions over Version One on the same connection",
        versions::fallback,
    )
    .within(180)
    .unseen(),
    Case::new(
        "credits",
        "With more calls than credits, as many are in flight as knfsd grants, and all are answered",
        calls::credits,
    )
    .within(120)
    .unseen(),
    Case::new("listing", "A directory of 3000 entries is listed in full", calls::listing).within(120),
    Case::new("invalidation", "knfsd invalidates the key of each call that has exactly one", calls::invalidation),
    Case::new("mount-refused", "Mounts that are forbidden or not exported are reported as such", errors::mount_refused),
    Case::new("errors", "NFS errors are reported by name, and the connection continues", errors::errors),
];
