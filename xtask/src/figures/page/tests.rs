use super::*;

const LINE: &str = "<!-- figures: rpcrdma bench | 1234567 | 2026-11-24 | 2 x AMD EPYC -->";

fn origin() -> Origin {
    Origin {
        command: "rpcrdma bench".to_owned(),
        commit: Commit::Measured("1234567".to_owned()),
        date: "2026-11-24".to_owned(),
        machine: "2 x AMD EPYC".to_owned(),
    }
}

fn parsed(line: &str) -> Result<Origin, String> {
    Origin::parse(line).expect("a line of figures")
}

#[test]
fn a_line_states_the_origin() {
    assert_eq!(parsed(LINE), Ok(origin()));
    assert_eq!(origin().to_string(), LINE);
    for commit in ["written in 1234567", "not recorded"] {
        let line = LINE.replace("1234567", commit);
        assert_eq!(parsed(&line).unwrap().to_string(), line);
    }
    assert!(parsed(&LINE.replace("2026-11-24", "not recorded")).is_ok());
    assert_eq!(Origin::parse("<!-- measures -->"), None);
    assert_eq!(Origin::parse("Some text"), None);
}

#[test]
fn a_part_that_is_wrong_is_named() {
    for (part, wrong, reason) in [
        ("1234567", "123456", "\"123456\" is no hash of a commit"),
        ("1234567", "HEAD", "\"HEAD\" is no hash of a commit"),
        // Of files that no commit has.
        ("1234567", "1234567-dirty", "\"1234567-dirty\" is no hash of a commit"),
        ("1234567", "written in main", "\"main\" is no hash of a commit"),
        ("2026-11-24", "today", "\"today\" is neither YYYY-MM-DD nor \"not recorded\""),
        ("2026-11-24", "2026-11-4", "\"2026-11-4\" is neither YYYY-MM-DD nor \"not recorded\""),
        ("2 x AMD EPYC", " ", "the command or the machine is empty"),
    ] {
        assert_eq!(parsed(&LINE.replace(part, wrong)), Err(reason.to_owned()));
    }
    for line in
        [LINE.replace(" | 2 x AMD EPYC", ""), LINE.replace(" -->", " | more -->"), LINE.replace(" -->", "")]
    {
        assert!(parsed(&line).unwrap_err().ends_with("is not COMMAND | COMMIT | DATE | MACHINE"), "{line}");
    }
}

/// Returns line, and whether there is a good origin, of all figures of a page.
fn found(page: &str) -> Vec<(usize, bool)> {
    figures(page).iter().map(|figures| (figures.line, figures.origin.is_ok())).collect()
}

#[test]
fn tables_and_results_need_the_line_directly_above() {
    let figures =
        ["| a | b |\n| --- | ---: |\n| x | 1 |", "| Verdict | row |\n| - | - |", "```text\n12 calls\n```"];
    for text in figures {
        assert_eq!(found(&format!("{LINE}\n\n{text}\n")), [(3, true)], "{text}");
        assert_eq!(found(&format!("{LINE}\n{text}\n")), [(2, true)], "{text}");
        assert_eq!(found(text), [(1, false)], "{text}");
        assert_eq!(found(&format!("{LINE}\n\nWords.\n\n{text}\n")), [(5, false)], "{text}");
        assert_eq!(found(&format!("{LINE}\n{text}\n\n{text}\n")).iter().filter(|(_, good)| *good).count(), 1);
    }
}

#[test]
fn other_tables_and_fences_need_none() {
    for text in [
        "| a | b |\n| --- | :--- |\n| x | 1 |",
        "| a | b |\n\n| --- | ---: |",
        "| verdict | meaning |\n| --- | --- |",
        "```sh\n| a |\n| ---: |\n```",
        "```\ntext\n```\n",
        "a --- b\n---",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
    let inside = "```sh\n```text\n```\n";
    assert_eq!(found(inside), [], "a fence in a fence");
}
