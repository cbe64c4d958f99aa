//! RoCE between two machines: the use of its operations by our programs, and by Linux at the other end.

// Helpers of tests fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::BTreeSet;

use rpcrdma_capture::exchange::{Exchange, Exchanges};
use rpcrdma_capture::linux;
use rpcrdma_capture::message::{Event, Message, events};
use rpcrdma_capture::roce::management::{Content, Management};
use rpcrdma_capture::roce::{Operation, Packet};
use rpcrdma_capture::session::{Kind, Session};
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::rdmap::Opcode;
use rpcrdma_nfs::wire::{NFS_PROGRAM, NfsProcedure};
use rpcrdma_oncrpc::CallHeader;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::Segment;
use rpcrdma_xdr::Decoder;

/// The NFS client of Linux on our server.
const KERNEL_CLIENT: &str = "roce-kclient";
/// Our client on our server.
const OURS: &str = "roce-rpcrdma";
/// Our client on the NFS server of Linux.
const KERNEL_SERVER: &str = "roce-knfsd";

/// Length of the file that is too long for a Send, in bytes.
const LONG: usize = 10_000;

fn sessions(name: &str) -> Vec<Session> {
    let sessions = linux::sessions(name).unwrap();
    assert!(!sessions.is_empty(), "{name}");
    sessions
}

fn exchanges(name: &str) -> Vec<Exchange> {
    sessions(name).iter().flat_map(|session| Exchanges::of(session).all).collect()
}

/// Returns the procedure of a call of NFS.
fn procedure(exchange: &Exchange) -> Option<NfsProcedure> {
    let header = CallHeader::read(&mut Decoder::new(exchange.call.message.clone())).unwrap();
    (header.program == NFS_PROGRAM).then(|| NfsProcedure::from_number(header.procedure).unwrap())
}

fn handles(exchange: &Exchange) -> Vec<u32> {
    exchange.call.lists().unwrap().handles().collect()
}

/// Every session is complete: it has its set-up, no packet with a wrong CRC, no gap, and no operation out of order.
#[test]
fn all_packets_are_understood() {
    for (name, _) in linux::ROCE {
        for session in sessions(name) {
            assert!(session.items.iter().all(|item| item.kind == Kind::Packet), "{name}");
            let exchanges = Exchanges::of(&session);
            assert!(
                exchanges.odd.is_empty() && exchanges.all.iter().all(|call| call.reply.is_some()),
                "{name}"
            );
            assert_eq!(exchanges.gaps, 0, "{name}");
            for event in events(&session) {
                assert!(!matches!(event, Event::Odd(..) | Event::Refusal(..)), "{name}: {event:?}");
            }
            let kinds: Vec<_> = session
                .packets()
                .filter_map(|item| Management::decode(&item.bytes))
                .map(|message| std::mem::discriminant(&message.content))
                .collect();
            assert!(kinds.len() >= 3, "{name}: REQ, REP and RTU");
        }
    }
}

/// If the recorder had lost a packet, all calls but one would still have their replies, with the right data.
#[test]
fn a_gap_concerns_one_call() {
    for (name, _) in linux::ROCE {
        for session in sessions(name) {
            let whole = Exchanges::of(&session).all;
            for at in 0..session.items.len() {
                let mut session = session.clone();
                session.items.remove(at);
                let mut complete = 0;
                for exchange in Exchanges::of(&session).all {
                    let xid = exchange.call.header.xid;
                    let original = whole.iter().find(|whole| whole.call.header.xid == xid).unwrap();
                    complete += usize::from(exchange == *original);
                    for (moved, original) in exchange.call.moved.iter().zip(&original.call.moved) {
                        assert!(!moved.genuine || moved == original, "{name} without {at}");
                    }
                }
                assert!(complete + 1 >= whole.len(), "{name} without {at}: {complete} of {}", whole.len());
            }
        }
    }
}

/// RFC 8797: the private data of both sides. The service of the request names the port of NFS over RDMA.
#[test]
fn private_data_of_the_set_up() {
    for (name, _) in linux::ROCE {
        for session in sessions(name) {
            let messages = session.packets().filter_map(|item| Management::decode(&item.bytes));
            let (mut request, mut reply) = (None, None);
            for message in messages {
                match message.content {
                    Content::Request(content) => request = Some(content),
                    Content::Reply(content) => reply = Some(content),
                    _ => {}
                }
            }
            let (request, reply) = (request.unwrap(), reply.unwrap());
            assert_eq!(request.service, 0x0106_0000 | 20049);
            assert_eq!(request.mtu, 1024);
            let announced = |remote_invalidation| {
                Some(PrivateData { remote_invalidation, send_size: 4096, receive_size: 4096 })
            };
            assert_eq!(PrivateData::find(&request.private_data), announced(true), "{name}");
            // The server of Linux makes no calls with chunks, so it has no key that a client could invalidate.
            assert_eq!(PrivateData::find(&reply.private_data), announced(*name != KERNEL_SERVER), "{name}");
            // A request that no Receive waits for is repeated to our side only: Linux relies on its credits.
            let repeats = |ours: bool| if ours { 6 } else { 0 };
            assert_eq!(request.not_ready_retries, repeats(*name != KERNEL_CLIENT), "{name}");
            assert_eq!(reply.not_ready_retries, repeats(*name != KERNEL_SERVER), "{name}");
            // RFC 8166 has no Reads by the client: each side accepts as many as the other side asks for.
            assert!(reply.responder_resources <= request.initiator_depth, "{name}");
            assert!((1..=request.responder_resources).contains(&reply.initiator_depth), "{name}");
        }
    }
}

