//! From a source to calls, on tokio's paused clock.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::CallError;
use rpcrdma::streaming::{Fault, Pieces, Source, StreamError, send};
use rpcrdma_oncrpc::Refused;
use rpcrdma_verbs::ProtectionDomain;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, sleep};

use super::world::{CALL_TIME, Objects, PIECE, World, pattern, pieces, write};

/// The end of a source's data.
enum End {
    File,
    Error,
    /// Nothing ever follows.
    Silence,
}

/// A source that gives some bytes at a time.
struct Trickle<'a> {
    rest: Bytes,
    end: End,
    /// Bytes taken so far.
    taken: &'a AtomicUsize,
}

impl<'a> Trickle<'a> {
    fn new(length: usize, end: End, taken: &'a AtomicUsize) -> Self {
        Self { rest: pattern(length), end, taken }
    }
}

impl AsyncRead for Trickle<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.rest.len().min(buffer.remaining()).min(777);
        if count == 0 {
            return match self.end {
                End::File => Poll::Ready(Ok(())),
                End::Error => Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
                End::Silence => Poll::Pending,
            };
        }
        buffer.put_slice(&self.rest.split_to(count));
        self.taken.fetch_add(count, Ordering::SeqCst);
        Poll::Ready(Ok(()))
    }
}

async fn store(world: &World, source: impl Source, pieces: Pieces) -> Result<u64, StreamError<CallError>> {
    let client = &world.client;
    send(client.domain(), source, pieces, |offset, data| write(client, offset, data)).await
}

#[tokio::test(start_paused = true)]
async fn a_source_is_stored_in_pieces_by_several_calls_at_a_time() {
    let world = World::new(Objects::default()).await;
    let taken = AtomicUsize::new(0);
    let length = 10 * PIECE + 1234;
    let began = Instant::now();
    let stream = Pieces::of(PIECE).window(4);
    let sent = store(&world, Trickle::new(length, End::File, &taken), stream).await.unwrap();
    assert_eq!((sent, taken.into_inner()), (length as u64, length));
    assert_eq!(world.objects.stored_from(0), pattern(length));
    assert_eq!((world.objects.calls(), world.objects.peak()), (11, 4));
    let rounds = Duration::from_millis(3 * CALL_TIME);
    assert!((rounds..rounds * 4 / 3).contains(&began.elapsed()), "{:?}", began.elapsed());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_bytes_of_the_stream_are_taken_from_a_source() {
    let world = World::new(Objects::default()).await;
    let all = pattern(5 * PIECE);
    let mut source = &all[..];
    let part = Pieces::of(PIECE).offset(7000).length(pieces(2) + 5);
    assert_eq!(store(&world, &mut source, part).await.unwrap(), pieces(2) + 5);
    assert_eq!(world.objects.stored_from(7000), all[..2 * PIECE + 5]);
    let mut rest = Vec::new();
    source.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, all[2 * PIECE + 5..]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_without_bytes_makes_no_call() {
    let world = World::new(Objects::default()).await;
    assert_eq!(store(&world, tokio::io::empty(), Pieces::of(PIECE)).await.unwrap(), 0);
    assert_eq!(store(&world, tokio::io::repeat(1), Pieces::of(PIECE).length(0)).await.unwrap(), 0);
    assert_eq!(world.objects.calls(), 0);
    // A window of no calls and pieces of no bytes would move nothing.
    assert_eq!(store(&world, &b"abc"[..], Pieces::of(0).window(0)).await.unwrap(), 3);
    assert_eq!((world.objects.calls(), world.objects.peak()), (3, 1));
    world.end().await;
}

/// While no call ends, a source is read no further than the window.
#[tokio::test(start_paused = true)]
async fn slow_calls_hold_the_source_back() {
    let world = World::new(Objects::default()).await;
    world.objects.slow.lock().unwrap().extend((0..9).map(|piece| (pieces(piece), 5_000)));
    let taken = AtomicUsize::new(0);
    let source = Trickle::new(9 * PIECE, End::File, &taken);
    let domain = ProtectionDomain::new(64 << 20);
    let call = |offset, data| write(&world.client, offset, data);
    let stream = send(&domain, source, Pieces::of(PIECE).window(3), call);
    let look = async {
        sleep(Duration::from_secs(4)).await;
        (taken.load(Ordering::SeqCst), world.objects.calls(), domain.usage().in_use)
    };
    let (sent, (read, calls, memory)) = tokio::join!(stream, look);
    assert_eq!((sent.unwrap(), read, calls), (pieces(9), 3 * PIECE, 3));
    assert_eq!((memory, domain.usage().in_use), (3 * ProtectionDomain::room_for(PIECE), 0));
    world.end().await;
}

/// A stream waits for memory of its domain, and other users get theirs.
#[tokio::test(start_paused = true)]
async fn a_domain_with_room_for_two_pieces_has_two_calls_in_progress() {
    let world = World::new(Objects::default()).await;
    let (client, all) = (&world.client, pattern(6 * PIECE));
    let domain = ProtectionDomain::new(2 * ProtectionDomain::room_for(PIECE));
    let call = |offset, data| write(client, offset, data);
    let sent = send(&domain, &all[..], Pieces::of(PIECE).window(5), call).await.unwrap();
    assert_eq!((sent, world.objects.peak()), (pieces(6), 2));
    assert_eq!(world.objects.stored_from(0), all);
    // A piece that the domain can never hold is refused at once.
    let large = Pieces::of(MAX_ROOM).offset(3);
    let error = send(&domain, tokio::io::repeat(1), large, call).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Memory(_)), "{error}");
    assert_eq!((error.offset, error.done, world.objects.calls()), (3, 3, 6));
    assert_eq!(domain.usage().in_use, 0);
    world.end().await;
}

