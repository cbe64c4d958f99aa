//! `cargo xtask capture-summary`: what our own decoder finds in a recording (`rpcrdma_capture::summary`).

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use rpcrdma_capture::summary::Summary;

use crate::failure::{Context, Failure};

/// Exit code for a recording that lacks bytes: a new one has to be made.
const INCOMPLETE: u8 = 3;

/// The options of `cargo xtask capture-summary`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 complete and without faults, 1 faults, 3 the recording lacks bytes")]
pub(crate) struct Options {
    /// A pcap file with complete connections from their beginnings (`tcpdump -s 0 -w IN`)
    #[arg(value_name = "IN")]
    input: PathBuf,
}

/// Prints the counts of a file: a line `OPCODE COUNT` for each opcode, then a line for each other count.
pub(crate) fn run(options: &Options) -> ExitCode {
    let summary = match read(options) {
        Ok(summary) => summary,
        Err(failure) => {
            eprintln!("capture-summary: {failure}");
            return ExitCode::FAILURE;
        }
    };
    for (opcode, count) in &summary.opcodes {
        println!("{opcode:#04x} {count}");
    }
    println!("connections {}", summary.connections);
    println!("segments of TCP out of order {}", summary.out_of_order);
    println!("segments of TCP behind holes {}", summary.behind_holes);
    println!("connections without an end {}", summary.without_end);
    println!("FPDUs with a wrong CRC {}", summary.bad_crc);
    println!("FPDUs without a DDP header {}", summary.no_header);
    println!("directions with other bytes at the end {}", summary.rests);
    if !summary.is_complete() {
        ExitCode::from(INCOMPLETE)
    } else if summary.connections > 0 && summary.is_flawless() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read(options: &Options) -> Result<Summary, Failure> {
    let file = fs::read(&options.input).context(format!("reading {}", options.input.display()))?;
    Summary::of_pcap(&file).context(options.input.display())
}
