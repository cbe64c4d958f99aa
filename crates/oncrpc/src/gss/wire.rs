//! The wire format of RPCSEC_GSS (RFC 2203 §5): credentials, and the arguments and results of context creation.

use bytes::Bytes;
use rpcrdma_xdr::{DecodeError, Decoder, EncodeError, Xdr, encode};

use crate::auth::{OpaqueAuth, Service, flavor};
use crate::message::AuthStat;

/// The version of the protocol that is spoken (RFC 2203 §5.1).
pub const VERSION: u32 = 1;

/// `MAXSEQ` (RFC 2203 §5): sequence numbers are smaller.
pub const SEQUENCE_END: u32 = 0x8000_0000;

/// Longest handle of a context, in bytes: what is left of the 400 bytes of a credential.
pub const HANDLE_MAX: usize = 380;

/// Longest token of a mechanism in one message, in bytes. Tickets of Active Directory have up to 48,000.
pub const TOKEN_MAX: usize = 65_536;

/// `rpc_gss_proc_t`: what a call with a credential of RPCSEC_GSS asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Xdr)]
pub enum GssProcedure {
    /// RPCSEC_GSS_DATA: the procedure of the call.
    Data = 0,
    /// RPCSEC_GSS_INIT: a new context.
    Init = 1,
    /// RPCSEC_GSS_CONTINUE_INIT: the next token for it.
    ContinueInit = 2,
    /// RPCSEC_GSS_DESTROY: the end of a context.
    Destroy = 3,
}

/// `rpc_gss_cred_vers_1_t`: the body of a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GssCredential {
    /// The purpose of the call.
    pub procedure: GssProcedure,
    /// Number of the request in its context. Without meaning while a context is created.
    pub sequence: u32,
    /// Protection of arguments and results. Without meaning while a context is created (RFC 2203 §5.2.2), where it may have
    /// any value.
    pub service: Service,
    /// The server's name for the context; empty in the first request.
    pub handle: Bytes,
}

/// A credential as it stands in a message, before its fields are checked.
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
struct Fields {
    version: u32,
    procedure: u32,
    sequence: u32,
    service: u32,
    #[xdr(max = HANDLE_MAX)]
    handle: Bytes,
}

impl GssCredential {
    /// Reads the body of a credential of RPCSEC_GSS.
    ///
    /// # Errors
    /// AUTH_REJECTEDCRED if another version of the protocol is to create a context (RFC 2203 §5.1), AUTH_BADCRED for any other
    /// fault (§5.3.3.3).
    pub fn read(body: &Bytes) -> Result<Self, AuthStat> {
        let mut start = Decoder::new(body.clone());
        let version = start.u32().map_err(|_| AuthStat::BadCred)?;
        let procedure = start.u32().map_err(|_| AuthStat::BadCred)?;
        let creates = [GssProcedure::Init as u32, GssProcedure::ContinueInit as u32].contains(&procedure);
        if version != VERSION {
            // Versions 2 and 3 have the procedure in this place too (RFC 5403 §3, RFC 7861 §2).
            return Err(if creates { AuthStat::RejectedCred } else { AuthStat::BadCred });
        }
        let fields: Fields = Decoder::new(body.clone()).decode_all().map_err(|_| AuthStat::BadCred)?;
        let procedure = match fields.procedure {
            0 => GssProcedure::Data,
            1 => GssProcedure::Init,
            2 => GssProcedure::ContinueInit,
            3 => GssProcedure::Destroy,
            _ => return Err(AuthStat::BadCred),
        };
        let service = match fields.service {
            1 => Service::None,
            2 => Service::Integrity,
            3 => Service::Privacy,
            _ if creates => Service::None,
            _ => return Err(AuthStat::BadCred),
        };
        Ok(Self { procedure, sequence: fields.sequence, service, handle: fields.handle })
    }

    /// Returns the credential for a call.
    ///
    /// # Errors
    /// If the handle is longer than [`HANDLE_MAX`].
    pub fn to_auth(&self) -> Result<OpaqueAuth, EncodeError> {
        let fields = Fields {
            version: VERSION,
            procedure: self.procedure as u32,
            sequence: self.sequence,
            service: self.service as u32,
            handle: self.handle.clone(),
        };
        let (body, _) = encode(&fields)?.flatten();
        Ok(OpaqueAuth { flavor: flavor::RPCSEC_GSS, body })
    }
}

/// `rpc_gss_init_arg` (RFC 2203 §5.2.2).
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct InitArguments {
    /// The initiator's token.
    #[xdr(max = TOKEN_MAX)]
    pub token: Bytes,
}

