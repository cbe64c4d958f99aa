//! The bounds that the types derive, by RFC 1813 §2 and §3.

use rpcrdma_xdr::{Bound, Bounded};

use crate::binding::largest_mount_results;
use crate::extents::{ExtentsArgs, ExtentsResult, MAX_EXTENTS_RESULTS};
use crate::mount::{DirPath, Exports, MountList, MountProcedure, MountResult};
use crate::wire::*;

#[test]
fn parts_have_their_sizes() {
    for (bound, bytes) in [
        (Attributes::BOUND, Attributes::SIZE),
        (PostOpAttr::BOUND, 4 + 84),
        (WccData::BOUND, WccData::MAX_SIZE),
        (WccData::BOUND, 4 + 24 + 4 + 84),
        (FileHandle::BOUND, 4 + MAX_HANDLE),
        (FileName::BOUND, 4 + MAX_NAME_ON_WIRE),
        (Verifier::BOUND, VERIFIER_SIZE),
        (SetAttributes::BOUND, 8 + 8 + 8 + 12 + 12 + 12),
        (SpecData::BOUND, 8),
        (Option::<()>::BOUND, 4),
    ] {
        assert_eq!(bound, Bound::opaque_fixed(bytes));
    }
}

/// The largest results of each procedure: all bytes but those of the DDP-eligible item, and that item (RFC 8267 §4).
#[test]
fn rfc1813_3_the_largest_results_of_each_procedure() {
    fn results<A: NfsCall>(inline: usize, item: Option<usize>) {
        let bound = NfsResult::<A::Ok, A::Fail>::BOUND;
        assert_eq!((bound.max_len(), bound.maxima()), (inline, item.as_slice()), "{}", A::PROCEDURE);
    }

    results::<GetattrArgs>(88, None);
    results::<SetattrArgs>(120, None);
    results::<LookupArgs>(248, None);
    results::<AccessArgs>(96, None);
    results::<ReadlinkArgs>(96, Some(4096));
    results::<ReadArgs>(104, Some(4 << 20));
    results::<WriteArgs>(136, None);
    results::<CreateArgs>(280, None);
    results::<MkdirArgs>(280, None);
    results::<SymlinkArgs>(280, None);
    results::<MknodArgs>(280, None);
    results::<RemoveArgs>(120, None);
    results::<RmdirArgs>(120, None);
    results::<RenameArgs>(236, None);
    results::<LinkArgs>(208, None);
    let entry = 4 + 8 + (4 + MAX_NAME_ON_WIRE) + 8;
    results::<ReaddirArgs>(4 + ReaddirOk::OVERHEAD + MAX_DIRECTORY_ENTRIES * entry, None);
    let entry = entry + 88 + 4 + 68;
    results::<ReaddirplusArgs>(4 + ReaddirplusOk::OVERHEAD + MAX_DIRECTORY_ENTRIES * entry, None);
    results::<FsstatArgs>(144, None);
    results::<FsinfoArgs>(140, None);
    results::<PathconfArgs>(116, None);
    results::<CommitArgs>(128, None);
}

/// WRITE and SYMLINK have a DDP-eligible argument, and no other procedure has one (RFC 8267 §4).
#[test]
fn rfc1813_3_the_largest_arguments_of_each_procedure() {
    fn arguments<A: NfsCall>(inline: usize, item: Option<usize>) {
        assert_eq!((A::MAX_LEN, A::BOUND.maxima()), (inline, item.as_slice()), "{}", A::PROCEDURE);
    }

    let place = 68 + 4 + MAX_NAME_ON_WIRE;
    arguments::<GetattrArgs>(68, None);
    arguments::<SetattrArgs>(68 + 60 + 12, None);
    arguments::<LookupArgs>(place, None);
    arguments::<AccessArgs>(72, None);
    arguments::<ReadlinkArgs>(68, None);
    arguments::<ReadArgs>(80, None);
    arguments::<WriteArgs>(88, Some(4 << 20));
    arguments::<CreateArgs>(place + 4 + 60, None);
    arguments::<MkdirArgs>(place + 60, None);
    arguments::<SymlinkArgs>(place + 60 + 4, Some(65_536));
    arguments::<MknodArgs>(place + 4 + 60 + 8, None);
    arguments::<RemoveArgs>(place, None);
    arguments::<RmdirArgs>(place, None);
    arguments::<RenameArgs>(2 * place, None);
    arguments::<LinkArgs>(68 + place, None);
    arguments::<ReaddirArgs>(68 + 8 + 8 + 4, None);
    arguments::<ReaddirplusArgs>(68 + 8 + 8 + 8, None);
    arguments::<FsstatArgs>(68, None);
    arguments::<FsinfoArgs>(68, None);
    arguments::<PathconfArgs>(68, None);
    arguments::<CommitArgs>(80, None);
}

/// RFC 8267 §5: MOUNT has no DDP-eligible item. Its lists are larger than the memory that a client offers for them.
#[test]
fn bounds_of_mount_and_extents() {
    assert_eq!(MountResult::MAX_LEN, largest_mount_results(MountProcedure::Mnt).inline);
    assert_eq!(MountResult::MAX_LEN, 4 + 68 + 4 + 4 * 64);
    assert_eq!(DirPath::MAX_LEN, 4 + MAX_PATH);
    for (list, procedure) in
        [(MountList::BOUND, MountProcedure::Dump), (Exports::BOUND, MountProcedure::Export)]
    {
        assert!(list.is_bounded() && list.max_len() > largest_mount_results(procedure).inline);
        assert_eq!(list.items(), 0);
    }
    assert_eq!((ExtentsArgs::MAX_LEN, ExtentsResult::MAX_LEN), (80, MAX_EXTENTS_RESULTS));
    assert_eq!((ExtentsArgs::DDP_ITEMS, ExtentsResult::DDP_ITEMS), (0, 0));
}
