use super::*;
use crate::wire::hex::hex;
use crate::wire::mpa::{FLAG_LARGE_FPDU, FrameView};

fn settings(private_data: &[u8], ird: u16, ord: u16) -> Settings {
    Settings { private_data: Bytes::copy_from_slice(private_data), ird, ord, ..Settings::default() }
}

/// Negotiates between both sides, with Request and Reply cut into single bytes.
fn negotiate(client: Settings, server: Settings) -> Result<(Negotiated, Negotiated), StartupError> {
    let (mut initiator, request) = Initiator::new(client)?;
    let mut responder = Responder::new();
    let mut seen = None;
    for byte in &request {
        assert!(seen.is_none());
        seen = responder.handle(std::slice::from_ref(byte))?;
    }
    let (request, behind) = seen.unwrap();
    assert!(behind.is_empty());
    let (reply, ours) = request.accept(&server)?;
    let mut seen = None;
    for byte in &reply {
        assert!(seen.is_none());
        seen = initiator.handle(std::slice::from_ref(byte))?;
    }
    let (theirs, _) = seen.unwrap();
    Ok((theirs, ours))
}

// requirement: rfc6581-9.1-1, rfc6581-9.1-2, rfc6581-9.1-3, rfc6581-9.1-5
#[test]
fn rfc6581_9_1_ird_and_ord_meet() {
    let (client, server) = negotiate(settings(b"client", 4, 100), settings(b"server", 16, 50)).unwrap();
    assert_eq!((client.role, server.role), (Role::Initiator, Role::Responder));
    assert_eq!((client.ird, client.ord), (4, 16));
    assert_eq!((server.ird, server.ord), (16, 4));
    assert!(client.crc && server.crc && !client.markers && !server.markers);
    assert_eq!(&client.private_data[..], b"server");
    assert_eq!(&server.private_data[..], b"client");
}

/// RFC 6581 §9.1: 14 bits hold a depth, and all ones are none.
// requirement: rfc6581-9.1-9
#[test]
fn rfc6581_9_1_no_depth_is_beyond_14_bits() {
    let huge = settings(b"", u16::MAX, u16::MAX);
    let (_, request) = Initiator::new(huge.clone()).unwrap();
    let depths = |frame: &[u8]| FrameView::new(frame).enhanced().map(|enhanced| (enhanced.ird, enhanced.ord));
    assert_eq!(depths(&request), Some((MAX_DEPTH, MAX_DEPTH)));
    let open = hex("4d504120494420526571204672616d65 5002 0004 3fff3fff");
    let (request, _) = Responder::new().handle(&open).unwrap().unwrap();
    let (_, negotiated) = request.accept(&huge).unwrap();
    assert_eq!((negotiated.ird, negotiated.ord), (MAX_DEPTH, MAX_DEPTH));
    assert_eq!(depths(&request.reject(&huge, &Bytes::new()).unwrap()), Some((MAX_DEPTH, MAX_DEPTH)));
}

#[test]
fn linux_needs_an_ird_of_one() {
    let (_, request) = Initiator::new(settings(b"", 0, 0)).unwrap();
    let enhanced = FrameView::new(&request).enhanced().unwrap();
    assert_eq!((enhanced.ird, enhanced.ord), (1, 0));
}

// requirement: rfc6581-9.1-3, rfc6581-9.2-12
#[test]
fn the_reply_to_a_linux_client() {
    let request = hex("4d504120494420526571204672616d65 1002 000c 00800000 f6ab0e1801010303");
    let (request, behind) = Responder::new().handle(&request).unwrap().unwrap();
    assert!(behind.is_empty());
    let private_data = hex("f6ab0e1801010303");
    let (reply, negotiated) = request.accept(&settings(&private_data, 32, 32)).unwrap();
    assert_eq!(reply, hex("4d504120494420526570204672616d65 5002 000c 00000020 f6ab0e1801010303"));
    assert_eq!((negotiated.ird, negotiated.ord), (0, 32));
    assert!(negotiated.crc);
}

