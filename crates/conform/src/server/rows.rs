//! The table of rows.

use super::{Row, chunks, credits, endings, forms, headers, keys, setup};
use crate::report::{RowInfo, Rule};

/// A group of rows: `name, section, rule, sends, expects => function`.
macro_rules! group {
    ($name:ident: $($row:literal, $section:literal, $rule:ident, $sends:literal, $expects:literal => $run:path;)+) => {
        static $name: &[Row] = &[$(Row {
            info: RowInfo { name: $row, section: $section, rule: Rule::$rule, sends: $sends, expects: $expects },
            run: |bench| Box::pin($run(bench)),
        }),+];
    };
}

group! { FORMS:
    "null-inline", "RFC 8166 §3.5.1", Required, "two NULL calls in RDMA_MSGs, no lists", "a reply to each in an RDMA_MSG" => forms::null;
    "position-zero-one", "RFC 8166 §3.5.3", Required, "NULL in a Position-Zero chunk of one segment", "a reply" => forms::position_zero_one;
    "position-zero-many", "RFC 8166 §3.5.3", Required, "NULL in a Position-Zero chunk of four segments of odd lengths", "a reply" => forms::position_zero_many;
    "reply-chunk-spare", "RFC 8166 §4.3.3", Required, "NULL with a Reply chunk that it does not need", "a reply inline or in the Reply chunk, which comes back" => forms::reply_chunk_spare;
    "write-chunk-spare", "RFC 8166 §4.3.2.2", Required, "NULL with a Write chunk, for which it has no result", "the Write chunk comes back unused" => forms::write_chunk_spare;
    "forms-in-turn", "RFC 8166 §3.5", Required, "RDMA_MSG and RDMA_NOMSG in turn on one connection", "replies" => forms::mixed;
    "program-unavailable", "RFC 5531 §9", Required, "a call of a program number that is never assigned", "PROG_UNAVAIL" => forms::program_unavailable;
    "procedure-unavailable", "RFC 5531 §9", Required, "a call of a procedure that the program does not have", "PROC_UNAVAIL" => forms::procedure_unavailable;
    "rpc-version", "RFC 5531 §9", Required, "a call of RPC version 3", "MSG_DENIED" => forms::rpc_version;
}

group! { CHUNKS:
    "nfs-inline", "RFC 8166 §3.5.1", Required, "GETATTR and FSINFO", "NFS3_OK inline" => chunks::small_calls;
    "read-chunk-one", "RFC 8166 §3.4.5", Required, "WRITE, data in a Read chunk of one segment", "the data is in the file" => chunks::read_chunk_one;
    "read-chunk-many", "RFC 8166 §3.4.5", Required, "WRITE, data in six segments of odd lengths", "the data is in the file" => chunks::read_chunk_many;
    "read-chunk-no-pad", "RFC 8166 §3.4.5.2", Required, "WRITE of 1201 bytes, no pad in the chunk", "the data is in the file" => chunks::read_chunk_no_pad;
    "read-chunk-pad", "RFC 8166 §3.4.5.2", Required, "WRITE of 1201 bytes, the pad in the last segment", "the data is in the file" => chunks::read_chunk_pad;
    "read-chunk-pad-segment", "RFC 8166 §3.4.5.2", Required, "WRITE of 1201 bytes, the pad in a separate segment", "the data is in the file" => chunks::read_chunk_pad_segment;
    "read-chunk-empty-segment", "RFC 8166 §3.4.3", Required, "WRITE, a segment of length 0 in the chunk", "the data is in the file" => chunks::read_chunk_empty_segment;
    "position-zero-and-read", "RFC 8166 §3.5.3", Required, "WRITE in a Position-Zero chunk, its data in a Read chunk", "the data is in the file" => chunks::position_zero_and_read;
    "write-chunk-one", "RFC 8166 §4.3.2", Required, "READ into a Write chunk of one segment", "the data is in the chunk and not inline" => chunks::write_chunk_one;
    "write-chunk-many", "RFC 8166 §4.3.2", Required, "READ into five segments of odd lengths", "filled in order, with unchanged handles and offsets" => chunks::write_chunk_many;
    "write-chunk-roomy", "RFC 8166 §3.4.6.2", Required, "READ of 1001 bytes into 2000", "lengths of 1001 in all, no pad behind" => chunks::write_chunk_roomy;
    "write-chunk-unused", "RFC 8166 §4.3.2.2", Required, "READ that fails, with a Write chunk", "the Write chunk comes back unused" => chunks::write_chunk_unused;
    "write-chunk-empty", "RFC 8166 §4.3.2.3", Choice, "READ with an empty Write chunk", "data inline, the chunk comes back empty; or ERR_CHUNK" => chunks::write_chunk_empty;
    "write-chunk-two", "RFC 8166 §4.3.2.1", Choice, "READ with two Write chunks", "the first is filled, the second unused; or ERR_CHUNK" => chunks::write_chunk_two;
    "reply-chunk-one", "RFC 8166 §3.5.3", Required, "READ beyond the threshold, Reply chunk of one segment", "RDMA_NOMSG" => chunks::reply_chunk_one;
    "reply-chunk-many", "RFC 8166 §3.5.3", Required, "READ beyond the threshold, Reply chunk of four segments", "RDMA_NOMSG" => chunks::reply_chunk_many;
    "write-and-reply", "RFC 8166 §3.5.3", Required, "READ with a Write chunk and a Reply chunk", "data in the Write chunk" => chunks::write_and_reply;
    "read-and-write", "RFC 8166 §4.3", Required, "READ in a Position-Zero chunk, with a Write chunk", "data in the Write chunk" => chunks::read_and_write;
    "symlink-and-readlink", "RFC 8267 §4", Required, "SYMLINK, target in a Read chunk; READLINK into a Write chunk", "the same target" => chunks::symlink;
    "readdir-reply-chunk", "RFC 8166 §4.3.3", Required, "READDIR beyond the threshold with a Reply chunk", "the listing in the Reply chunk" => chunks::readdir;
}

