//! Transport characteristics on a connection: the conversation is `characteristics::exchange`, and here is what it leads to
//! (thresholds, sizes of Receives, Send with Invalidate), and the way of its messages.
//!
//! Nothing is owned here. *On error*: an operation that cannot be used is refused as a whole, in an RDMA_ERROR under its XID
//! (version-two-01 §3.1, xcharext-02 §2.1).

use std::time::Instant;

use rpcrdma_xdr::Stream;

use super::Connection;
use crate::characteristics::exchange::{Effect, Exchanges, Operation, Progress};
use crate::characteristics::{Characteristic, Characteristics, NotExchanged, Transmissions};
use crate::core::PeerGroups;
use crate::error::{Action, ProtocolError, Taken};
use crate::private_data::Thresholds;
use crate::two::arrange::Targets;
use crate::versions::FIRST_MESSAGE;
use crate::wire::two::Exchange;
use crate::wire::two::transmission::{
    BufferStructure, SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE,
};
use crate::wire::{Body, Fixed, two};

impl Connection {
    /// Makes what was told hold.
    pub(super) fn follow_characteristics(&mut self) {
        let Some(exchanges) = &self.exchanges else { return };
        let takes_groups = self.takes_groups();
        let rules = self.core.codec.rules();
        let own = self.core.config.send_size.max(rules.default_inline);
        let (mut send, mut earlier) = exchanges.send(own, rules.largest_inline);
        // version-two-01 §5.1: the defaults hold after the first answer.
        if self.first_answer_due {
            (send, earlier) = (FIRST_MESSAGE, FIRST_MESSAGE);
        }
        self.core.thresholds = Thresholds { send, receive: exchanges.receive() };
        self.core.send_earlier = earlier;
        let peer = exchanges.peer();
        self.core.peer_reverse = Some(peer.reverse);
        self.core.peer_segments = (peer.segment_size, peer.segment_count);
        if exchanges.is_exchanged().is_some() {
            self.core.untold = None;
        }
        let longest = wide(peer.receive_size).min(rules.largest_inline);
        self.core.peer_groups = peer_groups(&peer.transmissions, longest).filter(|_| takes_groups);
        let limits = &self.core.config.limits;
        let takes = limits.combined_messages > 1 && !self.first_answer_due;
        let both = if takes { wide(peer.combined) } else { 1 };
        self.core.combine.set_most(self.core.config.combined_messages.min(both));
        self.core.invalidate_peer = self.core.may_invalidate
            && (rules.two.is_some_and(|two| two.names_handle) || peer.remote_invalidation);
    }

