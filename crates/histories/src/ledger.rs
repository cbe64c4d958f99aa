//! Keeps account of one connection's credits from what passes its queue pair, knowing nothing of how the engine counts.

use std::collections::BTreeSet;

use bytes::Bytes;
use rpcrdma_proto::Limits;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec, Header};

use crate::link::Watch;

/// The account of one end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
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
}

/// Which way a message goes.
pub(crate) enum Direction {
    Call,
    Answer,
}

/// Which way a message of ours goes; an endpoint sends none that does not decode.
pub(crate) fn direction(message: &Bytes) -> (Header, Direction) {
    let limits = Limits { segments_per_chunk: usize::MAX, ..Limits::default() };
    let (header, length) = V1.decode(message, &limits).expect("an endpoint sends what it would accept");
    let call = match &header.body {
        Body::Message(_) => message[length + 4..length + 8] == [0; 4],
        Body::NoMessage(lists) => lists.has_position_zero(),
        Body::Error(_) | Body::Exchange(_) => false,
        other => panic!("never sent: {other:?}"),
    };
    (header, if call { Direction::Call } else { Direction::Answer })
}

impl Ledger {
    /// A call of the peer is left without an answer.
    pub(crate) fn dropped(&mut self, xid: u32) {
        self.received.remove(&xid);
    }
}

impl Watch for Ledger {
    fn receive_posted(&mut self) {
        self.receives += 1;
    }

    fn sent(&mut self, message: &Bytes, _in_progress: usize) {
        let (header, direction) = direction(message);
        let credit = usize::try_from(header.credit).unwrap();
        assert!(credit >= 1, "a request or grant is never 0: {header:?}");
        match direction {
            Direction::Call => {
                assert!(
                    self.used.insert(header.xid),
                    "{:#x} is sent twice on one connection (I8)",
                    header.xid
                );
                self.out.insert(header.xid);
                let granted = self.granted.unwrap_or(1);
                assert!(self.out.len() <= granted, "{} in flight, {granted} granted (I4)", self.out.len());
            }
            Direction::Answer => {
                // Of the posted Receives, those for replies to our calls are spoken for.
                let backed = self.receives.saturating_sub(self.out.len());
                let in_progress = self.received.len();
                assert!(credit <= backed + in_progress, "{credit} > {backed} + {in_progress} (I3)");
                self.received.remove(&header.xid);
            }
        }
    }

    fn receive_completed(&mut self, message: Option<&Bytes>) {
        self.receives -= 1;
        let Some(message) = message else { return };
        let (header, direction) = direction(message);
        match direction {
            Direction::Call => {
                self.received.insert(header.xid);
            }
            Direction::Answer => {
                self.out.remove(&header.xid);
                self.granted = Some(usize::try_from(header.credit).unwrap());
            }
        }
    }
}
