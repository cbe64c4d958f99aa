//! The Terminate message (RFC 5040 §4.8), its codes by layer, and the nibble-swapped form that Linux `siw` sends.

use rpcrdma_verbs::TerminateCause;

use super::ddp::{TAGGED_LEN, UNTAGGED_LEN};
use super::put;
use super::rdmap::{READ_REQUEST_LEN, ReadRequest};

/// Length of a Terminate header without terminated headers, in bytes.
pub const CONTROL_LEN: usize = 4;
/// Length of a Terminate header with all optional parts, in bytes.
pub const MAX_LEN: usize = CONTROL_LEN + SEGMENT_LENGTH_LEN + UNTAGGED_LEN + READ_REQUEST_LEN;

const SEGMENT_LENGTH_LEN: usize = 2;
const FLAG_LENGTH: u8 = 0x80;
const FLAG_DDP: u8 = 0x40;
const FLAG_RDMAP: u8 = 0x20;

/// The causes that this crate reports, by the tables of RFC 5040 Figure 9, RFC 5041 §7.2, RFC 5044 §8 and RFC 6581 §8.
pub mod cause {
    use rpcrdma_verbs::TerminateCause;

    const fn of(layer: u8, error_type: u8, code: u8) -> TerminateCause {
        TerminateCause { layer, error_type, code }
    }

    /// Remote protection: the STag to read from is not valid.
    pub const READ_INVALID_STAG: TerminateCause = of(0, 1, 0x00);
    /// Remote protection: the range to read is outside the window.
    pub const READ_BOUNDS: TerminateCause = of(0, 1, 0x01);
    /// Remote protection: the window may not be read.
    pub const READ_ACCESS: TerminateCause = of(0, 1, 0x02);
    /// Remote protection: offset plus size wraps.
    pub const READ_WRAP: TerminateCause = of(0, 1, 0x04);
    /// Remote protection: the STag of a Send with Invalidate cannot be invalidated.
    pub const CANNOT_INVALIDATE: TerminateCause = of(0, 1, 0x09);
    /// Remote operation: RDMAP version.
    pub const RDMAP_VERSION: TerminateCause = of(0, 2, 0x05);
    /// Remote operation: an opcode that is unknown, or is not expected on this queue or in this kind of segment.
    pub const UNEXPECTED_OPCODE: TerminateCause = of(0, 2, 0x06);
    /// Remote operation: the stream is beyond repair.
    pub const STREAM_CATASTROPHIC: TerminateCause = of(0, 2, 0x07);
    /// Remote operation: unspecified.
    pub const UNSPECIFIED: TerminateCause = of(0, 2, 0xFF);
    /// DDP: local catastrophic error.
    pub const DDP_CATASTROPHIC: TerminateCause = of(1, 0, 0x00);
    /// DDP tagged: invalid STag.
    pub const TAGGED_INVALID_STAG: TerminateCause = of(1, 1, 0x00);
    /// DDP tagged: outside the window.
    pub const TAGGED_BOUNDS: TerminateCause = of(1, 1, 0x01);
    /// DDP tagged: offset plus length wraps.
    pub const TAGGED_WRAP: TerminateCause = of(1, 1, 0x03);
    /// DDP tagged: version.
    pub const TAGGED_VERSION: TerminateCause = of(1, 1, 0x04);
    /// DDP untagged: no such queue.
    pub const INVALID_QUEUE: TerminateCause = of(1, 2, 0x01);
    /// DDP untagged: no Receive is posted.
    pub const NO_BUFFER: TerminateCause = of(1, 2, 0x02);
    /// DDP untagged: not the next message sequence number.
    pub const INVALID_MSN: TerminateCause = of(1, 2, 0x03);
    /// DDP untagged: not the next message offset.
    pub const INVALID_MO: TerminateCause = of(1, 2, 0x04);
    /// DDP untagged: message too long for the Receive.
    pub const MESSAGE_TOO_LONG: TerminateCause = of(1, 2, 0x05);
    /// DDP untagged: version.
    pub const UNTAGGED_VERSION: TerminateCause = of(1, 2, 0x06);
    /// MPA: CRC mismatch.
    pub const MPA_CRC: TerminateCause = of(2, 0, 0x02);
    /// MPA: local catastrophic error (RFC 6581 §8).
    pub const MPA_CATASTROPHIC: TerminateCause = of(2, 0, 0x05);
    /// MPA: insufficient IRD resources (RFC 6581 §8).
    pub const MPA_INSUFFICIENT_IRD: TerminateCause = of(2, 0, 0x06);
    /// MPA: no matching RTR option (RFC 6581 §8).
    pub const MPA_NO_MATCHING_RTR: TerminateCause = of(2, 0, 0x07);
}

