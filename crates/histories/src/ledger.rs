//! Keeps account of one connection's credits from what passes its queue pair, knowing nothing of how the engine counts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rpcrdma_proto::wire::two::transmission::Operation;
use rpcrdma_proto::wire::two::{self, Exchange, combined};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{self, Body, Codec, ErrorBody, Fixed, Header};
use rpcrdma_proto::{Limits, OPERATION_RECEIVES, Profile, ProtocolError};

use crate::link::Watch;

/// The account of one end, whose peer keeps to the rules as well.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The documents of Version Two that this end and its peer speak, if they do.
    profiles: [Option<Profile>; 2],
    /// Receives that are kept for operations on characteristics, once Version Two is spoken.
    spare: usize,
    /// Receives posted and not completed.
    receives: usize,
    /// Our calls on the wire.
    out: BTreeMap<u32, Out>,
    /// Every XID of ours that was on this wire.
    used: BTreeSet<u32>,
    /// What the peer granted last.
    granted: Option<usize>,
    /// The peer's calls that are not answered, with the Sends that each took.
    received: BTreeMap<u32, usize>,
    /// Sends of those that never will be.
    unanswered: usize,
    /// Operations of the peer whose Receive may not be posted again.
    operations: usize,
}

/// A call without its reply.
#[derive(Debug)]
struct Out {
    /// Sends that it took.
    sends: usize,
    /// Receives that there are for its reply.
    buffers: usize,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first or only transmission of a call.
    Call {
        /// Receives that there are for its reply.
        buffers: usize,
    },
    /// The same of a reply.
    Reply {
        /// How many there are.
        transmissions: usize,
    },
    /// A later transmission of a call.
    CallPart,
    /// A later transmission of a reply.
    ReplyPart,
    Error,
    /// Something is wrong with a reply.
    Report,
    /// An operation on characteristics.
    Operation {
        /// It answers another one.
        answer: bool,
    },
}

/// The header of a message of one that speaks Version Two by this profile, if at all; and its length.
pub(crate) fn decode(profile: Option<Profile>, message: &[u8]) -> Result<(Header, usize), ProtocolError> {
    let limits = Limits { segments_per_chunk: usize::MAX, combined_messages: 64, ..Limits::default() };
    match profile.filter(|_| Fixed::decode(message).is_ok_and(|fixed| fixed.version == 2)) {
        Some(profile) => profile.codec().decode(message, &limits),
        None => V1.decode(message, &limits),
    }
}

/// The messages in one Send of one that speaks Version Two by this profile.
pub(crate) fn messages(profile: Option<Profile>, send: &Bytes) -> Vec<Bytes> {
    let together = decode(profile, send).ok().and_then(|(header, length)| match header.body {
        Body::Two(two::Body::Combined(lengths)) => {
            let fixed = Fixed::decode(send).ok()?;
            combined::split(&lengths, &send.slice(length..), fixed).ok()
        }
        _ => None,
    });
    together.unwrap_or_else(|| vec![send.clone()])
}

const CALL: Kind = Kind::Call { buffers: 1 };
const REPLY: Kind = Kind::Reply { transmissions: 1 };

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap()
}

/// What an endpoint has sent; it sends nothing that does not decode, or that says two things.
pub(crate) fn kind(profile: Option<Profile>, message: &Bytes) -> (Header, Kind) {
    let (header, length) = decode(profile, message).expect("an endpoint sends what it would accept");
    let said = header.direction;
    let kind = match &header.body {
        Body::Message(_) => {
            let call = message[length + 4..length + 8] == [0; 4];
            let direction = if call { wire::Direction::Call } else { wire::Direction::Reply };
            assert!(said.is_none_or(|said| said == direction), "the header says {said:?}, the message not");
            if call { CALL } else { REPLY }
        }
        Body::NoMessage(lists) => {
            let call = said.map_or(lists.has_position_zero(), |said| said == wire::Direction::Call);
            if call { CALL } else { REPLY }
        }
        Body::Two(two::Body::Transmission(Operation::Request(request))) => {
            Kind::Call { buffers: size(request.response_buffers).max(1) }
        }
        Body::Two(two::Body::Transmission(Operation::Response(response))) => {
            Kind::Reply { transmissions: size(response.count) }
        }
        Body::Two(two::Body::Transmission(_)) if said == Some(wire::Direction::Call) => Kind::CallPart,
        Body::Two(two::Body::Transmission(_)) => Kind::ReplyPart,
        Body::Error(ErrorBody::Two(two::ErrorBody::Report(report)))
            if report.group().direction == wire::Direction::Reply =>
        {
            Kind::Report
        }
        Body::Error(_) => Kind::Error,
        Body::Two(two::Body::Exchange(exchange)) => {
            Kind::Operation { answer: matches!(exchange, Exchange::Response { .. }) }
        }
        other => panic!("never sent: {other:?}"),
    };
    (header, kind)
}

