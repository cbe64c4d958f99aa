//! Keeps account of one connection's credits from what passes its queue pair, knowing nothing of how the engine counts.

use std::collections::BTreeSet;

use bytes::Bytes;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{self, Body, Codec, Exchange, Fixed, Header};
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
    out: BTreeSet<u32>,
    /// Every XID of ours that was on this wire.
    used: BTreeSet<u32>,
    /// What the peer granted last.
    granted: Option<usize>,
    /// The peer's calls that are not answered.
    received: BTreeSet<u32>,
    /// Operations of the peer whose Receive may not be posted again.
    operations: usize,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Reply,
    Error,
    /// An operation on characteristics.
    Operation {
        /// It answers another one.
        answer: bool,
    },
}

/// The header of a message of one that speaks Version Two by this profile, if at all; and its length.
pub(crate) fn decode(profile: Option<Profile>, message: &[u8]) -> Result<(Header, usize), ProtocolError> {
    let limits = Limits { segments_per_chunk: usize::MAX, ..Limits::default() };
    match profile.filter(|_| Fixed::decode(message).is_ok_and(|fixed| fixed.version == 2)) {
        Some(profile) => profile.codec().decode(message, &limits),
        None => V1.decode(message, &limits),
    }
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
            if call { Kind::Call } else { Kind::Reply }
        }
        Body::NoMessage(lists) => {
            let call = said.map_or(lists.has_position_zero(), |said| said == wire::Direction::Call);
            if call { Kind::Call } else { Kind::Reply }
        }
        Body::Error(_) => Kind::Error,
        Body::Exchange(exchange) => Kind::Operation { answer: matches!(exchange, Exchange::Response { .. }) },
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

    /// A call of the peer is left without an answer.
    pub(crate) fn dropped(&mut self, xid: u32) {
        self.received.remove(&xid);
    }
}

impl Watch for Ledger {
    fn receive_posted(&mut self) {
        self.receives += 1;
        self.operations = 0;
    }

    fn sent(&mut self, message: &Bytes, _in_progress: usize) {
        let (header, kind) = kind(self.profiles[0], message);
        let credit = credit(&header);
        assert!(credit >= 1, "a request or grant is never 0: {header:?}");
        match kind {
            Kind::Call => {
                assert!(
                    self.used.insert(header.xid),
                    "{:#x} is sent twice on one connection (I8)",
                    header.xid
                );
                self.out.insert(header.xid);
                let granted = self.granted.unwrap_or(1);
                assert!(self.out.len() <= granted, "{} in flight, {granted} granted (I4)", self.out.len());
            }
            Kind::Reply | Kind::Error => {
                // Of the posted Receives, those for replies to our calls are spoken for, and those for operations.
                let backed = (self.receives + self.operations).saturating_sub(self.out.len() + self.spare);
                let in_progress = self.received.len();
                assert!(credit <= backed + in_progress, "{credit} > {backed} + {in_progress} (I3)");
                self.received.remove(&header.xid);
            }
            Kind::Operation { .. } => self.spare = OPERATION_RECEIVES,
        }
    }

    fn receive_completed(&mut self, message: Option<&Bytes>) {
        self.receives -= 1;
        let Some(message) = message else { return };
        let (header, kind) = kind(self.profiles[1], message);
        match kind {
            Kind::Call => {
                self.received.insert(header.xid);
            }
            Kind::Reply => {
                self.out.remove(&header.xid);
                self.granted = Some(credit(&header));
            }
            Kind::Error => {
                self.out.remove(&header.xid);
                // RFC 8166 §3.3.3: the first grant is that of a valid reply.
                self.granted = self.granted.map(|_| credit(&header));
            }
            Kind::Operation { .. } => self.operations += 1,
        }
    }
}