// requirement: rfc6581-9.1-9, rfc6581-9.1-10, rfc6581-9.1-11, rfc6581-9.1-12
#[test]
fn rfc6581_9_1_all_ones_leave_own_values() {
    let request = hex("4d504120494420526571204672616d65 5002 0004 3fff3fff");
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (reply, negotiated) = request.accept(&settings(b"", 7, 9)).unwrap();
    assert_eq!(FrameView::new(&reply).enhanced().unwrap().encode(), [0x3F, 0xFF, 0x3F, 0xFF]);
    assert_eq!((negotiated.ird, negotiated.ord), (7, 9));
    let (mut initiator, _) = Initiator::new(settings(b"", 7, 9)).unwrap();
    let (negotiated, _) = initiator.handle(&reply).unwrap().unwrap();
    assert_eq!((negotiated.ird, negotiated.ord), (7, 9));
}

// requirement: rfc6581-9.1-4, rfc6581-9.1-5, rfc6581-9.1-6
#[test]
fn rfc6581_9_1_a_responder_may_want_more_up_to_a_limit() {
    let reply = |ord: u16| {
        let mut reply = hex("4d504120494420526570204672616d65 1002 0004 0001");
        reply.extend_from_slice(&ord.to_be_bytes());
        reply
    };
    let handle = |ord| Initiator::new(settings(b"", 4, 4)).unwrap().0.handle(&reply(ord));
    assert_eq!(handle(128).unwrap().unwrap().0.ird, 128);
    // A smaller number leaves ours, except for a peer that makes no RDMA Reads at all.
    assert_eq!([2, 1, 0].map(|ord| handle(ord).unwrap().unwrap().0.ird), [4, 4, 0]);
    let error = handle(129).unwrap_err();
    assert_eq!(error, StartupError::InsufficientIrd { wanted: 129, limit: 128 });
    assert_eq!(error.last_words(), Some(cause::MPA_INSUFFICIENT_IRD));
}

// requirement: rfc5044-1.2-2, rfc5044-4.4-1, rfc5044-4.4-6, rfc5044-4.4-7, rfc5044-7.1.1-4, rfc5044-C.1-2
#[test]
fn rfc5044_4_4_crc_is_off_only_if_nobody_asks() {
    for (client, server) in [(false, false), (false, true), (true, false), (true, true)] {
        let (a, b) = negotiate(
            Settings { crc: client, ..Settings::default() },
            Settings { crc: server, ..Settings::default() },
        )
        .unwrap();
        assert_eq!((a.crc, b.crc), (client || server, client || server));
    }
    // The Reply says so, whatever the Initiator makes of it.
    let (_, request) = Initiator::new(Settings { crc: true, ..Settings::default() }).unwrap();
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (reply, _) = request.accept(&Settings { crc: false, ..Settings::default() }).unwrap();
    assert_eq!(FrameView::new(&reply).flags().unwrap() & 0x40, 0x40);
    // A Reply of another kind of peer, which repeats nothing of the Request.
    for (crc, flags) in [(false, "10"), (true, "10"), (false, "50")] {
        let reply = hex(&format!("4d504120494420526570204672616d65 {flags}02 0004 00080008"));
        let (mut initiator, _) = Initiator::new(Settings { crc, ..Settings::default() }).unwrap();
        assert_eq!(initiator.handle(&reply).unwrap().unwrap().0.crc, crc || flags == "50");
    }
}

// requirement: rfc6581-6-3, rfc6581-10-3
#[test]
fn rfc6581_6_revision_1_is_accepted_and_answered_in_kind() {
    let client =
        Settings { revision: Revision::One, private_data: Bytes::from_static(b"pd"), ..Settings::default() };
    let (client, server) = negotiate(client, settings(b"answer", 3, 5)).unwrap();
    // Nothing was negotiated: each side keeps its own values.
    assert_eq!((client.ird, client.ord, server.ird, server.ord), (32, 32, 3, 5));
    assert_eq!(&client.private_data[..], b"answer");
    // Revision 2 without S gets a plain Reply.
    let request = hex("4d504120494420526571204672616d65 4002 0000");
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (reply, _) = request.accept(&Settings::default()).unwrap();
    assert_eq!(reply, hex("4d504120494420526570204672616d65 4002 0000"));
}

