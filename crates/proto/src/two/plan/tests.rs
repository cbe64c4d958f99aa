//! Messages in transmission groups (rtrext-02): lengths and limits at which another way is chosen.

use super::*;
use crate::message::Form;
use crate::wire::two::Profile;
use crate::wire::two::transmission::{BufferStructure, PlacementType};

const RULES: ChunkRules = ChunkRules {
    allowed: true,
    read: true,
    reduce_from: None,
    max_segment_len: 1 << 30,
    max_segments: 16,
    max_read_chunks: 2,
};

const PROFILES: [Profile; 2] = [Profile::P1, Profile::P2];
/// Bytes of a Receive before its segment for items, and bytes of that segment.
const HEAD: usize = 1024;
const SEGMENT: usize = 4096;

/// A message of `head` bytes, then DDP-eligible items with four bytes after each.
fn stream(head: usize, items: &[usize]) -> Stream {
    let inline = |len| Piece::Inline(Bytes::from(vec![0; len]));
    let mut stream = Stream::new();
    stream.push(inline(head));
    for len in items {
        stream.push(Piece::Payload { data: vec![0; *len].into(), ddp_eligible: true });
        stream.push(inline(4));
    }
    stream
}

/// Receives with one segment for items.
fn targets() -> Targets {
    Targets::of(&BufferStructure::behind_head(1024, 1, 4096)).unwrap()
}

const fn groups() -> CallGroups<'static> {
    CallGroups {
        sends: 4,
        reply_sends: 4,
        theirs: None,
        ours: None,
        directs: true,
        asked: ReplyPlacement::Targets,
        place_from: 1024,
        spread_up_to: usize::MAX,
        reply_len: usize::MAX,
    }
}

/// A small Call and a small reply; thresholds of [`HEAD`] bytes.
const fn input<'a>(profile: Profile, message: &'a Stream, sinks: &'a [usize]) -> CallInput<'a> {
    CallInput {
        codec: profile.codec(),
        message,
        flavor_touches_data: false,
        send: HEAD,
        receive: HEAD,
        reply_max: 100,
        sinks,
        chunks: RULES,
    }
}

fn plan_in(input: &CallInput<'_>, groups: CallGroups<'_>) -> Result<CallPlan, Refusal> {
    let options =
        CallOptions { continued: 1, continued_reply: 1, continued_reply_len: 0, groups: Some(groups) };
    options.plan_call(input)
}

fn plan(input: &CallInput<'_>, groups: CallGroups<'_>) -> CallPlan {
    plan_in(input, groups).unwrap()
}

/// The first operation of a group.
fn lead(route: &Route) -> Option<&Operation> {
    match route {
        Route::Sends(arrangement) => arrangement.lead.as_deref(),
        _ => None,
    }
}

/// The directions of a Call in a group for the items of its reply; `None` for a Call without a group.
fn directions(plan: &CallPlan) -> Option<Vec<PlacementType>> {
    match lead(&plan.route)? {
        Operation::Request(TransmitRequest { response, .. }) => {
            let all = response.iter().flat_map(|ResponseSet { directions, .. }| directions);
            Some(all.map(|direction| direction.location.placement()).collect())
        }
        other => panic!("{other:?}"),
    }
}

/// Bytes of the header of a reply with items in these locations.
fn response(locations: &[Location]) -> usize {
    let item = |location: &Location| PlacedItem { displacement: 0, length: 0, location: location.clone() };
    let placed = locations.iter().map(item).collect();
    operation_len(&Operation::Response(TransmitResponse { placed, count: 1, payload_len: 0 }))
}

/// Bytes of the header of a later transmission.
fn later_header() -> usize {
    let later = TransmitContinuation { number: 1, initial_type: 0, payload_len: 0 };
    operation_len(&Operation::Continuation(later))
}

fn in_receives(segments: u32) -> Location {
    Location::Targets { offset: 0, segments: (0..segments).collect() }
}

fn in_memory(segments: usize) -> Location {
    Location::Explicit(vec![Segment { handle: 0, length: 4096, offset: 0 }; segments])
}

