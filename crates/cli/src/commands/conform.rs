//! `rpcrdma conform`: tests how a server or a client speaks RPC-over-RDMA.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgGroup, Args};
use rpcrdma_conform::report::{self, RowInfo};
use rpcrdma_conform::server::{Export, Target, Tester};
use rpcrdma_conform::{Report, RowReport, Verdict, client, server};
use rpcrdma_iwarp::Timeouts;
use rpcrdma_nfs::client::{Client, ClientOptions, Error, NfsUrl};
use rpcrdma_nfs::wire::SetAttributes;
use serde::Serialize;

use crate::arguments::{
    Common, Connection, ProfileName, Proto, Security, Sends, Version, host, listen_address, some_seconds,
    whole,
};
use crate::commands::cannot_listen;
use crate::connect::{self, Servers, describe};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::provider::{ProviderOptions, Settings};
use crate::tls::ClientTls;

const AFTER_HELP: &str = "\
Prints a table in Markdown with one line for each row: verdict, name, section, how binding the section is, expected and seen \
behaviour. On a terminal each row also appears as soon as it ends.

Verdicts:
  pass     as expected
  differs  not what the text recommends, but harmless
  FAIL     contrary to the text, or harmful to the peer
  n/a      not tested, for the reason given

Exit code 0 if no row failed, 1 if some did, 2 if --export names no export that can be mounted and written to, 3 if there \
was no connection to the server or to its MOUNT service.

--server: rows with chunks need an NFSv3 export (--export) whose root directory is writable. The files made there are removed \
at the end. Never test a server that others depend on: the tester sends messages that no client sends. The rows are about \
Version One, or with --profile about Version Two. The rows of Version Two are not applicable to a server of Version One only.
--client: waits for one client that makes calls repeatedly by itself, even after failures. For example:
  rpcrdma conform --client --listen 127.0.0.1:20050 &
  rpcrdma ping 127.0.0.1:20050 -c 0 -i 0.05 --timeout 2
Rows with chunks need a client that offers chunks (READ, READDIR). The tester serves it an NFSv3 export / with one file. \
With --profile the client needs both versions, the same profile, and one call at a time.

--json prints {role, address, pass, differs, fail, not_applicable, rows: [{name, section, rule, sends, expects, verdict, \
seen}]}; rule is required, recommended or choice, verdict pass, differs, fail or not_applicable. With --list {rows: [{name, \
section, rule, sends, expects}]}.";

/// Test how a peer speaks RPC-over-RDMA
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP,
    group(ArgGroup::new("role").args(["server", "client", "list"]).required(true).multiple(true)))]
pub(crate) struct Conform {
    /// Test a server: HOST, HOST:PORT or nfs://HOST[:PORT]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = host, conflicts_with = "client")]
    server: Option<NfsUrl>,
    /// Test a client that connects to --listen
    #[arg(long)]
    client: bool,
    /// Address and port at which to wait for the client
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        default_value = "127.0.0.1:20049",
        value_parser = listen_address(20049),
        requires = "client",
        conflicts_with = "server"
    )]
    listen: SocketAddr,
    /// NFSv3 export of the server, for rows with chunks
    #[arg(long, value_name = "PATH", conflicts_with = "client")]
    export: Option<String>,
    /// TCP port of the MOUNT service, if the server does not answer MOUNT on its RDMA port and rpcbind does
    /// not know it
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1, 65_535), requires = "export")]
    mountport: Option<u16>,
    /// Number of the RPC program of the server whose NULL procedure is called
    #[arg(long, value_name = "NUMBER", default_value_t = 100_003, value_parser = whole::<u32>(0, u32::MAX), conflicts_with = "client")]
    program: u32,
    /// Version of the RPC program
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = whole::<u32>(0, u32::MAX), conflicts_with = "client")]
    version: u32,
    /// Test Version Two, as these drafts define it, instead of Version One
    #[arg(long, value_enum, value_name = "PROFILE")]
    profile: Option<ProfileName>,
    /// Try only rows whose name contains TEXT; can be given several times
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Try only the row of this name; can be given several times
    #[arg(long = "row", value_name = "NAME", conflicts_with = "filter")]
    only: Vec<String>,
    /// Print the rows without trying any
    #[arg(long)]
    list: bool,
    /// Time limit for each answer of the peer, in seconds, more than 0; a row takes at most six times as long
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, default_value = "10")]
    limit: Duration,
    /// Time for which the peer must stay silent where nothing is expected of it, in seconds. For clients,
    /// longer than their pause between calls [default: 0.15 for servers, 0.5 for clients]
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
    silence: Option<Duration>,
    /// Do not request CRCs over software iWARP (for siw, the software iWARP of Linux, behind a proxy). No effect
    /// on adapters
    #[arg(long)]
    no_crc: bool,
    #[command(flatten)]
    rdma: ProviderOptions,
}

#[derive(Serialize)]
struct Document<'a> {
    role: &'static str,
    address: String,
    pass: usize,
    differs: usize,
    fail: usize,
    not_applicable: usize,
    rows: &'a [RowReport],
}

#[derive(Serialize)]
struct List<'a> {
    rows: &'a [RowInfo],
}

