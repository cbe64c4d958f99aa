//! Recursive types: their form, and the limit on their depth.

use super::*;
use crate::{Bounded, Encoder};

#[derive(Debug, PartialEq, Xdr)]
struct Chain {
    value: u32,
    #[xdr(recursive)]
    next: Option<Box<Self>>,
}

#[derive(Debug, PartialEq, Xdr)]
struct Tree(#[xdr(recursive, max = 2)] Vec<Self>);

#[derive(Debug, PartialEq, Xdr)]
struct Forest(#[xdr(list)] Vec<Self>);

#[derive(Debug, PartialEq, Xdr)]
enum Expression {
    #[xdr(value = 0)]
    Number(f64),
    #[xdr(value = 1)]
    Sum {
        #[xdr(recursive)]
        terms: [Box<Self>; 2],
    },
}

/// Two types that hold each other: one mark breaks the circle.
#[derive(Debug, PartialEq, Xdr)]
struct Even {
    #[xdr(recursive)]
    next: Option<Box<Odd>>,
}

#[derive(Debug, PartialEq, Xdr)]
struct Odd {
    even: Even,
}

/// A hand-written recursion counts its levels by itself.
#[derive(Debug, PartialEq)]
struct HandWritten(Option<Box<Self>>);

impl Encode for HandWritten {
    fn encode(&self, encoder: &mut Encoder) -> Result<(), EncodeError> {
        self.0.encode(encoder)
    }
}

/// A value inside so many others.
fn trees(depth: usize) -> Tree {
    (1..depth).fold(Tree(vec![]), |tree, _| Tree(vec![tree]))
}

fn forests(depth: usize) -> Forest {
    (1..depth).fold(Forest(vec![]), |forest, _| Forest(vec![forest]))
}

/// A value that no decoder of this crate would read never leaves, however deep it is.
#[test]
fn a_value_deeper_than_the_limit_is_not_encoded() {
    fn check<T: Encode + Decode + PartialEq + std::fmt::Debug>(deepest: T, deeper: &T) {
        assert_eq!(Decoder::new(flat(&deepest)).decode_all(), Ok(deepest));
        assert_eq!(encode(deeper), Err(EncodeError::TooDeep { max: Decoder::DEPTH_MAX }));
    }
    let max = Decoder::DEPTH_MAX;
    check(numbers(max), &numbers(max + 1));
    check(trees(max), &trees(max + 1));
    check(forests(max), &forests(max + 1));
    assert!(encode(&numbers(5000)).is_err());
}

impl Decode for HandWritten {
    const MIN_LEN: usize = 4;

    fn decode(decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let next = decoder.bool()?.then(|| decoder.nested(Self::decode)).transpose()?;
        Ok(Self(next.map(Box::new)))
    }
}

fn numbers(depth: usize) -> Chain {
    let mut chain = Chain { value: 0, next: None };
    for value in (1u32..).take(depth) {
        chain = Chain { value, next: Some(Box::new(chain)) };
    }
    chain
}

/// RFC 4506 §4.19: the list of the document's example, as it declares it.
// requirement: rfc4506-4.19-1
#[test]
fn a_box_has_the_form_of_its_value() {
    assert_eq!(flat(&Box::new(7u32)), [0, 0, 0, 7][..]);
    assert_eq!((read(&[0, 0, 0, 7]), <Box<u64>>::MIN_LEN), (Ok(Box::new(7u32)), 8));
    let golden = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(flat(&numbers(2)), golden[..]);
    assert_eq!(Decoder::new(Bytes::copy_from_slice(&golden)).decode_all(), Ok(numbers(2)));

    let number = |value| Box::new(Expression::Number(value));
    let nested = Box::new(Expression::Sum { terms: [number(0.5), number(-1.0)] });
    let sum = Expression::Sum { terms: [nested, number(2.0)] };
    assert_eq!(Decoder::new(flat(&sum)).decode_all(), Ok(sum));
}

#[test]
fn recursive_types_have_no_bound() {
    assert!(!Chain::BOUND.is_bounded() && !Tree::BOUND.is_bounded() && !Expression::BOUND.is_bounded());
    assert!(!Even::BOUND.is_bounded() && !Odd::BOUND.is_bounded());
    assert_eq!((Chain::MAX_LEN, Chain::DDP_ITEMS), (usize::MAX, 0));
    assert_eq!((Chain::MIN_LEN, Tree::MIN_LEN, Odd::MIN_LEN), (8, 4, 4));
}

/// Checks that `deepest` levels are read, and that one level more, or a long message full of levels, is refused. Each
/// level is `level`; `end` closes that number of levels.
fn check<T: Decode>(deepest: usize, level: &[u8], end: impl Fn(usize) -> Vec<u8>) {
    let decode = |levels: usize| {
        let message = [level.repeat(levels), end(levels)].concat();
        Decoder::new(message.into()).decode_all::<T>().map(drop)
    };
    assert_eq!(decode(deepest), Ok(()));
    let refused = decode(deepest + 1).unwrap_err();
    assert!(matches!(refused, DecodeError::TooDeep { max: Decoder::DEPTH_MAX, .. }), "{refused}");
    assert_eq!(decode((1 << 20) / level.len()), Err(refused), "at one position, however much follows");
}

/// RFC 4506 §8: a peer chooses how deep values lie inside one another, and the stack is finite. Each kind of recursion
/// ends at the limit, however long the message is.
// requirement: rfc4506-8-5
#[test]
fn i5_recursion_ends_at_its_limit() {
    let run = || {
        let zeros = |count: usize| move |_| vec![0; count];
        check::<Chain>(Decoder::DEPTH_MAX, &[0, 0, 0, 9, 0, 0, 0, 1], zeros(8));
        check::<HandWritten>(Decoder::DEPTH_MAX, &[0, 0, 0, 1], zeros(4));
        check::<Even>(Decoder::DEPTH_MAX, &[0, 0, 0, 1], zeros(4));
        // The first term holds the next sum; the second terms follow at the end.
        check::<Expression>(Decoder::DEPTH_MAX, &[0, 0, 0, 1], |levels| vec![0; 12 * (levels + 1)]);
        // An empty array or list inside the last value is a level too.
        check::<Tree>(Decoder::DEPTH_MAX - 1, &[0, 0, 0, 1], zeros(4));
        check::<Forest>(Decoder::DEPTH_MAX - 1, &[0, 0, 0, 1], |levels| vec![0; 4 * (levels + 1)]);
    };
    // A quarter of the stack of a thread.
    std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap().join().unwrap();
}

/// Values beside one another are at one level.
#[test]
fn the_limit_is_on_depth_and_not_on_number() {
    let forest = Forest((0..1000).map(|_| Forest(vec![])).collect());
    assert_eq!(Decoder::new(flat(&forest)).decode_all(), Ok(forest));
}
