//! The table of rows.

use super::{Row, broken, chunks, credits, setup};
use crate::report::{RowInfo, Rule};

/// A group of rows: `name, section, rule, sends, expects => function`.
macro_rules! group {
    ($name:ident: $($row:literal, $section:literal, $rule:ident, $sends:literal, $expects:literal => $run:path;)+) => {
        static $name: &[Row] = &[$(Row {
            info: RowInfo { name: $row, section: $section, rule: Rule::$rule, sends: $sends, expects: $expects },
            run: |stage| Box::pin($run(stage)),
        }),+];
    };
}

group! { CREDITS:
    "reply-inline", "RFC 8166 §3.5.1", Required, "good replies", "well-formed calls go on, on the same connection" => credits::inline;
    "first-flight", "RFC 8166 §3.3.3", Required, "no reply to the first call for a while", "one call until its reply" => credits::first_flight;
    "grant-one", "RFC 8166 §3.3.1", Required, "a grant of 1", "one call at a time" => credits::grant_one;
    "grant-zero", "RFC 8166 §3.3.1", Choice, "a grant of 0, which is forbidden", "one call at a time goes on, on the same connection" => credits::grant_zero;
    "grant-falls", "RFC 8166 §3.3.1", Required, "grants of 32, 16, 4, 2, 1, 32", "calls go on, never more than granted" => credits::grant_falls;
    "grant-all", "RFC 8166 §3.3.1", Required, "a grant of 2^32-1", "the next call follows on the same connection" => credits::grant_all;
}

group! { ERRORS:
    "err-chunk", "RFC 8166 §4.5", Required, "ERR_CHUNK", "the call ends, the next call follows on the same connection" => broken::err_chunk;
    "err-vers", "RFC 8166 §4.5.1", Required, "ERR_VERS 2-9", "the call ends, the next call follows on the same connection" => broken::err_vers;
    "err-vers-other", "RFC 8166 §4.5", Choice, "ERR_VERS 2-2 under rdma_vers 2, then the end of the connection", "the call ends, or the error is discarded; calls go on" => broken::err_vers_other;
    "rpc-refused", "RFC 5531 §9", Required, "PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR", "the call ends, the next call follows on the same connection" => broken::rpc_refused;
    "error-undecodable", "RFC 8166 §4.5", Required, "RDMA_ERRORs that do not decode", "discarded" => broken::error_undecodable;
    "error-other-xid", "RFC 8166 §4.5", Required, "ERR_CHUNK under an XID that no call has", "discarded" => broken::error_other_xid;
    "reply-other-xid", "RFC 8166 §4.2.1", Required, "a reply under an XID that no call has", "discarded" => broken::reply_other_xid;
    "xid-mismatch", "RFC 8166 §4.5.2, §4.2.1", Choice, "a reply whose two XIDs differ", "discarded, or the call ends; calls go on, on the same connection" => broken::xid_mismatch;
    "msgp", "RFC 8166 §4.6.1", Required, "a reply as RDMA_MSGP", "discarded" => broken::msgp;
    "done", "RFC 8166 §4.6.2", Required, "an RDMA_DONE", "discarded" => broken::done;
    "unknown-proc", "RFC 8166 §4.5", Required, "a reply under rdma_proc 77", "discarded" => broken::unknown_proc;
    "short-message", "RFC 8166 §4.5", Required, "Sends of 0 to 27 bytes", "discarded" => broken::short;
    "reply-cut", "RFC 8166 §4.5", Required, "reply headers cut off in a list", "discarded" => broken::cut;
    "discriminators", "RFC 8166 §4.5", Required, "2 in the place of 0 or 1", "discarded" => broken::discriminators;
    "counts", "RFC 8166 §4.5", Required, "counts of segments that are missing", "discarded" => broken::counts;
    "reply-read-list", "RFC 8166 §4.3.1", Required, "a reply with a Read list", "discarded" => broken::read_list;
    "version", "RFC 8166 §4.5", Required, "a reply under rdma_vers 9", "discarded" => broken::version;
    "rpc-cut", "RFC 5531 §9", Choice, "RPC replies cut off", "discarded, or the call fails; calls go on, on the same connection" => broken::rpc_cut;
    "reply-twice", "RFC 8166 §4.2.1", Required, "a reply twice", "the second is discarded" => broken::twice;
    "reverse-call", "RFC 8167 §6", Choice, "an unexpected call in the reverse direction", "silence, PROG_UNAVAIL or ERR_CHUNK; then the next call follows on the same connection" => broken::reverse_call;
}

