//! Bytes arrive unchanged, in every size and division.

use bytes::Bytes;
use rpcrdma_verbs::{Buffer, RemoteSegment, WorkRequest};

use crate::Fixture;
use crate::harness::{bytes, connect, connect_with, parameters, pattern};

/// Lengths in bytes: empty, small, around an Ethernet segment, around a page, and large.
const SIZES: [usize; 15] =
    [0, 1, 3, 1407, 1408, 1459, 1460, 1461, 4095, 4096, 4097, 65_535, 65_536, 1 << 20, 4 << 20];

/// Checks Sends of many sizes, each into one Buffer.
pub async fn sends_of_many_sizes(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    for (salt, len) in SIZES.into_iter().enumerate() {
        let salt = u8::try_from(salt).unwrap();
        let receive = duo.b.receive(&[len]);
        duo.a.send(pattern(len, salt));
        duo.b_completes(receive).await;
        assert!(duo.b.take_message(receive) == pattern(len, salt), "{len} bytes");
    }
}

/// Checks Writes of many sizes, each into a window of the same length.
pub async fn writes_of_many_sizes(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    for (salt, len) in SIZES.into_iter().enumerate() {
        let salt = u8::try_from(salt).unwrap();
        let target = duo.b.write_window(vec![0; len]);
        duo.a.write(pattern(len, salt), target);
        duo.is_alive().await;
        let memory = duo.memory_of_b(target.key).await;
        assert!(bytes(memory.as_ref()) == pattern(len, salt), "{len} bytes");
    }
}

/// Checks Reads of many sizes, each of a whole window.
pub async fn reads_of_many_sizes(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    for (salt, len) in SIZES.into_iter().enumerate() {
        let salt = u8::try_from(salt).unwrap();
        let source = duo.b.read_window(pattern(len, salt));
        let read = duo.a.read(source);
        duo.a_completes(read).await;
        assert!(duo.a.take_read(read)[..] == pattern(len, salt), "{len} bytes");
        duo.memory_of_b(source.key).await;
    }
}

/// Checks a Write of several pieces over several windows and parts of windows, of which the last target is not filled.
pub async fn writes_fill_several_targets(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let windows = [5_000, 1, 70_000, 300].map(|len| duo.b.write_window(vec![0; len]));
    // The second half of the third window, in two targets.
    let [first, second, third, fourth] = windows;
    let middle = RemoteSegment { address: third.address + 100, length: 33_333, ..third };
    let end = RemoteSegment { address: third.address + 100 + 33_333, length: 20_000, ..third };
    let data = Bytes::from(pattern(5_000 + 1 + 33_333 + 20_000 + 200, 4));
    let mut gather = Vec::new();
    let mut rest = data.clone();
    for len in [1, 4_998, 3, 0, 40_000] {
        gather.push(rest.split_to(len));
    }
    gather.push(rest);
    let targets = vec![first, second, middle, end, fourth];
    let write = duo.a.post(WorkRequest::Write { gather, targets });
    duo.a_completes(write).await;
    duo.is_alive().await;
    let mut expected_third = vec![0; 70_000];
    expected_third[100..100 + 53_333].copy_from_slice(&data[5_001..58_334]);
    let mut expected_fourth = vec![0; 300];
    expected_fourth[..200].copy_from_slice(&data[58_334..]);
    for (window, expected) in windows.into_iter().zip([
        data[..5_000].to_vec(),
        data[5_000..5_001].to_vec(),
        expected_third,
        expected_fourth,
    ]) {
        let memory = duo.memory_of_b(window.key).await;
        assert!(bytes(memory.as_ref()) == expected, "window of {} bytes", window.length);
    }
}

