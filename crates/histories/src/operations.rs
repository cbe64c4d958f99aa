//! Drawn operations on characteristics, and the legal reasons for their refusal.

use std::collections::BTreeSet;

use rpcrdma_proto::characteristics::EXPERIMENTAL;
use rpcrdma_proto::{Characteristic, Connection, NotExchanged, Notice};

use crate::draw::Draw;

/// Requested receive sizes, including some that no side accepts.
const SIZES: [u32; 7] = [4096, 8192, 65_536, 16_384, 5000, 1024, 1 << 20];

/// Returns a value that a side can adopt, with Receives of up to `most` bytes.
pub(crate) fn change(draw: &mut Draw<'_>, most: u32, takes_invalidation: bool) -> Characteristic {
    match draw.below(4) {
        0..=1 => Characteristic::ReceiveSize(draw.pick(&SIZES).min(most)),
        2 => Characteristic::RemoteInvalidation(draw.flag() && takes_invalidation),
        _ => registered(draw),
    }
}

/// Returns a request of one side to the other.
pub(crate) fn request(draw: &mut Draw<'_>) -> Vec<Characteristic> {
    let count = draw.pick(&[1, 1, 2, 3]);
    let want = (0..count).map(|_| match draw.below(6) {
        0..=2 => Characteristic::ReceiveSize(draw.pick(&SIZES)),
        3 => Characteristic::RemoteInvalidation(draw.flag()),
        _ => registered(draw),
    });
    want.collect()
}

fn registered(draw: &mut Draw<'_>) -> Characteristic {
    let id = draw.pick(&[EXPERIMENTAL, u32::MAX, EXPERIMENTAL + 7]);
    let len = draw.below(40);
    Characteristic::Registered { id, data: vec![draw.byte(); len].into() }
}

/// State of a connection that refused an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spoken {
    /// The version is known, and has characteristics.
    pub(crate) exchanged: bool,
    /// Both sides take part.
    pub(crate) enabled: bool,
    /// Characteristics are announced once (version-two-07 §5.1).
    pub(crate) once: bool,
}

/// Returns whether the connection speaks a version in which characteristics are announced once.
pub(crate) fn tells_once(connection: &Connection) -> bool {
    let two = connection.version().and_then(|rules| rules.two);
    two.is_some_and(|two| two.tells_once)
}

/// Checks the reason of a refused change or request.
pub(crate) fn check_refusal(spoken: Spoken, asked: bool, error: &NotExchanged) {
    let legal = match error {
        NotExchanged::NotSpoken => !spoken.exchanged,
        NotExchanged::Unsupported => !spoken.enabled,
        NotExchanged::ToldOnce => spoken.once,
        NotExchanged::Unknown(_) | NotExchanged::Impossible(_) => true,
        NotExchanged::Reduction { size, now } => !asked && size < now,
        NotExchanged::Twice(_) | NotExchanged::Busy { .. } => asked,
        _ => false,
    };
    assert!(legal, "{error}: {spoken:?}");
}

/// Removes answered requests.
pub(crate) fn answered(asked: &mut BTreeSet<u64>, notice: &Notice) {
    match notice {
        Notice::Answered { request, .. } => assert!(asked.remove(request), "a request is answered once"),
        Notice::Unsupported | Notice::Ended => asked.clear(),
        _ => {}
    }
}
