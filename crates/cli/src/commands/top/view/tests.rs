use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::commands::serve::status::{
    Clients, LatencyStatus, ListenerStatus, MemoryStatus, ProcedureStatus, Process, TransportStatus,
    Transports,
};

/// A server after so many seconds, with 1000 READs a second of 100 µs.
fn status(seconds: u64) -> Status {
    let calls = seconds * 1000;
    let mut latencies = Latencies::default();
    (0..calls).for_each(|_| latencies.add(Duration::from_micros(100)));
    let read = ProcedureStatus {
        program: "nfs".to_owned(),
        version: 3,
        procedure: "READ".to_owned(),
        calls,
        errors: [("NFS3ERR_IO".to_owned(), 4)].into(),
        latency: LatencyStatus::from(&latencies),
    };
    let rdma =
        TransportStatus { connections: 2, calls, bytes_received: calls * 100, bytes_sent: calls << 20 };
    Status {
        process: Process {
            version: "1.2.3".to_owned(),
            pid: 77,
            uptime_seconds: 3700.0,
            ..Process::default()
        },
        procedures: vec![read],
        transports: Transports { rdma, ..Transports::default() },
        memory: MemoryStatus { in_use: 256 << 20, limit: 1 << 30, ..MemoryStatus::default() },
        ..Status::default()
    }
}

fn client(id: u64) -> ClientStatus {
    ClientStatus {
        id,
        address: Some(format!("192.0.2.1:{}", 40_000 + id)),
        provider: "iwarp".to_owned(),
        version: Some("One".to_owned()),
        calls: 12_345_678,
        calls_in_flight: 3,
        credits: 64,
        calls_per_second: Some(500.0),
        bytes_per_second: Some(2e9),
        user: Some("alice@EXAMPLE.ORG".to_owned()),
        ..ClientStatus::default()
    }
}

/// Returns the model after two looks, one second apart, with these clients visible.
fn model(clients: Option<(usize, std::ops::Range<u64>)>) -> Model {
    let clients = clients.map(|(total, visible)| Clients { total, clients: visible.map(client).collect() });
    let mut model = Model::new("/state", Order::Rate, true);
    let at = Instant::now();
    for second in [1, 2] {
        let (status, at) = (status(second), at + Duration::from_secs(second));
        model.take(Sample { at, status, clients: clients.clone() });
    }
    model
}

fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    super::super::lines(terminal.backend().buffer()).lines().map(ToOwned::to_owned).collect()
}

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part:?} in {lines:#?}"))
}

#[test]
fn rates_and_times_are_those_of_the_last_interval() {
    let lines = drawn(&model(Some((2, 1..3))), 110, 24);
    assert!(lines[0].starts_with("rpcrdma 1.2.3   process 77   up 1 h 1 min"), "{lines:#?}");
    assert!(
        lines[1].contains("calls 1000/s   p50 128 us   p99 128 us   received 98K/s   sent 1000M/s"),
        "{lines:#?}"
    );
    let read: Vec<_> = line(&lines, "nfs READ").split_whitespace().collect();
    assert_eq!(read, ["nfs", "READ", "1000", "128", "us", "128", "us", "4", "2000"]);
    assert!(line(&lines, "memory [").contains("[||||||                  ] 256M of 1.0G"), "{lines:#?}");
    let first: Vec<_> = line(&lines, "192.0.2.1:40001").split_whitespace().collect();
    let wanted =
        ["1", "192.0.2.1:40001", "500", "iwarp", "One", "12.3M", "3", "1.9G", "64", "0", "alice@EXAMPLE.ORG"];
    assert_eq!(first, wanted);
    assert!(line(&lines, "clients 1 to 2 of 2").starts_with("clients"));
}

#[test]
fn numbers_stand_under_their_titles() {
    let lines = drawn(&model(Some((1, 1..2))), 110, 24);
    let (titles, row) = (line(&lines, "ADDRESS"), line(&lines, "192.0.2.1:40001"));
    for (title, value) in [("ID", "1 "), ("CALLS/S*", "500"), ("FLIGHT", "3"), ("CREDITS", "64")] {
        let end = titles.find(title).unwrap() + title.len();
        let value = value.trim_end();
        assert_eq!(&row[end - value.len()..end], value, "{title}\n{titles}\n{row}");
    }
}

#[test]
fn only_what_is_visible_is_asked_for_and_drawn() {
    let mut model = model(Some((10_000, 1..16)));
    model.resized(24);
    let asked = model.question();
    model.scroll(isize::MAX);
    assert_eq!(model.skip, 9999);
    model.scroll(isize::MIN);
    assert_eq!(model.question(), asked);
    model.page(1);
    let lines = drawn(&model, 110, 24);
    assert_eq!(lines.len(), 24);
    let shown = lines.iter().filter(|line| line.contains("192.0.2.1:")).count();
    let skip = model.skip;
    assert_eq!(skip, shown, "a page has as many clients as are visible");
    assert!((5..24).contains(&shown), "{shown}");
    assert!(line(&lines, "of 10000").contains(&format!("clients {} to {} of", skip + 1, skip + shown)));
}

