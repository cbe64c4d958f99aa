//! MPA connection set-up (RFC 5044 §7.1, RFC 6581 §9) without I/O.
//!
//! An [`Initiator`] makes the Request, processes the bytes of the Reply, and ends with [`Negotiated`] or
//! [`StartupError`]. A [`Responder`] processes bytes until it has a [`Request`], which its caller accepts or rejects.
//! Bytes behind the frame, which belong to full operation, are kept and handed out with the result. After an error, the
//! caller sends the [`StartupError::last_words`], if any, then closes TCP.

use bytes::Bytes;
use rpcrdma_verbs::TerminateCause;

use crate::wire::mpa::{
    Enhanced, Frame, FrameError, FrameKind, HEADER_LEN, MAX_DEPTH, MAX_PRIVATE_DATA, NOT_NEGOTIATED,
    Revision, RtrSet,
};
use crate::wire::offer::{FpduOffer, OFFER_LEN};
use crate::wire::terminate::cause;

/// Whether FPDUs may be longer than a TCP segment, and how this side says so. Both sides must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LargeFpdu {
    /// Every FPDU fits a TCP segment (RFC 5044 §4.5).
    #[default]
    Never,
    /// An [`FpduOffer`] behind the private data says so, if there is space for it.
    Offered,
    /// The offer, and the reserved flag bit 0x08 of MPA frames, which Linux `siw` understands if it was built with
    /// `try_gso`. No RFC defines the bit.
    Flagged,
}

/// Settings of one side for a set-up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Private data for the peer.
    pub private_data: Bytes,
    /// RDMA Read Requests that the peer may have outstanding here. An Initiator states at least 1, since Linux refuses
    /// 0.
    pub ird: u16,
    /// RDMA Read Requests that this side wants to have outstanding at the peer.
    pub ord: u16,
    /// Asks for CRCs. They are off only if neither side asks (RFC 5044 §4.4).
    pub crc: bool,
    /// Whether FPDUs may be longer than a TCP segment.
    pub large_fpdu: LargeFpdu,
    /// Revision of our Request; a Responder follows the Request that it received.
    pub revision: Revision,
    /// Asks for the peer-to-peer model with one of these RTR messages. Needs revision 2. Only an Initiator asks.
    pub peer_to_peer: Option<RtrSet>,
    /// Largest possible IRD if the Responder wants more than [`ird`](Self::ird).
    pub ird_limit: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            private_data: Bytes::new(),
            ird: 32,
            ord: 32,
            crc: true,
            large_fpdu: LargeFpdu::Never,
            revision: Revision::Two,
            peer_to_peer: None,
            ird_limit: 128,
        }
    }
}

impl Settings {
    /// Returns private data with an offer of long FPDUs behind it, if these settings have one and there is space.
    fn with_offer(&self, private_data: &[u8], enhanced: bool) -> Vec<u8> {
        let mut data = private_data.to_vec();
        if self.large_fpdu != LargeFpdu::Never
            && data.len() + OFFER_LEN <= Frame::private_data_capacity(enhanced)
        {
            data.extend_from_slice(&FpduOffer::ALL.encode());
        }
        data
    }

    /// Returns the longest ULPDU that the peer accepts, by its offer or its flag, if these settings say that they are
    /// used.
    fn large_ulpdu(&self, offer: Option<FpduOffer>, flagged: bool) -> Option<u16> {
        match self.large_fpdu {
            LargeFpdu::Never => None,
            LargeFpdu::Flagged if flagged => Some(u16::MAX),
            LargeFpdu::Offered | LargeFpdu::Flagged => offer.map(FpduOffer::max_ulpdu),
        }
    }
}

/// The role of this side in MPA: the Initiator sends the first FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that sent the Request.
    Initiator,
    /// The side that sent the Reply.
    Responder,
}

/// A Ready-To-Receive message (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// Zero-length Send.
    Send,
    /// Zero-length RDMA Write.
    Write,
    /// Zero-length RDMA Read.
    Read,
}

