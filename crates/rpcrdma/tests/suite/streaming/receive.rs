//! From calls to a target, on tokio's paused clock.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::CallError;
use rpcrdma::streaming::{Fault, Part, Pieces, Received, StreamError, Target, receive};
use rpcrdma_xdr::Payload;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::time::{Instant, sleep};

use super::world::{CALL_TIME, Objects, PIECE, World, pattern, pieces, read};

async fn fetch(
    world: &World,
    target: impl Target,
    pieces: Pieces,
) -> Result<Received, StreamError<CallError>> {
    receive(target, pieces, |offset, count| read(&world.client, offset, count)).await
}

/// A target with space for some bytes, which takes a few at a time.
struct Narrow {
    taken: Vec<u8>,
    space: usize,
    error: Option<ErrorKind>,
}

impl AsyncWrite for Narrow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let count = data.len().min(self.space - self.taken.len()).min(333);
        match self.error {
            Some(error) if count == 0 => Poll::Ready(Err(error.into())),
            _ => {
                self.taken.extend_from_slice(&data[..count]);
                Poll::Ready(Ok(count))
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_arrive_in_order_by_several_calls_at_a_time() {
    let length = 12 * PIECE - 1;
    let world = World::with_object(length).await;
    // The first call of each four is the slowest.
    world.objects.slow.lock().unwrap().extend((0..3).map(|group| (pieces(4 * group), CALL_TIME)));
    let mut target = Vec::new();
    let began = Instant::now();
    let received = fetch(&world, &mut target, Pieces::of(PIECE).window(4)).await.unwrap();
    assert_eq!((received.bytes, received.copied), (length as u64, 0));
    assert_eq!(target, pattern(length));
    assert_eq!((world.objects.calls(), world.objects.peak()), (12, 4));
    assert!(began.elapsed() < Duration::from_millis(8 * CALL_TIME), "{:?}", began.elapsed());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_part_of_an_object_is_fetched() {
    let world = World::with_object(9 * PIECE).await;
    let mut target = Vec::new();
    let part = Pieces::of(PIECE).offset(1234).length(pieces(2) + 1);
    assert_eq!(fetch(&world, &mut target, part).await.unwrap().bytes, pieces(2) + 1);
    assert_eq!((&target[..], world.objects.calls()), (&pattern(9 * PIECE)[1234..][..2 * PIECE + 1], 3));
    assert_eq!(fetch(&world, &mut target, Pieces::of(PIECE).length(0)).await.unwrap().bytes, 0);
    assert_eq!(world.objects.calls(), 3);
    world.end().await;
}

/// An object that ends with a piece, and one without bytes: the end comes with the last bytes, or with none.
#[tokio::test(start_paused = true)]
async fn calls_behind_the_end_are_in_vain() {
    for (length, window) in [(3 * PIECE, 1), (3 * PIECE, 8), (0, 1), (0, 8)] {
        let world = World::with_object(length).await;
        let mut target = Vec::new();
        let received = fetch(&world, &mut target, Pieces::of(PIECE).window(window)).await.unwrap();
        assert_eq!((received.bytes, target), (length as u64, pattern(length).to_vec()));
        let needed = (length / PIECE).max(1);
        // The first of `window` calls ends before another starts.
        assert!((needed..needed + window).contains(&world.objects.calls()));
        world.end().await;
    }
}

/// Results that are shorter than asked for are no end: further calls bring the rest. Few bytes do not keep the memory of
/// many.
#[tokio::test(start_paused = true)]
async fn short_results_are_completed() {
    // Of a piece of 10,000 bytes: 7,000 and 3,000; 4,000, 4,000 and 2,000; ten times 1,000.
    for (most, calls, copied) in [(7_000, 8, 0), (4_000, 12, 4 * 4_000), (1_000, 40, 4 * 9_000)] {
        let object = pattern(4 * PIECE);
        let world = World::new(Objects { object, most: Some(most), ..Objects::default() }).await;
        let mut target = Vec::new();
        let stream = Pieces::of(PIECE).length(pieces(4));
        let received = fetch(&world, &mut target, stream).await.unwrap();
        assert_eq!((received.bytes, received.copied), (pieces(4), copied), "{most}");
        assert_eq!((target, world.objects.calls()), (pattern(4 * PIECE).to_vec(), calls));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_before_the_length_is_an_error() {
    let world = World::with_object(2 * PIECE + 9).await;
    let mut target = Vec::new();
    let error = fetch(&world, &mut target, Pieces::of(PIECE).length(pieces(3))).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Ended { left } if left == pieces(1) - 9), "{error}");
    assert_eq!((error.offset, error.done), (pieces(2) + 9, pieces(2) + 9));
    assert_eq!(target, pattern(2 * PIECE + 9), "all that there is was fetched");
    world.end().await;
}

/// Everything before the fault is at the target, also the first part of a piece.
#[tokio::test(start_paused = true)]
async fn a_failed_call_ends_the_stream_at_its_offset() {
    for at in [pieces(3), pieces(3) + 6000] {
        let objects = Objects { object: pattern(9 * PIECE), most: Some(6000), ..Objects::default() };
        objects.faulty.lock().unwrap().extend([at, pieces(4)]);
        objects.slow.lock().unwrap().insert(at, 5_000);
        let world = World::new(objects).await;
        let mut target = BufWriter::with_capacity(1 << 20, Vec::new());
        let error = fetch(&world, &mut target, Pieces::of(PIECE).window(6)).await.unwrap_err();
        assert!(matches!(error.fault, Fault::Call(CallError::Refused(_))), "{error}");
        assert_eq!((error.offset, error.done), (at, at));
        assert_eq!(target.get_ref(), &pattern(usize::try_from(at).unwrap()), "and it is flushed");
        world.end().await;
    }
}

/// Results that a server must not send.
#[tokio::test(start_paused = true)]
async fn i5_results_without_bytes_or_with_too_many_are_refused() {
    let results = [Part::new(Payload::default(), false), Part::new(Bytes::from_static(&[7; 11]), false)];
    for (bad, part) in results.into_iter().enumerate() {
        let call = async |offset: u64, count: usize| {
            let good = Part::new(Bytes::from(vec![7; count]), false);
            Ok::<_, CallError>(if offset < 20 { good } else { part.clone() })
        };
        let mut target = Vec::new();
        let error = receive(&mut target, Pieces::of(10), call).await.unwrap_err();
        assert_eq!((error.offset, error.done, target), (20, 20, vec![7; 20]));
        match (bad, error.fault) {
            (0, Fault::Empty) | (1, Fault::TooLong { asked: 10, length: 11 }) => {}
            (_, fault) => panic!("{fault}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_target_has_its_offset() {
    let world = World::with_object(5 * PIECE).await;
    for error in [Some(ErrorKind::StorageFull), None] {
        let mut target = Narrow { taken: Vec::new(), space: 2 * PIECE + 100, error };
        let stopped = fetch(&world, &mut target, Pieces::of(PIECE).offset(50)).await.unwrap_err();
        assert_eq!((stopped.offset, stopped.done), (pieces(2) + 150, pieces(2) + 150));
        let kind = error.unwrap_or(ErrorKind::WriteZero);
        assert!(matches!(&stopped.fault, Fault::Target(error) if error.kind() == kind), "{stopped}");
        assert_eq!(target.taken, &pattern(5 * PIECE)[50..][..2 * PIECE + 100]);
    }
    let mut target = Narrow { taken: Vec::new(), space: 5 * PIECE, error: None };
    assert_eq!(fetch(&world, &mut target, Pieces::of(PIECE)).await.unwrap().bytes, pieces(5));
    assert_eq!(target.taken, pattern(5 * PIECE));
    world.end().await;
}

/// While the target takes nothing, no further call is made than the window allows.
#[tokio::test(start_paused = true)]
async fn a_slow_target_holds_the_calls_back() {
    let world = World::with_object(20 * PIECE).await;
    let (target, mut reader) = tokio::io::duplex(100);
    let stream = fetch(&world, target, Pieces::of(PIECE).window(3));
    let take = async {
        sleep(Duration::from_secs(60)).await;
        let calls = world.objects.calls();
        let mut all = Vec::new();
        reader.read_to_end(&mut all).await.unwrap();
        (calls, all)
    };
    let (received, (calls, all)) = tokio::join!(stream, take);
    assert_eq!((received.unwrap().bytes, calls), (pieces(20), 3));
    assert_eq!(all, pattern(20 * PIECE));
    world.end().await;
}

/// A target that has its own buffer is flushed, and stays open for what follows.
#[tokio::test(start_paused = true)]
async fn the_target_is_flushed_at_the_end_and_left_open() {
    let world = World::with_object(PIECE).await;
    let mut target = BufWriter::with_capacity(1 << 20, Vec::new());
    fetch(&world, &mut target, Pieces::of(PIECE)).await.unwrap();
    assert_eq!(target.get_ref(), &pattern(PIECE));
    target.write_all(b"more").await.unwrap();
    target.flush().await.unwrap();
    assert_eq!(&target.get_ref()[PIECE..], b"more");
    world.end().await;
}

/// Calls make progress while the target is busy.
#[tokio::test(start_paused = true)]
async fn calls_go_on_while_the_target_is_busy() {
    struct Busy {
        until: Pin<Box<tokio::time::Sleep>>,
        calls: Arc<AtomicUsize>,
        seen: Vec<usize>,
    }
    impl AsyncWrite for Busy {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            std::task::ready!(self.until.as_mut().poll(cx));
            self.until = Box::pin(sleep(Duration::from_secs(1)));
            let ended = self.calls.load(Ordering::SeqCst);
            self.seen.push(ended);
            Poll::Ready(Ok(data.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let calls = Arc::new(AtomicUsize::new(0));
    let mut target =
        Busy { until: Box::pin(sleep(Duration::from_secs(1))), calls: Arc::clone(&calls), seen: Vec::new() };
    let call = async |_, count: usize| {
        sleep(Duration::from_millis(CALL_TIME)).await;
        calls.fetch_add(1, Ordering::SeqCst);
        Ok::<_, CallError>(Part::new(vec![0; count], false))
    };
    receive(&mut target, Pieces::of(10).length(60).window(3), call).await.unwrap();
    assert_eq!(target.seen, [3, 4, 5, 6, 6, 6], "the calls had ended when the target was ready");
}
