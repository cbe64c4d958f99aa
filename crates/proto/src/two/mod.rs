//! Version Two of RPC-over-RDMA, as far as it is more than another header (see [`wire`](crate::wire)).
//!
//! | module | mechanism |
//! | --- | --- |
//! | `arrange` | divides a message of ours among Sends |
//! | `assembly` | joins a message of the peer that comes in several Sends |
//! | `groups` | transmission groups: credits of their Sends, reports, and the way from locations to chunk lists |
//! | `operations` | operations on characteristics, and their effect on the connection |
//! | `receiving` | every message of the peer: which of these it is for, and which messages may not come now |
//! | `settings` | settings for transmission groups |
//!
//! [`Two`] is the state of a connection that speaks Version Two. [`Two::receive`] takes every message of the peer, and
//! hands on a message that is all there. A message that goes on is in its Receives, or in memory of the connection's domain;
//! nothing else is owned here. *On error*: a fault is answered or reported, as each module says.

pub(crate) mod arrange;
pub(crate) mod assembly;
mod groups;
mod operations;
mod receiving;
pub(crate) mod settings;

use std::sync::Arc;
use std::time::Instant;

use rpcrdma_verbs::ProtectionDomain;

use self::assembly::Assembly;
pub(crate) use self::receiving::Outcome;
use crate::characteristics::exchange::Exchanges;
use crate::characteristics::{Characteristics, OPERATION_RECEIVES_32, ReverseSupport};
use crate::config::{Config, Side};
use crate::core::Core;
use crate::timers::after;
use crate::wire::two::Rules;

/// The XID of the first operation on characteristics. Those of Calls begin anywhere; whichever is in use is passed over.
const FIRST_OPERATION: u32 = 0x8000_0000;

/// The state of Version Two on a connection.
#[derive(Debug)]
pub(crate) struct Two {
    /// The conversation about characteristics, once both sides speak the version.
    exchanges: Option<Exchanges>,
    /// A message of the peer that comes in several Sends.
    assembly: Assembly,
    /// The XID of the message before, if it was an operation that is not known here.
    unknown_operation: Option<u32>,
    /// No answer has left in a version whose thresholds hold after the first.
    first_answer_due: bool,
    /// The XID of the next operation.
    next_operation: u32,
}

impl Two {
    pub(crate) fn new(config: &Arc<Config>) -> Self {
        Self {
            exchanges: None,
            assembly: Assembly::new(config),
            unknown_operation: None,
            first_answer_due: false,
            next_operation: FIRST_OPERATION,
        }
    }

    /// Forgets the conversation: another version is offered from now on.
    pub(crate) fn restart(&mut self, core: &mut Core) {
        self.exchanges = None;
        core.ledger.keep_for_operations(0);
    }

    /// Begins the conversation: both sides speak the version, by these rules.
    pub(crate) fn settle(&mut self, core: &mut Core, now: Instant, rules: &Rules) {
        let config = &core.config;
        let continues = rules.part_header.is_some() && config.limits.continued_parts > 1;
        let reverse = match (config.takes_reverse_chunks(), continues) {
            (true, _) => ReverseSupport::General,
            (false, true) => ReverseSupport::Continued,
            (false, false) => ReverseSupport::Inline,
        };
        // A client has Calls before the server has told its properties, which it does behind its first answer. Without
        // chunks a Call that fits no Send depends on these.
        let waits = rules.tells_once || (!core.uses_chunks() && config.characteristics.enabled);
        if waits && core.side == Side::Client {
            core.untold = Some(after(now, config.timeouts.offer));
        }
        let (size, invalidate) = (core.ledger.receive_len(), core.may_invalidate);
        let mut exchanges = Exchanges::new(rules.profile, config, size, reverse, invalidate);
        // A server answers with its own.
        if core.side == Side::Client {
            exchanges.begin();
        }
        self.exchanges = Some(exchanges);
        // Also of a peer that takes no part: it learns that from a refusal only.
        core.ledger.keep_for_operations(OPERATION_RECEIVES_32);
        self.first_answer_due = core.side == Side::Server;
        tracing::debug!(side = %core.side, version = core.codec.rules().name, "version settled");
        self.follow(core);
    }

    /// Returns whether both sides speak the version.
    pub(crate) const fn is_settled(&self) -> bool {
        self.exchanges.is_some()
    }

    /// Returns the characteristics of the peer.
    pub(crate) fn peer(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::peer)
    }

    /// Returns our characteristics.
    pub(crate) fn ours(&self) -> Option<&Characteristics> {
        self.exchanges.as_ref().map(Exchanges::ours)
    }

    /// Returns whether the peer exchanges characteristics; `None` as long as it has not shown it.
    pub(crate) fn is_exchanged(&self) -> Option<bool> {
        self.exchanges.as_ref().and_then(Exchanges::is_exchanged)
    }

    /// Returns whether an operation of ours has this XID.
    pub(crate) fn knows(&self, xid: u32) -> bool {
        self.exchanges.as_ref().is_some_and(|exchanges| exchanges.knows(xid))
    }

    /// Notes a Call or reply that was taken: operations on characteristics are counted between those.
    pub(crate) fn rpc_taken(&mut self) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.rpc_received();
        }
    }

    /// Sets the connection's memory, as soon as it is known.
    pub(crate) fn use_domain(&mut self, domain: &ProtectionDomain) {
        self.assembly.use_domain(domain);
    }

    /// Times the rest of a message that has begun: the peer can go on with it, or waits for a credit of ours.
    pub(crate) fn time(&mut self, core: &Core, now: Instant) {
        if self.assembly.has_begun() {
            self.assembly.time(core.ledger.peer_may_send(), now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.assembly.poll_timeout()
    }

    /// Gives up what has waited long enough; returns what did not come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<&'static str> {
        self.assembly.handle_timeout(now)
    }

    /// Gives all memory back: the connection is over.
    pub(crate) fn clear(&mut self) {
        self.assembly.clear();
    }
}
