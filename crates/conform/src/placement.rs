//! The structure of a peer's Receives, in which Sends place items (rtrext-02 §7.2). This module owns nothing.

use bytes::Bytes;
use rpcrdma_proto::BufferGroup;
use rpcrdma_proto::wire::two::transmission::{BufferStructure, TARGETABLE};
use rpcrdma_xdr::{DecodeError, Decoder};

use crate::report::{Wrong, fail, not_applicable};

/// Maximum number of groups in a structure.
const MOST_GROUPS: u32 = 64;
/// Maximum number of bytes before the first segment for items. A Send with an item fills them.
const MOST_BEFORE: usize = 1 << 20;

/// Decodes an `xmrbs_buf` with at most [`MOST_GROUPS`] groups; `Err` has the number of groups if there are more.
fn decode(data: &Bytes) -> Result<Result<BufferStructure, u32>, DecodeError> {
    let mut decoder = Decoder::new(data.clone());
    let total = decoder.u32()?;
    let count = decoder.u32()?;
    if count > MOST_GROUPS {
        return Ok(Err(count));
    }
    let mut groups = Vec::new();
    for _ in 0..count {
        let [count, length, align, flags] = [decoder.u32()?, decoder.u32()?, decoder.u32()?, decoder.u32()?];
        groups.push(BufferGroup { count, length, align, flags });
    }
    Ok(Ok(BufferStructure { total, groups }))
}

/// Returns the begin and the length of the first segment for items in the structure that a peer tells, in bytes. `None` if
/// it has none.
///
/// # Errors
/// The structure does not decode, is none that a buffer can have, or exceeds what the tester can use.
pub(crate) fn target_of(data: &Bytes) -> Result<Option<(usize, usize)>, Wrong> {
    let decoded =
        decode(data).map_err(|error| fail(format!("a buffer structure that does not decode: {error}")))?;
    let structure = decoded.map_err(|count| {
        not_applicable(format!("a buffer structure of {count} groups; the tester takes up to {MOST_GROUPS}"))
    })?;
    structure.check().map_err(|error| fail(format!("a buffer structure that is none: {error}")))?;
    match first_target(&structure) {
        Some((begin, _)) if begin > MOST_BEFORE => Err(not_applicable(format!(
            "{begin} bytes before the first segment for items; the tester fills up to {MOST_BEFORE}"
        ))),
        target => Ok(target),
    }
}

/// Returns the begin and the length of the first segment for items, in bytes.
pub(crate) fn first_target(structure: &BufferStructure) -> Option<(usize, usize)> {
    let mut begin: usize = 0;
    for group in &structure.groups {
        let length = usize::try_from(group.length).unwrap_or(usize::MAX);
        if group.count > 0 && group.flags & TARGETABLE != 0 {
            return Some((begin, length));
        }
        let count = usize::try_from(group.count).unwrap_or(usize::MAX);
        begin = begin.saturating_add(length.saturating_mul(count));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Words;
    use crate::report::Verdict;

    fn target(words: &[u32]) -> Result<Option<(usize, usize)>, Verdict> {
        target_of(&Words::new().words(words).finish()).map_err(|wrong| wrong.verdict)
    }

    #[test]
    fn rtrext_s7_2_a_structure_of_a_peer_is_bounded_before_it_is_used() {
        let plain = [1, 1024, 1, 0];
        let items = [2, 4096, 1, 1];
        let of = |total: u32, groups: &[[u32; 4]]| {
            [&[total, u32::try_from(groups.len()).unwrap()][..], &groups.concat()].concat()
        };
        assert_eq!(target(&of(9216, &[plain, items])), Ok(Some((1024, 4096))));
        assert_eq!(target(&of(1024, &[plain])), Ok(None));
        assert_eq!(
            target(&of(9215, &[plain, items])),
            Err(Verdict::Fail),
            "segments that are not the buffer"
        );
        assert_eq!(target(&of(4096, &[[u32::MAX, u32::MAX, 1, 0], [1, 4096, 1, 1]])), Err(Verdict::Fail));
        assert_eq!(target(&of(0, &[[0, 4096, 1, 1]])), Err(Verdict::Fail), "a group without segments");
        let far = of((1 << 30) + 4096, &[[1, 1 << 30, 1, 0], [1, 4096, 1, 1]]);
        assert_eq!(target(&far), Err(Verdict::NotApplicable));
        let within = of((1 << 20) + 4096, &[[1, 1 << 20, 1, 0], [1, 4096, 1, 1]]);
        assert_eq!(target(&within), Ok(Some((1 << 20, 4096))));
        let mut many = of(64 * 1024, &[plain; 64]);
        assert_eq!(target(&many), Ok(None));
        many = of(65 * 1024, &[plain; 65]);
        assert_eq!(target(&many), Err(Verdict::NotApplicable));
        assert_eq!(target(&[4096, 2, 1, 4096, 1, 1]), Err(Verdict::Fail), "cut off in the second group");
    }
}
