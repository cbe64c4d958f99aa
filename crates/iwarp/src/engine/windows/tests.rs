use super::*;

const SEED: [u8; 32] = [7; 32];

fn table() -> WindowTable {
    WindowTable::new(8, 64, SEED)
}

fn open(table: &mut WindowTable, memory: WindowMemory) -> RemoteSegment {
    let segment = table.reserve(memory.access(), u32::try_from(memory.len()).unwrap()).unwrap();
    table.announce_bind(&segment, &memory).unwrap();
    table.bind(segment.key, memory);
    segment
}

fn writable(len: usize) -> WindowMemory {
    WindowMemory::Write(Buffer::adopt(vec![0; len]))
}

fn readable(len: usize) -> WindowMemory {
    WindowMemory::Read(Bytes::from(vec![1; len]))
}

#[test]
fn i7_keys_and_addresses_are_unpredictable_and_never_wrap() {
    let mut table = WindowTable::new(4096, 64, SEED);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..4096 {
        let segment = table.reserve(Access::RemoteRead, u32::MAX).unwrap();
        assert!(segment.key.0 > 1 && seen.insert(segment.key.0));
        assert!(segment.address.checked_add(u64::from(u32::MAX)).is_some());
    }
    assert!(matches!(table.reserve(Access::RemoteRead, 1), Err(WindowError::Exhausted { limit: 4096 })));
    // Spread over the whole range, not counted up.
    let high_bits: std::collections::HashSet<u32> = seen.iter().map(|key| key >> 24).collect();
    assert!(high_bits.len() > 200);
}

#[test]
fn i7_every_write_is_checked_against_key_range_and_right() {
    let mut table = table();
    let segment = open(&mut table, writable(100));
    let read_only = open(&mut table, readable(100));
    let reserved = table.reserve(Access::RemoteWrite, 100).unwrap();
    let (stag, base) = (segment.key.0, segment.address);
    assert_eq!(table.admit_write(stag, base, 100), Ok(0));
    assert_eq!(table.admit_write(stag, base + 99, 1), Ok(99));
    for (offset, length) in [(base - 1, 1), (base, 101), (base + 100, 1), (base + 1, 100)] {
        assert_eq!(table.admit_write(stag, offset, length), Err(Violation::WriteBounds { stag, offset, length }));
    }
    let wrap = Violation::WriteWrap { offset: u64::MAX, length: 2 };
    assert_eq!(table.admit_write(stag, u64::MAX, 2), Err(wrap));
    for other in [stag ^ 1, read_only.key.0, reserved.key.0] {
        assert_eq!(table.admit_write(other, base, 1), Err(Violation::WriteStag(other)));
    }
}

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

#[test]
fn only_bound_windows_can_be_invalidated_by_the_peer() {
    let mut table = table();
    let reserved = table.reserve(Access::RemoteRead, 3).unwrap();
    assert!(table.close_remote(reserved.key).is_none());
    let segment = open(&mut table, readable(3));
    assert!(matches!(table.close_remote(segment.key), Some(Closed::Now(Some(_)))));
    assert!(table.close_remote(segment.key).is_none());
}

#[test]
fn a_bind_must_match_its_reservation() {
    let mut table = table();
    let segment = table.reserve(Access::RemoteWrite, 10).unwrap();
    let moved = RemoteSegment { address: segment.address ^ 1, ..segment };
    assert!(table.announce_bind(&moved, &writable(10)).is_err());
    assert!(table.announce_bind(&segment, &writable(11)).is_err());
    assert!(table.announce_bind(&segment, &readable(10)).is_err());
    table.announce_bind(&segment, &writable(10)).unwrap();
    assert!(table.announce_bind(&segment, &writable(10)).is_err());
    // Posted is not bound: the peer is not in yet.
    assert_eq!(
        table.admit_write(segment.key.0, segment.address, 1),
        Err(Violation::WriteStag(segment.key.0))
    );
}
