//! NFS version 3: generated types against the hand-written ones of `rpcrdma_nfs`, on all recordings of Linux, and against
//! `nfs3_types` on random values.

use std::fmt::Debug;
use std::io::Cursor;

use bytes::Bytes;
use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::prelude::*;
use rpcrdma::Procedure;
use rpcrdma::xdr::{Bounded, Decode, Encode, Piece, encode};
use rpcrdma_nfs::wire as ours;
use rpcrdma_nfs::wire::NfsProcedure;
use rpcrdma_xdrgen_tests::nfs3::*;

use crate::recordings::{self, Half};
use crate::{octets, value, values};

/// Octets of a value, with its DDP-eligible items.
fn encoded<T: Encode>(value: &T) -> (Bytes, Vec<Bytes>) {
    let stream = encode(value).unwrap();
    let items = stream.pieces().iter().filter_map(|piece| match piece {
        Piece::Payload { data, ddp_eligible: true } => Some(data.clone()),
        _ => None,
    });
    (stream.flatten().0, items.collect())
}

/// Both types read the half of a call and write equal octets: those of the recording, if nothing moved in chunks.
fn compare<Generated: Encode + Decode, Written: Encode + Decode>(half: &Half) {
    let generated = encoded(&half.decoder().decode_all::<Generated>().unwrap());
    let written = encoded(&half.decoder().decode_all::<Written>().unwrap());
    assert_eq!(generated, written);
    if let Some(recorded) = &half.octets {
        assert_eq!(&generated.0, recorded);
    }
}

/// Both implementations read the octets of a generated value, and write them again.
fn agree<Generated: Encode + Decode + PartialEq + Debug, Written: Encode + Decode, Theirs: Pack + Unpack>(
    generated: &Generated,
) {
    let bytes = octets(generated);
    assert_eq!(value::<Generated>(bytes.clone()).as_ref(), Ok(generated));
    assert_eq!(octets(&value::<Written>(bytes.clone()).unwrap()), bytes);
    let (foreign, read) = Theirs::unpack(&mut Cursor::new(&bytes)).unwrap();
    assert_eq!(read, bytes.len());
    let mut again = Vec::new();
    foreign.pack(&mut again).unwrap();
    assert_eq!(again, bytes);
}

macro_rules! procedures {
    ($($procedure:ident, $name:ident: $arguments:ident, $results:ident;
        $our_arguments:ident, $our_results:ident; $their_arguments:ty, $their_results:ty;)*) => {
        fn compare_arguments(procedure: NfsProcedure, half: &Half) {
            match procedure {
                // A probe pads it up to the inline threshold.
                NfsProcedure::Null => {}
                $(NfsProcedure::$procedure => compare::<$arguments, ours::$our_arguments>(half),)*
            }
        }

        fn compare_results(procedure: NfsProcedure, half: &Half) {
            match procedure {
                NfsProcedure::Null => {}
                $(NfsProcedure::$procedure => compare::<$results, ours::$our_results>(half),)*
            }
        }

        /// The list of the generated program is that of the hand-written one.
        #[test]
        fn numbers_effects_and_eligible_items() {
            assert_eq!((nfs_v3::PROGRAM, nfs_v3::VERSION), (ours::NFS_PROGRAM, ours::NFS_VERSION));
            let mut count = 1;
            $({
                let procedure = NfsProcedure::$procedure;
                assert_eq!(nfs_v3::$procedure::NUMBER, procedure.number());
                assert_eq!(nfs_v3::$procedure::NAME, procedure.name());
                assert_eq!(nfs_v3::$procedure::EFFECT, procedure.info().effect);
                assert_eq!($arguments::DDP_ITEMS, ours::$our_arguments::DDP_ITEMS);
                assert_eq!($results::DDP_ITEMS, ours::$our_results::DDP_ITEMS);
                count += 1;
            })*
            assert_eq!(count, NfsProcedure::ALL.len());
        }

        $(proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]
            #[test]
            fn $name(arguments in values::$name::arguments(), results in values::$name::results()) {
                agree::<$arguments, ours::$our_arguments, $their_arguments>(&arguments);
                agree::<$results, ours::$our_results, $their_results>(&results);
            }
        })*
    };
}

