//! Values: the traits of types that can be encoded and decoded, and their implementations for basic types. Values of
//! any type are encoded and decoded here too.
//!
//! Opaque data, strings and arrays have their length in front. They implement [`Counted`] instead of [`Encode`] and
//! [`Decode`]: without a maximum they cannot be read or written.

use bytes::Bytes;

use crate::{
    Bound, Bounded, CountedForm, DecodeError, Decoder, EncodeError, Encoder, Payload, Stream, Text, UNIT,
    padded_len,
};

/// A value that has an XDR form.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no XDR form of its own",
    note = "a counted item (`Bytes`, `Text`, `String`, `Vec<_>`) needs `#[xdr(max = N)]`, a linked list `#[xdr(list)]`"
)]
pub trait Encode {
    /// Writes the value at the encoder's position.
    ///
    /// # Errors
    /// A count above its maximum, or a value that breaks a rule of its type.
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError>;
}

/// A value that can be read from its XDR form.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be read from XDR without a limit",
    note = "a counted item (`Bytes`, `Text`, `String`, `Vec<_>`) needs `#[xdr(max = N)]`, a linked list `#[xdr(list)]`"
)]
pub trait Decode: Sized {
    /// Fewest bytes that an encoded value takes inline, without data that may travel in a chunk. Bounds the elements of
    /// an array before memory for them is allocated.
    const MIN_LEN: usize;

    /// Reads a value at the decoder's position.
    ///
    /// # Errors
    /// Bytes that are no value of this type. The decoder must not be used after an error.
    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError>;
}

/// A value with a count in front, which needs a maximum: in bytes for opaque data and strings, in elements for arrays.
#[diagnostic::on_unimplemented(message = "`{Self}` is no counted item: `max` has no meaning for it")]
pub trait Counted: Sized {
    /// The largest form of the item, but for its maximum.
    const FORM: CountedForm;

    /// Writes count and content.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for more than `max`, and those of the content.
    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError>;

    /// Reads count and content.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] for more than `max`, before anything is allocated, and those of the content.
    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError>;
}

/// Opaque data with a count in front that may travel in a chunk (RFC 8166 §6.1).
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be DDP-eligible",
    note = "`#[xdr(ddp)]` takes `Payload`, `Bytes` and `Text`"
)]
pub trait Eligible: Sized {
    /// Writes the data as an eligible payload.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for more than `max` bytes.
    fn encode_eligible(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError>;

    /// Reads the data, from the chunk in which it travelled.
    ///
    /// # Errors
    /// As [`Decoder::payload_slices`].
    fn decode_eligible(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError>;
}

/// Encodes one value into a stream of its own.
///
/// # Errors
/// As [`Encode::encode`] of the type.
pub fn encode<T: Encode + ?Sized>(value: &T) -> Result<Stream, EncodeError> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder)?;
    Ok(encoder.finish())
}

impl Encoder {
    /// Writes the first item of a union's default arm: its discriminant. The discriminant must not be one of `taken`,
    /// the values that have an arm of their own.
    ///
    /// # Errors
    /// [`EncodeError::DefaultArm`] for one of `taken`, and [`EncodeError::Invalid`] if the discriminant is no word.
    pub fn default_discriminant<T: Encode>(
        &mut self,
        union: &'static str,
        discriminant: &T,
        taken: &[u32],
    ) -> Result<(), EncodeError> {
        let (alone, _) = encode(discriminant)?.flatten();
        match <[u8; UNIT]>::try_from(&*alone) {
            Ok(word) => {
                let value = u32::from_be_bytes(word);
                if taken.contains(&value) {
                    return Err(EncodeError::DefaultArm { union, value });
                }
                self.u32(value);
                Ok(())
            }
            Err(_) => {
                Err(EncodeError::Invalid { reason: "the discriminant of a default arm takes four bytes" })
            }
        }
    }
}

impl Decoder {
    /// Reads a value of any type.
    ///
    /// # Errors
    /// As [`Decode::decode`] of the type.
    pub fn decode<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Reads the last value of a message and checks that nothing follows it.
    ///
    /// # Errors
    /// As [`Decode::decode`] of the type, and as [`finish`](Self::finish).
    pub fn decode_all<T: Decode>(mut self) -> Result<T, DecodeError> {
        let value = T::decode(&mut self)?;
        self.finish()?;
        Ok(value)
    }
}

macro_rules! primitive {
    ($($type:ident: $len:literal),*) => {$(
        impl Encode for $type {
            fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
                encoder.$type(*self);
                Ok(())
            }
        }

        impl Decode for $type {
            const MIN_LEN: usize = $len;

            fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
                decoder.$type()
            }
        }

        impl Bounded for $type {
            const BOUND: Bound = Bound::words($len / UNIT);
        }
    )*};
}

primitive!(u32: 4, i32: 4, u64: 8, i64: 8, f32: 4, f64: 8, bool: 4);

/// Void (RFC 4506 §4.16).
impl Encode for () {
    fn encode(&self, _: &mut Encoder) -> Result<(), EncodeError> {
        Ok(())
    }
}

