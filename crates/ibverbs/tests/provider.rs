//! The provider against the contract of `rpcrdma-verbs`, on an RDMA device.
//!
//! The tests need a device, so they are ignored unless asked for. `cargo xtask interop` runs them in its virtual machine,
//! one module on each device. By hand, on an address of a device:
//!
//! ```text
//! RPCRDMA_TEST_ADDRESS=192.0.2.1 cargo test -p rpcrdma-ibverbs --test provider -- --ignored --test-threads=1 rxe_windows::
//! ```

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use rpcrdma_ibverbs::{IbverbsConnector, IbverbsListener, NoDevice};
use rpcrdma_iwarp::{IwarpConnector, IwarpListener};
use rpcrdma_provider_tests::harness::{connect, parameters, pattern, within};
use rpcrdma_provider_tests::{Difference, Fixture};
use rpcrdma_verbs::{
    BoxFuture, Buffer, ConnectError, Connector, Disconnected, Key, Listener, RemoteSegment, Status,
    WindowErrorKind, WindowMemory,
};

/// Which provider is at an end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Ibverbs,
    Iwarp,
}

struct Device {
    connects: End,
    accepts: End,
    registrations_only: bool,
    /// Whether the adapter's windows are used, so that peers can invalidate them.
    windows: bool,
    max_private_data: usize,
    differences: &'static [Difference],
}

/// Returns the address of the device that the tests use.
fn address() -> IpAddr {
    let text =
        std::env::var("RPCRDMA_TEST_ADDRESS").expect("RPCRDMA_TEST_ADDRESS is an address of an RDMA device");
    text.parse().expect("RPCRDMA_TEST_ADDRESS is an IP address")
}

impl Device {
    fn config(&self) -> rpcrdma_ibverbs::Config {
        let mut config = rpcrdma_ibverbs::Config::default();
        config.registrations_only = self.registrations_only;
        config.max_windows = 512;
        config
    }
}

impl Fixture for Device {
    fn connector(&self) -> Box<dyn Connector> {
        match self.connects {
            End::Ibverbs => Box::new(IbverbsConnector::new(self.config())),
            End::Iwarp => Box::new(IwarpConnector::default()),
        }
    }

    fn listen(&self) -> BoxFuture<'_, Box<dyn Listener>> {
        Box::pin(async {
            let any_port = SocketAddr::new(address(), 0);
            match self.accepts {
                End::Ibverbs => Box::new(IbverbsListener::bind(any_port, self.config()).await.unwrap())
                    as Box<dyn Listener>,
                End::Iwarp => {
                    let config = rpcrdma_iwarp::Config::default();
                    Box::new(IwarpListener::bind(any_port, config).await.unwrap())
                }
            }
        })
    }

    fn max_private_data(&self) -> usize {
        self.max_private_data
    }

    fn places_directly(&self) -> bool {
        // Our iWARP copies the ends of segments that are shorter than its reads.
        self.connects == self.accepts
    }

    fn differences(&self) -> &[Difference] {
        self.differences
    }
}

/// RoCE of Linux in software, with memory windows.
const RXE_WINDOWS: Device = Device {
    connects: End::Ibverbs,
    accepts: End::Ibverbs,
    registrations_only: false,
    windows: true,
    max_private_data: 56,
    differences: &[
        Difference::NoSolicitedFlag,
        Difference::PaddedPrivateData,
        Difference::InterruptedReads,
        Difference::DangerousInvalidations,
    ],
};

/// RoCE of Linux in software, without memory windows.
const RXE_REGISTRATIONS: Device = Device {
    registrations_only: true,
    windows: false,
    differences: &[
        Difference::OpenReservations,
        Difference::NoSolicitedFlag,
        Difference::PaddedPrivateData,
        Difference::InterruptedReads,
    ],
    ..RXE_WINDOWS
};

/// iWARP of Linux in software.
const SIW: Device = Device {
    windows: false,
    // An octet counts them, together with the four of RFC 6581.
    max_private_data: 251,
    differences: &[
        Difference::OpenReservations,
        Difference::ProcessAddresses,
        Difference::NoSolicitedFlag,
        Difference::InterruptedReads,
        Difference::LateReads,
        Difference::ReadableWriteWindows,
    ],
    ..RXE_WINDOWS
};

/// Our iWARP in software connects to siw.
const IWARP_TO_SIW: Device = Device { connects: End::Iwarp, ..SIW };

/// siw connects to our iWARP in software.
const SIW_TO_IWARP: Device = Device { accepts: End::Iwarp, differences: &[], ..SIW };

