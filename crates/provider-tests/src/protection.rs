//! Protection of memory: memory that a peer may not touch is not changed, and the connection ends.
//!
//! The cases accept any completion of a refused Write at its initiator: a fabric without acknowledgements reports
//! success before the peer has checked the key. A Read that was refused cannot succeed.

use bytes::Bytes;
use rpcrdma_verbs::{Access, Buffer, Key, KeyScope, RemoteSegment, SendRequest, WindowMemory, WorkRequest};

use crate::harness::{Duo, bytes, connect, pattern};
use crate::{Difference, Fixture};

/// Length of the windows here, in bytes: one segment on every fabric, so that a message is refused as a whole.
const LEN: u32 = 64;
const LENGTH: usize = 64;

/// Posts a Write, and expects a refusal and an untouched window of B.
async fn expect_write_refused(mut duo: Duo, window: Key, target: RemoteSegment) {
    duo.a.write(pattern(usize::try_from(target.length).unwrap(), 99), target);
    duo.both_end().await;
    let memory = duo.memory_of_b(window).await;
    assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 1), "the target was touched");
}

/// Posts a Read, and expects a refusal.
async fn expect_read_refused(mut duo: Duo, source: RemoteSegment) {
    let read = duo.a.read(source);
    duo.both_end().await;
    let completion = duo.a.take(read);
    assert!(!completion.status.is_success(), "{completion:?}");
}

/// Returns ranges that are not in the window: one byte too early, too late, too long, and around the end of the address
/// space.
fn outside(window: RemoteSegment) -> Vec<RemoteSegment> {
    vec![
        RemoteSegment { address: window.address.wrapping_sub(1), ..window },
        RemoteSegment { address: window.address.wrapping_sub(1), length: 1, ..window },
        RemoteSegment { address: window.address + 1, ..window },
        RemoteSegment { length: LEN + 1, ..window },
        RemoteSegment { address: window.address + u64::from(LEN), length: 1, ..window },
        RemoteSegment { address: u64::MAX - 3, length: 8, ..window },
        RemoteSegment { address: window.address.wrapping_add(1 << 63), ..window },
        RemoteSegment { address: window.address.wrapping_add(1 << 32), ..window },
    ]
}

/// Checks that a Read or Write of length 0 names no memory, so its key is not checked (RFC 5040 §5.4, RFC 5041 §5.2).
pub async fn zero_length_requests_check_no_key(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let nowhere = RemoteSegment { key: Key(0xdead_beef), address: u64::MAX, length: 0 };
    let write = duo.a.write(Bytes::new(), nowhere);
    let read = duo.a.read(nowhere);
    duo.drive("both", |duo| duo.a.has(write) && duo.a.has(read)).await;
    duo.a.take_success(write);
    assert!(duo.a.take_read(read).is_empty());
    duo.is_alive().await;

    // Segments of length 0 among others cause no message at all.
    let window = duo.b.write_window(vec![0; LENGTH]);
    let source = duo.b.read_window(pattern(LENGTH, 3));
    let gather = vec![Bytes::new(), Bytes::from(pattern(LENGTH, 2)), Bytes::new()];
    let targets = vec![nowhere, window, nowhere];
    let write = duo.a.post(WorkRequest::Write { gather, targets });
    let sink = Buffer::adopt(vec![0; LENGTH]);
    let read = duo.a.post(WorkRequest::Read { sink, sources: vec![nowhere, source, nowhere] });
    duo.drive("both", |duo| duo.a.has(write) && duo.a.has(read)).await;
    assert_eq!(duo.a.take_read(read)[..], pattern(LENGTH, 3));
    duo.is_alive().await;
    let memory = duo.memory_of_b(window.key).await;
    assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 2));
}

/// Checks that an unknown key is refused.
// requirement: rfc8166-8.1-1
pub async fn a_wrong_key_is_refused(fixture: &dyn Fixture) {
    for flip in [1, 0x100, 0x8000_0000] {
        let mut duo = connect(fixture).await;
        let window = duo.b.write_window(pattern(LENGTH, 1));
        duo.is_alive().await;
        let wrong = RemoteSegment { key: Key(window.key.0 ^ flip), ..window };
        expect_write_refused(duo, window.key, wrong).await;

        let mut duo = connect(fixture).await;
        let window = duo.b.read_window(pattern(LENGTH, 1));
        duo.is_alive().await;
        expect_read_refused(duo, RemoteSegment { key: Key(window.key.0 ^ flip), ..window }).await;
    }
}

/// Checks that an RDMA Write over any edge of the window is refused.
// requirement: rfc8166-8.1-1
pub async fn writes_outside_the_range_are_refused(fixture: &dyn Fixture) {
    for case in 0..8 {
        let mut duo = connect(fixture).await;
        let window = duo.b.write_window(pattern(LENGTH, 1));
        duo.is_alive().await;
        let target = outside(window)[case];
        expect_write_refused(duo, window.key, target).await;
    }
}

/// Checks that an RDMA Read over any edge of the window is refused.
// requirement: rfc8166-8.1-1
pub async fn reads_outside_the_range_are_refused(fixture: &dyn Fixture) {
    for case in 0..8 {
        let mut duo = connect(fixture).await;
        let window = duo.b.read_window(pattern(LENGTH, 1));
        duo.is_alive().await;
        let source = outside(window)[case];
        expect_read_refused(duo, source).await;
    }
}

/// Checks that a window for reading cannot be written, nor a window for writing read.
pub async fn the_other_right_is_refused(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let window = duo.b.read_window(pattern(LENGTH, 1));
    duo.is_alive().await;
    expect_write_refused(duo, window.key, window).await;

    let mut duo = connect(fixture).await;
    let window = duo.b.write_window(pattern(LENGTH, 1));
    duo.is_alive().await;
    if fixture.differs(Difference::ReadableWriteWindows) {
        let read = duo.a.read(window);
        duo.a_completes(read).await;
        assert_eq!(duo.a.take_read(read)[..], pattern(LENGTH, 1), "the Read is refused after all");
        return;
    }
    expect_read_refused(duo, window).await;
}

