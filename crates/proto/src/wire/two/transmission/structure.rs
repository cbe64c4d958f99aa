//! How the receive buffers of a side are made up, so that a Send can be padded to where bulk data belongs
//! (rtrext-02 §7.2, §8.3).

use bytes::BytesMut;
use thiserror::Error;

use super::Malformed;
use super::xdr::{Structure, structure};
use crate::wire::Limits;
use crate::wire::narrow;
use crate::wire::two::words::Words;

/// XMRSFLAG_PLT: a segment in which items can be placed (rtrext-02 §7.2).
pub const TARGETABLE: u32 = 1;

/// The alignment that our Receives can have, bytes: a page.
#[expect(clippy::cast_possible_truncation, reason = "a constant that is small")]
const OUR_ALIGN: u32 = rpcrdma_verbs::MAX_ALIGN as u32;

/// Segments in a row that are alike (`xmrbs_group` with its `xmrbs_seg`, rtrext-02 §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferGroup {
    /// `xmrgrp_count`: how many.
    pub count: u32,
    /// `xmrseg_length` of each, bytes.
    pub length: u32,
    /// `xmrseg_align`: what the address of each is a multiple of, bytes; 1 for no promise.
    pub align: u32,
    /// `xmrseg_flags`: [`TARGETABLE`], and bits that nobody has defined.
    pub flags: u32,
}

impl BufferGroup {
    /// Returns whether items can be placed in its segments.
    #[must_use]
    pub const fn is_targetable(&self) -> bool {
        self.flags & TARGETABLE != 0
    }

    fn total(&self) -> u64 {
        u64::from(self.count) * u64::from(self.length)
    }

    const fn is_like(&self, other: &Self) -> bool {
        self.length == other.length && self.align == other.align && self.flags == other.flags
    }
}

/// A segment of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSegment {
    /// Where it begins in the buffer, bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// The alignment of its address, bytes.
    pub align: u32,
    /// Its number among the targetable segments of its buffer, from 0 on; `None` if it is not one. In a group
    /// the numbers go on from buffer to buffer, also over those that nothing is placed in (rtrext-02 §6.2).
    pub target: Option<u64>,
}

/// A fault of a structure that no buffer can have.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inconsistent {
    /// A group has no segments.
    #[error("group {group} of a buffer has no segments")]
    NoSegments {
        /// Its place, from 0 on.
        group: usize,
    },
    /// The segments of a group have no bytes.
    #[error("segments without bytes in group {group} of a buffer")]
    NoBytes {
        /// Its place, from 0 on.
        group: usize,
    },
    /// The alignment is none.
    #[error("alignment {align} in group {group} of a buffer, which is no power of two")]
    Alignment {
        /// Its place, from 0 on.
        group: usize,
        /// `xmrseg_align`.
        align: u32,
    },
    /// The segments together are not the buffer; none of them, if it has no groups.
    #[error("segments of {sum} bytes in a buffer of {total}")]
    Total {
        /// Bytes of all segments.
        sum: u128,
        /// `xmrbuf_length`.
        total: u32,
    },
    /// A segment does not begin at a multiple of its alignment from the beginning of the buffer.
    #[error("segment at byte {offset} of a buffer, where {align} divides nothing, in group {group}")]
    Offset {
        /// The place of its group, from 0 on.
        group: usize,
        /// Where it begins.
        offset: u64,
        /// `xmrseg_align`.
        align: u32,
    },
}

/// The structure of each receive buffer of a side (`xmrbs_buf`, rtrext-02 §7.2). The structure of a peer is
/// not checked; its user calls [`Self::check`] first. Without groups it stands for the default, [`Self::default_of`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferStructure {
    /// `xmrbuf_length`: the whole buffer, bytes.
    pub total: u32,
    /// `xmrbuf_groups`, in the order of the buffer.
    pub groups: Vec<BufferGroup>,
}

