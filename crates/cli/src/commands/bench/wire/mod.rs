//! `rpcrdma bench wire`: measures between two network namespaces of this machine, which virtual Ethernet
//! joins.
//!
//! The server runs in a namespace of its own, as another process. For each setting of the link the client
//! measures what `rpcrdma bench HOST` does. `link` makes namespace and link and removes them when it is
//! dropped: at the end, after an error, and after a signal. The server is dropped before.

mod link;
mod table;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::link::{Disturbance, Link, Setting, Tools};
use super::remote::plan::Plan;
use super::remote::report::{Document, Row};
use super::remote::{self, PlanOptions};
use super::roundtrips::within;
use super::{failed, machine};
use crate::arguments::{Common, whole};
use crate::commands::until_signal;
use crate::exit::Failure;
use crate::output::{self, Text};
use crate::provider::{Provider, ProviderOptions};

/// Maximum time until the server in the namespace listens.
const START_LIMIT: Duration = Duration::from_secs(10);
const AFTER_HELP: &str = "\
Needs root, a Linux kernel with network namespaces and veth, and the programs ip, ethtool and tc. The client runs in this process, \
and the server in a network namespace, which is removed at the end together with the link. Both ends of the link have the same \
settings: MTU, and segmentation and receive offloads (TSO, GSO, GRO) on or off. With offloads, the kernel moves up to 64 KiB as \
one packet, and without them it makes packets of the MTU as an Ethernet adapter without offloads does. A last setting delays and \
drops packets in both directions, if the kernel has netem.

Both ends share the processors of this machine, so ratios are more reliable than rates. The rows are those of rpcrdma bench HOST, \
see rpcrdma bench --help. Each cell has the value, and its ratio to raw TCP with the same setting. The second table has processor \
time of client + server, and the third what limits.

--json prints {machine, netem_note, settings: [{mtu, offloads, delay_ms, loss_percent, result}]}; result is the document of \
rpcrdma bench HOST, and netem_note says why the last setting is missing, or is null.";

/// Default time of each measure.
const SECONDS: Duration = Duration::from_secs(1);
/// Ethernet, and jumbo frames.
const MTUS: [u32; 2] = [1500, 9000];

/// Measure between two network namespaces of this machine (root only)
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Wire {
    #[command(flatten)]
    plan: PlanOptions,
    /// Delay of packets by netem, one way, in milliseconds, 0 to 1000
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 5, value_parser = whole::<u16>(0, 1000))]
    delay: u16,
    /// Packets that netem drops, in percent, 0 to 10
    #[arg(long, value_name = "PERCENT", default_value = "0.01", value_parser = |text: &str| within(text, 0.0, 10.0))]
    loss: f64,
}

/// Makes the cell of a row for one of the tables.
type Cell = fn(&Row) -> String;

/// Result of a setting.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    setting: Setting,
    result: Document,
}

#[derive(Serialize)]
struct WireDocument {
    machine: String,
    netem_note: Option<String>,
    settings: Vec<Measured>,
}

/// The needs of `bench wire`, as this process has them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ability {
    root: bool,
    /// Programs that were not found.
    missing: Vec<&'static str>,
}

impl Ability {
    /// Returns the reason why this process cannot measure a wire, with the remedy.
    fn check(&self) -> Result<(), Failure> {
        if !self.root {
            return Err(Failure::failed(
                "bench wire makes a network namespace and a link, which needs root: run it as root (sudo), or measure \
                 between two hosts with bench --server and bench HOST",
            ));
        }
        match self.missing.as_slice() {
            [] => Ok(()),
            missing => Err(Failure::failed(format!(
                "bench wire needs the program(s) {}: install iproute2 (ip, tc) and ethtool",
                missing.join(", ")
            ))),
        }
    }
}

/// The server in its namespace; it ends with this value.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
struct Ready {
    control: SocketAddr,
}

