//! [`Agreement`]: limits that client and server negotiate after a connection is up (RFC 5666 §6).
//!
//! Another layer negotiates them; [`Connection::agree`](crate::Connection::agree) applies the outcome:
//!
//! * No message leaves inline that is longer than agreed. [`private_data`](crate::settings::private_data) sets a limit that an
//!   agreement can lower, but not raise, since it holds for the life of the connection (RFC 8797 §4). Without private
//!   data the connection begins at [`BASIC_INLINE`], and an agreement can reach the configured sizes.
//! * Receives have the configured size from the start, which RFC 5666 §6.1 allows ("the server MAY exceed this basic
//!   level"). None is thus too short for an agreed size, and none has to be withdrawn. Receives posted later have the
//!   agreed size, so a lower size saves memory.
//! * No more RDMA Reads are in flight at the peer than it allows. If either side allows none, no Call with Read chunks
//!   leaves. A received one is refused if the peer cannot be read.

use std::fmt;

use rpcrdma_verbs::MAX_ALIGN;
use thiserror::Error;

/// The inline size of every connection before an agreement, bytes, and the least that can be agreed (RFC 5666 §6.1, RFC
/// 8166 §3.3.2).
pub const BASIC_INLINE: usize = 1024;

/// The agreed limits of a connection. Sizes are those of whole messages, header included, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The longest Call that the client sends inline. The limit does not apply to Position-Zero chunks.
    pub call_size: usize,
    /// The longest Reply that the server sends inline.
    pub reply_size: usize,
    /// RDMA Reads that may be in flight at the client. 0: no message that needs one may leave.
    pub client_reads: u32,
    /// RDMA Reads that may be in flight at the server. 0: no message that needs one may leave.
    pub server_reads: u32,
    /// The alignment of opaque data in the server's Receives, for RDMA_MSGP; 1 for none.
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

/// The error for an agreement below the basic inline size (RFC 5666 §6.1).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("inline {what} of {size} bytes at most, but the least that every connection takes is {BASIC_INLINE}")]
pub struct BelowBasic {
    /// The kind of message: Calls or Replies.
    pub what: &'static str,
    /// The size, bytes.
    pub size: usize,
}

impl Agreement {
    /// Checks the sizes; an impossible alignment becomes 1.
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

    /// Whether a message may need an RDMA Read. The text can mean either side's number, so both must be above 0.
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
