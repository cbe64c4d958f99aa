//! Version Two of RPC-over-RDMA, except its header formats (see [`wire`](crate::wire)).
//!
//! | module | mechanism |
//! | --- | --- |
//! | `plan` | chooses how a message of ours travels: in a group, continued in several Sends, or as in Version One |
//! | `arrange` | divides a message of ours among Sends |
//! | `combine` | joins short messages of ours in one Send |
//! | `sending` | the state of messages of ours that leave in several Sends, or share one |
//! | `receiving` | every message of the peer: which of these it is for, and which messages may not come now |
//! | `assembly` | joins a message of the peer that comes in several Sends |
//! | `groups` | transmission groups: credits of their Sends, reports, and the way from locations to chunk lists |
//! | `requests` | Calls of ours in transmission groups: their replies, and the recovery from a refusal |
//! | [`characteristics`] | the values of both sides, and their exchange |
//! | `operations` | operations on characteristics, and their effect on the connection |
//! | `commands` | characteristics as the owner of a connection sees them |
//! | `settings` | settings for transmission groups |
//! | `versions` | the numbers of the operations on transmissions |
//!
//! [`Two`] is the state of a connection that speaks Version Two. [`Two::receive`] handles every message of the peer,
//! and returns complete messages. The parts of an incomplete message lie in their Receives, or in memory of the
//! connection's domain. *Errors*: a fault is answered or reported, as each module documents.

pub(crate) mod arrange;
pub(crate) mod assembly;
pub mod characteristics;
pub(crate) mod combine;
mod commands;
pub(crate) mod groups;
mod operations;
pub(crate) mod plan;
pub(crate) mod receiving;
pub(crate) mod requests;
pub(crate) mod sending;
pub(crate) mod settings;
mod versions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rpcrdma_verbs::ProtectionDomain;

use self::assembly::Assembly;
use self::sending::Sending;
use crate::connection::Halves;
use crate::core::Core;
use crate::event::Event;
use crate::settings::config::{Config, Side};
use crate::settings::timers::after;
use crate::two::characteristics::exchange::Exchanges;
use crate::two::characteristics::{Notice, OPERATION_RECEIVES_32, ReverseSupport};
use crate::wire::ErrorBody;
use crate::wire::sized;
use crate::wire::two::{self, Rules};

/// The public types of Version Two, except its header formats.
pub(crate) mod face {
    pub use super::characteristics::{
        Characteristic, Characteristics, Disposition, Exchanged, NotExchanged, NotRegistered, Notice,
        OPERATION_RECEIVES, Registered, ReverseSupport, Transmissions,
    };
    pub use super::settings::{Features, ReplyPlacement, TransmissionSettings};
    pub use super::versions::OperationNumbers;
    pub use crate::wire::two::transmission::{BufferGroup, BufferStructure};
}

/// The XID of the first operation on characteristics. XIDs of Calls begin anywhere, so XIDs in use are skipped.
const FIRST_OPERATION: u32 = 0x8000_0000;

/// The state of Version Two on a connection.
#[derive(Debug)]
pub(crate) struct Two {
    /// The exchange of characteristics, once both sides speak the version.
    exchanges: Option<Exchanges>,
    /// A message of the peer in several Sends.
    assembly: Assembly,
    /// The XID of the previous message, if it was an unknown operation.
    unknown_operation: Option<u32>,
    /// No answer has left yet; thresholds announced by the peer hold after the first.
    first_answer_due: bool,
    /// The XID of a Call that left in Version One by guess, until the peer answers it. The Call itself has failed.
    guessed: Option<u32>,
    /// The XID of the next operation.
    next_operation: u32,
}

impl Two {
    /// Opens the door to Version Two, which the connection offers or speaks from now on. An earlier exchange is forgotten.
    pub(crate) fn open(door: &mut Option<Box<Self>>, core: &mut Core) {
        let config = &core.config;
        door.get_or_insert_with(|| Box::new(Self::new(config))).exchanges = None;
        core.sending = Some(Box::new(Sending::new(config)));
    }

    fn new(config: &Arc<Config>) -> Self {
        Self {
            exchanges: None,
            assembly: Assembly::new(config),
            unknown_operation: None,
            first_answer_due: false,
            guessed: None,
            next_operation: FIRST_OPERATION,
        }
    }

    /// Sends an operation or a report, if one may leave while so many Receives are missing; `false` if none did.
    pub(crate) fn transmit(
        &mut self,
        halves: &mut Halves<'_>,
        domain: &ProtectionDomain,
        missing: u32,
    ) -> bool {
        self.assembly.use_domain(domain);
        (self.has_operation(halves) && self.transmit_operation(halves, missing))
            || (missing == 0 && halves.requester.transmit_report(halves.core))
    }

