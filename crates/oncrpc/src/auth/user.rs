//! [`User`]: the user of a call, for logs.

use std::fmt;
use std::sync::Arc;

use super::{Credential, GssCaller};
use crate::shown::Shown;

/// The user whom a call claims or proves to be from, for logs. Rights follow from the [`Credential`] alone.
///
/// As text, the number of a user ID, the name of a principal, or `unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum User {
    /// The call has no credential, or one of another flavour.
    #[default]
    Unknown,
    /// The user ID that AUTH_SYS claims.
    Id(u32),
    /// A caller by RPCSEC_GSS.
    Principal(Arc<GssCaller>),
}

impl User {
    /// Returns the user of a credential.
    #[must_use]
    pub fn of(credential: &Credential) -> Self {
        match credential {
            Credential::Sys(sys) => Self::Id(sys.uid),
            Credential::Gss(caller) => Self::Principal(Arc::clone(caller)),
            Credential::None | Credential::Other(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Id(id) => id.fmt(f),
            Self::Principal(caller) => Shown(caller.principal.name.as_bytes()).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::auth::{AuthSys, Principal, Service};

    #[test]
    fn i6_users_are_shown_without_control_characters() {
        let sys = Credential::Sys(AuthSys { uid: 1000, ..AuthSys::default() });
        assert_eq!(User::of(&sys).to_string(), "1000");
        assert_eq!(User::of(&Credential::None).to_string(), "unknown");
        let principal =
            Principal { name: "eve\n@EXAMPLE.ORG".to_owned(), mechanism: Bytes::new(), local: None };
        let caller = GssCaller { principal: Arc::new(principal), service: Service::None };
        assert_eq!(User::of(&Credential::Gss(Arc::new(caller))).to_string(), "eve\\n@EXAMPLE.ORG");
    }
}
