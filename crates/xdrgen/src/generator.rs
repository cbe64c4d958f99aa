//! The generator: from files to code.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::emit::emit;
use crate::error::{Error, Fault};
use crate::lexer::FILE_MAX;
use crate::marks::{Marks, is_path};
use crate::resolve::resolve;
use crate::tree::Specification;

/// Writes Rust for one description. The crate's introduction shows a build script.
#[derive(Clone, Debug)]
pub struct Generator {
    file: PathBuf,
    text: Option<String>,
    marks: Option<PathBuf>,
    marks_text: Option<String>,
    crate_path: String,
}

impl Generator {
    /// Creates a generator for the description in this file.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        let crate_path = "::rpcrdma".to_owned();
        Self { file: file.into(), text: None, marks: None, marks_text: None, crate_path }
    }

    /// Takes the description from `text`; the file only names it.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Names the side file of marks.
    #[must_use]
    pub fn marks(mut self, file: impl Into<PathBuf>) -> Self {
        self.marks = Some(file.into());
        self
    }

    /// Takes the marks from `text`; the side file, if there is one, only names them.
    #[must_use]
    pub fn marks_text(mut self, text: impl Into<String>) -> Self {
        self.marks_text = Some(text.into());
        self
    }

    /// Sets the path by which the code names the crate `rpcrdma`; `::rpcrdma` without it.
    #[must_use]
    pub fn crate_path(mut self, path: impl Into<String>) -> Self {
        self.crate_path = path.into();
        self
    }

    /// Returns the code.
    ///
    /// # Errors
    /// Files that can't be read, wrong descriptions and side files, a path that is none.
    pub fn generate(&self) -> Result<String, Error> {
        if !is_path(&self.crate_path) {
            return Err(Error::CratePath { path: self.crate_path.clone() });
        }
        let named = |file: &Path, fault: Fault| Error::Text { file: file.display().to_string(), fault };
        let text = match &self.text {
            Some(text) => text.clone(),
            None => read(&self.file)?,
        };
        let marks_file = self.marks.as_deref().unwrap_or(Path::new("marks"));
        let marks = match (&self.marks_text, &self.marks) {
            (Some(text), _) => Some(text.clone()),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => None,
        };
        let marks = match marks {
            Some(text) => Marks::parse(&text).map_err(|fault| named(marks_file, fault))?,
            None => Marks::default(),
        };
        let specification = Specification::parse(&text).map_err(|fault| named(&self.file, fault))?;
        let model = resolve(&specification, &marks).map_err(|wrong| match wrong {
            Wrong::Description(fault) => named(&self.file, fault),
            Wrong::Marks(fault) => named(marks_file, fault),
        })?;
        let source = self.file.file_name().unwrap_or(self.file.as_os_str());
        Ok(emit(&model, &source.to_string_lossy(), &self.crate_path))
    }

    /// Writes the code to a file in this directory: `kv.rs` for `kv.x`. Tells cargo, on standard output, to run the build
    /// script again when a file that was read changes. Returns the path of the written file.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate), and a file that can't be written.
    pub fn write_to(&self, directory: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let code = self.generate()?;
        let file = self.text.is_none().then_some(&self.file);
        let marks = self.marks.as_ref().filter(|_| self.marks_text.is_none());
        for file in file.into_iter().chain(marks) {
            // Without cargo nobody needs the line.
            let _ = writeln!(io::stdout(), "cargo::rerun-if-changed={}", file.display());
        }
        let mut path = directory.as_ref().join(self.file.file_stem().unwrap_or(self.file.as_os_str()));
        path.set_extension("rs");
        match fs::write(&path, code) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::File { path, source }),
        }
    }
}

/// A fault in one of the two files.
#[derive(Clone, Debug)]
pub(crate) enum Wrong {
    Description(Fault),
    Marks(Fault),
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Description(fault)
    }
}

/// Reads a text, or the beginning of one that is too long: a device may have no end. Comments may have bytes that are not
/// UTF-8; elsewhere the lexer refuses what they become.
fn read(path: &Path) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(FILE_MAX).unwrap_or(u64::MAX).saturating_add(1);
    match File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(source) => Err(Error::File { path: path.to_owned(), source }),
    }
}
