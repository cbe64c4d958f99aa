//! Rules of RFC 1813 for clients that need calls of their own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::Call;
use rpcrdma_oncrpc::Refused;

use super::loopback::{Loopback, Step, arguments, options};
use crate::client::procedures::Procedures;
use crate::client::transport::{ReplyFuture, Transport};
use crate::client::{File, MountClient, process_credential};
use crate::wire::*;

/// A transport that keeps the flavors of calls and answers none.
#[derive(Default)]
struct Flavors(Mutex<Vec<(&'static str, u32)>>);

impl Transport for Flavors {
    fn call(&self, call: Call) -> ReplyFuture<'_> {
        self.0.lock().unwrap().push((call.name, call.credential.flavor()));
        Box::pin(std::future::ready(Err(Refused::SystemError.into())))
    }
}

/// RFC 1813 §2.1, §5.1.1: AUTH_NONE in procedure 0, the caller's flavor in all others. §3.3.4: the flavor of ACCESS is
/// that of the reads and writes.
// requirement: rfc1813-2.1-1, rfc1813-3.3.4-5, rfc1813-5.1.1-1
#[tokio::test]
async fn rfc1813_2_1_flavors() {
    let seen = Arc::new(Flavors::default());
    let credential = process_credential();
    let mount = MountClient::on(seen.clone(), credential.clone(), None);
    let nfs = Procedures {
        transport: seen.clone(),
        credential,
        timeout: None,
        patience: Duration::ZERO,
        activity: Arc::default(),
    };
    let object = FileHandle::new(b"object").unwrap();
    mount.null().await.unwrap_err();
    mount.mnt("/").await.unwrap_err();
    mount.umnt("/").await.unwrap_err();
    mount.umntall().await.unwrap_err();
    nfs.null().await.unwrap_err();
    nfs.getattr(&GetattrArgs { object }).await.unwrap_err();
    nfs.access(&AccessArgs { object, access: 1 }).await.unwrap_err();
    let expected =
        [("NULL", 0), ("MNT", 1), ("UMNT", 1), ("UMNTALL", 1), ("NULL", 0), ("GETATTR", 1), ("ACCESS", 1)];
    assert_eq!(*seen.0.lock().unwrap(), expected);
}

/// RFC 1813 §3.3.8: the attributes of a file made by an exclusive CREATE are set by SETATTR afterwards. Each such CREATE
/// has a verifier of its own.
// requirement: rfc1813-3.3.8-4, rfc1813-3.3.8-9
#[tokio::test]
async fn rfc1813_3_3_8_an_exclusive_create_is_followed_by_setattr() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let verifiers: Arc<Mutex<Vec<Verifier>>> = Arc::default();
    let set: Arc<Mutex<Vec<SetAttributes>>> = Arc::default();
    let (seen, sets) = (verifiers.clone(), set.clone());
    server.hook(move |procedure, bytes| {
        match procedure {
            NfsProcedure::Create => match arguments::<CreateArgs>(bytes).how {
                CreateHow::Exclusive(verifier) => seen.lock().unwrap().push(verifier),
                other => panic!("{other:?}"),
            },
            NfsProcedure::Setattr => {
                sets.lock().unwrap().push(arguments::<SetattrArgs>(bytes).new_attributes);
            }
            _ => {}
        }
        Step::Serve
    });
    server.calls();
    let new = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    client.create_new("/one", new).await.unwrap();
    client.create_new("/two", new).await.unwrap();
    let (create, setattr) = (NfsProcedure::Create, NfsProcedure::Setattr);
    assert_eq!(server.calls(), [create, setattr, create, setattr]);
    let verifiers = verifiers.lock().unwrap();
    assert_ne!(verifiers[0], verifiers[1]);
    for set in &*set.lock().unwrap() {
        let times = (set.atime, set.mtime);
        assert_eq!((set.mode, times), (Some(0o640), (SetTime::ServerTime, SetTime::ServerTime)));
    }
}

/// RFC 1813 §3.3.16, §3.3.17: cookie and verifier are 0 in the first call, then those of the last reply. The count is
/// at least the preferred one of FSINFO.
// requirement: rfc1813-3.3.16-1, rfc1813-3.3.16-2, rfc1813-3.3.16-8, rfc1813-3.3.17-4
#[tokio::test]
async fn rfc1813_3_3_17_cookies_and_their_verifier() {
    for plus in [true, false] {
        let server = Loopback::exporting(&["/"]);
        let client = server.mount().await;
        let asked: Arc<Mutex<Vec<(u64, Verifier, u32)>>> = Arc::default();
        let seen = asked.clone();
        let mut round = 0_u8;
        server.hook(move |procedure, bytes| {
            if procedure == NfsProcedure::Readdirplus && !plus {
                return Step::fail::<ReaddirplusArgs>(Status::NotSupp, None);
            }
            let entry = |round: u8| (u64::from(round) * 7, FileName::from(format!("name {round}").as_str()));
            match procedure {
                NfsProcedure::Readdirplus => {
                    round += 1;
                    let call: ReaddirplusArgs = arguments(bytes);
                    seen.lock().unwrap().push((call.cookie, call.verifier, call.dircount.min(call.maxcount)));
                    let (cookie, name) = entry(round);
                    let entries =
                        vec![DirEntryPlus { fileid: 1, name, cookie, attributes: None, handle: None }];
                    let reply = DirListPlus { entries, eof: round == 3 };
                    Step::ok::<ReaddirplusArgs>(ReaddirplusOk {
                        dir_attributes: None,
                        verifier: [round; 8],
                        reply,
                    })
                }
                NfsProcedure::Readdir => {
                    round += 1;
                    let call: ReaddirArgs = arguments(bytes);
                    seen.lock().unwrap().push((call.cookie, call.verifier, call.count));
                    let (cookie, name) = entry(round);
                    let entries = vec![DirEntry { fileid: 1, name, cookie }];
                    let reply = DirList { entries, eof: round == 3 };
                    Step::ok::<ReaddirArgs>(ReaddirOk { dir_attributes: None, verifier: [round; 8], reply })
                }
                _ => Step::Serve,
            }
        });
        assert_eq!(client.read_dir("/").await.unwrap().len(), 3);
        let asked = asked.lock().unwrap();
        let positions: Vec<_> = asked.iter().map(|(cookie, verifier, _)| (*cookie, *verifier)).collect();
        assert_eq!(positions, [(0, [0; 8]), (7, [1; 8]), (14, [2; 8])], "{plus}");
        assert!(asked.iter().all(|(_, _, count)| *count >= client.info().readdir_preferred), "{plus}");
    }
}

