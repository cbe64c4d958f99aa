//! Copies that are interrupted, and continued by a later copy.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rpcrdma::CallError;
use tempfile::tempdir;

use super::loopback::{arguments, options};
use super::*;
use crate::client::{Client, ClientOptions, CopyEvent, CopyOptions, Error};
use crate::wire::{NfsProcedure, ReadArgs, SetAttributes, WriteArgs};

/// Bytes between two points at which a copy to the server is continued.
const STEP: u64 = 2048;
const LENGTH: usize = 200_000;
/// A part of the content that is zero, in blocks of file systems.
const HOLE: std::ops::Range<usize> = 81_920..98_304;

fn partial() -> CopyOptions {
    CopyOptions { partial: true, partial_step: STEP, ..CopyOptions::default() }
}

fn lost() -> Step {
    Step::Fail(CallError::ConnectionLost { reason: rpcrdma::Cause::message("test") })
}

/// Returns content without a pattern that hides a misplaced piece, with a hole.
fn content() -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(7);
    let mut data: Vec<u8> = (0..LENGTH).map(|_| random.random()).collect();
    data[HOLE].fill(0);
    data
}

/// Writes a file with a hole where it is zero.
fn write(path: &Path, data: &[u8]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(u64::try_from(data.len()).unwrap()).unwrap();
    file.write_all_at(&data[..HOLE.start], 0).unwrap();
    file.write_all_at(&data[HOLE.end..], u64::try_from(HOLE.end).unwrap()).unwrap();
}

async fn world() -> (Arc<Loopback>, Client, tempfile::TempDir) {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: 1024, ..options() }).await;
    (server, client, tempdir().unwrap())
}

fn parts(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".rpcrdma-partial")).collect()
}

async fn parts_there(client: &Client) -> Vec<String> {
    let items = client.read_dir("/").await.unwrap();
    let names = items.into_iter().map(|item| item.name.to_string());
    names.filter(|name| name.ends_with(".rpcrdma-partial")).collect()
}

/// A server that loses its connection may have bytes behind those of the last COMMIT. They are sent again.
#[tokio::test]
async fn a_put_that_is_cut_a_hundred_times_is_complete_at_the_end() {
    let (server, client, place) = world().await;
    let other = server.mount_with("/", options()).await;
    let (source, data) = (place.path().join("f"), content());
    write(&source, &data);
    let mut random = StdRng::seed_from_u64(1);
    let (mut cuts, mut sent) = (0, 0);
    loop {
        // The file has a hundred steps, of two WRITEs and a COMMIT.
        let mut left = random.random_range(0..6);
        let unstable = Arc::new(Mutex::new(Vec::new()));
        let written = unstable.clone();
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        server.hook(move |procedure, bytes| {
            if !matches!(procedure, NfsProcedure::Write | NfsProcedure::Commit) {
                return Step::Serve;
            }
            if left == 0 {
                return lost();
            }
            left -= 1;
            if procedure == NfsProcedure::Commit {
                // The next piece may be on its way before the answer, but is not stable by this COMMIT.
                written.lock().unwrap().clear();
            } else {
                counted.fetch_add(1, Ordering::Relaxed);
                let write = arguments::<WriteArgs>(bytes);
                written.lock().unwrap().push((write.file, write.offset, write.count));
            }
            Step::Serve
        });
        let result = client.put(&source, "/f", &partial()).await;
        server.hook(|_, _| Step::Serve);
        sent += count.load(Ordering::Relaxed);
        match result {
            Ok(report) => {
                assert_eq!(format!("{:?}", report.failures), "[]");
                assert!(report.resumed > 0);
                break;
            }
            Err(error) => assert!(matches!(error, Error::Transport { .. }), "{error}"),
        }
        cuts += 1;
        assert!(client.lookup("/f").await.is_err());
        // The server restarts: data without COMMIT is lost.
        let doubtful = std::mem::take(&mut *unstable.lock().unwrap());
        for (file, offset, count) in doubtful {
            let rubbish = vec![0xee; usize::try_from(count).unwrap()];
            other.file(file, "part").write_at(offset, rubbish.into()).await.unwrap();
        }
    }
    assert!(cuts >= 100, "{cuts}");
    assert!(sent < 600, "{sent} WRITEs of 200");
    assert_eq!(parts_there(&client).await, [""; 0]);
    let out = place.path().join("out");
    client.get("/f", &out, &CopyOptions::default()).await.unwrap();
    assert!(fs::read(&out).unwrap() == data);
}

