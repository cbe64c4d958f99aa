//! Reads and writes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::CallError;

use super::loopback::{arguments, options};
use super::*;
use crate::client::{Client, ClientOptions, Error, File, Violation};
use crate::wire::{
    CommitArgs, NfsProcedure, ReadArgs, ReadOk, SetAttributes, StableHow, Status, WccData, WriteArgs,
};

fn pattern(length: usize) -> Bytes {
    (0..length).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect()
}

fn small_chunks() -> ClientOptions {
    ClientOptions { chunk: 1024, window: 8, file_window: 4, ..options() }
}

async fn new_file(client: &Client, data: Bytes) -> File {
    let file = client
        .create("/file", SetAttributes { mode: Some(0o644), ..SetAttributes::default() })
        .await
        .unwrap();
    let mut stream = file.write_stream(0);
    stream.write(data).await.unwrap();
    stream.finish().await.unwrap();
    file
}

async fn read_all(file: &File) -> Result<Vec<u8>, Error> {
    let mut stream = file.read_stream(0, None).await?;
    let mut data = Vec::new();
    while let Some(piece) = stream.next().await? {
        data.extend_from_slice(&piece);
    }
    assert!(stream.next().await.unwrap().is_none(), "the end stays the end");
    Ok(data)
}

#[tokio::test]
async fn streams_of_all_lengths() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    for length in [0, 1, 3, 1023, 1024, 1025, 4096, 4097, 9 * 1024, 20_001] {
        let data = pattern(length);
        let file = new_file(&client, data.clone()).await;
        assert_eq!(read_all(&file).await.unwrap(), data, "{length}");
        assert_eq!(file.len().await.unwrap(), u64::try_from(length).unwrap());
        assert_eq!(file.unstable_bytes(), 0);
    }
}

/// Small pieces are joined to full WRITEs.
#[tokio::test]
async fn pieces_are_joined() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let file = new_file(&client, Bytes::new()).await;
    let data = pattern(10_240);
    server.calls();
    let mut stream = file.write_stream(0);
    for piece in data.chunks(100) {
        stream.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    stream.finish().await.unwrap();
    assert_eq!(server.count(NfsProcedure::Write), 10);
    assert_eq!(server.count(NfsProcedure::Commit), 1);
    assert_eq!(read_all(&file).await.unwrap(), data);
}

/// A file of one WRITE needs no COMMIT.
// requirement: rfc1813-3.3.21-5
#[tokio::test]
async fn small_files_need_no_commit() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    server.calls();
    new_file(&client, pattern(5000)).await;
    assert_eq!(server.calls(), [NfsProcedure::Create, NfsProcedure::Write]);
}

#[tokio::test(start_paused = true)]
async fn many_calls_in_flight_within_the_window() {
    let server = Loopback::exporting(&["/"]);
    server.latency(Duration::from_millis(1));
    let client = server.mount_with("/", small_chunks()).await;
    let file = new_file(&client, pattern(100_000)).await;
    assert_eq!(server.most_in_flight(), 4, "the window of one file");
    let mut streams = Vec::new();
    for _ in 0..4 {
        let file = file.clone();
        streams.push(tokio::spawn(async move { read_all(&file).await.unwrap() }));
    }
    for stream in streams {
        assert_eq!(stream.await.unwrap(), pattern(100_000));
    }
    // The window of the client, and one READ that each stream may always have.
    let most = server.most_in_flight();
    assert!((8..=12).contains(&most), "{most}");
}

/// Streams with a common window in one task cannot block each other.
#[tokio::test]
async fn streams_in_one_task() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { window: 1, ..small_chunks() }).await;
    let source = new_file(&client, pattern(20_000)).await;
    let target = client.create("/copy", SetAttributes::default()).await.unwrap();
    let (mut from, mut to) = (source.read_stream(0, None).await.unwrap(), target.write_stream(0));
    let mut other = source.read_stream(5000, Some(10_000)).await.unwrap();
    let mut others = 0;
    while let Some(piece) = from.next().await.unwrap() {
        to.write(piece).await.unwrap();
        others += other.next().await.unwrap().map_or(0, |piece| piece.len());
    }
    to.finish().await.unwrap();
    assert_eq!(others, 10_000);
    assert_eq!(read_all(&target).await.unwrap(), pattern(20_000));
}

