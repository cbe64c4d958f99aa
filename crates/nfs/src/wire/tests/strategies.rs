//! Strategies for values of every type.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::wire::*;

pub(crate) fn handle() -> impl Strategy<Value = FileHandle> {
    vec(any::<u8>(), 0..=MAX_HANDLE).prop_map(|bytes| FileHandle::new(&bytes).unwrap())
}

pub(crate) fn name() -> impl Strategy<Value = FileName> {
    vec(any::<u8>(), 0..40).prop_map(FileName::new)
}

pub(crate) fn payload(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

pub(crate) fn time() -> impl Strategy<Value = NfsTime> {
    any::<(u32, u32)>().prop_map(|(seconds, nanoseconds)| NfsTime { seconds, nanoseconds })
}

fn file_type() -> impl Strategy<Value = FileType> {
    prop_oneof![
        Just(FileType::Regular),
        Just(FileType::Directory),
        Just(FileType::BlockDevice),
        Just(FileType::CharacterDevice),
        Just(FileType::Symlink),
        Just(FileType::Socket),
        Just(FileType::Fifo),
    ]
}

fn spec() -> impl Strategy<Value = SpecData> {
    any::<(u32, u32)>().prop_map(|(major, minor)| SpecData { major, minor })
}

pub(crate) fn attributes() -> impl Strategy<Value = Attributes> {
    (file_type(), any::<[u32; 4]>(), any::<[u64; 4]>(), spec(), (time(), time(), time())).prop_map(
        |(file_type, [mode, nlink, uid, gid], [size, used, fsid, fileid], rdev, (atime, mtime, ctime))| {
            Attributes {
                file_type,
                mode,
                nlink,
                uid,
                gid,
                size,
                used,
                rdev,
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
            }
        },
    )
}

pub(crate) fn post_op() -> impl Strategy<Value = PostOpAttr> {
    option::of(attributes())
}

pub(crate) fn wcc() -> impl Strategy<Value = WccData> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (option::of(before), post_op()).prop_map(|(before, after)| WccData { before, after })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::DontChange), Just(SetTime::ServerTime), time().prop_map(SetTime::ClientTime)]
}

pub(crate) fn set_attributes() -> impl Strategy<Value = SetAttributes> {
    (any::<[Option<u32>; 3]>(), any::<Option<u64>>(), set_time(), set_time()).prop_map(
        |([mode, uid, gid], size, atime, mtime)| SetAttributes { mode, uid, gid, size, atime, mtime },
    )
}

pub(crate) fn place() -> impl Strategy<Value = DirOpArgs> {
    (handle(), name()).prop_map(|(dir, name)| DirOpArgs { dir, name })
}

pub(crate) fn stable() -> impl Strategy<Value = StableHow> {
    prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)]
}

pub(crate) fn create_how() -> impl Strategy<Value = CreateHow> {
    prop_oneof![
        set_attributes().prop_map(CreateHow::Unchecked),
        set_attributes().prop_map(CreateHow::Guarded),
        any::<Verifier>().prop_map(CreateHow::Exclusive),
    ]
}

/// The arms of the union in RFC 1813.
pub(crate) fn mknod_data() -> impl Strategy<Value = MknodData> {
    let device = || (set_attributes(), spec()).prop_map(|(attributes, spec)| DeviceData { attributes, spec });
    prop_oneof![
        device().prop_map(MknodData::BlockDevice),
        device().prop_map(MknodData::CharacterDevice),
        set_attributes().prop_map(MknodData::Socket),
        set_attributes().prop_map(MknodData::Fifo),
    ]
}

pub(crate) fn new_object() -> impl Strategy<Value = NewObject> {
    (option::of(handle()), post_op(), wcc()).prop_map(|(object, attributes, dir_wcc)| NewObject {
        object,
        attributes,
        dir_wcc,
    })
}

pub(crate) fn entries() -> impl Strategy<Value = Vec<DirEntry>> {
    let entry = (any::<u64>(), name(), any::<u64>());
    vec(entry.prop_map(|(fileid, name, cookie)| DirEntry { fileid, name, cookie }), 0..6)
}

pub(crate) fn entries_plus() -> impl Strategy<Value = Vec<DirEntryPlus>> {
    let entry = (any::<u64>(), name(), any::<u64>(), post_op(), option::of(handle())).prop_map(
        |(fileid, name, cookie, attributes, handle)| DirEntryPlus {
            fileid,
            name,
            cookie,
            attributes,
            handle,
        },
    );
    vec(entry, 0..6)
}

pub(crate) fn readdir_ok() -> impl Strategy<Value = ReaddirOk> {
    (post_op(), any::<Verifier>(), entries(), any::<bool>()).prop_map(
        |(dir_attributes, verifier, entries, eof)| ReaddirOk {
            dir_attributes,
            verifier,
            reply: DirList { entries, eof },
        },
    )
}

pub(crate) fn readdirplus_ok() -> impl Strategy<Value = ReaddirplusOk> {
    (post_op(), any::<Verifier>(), entries_plus(), any::<bool>()).prop_map(
        |(dir_attributes, verifier, entries, eof)| ReaddirplusOk {
            dir_attributes,
            verifier,
            reply: DirListPlus { entries, eof },
        },
    )
}

pub(crate) fn fsstat_ok() -> impl Strategy<Value = FsstatOk> {
    (post_op(), any::<[u64; 6]>(), any::<u32>()).prop_map(|(attributes, n, invariant_seconds)| FsstatOk {
        attributes,
        total_bytes: n[0],
        free_bytes: n[1],
        available_bytes: n[2],
        total_files: n[3],
        free_files: n[4],
        available_files: n[5],
        invariant_seconds,
    })
}

pub(crate) fn fsinfo_ok() -> impl Strategy<Value = FsinfoOk> {
    (post_op(), any::<[u32; 8]>(), any::<u64>(), time()).prop_map(
        |(attributes, n, max_file_size, time_delta)| FsinfoOk {
            attributes,
            read_max: n[0],
            read_preferred: n[1],
            read_multiple: n[2],
            write_max: n[3],
            write_preferred: n[4],
            write_multiple: n[5],
            readdir_preferred: n[6],
            max_file_size,
            time_delta,
            properties: n[7],
        },
    )
}

pub(crate) fn pathconf_ok() -> impl Strategy<Value = PathconfOk> {
    (post_op(), any::<[u32; 2]>(), any::<[bool; 4]>()).prop_map(|(attributes, n, flags)| PathconfOk {
        attributes,
        link_max: n[0],
        name_max: n[1],
        no_trunc: flags[0],
        chown_restricted: flags[1],
        case_insensitive: flags[2],
        case_preserving: flags[3],
    })
}

/// Any status that RFC 1813 defines.
pub(crate) fn status() -> impl Strategy<Value = Status> {
    proptest::sample::select(Status::ALL)
}

/// Either arm of a result.
pub(crate) fn result<T: std::fmt::Debug + Clone, F: std::fmt::Debug + Clone>(
    ok: impl Strategy<Value = T>,
    fail: impl Strategy<Value = F>,
) -> impl Strategy<Value = NfsResult<T, F>> {
    prop_oneof![
        3 => ok.prop_map(NfsResult::Ok),
        1 => (status(), fail).prop_map(|(status, attributes)| NfsResult::Fail { status, attributes }),
    ]
}
