//! The versions that a connection may speak, and the choice among them.
//!
//! Version Two is not one protocol. Three documents define it with different wire formats ([`Profile`]), and no field
//! identifies the document. The owner of a side therefore configures the profile; it is never guessed from the wire.
//!
//! A client begins with its highest version (version-two-01 §5): with one message of at most [`FIRST_MESSAGE`] bytes,
//! and nothing else until the answer. [`Session`](crate::Session) uses a NULL call for that. When the server refuses
//! the version, the session falls back to Version One on the same connection. When the connection is lost meanwhile, it
//! does so on the next one. A server adopts the version of the first message that it understands.

use thiserror::Error;

use crate::wire::two::Profile;
use crate::wire::two::transmission::{OperationBase, OperationType};
use crate::wire::{Codec, v1::V1};

/// The most bytes of the first message in a version that the peer may not speak (version-two-01 §5).
pub const FIRST_MESSAGE: usize = 1024;

/// The versions of one side; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    one: bool,
    two: Option<Profile>,
    operations: OperationBase,
}

/// Reasons why the operations on transmissions cannot have these numbers.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationNumbers {
    /// xcharext-02 §4: in P1 the operations on characteristics have the numbers 1 to 4.
    #[error(
        "the operations on transmissions cannot begin with {first} in P1, where those on characteristics do"
    )]
    Taken {
        /// The first of the numbers.
        first: u32,
    },
    /// Version One and P3 have no such operations.
    #[error("only P1 and P2 of Version Two have operations on transmissions")]
    None,
}

impl Versions {
    /// Version One only (RFC 8166).
    pub const ONE: Self = Self { one: true, two: None, operations: OperationBase::Separate };

    /// Returns Version Two only, as this document defines it.
    #[must_use]
    pub const fn two(profile: Profile) -> Self {
        Self { one: false, two: Some(profile), operations: OperationBase::Separate }
    }

    /// Returns Version One, and Version Two as this document defines it.
    #[must_use]
    pub const fn both(profile: Profile) -> Self {
        Self { one: true, two: Some(profile), operations: OperationBase::Separate }
    }

    /// Returns these versions with other numbers for the operations on transmissions; both sides need equal ones.
    ///
    /// # Errors
    /// [`OperationNumbers`]: other operations have these numbers, or no version has operations on transmissions.
    pub const fn with_operations(self, operations: OperationBase) -> Result<Self, OperationNumbers> {
        match (self.two, operations) {
            (None | Some(Profile::P3), _) => Err(OperationNumbers::None),
            (Some(Profile::P1), OperationBase::Tables) => {
                Err(OperationNumbers::Taken { first: OperationType::Request.number(operations) })
            }
            _ => Ok(Self { operations, ..self }),
        }
    }

    /// Returns the numbers of the operations on transmissions.
    #[must_use]
    pub const fn operations(&self) -> OperationBase {
        self.operations
    }

    /// Returns the profile of Version Two, if this side speaks it.
    #[must_use]
    pub const fn profile(&self) -> Option<Profile> {
        self.two
    }

    /// Whether this side speaks Version One.
    #[must_use]
    pub const fn has_one(&self) -> bool {
        self.one
    }

    /// Returns the codecs, highest version first.
    pub(crate) fn codecs(self) -> impl Iterator<Item = &'static dyn Codec> {
        let one: Option<&'static dyn Codec> = if self.one { Some(&V1) } else { None };
        let two = self.two.map(|profile| profile.codec_with(self.operations));
        two.into_iter().chain(one)
    }

    /// Returns the codec of a version, if this side speaks it.
    pub(crate) fn codec(self, version: u32) -> Option<&'static dyn Codec> {
        self.codecs().find(|codec| codec.rules().version == version)
    }

    /// Returns the codec of the highest version.
    pub(crate) fn highest(self) -> &'static dyn Codec {
        self.codecs().next().unwrap_or(&V1)
    }

    /// Returns the inclusive range of versions, as ERR_VERS reports it (RFC 8166 §4.5.1).
    #[must_use]
    pub fn range(self) -> (u32, u32) {
        let versions = || self.codecs().map(|codec| codec.rules().version);
        (versions().min().unwrap_or(0), versions().max().unwrap_or(0))
    }

    /// Returns the least size of a Receive, bytes: the threshold that every peer of these versions may count on.
    pub(crate) fn least_receive(self) -> usize {
        self.codecs().map(|codec| codec.rules().default_inline).max().unwrap_or(FIRST_MESSAGE)
    }
}

impl Default for Versions {
    fn default() -> Self {
        Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_speaks_what_it_was_told() {
        let numbers =
            |versions: Versions| versions.codecs().map(|codec| codec.rules().version).collect::<Vec<_>>();
        assert_eq!((numbers(Versions::ONE), Versions::ONE.range()), (vec![1], (1, 1)));
        for profile in [Profile::P1, Profile::P2, Profile::P3] {
            let (two, both) = (Versions::two(profile), Versions::both(profile));
            assert_eq!((numbers(two), two.range(), two.least_receive()), (vec![2], (2, 2), 4096));
            assert_eq!((numbers(both), both.range()), (vec![2, 1], (1, 2)));
            assert_eq!(both.highest().rules().two.map(|two| two.profile), Some(profile));
            assert!(two.codec(1).is_none() && both.codec(1).is_some() && both.codec(3).is_none());
        }
    }
}