/// A server invalidates a key of the call: our server one of them, that of Linux only if there is exactly one.
#[test]
fn a_reply_invalidates_a_key_of_its_call() {
    for (name, expected) in [(KERNEL_CLIENT, 5), (OURS, 8), (KERNEL_SERVER, 3)] {
        let mut seen = 0;
        for exchange in exchanges(name) {
            let handles = handles(&exchange);
            let reply = exchange.reply.unwrap();
            match reply.opcode {
                Opcode::SendInvalidate => {
                    assert!(handles.contains(&reply.invalidate.unwrap()), "{name}");
                    seen += 1;
                }
                other => {
                    assert_eq!(other, Opcode::Send, "{name}");
                    assert!(handles.len() != 1, "{name}: {handles:?}");
                }
            }
        }
        assert_eq!(seen, expected, "{name}");
    }
}

/// The chunk of an argument that is too long is read by the server, over the whole of its range.
#[test]
fn a_long_write_is_read_by_the_server() {
    for (name, _) in linux::ROCE {
        let requests: Vec<_> = sessions(name)
            .iter()
            .flat_map(events)
            .filter_map(|event| match event {
                Event::ReadRequest(Side::Server, request) => Some(request),
                Event::ReadRequest(Side::Client, _) => panic!("{name}: a Read by the client"),
                _ => None,
            })
            .collect();
        let mut long = 0;
        for exchange in exchanges(name) {
            let read = &exchange.call.lists().unwrap().read;
            if read.is_empty() {
                continue;
            }
            assert_eq!(procedure(&exchange), Some(NfsProcedure::Write), "{name}");
            for Segment { handle, length, offset } in read.iter().map(|entry| entry.segment) {
                let of_it: Vec<_> = requests.iter().filter(|request| request.source_stag == handle).collect();
                let total: u32 = of_it.iter().map(|request| request.size).sum();
                assert_eq!(total, length, "{name}");
                assert_eq!(of_it.iter().map(|request| request.source_offset).min(), Some(offset), "{name}");
            }
            let [moved] = &exchange.call.moved[..] else { panic!("{name}: one chunk") };
            assert_eq!(moved.data.len(), LONG, "{name}");
            long += 1;
        }
        assert_eq!(long, 1, "{name}");
    }
}

/// The data of READ is written to the client's memory, and the reply leaves after it.
#[test]
fn a_read_is_written_by_the_server_before_its_reply() {
    for (name, _) in linux::ROCE {
        let mut long = 0;
        for session in sessions(name) {
            let events = events(&session);
            for exchange in Exchanges::of(&session).all {
                let returned = exchange.reply.as_ref().unwrap().lists().unwrap();
                let Some(segment) = returned.write.first().and_then(|chunk| chunk.segments.first()) else {
                    continue;
                };
                let (handle, xid) = (segment.handle, exchange.call.header.xid.to_be_bytes());
                let reply = |event: &Event| matches!(event, Event::Message(Message { from: Side::Server, bytes, .. }) if bytes[..4] == xid);
                let writes = |event: &Event| matches!(event, Event::Write(write) if write.stag == handle);
                let replied = events.iter().position(reply).unwrap();
                let last = events[..replied].iter().rposition(writes);
                if let Some(last) = last {
                    assert!(matches!(&events[last], Event::Write(write) if write.last), "{name}");
                }
                let moved: usize = exchange.reply.unwrap().moved.iter().map(|moved| moved.data.len()).sum();
                long += usize::from(moved == LONG);
            }
        }
        assert_eq!(long, 1, "{name}");
    }
}

/// Each segment of our client has a key of its own, and none is used again while its call is outstanding.
#[test]
fn our_client_uses_no_key_twice_at_a_time() {
    for (name, expected) in [(OURS, 8), (KERNEL_SERVER, 3)] {
        let mut keys = 0;
        for session in sessions(name) {
            let all = Exchanges::of(&session).all;
            let mut open = BTreeSet::new();
            for event in events(&session) {
                let Event::Message(message) = event else { continue };
                let xid = u32::from_be_bytes(message.bytes[..4].try_into().unwrap());
                let exchange = all.iter().find(|exchange| exchange.call.header.xid == xid).unwrap();
                for handle in handles(exchange) {
                    if message.from == Side::Client {
                        assert!(open.insert(handle), "{name}: {handle:#x}");
                        keys += 1;
                    } else {
                        assert!(open.remove(&handle), "{name}: {handle:#x}");
                    }
                }
            }
            assert!(open.is_empty(), "{name}");
        }
        assert_eq!(keys, expected, "{name}");
    }
}

/// No packet has more payload than the request for the connection states, and all but the last are full.
#[test]
fn packets_are_full() {
    for (name, _) in linux::ROCE {
        for session in sessions(name) {
            for item in session.packets() {
                let packet = Packet::decode(&item.bytes).unwrap();
                let length = packet.payload.len();
                match packet.operation {
                    Operation::Send | Operation::Write | Operation::ReadResponse if !packet.last => {
                        assert_eq!(length, 1024, "{name}");
                    }
                    _ => assert!(length <= 1024, "{name}"),
                }
            }
        }
    }
}
