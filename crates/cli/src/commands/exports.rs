//! `rpcrdma exports`: lists the exports of a server.

use clap::Args;
use rpcrdma_nfs::client::{Client, NfsUrl};
use serde::Serialize;

use crate::arguments::{Common, Connection, Flavor, host};
use crate::connect::{self, Servers, failure};
use crate::exit::Failure;
use crate::output::{self, Text, printable};

const AFTER_HELP: &str = "\
Each line has the name of an export and the clients that may mount it. If none follow, all may.

--json prints {exports: [{name, groups: [GROUP...]}]}.";

/// List the exports of a server
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Exports {
    /// Server: HOST, HOST:PORT or nfs://HOST[:PORT]
    #[arg(value_name = "HOST[:PORT]", value_parser = host)]
    host: NfsUrl,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize)]
struct Document {
    exports: Vec<Export>,
}

#[derive(Serialize)]
struct Export {
    name: String,
    groups: Vec<String>,
}

impl Exports {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let Connection { security, conf_rdma, .. } = &self.connection;
        if security.sec == Flavor::Sys {
            // Refuses options of Kerberos.
            connect::user(&self.connection, self.host.host()).await?;
        }
        if security.sec != Flavor::Sys && !conf_rdma {
            return Err(Failure::usage(
                "--sec has no meaning here: clients ask for exports by AUTH_SYS only",
            ));
        }
        let mut servers = Servers::new(&self.connection);
        let rpc = servers.rpc(&self.host).await?;
        let options = servers.options(&self.host)?;
        let listing = Client::exports(&rpc, &options);
        let listed = connect::first(rpc.peer_address(), &self.connection, listing)
            .await?
            .map_err(|error| failure(&self.host, error))?;
        let lossy = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let exports = listed
            .iter()
            .map(|export| Export {
                name: lossy(export.directory.as_bytes()),
                groups: export.groups.names.iter().map(|group| lossy(group.as_bytes())).collect(),
            })
            .collect();
        let document = Document { exports };
        if common.json {
            return output::document(&document);
        }
        let mut text = Text::stdout();
        for export in &document.exports {
            let groups = export.groups.iter().map(|group| format!(" {}", printable(group.as_bytes())));
            let groups: String = groups.collect();
            text.line(format_args!("{}{groups}", printable(export.name.as_bytes())))?;
        }
        text.flush()
    }
}