pub(crate) fn credit(header: &Header) -> usize {
    usize::try_from(header.credit).unwrap()
}

impl Ledger {
    /// Of an end that speaks Version Two by the first of these, with a peer that speaks it by the second.
    pub(crate) fn new(own: Option<Profile>, peer: Option<Profile>) -> Self {
        Self { profiles: [own, peer], ..Self::default() }
    }

    fn check_in_flight(&self) {
        let (sends, granted) =
            (self.out.values().map(|out| out.sends).sum::<usize>(), self.granted.unwrap_or(1));
        assert!(sends <= granted, "{sends} in flight, {granted} granted (I4)");
    }

    fn message_sent(&mut self, message: &Bytes) {
        let (header, kind) = kind(self.profiles[0], message);
        let credit = credit(&header);
        assert!(credit >= 1, "a request or grant is never 0: {header:?}");
        match kind {
            Kind::Call { buffers } => {
                assert!(
                    self.used.insert(header.xid),
                    "{:#x} is sent twice on one connection (I8)",
                    header.xid
                );
                self.out.insert(header.xid, Out { sends: 1, buffers });
                self.check_in_flight();
            }
            // rtrext-02 §4.3: each transmission takes a Receive of the peer.
            Kind::CallPart => {
                self.out.get_mut(&header.xid).expect("a call goes on that has begun").sends += 1;
                self.check_in_flight();
            }
            Kind::Reply { .. } | Kind::Error => {
                // Of the posted Receives, those for replies to our calls are spoken for, and those for operations.
                let awaited: usize = self.out.values().map(|out| out.buffers).sum();
                let backed = (self.receives + self.operations).saturating_sub(awaited + self.spare);
                // Its own Call has no credit any more.
                self.received.remove(&header.xid);
                let in_progress = self.received.values().sum::<usize>() + self.unanswered;
                assert!(credit <= backed + in_progress, "{credit} > {backed} + {in_progress} (I3)");
            }
            Kind::ReplyPart => {}
            Kind::Report => panic!("both keep to the rules: {header:?}"),
            Kind::Operation { .. } => self.spare = OPERATION_RECEIVES,
        }
    }

    fn message_received(&mut self, message: &Bytes) {
        let (header, kind) = kind(self.profiles[1], message);
        match kind {
            Kind::Call { .. } => {
                self.received.insert(header.xid, 1);
            }
            Kind::CallPart => {
                // The peer has no credit back before the reply; but what begun it may have been refused already.
                self.received.entry(header.xid).and_modify(|used| *used += 1);
            }
            Kind::Reply { transmissions } => {
                self.granted = Some(credit(&header));
                match self.out.get_mut(&header.xid) {
                    Some(out) if transmissions > 1 => {
                        assert!(transmissions <= out.buffers, "more than there are Receives for (I3)");
                        out.buffers = transmissions - 1;
                    }
                    _ => drop(self.out.remove(&header.xid)),
                }
            }
            Kind::ReplyPart => {
                let out = self.out.get_mut(&header.xid).expect("a reply goes on that has begun");
                out.buffers -= 1;
                if out.buffers == 0 {
                    self.out.remove(&header.xid);
                }
            }
            Kind::Report => panic!("both keep to the rules: {header:?}"),
            Kind::Error => {
                self.out.remove(&header.xid);
                // RFC 8166 §3.3.3: the first grant is that of a valid reply.
                self.granted = self.granted.map(|_| credit(&header));
            }
            Kind::Operation { .. } => self.operations += 1,
        }
    }

    /// Whether the peer has granted something, and sends nothing without a grant: then it has a Receive for every message.
    pub(crate) fn has_grant(&self) -> bool {
        self.granted.is_some() && self.profiles.contains(&None)
    }

    /// A call of the peer is left without an answer: it never has its credit back.
    pub(crate) fn dropped(&mut self, xid: u32) {
        self.unanswered += self.received.remove(&xid).unwrap_or(0);
    }
}

impl Watch for Ledger {
    fn receive_posted(&mut self) {
        self.receives += 1;
        self.operations = 0;
    }

    fn sent(&mut self, message: &Bytes, _in_progress: usize) {
        messages(self.profiles[0], message).iter().for_each(|message| self.message_sent(message));
    }

    fn receive_completed(&mut self, message: Option<&Bytes>) {
        self.receives -= 1;
        let Some(message) = message else { return };
        messages(self.profiles[1], message).iter().for_each(|message| self.message_received(message));
    }
}
