//! Output of the commands: text or one JSON document on standard output, warnings on standard error.
//!
//! When nobody reads standard output any more (`rpcrdma ls … | head`), the command ends quietly. Servers
//! choose names, so a terminal gets them without control characters.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Prints a JSON document and a newline.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_vec(document)
        .map_err(|error| Failure::failed(format!("cannot express the result in JSON: {error}")))?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).map_err(stdout_failure)
}

/// Prints one line.
pub(crate) fn line(line: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(stdout_failure)
}

/// Writes text to standard output in large pieces.
pub(crate) struct Text {
    out: BufWriter<Stdout>,
    terminal: bool,
}

impl Text {
    /// Returns a writer on standard output.
    pub(crate) fn stdout() -> Self {
        let out = io::stdout();
        let terminal = out.is_terminal();
        Self { out: BufWriter::with_capacity(64 << 10, out), terminal }
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(stdout_failure)
    }

    /// Prints a line that ends with a name, which need not be UTF-8.
    pub(crate) fn line_with_name(&mut self, start: impl Display, name: &[u8]) -> Result<(), Failure> {
        write!(self.out, "{start}").map_err(stdout_failure)?;
        let written = if self.terminal {
            self.out.write_all(printable(name).as_bytes())
        } else {
            self.out.write_all(name)
        };
        written.and_then(|()| self.out.write_all(b"\n")).map_err(stdout_failure)
    }

    /// Writes out everything that is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(stdout_failure)
    }
}

/// Returns a name for display: as UTF-8, without control characters.
pub(crate) fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Returns the failure for an error of a write to standard output.
pub(crate) fn stdout_failure(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::silent(Exit::PipeClosed)
    } else {
        Failure::failed(format!("cannot write to standard output: {error}"))
    }
}

/// Prints a warning or a failure that does not end the command.
pub(crate) fn warn(message: impl Display) {
    // If standard error is closed, the warning is lost.
    let _ = writeln!(io::stderr().lock(), "rpcrdma: {}", printable(message.to_string().as_bytes()));
}

/// Prints a line about completed work on standard error.
pub(crate) fn note(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_terminals_have_no_control_characters() {
        assert_eq!(printable("é\x1b[2J\n".as_bytes()), "é\u{fffd}[2J\u{fffd}");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = stdout_failure(io::ErrorKind::BrokenPipe.into());
        assert!(failure.is_silent());
        assert_eq!(failure.exit().code(), 0);
        assert!(!stdout_failure(io::ErrorKind::StorageFull.into()).is_silent());
    }
}
