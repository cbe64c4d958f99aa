//! Text for people about a server: `stat`, `clients` and the numbers of `top`.

use std::fmt::Write;

use crate::commands::serve::status::{ClientStatus, LatencyStatus, MessageStatus, Status};
use crate::human;

/// Returns a time in seconds with three digits and a unit.
pub(in crate::commands) fn time(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "-".to_owned() };
    let (value, unit) = match seconds {
        _ if seconds < 0.000_999_5 => (seconds * 1e6, "us"),
        _ if seconds < 0.9995 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let value = (value * 100.0).round() / 100.0;
    let decimals = if value < 9.995 && value.fract() > 0.005 {
        2
    } else {
        usize::from(value < 99.95 && value.fract() > 0.05)
    };
    format!("{value:.decimals$} {unit}")
}

/// Returns a time span in days, hours, minutes and seconds: the two greatest units.
pub(in crate::commands) fn span(seconds: f64) -> String {
    // A span is not negative, and saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// Returns a number with a letter for its power of 1000.
pub(in crate::commands) fn number(value: f64) -> String {
    for (unit, letter) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= unit * 9.9995 {
            return format!("{:.1}{letter}", value / unit);
        }
    }
    if value >= 99.95 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Returns the forms of messages that occurred, as "3 inline, 1 long".
fn forms(messages: &MessageStatus) -> String {
    let seen = messages.forms().into_iter().filter(|(_, count)| *count > 0);
    let seen: Vec<String> = seen.map(|(form, count)| format!("{count} {form}")).collect();
    if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
}

/// Returns the names and numbers that are not zero, as "3 replayed, 1 evicted".
fn named(counts: impl IntoIterator<Item = (&'static str, u64)>) -> String {
    let seen = counts.into_iter().filter(|(_, count)| *count > 0);
    let seen: Vec<String> = seen.map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
    if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
}

/// Returns the text of `stat` about a server.
pub(in crate::commands) fn status(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // A String takes everything.
        let _ = writeln!(text, "{name:>12}: {value}");
    };
    let Status { process, transports, connections, memory, reply_cache, link, .. } = status;
    line(
        "Server",
        format!("rpcrdma {}, process {}, up {}", process.version, process.pid, span(process.uptime_seconds)),
    );
    for at in &status.listeners {
        line("Listens", format!("{} ({})", at.address, at.provider));
    }
    for export in &status.exports {
        let access = &export.access;
        let directory = export.directory.as_deref().map(|path| format!(" = {path}")).unwrap_or_default();
        let security = export.security.join(":");
        line(
            "Export",
            format!("{}{directory} ({access}, sec={security}), {} mounts", export.name, export.mounts),
        );
    }
    let sums = [("RDMA", &transports.rdma), ("TCP", &transports.tcp)];
    for (name, one) in sums {
        line(
            name,
            format!(
                "{} connections, {} calls, {} received, {} sent",
                one.connections,
                one.calls,
                human::size(one.bytes_received),
                human::size(one.bytes_sent)
            ),
        );
    }
    let refused = connections.refused.reasons();
    line(
        "Connections",
        format!(
            "{} now, {} half open, {} accepted; refused: {}",
            connections.now,
            connections.half_open,
            connections.accepted,
            named(refused)
        ),
    );
    line("Calls came", forms(&status.forms.calls));
    line("Replies left", forms(&status.forms.replies));
    let data = &status.data;
    line(
        "Files",
        format!("{} read, {} written", human::size(data.bytes_read), human::size(data.bytes_written)),
    );
    line("Credits", format!("{} granted", status.credits.granted));
    let size = |bytes: usize| human::size(bytes as u64);
    line("Memory", format!("{} of {} in use", size(memory.in_use), size(memory.limit)));
    line("Reply cache", format!("{}; {}", size(reply_cache.bytes), named(reply_cache.events())));
    line(
        "Links",
        format!(
            "{} sent, {} received, {} windows, {} + {} invalidations",
            human::size(link.bytes_sent),
            human::size(link.bytes_received),
            link.windows_bound,
            link.local_invalidations,
            link.remote_invalidations
        ),
    );
    for lane in &status.io {
        let counts = format!(
            "{} of {} threads, {} idle, {} waiting",
            lane.threads, lane.limit, lane.idle, lane.waiting
        );
        line("I/O", format!("{} {}: {counts}", lane.export, lane.work));
    }
    procedures(&mut text, status);
    text
}

fn procedures(text: &mut String, status: &Status) {
    if status.procedures.is_empty() {
        return;
    }
    // A String takes everything.
    let _ =
        writeln!(text, "\n{:<22}{:>12}{:>10}{:>10}{:>10}  ERRORS", "PROCEDURE", "CALLS", "P50", "P90", "P99");
    for one in &status.procedures {
        let LatencyStatus { p50_seconds, p90_seconds, p99_seconds, .. } = one.latency;
        let errors: Vec<String> = one.errors.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let name = format!("{} {}", one.program, one.procedure);
        let [p50, p90, p99] = [p50_seconds, p90_seconds, p99_seconds].map(time);
        let row = format!("{name:<22}{:>12}{p50:>10}{p90:>10}{p99:>10}  {}", one.calls, errors.join(", "));
        let _ = writeln!(text, "{}", row.trim_end());
    }
}

/// Least width of the addresses of clients.
const ADDRESS: usize = 24;

/// Returns the table of clients.
pub(in crate::commands) fn clients(clients: &[ClientStatus]) -> String {
    let addresses = clients.iter().filter_map(|one| one.address.as_ref()).map(String::len);
    let width = addresses.max().unwrap_or(0).max(ADDRESS);
    let mut text = format!(
        "    ID {:<width$} VIA    VERSION      CALLS FLIGHT RECEIVED     SENT CREDITS   MEMORY USER\n",
        "ADDRESS"
    );
    for one in clients {
        let row = format!(
            "{:>6} {:<width$} {:<6} {:<7} {:>10} {:>6} {:>8} {:>8} {:>7} {:>8} {}",
            one.id,
            one.address.as_deref().unwrap_or("-"),
            one.provider,
            one.version.as_deref().unwrap_or("-"),
            one.calls,
            one.calls_in_flight,
            human::size(one.bytes_received),
            human::size(one.bytes_sent),
            one.credits,
            human::size(one.memory() as u64),
            user(one),
        );
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the user of a connection: the name that was proven, or the number of a user of the server's machine.
pub(in crate::commands) fn user(client: &ClientStatus) -> String {
    let owner = || client.owner.map(|owner| format!("uid {owner}"));
    client.user.clone().or_else(owner).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_short() {
        for (seconds, text) in [
            (0.000_001, "1 us"),
            (0.000_512, "512 us"),
            (0.001_024, "1.02 ms"),
            (0.016_384, "16.4 ms"),
            (0.131_072, "131 ms"),
            (1.048_576, "1.05 s"),
            (16.777_216, "16.8 s"),
        ] {
            assert_eq!(time(Some(seconds)), text, "{seconds}");
        }
        assert_eq!(time(None), "-");
        for (value, text) in
            [(0.0, "0"), (0.5, "0.5"), (7.0, "7"), (1234.0, "1234"), (12_345.0, "12.3k"), (2e7, "20.0M")]
        {
            assert_eq!(number(value), text, "{value}");
        }
        for (seconds, text) in
            [(5.9, "5 s"), (61.0, "1 min 1 s"), (7322.0, "2 h 2 min"), (90_000.0, "1 d 1 h")]
        {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn the_columns_of_clients_stand_under_their_titles() {
        let client = ClientStatus {
            id: 123_456,
            address: Some("[2001:db8::1:2:3:4]:40000".to_owned()),
            provider: "iwarp".to_owned(),
            version: Some("One".to_owned()),
            user: Some("u@EXAMPLE.ORG".to_owned()),
            ..ClientStatus::default()
        };
        let table = clients(&[client]);
        let (titles, row) = table.trim_end().split_once('\n').unwrap();
        for (title, value) in [("ID", "123456"), ("ADDRESS", "[2001"), ("VERSION", "One"), ("USER", "u@")] {
            let (at, there) = (titles.find(title).unwrap(), row.find(value).unwrap());
            assert!(at == there || at + title.len() == there + value.len(), "{title}: {at}, {there}");
        }
    }
}