#[tokio::test]
async fn a_get_that_is_cut_a_hundred_times_is_complete_at_the_end() {
    let (server, client, place) = world().await;
    let (source, data) = (place.path().join("f"), content());
    write(&source, &data);
    client.put(&source, "/f", &CopyOptions::default()).await.unwrap();
    let dir = place.path().join("out");
    fs::create_dir(&dir).unwrap();
    let out = dir.join("f");
    let mut random = StdRng::seed_from_u64(2);
    let (mut cuts, mut asked) = (0, 0);
    loop {
        let mut left = random.random_range(0..4);
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        server.hook(move |procedure, _| match procedure {
            NfsProcedure::Read if left == 0 => lost(),
            NfsProcedure::Read => {
                left -= 1;
                counted.fetch_add(1, Ordering::Relaxed);
                Step::Serve
            }
            _ => Step::Serve,
        });
        let result = client.get("/f", &out, &partial()).await;
        asked += count.load(Ordering::Relaxed);
        match result {
            Ok(report) => {
                assert_eq!(format!("{:?}", report.failures), "[]");
                assert!(report.resumed > 0);
                break;
            }
            Err(error) => assert!(matches!(error, Error::Transport { .. }), "{error}"),
        }
        cuts += 1;
        assert!(!out.exists());
    }
    assert!(cuts >= 100, "{cuts}");
    assert!(asked < 600, "{asked} READs of 200");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert!(fs::read(&out).unwrap() == data);
}

/// Stops a copy after some bytes, by a drop of its future.
async fn stopped<T>(copy: impl AsyncFnOnce(CopyOptions) -> T) {
    let (moved, mut wait) = tokio::sync::mpsc::unbounded_channel();
    let progress = move |event: CopyEvent<'_>| {
        if let CopyEvent::Bytes(count) = event {
            let _ = moved.send(count);
        }
    };
    let copying = copy(CopyOptions { progress: Some(Arc::new(progress)), ..partial() });
    let mut copying = std::pin::pin!(copying);
    let mut left = 20_000_u64;
    loop {
        tokio::select! {
            biased;
            count = wait.recv() => {
                left = left.saturating_sub(count.unwrap());
                if left == 0 {
                    return;
                }
            }
            _ = &mut copying => panic!("the copy was too fast"),
        }
    }
}

/// A dropped copy keeps its part, and one of a source that changed since is not continued.
#[tokio::test]
async fn a_part_of_an_older_source_is_not_continued() {
    let (_server, client, place) = world().await;
    let (source, mut data) = (place.path().join("f"), content());
    write(&source, &data);
    client.put(&source, "/there", &CopyOptions::default()).await.unwrap();
    let dir = place.path().join("out");
    fs::create_dir(&dir).unwrap();
    let out = dir.join("there");
    stopped(async |options| client.get("/there", &out, &options).await).await;
    stopped(async |options| client.put(&source, "/f", &options).await).await;
    assert_eq!((parts(&dir).len(), parts_there(&client).await.len()), (1, 1));
    data[..5].fill(9);
    write(&source, &data);
    let file = client.open("/there").await.unwrap();
    file.write_at(0, data[..5].to_vec().into()).await.unwrap();
    let report = client.put(&source, "/f", &partial()).await.unwrap();
    assert_eq!((report.resumed, report.changed_meanwhile, report.files), (0, 0, 1));
    let report = client.get("/there", &out, &partial()).await.unwrap();
    assert_eq!((report.resumed, report.changed_meanwhile, report.files), (0, 0, 1));
    assert!(fs::read(&out).unwrap() == data);
    let again = place.path().join("again");
    client.get("/f", &again, &CopyOptions::default()).await.unwrap();
    assert!(fs::read(&again).unwrap() == data);
    // The old parts stay until a sync deletes them.
    assert_eq!((parts(&dir).len(), parts_there(&client).await.len()), (1, 1));
}

/// Objects that other users could have put there are not continued, and not written.
#[tokio::test]
async fn only_own_parts_are_continued() {
    let (_server, client, place) = world().await;
    let (source, data) = (place.path().join("f"), content());
    write(&source, &data);
    client.put(&source, "/f", &CopyOptions::default()).await.unwrap();
    let dir = place.path().join("out");
    fs::create_dir(&dir).unwrap();
    let out = dir.join("f");
    fs::write(place.path().join("victim"), "precious").unwrap();
    for kind in ["link", "name", "long"] {
        stopped(async |options| client.get("/f", &out, &options).await).await;
        let [part] = parts(&dir).try_into().unwrap();
        let part = dir.join(part);
        match kind {
            "long" => fs::File::options().write(true).open(&part).unwrap().set_len(400_000).unwrap(),
            kind => {
                fs::remove_file(&part).unwrap();
                let victim = place.path().join("victim");
                match kind {
                    "link" => std::os::unix::fs::symlink(victim, &part).unwrap(),
                    _ => fs::hard_link(victim, &part).unwrap(),
                }
            }
        }
        let report = client.get("/f", &out, &partial()).await.unwrap();
        assert_eq!((report.resumed, report.files), (0, 1), "{kind}: {:?}", report.failures);
        assert!(fs::read(&out).unwrap() == data);
        fs::remove_file(&out).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{kind}");
    }
    assert_eq!(fs::read(place.path().join("victim")).unwrap(), b"precious");
    stopped(async |options| client.put(&source, "/g", &options).await).await;
    let [part] = parts_there(&client).await.try_into().unwrap();
    client.link(format!("/{part}"), "/second").await.unwrap();
    let report = client.put(&source, "/g", &partial()).await.unwrap();
    assert_eq!((report.resumed, report.files), (0, 1));
    assert!(client.lookup(format!("/{part}")).await.is_err());
}