/// rtrext-02 §7.2: an item lies behind header and Payload, so the header's length decides about its segment.
#[test]
fn rtrext_s7_2_header_and_payload_of_a_call_end_before_its_item() {
    let theirs = targets();
    for profile in PROFILES {
        let placed = vec![PlacedItem { displacement: 0, length: 0, location: in_receives(1) }];
        let request =
            TransmitRequest { placed, response: vec![], count: 1, response_buffers: 1, payload_len: 0 };
        // Four bytes follow the item.
        let most = HEAD - operation_len(&Operation::Request(request)) - 4;
        for (head, sends) in [(most, 1), (most + 4, 2)] {
            let message = stream(head, &[2000]);
            let plan = plan(&input(profile, &message, &[]), CallGroups { theirs: Some(&theirs), ..groups() });
            assert_eq!((plan.form(), plan.route.sends()), (Form::Placed, sends), "{head}");
        }
    }
}

/// RFC 8166 §8.2.2.3: an item that the security flavour touches stays in the Payload stream.
// requirement: rfc8166-8.2.2.3-1, v2-07-11.2.2.3-1
#[test]
fn rtrext_s7_no_item_is_placed_if_the_flavour_touches_the_data() {
    let both = targets();
    for profile in PROFILES {
        let message = stream(100, &[2000]);
        let groups = CallGroups { theirs: Some(&both), ours: Some(&both), reply_sends: 9, ..groups() };
        // Receives with segments for items hold the whole message.
        for (touches, form, directed) in [(false, Form::Placed, 1), (true, Form::Inline, 0)] {
            let input = CallInput { flavor_touches_data: touches, ..input(profile, &message, &[4096]) };
            let plan = plan(&input, groups);
            assert_eq!(plan.form(), form);
            assert_eq!(directions(&plan).unwrap().len(), directed, "{touches}");
        }
    }
}

/// A provider may copy what Sends carry. A long item lies in one Receive, or takes explicit RDMA.
#[test]
fn a_long_item_is_placed_in_one_receive_and_not_in_two() {
    let theirs = targets();
    for profile in PROFILES {
        for (len, most, form) in [
            (SEGMENT, SEGMENT - 1, Form::Placed),
            (SEGMENT + 1, SEGMENT + 1, Form::Placed),
            (SEGMENT + 1, SEGMENT, Form::Reduced),
        ] {
            let message = stream(100, &[len]);
            let groups = CallGroups { theirs: Some(&theirs), spread_up_to: most, ..groups() };
            assert_eq!(plan(&input(profile, &message, &[]), groups).form(), form, "{len} {most}");
        }
    }
}

/// A reply that fits inline needs no group. A longer one takes as few Receives as carry it, up to the limit on its length.
#[test]
fn rtrext_s4_3_a_reply_takes_as_many_receives_as_it_can_fill() {
    let message = stream(100, &[]);
    for profile in PROFILES {
        let plain = profile.codec().header_len(&Shape { direction: Direction::Reply, ..Shape::default() });
        let two = HEAD - response(&[]) + HEAD - later_header();
        let with = |reply_max, reply_len| {
            let input = CallInput { reply_max, ..input(profile, &message, &[]) };
            let plan = plan(&input, CallGroups { reply_len, ..groups() });
            (plan.form(), lead(&plan.route).is_some(), plan.reply_sends, plan.reply.is_some())
        };
        assert_eq!(with(HEAD - plain, usize::MAX), (Form::Inline, false, 1, false), "{plain}");
        assert_eq!(with(HEAD - plain + 4, usize::MAX), (Form::Inline, true, 2, false), "{plain}");
        assert_eq!(with(two, usize::MAX), (Form::Inline, true, 2, false));
        assert_eq!(with(two + 4, usize::MAX), (Form::Inline, true, 3, false));
        assert_eq!(with(two, two), (Form::Inline, true, 2, false));
        assert_eq!(with(two, two - 4), (Form::Inline, false, 1, true), "beyond our limit: a Reply chunk");
    }
}

/// A result that never has bytes needs no memory, as without groups (RFC 8166 §4.3.2).
#[test]
fn rtrext_s7_4_a_result_without_bytes_gets_no_memory() {
    let (message, ours) = (stream(100, &[]), targets());
    for profile in PROFILES {
        let alone = CallInput { reply_max: 1500, ..input(profile, &message, &[0]) };
        let planned = plan(&alone, groups());
        assert_eq!((directions(&planned), planned.reply_sends), (Some(vec![]), 2));
        assert!(planned.write.is_empty(), "{:?}", planned.write);
        // Beside a placed result it takes no segment.
        let planned =
            plan(&input(profile, &message, &[0, 2000]), CallGroups { ours: Some(&ours), ..groups() });
        assert_eq!(directions(&planned), Some(vec![PlacementType::Targets; 2]));
        assert!(planned.write.is_empty(), "{:?}", planned.write);
    }
}

