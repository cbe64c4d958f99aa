use proptest::prelude::*;

use super::*;
use crate::wire::hex::hex;

const SIW_REQUEST: &str = "4d504120494420526571204672616d65 1002 000c 00800000 f6ab0e1801010303";
const SIW_REPLY: &str = "4d504120494420526570204672616d65 1002 000c 00000080 f6ab0e1801000303";

fn decode(bytes: &[u8], due: FrameKind) -> Frame {
    let (frame, used) = Frame::decode(bytes, due).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    frame
}

#[test]
fn rfc5044_7_1_1_revision_1_request() {
    let bytes = hex("4d 50 41 20 49 44 20 52 65 71 20 46 72 61 6d 65 40 01 00 00");
    let frame = Frame {
        kind: FrameKind::Request,
        revision: Revision::One,
        markers: false,
        crc: true,
        rejected: false,
        large_fpdu: false,
        enhanced: None,
        private_data: vec![],
    };
    assert_eq!(decode(&bytes, FrameKind::Request), frame);
    assert_eq!(frame.encode().unwrap(), bytes);
}

// requirement: rfc6581-6-4
#[test]
fn rfc6581_6_revision_2_request_with_rfc8797_data() {
    let bytes = hex(
        "4d 50 41 20 49 44 20 52 65 71 20 46 72 61 6d 65 50 02 00 0c 00 08 00 08 f6 ab 0e 18 01 01 03 03",
    );
    let frame = decode(&bytes, FrameKind::Request);
    assert!(frame.crc && !frame.markers);
    assert_eq!(frame.enhanced, Some(Enhanced { peer_to_peer: None, ird: 8, ord: 8 }));
    assert_eq!(frame.private_data, hex("f6ab0e18 01010303"));
    assert_eq!(frame.encode().unwrap(), bytes);
}

// requirement: rfc6581-9-1, rfc6581-9.2-14
#[test]
fn rfc6581_9_enhanced_data_bits() {
    let all = RtrSet { send: true, write: true, read: true };
    let enhanced = Enhanced { peer_to_peer: Some(all), ird: 8, ord: 8 };
    assert_eq!(enhanced.encode().to_vec(), hex("c0 08 c0 08"));
    assert_eq!(Enhanced::decode([0xC0, 8, 0xC0, 8]), enhanced);
    // `siw` with peer_to_peer sends this.
    let siw = Enhanced::decode([0x80, 0x80, 0xC0, 0x01]);
    assert_eq!(
        siw,
        Enhanced { peer_to_peer: Some(RtrSet { send: false, write: true, read: true }), ird: 128, ord: 1 }
    );
    assert_eq!(siw.encode(), [0x80, 0x80, 0xC0, 0x01]);
    // §9.2: B, C and D have no meaning without A.
    assert_eq!(Enhanced::decode([0x40, 1, 0xC0, 1]).peer_to_peer, None);
    // §9.1: all ones stay all ones.
    assert_eq!(
        Enhanced { peer_to_peer: None, ird: NOT_NEGOTIATED, ord: NOT_NEGOTIATED }.encode(),
        [0x3F, 0xFF, 0x3F, 0xFF]
    );
}

#[test]
fn common_ready_to_receive_messages_are_in_both_sets() {
    let set = |bits: u8| RtrSet { send: bits & 1 != 0, write: bits & 2 != 0, read: bits & 4 != 0 };
    for (ours, theirs) in (0..8).flat_map(|ours| (0..8).map(move |theirs| (ours, theirs))) {
        assert_eq!(set(ours).intersection(set(theirs)), set(ours & theirs));
    }
}

