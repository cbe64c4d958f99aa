//! Loads an NFSv3 server as many small reads, or as many clients, do.
//!
//! ```sh
//! cargo run --release -p rpcrdma-cli --example load -- reads 127.0.0.1:20049 /file
//! cargo run --release -p rpcrdma-cli --example load -- connections --count 200 127.0.0.1:20049
//! ```
//!
//! `reads` keeps a number of small READs at random places of a file in flight, or of NULL calls, over RDMA or TCP, on any NFSv3
//! server. `connections` holds many connections to one server, and calls on all of them at the same time. Each
//! prints one JSON document. `cargo xtask performance` runs both.

mod connect;
mod connections;
mod memory;
mod reads;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

/// The error of any step.
type Failure = Box<dyn Error + Send + Sync>;

/// Load an NFSv3 server over RDMA (software iWARP) or TCP
#[derive(Debug, Parser)]
#[command(name = "load", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// The load.
#[derive(Debug, Subcommand)]
enum Task {
    /// Keep READs at random places of a file in flight
    Reads(reads::Options),
    /// Hold many connections, and call on all of them
    Connections(connections::Options),
}

fn main() -> ExitCode {
    match run() {
        Ok(document) => {
            println!("{document}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Value, Failure> {
    let arguments = Arguments::parse();
    // Each connection takes a descriptor.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    match arguments.task {
        // On one thread, as one busy client.
        Task::Reads(options) => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async { tokio::spawn(reads::run(options)).await? }),
        Task::Connections(options) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(connections::run(options)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