impl Decode for () {
    const MIN_LEN: usize = 0;

    fn decode(_: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Bounded for () {
    const BOUND: Bound = Bound::NONE;
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        T::encode(self, encoder)
    }
}

/// A value in memory of its own, with the form of the value. Recursive types need it; the depth of their values is
/// limited ([`Decoder::DEPTH_MAX`]).
impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.nested(|encoder| T::encode(self, encoder))
    }
}

impl<T: Decode> Decode for Box<T> {
    const MIN_LEN: usize = T::MIN_LEN;

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.nested(T::decode).map(Self::new)
    }
}

impl<T: Bounded> Bounded for Box<T> {
    const BOUND: Bound = T::BOUND;
}

/// Optional data (RFC 4506 §4.19).
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.bool(self.is_some());
        self.as_ref().map_or(Ok(()), |value| value.encode(encoder))
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN_LEN: usize = 4;

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.bool()?.then(|| T::decode(decoder)).transpose()
    }
}

impl<T: Bounded> Bounded for Option<T> {
    const BOUND: Bound = T::BOUND.optional();
}

/// Optional data whose value is counted.
impl<T: Counted> Counted for Option<T> {
    const FORM: CountedForm = T::FORM.optional();

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.bool(self.is_some());
        self.as_ref().map_or(Ok(()), |value| value.encode_counted(max, encoder))
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.bool()?.then(|| T::decode_counted(max, decoder)).transpose()
    }
}

/// Fixed-length opaque data (RFC 4506 §4.9).
impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.opaque_fixed(self);
        Ok(())
    }
}

impl<const N: usize> Decode for [u8; N] {
    const MIN_LEN: usize = padded_len(N);

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque_fixed()
    }
}

impl<const N: usize> Bounded for [u8; N] {
    const BOUND: Bound = Bound::opaque_fixed(N);
}

/// Fixed-length array (RFC 4506 §4.12).
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        self.iter().try_for_each(|item| item.encode(encoder))
    }
}

impl<T: Decode, const N: usize> Decode for [T; N] {
    const MIN_LEN: usize = N.saturating_mul(T::MIN_LEN);

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let items = (0..N).map(|_| T::decode(decoder)).collect::<Result<Vec<T>, _>>()?;
        Self::try_from(items).map_err(|_| decoder.invalid("array of a wrong length"))
    }
}

impl<T: Bounded, const N: usize> Bounded for [T; N] {
    const BOUND: Bound = Bound::array(N, T::BOUND);
}

/// Variable-length opaque data (RFC 4506 §4.10): a slice of the message.
impl Counted for Bytes {
    const FORM: CountedForm = CountedForm::BYTES;

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.payload(self.clone(), max, false)
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(max)
    }
}

/// Data in the slices in which it arrived. Encoding several slices joins them, since a payload of a stream is one run of
/// memory.
impl Eligible for Payload {
    fn encode_eligible(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        if self.len() > max {
            return Err(EncodeError::too_long(self.len(), max));
        }
        encoder.payload(self.clone().join().0, max, true)
    }

    fn decode_eligible(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.payload_slices(max)
    }
}

/// Data in one slice, joined if it arrived in several: [`Payload`] avoids that.
impl Eligible for Bytes {
    fn encode_eligible(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.payload(self.clone(), max, true)
    }

    fn decode_eligible(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.payload(max)
    }
}

/// A string in one slice.
impl Eligible for Text {
    fn encode_eligible(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        self.0.encode_eligible(max, encoder)
    }

    fn decode_eligible(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.payload(max).map(Self)
    }
}

/// Variable-length opaque data, copied: [`Bytes`] avoids that.
impl Counted for Vec<u8> {
    const FORM: CountedForm = CountedForm::BYTES;

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.opaque(self, max)
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        Ok(decoder.opaque(max)?.into())
    }
}

/// String (RFC 4506 §4.11) of any bytes: a slice of the message.
impl Counted for Text {
    const FORM: CountedForm = CountedForm::BYTES;

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        self.0.encode_counted(max, encoder)
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.opaque(max).map(Self)
    }
}

/// String (RFC 4506 §4.11) that must be UTF-8.
impl Counted for String {
    const FORM: CountedForm = CountedForm::BYTES;

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.opaque(self.as_bytes(), max)
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.string(max)
    }
}

/// Variable-length array (RFC 4506 §4.13).
impl<T: Encode + Decode + Bounded> Counted for Vec<T> {
    const FORM: CountedForm = CountedForm::array(T::BOUND);

    fn encode_counted(&self, max: usize, encoder: &mut Encoder) -> Result<(), EncodeError> {
        encoder.count(self.len(), max)?;
        encoder.nested(|encoder| self.iter().try_for_each(|item| item.encode(encoder)))
    }

    fn decode_counted(max: usize, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let count = decoder.array_len(max, T::MIN_LEN)?;
        decoder.nested(|decoder| (0..count).map(|_| T::decode(decoder)).collect())
    }
}
