//! Every value survives every form of transfer: flat, reduced by Read chunks, placed into Write chunks.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Cookie, Entry, Everything, FileKind, Name, Outcome, flat};
use crate::{
    Decode, Decoder, Encode, Encoder, INLINE_COPY_MAX, Padding, Payload, Piece, ReadChunk, ReturnedChunk,
    Stream, Text, encode, padded_len,
};

fn opaque(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

fn text(max: usize) -> impl Strategy<Value = Text> {
    opaque(max).prop_map(Text)
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), text(255)).prop_map(|(id, name)| Entry { id, name: Name(name) })
}

fn everything() -> impl Strategy<Value = Everything> {
    let kind = prop_oneof![Just(FileKind::Text), Just(FileKind::Data), Just(FileKind::Exec)];
    let small = (any::<[u8; 6]>(), any::<i64>(), any::<[u32; 2]>(), any::<bool>());
    let lists = (vec(entry(), 0..4), vec(any::<u32>(), 0..=2), vec(any::<i32>(), 0..=3), vec(text(9), 0..=4));
    let options = (vec(any::<u8>(), 0..=8), proptest::option::of(opaque(16)), proptest::option::of(kind));
    let payloads = (opaque(2 * INLINE_COPY_MAX), text(64), opaque(2 * INLINE_COPY_MAX));
    (small, lists, options, payloads).prop_map(|(small, lists, options, payloads)| {
        let (cookie, offset, pair, eof) = small;
        let (entries, few, words, names) = lists;
        let (bytes, maybe, file_kind) = options;
        let (data, target, attachment) = payloads;
        let names = names.into_iter().map(Name).collect();
        Everything {
            cookie: Cookie(cookie),
            offset,
            pair,
            entries,
            few,
            words,
            names,
            bytes,
            maybe,
            file_kind,
            data,
            target,
            attachment,
            eof,
            nothing: (),
        }
    })
}

/// A message without the payloads moved out of it. `moved` states of each eligible payload whether it travels in a
/// chunk, and whether with its pad.
struct Reduced {
    base: Bytes,
    chunks: Vec<ReadChunk>,
}

fn reduce(stream: &Stream, moved: &[(bool, bool)]) -> Reduced {
    let mut moved = moved.iter().copied();
    let (mut base, mut chunks, mut position) = (BytesMut::new(), Vec::new(), 0);
    for piece in stream.pieces() {
        let data = piece.data();
        let eligible = matches!(piece, Piece::Payload { ddp_eligible: true, .. });
        match if eligible { moved.next() } else { None } {
            Some((true, with_pad)) => {
                let mut data = data.to_vec();
                if with_pad {
                    data.resize(padded_len(data.len()), 0);
                }
                chunks.push(ReadChunk { position: u32::try_from(position).unwrap(), data: data.into() });
            }
            _ => {
                base.extend_from_slice(data);
                base.resize(base.len() + piece.len() - data.len(), 0);
            }
        }
        position += piece.len();
    }
    Reduced { base: base.freeze(), chunks }
}

/// Cuts data into slices.
fn slices(data: &Bytes, cuts: &[prop::sample::Index]) -> Payload {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(data.len());
    let mut start = 0;
    cuts.into_iter().map(|end| data.slice(std::mem::replace(&mut start, end)..end)).collect()
}