/// Values that a frame cannot hold never become others.
#[test]
fn what_does_not_fit_a_frame_is_not_written() {
    let beyond = Enhanced { peer_to_peer: None, ird: u16::MAX, ord: u16::MAX };
    assert_eq!(beyond.encode(), [0x3F, 0xFF, 0x3F, 0xFF]);
    let mut frame = decode(&hex(SIW_REQUEST), FrameKind::Request);
    frame.rejected = true;
    assert_eq!(frame.encode().unwrap(), hex(SIW_REQUEST), "only a Reply refuses");
    frame.revision = Revision::One;
    let bytes = frame.encode().unwrap();
    assert_eq!((bytes[16] & FLAG_ENHANCED, bytes.len()), (0, HEADER_LEN + frame.private_data.len()));
    assert_eq!(Frame::private_data_capacity(false), MAX_PRIVATE_DATA);
}

/// RFC 6581 §6: the S flag of revision 1 is reserved.
// requirement: rfc6581-6-3
#[test]
fn rfc6581_6_revision_1_has_no_enhanced_data() {
    let bytes = hex("4d504120494420526571204672616d65 5001 0004 00050006");
    let frame = decode(&bytes, FrameKind::Request);
    assert_eq!((frame.enhanced, frame.private_data), (None, vec![0, 5, 0, 6]));
}

#[test]
fn rfc6581_9_2_each_ready_to_receive_bit_stands_for_itself() {
    for (word, send, write, read) in [
        ([0x80, 0, 0, 0], false, false, false),
        ([0xC0, 0, 0, 0], true, false, false),
        ([0x80, 0, 0x80, 0], false, true, false),
        ([0x80, 0, 0x40, 0], false, false, true),
    ] {
        let set = RtrSet { send, write, read };
        assert_eq!(Enhanced::decode(word), Enhanced { peer_to_peer: Some(set), ird: 0, ord: 0 });
        assert_eq!(set.is_empty(), !(send | write | read));
    }
}

#[test]
fn a_view_tells_the_fields_as_they_stand() {
    let mut reply = hex(SIW_REPLY);
    let view = FrameView::new(&reply);
    assert_eq!(
        (view.kind(), FrameView::new(&hex(SIW_REQUEST)).kind()),
        (Some(FrameKind::Reply), Some(FrameKind::Request))
    );
    assert_eq!((view.frame_len(), view.private_data_len()), (Some(32), Some(12)));
    assert_eq!(view.private_data(), Some(&reply[20..]));
    assert_eq!(view.enhanced(), Some(Enhanced { peer_to_peer: None, ird: 0, ord: 128 }));
    assert_eq!(FrameView::new(&reply[..25]).private_data(), Some(&reply[20..25]), "what is there");
    let behind = [&reply[..], b"more"].concat();
    assert_eq!(FrameView::new(&behind).private_data(), Some(&reply[20..]), "and no more");
    assert_eq!(FrameView::new(&[0; 20]).kind(), None);
    assert_eq!(FrameView::new(&reply[..19]).frame_len(), None);
    // RFC 6581 §6: revision 2 and the flag S, both.
    reply[17] = 1;
    assert_eq!(FrameView::new(&reply).enhanced(), None);
    reply[17] = 2;
    reply[16] = 0x40;
    assert_eq!(FrameView::new(&reply).enhanced(), None);
}

#[test]
fn linux_frames_are_understood() {
    let request = decode(&hex(SIW_REQUEST), FrameKind::Request);
    assert_eq!(request.enhanced, Some(Enhanced { peer_to_peer: None, ird: 128, ord: 0 }));
    assert!(!request.crc);
    let reply = decode(&hex(SIW_REPLY), FrameKind::Reply);
    assert_eq!(reply.enhanced, Some(Enhanced { peer_to_peer: None, ird: 0, ord: 128 }));
    assert!(!reply.rejected);
    let rejection = decode(&hex("4d504120494420526570204672616d65 30020004 00000000"), FrameKind::Reply);
    assert!(rejection.rejected);
}

