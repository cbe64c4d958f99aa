//! The Connection Configuration Protocol (RFC 5666 §6).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma::Procedure as _;
use rpcrdma::ccp::rdmaconfig::{ConfRdma, PROGRAM, VERSION};
use rpcrdma::ccp::{CcpServer, ConfigReply, ConfigRequest, Configurator};
use rpcrdma_oncrpc::auth::flavor;
use rpcrdma_oncrpc::gss::{GssCredential, GssProcedure};
use rpcrdma_oncrpc::{CallHeader, OpaqueAuth, Outcome, Peer, ReplyHeader, TransportKind};
use rpcrdma_proto::{Agreement, BASIC_INLINE, Config, Connection, Side};
use rpcrdma_verbs::Capabilities;
use rpcrdma_xdr::{Decoder, encode};

use crate::{split_piece, survives};

/// Returns the message of a call with these arguments.
pub(crate) fn call(procedure: u32, arguments: &[u8]) -> Bytes {
    let header = CallHeader {
        xid: 7,
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: OpaqueAuth::none(),
        verifier: OpaqueAuth::none(),
    };
    let mut message = encode(&header).expect("a header without a body").flatten().0.to_vec();
    message.extend_from_slice(arguments);
    message.into()
}

/// Returns the answer of a reply that is a success.
fn answer(outcome: &Outcome) -> Option<ConfigReply> {
    let Outcome::Reply(reply) = outcome else { return None };
    let mut reply = Decoder::new(reply.flatten().0);
    reply.decode::<ReplyHeader>().expect("a server makes replies").success().ok()?;
    reply.decode_all().ok()
}

/// Questions and answers of CONF_RDMA. Both messages must survive encoding. A server that gets any messages on one
/// connection must answer the first question within its limits, a repeat with that answer, and nothing else. If it requires
/// protection, it must answer no question, since none has any. What a connection makes of any agreement must be within its own limits. The first two bytes are the inline sizes of this
/// side; the pieces behind them are messages, or arguments of CONF_RDMA.
pub fn conf_rdma(data: &[u8]) {
    let _ = (survives::<ConfigRequest>(data), survives::<ConfigReply>(data));
    let Some((&[send, receive], mut data)) = data.split_first_chunk() else { return };
    let size = |units: u8| (usize::from(units) + 1) << 10;
    let mut config = Config::default();
    config.send_size = size(send);
    config.receive_size = size(receive);
    let config = Arc::new(config);
    let (now, capabilities) = (Instant::now(), Capabilities::default());
    let connect = |side, private_data: &[u8]| {
        Connection::new(side, Arc::clone(&config), private_data, &capabilities, now)
    };
    let private_data = split_piece(&mut data).unwrap_or_default();
    let mut connection = connect(Side::Server, private_data);
    let limits = connection.agreeable();
    let configurator = Configurator::new(CcpServer::Insecure, &connection, &config, &capabilities);
    let strict = Configurator::new(CcpServer::Protected, &connection, &config, &capabilities);
    let peer =
        Peer { address: None, transport: TransportKind::Rdma, window: None, attached: None, owner: None };
    let mut agreed: Option<(Bytes, ConfigReply)> = None;
    let mut late = false;
    while let Some(piece) = split_piece(&mut data) {
        let message = match piece.split_first() {
            Some((0, arguments)) => call(ConfRdma::NUMBER, arguments),
            _ => Bytes::copy_from_slice(piece),
        };
        let refused = strict.serve(peer.clone(), &Decoder::new(message.clone()), now);
        assert_eq!((refused.as_ref().and_then(answer), strict.take_agreed()), (None, None), "no protection");
        let Some(outcome) = configurator.serve(peer.clone(), &Decoder::new(message.clone()), now) else {
            late |= agreed.is_none() && !creates_context(&message);
            continue;
        };
        let agreement = configurator.take_agreed();
        let Some(reply) = answer(&outcome) else {
            assert_eq!(agreement, None, "nothing is agreed without an answer");
            continue;
        };
        assert!(!late, "an agreement after other calls");
        let request = question(&message);
        let longest = usize::try_from(reply.max_call_send_size).unwrap();
        assert!((BASIC_INLINE..=limits.receive).contains(&longest));
        assert!(longest <= usize::try_from(request.max_call_send_size).unwrap().max(BASIC_INLINE));
        assert!(request.max_reply_send_size >= 1024, "RFC 5666 §6.1");
        assert_eq!(reply.max_rdma_read, u32::from(capabilities.ird));
        assert!(reply.align.is_power_of_two());
        let arguments = message.slice(message.len() - 12..);
        match &agreed {
            Some(before) => assert_eq!((&arguments, &reply), (&before.0, &before.1)),
            None => {
                let agreement = agreement.expect("the first answer is an agreement");
                connection.agree(agreement).expect("the answer keeps to the basic size");
                agreed = Some((arguments, reply));
            }
        }
    }

    // Any agreement, on either side.
    let agreement = Agreement {
        call_size: usize::from(send) * 16 + private_data.len() * 997,
        reply_size: usize::from(receive) * 16 + private_data.len() * 97,
        client_reads: u32::from(send),
        server_reads: u32::from(receive),
        align: u32::from(send) << (receive % 24),
    };
    for side in [Side::Client, Side::Server] {
        let mut connection = connect(side, private_data);
        let limits = connection.agreeable();
        let (call, reply) = match side {
            Side::Client => (limits.send, limits.receive),
            Side::Server => (limits.receive, limits.send),
        };
        let below = agreement.call_size.min(agreement.reply_size) < BASIC_INLINE;
        assert_eq!(connection.agree(agreement).is_err(), below);
        if let Some(applied) = connection.agreement() {
            assert_eq!(
                (applied.call_size, applied.reply_size),
                (agreement.call_size.min(call), agreement.reply_size.min(reply))
            );
            assert!(applied.align.is_power_of_two());
        }
    }
}

/// Returns whether a message is a call that creates a context of RPCSEC_GSS (RFC 2203 §5.2.2).
fn creates_context(message: &Bytes) -> bool {
    let Ok(CallHeader { credential, .. }) = CallHeader::read(&mut Decoder::new(message.clone())) else {
        return false;
    };
    credential.flavor == flavor::RPCSEC_GSS
        && GssCredential::read(&credential.body).is_ok_and(|credential| {
            matches!(credential.procedure, GssProcedure::Init | GssProcedure::ContinueInit)
        })
}

/// Reads the question of a message that had an answer.
fn question(message: &Bytes) -> ConfigRequest {
    let mut decoder = Decoder::new(message.clone());
    CallHeader::read(&mut decoder).expect("a call that had an answer");
    decoder.decode_all().expect("a question that had an answer")
}
