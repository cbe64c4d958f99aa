//! The machine's image, which `interop/machine/build.sh` makes. It is kept in `target/interop/` until one of its
//! sources changes.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum time of a build: a fresh build takes two minutes; a slow mirror may take several times as long.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// An image that is ready to boot.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Directory of `vmlinuz`, `initrd.img` and `disk.img`.
    pub(crate) directory: PathBuf,
    /// The kernel's release, such as `6.1.0-56-amd64`.
    pub(crate) kernel: String,
    /// The version of its package.
    pub(crate) version: String,
    /// The codename of the Debian release.
    pub(crate) debian: String,
}

/// Returns the requirements that the host lacks, in sentences for its user; none if the suite can run.
pub(crate) fn missing(interop: &Path) -> Result<Vec<String>, Failure> {
    let mut check = Command::new("bash");
    check.arg(interop.join("machine/build.sh")).arg("--check");
    let finished = process::run(check, Duration::from_secs(60))?;
    if finished.success() {
        return Ok(Vec::new());
    }
    let mut lines: Vec<String> = finished.text().lines().map(str::to_owned).collect();
    if lines.is_empty() {
        lines.push(format!("the check of the host failed: {}", finished.errors.trim()));
    }
    Ok(lines)
}

/// Returns the machine, from the cache if it is current.
pub(crate) fn prepare(interop: &Path, target: &Path, rebuild: bool) -> Result<Machine, Failure> {
    let directory = target.join("machine");
    let stamp_file = directory.join("stamp");
    let stamp = stamp(&interop.join("machine"))?;
    let current = fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp);
    let unusable = || tool_missing().is_some();
    if rebuild || !current || unusable() {
        println!("building the machine (about two minutes)");
        let started = Instant::now();
        if directory.exists() {
            fs::remove_dir_all(&directory).context("removing the old machine")?;
        }
        fs::create_dir_all(&directory)?;
        let mut build = process::bound("bash");
        build.arg(interop.join("machine/build.sh")).arg(&directory);
        let mut child = build.spawn().context("starting the build of the machine")?;
        match process::wait(&mut child, BUILD_LIMIT)? {
            Some(status) if status.success() => {}
            Some(status) => {
                return Err(Failure::new(format!("the build of the machine failed: {status}")));
            }
            None => {
                process::kill(&mut child);
                return Err(Failure::new(format!("the build of the machine took more than {BUILD_LIMIT:?}")));
            }
        }
        fs::write(&stamp_file, &stamp)?;
        println!("machine built in {:.0} s", started.elapsed().as_secs_f64());
    }
    if let Some(tool) = tool_missing() {
        return Err(Failure::new(format!(
            "{tool} is missing; as root: apt-get install {}",
            package_of(tool)
        )));
    }
    let facts = fs::read_to_string(directory.join("facts")).context("reading the machine's facts")?;
    let fact = |key: &str| {
        facts
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("the machine's facts have no {key}; use --rebuild")))
    };
    for file in ["vmlinuz", "initrd.img", "disk.img"] {
        ensure!(directory.join(file).exists(), "{file} is missing in the machine; use --rebuild");
    }
    Ok(Machine { kernel: fact("KERNEL")?, version: fact("VERSION")?, debian: fact("DEBIAN")?, directory })
}

/// The programs that a run needs on the host, in addition to those of the build.
const TOOLS: [&str; 4] = ["qemu-system-x86_64", "ip", "tcpdump", "tshark"];

fn package_of(tool: &str) -> &str {
    match tool {
        "qemu-system-x86_64" => "qemu-system-x86 seabios",
        "ip" => "iproute2",
        _ => tool,
    }
}

fn tool_missing() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    TOOLS.into_iter().find(|tool| !std::env::split_paths(&path).any(|folder| folder.join(tool).exists()))
}

/// Returns a number that changes with the build scripts, or with the kernel in apt.
fn stamp(scripts: &Path) -> Result<String, Failure> {
    let mut hasher = DefaultHasher::new();
    let mut files: Vec<PathBuf> = fs::read_dir(scripts)
        .context(format!("reading {}", scripts.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    for file in files {
        fs::read(&file)?.hash(&mut hasher);
    }
    let mut policy = Command::new("apt-cache");
    policy.args(["depends", "linux-image-amd64"]);
    if let Ok(finished) = process::run(policy, Duration::from_secs(30)) {
        finished.output.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}
