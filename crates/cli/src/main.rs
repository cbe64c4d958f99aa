//! The `rpcrdma` command: serve directories by NFS over RDMA, use and measure such servers.
//!
//! `arguments` declares the command line, `commands` has one file a command, `connect` opens what a command talks to,
//! `output` prints (text, JSON, progress), `trace` turns the events of the libraries into lines.

mod arguments;
mod commands;
mod connect;
mod exit;
mod output;
mod signals;
mod trace;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                eprintln!("rpcrdma: {failure}");
            }
            failure.exit().into()
        }
    }
}
