//! The screen of `top`.

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use rpcrdma::Latencies;

use super::model::{Model, Rate, Sample};
use crate::commands::observed::text::{number, span, time, user};
use crate::commands::serve::observe::protocol::Order;
use crate::commands::serve::status::{ClientStatus, MessageStatus, Status};
use crate::human;

/// A column of the clients.
pub(super) struct Column {
    title: &'static str,
    /// Width, the least one if the column grows.
    width: u16,
    grows: bool,
    is_number: bool,
    /// The order by this column, if there is one.
    pub(super) order: Option<Order>,
    value: fn(&ClientStatus) -> String,
}

/// The columns of the clients.
pub(super) const COLUMNS: [Column; 10] = [
    Column {
        title: "ID",
        width: 7,
        grows: false,
        is_number: true,
        order: Some(Order::Id),
        value: |one| one.id.to_string(),
    },
    Column {
        title: "ADDRESS",
        width: 21,
        grows: true,
        is_number: false,
        order: Some(Order::Address),
        value: |one| one.address.clone().unwrap_or_else(|| "-".to_owned()),
    },
    Column {
        title: "VIA",
        width: 9,
        grows: false,
        is_number: false,
        order: None,
        value: |one| match one.version.as_deref() {
            Some("TCP") => "tcp".to_owned(),
            Some(version) => format!("{} {version}", one.provider),
            None => one.provider.clone(),
        },
    },
    Column {
        title: "CALLS/S",
        width: 8,
        grows: false,
        is_number: true,
        order: Some(Order::Rate),
        value: |one| one.calls_per_second.map_or_else(|| "-".to_owned(), number),
    },
    Column {
        title: "CALLS",
        width: 8,
        grows: false,
        is_number: true,
        order: Some(Order::Calls),
        value: |one| number(one.calls as f64),
    },
    Column {
        title: "FLIGHT",
        width: 7,
        grows: false,
        is_number: true,
        order: Some(Order::Flight),
        value: |one| one.calls_in_flight.to_string(),
    },
    Column {
        title: "BYTES/S",
        width: 8,
        grows: false,
        is_number: true,
        order: Some(Order::Bytes),
        value: |one| one.bytes_per_second.map_or_else(|| "-".to_owned(), bytes),
    },
    Column {
        title: "CREDITS",
        width: 8,
        grows: false,
        is_number: true,
        order: Some(Order::Credits),
        value: |one| if one.credits == 0 { "-".to_owned() } else { one.credits.to_string() },
    },
    Column {
        title: "MEMORY",
        width: 7,
        grows: false,
        is_number: true,
        order: Some(Order::Memory),
        value: |one| human::size(one.memory() as u64),
    },
    Column { title: "USER", width: 4, grows: true, is_number: false, order: None, value: user },
];

/// Returns a number of bytes for people.
fn bytes(value: f64) -> String {
    // A rate is not negative, and saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let value = value.round() as u64;
    human::size(value)
}

/// The styles of the screen.
struct Styles {
    title: Style,
    chosen: Style,
    label: Style,
    trouble: Style,
    bar: Style,
}

impl Styles {
    fn new(has_colours: bool) -> Self {
        let plain = Style::new();
        if has_colours {
            Self {
                title: plain.add_modifier(Modifier::REVERSED),
                chosen: plain.fg(Color::Black).bg(Color::Cyan).remove_modifier(Modifier::REVERSED),
                label: plain.fg(Color::Cyan),
                trouble: plain.fg(Color::Red).add_modifier(Modifier::BOLD),
                bar: plain.fg(Color::Green),
            }
        } else {
            let bold = plain.add_modifier(Modifier::BOLD);
            let title = plain.add_modifier(Modifier::REVERSED);
            Self {
                title,
                chosen: title.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED)),
                label: bold,
                trouble: bold,
                bar: plain,
            }
        }
    }
}

/// Most lines of procedures while there are clients to show.
const PROCEDURES: u16 = 9;
/// Lines of the numbers at the top.
const HEAD: u16 = 5;

/// Returns the lines for procedures, with their titles, on a screen of this height.
fn procedure_lines(height: u16, procedures: usize) -> u16 {
    let shown = u16::try_from(procedures).unwrap_or(u16::MAX).clamp(1, PROCEDURES) + 1;
    let limit = height.saturating_sub(HEAD + 1) / 2;
    shown.min(limit.max(2))
}