/// RFC 8167 §5.3: without chunks a Call offers no memory. rtrext-02 §5.3: nor by directions to a peer that follows none.
#[test]
fn rtrext_s5_3_memory_is_offered_only_where_that_is_allowed() {
    let message = stream(100, &[]);
    for profile in PROFILES {
        let with = |allowed, directs| {
            let chunks = ChunkRules { allowed, ..RULES };
            let input = CallInput { reply_max: 1500, chunks, ..input(profile, &message, &[3000]) };
            plan_in(&input, CallGroups { directs, ..groups() })
        };
        assert_eq!(directions(&with(true, true).unwrap()), Some(vec![PlacementType::Explicit]));
        for directs in [false, true] {
            assert!(matches!(with(false, directs), Err(Refusal::ReplyTooLong { .. })), "{directs}");
        }
        let plain = with(true, false).unwrap();
        assert_eq!((directions(&plain), plain.write), (None, vec![vec![3000]]));
    }
}

/// The header and the Payload of a reply end before its item, in either of the item's two descriptions. Otherwise the item
/// takes the segment of a further Receive.
#[test]
fn rtrext_s7_4_receives_suffice_for_the_longest_header_of_a_reply() {
    let (message, ours) = (stream(100, &[]), targets());
    let sends = |profile, asked, sinks: &[usize], reply_max| {
        let chunks = ChunkRules { max_segment_len: SEGMENT, ..RULES };
        let input = CallInput { reply_max, chunks, ..input(profile, &message, sinks) };
        plan(&input, CallGroups { ours: Some(&ours), asked, ..groups() }).reply_sends
    };
    use ReplyPlacement::{Choice, Targets};
    for profile in PROFILES {
        for (asked, len, receives, longest) in [
            (Targets, 2000, 1, in_receives(1)),
            (Targets, 3 * SEGMENT, 3, in_receives(3)),
            (Choice, 2000, 1, in_memory(1)),
            (Choice, 3 * SEGMENT, 3, in_memory(3)),
        ] {
            let most = HEAD - response(&[longest]);
            assert_eq!(sends(profile, asked, &[len], most), receives, "{asked:?} {len}");
            assert_eq!(sends(profile, asked, &[len], most + 4), receives + 1, "{asked:?} {len}");
        }
        // A result without bytes is described like any short one.
        let most = HEAD - response(&[in_receives(1), in_memory(3)]);
        assert_eq!(sends(profile, Choice, &[0, 3 * SEGMENT], most), 3);
    }
}

/// Rule I6: the limit on the length of a message in several Sends holds for items in Receives too.
#[test]
fn i6_items_of_a_reply_in_several_receives_are_bounded() {
    let (message, ours) = (stream(100, &[]), targets());
    for profile in PROFILES {
        // The longest reply: 100 bytes, an item in Receives, and at most `place_from` bytes of an item that is not.
        let longest = |len| 100 + len + groups().place_from;
        let (short, long) = (2000, 3 * SEGMENT);
        for (len, reply_len, asked) in [
            (short, 0, PlacementType::Targets),
            (long, longest(long), PlacementType::Targets),
            (long, longest(long) + 4, PlacementType::Targets),
            (long, long, PlacementType::Explicit),
            (long, 0, PlacementType::Explicit),
        ] {
            let sinks = [len];
            let input = input(profile, &message, &sinks);
            let plan = plan(&input, CallGroups { ours: Some(&ours), reply_len, ..groups() });
            // Without another gain, memory is offered by a plain Call.
            let seen = directions(&plan).map_or(PlacementType::Explicit, |all| all[0]);
            assert_eq!(
                (seen, plan.write.is_empty()),
                (asked, asked == PlacementType::Targets),
                "{reply_len}"
            );
        }
    }
}

/// The plan of a reply to a Call with this direction for its item.
fn answer(
    profile: Profile,
    message: &Stream,
    directions: &[ResponseDirection],
    groups: ReplyGroups<'_>,
) -> Result<ReplyPlan, ProtocolError> {
    let options = ReplyOptions { continued: 1, groups: Some(ReplyGroups { directions, ..groups }) };
    options.plan_reply(&ReplyInput {
        codec: profile.codec(),
        message,
        flavor_touches_data: false,
        send: HEAD,
        offered: &ChunkLists::default(),
    })
}

