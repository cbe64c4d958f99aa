//! Properties of every procedure: values survive a round trip, and truncated messages are errors at every
//! length. The eligible items are those of the binding, and the results fit its prediction.

use proptest::prelude::*;
use rpcrdma_xdr::{Bounded, Decode, Encode};

use super::strategies::*;
use super::{eligible_items, from_bytes, to_bytes};
use crate::wire::*;

/// Checks a round trip, and an error for every truncated message.
fn round_trip<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes = to_bytes(value);
    assert!(bytes.len() >= T::MIN_LEN);
    assert_eq!(from_bytes::<T>(bytes.clone()).as_ref(), Ok(value));
    for length in 0..bytes.len() {
        assert!(from_bytes::<T>(bytes.slice(..length)).is_err(), "cut off at {length}");
    }
    let mut longer = bytes.to_vec();
    longer.extend([0; 4]);
    assert!(from_bytes::<T>(longer).is_err(), "bytes left over");
}

macro_rules! procedures {
    ($($name:ident: $arguments:expr => $ok:expr, $fail:expr;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig::with_cases(48))]
            #[test]
            fn $name(arguments in $arguments, results in result($ok, $fail)) {
                round_trip(&arguments);
                round_trip(&results);
                check_binding(&arguments, &results);
            }
        })*
    };
}

/// RFC 8267 §4: eligible items, and the size of the reply. The types state both, but for the sizes that the arguments
/// limit: the data of READ, and the entries of READDIR and READDIRPLUS.
// requirement: rfc8166-3.4.6-1
fn check_binding<A: NfsCall>(arguments: &A, results: &NfsResult<A::Ok, A::Fail>) {
    let expected = match A::PROCEDURE {
        NfsProcedure::Write | NfsProcedure::Symlink => (1, 0),
        NfsProcedure::Read | NfsProcedure::Readlink => (0, 1),
        _ => (0, 0),
    };
    assert_eq!(A::PROCEDURE.eligibility(), expected);
    assert_eq!(eligible_items(arguments).len(), expected.0);
    let largest = A::bounds(arguments);
    assert_eq!(largest.items().len(), expected.1);
    let eligible = eligible_items(results);
    match results {
        NfsResult::Ok(_) => assert_eq!(eligible.len(), expected.1),
        NfsResult::Fail { .. } => assert!(eligible.is_empty()),
    }
    let payload: usize = eligible.iter().map(bytes::Bytes::len).sum();
    let padded = payload.next_multiple_of(4);
    assert!(payload <= largest.items().iter().sum());
    assert!(to_bytes(results).len() - padded <= largest.inline);

    let bound = A::Results::BOUND;
    match A::PROCEDURE {
        NfsProcedure::Readdir | NfsProcedure::Readdirplus => assert!(largest.inline <= bound.max_len()),
        _ => assert_eq!(largest.inline, bound.max_len()),
    }
    match A::PROCEDURE {
        NfsProcedure::Read => assert_eq!(bound.maxima(), [MAX_PAYLOAD]),
        _ => assert_eq!(bound.maxima(), largest.items()),
    }
}

const COUNT: u32 = 600;

fn directory_args() -> impl Strategy<Value = (FileHandle, u64, Verifier)> {
    (handle(), any::<u64>(), any::<Verifier>())
}