procedures! {
    Getattr, getattr: Getattr3args, Getattr3res; GetattrArgs, GetattrResult;
        theirs::GETATTR3args, theirs::GETATTR3res;
    Setattr, setattr: Setattr3args, Setattr3res; SetattrArgs, SetattrResult;
        theirs::SETATTR3args, theirs::SETATTR3res;
    Lookup, lookup: Lookup3args, Lookup3res; LookupArgs, LookupResult;
        theirs::LOOKUP3args<'_>, theirs::LOOKUP3res;
    Access, access: Access3args, Access3res; AccessArgs, AccessResult;
        theirs::ACCESS3args, theirs::ACCESS3res;
    Readlink, readlink: Readlink3args, Readlink3res; ReadlinkArgs, ReadlinkResult;
        theirs::READLINK3args, theirs::READLINK3res<'_>;
    Read, read: Read3args, Read3res; ReadArgs, ReadResult;
        theirs::READ3args, theirs::READ3res<'_>;
    Write, write: Write3args, Write3res; WriteArgs, WriteResult;
        theirs::WRITE3args<'_>, theirs::WRITE3res;
    Create, create: Create3args, Create3res; CreateArgs, CreateResult;
        theirs::CREATE3args<'_>, theirs::CREATE3res;
    Mkdir, mkdir: Mkdir3args, Mkdir3res; MkdirArgs, MkdirResult;
        theirs::MKDIR3args<'_>, theirs::MKDIR3res;
    Symlink, symlink: Symlink3args, Symlink3res; SymlinkArgs, SymlinkResult;
        theirs::SYMLINK3args<'_>, theirs::SYMLINK3res;
    Mknod, mknod: Mknod3args, Mknod3res; MknodArgs, MknodResult;
        theirs::MKNOD3args<'_>, theirs::MKNOD3res;
    Remove, remove: Remove3args, Remove3res; RemoveArgs, RemoveResult;
        theirs::REMOVE3args<'_>, theirs::REMOVE3res;
    Rmdir, rmdir: Rmdir3args, Rmdir3res; RmdirArgs, RmdirResult;
        theirs::RMDIR3args<'_>, theirs::RMDIR3res;
    Rename, rename: Rename3args, Rename3res; RenameArgs, RenameResult;
        theirs::RENAME3args<'_, '_>, theirs::RENAME3res;
    Link, link: Link3args, Link3res; LinkArgs, LinkResult;
        theirs::LINK3args<'_>, theirs::LINK3res;
    Readdir, readdir: Readdir3args, Readdir3res; ReaddirArgs, ReaddirResult;
        theirs::READDIR3args, theirs::READDIR3res<'_>;
    Readdirplus, readdirplus: Readdirplus3args, Readdirplus3res; ReaddirplusArgs, ReaddirplusResult;
        theirs::READDIRPLUS3args, theirs::READDIRPLUS3res<'_>;
    Fsstat, fsstat: Fsstat3args, Fsstat3res; FsstatArgs, FsstatResult;
        theirs::FSSTAT3args, theirs::FSSTAT3res;
    Fsinfo, fsinfo: Fsinfo3args, Fsinfo3res; FsinfoArgs, FsinfoResult;
        theirs::FSINFO3args, theirs::FSINFO3res;
    Pathconf, pathconf: Pathconf3args, Pathconf3res; PathconfArgs, PathconfResult;
        theirs::PATHCONF3args, theirs::PATHCONF3res;
    Commit, commit: Commit3args, Commit3res; CommitArgs, CommitResult;
        theirs::COMMIT3args, theirs::COMMIT3res;
}

#[test]
fn recorded_calls_of_linux_have_equal_octets() {
    let (mut arguments, mut results, mut inline) = (0, 0, 0);
    for recorded in recordings::all() {
        let [program, version, number] = recorded.procedure;
        if (program, version) != (nfs_v3::PROGRAM, nfs_v3::VERSION) {
            continue;
        }
        let procedure = NfsProcedure::from_number(number).unwrap();
        compare_arguments(procedure, &recorded.arguments);
        arguments += 1;
        if let Some(half) = &recorded.results {
            compare_results(procedure, half);
            results += 1;
        }
        let halves = std::iter::once(&recorded.arguments).chain(&recorded.results);
        inline += halves.filter(|half| half.octets.is_some()).count();
    }
    assert_eq!((arguments, results, inline), (362, 322, 636));
}