// requirement: rfc5044-7.1.1-1, rfc5044-7.1.1-5, rfc5044-7.1.1-6, rfc5044-7.1.1-7, rfc5044-7.1.2-3, rfc5044-7.1.2-17
// requirement: rfc5044-8-1, rfc6581-6-1
#[test]
fn rfc5044_7_1_2_bad_frames_are_named() {
    let request = hex(SIW_REQUEST);
    let with = |at: usize, value: u8| {
        let mut bytes = request.clone();
        bytes[at] = value;
        Frame::decode(&bytes, FrameKind::Request)
    };
    assert_eq!(with(3, b'!'), Err(FrameError::Key));
    assert_eq!(with(17, 0), Err(FrameError::Revision(0)));
    assert_eq!(with(17, 3), Err(FrameError::Revision(3)));
    assert_eq!(with(18, 2), Err(FrameError::PrivateDataTooLong(0x20C)));
    assert_eq!(with(19, 3), Err(FrameError::EnhancedTooShort(3)));
    // Reserved flags and R in a Request are ignored.
    assert!(with(16, 0x17 | FLAG_REJECT).unwrap().is_some_and(|(frame, _)| !frame.rejected));
    let role = FrameError::Role { seen: FrameKind::Request, due: FrameKind::Reply };
    assert_eq!(Frame::decode(&request, FrameKind::Reply), Err(role));
    let role = FrameError::Role { seen: FrameKind::Reply, due: FrameKind::Request };
    assert_eq!(Frame::decode(&hex(SIW_REPLY), FrameKind::Request), Err(role));
    // Only a complete key tells a role.
    assert_eq!(Frame::decode(&request[..KEY_LEN - 1], FrameKind::Reply), Ok(None));
    assert_eq!(Frame::decode(b"GET / HTTP/1.1", FrameKind::Request), Err(FrameError::Key));
}

// requirement: rfc5044-7.1.1-7, rfc5044-7.1.1-8, rfc5044-7.1.2-17
#[test]
fn private_data_of_512_bytes_and_not_one_more() {
    let mut frame = decode(&hex(SIW_REPLY), FrameKind::Reply);
    frame.private_data = vec![7; Frame::private_data_capacity(true)];
    let bytes = frame.encode().unwrap();
    assert_eq!(bytes.len(), HEADER_LEN + MAX_PRIVATE_DATA);
    assert_eq!(decode(&bytes, FrameKind::Reply), frame);
    frame.private_data.push(7);
    assert_eq!(frame.encode(), Err(FrameError::PrivateDataTooLong(513)));
}

proptest! {
    #[test]
    fn a_frame_is_found_however_the_stream_is_cut(
        request: bool, two: bool, crc: bool, markers: bool, rejected: bool, large_fpdu: bool,
        word: u32, private_data in proptest::collection::vec(any::<u8>(), 0..=508), tail in 0_usize..64,
    ) {
        let kind = if request { FrameKind::Request } else { FrameKind::Reply };
        let revision = if two { Revision::Two } else { Revision::One };
        let enhanced = two.then(|| Enhanced::decode(word.to_be_bytes()));
        let frame =
            Frame { kind, revision, markers, crc, rejected: rejected && !request, large_fpdu, enhanced, private_data };
        let mut bytes = frame.encode().unwrap();
        let length = bytes.len();
        bytes.resize(length + tail, 0xA5);
        for cut in 0..length {
            prop_assert_eq!(Frame::decode(&bytes[..cut], kind), Ok(None));
        }
        prop_assert_eq!(Frame::decode(&bytes, kind), Ok(Some((frame, length))));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), request: bool) {
        let kind = if request { FrameKind::Request } else { FrameKind::Reply };
        let _ = Frame::decode(&bytes, kind);
        let mut keyed = kind.key().to_vec();
        keyed.extend_from_slice(&bytes);
        let _ = Frame::decode(&keyed, kind);
        let view = FrameView::new(&keyed);
        let _ = (view.kind(), view.enhanced(), view.private_data(), view.frame_len());
    }
}
