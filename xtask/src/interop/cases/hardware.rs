//! Our programs over libibverbs, on the software devices of the guest: rxe (RoCE version 2) and siw (iWARP).
//!
//! The kernel's peers run in the same guest and meet our programs at its address. Most cases are those of other groups, on
//! another device. In quick runs each device gets one case for each mechanism.

use super::{Case, case_of, conform, kernel_client, our_client};
use crate::interop::fabric::Fabric;
use crate::interop::tools::PROVIDER_TESTS;

mod differences;
mod faults;
mod peers;
mod speed;
mod suite;

/// Number of cases for each device.
const COUNT: usize = 36;

pub(super) const RXE: &[Case] = &on(Fabric::RxeWindows);
pub(super) const RXE_REGISTRATIONS: &[Case] = &on(Fabric::RxeRegistrations);
pub(super) const SIW: &[Case] = &on(Fabric::Siw);

/// The cases that need two providers or several devices.
pub(super) const CASES: &[Case] = &[
    Case::new(
        "iwarp-to-siw",
        "All provider tests pass with software iWARP as the active side and libibverbs on siw as the passive side",
        suite::iwarp_to_siw,
    )
    .within(180)
    .thorough()
    .with(&PROVIDER_TESTS)
    .on(Fabric::Siw),
    Case::new(
        "siw-to-iwarp",
        "All provider tests pass with libibverbs on siw as the active side and software iWARP as the passive side",
        suite::siw_to_iwarp,
    )
    .within(180)
    .thorough()
    .with(&PROVIDER_TESTS)
    .on(Fabric::Siw),
    Case::new(
        "differences",
        "The provider tests say where each combination of devices differs from the contract of a provider",
        differences::differences,
    )
    .with(&PROVIDER_TESTS)
    .on(Fabric::Siw),
];

const fn on(fabric: Fabric) -> [Case; COUNT] {
    // Registrations on rxe are the mechanism of siw on the device of the windows: two cases suffice for quick runs.
    let registrations = matches!(fabric, Fabric::RxeRegistrations);
    let windows = matches!(fabric, Fabric::RxeWindows);
    [
        Case::new("provider", "All provider tests pass between two ends on the device", suite::same_device)
            .within(180)
            .with(&PROVIDER_TESTS)
            .on(fabric),
        // The kernel's client on our server.
        kernel("mount-default").thorough().on(fabric),
        kernel("operations").quick(!registrations).on(fabric),
        kernel("names").thorough().on(fabric),
        kernel("write-sizes").quick(!registrations).on(fabric),
        kernel("read-sizes").quick(!registrations).on(fabric),
        kernel("write-64m").thorough().on(fabric),
        kernel("read-64m").thorough().on(fabric),
        kernel("transfer-sizes").thorough().on(fabric),
        kernel("direct").thorough().on(fabric),
        kernel("sync").thorough().on(fabric),
        kernel("append").thorough().on(fabric),
        kernel("truncate").thorough().on(fabric),
        kernel("holes").thorough().on(fabric),
        kernel("mmap").thorough().on(fabric),
        kernel("directory-10000").thorough().on(fabric),
        kernel("open-removed").thorough().on(fabric),
        kernel("two-mounts").thorough().on(fabric),
        kernel("users").thorough().on(fabric),
        kernel("read-only").thorough().on(fabric),
        kernel("processes").thorough().on(fabric),
        kernel("random-operations").on(fabric),
        kernel("source-tree").on(fabric),
        // Our client on the kernel's server.
        ours("ping").named("knfsd-ping").thorough().on(fabric),
        ours("sizes").named("knfsd-sizes").thorough().on(fabric),
        ours("tree").named("knfsd-tree").thorough().on(fabric),
        ours("listing").named("knfsd-listing").thorough().on(fabric),
        ours("credits").named("knfsd-credits").thorough().on(fabric),
        Case::new(
            "knfsd-invalidation",
            "knfsd invalidates the key of each call exactly if our client has memory windows",
            peers::invalidation,
        )
        .quick(!registrations)
        .on(fabric),
        // Both ends are ours.
        Case::new("both-ends", "put -r and get -r of a tree, with our programs at both ends: all copies are equal", peers::tree)
            .within(180)
            .on(fabric),
        Case::new(
            "conform-server",
            "Every row of `rpcrdma conform --server` that leaves the guest unharmed has the expected verdict on knfsd",
            conform::server_on_fabric,
        )
        .within(180)
        .thorough()
        .on(fabric),
        Case::new(
            "conform-client",
            "Every row of `rpcrdma conform --client` has the expected verdict on a mount",
            conform::client,
        )
        .within(180)
        .thorough()
        .on(fabric),
        Case::new(
            "server-killed",
            "Three SIGKILLs of our server while files are written: afterwards all data exists and no handle is stale",
            super::faults::server_killed,
        )
        .within(180)
        .thorough()
        .on(fabric),
        Case::new(
            "client-killed",
            "Our client is killed in the middle of put and get, again and again; the server frees its connection and its memory",
            faults::client_killed,
        )
        .within(120)
        .thorough()
        .on(fabric),
        Case::new(
            "device-removed",
            "The device is removed while files are written: the server says so, lives on, and serves when the device is back",
            faults::device_removed,
        )
        .within(120)
        .quick(windows)
        .on(fabric),
        Case::new(
            "speed",
            "Our streams and NULL calls against perftest, for the record; with windows, no call registers memory in steady state",
            speed::speed,
        )
            .within(360)
            .thorough()
            .on(fabric),
    ]
}

const fn kernel(name: &str) -> Case {
    case_of(kernel_client::CASES, name)
}

const fn ours(name: &str) -> Case {
    case_of(our_client::CASES, name)
}
