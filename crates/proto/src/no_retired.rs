//! The face of `retired` in a build without the retired forms: types without values, so that callers need no `cfg`.

use std::time::Instant;

use rpcrdma_verbs::{Key, PoolExhausted, Windows};

use self::plan::{CallForms, ReplyForms};
use crate::core::Core;
use crate::flow::Offer;
use crate::inbound::reads::Pulled;
use crate::inbound::received::Received;
use crate::planner::ReplyPlan;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::settings::config::Config;
use crate::wire::{Limits, ProtocolError};

/// Retired and proposed forms that a connection uses: none in this build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compatibility {}

/// The public types of the retired forms.
pub(crate) mod face {
    pub use super::Compatibility;
}

impl Config {
    /// Returns whether the Read-Read model is enabled: in this build never.
    #[must_use]
    pub const fn has_read_read(&self) -> bool {
        false
    }

    /// Returns whether opaque data of an RDMA_MSGP is aligned: in this build never.
    #[must_use]
    pub const fn honours_padding(&self) -> bool {
        false
    }

    pub(crate) const fn receives_for_dones(&self) -> usize {
        0
    }
}

/// The state of the retired forms: none in this build.
#[derive(Debug)]
pub(crate) enum Retired {}

impl Retired {
    pub(crate) const fn open(_: &Compatibility) -> Option<Box<Self>> {
        None
    }

    pub(crate) const fn accepts(&self, _: &ProtocolError) -> bool {
        match *self {}
    }

    pub(crate) const fn take_forms(&self, _: &mut Received, _: &Limits) -> Result<(), ProtocolError> {
        match *self {}
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }

    pub(crate) const fn clear(&mut self) {
        match *self {}
    }
}

/// A reply whose data is being read: none in this build.
#[derive(Debug)]
pub(crate) enum Reading {}

pub(crate) mod plan {
    use std::convert::Infallible;

    use crate::planner::{CallInput, CallPlan, Refusal, ReplyInput, ReplyPlan};
    use crate::wire::ProtocolError;

    /// The retired forms that a Call may use: none in this build.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct CallForms(Infallible);

    impl CallForms {
        pub(crate) const fn plan_call(&self, _: &CallInput<'_>) -> Result<CallPlan, Refusal> {
            match self.0 {}
        }
    }

    /// The retired forms that a reply may use: none in this build.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct ReplyForms(Infallible);

    impl ReplyForms {
        pub(crate) const fn plan_reply(&self, _: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
            match self.0 {}
        }
    }
}

/// No reply is read or exposed.
impl Core {
    pub(crate) const fn call_forms(&self) -> Option<CallForms> {
        None
    }

    pub(crate) const fn reply_forms(&self) -> Option<ReplyForms> {
        None
    }

    pub(crate) const fn reads_replies(&self) -> bool {
        false
    }

    pub(crate) const fn accepts_roundup(&self) -> bool {
        false
    }

    pub(crate) const fn has_exposed(&self, _: u64) -> bool {
        false
    }

    /// Refuses an RDMA_DONE (RFC 8166 §4.6.2).
    pub(crate) const fn handle_done(&self, _: Instant, _: u32) -> Result<(), ProtocolError> {
        Err(ProtocolError::UnexpectedDone)
    }

    pub(crate) const fn concealed(&self, _: u64, _: Key) {}

    pub(crate) const fn take_withheld(&self) -> std::iter::Empty<u64> {
        std::iter::empty()
    }

    pub(crate) const fn handle_exposure_timeout(&self, _: Instant) {}
}

/// No plan exposes anything.
impl Responder {
    pub(crate) fn transmit_exposed(
        &self,
        _: &Core,
        _: Instant,
        _: (u64, ReplyPlan),
        _: Offer,
        _: &mut dyn Windows,
    ) -> bool {
        false
    }
}

/// No reply has anything to read.
impl Requester {
    /// Refuses a reply with a Read list (RFC 8166 §4.3.1).
    pub(crate) fn handle_exposed_reply(
        &self,
        _: &Core,
        _: Instant,
        _: Received,
    ) -> Result<(), ProtocolError> {
        Err(ProtocolError::ReplyReadList)
    }

    pub(crate) fn handle_pulled(&self, _: &mut Core, _: Instant, _: u32, _: Pulled) {}

    pub(crate) fn handle_unreadable(&self, _: &mut Core, _: Instant, _: u32, _: PoolExhausted) {}

    pub(crate) const fn withdraw_reading(&self, _: &Core, _: Instant, _: u32) {}
}
