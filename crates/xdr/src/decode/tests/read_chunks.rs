//! RFC 8166 §3.4.5: chunks with a position.

use bytes::Bytes;
use proptest::prelude::*;

use super::{DecodeError, Decoder, ReadChunk, built};

fn chunk(position: u32, data: &'static [u8]) -> ReadChunk {
    ReadChunk { position, data: Bytes::from_static(data).into() }
}

/// Returns a Call with one eligible item of `length` bytes at position 8, moved out, and a word after it.
fn reduced(length: u32, chunks: Vec<ReadChunk>) -> Decoder {
    let base = built(|e| {
        e.u32(0xaaaa);
        e.u32(length);
        e.u32(0xbbbb);
    });
    Decoder::with_read_chunks(base, chunks)
}

fn read(mut d: Decoder) -> Result<(Bytes, u32), DecodeError> {
    d.u32()?;
    let data = d.payload(100)?;
    let last = d.u32()?;
    d.finish()?;
    Ok((data, last))
}

// requirement: rfc8166-3.4.5.2-2, rfc8166-3.4.5.2-3, rfc5666-3.7-1
#[test]
fn rfc8166_3_4_5_2_chunk_without_and_with_pad() {
    for data in [&b"12345"[..], b"12345\0\0\0"] {
        let d = reduced(5, vec![chunk(8, data)]);
        assert_eq!(read(d), Ok((Bytes::from_static(b"12345"), 0xbbbb)));
    }
    let d = reduced(4, vec![chunk(8, b"1234")]);
    assert_eq!(read(d), Ok((Bytes::from_static(b"1234"), 0xbbbb)));
}

#[test]
fn the_chunk_is_handed_out_without_a_copy() {
    let data = Bytes::from_static(b"12345\0\0\0");
    let (taken, _) = read(reduced(5, vec![ReadChunk { position: 8, data: data.clone().into() }])).unwrap();
    assert_eq!(taken.as_ptr(), data.as_ptr());
}

// requirement: rfc8166-3.4.5-1, rfc5666-3.7-1
// requirement: v2-07-4.5.1-1
#[test]
fn positions_count_in_the_unreduced_stream() {
    let base = built(|e| {
        e.u32(5);
        e.u32(3);
    });
    let mut d = Decoder::with_read_chunks(base, vec![chunk(4, b"12345"), chunk(16, b"abc")]);
    assert_eq!((d.payload(5).unwrap(), d.position()), (Bytes::from_static(b"12345"), 12));
    assert_eq!((d.payload(5).unwrap(), d.position()), (Bytes::from_static(b"abc"), 20));
    assert_eq!(d.finish(), Ok(()));
}

/// A length that is neither the item's nor its padded length is malformed: GARBAGE_ARGS (RFC 8166 §4.5.2).
// requirement: rfc8166-3.4.5.2-2, rfc8166-3.4.5.2-3, rfc5666-3.4-3
#[test]
fn i5_chunk_length_against_the_inline_count() {
    for data in [&b""[..], b"1234", b"123456", b"1234567", b"12345\0\0\0\0"] {
        let error = read(reduced(5, vec![chunk(8, data)])).unwrap_err();
        assert_eq!(error, DecodeError::ReadChunkLength { position: 8, item: 5, chunk: data.len() });
        assert!(!error.is_chunk_violation());
    }
}

/// RFC 8166 §6.1: the decoder detects a chunk at any place but an eligible item when it passes the chunk.
// requirement: rfc8166-3.4.4.4-1, rfc8166-6.1-2, experience-3.2.1-2, experience-11-3
#[test]
fn i5_a_chunk_where_no_eligible_item_starts() {
    for (position, met_at) in [(0, 0), (3, 0), (4, 4), (7, 4), (9, 8), (12, 8), (15, 8)] {
        let base = built(|e| {
            e.u32(1);
            e.opaque(b"12345", 5).unwrap();
        });
        let mut d = Decoder::with_read_chunks(base, vec![chunk(position, b"12345")]);
        let error = d.u32().and_then(|_| d.payload(5)).unwrap_err();
        let chunk = usize::try_from(position).unwrap();
        assert_eq!(error, DecodeError::ReadChunkMisplaced { chunk, position: met_at });
        assert!(error.is_chunk_violation());
    }
}

// requirement: rfc8166-6.1-2
#[test]
fn i5_a_chunk_at_an_item_that_is_not_eligible() {
    let mut d = reduced(5, vec![chunk(8, b"12345")]);
    d.u32().unwrap();
    let error = d.opaque(5).unwrap_err();
    assert_eq!(error, DecodeError::ReadChunkMisplaced { chunk: 8, position: 8 });
}

