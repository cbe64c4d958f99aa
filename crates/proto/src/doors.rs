//! What an open door, to Version Two or to the retired forms, changes in the plan of a message. A connection of Version
//! One with no retired form enabled has neither door open, and plans by the [planner](crate::planner) alone.

use crate::core::Core;
use crate::planner::{CallInput, CallPlan, Refusal, ReplyInput, ReplyPlan};
use crate::retired::plan::{CallForms, ReplyForms};
use crate::two::groups::CallGroup;
use crate::two::plan::{CallOptions, ReplyOptions};
use crate::wire::ProtocolError;

/// Ways of a Call that Version One does not have. Only Version One has retired forms.
#[derive(Debug)]
pub(crate) enum CallExtensions<'a> {
    Two(CallOptions<'a>),
    Retired(CallForms),
}

/// Ways of a reply that Version One does not have.
#[derive(Debug)]
pub(crate) enum ReplyExtensions<'a> {
    Two(ReplyOptions<'a>),
    Retired(ReplyForms),
}

impl CallExtensions<'_> {
    /// Decides how a Call travels.
    pub(crate) fn plan(&self, input: &CallInput<'_>) -> Result<CallPlan, Refusal> {
        match self {
            Self::Two(options) => options.plan_call(input),
            Self::Retired(forms) => forms.plan_call(input),
        }
    }
}

impl ReplyExtensions<'_> {
    /// Decides how a reply travels.
    pub(crate) fn plan(&self, input: &ReplyInput<'_>) -> Result<ReplyPlan, ProtocolError> {
        match self {
            Self::Two(options) => options.plan_reply(input),
            Self::Retired(forms) => forms.plan_reply(input),
        }
    }
}

impl Core {
    /// Returns the extensions for a Call that leaves now, one of `queued`. `alone`: the peer has refused it in a group.
    pub(crate) fn extensions_for_call(&self, alone: bool, queued: usize) -> Option<CallExtensions<'_>> {
        let two = self.call_options(alone, queued).map(CallExtensions::Two);
        two.or_else(|| self.call_forms().map(CallExtensions::Retired))
    }

    /// Returns the extensions for the answer to a Call, which came in this group. The answer waits once for credits that
    /// will come; then it is `in_turn`.
    pub(crate) fn extensions_for_reply<'a>(
        &'a self,
        group: Option<&'a CallGroup>,
        in_turn: bool,
    ) -> Option<ReplyExtensions<'a>> {
        let two = self.reply_options(group, in_turn).map(ReplyExtensions::Two);
        two.or_else(|| self.reply_forms().map(ReplyExtensions::Retired))
    }
}