#[test]
fn rtrext_s4_3_a_reply_of_exactly_the_threshold_is_a_plain_message() {
    for profile in PROFILES {
        let plain = profile.codec().header_len(&Shape { direction: Direction::Reply, ..Shape::default() });
        for (len, sends) in [(HEAD - plain, None), (HEAD - plain + 4, Some(2))] {
            let groups = ReplyGroups { sends: 4, places: true, directions: &[], theirs: None };
            let plan = answer(profile, &stream(len, &[]), &[], groups).unwrap();
            assert_eq!(lead(&plan.route).map(|_| plan.route.sends()), sends, "{len}");
        }
    }
}

/// rtrext-02 §6.2, §7.4: what a Responder does with an item of this length.
#[test]
fn rtrext_s7_4_a_direction_its_threshold_and_its_least_length() {
    let theirs = targets();
    let memory = |length| vec![Segment { handle: 7, length, offset: 0 }];
    let to = |least_len, location| ResponseDirection { least_len, location };
    let by_size = |threshold| ResponseLocation::BySize { threshold, segments: memory(9000) };
    for profile in PROFILES {
        let got = |len, direction: ResponseDirection, sends, places| {
            let groups = ReplyGroups { sends, places, directions: &[], theirs: Some(&theirs) };
            let plan = answer(profile, &stream(24, &[len]), &[direction], groups)?;
            match lead(&plan.route) {
                Some(Operation::Response(TransmitResponse { placed, .. })) => {
                    Ok(placed[0].location.placement())
                }
                other => panic!("{other:?}"),
            }
        };
        use PlacementType::{Explicit, Targets, TooShort};
        for (len, direction, sends, places, expected) in [
            // Items of at least the threshold go by explicit RDMA.
            (499, to(0, by_size(500)), 1, true, Targets),
            (500, to(0, by_size(500)), 1, true, Explicit),
            // Items of the least length are not too short.
            (499, to(500, ResponseLocation::Targets), 1, true, TooShort),
            (500, to(500, ResponseLocation::Targets), 1, true, Targets),
            // A Responder that does not place, or has too few Sends, uses the memory if it may choose.
            (500, to(0, ResponseLocation::Targets), 1, false, TooShort),
            (500, to(0, ResponseLocation::Choice(memory(500))), 1, false, Explicit),
            (9000, to(0, ResponseLocation::Choice(memory(9000))), 3, true, Targets),
            (9000, to(0, ResponseLocation::Choice(memory(9000))), 1, true, Explicit),
        ] {
            assert_eq!(got(len, direction.clone(), sends, places), Ok(expected), "{len} {direction:?}");
        }
        // RFC 8166 §4.5.3: more data than the memory holds is never written.
        let short = to(0, ResponseLocation::Explicit(memory(499)));
        let error = ProtocolError::WriteChunkTooSmall { chunk: 0, len: 500, capacity: 499 };
        assert_eq!(got(500, short, 1, true), Err(error));
    }
}

/// Whether the item of a Call to a Responder with segments is placed.
fn is_placed(profile: Profile, message: &Stream, place_from: usize) -> bool {
    let theirs = targets();
    plan(&input(profile, message, &[]), CallGroups { theirs: Some(&theirs), place_from, ..groups() }).form()
        == Form::Placed
}

/// rtrext-02 §7.3, RFC 8166 §3.4.5: an item is placed from its least length on, with at least one byte, and only if it begins
/// at a multiple of four.
#[test]
fn rtrext_s7_3_an_item_that_is_placed_has_its_least_length() {
    for profile in PROFILES {
        for (place_from, len, placed) in [
            (1024, 1000, false),
            (1024, 1024, true),
            (0, 0, false),
            (0, 1, true),
            (1, 1, true),
            (2, 1, false),
        ] {
            assert_eq!(is_placed(profile, &stream(100, &[len]), place_from), placed, "{place_from} {len}");
        }
        assert!(!is_placed(profile, &stream(102, &[2000]), 1024), "its Position is no multiple of four");
        let (theirs, empty) = (targets(), stream(100, &[0]));
        let groups = CallGroups { theirs: Some(&theirs), place_from: 0, ..groups() };
        assert!(lead(&plan(&input(profile, &empty, &[]), groups).route).is_none(), "nothing is placed");
    }
}

