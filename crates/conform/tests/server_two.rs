//! The rows of Version Two against servers: our own server passes in every profile, and a server with the corresponding
//! fault fails.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

mod support;

use std::collections::BTreeSet;

use rpcrdma_conform::server::{Target, Tester, rows};
use rpcrdma_conform::{Report, Verdict};
use rpcrdma_proto::Profile::{self, P1, P2, P3};
use rpcrdma_proto::Versions;
use rpcrdma_sim::CompletionMode;
use support::faulty::{Fault, word};
use support::script::{Past, Script, Turn, bytes};
use support::{all_pass, faulty_target_as, good_target_as, page_shows};

const ALL: &[Profile] = &[P1, P2, P3];
/// Profiles with operations on characteristics at any time, and with transmission groups.
const EXCHANGING: &[Profile] = &[P1, P2];

/// Version One, and Version Two in this profile.
const fn both(profile: Profile) -> Option<Versions> {
    Some(Versions::both(profile))
}

async fn run(target: Target, filter: Option<&str>) -> Report {
    Tester::new(target).run(|row| filter.is_none_or(|name| name == row.name), |_| ()).await
}

#[tokio::test(start_paused = true)]
async fn our_server_passes_in_every_profile() {
    for profile in ALL {
        for mode in [CompletionMode::Acknowledged, CompletionMode::Local] {
            let report = run(good_target_as(both(*profile), mode).await, None).await;
            if mode == CompletionMode::Local {
                // For docs/conform.md, with --nocapture.
                println!("{profile:?}\n{}", report.table());
            }
            all_pass(&report, rows(Some(*profile)).len());
        }
    }
}

/// Every row says why it is not applicable.
#[track_caller]
fn none_applies(report: &Report, profile: Profile, why: &str) {
    assert!(report.is_good());
    assert_eq!(report.rows.len(), rows(Some(profile)).len());
    let other: Vec<_> = report.rows.iter().filter(|row| !row.seen.contains(why)).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert_eq!(report.count(Verdict::NotApplicable), report.rows.len());
}

