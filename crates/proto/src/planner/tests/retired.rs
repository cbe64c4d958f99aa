//! Plans in retired forms.

use super::*;
use crate::AlignmentBase;
use crate::retired::plan::{AlignmentRules, CallForms, ReplyForms};

proptest! {
    /// However a reply is exposed, with Write chunks or without, its receiver reads the same message.
    #[test]
    fn an_exposed_reply_reassembles_exactly(
        message in any_message(),
        offered in prop::collection::vec(prop_oneof![Just(0_u32), 6000_u32..9000], 0..4),
        max_segment_len in 400_usize..4000,
        max_read_chunks in 0_usize..4,
    ) {
        let lists = ChunkLists {
            write: offered.iter().map(|len| if *len == 0 { WriteChunk::default() } else { chunk(&[*len]) }).collect(),
            ..ChunkLists::default()
        };
        let expose = ChunkRules { max_segment_len, max_segments: 64, max_read_chunks, ..RULES };
        let input = ReplyInput {
            codec: &V1, message: &message, flavor_touches_data: false, send: 1024, offered: &lists,
        };
        // The header may be too long.
        let Ok(plan) = ReplyForms(expose).plan_reply(&input) else { return Ok(()) };
        let shape = Shape { read_segments: segments(&plan.read), ..plan.lists.shape(Direction::Reply) };
        prop_assert!(V1.header_len(&shape) + plan.rest.of(&message).len() <= 1024);
        let returned = offered.iter().enumerate().map(|(index, len)| {
            let data = plan.placed.iter().find(|(at, _)| *at == index).map(|(_, data)| data.clone());
            match len {
                0 => ReturnedChunk::Empty,
                _ => ReturnedChunk::Filled { data: data.unwrap_or_default().into(), offered: usize::try_from(*len).unwrap() },
            }
        });
        let mut read: Vec<ReadChunk> = plan.read.iter().map(|chunk| {
            ReadChunk { position: chunk.position, data: chunk.segments.concat().into() }
        }).collect();
        let zero = read.first().is_some_and(|chunk| chunk.position == 0).then(|| read.remove(0).data);
        let base = zero.unwrap_or_else(|| plan.rest.of(&message).flatten().0.into());
        check_decodes(&message, Decoder::with_write_chunks(base, returned.collect()).and_read_chunks(read));
    }

    /// However a Call is aligned, its receiver reads the same message from the header's two words.
    #[test]
    fn an_aligned_call_reads_the_same(
        message in any_message(),
        align in 1_u32..300,
        threshold in 0_usize..1500,
        payload_base in any::<bool>(),
    ) {
        let base = if payload_base { AlignmentBase::Payload } else { AlignmentBase::Send };
        let forms = CallForms { withhold: false, alignment: Some(AlignmentRules { align, threshold, base }) };
        let plan = forms.plan_call(&CallInput {
            codec: &V1,
            message: &message,
            flavor_touches_data: false,
            send: 4096,
            receive: 1024,
            reply_max: 10,
            sinks: &[],
            chunks: ChunkRules { max_segments: 64, ..RULES },
        });
        let Ok(CallPlan { route: Route::Padded { align, threshold }, inline, .. }) = plan else { return Ok(()) };
        let inline = inline.of(&message);
        prop_assert!(36 + inline.len() <= 4096);
        let wide = |word| usize::try_from(word).unwrap();
        let before = if payload_base { 0 } else { 36 };
        let padding = rpcrdma_xdr::Padding { align: wide(align), threshold: wide(threshold), before };
        check_decodes(&message, Decoder::new(inline.flatten().0).skip_padding(padding));
    }
}

