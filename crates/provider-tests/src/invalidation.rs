//! Invalidation of windows: its time, its initiator, and the memory that comes back (I1: memory that is open to the
//! peer belongs to its window).

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, Key, SendRequest, Status, WindowMemory, Work, WorkRequest};

use crate::harness::{Duo, bytes, connect, pattern};
use crate::{Difference, Fixture};

fn send_with_invalidate(duo: &mut Duo, key: Key) {
    let gather = vec![Bytes::from_static(b"take it back")];
    let send = SendRequest { gather, invalidate: Some(key), ..SendRequest::default() };
    duo.a.post(WorkRequest::Send(send));
}

/// Checks that the memory comes with the Receive, after the Writes before the Send.
pub async fn remote_invalidation_gives_memory_back(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    if !(duo.a.invalidates_remotely() && duo.b.invalidates_remotely()) {
        return;
    }
    let mut buffer = duo.b.queue_pair.domain().allocate(30_000, 4096).unwrap();
    buffer.fill(0);
    let address = buffer.as_ptr();
    let write = duo.b.window(WindowMemory::Write(buffer));
    let read = duo.b.read_window(pattern(100, 3));
    for (window, salt) in [(write, 2), (read, 3)] {
        let receive = duo.b.receive(&[64]);
        if window == write {
            duo.a.write(pattern(30_000, salt), write);
        }
        send_with_invalidate(&mut duo, window.key);
        duo.b_completes(receive).await;
        let Work::Receive { buffers, len, invalidated: Some((key, memory)), .. } =
            duo.b.take_success(receive)
        else {
            panic!("the Receive gives the window's memory back");
        };
        assert_eq!((&buffers[0][..len], key), (&b"take it back"[..], window.key));
        assert!(bytes(Some(&memory)) == pattern(memory.len(), salt));
        if let WindowMemory::Write(buffer) = &memory {
            assert_eq!(buffer.as_ptr(), address, "it is the memory that was bound");
        }
        // The memory cannot come back twice.
        assert!(duo.memory_of_b(window.key).await.is_none());
    }
    assert_eq!(duo.b.queue_pair.counters().remote_invalidations, 2);
    duo.is_alive().await;
    assert_eq!(duo.b.queue_pair.domain().usage().in_use, 0);
}

/// Checks that no message is delivered and the connection ends, for a key that is unknown, closed or only reserved.
pub async fn remote_invalidation_of_an_unknown_key_ends_the_connection(fixture: &dyn Fixture) {
    for case in 0..3 {
        let mut duo = connect(fixture).await;
        if !(duo.a.invalidates_remotely() && duo.b.invalidates_remotely())
            || fixture.differs(Difference::DangerousInvalidations)
        {
            return;
        }
        let window = duo.b.write_window(pattern(64, 1));
        let key = match case {
            0 => Key(window.key.0 ^ 1),
            1 => {
                let closed = duo.b.read_window(vec![0; 10]);
                duo.memory_of_b(closed.key).await;
                closed.key
            }
            _ => duo.b.reserve(WindowMemory::Write(Buffer::adopt(vec![0; 64]))).key,
        };
        duo.is_alive().await;
        let receive = duo.b.receive(&[64]);
        send_with_invalidate(&mut duo, key);
        duo.both_end().await;
        assert!(!duo.b.take(receive).status.is_success());
        let memory = duo.memory_of_b(window.key).await;
        assert_eq!(bytes(memory.as_ref()), pattern(64, 1));
    }
}