/// A caller may drop the future of `next` at any time, and call `next` again.
#[tokio::test]
async fn a_dropped_next_loses_no_data() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let data = pattern(20_001);
    let file = new_file(&client, data.clone()).await;
    let mut stream = file.read_stream(0, None).await.unwrap();
    let (mut read, mut dropped) = (Vec::new(), 0);
    loop {
        let mut next = pin!(stream.next());
        match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
            Poll::Ready(Ok(Some(slice))) => read.extend_from_slice(&slice),
            Poll::Ready(end) => break assert!(end.unwrap().is_none()),
            Poll::Pending => dropped += 1,
        }
        tokio::task::yield_now().await;
    }
    assert!(dropped > 0);
    assert_eq!(read, data);
}

#[tokio::test]
async fn parts_of_a_file() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let data = pattern(5000);
    let file = new_file(&client, data.clone()).await;
    assert_eq!(file.read_at(100, 50).await.unwrap(), data.slice(100..150));
    assert_eq!(file.read_at(4990, 50).await.unwrap(), data.slice(4990..));
    assert_eq!(file.read_at(5000, 50).await.unwrap(), Bytes::new());
    assert_eq!(file.read_at(0, 0).await.unwrap(), Bytes::new());
    assert_eq!(file.read_at(0, u32::MAX).await.unwrap().len(), 1024);
    for (offset, length) in [(0, 0), (10, 3000), (4000, 9000), (6000, 10)] {
        let mut stream = file.read_stream(offset, Some(length)).await.unwrap();
        let mut read = Vec::new();
        while let Some(piece) = stream.next().await.unwrap() {
            read.extend_from_slice(&piece);
        }
        let range =
            usize::try_from(offset).unwrap().min(5000)..usize::try_from(offset + length).unwrap().min(5000);
        assert_eq!(read, data.slice(range));
    }
    file.write_at(4999, pattern(3000)).await.unwrap();
    assert_eq!(file.unstable_bytes(), 3000);
    file.sync().await.unwrap();
    assert_eq!(file.len().await.unwrap(), 7999);
    file.set_len(10).await.unwrap();
    assert_eq!(read_all(&file).await.unwrap(), data.slice(..10));
}

/// A file that grows during a read is read to its new end; for a file that shrinks, the read ends early.
#[tokio::test]
async fn files_that_change() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let data = pattern(9000);
    let file = new_file(&client, data.slice(..3000)).await;
    let mut stream = file.read_stream(0, None).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    file.write_at(3000, data.slice(3000..)).await.unwrap();
    let mut length = first.len();
    while let Some(piece) = stream.next().await.unwrap() {
        length += piece.len();
    }
    assert!(length == 3000 || length == 9000, "{length}");
    let mut stream = file.read_all(0, 20_000);
    let mut length = 0;
    while let Some(piece) = stream.next().await.unwrap() {
        length += piece.len();
    }
    assert_eq!(length, 9000);
}

/// RFC 1813 §3.3.6, §3.3.7: a server may read and write less than requested.
// requirement: rfc1813-3.3.6-8, rfc1813-3.3.7-15
#[tokio::test]
async fn short_reads_and_writes() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Read => Step::change::<ReadArgs>(|ok| {
            if ok.count > 300 {
                (ok.count, ok.eof) = (300, false);
                ok.data.truncate(300);
            }
        }),
        NfsProcedure::Write => {
            let asked: WriteArgs = arguments(bytes);
            // Bytes that are not counted may have been written; the client sends them again.
            Step::change::<WriteArgs>(move |ok| ok.count = asked.count.min(700))
        }
        _ => Step::Serve,
    });
    let data = pattern(5000);
    let file = new_file(&client, data.clone()).await;
    assert_eq!(read_all(&file).await.unwrap(), data);
}

