//! Options of `serve` about its log.

use std::time::Duration;

use clap::Args;

use crate::arguments::seconds;
use crate::trace::{Form, LogLevel, ServerLog};

/// Options about the log on standard error.
#[derive(Clone, Debug, Args)]
pub(super) struct Logs {
    /// Form of the log on standard error. If the journal of systemd reads it, each line begins with its priority
    /// (sd-daemon(3)), and text has no time. docs/logs.md has each line
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Text, help_heading = "Log")]
    log: Form,
    /// Show events down to this level: off, error, warn, info, debug or trace; for a TARGET, or for all. Can be given
    /// several times. A LEVEL for all replaces RPCRDMA_LOG, which replaces -v; a TARGET=LEVEL is added to them
    /// [default: warn, and info for rpcrdma::clients, mounts, reload, handover and stop]
    #[arg(long, value_name = "[TARGET=]LEVEL", help_heading = "Log")]
    log_level: Vec<LogLevel>,
    /// Log calls whose handler took this time or longer, at most one a second; 0 for none. In seconds, or with a unit
    /// (500ms)
    #[arg(long, value_name = "DURATION", default_value = "1", value_parser = seconds, help_heading = "Log")]
    slow: Duration,
}

impl Logs {
    /// Returns form and levels of the log.
    pub(super) fn choice(&self) -> ServerLog {
        ServerLog { form: self.log, levels: self.log_level.clone() }
    }

    /// Returns the time from which on a call is slow.
    pub(super) fn slow(&self) -> Option<Duration> {
        Some(self.slow).filter(|slow| !slow.is_zero())
    }
}