// requirement: rfc6581-9.2-8
#[test]
fn rfc6581_9_2_ready_to_receive() {
    let ask = |send, write, read| Settings {
        peer_to_peer: Some(RtrSet { send, write, read }),
        ..Settings::default()
    };
    for (asked, rtr) in [
        (ask(true, true, true), Rtr::Write),
        (ask(true, false, true), Rtr::Read),
        (ask(true, false, false), Rtr::Send),
    ] {
        let (client, server) = negotiate(asked, Settings::default()).unwrap();
        assert_eq!((client.rtr, server.rtr), (Some(rtr), None));
    }
    // `siw` with peer_to_peer answers in this way.
    let reply = hex("4d504120494420526570204672616d65 5002 0004 80018080");
    let (mut initiator, _) = Initiator::new(ask(true, true, true)).unwrap();
    assert_eq!(initiator.handle(&reply).unwrap().unwrap().0.rtr, Some(Rtr::Write));
    let (mut initiator, _) = Initiator::new(ask(true, false, true)).unwrap();
    let error = initiator.handle(&reply).unwrap_err();
    assert_eq!(
        (&error, error.last_words()),
        (&StartupError::NoMatchingRtr, Some(cause::MPA_NO_MATCHING_RTR))
    );
    // The peer's Request: Reads become possible for a peer that wants none otherwise.
    let request = hex("4d504120494420526571204672616d65 1002 0004 8080c000");
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (reply, negotiated) = request.accept(&Settings::default()).unwrap();
    assert_eq!(FrameView::new(&reply).enhanced().unwrap().encode(), [0x80, 0x01, 0xC0, 0x20]);
    assert_eq!(negotiated.ird, 1);
}

// requirement: rfc5044-7.1.2-4, rfc6581-9.1-8
#[test]
fn rfc5044_7_1_2_rejection_carries_private_data() {
    let (mut initiator, request) = Initiator::new(settings(b"", 2, 2)).unwrap();
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let reply = request.reject(&settings(b"", 5, 6), &Bytes::from_static(b"not you")).unwrap();
    assert_eq!(reply[16], 0x70);
    let error = initiator.handle(&reply).unwrap_err();
    let enhanced = Some(Enhanced { peer_to_peer: None, ird: 5, ord: 6 });
    assert_eq!(error, StartupError::Rejected { private_data: Bytes::from_static(b"not you"), enhanced });
    assert_eq!(error.last_words(), None);
}

// requirement: rfc5044-7.1-1, rfc5044-7.1.2-7
#[test]
fn what_comes_behind_a_frame_is_kept() {
    let (mut initiator, mut request) = Initiator::new(settings(b"", 2, 2)).unwrap();
    request.extend_from_slice(b"first FPDU");
    let (request, behind) = Responder::new().handle(&request).unwrap().unwrap();
    assert_eq!(behind, b"first FPDU");
    let (mut reply, _) = request.accept(&Settings::default()).unwrap();
    reply.extend_from_slice(b"very early");
    let (_, behind) = initiator.handle(&reply).unwrap().unwrap();
    assert_eq!(behind, b"very early");
}

// requirement: rfc5044-4.3-1, rfc5044-7.1.1-2
#[test]
fn rfc5044_7_1_2_markers_are_inserted_when_the_peer_asks() {
    let request = hex("4d504120494420526571204672616d65 c001 0000");
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (reply, negotiated) = request.accept(&Settings::default()).unwrap();
    assert!(negotiated.markers);
    assert_eq!(reply[16] & 0x80, 0);
}