/// A Call that fits keeps its items, even if it leaves in a group for its reply. Otherwise an item without a segment at the
/// Responder has a Read chunk, within the settings for chunks.
#[test]
fn rtrext_s4_2_items_of_a_group_without_segments_have_read_chunks() {
    for profile in PROFILES {
        let message = stream(100, &[600]);
        let fits = plan(&CallInput { reply_max: 1500, ..input(profile, &message, &[]) }, groups());
        assert!(lead(&fits.route).is_some());
        assert_eq!((fits.form(), fits.read.len(), fits.reply_sends), (Form::Inline, 0, 2));
        let message = stream(2000, &[3000]);
        let chunks = ChunkRules { max_segment_len: 1100, ..RULES };
        let planned = plan(&CallInput { chunks, ..input(profile, &message, &[]) }, groups());
        let Some(Operation::Request(TransmitRequest { placed, .. })) = lead(&planned.route) else {
            panic!("{:?}", planned.route)
        };
        assert_eq!(placed[0].location.placement(), PlacementType::Explicit);
        let lengths: Vec<_> = planned.read[0].segments.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [1100, 1100, 800]);
        // The longest segment of a chunk does not cut an item in a Receive.
        let theirs = targets();
        let message = stream(100, &[3000]);
        let planned = plan(
            &CallInput { chunks, ..input(profile, &message, &[]) },
            CallGroups { theirs: Some(&theirs), ..groups() },
        );
        let Some(Operation::Request(TransmitRequest { placed, response_buffers, .. })) = lead(&planned.route)
        else {
            panic!("{:?}", planned.route)
        };
        assert_eq!((placed.len(), placed[0].length, planned.read.len()), (1, 3000, 0));
        assert_eq!((&placed[0].location, planned.route.sends()), (&in_receives(1), 1));
        assert_eq!((*response_buffers, planned.reply_sends), (1, 1), "a short reply takes one Receive");
    }
}

/// rtrext-02 §7.4: results are placed from their least length on, in Receives that have segments. One byte of a result is
/// enough for memory.
#[test]
fn rtrext_s7_4_a_result_that_is_placed_has_its_least_length() {
    let (message, ours) = (stream(100, &[]), targets());
    use ReplyPlacement::{BySize, Targets};
    for profile in PROFILES {
        let with = |place_from, sink, ours, asked, reply_max| {
            let sinks = [sink];
            let input = CallInput { reply_max, ..input(profile, &message, &sinks) };
            directions(&plan(&input, CallGroups { ours, asked, place_from, ..groups() }))
        };
        assert_eq!(with(1024, 800, Some(&ours), Targets, 100), None, "it fits, and is too short");
        assert_eq!(with(800, 800, Some(&ours), Targets, 100), Some(vec![PlacementType::Targets]));
        assert_eq!(with(0, 1, Some(&ours), Targets, 100), Some(vec![PlacementType::Targets]));
        let explicit = Some(vec![PlacementType::Explicit]);
        assert_eq!(with(1024, 3000, None, BySize(1), 1500), explicit, "there are no segments");
        assert_eq!(with(1024, 1, None, Targets, 1500), explicit);
    }
}

/// The direction of the first item, and the Receives for the reply.
fn first_direction(plan: &CallPlan) -> (ResponseDirection, usize) {
    let Some(Operation::Request(TransmitRequest { response, .. })) = lead(&plan.route) else {
        panic!("{:?}", plan.route)
    };
    (response[0].directions[0].clone(), plan.reply_sends)
}

/// rtrext-02 §6.2, §7.4: of items with a threshold, those below it lie in Receives. The least length is at least one byte; in
/// memory an item may have any length.
#[test]
fn rtrext_s7_4_receives_are_for_items_below_the_threshold() {
    let (message, ours) = (stream(100, &[]), targets());
    let segment = u32::try_from(SEGMENT).unwrap();
    for profile in PROFILES {
        let with = |asked, sinks: &[usize], place_from, reply_max| {
            let input = CallInput { reply_max, ..input(profile, &message, sinks) };
            first_direction(&plan(
                &input,
                CallGroups { ours: Some(&ours), asked, place_from, reply_sends: 9, ..groups() },
            ))
        };
        for (threshold, receives) in [(segment + 1, 1), (segment + 2, 2)] {
            let (direction, sends) = with(ReplyPlacement::BySize(threshold), &[3 * SEGMENT], 1024, 100);
            assert_eq!(
                (direction.location.placement(), sends),
                (PlacementType::BySize, receives),
                "{threshold}"
            );
        }
        for (place_from, least) in [(0, 1), (1, 1), (2, 2)] {
            assert_eq!(with(ReplyPlacement::Targets, &[3000], place_from, 100).0.least_len, least);
        }
        // Of each item, the Payload stream has as much as may be too short for placement. A short one is described like the
        // others, and lies in a segment of its own.
        for short in [1, 4] {
            let most = HEAD - response(&[in_receives(1), in_receives(3)]) - 4 - 100;
            for (reply_max, receives) in [(most, 4), (most + 4, 5)] {
                let sends = with(ReplyPlacement::Targets, &[short, 3 * SEGMENT], 100, reply_max).1;
                assert_eq!(sends, receives, "{short} {reply_max}");
            }
        }
        let explicit = CallInput { reply_max: 1500, ..input(profile, &message, &[3000]) };
        assert_eq!(first_direction(&plan(&explicit, groups())).0.least_len, 0);
    }
}