#[test]
#[ignore = "prints the table of differences: cargo xtask interop"]
fn differences() {
    for (name, device) in [
        ("rxe_windows", RXE_WINDOWS),
        ("rxe_registrations", RXE_REGISTRATIONS),
        ("siw", SIW),
        ("iwarp_to_siw", IWARP_TO_SIW),
        ("siw_to_iwarp", SIW_TO_IWARP),
    ] {
        (&device as &dyn Fixture).print_differences(name);
    }
}

/// Checks that the trial of the adapter has found out what it can do.
async fn the_mode_is_found(device: &Device) {
    let duo = connect(device).await;
    for (end, node) in [(device.connects, &duo.a), (device.accepts, &duo.b)] {
        if end == End::Ibverbs {
            assert_eq!(node.queue_pair.capabilities().remote_invalidation, device.windows);
        }
    }
}

/// Returns what this process and the devices hold: descriptors, pinned memory, objects of the adapters.
fn held() -> String {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let pinned = status.lines().find(|line| line.starts_with("VmPin:")).unwrap_or_default().to_owned();
    let resources = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    format!("{descriptors} descriptors, {pinned}, {}", String::from_utf8_lossy(&resources.stdout).trim())
}

/// Checks which side learns that a request named a wrong key. The software devices report no event to the side that refused
/// it, and siw tells the other side nothing either.
async fn a_wrong_key_is_named_where_the_device_tells(device: &Device) {
    let rxe = device.max_private_data == RXE_WINDOWS.max_private_data;
    for reads in [true, false] {
        let mut duo = connect(device).await;
        let window =
            if reads { duo.b.read_window(pattern(100, 1)) } else { duo.b.write_window(pattern(100, 1)) };
        duo.is_alive().await;
        let wrong = RemoteSegment { key: Key(window.key.0 ^ 0x100), ..window };
        if reads {
            duo.a.read(wrong);
        } else {
            duo.a.write(pattern(10, 8), wrong);
        }
        duo.both_end().await;
        let told = rxe || device.connects == End::Iwarp;
        assert_eq!(matches!(duo.a.ended, Some(Disconnected::Terminated(_))), told, "{:?}", duo.a.ended);
        let told = device.accepts == End::Iwarp;
        assert_eq!(matches!(duo.b.ended, Some(Disconnected::ProtocolError(_))), told, "{:?}", duo.b.ended);
    }
}

/// Checks that connections that end in any way leave nothing behind.
async fn nothing_leaks(device: &Device) {
    let mut before = None;
    for round in 0..12 {
        let mut duo = connect(device).await;
        let window = duo.b.write_window(pattern(100_000, round));
        let _reserved = duo.b.reserve(WindowMemory::Read(pattern(5000, 1).into()));
        let pooled = duo.b.queue_pair.domain().allocate(70_000, 1).unwrap();
        let _pooled = duo.b.window(WindowMemory::Write(pooled));
        duo.a.write(pattern(100_000, 7), window);
        duo.is_alive().await;
        duo.b.receive_pooled(10_000);
        match round % 4 {
            0 => duo.a.queue_pair.abort(),
            1 => duo.b.queue_pair.disconnect(),
            2 => {
                // Dropped with everything outstanding.
                duo.a.write(pattern(100_000, 8), window);
            }
            _ => {
                // The peer breaks the protocol.
                duo.a.write(pattern(10, 8), RemoteSegment { key: Key(window.key.0 ^ 0x100), ..window });
                duo.both_end().await;
            }
        }
        if round % 4 < 2 {
            duo.both_end().await;
        }
        drop(duo);
        // The first rounds load what stays: libraries, the context of the device.
        if round == 3 {
            before = Some(held());
        }
    }
    assert_eq!(Some(held()), before);
}

/// Checks that a device of another name is refused, with both names.
async fn another_device_is_refused(device: &Device) {
    let mut config = device.config();
    config.device = Some("nothere0".to_owned());
    let listener = device.listen().await;
    let to = listener.local_address().unwrap();
    let result = IbverbsConnector::new(config.clone()).connect(to, parameters()).await;
    let Err(ConnectError::Invalid(text)) = result else { panic!("{:?}", result.err()) };
    assert!(text.contains("nothere0") && text.contains(" is reached by "), "{text}");
    let error = IbverbsListener::bind(SocketAddr::new(address(), 0), config).await.unwrap_err();
    assert!(error.to_string().contains("not on nothere0"), "{error}");
    let here = rpcrdma_ibverbs::device_at(address()).await.expect("the address is on a device");
    assert_eq!(rpcrdma_ibverbs::device_towards(to).await.unwrap(), here);
    // A documentation address (RFC 5737) is not this machine's.
    let elsewhere = rpcrdma_ibverbs::device_at("203.0.113.1".parse().unwrap()).await;
    assert!(matches!(elsewhere, Err(NoDevice::Elsewhere(_))), "{elsewhere:?}");
}