/// Checks that a key is valid on its own connection only, if the provider announces that.
// requirement: rfc8166-8.1-1, experience-8-1
pub async fn the_key_of_another_connection_is_refused(fixture: &dyn Fixture) {
    for access in [Access::RemoteWrite, Access::RemoteRead] {
        let mut owner = connect(fixture).await;
        let mut other = connect(fixture).await;
        if owner.b.queue_pair.capabilities().key_scope != KeyScope::QueuePair {
            return;
        }
        let window = match access {
            Access::RemoteWrite => owner.b.write_window(pattern(LENGTH, 1)),
            Access::RemoteRead => owner.b.read_window(pattern(LENGTH, 1)),
        };
        owner.is_alive().await;
        other.is_alive().await;
        match access {
            Access::RemoteWrite => {
                other.a.write(pattern(LENGTH, 99), window);
                other.both_end().await;
            }
            Access::RemoteRead => expect_read_refused(other, window).await,
        }
        owner.is_alive().await;
        let memory = owner.memory_of_b(window.key).await;
        assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 1));
    }
}

/// Checks that a reservation alone does not open the window.
pub async fn a_reserved_window_is_closed(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let reserved = duo.b.reserve(WindowMemory::Write(Buffer::adopt(pattern(LENGTH, 1))));
    duo.is_alive().await;
    let key = reserved.key;
    if fixture.differs(Difference::OpenReservations) {
        duo.a.write(pattern(LENGTH, 99), reserved);
        duo.is_alive().await;
        let memory = duo.memory_of_b(key).await;
        assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 99), "the window is closed after all");
        return;
    }
    expect_write_refused(duo, key, reserved).await;

    let mut duo = connect(fixture).await;
    let reserved = duo.b.reserve(WindowMemory::Read(pattern(LENGTH, 1).into()));
    duo.is_alive().await;
    expect_read_refused(duo, reserved).await;
}

/// Checks that a key is invalid after `LocalInvalidate` has completed.
pub async fn a_locally_invalidated_window_is_closed(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let window = duo.b.write_window(pattern(LENGTH, 1));
    let memory = duo.memory_of_b(window.key).await;
    duo.a.write(pattern(LENGTH, 99), window);
    duo.both_end().await;
    assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 1));

    let mut duo = connect(fixture).await;
    let window = duo.b.read_window(pattern(LENGTH, 1));
    duo.memory_of_b(window.key).await;
    expect_read_refused(duo, window).await;
}

/// Checks that a key is invalid after a Send with Invalidate.
pub async fn a_remotely_invalidated_window_is_closed(fixture: &dyn Fixture) {
    for access in [Access::RemoteWrite, Access::RemoteRead] {
        let mut duo = connect(fixture).await;
        if !(duo.a.invalidates_remotely() && duo.b.invalidates_remotely()) {
            return;
        }
        let window = match access {
            Access::RemoteWrite => duo.b.write_window(pattern(LENGTH, 1)),
            Access::RemoteRead => duo.b.read_window(pattern(LENGTH, 1)),
        };
        let receive = duo.b.receive(&[8]);
        let send = SendRequest { invalidate: Some(window.key), ..SendRequest::default() };
        duo.a.post(WorkRequest::Send(send));
        duo.b_completes(receive).await;
        match access {
            Access::RemoteWrite => {
                duo.a.write(pattern(LENGTH, 99), window);
                duo.both_end().await;
            }
            Access::RemoteRead => {
                expect_read_refused(duo, window).await;
            }
        }
    }
}

/// Checks that a window over part of a Buffer exposes that part and nothing else.
pub async fn the_bytes_around_a_window_are_safe(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let mut head = Buffer::adopt(pattern(3 * LENGTH, 1));
    let mut middle = head.split_off(LENGTH);
    let tail = middle.split_off(LENGTH);
    let window = duo.b.window(WindowMemory::Write(middle));
    duo.a.write(pattern(LENGTH, 2), window);
    duo.is_alive().await;
    let Some(WindowMemory::Write(middle)) = duo.memory_of_b(window.key).await else {
        panic!("the Buffer comes back");
    };
    head.unsplit(middle).expect("neighbours");
    head.unsplit(tail).expect("neighbours");
    let before = pattern(3 * LENGTH, 1);
    assert_eq!(head[..LENGTH], before[..LENGTH]);
    assert_eq!(head[LENGTH..2 * LENGTH], pattern(LENGTH, 2));
    assert_eq!(head[2 * LENGTH..], before[2 * LENGTH..]);
}

/// Checks that the connection ends if the second target of a Write is bad, and that only the first is touched.
pub async fn a_bad_second_target_ends_the_connection(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let good = duo.b.write_window(vec![0; LENGTH]);
    let other = duo.b.write_window(pattern(LENGTH, 1));
    duo.is_alive().await;
    let bad = RemoteSegment { address: other.address + 1, ..other };
    let gather = vec![Bytes::from(pattern(2 * LENGTH, 2))];
    duo.a.post(WorkRequest::Write { gather, targets: vec![good, bad] });
    duo.both_end().await;
    let memory = duo.memory_of_b(other.key).await;
    assert_eq!(bytes(memory.as_ref()), pattern(LENGTH, 1));
    let memory = duo.memory_of_b(good.key).await;
    assert_eq!(bytes(memory.as_ref()), &pattern(2 * LENGTH, 2)[..LENGTH]);
}