/// Checks that a Read over several windows and parts of windows has one completion, when all data is there.
pub async fn reads_join_several_sources(fixture: &dyn Fixture) {
    let mut duo = connect(fixture).await;
    let contents = [pattern(5_000, 1), pattern(1, 2), pattern(100_000, 3)];
    let [first, second, third] = [0, 1, 2].map(|index: usize| duo.b.read_window(contents[index].clone()));
    let part = RemoteSegment { address: third.address + 50_000, length: 49_999, ..third };
    let sources = vec![first, part, second, first];
    let expected = [&contents[0][..], &contents[2][50_000..99_999], &contents[1], &contents[0]].concat();
    let read = duo.a.post(WorkRequest::Read { sink: Buffer::adopt(vec![0; expected.len()]), sources });
    duo.a_completes(read).await;
    assert!(duo.a.take_read(read)[..] == expected);
}

/// Checks that memory that nobody can write is read by the peer, and sent.
pub async fn constant_memory_can_be_exposed(fixture: &dyn Fixture) {
    static CONSTANT: [u8; 20_000] = [9; 20_000];
    let mut duo = connect(fixture).await;
    let source = duo.b.read_window(Bytes::from_static(&CONSTANT));
    let read = duo.a.read(source);
    duo.a_completes(read).await;
    assert_eq!(duo.a.take_read(read)[..], CONSTANT);
    let memory = duo.memory_of_b(source.key).await;
    assert_eq!(bytes(memory.as_ref()), CONSTANT);
    let receive = duo.b.receive(&[CONSTANT.len()]);
    duo.a.send(Bytes::from_static(&CONSTANT));
    duo.b_completes(receive).await;
    assert_eq!(duo.b.take_message(receive), CONSTANT);
}

/// Checks that both sides can Write, Read and Send as fast as they can.
pub async fn bulk_both_ways_does_not_deadlock(fixture: &dyn Fixture) {
    const LEN: usize = 1 << 20;
    const ROUNDS: u8 = 8;
    let mut duo = connect(fixture).await;
    let (to_a, to_b) = (duo.a.write_window(vec![0; LEN]), duo.b.write_window(vec![0; LEN]));
    let (of_a, of_b) = (duo.a.read_window(pattern(LEN, 100)), duo.b.read_window(pattern(LEN, 200)));
    let mut a_waits = Vec::new();
    let mut b_waits = Vec::new();
    for round in 0..ROUNDS {
        a_waits.extend([duo.a.receive(&[100_000]), duo.a.write(pattern(LEN, round), to_b), duo.a.read(of_b)]);
        b_waits.extend([duo.b.receive(&[100_000]), duo.b.write(pattern(LEN, round), to_a), duo.b.read(of_a)]);
        a_waits.push(duo.a.send(pattern(100_000, round)));
        b_waits.push(duo.b.send(pattern(100_000, round)));
    }
    duo.drive("everything", |duo| {
        a_waits.iter().all(|&id| duo.a.has(id)) && b_waits.iter().all(|&id| duo.b.has(id))
    })
    .await;
    for round in 0..usize::from(ROUNDS) {
        let salt = u8::try_from(round).unwrap();
        assert!(duo.a.take_message(a_waits[4 * round]) == pattern(100_000, salt));
        assert!(duo.b.take_message(b_waits[4 * round]) == pattern(100_000, salt));
        assert!(duo.a.take_read(a_waits[4 * round + 2])[..] == pattern(LEN, 200));
        assert!(duo.b.take_read(b_waits[4 * round + 2])[..] == pattern(LEN, 100));
    }
    duo.is_alive().await;
    let memory = duo.memory_of_b(to_b.key).await;
    assert!(bytes(memory.as_ref()) == pattern(LEN, ROUNDS - 1));
}

