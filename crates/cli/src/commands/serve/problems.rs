//! Faults of files with options, each with its place.
//!
//! All faults of a file are told at once, as far as one does not follow from another, and up to [`TOLD_MAX`].

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, makedev, open};

use crate::exit::{Exit, Failure};
use crate::output;

/// Most faults of a file that are told.
const TOLD_MAX: usize = 20;
/// Longest file, in bytes.
const LENGTH_MAX: u64 = 64 << 20;

/// A place in a file. Lines and columns begin at 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    /// Returns the place of a byte of the text.
    pub(super) fn of(text: &str, byte: usize) -> Self {
        Places::of(text).at(byte)
    }
}

/// Finds the places of bytes of a text. Bytes in their order together cost one passage over the text.
pub(super) struct Places<'a> {
    text: &'a str,
    /// The byte that was asked for last, and its place.
    byte: usize,
    at: Position,
}

impl<'a> Places<'a> {
    pub(super) const fn of(text: &'a str) -> Self {
        Self { text, byte: 0, at: Position { line: 1, column: 1 } }
    }

    /// Returns the place of a byte; of the end if the text has no character there.
    pub(super) fn at(&mut self, byte: usize) -> Position {
        if byte < self.byte {
            *self = Self::of(self.text);
        }
        let left = self.text.get(self.byte..).unwrap_or_default();
        let passed = left.get(..byte - self.byte).unwrap_or(left);
        self.byte += passed.len();
        self.at.line += passed.matches('\n').count();
        let (column, tail) = match passed.rsplit_once('\n') {
            Some((_, tail)) => (1, tail),
            None => (self.at.column, passed),
        };
        self.at.column = column + tail.chars().count();
        self.at
    }
}

/// Faults of one file.
#[derive(Debug)]
pub(super) struct Problems {
    file: String,
    found: Vec<(Position, String)>,
}

impl Problems {
    pub(super) fn of(file: &Path) -> Self {
        Self { file: file.display().to_string(), found: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Position, fault: impl Into<String>) {
        self.found.push((at, fault.into()));
    }

    /// Adds faults at bytes of the text.
    pub(super) fn add_all(&mut self, text: &str, mut faults: Vec<(usize, String)>) {
        faults.sort_by_key(|(byte, _)| *byte);
        let mut places = Places::of(text);
        self.found.extend(faults.into_iter().map(|(byte, fault)| (places.at(byte), fault)));
    }

    /// Returns the line for something at a place.
    pub(super) fn line(&self, at: Position, text: &str) -> String {
        format!("{}:{}:{}: {text}", self.file, at.line, at.column)
    }

    /// Checks that there are no faults.
    ///
    /// # Errors
    /// A line for each fault in the order of their places, and one for those not told.
    pub(super) fn check(mut self) -> Result<(), Vec<String>> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_by_key(|(at, _)| *at);
        let told = self.found.iter().take(TOLD_MAX).map(|(at, fault)| self.line(*at, fault));
        let mut lines: Vec<String> = told.collect();
        if let Some(more) = self.found.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
            lines.push(format!("{}: and {more} more", self.file));
        }
        Err(lines)
    }
}

/// Returns whether a path stands for a descriptor that the process was started with, as `<(…)` of a shell does.
fn is_inherited(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || path.parent().is_some_and(|folder| {
            ["/dev/fd", "/proc/self/fd"].iter().any(|descriptors| folder == Path::new(descriptors))
        })
}

/// Opens a file to read it whole. Returns it, and whether it is a pipe.
///
/// Only what has an end is opened: a regular file, `/dev/null`, or a pipe that the process was started with. A FIFO would keep
/// the server waiting for a writer, and a device such as `/dev/zero` has no end.
///
/// # Errors
/// A text without the path.
fn opened(path: &Path) -> Result<(File, bool), String> {
    // Without NONBLOCK the call itself waits for the writer of a FIFO.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).map_err(|error| error.to_string())?);
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_char_device() && metadata.rdev() == makedev(1, 3) {
        return Ok((file, false));
    }
    if kind.is_fifo() && is_inherited(path) {
        let waiting = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        waiting.map_err(|error| error.to_string())?;
        return Ok((file, true));
    }
    let kind = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(format!("it is {kind}, and the server reads regular files only"))
}

/// Returns the text of a file, of at most [`LENGTH_MAX`] bytes. Waits for no other process, short of the writer of a pipe that
/// this process was started with.
///
/// # Errors
/// A line that names the file.
pub(super) fn text_of(path: &Path) -> Result<String, Vec<String>> {
    let failed = |error: &dyn std::fmt::Display| vec![format!("cannot read {}: {error}", path.display())];
    let (file, is_pipe) = opened(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LENGTH_MAX) {
        return Err(failed(&format_args!("it has more than {LENGTH_MAX} bytes")));
    }
    if is_pipe && bytes.is_empty() {
        let hint =
            "it is a pipe with nothing in it. A pipe can be read once: for SIGHUP, give the server a file";
        return Err(failed(&hint));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default());
        let mut problems = Problems::of(path);
        problems.add(Position::of(&before, valid), "saw bytes that are not UTF-8, expected text");
        problems.check().err().unwrap_or_default()
    })
}

/// Reason why options cannot be used.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// Faults of a file, a line each.
    File(Vec<String>),
    /// Anything else.
    Other(Failure),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

