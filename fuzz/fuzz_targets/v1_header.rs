//! Version One headers (RFC 8166 §4) and connection private data (RFC 8797 §4): decoded or refused. A decoded header
//! must encode to its original bytes. Its chunks must be assembled or refused, with any settings of a connection.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use rpcrdma_proto::reassembly::Layout;
use rpcrdma_proto::wire::v1::V1;
use rpcrdma_proto::wire::{Body, Codec};
use rpcrdma_proto::{Limits, PrivateData};

fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    if let Ok((header, length)) = V1.decode(data, &limits) {
        let mut bytes = BytesMut::new();
        V1.encode(&header, &mut bytes);
        assert_eq!(data.get(..length), Some(&bytes[..]));
        if let Body::Message(lists) | Body::NoMessage(lists) | Body::Padded { lists, .. } = &header.body {
            if let Ok(layout) = Layout::new(&lists.read, data.len() - length, &limits) {
                assert!(layout.zero.iter().chain(&layout.chunks).count() <= limits.read_chunks);
            }
        }
    }
    if let Some(found) = PrivateData::find(data) {
        assert_eq!(PrivateData::find(&found.encode()), Some(found));
    }
});
