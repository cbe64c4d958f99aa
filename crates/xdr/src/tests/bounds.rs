//! Bounds that the derive computes.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::{Bound, Bounded, padded_len};

fn shape<T: Bounded>() -> (usize, Vec<usize>) {
    (T::MAX_LEN, T::BOUND.maxima().to_vec())
}

/// Every form of a field, each with its maximum.
#[derive(Clone, Debug, PartialEq, Xdr)]
struct Fields {
    #[xdr(list, max = 2)]
    few: Vec<u32>,
    #[xdr(max = 3)]
    words: Vec<i32>,
    #[xdr(max = 5)]
    bytes: Vec<u8>,
    #[xdr(max = 16)]
    maybe: Option<Bytes>,
    #[xdr(max = 5)]
    names: Option<Vec<Half>>,
    either: Choice,
    #[xdr(ddp, max = 30)]
    target: Text,
    number: Box<f64>,
    kind: FileKind,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Half(bool);

#[derive(Clone, Debug, PartialEq, Xdr)]
enum Choice {
    #[xdr(value = 7)]
    Data {
        #[xdr(ddp, max = 1000)]
        data: Payload,
        #[xdr(ddp, max = 6)]
        more: Bytes,
    },
    #[xdr(default)]
    Nothing(u32),
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=max)
}

fn fields() -> impl Strategy<Value = Fields> {
    let data = (bytes(1000), bytes(6))
        .prop_map(|(data, more)| Choice::Data { data: data.into(), more: more.into() });
    let either = prop_oneof![data, (8u32..).prop_map(Choice::Nothing)];
    let words = (vec(any::<u32>(), 0..=2), vec(any::<i32>(), 0..=3), bytes(5), option::of(bytes(16)));
    let names = option::of(vec(any::<bool>().prop_map(Half), 0..=5));
    (words, names, either, bytes(30), any::<f64>()).prop_map(|(words, names, either, target, number)| {
        let (few, words, bytes, maybe) = words;
        let (maybe, target) = (maybe.map(Bytes::from), Text(target.into()));
        Fields {
            few,
            words,
            bytes,
            maybe,
            names,
            either,
            target,
            number: Box::new(number),
            kind: FileKind::Data,
        }
    })
}

/// Returns the inline bytes of a value, with the length words of its eligible items, and the bytes of each of these.
fn measure<T: Encode>(value: &T) -> (usize, Vec<usize>) {
    let stream = encode(value).unwrap();
    let eligible = stream.pieces().iter().filter_map(|piece| match piece {
        Piece::Payload { data, ddp_eligible: true } => Some(data.len()),
        _ => None,
    });
    let eligible: Vec<_> = eligible.collect();
    let moved: usize = eligible.iter().map(|&length| padded_len(length)).sum();
    (stream.len() - moved, eligible)
}

/// Checks that a value fits the bound of its type; returns whether it fills it.
fn fits<T: Encode + Bounded>(value: &T) -> bool {
    let (inline, eligible) = measure(value);
    let unreduced = encode(value).unwrap().len();
    assert!(inline <= T::MAX_LEN && eligible.len() <= T::DDP_ITEMS);
    assert!(eligible.iter().zip(T::BOUND.maxima()).all(|(length, max)| length <= max));
    assert!(unreduced <= T::BOUND.unreduced());
    (inline, eligible.len(), unreduced) == (T::MAX_LEN, T::DDP_ITEMS, T::BOUND.unreduced())
}

proptest! {
    /// Every value fits the bound of its type.
    #[test]
    fn no_value_is_longer_than_its_bound(value in fields(), file in (bytes(255), bytes(9)), id: u64) {
        fits(&value);
        fits(&value.either);
        fits(&Some(&value).cloned());
        fits(&[value.either.clone(), Choice::Nothing(1)]);
        let [filename, creator] = [file.0, file.1].map(|name| String::from_utf8_lossy(&name).into_owned());
        prop_assume!(filename.len() <= 255 && creator.len() <= 32);
        let kind = FileType::Data { creator: creator.clone() };
        fits(&File { filename, kind, owner: creator, data: Bytes::new() });
        fits(&Outcome::<u64, Fields>::Done(id));
        fits(&Outcome::<u64, Fields>::Failed(2, value));
    }
}

/// A bound is not too large either: the largest value fills it.
#[test]
fn the_largest_value_fills_its_bound() {
    let largest = Fields {
        few: vec![1; 2],
        words: vec![1; 3],
        bytes: vec![1; 5],
        maybe: Some(vec![1; 16].into()),
        names: Some(vec![Half(true); 5]),
        either: Choice::Data { data: vec![1; 1000].into(), more: vec![1; 6].into() },
        target: Text(vec![1; 30].into()),
        number: Box::new(1.0),
        kind: FileKind::Exec,
    };
    assert!(fits(&largest) && fits(&largest.either) && fits(&Some(largest.either.clone())));
    assert!(fits(&Outcome::<u64, Fields>::Failed(2, largest.clone())));
    assert!(!fits(&Outcome::<u64, Fields>::Done(1)) && !fits(&Fields { words: vec![], ..largest }));
    let text = |length| "x".repeat(length);
    let kind = FileType::Exec { interpreter: text(255) };
    let file = File { filename: text(255), kind, owner: text(32), data: vec![0; 65535].into() };
    assert!(fits(&file) && fits(&[file]));
    assert!(fits(&Cookie([1; 6])) && fits(&()) && fits(&Empty) && fits(&[1u64; 3]));
}

#[test]
fn bounds_of_basic_types() {
    for (bound, words) in [
        (<()>::BOUND, 0),
        (bool::BOUND, 1),
        (u32::BOUND, 1),
        (i32::BOUND, 1),
        (f32::BOUND, 1),
        (u64::BOUND, 2),
        (i64::BOUND, 2),
        (f64::BOUND, 2),
        (<Option<u64>>::BOUND, 3),
        (<Box<u64>>::BOUND, 2),
        (<[u64; 3]>::BOUND, 6),
        (<[u8; 5]>::BOUND, 2),
    ] {
        assert_eq!(bound, Bound::words(words));
    }
}

#[test]
fn a_structure_is_the_sum_of_its_fields() {
    assert_eq!(shape::<Name>(), (4 + 256, vec![]));
    assert_eq!(shape::<Entry>(), (8 + 260, vec![]));
    let inline = (2 * 8 + 4) + 16 + 12 + 24 + (4 + 4 + 20) + (4 + 8) + 4 + 8 + 4;
    // The target is the third item, or the first if there is no data.
    assert_eq!(shape::<Fields>(), (inline, vec![1000, 30, 30]));
    assert_eq!(Fields::BOUND.unreduced(), inline + 1000 + 8 + 32);
    assert_eq!((Fields::BOUND.payload(), Fields::DDP_ITEMS), (1000 + 32 + 32, 3));
}

#[test]
fn a_union_is_the_larger_of_its_arms() {
    assert_eq!(shape::<FileKind>(), (4, vec![]));
    assert_eq!(shape::<FileType>(), (4 + 4 + 256, vec![]));
    assert_eq!(shape::<Outcome<u64, u32>>(), (12, vec![]));
    assert_eq!(shape::<Outcome<(), u32>>(), (8, vec![]));
}

/// A list without a maximum has no bound, and its declaration never needs the bound of its elements.
#[test]
fn a_list_without_maximum_has_no_bound() {
    #[derive(Xdr)]
    struct Tree {
        #[xdr(list)]
        children: Vec<Self>,
    }
    assert!(!Tree::BOUND.is_bounded() && !Everything::BOUND.is_bounded());
}
