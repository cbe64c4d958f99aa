//! Output of the commands: text or one JSON document on standard output, warnings on standard error.
//!
//! A command keeps its document by [`document`], and [`conclude`] prints it at the end, with the failure if there
//! is one. Commands that report while they run print each document at once, by [`json`].
//!
//! When nobody reads standard output any more (`rpcrdma ls … | head`), the command ends quietly. Servers
//! choose names, so a terminal gets them without control characters, and without characters that it cannot show.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// The document of this command, until its end.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

/// Prints a JSON document and a newline.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    line(text_of(document)?)
}

/// Keeps the JSON document of the command, an object, for [`conclude`].
pub(crate) fn document(document: &impl Serialize) -> Result<(), Failure> {
    let text = text_of(document)?;
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    Ok(())
}

/// Prints the document that the command kept, if any. With `failure`, it has a field `error`, and without a document
/// this field stands alone.
pub(crate) fn conclude(failure: Option<&Failure>) -> Result<(), Failure> {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (kept, failure) {
        (kept, Some(failure)) => line(with_error(kept.as_deref().unwrap_or("{}"), failure)?),
        (Some(kept), None) => line(kept),
        (None, None) => Ok(()),
    }
}

/// A failure in a document.
#[derive(Serialize)]
struct Error {
    message: String,
    kind: &'static str,
    exit: u8,
    causes: Vec<String>,
}

/// Returns the text of an object with the field `error`.
fn with_error(object: &str, failure: &Failure) -> Result<String, Failure> {
    let causes = failure.causes();
    let message = match causes {
        [only] if failure.is_silent() => only.clone(),
        _ if failure.is_silent() && failure.exit() == Exit::Partial => "some operations failed".to_owned(),
        _ if failure.is_silent() => "the command failed".to_owned(),
        _ => failure.to_string(),
    };
    let exit = failure.exit();
    // A failure that is no sum is its own cause, so that readers need not look at both fields.
    let causes = if causes.is_empty() { vec![message.clone()] } else { causes.to_vec() };
    let error = text_of(&Error { message, kind: exit.name(), exit: exit.code(), causes })?;
    let open = object.strip_suffix('}').unwrap_or(object);
    let between = if open == "{" { "" } else { "," };
    Ok(format!("{open}{between}\"error\":{error}}}"))
}

fn text_of(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(document)
        .map_err(|error| Failure::failed(format!("cannot express the result in JSON: {error}")))
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
        self.name_until(start, name, b'\n')
    }

    /// Prints text, a name, and a byte after it.
    pub(crate) fn name_until(&mut self, start: impl Display, name: &[u8], end: u8) -> Result<(), Failure> {
        write!(self.out, "{start}").map_err(stdout_failure)?;
        let written = if self.terminal {
            self.out.write_all(shown(&printable(name)).as_bytes())
        } else {
            self.out.write_all(name)
        };
        written.and_then(|()| self.out.write_all(&[end])).map_err(stdout_failure)
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

/// Returns text for a terminal: without the characters that it cannot show.
fn shown(text: &str) -> String {
    static UNICODE: LazyLock<bool> = LazyLock::new(|| {
        let given = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(given);
        locale.is_some_and(|locale| is_unicode(&locale))
    });
    if *UNICODE { text.to_owned() } else { ascii(text) }
}

/// Returns whether terminals of this locale show UTF-8.
fn is_unicode(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Returns text with a question mark in the place of each character beyond ASCII.
fn ascii(text: &str) -> String {
    text.chars().map(|character| if character.is_ascii() { character } else { '?' }).collect()
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
    let mut message = printable(message.to_string().as_bytes());
    if io::stderr().is_terminal() {
        message = shown(&message);
    }
    // If standard error is closed, the warning is lost.
    let _ = writeln!(io::stderr().lock(), "rpcrdma: {message}");
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
    fn terminals_of_other_locales_get_ascii() {
        for (locale, unicode) in [
            ("C", false),
            ("POSIX", false),
            ("de_DE.ISO-8859-1", false),
            ("C.UTF-8", true),
            ("en_US.utf8", true),
        ] {
            assert_eq!(is_unicode(locale), unicode, "{locale}");
        }
        assert_eq!(ascii("né\u{fffd}\u{96ea}"), "n???");
    }

    #[test]
    fn a_failure_stands_in_the_document_or_alone() {
        let failure = Failure::new(Exit::Unreachable, "no \"x\"");
        let error = r#""error":{"message":"no \"x\"","kind":"unreachable","exit":3,"causes":["no \"x\""]}"#;
        assert_eq!(with_error("{}", &failure).unwrap(), format!("{{{error}}}"));
        assert_eq!(with_error(r#"{"a":[{}]}"#, &failure).unwrap(), format!(r#"{{"a":[{{}}],{error}}}"#));
        let message = |exit, causes: &[&str]| {
            let causes = causes.iter().map(|cause| (*cause).to_owned()).collect();
            let text = with_error("{}", &Failure::silent(exit).with_causes(causes)).unwrap();
            let document: serde_json::Value = serde_json::from_str(&text).unwrap();
            document["error"]["message"].as_str().unwrap().to_owned()
        };
        assert_eq!(message(Exit::Failed, &["one"]), "one");
        assert_eq!(message(Exit::Failed, &["one", "two"]), "the command failed");
        assert_eq!(message(Exit::Partial, &["one", "two"]), "some operations failed");
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let failure = stdout_failure(io::ErrorKind::BrokenPipe.into());
        assert!(failure.is_silent());
        assert_eq!(failure.exit().code(), 141);
        assert!(!stdout_failure(io::ErrorKind::StorageFull.into()).is_silent());
    }
}
