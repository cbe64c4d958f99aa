//! Every form of the language: octets as RFC 4506 has them, limits, and values that are refused.

use bytes::Bytes;
use rpcrdma::xdr::{Bounded, DecodeError, Decoder, EncodeError, encode};
use rpcrdma_xdrgen_tests::Elsewhere;
use rpcrdma_xdrgen_tests::language::*;

use crate::{octets, value, words};

fn shapes() -> Shapes {
    Shapes {
        a_int: -1,
        a_unsigned: 2,
        a_unsigned_int: 3,
        a_unsigned_long: 4,
        a_hyper: -5,
        a_unsigned_hyper: 6,
        a_bool: true,
        a_level: Level::Below,
        b_level: Level::NOTHING,
        fixed: *b"octets!!",
        counted: Bytes::from_static(b"abcde"),
        endless: Bytes::from_static(b"xy"),
        text: "text".into(),
        endless_text: "é".to_owned(),
        three: [7, 8, 9],
        few: vec![-10],
        any: vec![true, false],
        maybe: Some(11),
        floats: Some(Floats { single: 1.5, both: [-2.0, 0.25] }),
        of_c: 12,
    }
}

#[test]
fn base_types_and_shapes() {
    let mut expected = words(&[u32::MAX, 2, 3, 4, u32::MAX, -5_i32 as u32, 0, 6, 1, u32::MAX, 0]);
    expected.extend(b"octets!!");
    expected.extend([&words(&[5])[..], b"abcde\0\0\0"].concat());
    expected.extend([&words(&[2])[..], b"xy\0\0"].concat());
    expected.extend([&words(&[4])[..], b"text"].concat());
    expected.extend([&words(&[2])[..], "é\0\0".as_bytes()].concat());
    expected.extend(words(&[7, 8, 9, 1, u32::MAX, -10_i32 as u32, 2, 1, 0, 1, 11, 1]));
    expected.extend([&1.5_f32.to_be_bytes()[..], &(-2_f64).to_be_bytes(), &0.25_f64.to_be_bytes()].concat());
    expected.extend(words(&[12]));
    assert_eq!(octets(&shapes()), expected);
    assert_eq!(value(expected), Ok(shapes()));
    assert_eq!((Shapes::DDP_ITEMS, Shapes::BOUND.maxima()), (1, &[4096][..]));
    assert_eq!((octets(&Nothing {}).len(), value(Bytes::new())), (0, Ok(Nothing {})));
}

/// Names of constants that the derived code could use for its own.
#[test]
fn cases_by_constants() {
    for (arm, discriminant) in [
        (ByConstant::Case1(7), 1),
        (ByConstant::Case2(7), 2),
        (ByConstant::Value1(7), 9),
        (ByConstant::Value0(7), 5),
    ] {
        assert_eq!(octets(&arm), words(&[discriminant, 7]));
        assert_eq!(value(words(&[discriminant, 7])), Ok(arm));
    }
    assert_eq!(octets(&ByAgain::OneMore(*b"four")), [&words(&[1])[..], b"four"].concat());
}

#[test]
fn maxima_of_the_description_and_of_the_side_file() {
    let too_long = |shapes: Shapes| match encode(&shapes).unwrap_err() {
        EncodeError::TooLong { field, length, max } => (field, length, max),
        other => panic!("{other:?}"),
    };
    let counted = Bytes::from(vec![0; 256]);
    assert_eq!(too_long(Shapes { counted, ..shapes() }), ("Shapes.counted", 256, 255));
    let endless = Bytes::from(vec![0; 4097]);
    assert_eq!(too_long(Shapes { endless, ..shapes() }), ("Shapes.endless", 4097, 4096));
    assert_eq!(too_long(Shapes { any: vec![true; 33], ..shapes() }), ("Shapes.any", 33, 32));
    let chain = |length: usize| Chain { first: vec![Link { value: 1 }; length] };
    assert!(encode(&chain(16)).is_ok());
    assert!(encode(&chain(17)).is_err());
    assert!(matches!(value::<Pairs>(words(&[9])), Err(DecodeError::TooLong { count: 9, max: 8, .. })));
}

#[test]
fn constants_and_enumerations() {
    assert_eq!((DECIMAL, OCTAL, HEXADECIMAL, ZERO, SAME), (10, 8, 255, 0, 10));
    assert_eq!((NEGATIVE, WIDE, WIDE_NEGATIVE), (-7, u64::MAX, i64::MIN));
    let levels = [Level::Low, Level::Below, Level::None, Level::Ten, Level::High];
    let numbers = [0x8000_0000, u32::MAX, 0, 10, 0x7fff_ffff];
    for (level, number) in levels.into_iter().zip(numbers) {
        assert_eq!(octets(&level), words(&[number]));
        assert_eq!(value(words(&[number])), Ok(level));
    }
    assert_eq!(Level::NOTHING, Level::None);
    let unknown = value::<Level>(words(&[1])).unwrap_err();
    assert_eq!(unknown, DecodeError::UnknownEnumValue { name: "Level", position: 0, value: 1 });
}

