//! The application's requests to the peer.

use std::collections::VecDeque;

use super::super::{Characteristic, NotExchanged};

/// The most requests that wait for an earlier one.
const WAITING: usize = 16;

/// The requests without an answer. Only one is open, since the meaning of an answer depends on earlier answers.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) waiting: VecDeque<Request>,
    /// The open request, with its XID.
    open: Option<(u32, Request)>,
    next_number: u64,
}

/// A request to change characteristics.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) want: Vec<Characteristic>,
}

impl Requests {
    /// Queues a request; returns its number.
    pub(super) fn queue(&mut self, want: Vec<Characteristic>) -> Result<u64, NotExchanged> {
        if self.waiting.len() == WAITING {
            return Err(NotExchanged::Busy { waiting: WAITING });
        }
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back(Request { number, want });
        Ok(number)
    }

    /// Opens the next request, if none is open. The caller tells its XID with [`sent_under`](Self::sent_under).
    pub(super) fn open(&mut self) -> Option<&Request> {
        if self.open.is_some() {
            return None;
        }
        let (_, request) = self.open.insert((0, self.waiting.pop_front()?));
        Some(request)
    }

    pub(super) const fn sent_under(&mut self, xid: u32) {
        if let Some((open, _)) = &mut self.open {
            *open = xid;
        }
    }

    /// Whether this is the XID of the open request.
    pub(super) fn knows(&self, xid: u32) -> bool {
        self.open.as_ref().is_some_and(|(open, _)| *open == xid)
    }

    /// Closes the open request, if it has this XID.
    pub(super) fn close(&mut self, xid: u32) -> Option<Request> {
        self.open.take_if(|(open, _)| *open == xid).map(|(_, request)| request)
    }

    /// Closes all requests.
    pub(super) fn close_all(&mut self) -> Vec<Request> {
        let open = self.open.take().map(|(_, request)| request);
        open.into_iter().chain(self.waiting.drain(..)).collect()
    }

    /// Returns the values that the requests ask for.
    pub(super) fn values(&self) -> impl Iterator<Item = &Characteristic> {
        let open = self.open.iter().map(|(_, request)| request);
        open.chain(&self.waiting).flat_map(|request| &request.want)
    }
}
