//! `rpcrdma devices`: lists the RDMA devices of this machine.

use clap::Args;
use rpcrdma_ibverbs::{Device, LinkLayer, Port, PortState, devices, is_available};
use serde::Serialize;

use super::Tally;
use crate::arguments::Common;
use crate::exit::Failure;
use crate::output::{self, Text, printable};

const AFTER_HELP: &str = "\
A device that offers memory windows can give every call a key of its own without a system call. Without windows, memory is \
registered for each call. Limits are those that the driver states.

Software devices need a kernel module: modprobe rdma_rxe, then rdma link add rxe0 type rxe netdev NAME (or siw). Use rxe for \
tests only: a peer can stop its kernel.

--json prints {devices: [{name, transport, firmware, windows, limits: {queue_pairs, work_requests, segments, read_segments, \
completions, registrations, registration_octets, windows, reads_in, reads_out}, ports: [{number, state, link_layer, mtu, \
message_octets, lid, gids: [{index, gid, kind, interface}]}]}]}. transport is \"iwarp\", \"roce\" or \"infiniband\"; sizes are in \
octets; kind and interface are null where the kernel does not tell them.";

/// List the RDMA devices of this machine
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Devices {}

#[derive(Serialize)]
struct Document {
    devices: Vec<Described>,
}

#[derive(Serialize)]
struct Described {
    name: String,
    transport: &'static str,
    firmware: String,
    windows: bool,
    limits: Limits,
    ports: Vec<DescribedPort>,
}

#[derive(Serialize)]
struct Limits {
    queue_pairs: u32,
    work_requests: u32,
    segments: u32,
    read_segments: u32,
    completions: u32,
    registrations: u32,
    registration_octets: u64,
    windows: u32,
    reads_in: u32,
    reads_out: u32,
}

#[derive(Serialize)]
struct DescribedPort {
    number: u8,
    state: &'static str,
    link_layer: &'static str,
    mtu: u32,
    message_octets: u32,
    lid: u16,
    gids: Vec<Gid>,
}

#[derive(Serialize)]
struct Gid {
    index: usize,
    gid: String,
    kind: Option<String>,
    interface: Option<String>,
}

impl Devices {
    pub(crate) fn run(&self, common: Common) -> Result<(), Failure> {
        let listed = devices().map_err(|error| Failure::failed(error.to_string()))?;
        let mut tally = Tally::default();
        let mut document = Document { devices: Vec::new() };
        for device in listed {
            let device = device.map_err(|error| Failure::failed(error.to_string()));
            document.devices.extend(tally.count(device)?.map(describe));
        }
        if common.json {
            output::document(&document)?;
        } else {
            let mut text = Text::stdout();
            for line in document.devices.iter().flat_map(lines) {
                text.line(line)?;
            }
            text.flush()?;
        }
        // The list needs libibverbs only; connections need librdmacm too.
        if !document.devices.is_empty()
            && let Err(error) = is_available()
        {
            output::warn(format_args!("these devices cannot be used yet: {error}"));
        }
        tally.finish()
    }
}

fn describe(device: Device) -> Described {
    let limits = device.limits;
    Described {
        transport: transport(&device),
        name: device.name,
        firmware: device.firmware,
        windows: device.windows,
        limits: Limits {
            queue_pairs: limits.queue_pairs,
            work_requests: limits.work_requests,
            segments: limits.segments,
            read_segments: limits.read_segments,
            completions: limits.completions,
            registrations: limits.registrations,
            registration_octets: limits.registration_octets,
            windows: limits.windows,
            reads_in: limits.reads_in,
            reads_out: limits.reads_out,
        },
        ports: device.ports.into_iter().map(describe_port).collect(),
    }
}

fn describe_port(port: Port) -> DescribedPort {
    let gids = port.gids.into_iter().map(|gid| Gid {
        index: gid.index,
        gid: gid.gid.to_string(),
        kind: gid.kind,
        interface: gid.interface,
    });
    DescribedPort {
        number: port.number,
        state: match port.state {
            PortState::Down => "down",
            PortState::Initialize => "initialize",
            PortState::Armed => "armed",
            PortState::Active => "active",
            PortState::ActiveDefer => "active-defer",
            PortState::Unknown => "unknown",
        },
        link_layer: match port.link_layer {
            LinkLayer::InfiniBand => "infiniband",
            LinkLayer::Ethernet => "ethernet",
            LinkLayer::Other => "other",
        },
        mtu: port.mtu,
        message_octets: port.message_octets,
        lid: port.lid,
        gids: gids.collect(),
    }
}

