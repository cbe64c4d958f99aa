//! Attacks a release build of `rpcrdma serve` on one machine and measures memory and delay.
//!
//! ```sh
//! cargo build --release
//! cargo run --release -p rpcrdma-cli --example attack
//! ```
//!
//! Each attack meets a fresh server, which is a child of this program. Attackers at one or more client
//! addresses act for a few seconds. Meanwhile another address calls GETATTR and notes each delay. The table
//! shows the worst of all runs. The program ends with status 1 if the server held more memory than its
//! options allow, or if it delayed the other client too much.
//!
//! The server counts all loopback addresses as one client. So this program runs itself once more in its own
//! network namespace. There the server and the clients have addresses of 192.0.2.0/24. That needs `unshare`,
//! `ip`, and root or a kernel that allows user namespaces to ordinary users.
//!
//! Attacking threads have a low priority, because real attackers bring processors of their own.

mod fixture;
mod flood;
mod hoard;
mod list;
mod network;
mod rdma;
mod rpc;
mod server;
mod table;
mod victim;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::fixture::Fixture;
use crate::list::Attack;
use crate::table::Table;

/// The error of any step.
type Failure = Box<dyn Error + Send + Sync>;

/// Attack `rpcrdma serve` in a network namespace of its own, and measure its memory and the delay of another
/// client
#[derive(Debug, Parser)]
#[command(name = "attack", max_term_width = 100)]
pub(crate) struct Options {
    /// Program of the server [default: rpcrdma beside the directory of this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Runs of each attack, 1 to 100
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Length of each attack in seconds, 1 to 25
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=25))]
    seconds: u64,
    /// Run only attacks whose name contains this text; can be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Memory of the server (its option --memory), in MiB, at least 64
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(64..=65_536))]
    memory: u64,
    /// Memory of the server for one address (its option --memory-per-peer), in MiB, at least 16
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = clap::value_parser!(u64).range(16..=65_536))]
    memory_per_peer: u64,
    /// List the attacks and end
    #[arg(long)]
    list: bool,
}

impl Options {
    pub(crate) const fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn wants(&self, attack: &Attack) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| attack.name.contains(text.as_str()))
    }

    fn server(&self) -> Result<PathBuf, Failure> {
        let path = match &self.server {
            Some(path) => path.clone(),
            None => {
                let own = std::env::current_exe()?;
                own.parent().and_then(|examples| examples.parent()).ok_or("no directory")?.join("rpcrdma")
            }
        };
        if path.is_file() {
            Ok(path)
        } else {
            Err(format!("{} does not exist: run cargo build --release, or give --server", path.display())
                .into())
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("attack: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Failure> {
    let options = Options::parse();
    if options.list {
        for attack in list::ATTACKS {
            println!("{:<24} {}", attack.name, attack.what);
        }
        return Ok(true);
    }
    let program = options.server()?;
    network::enter()?;
    server::raise_descriptors()?;
    let fixture = Fixture::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(|| {
            // At normal priority the attackers would compete with the server for processors.
            let _ = rustix::process::nice(10);
        })
        .build()?;
    let mut table = Table::new();
    for attack in list::ATTACKS.iter().filter(|attack| options.wants(attack)) {
        for _ in 0..options.runs {
            match list::run(attack, &runtime, &program, &fixture, &options)? {
                Some(measured) => table.add(attack, measured, &options),
                None => break,
            }
        }
        table.show_last();
    }
    Ok(table.verdict())
}
