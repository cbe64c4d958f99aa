//! The structure of a peer's Receives, in which Sends place items (rtrext-02 §7.2). This module owns nothing.

use bytes::Bytes;
use rpcrdma_proto::BufferGroup;
use rpcrdma_proto::wire::two::transmission::{BufferStructure, TARGETABLE};
use rpcrdma_xdr::{DecodeError, Decoder};

/// Maximum number of groups that are decoded.
const MOST_GROUPS: u32 = 64;

/// Decodes an `xmrbs_buf`.
pub(crate) fn structure_of(data: &Bytes) -> Result<BufferStructure, DecodeError> {
    let mut decoder = Decoder::new(data.clone());
    let total = decoder.u32()?;
    let mut groups = Vec::new();
    for _ in 0..decoder.u32()?.min(MOST_GROUPS) {
        let [count, length, align, flags] = [decoder.u32()?, decoder.u32()?, decoder.u32()?, decoder.u32()?];
        groups.push(BufferGroup { count, length, align, flags });
    }
    Ok(BufferStructure { total, groups })
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
