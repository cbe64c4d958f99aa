//! NFS-Ganesha, another server in user space: NFSv3 over TCP alone, with an export of a directory (its FSAL VFS).
//!
//! It has to register with rpcbind. Both run in namespaces of their own, where every port is free. `/run`, with the
//! socket of rpcbind, has to be a file system of its own there.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::failure::{Context, Failure, ensure};
use crate::process::{self, Process};

/// Ports of NFS and MOUNT.
pub(crate) const NFS: u16 = 20_490;
pub(crate) const MOUNT: u16 = 20_491;
/// User and group that stand for a caller whose own do not count.
pub(crate) const NOBODY: u32 = 65_534;
/// Maximum time until either program serves.
const START: Duration = Duration::from_secs(30);
/// Maximum time of one question to rpcbind.
const QUESTION: Duration = Duration::from_secs(5);
/// Part of the log from which on the server is ready.
const READY: &str = "NFS SERVER INITIALIZED";

/// Treatment of root of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// Root acts as root.
    Trusted,
    /// Root acts as nobody.
    Squashed,
}

/// The export of a server, and the place of its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    /// The directory that is exported, under its own path.
    pub(crate) export: &'a Path,
    /// Folder of configuration, log and state.
    pub(crate) folder: &'a Path,
    pub(crate) root: Root,
}

/// A running server. It ends with this value, as by SIGKILL.
#[derive(Debug)]
pub(crate) struct Ganesha {
    server: Process,
}

impl Ganesha {
    /// Starts a server in the namespaces of a running rpcbind. `command` makes commands that run a program there.
    pub(crate) fn start(settings: Settings<'_>, command: impl Fn(&str) -> Command) -> Result<Self, Failure> {
        let file = |name: &str| settings.folder.join(name);
        let (configuration, log) = (file("ganesha.conf"), file(LOG));
        fs::write(&configuration, configured(settings)).context(configuration.display())?;
        // The log of an earlier start would say that this one is ready.
        fs::write(&log, "").context(log.display())?;
        let mut server = command("ganesha.nfsd");
        server.arg("-F").arg("-f").arg(configuration).arg("-L").arg(&log);
        server.arg("-p").arg(file("ganesha.pid")).args(["-N", "EVENT"]);
        let mut server = Process::start(server)?;
        let said = || process::tail(&log, 3);
        let ready = process::until(START, || {
            server.check().context(format!("nfs-ganesha: {}", said()))?;
            Ok(fs::read_to_string(&log).is_ok_and(|log| log.contains(READY)).then_some(()))
        })?;
        ensure!(ready.is_some(), "nfs-ganesha is not ready: {}", said());
        Ok(Self { server })
    }

    /// Returns the number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }
}

/// Name of the log in the folder of a server.
pub(crate) const LOG: &str = "ganesha.log";

/// Starts rpcbind by the command `serve`, and waits until it answers. `command` makes commands that run a program in its
/// namespaces.
pub(crate) fn rpcbind(mut serve: Command, command: impl Fn(&str) -> Command) -> Result<Process, Failure> {
    serve.arg("-f");
    let mut rpcbind = Process::start(serve)?;
    let answers = process::until(START, || {
        rpcbind.check().context("rpcbind")?;
        let mut question = command("rpcinfo");
        question.args(["-p", "127.0.0.1"]);
        Ok(process::run(question, QUESTION)?.success().then_some(()))
    })?;
    ensure!(answers.is_some(), "rpcbind does not answer");
    Ok(rpcbind)
}

/// Returns the text of the configuration: what our server has by default, and the rest as Ganesha has it by default.
fn configured(settings: Settings<'_>) -> String {
    let (export, folder) = (settings.export.display(), settings.folder.display());
    let squash = match settings.root {
        Root::Trusted => "No_Root_Squash",
        Root::Squashed => "Root_Squash",
    };
    format!(
        "NFS_CORE_PARAM {{
    Protocols = 3;
    NFS_Port = {NFS};
    MNT_Port = {MOUNT};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Enable_UDP = false;
}}
NFSV4 {{
    RecoveryRoot = \"{folder}\";
    Graceless = true;
}}
EXPORT {{
    Export_Id = 1;
    Path = \"{export}\";
    Pseudo = \"/export\";
    Protocols = 3;
    Transports = TCP;
    Access_Type = RW;
    Squash = {squash};
    Anonymous_Uid = {NOBODY};
    Anonymous_Gid = {NOBODY};
    SecType = sys;
    FSAL {{
        Name = VFS;
    }}
}}
"
    )
}

/// Returns name and version of the installed server.
pub(crate) fn version() -> Result<String, Failure> {
    let mut command = Command::new("ganesha.nfsd");
    command.arg("-v");
    let finished = process::run(command, START)?;
    ensure!(finished.success(), "ganesha.nfsd -v: {}", finished.ending());
    version_of(&finished.text())
}

/// Reads the output of `ganesha.nfsd -v`.
fn version_of(output: &str) -> Result<String, Failure> {
    let version = output.lines().find_map(|line| line.split_once("Release = V")).map(|(_, rest)| rest.trim());
    let version = version.ok_or_else(|| Failure::new("ganesha.nfsd -v tells no version"))?;
    Ok(format!("NFS-Ganesha {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version_of("NFS-Ganesha Release = V4.3\n").unwrap(), "NFS-Ganesha 4.3");
        assert!(version_of("something else").is_err());
    }

    #[test]
    fn the_configuration_names_the_export_and_its_ports() {
        let settings =
            Settings { export: Path::new("/data/export"), folder: Path::new("/data"), root: Root::Squashed };
        let text = configured(settings);
        assert!(
            text.contains("Path = \"/data/export\";") && text.contains("RecoveryRoot = \"/data\";"),
            "{text}"
        );
        assert!(text.contains("NFS_Port = 20490;") && text.contains("MNT_Port = 20491;"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert!(text.contains("Squash = Root_Squash;"), "{text}");
        let trusted = configured(Settings { root: Root::Trusted, ..settings });
        assert!(trusted.contains("Squash = No_Root_Squash;"), "{trusted}");
    }
}
