//! Counts the credits of one connection from the traffic of its queue pair, independently of the engine.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rpcrdma_proto::wire::two::transmission::Operation;
use rpcrdma_proto::wire::two::{self, Exchange, combined};
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{self, Body, Codec, ErrorBody, Fixed, Header, RDMA_ERROR};
use rpcrdma_proto::{
    CloseReason, Config, Connection, Limits, OPERATION_RECEIVES, Profile, ProtocolError, Side,
};

use crate::link::Watch;
use crate::messages::{Messages, Parts};

/// The account of one end, whose peer follows the rules as well.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The profiles in which this end and its peer speak Version Two, if they do.
    profiles: [Option<Profile>; 2],
    /// Receives that are reserved for operations on characteristics, once Version Two is spoken.
    spare: usize,
    /// Receives that are posted and not completed.
    receives: usize,
    /// Our calls on the wire.
    out: BTreeMap<u32, Out>,
    /// Every XID of ours so far on this connection.
    used: BTreeSet<u32>,
    /// The last grant of the peer.
    granted: Option<usize>,
    /// Calls of the peer without an answer.
    received: BTreeMap<u32, Received>,
    /// Sends of calls that will never be answered.
    unanswered: usize,
    /// Operations of the peer so far.
    operations: usize,
    /// Credits per message, and the peer's parts of a message, if both sides may count them.
    messages: Option<(Messages, Parts)>,
}

/// A call of the peer without an answer.
#[derive(Debug)]
struct Received {
    /// Number of Sends of the call.
    sends: usize,
    /// Operations of the peer before the call.
    operations: usize,
}

/// A call without its reply.
#[derive(Debug)]
struct Out {
    /// Number of Sends of the call.
    sends: usize,
    /// Receives for the reply.
    buffers: usize,
}

/// The kind of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The first or only transmission of a call.
    Call {
        /// Receives for the reply.
        buffers: usize,
    },
    /// The first or only transmission of a reply.
    Reply {
        /// Number of transmissions.
        transmissions: usize,
    },
    /// A later transmission of a call.
    CallPart,
    /// A later transmission of a reply.
    ReplyPart,
    Error,
    /// A report of a fault in a reply.
    Report,
    /// An operation on characteristics.
    Operation {
        /// Whether the operation answers another one.
        answer: bool,
    },
    /// A GRANT (version-two-07 §4.2.1.1).
    Grant,
}

/// Decodes the header of a message in this profile of Version Two, or in Version One. Returns its length as well.
pub(crate) fn decode(profile: Option<Profile>, message: &[u8]) -> Result<(Header, usize), ProtocolError> {
    let mut limits = Limits::default();
    limits.segments_per_chunk = usize::MAX;
    limits.combined_messages = 64;
    // An RDMA_ERROR has the version of the refused message, and the codes of its sender (version-two-07 §7.1.2).
    let in_two = |fixed: Fixed| fixed.version == two::VERSION || fixed.procedure == RDMA_ERROR;
    match profile.filter(|_| Fixed::decode(message).is_ok_and(in_two)) {
        Some(profile) => profile.codec().decode(message, &limits),
        None => V1.decode(message, &limits),
    }
}

/// Returns the messages in one Send of a side that speaks this profile of Version Two, if any.
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