impl From<Vec<String>> for Wrong {
    fn from(lines: Vec<String>) -> Self {
        Self::File(lines)
    }
}

impl Wrong {
    /// Returns the failure of the command, after the faults of a file were told.
    pub(crate) fn told(self) -> Failure {
        match self {
            Self::File(lines) => {
                lines.iter().for_each(output::warn);
                Failure::silent(Exit::Usage).with_causes(lines)
            }
            Self::Other(failure) => failure,
        }
    }

    /// Returns one line for a log.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::File(lines) => match lines.as_slice() {
                [] => String::new(),
                [only] => only.clone(),
                [first, rest @ ..] => {
                    format!("{first} (and {} more: rpcrdma serve --check tells them)", rest.len())
                }
            },
            Self::Other(failure) => failure.to_string(),
        }
    }
}

/// Returns the name nearest to a wrong one, if any is near.
pub(super) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = (wrong.chars().count() / 2).clamp(1, 3);
    let near = names.into_iter().map(|name| (distance(wrong, name), name));
    near.filter(|(distance, _)| *distance <= far).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Returns the number of characters to add, remove or change between two words.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (number, left) in one.chars().enumerate() {
        let mut above = std::mem::replace(row.first_mut().unwrap_or(&mut 0), number + 1);
        let mut before = number + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(other.chars()) {
            let changed = above + usize::from(left != right);
            above = *cell;
            before = changed.min(above + 1).min(before + 1);
            *cell = before;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters() {
        let at = |byte| Position::of("ab\né=x\n", byte);
        assert_eq!((at(0), at(1)), (Position { line: 1, column: 1 }, Position { line: 1, column: 2 }));
        assert_eq!(at(3), Position { line: 2, column: 1 });
        assert_eq!(at(5), Position { line: 2, column: 2 });
        // Inside a character, and behind the text.
        assert_eq!((at(4), at(9)), (Position { line: 3, column: 1 }, Position { line: 3, column: 1 }));
    }

    #[test]
    fn places_are_found_in_any_order() {
        let text = "ab\né=x\n\nend";
        let bytes: Vec<usize> = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect();
        let mut places = Places::of(text);
        for byte in bytes.iter().chain(bytes.iter().rev()).chain([&0, &12, &7, &7, &8]) {
            assert_eq!(places.at(*byte), Position::of(text, *byte), "{byte}");
        }
    }

    #[test]
    fn faults_are_in_order_and_bounded() {
        let mut problems = Problems::of(Path::new("f"));
        for line in (1..=TOLD_MAX + 5).rev() {
            problems.add(Position { line, column: 1 }, "wrong");
        }
        let lines = problems.check().unwrap_err();
        assert_eq!(lines.len(), TOLD_MAX + 1);
        assert_eq!((lines[0].as_str(), lines[TOLD_MAX].as_str()), ("f:1:1: wrong", "f: and 5 more"));
        assert_eq!(Wrong::File(lines).line(), "f:1:1: wrong (and 20 more: rpcrdma serve --check tells them)");
    }

    #[test]
    fn a_word_that_is_nearly_right_is_found() {
        let names = ["listen", "tcp", "tcp-idle", "read-only"];
        assert_eq!(nearest("lisen", names), Some("listen"));
        assert_eq!(nearest("read_only", names), Some("read-only"));
        assert_eq!(nearest("memory", names), None);
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("a", "a")), (3, 2, 0));
    }

    /// Each of these would otherwise be read without an end.
    #[test]
    fn only_files_with_an_end_are_read() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let long = place.path().join("long");
        File::create(&long).unwrap().set_len(LENGTH_MAX + 1).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for (path, expected) in [
            (fifo.as_path(), "it is a FIFO, and the server reads regular files only"),
            (&link, "it is a FIFO"),
            (Path::new("/dev/zero"), "it is a device"),
            (place.path(), "it is a directory"),
            (&long, "it has more than 67108864 bytes"),
        ] {
            let told = text_of(path).unwrap_err().join("\n");
            assert!(told.starts_with(&format!("cannot read {}: {expected}", path.display())), "{told}");
        }
        assert_eq!(text_of(Path::new("/dev/null")).unwrap(), "");
    }

    /// As `serve --config <(…)` does.
    #[test]
    fn a_pipe_that_was_passed_is_read_once() {
        use std::io::Write as _;
        use std::os::fd::AsRawFd as _;
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let writing = std::thread::spawn(move || {
            // More than a pipe holds, and not all at once.
            for _ in 0..3 {
                writer.write_all(&[b'#'; 50_000]).unwrap();
                std::thread::yield_now();
            }
        });
        assert_eq!(text_of(Path::new(&path)).unwrap().len(), 150_000);
        writing.join().unwrap();
        let told = text_of(Path::new(&path)).unwrap_err().join("\n");
        assert!(told.contains("A pipe can be read once"), "{told}");
    }

    #[test]
    fn a_file_that_is_no_text_is_told_with_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"ok\nx\xff").unwrap();
        let told = text_of(file.path()).unwrap_err().join("\n");
        assert!(told.ends_with(":2:2: saw bytes that are not UTF-8, expected text"), "{told}");
        assert!(text_of(Path::new("/nonexistent")).unwrap_err()[0].contains("cannot read /nonexistent: "));
    }
}
