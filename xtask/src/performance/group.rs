//! A group of rows: the process that measures it, the namespaces around it, and its end.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::geteuid;

use super::goals::{self, Group, Outcome};
use super::lab::{Effort, Lab};
use super::stop::Stop;
use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Maximum time until all processes of a group that was killed are gone.
const REMOVAL: Duration = Duration::from_secs(20);

/// The programs under measurement.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) rpcrdma: PathBuf,
    pub(crate) load: PathBuf,
}

/// Options of the process that measures one group. The task starts it; people do not.
#[derive(Debug, clap::Args)]
pub(crate) struct Inside {
    #[arg(long, hide = true, requires_all = ["rpcrdma", "load", "folder"])]
    group: Option<String>,
    #[arg(long, hide = true)]
    rpcrdma: Option<PathBuf>,
    #[arg(long, hide = true)]
    load: Option<PathBuf>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

impl Inside {
    /// Returns whether this process measures a group.
    pub(crate) const fn is_group(&self) -> bool {
        self.group.is_some()
    }

    /// Measures, and prints the outcome as a JSON document.
    pub(crate) fn run(&self, effort: Effort) -> Result<bool, Failure> {
        let Self { group: Some(name), rpcrdma: Some(rpcrdma), load: Some(load), folder: Some(folder) } = self
        else {
            return Err(Failure::new("a group needs its programs and its folder"));
        };
        let group = goals::group(name).ok_or_else(|| Failure::new(format!("no group {name}")))?;
        let lab = Lab::enter(effort, rpcrdma.clone(), load.clone(), folder.clone())?;
        let outcome = (group.run)(&lab)?;
        println!("{}", serde_json::to_string(&outcome).context("the outcome")?);
        Ok(true)
    }
}

/// Measures a group in a process of its own.
pub(crate) fn measure(
    group: &Group,
    programs: &Programs,
    folder: &Path,
    quick: bool,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    ensure!(!stop.is_asked(), "interrupted");
    if let Some(reason) = group.needs.lacking() {
        return Err(Failure::new(reason));
    }
    // A run that was killed leaves its files.
    remove(folder)?;
    fs::create_dir_all(folder).context(folder.display())?;
    let outcome = in_process(group, programs, folder, quick, stop);
    remove(folder)?;
    let outcome = outcome?;
    let (figures, rows) = (outcome.figures.len(), group.rows.len());
    ensure!(figures == rows, "{figures} figures for {rows} rows");
    Ok(outcome)
}

fn in_process(
    group: &Group,
    programs: &Programs,
    folder: &Path,
    quick: bool,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    let mut command = surrounded(&std::env::current_exe().context("the path of this program")?);
    command.args(["performance", "--group", group.name, "--rpcrdma"]).arg(&programs.rpcrdma);
    command.arg("--load").arg(&programs.load).arg("--folder").arg(folder);
    command.args(quick.then_some("--quick"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting the process of a group")?;
    let output = collected(child.stdout.take(), false);
    let errors = collected(child.stderr.take(), true);
    let ended = wait(&mut child, group.limit, stop);
    if !matches!(ended, Ok(true)) {
        process::kill(&mut child);
    }
    let status = child.wait().context("the process of a group")?;
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    ensure!(!stop.is_asked(), "interrupted");
    ensure!(ended?, "no result within {} s", group.limit.as_secs());
    let reason = errors.lines().rev().find_map(|line| line.strip_prefix("performance: "));
    ensure!(status.success(), "{}", reason.map_or_else(|| status.to_string(), str::to_owned));
    serde_json::from_str(&output).context("the document of a group")
}

/// Waits for the end of a child; returns whether it came within the limit, and before a signal.
fn wait(child: &mut Child, limit: Duration, stop: &Stop) -> Result<bool, Failure> {
    let ended = process::until(limit, || match child.try_wait().context("waiting for a process")? {
        Some(_) => Ok(Some(true)),
        None => Ok(stop.is_asked().then_some(false)),
    })?;
    Ok(ended.unwrap_or(false))
}

/// Returns a command that runs a program in namespaces of its own, as far as the rights of this process go. When the program
/// ends, the kernel ends all processes that it leaves, and removes their links and mounts.
fn surrounded(program: &Path) -> Command {
    if !geteuid().is_root() {
        return process::bound(program);
    }
    let mut command = process::bound("unshare");
    command.args(["--net", "--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(program);
    command
}

/// Collects the text of a pipe in a thread, and shows it line by line if wanted. The thread ends with the last process that
/// has the pipe.
fn collected(pipe: Option<impl Read + Send + 'static>, show: bool) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let Some(pipe) = pipe else { return String::new() };
        let mut text = String::new();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(pipe));
        for line in lines.map_while(Result::ok) {
            if show {
                eprintln!("{line}");
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    })
}

/// Removes a folder. A process that was killed a moment ago may still write there.
fn remove(folder: &Path) -> Result<(), Failure> {
    let mut last = None;
    let removed = process::until(REMOVAL, || match fs::remove_dir_all(folder) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Some(())),
        Err(error) => {
            last = Some(error);
            Ok(None)
        }
    })?;
    let why = last.map_or_else(String::new, |error| error.to_string());
    ensure!(removed.is_some(), "removing {}: {why}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        remove(&folder).unwrap();
        fs::create_dir_all(folder.join("deep")).unwrap();
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn text_of_a_pipe_is_collected() {
        assert_eq!(collected(Some(&b"a\nb"[..]), false).join().unwrap(), "a\nb\n");
        assert_eq!(collected(None::<&[u8]>, false).join().unwrap(), "");
    }
}
