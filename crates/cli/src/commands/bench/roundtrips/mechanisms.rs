//! The operations of the round-trip analysis (draft-dnoveck-nfsv4-rpcrdma-rtissues-03 §2, §3) and the ways in which they can travel,
//! with the counts that the document gives for each.

use rpcrdma::{BufferStructure, ClientConfig, Profile, ReadRead, ServerConfig, Versions};

/// Octets of data in an operation: what one page of eight needs more than one Send for.
pub(super) const DATA: usize = 8 << 10;

/// Octets in a Receive for an item: all of the data.
const PLACE: u32 = 8 << 10;

/// RDMA Reads at a time under the Read-Read model.
const READS: u16 = 16;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A short Call, a short reply.
    Small,
    /// A Call with so many octets of a DDP-eligible argument, as NFS WRITE.
    Put(usize),
    /// A reply with so many octets of a DDP-eligible result, as NFS READ.
    Get(usize),
    /// A Call with so many octets that are not eligible.
    LongCall(usize),
    /// A reply with so many octets that are not eligible.
    LongReply(usize),
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Small => "small call, small reply",
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

/// All of them, in the order of the document.
pub(super) const MECHANISMS: [Mechanism; 12] = [
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
        name: "placement by Sends and continuation",
        section: "§3.4",
        expected: counts(1, 1, 1, false),
        configure: placed,
    },
];