// requirement: rfc5044-7.1.1-8, rfc5044-7.1.2-15
#[test]
fn same_roles_and_bad_frames_end_the_set_up() {
    let (mut initiator, request) = Initiator::new(Settings::default()).unwrap();
    let role = FrameError::Role { seen: FrameKind::Request, due: FrameKind::Reply };
    assert_eq!(initiator.handle(&request), Err(StartupError::Frame(role)));
    let too_long = Settings { private_data: Bytes::from(vec![0; 509]), ..Settings::default() };
    assert!(matches!(Initiator::new(too_long), Err(FrameError::PrivateDataTooLong(513))));
}

#[test]
fn large_fpdus_need_both_sides() {
    use LargeFpdu::{Flagged, Never, Offered};
    for (client, server, agreed) in [
        (Never, Never, false),
        (Never, Offered, false),
        (Never, Flagged, false),
        (Offered, Never, false),
        (Flagged, Never, false),
        (Offered, Offered, true),
        (Offered, Flagged, true),
        (Flagged, Offered, true),
        (Flagged, Flagged, true),
    ] {
        let side = |large_fpdu| Settings { large_fpdu, ..settings(b"data", 4, 4) };
        let (client, server) = negotiate(side(client), side(server)).unwrap();
        assert_eq!(client.large_fpdu, agreed.then_some(u16::MAX), "{client:?}");
        assert_eq!(server.large_fpdu, client.large_fpdu, "{server:?}");
        // The ULP never sees the offer.
        assert_eq!((&client.private_data[..], &server.private_data[..]), (&b"data"[..], &b"data"[..]));
    }
}

/// The bytes that a peer of another kind gets: an entry behind those of the ULP, and in a Reply only if it had one.
// requirement: rfc5044-7.1.1-5
#[test]
fn an_offer_is_an_entry_of_the_private_data() {
    let offering = |data: &[u8]| Settings { large_fpdu: LargeFpdu::Offered, ..settings(data, 8, 8) };
    let (_, request) = Initiator::new(offering(&hex("f6ab0e1801010303"))).unwrap();
    let expected = "4d504120494420526571204672616d65 5002 0014 00080008 f6ab0e1801010303 7b0f9d440100ffff";
    assert_eq!(request, hex(expected));
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    assert_eq!(request.private_data()[..], hex("f6ab0e1801010303"));
    let (reply, _) = request.accept(&offering(b"")).unwrap();
    assert_eq!(reply, hex("4d504120494420526570204672616d65 5002 000c 00080008 7b0f9d440100ffff"));
    assert!(!request.reject(&offering(b""), &Bytes::new()).unwrap().ends_with(&[0xFF, 0xFF]));

    let linux = hex("4d504120494420526571204672616d65 1002 000c 00800000 f6ab0e1801010303");
    let (request, _) = Responder::new().handle(&linux).unwrap().unwrap();
    let (reply, negotiated) = request.accept(&offering(b"")).unwrap();
    assert_eq!((FrameView::new(&reply).private_data_len(), negotiated.large_fpdu), (Some(4), None));
}

/// Private data of the ULP goes before an offer that has no space beside it.
#[test]
fn an_offer_never_takes_the_space_of_private_data() {
    for (length, fits) in [(500, true), (501, false), (508, false)] {
        let full = Settings { large_fpdu: LargeFpdu::Offered, ..settings(&vec![7; length], 4, 4) };
        let small = Settings { large_fpdu: LargeFpdu::Offered, ..settings(b"", 4, 4) };
        for (client, server) in [(full.clone(), small.clone()), (small, full)] {
            let agreed = negotiate(client, server).unwrap();
            assert_eq!(agreed.0.large_fpdu.is_some(), fits, "{length}");
            assert_eq!(agreed.1.large_fpdu.is_some(), fits, "{length}");
        }
    }
}

