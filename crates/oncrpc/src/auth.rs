//! Credentials and verifiers: `opaque_auth` (RFC 5531 §8.2), AUTH_NONE (§10.1) and AUTH_SYS (Appendix A).
//!
//! The body of an `opaque_auth` is a slice of the message that held it. A credential that doesn't decode is refused
//! with `AUTH_BADCRED`; a credential of an unknown flavour is kept unchanged.

use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Text, Xdr, encode, padded_len};

mod caller;
mod user;

pub use caller::{GssCaller, Principal, Service};
pub use user::User;

/// Longest body of an `opaque_auth`, in bytes (RFC 5531 §8.2).
pub const AUTH_BODY_MAX: usize = 400;

/// Longest machine name in AUTH_SYS, in bytes (RFC 5531 Appendix A).
pub const MACHINE_NAME_MAX: usize = 255;

/// Most supplementary groups in AUTH_SYS (RFC 5531 Appendix A).
pub const GIDS_MAX: usize = 16;

/// Numbers of flavours (RFC 5531 §8.2, RFC 2203 §5, RFC 9289 §7.1).
pub mod flavor {
    /// No authentication.
    pub const AUTH_NONE: u32 = 0;
    /// Numeric user and groups, without proof.
    pub const AUTH_SYS: u32 = 1;
    /// Short form of AUTH_SYS, issued by a server.
    pub const AUTH_SHORT: u32 = 2;
    /// Diffie-Hellman, obsolete.
    pub const AUTH_DH: u32 = 3;
    /// RPCSEC_GSS (RFC 2203).
    pub const RPCSEC_GSS: u32 = 6;
    /// The question whether a server speaks TLS on this connection (RFC 9289 §4.1).
    pub const AUTH_TLS: u32 = 7;
}

/// A credential or verifier as it stands in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct OpaqueAuth {
    /// One of [`flavor`], or another number.
    pub flavor: u32,
    /// The body that the flavour defines; at most [`AUTH_BODY_MAX`] bytes.
    #[xdr(max = AUTH_BODY_MAX)]
    pub body: Bytes,
}

impl OpaqueAuth {
    /// Returns AUTH_NONE with an empty body (RFC 5531 §10.1).
    pub const fn none() -> Self {
        Self { flavor: flavor::AUTH_NONE, body: Bytes::new() }
    }

    /// Returns the encoded length in bytes.
    pub(crate) const fn encoded_len(&self) -> usize {
        8 + padded_len(self.body.len())
    }
}

/// The identity that a caller claims by AUTH_SYS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Xdr)]
pub struct AuthSys {
    /// An arbitrary number chosen by the caller.
    pub stamp: u32,
    /// Name of the caller's machine.
    #[xdr(max = MACHINE_NAME_MAX)]
    pub machine_name: Text,
    /// Effective user ID.
    pub uid: u32,
    /// Effective group ID.
    pub gid: u32,
    /// Supplementary group IDs.
    #[xdr(max = GIDS_MAX)]
    pub gids: Vec<u32>,
}

/// A credential, decoded if its flavour is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// AUTH_NONE. Its body should be empty (RFC 5531 §10.1) and is ignored.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
    /// RPCSEC_GSS, after its proof was checked. Only [`Dispatcher::dispatch_opened`](crate::Dispatcher::dispatch_opened)
    /// makes this: a message never has it.
    Gss(Arc<GssCaller>),
    /// Any other flavour.
    Other(OpaqueAuth),
}

impl Credential {
    /// Returns the number of the flavour.
    pub const fn flavor(&self) -> u32 {
        match self {
            Self::None => flavor::AUTH_NONE,
            Self::Sys(_) => flavor::AUTH_SYS,
            Self::Gss(_) => flavor::RPCSEC_GSS,
            Self::Other(auth) => auth.flavor,
        }
    }
}

impl TryFrom<OpaqueAuth> for Credential {
    type Error = DecodeError;

    fn try_from(auth: OpaqueAuth) -> Result<Self, DecodeError> {
        match auth.flavor {
            flavor::AUTH_NONE => Ok(Self::None),
            flavor::AUTH_SYS => Decoder::new(auth.body).decode_all().map(Self::Sys),
            _ => Ok(Self::Other(auth)),
        }
    }
}

impl TryFrom<&Credential> for OpaqueAuth {
    type Error = EncodeError;

    fn try_from(credential: &Credential) -> Result<Self, EncodeError> {
        match credential {
            Credential::None => Ok(Self::none()),
            Credential::Sys(sys) => {
                let (body, _) = encode(sys)?.flatten();
                Ok(Self { flavor: flavor::AUTH_SYS, body })
            }
            Credential::Gss(_) => Err(EncodeError::Invalid {
                reason: "a context makes the credential of each call of RPCSEC_GSS",
            }),
            Credential::Other(auth) => Ok(auth.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
