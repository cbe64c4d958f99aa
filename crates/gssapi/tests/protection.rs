//! The crate's protection and the library's against each other, in realms with keys of one encryption type.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod place;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{Acceptor, Created, Initiator, SecurityContext, major};

use place::{SERVER, in_realm};

type Shared = Arc<dyn SecurityContext>;

/// Creates a context: the initiator's side and the acceptor's. The library protects the messages of the sides that are named.
fn sides(place: &Path, initiator_by_library: bool, acceptor_by_library: bool) -> [Shared; 2] {
    let mut acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    if acceptor_by_library {
        acceptor = acceptor.with_library_protection();
    }
    let mut initiator = KerberosInitiator::open(None, None).unwrap();
    if initiator_by_library {
        initiator = initiator.with_library_protection();
    }
    let (mut initiating, mut accepting) = (initiator.begin(SERVER).unwrap(), acceptor.begin());
    let (mut here, mut there): (Option<Created>, Option<Created>) = (None, None);
    let mut token: Option<Bytes> = None;
    while here.is_none() || there.is_none() {
        let step = initiating.step(token.as_deref()).unwrap();
        here = step.created;
        if there.is_none() {
            let step = accepting.step(&step.token).unwrap();
            there = step.created;
            token = Some(step.token);
        }
    }
    [here, there].map(|side| side.unwrap().context)
}

/// Cuts a message into slices of these lengths, and a rest.
fn cut<'a>(mut message: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut slices = Vec::new();
    for len in lengths {
        let (slice, rest) = message.split_at(*len);
        slices.push(slice);
        message = rest;
    }
    slices.push(message);
    slices
}

/// Checks that each side accepts what the other one made, in any slices, and nothing else.
fn exchange(sides: &[Shared; 2]) {
    let message: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let cuts: [&[usize]; 6] = [&[], &[0], &[4], &[1, 63, 64, 1000], &[4, 65_536, 0, 1], &[100_000]];
    let [initiator, acceptor] = sides;
    for (from, to) in [(initiator, acceptor), (acceptor, initiator)] {
        for (made, checked) in cuts.iter().flat_map(|made| cuts.iter().map(move |checked| (made, checked))) {
            let mic = from.mic(&cut(&message, made)).unwrap();
            to.verify(&cut(&message, checked), &mic).unwrap();
            assert!(mic.len() <= from.growth());
            assert!(from.verify(&[&message], &mic).is_err(), "reflected");
        }
        let empty = from.mic(&[]).unwrap();
        to.verify(&[], &empty).unwrap();
        to.verify(&[b""], &empty).unwrap();
    }
}

/// Checks that each side reads what the other one encrypted, in any slices, and of any length.
fn exchange_in_private(sides: &[Shared; 2]) {
    let message: Vec<u8> = (0..251_u8).cycle().take((1 << 20) + 3).collect();
    let [initiator, acceptor] = sides;
    for (from, to) in [(initiator, acceptor), (acceptor, initiator)] {
        for len in (0..=64).chain([4095, 4096, 4097, 1 << 20, message.len()]) {
            let message = &message[..len];
            for cuts in [&[][..], &[0], &[len / 3], &[len / 3, 0, len / 2]] {
                let wrapped = from.wrap(&cut(message, cuts)).unwrap();
                assert!(wrapped.len() <= len + from.growth());
                assert!(to.unwrap(&wrapped).unwrap() == message, "{len}");
            }
        }
        let wrapped = from.wrap(&[b"forty-two bytes that nobody else may read"]).unwrap();
        assert!(!wrapped.windows(5).any(|part| part == b"bytes"), "encrypted");
        assert_ne!(wrapped, from.wrap(&[b"forty-two bytes that nobody else may read"]).unwrap());
        // Another private message, and a checksum beside.
        to.verify(&[&message], &from.mic(&[&message]).unwrap()).unwrap();
    }
}

/// The bit of a wrapped message that says that it is encrypted (RFC 4121 §4.2.2).
const ENCRYPTED: usize = 17;

/// Changes a wrapped message in many ways, and returns the errors. Without [`ENCRYPTED`], a message is refused in any case. But
/// the library checks its checksum first, and its error depends on the bytes there.
fn refusals(sides: &[Shared; 2]) -> Vec<u32> {
    // With it, the rotated length is odd. So a rotation by a power of two always moves something.
    let message = b"twenty-three bytes here";
    let [initiator, acceptor] = sides;
    let mut errors = Vec::new();
    for (from, to) in [(initiator, acceptor), (acceptor, initiator)] {
        let wrapped = from.wrap(&[message]).unwrap();
        for bit in 0..wrapped.len() * 8 {
            let mut changed = wrapped.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = to.unwrap(&changed).unwrap_err();
            if bit != ENCRYPTED {
                errors.push(error.major);
            }
        }
        errors.extend((1..wrapped.len()).map(|len| to.unwrap(&wrapped[..len]).unwrap_err().major));
        assert!(to.unwrap(b"").is_err());
        errors.push(to.unwrap(&[&wrapped[..], b"!"].concat()).unwrap_err().major);
        errors.push(from.unwrap(&wrapped).unwrap_err().major);
        errors.push(to.unwrap(&from.mic(&[message]).unwrap()).unwrap_err().major);
        // A peer may rotate what it sends by any number.
        for places in (0..150).chain([28, u16::MAX]) {
            let mut rotated = wrapped.to_vec();
            let (header, sealed) = rotated.split_at_mut(16);
            header[6..8].copy_from_slice(&places.to_be_bytes());
            sealed.rotate_right(usize::from(places) % sealed.len());
            assert_eq!(to.unwrap(&rotated).unwrap(), message[..], "rotated by {places}");
        }
        assert_eq!(to.unwrap(&wrapped).unwrap(), message[..]);
    }
    errors
}

