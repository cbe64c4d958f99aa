//! Receives: those that wait here, and those that the adapter has.

use std::collections::VecDeque;
use std::ops::Range;

use rpcrdma_verbs::{Buffer, Completion, Disconnected, ReceiveMemory, Status, Work, WrId};

use super::{IbverbsQueuePair, RECEIVE};
use crate::ffi::ibv_sge;
use crate::ffi::value::ACCESS_LOCAL_WRITE;
use crate::memory::{Region, address_range, explain};

/// A Receive that the adapter has.
pub(super) struct Posted {
    id: WrId,
    buffers: Vec<Buffer>,
    pooled: bool,
    /// Registrations for this Receive alone.
    regions: Vec<Region>,
    /// Set if it failed.
    failed: Option<Status>,
}

impl Posted {
    pub(super) fn id(&self) -> WrId {
        self.id
    }

    /// Takes the memory out.
    pub(super) fn take_buffers(&mut self) -> Vec<Buffer> {
        self.regions.clear();
        std::mem::take(&mut self.buffers)
    }
}

/// The receive queue.
pub(super) struct Receives {
    waiting: VecDeque<(WrId, ReceiveMemory)>,
    posted: VecDeque<Posted>,
    /// Number of the first posted Receive.
    first: u64,
    /// Posted Receives that failed: they keep their memory until the queue pair has ended.
    failed: usize,
    /// Receives that the adapter holds at most.
    depth: usize,
    segments: Vec<ibv_sge>,
}

impl Receives {
    pub(super) fn new(depth: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            posted: VecDeque::new(),
            first: 0,
            failed: 0,
            depth,
            segments: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, id: WrId, memory: ReceiveMemory) {
        self.waiting.push_back((id, memory));
    }

    /// Returns the number of Receives that have not completed.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.posted.len()
    }

    /// Returns the number of Receives that the adapter has.
    pub(super) fn outstanding(&self) -> usize {
        self.posted.len().saturating_sub(self.failed)
    }

    /// Takes out the Receive with this number, the oldest one.
    pub(super) fn take(&mut self, number: u64) -> Option<Posted> {
        if number != self.first {
            return None;
        }
        self.first += 1;
        self.posted.pop_front()
    }

    /// Notes that a Receive failed.
    pub(super) fn fail(&mut self, number: u64, status: Status) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(posted) = index.and_then(|index| self.posted.get_mut(index))
            && posted.failed.replace(status).is_none()
        {
            self.failed += 1;
        }
    }

    /// Completes all Receives. The queue pair must have ended.
    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        let complete = |id, status, buffers| {
            let work = Work::Receive { buffers, len: 0, invalidated: None, solicited: false };
            Completion { id, status, work }
        };
        for mut posted in self.posted.drain(..) {
            let buffers = posted.take_buffers();
            done.push_back(complete(
                posted.id,
                posted.failed.unwrap_or(Status::Flushed),
                if posted.pooled { Vec::new() } else { buffers },
            ));
        }
        for (id, memory) in self.waiting.drain(..) {
            let buffers = match memory {
                ReceiveMemory::Scatter(buffers) => buffers,
                _ => Vec::new(),
            };
            done.push_back(complete(id, Status::Flushed, buffers));
        }
        self.failed = 0;
    }
}

impl IbverbsQueuePair {
    /// Gives Receives to the adapter while it has room.
    pub(super) fn post_receives(&mut self) -> Result<(), Disconnected> {
        let Some(hardware) = &mut self.hardware else { return Ok(()) };
        let receives = &mut self.receives;
        while receives.posted.len() < receives.depth
            && let Some((id, memory)) = receives.waiting.pop_front()
        {
            let (mut buffers, pooled) = match memory {
                ReceiveMemory::Scatter(buffers) => (buffers, false),
                ReceiveMemory::Pooled(reserved) => (vec![reserved.into_buffer()], true),
                // The contract has no other kind.
                _ => (Vec::new(), false),
            };
            let mut regions = Vec::new();
            let mut failure = None;
            receives.segments.clear();
            for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
                let range: Range<usize> = address_range(buffer);
                let place = match hardware.memory.keep(buffer) {
                    Ok(Some(place)) => Ok(place),
                    Ok(None) => hardware.memory.register(range.clone(), ACCESS_LOCAL_WRITE).map(|region| {
                        let place = region.beginning();
                        regions.push(region);
                        place
                    }),
                    Err(error) => Err(error),
                };
                match place {
                    Ok(place) => receives.segments.push(ibv_sge {
                        addr: place.address,
                        length: u32::try_from(range.len()).unwrap_or(u32::MAX),
                        lkey: place.local_key,
                    }),
                    Err(error) => failure = Some(error),
                }
            }
            if receives.segments.is_empty()
                && let Some(nothing) = &mut self.nothing
            {
                // siw takes no Receive without a segment.
                match hardware.memory.keep(nothing) {
                    Ok(place) => receives.segments.extend(place.map(|place| ibv_sge {
                        addr: place.address,
                        length: 0,
                        lkey: place.local_key,
                    })),
                    Err(error) => failure = Some(error),
                }
            }
            let number = receives.first + receives.posted.len() as u64;
            let result = match failure {
                Some(error) => Err(error),
                None => hardware.post_receive(number | RECEIVE, &mut receives.segments),
            };
            let failed = result.is_err().then_some(Status::LocalProtection);
            receives.failed += usize::from(failed.is_some());
            receives.posted.push_back(Posted { id, buffers, pooled, regions, failed });
            if let Err(error) = result {
                let len = receives
                    .posted
                    .back()
                    .map_or(0, |posted| posted.buffers.iter().map(|buffer| buffer.len()).sum());
                return Err(Disconnected::Link(explain(&error, len)));
            }
        }
        Ok(())
    }
}
