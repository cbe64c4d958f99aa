//! The face of `two` in a build without Version Two: types without values, so that callers need no `cfg`.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_verbs::{Key, ProtectionDomain};
use rpcrdma_xdr::Stream;

use self::plan::{CallOptions, ReplyOptions};
use self::sending::Sending;
use crate::connection::{Halves, Outcome};
use crate::core::Core;
use crate::error::CloseReason;
use crate::event::Event;
use crate::flow::Permit;
use crate::message::Form;
use crate::requester::Requester;
use crate::session::Session;
use crate::settings::config::Config;
use crate::wire::two::Rules;
use crate::wire::{Body, ChunkLists, Fixed, Header};
use crate::wire::{ProtocolError, two::ErrorBody};

/// Transport characteristics: none in this build.
pub mod characteristics {
    /// The settings of an exchange: none in this build.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Exchanged {}

    /// An event of the exchange: none in this build.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Notice {}

    /// Receives for operations of the peer.
    pub const OPERATION_RECEIVES: usize = 0;
}

pub(crate) mod settings {
    /// Settings for transmission groups: none in this build.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct TransmissionSettings {}
}

/// The public types that stand in a configuration or an event.
pub(crate) mod face {
    pub use super::characteristics::{Exchanged, Notice, OPERATION_RECEIVES};
    pub use super::settings::TransmissionSettings;
    pub use crate::peer::ReverseSupport;
}

pub(crate) mod receiving {
    use crate::wire::ProtocolError;

    /// Returns the fault of a peer that sends beyond this limit.
    pub(crate) const fn limit_exceeded(limit: u32) -> ProtocolError {
        ProtocolError::CreditsExceeded { granted: limit }
    }
}

pub(crate) mod arrange {
    /// A message divided among Sends: none in this build.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) enum Arrangement {}
}
use self::arrange::Arrangement;

impl Arrangement {
    /// Returns the number of Sends.
    pub(crate) const fn count(&self) -> usize {
        match *self {}
    }

    pub(crate) const fn form(&self, _: bool) -> Form {
        match *self {}
    }

    pub(crate) fn body(&self, _: ChunkLists) -> Body {
        match *self {}
    }
}

pub(crate) mod plan {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use crate::planner::{CallInput, CallPlan, Refusal, ReplyInput, ReplyPlan};
    use crate::wire::ProtocolError;

    /// Options of Version Two for a Call: none in this build.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct CallOptions<'a>(Infallible, PhantomData<&'a ()>);

    /// Options of Version Two for a reply: none in this build.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct ReplyOptions<'a>(Infallible, PhantomData<&'a ()>);

    impl CallOptions<'_> {
        pub(crate) const fn plan_call(&self, _: &CallInput<'_>) -> Result<CallPlan, Refusal> {
            match self.0 {}
        }
    }

    impl ReplyOptions<'_> {
        pub(crate) const fn plan_reply(&self, _: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
            match self.0 {}
        }
    }
}

pub(crate) mod groups {
    /// A received Call in a transmission group: none in this build.
    #[derive(Debug)]
    pub(crate) enum CallGroup {}
}
use self::groups::CallGroup;

/// The state of Version Two: none in this build.
#[derive(Debug)]
pub(crate) enum Two {}

impl Two {
    pub(crate) const fn open(_: &mut Option<Box<Self>>, _: &mut Core) {}

    pub(crate) fn receive(
        &mut self,
        _: &mut Halves<'_>,
        _: Instant,
        _: Fixed,
        _: Result<(Header, usize), ProtocolError>,
        _: Bytes,
    ) -> Outcome {
        match *self {}
    }

    pub(crate) const fn holds_calls(&self) -> bool {
        match *self {}
    }

    pub(crate) const fn settle(&mut self, _: &mut Core, _: Instant, _: &Rules, _: Option<u32>) {
        match *self {}
    }

    pub(crate) const fn is_exchanged(&self) -> Option<bool> {
        match *self {}
    }

    pub(crate) const fn knows(&self, _: u32) -> bool {
        match *self {}
    }

    pub(crate) const fn rpc_taken(&mut self) {
        match *self {}
    }

    pub(crate) const fn transmit(&mut self, _: &mut Halves<'_>, _: &ProtectionDomain, _: u32) -> bool {
        match *self {}
    }

    pub(crate) const fn finish_pass(&mut self, _: &mut Halves<'_>, _: Instant) -> bool {
        match *self {}
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }

    pub(crate) const fn handle_timeout(&mut self, _: Instant) -> Option<&'static str> {
        match *self {}
    }

    pub(crate) fn end(&mut self, _: &mut std::collections::VecDeque<Event>) {
        match *self {}
    }
}

pub(crate) mod sending {
    /// The state for messages of ours in Version Two: none in this build.
    #[derive(Debug)]
    pub(crate) enum Sending {}
}

impl Sending {
    pub(crate) const fn discard(&mut self) {
        match *self {}
    }
}

impl Core {
    pub(crate) const fn holds_messages(&self) -> bool {
        false
    }

    pub(crate) const fn send_combined(&mut self) -> bool {
        false
    }

    pub(crate) fn send_in_order(
        &mut self,
        _: &Header,
        _: (BytesMut, &Stream),
        _: (Option<Key>, bool),
        _: Option<u32>,
    ) {
    }

    pub(crate) fn send_arranged(
        &mut self,
        _: Permit,
        _: &Header,
        arrangement: &mut Arrangement,
        _: &Stream,
        _: Option<Key>,
    ) -> usize {
        match *arrangement {}
    }

    pub(crate) const fn note_reply(&mut self) {}

    pub(crate) const fn is_directed(&self, _: u32) -> bool {
        false
    }

    pub(crate) const fn in_group(&self, _: u32) -> bool {
        false
    }

    pub(crate) const fn forget_group(&mut self, _: u32) {}

    pub(crate) const fn untold(&self) -> Option<Instant> {
        None
    }

    pub(crate) const fn set_untold(&mut self, _: Option<Instant>) {}

    pub(crate) const fn call_options(&self, _: u32, _: usize) -> Option<CallOptions<'_>> {
        None
    }

    pub(crate) const fn reply_options<'a>(
        &'a self,
        _: Option<&'a CallGroup>,
        _: bool,
    ) -> Option<ReplyOptions<'a>> {
        None
    }
}

impl Requester {
    pub(crate) const fn handle_group_refusal(
        &self,
        _: &mut Core,
        _: Instant,
        _: (u32, u32),
        error: &ErrorBody,
    ) -> Result<bool, ProtocolError> {
        match *error {}
    }

    pub(crate) const fn queue_again(&mut self, _: &mut Core, _: u32) -> bool {
        false
    }
}

impl Session {
    pub(crate) const fn heed_refusal(&mut self, _: &CloseReason) {}
}

impl Config {
    /// Returns the Receives for the parts of a divided reply after its first: none in Version One.
    #[must_use]
    pub const fn receives_for_parts(&self) -> usize {
        0
    }

    pub(crate) const fn receive_align(&self) -> usize {
        1
    }

    pub(crate) const fn largest_requested(&self) -> usize {
        0
    }
}