impl BufferStructure {
    /// Bytes for headers and Payload before the first place for an item, in our Receives: a sender fills up
    /// what is left of it.
    pub const HEAD: u32 = 1024;

    /// Returns the structure that is assumed of a side that tells at most its receive size: one segment
    /// without alignment, and without placement (rtrext-02 §8.1).
    #[must_use]
    pub fn default_of(size: u32) -> Self {
        Self { total: size, groups: vec![BufferGroup { count: 1, length: size, align: 1, flags: 0 }] }
    }

    /// Returns a structure with [`Self::HEAD`] bytes for headers and Payload, and so many segments of this
    /// length, bytes, for items.
    #[must_use]
    pub fn with_items(count: u32, length: u32) -> Self {
        Self::behind_head(Self::HEAD, count, length)
    }

    /// Returns a structure with a head of this length, bytes, and segments for items behind it. The lengths
    /// bound the alignment of items, which is at most a page. A head of 4096 bytes and items as long as pages
    /// reach that.
    #[must_use]
    pub fn behind_head(head: u32, count: u32, length: u32) -> Self {
        let offsets = if count > 1 { head | length } else { head };
        let align = OUR_ALIGN.min(1 << offsets.trailing_zeros().min(31));
        let plain = BufferGroup { count: 1, length: head, align, flags: 0 };
        let items = BufferGroup { count, length, align, flags: TARGETABLE };
        let total = count.saturating_mul(length).saturating_add(head);
        Self { total, groups: vec![plain, items] }
    }

    /// Returns the alignment that a buffer needs for those of all its segments, bytes.
    #[must_use]
    pub fn align(&self) -> usize {
        let most = self.groups.iter().map(|group| group.align).max();
        most.and_then(|align| usize::try_from(align).ok()).unwrap_or(1)
    }

    /// Returns the structure with these segments and their total length, in the fewest groups and bytes:
    /// neighbours that are alike become one.
    ///
    /// # Errors
    /// Those of [`Self::check`]; [`Inconsistent::Total`] if the buffer would have more than 2^32 - 1 bytes,
    /// or none.
    pub fn new(groups: impl IntoIterator<Item = BufferGroup>) -> Result<Self, Inconsistent> {
        let mut merged: Vec<BufferGroup> = Vec::new();
        for group in groups {
            if let Some(last) = merged.last_mut()
                && last.is_like(&group)
                && let Some(count) = last.count.checked_add(group.count)
            {
                last.count = count;
            } else {
                merged.push(group);
            }
        }
        let mut structure = Self { total: 0, groups: merged };
        structure.total = narrow(structure.sum());
        structure.check()?;
        Ok(structure)
    }

    /// Returns the bytes of all segments together. Of a peer that announces only its structure, this is the receive size
    /// (rtrext-02 §8.3).
    #[must_use]
    pub fn sum(&self) -> u128 {
        self.groups.iter().map(|group| u128::from(group.total())).sum()
    }