procedures! {
    getattr: handle().prop_map(|object| GetattrArgs { object }) => attributes(), Just(());
    setattr: (handle(), set_attributes(), proptest::option::of(time()))
        .prop_map(|(object, new_attributes, guard)| SetattrArgs { object, new_attributes, guard })
        => wcc(), wcc();
    lookup: place().prop_map(|what| LookupArgs { what })
        => (handle(), post_op(), post_op()).prop_map(|(object, attributes, dir_attributes)| LookupOk {
            object, attributes, dir_attributes
        }), post_op();
    access: (handle(), any::<u32>()).prop_map(|(object, access)| AccessArgs { object, access })
        => (post_op(), any::<u32>()).prop_map(|(attributes, access)| AccessOk { attributes, access }), post_op();
    readlink: handle().prop_map(|symlink| ReadlinkArgs { symlink })
        => (post_op(), payload(90)).prop_map(|(attributes, data)| ReadlinkOk { attributes, data }), post_op();
    read: (handle(), any::<u64>()).prop_map(|(file, offset)| ReadArgs { file, offset, count: COUNT })
        => (post_op(), any::<u32>(), any::<bool>(), payload(COUNT as usize))
            .prop_map(|(attributes, count, eof, data)| ReadOk { attributes, count, eof, data: data.into() }), post_op();
    write: (handle(), any::<u64>(), any::<u32>(), stable(), payload(600))
        .prop_map(|(file, offset, count, stable, data)| WriteArgs { file, offset, count, stable, data: data.into() })
        => (wcc(), any::<u32>(), stable(), any::<Verifier>())
            .prop_map(|(file_wcc, count, committed, verifier)| WriteOk { file_wcc, count, committed, verifier }), wcc();
    create: (place(), create_how()).prop_map(|(place, how)| CreateArgs { place, how }) => new_object(), wcc();
    mkdir: (place(), set_attributes()).prop_map(|(place, attributes)| MkdirArgs { place, attributes })
        => new_object(), wcc();
    symlink: (place(), set_attributes(), payload(90)).prop_map(|(place, attributes, target)| SymlinkArgs {
        place, symlink: SymlinkData { attributes, target }
    }) => new_object(), wcc();
    mknod: (place(), mknod_data()).prop_map(|(place, what)| MknodArgs { place, what }) => new_object(), wcc();
    remove: place().prop_map(|object| RemoveArgs { object }) => wcc(), wcc();
    rmdir: place().prop_map(|object| RmdirArgs { object }) => wcc(), wcc();
    rename: (place(), place()).prop_map(|(from, to)| RenameArgs { from, to })
        => (wcc(), wcc()).prop_map(|(from_dir, to_dir)| RenameWcc { from_dir, to_dir }),
        (wcc(), wcc()).prop_map(|(from_dir, to_dir)| RenameWcc { from_dir, to_dir });
    link: (handle(), place()).prop_map(|(file, link)| LinkArgs { file, link })
        => (post_op(), wcc()).prop_map(|(file, link_dir)| LinkAttributes { file, link_dir }),
        (post_op(), wcc()).prop_map(|(file, link_dir)| LinkAttributes { file, link_dir });
    readdir: directory_args()
        .prop_map(|(dir, cookie, verifier)| ReaddirArgs { dir, cookie, verifier, count: 4096 })
        => readdir_ok(), post_op();
    readdirplus: directory_args().prop_map(|(dir, cookie, verifier)| ReaddirplusArgs {
        dir, cookie, verifier, dircount: 512, maxcount: 4096
    }) => readdirplus_ok(), post_op();
    fsstat: handle().prop_map(|root| FsstatArgs { root }) => fsstat_ok(), post_op();
    fsinfo: handle().prop_map(|root| FsinfoArgs { root }) => fsinfo_ok(), post_op();
    pathconf: handle().prop_map(|object| PathconfArgs { object }) => pathconf_ok(), post_op();
    commit: (handle(), any::<u64>(), any::<u32>()).prop_map(|(file, offset, count)| CommitArgs { file, offset, count })
        => (wcc(), any::<Verifier>()).prop_map(|(file_wcc, verifier)| CommitOk { file_wcc, verifier }), wcc();
}

proptest! {
    /// A server fills a READDIR reply by `size` and `OVERHEAD`.
    #[test]
    fn sizes_of_directory_replies(mut list in readdir_ok(), mut plus in readdirplus_ok(), attributes in attributes()) {
        list.dir_attributes = Some(attributes);
        plus.dir_attributes = Some(attributes);
        let size: usize = list.reply.entries.iter().map(DirEntry::size).sum();
        prop_assert_eq!(to_bytes(&list).len(), ReaddirOk::OVERHEAD + size);
        let size: usize = plus.reply.entries.iter().map(DirEntryPlus::size).sum();
        prop_assert_eq!(to_bytes(&plus).len(), ReaddirplusOk::OVERHEAD + size);
    }

    #[test]
    fn names_that_can_be_entries(name in name()) {
        let bytes = name.as_bytes();
        let bad = bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0);
        prop_assert_eq!(name.check_component().is_err(), bad);
    }

    #[test]
    fn times_survive_the_system_clock(seconds: u32, nanoseconds in 0u32..1_000_000_000) {
        let time = NfsTime { seconds, nanoseconds };
        prop_assert_eq!(NfsTime::from(std::time::SystemTime::from(time)), time);
    }

    /// No input makes a decoder panic or allocate beyond the message.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = from_bytes::<SetattrArgs>(bytes.clone());
        let _ = from_bytes::<MknodArgs>(bytes.clone());
        let _ = from_bytes::<CreateArgs>(bytes.clone());
        let _ = from_bytes::<WriteArgs>(bytes.clone());
        let _ = from_bytes::<SymlinkArgs>(bytes.clone());
        let _ = from_bytes::<ReadResult>(bytes.clone());
        let _ = from_bytes::<ReaddirplusResult>(bytes.clone());
        let _ = from_bytes::<ReaddirResult>(bytes);
    }
}
