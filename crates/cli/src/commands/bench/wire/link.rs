//! A network namespace, and a link of virtual Ethernet from it to that of this process.
//!
//! The programs ip, ethtool and tc do the work. Each step that fails is an error with the command and its
//! complaint. Everything is removed when the link is dropped; with the namespace, the kernel removes its end
//! of the link, and with that the other end.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::exit::Failure;
use crate::output;

/// Directories of programs for administrators, which the search path need not have.
const ADMINISTRATION: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// Offloads that are switched, as `ethtool -K` names them, and as `ethtool -k` shows them.
const OFFLOADS: [(&str, &str); 3] = [
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
];
/// Packets that netem holds: those of a fast link in the longest delay.
const HELD: &str = "200000";

/// Programs that make the link.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    ip: PathBuf,
    ethtool: PathBuf,
    tc: PathBuf,
}

impl Tools {
    /// Looks for the programs. Returns those that are missing, too.
    pub(super) fn find() -> (Self, Vec<&'static str>) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> =
            std::env::split_paths(&path).chain(ADMINISTRATION.map(PathBuf::from)).collect();
        let mut missing = Vec::new();
        let mut find = |name: &'static str| {
            let found = directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
            found.unwrap_or_else(|| {
                missing.push(name);
                name.into()
            })
        };
        let tools = Self { ip: find("ip"), ethtool: find("ethtool"), tc: find("tc") };
        (tools, missing)
    }
}

/// Delay and loss of a link, in both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Disturbance {
    /// One way.
    pub(super) delay_ms: u16,
    pub(super) loss_percent: f64,
}

/// Setting of both ends of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) mtu: u32,
    /// TSO, GSO and GRO.
    pub(super) offloads: bool,
    pub(super) disturbance: Option<Disturbance>,
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Setting", 4)?;
        fields.serialize_field("mtu", &self.mtu)?;
        fields.serialize_field("offloads", &self.offloads)?;
        fields.serialize_field("delay_ms", &self.disturbance.map_or(0, |of| of.delay_ms))?;
        fields.serialize_field("loss_percent", &self.disturbance.map_or(0.0, |of| of.loss_percent))?;
        fields.end()
    }
}

impl Setting {
    /// Returns the heading of the setting's column.
    pub(super) fn title(&self) -> String {
        let offloads = if self.offloads { "on" } else { "off" };
        let disturbed = self
            .disturbance
            .map_or_else(String::new, |of| format!(", {} ms, {} % lost", of.delay_ms, of.loss_percent));
        format!("MTU {}, offloads {offloads}{disturbed}", self.mtu)
    }
}

/// A namespace, and a link to it. Both are removed when this value is dropped.
pub(super) struct Link {
    tools: Tools,
    space: String,
    near: String,
    far: String,
    /// Addresses of this side, and of the namespace.
    addresses: [Ipv4Addr; 2],
}

impl Drop for Link {
    fn drop(&mut self) {
        // A link that was never made cannot be removed. That is no failure.
        let _ = self.quietly(&["link", "del", &self.near]);
        if let Err(error) = self.quietly(&["netns", "del", &self.space])
            && self.exists()
        {
            output::warn(format_args!("the network namespace {} is left: {error}", self.space));
        }
    }
}

impl Link {
    /// Makes namespace and link. Their names have the number of this process, so several runs do not meet.
    pub(super) fn make(tools: &Tools) -> Result<Self, Failure> {
        let id = std::process::id();
        // 198.18.0.0/15 is for benchmarks (RFC 2544). Each process has four addresses of it.
        let [.., high, low] = (id << 2).to_be_bytes();
        let address = |last: u8| Ipv4Addr::new(198, 18, high, (low & 0xfc) | last);
        let link = Self {
            tools: tools.clone(),
            space: format!("rpcrdma-bench-{id}"),
            near: format!("rb{id}a"),
            far: format!("rb{id}b"),
            addresses: [address(1), address(2)],
        };
        let Self { space, near, far, .. } = &link;
        let [this, other] = link.addresses.map(|address| format!("{address}/30"));
        link.ip(&["netns", "add", space])?;
        link.ip(&["link", "add", near, "type", "veth", "peer", "name", far, "netns", space])?;
        link.ip(&["address", "add", &this, "dev", near])?;
        link.ip(&["-netns", space, "address", "add", &other, "dev", far])?;
        link.ip(&["link", "set", near, "up"])?;
        link.ip(&["-netns", space, "link", "set", far, "up"])?;
        link.ip(&["-netns", space, "link", "set", "lo", "up"])?;
        Ok(link)
    }

    /// Returns the address of the namespace.
    pub(super) const fn far(&self) -> IpAddr {
        let [_, far] = self.addresses;
        IpAddr::V4(far)
    }

