use super::*;

const SEED: [u8; 32] = [7; 32];

fn table() -> WindowTable {
    WindowTable::new(8, 64, SEED)
}

fn open(table: &mut WindowTable, memory: WindowMemory) -> RemoteSegment {
    let segment = table.reserve(memory).unwrap();
    assert!(table.bind(segment.key));
    segment
}

fn writable(len: usize) -> WindowMemory {
    WindowMemory::Write(Buffer::adopt(vec![0; len]))
}

fn readable(len: usize) -> WindowMemory {
    WindowMemory::Read(Bytes::from(vec![1; len]))
}

// requirement: rfc8166-2.3.2-1, rfc5666-2-1, experience-8-2
// requirement: rfc5040-8.1.1-9
#[test]
fn i7_keys_and_addresses_are_unpredictable_and_never_wrap() {
    let mut table = WindowTable::new(4096, 64, SEED);
    let (mut seen, mut keys) = (HashSet::new(), Vec::new());
    for _ in 0..4096 {
        let segment = table.reserve(readable(3)).unwrap();
        assert!(segment.key.0 > 1 && seen.insert(segment.key.0));
        keys.push(segment.key.0);
        let (_, base) = table.fresh_name(u32::MAX);
        assert!(base.checked_add(u64::from(u32::MAX)).is_some());
    }
    let refused = table.reserve(readable(3)).unwrap_err();
    assert_eq!(refused.kind, WindowErrorKind::Exhausted { limit: 4096 });
    assert_eq!(refused.memory.len(), 3);
    // Spread over the complete range, not counted up.
    let high_bits: HashSet<u32> = seen.iter().map(|key| key >> 24).collect();
    assert!(high_bits.len() > 200);
    // The next key follows from the last one by no step that repeats.
    let steps: HashSet<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 4090);
    // Another seed gives other keys.
    let mut other = WindowTable::new(4096, 64, [!SEED[0]; 32]);
    let common = keys.iter().filter(|key| other.reserve(readable(3)).unwrap().key.0 == **key).count();
    assert!(common < 3);
}

#[test]
fn i7_a_key_that_is_special_used_or_resting_is_not_given_out() {
    let mut table = table();
    let used = open(&mut table, readable(3)).key;
    let rested = open(&mut table, readable(3)).key;
    assert!(matches!(table.close_local(rested, WrId(1)), Closed::Now(Some(_))));
    for key in [0, 1, used.0, rested.0] {
        assert!(!table.is_free(key), "{key}");
    }
    assert!(table.is_free(2) && table.is_free(u32::MAX));
}

#[test]
fn i7_a_key_rests_after_use() {
    let mut table = table();
    let segment = open(&mut table, readable(3));
    assert!(matches!(table.close_local(segment.key, WrId(1)), Closed::Now(Some(_))));
    assert!(table.resting.contains(&segment.key.0));
    for _ in 0..table.limit {
        let other = open(&mut table, readable(3));
        assert!(matches!(table.close_local(other.key, WrId(1)), Closed::Now(Some(_))));
    }
    assert!(!table.resting.contains(&segment.key.0));
    assert_eq!(table.resting.len(), table.limit);
}

// requirement: rfc8166-8.1-1, rfc5666-11-2, rfc5042-6.2.1-1, rfc5666-11-3, rfc8166-8.1-2
// requirement: rfc5040-8.1-1, rfc5040-8.1.1-1, rfc5040-8.1.1-4, rfc5041-8.3.1-4
// requirement: v2-07-11.1-1, v2-07-11.1-2
// requirement: rfc5041-4.2-5, rfc5041-7.1-3, rfc5041-8.3-1
#[test]
fn i7_every_write_is_checked_against_key_range_and_right() {
    let mut table = table();
    let segment = open(&mut table, writable(100));
    let read_only = open(&mut table, readable(100));
    let reserved = table.reserve(writable(100)).unwrap();
    let (stag, base) = (segment.key.0, segment.address);
    assert_eq!(table.admit_write(stag, base, 100), Ok(0));
    assert_eq!(table.admit_write(stag, base + 99, 1), Ok(99));
    for (offset, length) in [(base - 1, 1), (base, 101), (base + 100, 1), (base + 1, 100)] {
        assert_eq!(
            table.admit_write(stag, offset, length),
            Err(Violation::WriteBounds { stag, offset, length })
        );
    }
    let wrap = Violation::WriteWrap { offset: u64::MAX, length: 2 };
    assert_eq!(table.admit_write(stag, u64::MAX, 2), Err(wrap));
    for other in [stag ^ 1, read_only.key.0, reserved.key.0] {
        assert_eq!(table.admit_write(other, base, 1), Err(Violation::WriteStag(other)));
    }
}

