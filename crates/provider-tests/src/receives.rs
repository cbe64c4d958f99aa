//! Delivery of messages into Receives.

use bytes::Bytes;
use rpcrdma_verbs::{ProtectionDomain, SendRequest, Work, WorkRequest};

use crate::harness::{connect, connect_with, parameters, pattern};
use crate::{Difference, Fixture};

/// Checks that a scatter list is filled from its first byte on, and bytes beyond the message are not touched.
pub async fn scattered_messages_fill_buffers_in_order(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let most = duo.b.queue_pair.capabilities().max_sge;
    let lengths = &[1, 7, 4096, 3, 30_001, 0, 64][..most.min(7)];
    let total: usize = lengths.iter().sum();
    for len in [0, 1, 2, 8, 9, 4103, 4104, 4105, 4107, 20_000, 34_108, total - 1, total] {
        let receive = duo.b.receive(lengths);
        // The message leaves in uneven pieces, some of them empty.
        let message = Bytes::from(pattern(len, 9));
        let cut = len / 3;
        let gather = vec![message.slice(..cut), Bytes::new(), message.slice(cut..)];
        duo.a.post(WorkRequest::Send(SendRequest { gather, ..SendRequest::default() }));
        duo.b_completes(receive).await;
        let Work::Receive { buffers, len: received, .. } = duo.b.take_success(receive) else { panic!() };
        assert_eq!(received, len);
        assert_eq!(buffers.iter().map(|buffer| buffer.len()).collect::<Vec<_>>(), lengths);
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter()).copied().collect();
        assert!(bytes[..len] == message[..]);
        assert!(bytes[len..].iter().all(|&byte| byte == 0x55), "touched beyond the message");
    }
    duo.is_alive().await;
}

/// Checks that pooled Receives deliver like others, and give back nothing when they are flushed.
pub async fn pooled_receives_deliver(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let receives: Vec<_> = (0..100).map(|_| duo.b.receive_pooled(40_000)).collect();
    let sizes = |number: usize| if number == 50 { 0 } else { number * 404 };
    for number in 0..100 {
        duo.a.send(pattern(sizes(number), u8::try_from(number).unwrap()));
    }
    for (number, id) in receives.into_iter().enumerate() {
        duo.b_completes(id).await;
        assert!(duo.b.take_message(id) == pattern(sizes(number), u8::try_from(number).unwrap()));
    }
    let last = duo.b.receive_pooled(40_000);
    duo.a.queue_pair.abort();
    duo.both_end().await;
    let Work::Receive { buffers, .. } = duo.b.take(last).work else { panic!("a Receive") };
    assert!(buffers.is_empty());
    assert_eq!(duo.b.queue_pair.domain().usage().in_use, 0);
}

/// Checks that memory reserved for a Receive is there when the message comes, even if the pool has nothing else (I3).
pub async fn i3_pooled_receives_are_backed(fixture: &dyn Fixture) {
    let mut b = parameters();
    let domain = ProtectionDomain::new(1 << 16);
    b.domain = domain.clone();
    let mut duo = connect_with(fixture, parameters(), b).await;
    let first = duo.b.receive_pooled(1000);
    let second = duo.b.receive_pooled(1000);
    let mut hostages = Vec::new();
    while let Ok(buffer) = domain.allocate(1000, 1) {
        hostages.push(buffer);
    }
    duo.a.send(pattern(1000, 1));
    duo.a.send(pattern(10, 2));
    duo.drive("both messages", |duo| duo.b.has(first) && duo.b.has(second)).await;
    assert_eq!(duo.b.take_message(first), pattern(1000, 1));
    assert_eq!(duo.b.take_message(second), pattern(10, 2));
    drop(hostages);
    duo.is_alive().await;
    assert_eq!(domain.usage().in_use, 0);
}

/// Checks that a message with one byte too many ends the connection, and that nothing of it is delivered.
pub async fn a_message_may_fill_its_receive_but_not_more(fixture: &dyn Fixture) {
    for pooled in [false, true] {
        for capacity in [10, 5000, 70_000] {
            let mut duo = connect(fixture).await;
            for len in [capacity - 1, capacity] {
                let receive = if pooled {
                    duo.b.receive_pooled(capacity)
                } else {
                    duo.b.receive(&[capacity / 2, capacity - capacity / 2])
                };
                duo.a.send(pattern(len, 1));
                duo.b_completes(receive).await;
                assert!(duo.b.take_message(receive) == pattern(len, 1));
            }
            let short = if pooled {
                duo.b.receive_pooled(capacity)
            } else {
                duo.b.receive(&[capacity / 2, capacity - capacity / 2])
            };
            let next = duo.b.receive(&[capacity + 1]);
            duo.a.send(pattern(capacity + 1, 1));
            duo.both_end().await;
            for id in [short, next] {
                let completion = duo.b.take(id);
                assert!(!completion.status.is_success(), "{completion:?}");
                if let (Work::Receive { buffers, .. }, false) = (completion.work, pooled) {
                    assert!(!buffers.is_empty(), "posted Buffers come back");
                }
            }
            assert_eq!(duo.b.queue_pair.domain().usage().in_use, 0);
        }
    }
}

/// Checks that a message without a Receive ends the connection.
pub async fn a_message_without_a_receive_ends_the_connection(fixture: &dyn Fixture) {
    for posted in [0, 3] {
        let mut duo = connect(fixture).await;
        let receives: Vec<_> = (0..posted).map(|_| duo.b.receive(&[10])).collect();
        for _ in 0..=posted {
            duo.a.send(Bytes::from_static(b"x"));
        }
        duo.both_end().await;
        for id in receives {
            assert_eq!(duo.b.take_message(id), b"x");
        }
    }
}

/// Checks that the request for a solicited event reaches its Receive, and no other.
pub async fn the_solicited_flag_arrives(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    for solicited in [false, true, false] {
        let receive = duo.b.receive(&[10]);
        duo.a.post(WorkRequest::Send(SendRequest { solicited, ..SendRequest::default() }));
        duo.b_completes(receive).await;
        let Work::Receive { solicited: seen, len: 0, invalidated: None, .. } = duo.b.take_success(receive)
        else {
            panic!("an empty message");
        };
        assert_eq!(seen, solicited && !fixture.differs(Difference::NoSolicitedFlag));
    }
}
