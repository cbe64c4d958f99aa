//! Operations on characteristics: their transmission and reception, and their effects on the connection (thresholds,
//! Receive sizes, Send with Invalidate). `characteristics::exchange` handles their content.
//!
//! *Errors*: an operation that cannot be used is refused as a whole, in an RDMA_ERROR under its XID (version-two-01
//! §3.1, xcharext-02 §2.1).

use rpcrdma_xdr::Stream;

use super::Two;
use super::arrange::Targets;
use super::groups::takes_groups;
use super::sending::PeerGroups;
use crate::connection::Halves;
use crate::core::Core;
use crate::event::Event;
use crate::requester::Requester;
use crate::settings::private_data::Thresholds;
use crate::settings::versions::FIRST_MESSAGE;
use crate::two::characteristics::exchange::{Exchanges, Operation, Progress};
use crate::two::characteristics::{Characteristic, NotExchanged, Notice, Transmissions};
use crate::wire::two::transmission::{
    BufferStructure, SUPPORT_CONTINUATION, SUPPORT_REQUEST, SUPPORT_RESPONSE,
};
use crate::wire::{Action, ProtocolError, Taken, sized, two::Exchange};
use crate::wire::{Body, Fixed, two};

impl Two {
    /// Applies the announced values to the connection.
    pub(super) fn follow(&self, core: &mut Core) {
        let Some(exchanges) = &self.exchanges else { return };
        let rules = core.codec.rules();
        let own = core.config.send_size.max(rules.default_inline);
        let (mut send, mut earlier) = exchanges.send(own, rules.largest_inline);
        // version-two-01 §5.1: the defaults hold until the first answer.
        if self.first_answer_due {
            (send, earlier) = (FIRST_MESSAGE, FIRST_MESSAGE);
        }
        core.peer.thresholds = Thresholds { send, receive: exchanges.receive() };
        core.peer.send_earlier = earlier;
        let peer = exchanges.peer();
        core.peer.reverse = Some(peer.reverse);
        core.peer.segments = (peer.segment_size, peer.segment_count);
        if exchanges.is_exchanged().is_some() {
            core.set_untold(None);
        }
        let longest = sized(peer.receive_size).min(rules.largest_inline);
        let groups = peer_groups(&peer.transmissions, longest).filter(|_| takes_groups(core));
        let takes = core.config.limits.combined_messages > 1 && !self.first_answer_due;
        let both = if takes { sized(peer.combined) } else { 1 };
        let most = core.config.combined_messages.min(both);
        if let Some(sending) = &mut core.sending {
            sending.peer_groups = groups;
            sending.combine.most = most;
        }
        core.peer.invalidates = core.may_invalidate
            && (rules.two.is_some_and(|two| two.names_handle) || peer.remote_invalidation);
    }

    /// Asks the peer to change characteristics (xcharext-02 §4.2); returns the number of the request.
    ///
    /// # Errors
    /// [`NotExchanged`]: the request is refused locally.
    pub(crate) fn ask(&mut self, core: &mut Core, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        let request = exchanges.ask(want, core.config.limits.characteristics)?;
        self.follow(core);
        Ok(request)
    }

    /// Changes a characteristic of ours, and notifies the peer.
    ///
    /// # Errors
    /// [`NotExchanged`]: the change is refused locally.
    pub(crate) fn change(&mut self, core: &mut Core, value: Characteristic) -> Result<(), NotExchanged> {
        let exchanges = self.exchanges.as_mut().ok_or(NotExchanged::NotSpoken)?;
        resize(core, exchanges.change(value)?);
        Ok(())
    }

    /// Returns the progress of the ordinary messages of both sides.
    fn progress(&self, halves: &Halves<'_>) -> Progress {
        let lowering = self.exchanges.as_ref().is_some_and(Exchanges::is_lowering);
        Progress {
            mark: halves.core.ledger.mark(),
            shown: halves.core.ledger.shown(),
            oldest: if lowering { halves.requester.oldest() } else { None },
        }
    }

