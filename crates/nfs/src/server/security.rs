//! Flavours of security: which ones there are, and the flavour of a call.

use std::fmt;

use rpcrdma_oncrpc::gss::Service;
use rpcrdma_oncrpc::{Credential, auth};

use crate::mount::{KRB5, KRB5I, KRB5P};

/// A flavour of security that an export can allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// AUTH_SYS: the server believes the user that the client claims. A call without a credential (AUTH_NONE) is of this
    /// flavour too, and acts as the export's anonymous user.
    Sys,
    /// Kerberos proves who calls. Arguments and results can be changed and read on the way.
    Krb5,
    /// Kerberos, and changes on the way are detected.
    Krb5i,
    /// Kerberos, and nobody can read calls on the way either.
    Krb5p,
}

impl Security {
    /// All flavours, the weakest first.
    pub const ALL: [Self; 4] = [Self::Sys, Self::Krb5, Self::Krb5i, Self::Krb5p];

    /// Returns the name that `sec=` of exports and mounts uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sys => "sys",
            Self::Krb5 => "krb5",
            Self::Krb5i => "krb5i",
            Self::Krb5p => "krb5p",
        }
    }

    /// Returns the flavour with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flavor| flavor.name() == name)
    }

    /// Returns the number in the list that MOUNT returns: for Kerberos the pseudo-flavour of mechanism and protection
    /// (RFC 7530 §3.2.1.1, RFC 5531 Appendix C).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Sys => auth::flavor::AUTH_SYS,
            Self::Krb5 => KRB5,
            Self::Krb5i => KRB5I,
            Self::Krb5p => KRB5P,
        }
    }

    /// Returns whether calls of this flavour have credentials of RPCSEC_GSS.
    #[must_use]
    pub const fn is_kerberos(self) -> bool {
        !matches!(self, Self::Sys)
    }

    /// Returns the flavours of several lists, each once, in the order in which they stand.
    #[must_use]
    pub fn all<'a>(lists: impl IntoIterator<Item = &'a [Self]>) -> Vec<Self> {
        let mut all = Vec::new();
        for flavor in lists.into_iter().flatten() {
            if !all.contains(flavor) {
                all.push(*flavor);
            }
        }
        all
    }

    /// Returns the flavour of a call; `None` if no export can allow it. Every mechanism that the server accepts contexts
    /// of counts as Kerberos.
    pub(super) fn of(credential: &Credential) -> Option<Self> {
        match credential {
            Credential::None | Credential::Sys(_) => Some(Self::Sys),
            Credential::Gss(caller) => Some(match caller.service {
                Service::None => Self::Krb5,
                Service::Integrity => Self::Krb5i,
                Service::Privacy => Self::Krb5p,
            }),
            _ => None,
        }
    }

    /// Returns the numbers of an export's flavours for MOUNT, in the administrator's order: clients prefer the first that
    /// they know (RFC 2623 §2.7). AUTH_NONE comes last.
    pub(super) fn numbers(allowed: &[Self]) -> Vec<u32> {
        let none = allowed.contains(&Self::Sys).then_some(auth::flavor::AUTH_NONE);
        allowed.iter().map(|flavor| flavor.number()).chain(none).collect()
    }
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Use that a caller makes of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// MNT: the handle of a directory, and the list of flavours.
    Mount,
    /// GETATTR or FSINFO of the export's root, which clients call while they mount.
    Probe,
    /// Anything else.
    Use,
}

/// As whom a caller acts in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acting {
    /// As the user of the credential, by the export's rules.
    Caller,
    /// As the export's anonymous user.
    Anonymous,
}

/// Reason why an export does not admit a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The address, or its port.
    Address,
    /// The flavour of the call.
    Flavor,
}
