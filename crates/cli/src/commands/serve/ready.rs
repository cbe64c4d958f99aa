//! The line that announces a ready server: its addresses, and the command by which Linux mounts it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use rpcrdma_nfs::server::{ExportAccess, Security};
use serde::Serialize;

use super::export::ExportOption;
use crate::provider::Chosen;

/// Most exports in the line of a ready server.
const TOLD_MAX: usize = 16;

/// Word for the host in the server's principal, by which clients with Kerberos mount.
const KEY_HOST: &str = "HOST";

/// An RDMA address of a server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Listening {
    pub(super) address: SocketAddr,
    /// Name of the provider.
    pub(super) provider: &'static str,
}

/// Options that were checked, for `--check`.
#[derive(Serialize)]
pub(super) struct Checked<'a> {
    good: bool,
    exports: Vec<ExportDocument<'a>>,
    notes: Vec<String>,
}

impl<'a> Checked<'a> {
    /// Returns what to say about good options. `notes` are lines that the administrator should read.
    pub(super) fn new(exports: &'a [ExportOption], notes: Vec<String>) -> Self {
        Self { good: true, exports: exports.iter().map(ExportDocument::of).collect(), notes }
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn line(&self) -> String {
        let notes = match self.notes.len() {
            0 => String::new(),
            1 => ", 1 note".to_owned(),
            count => format!(", {count} notes"),
        };
        format!("configuration is good: {}{notes}", super::reload::count(self.exports.len()))
    }
}

/// Addresses and exports of a server that listens.
pub(super) struct Ready {
    rdma: Vec<Listening>,
    pub(super) tcp: Option<SocketAddr>,
    exports: Vec<ExportOption>,
    mount: Result<String, String>,
    metrics: Option<SocketAddr>,
    control: Option<PathBuf>,
}

/// JSON document of a server that listens.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pid: u32,
    /// The first address of `listeners`; `null` if there is none.
    rdma: Option<SocketAddr>,
    listeners: &'a [Listening],
    tcp: Option<SocketAddr>,
    exports: Vec<ExportDocument<'a>>,
    mount: Option<&'a str>,
    mount_note: Option<&'a str>,
    /// Address of the metrics.
    metrics: Option<SocketAddr>,
    /// Path of the control socket.
    control: Option<String>,
}

#[derive(Serialize)]
struct ExportDocument<'a> {
    name: &'a str,
    directory: String,
    /// Whether no client may write.
    read_only: bool,
    /// Whether clients may write: `ro`, `rw` or, if some may, `mixed`.
    access: &'static str,
    allow: Vec<String>,
    /// Whether no client may mount.
    closed: bool,
    security: Vec<&'static str>,
}

impl<'a> ExportDocument<'a> {
    fn of(export: &'a ExportOption) -> Self {
        let admitted = export.admitted();
        Self {
            name: &export.name,
            directory: export.directory.display().to_string(),
            read_only: export.access() == ExportAccess::ReadOnly,
            access: export.access().name(),
            allow: admitted.iter().flatten().map(ToString::to_string).collect(),
            closed: admitted.as_ref().is_some_and(Vec::is_empty),
            security: names(export),
        }
    }
}

impl Ready {
    pub(super) fn new(rdma: Vec<Listening>, tcp: Option<SocketAddr>, exports: &[ExportOption]) -> Self {
        let first = exports.first();
        let name = first.map_or("/", |export| export.name.as_str());
        let security = first.and_then(|export| export.security.first().copied()).unwrap_or(Security::Sys);
        let commands = rdma
            .iter()
            .map(|at| mount_command(at.address, tcp, (name, security), own_address(at.address.ip())));
        let mount = first_possible(commands);
        Self { rdma, tcp, exports: exports.to_vec(), mount, metrics: None, control: None }
    }

    /// Sets the address of the metrics and the path of the control socket.
    pub(super) fn observed(&mut self, metrics: Option<SocketAddr>, control: Option<PathBuf>) {
        (self.metrics, self.control) = (metrics, control);
    }

