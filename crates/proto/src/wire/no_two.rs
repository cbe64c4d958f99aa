//! The face of `wire::two` in a build without Version Two: types without values, so that callers need no
//! `cfg`.

use std::fmt;

use bytes::Bytes;
use thiserror::Error;

use super::{Action, Codec, Fixed};

/// The content of a message that Version One does not have: none in this build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {}

impl Body {
    pub(crate) const fn is_grant(&self) -> bool {
        match *self {}
    }

    pub(crate) const fn messages(&self, _: &Bytes, _: Fixed) -> Option<Result<Vec<Bytes>, Error>> {
        match *self {}
    }

    pub(crate) const fn is_combined(&self) -> bool {
        match *self {}
    }
}

/// The arms of an RDMA_ERROR that Version One does not have: none in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {}

impl ErrorBody {
    pub(crate) const fn is_of_version(&self) -> bool {
        match *self {}
    }
}

impl std::error::Error for ErrorBody {}

impl fmt::Display for ErrorBody {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// A fault of the peer against the documents of Version Two: none in this build.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {}

impl Error {
    pub(crate) const fn is_of_other_profile(&self) -> bool {
        match *self {}
    }

    pub(crate) const fn row(&self) -> (Action, &'static str) {
        match *self {}
    }
}

/// The documents that define Version Two: none in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {}

impl Profile {
    /// Returns its codec.
    #[must_use]
    pub const fn codec(self) -> &'static dyn Codec {
        match self {}
    }

    pub(crate) const fn codec_with(self, _: transmission::OperationBase) -> &'static dyn Codec {
        match self {}
    }
}

/// The rules of Version Two, which no codec has in this build.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rules {
    /// The document that is spoken.
    pub profile: Profile,
    /// Whether each Call names the handle that its reply may invalidate.
    pub names_handle: bool,
    /// Whether a credit is for a message.
    pub counts_messages: bool,
    /// Whether each side tells its characteristics once.
    pub tells_once: bool,
    /// Whether a reply that follows its header returns the Reply chunk.
    pub returns_reply_chunk: bool,
    /// Bytes of the header of each part but the last of a message that comes in several Sends.
    pub part_header: Option<usize>,
}

/// Operations on transmissions: none in this build.
pub mod transmission {
    /// The numbers of the operations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum OperationBase {
        /// Numbers of their own.
        #[default]
        Separate,
    }

    /// A direction for an item of a reply: none in this build.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum ResponseDirection {}
}
