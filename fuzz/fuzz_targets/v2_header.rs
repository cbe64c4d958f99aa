//! Headers of Version Two, of each profile: decoded or refused. A decoded header must encode to one of equal length
//! that decodes to the same value. Its length must match its shape, and the reason of a refusal must be expressed in
//! words that decode.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use rpcrdma_proto::reassembly::Layout;
use rpcrdma_proto::wire::two::combined;
use rpcrdma_proto::wire::{Body, Codec, Direction, Fixed, Header, two};
use rpcrdma_proto::{Limits, Profile};

fn encoded(codec: &dyn Codec, header: &Header) -> BytesMut {
    let mut bytes = BytesMut::new();
    codec.encode(header, &mut bytes);
    bytes
}

fn check(codec: &dyn Codec, data: &[u8]) {
    let limits = Limits { combined_messages: 16, ..Limits::default() };
    let (header, length) = match codec.decode(data, &limits) {
        Ok(decoded) => decoded,
        Err(error) => {
            let body = Body::Error(codec.refusal(&error));
            let direction = Some(Direction::Reply);
            let answer = Header { xid: 1, version: 2, credit: 1, direction, invalidate: 0, body };
            let bytes = encoded(codec, &answer);
            assert_eq!(codec.decode(&bytes, &limits), Ok((answer, bytes.len())));
            return;
        }
    };
    let mut bytes = encoded(codec, &header);
    // Its first word belongs to the header (version-two-07 §6.3.6).
    if matches!(header.body, Body::Two(two::Body::Middle { .. })) {
        bytes.extend_from_slice(&[0; 4]);
    }
    if let Body::Message(lists) | Body::NoMessage(lists) = &header.body {
        assert_eq!(data.get(..length), Some(&bytes[..]));
        assert_eq!(codec.header_len(&lists.shape(header.direction.unwrap_or_default())), length);
        if let Ok(layout) = Layout::new(&lists.read, data.len() - length, &limits) {
            assert!(layout.zero.iter().chain(&layout.chunks).count() <= limits.read_chunks);
        }
    }
    if let Body::Two(two::Body::Combined(lengths)) = &header.body {
        let behind = Bytes::copy_from_slice(data.get(length..).unwrap_or_default());
        let fixed = Fixed::decode(data).expect("a header that decodes begins so");
        if let Ok(messages) = combined::split(lengths, &behind, fixed) {
            assert!((2..=limits.combined_messages).contains(&messages.len()));
            assert!(
                messages.iter().zip(lengths).all(|(message, len)| u32::try_from(message.len()) == Ok(*len))
            );
        }
    }
    assert_eq!(codec.decode(&bytes, &limits), Ok((header, length)));
}

fuzz_target!(|data: &[u8]| {
    for profile in [Profile::P1, Profile::P2, Profile::P3] {
        check(profile.codec(), data);
    }
});
