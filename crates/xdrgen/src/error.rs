//! Errors: a place in a file, and what is wrong there.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A place in a text. Line and column count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character within the line, from 1; a tabulator is one.
    pub column: usize,
}

impl Position {
    /// The first character of a text.
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A fault in a text, with its place. `Display` prints `LINE:COLUMN: REASON`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{position}: {reason}")]
pub struct Fault {
    /// The place.
    pub position: Position,
    /// The reason in one line, without the place: what was found, and what was expected or is allowed.
    pub reason: String,
}

impl Fault {
    pub(crate) fn new(position: Position, reason: impl Into<String>) -> Self {
        Self { position, reason: reason.into() }
    }
}

/// The reason why no code was generated.
///
/// `Debug` prints the message as well: what cargo shows of a build script whose `main` returns the error.
#[derive(Error)]
#[non_exhaustive]
pub enum Error {
    /// A description, or the side file of its marks, is wrong. Prints `FILE:LINE:COLUMN: REASON`.
    #[error("{file}:{fault}")]
    Text {
        /// Name of the file.
        file: String,
        /// The place in it, and the reason.
        fault: Fault,
    },
    /// A file can't be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The path of the crate is no path of Rust.
    #[error("`{path}` is no path of a crate, such as `::rpcrdma` or `crate::rpc`")]
    CratePath {
        /// The path that was given.
        path: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