/// Impossible counts.
// requirement: rfc1813-3.3.6-7, rfc1813-3.3.7-9
#[tokio::test]
async fn servers_that_lie_about_counts() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let file = new_file(&client, pattern(100)).await;
    let read = |count: u32, eof: bool, data: Bytes| {
        server.hook(move |procedure, _| match procedure {
            NfsProcedure::Read => {
                Step::ok::<ReadArgs>(ReadOk { attributes: None, count, eof, data: data.clone().into() })
            }
            _ => Step::Serve,
        });
    };
    let violation = |error: Error| match error {
        Error::Protocol { violation, .. } => violation,
        other => panic!("{other}"),
    };
    read(11, false, pattern(11));
    assert!(matches!(
        violation(file.read_at(0, 10).await.unwrap_err()),
        Violation::ReadCount { asked: 10, count: 11, length: 11 }
    ));
    read(9, false, pattern(10));
    assert!(matches!(violation(file.read_at(0, 10).await.unwrap_err()), Violation::ReadCount { .. }));
    read(0, false, Bytes::new());
    assert!(matches!(violation(read_all(&file).await.unwrap_err()), Violation::NoProgress { offset: 0 }));
    for count in [0, 6] {
        server.hook(move |procedure, _| match procedure {
            NfsProcedure::Write => Step::change::<WriteArgs>(move |ok| ok.count = count),
            _ => Step::Serve,
        });
        let error = file.write_at(0, pattern(5)).await.unwrap_err();
        assert!(matches!(violation(error), Violation::WriteCount { asked: 5, .. }));
    }
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Write => Step::change::<WriteArgs>(|ok| ok.committed = StableHow::Unstable),
        _ => Step::Serve,
    });
    let error = file.write_piece(0, pattern(5), StableHow::FileSync).await.unwrap_err();
    assert!(matches!(violation(error), Violation::LessStable));
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Read => Step::Answer(Bytes::from_static(b"abc")),
        _ => Step::Serve,
    });
    assert!(matches!(violation(file.read_at(0, 10).await.unwrap_err()), Violation::Malformed(_)));
}

/// RFC 1813 §3.3.21: another verifier at COMMIT means that the server may have lost earlier data.
// requirement: rfc1813-3.3.7-17, rfc1813-3.3.21-6
#[tokio::test]
async fn a_restarted_server_gets_its_data_again() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let file = new_file(&client, Bytes::new()).await;
    let written: Arc<Mutex<Vec<(u64, StableHow)>>> = Arc::default();
    let epoch = Arc::new(Mutex::new(1u8));
    let (log, now) = (written.clone(), epoch.clone());
    server.hook(move |procedure, bytes| {
        let verifier = [*now.lock().unwrap(); 8];
        match procedure {
            NfsProcedure::Write => {
                let asked: WriteArgs = arguments(bytes);
                log.lock().unwrap().push((asked.offset, asked.stable));
                Step::change::<WriteArgs>(move |ok| ok.verifier = verifier)
            }
            NfsProcedure::Commit => Step::change::<CommitArgs>(move |ok| ok.verifier = verifier),
            _ => Step::Serve,
        }
    });
    // No data is lost: one COMMIT.
    file.write_at(0, pattern(100)).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(written.lock().unwrap().drain(..).collect::<Vec<_>>(), [(0, StableHow::Unstable)]);
    // A restart between two overlapping writes: both are repeated in their order.
    file.write_at(0, Bytes::from(vec![1; 50])).await.unwrap();
    *epoch.lock().unwrap() = 2;
    file.write_at(25, Bytes::from(vec![2; 50])).await.unwrap();
    assert_eq!(file.unstable_bytes(), 100);
    file.sync().await.unwrap();
    assert_eq!(file.unstable_bytes(), 0);
    let expected = [
        (0, StableHow::Unstable),
        (25, StableHow::Unstable),
        (0, StableHow::FileSync),
        (25, StableHow::FileSync),
    ];
    assert_eq!(written.lock().unwrap().drain(..).collect::<Vec<_>>(), expected);
    let data = file.read_at(0, 75).await.unwrap();
    assert_eq!(data, [[1; 25].as_slice(), &[2; 50]].concat());
    // Only data that was written before the restart and is not committed yet is repeated.
    file.write_at(0, pattern(10)).await.unwrap();
    file.sync().await.unwrap();
    *epoch.lock().unwrap() = 3;
    file.write_at(10, pattern(10)).await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(
        written.lock().unwrap().drain(..).collect::<Vec<_>>(),
        [(0, StableHow::Unstable), (10, StableHow::Unstable)]
    );
}

