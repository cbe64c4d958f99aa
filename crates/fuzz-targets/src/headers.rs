//! Headers of both versions, and the private data of a connection.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rpcrdma_proto::reassembly::Layout;
use rpcrdma_proto::wire::two::combined;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec, Direction, Fixed, Header, two};
use rpcrdma_proto::{BASIC_INLINE, Config, Connection, Limits, PrivateData, Profile, Side, Thresholds};
use rpcrdma_verbs::Capabilities;

fn encoded(codec: &dyn Codec, header: &Header) -> BytesMut {
    let mut bytes = BytesMut::new();
    codec.encode(header, &mut bytes);
    bytes
}

/// Version One headers (RFC 8166 §4): decoded or refused. A decoded header must encode to its original bytes. Its
/// chunks must be assembled or refused.
pub fn v1_header(data: &[u8]) {
    let limits = Limits::default();
    let Ok((header, length)) = V1.decode(data, &limits) else { return };
    assert_eq!(data.get(..length), Some(&encoded(&V1, &header)[..]));
    if let Body::Message(lists) | Body::NoMessage(lists) | Body::Padded { lists, .. } = &header.body
        && let Ok(layout) = Layout::new(&lists.read, data.len() - length, &limits)
    {
        assert!(layout.zero.iter().chain(&layout.chunks).count() <= limits.read_chunks);
    }
}

/// Headers of Version Two, of each profile: decoded or refused. A decoded header must encode to one of equal length
/// that decodes to the same value. Its length must match its shape, and the reason of a refusal must be expressed in
/// words that decode.
pub fn v2_header(data: &[u8]) {
    for profile in [Profile::P1, Profile::P2, Profile::P3] {
        check_two(profile.codec(), data);
    }
}

fn check_two(codec: &dyn Codec, data: &[u8]) {
    let mut limits = Limits::default();
    limits.combined_messages = 16;
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

/// The first private data of version 1 in `data`, found without the code under test (RFC 8797 §4).
fn reference(data: &[u8]) -> Option<PrivateData> {
    let mut at = 0;
    while at + 8 <= data.len() {
        if data[at..at + 5] == [0xf6, 0xab, 0x0e, 0x18, 1] {
            let size = |place: usize| (usize::from(data[at + place]) + 1) << 10;
            let remote_invalidation = data[at + 5] % 2 == 1;
            return Some(PrivateData { remote_invalidation, send_size: size(6), receive_size: size(7) });
        }
        at += 1;
    }
    None
}

/// Private data of a connection (RFC 8797): found where a search of all offsets finds it. Found data must encode to
/// eight bytes that mean the same. The thresholds of a connection must be those of the smaller side, within 1 KiB and
/// 256 KiB. The first two bytes are the inline sizes of this side.
pub fn private_data(data: &[u8]) {
    let Some((&[send, receive], data)) = data.split_first_chunk() else { return };
    let found = PrivateData::find(data);
    assert_eq!(found, reference(data));
    if let Some(found) = found {
        assert_eq!(found.encode().len(), 8);
        assert_eq!(PrivateData::find(&found.encode()), Some(found));
    }
    let size = |units: u8| (usize::from(units) + 1) << 10;
    let mut config = Config::default();
    config.send_size = size(send);
    config.receive_size = size(receive);
    let local = PrivateData {
        remote_invalidation: config.remote_invalidation,
        send_size: config.send_size,
        receive_size: config.receive_size,
    };
    let peer = found.unwrap_or_default();
    let ours = Thresholds::negotiate(&local, &peer);
    let theirs = Thresholds::negotiate(&peer, &local);
    assert_eq!((ours.send, ours.receive), (theirs.receive, theirs.send));
    for (threshold, least) in [
        (ours.send, config.send_size.min(peer.receive_size)),
        (ours.receive, config.receive_size.min(peer.send_size)),
    ] {
        assert_eq!(threshold, least);
        assert!((BASIC_INLINE..=256 << 10).contains(&threshold));
    }
    let config = Arc::new(config);
    for side in [Side::Client, Side::Server] {
        let now = Instant::now();
        let connection = Connection::new(side, Arc::clone(&config), data, &Capabilities::default(), now);
        let agreeable = connection.agreeable();
        assert!(agreeable.send <= config.send_size && agreeable.receive <= config.receive_size);
        assert!(agreeable.send >= BASIC_INLINE && agreeable.receive >= BASIC_INLINE);
    }
}
