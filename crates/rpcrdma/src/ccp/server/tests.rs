use rpcrdma_oncrpc::gss::{GssCredential, GssProcedure, Service};
use rpcrdma_oncrpc::{AcceptStat, CallHeader, OpaqueAuth, ReplyHeader, TransportKind};
use rpcrdma_proto::{Config, Side};
use rpcrdma_xdr::Stream;

use super::rdmaconfig::PROGRAM;
use super::*;

const NFS: u32 = 100_003;

/// A connection that can take Calls of 4096 bytes inline, whose peer sent no private data.
fn configurator() -> Configurator {
    let mut config = Config::default();
    config.receive_size = 4096;
    let config = Arc::new(config);
    let mut capabilities = Capabilities::default();
    capabilities.ird = 7;
    let connection = Connection::new(Side::Server, config, &[], &capabilities, Instant::now());
    Configurator::new(CcpServer::Insecure, &connection, &Config::default(), &capabilities)
}

fn message(program: u32, arguments: &[u32]) -> Decoder {
    let none = OpaqueAuth::none();
    let header =
        CallHeader { xid: 9, program, version: 1, procedure: 1, credential: none.clone(), verifier: none };
    let arguments: Vec<u8> = arguments.iter().flat_map(|word| word.to_be_bytes()).collect();
    let message = header.with_arguments(bytes::Bytes::from(arguments).into()).unwrap();
    Decoder::new(message.flatten().0)
}

fn serve(ccp: &Configurator, message: &Decoder) -> Option<Outcome> {
    let peer =
        Peer { address: None, transport: TransportKind::Rdma, window: None, attached: None, owner: None };
    ccp.serve(peer, message, Instant::now())
}

fn ask(ccp: &Configurator, arguments: &[u32]) -> Result<[u32; 3], AcceptStat> {
    let Some(Outcome::Reply(reply)) = serve(ccp, &message(PROGRAM, arguments)) else { panic!("no reply") };
    let mut reply = Decoder::new(reply.flatten().0);
    let header: ReplyHeader = reply.decode().unwrap();
    if let rpcrdma_oncrpc::ReplyBody::Accepted { status, .. } = header.body
        && status != AcceptStat::Success
    {
        return Err(status);
    }
    let words = [(); 3].map(|()| reply.u32().unwrap());
    reply.finish().unwrap();
    Ok(words)
}

#[test]
fn s6_2_what_is_asked_for_is_bounded_by_what_the_server_takes() {
    for (asked, answered) in
        [(0, 1024), (1023, 1024), (1024, 1024), (2000, 2000), (4096, 4096), (4097, 4096), (u32::MAX, 4096)]
    {
        let ccp = configurator();
        assert_eq!(ask(&ccp, &[asked, u32::MAX, u32::MAX]), Ok([answered, 1, 7]), "{asked}");
        let agreed = ccp.take_agreed().unwrap();
        assert_eq!((agreed.call_size, agreed.reply_size), (size(answered), size(u32::MAX)));
        assert_eq!((agreed.client_reads, agreed.server_reads), (u32::MAX, 7));
        assert_eq!(ccp.take_agreed(), None, "once");
    }
}

#[test]
fn s6_1_a_client_that_takes_less_than_1024_bytes_is_refused() {
    for replies in [0, 1, 1023] {
        let ccp = configurator();
        assert_eq!(ask(&ccp, &[4096, replies, 1]), Err(AcceptStat::GarbageArguments));
        assert_eq!(ccp.take_agreed(), None);
        // The client may ask again.
        assert_eq!(ask(&ccp, &[4096, 1024, 0]), Ok([4096, 1, 7]));
        assert_eq!(ccp.take_agreed().unwrap().client_reads, 0);
    }
}

#[test]
fn arguments_that_do_not_decode_are_refused() {
    let ccp = configurator();
    for arguments in [&[][..], &[4096], &[4096, 4096], &[4096, 4096, 1, 0]] {
        assert_eq!(ask(&ccp, arguments), Err(AcceptStat::GarbageArguments), "{arguments:?}");
    }
    assert_eq!(ccp.take_agreed(), None);
}

#[test]
fn the_same_question_gets_the_same_answer_and_another_none() {
    let ccp = configurator();
    assert_eq!(ask(&ccp, &[2048, 4096, 1]), Ok([2048, 1, 7]));
    assert!(ccp.take_agreed().is_some());
    for other in [[4096, 4096, 1], [2048, 1024, 1], [2048, 4096, 0]] {
        assert_eq!(ask(&ccp, &other), Err(AcceptStat::SystemError), "{other:?}");
    }
    assert_eq!(serve(&ccp, &message(NFS, &[])), None);
    assert_eq!(ask(&ccp, &[2048, 4096, 1]), Ok([2048, 1, 7]));
    assert_eq!(ccp.take_agreed(), None);
}

#[test]
fn s6_1_after_other_calls_it_is_too_late() {
    let ccp = configurator();
    assert_eq!(serve(&ccp, &message(NFS, &[])), None);
    assert_eq!(ask(&ccp, &[2048, 4096, 1]), Err(AcceptStat::SystemError));
    assert_eq!(ccp.take_agreed(), None);
}

#[test]
fn i6_what_is_no_call_of_this_program_is_left_to_others() {
    for len in 0..16 {
        let ccp = configurator();
        let short = message(PROGRAM, &[]).peek(usize::MAX).concat();
        assert_eq!(serve(&ccp, &Decoder::new(short[..len].to_vec().into())), None, "{len}");
    }
}

/// RFC 2203 §5.2.2: calls of any program create contexts. They may come before the question, and no others (RFC 5666 §6.1).
// requirement: rfc5666-11-7
#[test]
fn s6_1_calls_that_create_contexts_come_before_the_question() {
    let gss = |procedure| {
        let handle = bytes::Bytes::new();
        GssCredential { procedure, sequence: 0, service: Service::None, handle }.to_auth().unwrap()
    };
    for (credential, creates) in [
        (gss(GssProcedure::Init), true),
        (gss(GssProcedure::ContinueInit), true),
        (gss(GssProcedure::Data), false),
        (gss(GssProcedure::Destroy), false),
        (OpaqueAuth::none(), false),
    ] {
        let ccp = configurator();
        let header = CallHeader {
            xid: 8,
            program: NFS,
            version: 3,
            procedure: 0,
            credential,
            verifier: OpaqueAuth::none(),
        };
        let call = Decoder::new(header.with_arguments(Stream::new()).unwrap().flatten().0);
        for _ in 0..2 {
            assert_eq!(serve(&ccp, &call), None);
        }
        assert_eq!(ask(&ccp, &[4096, 4096, 1]).is_ok(), creates, "{header:?}");
    }
}