group! { CREDITS:
    "first-flight", "RFC 8166 §3.3.3", Required, "one call on a new connection", "a grant of 1 or more" => credits::first_flight;
    "request-zero", "RFC 8166 §3.3.1", Required, "calls that request 0 credits", "replies, grants of 1 or more" => credits::request_zero;
    "request-one", "RFC 8166 §3.3.1", Required, "calls that request 1 credit", "replies, grants of 1 or more" => credits::request_one;
    "request-all", "RFC 8166 §3.3.1", Required, "calls that request 2^32-1 credits", "replies, grants of 1 or more" => credits::request_all;
    "up-to-the-grant", "RFC 8166 §3.3.1", Required, "as many calls at once as granted", "replies to all" => credits::up_to_the_grant;
    "beyond-the-grant", "RFC 8166 §3.3.1", Choice, "400 calls more than granted at once", "SUCCESS or ERR_CHUNK for each, once, or the end of the connection" => credits::abuse;
}

group! { SETUP:
    "private-data-absent", "RFC 8797 §5.1", Required, "a connection without private data", "the connection is served" => setup::absent;
    "private-data-present", "RFC 8797 §4", Required, "R = 1, 4096 in both directions", "the connection is served" => setup::present;
    "private-data-extremes", "RFC 8797 §4.2", Required, "262144 in one direction, 1024 in the other", "the connection is served" => setup::extremes;
    "private-data-malformed", "RFC 8797 §5.2", Required, "1 to 7 bytes of private data, and other data", "served with the defaults" => setup::malformed;
    "private-data-version", "RFC 8797 §5.2", Required, "versions 0, 2 and 255", "served with the defaults" => setup::unknown_version;
    "private-data-embedded", "RFC 8797 §5.2", Recommended, "private data behind other data, at odd offsets", "the private data is found" => setup::embedded;
    "invalidation-announced", "RFC 8797 §4.1", Required, "calls with windows, R = 1", "a window of the call is invalidated if both say R = 1, or none" => setup::invalidation_announced;
    "invalidation-not-announced", "RFC 8797 §4.1", Required, "calls with windows, R = 0", "plain Send" => setup::invalidation_not_announced;
    "call-at-1024", "RFC 8166 §3.3.2", Required, "a call of 1024 bytes, nothing announced", "a reply" => forms::call_at_default_threshold;
    "call-at-threshold", "RFC 8797 §4.2", Required, "a call of as many bytes as both announced", "a reply" => forms::call_at_negotiated_threshold;
    "reply-at-1024", "RFC 8166 §4.3.3", Required, "a READ whose reply has 1024 bytes", "the reply comes inline" => forms::reply_at_default_threshold;
    "reply-at-threshold", "RFC 8797 §4.2", Required, "a READ whose reply has as many bytes as both announced", "the reply comes inline" => forms::reply_at_negotiated_threshold;
    "call-over-receive", "RFC 8166 §2.3.2", Choice, "a Send longer than the server announced", "SUCCESS, GARBAGE_ARGS, ERR_CHUNK or the end of the connection" => setup::over_the_receive;
}