/// The result of a set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The role of this side.
    pub role: Role,
    /// CRCs are generated and checked in both directions.
    pub crc: bool,
    /// The peer wants markers in our stream.
    pub markers: bool,
    /// Longest ULPDU in bytes that the peer accepts beyond those that fit a TCP segment, if both sides agreed.
    pub large_fpdu: Option<u16>,
    /// RDMA Read Requests that the peer may have outstanding here.
    pub ird: u16,
    /// RDMA Read Requests that this side may have outstanding at the peer.
    pub ord: u16,
    /// Initiator: the message to send before all others. Responder: never set.
    pub rtr: Option<Rtr>,
    /// Responder: a zero-length Send as first FPDU is an RTR and takes no Receive.
    pub rtr_send_expected: bool,
    /// The peer's private data.
    pub private_data: Bytes,
}

/// Reason why no connection was established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupError {
    /// The peer's frame is improperly formatted.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer sent a Reply with R = 1.
    #[error("the peer rejected the connection with {} bytes of private data", private_data.len())]
    Rejected {
        /// The peer's private data.
        private_data: Bytes,
        /// IRD and ORD that the peer stated.
        enhanced: Option<Enhanced>,
    },
    /// The Responder wants more RDMA Reads than this side can hold (RFC 6581 §9.1).
    #[error("the peer wants {wanted} RDMA Reads outstanding here; at most {limit} are possible")]
    InsufficientIrd {
        /// The Responder's ORD.
        wanted: u16,
        /// [`Settings::ird_limit`].
        limit: u16,
    },
    /// The Responder named no RTR message that this side asked for (RFC 6581 §9.2).
    #[error("the peer takes none of the Ready-To-Receive messages that were offered")]
    NoMatchingRtr,
}

impl StartupError {
    /// Returns the cause of the Terminate to send before the connection is closed.
    pub const fn last_words(&self) -> Option<TerminateCause> {
        match self {
            Self::InsufficientIrd { .. } => Some(cause::MPA_INSUFFICIENT_IRD),
            Self::NoMatchingRtr => Some(cause::MPA_NO_MATCHING_RTR),
            Self::Frame(_) | Self::Rejected { .. } => None,
        }
    }
}

/// Bytes of the peer until its frame is complete. Bounded: a frame has at most 532 bytes, and the caller stops with the
/// frame.
#[derive(Debug, Default)]
struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    fn take_frame(&mut self, input: &[u8], due: FrameKind) -> Result<Option<(Frame, Vec<u8>)>, FrameError> {
        self.bytes.extend_from_slice(input);
        let Some((frame, used)) = Frame::decode(&self.bytes, due)? else { return Ok(None) };
        let behind = self.bytes.split_off(used.min(self.bytes.len()));
        Ok(Some((frame, behind)))
    }
}

/// Maximum length of a start-up frame, in bytes: the number of bytes to read at a time.
pub const MAX_FRAME: usize = HEADER_LEN + MAX_PRIVATE_DATA;

/// The side that sends the Request.
#[derive(Debug)]
pub struct Initiator {
    settings: Settings,
    /// The Request carries an offer of long FPDUs.
    offers: bool,
    inbox: Inbox,
}

impl Initiator {
    /// Returns an Initiator, and the Request to send. Linux requires the Request in one write, and no byte after it
    /// before the Reply.
    pub fn new(mut settings: Settings) -> Result<(Self, Vec<u8>), FrameError> {
        settings.ird = settings.ird.clamp(1, MAX_DEPTH);
        settings.ord = settings.ord.min(MAX_DEPTH);
        let enhanced = (settings.revision == Revision::Two).then_some(Enhanced {
            peer_to_peer: settings.peer_to_peer,
            ird: settings.ird,
            ord: settings.ord,
        });
        let private_data = settings.with_offer(&settings.private_data, enhanced.is_some());
        let offers = private_data.len() > settings.private_data.len();
        let request = Frame {
            kind: FrameKind::Request,
            revision: settings.revision,
            // RFC 5044 §7.1.1: this side never asks for them.
            markers: false,
            crc: settings.crc,
            rejected: false,
            large_fpdu: settings.large_fpdu == LargeFpdu::Flagged,
            enhanced,
            private_data,
        }
        .encode()?;
        Ok((Self { settings, offers, inbox: Inbox::default() }, request))
    }

