//! The table of rows.

use rpcrdma_proto::Profile;

use super::{continued, groups, properties, replies};
use crate::client::{Row, chunks, credits, setup};
use crate::report::{RowInfo, Rule};

/// A row, with the section in each profile; none where the row does not apply.
struct Case {
    sections: [&'static str; 3],
    row: Row,
}

/// A group of rows: `name, [sections], rule, sends, expects => function`.
macro_rules! group {
    ($name:ident: $($row:literal, [$($section:literal),+], $rule:ident, $sends:literal, $expects:literal => $run:path;)+) => {
        static $name: &[Case] = &[$(Case {
            sections: [$($section),+],
            row: Row {
                info: RowInfo { name: $row, section: "", rule: Rule::$rule, sends: $sends, expects: $expects },
                run: |stage| Box::pin($run(stage)),
            },
        }),+];
    };
}

group! { REPLIES:
    "offer", ["version-two-01 §5", "version-two-03 §7", "version-two-07 §4.3"], Required, "no reply to the first message for a while", "one message of at most 1024 bytes until its reply" => replies::offer;
    "reply-inline", ["version-two-01 §5.1", "version-two-03 §7.1", "version-two-07 §6.3.10"], Required, "good replies", "well-formed calls go on, on the same connection" => credits::inline;
    "version-one-reply", ["version-two-01 §5.3", "version-two-03 §7.3", "version-two-07 §4.3.1"], Required, "a reply under rdma_vers 1", "discarded" => replies::version_one;
    "reply-other-xid", ["version-two-01 §4.2.3", "version-two-03 §6.2.4", "version-two-07 §6.3.10"], Required, "a reply under an XID that no call has", "discarded" => replies::other_xid;
    "unknown-type", ["version-two-01 §4.2.3", "version-two-03 §6.2.4", "version-two-07 §7.1.3"], Required, "a reply under rdma_proc 77", "discarded or refused as an unknown type; the call still waits" => replies::unknown_type;
    "direction", ["version-two-01 §4.2.2", "version-two-03 §6.2.2", "version-two-07 §6.3.7"], Required, "a reply in a header for calls", "discarded or refused as an XDR error; the call still waits" => replies::direction;
    "reply-cut", ["version-two-01 §4.2.3", "version-two-03 §6.2.4", "version-two-07 §7.2"], Required, "reply headers cut off in a list", "discarded" => replies::cut;
    "errors", ["version-two-01 §4.2", "version-two-03 §6.2.4", "version-two-07 §7"], Required, "every RDMA2_ERROR that ends a call", "the call ends, the next call follows on the same connection" => replies::errors;
    "error-unknown", ["version-two-01 §4.2.3", "version-two-03 §6.2.4", "version-two-07 §7"], Required, "an RDMA2_ERROR with an unknown code", "discarded" => replies::error_unknown;
    "error-other-xid", ["version-two-01 §4.2.3", "version-two-03 §6.2.4", "version-two-07 §7"], Required, "an RDMA2_ERROR under an XID that no call has", "discarded" => replies::error_other_xid;
    "reverse-call", ["RFC 8167 §6", "RFC 8167 §6", "version-two-07 §4.6.3"], Choice, "an unexpected call in the reverse direction", "silence, PROG_UNAVAIL or RDMA2_ERROR; then the next call follows on the same connection" => replies::reverse_call;
}

group! { CHUNKS:
    "write-chunk-used", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2"], Required, "data in the Write chunk", "the call ends, the next call follows on the same connection" => chunks::write_used;
    "write-other-handle", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.1"], Required, "the Write list comes back with other handles", "discarded" => chunks::write_other_handle;
    "write-too-long", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.1"], Required, "the Write list comes back with lengths of 2^32-1", "discarded" => chunks::write_too_long;
    "write-more-segments", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.1"], Required, "the Write list comes back with more segments", "discarded" => chunks::write_more_segments;
    "write-list-unasked", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.1"], Required, "a Write list that no call offered", "discarded" => chunks::write_unasked;
    "reply-chunk-used", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.2"], Required, "a short reply through the Reply chunk", "the call ends, the next call follows on the same connection" => chunks::reply_used;
    "reply-chunk-other-handle", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.2"], Required, "the Reply chunk comes back with other handles", "discarded" => chunks::reply_other_handle;
    "reply-chunk-too-long", ["version-two-01 §4.2", "version-two-03 §6.2", "version-two-07 §4.5.2.2"], Required, "the Reply chunk comes back with lengths of 2^32-1", "discarded" => chunks::reply_too_long;
    "invalidation", ["", "version-two-03 §6.2.3", "version-two-07 §6.5"], Required, "Send with Invalidate of the handle that the call names", "the call ends, the next call follows on the same connection" => replies::invalidation;
    "cut", ["version-two-01 §5", "version-two-03 §7", "version-two-07 §4.3"], Choice, "the connection cut off on a call", "calls go on, on a new connection, one until its reply" => setup::cut;
}

group! { PROPERTIES:
    "properties-unknown", ["xcharext-02 §2.1", "version-two-03 §5.1.1", "version-two-07 §5.1"], Required, "a property with an unknown number", "ignored; calls go on" => properties::unknown;
    "properties-cut", ["xcharext-02 §2.1", "version-two-03 §5.1.1", "version-two-07 §5.1"], Required, "a property whose value runs past the end", "an XDR error, in version-two-07 BAD_PROPVAL; calls go on" => properties::cut;
    "properties-short", ["xcharext-02 §2.1", "version-two-03 §5.1.1", "version-two-07 §5.1"], Required, "a receive buffer size of two bytes", "an XDR error, in version-two-07 BAD_PROPVAL; calls go on" => properties::short;
    "receive-size", ["xcharext-02 §3.1", "version-two-03 §5.2.1", "version-two-07 §5.2.2"], Required, "a receive buffer size of 2048", "no Send is longer" => properties::receive_size;
    "properties-asked", ["xcharext-02 §4.3", "version-two-03 §5.3.3", ""], Required, "a request for a receive buffer size of 8192", "a response under its XID that covers the request, or the operation is refused; the call still waits" => properties::asked;
    "operation-unknown", ["version-two-01 §3.1", "version-two-03 §6.2.4", ""], Required, "an RDMA2_OPTIONAL of type 77", "INVAL_OPTION; the call still waits" => properties::unknown_operation;
    "properties-twice", ["", "", "version-two-07 §6.3.4"], Required, "properties after the last message of them", "INVAL_CONT; the call still waits" => properties::twice;
}

group! { CONTINUED:
    "continued", ["", "", "version-two-07 §6.3.9"], Required, "a reply in three messages", "the call ends, the next call follows on the same connection" => continued::good;
    "continued-remaining", ["", "", "version-two-07 §6.3.9"], Required, "parts that disagree with rdma_remaining", "discarded or INVAL_CONT; the call still waits" => continued::remaining;
    "continued-other-xid", ["", "", "version-two-07 §6.3.9"], Required, "the last part under another XID", "discarded or INVAL_CONT; the call still waits" => continued::other_xid;
    "continued-interrupted", ["", "", "version-two-07 §6.3.9"], Required, "a whole reply to the call between the parts of its reply", "discarded or INVAL_CONT; the call still waits" => continued::interrupted;
}

group! { GROUPS:
    "continuation-alone", ["rtrext-02 §5.4", "rtrext-02 §5.4", ""], Required, "a ROPT_XMTCONT that continues nothing", "a report, INVAL_OPTION or silence; the call still waits" => groups::continuation_alone;
    "response-unasked", ["rtrext-02 §9.3", "rtrext-02 §9.3", ""], Required, "a ROPT_XMTRESP of two transmissions to a call outside of a group", "a report, INVAL_OPTION or silence; the call still waits" => groups::response_unasked;
    "group-reply", ["rtrext-02 §9.4", "rtrext-02 §9.4", ""], Required, "a reply in up to three transmissions, the second of three without payload", "the call ends, the next call follows on the same connection" => groups::good;
    "group-sequence", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "the third transmission of a reply instead of the second", "BADSEQ; the call still waits" => groups::sequence;
    "group-other-xid", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "the second transmission of a reply under another XID", "BADXID; the call still waits" => groups::other_xid;
    "group-interrupted", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "a plain reply to nothing between two transmissions", "BADHMT or BADXID; the call still waits" => groups::interrupted;
    "group-another", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "another group between two transmissions", "BADOMT or BADXID; the call still waits" => groups::another;
    "group-count", ["rtrext-02 §5.2", "rtrext-02 §5.2", ""], Required, "a reply in two transmissions more than the call has Receives for, and in none", "a report; the call still waits" => groups::count;
    "group-payload", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "a payload length beyond the Send", "BADPL; the call still waits" => groups::payload_length;
    "item-unasked", ["rtrext-02 §7.4", "rtrext-02 §7.4", ""], Required, "results for items without a direction: in a target segment, in memory", "a report; the call still waits" => groups::item_unasked;
    "placed", ["rtrext-02 §7.3", "rtrext-02 §7.3", ""], Required, "the data of a READ in a target segment", "the call ends, the next call follows on the same connection" => groups::placed;
    "placed-segment", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "data in target segment 4000000", "BADTBSN; the call still waits" => groups::placed_segment;
    "placed-outside", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "data beyond the target segment", "BADOFF; the call still waits" => groups::placed_outside;
    "placed-too-long", ["rtrext-02 §9.5", "rtrext-02 §9.5", ""], Required, "data longer than its Send", "a report; the call still waits" => groups::placed_too_long;
    "placed-elsewhere", ["rtrext-02 §7.4", "rtrext-02 §7.4", ""], Required, "data in memory that the call does not offer", "a report; the call still waits" => groups::placed_elsewhere;
    "direction-unanswered", ["rtrext-02 §7.4", "rtrext-02 §7.4", ""], Required, "a direction of the call without a result", "a report; the call still waits" => groups::direction_unanswered;
}

group! { VERSIONS:
    "err-vers", ["version-two-01 §5.2", "version-two-03 §7.2", "version-two-07 §4.3.2"], Required, "ERR_VERS 1-1 to the first message", "the next message has rdma_vers 1, on the same connection" => replies::err_vers;
}

/// Returns every row of a profile, in order.
pub(in crate::client) fn all(profile: Profile) -> impl Iterator<Item = Row> {
    let place = match profile {
        Profile::P1 => 0,
        Profile::P2 => 1,
        _ => 2,
    };
    [REPLIES, CHUNKS, PROPERTIES, CONTINUED, GROUPS, VERSIONS].into_iter().flatten().filter_map(move |case| {
        let section = case.sections.get(place).copied().filter(|section| !section.is_empty())?;
        Some(Row { info: RowInfo { section, ..case.row.info }, ..case.row })
    })
}
