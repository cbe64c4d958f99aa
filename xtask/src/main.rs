//! Tasks for developers of the project, run as `cargo xtask TASK`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod capture_summary;
mod failure;
mod figures;
mod ganesha;
mod interop;
mod measures;
mod mutants;
mod needs;
mod page;
mod performance;
mod process;
mod project;
mod reduce_capture;
mod requirements;
mod source;

/// Tasks for developers of rpcrdma.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// The task to run.
#[derive(Debug, Subcommand)]
enum Task {
    /// Check that tests cover the requirements of the protocol's documents
    #[command(alias = "conformance")]
    Requirements(requirements::Options),
    /// Measure the engine: size, order and work of a call, each with its gate
    Measures(measures::Options),
    /// Print the figures of the documentation that are old, and fail if some lack their commit, date and machine
    Figures,
    /// Change the code in small ways, and list the changes that no test notices
    Mutants(mutants::Options),
    /// Test against the Linux kernel, in a virtual machine: its NFS client on our server, our client on its server. Also test
    /// against other programs of NFS version 3, without a machine
    Interop(interop::Options),
    /// Measure the goals of performance, and write them into docs/performance.md
    Performance(performance::Options),
    /// Reduce a pcap file of iWARP or RoCE sessions to a small text that tests can read
    ReduceCapture(reduce_capture::Options),
    /// Record RoCE between two virtual machines, as three pcap files
    RoceCapture(interop::roce_capture::Options),
    /// Count the DDP segments of a pcap file of iWARP sessions, and find holes and faults in it
    CaptureSummary(capture_summary::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().task {
        Task::Requirements(options) => requirements::run(&options),
        Task::Measures(options) => measures::run(&options),
        Task::Figures => figures::run(),
        Task::Mutants(options) => mutants::run(&options),
        Task::Interop(options) => interop::run(&options),
        Task::Performance(options) => performance::run(&options),
        Task::ReduceCapture(options) => reduce_capture::run(&options),
        Task::RoceCapture(options) => interop::roce_capture::run(&options),
        Task::CaptureSummary(options) => capture_summary::run(&options),
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
