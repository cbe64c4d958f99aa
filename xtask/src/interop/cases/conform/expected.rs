//! The lists of rows that the kernel does not pass (`server.toml`, `client.toml`), and the comparison of a run with
//! them.

use std::collections::HashSet;

use serde::Deserialize;

use crate::failure::{Context, Failure};

/// The lists, for each side of the kernel.
pub(super) const SERVER: &str = include_str!("server.toml");
pub(super) const CLIENT: &str = include_str!("client.toml");

/// A row that does not pass, or that harms the guest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Name of the row.
    pub(super) name: String,
    /// Expected verdicts: one, or several if a race decides between them.
    pub(super) verdicts: Vec<String>,
    /// The behaviour of the kernel, in one sentence.
    pub(super) why: String,
    /// Whether the row runs alone because it harms the guest.
    #[serde(default)]
    pub(super) alone: bool,
    /// Text in the kernel's log after the row.
    pub(super) kernel: Option<String>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    row: Vec<Entry>,
}

/// Parses one of the lists.
pub(super) fn list(text: &str) -> Result<Vec<Entry>, Failure> {
    toml::from_str::<List>(text).context("the list of differences").map(|list| list.row)
}

/// Returns all differences from the list, in sentences: none if the run is green. `names` are the tester's rows.
pub(super) fn judge(list: &[Entry], names: &[String], ran: &[Ran]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut listed = HashSet::new();
    for Entry { name, .. } in list {
        if !names.contains(name) {
            problems.push(format!("the list has {name}, which is no row"));
        }
        if !listed.insert(name) {
            problems.push(format!("the list has {name} twice"));
        }
    }
    for name in names {
        let expected = list.iter().find(|entry| entry.name == *name);
        let Some((run, row)) =
            ran.iter().find_map(|run| Some((run, run.rows.iter().find(|row| row.name == *name)?)))
        else {
            problems.push(format!("{name} has no result"));
            continue;
        };
        let as_expected = match expected {
            Some(entry) => entry.verdicts.contains(&row.verdict),
            None => row.verdict == "pass",
        };
        if !as_expected {
            let due = expected.map_or("pass".to_owned(), |entry| entry.verdicts.join(" or "));
            problems.push(format!("{name}: {} instead of {due}: {}", row.verdict, row.seen));
        }
        if let Some(kernel) = expected.and_then(|entry| entry.kernel.as_ref())
            && !run.complaints.iter().any(|line| line.contains(kernel))
        {
            problems.push(format!("{name}: the kernel does not say {kernel:?}"));
        }
    }
    // An oops has many lines; the line in the list stands for all of them.
    for run in ran {
        let known = list.iter().filter(|entry| run.rows.iter().any(|row| row.name == entry.name));
        let known = known.filter_map(|entry| entry.kernel.as_ref()).count() > 0;
        if let Some(line) = run.complaints.first().filter(|_| !known) {
            problems.push(format!("the kernel complains: {line}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, verdicts: &[&str]) -> Entry {
        let verdicts = verdicts.iter().map(|&verdict| verdict.to_owned()).collect();
        Entry { name: name.to_owned(), verdicts, why: String::new(), alone: false, kernel: None }
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
        let list = [entry("b", &["fail"]), entry("c", &["pass", "differs"])];
        for verdict in ["pass", "differs"] {
            let run = [ran(&[("a", "pass"), ("b", "fail"), ("c", verdict)], &[])];
            assert_eq!(judge(&list, &names(&["a", "b", "c"]), &run), [""; 0]);
        }
    }

    #[test]
    fn a_row_without_result_is_red() {
        let problems = judge(&[], &names(&["a", "b"]), &[ran(&[("a", "pass")], &[])]);
        assert_eq!(problems, ["b has no result"]);
    }

    #[test]
    fn another_verdict_is_red_in_either_direction() {
        let list = [entry("b", &["fail", "differs"])];
        let problems = judge(&list, &names(&["a", "b"]), &[ran(&[("a", "fail"), ("b", "pass")], &[])]);
        assert_eq!(
            problems,
            ["a: fail instead of pass: something", "b: pass instead of fail or differs: something"]
        );
    }

    #[test]
    fn the_list_names_rows_that_there_are_and_each_once() {
        let list = [entry("x", &["fail"]), entry("a", &["fail"]), entry("a", &["fail"])];
        let problems = judge(&list, &names(&["a"]), &[ran(&[("a", "fail")], &[])]);
        assert_eq!(problems, ["the list has x, which is no row", "the list has a twice"]);
    }

    #[test]
    fn a_complaint_of_the_kernel_has_to_be_the_one_that_is_due() {
        let mut list = [entry("a", &["fail"])];
        let all = names(&["a"]);
        let oops = [ran(&[("a", "fail")], &["[ 1.0] BUG: kernel NULL pointer", "[ 1.1] Call Trace:"])];
        let quiet = [ran(&[("a", "fail")], &[])];
        assert_eq!(judge(&list, &all, &oops), ["the kernel complains: [ 1.0] BUG: kernel NULL pointer"]);
        list[0].kernel = Some("BUG: kernel NULL".to_owned());
        assert_eq!(judge(&list, &all, &oops), [""; 0]);
        assert_eq!(judge(&list, &all, &quiet), ["a: the kernel does not say \"BUG: kernel NULL\""]);
        list[0].kernel = Some("kernel BUG at".to_owned());
        assert_eq!(judge(&list, &all, &oops).len(), 1);
    }

    #[test]
    fn the_checked_in_lists_are_of_rows_that_there_are() {
        let page = include_str!("../../../../../docs/conform.md");
        let section = |title: &str| {
            let (_, section) = page.split_once(&format!("## {title}\n")).unwrap();
            section.split("\n## ").next().unwrap()
        };
        let of = |text, title| list(text).unwrap().into_iter().map(move |entry| (entry, section(title)));
        for (entry, section) in of(SERVER, "Our own server").chain(of(CLIENT, "Our own client")) {
            let Entry { name, verdicts, why, alone, kernel } = entry;
            assert!(section.contains(&format!("| pass    | {name} ")), "{name}");
            assert!(!verdicts.is_empty() && verdicts != ["pass"], "{name}: {verdicts:?}");
            for verdict in &verdicts {
                assert!(["pass", "differs", "fail", "not_applicable"].contains(&verdict.as_str()), "{name}");
            }
            assert!(!why.is_empty() && !why.contains('|') && !why.ends_with('.'), "{name}: {why}");
            assert!(alone || kernel.is_none(), "{name}: a row that makes the kernel complain runs alone");
        }
    }
}
