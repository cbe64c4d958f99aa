//! MPA start-up with Linux (`siw`): its frames decode, and ours meet its requirements.
// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::time::Instant;

use bytes::Bytes;
use rpcrdma_capture::linux;
use rpcrdma_capture::session::{Kind, Session};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::engine::{Engine, Parameters, Timeouts};
use rpcrdma_iwarp::startup::{Initiator, Responder, Settings, StartupError};
use rpcrdma_iwarp::wire::mpa::{Enhanced, FrameView, Revision};
use rpcrdma_proto::{Config, PrivateData};
use rpcrdma_verbs::ProtectionDomain;

/// Maximum IRD and ORD that Linux accepts.
const LINUX_DEPTH: u16 = 128;

fn all_sessions() -> Vec<(&'static str, Session)> {
    let sessions = linux::IWARP.iter().flat_map(|(name, text)| {
        rpcrdma_capture::text::read(text).unwrap().into_iter().map(move |session| (*name, session))
    });
    sessions.collect()
}

/// Returns our settings, with the defaults of the stack above.
fn settings() -> Settings {
    Settings { private_data: Config::default().private_data().encode(), ..Settings::default() }
}

/// Returns whether the kernel is the side that opened the connection.
fn kernel_opens(name: &str) -> bool {
    name != "knfsd-probe"
}

#[test]
fn requests_of_linux_are_answered_as_it_demands() {
    let mut requests = 0;
    for (name, session) in all_sessions().iter().filter(|(name, _)| kernel_opens(name)) {
        let bytes = session.frame(Side::Client).unwrap();
        let (request, behind) = Responder::new().handle(bytes).unwrap().unwrap();
        assert!(behind.is_empty());
        let enhanced = Enhanced { peer_to_peer: None, ird: LINUX_DEPTH, ord: 0 };
        assert_eq!(request.enhanced(), Some(enhanced), "{name}");
        let announced = PrivateData::find(request.private_data()).unwrap();
        let kernel = PrivateData { remote_invalidation: true, send_size: 4096, receive_size: 4096 };
        assert_eq!(announced, kernel, "{name}");
        for settings in
            [settings(), Settings { crc: false, ..settings() }, Settings { ird: 500, ord: 500, ..settings() }]
        {
            let (reply, negotiated) = request.accept(&settings).unwrap();
            let view = FrameView::new(&reply);
            // Linux refuses a Reply of revision 1, or one without S; without the four bytes it would read beyond the
            // Reply.
            assert_eq!(view.revision(), Some(2));
            assert_eq!(view.flags().unwrap() & !0x40, 0x10);
            let stated = view.enhanced().unwrap();
            assert!(view.private_data_len().unwrap() >= 4);
            // Linux has ORD 0, so IRD is 0. An ORD beyond its IRD would be answered "insufficient IRD".
            assert_eq!(stated.ird, 0);
            assert!(stated.ord <= LINUX_DEPTH && stated.ord == settings.ord.min(LINUX_DEPTH));
            assert_eq!(negotiated.ord, stated.ord);
            // C in the Reply switches CRCs on, with any Request.
            assert_eq!(view.flags().unwrap() & 0x40 != 0, settings.crc);
            assert_eq!(negotiated.crc, settings.crc);
            assert!(!negotiated.markers && negotiated.large_fpdu.is_none());
        }
        requests += 1;
    }
    assert_eq!(requests, 15);
}