/// Checks that a token is refused after any change of one bit, of the token or of the message.
fn changes_are_noticed(sides: &[Shared; 2]) {
    let message = b"forty-two bytes that somebody changes once";
    let [initiator, acceptor] = sides;
    for (from, to) in [(initiator, acceptor), (acceptor, initiator)] {
        let mic = from.mic(&[message]).unwrap();
        for bit in 0..mic.len() * 8 {
            let mut changed = mic.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = to.verify(&[message], &changed).unwrap_err();
            assert!(matches!(error.major, major::BAD_MIC | major::DEFECTIVE_TOKEN), "bit {bit}: {error:?}");
        }
        for bit in 0..message.len() * 8 {
            let mut changed = message.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(to.verify(&[&changed], &mic).unwrap_err().major, major::BAD_MIC, "bit {bit}");
        }
        assert!(to.verify(&[message], &mic[..mic.len() - 1]).is_err());
        assert!(to.verify(&[message], b"").is_err());
        to.verify(&[message], &mic).unwrap();
    }
}

fn shows(side: &Shared, by: &str) {
    let shown = format!("{side:?}");
    assert!(shown.contains(&format!("checksums: {by}, privacy: {by},")), "{shown}");
    assert_eq!(side.is_quick(), by != "Library", "{shown}");
}

fn in_each_combination(place: &Path, own: &str) {
    let mut refused = Vec::new();
    for (initiator_by_library, acceptor_by_library) in
        [(false, true), (true, false), (false, false), (true, true)]
    {
        let sides = sides(place, initiator_by_library, acceptor_by_library);
        for (side, by_library) in sides.iter().zip([initiator_by_library, acceptor_by_library]) {
            shows(side, if by_library { "Library" } else { own });
        }
        exchange(&sides);
        changes_are_noticed(&sides);
        exchange_in_private(&sides);
        refused.push(refusals(&sides));
    }
    let library = refused.pop().unwrap();
    for refused in refused {
        let differ = |at: &usize| refused[*at] != library[*at];
        let differences: Vec<usize> = (0..library.len()).filter(differ).collect();
        let show = |at: &usize| format!("{at}: {:x} {:x}", refused[*at], library[*at]);
        assert!(differences.is_empty(), "{:?}", differences.iter().map(show).collect::<Vec<_>>());
    }
}

/// Declares a test for each encryption type.
macro_rules! of_type {
    ($($test:ident: $name:literal, $own:literal;)*) => { $(
        #[test]
        fn $test() {
            if let Some(place) = in_realm(stringify!($test), true, Some($name)) {
                in_each_combination(&place, $own);
            }
        }
    )* };
}

of_type! {
    messages_with_aes128_and_sha1_are_protected_as_by_the_library: "aes128-cts-hmac-sha1-96", "Aes128Sha1";
    messages_with_aes256_and_sha1_are_protected_as_by_the_library: "aes256-cts-hmac-sha1-96", "Aes256Sha1";
    messages_with_aes128_and_sha256_are_protected_as_by_the_library: "aes128-cts-hmac-sha256-128", "Aes128Sha256";
    messages_with_aes256_and_sha384_are_protected_as_by_the_library: "aes256-cts-hmac-sha384-192", "Aes256Sha384";
    messages_with_camellia_are_left_to_the_library: "camellia256-cts-cmac", "Library";
}

/// RFC 4121 §4.2.5: a peer may rotate its tokens. The library undoes a rotation in the memory that it gets.
#[test]
fn a_wrapped_message_stays_as_it_is() {
    let Some(place) = in_realm("a_wrapped_message_stays_as_it_is", true, None) else { return };
    for by_library in [false, true] {
        let [initiator, acceptor] = sides(&place, by_library, by_library);
        let mut wrapped = initiator.wrap(&[b"a message that nobody may change"]).unwrap().to_vec();
        assert_eq!(wrapped[6..8], [0, 0], "not rotated yet");
        wrapped[16..].rotate_right(28);
        wrapped[7] = 28;
        let before = wrapped.clone();
        for _ in 0..2 {
            assert_eq!(acceptor.unwrap(&wrapped).unwrap(), b"a message that nobody may change"[..]);
            assert_eq!(wrapped, before, "memory behind a shared reference was changed");
        }
    }
}

/// A context is used by several threads at one time.
#[test]
fn threads_share_a_context() {
    let Some(place) = in_realm("threads_share_a_context", true, None) else { return };
    for by_library in [false, true] {
        let [initiator, acceptor] = sides(&place, by_library, by_library);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (initiator, acceptor) = (&initiator, &acceptor);
                scope.spawn(move || {
                    for number in 0..100_u8 {
                        let message = [&[thread, number][..], &[7; 5000]];
                        acceptor.verify(&message, &initiator.mic(&message).unwrap()).unwrap();
                        initiator.verify(&message, &acceptor.mic(&message).unwrap()).unwrap();
                        let wrapped = initiator.wrap(&message).unwrap();
                        assert!(acceptor.unwrap(&wrapped).unwrap() == message.concat());
                    }
                });
            }
        });
    }
}