#[tokio::test(start_paused = true)]
async fn the_rows_do_not_apply_to_a_server_of_version_one() {
    for profile in ALL {
        let one = good_target_as(Some(Versions::ONE), CompletionMode::Local).await;
        let target = Target { profile: Some(*profile), ..one };
        none_applies(&run(target, None).await, *profile, "the server speaks versions 1 to 1");
        // Servers may discard messages of other versions, or end the connection.
        for (turn, seen) in [
            (
                Script::receives(|_, m| if word(m, 1) == 1 { Turn::pass(m) } else { Turn::ignore() }),
                "nothing",
            ),
            (
                Script::receives(|_, m| if word(m, 1) == 1 { Turn::pass(m) } else { Turn::end() }),
                "connection closed",
            ),
        ] {
            let target = faulty_target_as(both(*profile), Fault::Script(turn)).await;
            let report = run(Target { profile: Some(*profile), ..target }, None).await;
            none_applies(
                &report,
                *profile,
                &format!("{seen} in answer to Version Two, and Version One is served"),
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nobody_fails_every_row() {
    for profile in ALL {
        let silent = Fault::Script(Script::receives(|_, _| Turn::ignore()));
        let report = run(faulty_target_as(both(*profile), silent).await, None).await;
        // Files are made in Version One, which such a server does not answer either.
        let green: Vec<_> = report.rows.iter().filter(|row| row.verdict == Verdict::Pass).collect();
        assert!(green.is_empty(), "{green:#?}");
        assert!(!report.is_good());
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_export_or_segments_for_items_the_rows_of_items_are_not_applicable() {
    let target = Target { export: None, ..good_target_as(both(P1), CompletionMode::Local).await };
    for name in ["two-placed", "two-write-chunk-small"] {
        let target = Target { connector: target.connector.clone(), export: None, ..target };
        let report = run(target, Some(name)).await;
        assert_eq!(report.rows[0].verdict, Verdict::NotApplicable, "{report:?}");
        assert!(report.rows[0].seen.contains("no NFSv3 export"), "{report:?}");
    }
}

/// Servers without the optional operations refuse them.
#[tokio::test(start_paused = true)]
async fn operations_that_the_server_does_not_know_are_not_applicable() {
    let refuses = [refuses::<3>(), refuses::<5>()];
    for (profile, refuses) in EXCHANGING.iter().zip(refuses) {
        let report = run(faulty_target_as(both(*profile), Fault::Script(refuses)).await, None).await;
        let of = |name: &str| report.rows.iter().find(|row| row.row.name == name).unwrap().clone();
        for (name, why) in [
            ("two-values-asked", "the server does not exchange characteristics: INVAL_OPTION"),
            ("two-value-unknown", "the server does not exchange characteristics: INVAL_OPTION"),
        ] {
            assert_eq!((of(name).verdict, &of(name).seen[..]), (Verdict::NotApplicable, why));
        }
    }
    let no_groups = Script::receives(|_, m| if is_optional(m, 5) { error(m, 3) } else { Turn::pass(m) });
    let report = run(faulty_target_as(both(P1), Fault::Script(no_groups)).await, Some("two-group")).await;
    assert_eq!(report.rows[0].verdict, Verdict::NotApplicable, "{report:?}");
    assert_eq!(report.rows[0].seen, "the server takes no transmission groups: INVAL_OPTION");
}

/// Returns where the RPC message of a NULL call begins, in words, if this looks like a call without chunks.
fn payload(message: &[u8]) -> Option<usize> {
    match (word(message, 3), message.len()) {
        (0 | 10, 72) => Some(8),
        (0, 76) => Some(9),
        _ => None,
    }
}

/// Returns whether this is the NULL call, or the group of one transmission, which the tester sends between the messages of
/// a row. Version One counts too.
fn is_plain(message: &[u8]) -> bool {
    let null = |at: usize| {
        word(message, at) == word(message, 0) && [1, 5].iter().all(|n| word(message, at + n) == 0)
    };
    let single = is_optional(message, 5)
        && message.len() == 88
        && (7..12).map(|at| word(message, at)).eq([0, 0, 1, 1, 40])
        && null(12);
    word(message, 1) == 1
        || single
        || (word(message, 1) == 2
            && payload(message)
                .is_some_and(|at| (4..at).all(|word_at| word(message, word_at) == 0) && null(at)))
}

/// Returns whether this is an RDMA2_OPTIONAL of this `rdma_opttype`.
fn is_optional(message: &[u8], number: u32) -> bool {
    word(message, 1) == 2 && word(message, 3) == 5 && word(message, 5) == number
}

/// Answers a message with an RDMA2_ERROR of this code, without more words.
fn error(message: &[u8], code: u32) -> Turn {
    words(message, &[4, code])
}

/// Answers a message with these words behind `rdma_credit`.
fn words(message: &[u8], words: &[u32]) -> Turn {
    let xid = if message.len() < 4 { 0 } else { word(message, 0) };
    Turn::answer(&[&[xid, 2, 1000], words].concat())
}

/// Answers a message as a call that was executed.
fn success(past: &Past, message: &[u8]) -> Turn {
    let model = past.received.iter().map(Vec::as_slice).find(|message| payload(message).is_some());
    let model = model.unwrap_or(message);
    let front: &[u32] = match (word(model, 3), model.len()) {
        (10, _) => &[13, 0],
        (_, 76) => &[0, 1, 0, 0, 0, 0],
        _ => &[0, 1, 0, 0, 0],
    };
    words(message, &[front, &[word(message, 0), 1, 0, 0, 0, 0]].concat())
}

/// Ignores every message that is not plain.
const IGNORES: Script = Script::receives(|_, m| if is_plain(m) { Turn::pass(m) } else { Turn::ignore() });
/// Answers every message that is not plain like a call that was executed.
const ACCEPTS: Script =
    Script::receives(|past, m| if is_plain(m) { Turn::pass(m) } else { success(past, m) });
/// Answers every first transmission that is not plain like a call that was executed.
const ACCEPTS_GROUPS: Script =
    Script::receives(
        |past, m| {
            if is_optional(m, 5) && !is_plain(m) { success(past, m) } else { Turn::pass(m) }
        },
    );
/// Sends every message twice.
const TWICE: Script = Script::sends(|_, m| vec![m.clone(), m]);

/// Answers every message that is not plain with this error code.
const fn refuses<const CODE: u32>() -> Script {
    Script::receives(|_, m| if is_plain(m) { Turn::pass(m) } else { error(m, CODE) })
}

/// Sets a word of every message that is sent.
const fn says<const AT: usize, const WORD: u32>() -> Script {
    Script::sends(|_, mut m| {
        m[AT * 4..AT * 4 + 4].copy_from_slice(&WORD.to_be_bytes());
        vec![m]
    })
}

/// Answers messages of another version with ERR_VERS of this version and range.
const fn versions<const VERSION: u32, const LOW: u32, const HIGH: u32>() -> Script {
    Script::receives(|_, m| match word(m, 1) {
        1 | 2 => Turn::pass(m),
        version => {
            let said = if VERSION == 0 { version } else { VERSION };
            Turn::answer(&[word(m, 0), said, 1000, 4, 1, LOW, HIGH])
        }
    })
}

/// Treats calls of Version One in this way: ERR_VERS 1-1, another error, or nothing.
const ONE_REFUSED: Script = Script::receives(|_, m| match word(m, 1) {
    1 => Turn::answer(&[word(m, 0), 1, 32, 4, 1, 1, 1]),
    _ => Turn::pass(m),
});
const ONE_IGNORED: Script =
    Script::receives(|_, m| if word(m, 1) == 1 { Turn::ignore() } else { Turn::pass(m) });
const ONE_ANSWERED: Script = Script::receives(|_, m| match word(m, 1) {
    1 => Turn::answer(&[word(m, 0), 1, 32, 0, 0, 0, 0, word(m, 0), 1, 0, 0, 0, 0]),
    _ => Turn::pass(m),
});
const MISMATCH_IN_TWO: Script =
    Script::receives(|_, m| if word(m, 1) == 1 { error(m, 11) } else { Turn::pass(m) });

/// Writes into the Write chunk that comes back, or says so.
const USES_CHUNK: Script = Script::sends(|_, mut m| {
    let length = match [3, 4, 6, 7].map(|at| word(&m, at)) {
        [0, 1, 1, _] => Some(9),
        [0, 1, 0, 1] => Some(10),
        [13, 1, ..] => Some(7),
        _ => None,
    };
    if let Some(at) = length {
        m[at * 4 + 3] = 5;
    }
    vec![m]
});

/// Invalidates the first handle of every call in a Position-Zero chunk.
const INVALIDATES: Script = Script {
    invalidates: |past| {
        let call = past.received.last()?;
        match [3, 5, 6].map(|at| word(call, at)) {
            [1, 1, _] | [8, 1, _] => Some(word(call, 7)),
            [1, _, 1] => Some(word(call, 8)),
            _ => None,
        }
    },
    ..Script::NONE
};

/// Tells, after its first message, a Receive size of three bytes.
const TELLS_THREE_BYTES: Script = Script::sends(|past, m| {
    let told = match (past.sent.is_empty(), word(&m, 3), m.len()) {
        (true, 13, _) => bytes(&[0, 2, 1000, 7, 1, 2, 3, 0]),
        (true, 0, 60) => bytes(&[9, 2, 32, 6, 1, 1, 3, 0, 0]),
        (true, ..) => bytes(&[9, 2, 32, 5, 0, 1, 20, 1, 1, 3, 0, 0]),
        _ => return vec![m],
    };
    vec![m, told]
});
/// Tells its properties twice.
const TELLS_TWICE: Script = Script::sends(|_, m| match word(&m, 3) {
    7 => vec![m.clone(), m],
    _ => vec![m],
});

/// Returns whether this is a response about characteristics.
fn is_response(message: &[u8]) -> bool {
    is_optional(message, 3) || word(message, 3) == 8
}

/// Says that what was asked is done, and rejected as well.
const CONTRADICTS: Script = Script::sends(|_, m| match (word(&m, 3), is_response(&m)) {
    (5, true) => vec![bytes(&[word(&m, 0), 2, 32, 5, 1, 3, 20, 1, 3, 1, 3, 0])],
    (8, true) => vec![bytes(&[word(&m, 0), 2, 32, 8, 1, 3, 1, 3, 0])],
    _ => vec![m],
});
/// Responds twice.
const RESPONDS_TWICE: Script =
    Script::sends(|_, m| if is_response(&m) { vec![m.clone(), m] } else { vec![m] });
/// Responds under another XID.
const RESPONDS_ELSEWHERE: Script = Script::sends(|_, mut m| {
    if is_response(&m) {
        m[3] ^= 1;
    }
    vec![m]
});

/// Loses messages of this type.
const fn loses<const TYPE: u32>() -> Script {
    Script::receives(|_, m| match (word(m, 1), word(m, 3)) {
        (2, kind) if kind == TYPE => Turn::ignore(),
        _ => Turn::pass(m),
    })
}

/// Answers no connection that begins after so many messages.
const fn full<const MESSAGES: usize>() -> Script {
    Script::receives(|past, m| {
        let is_late = past.received.is_empty() && past.xids.len() >= MESSAGES;
        if is_late { Turn::ignore() } else { Turn::pass(m) }
    })
}

/// Loses the fifth message of a connection.
const LOSES_ONE: Script =
    Script::receives(|past, m| if past.received.len() == 4 { Turn::ignore() } else { Turn::pass(m) });

/// Does not look at the limit of the client.
const HAS_NO_LIMIT: Script = Script::receives(|_, m| {
    let mut m = m.to_vec();
    m[8..12].copy_from_slice(&1000_u32.to_be_bytes());
    Turn::pass(&m)
});

/// Refuses unknown values.
const KNOWS_ALL: Script = Script::receives(|_, m| {
    let is_unknown = m.windows(4).any(|word| word == 0x7777_u32.to_be_bytes());
    if is_unknown { error(m, 2) } else { Turn::pass(m) }
});
const ANSWERS_RESPONSES: Script =
    Script::receives(|_, m| if is_response(m) { error(m, 2) } else { Turn::pass(m) });

/// Answers with READ_CHUNKS, or with WRITE_RESOURCE and a wrong length.
const THREE_READ_CHUNKS: Script =
    Script::receives(|_, m| if is_plain(m) { Turn::pass(m) } else { words(m, &[4, 6, 3]) });
const SEVEN_BYTES: Script =
    Script::receives(|_, m| if is_plain(m) { Turn::pass(m) } else { words(m, &[4, 9, 1, 7]) });

/// Returns a message with another value in one word.
fn with(mut message: Vec<u8>, at: usize, word: u32) -> Vec<u8> {
    message[at * 4..at * 4 + 4].copy_from_slice(&word.to_be_bytes());
    message
}

/// Sends the parts of a reply twice.
const REPEATS_PARTS: Script = Script::sends(|_, m| match word(&m, 3) {
    12 => vec![m.clone(), m],
    _ => vec![m],
});
/// Sends the last part of a long reply as a middle one, and nothing in the last.
const HAS_EMPTY_END: Script = Script::sends(|_, m| match (word(&m, 3), m.len()) {
    (13, 1000..) => vec![with(with(m.clone(), 3, 12), 4, 0), m[..20].to_vec()],
    _ => vec![m],
});
/// Says that a MiB of the reply remains.
const PROMISES_MUCH: Script =
    Script::sends(|_, m| if word(&m, 3) == 12 { vec![with(m, 4, 1 << 20)] } else { vec![m] });
/// Gives later transmissions a wrong number.
const MISCOUNTS: Script =
    Script::sends(|_, m| if is_optional(&m, 7) { vec![with(m, 7, 5)] } else { vec![m] });
/// Loses the payload of later transmissions.
const LOSES_PAYLOAD: Script =
    Script::sends(|_, m| if is_optional(&m, 7) { vec![with(m, 9, 0)] } else { vec![m] });
/// Reads a larger number of Receives for the reply.
const FINDS_MORE_RECEIVES: Script = Script::receives(|_, m| match is_optional(m, 5) && !is_plain(m) {
    true => Turn::pass(&with(m.to_vec(), 10, 8)),
    false => Turn::pass(m),
});
/// Says that an item lies four bytes behind its place.
const MISPLACES: Script = Script::sends(|_, m| match is_optional(&m, 6) && word(&m, 7) == 1 {
    true => vec![with(m, 11, 4)],
    false => vec![m],
});
/// Sends zeroes in the place of an item.
const FILLS_SEGMENTS: Script = Script::sends(|_, mut m| {
    if is_optional(&m, 6) && word(&m, 7) == 1 {
        m[1024..].fill(0);
    }
    vec![m]
});

/// Gives its reports the direction CALL.
const REPORTS_AS_A_CALL: Script =
    Script::sends(|_, m| if is_optional(&m, 8) { vec![with(m, 4, 0)] } else { vec![m] });
/// Gives its reports an XID of their own.
const REPORTS_UNDER_ANOTHER_XID: Script = Script::sends(|_, m| match is_optional(&m, 8) {
    true => vec![with(m.clone(), 0, word(&m, 0) ^ 0x2000_0000)],
    false => vec![m],
});
/// Continues replies with the number that ROPT_XMTRESP has in the XDR of rtrext-02 §9.3.
const CONTINUES_BY_THE_XDR: Script =
    Script::sends(|_, m| if is_optional(&m, 7) { vec![with(m, 8, 2)] } else { vec![m] });

/// The drafts give a Responder's report no XID (version-two-01 §4.2.2), and `optxc_itype` no definition (rtrext-02 §9.4).
#[tokio::test(start_paused = true)]
async fn what_the_drafts_leave_open_passes() {
    for profile in EXCHANGING {
        for (name, script) in [
            ("two-group-sequence", REPORTS_UNDER_ANOTHER_XID),
            ("two-group-xid", REPORTS_UNDER_ANOTHER_XID),
            ("two-place-segment", REPORTS_UNDER_ANOTHER_XID),
            ("two-group-reply", CONTINUES_BY_THE_XDR),
        ] {
            let report = run(faulty_target_as(both(*profile), Fault::Script(script)).await, Some(name)).await;
            assert_eq!(report.rows[0].verdict, Verdict::Pass, "{profile:?}: {:?}", report.rows[0]);
        }
    }
}

/// A row, the profiles in which a fault is tried, the fault, and a part of the text that the row then shows.
type Found = (&'static str, &'static [Profile], Script, &'static str);

static FAULTS: &[Found] = &[
    ("two-null", ALL, TWICE, "a NULL call: a message under XID"),
    ("two-null", ALL, says::<0, 1>(), "a NULL call: a message under XID 0x00000001"),
    ("two-null", ALL, says::<1, 1>(), "a NULL call: a message that does not decode"),
    ("two-null", EXCHANGING, says::<2, 0>(), "a NULL call: a reply that grants 0 credits"),
    ("two-version-unknown", ALL, versions::<0, 1, 1>(), "version 0: ERR_VERS with the range 1-1"),
    ("two-version-unknown", ALL, versions::<0, 0, 2>(), "version 0: ERR_VERS with the range 0-2"),
    ("two-version-unknown", ALL, versions::<2, 1, 2>(), "version 0: ERR_VERS under version 2"),
    ("two-version-unknown", ALL, IGNORES, "version 0: nothing"),
    ("two-version-unknown", ALL, ACCEPTS, "version 0: reply SUCCESS"),
    ("two-version-changed", EXCHANGING, ONE_IGNORED, "nothing"),
    ("two-version-changed", EXCHANGING, ONE_REFUSED, "ERR_VERS 1-1"),
    ("two-version-mismatch", &[P3], ONE_ANSWERED, "reply SUCCESS"),
    ("two-version-mismatch", &[P3], ONE_REFUSED, "ERR_VERS 1-1"),
    ("two-version-mismatch", &[P3], MISMATCH_IN_TWO, "VERS_MISMATCH under version 2"),
    ("two-version-one-first", ALL, ONE_IGNORED, "nothing"),
    ("two-version-one-first", ALL, ONE_REFUSED, "ERR_VERS 1-1"),
    ("two-first-of-1024", ALL, IGNORES, "nothing"),
    ("two-first-of-1024", ALL, refuses::<2>(), "BAD_XDR"),
    ("two-call-of-4096", ALL, IGNORES, "nothing"),
    ("two-call-of-4096", ALL, refuses::<2>(), "BAD_XDR"),
    ("two-position-zero", ALL, refuses::<2>(), "BAD_XDR"),
    ("two-chunks-spare", ALL, USES_CHUNK, "the Write chunk does not come back unused"),
    ("two-chunks-spare", ALL, refuses::<2>(), "BAD_XDR"),
    ("two-invalidation", &[P1], INVALIDATES, "Send with Invalidate without permission"),
    ("two-invalidation", &[P2, P3], INVALIDATES, ", the call names 0x"),
    ("two-short-message", ALL, refuses::<2>(), "0 bytes: a message under XID 0x00000000"),
    ("two-type-unknown", ALL, IGNORES, "nothing"),
    ("two-type-unknown", ALL, ACCEPTS, "reply SUCCESS"),
    ("two-type-unknown", &[P1], refuses::<3>(), "type 2: INVAL_OPTION"),
    ("two-type-unknown", &[P2, P3], refuses::<2>(), "type 2: BAD_XDR"),
    ("two-header-cut", ALL, IGNORES, "nothing"),
    ("two-header-cut", ALL, ACCEPTS, "reply SUCCESS"),
    ("two-discriminators", ALL, ACCEPTS, "2 in the Read list: reply SUCCESS"),
    ("two-discriminators", ALL, IGNORES, "2 in the Read list: nothing"),
    ("two-direction", EXCHANGING, ACCEPTS, "rdma_direction 1: reply SUCCESS"),
    ("two-direction", EXCHANGING, IGNORES, "rdma_direction 1: nothing"),
    ("two-error-unanswered", ALL, refuses::<2>(), "ERR_VERS: BAD_XDR"),
    ("two-reply-to-nothing", ALL, refuses::<2>(), "BAD_XDR"),
    ("two-no-call-chunk", ALL, IGNORES, "no chunk: nothing"),
    ("two-no-call-chunk", ALL, ACCEPTS, "no chunk: reply SUCCESS"),
    ("two-zero-in-reads", &[P3], ACCEPTS, "reply SUCCESS"),
    ("two-position-order", &[P3], ACCEPTS, "reply SUCCESS"),
    ("two-call-chunk-position", &[P3], ACCEPTS, "reply SUCCESS"),
    ("two-read-chunk-surplus", ALL, ACCEPTS, "reply SUCCESS"),
    (
        "two-read-chunk-surplus",
        &[P3],
        THREE_READ_CHUNKS,
        "READ_CHUNKS that allows a chunk which the call has",
    ),
    ("two-xid-mismatch", &[P3], ACCEPTS, "reply SUCCESS"),
    ("two-write-chunk-small", ALL, ACCEPTS, "reply SUCCESS"),
    ("two-write-chunk-small", ALL, IGNORES, "nothing"),
    ("two-write-chunk-small", &[P3], SEVEN_BYTES, "WRITE_RESOURCE, place 1, 7 bytes needed"),
    ("two-operation-unknown", EXCHANGING, IGNORES, "rdma_opttype 0: nothing"),
    ("two-operation-unknown", EXCHANGING, refuses::<2>(), "rdma_opttype 0: BAD_XDR"),
    ("two-told-values", ALL, TELLS_THREE_BYTES, "with 3 bytes that are not of its type"),
    ("two-told-values", &[P3], TELLS_TWICE, "properties after the final message of them"),
    ("two-value-unknown", ALL, KNOWS_ALL, "BAD_XDR"),
    ("two-value-empty", &[P2, P3], refuses::<2>(), "BAD_XDR"),
    ("two-value-bad", ALL, IGNORES, ": nothing"),
    ("two-value-cut", ALL, IGNORES, "nothing"),
    ("two-values-asked", EXCHANGING, IGNORES, "no response"),
    ("two-values-asked", EXCHANGING, RESPONDS_TWICE, "a second response"),
    ("two-values-asked", EXCHANGING, CONTRADICTS, "the response says several things of value 0"),
    ("two-values-asked", EXCHANGING, RESPONDS_ELSEWHERE, "a response under XID"),
    ("two-response-to-nothing", EXCHANGING, ANSWERS_RESPONSES, "BAD_XDR"),
    ("two-told-twice", &[P3], IGNORES, "final: nothing"),
    ("two-properties-interrupted", &[P3], loses::<6>(), "reply SUCCESS"),
    ("two-continued", &[P3], refuses::<4>(), "INVAL_HTYPE"),
    ("two-continued", &[P3], IGNORES, "nothing"),
    ("two-continued-interrupted", &[P3], loses::<9>(), "reply SUCCESS"),
    ("two-continued-remaining", &[P3], ACCEPTS, "4 bytes more: reply SUCCESS"),
    ("two-continued-too-long", &[P3], IGNORES, "nothing"),
    ("two-continued-empty", &[P3], IGNORES, "nothing"),
    ("two-continued-never", &[P3], full::<17>(), "a new connection is not served: a NULL call: nothing"),
    ("two-up-to-the-grant", ALL, LOSES_ONE, "1 calls have no reply"),
    ("two-beyond-the-grant", ALL, TWICE, "a message under XID"),
    ("two-limit-grows", &[P3], says::<2, 5>(), "rdma_credit 5 after 5 messages: none may follow"),
    ("two-limit-withheld", &[P3], HAS_NO_LIMIT, "beyond the limit of 1 messages: reply SUCCESS"),
    ("two-grant", &[P3], refuses::<2>(), "XID 0x00000000: BAD_XDR"),
    ("two-group", EXCHANGING, refuses::<2>(), "BAD_XDR"),
    ("two-group-interrupted", EXCHANGING, IGNORES, "a message under XID"),
    ("two-group-another", EXCHANGING, IGNORES, "a message under XID"),
    ("two-group-sequence", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-group-xid", EXCHANGING, IGNORES, "nothing"),
    ("two-group-stray", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-group-stray", EXCHANGING, refuses::<2>(), "BAD_XDR"),
    ("two-group-payload", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-group-count", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-group-cut", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-group-never", EXCHANGING, full::<25>(), "a new connection is not served: a NULL call: nothing"),
    ("two-place-segment", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-place-response-type", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-place-type", EXCHANGING, ACCEPTS, "xmdp_type 0: reply SUCCESS"),
    ("two-place-order", EXCHANGING, ACCEPTS, "reply SUCCESS"),
    ("two-place-structure", EXCHANGING, IGNORES, "nothing"),
    ("two-placed", EXCHANGING, ACCEPTS_GROUPS, "the file does not hold the data of the item"),
    ("two-placed-outside", EXCHANGING, ACCEPTS_GROUPS, "reply SUCCESS"),
    ("two-placed-too-long", EXCHANGING, ACCEPTS_GROUPS, "reply SUCCESS"),
    ("two-continued-reply", &[P3], REPEATS_PARTS, "remaining, where"),
    ("two-continued-reply", &[P3], HAS_EMPTY_END, "a part that is not the last, with nothing remaining"),
    ("two-continued-reply", &[P3], PROMISES_MUCH, "1048576 bytes remaining; the reply has at most 16384"),
    ("two-continued-reply-withheld", &[P3], HAS_NO_LIMIT, "2 messages where one is allowed"),
    ("two-group-sequence", EXCHANGING, REPORTS_AS_A_CALL, "a report without the direction REPLY"),
    ("two-group-reply", EXCHANGING, MISCOUNTS, "transmission 5 of type 6 where 1 is due"),
    ("two-group-reply", EXCHANGING, LOSES_PAYLOAD, "results that do not decode"),
    ("two-group-reply-limit", EXCHANGING, FINDS_MORE_RECEIVES, "a reply in 3 transmissions, 2 are allowed"),
    ("two-placed-reply", EXCHANGING, MISPLACES, "data at offset 4 that ends beyond the Send"),
    ("two-placed-reply", EXCHANGING, FILLS_SEGMENTS, "the segment does not hold the data of the file"),
];

#[test]
fn no_row_is_without_its_faulty_server() {
    for profile in ALL {
        let names: Vec<&str> = rows(Some(*profile)).iter().map(|row| row.name).collect();
        let unique: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), unique.len(), "names are unique");
        let found = FAULTS.iter().filter(|(_, profiles, ..)| profiles.contains(profile));
        assert_eq!(found.map(|(name, ..)| *name).collect::<BTreeSet<_>>(), unique, "{profile:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_row_is_red_on_its_faulty_server() {
    let mut green = Vec::new();
    for (name, profiles, script, expected) in FAULTS {
        for profile in *profiles {
            let target = faulty_target_as(both(*profile), Fault::Script(*script)).await;
            let report = run(target, Some(name)).await;
            if report.rows[0].verdict != Verdict::Fail || !report.rows[0].seen.contains(expected) {
                green.push((profile, *name, report.rows[0].verdict, report.rows[0].seen.clone(), *expected));
            }
        }
    }
    assert!(green.is_empty(), "{green:#?}");
}

#[test]
fn the_page_shows_every_row() {
    for profile in ALL {
        page_shows(&format!("Our own server in Version Two, {profile:?}"), &rows(Some(*profile)));
    }
}