/// Returns a new file, and its server, whose replies to WRITE report this stability.
async fn committing(committed: StableHow) -> (Arc<Loopback>, File) {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let file = client.create("/file", SetAttributes::default()).await.unwrap();
    server.hook(move |procedure, _| match procedure {
        NfsProcedure::Write => Step::change::<WriteArgs>(move |ok| ok.committed = committed),
        _ => Step::Serve,
    });
    (server, file)
}

/// RFC 1813 §3.3.7: after a reply of DATA_SYNC or UNSTABLE to an UNSTABLE WRITE comes a COMMIT; after FILE_SYNC none.
// requirement: rfc1813-3.3.7-13, rfc1813-4.12-1
#[tokio::test]
async fn rfc1813_3_3_7_what_is_not_file_sync_is_committed() {
    for (committed, commits) in [(StableHow::Unstable, 1), (StableHow::DataSync, 1), (StableHow::FileSync, 0)]
    {
        let (server, file) = committing(committed).await;
        server.calls();
        file.write_at(0, Bytes::from_static(b"data")).await.unwrap();
        assert_eq!(file.unstable_bytes(), 4 * commits, "{committed:?}");
        file.sync().await.unwrap();
        assert_eq!(server.count(NfsProcedure::Commit), commits, "{committed:?}");
        assert_eq!(file.unstable_bytes(), 0);
    }
}

/// RFC 1813 §3.3.21: another verifier means that data of UNSTABLE writes may be lost. Data of DATA_SYNC writes is not, and
/// another client may have overwritten it since.
#[tokio::test]
async fn rfc1813_3_3_21_data_that_is_stable_is_not_written_again() {
    for (committed, again) in [(StableHow::Unstable, 1), (StableHow::DataSync, 0)] {
        let (server, file) = committing(committed).await;
        file.write_at(0, Bytes::from_static(b"data")).await.unwrap();
        server.hook(move |procedure, _| match procedure {
            NfsProcedure::Commit => Step::change::<CommitArgs>(move |ok| ok.verifier = [9; 8]),
            _ => Step::Serve,
        });
        server.calls();
        file.sync().await.unwrap();
        assert_eq!(server.count(NfsProcedure::Write), again, "{committed:?}");
        assert_eq!(file.unstable_bytes(), 0);
    }
}

/// RFC 1813 §3: a client deals with errors that it does not expect, also with numbers that the document does not define.
// requirement: rfc1813-2.6-9, rfc1813-3-3
#[tokio::test]
async fn rfc1813_3_unexpected_errors() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    for code in [1, 70, 10_006, 10_022, u32::MAX] {
        let status = Status::from_code(code).unwrap();
        server.hook(move |_, _| Step::fail::<LookupArgs>(status, None));
        assert_eq!(client.stat("/file").await.unwrap_err().status(), Some(status), "{code}");
    }
    server.hook(|_, _| Step::Serve);
    assert!(client.root_attributes().await.is_ok(), "the client goes on");
}

/// RFC 1813 §3.3.19: FSINFO of each mount. §1.5: the credential is that of the process.
// requirement: rfc1813-3.3.4-5, rfc1813-3.3.19-8
#[tokio::test]
async fn rfc1813_3_3_19_each_mount_asks_fsinfo() {
    let server = Loopback::exporting(&["/a", "/b"]);
    for export in ["/a", "/b"] {
        server.calls();
        server.mount_with(export, options()).await;
        assert_eq!(server.count(NfsProcedure::Fsinfo), 1, "{export}");
    }
    let rpcrdma_oncrpc::Credential::Sys(sys) = process_credential() else { panic!("AUTH_SYS") };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!((sys.uid, sys.gid), (uid, gid));
    let host = rustix::system::uname();
    assert_eq!(sys.machine_name.as_ref(), host.nodename().to_bytes());
}

/// RFC 8267 §3.1, §4.1: a reply that did not fit is no reason to call again: every reply is predictable.
// requirement: rfc8267-3.1-2, rfc8267-3.1-3, rfc8267-4.1-2
#[tokio::test]
async fn rfc8267_4_1_no_call_is_made_again_with_a_larger_reply() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.hook(|_, _| Step::Fail(rpcrdma::CallError::Chunk));
    server.calls();
    let error = client.read_dir("/").await.unwrap_err();
    assert!(
        matches!(error, crate::client::Error::Transport { source: rpcrdma::CallError::Chunk, .. }),
        "{error}"
    );
    assert_eq!(server.calls().len(), 1);
}
