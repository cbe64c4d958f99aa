//! `cargo xtask reduce-capture`: converts a pcap file to test data (`rpcrdma_capture::text`).

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use rpcrdma_capture::reduce::{Keep, pcap_to_text};

/// The options of `cargo xtask reduce-capture`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A pcap file with complete connections from their beginnings (`tcpdump -s 0 -w IN`)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File for the text
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Description of the recording: kernel version, commands; the comment at the top of the text
    #[arg(long, value_name = "TEXT", default_value = "")]
    about: String,
}

/// Reduces a file.
pub(crate) fn run(options: &Options) -> ExitCode {
    let fail = |file: &PathBuf, error: &dyn std::error::Error| {
        eprintln!("reduce-capture: {}: {error}", file.display());
        ExitCode::FAILURE
    };
    let file = match fs::read(&options.input) {
        Ok(file) => file,
        Err(error) => return fail(&options.input, &error),
    };
    let text = match pcap_to_text(&file, &options.about, &Keep::default()) {
        Ok(text) => text,
        Err(error) => return fail(&options.input, &error),
    };
    match fs::write(&options.output, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&options.output, &error),
    }
}
