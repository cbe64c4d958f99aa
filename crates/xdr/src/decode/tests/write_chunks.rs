//! RFC 8166 §4.3.2: results that stand in Write chunks.

use bytes::Bytes;

use super::{DecodeError, Decoder, ReturnedChunk, WriteChunkRules, built};

const OFFERED: usize = 16;

fn filled(data: &'static [u8]) -> ReturnedChunk {
    ReturnedChunk::Filled { data: Bytes::from_static(data).into(), offered: OFFERED }
}

/// Returns a Reply whose eligible result of `length` bytes was moved out.
fn placed(length: u32, chunks: Vec<ReturnedChunk>) -> Decoder {
    Decoder::with_write_chunks(built(|e| e.u32(length)), chunks)
}

fn inline(chunks: Vec<ReturnedChunk>) -> Decoder {
    Decoder::with_write_chunks(built(|e| e.opaque(b"12345", 5).unwrap()), chunks)
}

fn read(mut d: Decoder) -> Result<Bytes, DecodeError> {
    let data = d.payload(100)?;
    d.finish()?;
    Ok(data)
}

#[test]
fn rfc8166_3_4_6_1_the_result_is_the_chunk() {
    let data = Bytes::from_static(b"12345");
    let mut d = placed(5, vec![ReturnedChunk::Filled { data: data.clone().into(), offered: OFFERED }]);
    assert_eq!(d.payload(5).unwrap().as_ptr(), data.as_ptr());
    assert_eq!(d.position(), 12);
    assert_eq!(d.finish(), Ok(()));
}

// requirement: rfc8166-4.3.2.3-1
#[test]
fn rfc8166_4_3_2_3_an_empty_chunk_means_inline() {
    assert_eq!(read(inline(vec![])).unwrap(), b"12345"[..]);
    assert_eq!(read(inline(vec![ReturnedChunk::Empty])).unwrap(), b"12345"[..]);
}

/// RFC 8166 §6.1: a result that did not use its chunk ends the call with an error.
// requirement: rfc8166-6.1-4
#[test]
fn rfc8166_6_1_an_ignored_chunk_is_an_error() {
    let error = read(inline(vec![filled(b"")])).unwrap_err();
    assert_eq!(error, DecodeError::WriteChunkIgnored { position: 4, item: 5, offered: OFFERED });
    assert!(error.is_chunk_violation());
    let rules = WriteChunkRules { accept_inline: true, ..WriteChunkRules::default() };
    assert_eq!(read(inline(vec![filled(b"")]).accept(rules)).unwrap(), b"12345"[..]);
}

// requirement: rfc8166-3.4.6.2-3, rfc5666-3.4-3
#[test]
fn rfc8166_3_4_6_2_the_returned_length_is_the_items() {
    for data in [&b"1234"[..], b"123456", b"12345\0\0\0"] {
        let error = read(placed(5, vec![filled(data)])).unwrap_err();
        assert_eq!(error, DecodeError::WriteChunkLength { position: 4, item: 5, chunk: data.len() });
        assert!(error.is_chunk_violation());
    }
    let rules = WriteChunkRules { accept_padded: true, ..WriteChunkRules::default() };
    let padded = |data| read(placed(5, vec![filled(data)]).accept(rules));
    assert_eq!(padded(b"12345\0\0\0").unwrap(), b"12345"[..]);
    assert_eq!(padded(b"12345").unwrap(), b"12345"[..]);
    assert_eq!(padded(b"12345\0\0").unwrap(), b"12345"[..], "a chunk without room for all of the pad");
    assert!(padded(b"1234").is_err());
    assert!(padded(b"12345\0\0\0\0").is_err());
}

/// RFC 8166 §4.3.2.1: in order, until either runs out.
// requirement: experience-11-10
#[test]
fn rfc8166_4_3_2_1_results_take_chunks_in_order() {
    let base = built(|e| {
        e.u32(3);
        e.opaque(b"in", 2).unwrap();
        e.u32(2);
        e.opaque(b"rest", 4).unwrap();
    });
    let chunks = vec![filled(b"abc"), ReturnedChunk::Empty, filled(b"de")];
    let mut d = Decoder::with_write_chunks(base, chunks);
    for expected in [&b"abc"[..], b"in", b"de", b"rest"] {
        assert_eq!(d.payload(4).unwrap(), expected);
    }
    assert_eq!(d.finish(), Ok(()));
}

/// RFC 8166 §4.3.2.2: an arm without eligible items leaves the chunk for the next result, or unused.
// requirement: rfc8166-4.3.2.2-1, rfc8166-4.3.2.2-3
#[test]
fn rfc8166_4_3_2_2_unused_chunks() {
    assert_eq!(Decoder::with_write_chunks(Bytes::new(), vec![filled(b"")]).finish(), Ok(()));
    assert_eq!(Decoder::with_write_chunks(Bytes::new(), vec![ReturnedChunk::Empty]).finish(), Ok(()));
    let mut d = placed(1, vec![filled(b"1"), filled(b""), filled(b"23")]);
    d.payload(1).unwrap();
    let error = d.finish().unwrap_err();
    assert_eq!(error, DecodeError::WriteChunkLeft { index: 2, chunk: 2 });
    assert!(error.is_chunk_violation());
}

#[test]
fn a_result_of_no_bytes_takes_its_chunk_or_leaves_it() {
    assert_eq!(read(placed(0, vec![filled(b"")])).unwrap(), Bytes::new());
    for chunks in [vec![filled(b""), filled(b"abc")], vec![filled(b"abc"), filled(b"")]] {
        let base = built(|e| {
            e.u32(0);
            e.u32(3);
        });
        let mut d = Decoder::with_write_chunks(base, chunks);
        assert_eq!(d.payload(4).unwrap(), Bytes::new());
        assert_eq!(d.payload(4).unwrap(), b"abc"[..]);
        assert_eq!(d.finish(), Ok(()));
    }
    let error = read(placed(0, vec![filled(b"1")])).unwrap_err();
    assert_eq!(error, DecodeError::WriteChunkLeft { index: 0, chunk: 1 });
}

// requirement: rfc8166-6.1-3
#[test]
fn what_is_not_eligible_never_looks_into_chunks() {
    let mut d = inline(vec![filled(b"12345")]);
    assert_eq!(d.opaque(5).unwrap(), b"12345"[..]);
    assert_eq!(d.finish(), Err(DecodeError::WriteChunkLeft { index: 0, chunk: 5 }));
}
