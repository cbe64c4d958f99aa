//! Operations of RDMA, assembled from the FPDUs of iWARP or from the packets of RoCE.
//!
//! Both transports move data by Sends, RDMA Writes and RDMA Reads. The events of a session use the terms of RDMAP. On
//! RoCE, a steering tag is an R_Key, and a tagged offset is a virtual address.

use rpcrdma_iwarp::wire::rdmap::{Opcode, ReadRequest};

use crate::session::{Kind, Session};
use crate::tcp::Side;

mod fpdus;
mod packets;

/// A complete Send of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender of the message.
    pub from: Side,
    /// Send, or one of its variants.
    pub opcode: Opcode,
    /// The steering tag that the message invalidates.
    pub invalidate: Option<u32>,
    /// Content of the Send.
    pub bytes: Vec<u8>,
    /// Number of bytes, from the front, that are those of the wire; all of them unless the message was reduced.
    pub genuine: usize,
}

/// A segment of an RDMA Write or a Read Response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Sender of the segment.
    pub from: Side,
    /// Steering tag at the receiver.
    pub stag: u32,
    /// Tagged offset at the receiver.
    pub offset: u64,
    /// Payload of the segment.
    pub bytes: Vec<u8>,
    /// Whether the payload is that of the wire: none of it was cut out.
    pub genuine: bool,
    /// This is the last segment of its operation.
    pub last: bool,
}

/// Effect of one FPDU or packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The last segment of a Send arrived.
    Message(Message),
    /// A segment of an RDMA Write.
    Write(Placement),
    /// An RDMA Read Request. RoCE names no sink: its tag and offset are 0, and Read Responses count from there.
    ReadRequest(Side, ReadRequest),
    /// A segment of a Read Response.
    ReadResponse(Placement),
    /// A Terminate, with the bytes behind its DDP header.
    Terminate(Side, Vec<u8>),
    /// A packet of RoCE that refuses a request for good, with the code of its NAK.
    Refusal(Side, u8),
    /// The recorder lost requests of this side, which the peer has: the number of their sequence numbers. Requests
    /// between a lost one and the acknowledgment of the peer count as lost too.
    Gap(Side, u32),
    /// The recorder lost a response to the oldest Read of this side. Later responses to that Read have no events.
    ReadGap(Side),
    /// A segment that violates DDP or RDMAP, with its ULPDU. Or a packet: its operation is unknown, or it violates the
    /// order of its operation.
    Odd(Side, Vec<u8>),
}

impl Message {
    /// Returns a message without content.
    const fn new(from: Side, opcode: Opcode, invalidate: Option<u32>) -> Self {
        Self { from, opcode, invalidate, bytes: Vec::new(), genuine: 0 }
    }

    /// Appends the payload of the next segment, whose last `cut` bytes were cut out.
    fn append(&mut self, payload: &[u8], cut: usize) {
        if self.genuine == self.bytes.len() {
            self.genuine += payload.len().saturating_sub(cut);
        }
        self.bytes.extend_from_slice(payload);
    }
}

/// Returns the events of a session, in order.
#[must_use]
pub fn events(session: &Session) -> Vec<Event> {
    let mut fpdus = fpdus::Assembly::default();
    let mut packets = packets::Assembly::of(session);
    let mut events = Vec::new();
    for (at, item) in session.items.iter().enumerate() {
        match item.kind {
            Kind::Fpdu => events.extend(fpdus.event(item)),
            Kind::Packet => packets.take(at, item, &mut events),
            Kind::Frame | Kind::Rest | Kind::End(_) => {}
        }
    }
    events
}
