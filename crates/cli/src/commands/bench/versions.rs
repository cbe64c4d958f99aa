//! `rpcrdma bench --versions`: measures metadata calls of NFS by version and inline threshold. It shows which
//! calls need no chunk, and how many calls are made a second, one after the other.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use rpcrdma::Versions;
use rpcrdma::experimental::Profile;
use rpcrdma_nfs::client::{Client, ClientOptions, Error};
use rpcrdma_nfs::wire::{
    AccessArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle, FileName, GetattrArgs, LookupArgs,
    ReaddirplusArgs, SetAttributes,
};
use serde::Serialize;

use super::server::BenchServer;
use super::{Ends, MEMORY_EXPORT, failed, machine, no_connection, table};
use crate::connect::NFS;
use crate::exit::Failure;

/// Entries of the directory to list.
const ENTRIES: usize = 50;
/// Bytes that a READDIRPLUS asks for: more than the whole directory.
const LISTING: u32 = 12 << 10;
/// Calls of each kind before the measurement moves on to another connection.
const BATCH: u32 = 200;
/// `ACCESS3_READ`, `_LOOKUP`, `_MODIFY` (RFC 1813 §3.3.4).
const ACCESS: u32 = 7;

/// Settings: version and inline threshold of both sides.
const SETTINGS: [(&str, Versions, usize); 9] = [
    ("1", Versions::ONE, 1024),
    ("1", Versions::ONE, 4096),
    ("2 (P1)", Versions::two(Profile::P1), 4096),
    ("2 (P2)", Versions::two(Profile::P2), 4096),
    ("2 (P3)", Versions::two(Profile::P3), 4096),
    ("1", Versions::ONE, 16_384),
    ("2 (P1)", Versions::two(Profile::P1), 16_384),
    ("2 (P2)", Versions::two(Profile::P2), 16_384),
    ("2 (P3)", Versions::two(Profile::P3), 16_384),
];

const NAMES: [&str; 5] = ["GETATTR", "LOOKUP", "ACCESS", "READDIRPLUS", "CREATE"];

/// Results of a setting.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    version: &'static str,
    inline: usize,
    calls: Vec<Calls>,
    /// Calls that need no chunk, in percent of the five kinds.
    without_chunks: f64,
}

#[derive(Debug, Serialize)]
struct Calls {
    name: &'static str,
    /// Whether neither call nor reply had a chunk list.
    without_chunks: bool,
    per_second: f64,
}

/// Client of a setting, and its server.
struct Subject {
    _server: BenchServer,
    rpc: rpcrdma::Client,
    client: Client,
    files: FileHandle,
    new: FileHandle,
    created: u32,
}

impl Subject {
    async fn start(
        directory: &Path,
        state: &Path,
        versions: Versions,
        inline: usize,
    ) -> Result<Self, Failure> {
        let server = BenchServer::start(&Ends::default(), directory, state, move |config| {
            config.protocol.send_size = inline;
            config.protocol.receive_size = inline;
            config.protocol.versions = versions;
        })?;
        let (rpc, client) = connect(server.addresses.nfs_rdma, versions, inline).await?;
        let make = |name: &'static str| client.mkdir(name, SetAttributes::default());
        let files = make("/files").await.map_err(failed("make a directory"))?.handle;
        let new = make("/new").await.map_err(failed("make a directory"))?.handle;
        for index in 0..ENTRIES {
            let path = format!("/files/a file of a certain length {index:03}");
            client.create(path, SetAttributes::default()).await.map_err(failed("make a file"))?;
        }
        Ok(Self { _server: server, rpc, client, files, new, created: 0 })
    }

    /// Makes a call of a kind.
    async fn call(&mut self, kind: &str) -> Result<(), Error> {
        let procedures = self.client.procedures();
        let name = |name: String| FileName::new(name.into_bytes());
        match kind {
            "GETATTR" => procedures.getattr(&GetattrArgs { object: self.files }).await.map(drop),
            "LOOKUP" => {
                let name = name("a file of a certain length 007".to_owned());
                let what = DirOpArgs { dir: self.files, name };
                procedures.lookup(&LookupArgs { what }).await.map(drop)
            }
            "ACCESS" => procedures.access(&AccessArgs { object: self.files, access: ACCESS }).await.map(drop),
            "READDIRPLUS" => {
                let arguments = ReaddirplusArgs {
                    dir: self.files,
                    cookie: 0,
                    verifier: Default::default(),
                    dircount: LISTING,
                    maxcount: LISTING,
                };
                procedures.readdirplus(&arguments).await.map(drop)
            }
            _ => {
                self.created += 1;
                let place = DirOpArgs { dir: self.new, name: name(format!("file {:07}", self.created)) };
                let how = CreateHow::Guarded(SetAttributes::default());
                procedures.create(&CreateArgs { place, how }).await.map(drop)
            }
        }
    }

