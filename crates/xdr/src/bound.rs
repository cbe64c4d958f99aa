//! Bounds: the largest encoded form of a type, known at compile time.
//!
//! A caller provides memory for the longest reply before it calls. [`Bounded::BOUND`] states how much that is. It holds
//! the most inline bytes, and the most bytes of each DDP-eligible item in its order. [`derive(Xdr)`](macro@crate::Xdr)
//! computes the bound from the declaration. A type without a largest form is [`Bound::UNBOUNDED`].
//!
//! *Buffers.* None: bounds are constants.
//!
//! *Errors.* Sums saturate, and `usize::MAX` means that there is no bound. More than [`Bound::ITEMS_MAX`] eligible items
//! in one type panic; in a constant, that is a compile error.

use crate::{UNIT, padded_len};

/// A type whose largest encoded form is known.
#[diagnostic::on_unimplemented(
    message = "the largest encoded form of `{Self}` isn't known",
    note = "`#[derive(Xdr)]` implements `Bounded`; beside a hand-written `Encode` and `Decode`, state `BOUND` too"
)]
pub trait Bounded {
    /// The largest encoded form of any value that can be encoded.
    const BOUND: Bound;

    /// Most bytes that an encoded value takes inline, without the data of DDP-eligible items; `usize::MAX` without a
    /// bound.
    const MAX_LEN: usize = Self::BOUND.max_len();

    /// Most DDP-eligible items of a value (RFC 8166 §6.1).
    const DDP_ITEMS: usize = Self::BOUND.items();
}

/// The largest encoded form of a type: inline bytes, and the DDP-eligible items in their order.
///
/// Bounds are composed like the types: [`then`](Self::then) for the fields of a structure, [`or`](Self::or) for the arms
/// of a union.
///
/// ```
/// use rpcrdma_xdr::Bound;
///
/// // A status, then data or nothing.
/// let results = Bound::words(1).then(Bound::eligible(1000).or(Bound::NONE));
/// assert_eq!((results.max_len(), results.maxima()), (8, &[1000][..]));
/// assert_eq!(results.unreduced(), 1008);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Most inline bytes; an eligible item counts with its length word.
    inline: usize,
    /// Most bytes of the unreduced stream.
    unreduced: usize,
    /// Most bytes of data of each eligible item; 0 from number `count` on.
    items: [usize; Self::ITEMS_MAX],
    /// Most eligible items.
    count: usize,
    /// Fewest eligible items: the items of whatever follows may be counted from there on.
    least: usize,
}

impl Bound {
    /// Most DDP-eligible items that a bound can describe.
    pub const ITEMS_MAX: usize = 8;

    /// No bytes: void (RFC 4506 §4.16).
    pub const NONE: Self = Self::words(0);

    /// No bound. Whether there are DDP-eligible items isn't known: none are counted.
    pub const UNBOUNDED: Self = Self::bytes(usize::MAX);

    /// Returns the bound of `count` words of four bytes each.
    pub const fn words(count: usize) -> Self {
        Self::bytes(count.saturating_mul(UNIT))
    }

    /// Returns the bound of counted opaque data or of a string of at most `max` bytes (RFC 4506 §4.10, §4.11).
    pub const fn opaque(max: usize) -> Self {
        Self::words(1).then(Self::opaque_fixed(max))
    }

    /// Returns the bound of fixed-length opaque data of `length` bytes (RFC 4506 §4.9).
    pub const fn opaque_fixed(length: usize) -> Self {
        Self::bytes(padded_len(length))
    }

    /// Returns the bound of a DDP-eligible item of at most `max` bytes: its length word inline, and its data.
    pub const fn eligible(max: usize) -> Self {
        let mut items = [0; Self::ITEMS_MAX];
        raise(&mut items, &[max]);
        Self { inline: UNIT, unreduced: Self::opaque(max).inline, items, count: 1, least: 1 }
    }

    /// Returns the bound of a counted array of at most `max` elements (RFC 4506 §4.13).
    ///
    /// # Panics
    ///
    /// If there are more than [`ITEMS_MAX`](Self::ITEMS_MAX) DDP-eligible items in all elements.
    pub const fn counted(max: usize, element: Self) -> Self {
        Self::words(1).then(element.up_to(max))
    }

    /// Returns the bound of a linked list of at most `max` elements (RFC 4506 §4.19).
    ///
    /// # Panics
    ///
    /// If there are more than [`ITEMS_MAX`](Self::ITEMS_MAX) DDP-eligible items in all elements.
    pub const fn list(max: usize, element: Self) -> Self {
        Self::words(1).then(Self::words(1).then(element).up_to(max))
    }

    /// Returns the bound of `length` elements, neither more nor fewer (RFC 4506 §4.12).
    ///
    /// # Panics
    ///
    /// If there are more than [`ITEMS_MAX`](Self::ITEMS_MAX) DDP-eligible items in all elements.
    pub const fn array(length: usize, element: Self) -> Self {
        if element.count == 0 {
            return element.times(length);
        }
        let mut all = Self::NONE;
        let mut left = length;
        while left > 0 {
            all = all.then(element);
            left -= 1;
        }
        all
    }

    /// Returns the bound of a value or of nothing, with the boolean in front (RFC 4506 §4.19).
    pub const fn optional(self) -> Self {
        Self::words(1).then(self.or(Self::NONE))
    }