// requirement: rfc8166-8.1-1, rfc5666-11-2, rfc5042-6.2.1-1, rfc5042-6.3.5-1, rfc5666-11-3, rfc8166-8.1-2
// requirement: rfc5040-8.1-1, rfc5040-8.1.1-1, rfc5040-8.1.1-4, rfc5041-8.3.1-4, rfc5040-8.1.1-6, rfc5041-8.3.1-6
// requirement: v2-07-11.1-1, v2-07-11.1-2
// requirement: rfc5040-5.2.1-9, rfc5040-7.2-9, rfc5040-7.2-11, rfc5040-7.2-12, rfc5040-7.2-13
#[test]
fn i7_every_read_is_checked_against_key_range_and_right() {
    let mut table = table();
    let segment = open(&mut table, readable(100));
    let write_only = open(&mut table, writable(100));
    let (stag, base) = (segment.key.0, segment.address);
    assert_eq!(table.begin_reading(stag, base + 1, 99).unwrap().len(), 99);
    for (offset, size) in [(base - 1, 1), (base, 101), (base + 100, 1)] {
        let error = table.begin_reading(stag, offset, size).unwrap_err();
        assert_eq!(error, Violation::ReadBounds { stag, offset, size });
    }
    assert_eq!(
        table.begin_reading(stag, u64::MAX, 2).unwrap_err(),
        Violation::ReadWrap { offset: u64::MAX, size: 2 }
    );
    assert_eq!(
        table.begin_reading(write_only.key.0, write_only.address, 1).unwrap_err(),
        Violation::ReadAccess(write_only.key.0)
    );
    assert_eq!(table.begin_reading(stag ^ 1, base, 1).unwrap_err(), Violation::ReadStag(stag ^ 1));
}

/// Each connection has its own table: a key of another connection names no window here.
// requirement: experience-8-1
// requirement: rfc5042-3-3, rfc5042-6.1.1-1, rfc5042-6.1.1-2, rfc5042-6.1.1-3, rfc5042-6.4.5-1, rfc5666-11-3, rfc8166-8.1-2
// requirement: rfc5040-8.1.1-2, rfc5041-8.3.1-2, rfc5040-8.1.1-3, rfc5041-8.3.1-3, rfc5040-8.1.1-8
// requirement: v2-07-11.1-2
// requirement: rfc5040-7.2-5, rfc5040-7.2-10, rfc5041-8.2-2, rfc5041-8.2-3, rfc5041-8.3-3
#[test]
fn i7_a_key_is_good_on_its_own_connection_only() {
    let (mut here, mut there) = (table(), WindowTable::new(8, 64, [8; 32]));
    let (own, other) = (open(&mut here, writable(100)), open(&mut there, writable(100)));
    assert_eq!(here.admit_write(own.key.0, own.address, 100), Ok(0));
    let (stag, address) = (other.key.0, other.address);
    assert_eq!(there.admit_write(stag, address, 100), Ok(0));
    assert_eq!(here.admit_write(stag, address, 1), Err(Violation::WriteStag(stag)));
    assert_eq!(here.begin_reading(stag, address, 1).unwrap_err(), Violation::ReadStag(stag));
    assert!(here.close_remote(other.key).is_none());
}

// requirement: rfc5042-6.2.2-2, rfc5042-6.3.6-1
// requirement: rfc5040-8.1.1-7, rfc5041-8.3.1-7
#[test]
fn i1_memory_comes_back_only_when_unused() {
    let mut table = table();
    let segment = open(&mut table, readable(10));
    let stag = segment.key.0;
    table.begin_reading(stag, segment.address, 10).unwrap();
    table.begin_reading(stag, segment.address, 10).unwrap();
    assert!(matches!(table.close_local(segment.key, WrId(5)), Closed::Later));
    // Closed to the peer at once.
    assert_eq!(table.begin_reading(stag, segment.address, 1).unwrap_err(), Violation::ReadStag(stag));
    table.end_reading(stag);
    assert!(table.take_closed().is_none());
    table.end_reading(stag);
    let late = table.take_closed().unwrap();
    assert_eq!((late.key, late.local, late.memory.len()), (segment.key, Some(WrId(5)), 10));
    assert!(matches!(table.close_local(segment.key, WrId(6)), Closed::Now(None)));
    assert!(!table.is_free(segment.key.0), "rule I7: the key rests after a late close, too");
}

#[test]
fn i1_a_segment_being_placed_pins_its_window() {
    let mut table = table();
    let segment = open(&mut table, writable(100));
    assert!(table.bulk_expected());
    table.begin_placing(segment.key.0);
    assert!(matches!(table.close_local(segment.key, WrId(5)), Closed::Later));
    assert!(!table.bulk_expected());
    assert!(table.write_memory(segment.key.0).is_some());
    table.end_placing(segment.key.0);
    assert_eq!(table.take_closed().unwrap().local, Some(WrId(5)));
}

// requirement: rfc5040-7.2-4
#[test]
fn only_bound_windows_can_be_invalidated_by_the_peer() {
    let mut table = table();
    let reserved = table.reserve(readable(3)).unwrap();
    assert!(table.close_remote(reserved.key).is_none());
    let segment = open(&mut table, readable(3));
    assert!(matches!(table.close_remote(segment.key), Some(Closed::Now(Some(_)))));
    assert!(table.close_remote(segment.key).is_none());
}

// requirement: rfc5040-8.1.1-5, rfc5041-8.3-2, rfc5041-8.3.1-5
#[test]
fn only_reserved_windows_can_be_bound_and_any_can_be_given_up() {
    let mut table = table();
    assert!(!table.bind(Key(77)));
    let segment = open(&mut table, writable(10));
    assert!(!table.bind(segment.key));
    assert_eq!(table.admit_write(segment.key.0, segment.address, 10), Ok(0));
    let reserved = table.reserve(writable(10)).unwrap();
    // A reserved window is not bound: the peer has no access yet.
    assert_eq!(
        table.admit_write(reserved.key.0, reserved.address, 1),
        Err(Violation::WriteStag(reserved.key.0))
    );
    assert!(matches!(table.close_local(reserved.key, WrId(1)), Closed::Now(Some(_))));
    assert!(!table.bind(reserved.key));
}
