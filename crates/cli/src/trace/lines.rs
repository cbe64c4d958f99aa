//! [`Lines`]: events as lines of text or JSON.
//!
//! *Errors.* Values of events can come from peers. So no line has a control character but its end, and long values are cut.

use std::borrow::Cow;
use std::fmt::{self, Write};

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Most bytes of a value, or of a line of text.
const LONGEST: usize = 4096;

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Lines for people
    #[default]
    Text,
    /// JSON, one object a line
    Json,
}

/// Formatter that prints each event as one line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    pub(super) form: Form,
    /// Whether lines of text begin with the time.
    pub(super) times: bool,
    /// Whether lines begin with a priority for the journal, by sd-daemon(3). The journal knows the time itself.
    pub(super) journal: bool,
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
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        writer.write_str(&self.line(&now, *metadata.level(), metadata.target(), &fields)?)
    }
}

/// Returns the priority of a level, as the journal counts (syslog(3)).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl Lines {
    /// Returns a line about the log itself: so many lines did not get into it.
    pub(super) fn lost(&self, count: u64) -> String {
        let mut now = String::new();
        // A time that cannot be told leaves the line without.
        let _ = SystemTime.format_time(&mut Writer::new(&mut now));
        let message = format!("{count} lines of the log were lost: standard error took no more");
        let fields = vec![("message", Value::Text(message)), ("lost", Value::Number(count.to_string()))];
        self.line(&now, Level::WARN, LOG, &Fields(fields)).unwrap_or_default()
    }

    /// Returns the line of an event, with its end.
    fn line(&self, now: &str, level: Level, target: &str, fields: &Fields) -> Result<String, fmt::Error> {
        let mut line = String::new();
        if self.journal {
            write!(line, "<{}>", priority(level))?;
        }
        match self.form {
            Form::Text => {
                if self.times && !self.journal {
                    write!(line, "{now} ")?;
                }
                line.push_str(&clean(&self.text(level, target, fields)));
            }
            Form::Json => line.push_str(&json(now, level, target, fields)?),
        }
        line.push('\n');
        Ok(line)
    }

    fn text(&self, level: Level, target: &str, fields: &Fields) -> String {
        if let Some(line) = fields.of_call(target) {
            return line;
        }
        // The priority tells the journal.
        let level = if self.journal { String::new() } else { format!("{} ", level_name(level)) };
        match fields.get("message") {
            // Each message of these says all that its fields say.
            Some(message) if SENTENCES.contains(&target) => format!("{level}{target}: {message}"),
            _ => format!("{level}{target}:{}", fields.rest()),
        }
    }
}

/// Target of lines about the log.
const LOG: &str = "rpcrdma::log";
/// Targets whose messages are whole sentences.
const SENTENCES: [&str; 7] = [
    "rpcrdma::clients",
    "rpcrdma::mounts",
    "rpcrdma::callers",
    "rpcrdma::slow",
    "rpcrdma::handover",
    "rpcrdma::stop",
    LOG,
];

fn level_name(level: Level) -> String {
    level.as_str().to_lowercase()
}

/// Returns text without control characters, and not longer than a line may be.
fn clean(text: &str) -> Cow<'_, str> {
    let cut = text.floor_char_boundary(LONGEST);
    if cut == text.len() && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(cut + 16);
    for character in text.get(..cut).unwrap_or_default().chars() {
        if character.is_control() {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
    }
    if cut < text.len() {
        cleaned.push_str("...");
    }
    Cow::Owned(cleaned)
}

/// Returns a JSON object: time, level, target and message of each event, and its own fields.
fn json(now: &str, level: Level, target: &str, fields: &Fields) -> Result<String, fmt::Error> {
    let mut object = String::from("{");
    let text = |object: &mut String, name: &str, value: &str| {
        let quoted = serde_json::to_string(&clean(value)).map_err(|_| fmt::Error)?;
        write!(object, "\"{name}\":{quoted}")
    };
    text(&mut object, "time", now)?;
    for (name, value) in [("level", level_name(level).as_str()), ("target", target)] {
        object.push(',');
        text(&mut object, name, value)?;
    }
    object.push(',');
    let call = fields.of_call(target);
    text(&mut object, "message", call.as_deref().or_else(|| fields.get("message")).unwrap_or_default())?;
    for (name, value) in &fields.0 {
        let name = match *name {
            "message" => continue,
            // Names of every line.
            "time" | "level" | "target" => &format!("{name}_"),
            name => name,
        };
        object.push(',');
        match value {
            Value::Text(value) => text(&mut object, name, value)?,
            Value::Number(value) => write!(object, "\"{name}\":{value}")?,
        }
    }
    object.push('}');
    Ok(object)
}