group! { HEADERS:
    "short-message", "RFC 8166 §4.5", Required, "Sends of 0 to 27 bytes", "nothing" => headers::short;
    "cut-read-list", "RFC 8166 §4.5.2", Required, "a header cut off in its Read list, at each byte", "ERR_CHUNK" => headers::cut_read_list;
    "cut-write-list", "RFC 8166 §4.5.2", Required, "a header cut off in its Write list, at each byte", "ERR_CHUNK" => headers::cut_write_list;
    "cut-reply-chunk", "RFC 8166 §4.5.2", Required, "a header cut off in its Reply chunk, at each byte", "ERR_CHUNK" => headers::cut_reply_chunk;
    "version", "RFC 8166 §4.5.1", Required, "rdma_vers 0, 77 and 2^32-1", "ERR_VERS with a range that includes 1" => headers::version;
    "unknown-proc", "RFC 8166 §4.5.2", Required, "rdma_proc 5, 256 and 2^32-1", "ERR_CHUNK" => headers::procedure;
    "msgp", "RFC 8166 §4.6.1", Recommended, "an RDMA_MSGP", "ERR_CHUNK" => headers::msgp;
    "done", "RFC 8166 §4.6.2", Required, "an RDMA_DONE", "nothing" => headers::done;
    "error-unanswered", "RFC 8166 §4.2.4", Required, "RDMA_ERRORs of all kinds", "nothing" => headers::error;
    "error-other-version", "RFC 8166 §4.2.4, §4.5.1", Choice, "an RDMA_ERROR under rdma_vers 9", "nothing, or ERR_VERS" => headers::error_of_another_version;
    "discriminators", "RFC 4506 §4.19", Required, "2 and 2^32-1 in the place of 0 or 1", "ERR_CHUNK" => headers::discriminators;
    "counts", "RFC 8166 §4.5.2", Required, "counts of segments that are missing", "ERR_CHUNK" => headers::counts;
    "position-unaligned", "RFC 8166 §3.4.5", Required, "Positions that are no multiple of 4", "ERR_CHUNK or GARBAGE_ARGS" => headers::unaligned;
    "position-beyond", "RFC 8166 §4.5.2", Recommended, "Positions past the end of the message", "ERR_CHUNK or GARBAGE_ARGS" => headers::beyond;
    "position-overlap", "RFC 8166 §4.5.2", Recommended, "a Read chunk that begins inside another", "ERR_CHUNK or GARBAGE_ARGS" => headers::overlapping;
    "position-zero-in-msg", "RFC 8166 §3.5.3", Choice, "a Position-Zero chunk in an RDMA_MSG", "ERR_CHUNK or GARBAGE_ARGS" => headers::position_zero_in_message;
    "nomsg-without-chunk", "RFC 8166 §4.5.2", Required, "an RDMA_NOMSG without chunks", "ERR_CHUNK" => headers::nomsg_without_chunks;
    "nomsg-without-payload", "RFC 8166 §4.2.4", Choice, "an RDMA_NOMSG with a Write or Reply chunk only", "ERR_CHUNK, or nothing" => headers::nomsg_without_payload;
    "reply-to-nothing", "RFC 8167 §4.1", Required, "a reply to no call", "nothing" => headers::reply_to_nothing;
    "xid-mismatch", "RFC 8166 §4.5.2, §4.2.1", Choice, "rdma_xid and XID differ", "ERR_CHUNK, or one of the XIDs is ignored" => headers::xid_mismatch;
    "rpc-cut", "RFC 5531 §9", Choice, "a call cut off at each word", "GARBAGE_ARGS, SYSTEM_ERR, MSG_DENIED, ERR_CHUNK, nothing or the end of the connection" => headers::rpc_cut;
    "rpc-message-type", "RFC 5531 §9", Choice, "an RPC message that is neither call nor reply", "nothing, ERR_CHUNK, GARBAGE_ARGS or the end of the connection" => headers::message_type;
    "many-segments", "RFC 8166 §4.3.1", Choice, "30 Read segments of length 0 at one Position", "SUCCESS, ERR_CHUNK or GARBAGE_ARGS" => headers::many_segments;
    "huge-segments", "RFC 8166 §8.1.4", Choice, "Read segments of 2^31 bytes and more", "ERR_CHUNK, GARBAGE_ARGS or the end of the connection" => headers::huge_segment;
    "wrapping-offset", "RFC 8166 §3.4.3", Choice, "chunks that reach beyond the last offset", "SUCCESS, ERR_CHUNK or the end of the connection" => headers::wrapping_offset;
}

