//! Operations of the round-trip analysis (draft-dnoveck-nfsv4-rpcrdma-rtissues-03 §2, §3) and the ways in
//! which they can travel. Each way has the counts that the document gives.

use rpcrdma::experimental::{BufferStructure, Profile, ReadRead};
use rpcrdma::{ClientConfig, Config, ServerConfig, Versions};
use serde::Serialize;

use crate::commands::bench::program::{Operation, transfers};

/// Bytes of data in an operation: more than a Send of the default size carries.
pub(super) const DATA: usize = 8 << 10;

/// Calls made at once.
const SEVERAL: usize = 8;

/// Bytes in a Receive for an item: all of the data.
const PLACE: u32 = 8 << 10;

/// Bytes of data in a large operation: what NFS clients write at a time.
pub(super) const LARGE_DATA: usize = 1 << 20;

/// Bytes of that data in each Send.
const LARGE_PART: u32 = 64 << 10;

/// Most Sends of a large operation: those for the data, and some for headers and other arguments.
const LARGE_PARTS: usize = 32;

/// RDMA Reads at a time under the Read-Read model.
const READS: u16 = 16;

/// Memory of each side, in bytes.
const MEMORY: usize = 64 << 20;

/// Counts of the document for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Internode round trips that the requester waits for.
    pub(super) round_trips: u64,
    /// Interrupts on the path at the responder.
    pub(super) responder: usize,
    /// Interrupts on the path at the requester.
    pub(super) requester: usize,
    /// Whether memory is registered for the operation.
    pub(super) registers: bool,
}

/// An operation in one of the ways in which it can travel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanism {
    pub(super) operation: Operation,
    /// Name of the way.
    pub(super) name: &'static str,
    /// Section of the document about this way.
    pub(super) section: &'static str,
    pub(super) expected: Counts,
    /// Sets what differs from the defaults of both sides.
    pub(super) configure: fn(&mut ClientConfig, &mut ServerConfig),
}

/// Names of an operation and its way in results.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Way {
    pub(super) operation: &'static str,
    pub(super) mechanism: &'static str,
    /// Section of the document.
    pub(super) section: &'static str,
}

impl Mechanism {
    pub(super) const fn way(&self) -> Way {
        Way { operation: self.operation.name(), mechanism: self.name, section: self.section }
    }

    /// Returns the configurations of both sides.
    pub(super) fn configs(&self) -> (ClientConfig, ServerConfig) {
        let (mut client, mut server) = (ClientConfig::default(), ServerConfig::default());
        (client.memory, server.memory) = (MEMORY, MEMORY);
        (self.configure)(&mut client, &mut server);
        (client, server)
    }
}

const fn counts(round_trips: u64, responder: usize, requester: usize, registers: bool) -> Counts {
    Counts { round_trips, responder, requester, registers }
}

fn defaults(_: &mut ClientConfig, _: &mut ServerConfig) {}

/// Read-Read model of RFC 5666 §3.8. The document does not mention it; the counts follow from its rules.
fn read_read(client: &mut ClientConfig, server: &mut ServerConfig) {
    let mut model = ReadRead::default();
    model.withhold_chunks = true;
    client.protocol.compatibility.read_read = Some(model.clone());
    server.protocol.compatibility.read_read = Some(model);
    // A reply can have several Read chunks.
    client.ord = server.ird.max(READS);
    server.ird = client.ord;
}

/// Version Two, with messages in several Sends (§3.2).
fn continued(client: &mut ClientConfig, server: &mut ServerConfig) {
    client.protocol.versions = Versions::two(Profile::P1);
    client.protocol.program = Some((transfers::PROGRAM, transfers::VERSION));
    server.protocol.versions = Versions::two(Profile::P1);
}

/// As [`continued`], with Receives of both sides in which items can be placed (§3.3).
fn placed(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    client.protocol.place_items(BufferStructure::with_items(1, PLACE));
    server.protocol.place_items(BufferStructure::with_items(1, PLACE));
}

/// Version Two, with messages that share Sends (§4).
fn combined(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    for protocol in [&mut client.protocol, &mut server.protocol] {
        protocol.combined_messages = SEVERAL;
        protocol.limits.combined_messages = SEVERAL;
    }
}

