//! The bytes of RFC 2203 §5, put together here a second time, and what of them is DDP-eligible (RFC 8166 §8.2.2).

use rpcrdma_xdr::{Encode, Encoder, Piece, ReadChunk};

use super::*;
use crate::message::ReplyBody;

fn xdr(value: &impl Encode) -> Vec<u8> {
    encode(value).unwrap().flatten().0.to_vec()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Opaque data of variable length, with its count and pads.
fn opaque(data: &[u8]) -> Vec<u8> {
    let mut bytes = words(&[u32::try_from(data.len()).unwrap()]);
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Data with the protection of a service.
fn protected(keys: &dyn SecurityContext, service: Service, sequence: u32, data: &[u8]) -> Vec<u8> {
    let numbered = [&words(&[sequence])[..], data].concat();
    match service {
        Service::None => data.to_vec(),
        Service::Integrity => [opaque(&numbered), opaque(&keys.mic(&[&numbered]).unwrap())].concat(),
        Service::Privacy => opaque(&keys.wrap(&[&numbered]).unwrap()),
    }
}

// requirement: rfc2203-3-1, rfc2203-5-8, rfc2203-5.2.3.1-3, rfc2203-5.3.1-1, rfc2203-5.3.1-2, rfc2203-5.3.1-5
// requirement: rfc2203-5.3.2.1-1, rfc2203-5.3.2.2-1, rfc2203-5.3.2.2-2, rfc2203-5.3.2.2-3, rfc2203-5.3.2.3-1
#[test]
fn a_request_has_the_bytes_of_the_document() {
    let bed = Bed::new();
    let (client, keys) = (bed.client(), bed.keys(USER));
    for (service, number) in SERVICES.into_iter().zip(1..) {
        let (call, sealed) = sealed(&client, service, 0xdead_beef);
        let credential = GssCredential::read(&call.credential.body).unwrap();
        let credential = [words(&[1, 0, number, service as u32]), opaque(&credential.handle)].concat();
        let signed = [words(&[7, 0, 2, 100_003, 3, 1, 6]), opaque(&credential)].concat();
        let verifier = [words(&[6]), opaque(&keys.mic(&[&signed]).unwrap())].concat();
        assert_eq!(xdr(&call), [signed, verifier].concat(), "{service:?}");
        let expected = protected(&*keys, service, number, &words(&[0xdead_beef]));
        assert_eq!(sealed.arguments.flatten().0, expected, "{service:?}");
    }
}

// requirement: rfc2203-5.3.3.2-1, rfc2203-5.3.3.2-3, rfc2203-5.3.3.2-4, rfc2203-5.3.3.2-5
#[test]
fn a_reply_has_the_bytes_of_the_document() {
    let bed = Bed::new();
    let (client, keys) = (bed.client(), bed.keys(USER));
    for (service, number) in SERVICES.into_iter().zip(1_u32..) {
        let (call, sealed) = sealed(&client, service, 5);
        let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
        let body = keys.mic(&[&number.to_be_bytes()]).unwrap();
        assert_eq!(*opened.sealer.verifier(), OpaqueAuth { flavor: 6, body });
        let results = opened.sealer.seal(encode(&21_u32).unwrap()).unwrap();
        assert_eq!(results.flatten().0, protected(&*keys, service, number, &words(&[21])), "{service:?}");
    }
}

// requirement: rfc2203-5.1-1, rfc2203-5.2.2-1, rfc2203-5.2.2-2, rfc2203-5.2.2-4, rfc2203-5.2.2-5, rfc2203-5.2.2-7
// requirement: rfc2203-5.2.3.1-1, rfc2203-5.2.3.1-2, rfc2203-5.2.3.1-3, rfc2203-5.2.3.1-6, rfc2203-5.2.3.1-8
// requirement: rfc2203-5.2.3.1-9, rfc2203-5.2.3.1-12, rfc2203-5.2.3.1-13
#[test]
fn the_creation_of_a_context_has_the_bytes_of_the_document() {
    let bed = Bed::with(GssLimits::default(), TestMechanism { rounds: 2, ..TestMechanism::new(SERVER) });
    // Tokens of the mechanism: number of the round, rounds, name.
    let token = |round: u8, name: &str| [&[round, 2], name.as_bytes()].concat();
    let (creating, first) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    assert_eq!((first.credential.flavor, &first.credential.body[..]), (6, &words(&[1, 1, 0, 1, 0])[..]));
    assert_eq!(xdr(&InitArguments { token: first.token.clone() }), opaque(&token(1, USER)));
    let reply = bed.create(origin(1), &first).unwrap();
    let handle = reply.results.handle.clone();
    assert_eq!(handle.len(), 16);
    let results = |major, token: &[u8]| [opaque(&handle), words(&[major, 0, WINDOW]), opaque(token)].concat();
    assert_eq!(reply.stream().unwrap().flatten().0, results(1, &token(1, SERVER)));
    assert_eq!(reply.verifier, OpaqueAuth { flavor: 0, body: Bytes::new() });

    let Progress::Call(_, second) = creating.reply(&reply.verifier, reply.results, bed.now).unwrap() else {
        panic!()
    };
    let credential = [words(&[1, 2, 0, 1]), opaque(&handle)].concat();
    assert_eq!((second.credential.flavor, &second.credential.body[..]), (6, &credential[..]));
    assert_eq!(xdr(&InitArguments { token: second.token.clone() }), opaque(&token(2, USER)));
    let reply = bed.create(origin(1), &second).unwrap();
    assert_eq!(reply.stream().unwrap().flatten().0, results(0, &token(2, SERVER)));
    let body = bed.keys(USER).mic(&[&WINDOW.to_be_bytes()]).unwrap();
    assert_eq!(reply.verifier, OpaqueAuth { flavor: 6, body });
}

// requirement: rfc2203-3-1, rfc2203-4-1, rfc2203-5-6, rfc2203-5-7, rfc2203-5-9, rfc2203-A-1
#[test]
fn the_numbers_of_the_document() {
    assert_eq!((flavor::RPCSEC_GSS, VERSION, SEQUENCE_END), (6, 1, 0x8000_0000));
    for (stat, number) in [(AuthStat::GssCredProblem, 13), (AuthStat::GssCtxProblem, 14)] {
        let denied = ReplyHeader::denied(7, RejectReason::AuthError(stat));
        assert_eq!(xdr(&denied), words(&[7, 1, 1, 1, number]));
    }
    let procedures =
        [GssProcedure::Data, GssProcedure::Init, GssProcedure::ContinueInit, GssProcedure::Destroy];
    assert_eq!(procedures.map(|procedure| procedure as u32), [0, 1, 2, 3]);
    assert_eq!(SERVICES.map(|service| service as u32), [1, 2, 3]);
    assert_eq!(
        [
            major::COMPLETE,
            major::CONTINUE_NEEDED,
            major::BAD_MIC,
            major::NO_CRED,
            major::NO_CONTEXT,
            major::DEFECTIVE_TOKEN,
            major::CREDENTIALS_EXPIRED,
            major::CONTEXT_EXPIRED,
            major::FAILURE,
        ],
        [0, 1, 6 << 16, 7 << 16, 8 << 16, 9 << 16, 11 << 16, 12 << 16, 13 << 16]
    );
}

/// Arguments or results with an item that a binding lets travel in a chunk.
fn eligible() -> Stream {
    let mut encoder = Encoder::new();
    encoder.u32(1);
    encoder.payload(Bytes::from(vec![7; 5001]), 10_000, true).unwrap();
    encoder.finish()
}

fn is_eligible(stream: &Stream) -> bool {
    stream.pieces().iter().any(|piece| matches!(piece, Piece::Payload { ddp_eligible: true, .. }))
}

/// RFC 8166 §8.2.2.2 and §8.2.2.3: authentication leaves data as it is. With the other services no item may travel in a chunk.
// requirement: rfc8166-8.2.2.2-1, rfc8166-8.2.2.3-1, v2-07-11.2.2.3-1
#[test]
fn nothing_that_a_service_protects_is_ddp_eligible() {
    let bed = Bed::new();
    let client = bed.client();
    for service in SERVICES {
        let mut call = header(1);
        let sealed = client.seal(service, &mut call, eligible()).unwrap();
        assert_eq!(sealed.arguments == eligible(), service == Service::None);
        assert_eq!(is_eligible(&sealed.arguments), service == Service::None);
        let opened = bed.request(&call, &sealed.arguments).unwrap().unwrap();
        let results = opened.sealer.seal(eligible()).unwrap();
        assert_eq!(results == eligible(), service == Service::None);
        assert_eq!(is_eligible(&results), service == Service::None);
    }
}

/// Returns a decoder of arguments of which the longest item came in a Read chunk.
fn reduced(arguments: &Stream) -> Decoder {
    let (mut base, mut chunks, mut position) = (Vec::new(), Vec::new(), 0_usize);
    for piece in arguments.pieces() {
        match piece {
            Piece::Payload { data, .. } => {
                chunks.push(ReadChunk {
                    position: u32::try_from(position).unwrap(),
                    data: data.clone().into(),
                });
            }
            Piece::Inline(data) => base.extend_from_slice(data),
        }
        position += piece.len();
    }
    assert_eq!(chunks.len(), 1);
    Decoder::with_read_chunks(Bytes::from(base), chunks)
}

// requirement: rfc8166-8.2.2-1, rfc8166-8.2.2.2-1, rfc8166-8.2.2.3-1, v2-07-11.2.2-1, v2-07-11.2.2.3-1
#[test]
fn a_chunk_in_what_a_service_protects_is_a_violation() {
    let bed = Bed::new();
    let client = bed.client();
    for service in SERVICES {
        let mut call = header(1);
        let sealed = client.seal(service, &mut call, eligible()).unwrap();
        let Ok(Received::Request(incoming)) = bed.server.receive(origin(1), &call, bed.now) else { panic!() };
        match (service, incoming.open(reduced(&sealed.arguments))) {
            (Service::None, Ok(Opened { mut arguments, .. })) => {
                assert_eq!(arguments.u32(), Ok(1));
                assert_eq!(arguments.payload(10_000).unwrap(), vec![7; 5001]);
                assert_eq!(arguments.finish(), Ok(()));
            }
            (Service::Integrity | Service::Privacy, Err(OpenError::Garbage { fault, .. })) => {
                assert!(fault.chunk_violation().is_some(), "{fault}");
            }
            (_, opened) => panic!("{service:?}: {opened:?}"),
        }
    }
}

/// RFC 8166 §8.2.2: tokens are part of the payload stream, and no item of it.
// requirement: rfc8166-8.2.2-1, v2-07-11.2.2-1
#[test]
fn tokens_and_proofs_are_not_ddp_eligible() {
    let bed = Bed::new();
    let client = bed.client();
    let token = Bytes::from(vec![1; 5001]);
    let results = InitResults {
        handle: Bytes::from_static(b"name"),
        major: major::COMPLETE,
        minor: 0,
        window: WINDOW,
        token: token.clone(),
    };
    let (call, _) = sealed(&client, Service::Integrity, 1);
    let reply = accepted(&OpaqueAuth { flavor: 6, body: Bytes::from(vec![2; 400]) });
    for stream in [
        encode(&InitArguments { token: token.clone() }),
        encode(&results),
        call.with_arguments(Stream::new()),
        reply.with_results(Stream::new()),
    ] {
        assert!(!is_eligible(&stream.unwrap()));
    }
    // A token that comes in a chunk.
    let (_, init) = Creating::begin(&bed.user(USER), SERVER).unwrap();
    let call = CallHeader { credential: init.credential, ..header(0) };
    let Ok(Received::Create(creation)) = bed.server.receive(origin(1), &call, bed.now) else { panic!() };
    let chunk = ReadChunk { position: 4, data: token.into() };
    let error = creation.run(Decoder::with_read_chunks(Bytes::from(words(&[5001])), vec![chunk]));
    assert!(error.unwrap_err().is_chunk_violation());
}

/// A verifier is as long as the mechanism makes it, up to 400 bytes, in calls and replies.
// requirement: rfc2203-5.3.3.2-2
#[test]
fn a_reply_without_results_has_the_bytes_of_the_document() {
    let verifier = OpaqueAuth { flavor: 6, body: Bytes::from_static(b"sum") };
    let reply = ReplyHeader::accepted(7, AcceptStat::ProgramMismatch { low: 2, high: 4 });
    let reply = reply.with_verifier(verifier.clone());
    assert!(matches!(&reply.body, ReplyBody::Accepted { verifier: set, .. } if *set == verifier));
    assert_eq!(xdr(&reply), [words(&[7, 1, 0, 6]), opaque(b"sum"), words(&[2, 2, 4])].concat());
}
