//! The `rpcrdma` command: serves directories by NFS over RDMA, and uses and measures such servers.
//!
//! `commands` declares the command line, with one file for each command; `arguments` has the options that
//! they share, and `people` the names of users. `connect` opens connections to servers, by what `provider` chooses. `output`
//! prints text, JSON and progress. `trace` prints the events of the libraries as lines.

mod arguments;
mod commands;
mod connect;
mod exit;
mod human;
mod output;
mod people;
mod provider;
mod signals;
mod tls;
mod trace;
mod values;

use std::process::ExitCode;

use crate::commands::Unparsed;
use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    let line: Vec<_> = commands::modern(std::env::args_os()).collect();
    // A wrong command line cannot say how its output is wanted, so it is looked for as a word.
    let json = line.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let (result, json) = match commands::parse(&line) {
        Ok(arguments) => {
            let json = arguments.common.json;
            (commands::run(arguments), json)
        }
        Err(Unparsed::File(wrong)) => (Err(wrong.told()), json),
        Err(Unparsed::Line(error)) => {
            // Help and versions are printed too, and are no errors.
            let printed = error.print();
            if !error.use_stderr() {
                (printed.map_err(output::stdout_failure), false)
            } else {
                // The usage follows after an empty line.
                let text = error.to_string();
                let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
                let message = lines.collect::<Vec<_>>().join(" ");
                let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
                (Err(Failure::silent(Exit::Usage).with_causes(vec![message])), json)
            }
        }
    };
    if let Err(failure) = &result
        && !failure.is_silent()
    {
        output::warn(failure);
    }
    let closed = result.as_ref().is_err_and(|failure| failure.exit() == Exit::PipeClosed);
    let concluded = if json && !closed { output::conclude(result.as_ref().err()) } else { Ok(()) };
    match (result, concluded) {
        (Err(failure), _) => failure.exit().into(),
        (Ok(()), Err(failure)) => {
            if !failure.is_silent() {
                output::warn(&failure);
            }
            failure.exit().into()
        }
        (Ok(()), Ok(())) => ExitCode::SUCCESS,
    }
}
