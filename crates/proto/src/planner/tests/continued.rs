//! Messages in several Sends (version-two-07 §6.6).

use super::*;
use crate::two::plan::{CallOptions, parts};
use crate::wire::two::p3::V2P3;
use crate::wire::{Body, ChunkLists, Codec, Header};

/// The Sends reserved for a reply, or the refusal with the largest length.
#[test]
fn v2_07_s6_6_4_a_reply_goes_on_within_what_is_taken() {
    let message = stream(100, &[]);
    let plan = |reply_max, continued_reply, continued_reply_len| {
        let input = CallInput {
            codec: &V2P3,
            message: &message,
            flavor_touches_data: false,
            send: 1024,
            receive: 1024,
            reply_max,
            sinks: &[],
            chunks: ChunkRules { allowed: false, ..RULES },
        };
        let options = CallOptions { continued: 1, continued_reply, continued_reply_len, groups: None };
        options.plan_call(&input).map(|plan| plan.reply_sends)
    };
    let too_long = |len, allowed| Err(Refusal::ContinuedReplyTooLong { len, allowed });
    // The last part and each earlier part have a header of 20 bytes.
    assert_eq!(plan(1004, 1, 5000), Ok(1));
    assert_eq!(plan(1008, 1, 5000), Err(Refusal::ReplyTooLong { len: 1028, allowed: 1024 }));
    assert_eq!(plan(1008, 2, 5000), Ok(2));
    assert_eq!(plan(3 * 1004, 3, 5000), Ok(3));
    assert_eq!(plan(3 * 1004 + 4, 3, 5000), too_long(3 * 1004 + 4, 3 * 1004));
    assert_eq!(plan(3000, 3, 3000), Ok(3));
    assert_eq!(plan(3004, 3, 3000), too_long(3004, 3000));
}

/// Form, bytes of each Send, their sum, number of Read chunks.
#[test]
fn v2_07_s6_6_2_a_call_goes_on_where_that_is_allowed() {
    let plan = |message: &Stream, continued, chunks: ChunkRules| {
        let continued_reply_len = 256 << 10;
        let options = CallOptions { continued, continued_reply: 1, continued_reply_len, groups: None };
        options.plan_call(&CallInput {
            codec: &V2P3,
            message,
            flavor_touches_data: false,
            send: 1024,
            receive: 1024,
            reply_max: 100,
            sinks: &[],
            chunks,
        })
    };
    let row = |message: &Stream, continued, chunks| {
        plan(message, continued, chunks).map(|plan| {
            let parts = match &plan.route {
                Route::Sends(arrangement) => arrangement.sends.iter().map(|send| send.payload).collect(),
                _ => vec![],
            };
            (plan.form(), parts, plan.inline.of(message).len(), plan.read.len())
        })
    };
    assert_eq!(parts(&V2P3, 64, 32, 4, 3), None, "nothing is left for a second part");
    let (short, long) = (stream(900, &[]), stream(3000, &[]));
    assert_eq!(row(&short, 8, RULES), Ok((Form::Inline, vec![], 900, 0)));
    // The last part has a header of 32 bytes, each earlier part one of 20.
    assert_eq!(row(&long, 4, RULES), Ok((Form::Continued, vec![1004, 1004, 992], 3000, 0)));
    assert_eq!(row(&long, 2, RULES), Ok((Form::Long, vec![], 0, 1)));
    let none = ChunkRules { allowed: false, ..RULES };
    assert_eq!(row(&long, 4, none), Ok((Form::Continued, vec![1004, 1004, 992], 3000, 0)));
    assert_eq!(row(&long, 2, none), Err(Refusal::CallTooLong { len: 3032, allowed: 1024 }));
    // Eligible items leave in Read chunks before the message is split.
    let mixed = stream(3000, &[(5000, true)]);
    let (form, parts, inline, read) = row(&mixed, 8, RULES).unwrap();
    assert_eq!((form, parts.len(), read), (Form::Continued, 4, 1), "{inline}");
}

/// version-two-07 §6.3.5: the header of a Call in a chunk has one word more, and has to fit with it.
#[test]
fn v2_07_s6_3_5_the_header_of_a_long_call_fits_to_the_byte() {
    let message = stream(5000, &[]);
    let plan = |send| {
        plan_call(&CallInput {
            codec: &V2P3,
            message: &message,
            flavor_touches_data: false,
            send,
            receive: 1024,
            reply_max: 100,
            sinks: &[],
            chunks: RULES,
        })
    };
    let Err(Refusal::HeaderTooLong { len, allowed: 1 }) = plan(1) else { panic!("{:?}", plan(1)) };
    let zero =
        ReadSegment { position: 0, segment: Segment { handle: 1, length: 5000, offset: 0 }, padding: false };
    let read = ChunkLists { read: vec![zero], ..ChunkLists::default() };
    let mut encoded = bytes::BytesMut::new();
    let (version, credit, direction) = (2, 1, Some(Direction::Call));
    let body = Body::NoMessage(read);
    V2P3.encode(&Header { xid: 1, version, credit, direction, invalidate: 0, body }, &mut encoded);
    assert_eq!(encoded.len(), len);
    assert!(plan(len).is_ok());
}
