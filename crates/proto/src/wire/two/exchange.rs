//! Operations by which peers tell each other about themselves: transport characteristics (xcharext-02 §2,
//! §4), later called properties (version-two-03 §5).
//!
//! These are plain values. Here characteristics are numbers with opaque data, copied out of the message;
//! [`characteristics`](crate::two::characteristics) knows their meaning.

use bytes::{BufMut, Bytes, BytesMut};

use super::Error;
use super::words::{WORD, Words};
use crate::wire::narrow;

/// Elements of a subset that one word holds.
const BITS: usize = 32;

/// A characteristic and its value (`xcharval`, xcharext-02 §2.1; `rpcrdma2_propval`, version-two-03 §5.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// `xchv_which`.
    pub id: u32,
    /// `xchv_data`: the XDR of the characteristic's own type.
    pub data: Bytes,
}

/// Some elements of a list of values, by place (`xcharsubset`, xcharext-02 §2.1). Bit 0 of a word is the
/// least significant one, which no document says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subset {
    words: Vec<u32>,
}

impl Subset {
    /// Whether the element at this place is in it. Words that are not there count as 0.
    #[must_use]
    pub fn contains(&self, place: usize) -> bool {
        self.words.get(place / BITS).is_some_and(|word| word >> (place % BITS) & 1 == 1)
    }

    /// Adds the element at this place.
    pub fn insert(&mut self, place: usize) {
        let index = place / BITS;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        if let Some(word) = self.words.get_mut(index) {
            *word |= 1 << (place % BITS);
        }
    }

    /// The place behind the last element; 0 if it is empty.
    #[must_use]
    pub fn end(&self) -> usize {
        let last = self.words.iter().enumerate().rev().find(|(_, word)| **word != 0);
        last.map_or(0, |(index, word)| index * BITS + BITS - word.leading_zeros() as usize)
    }
}

impl FromIterator<usize> for Subset {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let mut subset = Self::default();
        places.into_iter().for_each(|place| subset.insert(place));
        subset
    }
}

/// An operation of the exchange; none has a Payload stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A part of how the sender begins, before an [`Exchange::Initial`] with the rest
    /// (RDMA2_CONNPROP_MIDDLE).
    Part {
        /// The values of the sender.
        start: Vec<Value>,
    },
    /// How the sender begins (ROPT_INITXCH, RDMA2_CONNPROP, RDMA2_CONNPROP_FINAL).
    Initial {
        /// The values of the sender.
        start: Vec<Value>,
        /// The values that are not going to change.
        constant: Subset,
    },
    /// The receiver is asked to change (ROPT_REQXCH, RDMA2_REQPROP).
    Request {
        /// The values that the sender would like.
        want: Vec<Value>,
    },
    /// The answer to a request (ROPT_RESPXCH, RDMA2_RESPROP); the subsets are of the values in that.
    Response {
        /// In effect.
        done: Subset,
        /// Not going to be.
        rejected: Subset,
        /// The rest.
        rest: Rest,
    },
    /// Values of the sender have changed (ROPT_UPDXCH, RDMA2_UPDPROP).
    Update {
        /// The values in effect.
        now: Vec<Value>,
        /// Nothing that was asked for them is pending any more (`optupdxch_pendclr`).
        clears: bool,
    },
}

/// The part of a response besides done and rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Updates will tell (`optrespxch_pend`, xcharext-02 §4.3).
    Pending(Subset),
    /// Something else than what was asked is in effect (`rdma_other`, version-two-03 §5.3.3).
    Other(Vec<Value>),
}

/// The operations as the profiles lay them out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Values, before more of them.
    Part,
    /// The last values. None is going to change: they are told once, at the beginning (version-two-07 §5.1).
    Final,
    /// Values, and those of them that are not going to change.
    Initial,
    /// Values that are asked for.
    Request,
    /// A response that names the pending values: in P1 an update tells what becomes of them.
    Pending,
    /// A response with other values: nothing is ever pending in P2.
    Other,
    /// One value, and whether it ends what was pending.
    Update,
    /// Values that have changed.
    Updates,
}

impl Step {
    pub(super) fn read(self, words: &mut Words<'_, '_>) -> Result<Exchange, Error> {
        Ok(match self {
            Self::Part => Exchange::Part { start: words.values_within()? },
            Self::Final => {
                let start = words.values_within()?;
                let constant = (0..start.len()).collect();
                Exchange::Initial { start, constant }
            }
            Self::Initial => {
                let (start, constant) = (words.values()?, words.subset()?);
                // A subset says nothing of what its set does not have.
                let (end, len) = (constant.end(), start.len());
                if end > len {
                    return Err(Error::SubsetTooLong { end, len });
                }
                Exchange::Initial { start, constant }
            }
            Self::Request => Exchange::Request { want: words.values()? },
            Self::Pending | Self::Other => Exchange::Response {
                done: words.subset()?,
                rejected: words.subset()?,
                rest: match self {
                    Self::Pending => Rest::Pending(words.subset()?),
                    _ => Rest::Other(words.values()?),
                },
            },
            Self::Update => Exchange::Update { now: vec![words.value()?], clears: words.flag()? },
            Self::Updates => Exchange::Update { now: words.values()?, clears: false },
        })
    }

