//! The link from one end to the other: segments under way, in order, on the virtual clock.
//!
//! A link owns copies of the bytes that left, as a socket buffer would. So memory of the sender is free once its work
//! request completes. When the connection is cut, the copies are gone.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand::rngs::StdRng;
use rpcrdma_verbs::{Key, RemoteSegment, Status, TerminateCause};

use crate::FabricConfig;

/// Length of the headers of each segment, in bytes, as of MPA, DDP and RDMAP together.
const HEADER: usize = 24;

/// A unit that travels on a link.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A segment of a Send.
    Send { seq: u64, offset: usize, data: Bytes, end: Option<SendEnd> },
    /// A segment of an RDMA Write: `last` of its message, `end` of its work request.
    Write { seq: u64, key: Key, address: u64, data: Bytes, last: bool, end: bool },
    /// An RDMA Read Request.
    ReadRequest { seq: u64, source: RemoteSegment },
    /// A segment of the answer to the oldest outstanding RDMA Read Request.
    ReadResponse { data: Bytes, last: bool },
    /// The peer has the work request, or could not carry it out.
    Ack { seq: u64, status: Status },
    /// The peer found an error and ended the connection.
    Terminate(TerminateCause),
    /// The peer will send nothing more.
    Close,
    /// The link failed at the peer.
    Reset(&'static str),
}

/// The final fields of a Send, in its last segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendEnd {
    pub(crate) invalidate: Option<Key>,
    pub(crate) solicited: bool,
}

impl Frame {
    /// Returns the bytes that the frame takes on the link.
    pub(crate) fn link_len(&self) -> usize {
        match self {
            Self::Send { data, .. } | Self::Write { data, .. } | Self::ReadResponse { data, .. } => {
                HEADER + data.len()
            }
            Self::ReadRequest { .. } | Self::Terminate(_) => HEADER,
            // Acknowledgements, and frames that end a link, travel with the packets of the layer below.
            Self::Ack { .. } | Self::Close | Self::Reset(_) => 0,
        }
    }
}

/// The link in one direction.
#[derive(Debug, Default)]
pub(crate) struct Link {
    in_flight: VecDeque<(Duration, Frame)>,
    last_arrival: Duration,
    /// The time until which the transmitter is busy.
    pub(crate) busy_until: Duration,
    /// Number of frames ever put: shows whether the receiver must look again.
    pub(crate) count: u64,
    /// The time at which the link was partitioned, while it is.
    held_since: Option<Duration>,
    /// The beginning and end of a delay in which nothing arrives; may be past.
    delayed: Option<(Duration, Duration)>,
}

impl Link {
    /// Transmits a frame from `start` on; returns when its last byte has left.
    pub(crate) fn put(
        &mut self,
        start: Duration,
        frame: Frame,
        config: &FabricConfig,
        rng: &mut StdRng,
    ) -> Duration {
        let left = start.max(self.busy_until) + transmission_time(frame.link_len(), config.bandwidth);
        let jitter = match u64::try_from(config.jitter.as_nanos()) {
            Ok(0) | Err(_) => Duration::ZERO,
            Ok(most) => Duration::from_nanos(rng.random_range(0..=most)),
        };
        self.busy_until = left;
        self.last_arrival = self.last_arrival.max(left + config.latency + jitter);
        self.in_flight.push_back((self.last_arrival, frame));
        self.count += 1;
        left
    }

    /// Takes the next frame if it has arrived.
    pub(crate) fn take(&mut self, now: Duration) -> Option<(Duration, Frame)> {
        if self.next_arrival()? > now {
            return None;
        }
        self.in_flight.pop_front()
    }

    /// Puts back a frame that [`take`](Self::take) returned, because the receiver cannot handle it yet.
    pub(crate) fn put_back(&mut self, arrival: Duration, frame: Frame) {
        self.in_flight.push_front((arrival, frame));
    }

    /// Returns when the next frame arrives; `None` if there is no frame, or the link is partitioned.
    pub(crate) fn next_arrival(&self) -> Option<Duration> {
        if self.held_since.is_some() {
            return None;
        }
        self.in_flight.front().map(|&(arrival, _)| arrival)
    }

    /// Lets no frame, under way or put later, arrive before `time`.
    fn arrive_from(&mut self, time: Duration) {
        for (arrival, _) in &mut self.in_flight {
            *arrival = (*arrival).max(time);
        }
        self.last_arrival = self.last_arrival.max(time);
    }

    /// Lets the link stand still for `time` from `now` on.
    pub(crate) fn delay(&mut self, now: Duration, time: Duration) {
        let until = now + time;
        let since = self.delayed.filter(|&(_, until)| until >= now).map_or(now, |(since, _)| since);
        self.delayed = Some((since, until));
        self.arrive_from(until);
    }

    /// Holds frames that are under way, from `now` on.
    pub(crate) fn partition(&mut self, now: Duration) {
        self.held_since.get_or_insert(now);
    }

    /// Ends a partition: held frames arrive from `now` on.
    pub(crate) fn heal(&mut self, now: Duration) {
        if self.held_since.take().is_some() {
            self.arrive_from(now);
        }
    }

    /// Returns when both ends give up because nothing arrived for longer than `timeout`, in a partition or a delay.
    pub(crate) fn dead_at(&self, timeout: Duration) -> Option<Duration> {
        let held = self.held_since.map(|since| since + timeout);
        let delayed = self.delayed.map(|(since, until)| (since + timeout, until));
        let delayed = delayed.filter(|(dead, until)| dead < until).map(|(dead, _)| dead);
        held.into_iter().chain(delayed).min()
    }

    /// Loses all frames that are under way; they hold up no later frame.
    pub(crate) fn clear(&mut self) {
        self.in_flight.clear();
        self.last_arrival = Duration::ZERO;
        self.delayed = None;
    }
}

fn transmission_time(bytes: usize, bandwidth: Option<u64>) -> Duration {
    let Some(bandwidth) = bandwidth else { return Duration::ZERO };
    let nanos = u128::try_from(bytes).unwrap_or(u128::MAX).saturating_mul(1_000_000_000)
        / u128::from(bandwidth.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
