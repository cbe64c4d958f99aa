//! Strategies for arguments and results of each procedure of NFS version 3.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rpcrdma::xdr::Text;
use rpcrdma_xdrgen_tests::nfs3::*;

fn handle() -> impl Strategy<Value = NfsFh3> {
    vec(any::<u8>(), 0..=64).prop_map(|data| NfsFh3 { data: data.into() })
}

fn opaque(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

fn name() -> impl Strategy<Value = Filename3> {
    opaque(40).prop_map(|name| Filename3(Text(name)))
}

fn path() -> impl Strategy<Value = Nfspath3> {
    opaque(90).prop_map(|path| Nfspath3(Text(path)))
}

fn place() -> impl Strategy<Value = Diropargs3> {
    (handle(), name()).prop_map(|(dir, name)| Diropargs3 { dir, name })
}

fn time() -> impl Strategy<Value = Nfstime3> {
    any::<(u32, u32)>().prop_map(|(seconds, nseconds)| Nfstime3 { seconds, nseconds })
}

fn device() -> impl Strategy<Value = Specdata3> {
    any::<(u32, u32)>().prop_map(|(specdata1, specdata2)| Specdata3 { specdata1, specdata2 })
}

fn file_type() -> impl Strategy<Value = Ftype3> {
    use Ftype3::{Nf3blk, Nf3chr, Nf3dir, Nf3fifo, Nf3lnk, Nf3reg, Nf3sock};
    proptest::sample::select(vec![Nf3reg, Nf3dir, Nf3blk, Nf3chr, Nf3lnk, Nf3sock, Nf3fifo])
}

fn attributes() -> impl Strategy<Value = Fattr3> {
    let times = (time(), time(), time());
    (file_type(), any::<[u32; 4]>(), any::<[u64; 4]>(), device(), times).prop_map(
        |(r#type, [mode, nlink, uid, gid], [size, used, fsid, fileid], rdev, (atime, mtime, ctime))| Fattr3 {
            r#type,
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
        },
    )
}

fn post_op() -> impl Strategy<Value = PostOpAttr> {
    option::of(attributes())
}

fn wcc() -> impl Strategy<Value = WccData> {
    let before = (any::<u64>(), time(), time());
    let before = before.prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (option::of(before), post_op()).prop_map(|(before, after)| WccData { before, after })
}

fn set_attributes() -> impl Strategy<Value = Sattr3> {
    let how = prop_oneof![Just(TimeHow::DontChange), Just(TimeHow::SetToServerTime)];
    let how = how.boxed();
    let atime =
        prop_oneof![how.clone().prop_map(SetAtime::Default), time().prop_map(SetAtime::SetToClientTime)];
    let mtime = prop_oneof![how.prop_map(SetMtime::Default), time().prop_map(SetMtime::SetToClientTime)];
    (any::<[Option<u32>; 3]>(), any::<Option<u64>>(), atime, mtime)
        .prop_map(|([mode, uid, gid], size, atime, mtime)| Sattr3 { mode, uid, gid, size, atime, mtime })
}

fn stable() -> impl Strategy<Value = StableHow> {
    proptest::sample::select(vec![StableHow::Unstable, StableHow::DataSync, StableHow::FileSync])
}

/// Any status but `NFS3_OK`, which has an arm of its own.
fn failure() -> impl Strategy<Value = Nfsstat3> {
    use Nfsstat3::*;
    proptest::sample::select(vec![
        Nfs3errPerm,
        Nfs3errNoent,
        Nfs3errIo,
        Nfs3errNxio,
        Nfs3errAcces,
        Nfs3errExist,
        Nfs3errXdev,
        Nfs3errNodev,
        Nfs3errNotdir,
        Nfs3errIsdir,
        Nfs3errInval,
        Nfs3errFbig,
        Nfs3errNospc,
        Nfs3errRofs,
        Nfs3errMlink,
        Nfs3errNametoolong,
        Nfs3errNotempty,
        Nfs3errDquot,
        Nfs3errStale,
        Nfs3errRemote,
        Nfs3errBadhandle,
        Nfs3errNotSync,
        Nfs3errBadCookie,
        Nfs3errNotsupp,
        Nfs3errToosmall,
        Nfs3errServerfault,
        Nfs3errBadtype,
        Nfs3errJukebox,
    ])
}

/// Defines a module for a procedure: a strategy for its arguments, and one for its results.
macro_rules! procedure {
    ($module:ident: $arguments_type:ident = $arguments:expr; $results_type:ident: $ok:expr; $fail:expr) => {
        pub(crate) mod $module {
            use super::*;

            pub(crate) fn arguments() -> impl Strategy<Value = $arguments_type> {
                $arguments
            }

            pub(crate) fn results() -> impl Strategy<Value = $results_type> {
                prop_oneof![3 => $ok.prop_map($results_type::Nfs3Ok), 1 => $fail]
            }
        }
    };
}

/// Returns a strategy for the default arm with attributes.
macro_rules! failed {
    ($results:ident, $fail:ident, $member:ident: $value:expr) => {
        (failure(), $value).prop_map(|(status, $member)| $results::Default(status, $fail { $member }))
    };
}

procedure!(getattr: Getattr3args = handle().prop_map(|object| Getattr3args { object });
    Getattr3res: attributes().prop_map(|obj_attributes| Getattr3resok { obj_attributes });
    failure().prop_map(Getattr3res::Default));
procedure!(setattr: Setattr3args = (handle(), set_attributes(), option::of(time())).prop_map(
        |(object, new_attributes, guard)| Setattr3args { object, new_attributes, guard });
    Setattr3res: wcc().prop_map(|obj_wcc| Setattr3resok { obj_wcc });
    failed!(Setattr3res, Setattr3resfail, obj_wcc: wcc()));
procedure!(lookup: Lookup3args = place().prop_map(|what| Lookup3args { what });
    Lookup3res: (handle(), post_op(), post_op()).prop_map(
        |(object, obj_attributes, dir_attributes)| Lookup3resok { object, obj_attributes, dir_attributes });
    failed!(Lookup3res, Lookup3resfail, dir_attributes: post_op()));
procedure!(access: Access3args = (handle(), any::<u32>()).prop_map(|(object, access)| Access3args { object, access });
    Access3res: (post_op(), any::<u32>()).prop_map(
        |(obj_attributes, access)| Access3resok { obj_attributes, access });
    failed!(Access3res, Access3resfail, obj_attributes: post_op()));
procedure!(readlink: Readlink3args = handle().prop_map(|symlink| Readlink3args { symlink });
    Readlink3res: (post_op(), path()).prop_map(
        |(symlink_attributes, data)| Readlink3resok { symlink_attributes, data });
    failed!(Readlink3res, Readlink3resfail, symlink_attributes: post_op()));
procedure!(read: Read3args = (handle(), any::<u64>(), any::<u32>()).prop_map(
        |(file, offset, count)| Read3args { file, offset, count });
    Read3res: (post_op(), any::<u32>(), any::<bool>(), opaque(600)).prop_map(
        |(file_attributes, count, eof, data)| Read3resok { file_attributes, count, eof, data: data.into() });
    failed!(Read3res, Read3resfail, file_attributes: post_op()));
procedure!(write: Write3args = (handle(), any::<u64>(), any::<u32>(), stable(), opaque(600)).prop_map(
        |(file, offset, count, stable, data)| Write3args { file, offset, count, stable, data: data.into() });
    Write3res: (wcc(), any::<u32>(), stable(), any::<Writeverf3>()).prop_map(
        |(file_wcc, count, committed, verf)| Write3resok { file_wcc, count, committed, verf });
    failed!(Write3res, Write3resfail, file_wcc: wcc()));
procedure!(create: Create3args = (place(), prop_oneof![
        set_attributes().prop_map(Createhow3::Unchecked),
        set_attributes().prop_map(Createhow3::Guarded),
        any::<Createverf3>().prop_map(Createhow3::Exclusive),
    ]).prop_map(|(r#where, how)| Create3args { r#where, how });
    Create3res: (option::of(handle()), post_op(), wcc()).prop_map(
        |(obj, obj_attributes, dir_wcc)| Create3resok { obj, obj_attributes, dir_wcc });
    failed!(Create3res, Create3resfail, dir_wcc: wcc()));
procedure!(mkdir: Mkdir3args = (place(), set_attributes()).prop_map(
        |(r#where, attributes)| Mkdir3args { r#where, attributes });
    Mkdir3res: (option::of(handle()), post_op(), wcc()).prop_map(
        |(obj, obj_attributes, dir_wcc)| Mkdir3resok { obj, obj_attributes, dir_wcc });
    failed!(Mkdir3res, Mkdir3resfail, dir_wcc: wcc()));
procedure!(symlink: Symlink3args = (place(), set_attributes(), path()).prop_map(
        |(r#where, symlink_attributes, symlink_data)| {
            Symlink3args { r#where, symlink: Symlinkdata3 { symlink_attributes, symlink_data } }
        });
    Symlink3res: (option::of(handle()), post_op(), wcc()).prop_map(
        |(obj, obj_attributes, dir_wcc)| Symlink3resok { obj, obj_attributes, dir_wcc });
    failed!(Symlink3res, Symlink3resfail, dir_wcc: wcc()));
procedure!(mknod: Mknod3args = (place(), prop_oneof![
        (set_attributes(), device()).prop_map(
            |(dev_attributes, spec)| Mknoddata3::Nf3chr(Devicedata3 { dev_attributes, spec })),
        (set_attributes(), device()).prop_map(
            |(dev_attributes, spec)| Mknoddata3::Nf3blk(Devicedata3 { dev_attributes, spec })),
        set_attributes().prop_map(Mknoddata3::Nf3sock),
        set_attributes().prop_map(Mknoddata3::Nf3fifo),
    ]).prop_map(|(r#where, what)| Mknod3args { r#where, what });
    Mknod3res: (option::of(handle()), post_op(), wcc()).prop_map(
        |(obj, obj_attributes, dir_wcc)| Mknod3resok { obj, obj_attributes, dir_wcc });
    failed!(Mknod3res, Mknod3resfail, dir_wcc: wcc()));
procedure!(remove: Remove3args = place().prop_map(|object| Remove3args { object });
    Remove3res: wcc().prop_map(|dir_wcc| Remove3resok { dir_wcc });
    failed!(Remove3res, Remove3resfail, dir_wcc: wcc()));
procedure!(rmdir: Rmdir3args = place().prop_map(|object| Rmdir3args { object });
    Rmdir3res: wcc().prop_map(|dir_wcc| Rmdir3resok { dir_wcc });
    failed!(Rmdir3res, Rmdir3resfail, dir_wcc: wcc()));
procedure!(rename: Rename3args = (place(), place()).prop_map(|(from, to)| Rename3args { from, to });
Rename3res: (wcc(), wcc()).prop_map(|(fromdir_wcc, todir_wcc)| Rename3resok { fromdir_wcc, todir_wcc });
(failure(), wcc(), wcc()).prop_map(|(status, fromdir_wcc, todir_wcc)| {
    Rename3res::Default(status, Rename3resfail { fromdir_wcc, todir_wcc })
}));
procedure!(link: Link3args = (handle(), place()).prop_map(|(file, link)| Link3args { file, link });
Link3res: (post_op(), wcc()).prop_map(
    |(file_attributes, linkdir_wcc)| Link3resok { file_attributes, linkdir_wcc });
(failure(), post_op(), wcc()).prop_map(|(status, file_attributes, linkdir_wcc)| {
    Link3res::Default(status, Link3resfail { file_attributes, linkdir_wcc })
}));
procedure!(readdir: Readdir3args = (handle(), any::<u64>(), any::<Cookieverf3>(), any::<u32>()).prop_map(
        |(dir, cookie, cookieverf, count)| Readdir3args { dir, cookie, cookieverf, count });
    Readdir3res: (
        post_op(),
        any::<Cookieverf3>(),
        vec((any::<u64>(), name(), any::<u64>()).prop_map(
            |(fileid, name, cookie)| Entry3 { fileid, name, cookie }), 0..6),
        any::<bool>(),
    ).prop_map(|(dir_attributes, cookieverf, entries, eof)| {
        Readdir3resok { dir_attributes, cookieverf, reply: Dirlist3 { entries, eof } }
    });
    failed!(Readdir3res, Readdir3resfail, dir_attributes: post_op()));
procedure!(readdirplus: Readdirplus3args = (handle(), any::<u64>(), any::<Cookieverf3>(), any::<[u32; 2]>()).prop_map(
        |(dir, cookie, cookieverf, [dircount, maxcount])| {
            Readdirplus3args { dir, cookie, cookieverf, dircount, maxcount }
        });
    Readdirplus3res: (
        post_op(),
        any::<Cookieverf3>(),
        vec((any::<u64>(), name(), any::<u64>(), post_op(), option::of(handle())).prop_map(
            |(fileid, name, cookie, name_attributes, name_handle)| {
                Entryplus3 { fileid, name, cookie, name_attributes, name_handle }
            }), 0..6),
        any::<bool>(),
    ).prop_map(|(dir_attributes, cookieverf, entries, eof)| {
        Readdirplus3resok { dir_attributes, cookieverf, reply: Dirlistplus3 { entries, eof } }
    });
    failed!(Readdirplus3res, Readdirplus3resfail, dir_attributes: post_op()));
procedure!(fsstat: Fsstat3args = handle().prop_map(|fsroot| Fsstat3args { fsroot });
    Fsstat3res: (post_op(), any::<[u64; 6]>(), any::<u32>()).prop_map(
        |(obj_attributes, [tbytes, fbytes, abytes, tfiles, ffiles, afiles], invarsec)| {
            Fsstat3resok { obj_attributes, tbytes, fbytes, abytes, tfiles, ffiles, afiles, invarsec }
        });
    failed!(Fsstat3res, Fsstat3resfail, obj_attributes: post_op()));
procedure!(fsinfo: Fsinfo3args = handle().prop_map(|fsroot| Fsinfo3args { fsroot });
    Fsinfo3res: (post_op(), any::<[u32; 8]>(), any::<u64>(), time()).prop_map(
        |(obj_attributes, [rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, properties], maxfilesize, time_delta)| {
            Fsinfo3resok {
                obj_attributes, rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, maxfilesize, time_delta, properties,
            }
        });
    failed!(Fsinfo3res, Fsinfo3resfail, obj_attributes: post_op()));
procedure!(pathconf: Pathconf3args = handle().prop_map(|object| Pathconf3args { object });
    Pathconf3res: (post_op(), any::<[u32; 2]>(), any::<[bool; 4]>()).prop_map(
        |(obj_attributes, [linkmax, name_max], [no_trunc, chown_restricted, case_insensitive, case_preserving])| {
            Pathconf3resok {
                obj_attributes, linkmax, name_max, no_trunc, chown_restricted, case_insensitive, case_preserving,
            }
        });
    failed!(Pathconf3res, Pathconf3resfail, obj_attributes: post_op()));
procedure!(commit: Commit3args = (handle(), any::<u64>(), any::<u32>()).prop_map(
        |(file, offset, count)| Commit3args { file, offset, count });
    Commit3res: (wcc(), any::<Writeverf3>()).prop_map(|(file_wcc, verf)| Commit3resok { file_wcc, verf });
    failed!(Commit3res, Commit3resfail, file_wcc: wcc()));
