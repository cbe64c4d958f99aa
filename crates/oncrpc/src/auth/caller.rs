//! Callers of RPCSEC_GSS: who they are, and how their calls are protected.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_xdr::Xdr;

/// The creator of a context: a name of a mechanism.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The name as the mechanism shows it, for instance `user@EXAMPLE.ORG`.
    pub name: String,
    /// The mechanism's object identifier, as the contents of its DER encoding.
    pub mechanism: Bytes,
    /// Name of the local user by the mechanism's own rules (for Kerberos `auth_to_local` of `krb5.conf`), if they give one.
    /// Only acceptors ask for it.
    pub local: Option<String>,
}

impl Principal {
    /// Longest name of a principal, and of its local user, in bytes. A server keeps one of each context.
    pub const MAX_LEN: usize = 1 << 10;

    /// Checks that no name is longer than [`MAX_LEN`](Self::MAX_LEN).
    ///
    /// # Errors
    /// The length of a name that is longer.
    pub fn check(&self) -> Result<(), usize> {
        let longest = self.local.as_ref().map_or(0, String::len).max(self.name.len());
        if longest > Self::MAX_LEN { Err(longest) } else { Ok(()) }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// `rpc_gss_service_t`: the protection of arguments and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Xdr)]
pub enum Service {
    /// `rpc_gss_svc_none`: only the header of the call is protected (`krb5`).
    None = 1,
    /// `rpc_gss_svc_integrity`: changes are detected (`krb5i`).
    Integrity = 2,
    /// `rpc_gss_svc_privacy`: and others cannot read them (`krb5p`).
    Privacy = 3,
}

/// The caller of a request of RPCSEC_GSS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GssCaller {
    /// The creator of the context.
    pub principal: Arc<Principal>,
    /// Protection of this request.
    pub service: Service,
}
