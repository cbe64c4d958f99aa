//! RDMAP control byte, opcodes and the RDMA Read Request header (RFC 5040 §4; RFC 7306 defines the opcodes above 7).

use super::{be32, be64, put};

/// The RDMAP version this crate speaks (RFC 5040 §4.1: RV = 01).
pub const VERSION: u8 = 1;
/// Length of an RDMA Read Request header, in bytes (RFC 5040 §4.4).
pub const READ_REQUEST_LEN: usize = 28;

const VERSION_SHIFT: u32 = 6;
const OPCODE_MASK: u8 = 0x0F;

/// RDMA message opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
}

impl Opcode {
    /// Returns the four bits of the opcode.
    pub const fn wire(self) -> u8 {
        match self {
            Self::Write => 0,
            Self::ReadRequest => 1,
            Self::ReadResponse => 2,
            Self::Send => 3,
            Self::SendInvalidate => 4,
            Self::SendSolicited => 5,
            Self::SendSolicitedInvalidate => 6,
            Self::Terminate => 7,
        }
    }

    const fn from_wire(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            _ => return None,
        })
    }

    /// Returns the Send opcode with these properties.
    pub const fn send(invalidate: bool, solicited: bool) -> Self {
        match (invalidate, solicited) {
            (false, false) => Self::Send,
            (true, false) => Self::SendInvalidate,
            (false, true) => Self::SendSolicited,
            (true, true) => Self::SendSolicitedInvalidate,
        }
    }

    /// Returns whether the Invalidate STag has a meaning.
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }

    /// Returns whether the receiver asked to be woken for this message.
    pub const fn is_solicited(self) -> bool {
        matches!(self, Self::SendSolicited | Self::SendSolicitedInvalidate)
    }

    /// Returns whether messages of this kind travel in tagged segments (RFC 5040 §4.1, Figure 3).
    pub const fn is_tagged(self) -> bool {
        matches!(self, Self::Write | Self::ReadResponse)
    }

    /// Returns the control byte of a message of this kind.
    pub const fn control(self) -> u8 {
        VERSION << VERSION_SHIFT | self.wire()
    }
}

/// Reason why a control byte is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// RV is not 1.
    #[error("RDMAP version {0}; {VERSION} is known")]
    Version(u8),
    /// A reserved opcode, or one of RFC 7306, which this provider does not support.
    #[error("RDMAP opcode {0} is not known")]
    Opcode(u8),
}

/// Decodes a control byte.
pub fn opcode(control: u8) -> Result<Opcode, ControlError> {
    // RFC 5040 §7.2: version before opcode.
    if control >> VERSION_SHIFT != VERSION {
        return Err(ControlError::Version(control >> VERSION_SHIFT));
    }
    let bits = control & OPCODE_MASK;
    Opcode::from_wire(bits).ok_or(ControlError::Opcode(bits))
}

/// Returns the name of the opcode in `control` for a dissector, including those of RFC 7306.
pub const fn opcode_name(control: u8) -> &'static str {
    match control & OPCODE_MASK {
        0 => "RDMA Write",
        1 => "RDMA Read Request",
        2 => "RDMA Read Response",
        3 => "Send",
        4 => "Send with Invalidate",
        5 => "Send with Solicited Event",
        6 => "Send with Solicited Event and Invalidate",
        7 => "Terminate",
        8 => "Immediate Data",
        9 => "Immediate Data with Solicited Event",
        10 => "Atomic Request",
        11 => "Atomic Response",
        _ => "reserved opcode",
    }
}

/// Returns the version bits of a control byte.
pub const fn control_version(control: u8) -> u8 {
    control >> VERSION_SHIFT
}

mod field {
    pub(super) const SINK_STAG: usize = 0;
    pub(super) const SINK_OFFSET: usize = 4;
    pub(super) const SIZE: usize = 12;
    pub(super) const SOURCE_STAG: usize = 16;
    pub(super) const SOURCE_OFFSET: usize = 20;
}

/// RDMA Read Request header (RFC 5040 §4.4). Every value is legal on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Steering tag at the reader, copied into each segment of the response.
    pub sink_stag: u32,
    /// Tagged offset at the reader of the first byte.
    pub sink_offset: u64,
    /// Bytes to read.
    pub size: u32,
    /// Steering tag of the memory to read from.
    pub source_stag: u32,
    /// Tagged offset of the first byte to read.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Decodes the header, if all 28 bytes are there.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            sink_stag: be32(bytes, field::SINK_STAG)?,
            sink_offset: be64(bytes, field::SINK_OFFSET)?,
            size: be32(bytes, field::SIZE)?,
            source_stag: be32(bytes, field::SOURCE_STAG)?,
            source_offset: be64(bytes, field::SOURCE_OFFSET)?,
        })
    }

    /// Encodes the header to 28 bytes.
    pub fn encode(&self) -> [u8; READ_REQUEST_LEN] {
        let mut bytes = [0; READ_REQUEST_LEN];
        put(&mut bytes, field::SINK_STAG, &self.sink_stag.to_be_bytes());
        put(&mut bytes, field::SINK_OFFSET, &self.sink_offset.to_be_bytes());
        put(&mut bytes, field::SIZE, &self.size.to_be_bytes());
        put(&mut bytes, field::SOURCE_STAG, &self.source_stag.to_be_bytes());
        put(&mut bytes, field::SOURCE_OFFSET, &self.source_offset.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