/// `rpc_gss_init_res` (RFC 2203 §5.2.3.1).
#[derive(Clone, Debug, PartialEq, Eq, Xdr)]
pub struct InitResults {
    /// Name of the context; empty after a failure.
    #[xdr(max = HANDLE_MAX)]
    pub handle: Bytes,
    /// The acceptor's status, one of [`major`](super::major).
    pub major: u32,
    /// The mechanism's own status.
    pub minor: u32,
    /// Requests that may be outstanding at a time.
    pub window: u32,
    /// The acceptor's token; empty if there is none, and after a failure.
    #[xdr(max = TOKEN_MAX)]
    pub token: Bytes,
}

/// `rpc_gss_integ_data` (RFC 2203 §5.3.2.2), arguments or results.
pub(super) struct Protected {
    /// Sequence number, and the arguments or results.
    pub(super) body: Bytes,
    pub(super) checksum: Bytes,
}

impl Protected {
    /// Reads data with integrity. Nothing in it is DDP-eligible (RFC 8166 §8.2.2.3).
    pub(super) fn read(mut data: Decoder) -> Result<Self, DecodeError> {
        let body = data.opaque(u32::MAX as usize)?;
        let checksum = data.opaque(u32::MAX as usize)?;
        data.finish()?;
        Ok(Self { body, checksum })
    }
}

/// Reads data with privacy, `rpc_gss_priv_data` (RFC 2203 §5.3.2.3).
pub(super) fn read_private(mut data: Decoder) -> Result<Bytes, DecodeError> {
    let wrapped = data.opaque(u32::MAX as usize)?;
    data.finish()?;
    Ok(wrapped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(words: &[u32]) -> Bytes {
        words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>().into()
    }

    // requirement: rfc2203-3-1, rfc2203-5-8, rfc2203-5.3.1-1
    #[test]
    fn a_credential_has_the_bytes_of_the_document() {
        let credential = GssCredential {
            procedure: GssProcedure::Data,
            sequence: 7,
            service: Service::Integrity,
            handle: Bytes::from_static(b"abcde"),
        };
        let auth = credential.to_auth().unwrap();
        let expected = [&words(&[1, 0, 7, 2, 5])[..], b"abcde\0\0\0"].concat();
        assert_eq!((auth.flavor, &auth.body[..]), (6, &expected[..]));
        assert_eq!(GssCredential::read(&auth.body), Ok(credential));
    }

    // requirement: rfc2203-5-6, rfc2203-5-7, rfc2203-5.1-2, rfc2203-5.3.3.1-1, rfc2203-5.3.3.3-7, rfc2203-5.3.3.3-8
    #[test]
    fn faults_of_a_credential_have_their_status() {
        let bad = Err(AuthStat::BadCred);
        for (body, status) in [
            (words(&[]), bad.clone()),
            (words(&[1]), bad.clone()),
            (words(&[1, 0, 7, 2]), bad.clone()),
            (words(&[1, 4, 7, 1, 0]), bad.clone()),
            (words(&[1, 0, 7, 0, 0]), bad.clone()),
            (words(&[1, 0, 7, 4, 0]), bad.clone()),
            (words(&[1, 3, 7, 0, 0]), bad.clone()),
            // Too long, and more than there is.
            (words(&[1, 0, 7, 1, 381]), bad.clone()),
            (words(&[1, 0, 7, 1, 0, 0]), bad.clone()),
            // Another version.
            (words(&[2, 0, 7, 1, 0]), bad.clone()),
            (words(&[0, 3, 7, 1, 0]), bad),
            (words(&[2, 1, 7, 1, 0]), Err(AuthStat::RejectedCred)),
            (words(&[3, 2]), Err(AuthStat::RejectedCred)),
        ] {
            assert_eq!(GssCredential::read(&body), status, "{body:?}");
        }
    }

    // requirement: rfc2203-5.2.2-3
    #[test]
    fn sequence_and_service_are_ignored_while_a_context_is_created() {
        for procedure in [1, 2] {
            let read = GssCredential::read(&words(&[1, procedure, u32::MAX, 99, 0])).unwrap();
            assert_eq!(read.sequence, u32::MAX);
        }
    }

    proptest! {
        #[test]
        fn any_credential_is_read_as_it_was_written(
            procedure in 0..4_u32, sequence: u32, service in 1..4_u32,
            handle in proptest::collection::vec(any::<u8>(), 0..=HANDLE_MAX),
        ) {
            let fields = Fields { version: 1, procedure, sequence, service, handle: handle.into() };
            let (body, _) = encode(&fields).unwrap().flatten();
            prop_assert!(body.len() <= crate::auth::AUTH_BODY_MAX);
            let read = GssCredential::read(&body).unwrap();
            prop_assert_eq!(read.to_auth().unwrap().body, body);
        }

        #[test]
        fn no_body_of_a_credential_panics(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = GssCredential::read(&body.into());
        }
    }
}
