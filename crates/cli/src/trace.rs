//! The log of the process: events of the libraries as lines on standard error.
//!
//! A call (targets `rpcrdma::call` and `rpcrdma::serve`) becomes one line with the procedure, the time it
//! took, and how call and reply travelled:
//!
//! ```text
//! call READ to 127.0.0.1:20049, 1.2 ms: call inline, 164 B by Send; reply reduced, …; invalidated by the responder
//! ```
//!
//! Every other event becomes `LEVEL TARGET: MESSAGE FIELD=VALUE …`. Lines of a server begin with the time, or are made for
//! the journal, or are JSON (`docs/logs.md`). `levels` chooses the events, `lines` formats them, and `queue` keeps them until
//! standard error takes them.

mod levels;
mod lines;
mod queue;

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use self::levels::Base;
pub(crate) use self::levels::LogLevel;
pub(crate) use self::lines::Form;
use self::lines::Lines;
use self::queue::Queue;
use crate::exit::Failure;

/// Name of the environment variable that replaces the choice of `-v`.
const VARIABLE: &str = "RPCRDMA_LOG";
/// Time at the end of the process for lines that wait.
const FINISH: Duration = Duration::from_secs(1);

/// The log of a server, as its options choose it.
#[derive(Clone, Debug)]
pub(crate) struct ServerLog {
    pub(crate) form: Form,
    pub(crate) levels: Vec<LogLevel>,
}

/// The log of this process.
struct Log {
    base: Base,
    filter: reload::Handle<EnvFilter, Registry>,
    lines: Lines,
    queue: Arc<Queue>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Shows events from now on; those of a server by its own options.
///
/// # Errors
/// The environment variable is no filter, or events are shown already.
pub(crate) fn start(verbose: u8, server: Option<&ServerLog>) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("cannot show events: {error}"));
    let base = Base { variable: std::env::var(VARIABLE).ok(), verbose, server: server.is_some() };
    let (layer, filter) = reload::Layer::new(EnvFilter::new("off"));
    let lines = Lines {
        form: server.map(|server| server.form).unwrap_or_default(),
        times: base.server,
        journal: base.server && is_journal(),
    };
    let queue = Arc::<Queue>::default();
    let printed = tracing_subscriber::fmt::layer().event_format(lines).with_writer(Sink(Arc::clone(&queue)));
    let subscriber = tracing_subscriber::registry().with(layer).with(printed);
    subscriber.try_init().map_err(|error| failed(&error))?;
    LOG.set(Log { base, filter, lines, queue }).map_err(|_| failed(&"events are shown already"))?;
    reload(server.map(|server| server.levels.as_slice()).unwrap_or_default())
}

/// Changes which events are shown, as if the process had begun with these levels.
///
/// # Errors
/// The environment variable is no filter: the levels stay as they are.
pub(crate) fn reload(levels: &[LogLevel]) -> Result<(), Failure> {
    let Some(log) = LOG.get() else { return Ok(()) };
    let filter = log.base.filter(levels)?;
    log.filter.reload(filter).map_err(|error| Failure::failed(format!("cannot change the log: {error}")))
}

/// Lets a thread write the lines from now on, so that nobody else waits for standard error. Panics become lines of the log,
/// too.
pub(crate) fn detach() {
    let Some(log) = LOG.get() else { return };
    let lines = log.lines;
    if let Err(error) = log.queue.start(io::stderr(), move |count| lines.lost(count)) {
        tracing::warn!(%error, "no thread for the log: a slow reader of it delays the server");
        return;
    }
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(tracing::field::display);
        tracing::error!(target: "rpcrdma::panic", place, "a thread panicked: {message}");
    }));
}

/// Waits a little for lines that are not written yet, at the end of the process. Returns whether all are written: otherwise
/// standard error takes nothing.
pub(crate) fn finish() -> bool {
    LOG.get().is_none_or(|log| log.queue.finish(FINISH))
}

/// Returns whether standard error is connected to the journal: `JOURNAL_STREAM` names its device and inode (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// The way of a line into the queue.
struct Sink(Arc<Queue>);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Entry<'a>;

    fn make_writer(&'a self) -> Entry<'a> {
        Entry(&self.0)
    }
}

struct Entry<'a>(&'a Queue);

impl Write for Entry<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