    /// Whether an operation is due. This check runs with every message, so it is cheap.
    pub(super) fn has_operation(&mut self, halves: &mut Halves<'_>) -> bool {
        if self.first_answer_due && halves.core.ledger.served.finished() > 0 {
            self.first_answer_due = false;
            if halves.core.codec.rules().two.is_some_and(|two| two.tells_once)
                && let Some(exchanges) = &mut self.exchanges
            {
                exchanges.begin();
            }
            self.follow(halves.core);
        }
        self.exchanges.as_ref().is_some_and(Exchanges::has_something_to_do)
    }

    /// Advances changes, and sends an operation if one may leave while so many Receives are missing; `false` if none did.
    ///
    /// The answer to an operation of ours needs a Receive. Announced Receives are there before the Calls that rely on them.
    /// But our answers do not wait for the Receives of credits. A reply does not wait for these either and would pass an
    /// answer, although it proves to the peer that the next operation may leave.
    pub(super) fn transmit_operation(&mut self, halves: &mut Halves<'_>, missing: u32) -> bool {
        let progress = self.progress(halves);
        let Some(exchanges) = &mut self.exchanges else { return false };
        let core = &mut *halves.core;
        let size = exchanges.advance(progress, core.ledger.receives.least_earlier());
        report(core, exchanges);
        let next = match missing {
            _ if !core.ledger.may_send(1) => None,
            0 => exchanges.next(progress),
            _ if core.ledger.backs_others() => exchanges.next_answer(),
            _ => None,
        };
        resize(core, size);
        let mut sent = false;
        if let Some(Operation { direction, xid, body }) = next
            && let Some(permit) = core.ledger.operation(direction)
        {
            let xid = xid.unwrap_or_else(|| self.operation_xid(halves.requester, &body));
            tracing::debug!(side = %core.side(), xid = format_args!("{xid:#010x}"), ?body, "operation");
            let header = core.header(direction, xid, &permit, body);
            core.send(permit, &header, &Stream::new(), None, true);
            core.stats.operations_sent += 1;
            sent = true;
        }
        self.follow(halves.core);
        sent
    }

    /// Returns an XID for an operation of ours, which differs from those of our Calls (version-two-01 §4.2.2).
    fn operation_xid(&mut self, requester: &Requester, body: &Body) -> u32 {
        let xid = loop {
            let xid = self.next_operation;
            self.next_operation = xid.wrapping_add(1);
            if !requester.knows(xid) && self.guessed != Some(xid) {
                break xid;
            }
        };
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.sent_under(xid, body);
        }
        xid
    }

    /// Takes an operation of the peer.
    pub(super) fn handle_operation(&mut self, halves: &mut Halves<'_>, fixed: Fixed, exchange: Exchange) {
        let progress = self.progress(halves);
        let Some(exchanges) = &mut self.exchanges else { return };
        let core = &mut *halves.core;
        core.stats.operations_received += 1;
        tracing::debug!(side = %core.side(), ?exchange, "operation received");
        let size = exchanges.handle(fixed.xid, exchange, progress, core.config.limits.operations);
        report(core, exchanges);
        match size {
            Ok(size) => resize(core, size),
            Err(error) => self.refuse_operation(halves, fixed, error),
        }
        self.follow(halves.core);
    }

    /// Takes a message that is an operation, and does not decode.
    pub(super) fn operation_undecoded(&mut self, halves: &mut Halves<'_>, fixed: Fixed, error: two::Error) {
        let limit = halves.core.config.limits.operations;
        halves.core.stats.operations_received += 1;
        let storm = self.exchanges.as_mut().and_then(|exchanges| exchanges.undecoded(limit).err());
        self.refuse_operation(halves, fixed, storm.unwrap_or(error).into());
    }

    /// Refuses an operation that cannot be used (version-two-01 §3.1, xcharext-02 §2.1). An operation that says that it
    /// answers something is not answered itself (RFC 8166 §4.5).
    fn refuse_operation(&mut self, halves: &mut Halves<'_>, fixed: Fixed, error: ProtocolError) {
        let taken = match error {
            ProtocolError::Two(two::Error::OperationDirection { said, .. }) => said.into(),
            _ => Taken::AsCall,
        };
        let answer = error.action(taken) == Action::Answer;
        match &mut self.exchanges {
            Some(exchanges) if answer => {
                tracing::debug!(side = %halves.core.side(), %error, "operation refused");
                halves.core.stats.fault(&error);
                exchanges.refuse(fixed.xid, halves.core.codec.refusal(&error));
            }
            _ => halves.fault(error, taken, Some(fixed)),
        }
    }
}

