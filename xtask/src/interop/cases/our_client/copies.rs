//! Content of files, in both directions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::remote::{COMMAND_LIMIT, Remote, bytes, travelled};
use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::cases::faults::pattern_file;
use crate::interop::lab::Lab;
use crate::process;

/// Sizes around zero, the inline threshold, and chunks.
const SIZES: [usize; 10] = [0, 1, 3, 4095, 4096, 4097, 65_536, 1 << 20, (1 << 20) + 1, 64 << 20];
/// Payload of a READ or WRITE that still fits into a message of 4096 bytes, in bytes.
const INLINE_ROOM: u64 = 3900;
const DIGEST_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn sizes(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "sizes")?;
    let (read, written) = copy(lab, &remote, &SIZES)?;
    Ok(format!("{read} bytes by Write chunks, {written} by Read chunks, the rest inline"))
}

/// Checks CRCs: our Request asks for them; siw by itself does not.
pub(super) fn crc(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "crc")?;
    let finished = remote.succeed(lab, &["-vv", "ping", "--count", "1", remote.address()])?;
    ensure!(finished.errors.contains("crc=true"), "no CRCs: {}", finished.errors);
    let remote = remote.without_crc();
    let finished = remote.succeed(lab, &["-vv", "ping", "--count", "1", remote.address()])?;
    ensure!(finished.errors.contains("crc=false"), "siw wants CRCs: {}", finished.errors);
    let (read, written) = copy(lab, &remote, &SIZES)?;
    Ok(format!("{read} bytes by Write chunks, {written} by Read chunks, without CRCs"))
}

/// Checks interrupted commands. Threads of knfsd that wait for an RDMA Read of a connection that ends wait for ever. So
/// an interrupted command lets the server read the data of its calls in flight before it ends.
pub(super) fn interrupted(lab: &mut Lab) -> Result<Detail, Failure> {
    /// Number of interrupts; knfsd has four threads.
    const INTERRUPTS: u32 = 8;
    let remote = Remote::new(lab, "interrupted")?;
    pattern_file(&lab.folder.join("data"), 64)?;
    let mut left = 0;
    for attempt in 0..INTERRUPTS {
        let mut child = remote.start(lab, &["put", "data", &remote.url(&format!("data{attempt}"))])?;
        let began = lab.guest(BEGUN, &[remote.directory()]);
        let status = process::terminate(&mut child, Signal::INT, COMMAND_LIMIT)?;
        began?;
        let code = status.and_then(|status| status.code());
        ensure!(matches!(code, Some(0 | 130)), "a put that was interrupted ended with {status:?}");
        left += u32::from(code == Some(130));
        let names = lab.guest("ls -A \"$1\"", &[remote.directory()])?;
        let whole = if code == Some(0) { format!("data{attempt}") } else { String::new() };
        ensure!(names.trim() == whole, "a put that ended with {status:?} left {names:?}");
        lab.guest("rm -f \"$1\"/data*", &[remote.directory()])?;
    }
    ensure!(left > INTERRUPTS / 2, "{left} of {INTERRUPTS} puts were interrupted before their end");
    remote.succeed(lab, &["put", "data", &remote.url("whole")])?;
    Ok(format!("{left} of {INTERRUPTS} interrupted half-way, knfsd answers as before"))
}

/// Waits until the temporary file of a put has data, or a file has its final name.
pub(in crate::interop::cases) const BEGUN: &str = "for n in $(seq 400); do for f in \"$1\"/.rpcrdma-*.part \"$1\"/data*; do [ -s \"$f\" ] && exit 0; done; \
                     sleep 0.02; done; exit 1";

