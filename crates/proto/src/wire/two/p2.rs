//! The header of RPC-over-RDMA Version Two, profile P2: draft-cel-nfsv4-rpcrdma-version-two-03 §6.2.
//!
//! Characteristics, called properties here, have message types of their own, and each Call says what its
//! answer may invalidate.

use super::Profile;
use super::codec::{Content, Front, V2, rules};
use super::exchange::Step;
use super::lists::Lists;
use super::optional::RDMA2_OPTIONAL;
use super::transmission::OperationBase;
use super::words::WORD;
use crate::wire::lists::lists_len;
use crate::wire::{Direction, ErrorBody, FIXED_LEN, RDMA_ERROR, Rules, two};

static RULES: Rules = numbered(OperationBase::Separate);
static RULES_BY_TABLES: Rules = numbered(OperationBase::Tables);

const fn numbered(operations: OperationBase) -> Rules {
    rules(
        "Version Two (P2)",
        two::Rules {
            profile: Profile::P2,
            names_handle: true,
            counts_messages: false,
            tells_once: false,
            returns_reply_chunk: true,
            part_header: None,
            operations: Some(operations),
        },
    )
}

/// The codec of this profile.
pub static V2P2: V2 = codec(&RULES);
/// The codec of this profile with the operations on transmissions under the numbers of their tables.
pub static V2P2_BY_TABLES: V2 = codec(&RULES_BY_TABLES);

const fn codec(rules: &'static Rules) -> V2 {
    V2 {
        rules,
        least: |procedure| match procedure {
            // Direction, handle and three absent lists.
            0 | 1 => FIXED_LEN + 5 * WORD,
            _ => FIXED_LEN,
        },
        header_len: |shape| 2 * WORD + lists_len(shape),
        messages: &[
            (0, Front::DirectionAndHandle, Content::Message(Lists::All)), // RDMA2_MSG
            (1, Front::DirectionAndHandle, Content::NoMessage(Lists::All)), // RDMA2_NOMSG
            (RDMA_ERROR, Front::Nothing(Some(Direction::Reply)), Content::Error),
            (RDMA2_OPTIONAL, Front::Direction, Content::Optional),
            (6, Front::Nothing(None), Content::Exchange(Step::Initial)), // RDMA2_CONNPROP
            (7, Front::Nothing(None), Content::Exchange(Step::Request)), // RDMA2_REQPROP
            (8, Front::Nothing(None), Content::Exchange(Step::Other)),   // RDMA2_RESPROP
            (9, Front::Nothing(None), Content::Exchange(Step::Updates)), // RDMA2_UPDPROP
        ],
        // The operations on transmissions are all that come this way.
        steps: &[],
        errors: &[
            (1, 2, |[low, high]| ErrorBody::Version { low, high }),
            (2, 0, |_| ErrorBody::Chunk),
            (3, 2, |[segment, needed]| ErrorBody::Two(two::ErrorBody::ReplyResource { segment, needed })),
            (4, 0, |_| ErrorBody::Two(two::ErrorBody::InvalidProcedure)),
            (5, 0, |_| ErrorBody::Two(two::ErrorBody::InvalidOption)),
            (6, 0, |_| ErrorBody::Two(two::ErrorBody::System)),
        ],
    }
}

#[cfg(test)]
mod tests;
