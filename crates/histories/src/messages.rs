//! The account of credits per message (version-two-07 §4.2.1), and of messages in several Sends (§6.3.6, §6.3.9). It is
//! kept from the traffic of one queue pair, independently of the engine.

use rpcrdma_proto::wire::two::{self, VERSION};
use rpcrdma_proto::wire::{Body, Direction, ErrorBody, Header};
use rpcrdma_proto::{CloseReason, Config, Connection, Side};

use crate::ledger::Kind;

/// Receives beyond the announced ones: one takes a GRANT (§4.2.1.1).
const SPARE: usize = 1;
/// The fewest messages that a GRANT adds if it answers a GRANT; with fewer, two idle sides could answer for ever.
const LEAST_GAIN: u32 = 2;

/// The account of one end.
#[derive(Debug)]
pub(crate) struct Messages {
    side: Side,
    /// Messages sent and received so far, in any version.
    sent: u32,
    received: u32,
    /// The last limit of the peer.
    limit: Option<u32>,
    /// Messages of the peer in another version, whose refusals have Receives: that many of ours may still leave beyond
    /// the limit.
    refusable: u32,
    /// Those that left before the first limit.
    refused: u32,
    /// Calls of ours in another version, before any limit was told: each has a Receive for its refusal.
    guessed: u32,
    /// The last limit told to the peer.
    told: Option<u32>,
    /// The peer has lowered its limit since the end of our last message. A message may have begun before, and wait for
    /// the queue pair: only that one leaves.
    lowered: bool,
    /// The last message received was a GRANT.
    after_grant: bool,
    /// Our last message refuses another version, in which a limit has no meaning.
    unread: bool,
    parts: Parts,
}

impl Messages {
    pub(crate) const fn new(side: Side) -> Self {
        let parts = Parts { due: None };
        Self {
            side,
            sent: 0,
            received: 0,
            limit: None,
            refusable: 0,
            refused: 0,
            guessed: 0,
            told: None,
            lowered: false,
            after_grant: false,
            unread: false,
            parts,
        }
    }

    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    /// Whether credits per message bound a message of ours. Credits per Call bound the others, which leave before the
    /// version is known.
    pub(crate) const fn counts(header: &Header) -> bool {
        let refuses_version = matches!(
            header.body,
            Body::Error(ErrorBody::Version { .. } | ErrorBody::Two(two::ErrorBody::VersionMismatch))
        );
        header.version == VERSION || refuses_version
    }

    /// Returns the messages that may leave now, by the peer's last limit.
    fn room(&self) -> u32 {
        // Credits per Call bound the Calls by guess: a further one leaves when the one before has its answer.
        let limit = self.limit.unwrap_or(self.guessed.max(1) + self.refused);
        let room = limit.wrapping_sub(self.sent);
        if room < 1 << 31 { room } else { 0 }
    }

    /// Checks a message of ours with `payload` bytes behind the header, while so many Receives are posted; returns its
    /// kind.
    pub(crate) fn message_sent(
        &mut self,
        header: &Header,
        payload: usize,
        kind: Kind,
        receives: usize,
    ) -> Kind {
        if !Self::counts(header) {
            match kind {
                Kind::Call { .. } => self.guessed += 1,
                Kind::Error => self.refuse(),
                _ => {}
            }
            self.sent = self.sent.wrapping_add(1);
            self.lowered = false;
            return kind;
        }
        let grant = kind == Kind::Grant;
        if grant {
            // §4.2.1.1: the spare Receive of the peer is free as long as its limit is kept.
            let limit = self.limit.expect("a GRANT leaves after the first limit (§4.3)");
            if self.room() == 0 && self.sent != limit && !self.lowered {
                self.refuse();
                assert!(self.room() > 0, "a GRANT beyond the limit: {self:?}");
            }
            assert_eq!(header.xid, 0, "the XID of a GRANT (§6.3.1)");
        } else {
            // §4.3: the first credit is for a message other than a refusal.
            if (self.room() == 0 && !self.lowered) || (self.limit.is_none() && kind == Kind::Error) {
                self.refuse();
            }
            assert!(self.room() > 0 || self.lowered, "{header:?} beyond the limit (I4): {self:?}");
        }
        self.sent = self.sent.wrapping_add(1);
        self.unread = header.version != VERSION;
        if !self.unread {
            self.tell(header.credit, receives, grant);
        }
        let kind = self.parts.follow(header, payload, kind);
        self.lowered &= self.parts.due.is_some();
        kind
    }

