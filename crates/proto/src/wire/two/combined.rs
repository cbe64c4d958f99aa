//! Several RPC-over-RDMA messages in one Send: an operation of our own, for experiments.
//!
//! rtissues-03 §4 says that the extension mechanism of Version Two could define header types for this; no
//! document does. Two sides use the operation only if both say so. Of a peer that says nothing of it, nothing
//! is assumed.
//!
//! An RDMA2_OPTIONAL with [`OPERATION`] as its `rdma_opttype` holds in `rdma_optinfo` the lengths of the
//! messages, in XDR:
//!
//! ```text
//! struct rpcrdma2_combined {
//!     uint32 cm_lengths<>;
//! };
//! ```
//!
//! The messages follow in the place of the Payload, in that order, each with its header as in a Send of its
//! own. Each but the first begins at a multiple of four bytes, with zeroes before it. There are at least two.
//! None is an operation itself, and none is of another version. The header of the Send has the XID and
//! direction of the first message, and the credit value of the last. Only the XID is checked. The receiver
//! treats each message, and counts credits, as if the message had come alone.
//!
//! *On error*: a [`Malformed`]. A malformed Send is refused as a whole. Its Calls could have no answer, so
//! the connection ends (RFC 8166 §4.5.4).

use std::ops::RangeInclusive;

use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

use super::optional::OPTIONAL_LEN;
use crate::wire::reader::Reader;
use crate::wire::{FIXED_LEN, Fixed, narrow, sized};

/// Its `rdma_opttype`. The documents keep no numbers for experiments with operations; this is out of the
/// range that they keep for characteristics (xcharext-02 §6.2).
pub const OPERATION: u32 = 0xffff_ffc1;

/// The characteristic that says how many messages a side takes in one Send: a word, 1 by default.
pub const CHARACTERISTIC: u32 = 0xffff_ffc1;

/// `rdma_proc` of all operations: RDMA2_OPTIONAL, and in P2 RDMA2_CONNPROP to RDMA2_UPDPROP.
const OPERATIONS: RangeInclusive<u32> = 5..=9;
const WORD: usize = 4;

/// A fault of a Send of several messages.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The lengths do not decode.
    #[error("the lengths of the messages do not decode")]
    Lengths,
    /// Too few, or too many.
    #[error("{count} messages in one Send, 2 to {allowed} can be")]
    Count {
        /// How many.
        count: usize,
        /// The limit.
        allowed: usize,
    },
    /// They are not as long as the Send.
    #[error("messages of {said} bytes together in a Send that has {there} for them")]
    Total {
        /// Bytes that they have, zeroes between them included.
        said: u64,
        /// Bytes that are there.
        there: usize,
    },
    /// A message is too short for a header.
    #[error("message {index} has {len} bytes, at least {FIXED_LEN} are needed")]
    Short {
        /// Which one, from 0.
        index: usize,
        /// Its length.
        len: usize,
    },
    /// A message is of another version.
    #[error("message {index} is of version {version}")]
    Version {
        /// Which one, from 0.
        index: usize,
        /// Its `rdma_vers`.
        version: u32,
    },
    /// A message is an operation.
    #[error(
        "message {index} is an operation, by its type {procedure}, which cannot be in a Send with others"
    )]
    Operation {
        /// Which one, from 0.
        index: usize,
        /// Its `rdma_proc`.
        procedure: u32,
    },
    /// The first message has another XID than the Send.
    #[error("XID {first:#010x} in the first message of a Send under XID {said:#010x}")]
    Xid {
        /// `rdma_xid` of the Send.
        said: u32,
        /// That of the first message.
        first: u32,
    },
    /// A byte between two messages is not zero.
    #[error("bytes that are not zero behind message {index}")]
    Between {
        /// Which one, from 0.
        index: usize,
    },
}

/// Bytes that so many messages have before them in one Send.
pub(crate) const fn header_len(messages: usize) -> usize {
    OPTIONAL_LEN + WORD + messages * WORD
}

/// A length with the zeroes behind it.
pub(crate) const fn aligned(len: usize) -> usize {
    len.next_multiple_of(WORD)
}

/// Appends what `rdma_optinfo` holds.
pub(super) fn put(lengths: &[u32], out: &mut BytesMut) {
    out.put_u32(narrow(WORD + lengths.len() * WORD));
    out.put_u32(narrow(lengths.len()));
    lengths.iter().for_each(|len| out.put_u32(*len));
}

/// Reads it; at most `allowed` lengths.
pub(super) fn lengths(info: &[u8], allowed: usize) -> Result<Vec<u32>, Malformed> {
    let mut reader = Reader::new(info);
    let count = reader.u32().ok_or(Malformed::Lengths)?;
    let count = sized(count);
    if count < 2 || count > allowed {
        return Err(Malformed::Count { count, allowed });
    }
    if info.len() != WORD + count * WORD {
        return Err(Malformed::Lengths);
    }
    (0..count).map(|_| reader.u32().ok_or(Malformed::Lengths)).collect()
}

