//! Comparison with `nfs3_types`, an independent implementation: each side decodes the other's encoding, and
//! encodes the value to the same bytes again.

use std::io::Cursor;

use nfs3_types::nfs3 as theirs;
use nfs3_types::xdr_codec::{Pack, Unpack};
use proptest::prelude::*;
use rpcrdma_xdr::Encode;

use super::strategies::*;
use super::to_bytes;
use crate::wire::*;

/// Checks that the other implementation reads all our bytes and writes the same ones.
fn agree<T: Pack + Unpack>(ours: &impl Encode) {
    let bytes = to_bytes(ours);
    let (value, read) = T::unpack(&mut Cursor::new(&bytes)).expect("they decode what we encoded");
    assert_eq!(read, bytes.len(), "they read all of it");
    let mut again = Vec::new();
    value.pack(&mut again).expect("they encode it");
    assert_eq!(again, bytes);
}

macro_rules! procedures {
    ($($name:ident: $arguments:expr => $ok:expr, $fail:expr; $their_args:ty, $their_res:ty;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig::with_cases(48))]
            #[test]
            fn $name(arguments in $arguments, results in result($ok, $fail)) {
                agree::<$their_args>(&arguments);
                agree::<$their_res>(&results);
            }
        })*
    };
}

procedures! {
    getattr: handle().prop_map(|object| GetattrArgs { object }) => attributes(), Just(());
        theirs::GETATTR3args, theirs::GETATTR3res;
    setattr: (handle(), set_attributes(), proptest::option::of(time()))
        .prop_map(|(object, new_attributes, guard)| SetattrArgs { object, new_attributes, guard })
        => wcc(), wcc(); theirs::SETATTR3args, theirs::SETATTR3res;
    lookup: place().prop_map(|what| LookupArgs { what })
        => (handle(), post_op(), post_op()).prop_map(|(object, attributes, dir_attributes)| LookupOk {
            object, attributes, dir_attributes
        }), post_op(); theirs::LOOKUP3args<'_>, theirs::LOOKUP3res;
    access: (handle(), any::<u32>()).prop_map(|(object, access)| AccessArgs { object, access })
        => (post_op(), any::<u32>()).prop_map(|(attributes, access)| AccessOk { attributes, access }), post_op();
        theirs::ACCESS3args, theirs::ACCESS3res;
    readlink: handle().prop_map(|symlink| ReadlinkArgs { symlink })
        => (post_op(), payload(90)).prop_map(|(attributes, data)| ReadlinkOk { attributes, data }), post_op();
        theirs::READLINK3args, theirs::READLINK3res<'_>;
    read: (handle(), any::<u64>(), any::<u32>()).prop_map(|(file, offset, count)| ReadArgs { file, offset, count })
        => (post_op(), any::<u32>(), any::<bool>(), payload(600))
            .prop_map(|(attributes, count, eof, data)| ReadOk { attributes, count, eof, data: data.into() }), post_op();
        theirs::READ3args, theirs::READ3res<'_>;
    write: (handle(), any::<u64>(), any::<u32>(), stable(), payload(600))
        .prop_map(|(file, offset, count, stable, data)| WriteArgs { file, offset, count, stable, data: data.into() })
        => (wcc(), any::<u32>(), stable(), any::<Verifier>())
            .prop_map(|(file_wcc, count, committed, verifier)| WriteOk { file_wcc, count, committed, verifier }), wcc();
        theirs::WRITE3args<'_>, theirs::WRITE3res;
    create: (place(), create_how()).prop_map(|(place, how)| CreateArgs { place, how }) => new_object(), wcc();
        theirs::CREATE3args<'_>, theirs::CREATE3res;
    mkdir: (place(), set_attributes()).prop_map(|(place, attributes)| MkdirArgs { place, attributes })
        => new_object(), wcc(); theirs::MKDIR3args<'_>, theirs::MKDIR3res;
    symlink: (place(), set_attributes(), payload(90)).prop_map(|(place, attributes, target)| SymlinkArgs {
        place, symlink: SymlinkData { attributes, target }
    }) => new_object(), wcc(); theirs::SYMLINK3args<'_>, theirs::SYMLINK3res;
    mknod: (place(), mknod_data()).prop_map(|(place, what)| MknodArgs { place, what }) => new_object(), wcc();
        theirs::MKNOD3args<'_>, theirs::MKNOD3res;
    remove: place().prop_map(|object| RemoveArgs { object }) => wcc(), wcc();
        theirs::REMOVE3args<'_>, theirs::REMOVE3res;
    rmdir: place().prop_map(|object| RmdirArgs { object }) => wcc(), wcc();
        theirs::RMDIR3args<'_>, theirs::RMDIR3res;
    rename: (place(), place()).prop_map(|(from, to)| RenameArgs { from, to })
        => (wcc(), wcc()).prop_map(|(from_dir, to_dir)| RenameWcc { from_dir, to_dir }),
        (wcc(), wcc()).prop_map(|(from_dir, to_dir)| RenameWcc { from_dir, to_dir });
        theirs::RENAME3args<'_, '_>, theirs::RENAME3res;
    link: (handle(), place()).prop_map(|(file, link)| LinkArgs { file, link })
        => (post_op(), wcc()).prop_map(|(file, link_dir)| LinkAttributes { file, link_dir }),
        (post_op(), wcc()).prop_map(|(file, link_dir)| LinkAttributes { file, link_dir });
        theirs::LINK3args<'_>, theirs::LINK3res;
    readdir: (handle(), any::<u64>(), any::<Verifier>(), any::<u32>())
        .prop_map(|(dir, cookie, verifier, count)| ReaddirArgs { dir, cookie, verifier, count })
        => readdir_ok(), post_op(); theirs::READDIR3args, theirs::READDIR3res<'_>;
    readdirplus: (handle(), any::<u64>(), any::<Verifier>(), any::<[u32; 2]>())
        .prop_map(|(dir, cookie, verifier, [dircount, maxcount])| ReaddirplusArgs {
            dir, cookie, verifier, dircount, maxcount
        }) => readdirplus_ok(), post_op(); theirs::READDIRPLUS3args, theirs::READDIRPLUS3res<'_>;
    fsstat: handle().prop_map(|root| FsstatArgs { root }) => fsstat_ok(), post_op();
        theirs::FSSTAT3args, theirs::FSSTAT3res;
    fsinfo: handle().prop_map(|root| FsinfoArgs { root }) => fsinfo_ok(), post_op();
        theirs::FSINFO3args, theirs::FSINFO3res;
    pathconf: handle().prop_map(|object| PathconfArgs { object }) => pathconf_ok(), post_op();
        theirs::PATHCONF3args, theirs::PATHCONF3res;
    commit: (handle(), any::<u64>(), any::<u32>()).prop_map(|(file, offset, count)| CommitArgs { file, offset, count })
        => (wcc(), any::<Verifier>()).prop_map(|(file_wcc, verifier)| CommitOk { file_wcc, verifier }), wcc();
        theirs::COMMIT3args, theirs::COMMIT3res;
}

