//! The derive macro against the wire.

use bytes::Bytes;

use crate::{
    CopyCount, Decode, DecodeError, Decoder, Encode, EncodeError, Payload, Piece, Text, Xdr, encode,
};

mod bounds;
mod names;
mod properties;
mod recursion;

#[derive(Clone, Copy, Debug, PartialEq, Xdr)]
enum FileKind {
    Text = 0,
    Data = 1,
    Exec = 2,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
enum FileType {
    #[xdr(value = FileKind::Text as u32)]
    Text,
    #[xdr(value = FileKind::Data as u32)]
    Data {
        #[xdr(max = 255)]
        creator: String,
    },
    #[xdr(value = FileKind::Exec as u32)]
    Exec {
        #[xdr(max = 255)]
        interpreter: String,
    },
}

#[derive(Clone, Debug, PartialEq, Xdr)]
struct File {
    #[xdr(max = 255)]
    filename: String,
    kind: FileType,
    #[xdr(max = 32)]
    owner: String,
    #[xdr(max = 65535)]
    data: Bytes,
}

fn flat<T: Encode>(value: &T) -> Bytes {
    encode(value).unwrap().flatten().0
}

/// The encoded example of RFC 4506 §7.
const EXAMPLE: &[u8] = b"\x00\x00\x00\x09sillyprog\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x04lisp\
    \x00\x00\x00\x04john\x00\x00\x00\x06(quit)\x00\x00";

fn example() -> File {
    File {
        filename: "sillyprog".into(),
        kind: FileType::Exec { interpreter: "lisp".into() },
        owner: "john".into(),
        data: Bytes::from_static(b"(quit)"),
    }
}

// requirement: rfc4506-4.10-1, rfc4506-4.11-1, rfc4506-4.14-1, rfc4506-4.15-1, rfc4506-7-1
#[test]
fn rfc4506_7_file_example() {
    assert_eq!(EXAMPLE.len(), 48);
    assert_eq!(flat(&example()), EXAMPLE);
    assert_eq!(Decoder::new(Bytes::from_static(EXAMPLE)).decode_all::<File>(), Ok(example()));
}

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Name(#[xdr(max = 255)] Text);

#[derive(Clone, Copy, Debug, PartialEq, Xdr)]
struct Cookie([u8; 6]);

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Entry {
    id: u64,
    name: Name,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Everything {
    cookie: Cookie,
    offset: i64,
    pair: [u32; 2],
    #[xdr(list)]
    entries: Vec<Entry>,
    #[xdr(list, max = 2)]
    few: Vec<u32>,
    #[xdr(max = 3)]
    words: Vec<i32>,
    #[xdr(max = 4)]
    names: Vec<Name>,
    #[xdr(max = 8)]
    bytes: Vec<u8>,
    #[xdr(max = 16)]
    maybe: Option<Bytes>,
    file_kind: Option<FileKind>,
    #[xdr(ddp, max = 1 << 20)]
    data: Bytes,
    #[xdr(ddp, max = 1024)]
    target: Text,
    #[xdr(max = 1 << 20)]
    attachment: Bytes,
    eof: bool,
    nothing: (),
}

#[derive(Clone, Debug, PartialEq, Xdr)]
enum Outcome<T, F> {
    #[xdr(value = 0)]
    Done(T),
    #[xdr(value = 1)]
    Void,
    #[xdr(default)]
    Failed(u32, F),
}

#[derive(Clone, Debug, PartialEq, Xdr)]
struct Empty;

fn read<T: Decode>(bytes: &'static [u8]) -> Result<T, DecodeError> {
    Decoder::new(Bytes::from_static(bytes)).decode_all()
}

// requirement: rfc4506-4.3-1, rfc4506-4.3-2
#[test]
fn enumerations_know_their_values_only() {
    assert_eq!(flat(&FileKind::Exec), [0, 0, 0, 2][..]);
    assert_eq!(read(&[0, 0, 0, 1]), Ok(FileKind::Data));
    let refused = DecodeError::UnknownEnumValue { name: "FileKind", position: 0, value: 3 };
    assert_eq!(read::<FileKind>(&[0, 0, 0, 3]), Err(refused));
    let refused = DecodeError::UnknownEnumValue { name: "FileKind", position: 0, value: -1 };
    assert_eq!(read::<FileKind>(&[0xff; 4]), Err(refused));
}

// requirement: rfc4506-4.15-1, rfc4506-4.15-2
#[test]
fn unions_take_the_arm_of_the_discriminant() {
    let refused = DecodeError::UnknownArm { name: "FileType", position: 0, value: 3 };
    assert_eq!(read::<FileType>(&[0, 0, 0, 3]), Err(refused));
    assert_eq!(flat(&Outcome::<u32, u32>::Done(5)), [0, 0, 0, 0, 0, 0, 0, 5][..]);
    assert_eq!(flat(&Outcome::<u32, u32>::Void), [0, 0, 0, 1][..]);
    assert_eq!(flat(&Outcome::<u32, u32>::Failed(9, 5)), [0, 0, 0, 9, 0, 0, 0, 5][..]);
    assert_eq!(read(&[0, 0, 0, 9, 0, 0, 0, 5]), Ok(Outcome::<u32, u32>::Failed(9, 5)));
    let refused = EncodeError::DefaultArm { union: "Outcome", value: 1 };
    assert_eq!(encode(&Outcome::<u32, u32>::Failed(1, 5)), Err(refused));
}

/// RFC 4506 §4.1, §4.2, §4.5: the ends of each range.
// requirement: rfc4506-4.1-1, rfc4506-4.2-1, rfc4506-4.5-1
#[test]
fn rfc4506_4_ranges_of_integers() {
    assert_eq!(flat(&(i32::MIN)), [0x80, 0, 0, 0][..]);
    assert_eq!(flat(&(i32::MAX)), [0x7f, 0xff, 0xff, 0xff][..]);
    assert_eq!(flat(&(u32::MAX)), [0xff; 4][..]);
    assert_eq!(flat(&(i64::MIN)), [0x80, 0, 0, 0, 0, 0, 0, 0][..]);
    assert_eq!(flat(&(i64::MAX)), [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..]);
    assert_eq!(flat(&(u64::MAX)), [0xff; 8][..]);
    assert_eq!((read(&[0x80, 0, 0, 0]), read(&[0xff; 4])), (Ok(i32::MIN), Ok(u32::MAX)));
    assert_eq!((read(&[0x80, 0, 0, 0, 0, 0, 0, 0]), read(&[0xff; 8])), (Ok(i64::MIN), Ok(u64::MAX)));
}

/// RFC 4506 §4.6, §4.7: sign, exponent and fraction as in IEEE 754, most significant byte first. Every pattern of bits
/// survives, also that of a NaN.
// requirement: rfc4506-4.6-1, rfc4506-4.7-1
#[test]
fn rfc4506_4_6_4_7_floating_point_numbers() {
    for (value, golden) in [
        (1.0, [0x3f, 0x80, 0, 0]),
        (-2.5, [0xc0, 0x20, 0, 0]),
        (-0.0, [0x80, 0, 0, 0]),
        (f32::MIN_POSITIVE / 8_388_608.0, [0, 0, 0, 1]),
        (f32::INFINITY, [0x7f, 0x80, 0, 0]),
        (f32::MAX, [0x7f, 0x7f, 0xff, 0xff]),
        (f32::from_bits(0x7fa0_0001), [0x7f, 0xa0, 0, 1]),
    ] {
        assert_eq!(flat(&value), golden[..]);
        let decoded: f32 = Decoder::new(Bytes::copy_from_slice(&golden)).decode_all().unwrap();
        assert_eq!(decoded.to_bits(), value.to_bits());
    }
    for (value, golden) in [
        (1.0, [0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
        (-2.5, [0xc0, 0x04, 0, 0, 0, 0, 0, 0]),
        (f64::NEG_INFINITY, [0xff, 0xf0, 0, 0, 0, 0, 0, 0]),
        (f64::MAX, [0x7f, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (f64::from_bits(0x7ff4_0000_0000_0001), [0x7f, 0xf4, 0, 0, 0, 0, 0, 1]),
    ] {
        assert_eq!(flat(&value), golden[..]);
        let decoded: f64 = Decoder::new(Bytes::copy_from_slice(&golden)).decode_all().unwrap();
        assert_eq!(decoded.to_bits(), value.to_bits());
    }
    assert_eq!((f32::MIN_LEN, f64::MIN_LEN), (4, 8));
}

/// RFC 4506 §4.12, §4.13: the elements in their order, and the count in front of a counted array alone. Elements may
/// have different sizes.
// requirement: rfc4506-4.12-1, rfc4506-4.13-1
#[test]
fn rfc4506_4_12_4_13_arrays() {
    #[derive(Debug, PartialEq, Xdr)]
    struct Fixed([Name; 2]);
    #[derive(Debug, PartialEq, Xdr)]
    struct Words(#[xdr(max = 2)] Vec<Name>);
    let names = || [Name("a".into()), Name("bcdef".into())];
    let elements = b"\0\0\0\x01a\0\0\0\0\0\0\x05bcdef\0\0\0";
    assert_eq!(flat(&Fixed(names())), elements[..]);
    assert_eq!(read(elements), Ok(Fixed(names())));
    let counted = b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x05bcdef\0\0\0";
    assert_eq!(flat(&Words(names().into())), counted[..]);
    assert_eq!(read(counted), Ok(Words(names().into())));
    assert_eq!(flat(&Words(vec![])), [0; 4][..]);
}

/// RFC 4506 §4.19: optional data is a union on a boolean, and a counted array of at most one element.
// requirement: rfc4506-4.16-1, rfc4506-4.19-1, rfc4506-4.19-2
#[test]
fn rfc4506_4_19_optional_data() {
    #[derive(Debug, PartialEq, Xdr)]
    struct AtMostOne(#[xdr(max = 1)] Vec<u32>);
    for (value, golden) in [(Some(7u32), &[0, 0, 0, 1, 0, 0, 0, 7][..]), (None, &[0; 4])] {
        assert_eq!(flat(&value), golden);
        assert_eq!(flat(&AtMostOne(value.into_iter().collect())), golden);
        assert_eq!(Decoder::new(Bytes::copy_from_slice(golden)).decode_all(), Ok(value));
    }
    assert_eq!((flat(&()), read(&[])), (Bytes::new(), Ok(())), "void has no bytes (§4.16)");
}

/// RFC 4506 §8: a list as long as a peer likes takes memory, but no stack.
// requirement: rfc4506-8-5
#[test]
fn i6_rfc4506_8_a_list_is_no_recursion() {
    #[derive(PartialEq, Xdr)]
    struct List(#[xdr(list)] Vec<u32>);
    let list = List((0..200_000).collect());
    let bytes = flat(&list);
    assert_eq!(bytes.len(), 8 * 200_000 + 4);
    assert!(Decoder::new(bytes).decode_all() == Ok(list));
}

/// RFC 4506 §8: a nul byte does not end a string.
// requirement: rfc4506-4.11-1, rfc4506-8-3
#[test]
fn rfc4506_8_a_string_is_not_ended_by_nul() {
    #[derive(Debug, PartialEq, Xdr)]
    struct Strings(#[xdr(max = 5)] String, #[xdr(max = 5)] Text);
    let strings = Strings("a\0b".into(), Text::from_static("\0"));
    let golden = b"\0\0\0\x03a\0b\0\0\0\0\x01\0\0\0\0";
    assert_eq!(flat(&strings), golden[..]);
    assert_eq!(read(golden), Ok(strings));
}

/// RFC 4506 §4.19: TRUE before each element, FALSE at the end.
// requirement: rfc4506-4.19-1
#[test]
fn lists_are_chains_of_optional_data() {
    #[derive(Debug, PartialEq, Xdr)]
    struct List(#[xdr(list, max = 2)] Vec<u32>);
    assert_eq!(flat(&List(vec![])), [0; 4][..]);
    assert_eq!(flat(&List(vec![7, 8])), [0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0][..]);
    assert_eq!(read(&[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0]), Ok(List(vec![7])));
    let refused = DecodeError::InvalidBool { position: 8, value: 2 };
    assert_eq!(read::<List>(&[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 2]), Err(refused));
}

// requirement: rfc4506-4.13-2, rfc4506-8-1
#[test]
fn i5_lists_and_arrays_stop_at_their_maximum() {
    #[derive(Debug, PartialEq, Xdr)]
    struct List(#[xdr(list, max = 1)] Vec<u32>);
    #[derive(Debug, PartialEq, Xdr)]
    struct Array(#[xdr(max = 1)] Vec<u32>);
    let too_long = |field| Err(EncodeError::TooLong { field, length: 2, max: 1 });
    assert_eq!(encode(&List(vec![1, 2])), too_long("List"));
    assert_eq!(encode(&Array(vec![1, 2])), too_long("Array"));
    assert!(encode(&List(vec![1])).is_ok() && encode(&Array(vec![1])).is_ok());

    let list = &[0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0];
    assert_eq!(read::<List>(list), Err(DecodeError::TooLong { position: 8, count: 2, max: 1 }));
    let array = &[0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 8];
    assert_eq!(read::<Array>(array), Err(DecodeError::TooLong { position: 0, count: 2, max: 1 }));
}

/// The count is compared with the rest of the message before any element is read or memory for it allocated.
// requirement: rfc4506-8-2
#[test]
fn i5_an_array_can_not_announce_more_than_the_message_holds() {
    #[derive(Debug, PartialEq, Xdr)]
    struct Array(#[xdr(max = 1 << 30)] Vec<Entry>);
    let count: &[u8] = &[0x3f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let refused =
        DecodeError::CountBeyondMessage { position: 0, count: 0x3fff_ffff, min_item_len: 12, available: 4 };
    assert_eq!(Decoder::new(Bytes::from_static(count)).decode_all::<Array>(), Err(refused));
}

// requirement: rfc4506-3-1
#[test]
fn min_len_is_the_shortest_form() {
    assert_eq!((Empty::MIN_LEN, Cookie::MIN_LEN, Entry::MIN_LEN), (0, 8, 12));
    assert_eq!((FileKind::MIN_LEN, FileType::MIN_LEN, Name::MIN_LEN), (4, 4, 4));
    assert_eq!((<[u64; 3]>::MIN_LEN, <Option<u64>>::MIN_LEN), (24, 4));
    assert_eq!(flat(&Empty), Bytes::new());
}

// requirement: rfc8166-3.4.2-1, rfc8166-6.1-1, experience-6.2.1-3, experience-11-3, experience-11-4
// requirement: v2-07-4.4.2-1
#[test]
fn only_marked_items_are_eligible() {
    #[derive(Xdr)]
    struct Pair {
        #[xdr(max = 4096)]
        plain: Bytes,
        #[xdr(ddp, max = 4096)]
        marked: Bytes,
    }
    let pair = Pair { plain: vec![0; 2000].into(), marked: vec![0; 2000].into() };
    let pieces = encode(&pair).unwrap().into_pieces();
    let eligible: Vec<_> = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Payload { data, ddp_eligible } => Some((data.as_ptr(), *ddp_eligible)),
            Piece::Inline(_) => None,
        })
        .collect();
    assert_eq!(eligible, [(pair.plain.as_ptr(), false), (pair.marked.as_ptr(), true)]);
}

/// An eligible item in several slices is handed out as it lies; a field in one slice joins it.
#[test]
fn only_a_payload_takes_slices() {
    #[derive(Debug, PartialEq, Xdr)]
    struct Slices(#[xdr(ddp, max = 5000)] Payload, u32);
    #[derive(Debug, PartialEq, Xdr)]
    struct Joined(#[xdr(ddp, max = 5000)] Bytes, u32);

    let data: Bytes = vec![7; 4999].into();
    let message = flat(&Joined(data.clone(), 1));
    let slices = || [message.slice(..1000), message.slice(1000..3000), message.slice(3000..)];
    let mut d = Decoder::of_slices(slices().into_iter().collect());
    let read: Slices = d.decode().unwrap();
    assert_eq!((read.0.len(), read.0.iter().count(), d.copied()), (4999, 3, CopyCount::default()));
    assert_eq!(read.0.iter().next().unwrap().as_ptr(), message[4..].as_ptr());
    assert_eq!((&read.0, d.finish()), (&data.clone().into(), Ok(())));
    assert_eq!(flat(&read), message);
    assert_eq!(
        encode(&Slices(vec![0; 5001].into(), 1)),
        Err(EncodeError::TooLong { field: "Slices.0", length: 5001, max: 5000 })
    );

    let mut d = Decoder::of_slices(slices().into_iter().collect());
    assert_eq!(d.decode(), Ok(Joined(data, 1)));
    assert_eq!(d.copied(), CopyCount { payload: 4999, inline: 0 });
}

/// Hostile names must not write control characters into a log.
#[test]
fn text_prints_escaped() {
    let text = Text(Bytes::from_static(b"a\x1b[\n\xff"));
    assert_eq!(format!("{text:?} {text}"), r#""a\x1b[\n\xff" a\x1b[\n\xff"#);
    assert_eq!(text.to_str(), None);
}

#[test]
fn text_is_its_bytes() {
    let text = Text::from_static("name");
    assert!(text == *"name" && text == "name" && text != *"nam" && text != "names");
    assert_eq!((&*text, text.as_ref(), text.to_str()), (&b"name"[..], &b"name"[..], Some("name")));
    assert_eq!([Text::from("name"), Text::from("name".to_owned())], [text.clone(), text.clone()]);
    assert_eq!(Bytes::from(text), b"name"[..]);
}
