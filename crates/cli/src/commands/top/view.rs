//! The screen of `top`.

use clap::ValueEnum;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use rpcrdma::Latencies;

use super::model::{Model, Rate, Sample};
use crate::commands::observed::text::{number, span, time, user};
use crate::commands::serve::observe::protocol::Order;
use crate::commands::serve::status::{ClientStatus, MessageStatus, Status};
use crate::human;

/// A column of the clients.
pub(super) struct Column {
    title: &'static str,
    /// Width; that of an address is the least one.
    width: u16,
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
        is_number: true,
        order: Some(Order::Id),
        value: |one| one.id.to_string(),
    },
    Column {
        title: "ADDRESS",
        width: 21,
        is_number: false,
        order: Some(Order::Address),
        value: |one| one.address.clone().unwrap_or_else(|| "-".to_owned()),
    },
    Column {
        title: "CALLS/S",
        width: 8,
        is_number: true,
        order: Some(Order::Rate),
        value: |one| one.calls_per_second.map_or_else(|| "-".to_owned(), number),
    },
    Column {
        title: "VIA",
        width: 9,
        is_number: false,
        order: None,
        value: |one| match one.version.as_deref() {
            Some("TCP") => "tcp".to_owned(),
            Some(version) => format!("{} {version}", one.provider),
            None => one.provider.clone(),
        },
    },
    Column {
        title: "CALLS",
        width: 8,
        is_number: true,
        order: Some(Order::Calls),
        value: |one| number(one.calls as f64),
    },
    Column {
        title: "FLIGHT",
        width: 7,
        is_number: true,
        order: Some(Order::Flight),
        value: |one| one.calls_in_flight.to_string(),
    },
    Column {
        title: "BYTES/S",
        width: 8,
        is_number: true,
        order: Some(Order::Bytes),
        value: |one| one.bytes_per_second.map_or_else(|| "-".to_owned(), bytes),
    },
    Column {
        title: "CREDITS",
        width: 8,
        is_number: true,
        order: Some(Order::Credits),
        value: |one| if one.credits == 0 { "-".to_owned() } else { one.credits.to_string() },
    },
    Column {
        title: "MEMORY",
        width: 7,
        is_number: true,
        order: Some(Order::Memory),
        value: |one| human::size(one.memory() as u64),
    },
    Column { title: "USER", width: 4, is_number: false, order: None, value: user },
];

/// Returns a number of bytes for people.
fn bytes(value: f64) -> String {
    // A rate is not negative, and saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let value = value.round() as u64;
    human::size(value)
}

/// The styles of the screen. Text has the terminal's own colours, which the user can read; where there is another one, it has a
/// background of its own, or can be read on dark and light ones.
struct Styles {
    title: Style,
    chosen: Style,
    value: Style,
    trouble: Style,
    bar: Style,
}

impl Styles {
    fn new(has_colours: bool) -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let title = plain.add_modifier(Modifier::REVERSED);
        if has_colours {
            Self {
                title,
                chosen: plain.fg(Color::Black).bg(Color::Cyan).remove_modifier(Modifier::REVERSED),
                value: bold,
                trouble: bold.fg(Color::Red),
                bar: plain.fg(Color::Green),
            }
        } else {
            let chosen = title.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED));
            Self { title, chosen, value: bold, trouble: bold, bar: plain }
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
    let keys = ["q quit", "left/right sort by", "r reverse", "up/down scroll"];
    let foot_line = match &model.trouble {
        Some(reason) => Line::styled(shortened(reason, foot.width), styles.trouble),
        None => fitting(keys.map(|key| vec![Span::raw(key)]), foot.width),
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

/// Spaces between the parts of a line.
const GAP: &str = "   ";

/// Returns a line of the first parts that fit. Others are left out, not cut; of a first part without room the beginning stays.
fn fitting<'a>(parts: impl IntoIterator<Item = Vec<Span<'a>>>, width: u16) -> Line<'a> {
    let mut line = Line::default();
    for part in parts {
        let gap = if line.spans.is_empty() { "" } else { GAP };
        let needed = line.width() + gap.len() + part.iter().map(Span::width).sum::<usize>();
        if !line.spans.is_empty() && needed > usize::from(width) {
            break;
        }
        line.spans.push(Span::raw(gap));
        line.spans.extend(part);
    }
    line
}

