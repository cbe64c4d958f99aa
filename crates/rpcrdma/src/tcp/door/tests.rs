use rpcrdma_xdr::encode;

use super::*;
use crate::tls::tests::certificates::Authority;

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 700);

fn call(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>().into()
}

fn entry(door: &mut Door, words: &[u32]) -> Result<bool, u32> {
    match door.examine(&call(words), PEER) {
        Entry::Pass => Ok(false),
        Entry::Probe => Ok(true),
        Entry::Refuse(Outcome::Reply(reply)) => {
            let mut reply = Decoder::new(reply.flatten().0);
            let header = [(); 5].map(|()| reply.u32().unwrap());
            // XID, REPLY, MSG_DENIED, AUTH_ERROR, auth_stat.
            assert_eq!(header[..4], [7, 1, 1, 1]);
            Err(header[4])
        }
        Entry::Refuse(outcome) => panic!("{outcome:?}"),
    }
}

const PROBE: [u32; 10] = [7, 0, 2, 100_003, 3, 0, 7, 0, 0, 0];
const NULL: [u32; 10] = [7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
const CALL_OF_1: [u32; 10] = [7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0];
const BADCRED: u32 = 1;
const TOOWEAK: u32 = 5;

#[test]
fn what_passes_where_tls_is_offered() {
    let settings = Authority::new().server();
    let mut door = Door::new(settings.clone());
    assert_eq!(entry(&mut door, &PROBE), Ok(true));
    assert_eq!(entry(&mut door, &NULL), Ok(false));
    assert_eq!(entry(&mut door, &CALL_OF_1), Ok(false));
    let mut door = Door::new(settings.only());
    assert_eq!(entry(&mut door, &PROBE), Ok(true));
    assert_eq!(entry(&mut door, &NULL), Ok(false));
    assert_eq!(entry(&mut door, &CALL_OF_1), Err(TOOWEAK));
    door.enter();
    assert_eq!(entry(&mut door, &PROBE), Err(BADCRED));
    assert_eq!(entry(&mut door, &NULL), Ok(false));
    assert_eq!(entry(&mut door, &CALL_OF_1), Ok(false));
}

/// Messages that are no Calls of RPC version 2 are the dispatcher's, which carries none of them out.
#[test]
fn what_is_no_call_passes() {
    let mut door = Door::new(Authority::new().server().only());
    for length in 0..7 {
        assert_eq!(entry(&mut door, &CALL_OF_1[..length]), Ok(false));
    }
    for (at, word) in [(1, 1), (1, 2), (2, 3)] {
        let mut words = CALL_OF_1;
        words[at] = word;
        assert_eq!(entry(&mut door, &words), Ok(false));
    }
    // The dispatcher answers a credential that is too long.
    assert_eq!(entry(&mut door, &[&PROBE[..7], &[401]].concat()), Ok(false));
}

/// Any message with the flavour of a call passes, is a probe or is refused, and only NULL passes where TLS is required.
#[test]
fn no_call_slips_through() {
    let settings = Authority::new().server().only();
    for flavor in 0..9 {
        for procedure in 0..3 {
            for body in [&[0, 0, 0][..], &[4, 1, 0, 0], &[0, 0, 4, 1], &[0, 1, 0]] {
                let words = [&[7, 0, 2, 100_003, 3, procedure, flavor], body].concat();
                let entered = entry(&mut Door::new(settings.clone()), &words);
                let null = procedure == 0 && flavor != flavor::RPCSEC_GSS && flavor != flavor::AUTH_TLS;
                assert_eq!(entered == Ok(false), null, "{words:?}");
                let probe = procedure == 0 && flavor == flavor::AUTH_TLS && body == [0, 0, 0];
                assert_eq!(entered == Ok(true), probe, "{words:?}");
            }
        }
    }
}

#[test]
fn the_offer_keeps_status_and_results() {
    let results = encode(&5_u32).unwrap();
    let reply = ReplyHeader::accepted(7, rpcrdma_oncrpc::AcceptStat::Success).with_results(results).unwrap();
    let (bytes, _) = offer(reply).unwrap().flatten();
    let expected = [&call(&[7, 1, 0, 0, 8])[..], b"STARTTLS", &call(&[0, 5])].concat();
    assert_eq!(bytes, expected);
    let denied = ReplyHeader::denied(7, RejectReason::AuthError(AuthStat::Failed));
    assert!(offer(denied.with_results(Stream::new()).unwrap()).is_none());
}
