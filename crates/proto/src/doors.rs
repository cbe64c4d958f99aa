//! How a message is planned if a door is open, to Version Two or to the retired forms. A connection with neither plans by
//! the [planner](crate::planner) alone.

use crate::core::Core;
use crate::inbound::received::Received;
use crate::planner::{CallInput, CallPlan, Refusal, ReplyInput, ReplyPlan, plan_call, plan_reply};
use crate::wire::ProtocolError;

impl Core {
    /// Decides how the Call of this XID travels, one of `queued`. Only Version One has retired forms.
    pub(crate) fn plan_call(
        &self,
        input: &CallInput<'_>,
        xid: u32,
        queued: usize,
    ) -> Result<CallPlan, Refusal> {
        match (self.call_options(xid, queued), self.call_forms()) {
            (Some(options), _) => options.plan_call(input),
            (None, Some(forms)) => forms.plan_call(input),
            (None, None) => plan_call(input),
        }
    }

    /// Decides how the reply to this Call travels. The reply waits once for credits that will come; then it is `in_turn`.
    pub(crate) fn plan_reply(
        &self,
        input: &ReplyInput<'_>,
        call: &Received,
        in_turn: bool,
    ) -> Result<ReplyPlan, ProtocolError> {
        match (self.reply_options(call.group.as_deref(), in_turn), self.reply_forms()) {
            (Some(options), _) => options.plan_reply(input),
            (None, Some(forms)) => forms.plan_reply(input),
            (None, None) => plan_reply(input),
        }
    }
}