/// Returns the kind of a message of an endpoint, which sends only messages that decode and are unambiguous; also the
/// number of bytes behind its header.
pub(crate) fn kind(profile: Option<Profile>, message: &Bytes) -> (Header, Kind, usize) {
    let (header, length) = decode(profile, message).expect("an endpoint sends only acceptable messages");
    let said = header.direction;
    let directed = if said == Some(wire::Direction::Call) { CALL } else { REPLY };
    let kind = match &header.body {
        // The type says the direction, also where the message began in earlier Sends.
        Body::Message(_) | Body::Two(two::Body::Middle { .. })
            if profile == Some(Profile::P3) && header.version == two::VERSION =>
        {
            directed
        }
        Body::Two(two::Body::Grant) => Kind::Grant,
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
    (header, kind, message.len() - length)
}

pub(crate) fn credit(header: &Header) -> usize {
    usize::try_from(header.credit).unwrap()
}

impl Ledger {
    /// Returns an empty account of an end with the first profile of Version Two, if any, and a peer with the second.
    pub(crate) fn new(side: Side, own: Option<Profile>, peer: Option<Profile>) -> Self {
        let counted = [own, peer] == [Some(Profile::P3); 2];
        Self {
            profiles: [own, peer],
            spare: 0,
            receives: 0,
            out: BTreeMap::new(),
            used: BTreeSet::new(),
            granted: None,
            received: BTreeMap::new(),
            unanswered: 0,
            operations: 0,
            messages: counted.then(|| (Messages::new(side), Parts::default())),
        }
    }

    fn check_in_flight(&self) {
        let (sends, granted) =
            (self.out.values().map(|out| out.sends).sum::<usize>(), self.granted.unwrap_or(1));
        assert!(sends <= granted, "{sends} in flight, {granted} granted (I4)");
    }

    fn message_sent(&mut self, message: &Bytes) {
        let (header, kind, payload) = self::kind(self.profiles[0], message);
        let kind = match &mut self.messages {
            Some((messages, _)) => messages.message_sent(&header, payload, kind, self.receives),
            None => kind,
        };
        // Credits per message bound these messages; a peer of another profile will refuse them.
        if self.profiles[0] == Some(Profile::P3) && Messages::counts(&header) {
            let again = matches!(kind, Kind::Call { .. }) && !self.used.insert(header.xid);
            assert!(!again, "{:#x} is sent twice on one connection (I8)", header.xid);
            return;
        }
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
                self.out.get_mut(&header.xid).expect("a continued call has begun").sends += 1;
                self.check_in_flight();
            }
            Kind::Reply { .. } | Kind::Error => {
                // Some of the posted Receives are reserved for replies to our calls, others for operations.
                let awaited: usize = self.out.values().map(|out| out.buffers).sum();
                // Its own Call has no credit left. An answer proves to the peer that the operations before the Call have
                // arrived, and then the next one may leave. The Receives of later operations may not be posted again.
                let call = self.received.remove(&header.xid);
                let later = self.operations - call.map_or(0, |call| call.operations);
                let (receives, others) = (self.receives + later, awaited + self.spare);
                assert!(receives >= others, "{receives} Receives, {others} for replies and operations (I3)");
                let backed = receives - others;
                let in_progress =
                    self.received.values().map(|call| call.sends).sum::<usize>() + self.unanswered;
                assert!(credit <= backed + in_progress, "{credit} > {backed} + {in_progress} (I3)");
            }
            Kind::ReplyPart => {}
            Kind::Report | Kind::Grant => panic!("both keep to the rules: {header:?}"),
            Kind::Operation { .. } => self.spare = OPERATION_RECEIVES,
        }
    }

    fn message_received(&mut self, message: &Bytes) {
        let (header, kind, payload) = self::kind(self.profiles[1], message);
        if let Some((messages, parts)) = &mut self.messages {
            let counted = header.version == two::VERSION;
            let is_call = matches!(kind, Kind::Call { .. });
            messages.message_received(counted.then_some(header.credit), is_call, kind == Kind::Grant);
            if counted {
                parts.follow(&header, payload, kind);
                return;
            }
        }
        match kind {
            Kind::Call { .. } => {
                self.received.insert(header.xid, Received { sends: 1, operations: self.operations });
            }
            Kind::CallPart => {
                // The credit returns to the peer with the reply; but an earlier part may have been refused already.
                self.received.entry(header.xid).and_modify(|call| call.sends += 1);
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
                let out = self.out.get_mut(&header.xid).expect("a continued reply has begun");
                out.buffers -= 1;
                if out.buffers == 0 {
                    self.out.remove(&header.xid);
                }
            }
            // A peer that counts messages does not know yet that this end speaks another profile.
            Kind::Grant if self.profiles[1] == Some(Profile::P3) => {}
            Kind::Report | Kind::Grant => panic!("both keep to the rules: {header:?}"),
            Kind::Error => {
                self.out.remove(&header.xid);
                // RFC 8166 §3.3.3: the first grant comes with a valid reply.
                self.granted = self.granted.map(|_| credit(&header));
            }
            Kind::Operation { .. } => self.operations += 1,
        }
    }

    /// Returns whether the peer has granted credits, and sends nothing without a grant: then it has a Receive for every
    /// message.
    pub(crate) fn has_grant(&self) -> bool {
        self.granted.is_some() && self.profiles.contains(&None)
    }

    /// Checks a connection at rest, with this configuration.
    pub(crate) fn check_rest(&self, connection: &Connection, config: &Config) {
        if let Some((messages, _)) = &self.messages {
            messages.check_rest(connection, config, self.receives);
        }
    }

    /// Checks the reason of the end of the connection.
    pub(crate) fn check_end(&self, reason: &CloseReason) {
        if let Some((messages, _)) = &self.messages {
            messages.check_end(reason);
        }
    }

    /// Records that a call of the peer stays without an answer: its credit never returns.
    pub(crate) fn dropped(&mut self, xid: u32) {
        self.unanswered += self.received.remove(&xid).map_or(0, |call| call.sends);
    }
}

impl Watch for Ledger {
    fn receive_posted(&mut self) {
        self.receives += 1;
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