/// As [`continued`], with longer and more Sends.
fn continued_large(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    for protocol in [&mut client.protocol, &mut server.protocol] {
        let part = usize::try_from(LARGE_PART).unwrap_or(usize::MAX);
        (protocol.send_size, protocol.receive_size) = (part, part);
        take_large(protocol);
    }
}

/// As [`placed`], with longer and more Receives.
fn placed_large(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    for protocol in [&mut client.protocol, &mut server.protocol] {
        protocol.place_items(BufferStructure::with_items(1, LARGE_PART));
        take_large(protocol);
    }
}

/// Sends and accepts messages in [`LARGE_PARTS`] Sends as long as the Receives.
fn take_large(protocol: &mut Config) {
    protocol.continued_parts = LARGE_PARTS;
    protocol.limits.continued_len = LARGE_PARTS * protocol.receive_size;
    // The way under test is used even where the planner would choose another.
    protocol.transmissions.spread_up_to = usize::MAX;
}

/// Ways of a WRITE of [`LARGE_DATA`] bytes, and of a Call of that length.
pub(super) const LARGE: [Mechanism; 4] = [
    Mechanism {
        operation: Operation::Put(LARGE_DATA),
        name: "Read chunk",
        section: "§2.2",
        expected: counts(2, 2, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::LongCall(LARGE_DATA),
        name: "Position-Zero Read chunk",
        section: "§2.2",
        expected: counts(2, 2, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::LongCall(LARGE_DATA),
        name: "continuation",
        section: "§3.2",
        expected: counts(1, 1, 1, false),
        configure: continued_large,
    },
    Mechanism {
        operation: Operation::Put(LARGE_DATA),
        name: "placement by Sends and continuation",
        section: "§3.4",
        expected: counts(1, 1, 1, false),
        configure: placed_large,
    },
];

/// All mechanisms, in the order of the document.
pub(super) const MECHANISMS: [Mechanism; 14] = [
    Mechanism {
        operation: Operation::Small,
        name: "inline",
        section: "§3.1",
        expected: counts(1, 1, 1, false),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::Put(DATA),
        name: "Read chunk",
        section: "§2.2",
        expected: counts(2, 2, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::LongCall(DATA),
        name: "Position-Zero Read chunk",
        section: "§2.2",
        expected: counts(2, 2, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::Get(DATA),
        name: "Write chunk",
        section: "§2.3",
        expected: counts(1, 1, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::LongReply(DATA),
        name: "Reply chunk",
        section: "§2.2, §2.3",
        expected: counts(1, 1, 1, true),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::Get(DATA),
        name: "Read chunk in the reply (Read-Read)",
        section: "RFC 5666 §3.8",
        expected: counts(2, 1, 2, true),
        configure: read_read,
    },
    Mechanism {
        operation: Operation::LongReply(DATA),
        name: "Position-Zero Read chunk in the reply (Read-Read)",
        section: "RFC 5666 §3.8",
        expected: counts(2, 1, 2, true),
        configure: read_read,
    },
    Mechanism {
        operation: Operation::LongCall(DATA),
        name: "continuation",
        section: "§3.2",
        expected: counts(1, 1, 1, false),
        configure: continued,
    },
    Mechanism {
        operation: Operation::LongReply(DATA),
        name: "continuation",
        section: "§3.2",
        expected: counts(1, 1, 1, false),
        configure: continued,
    },
    Mechanism {
        operation: Operation::Put(DATA),
        name: "placement by Send",
        section: "§3.3",
        expected: counts(1, 1, 1, false),
        configure: placed,
    },
    Mechanism {
        operation: Operation::Get(DATA),
        name: "placement by Send",
        section: "§3.3",
        expected: counts(1, 1, 1, false),
        configure: placed,
    },
    Mechanism {
        operation: Operation::Put(4 * DATA),
        name: "placement by Sends and continuation, 32 KiB",
        section: "§3.4",
        expected: counts(1, 1, 1, false),
        configure: placed,
    },
    Mechanism {
        operation: Operation::Several(SEVERAL),
        name: "inline",
        section: "§4",
        expected: counts(1, 1, 1, false),
        configure: defaults,
    },
    Mechanism {
        operation: Operation::Several(SEVERAL),
        name: "inline, messages in one Send",
        section: "§4",
        expected: counts(1, 1, 1, false),
        configure: combined,
    },
];