    /// Processes bytes of the peer. `Ok(None)`: more are needed. The second value holds the bytes behind the Reply.
    pub fn handle(&mut self, input: &[u8]) -> Result<Option<(Negotiated, Vec<u8>)>, StartupError> {
        let Some((reply, behind)) = self.inbox.take_frame(input, FrameKind::Reply)? else { return Ok(None) };
        let settings = &self.settings;
        // RFC 5044 §7.1.2 (3).
        if reply.rejected {
            return Err(StartupError::Rejected {
                private_data: reply.private_data.into(),
                enhanced: reply.enhanced,
            });
        }
        let (mut ird, mut ord) = (settings.ird, settings.ord);
        if let Some(theirs) = reply.enhanced {
            // RFC 6581 §9.1: our IRD at least their ORD, our ORD at most their IRD; 0x3FFF leaves ours as it is.
            if theirs.ord != NOT_NEGOTIATED && theirs.ord > ird {
                if theirs.ord > settings.ird_limit {
                    return Err(StartupError::InsufficientIrd {
                        wanted: theirs.ord,
                        limit: settings.ird_limit,
                    });
                }
                ird = theirs.ord;
            }
            // The peer makes no RDMA Reads at all; the user must know this.
            if theirs.ord == 0 {
                ird = 0;
            }
            if theirs.ird != NOT_NEGOTIATED {
                ord = ord.min(theirs.ird);
            }
        }
        // RFC 6581 §9.2. A Reply without A to a Request with A offers nothing that matches.
        let rtr = match settings.peer_to_peer.filter(|_| settings.revision == Revision::Two) {
            Some(offered) => {
                let theirs = reply.enhanced.and_then(|enhanced| enhanced.peer_to_peer).unwrap_or_default();
                let common = offered.intersection(theirs);
                let chosen = if common.write {
                    Rtr::Write
                } else if common.read && ord > 0 {
                    Rtr::Read
                } else if common.send {
                    Rtr::Send
                } else {
                    return Err(StartupError::NoMatchingRtr);
                };
                Some(chosen)
            }
            None => None,
        };
        // Without an offer of ours, the end of the data can only be the ULP's.
        let private_data = Bytes::from(reply.private_data);
        let (private_data, offer) =
            if self.offers { FpduOffer::split(private_data) } else { (private_data, None) };
        let negotiated = Negotiated {
            role: Role::Initiator,
            // RFC 5044 §7.1.1: off only if both are 0.
            crc: settings.crc || reply.crc,
            markers: reply.markers,
            large_fpdu: settings.large_ulpdu(offer, reply.large_fpdu),
            ird,
            ord,
            rtr,
            rtr_send_expected: false,
            private_data,
        };
        Ok(Some((negotiated, behind)))
    }
}

/// The side that waits for the Request.
#[derive(Debug, Default)]
pub struct Responder {
    inbox: Inbox,
}

impl Responder {
    /// Returns a Responder that waits for the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Processes bytes of the peer. `Ok(None)`: more are needed. The second value holds the bytes behind the Request.
    pub fn handle(&mut self, input: &[u8]) -> Result<Option<(Request, Vec<u8>)>, StartupError> {
        let Some((frame, behind)) = self.inbox.take_frame(input, FrameKind::Request)? else {
            return Ok(None);
        };
        let (private_data, offer) = FpduOffer::split(frame.private_data.clone().into());
        Ok(Some((Request { frame, private_data, offer }, behind)))
    }
}

