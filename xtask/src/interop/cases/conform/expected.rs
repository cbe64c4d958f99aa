//! The lists of rows that the kernel does not pass (`server.toml`, `client.toml`), and the comparison of a run with
//! them.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use crate::failure::{Context, Failure};
use crate::interop::fabric::Fabric;
use crate::interop::pattern::matches;

/// The lists, for each side of the kernel.
pub(super) const SERVER: &str = include_str!("server.toml");
pub(super) const CLIENT: &str = include_str!("client.toml");

/// A row that does not pass, or that harms the guest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Name of the row.
    pub(super) name: String,
    /// Expected verdicts, each with patterns of which one matches what the row has seen. Several verdicts: a race decides
    /// between them.
    pub(super) seen: BTreeMap<String, Vec<String>>,
    /// The behaviour of the kernel, in one sentence.
    pub(super) why: String,
    /// Devices on which this holds ([`device`]); none: wherever no other entry of the row names the device.
    #[serde(default)]
    pub(super) on: Vec<String>,
    /// Whether the row runs alone because it harms the guest.
    #[serde(default)]
    pub(super) alone: bool,
    /// Patterns for all complaints of the kernel about the row. The first one is due.
    #[serde(default)]
    pub(super) kernel: Vec<String>,
}

/// A complaint of the kernel that may come with any row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Pattern for the line without its time.
    pub(super) line: String,
    /// Devices on which it may come ([`device`]); none: everywhere.
    #[serde(default)]
    pub(super) on: Vec<String>,
    /// The reason why the line is harmless, for readers of the list.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test demands it of every line"))]
    pub(super) why: String,
}

/// A row in the output of `rpcrdma conform --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) section: String,
    pub(super) expects: String,
    pub(super) verdict: String,
    pub(super) seen: String,
}

impl Row {
    /// Returns the verdict as in the tester's own table.
    pub(super) fn shown(&self) -> &str {
        match self.verdict.as_str() {
            "fail" => "FAIL",
            "not_applicable" => "n/a",
            other => other,
        }
    }
}

/// Rows that ran on one guest, and the complaints of its kernel.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) rows: Vec<Row>,
    pub(super) complaints: Vec<String>,
}

/// One of the lists.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(rename = "row")]
    pub(super) rows: Vec<Entry>,
    #[serde(default, rename = "log")]
    pub(super) logs: Vec<Known>,
}

/// Returns the name of a device in the lists. Without a fabric the peer on the host speaks software iWARP.
pub(super) const fn device(fabric: Option<Fabric>) -> &'static str {
    match fabric {
        None => "iwarp",
        Some(Fabric::RxeWindows) => "rxe",
        Some(Fabric::RxeRegistrations) => "rxe-registrations",
        Some(Fabric::Siw) => "siw",
    }
}

/// Parses one of the lists, and takes what holds on a device.
pub(super) fn list(text: &str, fabric: Option<Fabric>) -> Result<List, Failure> {
    let device = device(fabric);
    let names = |on: &[String]| on.iter().any(|name| name == device);
    let mut list: List = toml::from_str(text).context("the list of differences")?;
    let special: HashSet<String> =
        list.rows.iter().filter(|entry| names(&entry.on)).map(|entry| entry.name.clone()).collect();
    list.rows.retain(|entry| names(&entry.on) || entry.on.is_empty() && !special.contains(&entry.name));
    list.logs.retain(|known| known.on.is_empty() || names(&known.on));
    Ok(list)
}

/// Returns all differences from the list, in sentences: none if the run is green. `names` are the tester's rows.
pub(super) fn judge(list: &List, names: &[String], ran: &[Ran]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = HashSet::new();
    for Entry { name, .. } in &list.rows {
        if !names.contains(name) {
            problems.push(format!("the list has {name}, which is no row"));
        }
        if !listed.insert(name) {
            problems.push(format!("the list has {name} twice"));
        }
    }
    for name in names {
        let expected = list.rows.iter().find(|entry| entry.name == *name);
        let Some((run, row)) =
            ran.iter().find_map(|run| Some((run, run.rows.iter().find(|row| row.name == *name)?)))
        else {
            problems.push(format!("{name} has no result"));
            continue;
        };
        problems.extend(difference(expected, row));
        if let Some(kernel) = expected.and_then(|entry| entry.kernel.first())
            && !run.complaints.iter().any(|line| matches(kernel, line))
        {
            problems.push(format!("{name}: the kernel does not say {kernel:?}"));
        }
    }
    for run in ran {
        let of_rows = list.rows.iter().filter(|entry| run.rows.iter().any(|row| row.name == entry.name));
        let of_rows = of_rows.flat_map(|entry| &entry.kernel);
        let known: Vec<&String> = list.logs.iter().map(|known| &known.line).chain(of_rows).collect();
        let unknown = run.complaints.iter().filter(|line| !known.iter().any(|known| matches(known, line)));
        problems.extend(unknown.map(|line| format!("the kernel complains: {line}")));
    }
    problems
}

