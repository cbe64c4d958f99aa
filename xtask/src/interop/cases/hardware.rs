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

pub(super) const RXE: &[Case] = &on(Fabric::RxeWindows);
pub(super) const SIW: &[Case] = &on(Fabric::Siw);

/// Registrations on rxe: the mechanism of siw on the device of the windows. The kernel's client does not see which of the
/// two our server uses, so few of its cases are here.
pub(super) const RXE_REGISTRATIONS: &[Case] = &[
    PROVIDER.on(Fabric::RxeRegistrations),
    kernel("operations").thorough().on(Fabric::RxeRegistrations),
    kernel("write-sizes").thorough().on(Fabric::RxeRegistrations),
    kernel("read-sizes").thorough().on(Fabric::RxeRegistrations),
    ours("sizes").named("knfsd-sizes").thorough().on(Fabric::RxeRegistrations),
    ours("tree").named("knfsd-tree").thorough().on(Fabric::RxeRegistrations),
    INVALIDATION.thorough().on(Fabric::RxeRegistrations),
    BOTH_ENDS.on(Fabric::RxeRegistrations),
    CONFORM_SERVER.on(Fabric::RxeRegistrations),
    CONFORM_CLIENT.on(Fabric::RxeRegistrations),
    SERVER_KILLED.on(Fabric::RxeRegistrations),
    CLIENT_KILLED.on(Fabric::RxeRegistrations),
    DEVICE_REMOVED.thorough().on(Fabric::RxeRegistrations),
];

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

/// The cases of each device.
const fn on(fabric: Fabric) -> [Case; 36] {
    let windows = matches!(fabric, Fabric::RxeWindows);
    [
        PROVIDER.on(fabric),
        // The kernel's client on our server.
        kernel("mount-default").thorough().on(fabric),
        kernel("operations").on(fabric),
        kernel("names").thorough().on(fabric),
        kernel("write-sizes").on(fabric),
        kernel("read-sizes").on(fabric),
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
        kernel("users").quick(windows).on(fabric),
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
        INVALIDATION.on(fabric),
        BOTH_ENDS.on(fabric),
        CONFORM_SERVER.on(fabric),
        CONFORM_CLIENT.on(fabric),
        SERVER_KILLED.on(fabric),
        CLIENT_KILLED.on(fabric),
        DEVICE_REMOVED.quick(windows).on(fabric),
        SPEED.on(fabric),
    ]
}

const PROVIDER: Case =
    Case::new("provider", "All provider tests pass between two ends on the device", suite::same_device)
        .within(180)
        .with(&PROVIDER_TESTS);

const INVALIDATION: Case = Case::new(
    "knfsd-invalidation",
    "knfsd invalidates the key of each call exactly if our client has memory windows",
    peers::invalidation,
);

const BOTH_ENDS: Case = Case::new(
    "both-ends",
    "put -r and get -r of a tree, with our programs at both ends: all copies are equal",
    peers::tree,
)
.within(180);

const CONFORM_SERVER: Case = Case::new(
    "conform-server",
    "Every row of `rpcrdma conform --server` that leaves the guest unharmed has the expected verdict on knfsd",
    conform::server_on_fabric,
)
.within(180)
.thorough();

const CONFORM_CLIENT: Case = Case::new(
    "conform-client",
    "Every row of `rpcrdma conform --client` has the expected verdict on a mount",
    conform::client,
)
.within(300)
.thorough();

const SERVER_KILLED: Case = Case::new(
    "server-killed",
    "Three SIGKILLs of our server while files are written: afterwards all data exists and no handle is stale",
    super::faults::server_killed,
)
.within(180)
.thorough();

const CLIENT_KILLED: Case = Case::new(
    "client-killed",
    "Our client is killed in the middle of put and get, again and again; the server frees its connection and its memory",
    faults::client_killed,
)
.within(120)
.thorough();

const DEVICE_REMOVED: Case = Case::new(
    "device-removed",
    "The device is removed while files are written: the server says so, lives on, and serves when the device is back",
    faults::device_removed,
)
.within(120);

const SPEED: Case = Case::new(
    "speed",
    "Our streams and NULL calls against perftest, for the record; with windows, no call registers memory in steady state",
    speed::speed,
)
.within(360)
.thorough();

const fn kernel(name: &str) -> Case {
    case_of(kernel_client::CASES, name)
}

const fn ours(name: &str) -> Case {
    case_of(our_client::CASES, name)
}
