//! [`Departures`]: replies of one connection on their way, for the reply cache.
//!
//! The cache may forget a reply when a later Call proves that the client has the reply. Which Call proves that depends
//! on those that had come when no later Send could pass the reply any more ([`Connection::calls_that_prove`]).
//!
//! *Errors.* A reply that never leaves is never proven: the cache keeps it for some time after the end of the
//! connection. A connection ends when its [`Departures`] are dropped.

use std::collections::VecDeque;

use rpcrdma_oncrpc::{CacheKey, ReplyWindow, WindowId};
use rpcrdma_proto::{Connection, ReplyToken};

/// The replies of a connection that the cache keeps, until they are on their way in order.
#[derive(Debug)]
pub(crate) struct Departures {
    window: ReplyWindow,
    /// Replies that the connection was given.
    waiting: Vec<(ReplyToken, CacheKey)>,
    /// Replies posted before these marks and, if they were exposed, read by the client.
    posted: VecDeque<(u64, CacheKey)>,
}

impl Departures {
    pub(crate) const fn new(window: ReplyWindow) -> Self {
        Self { window, waiting: Vec::new(), posted: VecDeque::new() }
    }

    /// Returns the window with which Calls of this connection are admitted.
    pub(crate) const fn window(&self) -> WindowId {
        self.window.id()
    }

    /// Notes that the connection was given a reply that the cache keeps.
    pub(crate) fn add(&mut self, token: ReplyToken, key: CacheKey) {
        self.waiting.push((token, key));
    }

    /// Tells the cache which replies have left meanwhile, and how many Calls have come.
    pub(crate) fn advance(&mut self, connection: &Connection) {
        if self.waiting.is_empty() && self.posted.is_empty() {
            // Most programs keep few replies, and this runs in every round.
            self.window.advance(connection.calls_received(), None);
            return;
        }
        let mark = connection.posted();
        let posted = self.waiting.extract_if(.., |(token, _)| connection.has_departed(*token));
        self.posted.extend(posted.map(|(_, key)| (mark, key)));
        let in_order = self.posted.iter().take_while(|(mark, _)| connection.is_in_order(*mark)).count();
        let proof = connection.calls_that_prove();
        let left = self.posted.drain(..in_order).map(|(_, key)| (key, proof));
        self.window.advance(connection.calls_received(), left);
    }
}
