//! From a source to calls that write.
//!
//! *Buffers.* The source fills a Buffer of the domain; frozen, it is the payload of a call. Its memory goes back when the
//! call has ended.
//!
//! *Errors.* The fault of the lowest offset, when no call is in progress any more.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, PoolExhausted, ProtectionDomain};

use super::{Fault, InFlight, Pieces, Source, StreamError, wide};

/// Sends the bytes of `source` by a call for each piece, and returns their number.
///
/// `call` gets the offset of a piece and its bytes, in memory of `domain`. It has to return only when all of them are
/// stored. If a server takes fewer, the closure calls again with the rest (`data.slice(taken..)`). The bytes that it
/// keeps, or the peer, hold memory of the domain. See the [module](super) for order, memory and copies.
///
/// # Errors
/// [`StreamError`] with the fault of the lowest offset: [`Fault::Source`], [`Fault::Call`], [`Fault::Ended`], or
/// [`Fault::Memory`] if the domain can never hold a piece. No call is in progress then.
pub async fn send<S, F, C, E>(
    domain: &ProtectionDomain,
    mut source: S,
    pieces: Pieces,
    call: F,
) -> Result<u64, StreamError<E>>
where
    S: Source,
    F: Fn(u64, Bytes) -> C,
    C: Future<Output = Result<(), E>>,
{
    let mut calls = Calls { in_flight: InFlight::new(), done: pieces.offset };
    let mut next = pieces.offset;
    let fault = loop {
        let length = pieces.length_at(next);
        if length == 0 || !calls.place(pieces.places()).await {
            break None;
        }
        let buffer = match calls.during(room(domain, length)).await {
            None => break None,
            Some(Err(error)) => break Some((next, Fault::Memory(error))),
            Some(Ok(buffer)) => buffer,
        };
        let data = match calls.during(source.fill(next, buffer)).await {
            None => break None,
            Some(Err((read, error))) => break Some((next.saturating_add(wide(read)), Fault::Source(error))),
            Some(Ok(buffer)) => buffer.freeze(),
        };
        let (start, read) = (next, data.len());
        next = next.saturating_add(wide(read));
        if read > 0 {
            let end = next;
            let call = call(start, data);
            calls.in_flight.push(Box::pin(async move { Ended { start, end, result: call.await } }));
        }
        if read < length {
            break pieces.early_end(next).map(|fault| (next, fault));
        }
    };
    calls.finish(fault).await.map(|done| done - pieces.offset)
}

/// Allocates `length` bytes of the domain; waits if there are none.
async fn room(domain: &ProtectionDomain, length: usize) -> Result<Buffer, PoolExhausted> {
    let mut line = domain.wait();
    loop {
        match domain.allocate(length, 1) {
            Err(PoolExhausted::InUse { .. } | PoolExhausted::Unfair { .. }) => {}
            result => return result,
        }
        poll_fn(|cx| line.poll(cx, ProtectionDomain::room_for(length))).await;
    }
}

/// The end of the call for a piece.
struct Ended<E> {
    start: u64,
    end: u64,
    result: Result<(), E>,
}

/// The calls of a stream.
struct Calls<F: Future> {
    in_flight: InFlight<F>,
    /// All bytes before this offset are stored.
    done: u64,
}

impl<F: Future<Output = Ended<E>> + Unpin, E> Calls<F> {
    /// Polls all calls. Returns whether none has failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.in_flight.poll_all(cx);
        while let Some(call) = self.in_flight.next_if(|call| call.result.is_ok()) {
            self.done = call.end;
        }
        !self.in_flight.any(|call| call.result.is_err())
    }

    /// Waits for other work. Returns `None` if a call fails before.
    async fn during<W: Future>(&mut self, work: W) -> Option<W::Output> {
        let mut work = pin!(work);
        poll_fn(|cx| if self.poll(cx) { work.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }).await
    }

    /// Waits until fewer than so many calls are in progress. Returns whether none has failed.
    async fn place(&mut self, places: usize) -> bool {
        poll_fn(|cx| match self.poll(cx) {
            true if self.in_flight.running() >= places => Poll::Pending,
            well => Poll::Ready(well),
        })
        .await
    }

    /// Waits for all calls. Returns the offset up to which all bytes are stored, or the first fault.
    async fn finish(mut self, fault: Option<(u64, Fault<E>)>) -> Result<u64, StreamError<E>> {
        let mut first = None;
        while let Some(Ended { start, end, result }) = self.in_flight.next().await {
            match result {
                Err(error) if first.is_none() => first = Some((start, Fault::Call(error))),
                Ok(()) if first.is_none() => self.done = end,
                _ => {}
            }
        }
        let done = self.done;
        match first.or(fault) {
            Some((offset, fault)) => Err(StreamError { offset, done, fault }),
            None => Ok(done),
        }
    }
}