/// Returns the name of a cause in the tables of the RFCs; `None` if they do not define it.
pub const fn describe(cause: TerminateCause) -> Option<&'static str> {
    Some(match (cause.layer, cause.error_type, cause.code) {
        (0, 0, _) => "RDMA: local catastrophic error",
        (0, 1, 0x00) => "RDMA: invalid STag",
        (0, 1, 0x01) => "RDMA: base or bounds violation",
        (0, 1, 0x02) => "RDMA: access rights violation",
        (0, 1, 0x03) => "RDMA: STag not associated with this stream",
        (0, 1, 0x04) => "RDMA: tagged offset wraps",
        (0, 1 | 2, 0x09) => "RDMA: STag cannot be invalidated",
        (0, 1 | 2, 0xFF) => "RDMA: unspecified error",
        (0, 2, 0x05) => "RDMA: invalid RDMAP version",
        (0, 2, 0x06) => "RDMA: unexpected opcode",
        (0, 2, 0x07) => "RDMA: catastrophic error of this stream",
        (0, 2, 0x08) => "RDMA: catastrophic error, global",
        (1, 0, 0x00) => "DDP: local catastrophic error",
        (1, 1, 0x00) => "DDP: invalid STag",
        (1, 1, 0x01) => "DDP: base or bounds violation",
        (1, 1, 0x02) => "DDP: STag not associated with this stream",
        (1, 1, 0x03) => "DDP: tagged offset wraps",
        (1, 1, 0x04) | (1, 2, 0x06) => "DDP: invalid version",
        (1, 2, 0x01) => "DDP: invalid queue number",
        (1, 2, 0x02) => "DDP: no Receive posted",
        (1, 2, 0x03) => "DDP: invalid message sequence number",
        (1, 2, 0x04) => "DDP: invalid message offset",
        (1, 2, 0x05) => "DDP: message too long for the Receive",
        (2, 0, 0x01) => "MPA: TCP connection lost",
        (2, 0, 0x02) => "MPA: CRC mismatch",
        (2, 0, 0x03) => "MPA: marker and length disagree",
        (2, 0, 0x04) => "MPA: invalid start-up frame",
        (2, 0, 0x05) => "MPA: local catastrophic error",
        (2, 0, 0x06) => "MPA: insufficient IRD resources",
        (2, 0, 0x07) => "MPA: no matching RTR option",
        _ => return None,
    })
}

/// The DDP header of the reported segment, as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminatedHeader {
    /// Header of a tagged segment, 14 bytes.
    Tagged([u8; TAGGED_LEN]),
    /// Header of an untagged segment, 18 bytes.
    Untagged([u8; UNTAGGED_LEN]),
}

impl TerminatedHeader {
    /// Returns the header at the front of `ulpdu`, by its T bit; `None` if it is not complete.
    pub fn capture(ulpdu: &[u8]) -> Option<Self> {
        if super::ddp::HeaderView::new(ulpdu).is_tagged()? {
            ulpdu.first_chunk().copied().map(Self::Tagged)
        } else {
            ulpdu.first_chunk().copied().map(Self::Untagged)
        }
    }

    const fn bytes(&self) -> &[u8] {
        match self {
            Self::Tagged(bytes) => bytes,
            Self::Untagged(bytes) => bytes,
        }
    }
}

/// A Terminate to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// Layer, type and code.
    pub cause: TerminateCause,
    /// Length of the reported DDP segment, and its header. Errors of RDMAP and DDP carry it, those of MPA do not (RFC
    /// 5040 §4.8, Figure 10).
    pub segment: Option<(u16, TerminatedHeader)>,
    /// The reported RDMA Read Request; only remote protection errors carry it.
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// Returns a Terminate without terminated headers.
    pub const fn bare(cause: TerminateCause) -> Self {
        Self { cause, segment: None, read_request: None }
    }

    /// Encodes the Terminate header; the second value is the number of bytes used.
    pub fn encode(&self) -> ([u8; MAX_LEN], usize) {
        let mut bytes = [0; MAX_LEN];
        let mut flags = 0;
        let mut used = CONTROL_LEN;
        if let Some((length, header)) = &self.segment {
            flags |= FLAG_LENGTH | FLAG_DDP;
            put(&mut bytes, used, &length.to_be_bytes());
            used += SEGMENT_LENGTH_LEN;
            put(&mut bytes, used, header.bytes());
            used += header.bytes().len();
            if let Some(request) = &self.read_request {
                flags |= FLAG_RDMAP;
                put(&mut bytes, used, &request.encode());
                used += READ_REQUEST_LEN;
            }
        }
        put(&mut bytes, 0, &[self.cause.layer << 4 | self.cause.error_type & 0x0F, self.cause.code, flags]);
        (bytes, used)
    }
}

/// The fields of a received Terminate header as they stand.
#[derive(Clone, Copy, Debug)]
pub struct TerminateView<'a> {
    bytes: &'a [u8],
}

impl<'a> TerminateView<'a> {
    /// Returns a view of the bytes that follow the DDP header.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns layer, type and code in the layout of RFC 5040.
    pub fn cause(&self) -> Option<TerminateCause> {
        let [first, code] = super::array(self.bytes, 0)?;
        Some(TerminateCause { layer: first >> 4, error_type: first & 0x0F, code })
    }

    /// Returns the header control byte: RFC 5040 has M, D and R in its upper three bits, `siw` in its lower three.
    pub fn header_control(&self) -> Option<u8> {
        self.bytes.get(2).copied()
    }

    /// Returns the cause that the sender most likely meant.
    ///
    /// `siw` writes layer and type with their nibbles exchanged. The header counts as `siw`'s if only its lower control
    /// bits are set. It also counts as `siw`'s if the tables of the RFCs define the exchanged cause and not the plain
    /// one. An ambiguous header (`20 06 00 00`) is read by the RFC: a received Terminate serves for diagnostics only.
    pub fn likely_cause(&self) -> Option<TerminateCause> {
        let plain = self.cause()?;
        let swapped = TerminateCause { layer: plain.error_type, error_type: plain.layer, code: plain.code };
        let control = self.header_control().unwrap_or_default();
        let swapped_control = control & 0xE0 == 0 && control & 0x07 != 0;
        let swap = describe(swapped).is_some() && (swapped_control || describe(plain).is_none());
        Some(if swap { swapped } else { plain })
    }
}

#[cfg(test)]
mod tests;