    /// Returns all addresses with their providers.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (SocketAddr, &'static str)> {
        let rdma = self.rdma.iter().map(|at| (at.address, at.provider));
        rdma.chain(self.tcp.map(|address| (address, "tcp")))
    }

    /// Returns the addresses of adapters.
    pub(super) fn adapters(&self) -> impl Iterator<Item = SocketAddr> {
        let iwarp = Chosen::Iwarp.name();
        self.rdma.iter().filter(move |at| at.provider != iwarp).map(|at| at.address)
    }

    pub(super) fn rdma_addresses(&self) -> Vec<SocketAddr> {
        self.rdma.iter().map(|at| at.address).collect()
    }

    pub(super) fn line(&self) -> String {
        let mut exports: Vec<String> = self
            .exports
            .iter()
            .take(TOLD_MAX)
            .map(|export| {
                let security = match export.flavors().as_slice() {
                    [Security::Sys] => String::new(),
                    _ => format!(", sec={}", names(export).join(":")),
                };
                let access = export.access().name();
                format!("{} as {} ({access}{security})", export.directory.display(), export.name)
            })
            .collect();
        if let Some(more) = self.exports.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
            exports.push(format!("and {more} more"));
        }
        let rdma: Vec<String> =
            self.rdma.iter().map(|at| format!("rdma {} ({})", at.address, at.provider)).collect();
        let tcp = self.tcp.map(|tcp| format!(" and tcp {tcp}")).unwrap_or_default();
        let mount = match &self.mount {
            Ok(command) if command.contains(KEY_HOST) => {
                format!(
                    "mount with: {command}, where {KEY_HOST} is the name in the server's key nfs/{KEY_HOST}"
                )
            }
            Ok(command) => format!("mount with: {command}"),
            Err(reason) => format!("no mount command: {reason}"),
        };
        let metrics = self.metrics.map(|at| format!(" and metrics {at}")).unwrap_or_default();
        format!("ready: {} on {}{tcp}{metrics}; {mount}", exports.join(", "), rdma.join(", "))
    }

    pub(super) fn document(&self) -> Document<'_> {
        Document {
            pid: std::process::id(),
            rdma: self.rdma.first().map(|at| at.address),
            listeners: &self.rdma,
            tcp: self.tcp,
            exports: self.exports.iter().map(ExportDocument::of).collect(),
            mount: self.mount.as_deref().ok(),
            mount_note: self.mount.as_ref().err().map(String::as_str),
            metrics: self.metrics,
            control: self.control.as_ref().map(|path| path.display().to_string()),
        }
    }
}

/// Returns the names of the flavours that any client of an export may use.
fn names(export: &ExportOption) -> Vec<&'static str> {
    export.flavors().iter().map(|flavor| flavor.name()).collect()
}

/// Returns the first mount command, or the reason why the first address has none.
fn first_possible(commands: impl Iterator<Item = Result<String, String>>) -> Result<String, String> {
    let mut reason = None;
    for command in commands {
        match command {
            Ok(command) => return Ok(command),
            Err(why) => reason = reason.or(Some(why)),
        }
    }
    Err(reason.unwrap_or_else(|| "the server has no RDMA address".to_owned()))
}

/// Returns the mount command for a Linux client, or the reason why there is none. `own` is an address of this
/// machine, if it has one.
fn mount_command(
    rdma: SocketAddr,
    tcp: Option<SocketAddr>,
    (export, security): (&str, Security),
    own: Option<IpAddr>,
) -> Result<String, String> {
    if rdma.ip().is_loopback() {
        let all = if rdma.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        return Err(format!(
            "only this machine can reach {}; for others give --listen an address of this machine, or {}",
            rdma.ip(),
            SocketAddr::new(all, rdma.port())
        ));
    }
    let Some(tcp) = tcp else {
        return Err("Linux asks for MOUNT over TCP; leave out --no-tcp".to_owned());
    };
    if tcp.ip().is_loopback() {
        return Err(format!(
            "Linux asks for MOUNT over TCP, and only this machine can reach {}; change --tcp",
            tcp.ip()
        ));
    }
    let address = if rdma.ip().is_unspecified() {
        own.ok_or("this machine has no address but loopback")?
    } else {
        rdma.ip()
    };
    let (host, suffix) = match address {
        IpAddr::V4(address) => (address.to_string(), ""),
        IpAddr::V6(address) => (format!("[{address}]"), "6"),
    };
    // An address is no part of a principal.
    let host = if security.is_kerberos() { KEY_HOST.to_owned() } else { host };
    let security = if security.is_kerberos() { format!(",sec={security}") } else { String::new() };
    // NLM is not served, hence nolock.
    Ok(format!(
        "mount -t nfs -o vers=3,proto=rdma{suffix},port={},mountproto=tcp{suffix},mountport={},nolock{security} {} MOUNTPOINT",
        rdma.port(),
        tcp.port(),
        quoted(&format!("{host}:{export}"))
    ))
}