    /// Checks the limit in a message of ours, while so many Receives are posted.
    fn tell(&mut self, credit: u32, receives: usize, grant: bool) {
        let before = self.told.unwrap_or(1 + self.guessed);
        let raised = credit.wrapping_sub(before);
        assert!(raised < 1 << 31, "{credit} after {before}: a limit is never withdrawn");
        // Below the received count, the limit says that no Receive is left for a GRANT.
        let ahead = credit.wrapping_sub(self.received).cast_signed();
        let backed = i64::try_from(receives).unwrap() - i64::try_from(SPARE).unwrap();
        assert!(raised == 0 || i64::from(ahead) <= backed, "{ahead} told, {backed} Receives (I3): {self:?}");
        if grant {
            // A GRANT leaves when half of the window has been used, and adds that half, or when all has been used.
            let least = before.wrapping_sub(self.received).cast_signed().max(1).cast_unsigned();
            let least = if self.after_grant { least.max(LEAST_GAIN) } else { least };
            assert!(raised >= least, "a GRANT of {raised}, at least {least} (§4.2.1.1): {self:?}");
        }
        self.told = Some(credit);
    }

    /// Checks a connection at rest, with this configuration, while so many Receives are posted.
    pub(crate) fn check_rest(&self, connection: &Connection, config: &Config, receives: usize) {
        let (Some(limit), Some(told)) = (self.limit, self.told) else { return };
        let beyond = i64::from(self.received.wrapping_sub(told).cast_signed());
        let kept = limit.wrapping_sub(self.sent).cast_signed() >= 0;
        let backed = i64::try_from(receives).unwrap() - i64::try_from(SPARE).unwrap();
        // The least window: the Calls before the first grant, without those in progress.
        let early = if self.side == Side::Server { config.early_calls.min(config.grant) } else { 1 };
        let window = i64::from(early) - i64::try_from(connection.in_progress()).unwrap();
        let gain = beyond + backed.min(window.max(0));
        assert!(
            beyond < 0 || !kept || self.unread || gain < LEAST_GAIN.into(),
            "no GRANT of {gain} (§4.2.1.1): {self:?}"
        );
    }

    /// Checks the reason of an end: a peer without credits is not late.
    pub(crate) fn check_end(&self, reason: &CloseReason) {
        let Some(told) = self.told.filter(|_| !self.unread) else { return };
        let credits = told.wrapping_sub(self.received).cast_signed();
        match reason {
            CloseReason::Timeout("the rest of a continued message") => {
                assert!(credits > 0, "a peer without credits is not late: {self:?}");
            }
            CloseReason::Timeout("memory for the rest of a continued message") => {
                assert!(credits <= 0, "a peer with credits needs no more memory: {self:?}");
            }
            _ => {}
        }
    }

    /// Uses the Receive of a refusal.
    fn refuse(&mut self) {
        if self.refusable > 0 {
            self.refusable -= 1;
            match &mut self.limit {
                Some(limit) => *limit = self.sent.wrapping_add(1),
                None => self.refused += 1,
            }
        }
    }

    /// Records a message of the peer; `limit` is its `rdma_credit` if it is in this version.
    pub(crate) fn message_received(&mut self, limit: Option<u32>, is_call: bool, is_grant: bool) {
        self.received = self.received.wrapping_add(1);
        self.after_grant = is_grant;
        match limit {
            Some(limit) => {
                let before = self.limit.replace(limit).unwrap_or(1);
                self.lowered |= limit.wrapping_sub(before) >= 1 << 31;
            }
            // Nothing else has an answer. A client that knows a limit gets no such messages.
            None if is_call && (self.limit.is_none() || self.side == Side::Server) => self.refusable += 1,
            None => {}
        }
    }
}

/// A message in several Sends that one side has begun.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// XID, direction, Sends so far, and bytes to come.
    due: Option<(u32, Option<Direction>, usize, usize)>,
}

impl Parts {
    /// Checks that a message goes on with the one in progress, if there is one; returns its kind.
    pub(crate) fn follow(&mut self, header: &Header, payload: usize, kind: Kind) -> Kind {
        // A GRANT or an error interrupts nothing (§6.3).
        if matches!(kind, Kind::Grant | Kind::Error) {
            return kind;
        }
        let left = match header.body {
            Body::Two(two::Body::Middle { remaining }) => Some(usize::try_from(remaining).unwrap()),
            _ => None,
        };
        let begun = self.due.take();
        let sends = begun.map_or(0, |(_, _, sends, _)| sends) + 1;
        assert!(sends <= Config::default().continued_parts, "{sends} Sends of one message");
        self.due = left.map(|left| (header.xid, header.direction, sends, left));
        let Some((xid, direction, _, due)) = begun else { return kind };
        assert_eq!((header.xid, header.direction), (xid, direction), "messages are interleaved (§4.1)");
        assert_eq!(payload + left.unwrap_or(0), due, "bytes of {header:?} (§6.3.6, §6.3.9)");
        match kind {
            Kind::Call { .. } => Kind::CallPart,
            Kind::Reply { .. } => Kind::ReplyPart,
            other => panic!("{other:?} within a message (§6.3.6, §6.3.9)"),
        }
    }
}