/// A copy that finds no incomplete file does not cut off the one that another copy makes at this time.
#[tokio::test]
async fn two_puts_of_one_source_share_an_incomplete_file() {
    let (server, client, place) = world().await;
    let (source, data) = (place.path().join("f"), content());
    write(&source, &data);
    let (release, held) = tokio::sync::oneshot::channel();
    let (arrive, arrived) = tokio::sync::oneshot::channel();
    let first = Mutex::new(Some((held, arrive)));
    server.hook(move |procedure, _| {
        if procedure != NfsProcedure::Create {
            return Step::Serve;
        }
        let Some((held, arrive)) = first.lock().unwrap().take() else { return Step::Serve };
        arrive.send(()).unwrap();
        Step::After(held)
    });
    let options = partial();
    let late = client.put(&source, "/f", &options);
    let early = async {
        arrived.await.unwrap();
        stopped(async |options| client.put(&source, "/f", &options).await).await;
        release.send(()).unwrap();
    };
    let (report, ()) = tokio::join!(late, early);
    let report = report.unwrap();
    assert_eq!((report.failures.len(), report.files), (0, 1), "{:?}", report.failures);
    assert!(report.resumed > 0);
    client.get("/f", place.path().join("again"), &CopyOptions::default()).await.unwrap();
    assert!(fs::read(place.path().join("again")).unwrap() == data);
    assert!(parts_there(&client).await.is_empty());
}

/// A file that changes while it is read is reported. A copy that was continued begins anew.
#[tokio::test]
async fn changes_while_a_file_is_read() {
    let (server, client, place) = world().await;
    let (source, data) = (place.path().join("f"), content());
    write(&source, &data);
    client.put(&source, "/f", &CopyOptions::default()).await.unwrap();
    let handle = client.lookup("/f").await.unwrap().handle;
    let dir = place.path().join("out");
    fs::create_dir(&dir).unwrap();
    let out = dir.join("f");
    for continued in [false, true] {
        // A change within the tick of the clock in which the file was written would not show in its times.
        let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        fs::File::options().write(true).open(&source).unwrap().set_modified(earlier).unwrap();
        if continued {
            stopped(async |options| client.get("/f", &out, &options).await).await;
            stopped(async |options| client.put(&source, "/g", &options).await).await;
        }
        // A READ waits until the file at the server has changed.
        let (release, held) = tokio::sync::oneshot::channel();
        let held = Mutex::new(Some(held));
        let (changing, other) = (Arc::new(AtomicU32::new(0)), server.mount_with("/", options()).await);
        let count = changing.clone();
        let path = source.clone();
        server.hook(move |procedure, bytes| {
            let wanted = match procedure {
                NfsProcedure::Read => arguments::<ReadArgs>(bytes).file == handle,
                NfsProcedure::Write => true,
                _ => false,
            };
            let early = if procedure == NfsProcedure::Write { 20 } else { 50 };
            if !wanted || count.fetch_add(1, Ordering::Relaxed) != early {
                return Step::Serve;
            }
            if procedure == NfsProcedure::Read {
                return held.lock().unwrap().take().map_or(Step::Serve, Step::After);
            }
            fs::File::options().write(true).open(&path).unwrap().write_all_at(b"changed", 0).unwrap();
            Step::Serve
        });
        let report = client.put(&source, "/g", &partial()).await.unwrap();
        assert_eq!((report.changed_meanwhile, report.files), (1, 1), "{continued}");
        changing.store(0, Ordering::Relaxed);
        let options = partial();
        let getting = client.get("/f", &out, &options);
        let change = async {
            while changing.load(Ordering::Relaxed) <= 50 {
                tokio::task::yield_now().await;
            }
            let file = other.open("/f").await.unwrap();
            let time = crate::wire::SetTime::ServerTime;
            file.set_attributes(SetAttributes { mtime: time, ..SetAttributes::default() }).await.unwrap();
            release.send(()).unwrap();
        };
        let (report, ()) = tokio::join!(getting, change);
        let report = report.unwrap();
        assert_eq!((report.changed_meanwhile, report.files), (1, 1), "{continued}");
        server.hook(|_, _| Step::Serve);
        assert_eq!((parts(&dir).len(), parts_there(&client).await.len()), (0, 0));
        if continued {
            // The second attempt has one state of the file.
            assert!(fs::read(&out).unwrap() == data);
            let now = fs::read(&source).unwrap();
            client.get("/g", place.path().join("g"), &CopyOptions::default()).await.unwrap();
            assert!(fs::read(place.path().join("g")).unwrap() == now);
        }
        client.remove("/g").await.unwrap();
        fs::remove_file(&out).unwrap();
    }
}
