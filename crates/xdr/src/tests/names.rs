//! Errors name the item that is too long, and declarations may name the crate by another path.

use super::*;

#[derive(Xdr)]
struct Put {
    #[xdr(max = 2)]
    r#type: Text,
    #[xdr(ddp, max = 2)]
    value: Bytes,
    #[xdr(list, max = 2)]
    list: Vec<u32>,
    #[xdr(max = 2)]
    names: Vec<Name>,
    inner: Inner,
}

#[derive(Xdr)]
struct Inner(u32, #[xdr(max = 2)] Option<String>);

#[derive(Xdr)]
enum Key {
    #[xdr(value = 0)]
    Number(#[xdr(max = 2)] Vec<u32>),
    #[xdr(value = 1)]
    Text {
        #[xdr(max = 2)]
        text: String,
    },
    #[xdr(default)]
    Other(FileKind, #[xdr(max = 2)] Vec<u8>),
}

fn put() -> Put {
    Put { r#type: "".into(), value: Bytes::new(), list: vec![], names: vec![], inner: Inner(0, None) }
}

fn refused<T: Encode>(value: &T, field: &str) {
    let refused = encode(value).err();
    let Some(EncodeError::TooLong { field: named, length, max }) = refused else { panic!("{refused:?}") };
    assert_eq!((named, max), (field, if field == "Name" { 255 } else { 2 }));
    let message = format!("{field} of {length} bytes or elements exceeds its maximum of {max}");
    assert_eq!(refused.unwrap().to_string(), message);
}

#[test]
fn an_item_that_is_too_long_is_named() {
    assert!(encode(&put()).is_ok());
    refused(&Put { r#type: "abc".into(), ..put() }, "Put.type");
    refused(&Put { value: Bytes::from_static(b"abc"), ..put() }, "Put.value");
    refused(&Put { list: vec![1; 3], ..put() }, "Put.list");
    refused(&Put { names: (0..3).map(|_| Name("".into())).collect(), ..put() }, "Put.names");
    refused(&Put { inner: Inner(0, Some("abc".into())), ..put() }, "Inner.1");
    refused(&Key::Number(vec![1; 3]), "Key::Number");
    refused(&Key::Text { text: "abc".into() }, "Key::Text.text");
    refused(&Key::Other(FileKind::Exec, vec![1; 3]), "Key::Other.1");
}

/// The innermost declaration names the item: the element, not its array.
#[test]
fn the_innermost_declaration_names_an_item() {
    let long = Name(Text(vec![b'a'; 256].into()));
    refused(&Put { names: vec![long], ..put() }, "Name");
    assert_eq!(
        EncodeError::too_long(3, 2).to_string(),
        "item of 3 bytes or elements exceeds its maximum of 2"
    );
    let other = EncodeError::Invalid { reason: "no" };
    assert_eq!(other.clone().named("Put.value"), other);
}

/// A crate that hands this one on, and a macro that declares a type in another crate.
mod elsewhere {
    pub(super) mod hidden {
        pub(crate) use crate::*;
    }

    macro_rules! declare {
        ($name:ident) => {
            #[derive(Debug, PartialEq, crate::Xdr)]
            #[xdr(crate = $crate::tests::names::elsewhere::hidden)]
            pub(super) struct $name {
                #[xdr(max = 2)]
                pub(super) words: Vec<u32>,
            }
        };
    }
    declare!(Declared);

    #[derive(Debug, PartialEq, crate::Xdr)]
    #[xdr(crate = self::hidden)]
    pub(super) enum Arms<T> {
        #[xdr(value = 1)]
        One(T),
        #[xdr(default)]
        Other(u32),
    }
}

#[test]
fn a_declaration_may_name_the_crate_by_another_path() {
    use elsewhere::{Arms, Declared};
    let declared = Declared { words: vec![1] };
    assert_eq!(read(&[0, 0, 0, 1, 0, 0, 0, 1]), Ok(declared));
    assert_eq!(read(&[0, 0, 0, 1, 0, 0, 0, 1]), Ok(Arms::One(1u32)));
    assert_eq!(read(&[0, 0, 0, 2]), Ok(Arms::<u32>::Other(2)));
}