#[test]
fn replies_of_linux_are_understood() {
    let (mut accepted, mut rejected) = (0, 0);
    for (name, session) in all_sessions() {
        let Some(reply) = session.frame(Side::Server).filter(|_| name != "kclient-probe") else { continue };
        // The Request that the opening side would have sent.
        let request = FrameView::new(session.frame(Side::Client).unwrap());
        let enhanced = request.enhanced();
        let asked = Settings {
            crc: request.flags().unwrap() & 0x40 != 0,
            revision: if request.revision() == Some(1) { Revision::One } else { Revision::Two },
            ird: enhanced.map_or(0, |enhanced| enhanced.ird),
            ord: enhanced.map_or(0, |enhanced| enhanced.ord),
            ..settings()
        };
        let (mut initiator, _) = Initiator::new(asked.clone()).unwrap();
        match initiator.handle(reply) {
            Ok(Some((negotiated, _))) => {
                accepted += 1;
                // The reply states our ORD as IRD, and our IRD, at most 128, as ORD.
                let stated = FrameView::new(reply).enhanced().unwrap();
                assert_eq!((stated.ird, stated.ord), (asked.ord, asked.ird.min(LINUX_DEPTH)), "{name}");
                assert_eq!((negotiated.ord, negotiated.ird), (asked.ord, asked.ird.max(1)), "{name}");
                assert_eq!(negotiated.crc, asked.crc);
                // knfsd does not announce remote invalidation for itself, but uses it for clients that announce it.
                let announced = PrivateData::find(&negotiated.private_data).unwrap();
                let kernel = PrivateData { remote_invalidation: false, send_size: 4096, receive_size: 4096 };
                assert_eq!(announced, kernel, "{name}");
            }
            Err(StartupError::Rejected { private_data, .. }) => {
                rejected += 1;
                // Revision 1, IRD 0 and markers never occur in our Requests.
                let markers = request.flags().unwrap() & 0x80 != 0;
                assert!(asked.revision == Revision::One || asked.ird == 0 || markers, "{name}");
                assert_eq!(private_data, Bytes::new());
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!((accepted, rejected), (33, 3));
}

#[test]
fn our_requests_have_what_linux_insists_on() {
    for settings in [settings(), Settings { ird: 0, ord: 0, crc: false, ..settings() }] {
        let (_, request) = Initiator::new(settings).unwrap();
        let view = FrameView::new(&request);
        assert_eq!((view.revision(), view.flags().unwrap() & !0x40), (Some(2), 0x10));
        assert!(view.enhanced().unwrap().ird >= 1);
        assert!(PrivateData::find(view.private_data().unwrap()).unwrap().remote_invalidation);
    }
}

/// An FPDU directly behind the Request makes Linux close without a Reply.
#[test]
fn nothing_leaves_between_the_request_and_the_reply() {
    let early = |session: &Session| {
        let at = |from| session.items.iter().position(|item| item.from == from && item.kind == Kind::Frame);
        let fpdu = session.items.iter().position(|item| item.from == Side::Client && item.kind == Kind::Fpdu);
        fpdu.is_some_and(|fpdu| at(Side::Server).is_none_or(|reply| fpdu < reply))
    };
    let sessions = linux::sessions("knfsd-probe").unwrap();
    let punished: Vec<_> = sessions.iter().filter(|session| early(session)).collect();
    assert!(!punished.is_empty());
    assert!(punished.iter().all(|session| session.frame(Side::Server).is_none()));
    // Our side has no output but the Request until it receives the Reply: the state machine has no other output.
}

/// `siw` with its parameter `peer_to_peer` asks for the model with an RDMA Write as Ready-To-Receive message. It sends
/// this Write first, and then its other messages.
#[test]
fn the_peer_to_peer_model_of_siw() {
    let mut request = b"MPA ID Req Frame".to_vec();
    request.extend([0x10, 2, 0, 12, 0x80, 0x80, 0xC0, 0x01, 0xF6, 0xAB, 0x0E, 0x18, 1, 1, 3, 3]);
    let (request, _) = Responder::new().handle(&request).unwrap().unwrap();
    let enhanced = request.enhanced().unwrap();
    assert_eq!((enhanced.ird, enhanced.ord), (128, 1));
    let (reply, negotiated) = request.accept(&Settings { crc: false, ..settings() }).unwrap();
    let stated = FrameView::new(&reply).enhanced().unwrap();
    assert_eq!(stated.peer_to_peer, enhanced.peer_to_peer);
    assert!(stated.peer_to_peer.unwrap().write && stated.ird >= 1);
    let parameters = Parameters {
        negotiated,
        domain: ProtectionDomain::new(1 << 20),
        max_send_wr: 16,
        max_recv_wr: 16,
        max_windows: 16,
        strict_crc: false,
        timeouts: Timeouts::default(),
        emss: 1448,
        seed: [0; 32],
    };
    let now = Instant::now();
    let mut engine = Engine::new(parameters, &[], now);
    // A zero-length RDMA Write to STag 1, which names no window.
    let ready = [0, 14, 0xC1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    engine.with_receive_slices(|slices| {
        slices[0][..ready.len()].copy_from_slice(&ready);
        ready.len()
    });
    engine.received(ready.len(), now);
    assert_eq!(engine.counters().segments_received, 1);
    assert!(engine.end().is_none() && !engine.is_ended());
}