/// The value of a field.
#[derive(Debug)]
enum Value {
    Text(String),
    /// A number or a truth value, as JSON writes it.
    Number(String),
}

impl Value {
    const fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text.as_str(),
        }
    }
}

/// The fields of an event, in their order.
#[derive(Debug, Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), Value::Text(format!("{value:?}"))));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), Value::Text(value.to_owned())));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = match field.name() {
            "xid" => Value::Text(format!("{value:#010x}")),
            _ => Value::Number(value.to_string()),
        };
        self.0.push((field.name(), value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push((field.name(), Value::Number(value.to_string())));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push((field.name(), Value::Number(value.to_string())));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = format!("{value:?}");
        let value = if value.is_finite() { Value::Number(text) } else { Value::Text(text) };
        self.0.push((field.name(), value));
    }
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| *field == name).map(|(_, value)| value.text())
    }

    /// Returns the line for a call, if the target is one of calls.
    fn of_call(&self, target: &str) -> Option<String> {
        match target {
            "rpcrdma::call" => self.call("call", "to"),
            "rpcrdma::serve" => self.call("served", "peer"),
            _ => None,
        }
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
                line.push_str(&format!(" {name}={}", value.text()));
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-31T12:00:00.123456Z";

    fn fields(list: &[(&'static str, &str)]) -> Fields {
        Fields(list.iter().map(|&(name, value)| (name, Value::Text(value.to_owned()))).collect())
    }

    fn line(lines: Lines, level: Level, target: &str, list: &[(&'static str, &str)]) -> String {
        lines.line(NOW, level, target, &fields(list)).unwrap()
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

    #[test]
    fn lines_of_a_server_have_the_time_or_a_priority() {
        let list = [("message", "mounted \"/\""), ("path", "/")];
        let text = Lines { times: true, ..Lines::default() };
        let other = line(text, Level::WARN, "rpcrdma_nfs", &list);
        assert_eq!(other, "2026-01-31T12:00:00.123456Z warn rpcrdma_nfs: mounted \"/\" path=/\n");
        let sentence = line(text, Level::INFO, "rpcrdma::mounts", &list);
        assert_eq!(sentence, "2026-01-31T12:00:00.123456Z info rpcrdma::mounts: mounted \"/\"\n");
        let journal = Lines { journal: true, ..text };
        for (level, start) in
            [(Level::ERROR, "<3>"), (Level::WARN, "<4>"), (Level::INFO, "<6>"), (Level::DEBUG, "<7>")]
        {
            let line = line(journal, level, "rpcrdma::mounts", &list);
            assert_eq!(line, format!("{start}rpcrdma::mounts: mounted \"/\"\n"));
        }
        let client = line(Lines::default(), Level::ERROR, "x", &list);
        assert_eq!(client, "error x: mounted \"/\" path=/\n");
    }

    #[test]
    fn json_has_numbers_as_numbers_and_a_message_in_each_line() {
        let lines = Lines { form: Form::Json, times: true, journal: false };
        let mut list = fields(&[("message", "m"), ("peer", "::1"), ("level", "x")]);
        list.0.push(("calls", Value::Number("7".to_owned())));
        let line = lines.line(NOW, Level::INFO, "rpcrdma::clients", &list).unwrap();
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = json!({
            "time": NOW, "level": "info", "target": "rpcrdma::clients", "message": "m", "peer": "::1", "level_": "x",
            "calls": 7
        });
        assert_eq!(object, expected);
        let call = fields(&[("name", "READ"), ("travelled", "inline")]);
        let call = lines.line(NOW, Level::DEBUG, "rpcrdma::serve", &call).unwrap();
        assert!(call.contains("\"message\":\"served READ: inline\",\"name\":\"READ\""), "{call}");
        let lost: serde_json::Value = serde_json::from_str(&lines.lost(3)).unwrap();
        assert_eq!((&lost["lost"], &lost["level"]), (&json!(3), &json!("warn")));
    }

    #[test]
    fn i6_no_value_begins_a_line_of_its_own_or_is_without_end() {
        let long = "\u{e4}".repeat(LONGEST);
        let evil = [("message", "a\nerror rpcrdma: all is lost\u{1b}[2J\r"), ("path", long.as_str())];
        for form in [Form::Text, Form::Json] {
            let lines = Lines { form, times: true, journal: true };
            let line = line(lines, Level::WARN, "x", &evil);
            let inner = line.strip_suffix('\n').unwrap();
            assert!(!inner.contains(char::is_control) && inner.contains("a\\"), "{inner}");
            assert!(inner.len() < 2 * LONGEST && inner.contains("..."), "{}", inner.len());
        }
    }
}
