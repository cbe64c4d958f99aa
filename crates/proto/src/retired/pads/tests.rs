use proptest::prelude::*;

use super::*;
use crate::inbound::reassembly::Layout;
use crate::wire::Segment;

fn entry(position: u32, length: u32) -> ReadSegment {
    ReadSegment::new(position, Segment { handle: 1, length, offset: 0 })
}

fn layout(read: &[ReadSegment], inline: usize) -> Result<Layout, ProtocolError> {
    let mut read = read.to_vec();
    remove(&mut read, &Limits::default())?;
    Layout::new(&read, inline, &Limits::default())
}

/// Last-call slides of 2006, option A: the pad has the Position of its chunk or that of the data's end, and is not
/// read.
#[test]
fn slides_2006_option_a_a_padding_segment_completes_its_chunk() {
    let pad = |position, length| ReadSegment { padding: true, ..entry(position, length) };
    for (list, len) in [
        (vec![entry(96, 4096), entry(96, 1905), pad(96, 3)], 6001),
        (vec![entry(96, 6001), pad(6097, 3)], 6001),
        (vec![entry(96, 6002), pad(96, 2), entry(6100, 8)], 6010),
        (vec![entry(96, 6003), pad(6099, 1)], 6003),
        (vec![entry(0, 100), entry(96, 5), pad(96, 3)], 105),
    ] {
        let layout = layout(&list, 100).unwrap();
        assert_eq!(layout.total(), len, "{list:?}");
        assert!(layout.chunks.iter().flat_map(|chunk| &chunk.segments).all(|segment| segment.length > 3));
    }
    for list in [
        vec![pad(96, 3)],
        vec![entry(96, 6000), pad(96, 3)],
        vec![entry(96, 6001), pad(96, 2)],
        vec![entry(96, 6001), pad(100, 3)],
        vec![entry(96, 6001), pad(96, 3), pad(96, 3)],
        vec![entry(0, 97), pad(0, 3)],
    ] {
        let &ReadSegment { position, segment, .. } = list.last().unwrap();
        let refused = ProtocolError::MisplacedPadding { position, length: segment.length };
        assert_eq!(layout(&list, 100).unwrap_err(), refused, "{list:?}");
    }
    // Data follows the pad.
    let refused = ProtocolError::MisplacedPadding { position: 96, length: 4 };
    assert_eq!(layout(&[entry(96, 1), pad(96, 3), entry(96, 4)], 100).unwrap_err(), refused);
}

/// A list of pads has the bound of any list.
#[test]
fn i6_chunks_with_pads_are_bounded() {
    let limits = Limits { read_chunks: 2, ..Limits::default() };
    let mut read = vec![entry(96, 1), entry(200, 4), ReadSegment { padding: true, ..entry(96, 3) }];
    assert_eq!(remove(&mut read.clone(), &limits), Ok(()));
    read.insert(2, entry(300, 4));
    assert_eq!(remove(&mut read, &limits), Err(ProtocolError::TooManyReadChunks { seen: 3, allowed: 2 }));
}

proptest! {
    /// No list overflows the arithmetic, and none keeps a pad.
    #[test]
    fn any_list_loses_its_pads_or_is_refused(
        read in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 0..20),
    ) {
        let mut read: Vec<_> = read.into_iter().map(|(position, length, padding)| ReadSegment {
            padding,
            ..entry(position, length)
        }).collect();
        if remove(&mut read, &Limits::default()).is_ok() {
            prop_assert!(read.iter().all(|entry| !entry.padding && !entry.is_pad_chunk()));
        }
    }
}
