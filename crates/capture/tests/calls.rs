//! RPC and NFS version 3 of Linux: every complete call and reply is decoded to its end, and encodes to the same bytes.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use rpcrdma_capture::exchange::{Exchange, Exchanges, Part};
use rpcrdma_capture::linux;
use rpcrdma_capture::tcp::Side;
use rpcrdma_nfs::wire::*;
use rpcrdma_oncrpc::message::ReplyBody;
use rpcrdma_oncrpc::{CallHeader, ReplyHeader};
use rpcrdma_xdr::{Decode, Decoder, Encode, ReadChunk, ReturnedChunk, encode};

fn exchanges(name: &str) -> Vec<Exchange> {
    linux::sessions(name).unwrap().iter().flat_map(|session| Exchanges::of(session).all).collect()
}

fn call_decoder(call: &Part) -> Decoder {
    let moved = call.moved.iter();
    let chunks =
        moved.map(|chunk| ReadChunk { position: chunk.position, data: chunk.data.clone().into() }).collect();
    Decoder::with_read_chunks(call.message.clone(), chunks)
}

fn reply_decoder(call: &Part, reply: &Part) -> Decoder {
    let offered = &call.lists().unwrap().write;
    let chunks = reply.moved.iter().zip(offered).map(|(chunk, offered)| ReturnedChunk::Filled {
        data: chunk.data.clone().into(),
        offered: usize::try_from(offered.total()).unwrap(),
    });
    Decoder::with_write_chunks(reply.message.clone(), chunks.collect())
}

/// Decodes to the end. A message without chunks encodes to its original bytes.
fn check<T: Encode + Decode>(decoder: Decoder, part: &Part) {
    let at = decoder.position();
    let value: T = decoder.decode_all().unwrap();
    if part.moved.iter().all(|chunk| chunk.data.is_empty()) {
        assert_eq!(encode(&value).unwrap().flatten().0, part.message.slice(at..));
    }
}

fn check_arguments(procedure: NfsProcedure, d: Decoder, part: &Part) {
    use NfsProcedure as P;
    match procedure {
        // A probe pads it up to the inline threshold.
        P::Null => {}
        P::Getattr => check::<GetattrArgs>(d, part),
        P::Setattr => check::<SetattrArgs>(d, part),
        P::Lookup => check::<LookupArgs>(d, part),
        P::Access => check::<AccessArgs>(d, part),
        P::Readlink => check::<ReadlinkArgs>(d, part),
        P::Read => check::<ReadArgs>(d, part),
        P::Write => check::<WriteArgs>(d, part),
        P::Create => check::<CreateArgs>(d, part),
        P::Mkdir => check::<MkdirArgs>(d, part),
        P::Symlink => check::<SymlinkArgs>(d, part),
        P::Mknod => check::<MknodArgs>(d, part),
        P::Remove => check::<RemoveArgs>(d, part),
        P::Rmdir => check::<RmdirArgs>(d, part),
        P::Rename => check::<RenameArgs>(d, part),
        P::Link => check::<LinkArgs>(d, part),
        P::Readdir => check::<ReaddirArgs>(d, part),
        P::Readdirplus => check::<ReaddirplusArgs>(d, part),
        P::Fsstat => check::<FsstatArgs>(d, part),
        P::Fsinfo => check::<FsinfoArgs>(d, part),
        P::Pathconf => check::<PathconfArgs>(d, part),
        P::Commit => check::<CommitArgs>(d, part),
    }
}

