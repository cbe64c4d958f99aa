//! [`Agreement`]: what client and server agree on after a connection is up (RFC 5666 §6).
//!
//! How they talk about it is no business of this layer; [`Connection::agree`](crate::Connection::agree) is told the outcome,
//! and from then on the connection keeps to it:
//!
//! * No message leaves inline that is longer than agreed. What [`private_data`](crate::private_data) said is a bound that an
//!   agreement can lower, not raise: both sides gave it for the life of the connection (RFC 8797 §4). Without it the
//!   connection begins at [`BASIC_INLINE`], and an agreement can go up to the sizes of the configuration.
//! * Receives are of the configured size from the first on, which RFC 5666 §6.1 allows ("the server MAY exceed this basic
//!   level"): none is ever too short for what may be agreed, and none has to be taken back. Those that are posted later
//!   have the agreed size, so that a peer that wants less also costs less; what is posted is drained.
//! * No more RDMA Reads are under way at the peer than it said. If either side says 0, no Call with Read chunks leaves, and
//!   one that arrives where the peer may not be read is refused.

use std::fmt;

use rpcrdma_verbs::MAX_ALIGN;
use thiserror::Error;

/// The inline size that every connection has before anything is agreed, bytes, and the least that can be agreed (RFC 5666
/// §6.1, RFC 8166 §3.3.2).
pub const BASIC_INLINE: usize = 1024;

/// What holds on a connection. Sizes are of whole messages, header included, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The longest Call that the client sends inline. Position-Zero chunks are not bounded by it.
    pub call_size: usize,
    /// The longest Reply that the server sends inline.
    pub reply_size: usize,
    /// RDMA Reads that may be under way at the client. 0: nothing may leave that needs one.
    pub client_reads: u32,
    /// RDMA Reads that may be under way at the server; the same.
    pub server_reads: u32,
    /// Where opaque data should begin in the server's Receives, for RDMA_MSGP; 1 is anywhere.
    pub align: u32,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call_size, reply_size, client_reads, server_reads, align } = self;
        write!(
            f,
            "inline Calls of {call_size} B and Replies of {reply_size} B, {client_reads} RDMA Reads at the client and \
             {server_reads} at the server, Receives aligned to {align} B"
        )
    }
}

/// Why a connection does not take an agreement: it would leave it less than every connection has (RFC 5666 §6.1).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("inline {what} of {size} bytes at most, but the least that every connection takes is {BASIC_INLINE}")]
pub struct BelowBasic {
    /// Calls or Replies.
    pub what: &'static str,
    /// The size.
    pub size: usize,
}

impl Agreement {
    /// Checks the sizes; an alignment that memory cannot have is none.
    pub(crate) fn checked(self) -> Result<Self, BelowBasic> {
        for (what, size) in [("Calls", self.call_size), ("Replies", self.reply_size)] {
            if size < BASIC_INLINE {
                return Err(BelowBasic { what, size });
            }
        }
        let possible =
            self.align.is_power_of_two() && usize::try_from(self.align).is_ok_and(|align| align <= MAX_ALIGN);
        Ok(Self { align: if possible { self.align } else { 1 }, ..self })
    }

    /// Whether a message may need an RDMA Read. The text can be read to mean either side's number, so both are needed.
    pub(crate) const fn read_chunks(&self) -> bool {
        self.client_reads > 0 && self.server_reads > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: Agreement =
        Agreement { call_size: 4096, reply_size: 8192, client_reads: 1, server_reads: 1, align: 64 };

    #[test]
    fn rfc5666_s6_1_less_than_the_basic_level_is_refused() {
        assert_eq!(AGREED.checked(), Ok(AGREED));
        for size in [0, 1, 1023] {
            let calls = Agreement { call_size: size, ..AGREED }.checked();
            assert_eq!(calls, Err(BelowBasic { what: "Calls", size }));
            let replies = Agreement { reply_size: size, ..AGREED }.checked();
            assert_eq!(replies, Err(BelowBasic { what: "Replies", size }));
        }
        let least = Agreement { call_size: 1024, reply_size: 1024, ..AGREED };
        assert_eq!(least.checked(), Ok(least));
    }

    #[test]
    fn an_agreement_says_all_of_itself() {
        assert_eq!(
            Agreement { client_reads: 2, ..AGREED }.to_string(),
            "inline Calls of 4096 B and Replies of 8192 B, 2 RDMA Reads at the client and 1 at the server, Receives aligned to \
             64 B"
        );
    }

    #[test]
    fn an_alignment_that_cannot_be_is_none() {
        for (said, taken) in
            [(0, 1), (1, 1), (3, 1), (4, 4), (4096, 4096), (8192, 1), (1 << 31, 1), (u32::MAX, 1)]
        {
            let agreed = Agreement { align: said, ..AGREED }.checked().unwrap();
            assert_eq!(agreed.align, taken, "{said}");
        }
    }
}