/// Posts Receives of another size from now on, if a change of characteristics says so.
fn resize(core: &mut Core, size: Option<u32>) {
    if let Some(size) = size {
        core.ledger.receives.resize(sized(size));
    }
}

/// Tells the application of changes, and counts faults. The peer's values take the place of those not yet read.
pub(super) fn report(core: &mut Core, exchanges: &mut Exchanges) {
    for notice in exchanges.notices.drain(..) {
        let news = Event::Characteristics(notice);
        match (&news, core.events.back_mut()) {
            (
                Event::Characteristics(Notice::Peer(_)),
                Some(last @ Event::Characteristics(Notice::Peer(_))),
            ) => *last = news,
            _ => core.events.push_back(news),
        }
    }
    for fault in exchanges.faults.drain(..) {
        core.stats.fault(&fault.into());
    }
}

/// Returns what a peer can do with transmission groups; `None` if that is nothing. `longest` are the bytes of the longest
/// Send to it.
fn peer_groups(said: &Transmissions, longest: usize) -> Option<PeerGroups> {
    let some = |count: u32| sized(count).max(1);
    let takes = |bits| said.support & bits == bits;
    let continues = |sends: u32| if takes(SUPPORT_CONTINUATION) { some(sends) } else { 1 };
    // A structure is believed as far as its Receives are (rtrext-02 §8.3: it agrees with their size).
    let fits = |structure: &&BufferStructure| sized(structure.total) <= longest;
    let targets = said.structure.as_ref().filter(fits).and_then(Targets::of);
    (said.support != 0).then(|| PeerGroups {
        takes_calls: takes(SUPPORT_REQUEST),
        places: takes(SUPPORT_RESPONSE),
        requests: continues(said.request_limit),
        responses: some(said.response_limit),
        targets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rtrext-02 §5.2, §8: what a peer announces is used as far as it goes. A limit of 0 counts as 1.
    #[test]
    fn rtrext_s8_a_peer_gets_what_it_announces() {
        let of = |support, request_limit, response_limit| {
            let structure = Some(BufferStructure::with_items(1, 3072));
            let said = Transmissions { support, structure, request_limit, response_limit };
            peer_groups(&said, 4096)
        };
        assert!(of(0, 4, 4).is_none(), "no groups");
        let all = of(SUPPORT_REQUEST | SUPPORT_RESPONSE | SUPPORT_CONTINUATION, 4, 3).unwrap();
        assert!(all.takes_calls && all.places && all.targets.is_some());
        assert_eq!((all.requests, all.responses), (4, 3));
        let whole = of(SUPPORT_REQUEST, 4, 0).unwrap();
        assert!(whole.takes_calls && !whole.places);
        assert_eq!((whole.requests, whole.responses), (1, 1));
        let replies = of(SUPPORT_CONTINUATION, 0, 2).unwrap();
        assert!(!replies.takes_calls);
        assert_eq!((replies.requests, replies.responses), (1, 2));
        let structure = Some(BufferStructure::with_items(1, 3073));
        let said = Transmissions { support: SUPPORT_REQUEST, structure, request_limit: 1, response_limit: 1 };
        assert!(peer_groups(&said, 4096).unwrap().targets.is_none(), "longer than its Receives");
    }
}
