//! Golden bytes of every procedure's arguments and results, written by hand from RFC 1813 §2.5, §2.6 and
//! §3.3. Each field has its own value, so that a wrong order shows.

use bytes::Bytes;
use rpcrdma_xdr::{Decode, Encode, Piece, encode};

use super::{from_bytes, hex, to_bytes};
use crate::wire::*;

fn check<T: Encode + Decode + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
    assert_eq!(to_bytes(value), hex(golden), "encoding of {value:?}");
    assert_eq!(from_bytes::<T>(hex(golden)).as_ref(), Ok(value));
}

/// Checks the successful results of a procedure, after NFS3_OK.
fn check_ok<T, F>(ok: T, golden: &str)
where
    T: Encode + Decode + PartialEq + std::fmt::Debug,
    F: Encode + Decode + PartialEq + std::fmt::Debug,
{
    check(&NfsResult::<T, F>::Ok(ok), &format!("00000000\n{golden}"));
}

fn check_fail<T, F>(attributes: F, golden: &str)
where
    T: Encode + Decode + PartialEq + std::fmt::Debug,
    F: Encode + Decode + PartialEq + std::fmt::Debug,
{
    let status = Status::NoSpc;
    check(
        &NfsResult::<T, F>::Fail { status, attributes },
        &format!("0000001c ; NFS3ERR_NOSPC = 28\n{golden}"),
    );
}

const HANDLE: &str = "00000005 0102030405 000000";
const PLACE: &str = "00000005 0102030405 000000 ; dir
    00000003 612e62 00 ; name a.b";
const FATTR: &str = "00000005 000001a4 00000002 00000003 00000004 ; NF3LNK, mode, nlink, uid, gid
    0000000000000006 0000000000000007 ; size, used
    00000008 00000009 ; rdev
    000000000000000a 000000000000000b ; fsid, fileid
    0000000c 0000000d 0000000e 0000000f 00000010 00000011 ; atime, mtime, ctime";
const SATTR: &str = "00000001 000001ff 00000001 00000021 00000001 00000022 ; mode, uid, gid
    00000001 0000000000000023 ; size
    00000001 ; atime by the server
    00000002 00000024 00000025 ; mtime by the client";
const PRE: &str = "00000001 0000000000000031 00000032 00000033 00000034 00000035 ; size, mtime, ctime";

fn post() -> String {
    format!("00000001 {FATTR}")
}

fn wcc_golden() -> String {
    format!("{PRE}\n00000001 {FATTR}\n")
}

fn handle() -> FileHandle {
    FileHandle::new(&[1, 2, 3, 4, 5]).unwrap()
}

fn place() -> DirOpArgs {
    DirOpArgs { dir: handle(), name: FileName::from("a.b") }
}

fn time(seconds: u32, nanoseconds: u32) -> NfsTime {
    NfsTime { seconds, nanoseconds }
}

fn fattr() -> Attributes {
    Attributes {
        file_type: FileType::Symlink,
        mode: 0o644,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: 6,
        used: 7,
        rdev: SpecData { major: 8, minor: 9 },
        fsid: 10,
        fileid: 11,
        atime: time(12, 13),
        mtime: time(14, 15),
        ctime: time(16, 17),
    }
}

fn sattr() -> SetAttributes {
    SetAttributes {
        mode: Some(0o777),
        uid: Some(0x21),
        gid: Some(0x22),
        size: Some(0x23),
        atime: SetTime::ServerTime,
        mtime: SetTime::ClientTime(time(0x24, 0x25)),
    }
}

