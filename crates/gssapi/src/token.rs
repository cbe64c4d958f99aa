//! Common parts of the tokens of GSS_GetMIC and GSS_Wrap (RFC 4121 §4.2).

/// Length of the header of a token, in bytes.
pub(crate) const HEADER_LEN: usize = 16;
/// Byte where a header has nothing to say.
pub(crate) const FILLER: u8 = 0xff;

/// Flags of tokens (RFC 4121 §4.2.2). Receivers ignore all others.
pub(crate) mod flags {
    pub(crate) const SENT_BY_ACCEPTOR: u8 = 1;
    pub(crate) const SEALED: u8 = 2;
    pub(crate) const ACCEPTOR_SUBKEY: u8 = 4;
}

/// A side of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Acceptor,
}

impl Role {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Acceptor,
            Self::Acceptor => Self::Initiator,
        }
    }

    /// Key usage of the side's checksums (RFC 4121 §2: KG-USAGE-INITIATOR-SIGN, KG-USAGE-ACCEPTOR-SIGN).
    pub(crate) const fn sign_usage(self) -> u32 {
        match self {
            Self::Initiator => 25,
            Self::Acceptor => 23,
        }
    }

    /// Key usage of the side's encryption (RFC 4121 §2: KG-USAGE-INITIATOR-SEAL, KG-USAGE-ACCEPTOR-SEAL).
    pub(crate) const fn seal_usage(self) -> u32 {
        match self {
            Self::Initiator => 24,
            Self::Acceptor => 22,
        }
    }

    pub(crate) const fn flag(self) -> u8 {
        match self {
            Self::Initiator => 0,
            Self::Acceptor => flags::SENT_BY_ACCEPTOR,
        }
    }
}

/// Reason why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is no token of this kind.
    Defective,
    /// The checksum is another message's, or was made by this side, or with another key.
    ///
    /// An acceptor may choose a subkey in the last token of creation (RFC 4121 §2). An initiator of RPCSEC_GSS has that token
    /// before it makes any other. So honest tokens are all made with one key.
    Checksum,
    /// Its message is not encrypted.
    NotEncrypted,
}
