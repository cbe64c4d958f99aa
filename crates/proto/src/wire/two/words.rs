//! The cursor of the decoders of operations, and the description of their XDR structures.
//!
//! [`structure!`] and [`union!`] list the fields of a type in the order of the wire. Decoding, encoding and
//! the length follow from this one list. Nothing is owned here but copies of the words.

use bytes::{BufMut, BytesMut};

use super::transmission::{Malformed, PlacementUse};
use crate::limits::Limits;
use crate::wire::reader::Reader;
use crate::wire::{Direction, Segment};

pub(super) const WORD: usize = 4;

/// Data that ends elsewhere than its structure. Each kind of structure has its own errors for this.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Before the words that are due.
    Early,
    /// So many bytes behind them.
    Late(usize),
}

/// Words of an operation or property, with errors that say where its end was met.
#[derive(Debug)]
pub(super) struct Words<'a, 'b> {
    reader: &'a mut Reader<'b>,
    pub(super) limits: &'a Limits,
    /// The column of table 1 (rtrext-02 §6.2) for the locations that are read.
    pub(super) place: PlacementUse,
}

impl<'a, 'b> Words<'a, 'b> {
    pub(super) const fn new(reader: &'a mut Reader<'b>, limits: &'a Limits) -> Self {
        Self { reader, limits, place: PlacementUse::RequestLocation }
    }

    /// Reads all of `data` as one item.
    pub(super) fn whole<T, E: From<End>>(
        data: &[u8],
        limits: &Limits,
        read: impl FnOnce(&mut Words<'_, '_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut reader = Reader::new(data);
        let item = read(&mut Words::new(&mut reader, limits))?;
        match data.len() - reader.position() {
            0 => Ok(item),
            extra => Err(End::Late(extra).into()),
        }
    }

    pub(super) fn word(&mut self) -> Result<u32, End> {
        self.reader.u32().ok_or(End::Early)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'b [u8], End> {
        self.reader.bytes(len).ok_or(End::Early)
    }

    /// Reads an array. Its count is bounded before anything is allocated for it.
    pub(super) fn array<T, E: From<End>>(
        &mut self,
        allowed: usize,
        too_many: fn(u32, usize) -> E,
        mut element: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let count = self.word()?;
        if usize::try_from(count).map_or(true, |count| count > allowed) {
            return Err(too_many(count, allowed));
        }
        (0..count).map(|_| element(self)).collect()
    }
}

/// A structure of words in an operation or property on transmissions.
pub(super) trait Structure {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed>
    where
        Self: Sized;

    /// Gives each word to `put`, in the order of the wire.
    fn put(&self, put: &mut dyn FnMut(u32));

    /// Appends the words to `out`.
    fn append(&self, out: &mut BytesMut) {
        self.put(&mut |word| out.put_u32(word));
    }

    /// Returns the bytes that [`Self::append`] appends.
    fn wire_len(&self) -> usize {
        let mut len = 0;
        self.put(&mut |_| len += WORD);
        len
    }
}

/// Describes a structure by its fields, in the order of the wire.
macro_rules! structure {
    ($Type:ident { $($field:ident),+ }) => {
        impl Structure for $Type {
            fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
                Ok(Self { $($field: Structure::decode(words)?),+ })
            }

            fn put(&self, put: &mut dyn FnMut(u32)) {
                $( self.$field.put(put); )+
            }
        }
    };
}
pub(super) use structure;

/// Describes a union by its discriminators and the fields of each arm, and defines the function that returns
/// the discriminator. `$unknown` is the error for a value without an arm.
macro_rules! union {
    (
        $(#[$meta:meta])* $vis:vis fn $tag:ident($Type:ident) -> $Tag:ty, $unknown:expr;
        $( $value:expr => $Arm:ident $(($inner:ident))? $({ $($field:ident),+ })?, )+
    ) => {
        impl $Type {
            $(#[$meta])*
            #[must_use]
            $vis const fn $tag(&self) -> $Tag {
                match self {
                    $( Self::$Arm { .. } => $value, )+
                }
            }
        }

        impl Structure for $Type {
            fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
                let tag = words.word()?;
                $(
                    let value: $Tag = $value;
                    if tag == u32::from(value) {
                        $( let $inner = Structure::decode(words)?; )?
                        return Ok(Self::$Arm $(($inner))? $({ $($field: Structure::decode(words)?),+ })?);
                    }
                )+
                Err($unknown(words, tag))
            }

            fn put(&self, put: &mut dyn FnMut(u32)) {
                put(u32::from(self.$tag()));
                match self {
                    $( Self::$Arm $(($inner))? $({ $($field),+ })? => {
                        $( $inner.put(put); )?
                        $( $( $field.put(put); )+ )?
                    } )+
                }
            }
        }
    };
}
pub(super) use union;

/// Describes arrays by their elements, the limit of each, and the refusal of more.
macro_rules! arrays {
    ($( $Type:ty: $limit:ident, $TooMany:ident; )+) => {
        $(
            impl Structure for Vec<$Type> {
                fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
                    let too_many = |count, allowed| Malformed::$TooMany { count, allowed };
                    words.array(words.limits.$limit, too_many, Structure::decode)
                }

                fn put(&self, put: &mut dyn FnMut(u32)) {
                    // Within limits far below 2^32.
                    put(u32::try_from(self.len()).unwrap_or(u32::MAX));
                    self.iter().for_each(|element| element.put(put));
                }
            }
        )+
    };
}
pub(super) use arrays;

impl Structure for u32 {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        Ok(words.word()?)
    }

    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(*self);
    }
}

impl Structure for u64 {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        Ok(Self::from(words.word()?) << 32 | Self::from(words.word()?))
    }

    fn put(&self, put: &mut dyn FnMut(u32)) {
        for half in [self >> 32, self & Self::from(u32::MAX)] {
            put(u32::try_from(half).unwrap_or(u32::MAX));
        }
    }
}

impl Structure for Direction {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        let value = words.word()?;
        Self::of(value).ok_or(Malformed::BadDirection { value })
    }

    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(self.word());
    }
}

impl<T: Structure> Structure for Option<T> {
    fn decode(words: &mut Words<'_, '_>) -> Result<Self, Malformed> {
        match words.word()? {
            0 => Ok(None),
            1 => T::decode(words).map(Some),
            value => Err(Malformed::BadDiscriminator { value }),
        }
    }

    fn put(&self, put: &mut dyn FnMut(u32)) {
        put(u32::from(self.is_some()));
        self.iter().for_each(|item| item.put(put));
    }
}

structure!(Segment { handle, length, offset });