/// Returns the number of clients that are visible on a screen of this height.
pub(super) fn client_rows(height: u16, procedures: usize) -> usize {
    // The foot of the screen, the titles and the line with the numbers of the visible clients.
    const BESIDE: u16 = HEAD + 3;
    usize::from(height.saturating_sub(BESIDE).saturating_sub(procedure_lines(height, procedures)))
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let styles = Styles::new(model.has_colours);
    let rates = model.procedures();
    let middle = Constraint::Length(procedure_lines(frame.area().height, rates.len()));
    let [head, middle, below, foot] =
        Layout::vertical([Constraint::Length(HEAD), middle, Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    match &model.last {
        Some(sample) => draw_head(frame, head, model, sample, &styles),
        None => frame.render_widget(Paragraph::new(format!("asking {} ...", model.place)), head),
    }
    draw_procedures(frame, middle, &rates, &styles);
    draw_clients(frame, below, model, &styles);
    let keys = match &model.trouble {
        Some(reason) => Line::styled(reason.clone(), styles.trouble),
        None => Line::styled("q quit   left/right sort by   r reverse   up/down scroll", styles.label),
    };
    frame.render_widget(Paragraph::new(keys), foot);
}

/// Returns a label and its value, with space behind.
fn pair<'a>(label: &'a str, value: String, styles: &Styles) -> [Span<'a>; 2] {
    [Span::styled(label, styles.label), Span::raw(format!(" {value}   "))]
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model, sample: &Sample, styles: &Styles) {
    let status = &sample.status;
    let Status { process, transports, connections, memory, .. } = status;
    let per_second = |value: Option<f64>, show: fn(f64) -> String| {
        value.map_or_else(|| "-".to_owned(), |value| show(value) + "/s")
    };
    let calls = per_second(
        model.rate(|status| status.transports.rdma.calls.saturating_add(status.transports.tcp.calls)),
        number,
    );
    let received = |status: &Status| {
        status.transports.rdma.bytes_received.saturating_add(status.transports.tcp.bytes_received)
    };
    let sent =
        |status: &Status| status.transports.rdma.bytes_sent.saturating_add(status.transports.tcp.bytes_sent);
    let all = model.procedures().iter().fold(Latencies::default(), |sum, rate| sum.plus(&rate.latencies));
    let waiting: usize = status.io.iter().fold(0, |sum, lane| sum.saturating_add(lane.waiting));
    let busy: usize =
        status.io.iter().fold(0, |sum, lane| sum.saturating_add(lane.threads.saturating_sub(lane.idle)));
    let listeners: Vec<String> =
        status.listeners.iter().map(|at| format!("{} ({})", at.address, at.provider)).collect();
    let refused: u64 = connections.refused.reasons().iter().map(|(_, count)| count).sum();
    let first = Line::from(vec![
        Span::styled(format!("rpcrdma {}", process.version), Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "   process {}   up {}   {}",
            process.pid,
            span(process.uptime_seconds),
            listeners.join(", ")
        )),
    ]);
    let second = [
        pair("calls", calls, styles),
        pair("p50", time(quantile(&all, 0.5)), styles),
        pair("p99", time(quantile(&all, 0.99)), styles),
        pair("received", per_second(model.rate(received), bytes), styles),
        pair("sent", per_second(model.rate(sent), bytes), styles),
        pair("I/O", format!("{busy} busy, {waiting} waiting"), styles),
    ];
    let third = [
        pair(
            "connections",
            format!(
                "{} rdma, {} tcp, {} half open",
                transports.rdma.connections, transports.tcp.connections, connections.half_open
            ),
            styles,
        ),
        pair("accepted", connections.accepted.to_string(), styles),
        pair("refused", refused.to_string(), styles),
        pair("credits", status.credits.granted.to_string(), styles),
    ];
    let (calls, replies) = (forms(&status.forms.calls), forms(&status.forms.replies));
    let forms = [pair("calls came", calls, styles), pair("replies left", replies, styles)];
    let mut pool = vec![Span::styled("memory ", styles.label)];
    pool.extend(bar(memory.in_use, memory.limit, 24, styles));
    let size = |bytes: usize| human::size(bytes as u64);
    pool.push(Span::raw(format!(" {} of {}   ", size(memory.in_use), size(memory.limit))));
    pool.extend(pair("reply cache", size(status.reply_cache.bytes), styles));
    pool.extend(pair("evicted", status.reply_cache.evicted.to_string(), styles));
    let line = |pairs: &[[Span<'static>; 2]]| Line::from(pairs.concat());
    let text = Text::from(vec![first, line(&second), line(&third), line(&forms), Line::from(pool)]);
    frame.render_widget(Paragraph::new(text), area);
}

/// Returns a bar of so many cells.
fn bar(part: usize, whole: usize, cells: usize, styles: &Styles) -> [Span<'static>; 3] {
    let full = part.saturating_mul(cells).div_ceil(whole.max(1)).min(cells);
    [
        Span::raw("["),
        Span::styled("|".repeat(full), styles.bar),
        Span::raw(format!("{}]", " ".repeat(cells - full))),
    ]
}

/// Returns a quantile in seconds.
fn quantile(latencies: &Latencies, part: f64) -> Option<f64> {
    latencies.quantile(part).map(|time| time.as_secs_f64())
}

/// Returns the forms of messages that occurred, in per cent.
fn forms(messages: &MessageStatus) -> String {
    let all: u64 = messages.forms().iter().map(|(_, count)| count).sum();
    let seen = messages.forms().into_iter().filter(|(_, count)| *count > 0);
    let seen = seen.map(|(form, count)| match count.saturating_mul(100) / all.max(1) {
        0 => format!("<1% {form}"),
        percent => format!("{percent}% {form}"),
    });
    let seen: Vec<String> = seen.collect();
    if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
}

fn draw_procedures(frame: &mut Frame<'_>, area: Rect, rates: &[Rate], styles: &Styles) {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let rows = rates.iter().take(usize::from(area.height)).map(|rate| {
        let per_second = number(rate.per_second);
        let [p50, p99] = [0.5, 0.99].map(|part| time(quantile(&rate.latencies, part)));
        let calls = number(rate.calls as f64);
        Row::new([
            Cell::from(rate.name.clone()),
            right(per_second),
            right(calls),
            right(p50),
            right(p99),
            right(rate.errors.to_string()),
        ])
    });
    let titles = ["PROCEDURE", "CALLS/S", "CALLS", "P50", "P99", "ERRORS"].into_iter().enumerate();
    let titles =
        titles.map(|(index, title)| if index == 0 { Cell::from(title) } else { right(title.to_owned()) });
    let widths = [
        Constraint::Length(24),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
    ];
    let table = Table::new(rows, widths).header(Row::new(titles).style(styles.title)).column_spacing(1);
    frame.render_widget(table, area);
}

