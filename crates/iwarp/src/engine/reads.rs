//! Our RDMA Reads: requests that wait until the peer accepts more (ORD), and responses that are due.
//!
//! Owns the sink of every Read until the last byte of its last response has arrived and its CRC matched. Responses come
//! in the order of the requests (RFC 5040 §5.5 (20)), each contiguous. So exactly one byte of one sink is due at any
//! time.

use std::collections::VecDeque;

use rpcrdma_verbs::{Buffer, RemoteSegment, Rest, WrId};

use super::DIRECT_PLACEMENT_MIN;
use super::violation::Violation;
use crate::wire::ddp::Tagged;
use crate::wire::rdmap::ReadRequest;

#[derive(Debug)]
struct Operation {
    /// `None` for a Read of the engine's own.
    id: Option<WrId>,
    /// Share of the send queue.
    cost: usize,
    sink: Buffer,
    stag: u32,
    base: u64,
    sources: std::vec::IntoIter<RemoteSegment>,
    /// Bytes of the sink for which a request was sent.
    requested: usize,
}

/// A request that the peer has not answered in full.
#[derive(Debug)]
struct Due {
    /// Position of the next byte in the sink.
    at: usize,
    /// Number of missing bytes.
    left: u32,
    large: bool,
    /// This is the last request of its operation.
    last: bool,
}

/// A Read that has ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) id: Option<WrId>,
    pub(super) cost: usize,
    pub(super) sink: Buffer,
}

impl From<Operation> for Finished {
    fn from(Operation { id, cost, sink, .. }: Operation) -> Self {
        Self { id, cost, sink }
    }
}

#[derive(Debug)]
pub(super) struct Reads {
    limit: usize,
    operations: VecDeque<Operation>,
    /// Number of operations at the front whose requests were all sent.
    requested: usize,
    due: VecDeque<Due>,
    large_due: usize,
    /// Bytes of responses so far.
    answered: u64,
}

impl Reads {
    pub(super) fn new(ord: u16) -> Self {
        Self {
            limit: usize::from(ord),
            operations: VecDeque::new(),
            requested: 0,
            due: VecDeque::new(),
            large_due: 0,
            answered: 0,
        }
    }

    /// Queues a Read. Sources of length 0 cause no request unless there is no other source.
    pub(super) fn push(
        &mut self,
        id: Option<WrId>,
        sink: Buffer,
        (stag, base): (u32, u64),
        mut sources: Vec<RemoteSegment>,
    ) {
        let cost = sources.len();
        if sink.is_empty() {
            sources.truncate(1);
        } else {
            sources.retain(|source| source.length > 0);
        }
        let sources = sources.into_iter();
        self.operations.push_back(Operation { id, cost, sink, stag, base, sources, requested: 0 });
    }

    /// Returns whether no Read is outstanding or waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Releases memory that only many Reads need.
    pub(super) fn rest(&mut self) {
        self.operations.rest();
        self.due.rest();
    }

    /// Returns whether another request may be outstanding: at most ORD are (RFC 5040 §6.1).
    pub(super) fn has_room(&self) -> bool {
        self.due.len() < self.limit
    }

    /// Takes the next request.
    pub(super) fn next_request(&mut self) -> Option<ReadRequest> {
        let operation = self.operations.get_mut(self.requested)?;
        let source = operation.sources.next()?;
        let request = ReadRequest {
            sink_stag: operation.stag,
            sink_offset: operation.base.wrapping_add(operation.requested as u64),
            size: source.length,
            source_stag: source.key.0,
            source_offset: source.address,
        };
        let length = usize::try_from(source.length).unwrap_or(usize::MAX);
        let large = length >= DIRECT_PLACEMENT_MIN;
        let last = operation.sources.len() == 0;
        self.due.push_back(Due { at: operation.requested, left: source.length, large, last });
        operation.requested = operation.requested.saturating_add(length);
        self.large_due += usize::from(large);
        self.requested += usize::from(last);
        Some(request)
    }