fn wcc() -> WccData {
    let before = WccAttr { size: 0x31, mtime: time(0x32, 0x33), ctime: time(0x34, 0x35) };
    WccData { before: Some(before), after: Some(fattr()) }
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD.
fn check_new_object() {
    let object = NewObject { object: Some(handle()), attributes: Some(fattr()), dir_wcc: wcc() };
    check_ok::<_, WccData>(object, &format!("00000001 {HANDLE}\n{}\n{}", post(), wcc_golden()));
    check_ok::<_, WccData>(NewObject::default(), "00000000 00000000 00000000 00000000");
    check_fail::<NewObject, _>(wcc(), &wcc_golden());
}

// requirement: rfc1813-2.5-3, rfc1813-2.5-7, rfc1813-2.5-11, rfc1813-3.3.1-1
#[test]
fn getattr() {
    check(&GetattrArgs { object: handle() }, HANDLE);
    check_ok::<_, ()>(fattr(), FATTR);
    check_fail::<Attributes, _>((), "");
    assert_eq!(to_bytes(&fattr()).len(), Attributes::SIZE);
}

// requirement: rfc1813-2.5-18
#[test]
fn setattr() {
    let args = SetattrArgs { object: handle(), new_attributes: sattr(), guard: Some(time(1, 2)) };
    check(&args, &format!("{HANDLE}\n{SATTR}\n00000001 00000001 00000002"));
    let args = SetattrArgs { object: handle(), new_attributes: SetAttributes::default(), guard: None };
    check(&args, &format!("{HANDLE}\n{}\n00000000", "00000000".repeat(6)));
    check_ok::<_, WccData>(wcc(), &wcc_golden());
    check_fail::<WccData, _>(wcc(), &wcc_golden());
    assert_eq!(to_bytes(&wcc()).len(), WccData::MAX_SIZE);
}

#[test]
fn lookup() {
    check(&LookupArgs { what: place() }, PLACE);
    let ok = LookupOk { object: handle(), attributes: Some(fattr()), dir_attributes: None };
    check_ok::<_, PostOpAttr>(ok, &format!("{HANDLE}\n{}\n00000000", post()));
    check_fail::<LookupOk, PostOpAttr>(Some(fattr()), &post());
}

#[test]
fn access() {
    check(&AccessArgs { object: handle(), access: 0x2d }, &format!("{HANDLE}\n0000002d"));
    check_ok::<_, PostOpAttr>(
        AccessOk { attributes: Some(fattr()), access: 0x21 },
        &format!("{}\n00000021", post()),
    );
    check_fail::<AccessOk, PostOpAttr>(None, "00000000");
}

#[test]
fn readlink() {
    check(&ReadlinkArgs { symlink: handle() }, HANDLE);
    let ok = ReadlinkOk { attributes: Some(fattr()), data: Bytes::from_static(b"../to") };
    check_ok::<_, PostOpAttr>(ok, &format!("{}\n00000005 2e2e2f746f 000000", post()));
    check_fail::<ReadlinkOk, PostOpAttr>(Some(fattr()), &post());
}

#[test]
fn read() {
    let args = ReadArgs { file: handle(), offset: 1 << 32, count: 0x2000 };
    check(&args, &format!("{HANDLE}\n0000000100000000 00002000"));
    let ok = ReadOk { attributes: Some(fattr()), count: 2, eof: true, data: b"hi".to_vec().into() };
    check_ok::<_, PostOpAttr>(ok, &format!("{}\n00000002 00000001 00000002 6869 0000", post()));
    check_fail::<ReadOk, PostOpAttr>(None, "00000000");
}

/// The NFS arguments of an RPC-over-RDMA READ of 8192 bytes, and the results of a READ that returned 5000.
/// The data itself is in the Write chunk.
// requirement: rfc8166-3.4.4.1-1, rfc8166-3.4.4.1-2
// requirement: rfc8267-4-3
#[test]
fn read_over_rdma() {
    let file = FileHandle::new(&(0xa0..=0xbf).collect::<Vec<u8>>()).unwrap();
    let golden = "00000020 a0a1a2a3a4a5a6a7a8a9aaab acadaeafb0b1b2b3b4b5b6b7b8b9babb bcbdbebf
        0000000000000000 ; offset
        00002000 ; count 8192";
    check(&ReadArgs { file, offset: 0, count: 8192 }, golden);
    let data = Bytes::from(vec![7; 5000]);
    let ok = ReadResult::Ok(ReadOk { attributes: None, count: 5000, eof: true, data: data.clone().into() });
    let pieces = encode(&ok).unwrap().into_pieces();
    let inline = hex("00000000 ; NFS3_OK
        00000000 ; attributes: not present
        00001388 ; count 5000
        00000001 ; eof
        00001388 ; length of the data");
    assert_eq!(pieces, [Piece::Inline(inline.into()), Piece::Payload { data, ddp_eligible: true }]);
}

/// The NFS arguments of an RPC-over-RDMA WRITE of 6001 bytes: 56 bytes inline, then the data. The inline
/// bytes follow 40 bytes of RPC header and end at 96, the Position of the Read chunk.
// requirement: rfc8166-3.4.4.1-1, rfc8166-3.4.4.1-2, experience-3.6.1-1
// requirement: rfc8267-4-1
#[test]
fn write_over_rdma() {
    let file = FileHandle::new(&(0xa0..=0xbf).collect::<Vec<u8>>()).unwrap();
    let data = Bytes::from(vec![7; 6001]);
    let args =
        WriteArgs { file, offset: 0, count: 6001, stable: StableHow::FileSync, data: data.clone().into() };
    let stream = encode(&args).unwrap();
    assert_eq!(stream.len(), 56 + 6001 + 3);
    let inline = hex("00000020 a0a1a2a3a4a5a6a7a8a9aaab acadaeafb0b1b2b3b4b5b6b7b8b9babb bcbdbebf
        0000000000000000 ; offset
        00001771 ; count 6001
        00000002 ; FILE_SYNC
        00001771 ; length of the data");
    assert_eq!(inline.len(), 56);
    assert_eq!(
        stream.into_pieces(),
        [Piece::Inline(inline.into()), Piece::Payload { data, ddp_eligible: true }]
    );
}

// requirement: rfc1813-2.4-2
#[test]
fn write() {
    let data = Bytes::from_static(b"abc");
    let args =
        WriteArgs { file: handle(), offset: 9, count: 3, stable: StableHow::DataSync, data: data.into() };
    check(&args, &format!("{HANDLE}\n0000000000000009 00000003 00000001 00000003 616263 00"));
    let ok = WriteOk { file_wcc: wcc(), count: 3, committed: StableHow::FileSync, verifier: *b"verifier" };
    check_ok::<_, WccData>(ok, &format!("{}00000003 00000002 7665726966696572", wcc_golden()));
    check_fail::<WriteOk, _>(wcc(), &wcc_golden());
}

// requirement: rfc1813-2.4-2, rfc1813-3.3.8-3
#[test]
fn create() {
    let with = |how| CreateArgs { place: place(), how };
    check(&with(CreateHow::Unchecked(sattr())), &format!("{PLACE}\n00000000 {SATTR}"));
    check(&with(CreateHow::Guarded(sattr())), &format!("{PLACE}\n00000001 {SATTR}"));
    check(&with(CreateHow::Exclusive(*b"verifier")), &format!("{PLACE}\n00000002 7665726966696572"));
    check_new_object();
}

#[test]
fn mkdir() {
    check(&MkdirArgs { place: place(), attributes: sattr() }, &format!("{PLACE}\n{SATTR}"));
}

#[test]
fn symlink() {
    let symlink = SymlinkData { attributes: sattr(), target: Bytes::from_static(b"/x") };
    check(&SymlinkArgs { place: place(), symlink }, &format!("{PLACE}\n{SATTR}\n00000002 2f78 0000"));
}

// requirement: rfc1813-2.5-3
#[test]
fn mknod() {
    let with = |what| MknodArgs { place: place(), what };
    let device = DeviceData { attributes: sattr(), spec: SpecData { major: 0x41, minor: 0x42 } };
    let device_golden = format!("{SATTR}\n00000041 00000042");
    check(&with(MknodData::CharacterDevice(device)), &format!("{PLACE}\n00000004 {device_golden}"));
    check(&with(MknodData::BlockDevice(device)), &format!("{PLACE}\n00000003 {device_golden}"));
    check(&with(MknodData::Socket(sattr())), &format!("{PLACE}\n00000006 {SATTR}"));
    check(&with(MknodData::Fifo(sattr())), &format!("{PLACE}\n00000007 {SATTR}"));
    check(&with(MknodData::Directory), &format!("{PLACE}\n00000002"));
}

#[test]
fn remove_and_rmdir() {
    check(&RemoveArgs { object: place() }, PLACE);
    check(&RmdirArgs { object: place() }, PLACE);
}

#[test]
fn rename() {
    let to = DirOpArgs { dir: handle(), name: FileName::from("b") };
    check(&RenameArgs { from: place(), to }, &format!("{PLACE}\n{HANDLE}\n00000001 62 000000"));
    let results = RenameWcc { from_dir: wcc(), to_dir: WccData::default() };
    let golden = format!("{}00000000 00000000", wcc_golden());
    check_ok::<_, RenameWcc>(results, &golden);
    check_fail::<RenameWcc, _>(results, &golden);
}

#[test]
fn link() {
    check(&LinkArgs { file: handle(), link: place() }, &format!("{HANDLE}\n{PLACE}"));
    let results = LinkAttributes { file: Some(fattr()), link_dir: wcc() };
    let golden = format!("{}\n{}", post(), wcc_golden());
    check_ok::<_, LinkAttributes>(results, &golden);
    check_fail::<LinkAttributes, _>(results, &golden);
}

// requirement: rfc1813-2.4-2
#[test]
fn readdir() {
    let args = ReaddirArgs { dir: handle(), cookie: 0x51, verifier: *b"cookieve", count: 0x1000 };
    check(&args, &format!("{HANDLE}\n0000000000000051 636f6f6b69657665 00001000"));
    let entries = vec![
        DirEntry { fileid: 0x61, name: FileName::from("."), cookie: 0x62 },
        DirEntry { fileid: 0x63, name: FileName::from("four"), cookie: 0x64 },
    ];
    let reply = DirList { entries, eof: true };
    let ok = ReaddirOk { dir_attributes: Some(fattr()), verifier: *b"cookieve", reply };
    let golden = format!(
        "{}\n636f6f6b69657665
        00000001 0000000000000061 00000001 2e 000000 0000000000000062
        00000001 0000000000000063 00000004 666f7572 0000000000000064
        00000000 00000001 ; end of the list, eof",
        post()
    );
    check_ok::<_, PostOpAttr>(ok, &golden);
    let ok = ReaddirOk { dir_attributes: None, verifier: [0; 8], reply: DirList::default() };
    check_ok::<_, PostOpAttr>(ok, "00000000 0000000000000000 00000000 00000000");
    check_fail::<ReaddirOk, PostOpAttr>(Some(fattr()), &post());
}

#[test]
fn readdirplus() {
    let (verifier, dircount, maxcount) = (*b"cookieve", 0x200, 0x1000);
    let args = ReaddirplusArgs { dir: handle(), cookie: 0x51, verifier, dircount, maxcount };
    check(&args, &format!("{HANDLE}\n0000000000000051 636f6f6b69657665 00000200 00001000"));
    let name = FileName::from("f");
    let entries = vec![
        DirEntryPlus {
            fileid: 0x61,
            name: name.clone(),
            cookie: 0x62,
            attributes: Some(fattr()),
            handle: Some(handle()),
        },
        DirEntryPlus { fileid: 0x63, name, cookie: 0x64, attributes: None, handle: None },
    ];
    let reply = DirListPlus { entries, eof: false };
    let ok = ReaddirplusOk { dir_attributes: None, verifier, reply };
    let golden = format!(
        "00000000 636f6f6b69657665
        00000001 0000000000000061 00000001 66 000000 0000000000000062
        {}
        00000001 {HANDLE}
        00000001 0000000000000063 00000001 66 000000 0000000000000064 00000000 00000000
        00000000 00000000 ; end of the list, no eof",
        post()
    );
    check_ok::<_, PostOpAttr>(ok, &golden);
    check_fail::<ReaddirplusOk, PostOpAttr>(None, "00000000");
}

#[test]
fn fsstat() {
    check(&FsstatArgs { root: handle() }, HANDLE);
    let ok = FsstatOk {
        attributes: None,
        total_bytes: 1,
        free_bytes: 2,
        available_bytes: 3,
        total_files: 4,
        free_files: 5,
        available_files: 6,
        invariant_seconds: 7,
    };
    let golden = "00000000 ; attributes
        0000000000000001 0000000000000002 0000000000000003 ; tbytes, fbytes, abytes
        0000000000000004 0000000000000005 0000000000000006 ; tfiles, ffiles, afiles
        00000007 ; invarsec";
    check_ok::<_, PostOpAttr>(ok, golden);
    check_fail::<FsstatOk, PostOpAttr>(None, "00000000");
}

#[test]
fn fsinfo() {
    check(&FsinfoArgs { root: handle() }, HANDLE);
    let ok = FsinfoOk {
        attributes: Some(fattr()),
        read_max: 1,
        read_preferred: 2,
        read_multiple: 3,
        write_max: 4,
        write_preferred: 5,
        write_multiple: 6,
        readdir_preferred: 7,
        max_file_size: 8,
        time_delta: time(9, 10),
        properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
    };
    let golden = format!(
        "{}
        00000001 00000002 00000003 ; rtmax, rtpref, rtmult
        00000004 00000005 00000006 ; wtmax, wtpref, wtmult
        00000007 0000000000000008 ; dtpref, maxfilesize
        00000009 0000000a ; time_delta
        0000001b ; properties",
        post()
    );
    check_ok::<_, PostOpAttr>(ok, &golden);
    check_fail::<FsinfoOk, PostOpAttr>(None, "00000000");
}

#[test]
fn pathconf() {
    check(&PathconfArgs { object: handle() }, HANDLE);
    let ok = PathconfOk {
        attributes: None,
        link_max: 32000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: false,
        case_insensitive: false,
        case_preserving: true,
    };
    check_ok::<_, PostOpAttr>(ok, "00000000 00007d00 000000ff 00000001 00000000 00000000 00000001");
    check_fail::<PathconfOk, PostOpAttr>(None, "00000000");
}

#[test]
fn commit() {
    let args = CommitArgs { file: handle(), offset: 0x71, count: 0x72 };
    check(&args, &format!("{HANDLE}\n0000000000000071 00000072"));
    let ok = CommitOk { file_wcc: wcc(), verifier: *b"verifier" };
    check_ok::<_, WccData>(ok, &format!("{}7665726966696572", wcc_golden()));
    check_fail::<CommitOk, _>(wcc(), &wcc_golden());
}