/// After a COMMIT that fails or is abandoned, no data is forgotten.
// requirement: rfc1813-3.3.21-5
#[tokio::test]
async fn failed_commits_forget_nothing() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount().await;
    let file = new_file(&client, Bytes::new()).await;
    file.write_at(0, pattern(100)).await.unwrap();
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Commit => {
            Step::Fail(CallError::ConnectionLost { reason: rpcrdma::Cause::message("test") })
        }
        _ => Step::Serve,
    });
    assert!(matches!(file.sync().await, Err(Error::Transport { operation: "COMMIT", .. })));
    assert_eq!(file.unstable_bytes(), 100);
    server.hook(|_, _| Step::Serve);
    let mut abandoned = Box::pin(file.sync());
    tokio::select! {
        biased;
        _ = &mut abandoned => panic!("the loopback waits once"),
        () = std::future::ready(()) => {}
    }
    drop(abandoned);
    assert_eq!(file.unstable_bytes(), 100);
    file.sync().await.unwrap();
    assert_eq!(file.unstable_bytes(), 0);
}

/// Data that waits for COMMIT is bounded.
// requirement: rfc1813-4.12-1
#[tokio::test]
async fn unstable_data_is_bounded() {
    let server = Loopback::exporting(&["/"]);
    let limit = 8 * 1024;
    let client = server.mount_with("/", ClientOptions { unstable_limit: limit, ..small_chunks() }).await;
    let file = new_file(&client, Bytes::new()).await;
    server.calls();
    let mut stream = file.write_stream(0);
    for piece in pattern(64 * 1024).chunks(1024) {
        stream.write(Bytes::copy_from_slice(piece)).await.unwrap();
        assert!(file.unstable_bytes() <= limit + 5 * 1024, "{}", file.unstable_bytes());
    }
    stream.finish().await.unwrap();
    assert!(server.count(NfsProcedure::Commit) >= 6);
    assert_eq!(read_all(&file).await.unwrap(), pattern(64 * 1024));
}

/// The first failure ends a stream; the error names the file.
// requirement: rfc1813-3.1-2
#[tokio::test]
async fn failures_end_streams() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", small_chunks()).await;
    let file = new_file(&client, pattern(20_000)).await;
    server.hook(|procedure, bytes| match procedure {
        NfsProcedure::Read if arguments::<ReadArgs>(bytes).offset == 5 * 1024 => {
            Step::fail::<ReadArgs>(Status::Io, None)
        }
        NfsProcedure::Write if arguments::<WriteArgs>(bytes).offset == 5 * 1024 => {
            Step::fail::<WriteArgs>(Status::NoSpc, WccData::default())
        }
        _ => Step::Serve,
    });
    let error = read_all(&file).await.unwrap_err();
    assert_eq!(error.to_string(), "/file: input/output error on the server (NFS3ERR_IO) [READ]");
    let mut stream = file.write_stream(0);
    let mut result = stream.write(pattern(20_000)).await;
    if result.is_ok() {
        result = stream.finish().await;
    }
    assert_eq!(result.unwrap_err().status(), Some(Status::NoSpc));
}

/// READ and WRITE are no larger than the server allows, whatever the options.
// requirement: rfc1813-3.3.6-4, rfc1813-3.3.7-3
#[tokio::test]
async fn sizes_are_those_of_the_server() {
    let server = Loopback::exporting(&["/"]);
    let client = server.mount_with("/", ClientOptions { chunk: u32::MAX, ..options() }).await;
    assert_eq!(client.read_size(), client.info().read_max);
    assert_eq!(client.write_size(), client.info().write_max);
    server.hook(|procedure, _| match procedure {
        NfsProcedure::Fsinfo => {
            Step::change::<crate::wire::FsinfoArgs>(|ok| (ok.read_max, ok.write_max) = (0, u32::MAX))
        }
        _ => Step::Serve,
    });
    let client = server.mount_with("/", ClientOptions { chunk: u32::MAX, ..options() }).await;
    assert_eq!(client.read_size(), 1024);
    assert_eq!(client.write_size(), 4 << 20);
}