    /// Returns the number of response bytes that took effect so far.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// Returns whether a response is due.
    pub(super) fn is_waiting(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns whether a large response is due.
    pub(super) const fn bulk_expected(&self) -> bool {
        self.large_due > 0
    }

    /// Checks a segment of a Read Response. Returns its position in the sink of the front operation.
    ///
    /// The missing bytes of the request bound the range, not the sink: a peer that keeps the Last flag clear cannot
    /// exceed it.
    pub(super) fn admit(&self, header: &Tagged, length: usize) -> Result<usize, Violation> {
        let stag = header.stag;
        let (Some(due), Some(operation)) = (self.due.front(), self.operations.front()) else {
            return Err(Violation::ResponseStag(stag));
        };
        let segment_length = u32::try_from(length).unwrap_or(u32::MAX);
        if due.left > 0 || length > 0 {
            // RFC 5041 §5.2: STag and offset of a zero-length message are not checked.
            if stag != operation.stag {
                return Err(Violation::ResponseStag(stag));
            }
            let due_offset = operation.base.wrapping_add(due.at as u64);
            if header.offset != due_offset || segment_length > due.left {
                return Err(Violation::ResponseBounds {
                    offset: header.offset,
                    length,
                    due_offset,
                    due: due.left,
                });
            }
        }
        // The Last flag must stand exactly where the request is answered.
        let missing = due.left.saturating_sub(segment_length);
        if header.last != (missing == 0) {
            return Err(Violation::ResponseLast { missing });
        }
        Ok(due.at)
    }

    /// Returns the sink that is being filled.
    pub(super) fn sink(&mut self) -> Option<&mut Buffer> {
        self.operations.front_mut().map(|operation| &mut operation.sink)
    }

    /// Applies an admitted segment that was placed and whose CRC matched. Returns the Read if it is complete.
    pub(super) fn commit(&mut self, length: usize) -> Option<Finished> {
        let due = self.due.front_mut()?;
        self.answered = self.answered.saturating_add(length as u64);
        due.at += length;
        due.left = due.left.saturating_sub(u32::try_from(length).unwrap_or(u32::MAX));
        if due.left > 0 {
            return None;
        }
        let due = self.due.pop_front()?;
        self.large_due = self.large_due.saturating_sub(usize::from(due.large));
        if !due.last {
            return None;
        }
        self.requested = self.requested.saturating_sub(1);
        self.operations.pop_front().map(Finished::from)
    }

    /// Takes the oldest Read, complete or not, after the end of the connection.
    pub(super) fn take(&mut self) -> Option<Finished> {
        self.due.clear();
        self.large_due = 0;
        self.requested = 0;
        self.operations.pop_front().map(Finished::from)
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_verbs::Key;

    use super::*;

    fn source(length: u32) -> RemoteSegment {
        RemoteSegment { key: Key(9), address: 0x100, length }
    }

    fn segment(stag: u32, offset: u64, last: bool) -> Tagged {
        Tagged { last, control: 0x42, stag, offset }
    }

    fn one_read(length: u32) -> Reads {
        let mut reads = Reads::new(1);
        let sink = Buffer::adopt(vec![0; usize::try_from(length).unwrap()]);
        reads.push(Some(WrId(1)), sink, (5, 1000), vec![source(length)]);
        assert!(reads.next_request().is_some());
        reads
    }

    // requirement: rfc5042-6.4.3.3-2
    // requirement: rfc5040-8.1.1-12
    // requirement: rfc5040-5.2.1-5, rfc5040-5.2.1-7, rfc5040-5.5-2, rfc5040-5.5-11, rfc5040-6.1-4
    #[test]
    fn rfc5040_6_1_ord_is_respected() {
        let mut reads = Reads::new(2);
        let sources = vec![source(10), source(0), source(20), source(30)];
        reads.push(Some(WrId(1)), Buffer::adopt(vec![0; 60]), (5, 1000), sources);
        let first = reads.next_request().unwrap();
        let second = reads.next_request().unwrap();
        assert_eq!((first.sink_offset, first.size, second.sink_offset, second.size), (1000, 10, 1010, 20));
        assert!(!reads.has_room());
        assert_eq!(reads.admit(&segment(5, 1000, true), 10), Ok(0));
        assert!(reads.commit(10).is_none());
        assert!(reads.has_room());
        assert_eq!(reads.next_request().unwrap().sink_offset, 1030);
        assert_eq!(reads.next_request(), None, "all is asked for");
        assert_eq!(reads.admit(&segment(5, 1010, true), 20), Ok(10));
        assert!(reads.commit(20).is_none());
        assert_eq!(reads.admit(&segment(5, 1030, true), 30), Ok(30));
        assert_eq!(reads.commit(30).unwrap().id, Some(WrId(1)));
        assert!(reads.is_empty());
    }

    // requirement: rfc5040-5.5-9, rfc5041-4.2-7
    #[test]
    fn a_response_never_gets_past_what_was_asked_for() {
        let mut reads = one_read(100);
        let bounds = |offset, length, due_offset, due| {
            Err(Violation::ResponseBounds { offset, length, due_offset, due })
        };
        assert_eq!(reads.admit(&segment(5, 1000, false), 101), bounds(1000, 101, 1000, 100));
        assert_eq!(reads.admit(&segment(5, 1001, false), 10), bounds(1001, 10, 1000, 100));
        assert_eq!(reads.admit(&segment(6, 1000, false), 10), Err(Violation::ResponseStag(6)));
        // RFC 5041 §5.2 exempts messages without bytes, not segments.
        assert_eq!(reads.admit(&segment(6, 1000, false), 0), Err(Violation::ResponseStag(6)));
        assert_eq!(reads.admit(&segment(5, 1000, true), 10), Err(Violation::ResponseLast { missing: 90 }));
        assert_eq!(reads.admit(&segment(5, 1000, false), 100), Err(Violation::ResponseLast { missing: 0 }));
        assert_eq!(reads.admit(&segment(5, 1000, false), 60), Ok(0));
        assert!(reads.commit(60).is_none());
        assert_eq!(reads.admit(&segment(5, 1060, false), 41), bounds(1060, 41, 1060, 40));
        assert_eq!(reads.admit(&segment(5, 1060, true), 40), Ok(60));
        assert!(reads.commit(40).is_some());
        assert_eq!(reads.admit(&segment(5, 1100, true), 0), Err(Violation::ResponseStag(5)));
    }

    // requirement: rfc5040-5.5-11, rfc5041-5.2-11
    #[test]
    fn rfc5041_5_2_a_zero_length_response_checks_no_stag() {
        let mut reads = one_read(0);
        assert_eq!(reads.admit(&segment(77, 3, true), 0), Ok(0));
        // A segment of one byte is not zero-length, and no Read asked for it.
        assert_eq!(reads.admit(&segment(77, 3, true), 1), Err(Violation::ResponseStag(77)));
        let bounds = Violation::ResponseBounds { offset: 1000, length: 1, due_offset: 1000, due: 0 };
        assert_eq!(reads.admit(&segment(5, 1000, true), 1), Err(bounds));
        assert_eq!(reads.commit(0).unwrap().id, Some(WrId(1)));
    }
}
