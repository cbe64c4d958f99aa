//! Opens many connections at a time to a release build of `rpcrdma serve` with its defaults, and calls on all of them.
//!
//! ```sh
//! cargo build --release
//! cargo run --release -p rpcrdma-cli --example crowd
//! ```
//!
//! The server is a child of this program. Every connection comes from a loopback address, so all count as one client.
//! In each round every connection makes four calls at a time: NULL, FSSTAT, GETATTR, and READ of 64 KiB, whose data is
//! compared. With `--looks` it then asks the server's control socket as `rpcrdma top` does, on idle connections and while calls
//! go on. The program prints the memory of the server, and ends with status 1 if a call fails or if a connection was lost.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use bytes::Bytes;
use clap::Parser;
use rpcrdma::{Client, ClientConfig};
use rpcrdma_nfs::client::{Client as NfsClient, ClientOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

/// The error of any step.
type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of the file that is read.
const FILE: u32 = 64 << 10;
/// Memory of a client in bytes: its Receives, and the results of its calls.
const MEMORY: usize = 512 << 10;
/// Connections that are made at a time: half of the connections that the server sets up at a time are for one client.
const AT_ONCE: usize = 32;

/// Open many connections to `rpcrdma serve` with its defaults, and call on all of them
#[derive(Debug, Parser)]
#[command(name = "crowd", max_term_width = 100)]
struct Options {
    /// Program of the server [default: rpcrdma beside the directory of this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Connections
    #[arg(long, value_name = "COUNT", default_value_t = 5000)]
    count: usize,
    /// Rounds of four calls on each connection
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    rounds: u32,
    /// Looks at the server, as top makes them; with 0 none
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    looks: u32,
    /// Options of the server, beside its defaults
    #[arg(value_name = "OPTION", last = true)]
    options: Vec<String>,
}

/// Running `rpcrdma serve`, which ends with this value.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(program: &Path, export: &Path, state: &Path, options: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--tcp", "127.0.0.1:0"])
            .arg("--state")
            .arg(state)
            .args(options)
            .arg(export)
            .env("RPCRDMA_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let parsed = serde_json::from_str::<serde_json::Value>(&line)?;
        let address = parsed.get("rdma").and_then(|address| address.as_str()).ok_or("no address")?;
        Ok(Self { child, address: address.parse()? })
    }

    /// Returns the resident memory, in bytes.
    fn resident(&self) -> Result<u64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(kib.ok_or("the server has ended")?.trim().parse::<u64>()? << 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crowd: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(options: &Options) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let program = match &options.server {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("../rpcrdma"),
    };
    let (export, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let data: Vec<u8> = (0..FILE).map(|at| at.to_le_bytes().iter().fold(7, |sum, byte| sum ^ byte)).collect();
    std::fs::write(export.path().join("file"), &data)?;
    let server = Process::start(&program, export.path(), state.path(), &options.options)?;
    let data = Bytes::from(data);

    let empty = server.resident()?;
    let started = Instant::now();
    let mut clients = Vec::with_capacity(options.count);
    let mut connecting = JoinSet::new();
    while clients.len() < options.count {
        while connecting.len() < AT_ONCE && clients.len() + connecting.len() < options.count {
            connecting.spawn(connect(server.address));
        }
        if let Some(client) = connecting.join_next().await {
            clients.push(client??);
        }
    }
    println!("{:<40} {} in {:.1} s", "connections", clients.len(), started.elapsed().as_secs_f64());
    let idle = server.resident()?;
    let started = Instant::now();
    for _ in 0..options.rounds {
        round(&clients, &data).await?;
    }
    let total = clients.len() * usize::try_from(options.rounds)? * 4;
    println!("{:<40} {total} in {:.1} s", "calls, all answered", started.elapsed().as_secs_f64());
    let used = server.resident()?;
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{:<40} {} MiB, {} MiB, {} MiB",
        "server: resident before, idle, used",
        mib(empty),
        mib(idle),
        mib(used)
    );
    let count = u64::try_from(clients.len().max(1))?;
    let each = |bytes: u64| (bytes.saturating_sub(empty) / count) >> 10;
    println!("{:<40} {} KiB, {} KiB", "server: resident for each, idle, used", each(idle), each(used));
    if options.looks > 0 {
        let look = || {
            let (state, process, count) = (state.path().to_owned(), server.child.id(), options.looks);
            tokio::task::spawn_blocking(move || looks(&state, process, count))
        };
        println!("looks on idle connections");
        look().await??;
        println!("looks while calls go on");
        let mut looking = look();
        while !looking.is_finished() {
            round(&clients, &data).await?;
        }
        (&mut looking).await??;
    }
    let mut granted: Vec<u32> = clients
        .iter()
        .filter_map(|(client, _)| client.rdma().and_then(|rdma| rdma.connection_stats()))
        .map(|stats| stats.protocol.credits_granted_to_us)
        .collect();
    granted.sort_unstable();
    println!(
        "{:<40} {:?}, {:?}, {:?}",
        "credits: least, median, most",
        granted.first(),
        granted.get(granted.len() / 2),
        granted.last()
    );
    let made: u64 = clients.iter().map(|(client, _)| client.stats().connections).sum();
    let lost = made - u64::try_from(clients.len())?;
    println!("{:<40} {lost}", "connections lost");
    if lost > 0 { Err("connections were lost".into()) } else { Ok(()) }
}

async fn connect(address: SocketAddr) -> Result<(Client, NfsClient), Failure> {
    let mut config = ClientConfig::default();
    config.memory = MEMORY;
    let client = Client::builder().config(config).connect(address).await?;
    let mounted = NfsClient::mount(&client, "/", ClientOptions::default()).await?;
    Ok((client, mounted))
}

async fn calls(client: NfsClient, data: Bytes) -> Result<(), Failure> {
    let file = client.open("file").await?;
    let procedures = client.procedures();
    let (null, info, attributes, read) =
        tokio::join!(procedures.null(), client.fsstat(), file.attributes(), file.read_at(0, FILE));
    null?;
    info?;
    if attributes?.size != u64::from(FILE) || read? != data {
        return Err("wrong data".into());
    }
    Ok(())
}

/// Makes four calls on each connection.
async fn round(clients: &[(Client, NfsClient)], data: &Bytes) -> Result<(), Failure> {
    let mut calling = JoinSet::new();
    for (_, client) in clients {
        calling.spawn(calls(client.clone(), data.clone()));
    }
    while let Some(called) = calling.join_next().await {
        called??;
    }
    Ok(())
}

/// Asks the control socket so many times for each of the questions of `top`, and for all clients. Prints the size of the
/// answers, the times, and the processor time that the server used meanwhile.
fn looks(state: &Path, process: u32, count: u32) -> Result<(), Failure> {
    let mut session = BufReader::new(UnixStream::connect(state.join("control"))?);
    for (name, question) in [
        ("status", r#"{"command":"status"}"#),
        ("20 clients by rate", r#"{"command":"clients","count":20,"by":"rate"}"#),
        ("20 clients by address", r#"{"command":"clients","count":20,"by":"address"}"#),
        ("all clients", r#"{"command":"clients"}"#),
    ] {
        let (mut times, mut answer) = (Vec::new(), String::new());
        let before = processor_time(process)?;
        for _ in 0..count {
            let started = Instant::now();
            session.get_mut().write_all(format!("{question}\n").as_bytes())?;
            answer.clear();
            session.read_line(&mut answer)?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        let used = (processor_time(process)? - before) * 1e3 / f64::from(count);
        times.sort_unstable_by(f64::total_cmp);
        let middle = times.get(times.len() / 2).copied().unwrap_or_default();
        let most = times.last().copied().unwrap_or_default();
        println!(
            "  {name:<38} {} bytes, {middle:.2} ms, at most {most:.2} ms, processor {used:.2} ms",
            answer.len()
        );
    }
    Ok(())
}

/// Returns the processor time of a process, in seconds.
fn processor_time(process: u32) -> Result<f64, Failure> {
    /// Ticks of a second in /proc (proc(5)).
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(')').ok_or("no fields")?.1;
    // User and system time are fields 14 and 15, and the first one here is field 3.
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / TICKS)
}
