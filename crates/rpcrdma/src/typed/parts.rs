//! The functions that the code of [`program!`](crate::program) calls. No other code needs them.

use std::borrow::Borrow;

use rpcrdma_oncrpc::typed::{Bounds, Procedure};
use rpcrdma_oncrpc::{CallFailure, ResponseFuture};
use rpcrdma_xdr::Bounded;

/// Panics, at compile time, if these numbers cannot be served: RFC 5531 §8.1, §8.3 and §12.
pub const fn check_numbers(program: u32, version: u32, mut procedures: &[u32]) {
    assert!(
        matches!(program, 1..=0x5fff_ffff),
        "the program number is reserved (RFC 5531 section 8.3): 0x20000000 to 0x3fffffff are free to use"
    );
    assert!(version > 0, "versions begin at 1 (RFC 5531 section 8.1)");
    while let [procedure, rest @ ..] = procedures {
        assert!(*procedure > 0, "procedure 0 is not declared: every program has it, and it does nothing");
        let mut others = rest;
        while let [other, rest @ ..] = others {
            assert!(*procedure != *other, "two procedures have one number");
            others = rest;
        }
        procedures = rest;
    }
}

/// Returns a name in capitals; `N` is its length.
pub const fn upper<const N: usize>(name: &str) -> [u8; N] {
    match name.as_bytes().first_chunk() {
        Some(letters) => {
            let mut letters = *letters;
            letters.make_ascii_uppercase();
            letters
        }
        None => [b' '; N],
    }
}

/// Returns the bytes of [`upper`] as a name, without the mark of a raw identifier.
pub const fn name(letters: &[u8]) -> &str {
    let letters = if let [b'R', b'#', rest @ ..] = letters { rest } else { letters };
    match str::from_utf8(letters) {
        Ok(name) => name,
        Err(_) => "",
    }
}

/// Returns the numbers of DDP-eligible arguments and results.
pub const fn eligible<P: Procedure>() -> (usize, usize) {
    (P::Arguments::DDP_ITEMS, P::Results::DDP_ITEMS)
}

/// Returns the bounds that a function or a closure gives.
pub fn bounds<P: Procedure>(
    bounds: impl FnOnce(&P::Arguments) -> Bounds,
    arguments: &P::Arguments,
) -> Bounds {
    bounds(arguments)
}

/// Returns the value.
pub fn same<T>(value: T) -> T {
    value
}

/// Returns the value, which lends another.
pub fn lent<T, B: Borrow<T>>(value: B) -> B {
    value
}

/// Returns the future of a call that has failed.
pub fn failed(failure: CallFailure) -> ResponseFuture {
    Box::pin(std::future::ready(Err(failure)))
}