    /// Appends an operation, if it is this one.
    pub(super) fn put(self, exchange: &Exchange, out: &mut BytesMut) -> Option<()> {
        match (self, exchange) {
            (Self::Part, Exchange::Part { start }) | (Self::Final, Exchange::Initial { start, .. }) => {
                put_values(start, out);
            }
            (Self::Initial, Exchange::Initial { start, constant }) => {
                put_values(start, out);
                put_subset(constant, out);
            }
            (Self::Request, Exchange::Request { want }) => put_values(want, out),
            (Self::Pending | Self::Other, Exchange::Response { done, rejected, rest }) => {
                put_subset(done, out);
                put_subset(rejected, out);
                match (self, rest) {
                    (Self::Pending, Rest::Pending(pending)) => put_subset(pending, out),
                    (Self::Pending, Rest::Other(_)) => put_subset(&Subset::default(), out),
                    (_, Rest::Other(values)) => put_values(values, out),
                    (_, Rest::Pending(_)) => put_values(&[], out),
                }
            }
            (Self::Update, Exchange::Update { now, clears }) => {
                // An update has one value; the maker of updates knows the profile.
                now.iter().take(1).for_each(|value| put_value(value, out));
                out.put_u32(u32::from(*clears));
            }
            (Self::Updates, Exchange::Update { now, .. }) => put_values(now, out),
            _ => return None,
        }
        Some(())
    }
}

impl Words<'_, '_> {
    /// Reads an opaque item with its pad.
    pub(super) fn opaque(&mut self) -> Result<Bytes, Error> {
        let len = self.word()?;
        self.data(len)
    }

    /// Reads the bytes of an opaque item, and its pad.
    fn data(&mut self, len: u32) -> Result<Bytes, Error> {
        let len = usize::try_from(len).map_err(|_| Error::OperationTruncated)?;
        let data = Bytes::copy_from_slice(self.bytes(len)?);
        self.bytes(len.next_multiple_of(WORD) - len)?;
        Ok(data)
    }

    /// Reads an XDR bool.
    fn flag(&mut self) -> Result<bool, Error> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::BadFlag { value }),
        }
    }

    fn value(&mut self) -> Result<Value, Error> {
        Ok(Value { id: self.word()?, data: self.opaque()? })
    }

    fn values(&mut self) -> Result<Vec<Value>, Error> {
        self.bounded(Self::value)
    }

    /// Reads values; data that runs past the end is a fault of its value (version-two-07 §5.1).
    fn values_within(&mut self) -> Result<Vec<Value>, Error> {
        self.bounded(|words| {
            let (id, len) = (words.word()?, words.word()?);
            let data = words.data(len).map_err(|_| Error::ValueTruncated { id, len })?;
            Ok(Value { id, data })
        })
    }

    fn subset(&mut self) -> Result<Subset, Error> {
        Ok(Subset { words: self.bounded(|words| Ok(words.word()?))? })
    }

    fn bounded<T>(&mut self, element: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let too_many = |count, allowed| Error::TooManyCharacteristics { count, allowed };
        self.array(self.limits.characteristics, too_many, element)
    }
}

pub(super) fn put_opaque(data: &[u8], out: &mut BytesMut) {
    // Within limits far below 2^32.
    out.put_u32(narrow(data.len()));
    out.put_slice(data);
    out.put_bytes(0, data.len().next_multiple_of(WORD) - data.len());
}

fn put_value(value: &Value, out: &mut BytesMut) {
    out.put_u32(value.id);
    put_opaque(&value.data, out);
}

fn put_values(values: &[Value], out: &mut BytesMut) {
    out.put_u32(narrow(values.len()));
    values.iter().for_each(|value| put_value(value, out));
}

fn put_subset(subset: &Subset, out: &mut BytesMut) {
    out.put_u32(narrow(subset.words.len()));
    subset.words.iter().for_each(|word| out.put_u32(*word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xcharext_s2_1_bit_n_mod_32_of_word_n_div_32() {
        let subset: Subset = [0, 33, 31].into_iter().collect();
        assert_eq!(subset.words, [0x8000_0001, 0x0000_0002]);
        assert_eq!((0..200).filter(|place| subset.contains(*place)).collect::<Vec<_>>(), [0, 31, 33]);
    }

    #[test]
    fn xcharext_s2_1_words_beyond_the_last_count_as_zero() {
        assert_eq!(Subset::default().end(), 0);
        assert_eq!(Subset { words: vec![0, 0] }.end(), 0);
        assert_eq!(Subset { words: vec![0, 4, 0] }.end(), 35);
        assert!(!Subset { words: vec![u32::MAX] }.contains(32));
    }
}