/// Discriminants of each kind, negative ones among them; a default arm holds the discriminant.
#[test]
fn unions() {
    let cases = [
        (ByInt::CaseMinus1(5), vec![u32::MAX, 5]),
        (ByInt::Case0, vec![0]),
        (ByInt::Decimal(Pair { left: 1, right: 2 }), vec![10, 1, 2]),
        (
            ByInt::Default(-2, Bytes::from_static(b"rest")),
            vec![-2_i32 as u32, 4, u32::from_be_bytes(*b"rest")],
        ),
    ];
    for (union, expected) in cases {
        assert_eq!(octets(&union), words(&expected));
        assert_eq!(value(words(&expected)), Ok(union));
    }
    let wrong = encode(&ByInt::Default(10, Bytes::new())).unwrap_err();
    assert_eq!(wrong, EncodeError::DefaultArm { union: "ByInt", value: 10 });
    assert_eq!(octets(&ByUnsigned::Case4294967295(3)), words(&[u32::MAX, 3]));
    assert_eq!(octets(&ByUnsigned::High), words(&[0x7fff_ffff]));
    assert!(matches!(value::<ByUnsigned>(words(&[0])), Err(DecodeError::UnknownArm { value: 0, .. })));
    assert_eq!(
        (octets(&ByBool::True(1)), octets(&ByBool::False(2))),
        (words(&[1, 1]).into(), words(&[0, 2]).into())
    );
    assert_eq!(octets(&OfBare::Default2(4)), words(&[4, 4]));
    assert_eq!(octets(&OfBare::Default(Bare::Ok)), words(&[2]));
    let below = OuterMiddleChoice::Below("label".into());
    assert_eq!(octets(&below), [&words(&[u32::MAX, 5])[..], b"label\0\0\0"].concat());
    assert_eq!(octets(&OuterMiddleChoice::Default(Level::High)), words(&[0x7fff_ffff]));
    assert_eq!(octets(&Toss::Tails), words(&[1]));
}

/// A union of a boolean with nothing for FALSE is an `Option`.
#[test]
fn optional_items() {
    let pair = Pair { left: 1, right: 2 };
    assert_eq!(octets::<IfTrue>(&Some(pair)), words(&[1, 1, 2]));
    assert_eq!(octets::<IfTrue>(&None), words(&[0]));
    assert_eq!(octets(&IfFalse(Some(Bytes::from_static(b"abcd")))), [&words(&[1, 4])[..], b"abcd"].concat());
    assert_eq!(octets(&IfFalse(None)), words(&[0]));
    assert_eq!(octets::<Perhaps>(&Some(pair)), words(&[1, 1, 2]));
}

#[test]
fn lists_trees_and_circles() {
    let chain = Chain { first: vec![Link { value: 1 }, Link { value: 2 }] };
    assert_eq!(octets(&chain), words(&[1, 1, 1, 2, 0]));
    let leaf = |name: &str| Node { name: name.into(), children: Nodes(vec![]) };
    let tree = Nodes(vec![Node { name: "a".into(), children: Nodes(vec![leaf("b"), leaf("c")]) }, leaf("d")]);
    let letter = |letter: u8| u32::from_be_bytes([letter, 0, 0, 0]);
    let expected = words(&[
        1,
        1,
        letter(b'a'),
        1,
        1,
        letter(b'b'),
        0,
        1,
        1,
        letter(b'c'),
        0,
        0,
        1,
        1,
        letter(b'd'),
        0,
        0,
    ]);
    assert_eq!(octets(&tree), expected);
    assert_eq!(value(expected), Ok(tree));
    let leaf = |value| Expression { value, left: None, right: None };
    let expression = Expression { value: 1, left: Some(Box::new(leaf(2))), right: Some(Box::new(leaf(3))) };
    assert_eq!(octets(&expression), words(&[1, 1, 2, 0, 0, 1, 3, 0, 0]));
    let pong = PongType { pings: vec![PingType { pong: None }], depth: 4 };
    let ping = PingType { pong: Some(Box::new(pong)) };
    assert_eq!(octets(&ping), words(&[1, 1, 0, 4]));
    assert_eq!(value(octets(&ping)), Ok(ping));
    let held = HeldOtherwise { value: 1, next: Some(Box::new(HeldOtherwise { value: 2, next: None })) };
    assert_eq!(octets(&Holder { one: held }), words(&[1, 1, 2, 0]));
    assert!(!Nodes::BOUND.is_bounded() && !Expression::BOUND.is_bounded() && Chain::BOUND.is_bounded());
}

/// No peer makes a decoder recurse without end; lists are as long as they are.
#[test]
fn the_depth_of_recursive_values() {
    let left = |depth: usize| [&[1, 1].repeat(depth)[..], &[1, 0, 0], &[0].repeat(depth)].concat();
    let expressions = |depth| value::<Expression>(words(&left(depth)));
    assert!(expressions(Decoder::DEPTH_MAX).is_ok());
    assert!(matches!(expressions(Decoder::DEPTH_MAX + 1), Err(DecodeError::TooDeep { .. })));
    assert!(matches!(expressions(100_000), Err(DecodeError::TooDeep { .. })));
    let siblings = [&[1, 0, 0].repeat(10_000)[..], &[0]].concat();
    assert_eq!(value::<Nodes>(words(&siblings)).map(|nodes| nodes.0.len()), Ok(10_000));
}

/// Names that are words of Rust, that Rust's libraries have, or that become one name.
#[test]
fn names() {
    let names = Type { r#type: 1, self_: 2, crate_: 3, foo_bar: 4, foo_bar2: 5, foo_bar3: 6 };
    assert_eq!(octets(&names), words(&[1, 2, 3, 4, 5, 6]));
    let option = Option_ { r#async: 1, r#gen: 2 };
    assert_eq!(octets(&Vec_ { option: vec![option] }), words(&[1, 1, 2]));
    assert_eq!(octets(&String_ { r#box: 1 }), words(&[1]));
    assert_eq!(
        (octets(&TypeName { a: 1 }), octets(&TypeName2 { b: 1 })),
        (words(&[1]).into(), words(&[1]).into())
    );
    assert_eq!((A2, octets(&A(Bytes::from_static(b"a"))).len()), (1, 8));
    let thing = UsesElsewhere { thing: Elsewhere(Bytes::from_static(b"abcd")) };
    assert_eq!(octets(&thing), [&words(&[4])[..], b"abcd"].concat());
}