/// The flag of `siw` is sent only with its setting (RFC 5044 §7.1.1: reserved bits are zero).
#[test]
fn a_reply_has_the_large_fpdu_flag_only_if_its_request_had() {
    let large = || Settings { large_fpdu: LargeFpdu::Flagged, ..Settings::default() };
    let (_, request) = Initiator::new(large()).unwrap();
    assert_eq!(request[16] & FLAG_LARGE_FPDU, FLAG_LARGE_FPDU);
    let (_, request) =
        Initiator::new(Settings { large_fpdu: LargeFpdu::Offered, ..Settings::default() }).unwrap();
    assert_eq!(request[16] & FLAG_LARGE_FPDU, 0);
    // A Reply has the flag only if the Request had, and means nothing to an Initiator that did not ask.
    let (mut initiator, request) = Initiator::new(Settings::default()).unwrap();
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let (mut reply, _) = request.accept(&large()).unwrap();
    assert_eq!(reply[16] & FLAG_LARGE_FPDU, 0);
    reply[16] |= FLAG_LARGE_FPDU;
    assert_eq!(initiator.handle(&reply).unwrap().unwrap().0.large_fpdu, None);
}

/// The offered number stays valid, whatever the limit for more is.
#[test]
fn rfc6581_9_1_a_responder_may_use_all_that_was_offered() {
    let offered = Settings { ird: 200, ird_limit: 128, ..Settings::default() };
    let reply = hex("4d504120494420526570204672616d65 1002 0004 000100c8");
    let (negotiated, _) = Initiator::new(offered).unwrap().0.handle(&reply).unwrap().unwrap();
    assert_eq!(negotiated.ird, 200);
}

/// An RDMA Read needs an ORD.
#[test]
fn rfc6581_9_2_no_read_announces_readiness_where_none_may_be_outstanding() {
    for (ord, due) in [(0, Rtr::Send), (1, Rtr::Read)] {
        let asked = RtrSet { send: true, write: false, read: true };
        let client = Settings { peer_to_peer: Some(asked), ord, ..Settings::default() };
        assert_eq!(negotiate(client, Settings::default()).unwrap().0.rtr, Some(due));
    }
}

/// RFC 6581 §9.2: bits that no document defines are 0, and each option that we support is offered.
// requirement: rfc5044-1.2-2, rfc5044-4.4-1, rfc5044-4.4-3, rfc5044-7.1.1-1, rfc5044-7.1.1-5, rfc5044-7.1.1-6
// requirement: rfc5044-7.1.1-7, rfc5044-7.1.2-1, rfc6581-6-1, rfc6581-6-2, rfc6581-6-4, rfc6581-9-1, rfc6581-9.2-1
// requirement: rfc6581-9.2-2, rfc6581-9.2-11, rfc6581-9.2-13, rfc6581-10-2
#[test]
fn rfc6581_9_2_the_octets_of_our_requests() {
    let ask = |peer_to_peer, revision| {
        let settings = Settings { peer_to_peer, revision, ird: 5, ord: 6, ..Settings::default() };
        Initiator::new(settings).unwrap().1
    };
    let all = Some(RtrSet { send: true, write: true, read: true });
    let key = "4d504120494420526571204672616d65";
    assert_eq!(ask(None, Revision::Two), hex(&format!("{key} 5002 0004 00050006")));
    assert_eq!(ask(all, Revision::Two), hex(&format!("{key} 5002 0004 c005c006")));
    let (client, _) = negotiate(
        Settings { peer_to_peer: all, revision: Revision::One, ..Settings::default() },
        Settings::default(),
    )
    .unwrap();
    assert_eq!(client.rtr, None, "revision 1 has no Ready-To-Receive message");
    // Revision 1 has no enhanced data.
    assert_eq!(ask(all, Revision::One), hex(&format!("{key} 4001 0000")));
}

