//! Forms of Version One that RFC 8166 retired, and forms that were only proposed: each opted into on its own.
//!
//! By default nothing here is spoken, and the peer that tries it meets the reaction of RFC 8166. None of these forms is
//! negotiated by the protocol itself: whoever turns one on knows that the peer has it too. The codec
//! ([`wire::v1`](crate::wire::v1)) decodes every form always; what is taken is decided by the connection, what is sent by the
//! [planner](crate::planner). Nothing is owned here.

/// Retired and proposed forms that a connection takes part in; by default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compatibility {
    /// Take a returned Write chunk length that includes the item's XDR pad (RFC 5666 §3.7, forbidden by RFC 8166 §3.4.6.2), with
    /// room for the pad in the chunk or without. Danger: a Responder that returns a wrong length of up to three bytes too many
    /// is not noticed any more; the item's own count still is what the upper layer sees.
    pub write_roundup: bool,
    /// Take Read segments with the discriminator 2, which mark XDR padding: option A of the last-call slides of 2006, never
    /// adopted. They are not read. Off, a Call with one is refused (RFC 8166 §4.5.2). Danger: none known, but no peer is known
    /// to send them either.
    pub padding_segments: bool,
}
