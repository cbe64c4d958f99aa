//! Forms of Version One that RFC 8166 retired, and forms that were only proposed: each opted into on its own.
//!
//! By default nothing here is spoken, and the peer that tries it meets the reaction of RFC 8166. None of these forms is
//! negotiated by the protocol itself: whoever turns one on knows that the peer has it too. The codec
//! ([`wire::v1`](crate::wire::v1)) decodes every form always; what is taken is decided by the connection, what is sent by the
//! [planner](crate::planner). Nothing is owned here.

/// Retired and proposed forms that a connection takes part in; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compatibility {
    /// The Read-Read transfer model of RFC 5666 (§3.8; removed by RFC 8166 §4.6.2), in the forward direction: as a server, expose
    /// results to the client's RDMA Reads where nothing that it offered carries them; as a client, read them and answer with
    /// RDMA_DONE. Off, a Read list in a reply is a header error and RDMA_DONE is discarded. Danger: a server's memory stays open
    /// until its client says that it is done, or for [`Timeouts::done`](crate::Timeouts::done) (RFC 5666 §11); a client without
    /// this form waits for a reply that it has discarded.
    pub read_read: Option<ReadRead>,
    /// What is done with an RDMA_MSGP (RFC 5666 §3.9; removed by RFC 8166 §4.6.1).
    pub padded_messages: PaddedMessages,
    /// From where the alignment of an RDMA_MSGP counts, as RFC 5666 §3.9 does not say.
    pub alignment_base: AlignmentBase,
    /// The alignment of the peer's Receives, bytes; 0: not known. From it on, Calls with long opaque data go as RDMA_MSGP if they
    /// fit inline and `padded_messages` is [`Honour`](PaddedMessages::Honour). A power of two from 4 on, else nothing is aligned. An
    /// [`Agreement`](crate::Agreement) sets it for the Calls of one connection's client. Danger: a peer without RDMA_MSGP refuses these Calls for good (ERR_CHUNK).
    pub alignment: u32,
    /// Opaque data of at least this many bytes is aligned, as far as no shorter one need be.
    pub alignment_threshold: usize,
    /// Take a returned Write chunk length that includes the item's XDR pad (RFC 5666 §3.7, forbidden by RFC 8166 §3.4.6.2), with
    /// room for the pad in the chunk or without. Danger: a Responder that returns a wrong length of up to three bytes too many
    /// is not noticed any more; the item's own count still is what the upper layer sees.
    pub write_roundup: bool,
    /// Take Read segments with the discriminator 2, which mark XDR padding: option A of the last-call slides of 2006, never
    /// adopted. They are not read. Off, a Call with one is refused (RFC 8166 §4.5.2), a reply discarded. Danger: none known, but no peer is known
    /// to send them either.
    pub padding_segments: bool,
    /// Take a Read chunk of its own that holds the XDR pad of the item before it, with the end of that item as its Position, which
    /// is no multiple of four (RFC 5666 §3.7: "as an additional Chunk"; what RFC 8166 §3.4.5 says of Positions rules it out). It is
    /// not read. Off, a Call with one is refused (ERR_CHUNK). Danger: none known.
    pub pad_chunks: bool,
}

/// How far the Read-Read transfer model goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRead {
    /// As a client: offer neither Write list nor Reply chunk, like one that cannot tell where its results will be (RFC 5666
    /// §3.4). Danger: a server without this form refuses each Call whose reply does not fit inline (ERR_CHUNK).
    pub withhold_chunks: bool,
    /// As a server: replies that are exposed at a time, on one connection. Further ones wait; none is exposed if the grant would
    /// not leave the client a credit beyond their RDMA_DONEs (RFC 5666 §11).
    pub exposed_replies: usize,
    /// As a server: bytes of those, on one connection. A reply of more is refused. They count as memory of the connection's
    /// protection domain too, which bounds what all connections expose together.
    pub exposed_bytes: usize,
}

impl Default for ReadRead {
    fn default() -> Self {
        Self { withhold_chunks: false, exposed_replies: 16, exposed_bytes: 16 << 20 }
    }
}

/// What is done with an RDMA_MSGP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddedMessages {
    /// RFC 8166 §4.6.1: a Call gets ERR_CHUNK, a reply is discarded, in either direction.
    #[default]
    Refuse,
    /// It is taken as an RDMA_MSG, its two words ignored (implementation-experience §7.1.3.1). Danger: right only where no
    /// bytes were inserted; else the arguments do not decode, or decode to something else.
    AsMessage,
    /// RFC 5666 §3.9: the inserted bytes are skipped. Danger: the reply cache sees them (a checksum over the first arguments), so
    /// a Call that is sent again in another form may be carried out twice.
    Honour,
}

/// From where an alignment counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlignmentBase {
    /// From the first byte of the Send, transport header included: what is aligned is the Receive that it arrives in.
    #[default]
    Send,
    /// From the XID of the RPC message: the "current XDR stream position".
    Payload,
}