/// RFC 6581 §9.2: the Responder names a message that it takes, whatever the Request offers.
// requirement: rfc6581-9.2-3, rfc6581-9.2-4, rfc6581-9.2-5, rfc6581-9.2-6, rfc6581-9.2-7, rfc6581-9.2-12
// requirement: rfc6581-9.2-13, rfc6581-9.2-14
#[test]
fn rfc6581_9_2_a_responder_names_a_ready_to_receive_message() {
    for (request, reply) in [
        ("80010001", [0xC0, 1, 0xC0, 1]),
        ("c0010001", [0xC0, 1, 0, 1]),
        ("80018001", [0x80, 1, 0x80, 1]),
        ("80014001", [0x80, 1, 0x40, 1]),
        // Only an RDMA Read that announces readiness needs an IRD where the peer wants none.
        ("80018000", [0x80, 0, 0x80, 1]),
        // Without A the others mean nothing.
        ("4001c001", [0, 1, 0, 1]),
    ] {
        let bytes = hex(&format!("4d504120494420526571204672616d65 5002 0004 {request}"));
        let (request, _) = Responder::new().handle(&bytes).unwrap().unwrap();
        let (bytes, negotiated) = request.accept(&Settings::default()).unwrap();
        assert_eq!(FrameView::new(&bytes).enhanced().unwrap().encode(), reply);
        assert_eq!(negotiated.rtr_send_expected, reply[0] == 0xC0);
    }
}

/// RFC 6581 §9.2: a Reply for the client-server model, or without enhanced data, offers nothing.
// requirement: rfc6581-9.2-9, rfc6581-9.2-14
#[test]
fn rfc6581_9_2_a_reply_without_a_common_message_is_answered() {
    let offered = Some(RtrSet { send: true, write: true, read: true });
    for reply in ["5002 0004 40018001", "5002 0004 80010001", "4002 0000"] {
        let settings = Settings { peer_to_peer: offered, ..Settings::default() };
        let bytes = hex(&format!("4d504120494420526570204672616d65 {reply}"));
        let error = Initiator::new(settings).unwrap().0.handle(&bytes).unwrap_err();
        assert_eq!(error, StartupError::NoMatchingRtr);
        assert_eq!(error.last_words(), Some(cause::MPA_NO_MATCHING_RTR));
    }
}

/// RFC 5044 §7.1.1: each frame stands for the input of its sender.
// requirement: rfc5044-4.3-1, rfc5044-7.1.1-2, rfc5044-7.1.1-3
#[test]
fn rfc5044_7_1_1_a_reply_asks_for_markers_too() {
    for (flags, markers) in [("d0", true), ("50", false)] {
        let bytes = hex(&format!("4d504120494420526570204672616d65 {flags}02 0004 00080008"));
        let (negotiated, _) = Initiator::new(Settings::default()).unwrap().0.handle(&bytes).unwrap().unwrap();
        assert_eq!(negotiated.markers, markers);
    }
}

/// RFC 5044 §7.1.2: an error is reported, and no message answers a frame that is not one.
// requirement: rfc5044-7.1.1-1, rfc5044-7.1.1-6, rfc5044-7.1.1-7, rfc5044-7.1.2-8, rfc5044-7.1.2-9, rfc5044-7.1.2-13
// requirement: rfc5044-8-3
#[test]
fn rfc5044_7_1_2_a_bad_reply_ends_the_set_up_without_last_words() {
    for bytes in [
        "4d504120494420526570204672616d65 5003 0004 00080008",
        "4d504120494420526570204672616d65 5000 0004 00080008",
        "4d504120494420526570204672616d65 5002 0201",
        "4d504120494420526570204672616d65 5002 0003",
        "4d504120494420526570204672616d66",
        "4d504120494420526571204672616d65",
    ] {
        let error = Initiator::new(Settings::default()).unwrap().0.handle(&hex(bytes)).unwrap_err();
        assert!(matches!(error, StartupError::Frame(_)), "{bytes}");
        assert_eq!(error.last_words(), None);
    }
}

#[test]
fn a_request_tells_what_it_carries() {
    let (_, request) = Initiator::new(settings(b"hello", 3, 5)).unwrap();
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    assert_eq!(&request.private_data()[..], b"hello");
    assert_eq!(request.enhanced(), Some(Enhanced { peer_to_peer: None, ird: 3, ord: 5 }));
}