/// Numbers and names of procedures, statuses and bits agree.
// requirement: rfc1813-2.2-1, rfc1813-2.5-1, rfc1813-3-1, rfc1813-3.3.4-1, rfc1813-3.3.19-6
#[test]
fn constants_agree() {
    assert_eq!((NFS_PROGRAM, NFS_VERSION), (theirs::PROGRAM, theirs::VERSION));
    assert_eq!(NfsProcedure::ALL.len(), 22);
    for procedure in NfsProcedure::ALL {
        let number = procedure.number();
        assert_eq!(NfsProcedure::from_number(number), Some(*procedure));
        let name = theirs::NFS_PROGRAM::try_from(number).unwrap().to_string();
        assert_eq!(name, format!("NFSPROC3_{procedure}"));
    }
    assert_eq!(NfsProcedure::from_number(22), None);
    for status in Status::ALL {
        let bytes = status.code().to_be_bytes();
        let (theirs, _) = theirs::nfsstat3::unpack(&mut Cursor::new(&bytes)).unwrap();
        assert_eq!(theirs.to_string(), status.name());
    }
    assert_eq!(Status::ALL.len(), 28);
    assert_eq!(
        [ACCESS3_READ, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_EXTEND, ACCESS3_DELETE, ACCESS3_EXECUTE],
        [
            theirs::ACCESS3_READ,
            theirs::ACCESS3_LOOKUP,
            theirs::ACCESS3_MODIFY,
            theirs::ACCESS3_EXTEND,
            theirs::ACCESS3_DELETE,
            theirs::ACCESS3_EXECUTE
        ]
    );
    assert_eq!(
        [FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME],
        [theirs::FSF3_LINK, theirs::FSF3_SYMLINK, theirs::FSF3_HOMOGENEOUS, theirs::FSF3_CANSETTIME]
    );
}