/// Names what a device speaks.
fn transport(device: &Device) -> &'static str {
    let ethernet = device.ports.iter().any(|port| port.link_layer == LinkLayer::Ethernet);
    match (device.iwarp, ethernet) {
        (true, _) => "iwarp",
        (false, true) => "roce",
        (false, false) => "infiniband",
    }
}

/// Returns the text for a device, line by line.
fn lines(device: &Described) -> Vec<String> {
    let windows = if device.windows { "memory windows" } else { "registrations only" };
    let limits = &device.limits;
    let mut lines = vec![
        format!("{}  {}, {windows}", printable(device.name.as_bytes()), device.transport),
        format!(
            "  up to {} queue pairs of {} requests and {} segments, {} registrations, {} RDMA Reads at a time",
            limits.queue_pairs, limits.work_requests, limits.segments, limits.registrations, limits.reads_in
        ),
    ];
    for port in &device.ports {
        lines.push(format!("  port {}  {}, {}, MTU {}", port.number, port.state, port.link_layer, port.mtu));
        for gid in &port.gids {
            let told = |value: &Option<String>| {
                value.as_deref().map(|value| format!("  {}", printable(value.as_bytes()))).unwrap_or_default()
            };
            let (kind, interface) = (told(&gid.kind), told(&gid.interface));
            lines.push(format!("    GID {}  {}{kind}{interface}", gid.index, gid.gid));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(iwarp: bool, link_layer: LinkLayer) -> Device {
        let gid = |index, gid: &str, kind: Option<&str>, interface: Option<&str>| rpcrdma_ibverbs::Gid {
            index,
            gid: gid.parse().unwrap(),
            kind: kind.map(str::to_owned),
            interface: interface.map(str::to_owned),
        };
        Device {
            name: "rxe0".into(),
            iwarp,
            firmware: String::new(),
            limits: rpcrdma_ibverbs::Limits {
                queue_pairs: 1,
                work_requests: 2,
                segments: 3,
                read_segments: 4,
                completions: 5,
                registrations: 6,
                registration_octets: 7,
                windows: 8,
                reads_in: 9,
                reads_out: 10,
            },
            windows: true,
            ports: vec![Port {
                number: 1,
                state: PortState::ActiveDefer,
                link_layer,
                mtu: 1024,
                message_octets: 1 << 30,
                lid: 0,
                gids: vec![
                    gid(0, "fe80::1", None, None),
                    gid(1, "::ffff:192.0.2.1", Some("RoCE v2"), Some("eth0")),
                ],
            }],
        }
    }

    #[test]
    fn the_document_has_the_fields_that_the_help_names() {
        let document = Document { devices: vec![describe(device(false, LinkLayer::Ethernet))] };
        let document = serde_json::to_value(document).unwrap();
        let wanted = serde_json::json!({"devices": [{
            "name": "rxe0", "transport": "roce", "firmware": "", "windows": true,
            "limits": {
                "queue_pairs": 1, "work_requests": 2, "segments": 3, "read_segments": 4, "completions": 5,
                "registrations": 6, "registration_octets": 7, "windows": 8, "reads_in": 9, "reads_out": 10,
            },
            "ports": [{
                "number": 1, "state": "active-defer", "link_layer": "ethernet", "mtu": 1024,
                "message_octets": 1 << 30, "lid": 0,
                "gids": [
                    {"index": 0, "gid": "fe80::1", "kind": null, "interface": null},
                    {"index": 1, "gid": "::ffff:192.0.2.1", "kind": "RoCE v2", "interface": "eth0"},
                ],
            }],
        }]});
        assert_eq!(document, wanted);
    }

    #[test]
    fn a_device_in_text() {
        let mut described = describe(device(false, LinkLayer::InfiniBand));
        assert_eq!(
            lines(&described),
            [
                "rxe0  infiniband, memory windows",
                "  up to 1 queue pairs of 2 requests and 3 segments, 6 registrations, 9 RDMA Reads at a time",
                "  port 1  active-defer, infiniband, MTU 1024",
                "    GID 0  fe80::1",
                "    GID 1  ::ffff:192.0.2.1  RoCE v2  eth0",
            ]
        );
        described.windows = false;
        assert!(lines(&described)[0].ends_with("registrations only"));
    }

    #[test]
    fn what_a_device_speaks() {
        for (iwarp, link_layer, spoken) in [
            (true, LinkLayer::Ethernet, "iwarp"),
            (false, LinkLayer::Ethernet, "roce"),
            (false, LinkLayer::InfiniBand, "infiniband"),
        ] {
            assert_eq!(transport(&device(iwarp, link_layer)), spoken);
        }
    }
}
