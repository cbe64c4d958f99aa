//! The client's side: the question on one connection, and what follows from its answer.
//!
//! *Errors.* If the server has no such program, or refuses, the connection goes on without an agreement. If the server
//! gives no reliable answer, the connection ends, and the client opens the next one after a pause.

use rpcrdma_oncrpc::gss::ReplyFault;
use rpcrdma_proto::{Agreement, BelowBasic, Thresholds};
use rpcrdma_xdr::DecodeError;
use thiserror::Error;

use super::rdmaconfig::ConfRdma;
use super::{CcpClient, ConfigReply, ConfigRequest, size, word};
use crate::call::{Call, Reply};
use crate::channel::Channel;
use crate::error::CallError;

/// The outcome of a question.
#[derive(Debug)]
pub(crate) enum Answer {
    Agreed(Agreement),
    /// The connection goes on without an agreement.
    Refused(CallError),
    /// The connection is over, and nothing was refused: the next connection asks again.
    Lost,
}

/// The reason why a connection ends.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error("CONF_RDMA was not answered in time")]
    TimedOut,
    #[error("the answer to CONF_RDMA is not protected, or was changed: {0}")]
    Untrusted(#[from] ReplyFault),
    #[error("malformed answer to CONF_RDMA: {0}")]
    Malformed(#[from] DecodeError),
    #[error("answer to CONF_RDMA refused: {0}")]
    BelowBasic(#[from] BelowBasic),
}

/// Returns the question of a connection that can agree on these thresholds, where so many RDMA Reads may be under way at this
/// side.
pub(crate) fn question(most: Thresholds, reads: u32) -> ConfigRequest {
    ConfigRequest {
        max_call_send_size: word(most.send),
        max_reply_send_size: word(most.receive),
        max_rdma_read: reads,
    }
}

/// Asks on a connection.
pub(crate) async fn ask(
    connection: &impl Channel,
    settings: &CcpClient,
    request: ConfigRequest,
) -> Result<Answer, Unusable> {
    let asked = async {
        let call = Call::of::<ConfRdma>(&request)?.timeout(settings.timeout).once();
        let reply = match settings.user() {
            Some(user) => user.call(connection, call).await?,
            None => connection.call(call).await?.try_into()?,
        };
        Reply::into_results::<ConfRdma>(reply)
    };
    let reply: ConfigReply = match asked.await {
        Ok(reply) => reply,
        // Otherwise nothing was asked in time: this side's mechanism may wait for a network.
        Err(CallError::TimedOut { sent: true, .. }) => return Err(Unusable::TimedOut),
        Err(CallError::Untrusted(fault)) => return Err(fault.into()),
        Err(CallError::BadReply(error)) => return Err(error.into()),
        Err(CallError::ConnectionLost { .. } | CallError::Closed { .. }) => {
            return Ok(Answer::Lost);
        }
        Err(refused) => return Ok(Answer::Refused(refused)),
    };
    Ok(Answer::Agreed(Agreement {
        call_size: size(reply.max_call_send_size),
        reply_size: size(request.max_reply_send_size),
        client_reads: request.max_rdma_read,
        server_reads: reply.max_rdma_read,
        align: reply.align,
    }))
}
