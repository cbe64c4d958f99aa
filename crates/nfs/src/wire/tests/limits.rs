//! Every bound, and a value just above it; values outside enumerations.

use bytes::Bytes;
use rpcrdma_xdr::{CopyCount, Decode, DecodeError, Decoder, EncodeError, Payload, encode};

use super::{from_bytes, hex, to_bytes};
use crate::wire::*;

/// Returns a counted item of `length` bytes, padded.
fn counted(length: usize) -> Vec<u8> {
    let mut bytes = u32::try_from(length).unwrap().to_be_bytes().to_vec();
    bytes.resize(4 + length.next_multiple_of(4), 0);
    bytes
}

/// RFC 1813 §2.4: NFS3_FHSIZE.
// requirement: rfc1813-2.4-1, rfc1813-2.5-7
#[test]
fn handles_have_64_bytes_at_most() {
    assert_eq!(from_bytes::<FileHandle>(counted(64)).unwrap().as_bytes().len(), 64);
    assert_eq!(
        from_bytes::<FileHandle>(counted(65)),
        Err(DecodeError::TooLong { position: 0, count: 65, max: 64 })
    );
    assert!(FileHandle::new(&[0; 64]).is_ok());
    assert_eq!(FileHandle::new(&[0; 65]), Err(HandleTooLong { length: 65 }));
    assert_eq!(FileHandle::new(&[0; 256]), Err(HandleTooLong { length: 256 }));
    assert_eq!(format!("{:?}", FileHandle::new(&[0, 255]).unwrap()), "FileHandle(00ff)");
}

