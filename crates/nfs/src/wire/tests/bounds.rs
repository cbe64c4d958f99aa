//! The bounds that the types derive, by RFC 1813 §2 and §3.

use rpcrdma_oncrpc::Effect;
use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use rpcrdma_xdr::{Bound, Bounded};

use crate::extents::{ExtentsArgs, MAX_EXTENTS};
use crate::mount::{DirPath, Dump, Export, Exports, MAX_MOUNT_LIST, Mnt, MountList, Umnt, UmntAll};
use crate::procedures::is_kept_whole;
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
    fn of<P: Procedure>(arguments: &P::Arguments, arguments_len: usize, results_len: usize) {
        assert_eq!(P::Arguments::BOUND, Bound::opaque_fixed(arguments_len), "{}", P::NAME);
        assert_eq!(P::bounds(arguments), Bounds::inline(results_len), "{}", P::NAME);
        assert_eq!(P::Results::DDP_ITEMS, 0, "{}", P::NAME);
    }

    let path = DirPath::new("/");
    of::<Mnt>(&path, 4 + MAX_PATH, 4 + 68 + 4 + 4 * 64);
    of::<Dump>(&(), 0, MAX_MOUNT_LIST);
    of::<Umnt>(&path, 4 + MAX_PATH, 0);
    of::<UmntAll>(&(), 0, 0);
    of::<Export>(&(), 0, MAX_MOUNT_LIST);
    for list in [MountList::BOUND, Exports::BOUND] {
        assert!(list.is_bounded() && list.max_len() > MAX_MOUNT_LIST);
    }
    let file = FileHandle::new(&[7; 64]).unwrap();
    of::<ExtentsArgs>(&ExtentsArgs { file, offset: 0, count: 1 }, 80, 4 + 4 + 16 * MAX_EXTENTS + 4);
}

/// RFC 8267 §4.1: the results that the arguments limit.
#[test]
fn rfc8267_4_1_results_are_predicted_by_the_arguments() {
    let file = FileHandle::new(&[7; 64]).unwrap();
    let read = |count| ReadArgs::bounds(&ReadArgs { file, offset: 0, count });
    assert_eq!(read(5), Bounds::inline(104).item(5));
    assert_eq!(read(1 << 20), Bounds::inline(104).item(1 << 20));
    assert_eq!(ReadlinkArgs::bounds(&ReadlinkArgs { symlink: file }), Bounds::inline(96).item(4096));
    let (dir, cookie, verifier) = (file, 0, [0; 8]);
    for (count, largest) in [(0, 4 + 88), (88, 4 + 88), (89, 4 + 89), (4096, 4 + 4096)] {
        let readdir = ReaddirArgs { dir, cookie, verifier, count };
        assert_eq!(ReaddirArgs::bounds(&readdir), Bounds::inline(largest));
        let readdirplus = ReaddirplusArgs { dir, cookie, verifier, dircount: 1, maxcount: count };
        assert_eq!(ReaddirplusArgs::bounds(&readdirplus), Bounds::inline(largest));
    }
}

/// The reply cache holds the longest reply of each procedure that must not be repeated.
#[test]
fn replies_that_are_kept_are_short() {
    struct Long;

    impl Procedure for Long {
        type Arguments = ();
        type Results = ReadResult;
        const PROGRAM: u32 = 1;
        const VERSION: u32 = 1;
        const NUMBER: u32 = 1;
        const NAME: &'static str = "LONG";
        const EFFECT: Effect = Effect::Data;
    }

    assert!(!is_kept_whole::<Long>());
    assert!(is_kept_whole::<ReadArgs>(), "replies of READ are not kept");
    assert!(is_kept_whole::<WriteArgs>());
}
