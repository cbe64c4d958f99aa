//! Statuses of completions in the words of the contract.

use std::ffi::c_int;

use rpcrdma_verbs::{Disconnected, Status, TerminateCause};

pub(super) const SUCCESS: c_int = 0;
const LOC_LEN_ERR: c_int = 1;
/// siw reports work so whose link has failed.
const LOC_QP_OP_ERR: c_int = 2;
const LOC_PROT_ERR: c_int = 4;
pub(super) const WR_FLUSH_ERR: c_int = 5;
const MW_BIND_ERR: c_int = 6;
const LOC_ACCESS_ERR: c_int = 8;
const REM_INV_REQ_ERR: c_int = 9;
const REM_ACCESS_ERR: c_int = 10;
const REM_OP_ERR: c_int = 11;
const RETRY_EXC_ERR: c_int = 12;
const RNR_RETRY_EXC_ERR: c_int = 13;
const REM_ABORT_ERR: c_int = 16;
const RESP_TIMEOUT_ERR: c_int = 20;
/// siw reports work so that a closed connection has cut off.
const GENERAL_ERR: c_int = 21;

/// Returns what a completion says of its request.
pub(super) fn status(code: c_int) -> Status {
    match code {
        SUCCESS => Status::Success,
        WR_FLUSH_ERR | RETRY_EXC_ERR | RESP_TIMEOUT_ERR | LOC_QP_OP_ERR | GENERAL_ERR => Status::Flushed,
        LOC_LEN_ERR => Status::LocalLength,
        LOC_PROT_ERR | MW_BIND_ERR | LOC_ACCESS_ERR => Status::LocalProtection,
        REM_ACCESS_ERR => Status::RemoteAccess,
        REM_INV_REQ_ERR | REM_OP_ERR | REM_ABORT_ERR => Status::RemoteOperation,
        RNR_RETRY_EXC_ERR => Status::ReceiverNotReady,
        _ => Status::Fatal,
    }
}

/// Returns why a connection ends after the failure of a Receive or of another request; `None` if that failure follows
/// from the end.
pub(super) fn reason(code: c_int, receive: bool) -> Option<Disconnected> {
    Some(match code {
        LOC_LEN_ERR if receive => {
            Disconnected::ProtocolError("a message is longer than its Receive".to_owned())
        }
        WR_FLUSH_ERR | LOC_QP_OP_ERR | GENERAL_ERR => return None,
        REM_ACCESS_ERR => Disconnected::Terminated(REMOTE_PROTECTION),
        REM_INV_REQ_ERR | REM_OP_ERR | REM_ABORT_ERR => Disconnected::Terminated(REMOTE_OPERATION),
        RNR_RETRY_EXC_ERR => Disconnected::Timeout("the peer had no Receive for a message"),
        RETRY_EXC_ERR | RESP_TIMEOUT_ERR => Disconnected::Timeout("the peer acknowledged nothing"),
        code => Disconnected::Link(format!("a request failed at the adapter: status {code}")),
    })
}

/// The peer refused a key, a range or a right, as iWARP reports it (RFC 5040 §4.8).
const REMOTE_PROTECTION: TerminateCause = TerminateCause { layer: 0, error_type: 1, code: 2 };
/// The peer could not carry a request out (RFC 5040 §4.8).
const REMOTE_OPERATION: TerminateCause = TerminateCause { layer: 0, error_type: 2, code: 0xff };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_words() {
        assert_eq!(status(REM_ACCESS_ERR), Status::RemoteAccess);
        assert_eq!(status(MW_BIND_ERR), Status::LocalProtection);
        assert_eq!(status(999), Status::Fatal);
        assert_eq!(reason(WR_FLUSH_ERR, true), None);
        assert!(matches!(reason(LOC_LEN_ERR, true), Some(Disconnected::ProtocolError(_))));
        assert!(matches!(reason(LOC_LEN_ERR, false), Some(Disconnected::Link(_))));
        assert!(matches!(reason(RETRY_EXC_ERR, false), Some(Disconnected::Timeout(_))));
        assert!(matches!(reason(REM_ACCESS_ERR, false), Some(Disconnected::Terminated(_))));
    }
}