    /// Returns the bound of this value and `next` after it.
    ///
    /// # Panics
    ///
    /// If there are more than [`ITEMS_MAX`](Self::ITEMS_MAX) DDP-eligible items in both.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        let count = self.count.saturating_add(next.count);
        assert!(count <= Self::ITEMS_MAX, "a type has more DDP-eligible items than `Bound::ITEMS_MAX`");
        let mut items = self.items;
        // The first value may hold fewer items than it can: those of the second then stand further in front.
        let mut ahead = self.least;
        while ahead <= self.count {
            if let Some((_, behind)) = items.split_at_mut_checked(ahead) {
                raise(behind, next.maxima());
            }
            ahead += 1;
        }
        Self {
            inline: self.inline.saturating_add(next.inline),
            unreduced: self.unreduced.saturating_add(next.unreduced),
            items,
            count,
            least: self.least + next.least,
        }
    }

    /// Returns the bound of this value or `other` in its place: the arms of a union (RFC 4506 §4.15).
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        let mut items = self.items;
        raise(&mut items, &other.items);
        Self {
            inline: larger(self.inline, other.inline),
            unreduced: larger(self.unreduced, other.unreduced),
            items,
            count: larger(self.count, other.count),
            least: if self.least < other.least { self.least } else { other.least },
        }
    }

    /// Returns the most bytes that a value takes inline; `usize::MAX` without a bound. A DDP-eligible item counts with
    /// its length word only.
    pub const fn max_len(&self) -> usize {
        self.inline
    }

    /// Returns the most bytes of the unreduced stream, if nothing travels in a chunk; `usize::MAX` without a bound.
    pub const fn unreduced(&self) -> usize {
        self.unreduced
    }

    /// Returns whether there is a largest form, with all its items.
    pub const fn is_bounded(&self) -> bool {
        self.unreduced != usize::MAX
    }

    /// Returns the most DDP-eligible items of a value.
    pub const fn items(&self) -> usize {
        self.count
    }

    /// Returns the most bytes of data of each DDP-eligible item, in their order and without pads.
    pub const fn maxima(&self) -> &[usize] {
        match self.items.split_at_checked(self.count) {
            Some((maxima, _)) => maxima,
            None => &self.items,
        }
    }

    /// Returns the bytes of memory for the data of all DDP-eligible items together, each with its pad.
    pub const fn payload(&self) -> usize {
        let mut sum = 0usize;
        let mut maxima = self.maxima();
        while let Some((max, rest)) = maxima.split_first() {
            sum = sum.saturating_add(Self::opaque_fixed(*max).inline);
            maxima = rest;
        }
        sum
    }

    const fn bytes(inline: usize) -> Self {
        Self { inline, unreduced: inline, items: [0; Self::ITEMS_MAX], count: 0, least: 0 }
    }

    /// Returns the bound of `count` values in a row that hold no eligible items.
    const fn times(self, count: usize) -> Self {
        Self::bytes(self.inline.saturating_mul(count))
    }

    /// Returns the bound of at most `max` values in a row.
    const fn up_to(self, max: usize) -> Self {
        if self.count == 0 {
            return self.times(max);
        }
        let mut all = Self::NONE;
        let mut left = max;
        while left > 0 {
            all = self.then(all).or(Self::NONE);
            left -= 1;
        }
        all
    }
}

/// The largest form of a counted type, but for its maximum.
#[derive(Clone, Copy, Debug)]
pub struct CountedForm {
    /// Bound of each element; `None` for bytes.
    element: Option<Bound>,
    /// Whether the item is optional.
    optional: bool,
}

impl CountedForm {
    /// Opaque data or a string: elements of one byte, padded together.
    pub const BYTES: Self = Self { element: None, optional: false };

    /// Returns the form of an array of such elements.
    pub const fn array(element: Bound) -> Self {
        Self { element: Some(element), optional: false }
    }

    /// Returns the form of the item or nothing, with a boolean in front.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Returns the bound of an item of at most `max` bytes or elements.
    ///
    /// # Panics
    ///
    /// If there are more than [`Bound::ITEMS_MAX`] DDP-eligible items in all elements.
    pub const fn at_most(self, max: usize) -> Bound {
        let bound = match self.element {
            Some(element) => Bound::counted(max, element),
            None => Bound::opaque(max),
        };
        if self.optional { bound.optional() } else { bound }
    }

    /// Returns the bound of the same elements as a linked list of at most `max`.
    ///
    /// # Panics
    ///
    /// If there are more than [`Bound::ITEMS_MAX`] DDP-eligible items in all elements.
    pub const fn list(self, max: usize) -> Bound {
        match self.element {
            Some(element) => Bound::list(max, element),
            None => Bound::UNBOUNDED,
        }
    }
}

const fn larger(left: usize, right: usize) -> usize {
    if left > right { left } else { right }
}

/// Raises each of `maxima` to its counterpart in `to`.
const fn raise(mut maxima: &mut [usize], mut to: &[usize]) {
    while let (Some((maximum, rest)), Some((value, values))) = (maxima.split_first_mut(), to.split_first()) {
        *maximum = larger(*maximum, *value);
        maxima = rest;
        to = values;
    }
}

#[cfg(test)]
mod tests;
