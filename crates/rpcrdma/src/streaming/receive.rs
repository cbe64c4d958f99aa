//! From calls that read to a target.
//!
//! *Buffers.* A call's result arrives in the memory that the call offered for it. The target gets its slices, and drops
//! them when they are written. Only short results are copied ([`Gathered`]).
//!
//! *Errors.* The first fault in the order of offsets, when all bytes before it are written.

use std::future::Future;

use super::{Fault, Gathered, InFlight, Part, Pieces, StreamError, Target, wide};

/// The numbers of a stream that [`receive`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Received {
    /// Bytes written to the target.
    pub bytes: u64,
    /// Bytes of short results that were copied together before.
    pub copied: u64,
}

/// Makes a call for each piece and writes the results to `target`, in the order of their offsets.
///
/// `call` gets the offset of a piece and the bytes wanted. If its result is shorter and not the [end](Part::end), it is
/// called again for the rest. Behind the end, up to [`window`](Pieces::window) calls may be made in vain. See the
/// [module](super) for order, memory and copies.
///
/// # Errors
/// [`StreamError`] with the first fault in the order of offsets. All bytes before are then written, and calls for later
/// ones abandoned.
pub async fn receive<T, F, C, E>(mut target: T, pieces: Pieces, call: F) -> Result<Received, StreamError<E>>
where
    T: Target,
    F: Fn(u64, usize) -> C,
    C: Future<Output = Result<Part, E>>,
{
    let mut in_flight = InFlight::new();
    let (mut next, mut done) = (pieces.offset, pieces.offset);
    let mut copied = 0;
    let fault = loop {
        while in_flight.len() < pieces.places() {
            let length = pieces.length_at(next);
            if length == 0 {
                break;
            }
            in_flight.push(Box::pin(fetch(&call, next, length)));
            next = next.saturating_add(wide(length));
        }
        let Some(piece) = in_flight.next().await else { break None };
        let Fetched { data, end, fault } = piece;
        let (data, joined) = data.finish();
        copied += wide(joined);
        let (written, result) = in_flight.during(target.store(done, data)).await;
        done = done.saturating_add(wide(written));
        if let Err(error) = result {
            return Err(StreamError { offset: done, done, fault: Fault::Target(error) });
        }
        if fault.is_some() || end {
            break fault;
        }
    };
    drop(in_flight);
    let at = |fault| StreamError { offset: done, done, fault };
    target.flush().await.map_err(|error| at(Fault::Target(error)))?;
    match fault.or_else(|| pieces.early_end(done)) {
        Some(fault) => Err(at(fault)),
        None => Ok(Received { bytes: done - pieces.offset, copied }),
    }
}

/// A piece, or its first bytes if it has an end or a fault.
struct Fetched<E> {
    data: Gathered,
    /// Whether the object ends here.
    end: bool,
    /// The fault of the call for the next byte.
    fault: Option<Fault<E>>,
}

/// Makes calls until `length` bytes are there, or their end or a fault.
async fn fetch<F, C, E>(call: &F, offset: u64, length: usize) -> Fetched<E>
where
    F: Fn(u64, usize) -> C,
    C: Future<Output = Result<Part, E>>,
{
    let (mut data, mut done) = (Gathered::default(), 0);
    while done < length {
        let asked = length - done;
        let fault = match call(offset.saturating_add(wide(done)), asked).await {
            Ok(part) if part.data.len() > asked => Fault::TooLong { asked, length: part.data.len() },
            Ok(part) if part.data.is_empty() && !part.end => Fault::Empty,
            Ok(Part { data: part, end }) => {
                done += part.len();
                data.push(part, asked);
                if end {
                    return Fetched { data, end, fault: None };
                }
                continue;
            }
            Err(error) => Fault::Call(error),
        };
        return Fetched { data, end: false, fault: Some(fault) };
    }
    Fetched { data, end: false, fault: None }
}
