//! The `rpcrdma` command: serves directories by NFS over RDMA, and uses and measures such servers.
//!
//! `commands` declares the command line, with one file for each command; `arguments` has the options that
//! they share. `connect` opens connections to servers, by what `provider` chooses. `output` prints text, JSON and progress. `trace`
//! prints the events of the libraries as lines.

mod arguments;
mod commands;
mod connect;
mod exit;
mod output;
mod provider;
mod signals;
mod tls;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                output::warn(&failure);
            }
            failure.exit().into()
        }
    }
}
