//! NFS-Ganesha as the base: NFSv3 over TCP alone, with an export of a directory (its FSAL VFS).
//!
//! It has to register with rpcbind. Both run in the namespaces of the group, where every port is free. `/run`, with the
//! socket of rpcbind, is a file system of its own there.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lab::{self, NOBODY, run};
use super::server::Process;
use crate::failure::{Context, Failure, ensure};
use crate::process;

/// Port of rpcbind (RFC 1833).
const RPCBIND: u16 = 111;
/// Ports of NFS and MOUNT.
pub(crate) const NFS: u16 = 20_490;
pub(crate) const MOUNT: u16 = 20_491;
/// Maximum time until either program serves.
const START: Duration = Duration::from_secs(30);
/// Part of the log from which on the server is ready.
const READY: &str = "NFS SERVER INITIALIZED";

/// A running server. It ends with this value.
#[derive(Debug)]
pub(crate) struct Ganesha {
    server: Process,
    _rpcbind: Process,
}

impl Ganesha {
    /// Starts a server of a directory. Configuration and log go into `folder`.
    pub(crate) fn start(export: &Path, folder: &Path) -> Result<Self, Failure> {
        let mut rpcbind = Process::start(lab::command(Path::new("rpcbind"), ["-f"]))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, RPCBIND));
        let listens = process::until(START, || {
            rpcbind.check().context("rpcbind")?;
            Ok(TcpStream::connect(address).ok())
        })?;
        ensure!(listens.is_some(), "rpcbind does not listen");
        let file = |name: &str| folder.join(name);
        let (configuration, log) = (file("ganesha.conf"), file("ganesha.log"));
        fs::write(&configuration, configured(export, folder)).context(configuration.display())?;
        let words: [PathBuf; 9] = [
            "-F".into(),
            "-f".into(),
            configuration,
            "-L".into(),
            log.clone(),
            "-p".into(),
            file("ganesha.pid"),
            "-N".into(),
            "EVENT".into(),
        ];
        let mut server = Process::start(lab::command(Path::new("ganesha.nfsd"), words))?;
        let said = || process::tail(&log, 3);
        let ready = process::until(START, || {
            server.check().context(format!("nfs-ganesha: {}", said()))?;
            Ok(fs::read_to_string(&log).is_ok_and(|log| log.contains(READY)).then_some(()))
        })?;
        ensure!(ready.is_some(), "nfs-ganesha is not ready: {}", said());
        Ok(Self { server, _rpcbind: rpcbind })
    }

    /// Returns the number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.server.id()
    }
}

/// Returns the text of the configuration: what our server has by default, and the rest as Ganesha has it by default.
fn configured(export: &Path, folder: &Path) -> String {
    let (export, folder) = (export.display(), folder.display());
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
    Squash = Root_Squash;
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

/// Returns name and version for the page.
pub(crate) fn version() -> Result<String, Failure> {
    version_of(&run("ganesha.nfsd", ["-v"])?)
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
        let text = configured(Path::new("/data/export"), Path::new("/data"));
        assert!(
            text.contains("Path = \"/data/export\";") && text.contains("RecoveryRoot = \"/data\";"),
            "{text}"
        );
        assert!(text.contains("NFS_Port = 20490;") && text.contains("MNT_Port = 20491;"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
