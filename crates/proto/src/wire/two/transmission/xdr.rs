//! XDR structures of operations and properties on transmissions, each described once.
//!
//! [`structure!`] and [`union!`] list the fields of a type in the order of the wire. Decoding, encoding and
//! the length follow from this one list. Nothing is owned here but copies of the words.

use bytes::{BufMut, BytesMut};

use super::Malformed;
use crate::wire::two::words::{WORD, Words};
use crate::wire::{Direction, Segment, narrow};

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
                    put($crate::wire::narrow(self.len()));
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
            put(narrow(half));
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