/// Rules I3, I6: a reply of several Receives is bounded by our limit, a reply of one is not. Receives suffice for Sends of the
/// default size, however long ours are.
#[test]
fn i3_receives_suffice_for_sends_of_the_default_size() {
    let (message, ours, theirs) = (stream(100, &[]), targets(), targets());
    for profile in PROFILES {
        let two = [2 * SEGMENT];
        let input = |sinks| input(profile, &message, sinks);
        let planned = plan(&input(&two), CallGroups { ours: Some(&ours), reply_len: 0, ..groups() });
        assert!(!planned.write.is_empty(), "two Receives are beyond the limit");
        let placed = stream(100, &[2000]);
        let one = CallInput { message: &placed, ..input(&[3000]) };
        let planned = plan(&one, CallGroups { theirs: Some(&theirs), reply_len: 0, ..groups() });
        assert_eq!(directions(&planned), Some(vec![PlacementType::Explicit]), "one Receive is not");
        let least = profile.codec().rules().default_inline;
        let long = CallInput { reply_max: 4 * least, receive: 3 * least, ..input(&[]) };
        assert_eq!(plan(&long, CallGroups { reply_sends: 9, ..groups() }).reply_sends, 5);
    }
}

/// RFC 8166 §8.2.2.3: a reply whose flavour touches the data places no item, whatever the Call directs.
// requirement: rfc8166-8.2.2.3-1, v2-07-11.2.2.3-1
#[test]
fn s8_2_2_3_a_reply_that_the_flavour_touches_places_nothing() {
    let theirs = targets();
    let direction = ResponseDirection { least_len: 0, location: ResponseLocation::Targets };
    for profile in PROFILES {
        for (touches, placement) in [(false, PlacementType::Targets), (true, PlacementType::NoItem)] {
            let directions = std::slice::from_ref(&direction);
            let groups = ReplyGroups { sends: 1, places: true, directions, theirs: Some(&theirs) };
            let options = ReplyOptions { continued: 1, groups: Some(groups) };
            let message = stream(24, &[500]);
            let plan = options.plan_reply(&ReplyInput {
                codec: profile.codec(),
                message: &message,
                flavor_touches_data: touches,
                send: HEAD,
                offered: &ChunkLists::default(),
            });
            let plan = plan.unwrap();
            let Some(Operation::Response(TransmitResponse { placed, .. })) = lead(&plan.route) else {
                panic!("{:?}", plan.route)
            };
            assert_eq!(placed[0].location.placement(), placement);
            assert_eq!(plan.rest.of(&message).len(), if touches { 24 + 500 + 4 } else { 24 + 4 });
        }
    }
}

/// RFC 8166 §4.3.3: in P1 and P2, a reply behind its header returns the Reply chunk unused. P3 does not (version-two-07
/// §6.3.10).
#[test]
fn s4_3_3_an_inline_reply_returns_the_reply_chunk() {
    let chunk = WriteChunk { segments: vec![Segment { handle: 7, length: 500, offset: 0 }] };
    let offered = ChunkLists { reply: Some(chunk.clone()), ..ChunkLists::default() };
    for (profile, returned) in
        [(Profile::P1, Some(chunk.filled(0))), (Profile::P2, Some(chunk.filled(0))), (Profile::P3, None)]
    {
        let message = stream(24, &[]);
        let plan = ReplyOptions { continued: 1, groups: None }.plan_reply(&ReplyInput {
            codec: profile.codec(),
            message: &message,
            flavor_touches_data: false,
            send: HEAD,
            offered: &offered,
        });
        assert_eq!(plan.unwrap().lists.reply, returned, "{profile:?}");
    }
}
