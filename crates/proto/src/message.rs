//! The way of a message: its form, and its bytes by the operations that moved them.

/// The form of a message on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// RDMA_MSG, everything inline.
    #[default]
    Inline,
    /// RDMA_MSGP, everything inline and long opaque data aligned (RFC 5666 §3.9; an opt-in).
    Padded,
    /// RDMA_MSG with items in Read chunks (a Call) or Write chunks (a reply).
    Reduced,
    /// Several Sends, perhaps with items in chunks (version-two-07 §6.6.2).
    Continued,
    /// A Send or several, with items placed in the receiver's segments (rtrext-02 §7).
    Placed,
    /// RDMA_NOMSG: a Position-Zero Read chunk (a Call) or the Reply chunk (a reply), perhaps with items in other chunks.
    Long,
}

/// The bytes of a message by the way that they travelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Travelled {
    /// The form of the message.
    pub form: Form,
    /// Bytes of the Sends, headers included.
    pub sent: usize,
    /// Bytes moved by RDMA Read.
    pub read: usize,
    /// Bytes placed in Write chunks.
    pub written: usize,
    /// Bytes placed in the Reply chunk.
    pub reply_chunk: usize,
    /// Segments that carried these bytes.
    pub segments: usize,
}