/// A valid Request that waits for an answer.
#[derive(Clone, Debug)]
pub struct Request {
    frame: Frame,
    private_data: Bytes,
    offer: Option<FpduOffer>,
}

impl Request {
    /// Returns the Initiator's private data.
    pub const fn private_data(&self) -> &Bytes {
        &self.private_data
    }

    /// Returns IRD, ORD and RTR of the Initiator, if it sent any.
    pub const fn enhanced(&self) -> Option<Enhanced> {
        self.frame.enhanced
    }

    /// Returns the Reply that accepts, and the result of the negotiation.
    pub fn accept(&self, settings: &Settings) -> Result<(Vec<u8>, Negotiated), FrameError> {
        let (mut ird, mut ord) = (settings.ird.min(MAX_DEPTH), settings.ord.min(MAX_DEPTH));
        let mut rtr_send_expected = false;
        let enhanced = self.frame.enhanced.map(|theirs| {
            let peer_to_peer = theirs.peer_to_peer.map(|asked| {
                // RFC 6581 §9.2: the matching messages, or all supported ones if none match.
                let supported = RtrSet { send: true, write: true, read: true };
                if asked.is_empty() { supported } else { asked }
            });
            rtr_send_expected = peer_to_peer.is_some_and(|rtr| rtr.send);
            // RFC 6581 §9.1. An IRD of 1 lets a zero-length RDMA Read be the RTR of a peer that wants no other Reads.
            let stated_ird = if theirs.ord == NOT_NEGOTIATED {
                NOT_NEGOTIATED
            } else {
                let least = u16::from(peer_to_peer.is_some_and(|rtr| rtr.read));
                ird = ird.min(theirs.ord).max(least);
                ird
            };
            let stated_ord = if theirs.ird == NOT_NEGOTIATED {
                NOT_NEGOTIATED
            } else {
                ord = ord.min(theirs.ird);
                ord
            };
            Enhanced { peer_to_peer, ird: stated_ird, ord: stated_ord }
        });
        let private_data = match self.offer {
            Some(_) => settings.with_offer(&settings.private_data, enhanced.is_some()),
            None => settings.private_data.to_vec(),
        };
        let answered = private_data.len() > settings.private_data.len();
        let reply = self.reply(settings, private_data, enhanced, false)?;
        let negotiated = Negotiated {
            role: Role::Responder,
            crc: settings.crc || self.frame.crc,
            markers: self.frame.markers,
            large_fpdu: settings.large_ulpdu(self.offer.filter(|_| answered), self.frame.large_fpdu),
            ird,
            ord,
            rtr: None,
            rtr_send_expected,
            private_data: self.private_data.clone(),
        };
        Ok((reply, negotiated))
    }

    /// Returns the Reply that rejects (RFC 5044 §7.1.2 (2)).
    pub fn reject(&self, settings: &Settings, private_data: &Bytes) -> Result<Vec<u8>, FrameError> {
        let enhanced = self.frame.enhanced.map(|theirs| Enhanced {
            peer_to_peer: theirs.peer_to_peer,
            ird: settings.ird.min(MAX_DEPTH),
            ord: settings.ord.min(MAX_DEPTH),
        });
        self.reply(settings, private_data.to_vec(), enhanced, true)
    }

    fn reply(
        &self,
        settings: &Settings,
        private_data: Vec<u8>,
        enhanced: Option<Enhanced>,
        rejected: bool,
    ) -> Result<Vec<u8>, FrameError> {
        Frame {
            kind: FrameKind::Reply,
            revision: self.frame.revision,
            markers: false,
            // `siw` accepts C = 1 in a Reply, whatever its Request had.
            crc: settings.crc || self.frame.crc,
            rejected,
            large_fpdu: settings.large_fpdu == LargeFpdu::Flagged && self.frame.large_fpdu,
            enhanced,
            private_data,
        }
        .encode()
    }
}

#[cfg(test)]
mod tests;
