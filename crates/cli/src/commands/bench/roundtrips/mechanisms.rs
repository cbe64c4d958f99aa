//! The operations of the round-trip analysis (draft-dnoveck-nfsv4-rpcrdma-rtissues-03 §2, §3) and the ways in which they can travel,
//! with the counts that the document gives for each.

use rpcrdma::{BufferStructure, ClientConfig, Config, Profile, ReadRead, ServerConfig, Versions};
use serde::Serialize;

/// Bytes of data in an operation: what one page of eight needs more than one Send for.
pub(super) const DATA: usize = 8 << 10;

/// Calls that are made at once.
const SEVERAL: usize = 8;

/// Bytes in a Receive for an item: all of the data.
const PLACE: u32 = 8 << 10;

/// Bytes of data in a large operation: what NFS clients write at a time.
pub(super) const LARGE_DATA: usize = 1 << 20;

/// Bytes of it in each Send.
const LARGE_PART: u32 = 64 << 10;

/// Sends in which a large operation may go: those for the data, and some for what is around it.
const LARGE_PARTS: usize = 32;

/// RDMA Reads at a time under the Read-Read model.
const READS: u16 = 16;

/// Memory of each side, in bytes.
const MEMORY: usize = 64 << 20;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands::bench) enum Operation {
    /// A short Call, a short reply.
    Small,
    /// So many of these at once.
    Several(usize),
    /// A Call with so many bytes of a DDP-eligible argument, as NFS WRITE.
    Put(usize),
    /// A reply with so many bytes of a DDP-eligible result, as NFS READ.
    Get(usize),
    /// A Call with so many bytes that are not eligible.
    LongCall(usize),
    /// A reply with so many bytes that are not eligible.
    LongReply(usize),
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Small => "small call, small reply",
            Self::Several(_) => "8 small calls at once",
            Self::Put(_) => "call with placed data (WRITE)",
            Self::Get(_) => "reply with placed data (READ)",
            Self::LongCall(_) => "long call",
            Self::LongReply(_) => "long reply",
        }
    }
}

/// What the document counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Internode round trips that the requester waits for.
    pub(super) round_trips: u64,
    /// Interrupts in the path at the responder.
    pub(super) responder: usize,
    /// The same at the requester.
    pub(super) requester: usize,
    /// Whether memory is registered for it.
    pub(super) registers: bool,
}

/// An operation in one of the ways in which it can travel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mechanism {
    pub(super) operation: Operation,
    /// The way.
    pub(super) name: &'static str,
    /// Where the document speaks of it.
    pub(super) section: &'static str,
    pub(super) expected: Counts,
    /// What both sides are told beside the defaults.
    pub(super) configure: fn(&mut ClientConfig, &mut ServerConfig),
}

/// Which way of which operation, as results name it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Way {
    pub(super) operation: &'static str,
    pub(super) mechanism: &'static str,
    /// Of the document.
    pub(super) section: &'static str,
}

impl Mechanism {
    pub(super) const fn way(&self) -> Way {
        Way { operation: self.operation.name(), mechanism: self.name, section: self.section }
    }

    /// What both sides are told.
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

/// RFC 5666 §3.8, of which the document says nothing: the counts follow from its rules.
fn read_read(client: &mut ClientConfig, server: &mut ServerConfig) {
    let model = ReadRead { withhold_chunks: true, ..ReadRead::default() };
    client.protocol.compatibility.read_read = Some(model.clone());
    server.protocol.compatibility.read_read = Some(model);
    // A reply can have several Read chunks.
    client.ord = server.ird.max(READS);
    server.ird = client.ord;
}

/// Version Two, whose messages go on in several Sends (§3.2).
fn continued(client: &mut ClientConfig, server: &mut ServerConfig) {
    client.protocol.versions = Versions::two(Profile::P1);
    server.protocol.versions = Versions::two(Profile::P1);
}

/// The same with Receives of both sides in which items can be placed (§3.3).
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

/// [`continued`] with longer Sends, and more of them.
fn continued_large(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    for protocol in [&mut client.protocol, &mut server.protocol] {
        let part = usize::try_from(LARGE_PART).unwrap_or(usize::MAX);
        (protocol.send_size, protocol.receive_size) = (part, part);
        take_large(protocol);
    }
}

/// [`placed`] with longer Receives, and more of them.
fn placed_large(client: &mut ClientConfig, server: &mut ServerConfig) {
    continued(client, server);
    for protocol in [&mut client.protocol, &mut server.protocol] {
        protocol.place_items(BufferStructure::with_items(1, LARGE_PART));
        take_large(protocol);
    }
}

/// Sends and takes messages in [`LARGE_PARTS`] Sends of the length that Receives have.
fn take_large(protocol: &mut Config) {
    protocol.continued_parts = LARGE_PARTS;
    protocol.limits.continued_len = LARGE_PARTS * protocol.receive_size;
    // What is to be counted, whether it is what would be chosen or not.
    protocol.transmissions.join_up_to = usize::MAX;
}

/// The ways of a WRITE of [`LARGE_DATA`], and of a Call as long.
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

/// All of them, in the order of the document.
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