    /// What the peer has told of itself; the defaults, as long as it has told nothing. `None` where the version has no
    /// characteristics.
    #[must_use]
    pub fn peer_characteristics(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::peer)
    }

    /// What holds on this side.
    #[must_use]
    pub fn characteristics(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::ours)
    }

    /// Whether the peer exchanges characteristics; `None` as long as it has not shown it.
    #[must_use]
    pub fn exchanges_characteristics(&self) -> Option<bool> {
        self.exchanges.as_ref().and_then(Exchanges::is_exchanged)
    }

    /// Asks the peer to change characteristics (xcharext-02 §4.2). What becomes of it comes as
    /// [`Notice::Answered`](crate::Notice::Answered) with this number, and perhaps [`Notice::Completed`](crate::Notice::Completed).
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn ask(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        let allowed = self.core.config.limits.characteristics;
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        let request = exchanges.ask(want, allowed)?;
        self.follow_characteristics();
        Ok(request)
    }

    /// Changes a characteristic of ours, and tells the peer. A larger receive size takes effect when the last smaller Receive
    /// has been used (xcharext-02 §3.1); [`Notice::Own`](crate::Notice::Own) says when.
    ///
    /// # Errors
    /// [`NotExchanged`]
    pub fn change(&mut self, value: Characteristic) -> Result<(), NotExchanged> {
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        let effect = exchanges.change(value)?;
        self.carry_out(effect);
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) {
        if let Effect::PostReceivesOf(size) = effect {
            self.core.ledger.resize_receives(usize::try_from(size).unwrap_or(usize::MAX));
        }
    }

    /// How far both sides have come.
    fn progress(&self) -> Progress {
        let lowering = self.exchanges.as_ref().is_some_and(Exchanges::is_lowering);
        Progress {
            mark: self.core.ledger.mark(),
            shown: self.core.ledger.shown(),
            oldest: if lowering { self.requester.oldest() } else { None },
        }
    }

    /// Whether anything is to be done about characteristics. Asked with every message, so it does not look far.
    pub(super) fn has_operation(&mut self) -> bool {
        if self.first_answer_due && self.core.ledger.has_answered() {
            self.first_answer_due = false;
            if self.core.codec.rules().two.is_some_and(|two| two.tells_once)
                && let Some(exchanges) = &mut self.exchanges
            {
                exchanges.begin();
            }
            self.follow_characteristics();
        }
        self.exchanges.as_ref().is_some_and(Exchanges::has_something_to_do)
    }

    /// Goes on with changes, and sends what is to be said about characteristics if that may leave; `false` if nothing was.
    pub(super) fn transmit_operation(&mut self, may_leave: bool) -> bool {
        let progress = self.progress();
        let Some(exchanges) = &mut self.exchanges else { return false };
        let least = self.core.ledger.least_earlier_receive();
        let effect = exchanges.advance(progress, least, &mut self.core.events);
        let next = if may_leave { exchanges.next(progress) } else { None };
        self.carry_out(effect);
        let mut sent = false;
        if let Some(Operation { direction, xid, body }) = next
            && let Some(permit) = self.core.ledger.operation(direction)
        {
            let xid = xid.unwrap_or_else(|| self.operation_xid(&body));
            tracing::debug!(side = %self.core.side, xid = format_args!("{xid:#010x}"), ?body, "operation");
            let header = self.core.header(direction, xid, &permit, body);
            self.core.send(permit, &header, &Stream::new(), None, true);
            self.core.stats.operations_sent += 1;
            sent = true;
        }
        self.follow_characteristics();
        sent
    }

    /// An XID for an operation of ours: of the same space as those of our Calls (version-two-01 §4.2.2).
    fn operation_xid(&mut self, body: &Body) -> u32 {
        let xid = loop {
            let xid = self.next_operation;
            self.next_operation = xid.wrapping_add(1);
            if !self.requester.knows(xid) {
                break xid;
            }
        };
        if let Some(exchanges) = &mut self.exchanges {
            exchanges
                .sent_under(xid, matches!(body, Body::Two(two::Body::Exchange(Exchange::Request { .. }))));
        }
        xid
    }

    /// Takes an operation of the peer.
    pub(super) fn handle_operation(&mut self, now: Instant, fixed: Fixed, exchange: Exchange) {
        let (progress, limit) = (self.progress(), self.core.config.limits.operations);
        let Some(exchanges) = &mut self.exchanges else { return };
        self.core.stats.operations_received += 1;
        tracing::debug!(side = %self.core.side, ?exchange, "operation received");
        let mut faults = Vec::new();
        let events = &mut self.core.events;
        let effect = exchanges.handle(fixed.xid, exchange, progress, limit, events, &mut faults);
        for fault in faults {
            self.core.stats.fault(&fault.into());
        }
        match effect {
            Ok(effect) => self.carry_out(effect),
            Err(error) => self.refuse_operation(now, fixed, error),
        }
        self.follow_characteristics();
    }

    /// A message that is an operation, and does not decode.
    pub(super) fn operation_undecoded(&mut self, now: Instant, fixed: Fixed, error: two::Error) {
        let limit = self.core.config.limits.operations;
        self.core.stats.operations_received += 1;
        let storm = self.exchanges.as_mut().and_then(|exchanges| exchanges.undecoded(limit).err());
        self.refuse_operation(now, fixed, storm.unwrap_or(error).into());
    }

    /// An operation cannot be used (version-two-01 §3.1, xcharext-02 §2.1). What says that it answers something is not answered itself
    /// (RFC 8166 §4.5).
    fn refuse_operation(&mut self, now: Instant, fixed: Fixed, error: ProtocolError) {
        let taken = match error {
            ProtocolError::Two(two::Error::OperationDirection { said, .. }) => said.into(),
            _ => Taken::AsCall,
        };
        let answer = error.action(taken) == Action::Answer;
        match &mut self.exchanges {
            Some(exchanges) if answer => {
                tracing::debug!(side = %self.core.side, %error, "operation refused");
                self.core.stats.fault(&error);
                exchanges.refuse(fixed.xid, self.core.codec.refusal(&error));
            }
            _ => self.fault(now, error, taken, Some(fixed)),
        }
    }
}

fn wide(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// What a peer can do with transmission groups; `None` if that is nothing. `longest` are the bytes of the longest Send to it.
fn peer_groups(said: &Transmissions, longest: usize) -> Option<PeerGroups> {
    let wide = |count: u32| usize::try_from(count).unwrap_or(usize::MAX).max(1);
    let takes = |bits| said.support & bits == bits;
    let continues = |sends: u32| if takes(SUPPORT_CONTINUATION) { wide(sends) } else { 1 };
    // A structure is believed as far as its Receives are (rtrext-02 §8.3: it agrees with their size).
    let fits = |structure: &&BufferStructure| wide(structure.total) <= longest;
    let targets = said.structure.as_ref().filter(fits).and_then(Targets::of);
    (said.support != 0).then(|| PeerGroups {
        takes_calls: takes(SUPPORT_REQUEST),
        places: takes(SUPPORT_RESPONSE),
        requests: continues(said.request_limit),
        responses: wide(said.response_limit),
        targets,
    })
}
