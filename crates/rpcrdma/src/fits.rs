//! Whether a call and its largest results fit the settings of a client, before anything leaves.
//!
//! *Errors.* [`CallError::CallTooLong`] and [`CallError::ResultsTooLong`], with both numbers.

use rpcrdma_proto::Sink;
use rpcrdma_verbs::ProtectionDomain;

use crate::call::{Call, REPLY_HEADER_MAX, REPLY_HEADER_MIN, ReplyShape};
use crate::config::ClientConfig;
use crate::error::CallError;

impl Call {
    /// Checks that arguments and results can fit in chunks of RPC-over-RDMA, and the results in memory. The connection finds
    /// out everything else when the call is to leave.
    ///
    /// # Errors
    /// [`CallError::CallTooLong`], [`CallError::ResultsTooLong`].
    pub(crate) fn check_rdma(&self, config: &ClientConfig) -> Result<(), CallError> {
        let protocol = &config.protocol;
        let chunk = protocol.max_segment_len.max(1024).saturating_mul(protocol.max_segments);
        let room = usize::try_from(u32::MAX).map_or(chunk, |longest| chunk.min(longest));
        let len = self.arguments.pieces().iter().map(|piece| piece.data().len()).max().unwrap_or(0);
        if len > room {
            return Err(CallError::CallTooLong { len, room });
        }
        let ReplyShape { max_len, sinks } = &self.reply;
        if self.reply.whole() <= protocol.receive_size {
            return Ok(());
        }
        let len = sinks.iter().map(Sink::len).fold(*max_len, usize::max);
        if len > room {
            return Err(CallError::ResultsTooLong { len, room });
        }
        // Memory of the caller is there already, and results that can come inline need none.
        let reply =
            if *max_len > protocol.receive_size { max_len.saturating_add(REPLY_HEADER_MAX) } else { 0 };
        let pooled = sinks.iter().map(|sink| if let Sink::Pool(len) = sink { *len } else { 0 });
        let rooms = pooled.chain([reply]).filter(|len| *len > 0).map(ProtectionDomain::room_for);
        let (len, room) = (rooms.fold(0, usize::saturating_add), config.memory_for_results());
        if len > room { Err(CallError::ResultsTooLong { len, room }) } else { Ok(()) }
    }

    /// Checks that the results fit in a record of TCP.
    ///
    /// # Errors
    /// [`CallError::ResultsTooLong`].
    pub(crate) fn check_tcp(&self, config: &ClientConfig) -> Result<(), CallError> {
        let (len, room) = (self.reply.whole(), config.max_record.saturating_sub(REPLY_HEADER_MIN));
        if len > room { Err(CallError::ResultsTooLong { len, room }) } else { Ok(()) }
    }
}