/// RFC 5666 §3.8, §5.2: offered chunks are filled first; then eligible results are exposed, largest first; then the
/// whole reply.
#[test]
fn rfc5666_3_8_how_a_reply_is_exposed() {
    type Row = (Form, Vec<(u32, usize)>, usize, usize);
    type Line<'a> = (&'a str, Stream, &'a ChunkLists, bool, Option<ChunkRules>, Row);
    let plan = |message: &Stream, offered: &ChunkLists, touches, rules| {
        let input = ReplyInput { codec: &V1, message, flavor_touches_data: touches, send: 1024, offered };
        let planned = match rules {
            Some(rules) => ReplyForms(rules).plan_reply(&input),
            None => plan_reply(&input),
        };
        planned.map(|plan| {
            let read: Vec<_> = plan
                .read
                .iter()
                .map(|chunk| (chunk.position, chunk.segments.iter().map(Bytes::len).sum::<usize>()))
                .collect();
            assert_eq!(plan.exposed(), read.iter().map(|(_, len)| len).sum::<usize>());
            let placed = plan.placed.iter().map(|(_, data)| data.len()).sum();
            (plan.form(), read, plan.rest.of(message).len(), placed)
        })
    };
    let none = ChunkLists::default();
    let write = offer_of(&[&[6000]], None);
    let small = offer_of(&[], Some(&[500]));
    let both = offer_of(&[], Some(&[9000]));
    let one = Some(ChunkRules { max_read_chunks: 1, ..RULES });
    let table: Vec<Line<'_>> = vec![
        ("inline", stream(96, &[(800, true)]), &none, false, Some(RULES), (Form::Inline, vec![], 900, 0)),
        (
            "an eligible result",
            stream(96, &[(5001, true)]),
            &none,
            false,
            Some(RULES),
            (Form::Reduced, vec![(96, 5001)], 100, 0),
        ),
        (
            "the largest ones",
            stream(96, &[(300, true), (2000, true), (3001, true)]),
            &none,
            false,
            Some(RULES),
            (Form::Reduced, vec![(400, 2000), (2404, 3001)], 408, 0),
        ),
        (
            "results of any length",
            stream(96, &[(1, true), (5001, true)]),
            &none,
            false,
            Some(RULES),
            (Form::Reduced, vec![(96, 1), (104, 5001)], 104, 0),
        ),
        (
            "a rest that fills the Send",
            stream(968, &[(5001, true)]),
            &none,
            false,
            Some(RULES),
            (Form::Reduced, vec![(968, 5001)], 972, 0),
        ),
        (
            "what is not eligible, whole",
            stream(96, &[(5001, false)]),
            &none,
            false,
            Some(RULES),
            (Form::Long, vec![(0, 5104)], 0, 0),
        ),
        (
            "both",
            stream(96, &[(5001, true), (3001, false)]),
            &none,
            false,
            Some(RULES),
            (Form::Long, vec![(0, 3108), (96, 5001)], 0, 0),
        ),
        (
            "no more chunks than may be",
            stream(96, &[(5001, true), (3001, true)]),
            &none,
            false,
            one,
            (Form::Long, vec![(0, 3108), (96, 5001)], 0, 0),
        ),
        (
            "the flavour touches the data",
            stream(96, &[(5001, true)]),
            &none,
            true,
            Some(RULES),
            (Form::Long, vec![(0, 5104)], 0, 0),
        ),
        (
            "a Write chunk for the first, none for the second",
            stream(96, &[(5001, true), (3001, true)]),
            &write,
            false,
            Some(RULES),
            (Form::Reduced, vec![(5104, 3001)], 104, 5001),
        ),
        (
            "a Reply chunk that is too small",
            stream(96, &[(5001, false)]),
            &small,
            false,
            Some(RULES),
            (Form::Long, vec![(0, 5104)], 0, 0),
        ),
        (
            "a Reply chunk that is not",
            stream(96, &[(5001, true)]),
            &both,
            false,
            Some(RULES),
            (Form::Long, vec![], 5104, 0),
        ),
    ];
    for (name, message, offered, touches, rules, expected) in table {
        assert_eq!(plan(&message, offered, touches, rules), Ok(expected), "{name}");
        let refused = plan(&message, offered, touches, None);
        assert_eq!(
            refused.is_err(),
            !plan(&message, offered, touches, rules).unwrap().1.is_empty(),
            "{name}"
        );
    }
    let tiny = Some(ChunkRules { max_segment_len: 1, ..RULES });
    let refused = plan(&stream(96, &[(5001, true)]), &none, false, tiny);
    assert_eq!(refused, Err(ProtocolError::ReplyTooLong { len: 5104, inline: 996, reply_chunk: 0 }));
}

