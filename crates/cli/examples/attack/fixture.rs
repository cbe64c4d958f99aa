//! Exports of the server: a directory with a few files, a directory with many, and a file system that can be
//! frozen.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::Failure;

/// Entries of the large directory.
const ENTRIES: usize = 10_000;
/// Size of the file for READs, in bytes.
const FILE: usize = 1 << 20;
/// Size of the image with the second file system, in bytes.
const IMAGE: u64 = 64 << 20;

/// Directories for a server. They are removed with this value.
pub(crate) struct Fixture {
    root: TempDir,
    /// Mount point of the second file system, if this machine allows one.
    frozen: Option<PathBuf>,
}

fn tool(name: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), String> {
    let mut command = Command::new(name);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

impl Fixture {
    pub(crate) fn new() -> Result<Self, Failure> {
        let root = TempDir::with_prefix("attack-")?;
        let export = root.path().join("export");
        let large = export.join("large");
        std::fs::create_dir_all(&large)?;
        std::fs::create_dir(root.path().join("state"))?;
        for number in 0..ENTRIES {
            std::fs::File::create(large.join(format!("entry-{number:06}-of-a-large-directory")))?;
        }
        std::fs::write(export.join("file"), vec![0x5a; FILE])?;
        let target = "t/".repeat(2000);
        std::os::unix::fs::symlink(target, export.join("link"))?;
        let mut fixture = Self { root, frozen: None };
        match fixture.mount() {
            Ok(()) => {}
            Err(reason) => eprintln!("cannot make a file system to freeze: {reason}"),
        }
        // The server does not change users here, so all users may write.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&export, everybody)?;
        Ok(fixture)
    }

    fn mount(&mut self) -> Result<(), String> {
        let image = self.root.path().join("image");
        let place = self.root.path().join("frozen");
        let failed = |error: std::io::Error| error.to_string();
        std::fs::File::create(&image).and_then(|file| file.set_len(IMAGE)).map_err(failed)?;
        std::fs::create_dir(&place).map_err(failed)?;
        tool("mkfs.ext4", &["-q".as_ref(), image.as_os_str()])?;
        tool("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), place.as_os_str()])?;
        self.frozen = Some(place.clone());
        std::fs::write(place.join("file"), "here").map_err(failed)?;
        for path in [place.clone(), place.join("file")] {
            let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, everybody).map_err(failed)?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// Returns the names and directories of the exports.
    pub(crate) fn exports(&self) -> Vec<(&'static str, PathBuf)> {
        let mut exports = vec![("/", self.root.path().join("export"))];
        exports.extend(self.frozen.iter().map(|place| ("/frozen", place.clone())));
        exports
    }

    pub(crate) const fn can_freeze(&self) -> bool {
        self.frozen.is_some()
    }

    /// Freezes the second file system until the value is dropped.
    pub(crate) fn freeze(&self) -> Result<Frozen<'_>, Failure> {
        let place = self.frozen.as_deref().ok_or("there is no file system to freeze")?;
        tool("fsfreeze", &["-f".as_ref(), place.as_os_str()])?;
        Ok(Frozen(place))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(place) = &self.frozen
            && let Err(reason) = tool("umount", &[place.as_os_str()])
        {
            eprintln!("{} stays mounted: {reason}", place.display());
        }
    }
}

/// A frozen file system, which accepts no writes. It thaws with this value.
pub(crate) struct Frozen<'a>(&'a Path);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(reason) = tool("fsfreeze", &["-u".as_ref(), self.0.as_os_str()]) {
            eprintln!("{} stays frozen: {reason}", self.0.display());
        }
    }
}