#[test]
fn i5_a_chunk_behind_the_last_item() {
    let mut d = Decoder::with_read_chunks(built(|e| e.u32(1)), vec![chunk(4, b"1234")]);
    d.u32().unwrap();
    let error = d.finish().unwrap_err();
    assert_eq!(error, DecodeError::ReadChunkMisplaced { chunk: 4, position: 4 });
    assert!(error.is_chunk_violation());
}

/// Without [`ReadChunk::check`] a bad order is still refused, by the first read that meets it.
#[test]
fn i5_lists_out_of_order_never_decode() {
    let base = built(|e| {
        e.u32(4);
        e.u32(4);
    });
    let mut d = Decoder::with_read_chunks(base, vec![chunk(12, b"abcd"), chunk(4, b"1234")]);
    let error = (0..2).try_for_each(|_| d.payload(4).map(drop)).and_then(|()| d.finish()).unwrap_err();
    assert!(error.is_chunk_violation() || matches!(error, DecodeError::Truncated { .. }));
}

#[test]
fn i5_check_of_a_chunk_list() {
    let check = |list: &[(u32, &'static [u8])]| {
        ReadChunk::check(&list.iter().map(|&(position, data)| chunk(position, data)).collect::<Vec<_>>())
    };
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&[(4, b"12345"), (12, b"1")]), Ok(()));
    assert_eq!(check(&[(4, b""), (8, b"1")]), Ok(()));
    for position in [1, 2, 3, 5, u32::MAX] {
        let refused = DecodeError::ReadChunkUnaligned { position: usize::try_from(position).unwrap() };
        assert_eq!(check(&[(position, b"1")]), Err(refused));
    }
    let order = |position, previous| Err(DecodeError::ReadChunkOrder { position, previous });
    assert_eq!(check(&[(8, b""), (8, b"")]), order(8, 8));
    assert_eq!(check(&[(8, b"1"), (4, b"1")]), order(4, 8));
    assert_eq!(check(&[(4, b"12345"), (8, b"1")]), order(8, 4));
    assert_eq!(check(&[(u32::MAX - 3, b"12345")]), Ok(()));
}

#[test]
fn an_empty_item_may_have_a_chunk_or_none() {
    assert_eq!(read(reduced(0, vec![])), Ok((Bytes::new(), 0xbbbb)));
    assert_eq!(read(reduced(0, vec![chunk(8, b"")])), Ok((Bytes::new(), 0xbbbb)));
}

/// A repeat of a call may be reduced in another way, which the reply cache must not notice.
#[test]
fn peek_is_the_same_for_every_form_of_a_call() {
    let whole = built(|e| {
        e.u32(0xaaaa);
        e.opaque(b"12345", 5).unwrap();
        e.u32(0xbbbb);
    });
    for data in [&b"12345"[..], b"12345\0\0\0"] {
        let d = reduced(5, vec![chunk(8, data)]);
        for max in 0..30 {
            let expected = &whole[..max.min(whole.len())];
            assert_eq!(d.peek(max).concat(), expected);
            assert_eq!(Decoder::new(whole.clone()).peek(max).concat(), expected);
        }
    }
}

#[test]
fn peek_shows_all_chunks_at_their_places() {
    let base = built(|e| {
        e.u32(5);
        e.u32(3);
        e.u32(0xbbbb);
    });
    let mut d = Decoder::with_read_chunks(base, vec![chunk(4, b"12345"), chunk(16, b"abc")]);
    assert_eq!(d.peek(99).concat(), b"\0\0\0\x0512345\0\0\0\0\0\0\x03abc\0\0\0\xbb\xbb");
    d.payload(5).unwrap();
    assert_eq!(d.peek(9).concat(), b"\0\0\0\x03abc\0\0");
}

proptest! {
    /// No list of chunks, however wrong, makes the decoder panic or hand out more than the limit.
    #[test]
    fn i5_i6_any_chunk_list_is_harmless(
        base in proptest::collection::vec(any::<u8>(), 0..40),
        chunks in proptest::collection::vec((0u32..64, 0usize..20), 0..4),
        reads in proptest::collection::vec(0u8..6, 0..12),
    ) {
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|(position, length)| ReadChunk { position, data: vec![0; length].into() })
            .collect();
        let _ = ReadChunk::check(&chunks);
        let mut d = Decoder::with_read_chunks(base, chunks);
        for read in reads {
            prop_assert!(d.peek(64).iter().map(Bytes::len).sum::<usize>() <= 64);
            let length = match read {
                0 => d.u32().map(|_| 4),
                1 => d.u64().map(|_| 8),
                2 => d.opaque(16).map(|data| data.len()),
                3 => d.payload(16).map(|data| data.len()),
                4 => d.opaque_fixed::<6>().map(|data| data.len()),
                _ => d.array_len(8, 4),
            };
            match length {
                Ok(length) => prop_assert!(length <= 16),
                Err(_) => break,
            }
        }
        let _ = d.finish();
    }
}
