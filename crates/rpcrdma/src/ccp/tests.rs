//! The two messages of RFC 5666 §6.2, byte by byte.

use std::fmt;

use rpcrdma_xdr::{Decode, DecodeError, Decoder, Encode, encode};

use super::rdmaconfig::{ConfRdma, PROGRAM, VERSION};
use super::*;
use crate::Procedure as _;

fn words(words: [u32; 3]) -> Vec<u8> {
    words.map(u32::to_be_bytes).concat()
}

#[track_caller]
fn golden<T: Encode + Decode + PartialEq + fmt::Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(encode(value).unwrap().flatten().0, bytes);
    let decode = |bytes: &[u8]| Decoder::new(bytes.to_vec().into()).decode_all::<T>();
    assert_eq!(decode(bytes).as_ref(), Ok(value));
    assert!(matches!(decode(&bytes[..11]), Err(DecodeError::Truncated { .. })));
    assert!(matches!(decode(&[bytes, &[0; 4]].concat()), Err(DecodeError::TrailingBytes { .. })));
}

#[test]
fn s6_2_golden_request() {
    let request = ConfigRequest { max_call_send_size: 4096, max_reply_send_size: 8192, max_rdma_read: 16 };
    golden(&request, &[0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0x10]);
    assert_eq!(words([4096, 8192, 16]), encode(&request).unwrap().flatten().0);
}

/// The reply has its alignment where the request has the size of Replies.
#[test]
fn s6_2_golden_reply() {
    let reply = ConfigReply { max_call_send_size: 1024, align: 64, max_rdma_read: 1 };
    golden(&reply, &[0, 0, 4, 0, 0, 0, 0, 0x40, 0, 0, 0, 1]);
    assert_eq!(words([1024, 64, 1]), encode(&reply).unwrap().flatten().0);
}

#[test]
fn s12_numbers() {
    assert_eq!((PROGRAM, VERSION, ConfRdma::NUMBER), (100_417, 1, 1));
}
