//! Forms of Version One that RFC 8166 retired, and forms that were only proposed. None is enabled by default.
//!
//! | module | mechanism |
//! | --- | --- |
//! | `compatibility` | the settings, one for each form |
//! | `padded` | RDMA_MSGP: opaque data at the alignment of the Receives (RFC 5666 §3.9) |
//! | `pads` | XDR pads in the Read list |
//! | `exposures` | a server's replies that the client reads, until their RDMA_DONE (RFC 5666 §3.8, §11) |
//! | `answers` | the transmission of such replies |
//! | `replies` | a client's reading of such replies |
//! | `plan` | the choice of these forms for a message |
//!
//! [`Retired`] is the state of a connection that has one of these forms enabled; any other connection has none.
//! *Errors*: a form that is not enabled gets the refusal of RFC 8166.

mod answers;
mod compatibility;
mod exposures;
mod padded;
mod pads;
pub(crate) mod plan;
mod replies;

use std::time::Instant;

pub(crate) use self::compatibility::{AlignmentBase, Compatibility, PaddedMessages, ReadRead};
use self::exposures::Exposures;
pub(crate) use self::replies::Reading;
use crate::core::Core;
use crate::inbound::received::Received;
use crate::message::Form;
use crate::settings::config::Side;
use crate::settings::timers::earliest;
use crate::wire::{Limits, ProtocolError};

/// The public types of the retired forms.
pub(crate) mod face {
    pub use super::compatibility::{AlignmentBase, Compatibility, PaddedMessages, ReadRead};
}

/// The state of the retired forms on a connection that has any enabled.
#[derive(Debug)]
pub(crate) struct Retired {
    settings: Compatibility,
    /// Replies that the peer reads.
    exposures: Exposures,
}

impl Retired {
    /// Opens the door to the retired forms, if any is enabled.
    pub(crate) fn open(settings: &Compatibility) -> Option<Box<Self>> {
        let enabled = *settings != Compatibility::default();
        enabled.then(|| Box::new(Self { settings: settings.clone(), exposures: Exposures::default() }))
    }

    /// Whether the settings accept the form of which this error is the refusal.
    pub(crate) fn accepts(&self, refusal: &ProtocolError) -> bool {
        match refusal {
            ProtocolError::PaddingSegment => self.settings.padding_segments,
            ProtocolError::UnalignedPosition { .. } => self.settings.pad_chunks,
            ProtocolError::PaddedMessage => self.settings.padded_messages != PaddedMessages::Refuse,
            _ => false,
        }
    }

    /// Removes the pads from the Read list of a message, and sets the padding of an RDMA_MSGP as the settings say.
    pub(crate) fn take_forms(&self, received: &mut Received, limits: &Limits) -> Result<(), ProtocolError> {
        pads::remove(&mut received.lists.read, limits)?;
        if let Some(padding) = received.padding {
            received.padding = self.padding(padding)?;
            // Without its padding, the message is like any other.
            if received.padding.is_none() {
                received.form = Form::Inline;
            }
        }
        Ok(())
    }

    /// Returns the time when the next timer is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        earliest([self.exposures.poll_timeout(), self.exposures.withheld_until()])
    }

    /// Forgets everything: the connection is over, which has closed every window.
    pub(crate) fn clear(&mut self) {
        self.exposures = Exposures::default();
    }
}

impl Core {
    fn settings(&self) -> Option<&Compatibility> {
        self.retired.as_ref().map(|retired| &retired.settings)
    }

    /// Returns the Read-Read settings, if they hold on this side. Only Version One has an RDMA_DONE.
    fn read_read(&self, side: Side) -> Option<&ReadRead> {
        let settings = self.settings()?.read_read.as_ref();
        settings.filter(|_| self.side() == side && self.codec.rules().two.is_none())
    }

    /// Whether this is a client that reads replies.
    pub(crate) fn reads_replies(&self) -> bool {
        self.read_read(Side::Client).is_some()
    }

    /// Returns the Read-Read settings, if this is a server that exposes replies.
    fn exposes_replies(&self) -> Option<&ReadRead> {
        self.read_read(Side::Server).filter(|_| self.read_chunks())
    }

    /// Whether a returned Write chunk may count the XDR pad of its item (RFC 5666 §3.7).
    pub(crate) fn accepts_roundup(&self) -> bool {
        self.settings().is_some_and(|settings| settings.write_roundup)
    }
}
