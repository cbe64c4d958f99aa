//! The algebra of bounds.

use proptest::prelude::*;

use super::*;

/// The shape of a type, whose largest values are few enough to be listed.
#[derive(Clone, Debug)]
enum Shape {
    Words(usize),
    Opaque(usize),
    Eligible(usize),
    Both(Box<Self>, Box<Self>),
    Either(Box<Self>, Box<Self>),
    Optional(Box<Self>),
    Counted(usize, Box<Self>),
    List(usize, Box<Self>),
    Array(usize, Box<Self>),
}

/// Inline bytes, and the bytes of each eligible item.
type Value = (usize, Vec<usize>);

impl Shape {
    fn bound(&self) -> Bound {
        match self {
            Self::Words(count) => Bound::words(*count),
            Self::Opaque(max) => Bound::opaque(*max),
            Self::Eligible(max) => Bound::eligible(*max),
            Self::Both(first, second) => first.bound().then(second.bound()),
            Self::Either(one, other) => one.bound().or(other.bound()),
            Self::Optional(inner) => inner.bound().optional(),
            Self::Counted(max, element) => Bound::counted(*max, element.bound()),
            Self::List(max, element) => Bound::list(*max, element.bound()),
            Self::Array(length, element) => Bound::array(*length, element.bound()),
        }
    }

    /// Returns the largest value of each choice of arms and numbers of elements.
    fn values(&self) -> Vec<Value> {
        let rows = |front: usize, numbers: std::ops::RangeInclusive<usize>, element: &Self| {
            let mut row = vec![(front, vec![])];
            let mut all = Vec::new();
            for number in 0..=*numbers.end() {
                if numbers.contains(&number) {
                    all.extend(row.iter().cloned());
                }
                row = pairs(&row, &element.values());
            }
            all
        };
        match self {
            Self::Words(count) => vec![(4 * count, vec![])],
            Self::Opaque(max) => vec![(4 + max.next_multiple_of(4), vec![])],
            Self::Eligible(max) => vec![(4, vec![*max])],
            Self::Both(first, second) => pairs(&first.values(), &second.values()),
            Self::Either(one, other) => [one.values(), other.values()].concat(),
            Self::Optional(inner) => rows(4, 0..=1, inner),
            Self::Counted(max, element) => rows(4, 0..=*max, element),
            Self::List(max, element) => {
                rows(4, 0..=*max, &Self::Both(Box::new(Self::Words(1)), element.clone()))
            }
            Self::Array(length, element) => rows(0, *length..=*length, element),
        }
    }
}

fn pairs(first: &[Value], second: &[Value]) -> Vec<Value> {
    let pair = |a: &Value, b: &Value| (a.0 + b.0, [&a.1[..], &b.1].concat());
    first.iter().flat_map(|a| second.iter().map(move |b| pair(a, b))).collect()
}

fn leaf() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (0..4usize).prop_map(Shape::Words),
        (0..9usize).prop_map(Shape::Opaque),
        (0..99usize).prop_map(Shape::Eligible),
    ]
}

fn shapes() -> impl Strategy<Value = Shape> {
    leaf().prop_recursive(3, 8, 2, |inner| {
        let two = (inner.clone(), inner.clone()).prop_map(|(a, b)| (Box::new(a), Box::new(b)));
        let many = (0..3usize, inner.clone().prop_map(Box::new));
        prop_oneof![
            two.clone().prop_map(|(a, b)| Shape::Both(a, b)),
            two.prop_map(|(a, b)| Shape::Either(a, b)),
            inner.prop_map(|a| Shape::Optional(Box::new(a))),
            many.clone().prop_map(|(max, a)| Shape::Counted(max, a)),
            many.clone().prop_map(|(max, a)| Shape::List(max, a)),
            many.prop_map(|(length, a)| Shape::Array(length, a)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// No value of any type exceeds the bound, and for each number there is a value that reaches it.
    #[test]
    fn a_bound_is_that_of_the_largest_values(shape in shapes()) {
        let values = shape.values();
        prop_assume!(values.iter().all(|(_, items)| items.len() <= Bound::ITEMS_MAX) && values.len() < 5000);
        let bound = shape.bound();
        let largest = |of: fn(&Value) -> usize| values.iter().map(of).max().unwrap();
        let padded = |items: &[usize]| items.iter().map(|item| item.next_multiple_of(4)).sum::<usize>();
        prop_assert_eq!(bound.max_len(), largest(|(inline, _)| *inline));
        prop_assert_eq!(bound.items(), largest(|(_, items)| items.len()));
        let unreduced = values.iter().map(|(inline, items)| inline + padded(items)).max().unwrap();
        prop_assert_eq!(bound.unreduced(), unreduced);
        for (_, items) in &values {
            prop_assert!(items.iter().zip(bound.maxima()).all(|(item, max)| item <= max));
            prop_assert!(padded(items) <= bound.payload());
        }
    }
}

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
