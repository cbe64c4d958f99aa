//! Our client on NFS-Ganesha, over TCP.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::equal;
use crate::failure::{Context, Failure, ensure};
use crate::ganesha::{NFS, version};
use crate::interop::cases::Detail;
use crate::interop::cases::our_client::copies::{grow, noise};
use crate::interop::site::{LOCAL, Site};
use crate::process;

/// Maximum time until a put has stored a part of its file.
const BEGIN: Duration = Duration::from_secs(30);
/// Bytes of the file that is stored across a restart.
const LONG: usize = 192 << 20;
/// Part of it that is stored before the restart.
const PART: u64 = 8 << 20;
/// Size of a file with a hole, and most that it may take on the disk.
const SPARSE: u64 = 256 << 20;
const SPARSE_ON_DISK: u64 = 1 << 20;

/// Starts rpcbind and the server.
fn start(site: &mut Site) -> Result<(), Failure> {
    site.start_rpcbind()?;
    site.start_ganesha()
}

/// Returns the URL of a path in the export.
fn url(site: &Site, path: &str) -> String {
    format!("nfs://{LOCAL}:{NFS}{}/{path}", site.export().display())
}

pub(super) fn commands(site: &mut Site) -> Result<Detail, Failure> {
    start(site)?;
    let text = "one\ntwo\n";
    fs::write(site.folder.join("file"), text)?;
    let export = site.export();
    let url = |path: &str| url(site, path);
    let address = format!("{LOCAL}:{NFS}");
    expect(site, &["exports", &address], &format!("{}\n", export.display()))?;
    site.rpcrdma(&["mkdir", "-p", &url("a/b/c")])?;
    site.rpcrdma(&["mkdir", "-m", "700", &url("private")])?;
    site.rpcrdma(&["put", "file", &url("a/file")])?;
    site.rpcrdma(&["ln", &url("a/file"), &url("hard")])?;
    site.rpcrdma(&["ln", "-s", "a/file", &url("soft")])?;
    expect(site, &["cat", &url("hard")], text)?;
    expect(site, &["cat", &url("soft")], text)?;
    expect(site, &["ls", &url("")], "a\nhard\nprivate\nsoft\n")?;
    let long = String::from_utf8_lossy(&site.rpcrdma(&["ls", "-l", &url("")])?).into_owned();
    let has =
        |start: &str, end: &str| long.lines().any(|line| line.starts_with(start) && line.ends_with(end));
    ensure!(
        has("drwx------", "private") && has("-rw-r--r-- 2 ", "hard") && has("l", "soft -> a/file"),
        "ls -l shows {long:?}"
    );
    let stat: serde_json::Value =
        serde_json::from_slice(&site.rpcrdma(&["--json", "stat", &url("a/file")])?).context("stat --json")?;
    ensure!(stat.to_string().contains("\"size\":8"), "stat prints {stat}");
    site.rpcrdma(&["mv", &url("hard"), &url("a/b/c")])?;
    site.rpcrdma(&["mv", &url("a/file"), &url("a/renamed")])?;
    expect(site, &["cat", &url("a/b/c/hard")], text)?;
    site.rpcrdma(&["get", &url("a/renamed"), "back"])?;
    equal(&site.folder.join("back"), &site.folder.join("file"))?;
    site.rpcrdma(&["rm", &url("soft")])?;
    site.rpcrdma(&["rm", "-f", &url("soft")])?;
    let inode =
        |path: &str| fs::metadata(export.join(path)).map(|metadata| (metadata.ino(), metadata.nlink()));
    let (renamed, moved) = (inode("a/renamed")?, inode("a/b/c/hard")?);
    ensure!(renamed == moved && renamed.1 == 2, "the server has {renamed:?} and {moved:?}");
    // Directories of 3000 entries take several replies.
    for number in 0..3000 {
        File::create(export.join(format!("private/{number:04}")))?;
    }
    let listed = site.rpcrdma(&["ls", &url("private")])?;
    let names: String = (0..3000).map(|number| format!("{number:04}\n")).collect();
    ensure!(listed == names.as_bytes(), "ls of 3000 entries shows {} bytes", listed.len());
    site.rpcrdma(&["rm", "-r", &url("a"), &url("private")])?;
    expect(site, &["ls", &url("")], "")?;
    let left = fs::read_dir(&export)?.count();
    ensure!(left == 0, "rm -r leaves {left} entries");
    version()
}

