//! RDMA Reads of the peer: accepted requests and the responses that leave, in order.
//!
//! Shares the memory that is read; the window stays pinned in the window table until the last byte of the response is
//! written.

use std::collections::VecDeque;

use bytes::Bytes;
use rpcrdma_verbs::Rest;

use super::gather::Gather;
use super::inbound::check_place;
use super::violation::Violation;
use super::windows::WindowTable;
use crate::wire::ddp::{FIRST_MSN, Untagged};
use crate::wire::rdmap::ReadRequest;

/// A response that has not completely left.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) stag: u32,
    pub(super) offset: u64,
    /// STag of the source, if it is pinned.
    pub(super) source: Option<u32>,
    pub(super) data: Gather,
    /// Bytes of each segment, once the first is laid out.
    pub(super) segment: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Responses {
    limit: u16,
    next_msn: u32,
    queue: VecDeque<Response>,
    /// Requests whose response has not been completely written.
    outstanding: u16,
}

impl Responses {
    pub(super) const fn new(ird: u16) -> Self {
        Self { limit: ird, next_msn: FIRST_MSN, queue: VecDeque::new(), outstanding: 0 }
    }

    /// Checks the place of a Read Request on its queue (RFC 5041 §7.1).
    pub(super) fn check(&self, header: &Untagged) -> Result<(), Violation> {
        check_place(header, self.next_msn)
    }

    /// Checks the source of a Read Request and queues its response (RFC 5040 §7.2).
    pub(super) fn accept(
        &mut self,
        request: &ReadRequest,
        windows: &mut WindowTable,
    ) -> Result<(), Violation> {
        if self.outstanding >= self.limit {
            return Err(Violation::TooManyReads(self.limit));
        }
        // RFC 5040 §4.4: the source of a zero-length Read is not checked.
        let (data, source) = if request.size == 0 {
            (Bytes::new(), None)
        } else {
            let data = windows.begin_reading(request.source_stag, request.source_offset, request.size)?;
            (data, Some(request.source_stag))
        };
        self.next_msn = self.next_msn.wrapping_add(1);
        self.outstanding += 1;
        let data = Gather::new(vec![data]);
        self.queue.push_back(Response {
            stag: request.sink_stag,
            offset: request.sink_offset,
            source,
            data,
            segment: None,
        });
        Ok(())
    }

    /// Returns the response that leaves next.
    pub(super) fn front(&mut self) -> Option<&mut Response> {
        self.queue.front_mut()
    }

    /// Removes the front response, which is completely laid out.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Records that a response was completely written.
    pub(super) fn finished(&mut self) {
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Returns whether no response remains to be laid out.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Releases memory that only many responses need.
    pub(super) fn rest(&mut self) {
        self.queue.rest();
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Sets the MSN that is due.
    #[cfg(test)]
    pub(super) const fn expect_msn(&mut self, msn: u32) {
        self.next_msn = msn;
    }
}