    /// Does what is left when nothing else may leave: sends a GRANT that is due, or the messages that wait to be
    /// combined. Returns `false` if nothing changed.
    pub(crate) fn finish_pass(&mut self, halves: &mut Halves<'_>, now: Instant) -> bool {
        // A GRANT may be due for another reason than the present message.
        if halves.core.grant() || self.time(halves, now) {
            return true;
        }
        halves.core.send_combined()
    }

    /// Begins the exchange: both sides speak the version, by these rules. `guessed` is the XID of a Call that left in
    /// Version One by guess.
    pub(crate) fn settle(&mut self, core: &mut Core, now: Instant, rules: &Rules, guessed: Option<u32>) {
        self.guessed = guessed;
        let config = Arc::clone(&core.config);
        let continues = rules.part_header.is_some() && config.limits.continued_parts > 1;
        let reverse = match (config.takes_reverse_chunks(), continues) {
            (true, _) => ReverseSupport::General,
            (false, true) => ReverseSupport::Continued,
            (false, false) => ReverseSupport::Inline,
        };
        // The server announces its properties after its first answer, so a client may have Calls before that. Without
        // chunks a Call that fits no Send depends on these properties.
        let waits = rules.tells_once || (!core.uses_chunks() && config.characteristics.enabled);
        if waits && core.side() == Side::Client {
            let until = after(now, config.timeouts.offer);
            core.set_untold(Some(until));
        }
        let (size, invalidate) = (core.ledger.receives.len(), core.may_invalidate);
        let mut exchanges = Exchanges::new(rules.profile, &config, size, reverse, invalidate);
        // A server announces in answer to the client.
        if core.side() == Side::Client {
            exchanges.begin();
        }
        self.exchanges = Some(exchanges);
        // Even for a peer without the exchange, which learns that only from a refusal. The answer to the guessed Call needs
        // a Receive too.
        core.ledger.keep_for_operations(OPERATION_RECEIVES_32 + u32::from(guessed.is_some()));
        self.first_answer_due = core.side() == Side::Server;
        tracing::debug!(side = %core.side(), version = core.codec.rules().name, "version settled");
        self.follow(core);
    }

    /// Whether Calls wait, since the guessed Call holds the only credit until it is answered (rule I4). A peer has to
    /// refuse it (RFC 8166 §4.5.1). If the peer does not, each later Call ends by its own timer.
    pub(crate) const fn holds_calls(&self) -> bool {
        self.guessed.is_some()
    }

    /// Takes the answer with this XID to the guessed Call; `false` if it answers another message.
    fn end_guess(&mut self, core: &mut Core, xid: u32) -> bool {
        let ended = self.guessed.take_if(|guessed| *guessed == xid).is_some();
        if ended {
            core.ledger.keep_for_operations(OPERATION_RECEIVES_32);
        }
        ended
    }

    /// Whether the peer exchanges characteristics; `None` until the peer has shown either.
    pub(crate) fn is_exchanged(&self) -> Option<bool> {
        self.exchanges.as_ref().and_then(Exchanges::is_exchanged)
    }

    /// Whether an operation of ours has this XID.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.exchanges.as_ref().is_some_and(|exchanges| exchanges.knows(xid))
    }

    /// Records a Call or reply: operations on characteristics are counted between those.
    pub(crate) fn rpc_taken(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.rpc_received();
        }
    }

    /// Starts the timer for the rest of a message if the peer can send it. Otherwise the peer waits for a credit of
    /// ours, unless the message itself holds the memory for that: then it is refused, and the function returns `true`.
    fn time(&mut self, halves: &mut Halves<'_>, now: Instant) -> bool {
        if !self.assembly.has_begun() {
            return false;
        }
        let ledger = &halves.core.ledger;
        let goes_on = ledger.peer_may_send();
        // The connection keeps memory for as many Receives as the peer was granted.
        let kept = sized(ledger.served.highest());
        if !goes_on
            && ledger.receives.lacking
            && let Some((xid, len)) = self.assembly.give_up_holder(kept)
        {
            let error = two::Error::ContinuationMemory { len };
            tracing::debug!(side = %halves.core.side(), xid = format_args!("{xid:#010x}"), %error, "call refused");
            halves.core.stats.fault(&error.into());
            groups::answer(halves, xid, ErrorBody::Two(two::ErrorBody::System));
            return true;
        }
        self.assembly.time(goes_on, now);
        false
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.assembly.poll_timeout()
    }

    /// Gives up a message whose rest is overdue; returns the name of the missing part.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<&'static str> {
        self.assembly.handle_timeout(now)
    }

    /// Ends with the connection: releases all memory, and reports the end of the exchange.
    pub(crate) fn end(&mut self, events: &mut VecDeque<Event>) {
        self.assembly.clear();
        if self.exchanges.is_some() {
            events.push_back(Event::Characteristics(Notice::Ended));
        }
    }
}