/// The messages in what follows a header that begins so.
///
/// # Errors
/// [`Malformed`]
pub fn split(lengths: &[u32], behind: &Bytes, header: Fixed) -> Result<Vec<Bytes>, Malformed> {
    let last = lengths.len().saturating_sub(1);
    let room = |(index, len): (usize, &u32)| {
        let len = u64::from(*len);
        if index == last { len } else { len.next_multiple_of(4) }
    };
    let said: u64 = lengths.iter().enumerate().map(room).sum();
    let there = behind.len();
    if u64::try_from(there) != Ok(said) {
        return Err(Malformed::Total { said, there });
    }
    let mut rest = behind.clone();
    let mut messages = Vec::with_capacity(lengths.len());
    for (index, len) in lengths.iter().enumerate() {
        // All of them are there, by their sum.
        let len = sized(*len).min(rest.len());
        let message = rest.split_to(len);
        let between = rest.split_to((aligned(len) - len).min(rest.len()));
        let fixed = Fixed::decode(&message).map_err(|_| Malformed::Short { index, len })?;
        if fixed.version != header.version {
            return Err(Malformed::Version { index, version: fixed.version });
        }
        if OPERATIONS.contains(&fixed.procedure) {
            return Err(Malformed::Operation { index, procedure: fixed.procedure });
        }
        if index == 0 && fixed.xid != header.xid {
            return Err(Malformed::Xid { said: header.xid, first: fixed.xid });
        }
        if between.iter().any(|byte| *byte != 0) {
            return Err(Malformed::Between { index });
        }
        messages.push(message);
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Fixed = Fixed { xid: 7, version: 2, credit: 1, procedure: 5 };

    fn message(procedure: u32, len: usize) -> Vec<u8> {
        let mut out: Vec<u8> = [7_u32, 2, 1, procedure].iter().flat_map(|word| word.to_be_bytes()).collect();
        out.resize(len, 0xab);
        out
    }

    fn encoded(lengths: &[u32]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put(lengths, &mut out);
        out.split_off(WORD).to_vec()
    }

    #[test]
    fn lengths_are_an_xdr_array_in_rdma_optinfo() {
        let mut out = BytesMut::new();
        put(&[24, 17], &mut out);
        assert_eq!(&out[..], [0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 24, 0, 0, 0, 17]);
        assert_eq!(lengths(&out[4..], 2), Ok(vec![24, 17]));
        assert_eq!(OPTIONAL_LEN + out.len() - WORD, header_len(2));
    }

    #[test]
    fn counts_and_lengths_that_are_none_are_refused() {
        assert_eq!(lengths(&[], 8), Err(Malformed::Lengths));
        assert_eq!(lengths(&[0, 0, 0], 8), Err(Malformed::Lengths));
        for count in [0, 1] {
            let info = encoded(&vec![20; count]);
            assert_eq!(lengths(&info, 8), Err(Malformed::Count { count, allowed: 8 }));
        }
        assert_eq!(lengths(&encoded(&[20; 9]), 8), Err(Malformed::Count { count: 9, allowed: 8 }));
        assert_eq!(lengths(&encoded(&[20; 8]), 8), Ok(vec![20; 8]));
        let mut cut = encoded(&[20; 3]);
        cut.truncate(12);
        assert_eq!(lengths(&cut, 8), Err(Malformed::Lengths));
        let mut long = encoded(&[20; 3]);
        long.extend([0; 4]);
        assert_eq!(lengths(&long, 8), Err(Malformed::Lengths));
        let many = u32::MAX.to_be_bytes();
        assert!(matches!(lengths(&many, 8), Err(Malformed::Count { .. })), "nothing is allocated for it");
    }

    #[test]
    fn messages_begin_at_multiples_of_four() {
        let (first, second) = (message(0, 17), message(1, 22));
        let behind: Bytes = [&first[..], &[0; 3], &second[..]].concat().into();
        let messages = split(&[17, 22], &behind, HEADER).unwrap();
        assert_eq!(messages, [Bytes::from(first.clone()), Bytes::from(second.clone())]);
        let behind: Bytes = [&first[..], &[0, 0, 1], &second[..]].concat().into();
        assert_eq!(split(&[17, 22], &behind, HEADER), Err(Malformed::Between { index: 0 }));
    }

    #[test]
    fn sends_that_are_not_as_they_say_are_refused_whole() {
        let (first, second) = (message(0, 20), message(0, 24));
        let behind: Bytes = [&first[..], &second[..]].concat().into();
        for lengths in [[20, 20], [20, 28], [24, 24], [u32::MAX, u32::MAX]] {
            assert!(
                matches!(split(&lengths, &behind, HEADER), Err(Malformed::Total { there: 44, .. })),
                "{lengths:?}"
            );
        }
        assert_eq!(split(&[12, 32], &behind, HEADER), Err(Malformed::Short { index: 0, len: 12 }));
        let other = Fixed { version: 3, ..HEADER };
        assert_eq!(split(&[20, 24], &behind, other), Err(Malformed::Version { index: 0, version: 2 }));
        let other = Fixed { xid: 8, ..HEADER };
        assert_eq!(split(&[20, 24], &behind, other), Err(Malformed::Xid { said: 8, first: 7 }));
        for procedure in 5..=9 {
            let operation: Bytes = [&first[..], &message(procedure, 24)[..]].concat().into();
            let error = Malformed::Operation { index: 1, procedure };
            assert_eq!(split(&[20, 24], &operation, HEADER), Err(error));
        }
    }
}