/// Returns a text of at most so many cells: beginning and end of a longer one.
fn shortened(text: &str, width: u16) -> String {
    /// Stands for what is left out.
    const LEFT_OUT: &str = "..";
    let (length, width) = (text.chars().count(), usize::from(width));
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(LEFT_OUT.len());
    let (head, tail) = (kept / 2, kept - kept / 2);
    let mut short: String = text.chars().take(head).collect();
    short.push_str(LEFT_OUT);
    short.extend(text.chars().skip(length - tail));
    short
}

/// Returns a label and its value.
fn pair<'a>(label: &'a str, value: String, styles: &Styles) -> Vec<Span<'a>> {
    vec![Span::raw(label), Span::raw(" "), Span::styled(value, styles.value)]
}

/// Returns the listeners: as many as fit, and the number of the others.
fn listeners(status: &Status, width: usize) -> String {
    let all: Vec<String> =
        status.listeners.iter().map(|at| format!("{} ({})", at.address, at.provider)).collect();
    let shown = |count: usize| {
        let first = all.iter().take(count).cloned().collect::<Vec<_>>().join(", ");
        match all.len() - count {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    };
    (1..=all.len()).rev().map(shown).find(|text| text.len() <= width).unwrap_or_default()
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
    let refused: u64 = connections.refused.reasons().iter().map(|(_, count)| count).sum();
    let mut first = fitting(
        [
            vec![Span::styled(format!("rpcrdma {}", process.version), styles.value)],
            pair("process", process.pid.to_string(), styles),
            pair("up", span(process.uptime_seconds), styles),
        ],
        area.width,
    );
    let rest = usize::from(area.width).saturating_sub(first.width() + GAP.len());
    first.push_span(Span::raw(format!("{GAP}{}", listeners(status, rest))));
    let second = [
        pair("calls", calls, styles),
        pair("p50", time(quantile(&all, 0.5)), styles),
        pair("p99", time(quantile(&all, 0.99)), styles),
        pair("received", per_second(model.rate(received), bytes), styles),
        pair("sent", per_second(model.rate(sent), bytes), styles),
    ];
    let now = format!(
        "{} rdma, {} tcp, {} half open",
        transports.rdma.connections, transports.tcp.connections, connections.half_open
    );
    let third = [
        pair("connections", now, styles),
        pair("accepted", connections.accepted.to_string(), styles),
        pair("refused", refused.to_string(), styles),
        pair("credits", status.credits.granted.to_string(), styles),
    ];
    let (calls, replies) = (forms(&status.forms.calls), forms(&status.forms.replies));
    let forms = [pair("calls came", calls, styles), pair("replies left", replies, styles)];
    let size = |bytes: usize| human::size(bytes as u64);
    let mut pool = vec![Span::raw("memory ")];
    pool.extend(bar(memory.in_use, memory.limit, if area.width < WIDE { 8 } else { 24 }, styles));
    pool.push(Span::styled(format!(" {} of {}", size(memory.in_use), size(memory.limit)), styles.value));
    let cache = format!("{}, {} evicted", size(status.reply_cache.bytes), status.reply_cache.evicted);
    let fifth = [
        pool,
        pair("I/O", format!("{busy} busy, {waiting} waiting"), styles),
        pair("replies kept", cache, styles),
    ];
    let line = |parts: &[Vec<Span<'static>>]| fitting(parts.iter().cloned(), area.width);
    let text = Text::from(vec![first, line(&second), line(&third), line(&forms), line(&fifth)]);
    frame.render_widget(Paragraph::new(text), area);
}

/// Width from which on there is room for more than the numbers.
const WIDE: u16 = 90;

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
    /// Titles and widths. The name has its own columns where there is room.
    const TITLES: [(&str, u16); 6] =
        [("PROCEDURE", 16), ("CALLS/S", 8), ("P50", 8), ("P99", 8), ("ERRORS", 8), ("CALLS", 8)];
    let columns = columns_that_fit(TITLES.map(|(_, width)| width), area.width);
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let rows = rates.iter().take(usize::from(area.height)).map(|rate| {
        let [p50, p99] = [0.5, 0.99].map(|part| time(quantile(&rate.latencies, part)));
        let numbers =
            [number(rate.per_second), p50, p99, number(rate.errors as f64), number(rate.calls as f64)];
        let cells = [Cell::from(rate.name.clone())].into_iter().chain(numbers.map(right));
        Row::new(cells.take(columns))
    });
    let titles = TITLES
        .into_iter()
        .enumerate()
        .map(|(index, (title, _))| if index == 0 { Cell::from(title) } else { right(title.to_owned()) });
    let wide = if area.width < WIDE { 0 } else { 8 };
    let widths = TITLES.iter().enumerate().take(columns);
    let widths =
        widths.map(|(index, (_, width))| Constraint::Length(width + if index == 0 { wide } else { 0 }));
    let table = Table::new(rows, widths)
        .header(Row::new(titles.take(columns)).style(styles.title))
        .column_spacing(SPACING);
    frame.render_widget(table, area);
}

/// Cells between two columns.
const SPACING: u16 = 1;

/// Returns the number of the first columns that fit. Others are left out, not cut.
fn columns_that_fit(widths: impl IntoIterator<Item = u16>, room: u16) -> usize {
    let mut end = 0_u16;
    let fits = |width: &u16| {
        end = end.saturating_add(width + SPACING);
        end <= room.saturating_add(SPACING)
    };
    widths.into_iter().take_while(fits).count()
}

/// Returns the widths of the columns of these clients, as many as fit. Addresses are whole if the screen has room for the number
/// of the connection beside, and the last column gets the rest.
fn client_widths(clients: &[ClientStatus], room: u16) -> Vec<u16> {
    let longest = clients.iter().filter_map(|one| one.address.as_ref()).map(String::len).max().unwrap_or(0);
    let longest = u16::try_from(longest).unwrap_or(u16::MAX);
    let mut before = 0_u16;
    let widths = COLUMNS.iter().map(|column| {
        let left = room.saturating_sub(before).max(column.width);
        let width = match column.order {
            Some(Order::Address) => longest.clamp(column.width, left),
            _ => column.width,
        };
        before = before.saturating_add(width + SPACING);
        width
    });
    let mut widths: Vec<u16> = widths.collect();
    widths.truncate(columns_that_fit(widths.iter().copied(), room));
    let used: u16 = widths.iter().map(|width| width + SPACING).sum();
    if let (true, Some(last)) = (widths.len() == COLUMNS.len(), widths.last_mut()) {
        *last += room.saturating_add(SPACING).saturating_sub(used);
    }
    widths
}

fn draw_clients(frame: &mut Frame<'_>, area: Rect, model: &Model, styles: &Styles) {
    let Some(clients) = model.last.as_ref().map(|last| &last.clients) else { return };
    let Some(clients) = clients else {
        let reason = "clients: give the state directory or the control socket; metrics have none";
        frame.render_widget(Paragraph::new(reason).wrap(Wrap { trim: true }), area);
        return;
    };
    let aligned = |column: &Column, text: String| {
        let side = if column.is_number { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(text).alignment(side))
    };
    let [body, last] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(area);
    let visible = usize::from(body.height.saturating_sub(1));
    let shown = model.clients().get(..visible).unwrap_or(model.clients());
    let widths = client_widths(shown, area.width);
    let columns = || COLUMNS.iter().zip(&widths);
    let titles = columns().map(|(column, _)| {
        let is_chosen = column.order == Some(model.order);
        let mark = match (is_chosen, model.is_reverse) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
        let style = if is_chosen { styles.chosen } else { Style::new() };
        aligned(column, format!("{}{mark}", column.title)).style(style)
    });
    let cell = |one: &ClientStatus, (column, width): (&Column, &u16)| {
        aligned(column, shortened(&(column.value)(one), *width))
    };
    let rows = shown.iter().map(|one| Row::new(columns().map(|column| cell(one, column))));
    let table = Table::new(rows, widths.iter().map(|width| Constraint::Length(*width)))
        .header(Row::new(titles).style(styles.title))
        .column_spacing(SPACING);
    frame.render_widget(table, body);
    let order = model.order.to_possible_value();
    let order = order.as_ref().map_or("", |order| order.get_name());
    let text = match shown.len() {
        0 if clients.total == 0 => "no clients".to_owned(),
        0 => format!("{} clients", clients.total),
        rows => {
            format!("clients {} to {} of {}, by {order}", model.skip + 1, model.skip + rows, clients.total)
        }
    };
    frame.render_widget(Paragraph::new(text).style(styles.value), last);
}

#[cfg(test)]
mod tests;