proptest! {
    // requirement: rfc4506-3-3
    #[test]
    fn values_survive_the_flat_form(value in everything()) {
        let stream = encode(&value).unwrap();
        let flat = flat(&value);
        prop_assert_eq!(flat.len(), stream.len());
        prop_assert!(flat.len() >= Everything::MIN_LEN);
        let mut copied = vec![0xff; flat.len()];
        stream.copy_to(&mut copied).unwrap();
        prop_assert_eq!(&copied, &flat);
        prop_assert_eq!(stream.gather().collect::<Vec<_>>().concat(), flat.to_vec());
        prop_assert_eq!(Decoder::new(flat).decode_all::<Everything>(), Ok(value));
    }

    /// RFC 8166 §3.4.5: whatever the sender reduces, the receiver decodes the original value.
    #[test]
    fn values_survive_any_cut_into_read_chunks(value in everything(), moved in vec(any::<(bool, bool)>(), 2)) {
        let stream = encode(&value).unwrap();
        let Reduced { base, chunks } = reduce(&stream, &moved);
        prop_assert_eq!(ReadChunk::check(&chunks), Ok(()));
        let whole = Decoder::new(stream.flatten().0).peek(256).concat();
        let reduced = Decoder::with_read_chunks(base.clone(), chunks.clone());
        prop_assert_eq!(reduced.peek(256).concat(), whole);
        prop_assert_eq!(reduced.decode_all::<Everything>(), Ok(value));
        for end in 0..base.len() {
            let cut = Decoder::with_read_chunks(base.slice(..end), chunks.clone());
            prop_assert!(cut.decode_all::<Everything>().is_err());
        }
    }

    /// A message in any slices decodes like the message in one, chunks too, whole or cut short or damaged.
    #[test]
    fn slices_of_a_message_decode_like_the_whole(
        value in everything(),
        moved in vec(any::<(bool, bool)>(), 2),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
        end: prop::sample::Index,
        at: prop::sample::Index,
        flip in prop_oneof![Just(0), any::<u8>()],
    ) {
        let Reduced { base, chunks } = reduce(&encode(&value).unwrap(), &moved);
        let mut base = base.to_vec();
        let at = at.index(base.len());
        base[at] ^= flip;
        let base = Bytes::from(base);
        let sliced: Vec<_> = chunks
            .iter()
            .map(|chunk| ReadChunk { data: slices(&chunk.data.clone().join().0, &cuts), ..*chunk })
            .collect();
        for end in [base.len(), end.index(base.len())] {
            let base = base.slice(..end);
            let whole = Decoder::with_read_chunks(base.clone(), chunks.clone());
            let cut = Decoder::with_read_chunks(slices(&base, &cuts), sliced.clone());
            prop_assert_eq!(cut.peek(256).concat(), whole.peek(256).concat());
            prop_assert_eq!((cut.remaining(), cut.peek_u32()), (whole.remaining(), whole.peek_u32()));
            let whole = whole.decode_all::<Everything>();
            prop_assert_eq!(&cut.clone().decode_all::<Everything>(), &whole);
            let padding = Padding { align: 8, threshold: 20, before: 4 };
            let padded = Decoder::with_read_chunks(base, chunks.clone()).skip_padding(padding);
            let cut = cut.skip_padding(padding);
            prop_assert_eq!(cut.decode_all::<Everything>(), padded.decode_all::<Everything>());
        }
    }

    /// RFC 8166 §4.3.2: whatever the requester offers, it decodes the original value.
    #[test]
    fn values_survive_any_write_list(value in everything(), offered in vec(any::<bool>(), 0..4)) {
        let moved: Vec<_> = offered.iter().map(|&offered| (offered, false)).collect();
        let Reduced { base, chunks } = reduce(&encode(&value).unwrap(), &moved);
        let mut placed = chunks.into_iter();
        let returned = offered.iter().map(|&offered| match offered {
            true => {
                let data = placed.next().map(|chunk| chunk.data).unwrap_or_default();
                ReturnedChunk::Filled { data, offered: 4096 }
            }
            false => ReturnedChunk::Empty,
        });
        let decoder = Decoder::with_write_chunks(base, returned.collect());
        prop_assert_eq!(decoder.decode_all::<Everything>(), Ok(value));
    }

    #[test]
    fn i6_no_truncation_and_no_flipped_byte_panics(value in everything(), at: usize, flip: u8) {
        let flat = flat(&value);
        for end in 0..flat.len() {
            prop_assert!(Decoder::new(flat.slice(..end)).decode_all::<Everything>().is_err());
        }
        let mut damaged = flat.to_vec();
        let at = at % damaged.len();
        damaged[at] ^= flip;
        let _ = Decoder::new(damaged.into()).decode_all::<Everything>();
    }

    #[test]
    fn unions_survive(value in prop_oneof![
        any::<u64>().prop_map(Outcome::Done),
        Just(Outcome::Void),
        (2u32.., entry()).prop_map(|(stat, entry)| Outcome::Failed(stat, entry)),
    ]) {
        prop_assert_eq!(Decoder::new(flat(&value)).decode_all::<Outcome<u64, Entry>>(), Ok(value));
    }

    #[test]
    fn i6_random_bytes_never_panic(bytes in vec(any::<u8>(), 0..256)) {
        let _ = Decoder::new(bytes.clone().into()).decode_all::<Everything>();
        let _ = Decoder::new(bytes.into()).decode_all::<Outcome<Entry, Everything>>();
    }
}

#[test]
fn appended_parts_encode_like_the_whole() {
    let entry = Entry { id: 1, name: Name("x".into()) };
    let mut encoder = Encoder::new();
    encoder.append(encode(&entry).unwrap());
    entry.encode(&mut encoder).unwrap();
    encoder.append(encode::<&Entry>(&&entry).unwrap());
    assert_eq!(encoder.finish().flatten().0, flat(&entry).repeat(3));
}