    /// Returns a command that runs a program in the namespace.
    pub(super) fn command_inside(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.tools.ip);
        command.args(["netns", "exec", &self.space]).arg(program);
        command
    }

    /// Gives both ends a setting. Returns the reason if the kernel cannot disturb packets.
    pub(super) fn set(&self, setting: &Setting) -> Result<Result<(), String>, Failure> {
        let (mtu, state) = (setting.mtu.to_string(), if setting.offloads { "on" } else { "off" });
        self.ip(&["link", "set", &self.near, "mtu", &mtu])?;
        self.ip(&["-netns", &self.space, "link", "set", &self.far, "mtu", &mtu])?;
        for (inside, end) in [(false, &self.near), (true, &self.far)] {
            let mut change = vec!["-K", end.as_str()];
            change.extend(OFFLOADS.iter().flat_map(|(name, _)| [*name, state]));
            self.run(inside, &self.tools.ethtool, &change)?;
            let shown = self.run(inside, &self.tools.ethtool, &["-k", end])?;
            if let Some(name) = differing(&shown, state) {
                return Err(Failure::failed(format!("{end}: ethtool does not switch {name} {state}")));
            }
        }
        let Some(disturbance) = setting.disturbance else { return Ok(Ok(())) };
        let (delay, loss) = (format!("{}ms", disturbance.delay_ms), format!("{}%", disturbance.loss_percent));
        for (inside, end) in [(false, &self.near), (true, &self.far)] {
            let netem = ["qdisc", "add", "dev", end, "root", "netem", "delay", &delay, "loss", &loss];
            let netem = [&netem[..], &["limit", HELD]].concat();
            if let Err(error) = self.run(inside, &self.tools.tc, &netem) {
                return Ok(Err(format!(
                    "Delay and loss were not measured: the kernel or tc has no netem ({error})"
                )));
            }
        }
        Ok(Ok(()))
    }

    fn ip(&self, arguments: &[&str]) -> Result<String, Failure> {
        self.run(false, &self.tools.ip, arguments)
    }

    fn quietly(&self, arguments: &[&str]) -> Result<(), Failure> {
        self.ip(arguments).map(drop)
    }

    /// Returns whether the namespace exists.
    fn exists(&self) -> bool {
        Path::new("/run/netns").join(&self.space).exists()
    }

    /// Runs a program, in the namespace or not. Returns its output.
    fn run(&self, inside: bool, program: &Path, arguments: &[&str]) -> Result<String, Failure> {
        let mut command = if inside { self.command_inside(program) } else { Command::new(program) };
        // Ctrl-C must not end what makes or removes the link.
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        let name = program.file_name().and_then(OsStr::to_str).unwrap_or("the program");
        let shown = || format!("{name} {}", arguments.join(" "));
        let output =
            command.output().map_err(|error| Failure::failed(format!("cannot run {}: {error}", shown())))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint = complaint.lines().next().unwrap_or("it gives no reason");
        Err(Failure::failed(format!("{}: {complaint}", shown())))
    }
}

/// Returns the name of an offload that `ethtool -k` does not show in this state.
fn differing(shown: &str, state: &str) -> Option<&'static str> {
    let has = |feature: &str| {
        shown
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .any(|(name, value)| name == feature && value.split(' ').next() == Some(state))
    };
    OFFLOADS.iter().find(|(_, feature)| !has(feature)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Features for rb1a:\ntcp-segmentation-offload: on\n\ttx-tcp-segmentation: on\n\
        generic-segmentation-offload: on\ngeneric-receive-offload: off [fixed]\n";

    #[test]
    fn the_state_of_offloads_is_read_back() {
        assert_eq!(differing(SHOWN, "on"), Some("gro"));
        assert_eq!(differing(SHOWN, "off"), Some("tso"));
        assert_eq!(differing(&SHOWN.replace("off [fixed]", "on"), "on"), None);
    }

    #[test]
    fn settings_have_titles_and_documents() {
        let plain = Setting { mtu: 9000, offloads: false, disturbance: None };
        assert_eq!(plain.title(), "MTU 9000, offloads off");
        let document = serde_json::to_value(plain).unwrap();
        assert_eq!((&document["delay_ms"], &document["loss_percent"]), (&0.into(), &0.0.into()));
        let disturbance = Some(Disturbance { delay_ms: 5, loss_percent: 0.01 });
        let slow = Setting { mtu: 1500, offloads: true, disturbance };
        assert_eq!(slow.title(), "MTU 1500, offloads on, 5 ms, 0.01 % lost");
        assert_eq!(serde_json::to_value(slow).unwrap()["loss_percent"], 0.01);
    }
}