/// Checks that a peer that vanishes in the middle of set-up is given up in time. On iWARP, the kernel finishes the set-up of
/// both sides by itself.
async fn an_unfinished_set_up_is_bounded(device: &Device) {
    if !device.windows {
        return;
    }
    let mut config = device.config();
    config.setup = Duration::from_secs(1);
    let mut listener = IbverbsListener::bind(SocketAddr::new(address(), 0), config).await.unwrap();
    let connector = device.connector();
    let mut connecting = connector.connect(listener.local_address().unwrap(), parameters());
    let request = async { listener.accept().await.unwrap().request().await.unwrap() };
    let request = tokio::select! {
        request = request => request,
        _ = &mut connecting => panic!("connected before the answer"),
    };
    // From here on nobody looks after the connecting side.
    let mut queue_pair = request.accept(parameters()).await.unwrap();
    let mut completions = Vec::new();
    let end = within(
        "the end",
        poll_fn(|cx| {
            loop {
                match queue_pair.poll(cx, &mut completions) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }),
    )
    .await;
    assert_eq!(end, Disconnected::Timeout("the peer did not finish the set-up"));
}

/// Checks that an address at which no host is makes an error that says so, in bounded time.
async fn an_absent_host_is_reported(device: &Device) {
    let IpAddr::V4(own) = address() else { return };
    let [a, b, c, _] = own.octets();
    let nobody = SocketAddr::new(IpAddr::from([a, b, c, 99]), 20049);
    let result =
        within("the error", IbverbsConnector::new(device.config()).connect(nobody, parameters())).await;
    let text = result.err().expect("nobody is there").to_string();
    assert!(
        text.contains(&nobody.to_string()) || text.contains("answer") || text.contains("address"),
        "{text}"
    );
}

/// Runs [`too_little_memory`] in a process that may lock 1 MiB.
fn a_lack_of_locked_memory_is_named(module: &str) {
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-ipc_lock", "--", "prlimit", "--memlock=1048576:1048576", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", &format!("{module}::too_little_memory")])
        .env("RPCRDMA_TEST_LOCKED", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Checks that memory beyond the limit is refused, by name, and that the connection lives on or says why it ended.
async fn too_little_memory(device: &Device) {
    if std::env::var_os("RPCRDMA_TEST_LOCKED").is_none() {
        // Only in the process of the test above.
        return;
    }
    const LEN: usize = 4 << 20;
    let mut duo = connect(device).await;
    let memory = WindowMemory::Write(Buffer::adopt(vec![1; LEN]));
    let error = duo.b.queue_pair.reserve_window(memory).expect_err("more than may be locked");
    assert_eq!(error.kind, WindowErrorKind::Registration { len: LEN, os_error: 12 });
    assert_eq!(error.memory.len(), LEN);
    duo.is_alive().await;
    let receive = duo.b.receive(&[LEN]);
    duo.both_end().await;
    assert_eq!(duo.b.take(receive).status, Status::LocalProtection);
    let Some(Disconnected::Link(text)) = &duo.b.ended else { panic!("{:?}", duo.b.ended) };
    assert!(text.contains("4194304 octets") && text.contains("ulimit -l"), "{text}");
}

/// A control group of the version that counts objects of RDMA devices, with one process.
struct Group {
    mount: PathBuf,
}

impl Group {
    /// Moves this process into a new group.
    fn enter() -> Self {
        let mount = std::env::temp_dir().join(format!("rpcrdma-group-{}", std::process::id()));
        std::fs::create_dir(&mount).unwrap();
        let mounted = Command::new("mount").args(["-t", "cgroup2", "none"]).arg(&mount).status().unwrap();
        assert!(mounted.success(), "cgroup2 cannot be mounted");
        std::fs::write(mount.join("cgroup.subtree_control"), "+rdma").unwrap();
        let group = Self { mount };
        std::fs::create_dir(group.file("")).unwrap();
        std::fs::write(group.file("cgroup.procs"), std::process::id().to_string()).unwrap();
        group
    }

    fn file(&self, name: &str) -> PathBuf {
        self.mount.join("limited").join(name)
    }

    /// Lets this process have so many objects of its device more than it has. Returns the number that it has.
    fn allow(&self, more: u32) -> u32 {
        let current = std::fs::read_to_string(self.file("rdma.current")).unwrap();
        let (device, rest) = current.split_once(' ').expect("the process has objects of a device");
        let objects = rest.split_once("hca_object=").expect("a count of objects").1;
        let objects: u32 = objects.split_whitespace().next().unwrap().parse().unwrap();
        std::fs::write(self.file("rdma.max"), format!("{device} hca_object={}", objects + more)).unwrap();
        objects
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Without limits first: Linux 6.1 corrupts a list when a device goes after a group that had limits.
        let limits = std::fs::read_to_string(self.file("rdma.max")).unwrap_or_default();
        for device in limits.lines().filter_map(|line| line.split(' ').next()) {
            let _ = std::fs::write(self.file("rdma.max"), format!("{device} hca_handle=max hca_object=max"));
        }
        // Files that cannot be removed stay in the machine of the suite.
        let _ = std::fs::write(self.mount.join("cgroup.procs"), std::process::id().to_string());
        let _ = std::fs::remove_dir(self.file(""));
        let _ = Command::new("umount").arg(&self.mount).status();
        let _ = std::fs::remove_dir(&self.mount);
    }
}

/// Checks that an adapter without objects refuses connections and windows by name, and that others live on. The limits
/// of an adapter are in the millions, so a control group sets lower ones.
async fn a_lack_of_objects_is_named(device: &Device) {
    if device.connects != device.accepts {
        return;
    }
    let group = Group::enter();
    let mut duo = connect(device).await;
    duo.is_alive().await;

    // A domain, if the connection has its own, a completion queue and a queue pair.
    let needed = if device.windows { 2 } else { 3 };
    let mut refused = BTreeSet::new();
    for more in 0..needed {
        let objects = group.allow(more);
        let listener = device.listen().await;
        let to = listener.local_address().unwrap();
        let result = within("the refusal", device.connector().connect(to, parameters())).await;
        let text = result.err().expect("there are no objects for a connection").to_string();
        let (_, object) = text.split_once(" makes no ").unwrap_or_else(|| panic!("{text}"));
        assert!(text.contains("rdma.max"), "{text}");
        refused.insert(object.split(':').next().unwrap().to_owned());
        // New Receives of the connection need registrations too.
        assert_eq!(group.allow(100), objects, "objects of a refused connection stay");
        duo.is_alive().await;
    }
    assert!(refused.contains("completion queue") && refused.contains("queue pair"), "{refused:?}");

    group.allow(0);
    let mut refusal = None;
    for _ in 0..40 {
        let memory = WindowMemory::Write(Buffer::adopt(vec![1; 5000]));
        if let Err(error) = duo.b.queue_pair.reserve_window(memory) {
            assert_eq!(error.memory.len(), 5000);
            refusal = Some(error.kind);
            break;
        }
    }
    let refusal = refusal.expect("there are no objects for a window");
    assert!(
        matches!(
            refusal,
            WindowErrorKind::Exhausted { .. } | WindowErrorKind::Registration { len: 5000, .. }
        ),
        "{refusal:?}"
    );
    // With objects, all goes on.
    group.allow(100);
    duo.is_alive().await;
    let another = connect(device).await;
    drop(another);
    duo.b.write_window(vec![0; 5000]);
    duo.is_alive().await;
}

macro_rules! on_device {
    ($($module:ident: $device:ident;)+) => { $(
        mod $module {
            use super::*;

            rpcrdma_provider_tests::tests! {
                #[tokio::test]
                #[ignore = "needs an RDMA device: cargo xtask interop"]
                => $device
            }

            on_device! { @device $device: the_mode_is_found, a_wrong_key_is_named_where_the_device_tells, an_unfinished_set_up_is_bounded, nothing_leaks, too_little_memory, a_lack_of_objects_is_named }

            #[test]
            #[ignore = "needs an RDMA device: cargo xtask interop"]
            fn a_lack_of_locked_memory_is_named() {
                if $device.accepts == End::Ibverbs {
                    super::a_lack_of_locked_memory_is_named(stringify!($module));
                }
            }
        }
    )+ };
    (@device $device:ident: $($case:ident),+) => { $(
        #[tokio::test]
        #[ignore = "needs an RDMA device: cargo xtask interop"]
        async fn $case() {
            super::$case(&$device).await;
        }
    )+ };
}

/// Tests of the connector and listener of an adapter, on whichever device is there.
mod device {
    use super::*;

    on_device! { @device SIW: another_device_is_refused, an_absent_host_is_reported }
}

on_device! {
    rxe_windows: RXE_WINDOWS;
    rxe_registrations: RXE_REGISTRATIONS;
    siw: SIW;
    iwarp_to_siw: IWARP_TO_SIW;
    siw_to_iwarp: SIW_TO_IWARP;
}
