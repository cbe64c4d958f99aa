//! Writer of SVG: one element a line, with text escaped.

use std::fmt::{Display, Write};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The file of a picture. It is opened before the work of a measurement, and keeps its content until there is a new one.
#[derive(Debug)]
pub(super) struct Picture {
    path: PathBuf,
    file: File,
}

impl Picture {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        match opened {
            Ok(file) => Ok(Self { path: path.to_owned(), file }),
            Err(error) => Err(cannot_write(path, &error)),
        }
    }

    /// Replaces the content.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| cannot_write(&self.path, &error))
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

/// A coordinate or a length, in tenths of a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units(pub(super) f64);

impl Display for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Adding zero removes the sign of a negative zero.
        let tenths = (self.0 * 10.0).round() + 0.0;
        write!(f, "{}", tenths / 10.0)
    }
}

/// Name and value of an attribute.
pub(super) type Attribute<'a> = (&'static str, &'a dyn Display);

/// Picture in progress.
#[derive(Debug, Default)]
pub(super) struct Svg {
    text: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Begins an element that contains others.
    pub(super) fn begin(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.start(name, attributes);
        self.text.push_str(">\n");
        self.open.push(name);
    }

    /// Ends the element that was begun last.
    pub(super) fn end(&mut self) {
        if let Some(name) = self.open.pop() {
            self.put(format_args!("</{name}>\n"));
        }
    }

    /// Writes an element without content.
    pub(super) fn element(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.start(name, attributes);
        self.text.push_str("/>\n");
    }

    /// Writes an element with text in it.
    pub(super) fn text(&mut self, name: &'static str, attributes: &[Attribute<'_>], text: &str) {
        self.start(name, attributes);
        self.put(format_args!(">{}</{name}>\n", Escaped(text)));
    }

    /// Ends all open elements and returns the text.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text
    }

    fn start(&mut self, name: &'static str, attributes: &[Attribute<'_>]) {
        self.put(format_args!("<{name}"));
        for (name, value) in attributes {
            self.put(format_args!(" {name}=\"{}\"", Escaped(&value.to_string())));
        }
    }

    fn put(&mut self, what: impl Display) {
        // Writing to a String does not fail.
        let _ = write!(self.text, "{what}");
    }
}

/// Text escaped for XML, between tags and in attributes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                // XML 1.0 allows no other control characters.
                c if c.is_control() && !matches!(c, '\n' | '\t') => f.write_str("\u{fffd}")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_escaped() {
        let mut svg = Svg::default();
        svg.begin("g", &[("id", &"a\"b&c")]);
        svg.text("text", &[("x", &Units(1.25))], "a < b > c\u{1b}");
        svg.element("path", &[("d", &"M0 0")]);
        assert_eq!(
            svg.finish(),
            "<g id=\"a&quot;b&amp;c\">\n<text x=\"1.3\">a &lt; b &gt; c\u{fffd}</text>\n<path d=\"M0 0\"/>\n</g>\n"
        );
    }

    #[test]
    fn coordinates_are_short() {
        let shown = [0.0, -0.01, 12.0, 12.34, -3.96].map(|value| Units(value).to_string());
        assert_eq!(shown, ["0", "0", "12", "12.3", "-4"]);
    }
}
