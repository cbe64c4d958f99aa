//! The algebra of bounds.

use super::*;

fn shape(bound: Bound) -> (usize, Vec<usize>) {
    (bound.max_len(), bound.maxima().to_vec())
}

#[test]
fn a_sum_is_in_order_and_an_alternative_is_the_larger() {
    let both = Bound::eligible(5).then(Bound::words(2)).then(Bound::eligible(8));
    assert_eq!(shape(both), (16, vec![5, 8]));
    assert_eq!((both.payload(), both.unreduced(), both.items()), (16, 32, 2));
    let either = Bound::words(9).or(Bound::eligible(100).then(Bound::words(1)));
    assert_eq!(shape(either), (36, vec![100]));
    assert_eq!(either.unreduced(), 108, "the arm with the data, not the largest of both");
}

/// An item after an optional one may be the first of its message.
#[test]
fn an_item_that_may_be_missing_leaves_its_place_to_the_next() {
    let after = Bound::eligible(100).optional().then(Bound::eligible(2000));
    assert_eq!(shape(after), (4 + 4 + 4, vec![2000, 2000]));
    let fixed = Bound::eligible(100).then(Bound::eligible(2000));
    assert_eq!(shape(fixed), (8, vec![100, 2000]));
}

#[test]
fn elements_multiply() {
    assert_eq!(Bound::counted(3, Bound::words(2)), Bound::words(7));
    assert_eq!(Bound::list(3, Bound::words(2)), Bound::words(10));
    assert_eq!(Bound::array(3, Bound::words(2)), Bound::words(6));
    assert_eq!(shape(Bound::array(2, Bound::eligible(7))), (8, vec![7, 7]));
    assert_eq!(shape(Bound::counted(2, Bound::eligible(7))), (12, vec![7, 7]));
    assert_eq!(shape(Bound::counted(2, Bound::eligible(7)).then(Bound::eligible(9))), (16, vec![9, 9, 9]));
    assert_eq!(CountedForm::BYTES.at_most(5), Bound::words(3));
    assert_eq!(CountedForm::array(Bound::words(1)).optional().at_most(5), Bound::words(7));
}

#[test]
fn sums_saturate_to_no_bound() {
    assert!(!Bound::UNBOUNDED.is_bounded() && Bound::words(1 << 30).is_bounded());
    for bound in [
        Bound::UNBOUNDED.then(Bound::words(1)),
        Bound::NONE.or(Bound::UNBOUNDED),
        Bound::counted(2, Bound::UNBOUNDED),
        Bound::UNBOUNDED.optional(),
        Bound::words(usize::MAX),
        Bound::opaque(usize::MAX - 1),
    ] {
        assert_eq!((bound.max_len(), bound.is_bounded()), (usize::MAX, false));
    }
    let item = Bound::eligible(usize::MAX);
    assert_eq!((item.max_len(), item.payload(), item.is_bounded()), (4, usize::MAX, false));
    assert_eq!(Bound::counted(0, Bound::UNBOUNDED), Bound::words(1));
}

#[test]
#[should_panic(expected = "more DDP-eligible items than `Bound::ITEMS_MAX`")]
fn too_many_items_are_refused() {
    let _ = Bound::array(Bound::ITEMS_MAX + 1, Bound::eligible(1));
}
