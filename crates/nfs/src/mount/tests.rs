//! Tests of the MOUNT types: golden bytes, a foreign implementation, limits.

use std::io::Cursor;

use nfs3_types::mount as theirs;
use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::collection::vec;
use proptest::prelude::*;
use rpcrdma_oncrpc::typed::Procedure;
use rpcrdma_xdr::{Decode, DecodeError, Encode};

use super::*;
use crate::wire::FileHandle;
use crate::wire::tests::{from_bytes, hex, to_bytes};

fn check<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
    assert_eq!(to_bytes(value), hex(golden), "encoding of {value:?}");
    assert_eq!(from_bytes::<T>(hex(golden)).as_ref(), Ok(value));
}

fn agree<T: Pack + Unpack>(ours: &impl Encode) {
    let bytes = to_bytes(ours);
    let (value, read) = T::unpack(&mut Cursor::new(&bytes)).expect("they decode what we encoded");
    assert_eq!(read, bytes.len());
    let mut again = Vec::new();
    value.pack(&mut again).expect("they encode it");
    assert_eq!(again, bytes);
}

/// RFC 1813 §5.2.1.
// requirement: rfc1813-5.1.5-1, rfc1813-5.2.1-2
#[test]
fn mnt() {
    check(&DirPath::new("/srv"), "00000004 2f737276");
    let handle = FileHandle::new(&[1, 2, 3]).unwrap();
    check(
        &MountResult::Ok(MountOk { handle, auth_flavors: vec![1, 0] }),
        "00000000 00000003 010203 00 00000002 00000001 00000000",
    );
    check(&MountResult::Fail(MountStatus::Acces), "0000000d");
    check(&MountResult::Fail(MountStatus::NotSupp), "00002714");
    assert!(from_bytes::<MountResult>(hex("00000003")).is_err());
}

/// RFC 1813 §5.2.2.
// requirement: rfc1813-5.2.2-1
#[test]
fn dump() {
    let mount = MountBody { hostname: MountName::new("h"), directory: DirPath::new("/a") };
    check(&MountList { mounts: vec![mount] }, "00000001 00000001 68 000000 00000002 2f61 0000 00000000");
    check(&MountList::default(), "00000000");
}

/// RFC 1813 §5.2.5.
// requirement: rfc1813-5.2.5-1
#[test]
fn export() {
    let groups = Groups { names: vec![MountName::new("10.0.0.0/8"), MountName::new("h")] };
    let exports = vec![
        ExportNode { directory: DirPath::new("/"), groups },
        ExportNode { directory: DirPath::new("/b"), groups: Groups::default() },
    ];
    check(
        &Exports { exports },
        "00000001 00000001 2f 000000
         00000001 0000000a 31302e302e302e302f38 0000
         00000001 00000001 68 000000
         00000000
         00000001 00000002 2f62 0000
         00000000
         00000000",
    );
}

// requirement: rfc1813-5.1.2-1, rfc1813-5.2-1
#[test]
fn procedures() {
    for procedure in MountProcedure::ALL {
        let number = procedure.number();
        assert_eq!(MountProcedure::from_number(number), Some(*procedure));
        let name = theirs::MOUNT_PROGRAM::try_from(number).unwrap().to_string();
        assert_eq!(name, format!("MOUNTPROC3_{procedure}"));
    }
    assert_eq!(MountProcedure::from_number(6), None);
    assert_eq!((MOUNT_PROGRAM, MOUNT_VERSION), (theirs::PROGRAM, theirs::VERSION));
}

// requirement: rfc1813-5.1.5-1
#[test]
fn statuses() {
    for code in 1..=10_010u32 {
        let bytes = code.to_be_bytes();
        let ours = from_bytes::<MountStatus>(bytes.to_vec());
        let theirs = theirs::mountstat3::unpack(&mut Cursor::new(&bytes));
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{code}");
        if let (Ok(ours), Ok((theirs, _))) = (ours, theirs) {
            assert_eq!(ours.name(), theirs.to_string());
            assert!(ours.to_string().contains(ours.name()));
        }
    }
}

/// The type predicts the largest answer to MNT; names over their bounds are refused.
// requirement: rfc1813-5.1.4-1
// requirement: rfc8267-3-1
#[test]
fn limits() {
    let handle = FileHandle::new(&[7; 64]).unwrap();
    let ok = |flavors| MountResult::Ok(MountOk { handle, auth_flavors: vec![1; flavors] });
    let largest = to_bytes(&ok(MAX_AUTH_FLAVORS));
    assert_eq!(largest.len(), Mnt::bounds(&DirPath::new("/")).inline);
    assert!(rpcrdma_xdr::encode(&ok(MAX_AUTH_FLAVORS + 1)).is_err());
    let flavors = |count: usize| {
        let mut bytes = hex("00000000 00000000");
        bytes.extend(u32::try_from(count).unwrap().to_be_bytes());
        bytes.resize(bytes.len() + 4 * count, 0);
        from_bytes::<MountResult>(bytes)
    };
    assert!(flavors(MAX_AUTH_FLAVORS).is_ok());
    assert!(matches!(flavors(MAX_AUTH_FLAVORS + 1), Err(DecodeError::TooLong { .. })));
    assert!(rpcrdma_xdr::encode(&MountName::new(vec![b'x'; MAX_MOUNT_NAME])).is_ok());
    assert!(rpcrdma_xdr::encode(&MountName::new(vec![b'x'; MAX_MOUNT_NAME + 1])).is_err());
    assert!(from_bytes::<DirPath>(to_bytes(&DirPath::new(vec![b'x'; MAX_MOUNT_PATH + 1]))).is_ok());
}

fn name(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..max)
}

proptest! {
    #[test]
    fn round_trips(
        mounts in vec((name(30), name(30)), 0..5),
        exports in vec((name(30), vec(name(20), 0..4)), 0..5),
        flavors in vec(any::<u32>(), 0..8),
        handle in vec(any::<u8>(), 0..=64),
    ) {
        let mounts = mounts
            .into_iter()
            .map(|(host, path)| MountBody { hostname: MountName::new(host), directory: DirPath::new(path) })
            .collect();
        let list = MountList { mounts };
        assert_eq!(from_bytes::<MountList>(to_bytes(&list)).as_ref(), Ok(&list));
        agree::<theirs::mountlist<'_, '_>>(&list);
        let exports = exports
            .into_iter()
            .map(|(path, groups)| ExportNode {
                directory: DirPath::new(path),
                groups: Groups { names: groups.into_iter().map(MountName::new).collect() },
            })
            .collect();
        let exports = Exports { exports };
        assert_eq!(from_bytes::<Exports>(to_bytes(&exports)).as_ref(), Ok(&exports));
        agree::<theirs::exports<'_, '_>>(&exports);
        let result = MountResult::Ok(MountOk { handle: FileHandle::new(&handle).unwrap(), auth_flavors: flavors });
        assert_eq!(from_bytes::<MountResult>(to_bytes(&result)).as_ref(), Ok(&result));
        agree::<theirs::mountres3<'_>>(&result);
        let bytes = to_bytes(&exports);
        for length in 0..bytes.len() {
            prop_assert!(from_bytes::<Exports>(bytes.slice(..length)).is_err());
        }
    }
}