/// A name over the limit of file systems still decodes, so that the server can answer NFS3ERR_NAMETOOLONG.
#[test]
fn names() {
    let name = from_bytes::<FileName>(counted(MAX_NAME + 1)).unwrap();
    assert_eq!(name.check_component(), Err(NameError::Nul));
    let at = |length: usize| FileName::new(vec![b'x'; length]).check_component();
    assert_eq!(at(MAX_NAME), Ok(()));
    assert_eq!(at(MAX_NAME + 1), Err(NameError::TooLong { length: MAX_NAME + 1 }));
    assert!(from_bytes::<FileName>(counted(MAX_NAME_ON_WIRE)).is_ok());
    assert!(matches!(
        from_bytes::<FileName>(counted(MAX_NAME_ON_WIRE + 1)),
        Err(DecodeError::TooLong { .. })
    ));
    assert!(matches!(
        encode(&FileName::new(vec![b'x'; MAX_NAME_ON_WIRE + 1])),
        Err(EncodeError::TooLong { .. })
    ));
    assert_eq!(FileName::from("").check_component(), Err(NameError::Empty));
    assert_eq!(FileName::from(".").check_component(), Err(NameError::DotOrDotDot));
    assert_eq!(FileName::from("..").check_component(), Err(NameError::DotOrDotDot));
    assert_eq!(FileName::from("a/b").check_component(), Err(NameError::Separator));
    assert_eq!(FileName::from("...").check_component(), Ok(()));
    assert_eq!(format!("{:?} {}", FileName::from(b"a\xff".as_slice()), FileName::from("é")), r#""a\xff" é"#);
}

#[test]
fn link_targets() {
    let reply = |length| {
        let mut bytes = hex("00000000 00000000");
        bytes.extend(counted(length));
        from_bytes::<ReadlinkResult>(bytes)
    };
    assert!(reply(MAX_PATH).is_ok());
    assert_eq!(
        reply(MAX_PATH + 1),
        Err(DecodeError::TooLong { position: 8, count: MAX_PATH + 1, max: MAX_PATH })
    );
}

/// The count is compared before any allocation: the message need not even contain the data.
#[test]
fn payloads() {
    let read = |length: usize, present: usize| {
        let mut bytes = hex("00000000 00000000 00000000 00000001");
        bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
        bytes.resize(bytes.len() + present, 0);
        from_bytes::<ReadResult>(bytes)
    };
    assert!(read(MAX_PAYLOAD, MAX_PAYLOAD).is_ok());
    assert_eq!(
        read(MAX_PAYLOAD + 4, MAX_PAYLOAD + 4),
        Err(DecodeError::TooLong { position: 16, count: MAX_PAYLOAD + 4, max: MAX_PAYLOAD })
    );
    assert!(matches!(read(u32::MAX as usize, 0), Err(DecodeError::TooLong { .. })));
    assert!(matches!(read(MAX_PAYLOAD, 4), Err(DecodeError::Truncated { .. })));
    let data = vec![0; MAX_PAYLOAD + 1].into();
    let over = ReadOk { attributes: None, count: 0, eof: false, data };
    assert!(matches!(encode(&over), Err(EncodeError::TooLong { .. })));
}

/// A payload lies in slices of the message, and is passed on without a copy.
#[test]
fn payloads_are_shared() {
    let addresses = |data: &Payload| data.iter().map(|slice| slice.as_ptr()).collect::<Vec<_>>();
    let message = to_bytes(&ReadOk { attributes: None, count: 5, eof: true, data: b"hello".to_vec().into() });
    let decoded: ReadOk = Decoder::new(message.clone()).decode_all().unwrap();
    assert_eq!(addresses(&decoded.data), [message.slice(16..).as_ptr()]);
    let cut = [message.slice(..18), message.slice(18..19), message.slice(19..)].into_iter().collect();
    let mut decoder = Decoder::of_slices(cut);
    let decoded = ReadOk::decode(&mut decoder).unwrap();
    assert_eq!(decoder.copied(), CopyCount::default());
    assert_eq!(addresses(&decoded.data), [16, 18, 19].map(|at| message.slice(at..).as_ptr()));
    assert_eq!(decoded.data, b"hello"[..]);
    let data = Bytes::from(vec![1; 9]);
    let file = FileHandle::new(b"f").unwrap();
    let write =
        WriteArgs { file, offset: 0, count: 9, stable: StableHow::Unstable, data: data.clone().into() };
    assert_eq!(super::eligible_items(&write)[0].as_ptr(), data.as_ptr());
}

#[test]
fn directory_lists_end() {
    let mut bytes = Vec::new();
    for _ in 0..MAX_DIRECTORY_ENTRIES {
        bytes.extend(hex("00000001 0000000000000000 00000000 0000000000000000"));
    }
    let end = hex("00000000 00000001");
    let list: DirList = from_bytes([bytes.clone(), end.clone()].concat()).unwrap();
    assert_eq!(list.entries.len(), MAX_DIRECTORY_ENTRIES);
    bytes.extend(hex("00000001 0000000000000000 00000000 0000000000000000"));
    assert!(matches!(from_bytes::<DirList>([bytes, end].concat()), Err(DecodeError::TooLong { .. })));
}

/// RFC 1813 §3.3.11: types that MKNOD does not make have an empty arm; other numbers are malformed.
// requirement: rfc1813-3.3.11-2
#[test]
fn types_of_mknod() {
    for (code, expected) in [(1, MknodData::Regular), (2, MknodData::Directory), (5, MknodData::Symlink)] {
        assert_eq!(from_bytes::<MknodData>(u32::to_be_bytes(code).to_vec()), Ok(expected));
    }
    for code in [0u32, 8, u32::MAX] {
        assert!(matches!(
            from_bytes::<MknodData>(code.to_be_bytes().to_vec()),
            Err(DecodeError::UnknownArm { .. })
        ));
    }
}

// requirement: rfc1813-2.5-3
#[test]
fn values_that_no_enumeration_names() {
    assert!(from_bytes::<FileType>(hex("00000000")).is_err());
    assert!(from_bytes::<FileType>(hex("00000008")).is_err());
    assert!(from_bytes::<StableHow>(hex("00000003")).is_err());
    assert!(from_bytes::<SetTime>(hex("00000003")).is_err());
    assert!(from_bytes::<CreateHow>(hex("00000003")).is_err());
    // RFC 4506 §4.4: a boolean is 0 or 1.
    assert!(from_bytes::<PostOpAttr>(hex("00000002")).is_err());
}

/// A status of NFSv4 in an NFS version 3 reply is a failure with a number, not a malformed message.
// requirement: rfc1813-3-3
#[test]
fn unknown_status() {
    let result: LookupResult = from_bytes(hex("00002726 00000000")).unwrap();
    let status = result.status().unwrap();
    assert_eq!(status.code(), 10022);
    assert!(status.to_string().contains("10022"));
    assert_eq!(Status::from_code(0), None);
    assert_eq!(Status::from_code(2), Some(Status::NoEnt));
    assert_eq!(Status::NoEnt.to_string(), "no such file or directory (NFS3ERR_NOENT)");
}
