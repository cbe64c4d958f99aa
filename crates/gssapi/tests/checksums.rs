//! The crate's checksums and the library's against each other, in realms with keys of one encryption type.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod place;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_gssapi::{KerberosAcceptor, KerberosInitiator};
use rpcrdma_oncrpc::gss::{Acceptor, Created, Initiator, SecurityContext, major};

use place::{SERVER, in_realm};

type Shared = Arc<dyn SecurityContext>;

/// Creates a context: the initiator's side and the acceptor's. The library computes the checksums of the sides that are named.
fn sides(place: &Path, initiator_by_library: bool, acceptor_by_library: bool) -> [Shared; 2] {
    let mut acceptor = KerberosAcceptor::open(Some(&place.join("server.keytab"))).unwrap();
    if acceptor_by_library {
        acceptor = acceptor.with_library_checksums();
    }
    let mut initiator = KerberosInitiator::open(None, None).unwrap();
    if initiator_by_library {
        initiator = initiator.with_library_checksums();
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
        // Privacy goes on beside.
        let wrapped = from.wrap(&cut(&message, &[4, 9])).unwrap();
        assert!(to.unwrap(&wrapped).unwrap() == message);
        to.verify(&[&message], &from.mic(&[&message]).unwrap()).unwrap();
    }
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

fn shows(side: &Shared, checksums: &str) {
    let shown = format!("{side:?}");
    assert!(shown.contains(&format!("checksums: {checksums},")), "{shown}");
}

fn in_each_combination(place: &Path, own: &str) {
    for (initiator_by_library, acceptor_by_library) in
        [(false, true), (true, false), (false, false), (true, true)]
    {
        let sides = sides(place, initiator_by_library, acceptor_by_library);
        for (side, by_library) in sides.iter().zip([initiator_by_library, acceptor_by_library]) {
            shows(side, if by_library { "Library" } else { own });
        }
        exchange(&sides);
        changes_are_noticed(&sides);
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
    checksums_with_aes128_and_sha1_are_those_of_the_library: "aes128-cts-hmac-sha1-96", "Aes128Sha1";
    checksums_with_aes256_and_sha1_are_those_of_the_library: "aes256-cts-hmac-sha1-96", "Aes256Sha1";
    checksums_with_aes128_and_sha256_are_those_of_the_library: "aes128-cts-hmac-sha256-128", "Aes128Sha256";
    checksums_with_aes256_and_sha384_are_those_of_the_library: "aes256-cts-hmac-sha384-192", "Aes256Sha384";
    checksums_with_camellia_are_left_to_the_library: "camellia256-cts-cmac", "Library";
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
                    }
                });
            }
        });
    }
}
