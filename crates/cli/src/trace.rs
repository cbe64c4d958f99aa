//! Turns the events of the libraries into lines on standard error.
//!
//! A call (targets `rpcrdma::call` and `rpcrdma::serve`) becomes one line with the procedure, the time it
//! took, and how call and reply travelled:
//!
//! ```text
//! call READ to 127.0.0.1:20049, 1.2 ms: call inline, 164 B by Send; reply reduced, …; invalidated by the responder
//! ```
//!
//! Every other event becomes `LEVEL TARGET: MESSAGE FIELD=VALUE …`.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::exit::Failure;

/// Name of the environment variable that replaces the choice of `-v`.
const VARIABLE: &str = "RPCRDMA_LOG";

/// Shows events from now on. Those of a server include warnings at any verbosity.
pub(crate) fn start(verbose: u8, server: bool) -> Result<(), Failure> {
    let filter = match std::env::var(VARIABLE) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| Failure::usage(format!("{VARIABLE}={text:?} is not a filter: {error}")))?,
        Err(_) => EnvFilter::new(match verbose {
            0 if server => "warn",
            0 => "error",
            1 => "info,rpcrdma::call=debug,rpcrdma::serve=debug",
            2 => "debug",
            _ => "trace",
        }),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .event_format(Lines { times: server })
        .try_init()
        .map_err(|error| Failure::failed(format!("cannot show events: {error}")))
}

/// Formatter that prints each event as one line.
struct Lines {
    /// Whether warnings and errors begin with the time.
    times: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = match metadata.target() {
            "rpcrdma::call" => fields.call("call", "to"),
            "rpcrdma::serve" => fields.call("served", "peer"),
            _ => None,
        };
        match line {
            Some(line) => writeln!(writer, "{line}"),
            None => {
                // Warnings and errors carry the time, for comparison with other logs.
                if self.times && *metadata.level() <= Level::WARN {
                    SystemTime.format_time(&mut writer)?;
                    writer.write_char(' ')?;
                }
                writeln!(
                    writer,
                    "{} {}:{}",
                    metadata.level().as_str().to_lowercase(),
                    metadata.target(),
                    fields.rest()
                )
            }
        }
    }
}

/// The fields of an event, in their order.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let text = if field.name() == "xid" { format!("{value:#010x}") } else { value.to_string() };
        self.0.push((field.name(), text));
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the line for a call: its name or numbers, the peer, the duration, and how the call travelled
    /// or why it failed.
    fn call(&self, verb: &str, peer_field: &str) -> Option<String> {
        let outcome = self.get("travelled").or_else(|| self.get("error"))?;
        let mut line = verb.to_owned();
        match self.get("name") {
            Some(name) if !name.is_empty() => write!(line, " {name}"),
            _ => write!(
                line,
                " program {} version {} procedure {}",
                self.get("program")?,
                self.get("version")?,
                self.get("procedure")?
            ),
        }
        .ok()?;
        if let Some(peer) = self.get(peer_field) {
            let preposition = if peer_field == "to" { "to" } else { "for" };
            write!(line, " {preposition} {peer}").ok()?;
        }
        if let Some(xid) = self.get("xid") {
            write!(line, " xid {xid}").ok()?;
        }
        if let Some(elapsed) = self.get("elapsed") {
            write!(line, " in {elapsed}").ok()?;
        }
        write!(line, ": {outcome}").ok()?;
        Some(line)
    }

    /// Returns the message and all fields.
    fn rest(&self) -> String {
        let mut line = String::new();
        if let Some(message) = self.get("message") {
            line.push(' ');
            line.push_str(message);
        }
        for (name, value) in &self.0 {
            if *name != "message" {
                line.push_str(&format!(" {name}={value}"));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&'static str, &str)]) -> Fields {
        Fields(list.iter().map(|&(name, value)| (name, value.to_owned())).collect())
    }

    #[test]
    fn a_call_is_one_line() {
        let list = fields(&[
            ("to", "127.0.0.1:20049"),
            ("xid", "0x00000007"),
            ("name", "READ"),
            ("elapsed", "1.2ms"),
            ("travelled", "call inline; reply reduced"),
        ]);
        assert_eq!(
            list.call("call", "to").as_deref(),
            Some("call READ to 127.0.0.1:20049 xid 0x00000007 in 1.2ms: call inline; reply reduced")
        );
        let list = fields(&[("program", "7"), ("version", "1"), ("procedure", "3"), ("error", "no reply")]);
        assert_eq!(
            list.call("call", "to").as_deref(),
            Some("call program 7 version 1 procedure 3: no reply")
        );
    }

    #[test]
    fn other_events_keep_their_fields() {
        let list = fields(&[("message", "closed"), ("peer", "::1")]);
        assert_eq!(list.call("call", "to"), None);
        assert_eq!(list.rest(), " closed peer=::1");
    }
}