fn check_results(procedure: NfsProcedure, d: Decoder, part: &Part) {
    use NfsProcedure as P;
    match procedure {
        // A probe pads it up to the inline threshold.
        P::Null => {}
        P::Getattr => check::<GetattrResult>(d, part),
        P::Setattr => check::<SetattrResult>(d, part),
        P::Lookup => check::<LookupResult>(d, part),
        P::Access => check::<AccessResult>(d, part),
        P::Readlink => check::<ReadlinkResult>(d, part),
        P::Read => check::<ReadResult>(d, part),
        P::Write => check::<WriteResult>(d, part),
        P::Create => check::<CreateResult>(d, part),
        P::Mkdir => check::<MkdirResult>(d, part),
        P::Symlink => check::<SymlinkResult>(d, part),
        P::Mknod => check::<MknodResult>(d, part),
        P::Remove => check::<RemoveResult>(d, part),
        P::Rmdir => check::<RmdirResult>(d, part),
        P::Rename => check::<RenameResult>(d, part),
        P::Link => check::<LinkResult>(d, part),
        P::Readdir => check::<ReaddirResult>(d, part),
        P::Readdirplus => check::<ReaddirplusResult>(d, part),
        P::Fsstat => check::<FsstatResult>(d, part),
        P::Fsinfo => check::<FsinfoResult>(d, part),
        P::Pathconf => check::<PathconfResult>(d, part),
        P::Commit => check::<CommitResult>(d, part),
    }
}

/// Decoded calls and replies of one recording.
#[derive(Debug, Default, PartialEq, Eq)]
struct Decoded {
    /// Calls of NFS version 3.
    calls: usize,
    /// Replies to them with a complete structure: replies with cut payload count, long replies that were cut do not.
    replies: usize,
    /// Long replies that were cut.
    cut: usize,
    /// Calls and replies of other programs and versions: only their RPC headers are read.
    others: usize,
}

fn decode(name: &str) -> Decoded {
    let mut decoded = Decoded::default();
    for exchange in exchanges(name) {
        let (call, Some(reply)) = (&exchange.call, &exchange.reply) else { continue };
        let mut arguments = call_decoder(call);
        let header = CallHeader::read(&mut arguments).unwrap();
        if (header.program, header.version) != (NFS_PROGRAM, NFS_VERSION) {
            decoded.others += 1;
            continue;
        }
        assert_eq!(exchange.caller, Side::Client);
        let procedure = NfsProcedure::from_number(header.procedure).unwrap();
        check_arguments(procedure, arguments, call);
        decoded.calls += 1;
        if !reply.genuine && reply.moved.is_empty() {
            decoded.cut += 1;
            continue;
        }
        let mut results = reply_decoder(call, reply);
        let header: ReplyHeader = results.decode().unwrap();
        assert_eq!(header.xid, call.header.xid);
        if matches!(header.body, ReplyBody::Accepted { .. }) && results.remaining() > 0 {
            check_results(procedure, results, reply);
        }
        decoded.replies += 1;
    }
    decoded
}

#[test]
fn every_nfs_call_and_reply_of_linux_is_decoded() {
    #[rustfmt::skip]
    let expected = [
        ("kclient-probe", Decoded { calls: 9, replies: 9, cut: 0, others: 0 }),
        ("knfsd-probe", Decoded { calls: 11, replies: 11, cut: 0, others: 0 }),
        ("nfs3-acl", Decoded { calls: 21, replies: 21, cut: 0, others: 10 }),
        ("nfs3-io", Decoded { calls: 90, replies: 90, cut: 0, others: 3 }),
        ("nfs3-io-mtu1500", Decoded { calls: 57, replies: 57, cut: 0, others: 3 }),
        ("nfs3-meta", Decoded { calls: 64, replies: 57, cut: 7, others: 4 }),
        ("nfs41-meta", Decoded { calls: 0, replies: 0, cut: 0, others: 88 }),
        ("roce-kclient", Decoded { calls: 29, replies: 29, cut: 0, others: 0 }),
        ("roce-rpcrdma", Decoded { calls: 38, replies: 37, cut: 1, others: 15 }),
        ("roce-knfsd", Decoded { calls: 38, replies: 36, cut: 2, others: 5 }),
    ];
    assert_eq!(linux::IWARP.len() + linux::ROCE.len(), expected.len());
    for ((name, _), expected) in linux::IWARP.iter().chain(linux::ROCE).zip(expected) {
        assert_eq!((*name, decode(name)), expected);
    }
}