group! { CHUNKS:
    "write-chunk-used", "RFC 8166 §4.3.2", Required, "data in the Write chunk", "the call ends, the next call follows on the same connection" => chunks::write_used;
    "write-list-absent", "RFC 8166 §4.3.2", Choice, "the Write list does not come back", "discarded, or the call ends" => chunks::write_absent;
    "write-other-handle", "RFC 8166 §3.4.6, §4.5", Required, "the Write list comes back with other handles", "discarded" => chunks::write_other_handle;
    "write-other-offset", "RFC 8166 §3.4.6, §4.5", Required, "the Write list comes back with other offsets", "discarded" => chunks::write_other_offset;
    "write-too-long", "RFC 8166 §3.4.6, §4.5", Required, "the Write list comes back with lengths of 2^32-1", "discarded" => chunks::write_too_long;
    "write-more-segments", "RFC 8166 §3.4.6, §4.5", Required, "the Write list comes back with more segments", "discarded" => chunks::write_more_segments;
    "write-more-chunks", "RFC 8166 §3.4.6, §4.5", Required, "the Write list comes back with more chunks", "discarded" => chunks::write_more_chunks;
    "write-list-unasked", "RFC 8166 §3.4.6, §4.5", Required, "a Write list that no call offered", "discarded" => chunks::write_unasked;
    "write-beyond-window", "RFC 8166 §8.1", Required, "RDMA Write directly behind the window", "calls go on, on a new connection" => chunks::write_beyond;
    "write-wrong-key", "RFC 8166 §8.1", Required, "RDMA Write under a handle that names no window", "calls go on, on a new connection" => chunks::write_nowhere;
    "invalidation", "RFC 8797 §4.1", Required, "Send with Invalidate of a window of the call", "the call ends, the next call follows on the same connection" => chunks::invalidated;
    "reply-chunk-spare", "RFC 8166 §4.3.3", Required, "a reply inline, the Reply chunk comes back unused", "the call ends, the next call follows on the same connection" => chunks::reply_spare;
    "reply-chunk-used", "RFC 8166 §3.5.3", Required, "a short reply through the Reply chunk", "the call ends, the next call follows on the same connection" => chunks::reply_used;
    "reply-chunk-absent", "RFC 8166 §4.3.3", Choice, "a reply inline, the Reply chunk does not come back", "discarded, or the call ends" => chunks::reply_absent;
    "reply-chunk-other-handle", "RFC 8166 §4.3.3, §4.5", Required, "the Reply chunk comes back with other handles", "discarded" => chunks::reply_other_handle;
    "reply-chunk-more-segments", "RFC 8166 §4.3.3, §4.5", Required, "the Reply chunk comes back with more segments", "discarded" => chunks::reply_more_segments;
    "reply-chunk-too-long", "RFC 8166 §4.3.3, §4.5", Required, "the Reply chunk comes back with lengths of 2^32-1", "discarded" => chunks::reply_too_long;
    "reply-chunk-empty", "RFC 8166 §3.5.3, §4.5", Required, "RDMA_NOMSG with an unused Reply chunk", "discarded" => chunks::reply_empty;
    "reply-chunk-unasked", "RFC 8166 §4.3.3, §4.5", Required, "an RDMA_NOMSG with a Reply chunk that no call offered", "discarded" => chunks::reply_unasked;
    "read-of-write-window", "RFC 8166 §8.1", Required, "RDMA Read of memory that was offered for writing", "refused; calls go on" => chunks::read_of_write_window;
    "read-beyond-window", "RFC 8166 §8.1", Required, "RDMA Read beyond a Read segment", "refused; calls go on" => chunks::read_beyond;
    "read-wrong-key", "RFC 8166 §8.1", Required, "RDMA Read under a handle that names no window", "refused; calls go on" => chunks::read_nowhere;
}

group! { SETUP:
    "private-data-absent", "RFC 8797 §5.1", Required, "a server without private data", "calls go on, on the same connection" => setup::private_data_absent;
    "private-data-malformed", "RFC 8797 §5.2", Required, "private data cut off, and other data", "calls go on, on the same connection" => setup::private_data_malformed;
    "private-data-version", "RFC 8797 §5.2", Required, "private data of version 2", "calls go on, on the same connection" => setup::private_data_version;
    "private-data-embedded", "RFC 8797 §5.2", Recommended, "private data behind other data", "calls go on, on the same connection" => setup::private_data_embedded;
    "foreign-invalidation", "RFC 8797 §4.1", Required, "Send with Invalidate of a handle that names no window", "calls go on, on a new connection" => setup::foreign_invalidation;
    "oversized-reply", "RFC 8166 §2.3.2", Required, "a reply longer than any Receive", "calls go on, on a new connection" => setup::oversized;
    "no-reply", "RFC 8166 §4.5.5", Choice, "no reply, then the end of the connection", "calls go on, on a new connection, one until its reply" => setup::no_reply;
    "closed", "RFC 8166 §4.5.5", Choice, "the connection closed gracefully on a call", "calls go on, on a new connection, one until its reply" => setup::closed;
    "cut", "RFC 8166 §4.5.5", Choice, "the connection cut off on a call", "calls go on, on a new connection, one until its reply" => setup::cut;
    "cut-after-reply", "RFC 8166 §4.5.5", Choice, "the connection cut off directly after a reply", "calls go on, on a new connection, one until its reply" => setup::cut_after_reply;
    "refused", "RFC 8166 §4.5.5", Choice, "connections refused for a while", "calls go on, on a new connection, one until its reply" => setup::refused;
}

/// Returns every row, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    [CREDITS, ERRORS, CHUNKS, SETUP].into_iter().flatten()
}