fn draw_clients(frame: &mut Frame<'_>, area: Rect, model: &Model, styles: &Styles) {
    let Some(clients) = model.last.as_ref().map(|last| &last.clients) else { return };
    let Some(clients) = clients else {
        let reason = "clients: give the state directory or the control socket; metrics have none";
        frame.render_widget(Paragraph::new(reason), area);
        return;
    };
    let aligned = |column: &Column, text: String| {
        let side = if column.is_number { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(side))
    };
    // Columns without room are left out, not cut.
    let mut end = 0;
    let fits = |column: &&Column| {
        end += column.width + 1;
        end <= area.width.saturating_add(1)
    };
    let columns: Vec<&Column> = COLUMNS.iter().take_while(fits).collect();
    let titles = columns.iter().map(|column| {
        let is_chosen = column.order == Some(model.order);
        let mark = match (is_chosen, model.is_reverse) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
        let style = if is_chosen { styles.chosen } else { Style::new() };
        aligned(column, format!("{}{mark}", column.title)).style(style)
    });
    let visible = model.clients().iter().take(usize::from(area.height.saturating_sub(1)));
    let rows = visible.map(|one| Row::new(columns.iter().map(|column| aligned(column, (column.value)(one)))));
    let widths = columns.iter().map(|column| match column.grows {
        true => Constraint::Min(column.width),
        false => Constraint::Length(column.width),
    });
    let table = Table::new(rows, widths).header(Row::new(titles).style(styles.title)).column_spacing(1);
    let [body, last] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    frame.render_widget(table, body);
    let rows = usize::from(body.height.saturating_sub(1)).min(model.clients().len());
    if rows > 0 {
        let first = model.skip + 1;
        let order = model.order.to_possible_value();
        let order = order.as_ref().map_or("", |order| order.get_name());
        let text = format!("clients {first} to {} of {}, by {order}", model.skip + rows, clients.total);
        frame.render_widget(Paragraph::new(text).style(styles.label), last);
    }
}

#[cfg(test)]
mod tests;
