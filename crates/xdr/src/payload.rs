//! Opaque data in the memory in which it arrived.
//!
//! A message of several Sends, and an item in several Receives, lie in several slices. [`Payload`] hands them on as they
//! are. Only [`Payload::join`] copies them together, and counts the bytes copied.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Opaque data in no, one or several slices. One slice needs no memory besides its own. Payloads with equal bytes are
/// equal, however they are cut.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// The first slice. May be empty although others follow.
    pub(crate) first: Bytes,
    /// The slices after it. A box, since nearly all payloads have one slice and are moved often.
    #[expect(clippy::box_collection, reason = "the box is smaller, and most payloads need none")]
    rest: Option<Box<VecDeque<Bytes>>>,
}

impl Payload {
    /// Creates a payload in one slice.
    pub const fn new(data: Bytes) -> Self {
        Self { first: data, rest: None }
    }

    /// Returns the number of bytes in all slices.
    pub fn len(&self) -> usize {
        self.rest
            .iter()
            .flat_map(|rest| rest.iter())
            .map(Bytes::len)
            .fold(self.first.len(), usize::saturating_add)
    }

    /// Returns whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the slices in order, without empty ones.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> + Clone {
        let rest = self.rest.iter().flat_map(|rest| rest.iter());
        std::iter::once(&self.first).chain(rest).filter(|slice| !slice.is_empty())
    }

    /// Returns the first `N` bytes, if there are so many.
    #[must_use]
    pub fn first_chunk<const N: usize>(&self) -> Option<[u8; N]> {
        self.first.first_chunk().copied().or_else(|| self.gather_chunk())
    }

    #[cold]
    fn gather_chunk<const N: usize>(&self) -> Option<[u8; N]> {
        let mut chunk = [0; N];
        let mut bytes = self.iter().flatten();
        for target in &mut chunk {
            *target = *bytes.next()?;
        }
        Some(chunk)
    }

    /// Adds a slice at the end. An empty slice adds nothing.
    pub fn push(&mut self, slice: Bytes) {
        if slice.is_empty() {
            return;
        }
        if self.first.is_empty() && self.rest.is_none() {
            self.first = slice;
        } else {
            self.rest.get_or_insert_default().push_back(slice);
        }
    }

    /// Keeps the first `len` bytes; a shorter payload stays as it is.
    pub fn truncate(&mut self, len: usize) {
        let mut left = len.saturating_sub(self.first.len());
        self.first.truncate(len);
        let Some(rest) = &mut self.rest else { return };
        for slice in rest.iter_mut() {
            slice.truncate(left);
            left -= slice.len();
        }
        while rest.pop_back_if(|slice| slice.is_empty()).is_some() {}
        self.settle();
    }

    /// Removes the first `len` bytes and returns them; of a shorter payload, all.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Self {
        if len <= self.first.len() {
            return Self::new(self.first.split_to(len));
        }
        self.split_slices(len)
    }

    #[cold]
    fn split_slices(&mut self, len: usize) -> Self {
        let mut front = Self::default();
        let mut left = len;
        loop {
            let slice = self.first.split_to(self.first.len().min(left));
            left -= slice.len();
            front.push(slice);
            if left == 0 {
                return front;
            }
            let Some(next) = self.rest.as_mut().and_then(|rest| rest.pop_front()) else { return front };
            self.first = next;
            self.settle();
        }
    }

    /// Drops the box of no slices.
    fn settle(&mut self) {
        self.rest.take_if(|rest| rest.is_empty());
    }

    /// Puts a slice before all others.
    pub(crate) fn push_front(&mut self, slice: Bytes) {
        let second = std::mem::replace(&mut self.first, slice);
        if !second.is_empty() {
            self.rest.get_or_insert_default().push_front(second);
        }
    }

    /// Returns the data in one slice, and the number of bytes copied for it: none if it lies in one slice already.
    #[must_use]
    pub fn join(self) -> (Bytes, usize) {
        if self.rest.is_none() { (self.first, 0) } else { self.join_slices() }
    }

    #[cold]
    fn join_slices(self) -> (Bytes, usize) {
        let mut slices = self.iter();
        if let (Some(only), None) = (slices.next(), slices.next()) {
            return (only.clone(), 0);
        }
        let mut whole = BytesMut::with_capacity(self.len());
        self.iter().for_each(|slice| whole.extend_from_slice(slice));
        let copied = whole.len();
        (whole.freeze(), copied)
    }
}

impl From<Bytes> for Payload {
    fn from(data: Bytes) -> Self {
        Self::new(data)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(data: Vec<u8>) -> Self {
        Self::new(data.into())
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut payload = Self::default();
        slices.into_iter().for_each(|slice| payload.push(slice));
        payload
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().flatten().eq(other.iter().flatten())
    }
}

impl Eq for Payload {}

impl PartialEq<[u8]> for Payload {
    fn eq(&self, other: &[u8]) -> bool {
        self.len() == other.len() && self.iter().flatten().eq(other)
    }
}

impl PartialEq<Bytes> for Payload {
    fn eq(&self, other: &Bytes) -> bool {
        *self == **other
    }
}

#[cfg(test)]
mod tests;
