//! The table of rows in Version Two, with the section of each profile that has the row.

use super::{Row, continuation, groups, headers, negotiation, properties, replies};
use crate::report::Rule;

/// Rows: `name, sections of P1, P2 and P3, rule, sends, expects => function`. The section `""` means that the profile does not
/// have the row.
macro_rules! rows {
    ($($name:literal, $p1:literal, $p2:literal, $p3:literal, $rule:ident, $sends:literal, $expects:literal => $run:path;)+) => {
        pub(super) static ROWS: &[Row] = &[$(Row {
            name: $name,
            sections: [$p1, $p2, $p3],
            rule: Rule::$rule,
            sends: $sends,
            expects: $expects,
            run: |bench, profile| Box::pin($run(bench, profile)),
        }),+];
    };
}

rows! {
    "two-null", "v2-01 §5.1", "v2-03 §7.1", "v2-07 §4.3.1", Required, "two NULL calls under rdma_vers 2", "a reply to each under rdma_vers 2" => negotiation::null;
    "two-version-unknown", "RFC 8166 §4.5.1", "v2-03 §6.2.4", "v2-07 §7.1.1", Required, "rdma_vers 0, 3 and 2^32-1 in first messages", "ERR_VERS with a range that includes 2, then Version Two is served" => negotiation::unknown;
    "two-version-changed", "v2-01 §5.3", "v2-03 §7.3", "", Choice, "Version One after Version Two", "ERR_VERS without 1 in its range, or a reply in Version One" => negotiation::changed;
    "two-version-mismatch", "", "", "v2-07 §7.1.2", Required, "Version One after Version Two", "VERS_MISMATCH under rdma_vers 1" => negotiation::changed;
    "two-version-one-first", "v2-01 §5.3", "v2-03 §7.3", "v2-07 §4.3.3", Required, "two NULL calls of Version One first", "replies in Version One, or ERR_VERS without 1 in its range" => negotiation::one_first;
    "two-first-of-1024", "v2-01 §5", "v2-03 §7", "v2-07 §4.3", Required, "a first message of 1024 bytes: NULL, with bytes behind it", "SUCCESS or GARBAGE_ARGS" => negotiation::first_message;
    "two-call-of-4096", "v2-01 §2.3", "v2-03 §2.3", "v2-07 §4.2.2", Required, "a later message of 4096 bytes: NULL, with bytes behind it", "SUCCESS or GARBAGE_ARGS" => negotiation::threshold;

    "two-position-zero", "v2-01 §4.2", "v2-03 §6.2", "v2-07 §6.3.5", Required, "NULL in a Position-Zero chunk of three segments", "a reply" => headers::position_zero;
    "two-chunks-spare", "RFC 8166 §4.3", "RFC 8166 §4.3", "v2-07 §4.5.2.1", Required, "NULL with a Write and a Reply chunk that it does not need", "both come back unused; in P3 the Reply chunk does not come back" => headers::spare_chunks;
    "two-invalidation", "xcharext-02 §3.2", "v2-03 §6.2.3", "v2-07 §6.5", Required, "calls with and without permission for Send with Invalidate", "plain Send, or the permitted window is invalidated" => headers::invalidation;
    "two-short-message", "RFC 8166 §4.5", "RFC 8166 §4.5", "v2-07 §7", Required, "Sends of 0 to 15 bytes", "nothing" => headers::short;
    "two-type-unknown", "RFC 8166 §4.5.2", "v2-03 §6.2.4", "v2-07 §7.1.3", Required, "header types that do not exist", "BAD_XDR in P1, INVAL_HTYPE in P2 and P3" => headers::unknown_type;
    "two-header-cut", "RFC 8166 §4.5.2", "v2-03 §6.2.4", "v2-07 §7.2.1", Required, "a header cut off at each word", "BAD_XDR" => headers::cut;
    "two-discriminators", "RFC 4506 §4.19", "v2-03 §6.2.4", "v2-07 §7.2.1", Required, "2 in the place of 0 or 1", "BAD_XDR" => headers::discriminators;
    "two-direction", "v2-01 §4.2.2", "v2-03 §6.2.2", "", Required, "rdma_direction 1, 2 and 2^32-1 before a call", "BAD_XDR" => headers::direction;
    "two-error-unanswered", "RFC 8166 §4.2.4", "RFC 8166 §4.2.4", "v2-07 §7", Required, "RDMA2_ERRORs of all kinds", "nothing" => headers::error;
    "two-reply-to-nothing", "RFC 8167 §4.1", "RFC 8167 §4.1", "RFC 8167 §4.1", Required, "a reply to no call", "nothing" => headers::reply_to_nothing;
    "two-no-call-chunk", "RFC 8166 §4.5.2", "v2-03 §6.2.4", "v2-07 §6.3.5", Required, "a message without payload, and without a chunk for it", "BAD_XDR" => headers::no_call_chunk;
    "two-zero-in-reads", "", "", "v2-07 §6.3.7", Required, "a Position-Zero segment in rdma_reads", "BAD_XDR" => headers::position_zero_in_reads;
    "two-position-order", "", "", "v2-07 §4.5.1.1", Required, "a Read list whose Positions go down", "BAD_XDR" => headers::position_order;
    "two-call-chunk-position", "", "", "v2-07 §6.6.3", Required, "a Call chunk at Position 4", "BAD_XDR" => headers::call_chunk_position;
    "two-read-chunk-surplus", "RFC 8166 §4.5.2", "RFC 8166 §4.5.2", "v2-07 §7.3.1", Required, "NULL with a Read chunk", "GARBAGE_ARGS or BAD_XDR; in P3 GARBAGE_ARGS or READ_CHUNKS with rdma_max_chunks 0" => headers::surplus_read_chunk;
    "two-xid-mismatch", "", "", "v2-07 §7.2", Required, "rdma_xid and XID differ", "BAD_XDR" => headers::xid_mismatch;
    "two-write-chunk-small", "RFC 8166 §4.5.3", "v2-03 §6.2.4", "v2-07 §7.3.4", Required, "READ of 2000 bytes with a Write chunk of 100", "BAD_XDR in P1, REPLY_RESOURCE in P2, WRITE_RESOURCE with the length in P3" => headers::write_resource;

    "two-operation-unknown", "v2-01 §3.1", "v2-03 §4.1", "", Required, "rdma_opttype 0, 99 and 2^32-1", "INVAL_OPTION" => properties::unknown_operation;
    "two-told-values", "xcharext-02 §2.1", "v2-03 §5.1.1", "v2-07 §5.1", Required, "own values, then NULL calls", "no values, or each of its type; in P3 once" => properties::told;
    "two-value-unknown", "xcharext-02 §4.1", "v2-03 §5.3.1", "v2-07 §6.3.4", Required, "a value that no document defines", "nothing" => properties::unknown;
    "two-value-empty", "", "v2-03 §5.1.1", "v2-07 §5.1", Required, "values without data", "nothing" => properties::empty;
    "two-value-bad", "xcharext-02 §2.1", "v2-03 §5.1.1", "v2-07 §7.2.2", Required, "values with data that is not of their type", "BAD_XDR in P1 and P2, BAD_PROPVAL in P3" => properties::bad_value;
    "two-value-cut", "xcharext-02 §2.1", "v2-03 §5.1.1", "v2-07 §5.1", Required, "a value that runs past the end of the message", "BAD_XDR in P1 and P2, BAD_PROPVAL in P3" => properties::cut;
    "two-values-asked", "xcharext-02 §4.3", "v2-03 §5.3.3", "", Required, "a request for a known and an unknown value", "a response under its XID that says one thing of each, and rejects the unknown value" => properties::asked;
    "two-response-to-nothing", "xcharext-02 §4.3", "v2-03 §5.3.3", "", Required, "a response to no request", "nothing" => properties::response_to_nothing;
    "two-told-twice", "", "", "v2-07 §6.3.4", Required, "properties after the final message of them", "INVAL_CONT" => properties::told_twice;
    "two-properties-interrupted", "", "", "v2-07 §6.3.3", Required, "a call behind RDMA2_CONNPROP_MIDDLE", "INVAL_CONT for the call, later calls are served" => properties::interrupted;

    "two-continued", "", "", "v2-07 §6.3.6", Required, "NULL in three messages", "a reply" => continuation::continued;
    "two-continued-interrupted", "", "", "v2-07 §6.3.6", Required, "a whole call between the parts of another", "INVAL_CONT for the whole call, later calls are served" => continuation::interrupted;
    "two-continued-remaining", "", "", "v2-07 §7.1.4", Required, "parts that are 4 bytes longer or shorter than rdma_remaining", "INVAL_CONT" => continuation::remaining;
    "two-continued-too-long", "", "", "v2-07 §7.1.4", Choice, "a part of a call of 4 GiB", "INVAL_CONT or SYSTEM" => continuation::too_long;
    "two-continued-empty", "", "", "v2-07 §6.3.6", Required, "a part without payload", "BAD_XDR or INVAL_CONT" => continuation::empty;
    "two-continued-reply", "", "", "v2-07 §6.3.9", Required, "READ of 6000 bytes without a chunk", "the reply in several messages, in order and complete" => replies::continued;
    "two-continued-reply-withheld", "", "", "v2-07 §4.2.1", Required, "READ of 6000 bytes without a chunk that allows one message, then an RDMA2_GRANT", "at most one message before the grant, the rest of the reply after it" => replies::withheld;
    "two-continued-never", "", "", "v2-07 §6.3.6", Choice, "calls of which the end never comes", "others are served" => continuation::never;

    "two-up-to-the-grant", "RFC 8166 §3.3.1", "RFC 8166 §3.3.1", "v2-07 §4.2.1", Required, "as many calls at once as granted", "replies to all" => continuation::up_to_the_grant;
    "two-beyond-the-grant", "RFC 8166 §3.3.1", "RFC 8166 §3.3.1", "v2-07 §4.2.1", Choice, "400 calls more than granted at once", "SUCCESS for each, once, or the end of the connection" => continuation::beyond_the_grant;
    "two-limit-grows", "", "", "v2-07 §4.2.1", Required, "100 calls, one after the other", "the limit allows another message after each" => continuation::limit_grows;
    "two-limit-withheld", "", "", "v2-07 §4.2.1", Required, "a call that allows no message, then an RDMA2_GRANT", "the reply comes after the grant" => continuation::withheld;
    "two-grant", "", "", "v2-07 §6.3.2", Required, "RDMA2_GRANTs, one with an XID", "nothing" => headers::grant;

    "two-group", "rtrext-02 §9.4", "rtrext-02 §9.4", "", Required, "NULL in three transmissions, one without payload", "a reply" => groups::several;
    "two-group-interrupted", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "a whole call between two transmissions", "BADHMT or BADXID for the group, a reply to the whole call" => groups::interrupted;
    "two-group-another", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "another group between two transmissions", "BADOMT or BADXID for the group, a reply to the other" => groups::another_group;
    "two-group-sequence", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "the third transmission instead of the second", "BADSEQ" => groups::sequence;
    "two-group-xid", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "the second transmission under another XID", "BADXID for the group; BADCONT or nothing for the other XID" => groups::other_xid;
    "two-group-stray", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "a later transmission of no group", "BADCONT" => groups::stray;
    "two-group-payload", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "a payload length beyond the Send", "BADPL" => groups::payload_length;
    "two-group-count", "rtrext-02 §8.4", "rtrext-02 §8.4", "", Choice, "groups of no transmission, and of 2^32-1", "BADSEQ" => groups::count;
    "two-group-cut", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "ROPT_XMTREQ without its last word", "BAD_XDR, no report" => groups::cut;
    "two-group-never", "rtrext-02 §4.2", "rtrext-02 §4.2", "", Choice, "groups of which the end never comes", "others are served" => groups::never;
    "two-group-reply", "rtrext-02 §9.3", "rtrext-02 §9.3", "", Required, "READ of 6000 bytes without a chunk, four Receives for the reply", "the reply in at most five transmissions, in order and complete" => replies::group;
    "two-group-reply-limit", "rtrext-02 §5.2", "rtrext-02 §5.2", "", Required, "READ of 8192 bytes without a chunk, one Receive for the reply", "an error, or less data in at most two transmissions" => replies::group_limit;
    "two-place-segment", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "an item in target segment 4000000", "BADTBSN" => groups::no_segment;
    "two-place-response-type", "rtrext-02 §6.2", "rtrext-02 §6.2", "", Required, "XMPTYPE_TOOSHORT and XMPTYPE_NOITEM in a request", "BADOFF" => groups::only_in_responses;
    "two-place-type", "rtrext-02 §6.2", "rtrext-02 §6.2", "", Required, "placement types 0, 3, 4 and 7 in a location", "BAD_XDR, no report" => groups::no_type;
    "two-place-order", "rtrext-02 §7.4", "rtrext-02 §7.4", "", Required, "directions for the response whose ranges go down", "BADOFF" => groups::response_order;
    "two-place-structure", "rtrext-02 §7.2", "rtrext-02 §7.2", "", Required, "a buffer structure that is cut off", "BAD_XDR" => groups::structure;
    "two-placed", "rtrext-02 §7.3", "rtrext-02 §7.3", "", Required, "WRITE, its data in a target segment", "the data is in the file" => groups::placed;
    "two-placed-outside", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "WRITE, its data beyond the target segment", "BADOFF" => groups::placed_outside;
    "two-placed-too-long", "rtrext-02 §9.5", "rtrext-02 §9.5", "", Required, "WRITE, its data longer than the Send", "BADOFF, BADTBSN or BADPL" => groups::placed_too_long;
    "two-placed-reply", "rtrext-02 §7.4", "rtrext-02 §7.4", "", Required, "READ of 2000 bytes, a direction for its data to a target segment", "the data in the segment" => replies::placed;
}
