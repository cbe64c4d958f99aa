//! The utilities of libnfs on our server.

use std::collections::BTreeSet;
use std::fs;

use super::equal;
use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::cases::our_client::copies::noise;
use crate::interop::site::{LOCAL, Site, TCP};

/// Sizes around zero, a page, and transfers of libnfs.
const SIZES: [usize; 7] = [0, 1, 4095, 4097, 65_536, (1 << 20) + 1, (8 << 20) + 1];

/// Returns the URL of a path, with both ports.
pub(super) fn url(path: &str) -> String {
    format!("nfs://{LOCAL}{path}?nfsport={TCP}&mountport={TCP}")
}

/// An entry as nfs-ls prints it: mode, size and path.
type Listed = BTreeSet<(String, u64, String)>;

/// Reads the output of nfs-ls: mode, links, owner, group, size and path.
fn listed(output: &str) -> Listed {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        let mode = words.next()?.to_owned();
        let size = words.nth(3)?.parse().ok()?;
        Some((mode, size, words.collect::<Vec<_>>().join(" ")))
    };
    output.lines().filter_map(entry).collect()
}

fn files(under: &str) -> Listed {
    let file = |size: &usize| ("-rw-r--r--".to_owned(), *size as u64, format!("{under}{size}"));
    SIZES.iter().map(file).collect()
}

pub(super) fn utilities(site: &mut Site) -> Result<Detail, Failure> {
    let inner = site.export().join("dir");
    fs::create_dir(&inner)?;
    for size in SIZES {
        fs::write(inner.join(size.to_string()), noise(size))?;
    }
    site.serve(&[])?;
    let shown = listed(&site.text("nfs-ls", &[&url("/dir")])?);
    ensure!(shown == files(""), "nfs-ls shows {shown:?}");
    let all = listed(&site.text("nfs-ls", &["-R", &url("/")])?);
    let (directories, below): (Listed, Listed) =
        all.into_iter().partition(|(mode, ..)| mode.starts_with('d'));
    ensure!(below == files("dir/"), "nfs-ls -R shows {below:?}");
    let directories: Vec<_> = directories.into_iter().collect();
    let [(mode, _, name)] = directories.as_slice() else {
        return Err(Failure::new(format!("nfs-ls -R shows {directories:?}")));
    };
    ensure!((mode.as_str(), name.as_str()) == ("drwxr-xr-x", "dir"), "nfs-ls -R shows {mode} {name}");
    for size in SIZES {
        let there = inner.join(size.to_string());
        let read = site.succeed("nfs-cat", &[&url(&format!("/dir/{size}"))])?;
        ensure!(read == fs::read(&there)?, "nfs-cat shows other {size} bytes");
        // nfs-cp replaces no file.
        let back = format!("back{size}");
        site.succeed("nfs-cp", &[&url(&format!("/dir/{size}")), &back])?;
        equal(&site.folder.join(&back), &there)?;
        site.succeed("nfs-cp", &[&back, &url(&format!("/dir/copy{size}"))])?;
        equal(&inner.join(format!("copy{size}")), &there)?;
    }
    // libnfs mounts what comes before the last slash, and does not mount an empty path.
    fs::write(site.export().join("top"), "top\n")?;
    let top = site.text("nfs-cat", &[&url("//top")])?;
    ensure!(top == "top\n", "nfs-cat of a file in the root shows {top:?}");
    Ok(format!("{} files", SIZES.len()))
}

pub(super) fn single_file(site: &mut Site) -> Result<Detail, Failure> {
    fs::write(site.export().join("file"), noise(5000))?;
    std::os::unix::fs::symlink("file", site.export().join("link"))?;
    site.serve(&[])?;
    // nfs-ls mounts what it is given, and then lists it as a directory.
    for (path, status) in [("/file", "NFS3ERR_NOTDIR"), ("/link", "MNT3ERR_NOTDIR")] {
        let finished = site.run("nfs-ls", &[&url(path)])?;
        let said = format!("{}{}", finished.text(), finished.errors);
        ensure!(!finished.success() && said.contains(status), "nfs-ls {path}: {said}");
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nfs_ls_prints_is_understood() {
        let output =
            "drwxr-xr-x  2     0     0           60 sub\n-rw-r--r--  1     0     0      5000000 a b\nnoise\n";
        let expected = [("drwxr-xr-x", 60, "sub"), ("-rw-r--r--", 5_000_000, "a b")];
        let expected: Listed =
            expected.map(|(mode, size, name)| (mode.to_owned(), size, name.to_owned())).into();
        assert_eq!(listed(output), expected);
    }
}
