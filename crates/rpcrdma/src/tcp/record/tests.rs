use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

fn pace(stall: Duration) -> Pace {
    Pace { stall, least_rate: 1000 }
}

/// Returns the seconds after which a record that comes at this rate is given up; `None` if all of it came.
async fn lasts(bytes: usize, per_second: usize) -> Option<u64> {
    let (mut near, far) = pair().await;
    let stall = Duration::from_secs(30);
    let mut source = RecordSource::new(ProtectionDomain::new(1 << 20), 1 << 20, pace(stall));
    let header = 0x8000_0000 | u32::try_from(bytes).unwrap();
    near.write_all(&header.to_be_bytes()).await.unwrap();
    let begun = Instant::now();
    for second in 1.. {
        near.write_all(&vec![7; per_second.min(bytes)]).await.unwrap();
        // Bytes that are there are read; the wait for others is a second at most.
        match tokio::time::timeout(Duration::from_secs(1), source.next(&far)).await {
            Ok(Ok(record)) => assert_eq!(record.unwrap().len(), bytes),
            Ok(Err(error)) => {
                assert!(matches!(error, RecordError::ReadStalled { .. }), "{error}");
                return Some((Instant::now() - begun).as_secs());
            }
            Err(_) => {
                assert!(second < 1000);
                continue;
            }
        }
        return None;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn i6_a_record_may_be_slow_but_not_stand_still() {
    // The record takes longer than its time at first, and arrives.
    assert_eq!(lasts(100_000, 2000).await, None);
    // A byte now and then is no progress.
    assert!(matches!(lasts(100_000, 1).await, Some(29..=31)));
    assert!(matches!(lasts(100_000, 0).await, Some(29..=31)));
}

#[tokio::test]
async fn i6_a_record_of_several_fragments_counts_against_the_domain() {
    let (mut near, far) = pair().await;
    let domain = ProtectionDomain::new(1 << 20);
    let mut source = RecordSource::new(domain.clone(), 1 << 20, pace(Duration::from_secs(30)));
    let send = async {
        for header in [40_000_u32, 0x8000_0000 | 50_000] {
            near.write_all(&header.to_be_bytes()).await.unwrap();
            let length = usize::try_from(header & 0x7fff_ffff).unwrap();
            near.write_all(&vec![7; length]).await.unwrap();
        }
    };
    let ((), record) = tokio::join!(send, source.next(&far));
    let record = record.unwrap().unwrap();
    assert_eq!(record, vec![7; 90_000]);
    assert!(domain.usage().in_use >= 90_000, "{:?}", domain.usage());
    drop(record);
    assert_eq!(domain.usage().in_use, 0);
}

#[tokio::test(start_paused = true)]
async fn i6_a_record_that_begins_behind_another_must_come_in_time_too() {
    let (mut near, far) = pair().await;
    let limit = Duration::from_millis(50);
    let mut source = RecordSource::new(ProtectionDomain::new(1 << 20), 1 << 20, pace(limit));
    // A whole record and the beginning of the next, in one segment.
    near.write_all(&[0x80, 0, 0, 4, 1, 2, 3, 4, 0x80, 0]).await.unwrap();
    assert_eq!(source.next(&far).await.unwrap().unwrap(), [1, 2, 3, 4][..]);
    let stalled = tokio::time::timeout(Duration::from_secs(10), source.next(&far)).await.unwrap();
    assert!(matches!(stalled, Err(RecordError::ReadStalled { .. })), "{stalled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_ours_is_not_held_against_the_peer() {
    let (mut near, far) = pair().await;
    let limit = Duration::from_millis(100);
    let mut source = RecordSource::new(ProtectionDomain::new(1 << 20), 1 << 20, pace(limit));
    near.write_all(&[0x80, 0, 0, 4, 1]).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(20), source.next(&far)).await;
    assert!(early.is_err());
    tokio::time::sleep(limit).await;
    source.pause();
    let rest = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        near.write_all(&[2, 3, 4]).await.unwrap();
    };
    let ((), record) = tokio::join!(rest, source.next(&far));
    assert_eq!(record.unwrap().unwrap(), [1, 2, 3, 4][..]);
}

/// Reserves all memory of a domain, in pieces of 4 KiB.
fn hold(domain: &ProtectionDomain) -> Vec<Reserved> {
    std::iter::from_fn(|| domain.reserve(4096).ok()).collect()
}

/// A paused reader waits for nothing: neither its place in line nor memory that it was offered keeps others waiting.
#[tokio::test(start_paused = true)]
async fn i6_a_paused_reader_leaves_the_room_it_waited_for_to_others() {
    for offered_before in [true, false] {
        let domain = ProtectionDomain::new(1 << 16);
        let mut held = hold(&domain);
        let [mut first, mut second] = std::array::from_fn(|_| {
            RecordSource::new(domain.clone(), 1 << 20, pace(Duration::from_secs(30)))
        });
        let record = [&[0x80, 0, 0, 4][..], &[1, 2, 3, 4]].concat();
        let ((mut near, far), (mut other_near, other_far)) = (pair().await, pair().await);
        near.write_all(&record).await.unwrap();
        other_near.write_all(&record).await.unwrap();
        let waits = tokio::time::timeout(Duration::from_millis(10), first.next_with_room(&far)).await;
        assert!(waits.is_err(), "there is no memory");
        let read = tokio::spawn(async move {
            second.next_with_room(&other_far).await.map(|record| record.map(|(record, _)| record))
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        if !offered_before {
            first.pause();
        }
        // As much as one record takes: a read-ahead block, its bytes, and the reservation for the call.
        held.truncate(held.len() - 6);
        if offered_before {
            first.pause();
        }
        let read = tokio::time::timeout(Duration::from_secs(1), read).await;
        let record = read.expect("the room is for the second").unwrap().unwrap().unwrap();
        assert_eq!(record, [1, 2, 3, 4][..]);
    }
}

/// Records and read-ahead blocks fill the share. Complete records need no more memory, so their calls begin and end.
#[tokio::test(start_paused = true)]
async fn i6_complete_records_do_not_wait_for_what_others_hold() {
    const RECORDS: usize = 4;
    const BLOCKS: usize = 2;
    let domain = ProtectionDomain::new((RECORDS + BLOCKS) * READ_AHEAD);
    let length = 10_000;
    let bytes = |length: usize| {
        let header = FragmentHeader { length, last: true }.encode();
        [&header[..], &vec![7; length]].concat()
    };
    let mut peers = Vec::new();
    let mut readers = Vec::new();
    // Short records begin and stay in their read-ahead blocks, then long ones begin.
    for (bytes, begin) in std::iter::repeat_n((bytes(400), 2), BLOCKS)
        .chain(std::iter::repeat_n((bytes(length), 1000), RECORDS))
    {
        let (mut near, far) = pair().await;
        near.write_all(&bytes[..begin]).await.unwrap();
        let mut source = RecordSource::new(domain.clone(), 1 << 20, pace(Duration::from_secs(30)));
        let begun = tokio::time::timeout(Duration::from_millis(10), source.next_with_room(&far));
        assert!(begun.await.is_err(), "it is not complete");
        peers.push((near, bytes, begin));
        readers.push((source, far));
    }
    assert!(domain.usage().in_use + READ_AHEAD > domain.usage().limit, "{:?}", domain.usage());
    for (near, bytes, begin) in &mut peers {
        near.write_all(&bytes[*begin..]).await.unwrap();
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (mut source, far) in readers {
        tasks.spawn(async move {
            let begun = Instant::now();
            let read = source.next_with_room(&far).await.map(|record| record.map(|(record, _)| record.len()));
            let took = begun.elapsed();
            // The connection goes on, without memory.
            let _idle = tokio::time::timeout(Duration::from_secs(60), source.next_with_room(&far)).await;
            (read, took)
        });
    }
    while let Some(read) = tasks.join_next().await {
        let (read, took) = read.unwrap();
        assert!(matches!(read, Ok(Some(400 | 10_000))), "{read:?}");
        assert!(took < Duration::from_secs(1), "no timer was needed: {took:?}");
    }
    drop(peers);
}

fn message(length: usize) -> Stream {
    Stream::from(Bytes::from(vec![0x77; length]))
}

/// Returns the bytes that a sink sends for replies of these lengths.
fn expected(lengths: &[usize]) -> Vec<u8> {
    let record = |&length: &usize| {
        let header = FragmentHeader { length, last: true }.encode();
        [&header[..], &vec![0x77; length]].concat()
    };
    lengths.iter().flat_map(record).collect()
}

fn room(domain: &ProtectionDomain) -> Reserved {
    domain.reserve(CALL_ROOM).unwrap()
}

#[tokio::test]
async fn i6_queued_replies_count_for_what_they_cost() {
    let domain = ProtectionDomain::new(1 << 20);
    let mut sink = RecordSink::new(pace(Duration::from_secs(30)));
    let lengths = [28, 28, 2044, 28, 100_000, 28, 2048, 2052, 28].repeat(3);
    for length in &lengths {
        let room = room(&domain);
        sink.push_reply(&message(*length), room, &domain);
    }
    // The program accounts for long pieces.
    let long: usize = lengths.iter().filter(|length| **length > SHORT_PIECE).sum();
    let least = sink.queued() - long;
    assert!(domain.usage().in_use >= least, "{} of {least}", domain.usage().in_use);
    assert!(!sink.is_overdrawn());
    let (near, mut far) = pair().await;
    let read = async {
        let mut all = vec![0; expected(&lengths).len()];
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut all).await.unwrap();
        assert!(all == expected(&lengths));
    };
    let (flushed, ()) = tokio::join!(sink.flush(&near), read);
    flushed.unwrap();
    assert_eq!((sink.queued(), domain.usage().in_use), (0, 0));
}

#[test]
fn i6_many_small_replies_cost_hardly_more_than_their_bytes() {
    let domain = ProtectionDomain::new(4 << 20);
    let mut sink = RecordSink::new(pace(Duration::from_secs(30)));
    for _ in 0..10_000 {
        let room = room(&domain);
        sink.push_reply(&message(28), room, &domain);
    }
    let (cost, bytes) = (domain.usage().in_use, sink.queued());
    assert!((bytes..bytes + (bytes >> 2)).contains(&cost), "{cost} for {bytes}");
}

#[tokio::test]
async fn i6_a_reply_finds_the_room_of_its_call_and_a_longer_one_stops_the_next_call() {
    let domain = ProtectionDomain::new(1 << 16);
    let [first, second] = [room(&domain), room(&domain)];
    let rest: Vec<_> = std::iter::from_fn(|| domain.allocate(1024, 1).ok()).collect();
    let mut sink = RecordSink::new(pace(Duration::from_secs(30)));
    sink.push_reply(&message(2048), first, &domain);
    assert!(!sink.is_overdrawn());
    // Its short pieces are longer than the room.
    let both = {
        let mut both = message(2048);
        both.append(message(2048));
        both
    };
    sink.push_reply(&both, second, &domain);
    assert!(sink.is_overdrawn());
    let (near, mut far) = pair().await;
    let mut all = vec![0; expected(&[2048, 4096]).len()];
    let (flushed, read) =
        tokio::join!(sink.flush(&near), tokio::io::AsyncReadExt::read_exact(&mut far, &mut all));
    flushed.unwrap();
    read.unwrap();
    assert!(all == expected(&[2048, 4096]));
    assert!(!sink.is_overdrawn());
    drop(rest);
    assert_eq!(domain.usage().in_use, 0);
}

#[tokio::test]
async fn a_record_is_here_when_all_of_it_is() {
    let (mut near, far) = pair().await;
    let domain = ProtectionDomain::new(1 << 20);
    let mut source = RecordSource::new(domain, 1 << 20, pace(Duration::from_secs(30)));
    let record = [0x80, 0, 0, 4, 1, 2, 3, 4];
    near.write_all(&[&record.repeat(5)[..], &record[..7]].concat()).await.unwrap();
    // As many as a turn has; the first step is a read.
    for more in [true, true, false, true, false] {
        assert_eq!(source.next(&far).await.unwrap().unwrap(), record[4..]);
        assert_eq!(source.has_record(), more);
    }
    near.write_all(&record[7..]).await.unwrap();
    assert_eq!(source.next(&far).await.unwrap().unwrap(), record[4..]);
}