fn expect(site: &Site, arguments: &[&str], output: &str) -> Result<(), Failure> {
    let printed = site.rpcrdma(arguments)?;
    let shown = String::from_utf8_lossy(&printed);
    ensure!(printed == output.as_bytes(), "rpcrdma {}: {shown:?}", arguments.join(" "));
    Ok(())
}

pub(super) fn tree(site: &mut Site) -> Result<Detail, Failure> {
    start(site)?;
    let (local, there, back) =
        (site.folder.join("tree"), site.export().join("tree"), site.folder.join("back"));
    let files = grow(&local)?;
    add_attributes(&local)?;
    site.rpcrdma(&["put", "-r", "-p", "tree", &url(site, "")])?;
    site.rpcrdma(&["get", "-r", "-p", &url(site, "tree"), "back"])?;
    for copy in [&there, &back] {
        let [original, copied] = [&local, copy].map(|path| path.display().to_string());
        site.succeed("diff", &["-r", "--no-dereference", &original, &copied])?;
        let (before, after) = (attributes(site, &local)?, attributes(site, copy)?);
        let other = before.lines().zip(after.lines()).find(|(before, after)| before != after);
        ensure!(before == after, "{}: attributes differ: {other:?}", copy.display());
        let sparse = fs::metadata(copy.join("sparse"))?;
        let disk = sparse.blocks() * 512;
        ensure!(sparse.len() == SPARSE && disk <= SPARSE_ON_DISK, "sparse takes {disk} bytes on the disk");
    }
    site.rpcrdma(&["rm", "-r", &url(site, "tree")])?;
    ensure!(!there.exists(), "rm -r leaves the tree");
    Ok(format!("{files} files"))
}

/// Adds modes, times, hard links and a hole to a tree.
fn add_attributes(root: &Path) -> Result<(), Failure> {
    fs::hard_link(root.join("d0/f1"), root.join("d1/hard"))?;
    fs::hard_link(root.join("d0/f1"), root.join("hard"))?;
    for (path, mode) in [("d0/f2", 0o600), ("d0/f3", 0o444), ("d0/f4", 0o4755), ("d2", 0o711), ("d3", 0o1777)]
    {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode))?;
    }
    let mut sparse = File::create(root.join("sparse"))?;
    sparse.set_len(SPARSE)?;
    sparse.seek(SeekFrom::Start(SPARSE / 2))?;
    sparse.write_all(b"in the middle")?;
    for (path, seconds, nanoseconds) in
        [("d0/f5", 1, 0), ("d0/f6", 983_000_000, 123_456_789), ("empty", 5, 6)]
    {
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        File::open(root.join(path))?.set_modified(time)?;
    }
    Ok(())
}

/// Returns type, mode, links, owner, time of change and path of all files and directories, and the groups of names of one
/// file.
fn attributes(site: &Site, root: &Path) -> Result<String, Failure> {
    let script = "cd \"$1\" && find . \\( -type f -o -type d \\) -printf '%y %m %n %U:%G %T@ %p\\n' | LC_ALL=C sort -k6 && \
                  for name in d1/hard hard; do [ d0/f1 -ef $name ] || echo $name is another file; done";
    site.text("bash", &["-c", script, "bash", &root.display().to_string()])
}

pub(super) fn restarted(site: &mut Site) -> Result<Detail, Failure> {
    start(site)?;
    let export = site.export();
    fs::write(site.folder.join("long"), noise(LONG))?;
    let mut put = site.rpcrdma_start(&["put", "long", &url(site, "long")], "put.log")?;
    let stored = || {
        let sizes = fs::read_dir(&export)?.map(|entry| Ok(entry?.metadata()?.len()));
        Ok::<_, Failure>(sizes.collect::<Result<Vec<u64>, Failure>>()?.into_iter().sum::<u64>())
    };
    let began = process::until(BEGIN, || Ok(Some(stored()?).filter(|&size| size >= PART)))?;
    site.kill_ganesha();
    ensure!(began.is_some(), "put has stored nothing within {BEGIN:?}");
    let before = stored()?;
    ensure!(!export.join("long").exists(), "put ended before the server was killed");
    put.check().context("put ended with the server")?;
    site.start_ganesha()?;
    site.finish(&mut put).context(format!("put: {}", process::tail(&site.folder.join("put.log"), 3)))?;
    equal(&site.folder.join("long"), &export.join("long"))?;
    let names = fs::read_dir(&export)?.count();
    ensure!(names == 1, "put leaves {names} files");
    Ok(format!("killed after {} of {} MiB", before >> 20, LONG >> 20))
}
