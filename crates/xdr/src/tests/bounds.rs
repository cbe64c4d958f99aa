//! Bounds that the derive computes.

use super::*;
use crate::{Bound, Bounded};

fn shape<T: Bounded>() -> (usize, Vec<usize>) {
    (T::MAX_LEN, T::BOUND.maxima().to_vec())
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
    #[derive(Xdr)]
    struct Fields {
        #[xdr(list, max = 2)]
        few: Vec<u32>,
        #[xdr(max = 3)]
        words: Vec<i32>,
        #[xdr(max = 5)]
        bytes: Vec<u8>,
        #[xdr(max = 16)]
        maybe: Option<Bytes>,
        #[xdr(ddp, max = 1000)]
        data: Payload,
        #[xdr(ddp, max = 30)]
        target: Text,
    }
    let inline = (2 * 8 + 4) + 16 + 12 + 24 + 4 + 4;
    assert_eq!(shape::<Fields>(), (inline, vec![1000, 30]));
    assert_eq!(Fields::BOUND.unreduced(), inline + 1000 + 32);
    assert_eq!(Fields::DDP_ITEMS, 2);
}

#[test]
fn a_union_is_the_larger_of_its_arms() {
    assert_eq!(shape::<FileKind>(), (4, vec![]));
    assert_eq!(shape::<FileType>(), (4 + 4 + 256, vec![]));
    assert_eq!(shape::<Outcome<u64, u32>>(), (12, vec![]));
    assert_eq!(shape::<Outcome<(), u32>>(), (8, vec![]));
}

/// A list without a maximum has no bound, and no reader asks for the bound of its elements.
#[test]
fn a_list_without_maximum_has_no_bound() {
    #[derive(Xdr)]
    struct Tree {
        #[xdr(list)]
        children: Vec<Tree>,
    }
    assert!(!Tree::BOUND.is_bounded() && !Everything::BOUND.is_bounded());
}