/// Puts and gets a file of each size. Returns the bytes by Write chunks and by Read chunks.
pub(in crate::interop::cases) fn copy(
    lab: &mut Lab,
    remote: &Remote,
    sizes: &[usize],
) -> Result<(u64, u64), Failure> {
    let (mut read, mut written) = (0, 0);
    for &size in sizes {
        let name = size.to_string();
        let content = noise(size);
        fs::write(lab.folder.join(&name), &content)?;
        let url = remote.url(&name);
        let put = remote.succeed(lab, &["-v", "put", &name, &url])?;
        let get = remote.succeed(lab, &["-v", "get", &url, "back"])?;
        ensure!(fs::read(lab.folder.join("back"))? == content, "{size} bytes come back changed");
        if size <= 65_536 {
            let cat = remote.succeed(lab, &["cat", &url])?;
            ensure!(cat.output == content, "cat shows other {size} bytes");
        }
        let by_read = bytes(travelled(&put.errors, "WRITE"), "B by RDMA Read");
        let by_write = bytes(travelled(&get.errors, "READ"), "B by Write chunk");
        for (path, moved) in [("Read chunks", by_read), ("Write chunks", by_write)] {
            let inline = size as u64 - moved.min(size as u64);
            ensure!(inline <= INLINE_ROOM, "of {size} bytes {moved} by {path}");
        }
        read += by_write;
        written += by_read;
    }
    let there = lab.guest_within(DIGEST_LIMIT, "cd \"$1\" && sha256sum *", &[remote.directory()])?;
    fs::remove_file(lab.folder.join("back"))?;
    let mut sums = Command::new("sha256sum");
    sums.args(sizes.iter().map(usize::to_string)).current_dir(&lab.folder);
    let here = process::run(sums, DIGEST_LIMIT)?.text();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    ensure!(sorted(&there) == sorted(&here), "checksums differ: here {here:?}, there {there:?}");
    lab.guest("rm -rf \"$1\"", &[remote.directory()])?;
    Ok((read, written))
}

pub(super) fn tree(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "tree")?;
    let files = there_and_back(lab, &remote, &[])?;
    Ok(format!("{files} files"))
}

/// Puts a tree, gets it, compares all three copies, and removes them. Returns the number of its files. `options` are
/// passed to each command.
pub(in crate::interop::cases) fn there_and_back(
    lab: &mut Lab,
    remote: &Remote,
    options: &[&str],
) -> Result<usize, Failure> {
    let local = lab.folder.join("tree");
    let files = grow(&local)?;
    let run = |lab: &mut Lab, command: &[&str]| remote.succeed(lab, &[command, options].concat());
    run(lab, &["put", "-r", "tree", &remote.url("")])?;
    run(lab, &["get", "-r", &remote.url("tree"), "back"])?;
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference", "tree", "back"]).current_dir(&lab.folder);
    let finished = process::run(diff, DIGEST_LIMIT)?;
    ensure!(finished.success(), "the tree comes back changed: {}", finished.text());
    let script = "cd \"$1\" && { find . -printf '%y %P %l\\n' | LC_ALL=C sort; \
                  find . -type f -print0 | LC_ALL=C sort -z | xargs -0 cat; } | sha256sum";
    let there = lab.guest_within(DIGEST_LIMIT, script, &[&format!("{}/tree", remote.directory())])?;
    let mut here = Command::new("bash");
    here.args(["-c", script, "bash"]).arg(&local);
    let here = process::run(here, DIGEST_LIMIT)?.text();
    ensure!(there == here, "the guest has another tree");
    run(lab, &["rm", "-r", &remote.url("tree")])?;
    let left = lab.guest("ls -A \"$1\"", &[remote.directory()])?;
    ensure!(left.is_empty(), "rm -r leaves {left:?}");
    fs::remove_dir_all(&local)?;
    fs::remove_dir_all(lab.folder.join("back"))?;
    Ok(files)
}

/// Makes a tree: depth, many small files, an empty directory, names of 255 bytes and of many scripts, symbolic links.
/// Returns the number of files.
pub(in crate::interop::cases) fn grow(root: &Path) -> Result<usize, Failure> {
    let deep: std::path::PathBuf = (0..20).map(|level| format!("level {level}")).collect();
    fs::create_dir_all(root.join(&deep))?;
    fs::create_dir(root.join("empty"))?;
    fs::write(root.join(&deep).join("bottom"), noise(5000))?;
    let mut files = 1;
    for directory in 0..4 {
        let directory = root.join(format!("d{directory}"));
        fs::create_dir(&directory)?;
        for file in 0..75 {
            fs::write(directory.join(format!("f{file}")), noise(file * 241))?;
            files += 1;
        }
    }
    for name in ["žluťoučký kůň", "日本語", "🐎", "-dash", "a\nb", "%41", "back\\slash", &"n".repeat(255)]
    {
        fs::write(root.join(name), name)?;
        files += 1;
    }
    symlink("d0/f1", root.join("link"))?;
    symlink("/no/such/place", root.join("dangling"))?;
    symlink("x/".repeat(500), root.join("long link"))?;
    Ok(files)
}

/// Returns bytes without repetitions, equal for equal sizes.
pub(in crate::interop::cases) fn noise(size: usize) -> Vec<u8> {
    let mut state = size as u64 ^ 0x9E37_79B9_7F4A_7C15;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