    /// Returns the segments of all calls and replies so far.
    fn segments(&self) -> u64 {
        self.rpc.rdma().and_then(|rdma| rdma.connection_stats()).map_or(0, |stats| {
            let stats = stats.protocol;
            stats.read_segments + stats.write_segments + stats.reply_segments
        })
    }

    /// Returns calls a second.
    async fn rate(&mut self, kind: &str) -> Result<f64, Failure> {
        let start = Instant::now();
        for _ in 0..BATCH {
            self.call(kind).await.map_err(failed("call"))?;
        }
        Ok(f64::from(BATCH) / start.elapsed().as_secs_f64().max(1e-9))
    }
}

async fn connect(
    to: SocketAddr,
    versions: Versions,
    inline: usize,
) -> Result<(rpcrdma::Client, Client), Failure> {
    let mut config = rpcrdma::ClientConfig::default();
    config.protocol.versions = versions;
    config.protocol.program = Some(NFS);
    config.protocol.send_size = inline;
    config.protocol.receive_size = inline;
    let connector = Ends::default().connector(to).await?;
    let rpc = rpcrdma::Client::builder()
        .config(config)
        .transport(rpcrdma::Transport::rdma_on(connector))
        .connect(to)
        .await
        .map_err(no_connection)?;
    let options = ClientOptions::default();
    let client = Client::mount(&rpc, MEMORY_EXPORT, options).await.map_err(failed("mount"))?;
    Ok((rpc, client))
}

/// Measures all settings, which take turns for this many rounds.
pub(super) async fn measure(place: &Path, rounds: u16) -> Result<Vec<Setting>, Failure> {
    let directory = place.join("export");
    let mut subjects = Vec::new();
    for (index, (_, versions, inline)) in SETTINGS.into_iter().enumerate() {
        let state = place.join(format!("state of {index}"));
        subjects.push(Subject::start(&directory, &state, versions, inline).await?);
    }
    let mut without = vec![[false; NAMES.len()]; SETTINGS.len()];
    let mut rates = vec![vec![Vec::new(); NAMES.len()]; SETTINGS.len()];
    for (subject, without) in subjects.iter_mut().zip(&mut without) {
        for (kind, without) in NAMES.into_iter().zip(without) {
            let before = subject.segments();
            subject.call(kind).await.map_err(failed("call"))?;
            *without = subject.segments() == before;
        }
    }
    // Round 0 warms up.
    for round in 0..=rounds {
        for (subject, rates) in subjects.iter_mut().zip(&mut rates) {
            for (kind, rates) in NAMES.into_iter().zip(rates) {
                let rate = subject.rate(kind).await?;
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
    }
    let settings = SETTINGS.into_iter().zip(without).zip(rates);
    Ok(settings
        .map(|(((version, _, inline), without), rates)| setting(version, inline, without, rates))
        .collect())
}

fn setting(
    version: &'static str,
    inline: usize,
    without: [bool; NAMES.len()],
    rates: Vec<Vec<f64>>,
) -> Setting {
    let calls: Vec<Calls> = NAMES
        .into_iter()
        .zip(without)
        .zip(rates)
        .map(|((name, without_chunks), rates)| Calls {
            name,
            without_chunks,
            per_second: table::median(rates),
        })
        .collect();
    let share = without.into_iter().map(|without| if without { 100.0 } else { 0.0 }).sum::<f64>();
    Setting { version, inline, calls, without_chunks: share / 5.0 }
}

/// Returns the lines of the table.
pub(super) fn lines(settings: &[Setting], rounds: u16) -> Vec<String> {
    let mut lines = vec![
        format!("{}; calls a second, one at a time; medians of {rounds} rounds; * has chunks", machine()),
        String::new(),
        format!(
            "| version | inline | {} | without chunks |",
            NAMES.map(|name| format!("{name:>11}")).join(" | ")
        ),
        format!("| ------- | -----: | {} | -------------: |", ["----------:"; NAMES.len()].join(" | ")),
    ];
    lines.extend(settings.iter().map(|setting| {
        let mut line = format!("| {:7} | {:6} |", setting.version, setting.inline);
        for calls in &setting.calls {
            let mark = if calls.without_chunks { " " } else { "*" };
            // Writing to a String does not fail.
            let _ = write!(line, " {:>10.0}{mark} |", calls.per_second);
        }
        let _ = write!(line, " {:>12.0} % |", setting.without_chunks);
        line
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_has_chunks() {
        let rates = vec![vec![3.0, 1.0, 2.0]; 5];
        let setting = setting("1", 1024, [true, true, true, false, true], rates);
        assert!((setting.without_chunks - 80.0).abs() < 1e-9);
        let lines = lines(&[setting], 3);
        let calls = "         2  |          2  |          2  |          2* |          2 ";
        assert_eq!(lines[4], format!("| 1       |   1024 | {} |           80 % |", calls));
        assert!(lines[2].contains("READDIRPLUS"));
    }
}