#[test]
fn each_column_with_an_order_can_be_chosen() {
    let mut model = model(Some((1, 1..2)));
    let orders: Vec<Order> = COLUMNS.iter().filter_map(|column| column.order).collect();
    for forwards in [true, false] {
        let mut seen = Vec::new();
        for _ in &orders {
            model.sort_by_next(forwards);
            seen.push(model.order);
            let title = COLUMNS.iter().find(|column| column.order == Some(model.order)).unwrap().title;
            let lines = drawn(&model, 110, 24);
            line(&lines, &format!("{title}*"));
        }
        assert_eq!(model.order, Order::Rate, "all of them, in turn");
        seen.sort_by_key(|order| orders.iter().position(|one| one == order));
        assert_eq!(seen, orders);
    }
    model.reverse();
    line(&drawn(&model, 110, 24), "CALLS/S^");
}

#[test]
fn a_server_without_clients_or_answers_says_so() {
    let mut model = model(None);
    line(&drawn(&model, 100, 24), "metrics have none");
    model.trouble("no answer".to_owned());
    let lines = drawn(&model, 100, 24);
    assert_eq!(lines.last().unwrap(), "no answer");
    line(&lines, "process 77");
    line(&drawn(&Model::new("/state", Order::Id, false), 80, 24), "asking /state");
}

#[test]
fn columns_without_room_are_left_out() {
    let lines = drawn(&model(Some((2, 1..3))), 80, 24);
    let titles: Vec<_> = line(&lines, "ADDRESS").split_whitespace().collect();
    assert_eq!(titles, ["ID", "ADDRESS", "CALLS/S*", "VIA", "CALLS", "FLIGHT", "BYTES/S"]);
    line(&lines, "clients 1 to 2 of 2, by rate");
}

#[test]
fn small_screens_do_no_harm() {
    for (width, height) in [(1, 1), (10, 3), (40, 8), (200, 5), (20, 60)] {
        drawn(&model(Some((2, 1..3))), width, height);
    }
}

#[test]
fn nothing_is_cut_on_narrow_screens() {
    let mut model = model(Some((2, 1..3)));
    let listener =
        |address: &str| ListenerStatus { address: address.to_owned(), provider: "iwarp".to_owned() };
    let listeners = ["[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:20049", "192.0.2.9:20049"].map(listener);
    model.last.as_mut().unwrap().status.listeners = listeners.into();
    let words = |width| -> BTreeSet<String> {
        let lines = drawn(&model, width, 24);
        let words = lines.iter().flat_map(|line| line.split_whitespace().map(ToOwned::to_owned));
        // The bar has another length, and a shortened user is marked.
        words
            .filter(|word| !word.contains("..") && (!word.contains(['|', ']']) || word.contains(':')))
            .collect()
    };
    let all = words(200);
    for width in 40..200 {
        let other: Vec<String> = words(width).difference(&all).cloned().collect();
        let says_more = |word: &String| ["and", "1", "more"].contains(&word.as_str());
        assert!(other.iter().all(says_more), "at {width}: {other:?}");
    }
}

#[test]
fn long_addresses_are_whole_or_marked() {
    let address = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    let mut model = model(Some((1, 1..2)));
    let clients = model.last.as_mut().unwrap().clients.as_mut().unwrap();
    clients.clients[0].address = Some(address.to_owned());
    for width in [56, 80, 120] {
        line(&drawn(&model, width, 24), address);
    }
    let narrow = drawn(&model, 40, 24);
    let shown = line(&narrow, "[2001");
    assert!(shown.contains("..") && shown.trim_end().ends_with("]:65535"), "{shown}");
    // The title of the order is beside, not over it.
    let wide = drawn(&model, 80, 24);
    let titles: Vec<_> = line(&wide, "ADDRESS").split_whitespace().collect();
    assert_eq!(titles, ["ID", "ADDRESS", "CALLS/S*", "VIA"]);
}

#[test]
fn a_screen_asks_for_no_more_clients_than_it_has_lines() {
    let mut model = model(Some((10_000, 1..2)));
    for height in 1..200 {
        model.resized(height);
        assert!((1..=usize::from(height)).contains(&model.question().count), "{height}");
    }
}

#[test]
fn a_server_without_connections_says_so() {
    line(&drawn(&model(Some((0, 1..1))), 80, 24), "no clients");
}