/// Quotes a word for a shell, if that is necessary.
fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "/:.-_[]".contains(c)) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the address from which this machine would reach others. The function sends nothing.
fn own_address(listen: IpAddr) -> Option<IpAddr> {
    // Documentation addresses (RFC 5737, RFC 3849) are routed like any other.
    let (any, other): (IpAddr, IpAddr) = match listen {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((other, 9)).ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(rdma: &str, tcp: Option<&str>, own: Option<&str>) -> Result<String, String> {
        let tcp = tcp.map(|tcp| tcp.parse().unwrap());
        let export = ("/data", Security::Sys);
        mount_command(rdma.parse().unwrap(), tcp, export, own.map(|own| own.parse().unwrap()))
    }

    #[test]
    fn a_reachable_server_has_a_mount_command() {
        let wanted = "mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock \
                      192.0.2.9:/data MOUNTPOINT";
        assert_eq!(command("192.0.2.9:20049", Some("0.0.0.0:20048"), None).as_deref(), Ok(wanted));
        assert_eq!(command("0.0.0.0:20049", Some("0.0.0.0:20048"), Some("192.0.2.9")).as_deref(), Ok(wanted));
        let six = command("[2001:db8::9]:20049", Some("[::]:20048"), None).unwrap();
        assert!(six.contains("proto=rdma6,") && six.contains(" [2001:db8::9]:/data "), "{six}");
    }

    #[test]
    fn others_are_told_why_there_is_none() {
        for (rdma, tcp, hint) in [
            (
                "127.0.0.1:20049",
                Some("127.0.0.1:20048"),
                "--listen an address of this machine, or 0.0.0.0:20049",
            ),
            ("[::1]:20049", Some("[::1]:20048"), "or [::]:20049"),
            ("192.0.2.9:20049", None, "--no-tcp"),
            ("192.0.2.9:20049", Some("127.0.0.1:20048"), "--tcp"),
            ("0.0.0.0:20049", Some("0.0.0.0:20048"), "no address"),
        ] {
            let reason = command(rdma, tcp, None).unwrap_err();
            assert!(reason.contains(hint), "{rdma}: {reason}");
        }
    }

    #[test]
    fn each_address_is_told_with_its_provider() {
        let listening = |address: &str, provider| Listening { address: address.parse().unwrap(), provider };
        let rdma = vec![listening("127.0.0.1:20049", "iwarp"), listening("192.0.2.9:20050", "verbs")];
        let ready = Ready::new(rdma, Some("0.0.0.0:20048".parse().unwrap()), &[]);
        let line = ready.line();
        let addresses =
            "on rdma 127.0.0.1:20049 (iwarp), rdma 192.0.2.9:20050 (verbs) and tcp 0.0.0.0:20048; ";
        // Other machines reach the second address only.
        assert!(
            line.contains(addresses) && line.contains("mount with: ") && line.contains("port=20050,"),
            "{line}"
        );
        let document = serde_json::to_value(ready.document()).unwrap();
        assert_eq!(document["rdma"], "127.0.0.1:20049");
        let listeners = serde_json::json!([
            {"address": "127.0.0.1:20049", "provider": "iwarp"},
            {"address": "192.0.2.9:20050", "provider": "verbs"},
        ]);
        assert_eq!(document["listeners"], listeners);
    }

    #[test]
    fn each_export_is_told_with_its_flavours() {
        let rdma = vec![Listening { address: "192.0.2.9:20049".parse().unwrap(), provider: "iwarp" }];
        let exports = ["/a=/srv/a,ro,sec=krb5i:krb5p", "/b=/srv/b"].map(|text| text.parse().unwrap());
        let ready = Ready::new(rdma, Some("192.0.2.9:2049".parse().unwrap()), &exports);
        let line = ready.line();
        assert!(line.contains("/srv/a as /a (ro, sec=krb5i:krb5p), /srv/b as /b (rw) on"), "{line}");
        assert!(
            line.ends_with(
                ",nolock,sec=krb5i HOST:/a MOUNTPOINT, where HOST is the name in the server's key nfs/HOST"
            ),
            "{line}"
        );
        let document = serde_json::to_value(ready.document()).unwrap();
        assert_eq!(document["exports"][0]["security"], serde_json::json!(["krb5i", "krb5p"]));
        assert_eq!(document["exports"][1]["security"], serde_json::json!(["sys"]));
    }

    #[test]
    fn without_any_mount_command_the_first_address_says_why() {
        let commands = [Err("first".to_owned()), Err("second".to_owned())];
        assert_eq!(first_possible(commands.into_iter()), Err("first".to_owned()));
    }

    #[test]
    fn words_for_a_shell() {
        assert_eq!(quoted("192.0.2.9:/data"), "192.0.2.9:/data");
        assert_eq!(quoted("h:/my data"), "'h:/my data'");
        assert_eq!(quoted("h:/it's"), r"'h:/it'\''s'");
    }
}
