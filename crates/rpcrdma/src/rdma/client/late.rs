//! The end of a call by its deadline.

use std::time::Duration;

use rpcrdma_proto::IncomingReply;
use tokio::time::Instant;

use super::InProgress;
use crate::error::CallError;

impl InProgress<'_> {
    /// Ends a call whose deadline is over, unless its result came at this moment.
    pub(super) fn late(&mut self, after: Duration) -> Result<IncomingReply, CallError> {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let Some(id) = self.id else {
            return Err(CallError::TimedOut { after, sent: false, link: state.down.clone() });
        };
        // The call's own timer knows whether the call has left. Without it, a call that waits for a credit counts as sent.
        state.session.handle_timeout(now.into_std());
        while let Some(event) = state.session.poll_event(now.into_std()) {
            state.handle_event(event, now);
        }
        if let Some(result) = state.calls.get_mut(&id).and_then(|call| call.result.take()) {
            state.leave(id);
            self.id = None;
            // The timer may have left something to post.
            state.want_background();
            return result;
        }
        state.stats.timed_out += 1;
        Err(CallError::TimedOut { after, sent: state.session.was_sent(id), link: state.down.clone() })
    }
}
