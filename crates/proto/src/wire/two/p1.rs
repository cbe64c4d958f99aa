//! The header of RPC-over-RDMA Version Two, profile P1: draft-cel-nfsv4-rpcrdma-version-two-01 §4.2, with the
//! operations of draft-dnoveck-nfsv4-rpcrdma-xcharext-02 §4 in RDMA2_OPTIONAL.

use super::Profile;
use super::codec::{Content, Front, V2, rules};
use super::exchange::Step;
use super::lists::Lists;
use super::optional::RDMA2_OPTIONAL;
use super::transmission::OperationBase;
use super::words::WORD;
use crate::wire::lists::lists_len;
use crate::wire::{Direction, ErrorBody, FIXED_LEN, RDMA_ERROR, Rules, two};

static RULES: Rules = rules(
    "Version Two (P1)",
    two::Rules {
        profile: Profile::P1,
        names_handle: false,
        counts_messages: false,
        tells_once: false,
        returns_reply_chunk: true,
        part_header: None,
        // Those from 1 on are operations on characteristics (xcharext-02 §4).
        operations: Some(OperationBase::Separate),
    },
);

/// The codec of this profile.
pub static V2P1: V2 = V2 {
    rules: &RULES,
    least: |procedure| match procedure {
        RDMA_ERROR => FIXED_LEN,
        // `rdma_optdir`, `rdma_opttype` and an empty `rdma_optinfo`.
        RDMA2_OPTIONAL => FIXED_LEN + 3 * WORD,
        // A direction and three absent lists.
        _ => FIXED_LEN + 4 * WORD,
    },
    header_len: |shape| WORD + lists_len(shape),
    messages: &[
        (0, Front::Direction, Content::Message(Lists::All)), // RDMA2_MSG
        (1, Front::Direction, Content::NoMessage(Lists::All)), // RDMA2_NOMSG
        // version-two-01 §4.2.2
        (RDMA_ERROR, Front::Nothing(Some(Direction::Reply)), Content::Error),
        (RDMA2_OPTIONAL, Front::Direction, Content::Optional),
    ],
    steps: &[
        (1, Step::Initial), // ROPT_INITXCH
        (2, Step::Request), // ROPT_REQXCH
        (3, Step::Pending), // ROPT_RESPXCH
        (4, Step::Update),  // ROPT_UPDXCH
    ],
    errors: &[
        (1, 2, |[low, high]| ErrorBody::Version { low, high }),
        (2, 0, |_| ErrorBody::Chunk),
        (3, 0, |_| ErrorBody::Two(two::ErrorBody::InvalidOption)),
    ],
};

#[cfg(test)]
mod tests;