/// Checks that nothing is copied on its way to the Buffer, for 1 MiB by RDMA Write and 1 MiB by RDMA Read.
pub async fn placement_copies_nothing(fixture: &dyn Fixture) {
    const LEN: usize = 1 << 20;
    let mut duo = connect(fixture).await;
    let target = duo.b.write_window(vec![0; LEN]);
    duo.is_alive().await;
    let before = duo.b.queue_pair.counters();
    let write = duo.a.write(pattern(LEN, 1), target);
    let bytes_of = |after: u64, before: u64| usize::try_from(after - before).unwrap();
    if duo.b.sees_data() {
        duo.drive("the Write", |duo| {
            let counters = duo.b.queue_pair.counters();
            bytes_of(counters.tagged_bytes_received, before.tagged_bytes_received) >= LEN
        })
        .await;
        let after = duo.b.queue_pair.counters();
        assert_eq!(bytes_of(after.tagged_bytes_received, before.tagged_bytes_received), LEN);
        assert!(bytes_of(after.link_bytes_received, before.link_bytes_received) > LEN);
    } else {
        duo.is_alive().await;
    }
    let after = duo.b.queue_pair.counters();
    if fixture.places_directly() {
        assert_eq!(after.payload_bytes_copied, before.payload_bytes_copied, "a Write was copied");
    }
    let memory = duo.memory_of_b(target.key).await;
    assert!(bytes(memory.as_ref()) == pattern(LEN, 1));
    duo.a_completes(write).await;

    let source = duo.b.read_window(pattern(LEN, 2));
    duo.is_alive().await;
    let before = duo.a.queue_pair.counters();
    let read = duo.a.read(source);
    duo.a_completes(read).await;
    assert!(duo.a.take_read(read)[..] == pattern(LEN, 2));
    let after = duo.a.queue_pair.counters();
    assert_eq!(bytes_of(after.tagged_bytes_received, before.tagged_bytes_received), LEN);
    if fixture.places_directly() {
        assert_eq!(after.payload_bytes_copied, before.payload_bytes_copied, "a Read was copied");
    }
}

/// Checks that a provider holds Reads back when many are posted, some of several sources, and few are allowed at a
/// time.
pub async fn more_reads_than_the_limit(fixture: &dyn Fixture) {
    for (ird, ord) in [(1, 1), (1, 16), (16, 1), (3, 2)] {
        let (mut a, mut b) = (parameters(), parameters());
        (a.ird, a.ord) = (ird, ord);
        (b.ird, b.ord) = (ird, ord);
        let mut duo = connect_with(fixture, a, b).await;
        let window = duo.b.read_window(pattern(100_000, 1));
        let reads: Vec<_> = (0..40_u32)
            .map(|number| {
                let sources: Vec<_> = (0..1 + number % 3)
                    .map(|part| RemoteSegment {
                        address: window.address + u64::from(number * 100 + part * 20_000),
                        length: 2_000 + number,
                        ..window
                    })
                    .collect();
                let len = sources.iter().map(|source| usize::try_from(source.length).unwrap()).sum();
                duo.a.post(WorkRequest::Read { sink: Buffer::adopt(vec![0; len]), sources })
            })
            .collect();
        // A Send behind the Reads, and one before their end, are not held back for ever.
        let receive = duo.b.receive(&[10]);
        duo.a.send(Bytes::from_static(b"behind"));
        duo.drive("all Reads", |duo| reads.iter().all(|&id| duo.a.has(id)) && duo.b.has(receive)).await;
        let content = pattern(100_000, 1);
        for (number, id) in reads.into_iter().enumerate() {
            let sink = duo.a.take_read(id);
            for (part, bytes) in sink.chunks(2_000 + number).enumerate() {
                let start = number * 100 + part * 20_000;
                assert!(*bytes == content[start..start + 2_000 + number], "Read {number}, source {part}");
            }
        }
        duo.is_alive().await;
    }
}

/// Checks that a side never has more Reads outstanding than the peer allows.
pub async fn read_limits_are_negotiated(fixture: &dyn Fixture) {
    for (a_limits, b_limits) in [((16, 16), (4, 2)), ((2, 8), (16, 16)), ((1, 1), (1, 1))] {
        let (mut a, mut b) = (parameters(), parameters());
        (a.ird, a.ord) = a_limits;
        (b.ird, b.ord) = b_limits;
        let duo = connect_with(fixture, a, b).await;
        let (a, b) = (duo.a.queue_pair.capabilities(), duo.b.queue_pair.capabilities());
        assert!(a.ord <= b.ird && a.ord <= a_limits.1, "A: {} of {}", a.ord, b.ird);
        assert!(b.ord <= a.ird && b.ord <= b_limits.1, "B: {} of {}", b.ord, a.ird);
        assert!(a.ord >= 1 && b.ord >= 1);
    }
}
