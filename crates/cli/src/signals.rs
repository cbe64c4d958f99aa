//! Signals that end a command: SIGINT and SIGTERM, and for clients SIGHUP.

use std::fs;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// Makes writes beyond the limit of file sizes (`RLIMIT_FSIZE`) fail, instead of ending the process by SIGXFSZ. Call this on a
/// runtime.
///
/// # Errors
/// Those of the system.
pub(crate) fn survive_file_size_limit() -> Result<(), Failure> {
    // The handler stays installed after the stream of signals is dropped.
    signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))
        .map(drop)
        .map_err(|error| Failure::failed(format!("cannot listen for SIGXFSZ: {error}")))
}

/// Waits for a signal that ends the command. While this value exists, these signals no longer end the process
/// by themselves.
pub(crate) struct StopSignals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    hangup_stops: bool,
}

impl StopSignals {
    /// Listens as a client: SIGHUP, sent when the terminal goes away, ends the command like SIGTERM.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::listen(true)
    }

    /// Listens as a server without files to read again: SIGHUP changes nothing.
    pub(crate) fn of_server() -> Result<Self, Failure> {
        Self::listen(false)
    }

    /// Listens for SIGINT and SIGTERM alone.
    pub(crate) fn without_hangups() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt(), "SIGINT")?,
            terminate: listen(SignalKind::terminate(), "SIGTERM")?,
            hangup: None,
            hangup_stops: false,
        })
    }

    fn listen(hangup_stops: bool) -> Result<Self, Failure> {
        let hangup = listen(SignalKind::hangup(), "SIGHUP")?;
        Ok(Self { hangup, hangup_stops, ..Self::without_hangups()? })
    }

    /// Returns the name of the next signal that ends the command.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                () = received(&mut self.interrupt) => return "SIGINT",
                () = received(&mut self.terminate) => return "SIGTERM",
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

/// Listens for a signal, unless it was ignored when the process started (nohup, `trap "" INT`).
fn listen(kind: SignalKind, name: &str) -> Result<Option<Signal>, Failure> {
    if Ignored::of_process().has(kind) {
        return Ok(None);
    }
    let listening = signal(kind);
    listening.map(Some).map_err(|error| Failure::failed(format!("cannot listen for {name}: {error}")))
}

/// Waits for SIGHUP, by which a server reads its files again. While this value exists, the signal does not end the process.
pub(crate) struct Hangups(Option<Signal>);

impl Hangups {
    /// Listens for the signal, unless it was ignored when the process started.
    pub(crate) fn listen() -> Result<Self, Failure> {
        listen(SignalKind::hangup(), "SIGHUP").map(Self)
    }

    /// Waits for the next signal. Several that come together count as one.
    pub(crate) async fn next(&mut self) {
        received(&mut self.0).await;
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

/// Mask of the signals that the process ignores; signal 1 is the lowest bit. Signals with a handler are not
/// in it.
#[derive(Clone, Copy)]
struct Ignored(u64);

impl Ignored {
    fn of_process() -> Self {
        Self::from_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Parses the mask in the text of `/proc/self/status` (proc(5)).
    fn from_status(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default())
    }

    fn has(self, kind: SignalKind) -> bool {
        let bit = u32::try_from(kind.as_raw_value()).ok().and_then(|number| number.checked_sub(1));
        bit.and_then(|bit| 1_u64.checked_shl(bit)).is_some_and(|bit| self.0 & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let ignored = |status: &str| {
            let ignored = Ignored::from_status(status);
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()]
                .map(|kind| ignored.has(kind))
        };
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), [true, false, false]);
        assert_eq!(ignored("SigIgn:\t0000000000005002\n"), [false, true, true]);
        assert_eq!(ignored("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"), [false; 3]);
        assert_eq!(ignored(""), [false; 3]);
        assert_eq!(ignored("SigIgn:\tx\n"), [false; 3]);
    }
}