/// Form, `rdma_align` and `rdma_thresh`, and the offsets of the items in the Send.
#[test]
fn rfc5666_3_9_how_opaque_data_is_aligned() {
    let plan = |message: &Stream, touches, threshold, base, align| {
        let forms = CallForms { withhold: false, alignment: Some(AlignmentRules { align, threshold, base }) };
        let plan = forms
            .plan_call(&CallInput {
                codec: &V1,
                message,
                flavor_touches_data: touches,
                send: 1024,
                receive: 1024,
                reply_max: 100,
                sinks: &[],
                chunks: ChunkRules { reduce_from: Some(100), ..RULES },
            })
            .unwrap();
        let padding = match plan.route {
            Route::Padded { align, threshold } => Some((align, threshold)),
            _ => None,
        };
        let header = if padding.is_some() { 36 } else { 28 };
        let mut at = header;
        let mut items = vec![];
        for piece in plan.inline.of(message).pieces() {
            if matches!(piece, Piece::Payload { .. }) {
                items.push(at);
            }
            at += piece.len();
        }
        assert!(at <= 1024);
        (plan.form(), padding, items)
    };
    let two = stream(40, &[(200, true), (101, false)]);
    let send = AlignmentBase::Send;
    let aligned = |threshold, items: &[usize]| (Form::Padded, Some((64, threshold)), items.to_vec());
    // 36 + 40 = 76, so 128; 128 + 200 + 4 = 332, so 384.
    assert_eq!(plan(&two, false, 0, send, 64), aligned(40, &[128, 384]));
    assert_eq!(plan(&two, false, 101, send, 64), aligned(101, &[128, 384]));
    assert_eq!(plan(&two, false, 102, send, 64), aligned(102, &[128, 332]));
    // The XID is at offset 36, and 100 is a multiple of 64 from there.
    assert_eq!(plan(&two, false, 0, AlignmentBase::Payload, 64), aligned(40, &[100, 356]));
    let plain = |form| (form, None, if form == Form::Inline { vec![68, 272] } else { vec![72] });
    assert_eq!(plan(&two, false, 201, send, 64), plain(Form::Reduced), "nothing is long enough");
    assert_eq!(plan(&two, true, 0, send, 64), plain(Form::Inline), "the flavour touches the data");
    assert_eq!(plan(&two, false, 0, send, 1024), plain(Form::Reduced), "no room for the pad");
    assert_eq!(plan(&two, false, 0, send, 1 << 31), plain(Form::Reduced), "nothing of that length is made");
    // 36 + 40 = 76, so 512; 512 + 508 + 4 = 1024.
    let full = stream(40, &[(508, true)]);
    assert_eq!(plan(&full, false, 0, send, 512), (Form::Padded, Some((512, 40)), vec![512]));
    assert_eq!(
        plan(&stream(40, &[(512, true)]), false, 0, send, 512).0,
        Form::Reduced,
        "four bytes too many"
    );
    // Items that could lie within an inline run are shorter than the threshold.
    let long_run = stream(300, &[(200, true)]);
    assert_eq!(plan(&long_run, false, 0, send, 64).0, Form::Reduced);
}

/// RFC 5666 §5.1: the header with the Read list of a whole reply may fill the Send, and never exceeds it.
#[test]
fn rfc5666_5_1_the_read_list_of_a_whole_reply_fits_one_send() {
    let (message, none) = (stream(96, &[(5001, false)]), ChunkLists::default());
    let plan = |send| {
        let input =
            ReplyInput { codec: &V1, message: &message, flavor_touches_data: false, send, offered: &none };
        ReplyForms(ChunkRules { max_segment_len: 1000, ..RULES }).plan_reply(&input)
    };
    let read_segments = segments(&plan(1024).unwrap().read);
    let header = V1.header_len(&Shape { read_segments, ..none.shape(Direction::Reply) });
    let plan = [header, header - 1].map(|send| plan(send).map(|plan| plan.form()));
    assert_eq!(plan[0], Ok(Form::Long));
    assert!(matches!(plan[1], Err(ProtocolError::ReplyTooLong { .. })));
}
