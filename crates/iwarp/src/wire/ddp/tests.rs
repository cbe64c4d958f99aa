use proptest::prelude::*;

use super::*;
use crate::wire::hex::hex;

// requirement: rfc5040-4.1-1, rfc5041-4.2-1, rfc5041-4.3-1
#[test]
fn rfc5041_4_golden_headers() {
    let tagged = Tagged { last: true, control: 0x40, stag: 0x2001, offset: 0x7F00_0001_0000 };
    assert_eq!(tagged.encode().to_vec(), hex("c1 40 00 00 20 01 00 00 7f 00 00 01 00 00"));
    let untagged =
        Untagged { last: true, control: 0x44, invalidate: 0x1001, queue: queue::SEND, msn: 2, offset: 0 };
    assert_eq!(untagged.encode().to_vec(), hex("41 44 00 00 10 01 00 00 00 00 00 00 00 02 00 00 00 00"));
    assert_eq!(Header::decode(&tagged.encode()), Ok(Header::Tagged(tagged)));
    assert_eq!(Header::decode(&untagged.encode()), Ok(Header::Untagged(untagged)));
}

#[test]
fn a_header_tells_its_kind_length_and_place_in_the_message() {
    for last in [false, true] {
        let tagged = Tagged { last, control: 0x40, stag: 1, offset: 2 };
        let untagged = Untagged { last, control: 0x43, invalidate: 0, queue: 0, msn: 1, offset: 0 };
        for (header, bytes) in [
            (Header::Tagged(tagged), tagged.encode().to_vec()),
            (Header::Untagged(untagged), untagged.encode().to_vec()),
        ] {
            assert_eq!(header.is_last(), last);
            let ulpdu = [&bytes[..], b"payload"].concat();
            let view = HeaderView::new(&ulpdu);
            assert_eq!(view.header_len(), Some(header.encoded_len()));
            assert_eq!(view.payload(), Some(&b"payload"[..]));
        }
    }
    assert_eq!((HeaderView::new(&[]).header_len(), HeaderView::new(&[0xC1]).payload()), (None, None));
}

// requirement: rfc5041-4.1-6, rfc5041-4.1-7
#[test]
fn rfc5041_7_1_version_and_length() {
    let tagged = Tagged { last: false, control: 0x40, stag: 1, offset: 2 }.encode();
    let untagged =
        Untagged { last: false, control: 0x43, invalidate: 0, queue: 0, msn: 1, offset: 0 }.encode();
    for cut in 0..TAGGED_LEN {
        assert_eq!(Header::decode(&tagged[..cut]), Err(HeaderError::Truncated(cut)));
    }
    for cut in 0..UNTAGGED_LEN {
        assert_eq!(Header::decode(&untagged[..cut]), Err(HeaderError::Truncated(cut)));
    }
    for version in [0, 2, 3] {
        let mut bytes = tagged;
        bytes[0] = bytes[0] & !3 | version;
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Version { tagged: true, version }));
        let mut bytes = untagged;
        bytes[0] = bytes[0] & !3 | version;
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Version { tagged: false, version }));
    }
    // Reserved bits are ignored.
    let mut bytes = tagged;
    bytes[0] |= 0x3C;
    assert!(Header::decode(&bytes).is_ok());
}

proptest! {
    #[test]
    fn headers_round_trip(last: bool, control: u8, stag: u32, to: u64, queue: u32, msn: u32, mo: u32) {
        let tagged = Tagged { last, control, stag, offset: to };
        prop_assert_eq!(Header::decode(&tagged.encode()), Ok(Header::Tagged(tagged)));
        let untagged = Untagged { last, control, invalidate: stag, queue, msn, offset: mo };
        prop_assert_eq!(Header::decode(&untagged.encode()), Ok(Header::Untagged(untagged)));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Header::decode(&bytes);
        let view = HeaderView::new(&bytes);
        let _ = (view.tagged(), view.untagged(), view.payload());
    }
}
