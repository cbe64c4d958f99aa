//! `rpcrdma clients`: lists the connections of a server, and ends one.

use clap::Args;
use serde::Serialize;

use super::observed::{Observed, Place, place, text};
use super::serve::observe::protocol::Order;
use crate::arguments::Common;
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Only root and the user of the server may ask. Without PLACE the control socket of the default state directory answers.

--json prints {total, clients: [{id, address, provider, version, since, calls, calls_in_flight, bytes_received, bytes_sent, \
credits, receive_memory_bytes, address_memory_bytes, owner, user, calls_per_second, bytes_per_second}]}. version is \"One\", \"Two\" or \
\"TCP\". owner is a user of the server's machine; user is a principal of Kerberos, or the name in a certificate. With --disconnect \
it prints {disconnected}, the number of the connection.";

/// List the connections of a server of this machine, or end one
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ClientsCommand {
    /// State directory or control socket of the server
    #[arg(value_name = "PLACE", value_parser = place)]
    place: Option<Place>,
    /// End the connection of this number. Its calls in progress are carried out; its client may connect again
    #[arg(long, value_name = "ID", value_parser = connection)]
    disconnect: Option<u64>,
    /// Order of the list; numbers begin with the greatest
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Id, conflicts_with = "disconnect")]
    sort: Order,
    /// List at most so many connections
    #[arg(long, value_name = "COUNT", conflicts_with = "disconnect")]
    count: Option<usize>,
}

/// Parses the number of a connection.
fn connection(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number of a connection, which the list has as ID"))
}

/// JSON document of `--disconnect`.
#[derive(Serialize)]
struct Document {
    disconnected: u64,
}

impl ClientsCommand {
    pub(crate) async fn run(self, common: Common) -> Result<(), Failure> {
        if let Some(Place::Metrics(address)) = &self.place {
            return Err(Failure::usage(format!(
                "{address} has metrics only: clients needs the state directory, or the control socket in it"
            )));
        }
        let mut server = Observed::at(self.place.as_ref()).await?;
        if let Some(id) = self.disconnect {
            if !server.disconnect(id).await? {
                return Err(Failure::failed(format!("no connection has the number {id}")));
            }
            return if common.json { output::document(&Document { disconnected: id }) } else { Ok(()) };
        }
        let clients = server.clients((0, self.count), self.sort, false).await?;
        if common.json {
            return output::document(&clients);
        }
        let mut out = Text::stdout();
        for line in text::clients(&clients.clients).lines() {
            out.line(line)?;
        }
        if clients.clients.len() < clients.total {
            out.line(format_args!("{} of {} connections", clients.clients.len(), clients.total))?;
        }
        out.flush()
    }
}
