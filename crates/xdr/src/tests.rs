//! The derive macro against the wire.

use bytes::Bytes;

use crate::{Decode, DecodeError, Decoder, Encode, EncodeError, Text, Xdr, encode};

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

/// RFC 4506 §7.
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