impl Server {
    fn start(link: &Link) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(failed("find this program"))?;
        let mut command = link.command_inside(&program);
        let listen = SocketAddr::new(link.far(), remote::serve::PORT).to_string();
        command.args(["bench", "--server", "--json", "--provider", "iwarp", "--listen", &listen]);
        // Ctrl-C is for this process, which then ends the server.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().map_err(failed("start a server"))?;
        let mut server = Self { child, address: SocketAddr::new(link.far(), 0) };
        let stdout = server.child.stdout.take().ok_or_else(|| Failure::failed("the server has no output"))?;
        let mut stdout = BufReader::new(stdout);
        let (tell, told) = std::sync::mpsc::channel();
        // The rest of its log is not shown. The thread ends with the server.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).map(|_| line);
            let _ = tell.send(read);
            let _ = stdout.read_to_end(&mut Vec::new());
        });
        let line = told.recv_timeout(START_LIMIT).map_err(failed("wait for the server"))?;
        let line = line.map_err(failed("read from the server"))?;
        if line.is_empty() {
            // It has told the reason on standard error.
            return Err(Failure::failed("the server in the network namespace ended at once"));
        }
        let ready: Ready = serde_json::from_str(&line).map_err(failed("understand the server"))?;
        server.address = ready.control;
        Ok(server)
    }
}

impl Wire {
    pub(super) fn run(&self, common: Common) -> Result<(), Failure> {
        let plan = self.plan.plan(SECONDS)?;
        let picture = self.plan.picture(&plan)?;
        let (tools, missing) = Tools::find();
        Ability { root: rustix::process::geteuid().is_root(), missing }.check()?;
        let document = remote::on_runtime_of_one(until_signal(self.measure(&tools, &plan)))?;
        if common.json {
            output::json(&document)?;
        } else {
            let mut text = Text::stdout();
            document.lines().into_iter().try_for_each(|line| text.line(line))?;
            text.flush()?;
        }
        let drawn: Vec<_> =
            document.settings.iter().map(|measured| (measured.setting.title(), &measured.result)).collect();
        remote::draw(picture, &drawn)
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for mtu in MTUS {
            settings.extend([true, false].map(|offloads| Setting { mtu, offloads, disturbance: None }));
        }
        let disturbance = Disturbance { delay_ms: self.delay, loss_percent: self.loss };
        // With offloads, netem would drop 64 KiB at a time.
        settings.push(Setting { mtu: 1500, offloads: false, disturbance: Some(disturbance) });
        settings
    }

    async fn measure(&self, tools: &Tools, plan: &Plan) -> Result<WireDocument, Failure> {
        let link = Link::make(tools)?;
        let server = Server::start(&link)?;
        let provider = ProviderOptions { provider: Provider::Iwarp, ..ProviderOptions::default() };
        let (mut settings, mut netem_note) = (Vec::new(), None);
        for setting in self.settings() {
            if let Err(reason) = link.set(&setting)? {
                netem_note = Some(reason);
                continue;
            }
            output::note(format_args!("measuring: {}", setting.title()));
            let result = remote::measure(&[server.address], plan, &provider, None, &|_, _, _| Ok(())).await?;
            settings.push(Measured { setting, result });
        }
        Ok(WireDocument { machine: machine(), netem_note, settings })
    }
}

impl WireDocument {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}; client and server on this machine", self.machine)];
        let titles: Vec<String> = self.settings.iter().map(|measured| measured.setting.title()).collect();
        if let Some(measured) = self.settings.first() {
            lines.push(format!("{}\n", measured.result.load()));
        }
        let tables: [(&str, Cell); 3] = [
            ("Rate or time, and its ratio to raw TCP:", Row::cell),
            ("Processor time of client + server:", Row::cost),
            ("What limits each row:", Row::limited_by),
        ];
        for (caption, cell) in tables {
            lines.push(format!("{caption}\n"));
            let columns =
                self.settings.iter().map(|measured| measured.result.rows.iter().map(cell).collect());
            let rows = self.settings.first().map_or(&[][..], |measured| &measured.result.rows);
            let names = rows.iter().map(|row| row.name().to_owned()).collect();
            lines.extend(table::table(names, &titles, columns.collect()));
            lines.push(String::new());
        }
        match &self.netem_note {
            Some(note) => lines.push(note.clone()),
            None => drop(lines.pop()),
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_root_or_a_program_the_complaint_says_so() {
        let complaint = |root, missing: &[&'static str]| {
            Ability { root, missing: missing.to_vec() }.check().unwrap_err().to_string()
        };
        assert!(complaint(false, &["tc"]).contains("needs root"));
        let missing = complaint(true, &["ip", "ethtool"]);
        assert!(missing.contains("ip, ethtool: install iproute2"), "{missing}");
        assert!(Ability { root: true, missing: Vec::new() }.check().is_ok());
    }
}