/// What rows see when the kernel's client has closed the connection on its own.
const LEFT: [&str; 2] = [
    "*the client leaves the connection: *",
    "*: the client closes the connection; the call again on a new connection",
];

/// Returns the rows that differ from the list because the client has left the connection.
pub(super) fn raced(list: &List, ran: &[Ran]) -> Vec<String> {
    let rows = ran.iter().flat_map(|ran| &ran.rows);
    rows.filter(|row| LEFT.iter().any(|left| matches(left, &row.seen)))
        .filter(|row| difference(list.rows.iter().find(|entry| entry.name == row.name), row).is_some())
        .map(|row| row.name.clone())
        .collect()
}

/// Returns the difference of a row from its entry.
fn difference(expected: Option<&Entry>, row: &Row) -> Option<String> {
    let Row { name, verdict, seen, .. } = row;
    let Some(entry) = expected else {
        return (verdict != "pass").then(|| format!("{name}: {verdict} instead of pass: {seen}"));
    };
    let Some(patterns) = entry.seen.get(verdict) else {
        let due = entry.seen.keys().map(String::as_str).collect::<Vec<_>>().join(" or ");
        return Some(format!("{name}: {verdict} instead of {due}: {seen}"));
    };
    let as_expected = patterns.iter().any(|pattern| matches(pattern, seen));
    (!as_expected).then(|| format!("{name}: {verdict} as expected, but not {patterns:?}: {seen}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, seen: &[(&str, &str)]) -> Entry {
        let seen = seen.iter().map(|&(verdict, seen)| (verdict.to_owned(), vec![seen.to_owned()])).collect();
        Entry {
            name: name.to_owned(),
            seen,
            why: String::new(),
            on: Vec::new(),
            alone: false,
            kernel: Vec::new(),
        }
    }

    fn of<const N: usize>(rows: [Entry; N]) -> List {
        List { rows: rows.into(), logs: Vec::new() }
    }

    fn ran(rows: &[(&str, &str)], complaints: &[&str]) -> Ran {
        let row = |&(name, verdict): &(&str, &str)| Row {
            name: name.to_owned(),
            section: String::new(),
            expects: String::new(),
            verdict: verdict.to_owned(),
            seen: "something".to_owned(),
        };
        Ran {
            rows: rows.iter().map(row).collect(),
            complaints: complaints.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_run_as_the_list_says_is_green() {
        let list =
            of([entry("b", &[("fail", "some*")]), entry("c", &[("pass", "*"), ("differs", "something")])]);
        for verdict in ["pass", "differs"] {
            let run = [ran(&[("a", "pass"), ("b", "fail"), ("c", verdict)], &[])];
            assert_eq!(judge(&list, &names(&["a", "b", "c"]), &run), [""; 0]);
        }
    }

    #[test]
    fn a_row_without_result_is_red() {
        let problems = judge(&of([]), &names(&["a", "b"]), &[ran(&[("a", "pass")], &[])]);
        assert_eq!(problems, ["b has no result"]);
    }

    #[test]
    fn rows_that_the_client_left_against_the_list_run_again() {
        let left = "accept_stat 4: the client leaves the connection: the call again on a new connection";
        let list = of([entry("b", &[("fail", "*: other calls*")]), entry("c", &[("fail", left)])]);
        let mut run = ran(&[("a", "fail"), ("b", "fail"), ("c", "fail"), ("d", "fail")], &[]);
        for row in run.rows.iter_mut().take(3) {
            left.clone_into(&mut row.seen);
        }
        assert_eq!(raced(&list, &[run]), ["a", "b"]);
    }

    #[test]
    fn another_verdict_is_red_in_either_direction() {
        let list = of([entry("b", &[("fail", "*"), ("differs", "*")])]);
        let problems = judge(&list, &names(&["a", "b"]), &[ran(&[("a", "fail"), ("b", "pass")], &[])]);
        assert_eq!(
            problems,
            ["a: fail instead of pass: something", "b: pass instead of differs or fail: something"]
        );
    }

    #[test]
    fn the_expected_verdict_for_another_reason_is_red() {
        let list = of([entry("a", &[("fail", "some"), ("differs", "something")])]);
        let problems = judge(&list, &names(&["a"]), &[ran(&[("a", "fail")], &[])]);
        assert_eq!(problems, ["a: fail as expected, but not [\"some\"]: something"]);
    }

    #[test]
    fn the_list_names_rows_that_there_are_and_each_once() {
        let list = of(["x", "a", "a"].map(|name| entry(name, &[("fail", "*")])));
        let problems = judge(&list, &names(&["a"]), &[ran(&[("a", "fail")], &[])]);
        assert_eq!(problems, ["the list has x, which is no row", "the list has a twice"]);
    }

    #[test]
    fn complaints_of_the_kernel_have_to_be_those_of_the_list() {
        let mut list = of([entry("a", &[("fail", "*")])]);
        let all = names(&["a"]);
        let oops = [ran(&[("a", "fail")], &["BUG: kernel NULL pointer", "Call Trace:"])];
        let quiet = [ran(&[("a", "fail")], &[])];
        let each = ["the kernel complains: BUG: kernel NULL pointer", "the kernel complains: Call Trace:"];
        assert_eq!(judge(&list, &all, &oops), each);
        list.rows[0].kernel = vec!["BUG: kernel NULL*".to_owned()];
        assert_eq!(judge(&list, &all, &oops), each[1..], "each line has to be listed");
        list.logs.push(Known { line: "Call Trace:".to_owned(), on: Vec::new(), why: String::new() });
        assert_eq!(judge(&list, &all, &oops), [""; 0]);
        assert_eq!(judge(&list, &all, &quiet), ["a: the kernel does not say \"BUG: kernel NULL*\""]);
        // The lines of one row are not allowed with another one.
        let other = [
            ran(&[("a", "fail")], &oops[0].complaints.iter().map(String::as_str).collect::<Vec<_>>()),
            ran(&[("b", "pass")], &["BUG: kernel NULL"]),
        ];
        assert_eq!(judge(&list, &names(&["a", "b"]), &other), ["the kernel complains: BUG: kernel NULL"]);
    }

    #[test]
    fn an_entry_for_a_device_takes_the_place_of_the_general_one() {
        let text = "[[row]]\nname = 'a'\nseen.fail = ['x']\nwhy = 'general'\n\
                    [[row]]\nname = 'a'\non = ['rxe']\nseen.pass = ['*']\nwhy = 'special'\n\
                    [[row]]\nname = 'b'\non = ['siw']\nseen.fail = ['x']\nwhy = 'siw only'\n\
                    [[log]]\nline = 'l'\non = ['rxe']\nwhy = 'rxe only'\n";
        for (fabric, whys, logs) in [
            (None, vec!["general"], 0),
            (Some(Fabric::RxeWindows), vec!["special"], 1),
            (Some(Fabric::Siw), vec!["general", "siw only"], 0),
        ] {
            let list = list(text, fabric).unwrap();
            assert_eq!(list.rows.iter().map(|row| row.why.as_str()).collect::<Vec<_>>(), whys, "{fabric:?}");
            assert_eq!(list.logs.len(), logs, "{fabric:?}");
        }
    }

    #[test]
    fn the_checked_in_lists_are_of_rows_that_there_are() {
        let page = include_str!("../../../../../docs/conform.md");
        let section = |title: &str| {
            let (_, section) = page.split_once(&format!("## {title}\n")).unwrap();
            section.split("\n## ").next().unwrap()
        };
        for (text, title) in [(SERVER, "Our own server"), (CLIENT, "Our own client")] {
            let List { rows, logs } = toml::from_str(text).unwrap();
            let all = [None, Some(Fabric::RxeWindows), Some(Fabric::RxeRegistrations), Some(Fabric::Siw)];
            for name in rows.iter().flat_map(|row| &row.on).chain(logs.iter().flat_map(|log| &log.on)) {
                assert!(all.iter().any(|&fabric| device(fabric) == name), "{name}");
            }
            for Entry { name, seen, why, on, alone, kernel } in rows {
                assert!(section(title).contains(&format!("| pass    | {name} ")), "{name}");
                assert!(
                    !seen.is_empty() && (!seen.keys().eq(["pass"]) || !on.is_empty()),
                    "{name}: {seen:?}"
                );
                for (verdict, patterns) in &seen {
                    assert!(
                        ["pass", "differs", "fail", "not_applicable"].contains(&verdict.as_str()),
                        "{name}"
                    );
                    assert!(!patterns.is_empty(), "{name}: {verdict}");
                    assert!(verdict == "pass" || !patterns.contains(&"*".to_owned()), "{name}: {verdict}");
                }
                assert!(!why.is_empty() && !why.contains('|') && !why.ends_with('.'), "{name}: {why}");
                assert!(
                    alone || kernel.is_empty(),
                    "{name}: a row that makes the kernel complain runs alone"
                );
            }
            for Known { line, why, .. } in logs {
                assert!(!why.is_empty() && !line.starts_with('*'), "{line}");
            }
        }
    }
}