    /// Checks that a buffer can be like this.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Inconsistent> {
        for (group, BufferGroup { count, length, align, .. }) in self.groups.iter().enumerate() {
            if *count == 0 {
                return Err(Inconsistent::NoSegments { group });
            }
            if *length == 0 {
                return Err(Inconsistent::NoBytes { group });
            }
            if !align.is_power_of_two() {
                return Err(Inconsistent::Alignment { group, align: *align });
            }
        }
        let (sum, total) = (self.sum(), self.total);
        if sum != u128::from(total) || total == 0 {
            return Err(Inconsistent::Total { sum, total });
        }
        Ok(())
    }

    /// Checks that a buffer in one piece, which begins at a multiple of every alignment, can be like this. A
    /// buffer in several pieces, received by a scatter list, keeps its promises without that (rtrext-02
    /// §7.2).
    ///
    /// # Errors
    /// As [`Self::check`], and [`Inconsistent::Offset`].
    pub fn check_in_one_piece(&self) -> Result<(), Inconsistent> {
        self.check()?;
        let mut offset = 0;
        for (group, BufferGroup { count, length, align, .. }) in self.groups.iter().enumerate() {
            let (length, step) = (u64::from(*length), u64::from(*align));
            // If the first two do, all do.
            for place in [offset, offset + length].into_iter().take(if *count > 1 { 2 } else { 1 }) {
                if !place.is_multiple_of(step) {
                    return Err(Inconsistent::Offset { group, offset: place, align: *align });
                }
            }
            offset += u64::from(*count) * length;
        }
        Ok(())
    }

    /// Returns the segments in their order. A peer can announce as many as its buffer has bytes, so each is
    /// made only when it is asked for.
    pub fn segments(&self) -> impl Iterator<Item = BufferSegment> + '_ {
        let mut offset = 0_u64;
        let mut targets = 0_u64;
        self.groups.iter().flat_map(|group| (0..group.count).map(move |_| group)).map(move |group| {
            let target = group.is_targetable().then_some(targets);
            let segment = BufferSegment { offset, length: group.length, align: group.align, target };
            offset = offset.saturating_add(u64::from(group.length));
            targets += u64::from(target.is_some());
            segment
        })
    }

    /// Returns the number of targetable segments of one buffer.
    #[must_use]
    pub fn targets(&self) -> u64 {
        let targetable = self.groups.iter().filter(|group| group.is_targetable());
        targetable.map(|group| u64::from(group.count)).fold(0, u64::saturating_add)
    }

    /// Returns the targetable segment with this number among those of one buffer, found without going through
    /// the others.
    #[must_use]
    pub fn target(&self, number: u64) -> Option<BufferSegment> {
        let mut offset = 0_u64;
        let mut before = 0_u64;
        for group in &self.groups {
            if group.is_targetable() {
                let place = number - before;
                if place < u64::from(group.count) {
                    let offset = offset.saturating_add(place * u64::from(group.length));
                    let BufferGroup { length, align, .. } = *group;
                    return Some(BufferSegment { offset, length, align, target: Some(number) });
                }
                before += u64::from(group.count);
            }
            offset = offset.saturating_add(group.total());
        }
        None
    }

    /// Decodes the value of a property, without a [check](Self::check) that it is consistent.
    ///
    /// # Errors
    /// [`Malformed`]: truncated, with bytes behind it, or with more groups than
    /// [`Limits::buffer_groups`](crate::wire::Limits::buffer_groups).
    pub fn decode(data: &[u8], limits: &Limits) -> Result<Self, Malformed> {
        Words::whole(data, limits, Structure::decode)
    }

    /// Returns the number of bytes that [`Self::encode`] appends.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.wire_len()
    }

    /// Appends the value of the property.
    pub fn encode(&self, out: &mut BytesMut) {
        self.append(out);
    }
}

structure!(BufferStructure { total, groups });
structure!(BufferGroup { count, length, align, flags });

#[cfg(test)]
mod tests {
    use super::*;

    /// rtrext-02 §7.2: no more is promised than Receives of ours keep, wherever they begin.
    #[test]
    fn rtrext_s7_2_our_receives_are_aligned_as_it_is_said() {
        for (head, count, length, align) in [
            (1024, 1, 4096, 1024),
            (1024, 3, 8192, 1024),
            (4096, 2, 1028, 4),
            (1024, 1, 96, 1024),
            (4096, 1, 96, 4096),
            (4096, 3, 8192, 4096),
            (65_536, 1, 65_536, 4096),
        ] {
            let structure = BufferStructure::behind_head(head, count, length);
            assert_eq!(structure.align(), align);
            assert_eq!(structure.check_in_one_piece(), Ok(()), "{structure:?}");
            assert!(structure.groups.iter().all(|group| group.align <= OUR_ALIGN), "{structure:?}");
            assert_eq!(structure.total, head + count * length);
        }
    }
}
