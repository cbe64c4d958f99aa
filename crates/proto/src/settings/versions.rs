//! The versions that a connection may speak, and the choice among them.
//!
//! Version Two is not one protocol. Three documents define it with different wire formats ([`Profile`]), and no field
//! identifies the document. The owner of a side therefore configures the profile; it is never guessed from the wire.
//!
//! A client begins with its highest version (version-two-01 §5): with one message of at most [`FIRST_MESSAGE`] bytes,
//! and nothing else until the answer. [`Session`](crate::Session) uses a NULL call of [`Config::program`](crate::Config::program) for that. When the server refuses
//! the version, the session falls back to Version One on the same connection. When the connection is lost meanwhile, it
//! does so on the next one. A server adopts the version of the first message that it understands.

use crate::wire::two::Profile;
use crate::wire::two::transmission::OperationBase;
use crate::wire::{Codec, v1::V1};

/// The most bytes of the first message in a version that the peer may not speak (version-two-01 §5).
pub(crate) const FIRST_MESSAGE: usize = 1024;

/// The versions of one side; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub(crate) one: bool,
    pub(crate) two: Option<Profile>,
    pub(crate) operations: OperationBase,
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

    /// Returns whether this side speaks Version One.
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
