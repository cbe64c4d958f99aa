//! The header of RPC-over-RDMA Version Two, profile P3: draft-ietf-nfsv4-rpcrdma-version-two-07 §6, §8.4.
//!
//! Calls and replies have header types of their own, so that no word says the direction. A message may come
//! in several Sends (CALL_MIDDLE, REPLY_MIDDLE). A message that does nothing else can grant credits (GRANT).
//!
//! A message that is cut off behind its first sixteen bytes is an XDR error (§7.2), and not too short to be
//! parsed.

use super::Profile;
use super::codec::{Content, Front, V2, rules};
use super::exchange::Step;
use super::lists::Lists;
use super::words::WORD;
use crate::wire::lists::{chunk_len, lists_len, write_list_len};
use crate::wire::{Direction, ErrorBody, FIXED_LEN, RDMA_ERROR, Rules, two};

static RULES: Rules = rules(
    "Version Two (P3)",
    two::Rules {
        profile: Profile::P3,
        names_handle: true,
        counts_messages: true,
        tells_once: true,
        returns_reply_chunk: false,
        part_header: Some(FIXED_LEN + WORD),
        operations: None,
    },
);

const CALL: Front = Front::Nothing(Some(Direction::Call));
const REPLY: Front = Front::Nothing(Some(Direction::Reply));
const EITHER: Front = Front::Nothing(None);

/// The codec of this profile.
pub static V2P3: V2 = V2 {
    rules: &RULES,
    least: |_| FIXED_LEN,
    header_len: |shape| match shape.direction {
        // The handle; and the Call chunk ends with a word of its own.
        Direction::Call => WORD + lists_len(shape) + if shape.long { WORD } else { 0 },
        // No Read list, and a Reply chunk only where the message is in it.
        Direction::Reply => write_list_len(&shape.write_segments) + shape.reply_segments.map_or(0, chunk_len),
    },
    messages: &[
        (RDMA_ERROR, REPLY, Content::Error),
        (5, EITHER, Content::Grant),                              // RDMA2_GRANT
        (6, EITHER, Content::Exchange(Step::Part)),               // RDMA2_CONNPROP_MIDDLE
        (7, EITHER, Content::Exchange(Step::Final)),              // RDMA2_CONNPROP_FINAL
        (8, Front::Handle, Content::NoMessage(Lists::CallChunk)), // RDMA2_CALL_EXTERNAL
        (9, CALL, Content::Middle),                               // RDMA2_CALL_MIDDLE
        (10, Front::Handle, Content::Message(Lists::Items)),      // RDMA2_CALL_INLINE
        (11, REPLY, Content::NoMessage(Lists::WriteAndReply)),    // RDMA2_REPLY_EXTERNAL
        (12, REPLY, Content::Middle),                             // RDMA2_REPLY_MIDDLE
        (13, REPLY, Content::Message(Lists::Write)),              // RDMA2_REPLY_INLINE
    ],
    steps: &[],
    errors: &[
        (1, 2, |[low, high]| ErrorBody::Version { low, high }),
        (2, 0, |_| ErrorBody::Chunk),
        (3, 0, |_| ErrorBody::Two(two::ErrorBody::BadValue)),
        (4, 0, |_| ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
        (5, 0, |_| ErrorBody::Two(two::ErrorBody::InvalidContinuation)),
        (6, 1, |[_, most]| ErrorBody::Two(two::ErrorBody::ReadChunks { most })),
        (7, 1, |[_, most]| ErrorBody::Two(two::ErrorBody::WriteChunks { most })),
        (8, 1, |[_, most]| ErrorBody::Two(two::ErrorBody::Segments { most })),
        (9, 2, |[chunk, needed]| ErrorBody::Two(two::ErrorBody::WriteResource { chunk, needed })),
        (10, 1, |[_, needed]| ErrorBody::Two(two::ErrorBody::ReplyResource { segment: 0, needed })),
        (11, 0, |_| ErrorBody::Two(two::ErrorBody::VersionMismatch)),
        (100, 0, |_| ErrorBody::Two(two::ErrorBody::System)),
    ],
};

#[cfg(test)]
mod tests;