/// Drives both ends until B has sent this many bytes in all, if B sees that.
async fn response_begins(duo: &mut Duo, bytes: u64) {
    if duo.b.sees_data() {
        duo.drive("the Read Response begins", |duo| duo.b.queue_pair.counters().link_bytes_sent >= bytes)
            .await;
    } else {
        std::future::poll_fn(|cx| {
            duo.a.poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    }
}

/// Checks that `LocalInvalidate` completes only when no Read Response refers to the memory any more. After that, the
/// memory can be changed, and the peer's Read still has the earlier bytes.
pub async fn invalidation_waits_for_half_sent_read_responses(fixture: &dyn Fixture) {
    const LEN: usize = 6 << 20;
    for threshold in [1_u64, 200_000, 3 << 20] {
        let mut duo = connect(fixture).await;
        duo.is_alive().await;
        let expected = pattern(LEN, 7);
        let source = duo.b.read_window(expected.clone());
        let second = duo.b.read_window(pattern(1 << 20, 8));
        let read = duo.a.read(source);
        let read_second = duo.a.read(second);
        let before = duo.b.queue_pair.counters().link_bytes_sent;
        response_begins(&mut duo, before + threshold).await;
        // The second response is queued behind the first at the latest when the first has begun.
        let invalidate = duo.b.invalidate(source.key);
        duo.b_completes(invalidate).await;
        let memory = duo.b.take_memory(invalidate).or_else(|| duo.b.take_flushed(source.key));
        let Some(WindowMemory::Read(bytes)) = memory else {
            panic!("the memory comes back");
        };
        assert!(bytes.is_unique(), "memory that was given back is still referenced");
        let mut memory = bytes.try_into_mut().expect("unique");
        memory.fill(0xff);
        duo.drive("both Reads", |duo| duo.a.has(read) && duo.a.has(read_second)).await;
        if fixture.differs(Difference::InterruptedReads) {
            // Whether a Read is cut off depends on the time.
            let completion = duo.a.take(read);
            let Work::Read { sink } = completion.work else { panic!("a Read") };
            let sees_the_past = !completion.status.is_success() || sink[..] == expected;
            assert!(sees_the_past || fixture.differs(Difference::LateReads), "the Read saw later content");
            continue;
        }
        assert!(duo.a.take_read(read)[..] == expected, "the Read saw memory that had been given back");
        assert!(duo.a.take_read(read_second)[..] == pattern(1 << 20, 8));
        duo.is_alive().await;
    }
}

/// Checks that a reservation gives its memory back, and that an unknown key is no error.
pub async fn invalidation_of_nothing_succeeds(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let reserved = duo.b.reserve(WindowMemory::Write(Buffer::adopt(pattern(100, 1))));
    let memory = duo.memory_of_b(reserved.key).await;
    assert_eq!(bytes(memory.as_ref()), pattern(100, 1));
    for key in [reserved.key, Key(reserved.key.0 ^ 0x0f00)] {
        let id = duo.b.invalidate(key);
        duo.b_completes(id).await;
        let completion = duo.b.take(id);
        assert_eq!(completion.status, Status::Success);
        assert!(matches!(completion.work, Work::LocalInvalidate { memory: None }));
    }
    duo.is_alive().await;
}

/// Checks that the memory of a window comes back exactly once, however the window ends.
pub async fn window_memory_comes_back_once(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let remote = duo.a.invalidates_remotely() && duo.b.invalidates_remotely();
    let mut windows = Vec::new();
    for number in 0..32_usize {
        let mut buffer = duo.b.queue_pair.domain().allocate(1000, 1).unwrap();
        buffer.fill(u8::try_from(number).unwrap());
        windows.push(duo.b.window(WindowMemory::Write(buffer)));
    }
    let mut back = 0;
    for (number, window) in windows.iter().enumerate() {
        if remote && number % 2 == 0 {
            let receive = duo.b.receive(&[64]);
            send_with_invalidate(&mut duo, window.key);
            duo.b_completes(receive).await;
            let Work::Receive { invalidated, .. } = duo.b.take_success(receive) else { panic!() };
            let (key, memory) = invalidated.expect("the window's memory");
            assert_eq!(key, window.key);
            assert!(bytes(Some(&memory)).iter().all(|&byte| usize::from(byte) == number));
            back += 1;
        }
    }
    // All windows are invalidated once more, some of them twice, posted together. Then the connection ends under the
    // last ones.
    let (closed, left) = windows.split_at(24);
    let mut ids = Vec::new();
    for (number, window) in closed.iter().enumerate() {
        ids.push(duo.b.invalidate(window.key));
        if number % 3 == 0 {
            ids.push(duo.b.invalidate(window.key));
        }
    }
    duo.drive("some", |duo| ids.iter().all(|&id| duo.b.has(id))).await;
    for window in left.iter().take(4) {
        ids.push(duo.b.invalidate(window.key));
    }
    duo.b.queue_pair.abort();
    duo.both_end().await;
    back += ids.into_iter().filter(|&id| duo.b.take_memory(id).is_some()).count();
    back += duo.b.flushed.len();
    duo.b.flushed.clear();
    assert_eq!(back, windows.len());
    assert_eq!(duo.b.queue_pair.domain().usage().in_use, 0);
}

/// Checks that a request posted after a bind finds the window open for the peer's answer, also if it is an express
/// Send.
pub async fn a_window_is_open_as_soon_as_its_key_is_known(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let bulk = duo.a.write_window(vec![0; 1 << 20]);
    duo.is_alive().await;
    for express in [false, true] {
        let receive = duo.a.receive(&[16]);
        duo.b.write(pattern(1 << 20, 1), bulk);
        let window = duo.b.window(WindowMemory::Write(Buffer::adopt(vec![0; 500])));
        let message = [window.key.0.to_be_bytes().to_vec(), window.address.to_be_bytes().to_vec()].concat();
        let gather = vec![Bytes::from(message.clone())];
        duo.b.post(WorkRequest::Send(SendRequest { gather, express, ..SendRequest::default() }));
        duo.a_completes(receive).await;
        assert_eq!(duo.a.take_message(receive), message);
        duo.a.write(pattern(500, 2), window);
        duo.is_alive().await;
        let memory = duo.memory_of_b(window.key).await;
        assert_eq!(bytes(memory.as_ref()), pattern(500, 2));
    }
}

/// Checks that an express Send passes bulk but no invalidation: its receiver can rely on the window being closed.
pub async fn express_sends_do_not_pass_invalidations(fixture: &dyn Fixture) {
    for bulk in [0, 1, 4 << 20, 4 << 20, 4 << 20] {
        let mut duo = connect(fixture).await;
        let source = duo.b.read_window(pattern(4 << 20, 1));
        let target = duo.a.write_window(vec![0; 4 << 20]);
        duo.is_alive().await;
        let receive = duo.a.receive(&[16]);
        let before = duo.b.queue_pair.counters().link_bytes_sent;
        let read = duo.a.read(source);
        response_begins(&mut duo, before + 1).await;
        if bulk > 0 {
            duo.b.write(pattern(bulk, 2), target);
        }
        duo.b.invalidate(source.key);
        let gather = vec![Bytes::from_static(b"closed")];
        duo.b.post(WorkRequest::Send(SendRequest { gather, express: true, ..SendRequest::default() }));
        duo.drive("the Send, or the end", |duo| duo.a.has(receive)).await;
        let closed = duo.a.take(receive);
        if closed.status.is_success() {
            let late = duo.a.read(source);
            duo.both_end().await;
            assert!(!duo.a.take(late).status.is_success());
        } else {
            assert!(fixture.differs(Difference::InterruptedReads), "{closed:?}");
        }
        duo.both_end().await;
        // A Read that was under way while the window was open is complete, or lost with the connection.
        let early = duo.a.take(read);
        let Work::Read { sink } = early.work else { panic!("a Read") };
        assert!(!early.status.is_success() || sink[..] == pattern(4 << 20, 1));
    }
}

/// Checks that the memory of a window that the peer invalidates while it reads comes back only when the responses have
/// left.
pub async fn remote_invalidation_waits_for_read_responses(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    if !(duo.a.invalidates_remotely() && duo.b.invalidates_remotely()) {
        return;
    }
    let expected = pattern(4 << 20, 7);
    let source = duo.b.read_window(expected.clone());
    let receive = duo.b.receive(&[64]);
    let reads = [duo.a.read(source), duo.a.read(source)];
    send_with_invalidate(&mut duo, source.key);
    duo.b_completes(receive).await;
    let Work::Receive { invalidated: Some((_, WindowMemory::Read(bytes))), .. } = duo.b.take_success(receive)
    else {
        panic!("the Receive gives the window's memory back");
    };
    assert!(bytes.is_unique(), "memory that was given back is still referenced");
    bytes.try_into_mut().expect("unique").fill(0xff);
    for read in reads {
        duo.a_completes(read).await;
        assert!(duo.a.take_read(read)[..] == expected, "the Read saw memory that had been given back");
    }
    duo.is_alive().await;
}

/// Checks that a window may be closed under an arriving Write: its memory comes back once, and the rest of the Write is
/// refused.
pub async fn a_window_may_close_under_a_write(fixture: &dyn Fixture) {
    const LEN: usize = 4 << 20;
    for threshold in [1, 100_000, 2 << 20] {
        let mut duo = connect(fixture).await;
        let window = duo.b.write_window(vec![0; LEN]);
        duo.is_alive().await;
        let before = duo.b.queue_pair.counters().tagged_bytes_received;
        let write = duo.a.write(pattern(LEN, 1), window);
        if duo.b.sees_data() {
            duo.drive("the Write begins", |duo| {
                duo.b.queue_pair.counters().tagged_bytes_received >= before + threshold
            })
            .await;
        } else {
            std::future::poll_fn(|cx| {
                duo.a.poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
        }
        let all = usize::try_from(duo.b.queue_pair.counters().tagged_bytes_received - before) == Ok(LEN);
        let invalidate = duo.b.invalidate(window.key);
        duo.b_completes(invalidate).await;
        // An adapter may have ended the connection before the invalidation.
        let memory = duo.b.take_memory(invalidate).or_else(|| duo.b.take_flushed(window.key));
        let written = pattern(LEN, 1);
        // The placed bytes are a beginning of the Write.
        let placed =
            bytes(memory.as_ref()).iter().zip(&written).take_while(|(seen, sent)| seen == sent).count();
        assert!(
            bytes(memory.as_ref())[placed..]
                .iter()
                .zip(&written[placed..])
                .all(|(seen, sent)| *seen == 0 || seen == sent)
        );
        duo.a_completes(write).await;
        if all {
            assert_eq!(placed, LEN);
            duo.is_alive().await;
        } else if placed < LEN {
            duo.both_end().await;
        }
        assert!(duo.b.take_flushed(window.key).is_none(), "the memory came back twice");
    }
}

/// Checks that a window takes no new Read while an invalidation waits for a Read Response.
pub async fn a_closing_window_takes_no_new_read(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    duo.is_alive().await;
    let source = duo.b.read_window(pattern(6 << 20, 1));
    let before = duo.b.queue_pair.counters().link_bytes_sent;
    duo.a.read(source);
    response_begins(&mut duo, before + 1).await;
    let invalidate = duo.b.invalidate(source.key);
    // The invalidation is carried out, whether it has completed or not.
    std::future::poll_fn(|cx| {
        duo.b.poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
    let late = duo.a.read(source);
    duo.both_end().await;
    assert!(!duo.a.take(late).status.is_success());
    let back = duo.b.take_memory(invalidate).is_some() || duo.b.take_flushed(source.key).is_some();
    assert!(back, "the memory is lost");
}
