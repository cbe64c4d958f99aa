//! Operations by which peers tell each other about themselves: transport characteristics (xcharext-02 §2, §4), later called
//! properties (version-two-03 §5).
//!
//! These are plain values. Here characteristics are numbers with opaque data, copied out of the message;
//! [`characteristics`](crate::two::characteristics) knows their meaning.

use bytes::{BufMut, Bytes, BytesMut};

use super::Error;
use super::words::{WORD, Words};

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

/// Some elements of a list of values, by place (`xcharsubset`, xcharext-02 §2.1). Bit 0 of a word is the least significant one,
/// which no document says.
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
    /// A part of how the sender begins, before an [`Exchange::Initial`] with the rest (RDMA2_CONNPROP_MIDDLE).
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
    pub(super) fn flag(&mut self) -> Result<bool, Error> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::BadFlag { value }),
        }
    }

    pub(super) fn value(&mut self) -> Result<Value, Error> {
        Ok(Value { id: self.word()?, data: self.opaque()? })
    }

    pub(super) fn values(&mut self) -> Result<Vec<Value>, Error> {
        self.bounded(Self::value)
    }

    /// Reads values; data that runs past the end is a fault of its value (version-two-07 §5.1).
    pub(super) fn values_within(&mut self) -> Result<Vec<Value>, Error> {
        self.bounded(|words| {
            let (id, len) = (words.word()?, words.word()?);
            let data = words.data(len).map_err(|_| Error::ValueTruncated { id, len })?;
            Ok(Value { id, data })
        })
    }

    pub(super) fn subset(&mut self) -> Result<Subset, Error> {
        Ok(Subset { words: self.bounded(|words| Ok(words.word()?))? })
    }

    fn bounded<T>(&mut self, element: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let too_many = |count, allowed| Error::TooManyCharacteristics { count, allowed };
        self.array(self.limits.characteristics, too_many, element)
    }

    pub(super) fn initial(&mut self) -> Result<Exchange, Error> {
        let start = self.values()?;
        let constant = self.subset()?;
        within(&constant, &start)?;
        Ok(Exchange::Initial { start, constant })
    }

    pub(super) fn request(&mut self) -> Result<Exchange, Error> {
        Ok(Exchange::Request { want: self.values()? })
    }
}

/// A subset says nothing of what its set does not have.
fn within(subset: &Subset, set: &[Value]) -> Result<(), Error> {
    let (end, len) = (subset.end(), set.len());
    if end > len { Err(Error::SubsetTooLong { end, len }) } else { Ok(()) }
}

pub(super) fn put_opaque(data: &[u8], out: &mut BytesMut) {
    // Within limits far below 2^32.
    out.put_u32(u32::try_from(data.len()).unwrap_or(u32::MAX));
    out.put_slice(data);
    out.put_bytes(0, data.len().next_multiple_of(WORD) - data.len());
}

pub(super) fn put_value(value: &Value, out: &mut BytesMut) {
    out.put_u32(value.id);
    put_opaque(&value.data, out);
}

pub(super) fn put_values(values: &[Value], out: &mut BytesMut) {
    out.put_u32(u32::try_from(values.len()).unwrap_or(u32::MAX));
    values.iter().for_each(|value| put_value(value, out));
}

pub(super) fn put_subset(subset: &Subset, out: &mut BytesMut) {
    out.put_u32(u32::try_from(subset.words.len()).unwrap_or(u32::MAX));
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
