//! Forms of Version One that RFC 8166 retired, and forms that were only proposed. Each has its own setting.
//!
//! By default none is enabled, and a peer that uses one gets the reaction of RFC 8166. The protocol negotiates none of
//! these forms, so an owner enables a form only for a peer that has it too. The codec ([`wire::v1`](crate::wire::v1))
//! always decodes every form.

use crate::settings::config::Config;

/// Retired and proposed forms that a connection uses; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compatibility {
    /// The Read-Read transfer model of RFC 5666 (§3.8; removed by RFC 8166 §4.6.2), in the forward direction. A server
    /// exposes results to the client's RDMA Reads if no chunk of the Call carries them. A client reads them and answers
    /// with RDMA_DONE. With `None`, a Read list in a reply is a header error, and RDMA_DONE is discarded. Danger: a
    /// server's memory stays open until its client's RDMA_DONE, or for [`Timeouts::done`](crate::Timeouts::done) (RFC
    /// 5666 §11). A client without this form discards such a reply and waits in vain.
    pub read_read: Option<ReadRead>,
    /// The treatment of RDMA_MSGP (RFC 5666 §3.9; removed by RFC 8166 §4.6.1).
    pub padded_messages: PaddedMessages,
    /// The origin of the alignment of an RDMA_MSGP, which RFC 5666 §3.9 leaves open.
    pub alignment_base: AlignmentBase,
    /// The alignment of the peer's Receives, bytes: a power of two of at least 4; with other values, and with 0,
    /// nothing is aligned. Calls with long opaque data then leave as RDMA_MSGP if they fit inline, and
    /// `padded_messages` is [`Honour`](PaddedMessages::Honour). An [`Agreement`](crate::Agreement) replaces this value
    /// for the client's Calls. Danger: a peer without RDMA_MSGP permanently refuses these Calls (ERR_CHUNK).
    pub alignment: u32,
    /// The least length of aligned opaque data, bytes. The threshold rises if shorter data would have to be aligned
    /// too.
    pub alignment_threshold: usize,
    /// Accept a returned Write chunk length that includes the item's XDR pad (RFC 5666 §3.7, forbidden by RFC 8166
    /// §3.4.6.2). The chunk may lack space for the pad. Danger: a returned length with up to three surplus bytes is not
    /// detected any more. The upper layer still sees the item's own count.
    pub write_roundup: bool,
    /// Accept Read segments with the discriminator 2, which mark XDR padding: option A of the last-call slides of 2006,
    /// never adopted. They are not read. Otherwise a Call with one is refused (RFC 8166 §4.5.2), and a reply is
    /// discarded. No danger is known, nor any peer that sends them.
    pub padding_segments: bool,
    /// Accept a separate Read chunk with the XDR pad of the item before it (RFC 5666 §3.7: "as an additional Chunk").
    /// Its Position is the end of that item, which is no multiple of four; RFC 8166 §3.4.5 excludes that. The chunk is
    /// not read. Otherwise a Call with one is refused (ERR_CHUNK). No danger is known.
    pub pad_chunks: bool,
}

/// Settings of the Read-Read transfer model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRead {
    /// As a client: offer neither Write list nor Reply chunk, like a client that does not know where its results will
    /// be (RFC 5666 §3.4). Danger: a server without this form refuses each Call whose reply does not fit inline
    /// (ERR_CHUNK).
    pub withhold_chunks: bool,
    /// As a server: the most exposed replies on one connection. Further ones wait. No reply is exposed if the grant
    /// leaves the client no credit beyond the RDMA_DONEs (RFC 5666 §11).
    pub exposed_replies: usize,
    /// As a server: the most exposed bytes on one connection. A longer reply is refused. The bytes also count as memory
    /// of the protection domain, which bounds all connections together.
    pub exposed_bytes: usize,
}

impl Default for ReadRead {
    fn default() -> Self {
        Self { withhold_chunks: false, exposed_replies: 16, exposed_bytes: 16 << 20 }
    }
}

/// The treatment of RDMA_MSGP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaddedMessages {
    /// RFC 8166 §4.6.1: a Call gets ERR_CHUNK, a reply is discarded, in either direction.
    #[default]
    Refuse,
    /// Treat RDMA_MSGP as RDMA_MSG, and ignore its two words (implementation-experience §7.1.3.1). Danger: this is
    /// right only if no bytes were inserted. Otherwise the arguments do not decode, or decode to other values.
    AsMessage,
    /// RFC 5666 §3.9: skip the inserted bytes. Danger: the reply cache includes them in its checksum over the first
    /// arguments. A Call sent again in another form may therefore be executed twice.
    Honour,
}

/// The origin of an alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlignmentBase {
    /// The first byte of the Send, transport header included, since the Receive buffer is aligned.
    #[default]
    Send,
    /// The XID of the RPC message: the "current XDR stream position".
    Payload,
}

impl Config {
    /// Returns whether the Read-Read model is enabled.
    #[must_use]
    pub const fn has_read_read(&self) -> bool {
        self.compatibility.read_read.is_some()
    }

    /// Returns whether opaque data of an RDMA_MSGP is aligned (RFC 5666 §3.9).
    #[must_use]
    pub fn honours_padding(&self) -> bool {
        self.compatibility.padded_messages == PaddedMessages::Honour
    }

    /// Returns the Receives for RDMA_DONEs.
    pub(crate) fn receives_for_dones(&self) -> usize {
        let exposed = self.compatibility.read_read.as_ref().map(|read_read| read_read.exposed_replies);
        exposed.map_or(0, |replies| replies.saturating_add(1))
    }
}
