//! Heavy use over software iWARP on loopback, with a server in a process of its own.
//!
//! ```sh
//! cargo run --release -p rpcrdma --example soak -- calls --count 1000000
//! cargo run --release -p rpcrdma --example soak -- connections --count 2000
//! cargo run --release -p rpcrdma --example soak -- replies --count 20000
//! ```
//!
//! `calls` mixes calls of all forms on several clients while a proxy cuts their connections at random. It checks all
//! data, and that nothing was executed twice, lost or kept. `connections` holds many connections at a time and makes
//! calls on all of them. `replies` loses replies of calls that change state, while WRITEs of the same address go on at
//! full rate. Each prints its results, and ends with status 1 if a check fails.

mod calls;
mod connections;
mod program;
mod proxy;
mod replies;
mod report;
mod server;
mod system;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The error of any step.
type Failure = Box<dyn Error + Send + Sync>;

/// Heavy use over software iWARP on loopback.
#[derive(Debug, Parser)]
#[command(name = "soak", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// The task to run.
#[derive(Debug, Subcommand)]
enum Task {
    /// Mix calls of all forms, with connections that are cut at random
    Calls(calls::Options),
    /// Hold many connections at a time
    Connections(connections::Options),
    /// Lose replies of calls that change state, under WRITEs of the same address at full rate
    Replies(replies::Options),
    /// Serve until standard input ends; the other tasks start this one
    Serve(server::Options),
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool, Failure> {
    let arguments = Arguments::parse();
    system::raise_descriptors()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match arguments.task {
            Task::Calls(options) => calls::run(options).await,
            Task::Connections(options) => connections::run(options).await,
            Task::Replies(options) => replies::run(options).await,
            Task::Serve(options) => server::serve(options).await.map(|()| true),
        }
    })
}
