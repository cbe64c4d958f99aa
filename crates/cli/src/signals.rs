//! Signals that end a command: SIGINT and SIGTERM, and for clients SIGHUP.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// Waits for a signal that ends the command. From its making on, the signals do not end the process by themselves.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Not listened to if whoever started the process had it ignored (nohup).
    hangup: Option<Signal>,
    hangup_stops: bool,
}

impl StopSignals {
    /// For a client: SIGHUP, which comes when its terminal goes, ends it like SIGTERM.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::listen(true)
    }

    /// For a server: SIGHUP changes nothing. It is kept for reading settings again.
    pub(crate) fn of_server() -> Result<Self, Failure> {
        Self::listen(false)
    }

    fn listen(hangup_stops: bool) -> Result<Self, Failure> {
        let listen = |kind, name| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot listen for {name}: {error}")))
        };
        let ignored = hangup_is_ignored();
        Ok(Self {
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            hangup: if ignored { None } else { Some(listen(SignalKind::hangup(), "SIGHUP")?) },
            hangup_stops,
        })
    }

    /// The name of the next signal that ends the command.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
                () = received(&mut self.hangup) => {
                    if self.hangup_stops {
                        return "SIGHUP";
                    }
                    tracing::warn!("SIGHUP changes nothing: the server goes on with its settings");
                }
            }
        }
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP is ignored, as nohup arranges it. A handler of ours has not that effect.
fn hangup_is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

/// Reads the mask of ignored signals in the status that proc(5) shows; SIGHUP is signal 1.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!ignores_hangup(""));
        assert!(!ignores_hangup("SigIgn:\tx\n"));
    }
}