group! { KEYS:
    "read-wrong-key", "RFC 8166 §4.5.3", Choice, "a Read chunk under a handle that names no window", "ERR_CHUNK or the end of the connection" => keys::read_wrong_key;
    "read-beyond-window", "RFC 8166 §4.5.3", Choice, "a Read segment longer than its window", "ERR_CHUNK or the end of the connection" => keys::read_beyond;
    "read-revoked", "RFC 8166 §4.5.3", Choice, "a Read chunk of a window that is closed", "ERR_CHUNK or the end of the connection" => keys::read_revoked;
    "read-of-write-window", "RFC 8166 §4.5.3", Choice, "a Read chunk of a window for writing", "ERR_CHUNK or the end of the connection" => keys::read_write_only;
    "read-again", "RFC 8166 §4.5.3", Recommended, "the call whose chunk could not be read, again", "ERR_CHUNK" => keys::read_again;
    "write-wrong-key", "RFC 8166 §4.5.3", Choice, "READ, a Write chunk under a handle that names no window", "ERR_CHUNK or the end of the connection" => keys::write_wrong_key;
    "write-beyond-window", "RFC 8166 §4.5.3", Choice, "READ, a Write segment longer than its window", "ERR_CHUNK or the end of the connection" => keys::write_beyond;
    "write-revoked", "RFC 8166 §4.5.3", Choice, "READ, a Write chunk of a window that is closed", "ERR_CHUNK or the end of the connection" => keys::write_revoked;
    "write-to-read-window", "RFC 8166 §8.1", Choice, "READ, a Write chunk of a window for reading", "ERR_CHUNK or the end of the connection" => keys::write_read_only;
    "write-chunk-small", "RFC 8166 §4.5.3", Choice, "READ with a Write chunk that is too short", "ERR_CHUNK, GARBAGE_ARGS, SYSTEM_ERR or the end of the connection" => keys::write_chunk_small;
    "write-chunk-no-bytes", "RFC 8166 §4.5.3", Choice, "READ with a Write chunk of segments of length 0", "ERR_CHUNK, GARBAGE_ARGS, SYSTEM_ERR or the end of the connection" => keys::write_chunk_no_bytes;
    "reply-chunk-small", "RFC 8166 §4.5.3", Choice, "READ with a Reply chunk that is too short", "ERR_CHUNK, GARBAGE_ARGS, SYSTEM_ERR or the end of the connection" => keys::reply_chunk_small;
    "reply-chunk-missing", "RFC 8166 §3.3.3, §4.5.3", Choice, "READ beyond the threshold without any chunk", "ERR_CHUNK, GARBAGE_ARGS, SYSTEM_ERR or the end of the connection" => keys::no_reply_chunk;
    "ineligible-argument", "RFC 8166 §6.1", Required, "GETATTR with its handle in a Read chunk", "ERR_CHUNK or GARBAGE_ARGS" => keys::ineligible;
    "chunk-mismatch", "RFC 8166 §4.5.2", Recommended, "WRITE whose Read chunk has another length or place than its data", "ERR_CHUNK or GARBAGE_ARGS" => keys::mismatch;
}

group! { ENDINGS:
    "cut-before-call", "RFC 8166 §4.5.5", Choice, "connections cut off before a call", "a new connection is served" => endings::before_a_call;
    "cut-after-call", "RFC 8166 §4.5.5", Choice, "connections cut off with calls in flight", "a new connection is served" => endings::after_a_call;
    "closed-after-call", "RFC 8166 §4.5.5", Choice, "connections closed gracefully with a call in flight", "a new connection is served" => endings::in_order;
    "cut-in-read-chunk", "RFC 8166 §4.5.5", Choice, "connections cut off while a Read chunk is read", "a new connection is served" => endings::during_read_chunk;
    "cut-in-write-chunk", "RFC 8166 §4.5.5", Choice, "connections cut off during READs and WRITEs with chunks", "a new connection is served" => endings::during_write_chunk;
    "silent-client", "RFC 8166 §3.3", Choice, "connections without a message", "others are served" => endings::silent;
    "unanswered-read", "RFC 8166 §4.5.5", Choice, "RDMA Reads that are not answered", "others are served" => endings::unanswered_read;
}

/// Returns every row, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    [FORMS, CHUNKS, CREDITS, SETUP, HEADERS, KEYS, ENDINGS].into_iter().flatten()
}