impl Conform {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        self.rdma.check([&self.rdma.provider], self.no_crc)?;
        let profile = self.profile.map(ProfileName::profile);
        let rows = if self.client { client::rows(profile) } else { server::rows(profile) };
        if let Some(name) = self.only.iter().find(|name| !rows.iter().any(|row| row.name == name.as_str())) {
            return Err(Failure::usage(format!("no row is named {name} (--list shows the names)")));
        }
        let rows: Vec<RowInfo> = rows.into_iter().filter(|row| self.wants(row)).collect();
        if rows.is_empty() {
            return Err(Failure::usage(format!(
                "no row has {} in its name (--list shows the names)",
                self.filter.join(" or ")
            )));
        }
        if self.list {
            return match common.json {
                true => output::document(&List { rows: &rows }),
                false => output::line(report::list(&rows).trim_end()),
            };
        }
        match &self.server {
            Some(url) => self.test_server(url, common).await,
            None => self.test_client(common).await,
        }
    }

    fn wants(&self, row: &RowInfo) -> bool {
        let named = self.only.iter().any(|name| row.name == name);
        let filtered = self.filter.iter().any(|text| row.name.contains(text));
        named || filtered || (self.only.is_empty() && self.filter.is_empty())
    }

    fn settings(&self) -> Settings<'_> {
        Settings { options: &self.rdma, no_crc: self.no_crc, timeouts: Timeouts::default() }
    }

    async fn test_server(&self, url: &NfsUrl, common: Common) -> Result<(), Failure> {
        let connection = Connection {
            proto: Proto::Rdma,
            mountport: self.mountport,
            timeout: self.limit,
            no_crc: self.no_crc,
            credits: 16,
            connections: 1,
            inline: 4096,
            conf_rdma: false,
            insecure_conf_rdma: false,
            // Only for the export: a server may speak Version Two alone.
            rpcrdma_version: if self.profile.is_some() { Version::Auto } else { Version::One },
            profile: self.profile,
            security: Security::default(),
            tls: ClientTls::default(),
            sends: Sends::default(),
            rdma: self.rdma.clone(),
        };
        // A connection first: an unreachable server is reported before any row.
        let rpc = connect::rpc(url, &connection, (self.program, self.version)).await?;
        let address = rpc.peer_address();
        let export = match &self.export {
            Some(path) => Some(usable(&rpc, path, Servers::new(&connection).options(url)?).await?),
            None => None,
        };
        rpc.close().await;
        let (connector, _) = self.settings().connector(address).await.map_err(|reason| {
            Failure::new(Exit::Unreachable, format!("cannot connect to {address}: {reason}"))
        })?;
        let target = Target {
            program: self.program,
            version: self.version,
            profile: self.profile.map(ProfileName::profile),
            export,
            limit: self.limit,
            silence: self.silence.unwrap_or(rpcrdma_conform::DEFAULT_SILENCE),
            ..Target::new(connector, address)
        };
        let report = Tester::new(target).run(|row| self.wants(row), show(common)).await;
        print("server", address, &report, common)
    }

    async fn test_client(&self, common: Common) -> Result<(), Failure> {
        let (listener, _) = self
            .settings()
            .listen(&self.rdma.provider, self.listen)
            .await
            .map_err(cannot_listen(self.listen))?;
        let address = listener
            .local_address()
            .map_err(|error| Failure::failed(format!("cannot find the address of the listener: {error}")))?;
        output::note(format_args!("waiting for a client at {address}"));
        let silence = self.silence.unwrap_or(client::DEFAULT_SILENCE);
        let host = client::Host {
            listener,
            profile: self.profile.map(ProfileName::profile),
            limit: self.limit,
            silence,
        };
        let report = client::run(host, |row| self.wants(row), show(common)).await;
        print("client", address, &report, common)
    }
}

/// Mounts the export, and makes and removes a file there: rows need both, and must not be skipped without notice.
async fn usable(rpc: &rpcrdma::Client, path: &str, options: ClientOptions) -> Result<Export, Failure> {
    let unusable = |error: &Error, root_is_nobody| {
        let why = describe(error, path.as_bytes(), root_is_nobody);
        Failure::new(connect::exit(error, Exit::Usage), format!("--export {path}: {why}"))
    };
    let mounted = Client::mount(rpc, path, options).await.map_err(|error| unusable(&error, false))?;
    let name = format!(".rpcrdma-conform-{}", std::process::id());
    let made = async {
        mounted.create_new(&name, SetAttributes::default()).await?;
        mounted.remove(&name).await
    };
    if let Err(error) = made.await {
        let is_root = rustix::process::geteuid().is_root();
        return Err(unusable(&error, is_root && connect::root_is_nobody(&mounted).await));
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(Export { root: mounted.root().as_bytes().to_vec(), uid, gid })
}

/// Returns a function that shows rows as they end, if standard error is a terminal.
fn show(common: Common) -> impl FnMut(&RowReport) {
    let visible = !common.json && std::io::IsTerminal::is_terminal(&std::io::stderr());
    move |row| {
        if visible {
            let seen = output::printable(row.seen.as_bytes());
            output::note(format_args!("{:7}  {:26}  {seen}", row.verdict, row.row.name));
        }
    }
}

fn print(role: &'static str, address: SocketAddr, report: &Report, common: Common) -> Result<(), Failure> {
    if common.json {
        output::document(&Document {
            role,
            address: address.to_string(),
            pass: report.count(Verdict::Pass),
            differs: report.count(Verdict::Differs),
            fail: report.count(Verdict::Fail),
            not_applicable: report.count(Verdict::NotApplicable),
            rows: &report.rows,
        })?;
    } else {
        output::line(format_args!("{}\n{}", report.table(), report.summary()))?;
    }
    if report.is_good() { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_that_the_help_names() {
        assert_eq!(some_seconds("10"), Ok(rpcrdma_conform::DEFAULT_LIMIT));
        assert_eq!(some_seconds("0.15"), Ok(rpcrdma_conform::DEFAULT_SILENCE));
        assert_eq!(some_seconds("0.5"), Ok(client::DEFAULT_SILENCE));
        assert_eq!((server::ROW_FACTOR, client::ROW_FACTOR), (6, 6));
    }
}
