//! The order of requests (RFC 5040 §5.5).

use bytes::Bytes;
use rpcrdma_verbs::{SendRequest, Work, WorkRequest};

use crate::Fixture;
use crate::harness::{bytes, connect, pattern};

/// Checks that messages fill Receives in the order of posting, whatever their sizes.
pub async fn sends_arrive_in_order(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let sizes = |round: usize| (round * 7919) % 9000;
    let receives: Vec<_> = (0..150).map(|_| duo.b.receive(&[9000])).collect();
    for round in 0..150 {
        duo.a.send(pattern(sizes(round), u8::try_from(round).unwrap()));
    }
    for (round, id) in receives.into_iter().enumerate() {
        duo.b_completes(id).await;
        assert_eq!(duo.b.take_message(id), pattern(sizes(round), u8::try_from(round).unwrap()));
    }
    duo.is_alive().await;
}

/// Checks that when a message has arrived, the Writes posted before it are placed.
pub async fn a_send_follows_the_writes_before_it(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let size = |round: usize| 1 + round * round * 1013;
    let mut expected = Vec::new();
    for round in 0..24_usize {
        let salt = u8::try_from(round).unwrap();
        let window = duo.b.write_window(vec![0; size(round)]);
        let receive = duo.b.receive(&[100]);
        expected.push((window, receive, salt));
    }
    for (round, (window, _, salt)) in expected.iter().enumerate() {
        let data = Bytes::from(pattern(size(round), *salt));
        // Some rounds have two Writes, so that a message follows several.
        let cut = data.len() / 3 * (round % 2);
        let mut second = *window;
        second.address += u64::try_from(cut).unwrap();
        second.length -= u32::try_from(cut).unwrap();
        if cut > 0 {
            duo.a.write(data.slice(..cut), *window);
        }
        duo.a.write(data.slice(cut..), second);
        duo.a.send(vec![*salt; 50]);
    }
    for (round, (window, receive, salt)) in expected.into_iter().enumerate() {
        duo.b_completes(receive).await;
        assert_eq!(duo.b.take_message(receive), [salt; 50]);
        // Closed at once: bytes that are not placed by now never will be.
        let memory = duo.memory_of_b(window.key).await;
        assert!(bytes(memory.as_ref()) == pattern(size(round), salt), "Write {round} was late");
    }
    duo.is_alive().await;
}

/// Checks that Writes to one place are carried out in the order of posting.
pub async fn later_writes_win(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let window = duo.b.write_window(vec![0; 50_000]);
    for salt in 0..10 {
        duo.a.write(pattern(50_000, salt), window);
    }
    duo.is_alive().await;
    let memory = duo.memory_of_b(window.key).await;
    assert!(bytes(memory.as_ref()) == pattern(50_000, 9));
}

/// Checks that express Sends may pass bulk but not each other, and that ordinary Sends still follow their Writes.
pub async fn express_sends_keep_their_order(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let window = duo.b.write_window(vec![0; 4 << 20]);
    let receives: Vec<_> = (0..11).map(|_| duo.b.receive(&[64])).collect();
    duo.a.write(pattern(4 << 20, 1), window);
    duo.a.send(Bytes::from_static(b"ordinary"));
    for number in 0..10_u8 {
        let gather = vec![Bytes::from(vec![number; 20])];
        duo.a.post(WorkRequest::Send(SendRequest { gather, express: true, ..SendRequest::default() }));
    }
    let mut express = Vec::new();
    for id in receives {
        duo.b_completes(id).await;
        let message = duo.b.take_message(id);
        if message == b"ordinary" {
            let memory = duo.memory_of_b(window.key).await;
            assert!(bytes(memory.as_ref()) == pattern(4 << 20, 1));
        } else {
            assert_eq!(message.len(), 20);
            express.push(message[0]);
        }
    }
    assert_eq!(express, (0..10).collect::<Vec<_>>());
    duo.is_alive().await;
}

/// Checks that no Send passes an earlier express Send. To keep two Sends in order, a user posts the second as an
/// ordinary one.
pub async fn i3_no_send_passes_an_earlier_express_one(fixture: &dyn Fixture) {
    // Some are longer than a segment, so that a Send has begun when others are posted.
    let size = |number: u8| if number.is_multiple_of(3) { 5000 } else { 20 };
    let mut duo = connect(fixture).await;
    let receives: Vec<_> = (0..40).map(|_| duo.b.receive(&[5000])).collect();
    // Five express Sends and five others, in turns.
    let express = |number: u8| (number / 5).is_multiple_of(2);
    for number in 0..40 {
        let gather = vec![Bytes::from(vec![number; size(number)])];
        let express = express(number);
        duo.a.post(WorkRequest::Send(SendRequest { gather, express, ..SendRequest::default() }));
    }
    let mut arrived = Vec::new();
    for id in receives {
        duo.b_completes(id).await;
        let message = duo.b.take_message(id);
        arrived.push(message[0]);
        assert_eq!(message, vec![message[0]; size(message[0])]);
    }
    for (place, number) in arrived.iter().enumerate() {
        let before = &arrived[..place];
        let passed = (0..*number).find(|earlier| express(*earlier) && !before.contains(earlier));
        assert_eq!(passed, None, "passed by {number}: {arrived:?}");
    }
    duo.is_alive().await;
}

/// Checks that all arrive when Read Responses may pass later Sends of their sender, and Sends may pass unfinished
/// Reads.
pub async fn reads_and_sends_do_not_wait_for_each_other(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let source = duo.b.read_window(pattern(3 << 20, 5));
    let at_b: Vec<_> = (0..10).map(|_| duo.b.receive(&[40_000])).collect();
    let at_a: Vec<_> = (0..10).map(|_| duo.a.receive(&[40_000])).collect();
    let read = duo.a.read(source);
    for salt in 0..10 {
        duo.a.send(pattern(40_000, salt));
        duo.b.send(pattern(30_000, salt));
    }
    for (salt, (at_a, at_b)) in at_a.into_iter().zip(at_b).enumerate() {
        let salt = u8::try_from(salt).unwrap();
        duo.drive("messages both ways", |duo| duo.a.has(at_a) && duo.b.has(at_b)).await;
        assert_eq!(duo.b.take_message(at_b), pattern(40_000, salt));
        assert_eq!(duo.a.take_message(at_a), pattern(30_000, salt));
    }
    duo.a_completes(read).await;
    assert!(duo.a.take_read(read)[..] == pattern(3 << 20, 5));
}

/// Checks that Sends that are not express, and Writes, complete in the order of posting. Binds, invalidations and Reads
/// complete when they are done.
pub async fn sends_and_writes_complete_in_order(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let target = duo.b.write_window(vec![0; 100_000]);
    let source = duo.b.read_window(pattern(50_000, 1));
    let mut posted = Vec::new();
    let mut others = Vec::new();
    for round in 0..20_u8 {
        duo.b.receive(&[10_000]);
        posted.push(duo.a.write(pattern(100_000, round), target));
        posted.push(duo.a.send(pattern(10_000, round)));
        others.push(duo.a.read(source));
        let window = duo.a.read_window(vec![round; 10]);
        others.push(duo.a.invalidate(window.key));
    }
    duo.drive("everything", |duo| duo.a.outstanding() == 0).await;
    let completed: Vec<_> = duo
        .a
        .completions
        .iter()
        .filter(|completion| matches!(completion.work, Work::Send | Work::Write))
        .map(|completion| completion.id)
        .collect();
    assert_eq!(completed, posted);
    assert!(others.iter().all(|&id| duo.a.has(id)));
    duo.is_alive().await;
}