/// Bytes that no domain of these tests has.
const MAX_ROOM: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_source_has_its_offset() {
    let world = World::new(Objects::default()).await;
    let taken = AtomicUsize::new(0);
    let source = Trickle::new(2 * PIECE + 500, End::Error, &taken);
    let error = store(&world, source, Pieces::of(PIECE).offset(100)).await.unwrap_err();
    assert_eq!((error.offset, error.done), (100 + pieces(2) + 500, 100 + pieces(2)));
    assert!(matches!(&error.fault, Fault::Source(error) if error.kind() == ErrorKind::BrokenPipe));
    assert_eq!(error.to_string(), "at offset 20600: the source fails: broken pipe");
    assert!(std::error::Error::source(&error).unwrap().is::<io::Error>());
    // The calls of the pieces before it have ended.
    assert_eq!(world.objects.stored_from(100), pattern(2 * PIECE));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_too_short_says_how_much_is_missing() {
    let world = World::new(Objects::default()).await;
    let all = pattern(PIECE + 500);
    for (length, left) in [(pieces(3), pieces(2) - 500), (pieces(1) + 501, 1)] {
        let error = store(&world, &all[..], Pieces::of(PIECE).length(length)).await.unwrap_err();
        assert!(matches!(error.fault, Fault::Ended { left: missing } if missing == left), "{error}");
        assert_eq!((error.offset, error.done), (pieces(1) + 500, pieces(1) + 500));
        assert_eq!(world.objects.stored_from(0), all, "all that there is was stored");
    }
    let whole = Pieces::of(PIECE).length(pieces(1) + 500);
    assert_eq!(store(&world, &all[..], whole).await.unwrap(), pieces(1) + 500);
    world.end().await;
}

/// Of several failed calls, the one of the lowest offset counts, whichever fails first. No call starts after it, and
/// none is in progress when the stream ends.
#[tokio::test(start_paused = true)]
async fn a_failed_call_ends_the_stream_at_its_offset() {
    let world = World::new(Objects::default()).await;
    world.objects.faulty.lock().unwrap().extend([pieces(3), pieces(5)]);
    world.objects.slow.lock().unwrap().extend([(pieces(3), 5_000), (pieces(4), 9_000)]);
    let taken = AtomicUsize::new(0);
    let source = Trickle::new(40 * PIECE, End::File, &taken);
    let began = Instant::now();
    let error = store(&world, source, Pieces::of(PIECE).window(6)).await.unwrap_err();
    assert_eq!((error.offset, error.done), (pieces(3), pieces(3)));
    let Fault::Call(CallError::Refused(Refused::SystemError)) = error.fault else { panic!("{error}") };
    assert!(began.elapsed() >= Duration::from_millis(9_000 + CALL_TIME), "the last call has ended");
    // The first round, and as many as took the places of pieces 0, 1 and 2.
    let calls = world.objects.calls();
    assert!((6..=9).contains(&calls), "{calls}");
    assert_eq!(world.objects.stored.lock().unwrap().len(), calls - 2);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_ends_a_stream_whose_source_is_silent() {
    let world = World::new(Objects::default()).await;
    world.objects.faulty.lock().unwrap().insert(pieces(1));
    let taken = AtomicUsize::new(0);
    let source = Trickle::new(2 * PIECE + 10, End::Silence, &taken);
    let error = store(&world, source, Pieces::of(PIECE)).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Call(_)));
    assert_eq!((error.offset, error.done), (pieces(1), pieces(1)));
    world.end().await;
}

/// Rule I8 holds for each call of a stream.
#[tokio::test(start_paused = true)]
async fn i8_a_stream_survives_the_loss_of_its_connection() {
    let world = World::new(Objects::default()).await;
    let all = pattern(20 * PIECE);
    let stream = store(&world, &all[..], Pieces::of(PIECE).window(4));
    let cut = async {
        for connection in 0..2 {
            sleep(Duration::from_millis(3 * CALL_TIME / 2)).await;
            world.fabric.cut(connection);
        }
    };
    let (sent, ()) = tokio::join!(stream, cut);
    assert_eq!(sent.unwrap(), pieces(20));
    assert_eq!(world.objects.stored_from(0), all);
    assert_eq!(world.client.stats().connections, 3);
    world.end().await;
}

/// The futures of streams can be spawned.
#[tokio::test(start_paused = true)]
async fn a_stream_can_be_a_task() {
    let world = World::new(Objects::default()).await;
    let client = world.client.clone();
    let task = tokio::spawn(async move {
        let call = |offset, data| write(&client, offset, data);
        send(client.domain(), tokio::io::repeat(5), Pieces::of(PIECE).length(pieces(3)), call).await
    });
    assert_eq!(task.await.unwrap().unwrap(), pieces(3));
    assert_eq!(world.objects.stored_from(0), vec![5; 3 * PIECE]);
    world.end().await;
}
