use super::*;

fn measures(lines: usize, instructions: usize, free: usize) -> Vec<Measure> {
    vec![
        Measure::new("code", "code lines", "13,164", Now::Exact(lines), "≤ 11,600".to_owned()),
        Measure::new(
            "instructions",
            "instructions",
            "16,979",
            Now::Near(instructions),
            "≤ 14,500".to_owned(),
        ),
        Measure::new("checks", "checks", "≈ 130", Now::Free(free), "≤ 15".to_owned()),
    ]
}

fn origin() -> Origin {
    crate::figures::origin(std::path::Path::new("."), "measure", "any")
}

fn page() -> String {
    with_table(&format!("# A page\n\n{BEGIN}\n{END}\n\n## More\n"), &measures(12_345, 15_000, 70), &origin())
        .unwrap()
}

#[test]
fn the_table_stands_between_its_marks() {
    let page = page();
    assert!(
        page.contains("\n| code lines | 13,164 | 12,345 | ≤ 11,600 | `cargo xtask measures --list code` |\n")
    );
    assert!(page.contains(&format!("\n{}\n\n| measure | ", origin())), "{page}");
    assert!(page.starts_with("# A page\n") && page.ends_with("\n\n## More\n"), "{page}");
    assert_eq!(with_table(&page, &measures(12_345, 15_000, 70), &origin()).unwrap(), page);
    assert!(with_table("# A page\n", &measures(1, 1, 1), &origin()).is_err());
}

#[test]
fn a_table_is_stale_if_a_gated_figure_differs() {
    let page = page();
    assert_eq!(stale(&page, &measures(12_345, 15_000, 70)), [""; 0]);
    assert_eq!(
        stale(&page, &measures(12_345, 15_100, 60)),
        [""; 0],
        "within the tolerance, and without a gate"
    );
    assert_eq!(stale(&page, &measures(12_346, 15_000, 70)).len(), 1);
    assert_eq!(stale(&page, &measures(12_345, 15_500, 70)).len(), 1);
    assert_eq!(stale("# A page\n", &measures(1, 1, 1)).len(), 1, "no table");
    let unmeasured = vec![Measure::new("files", "files", "37", Now::Unmeasured, "≤ 22".to_owned())];
    assert_eq!(stale(&page, &unmeasured).len(), 1, "no row");
}

#[test]
fn a_count_beyond_its_gate_is_a_fault() {
    let measure = |now| Measure::new("code", "code lines", "–", now, String::new()).at_most(10);
    assert_eq!(measure(Now::Exact(10)).broken, [""; 0]);
    assert_eq!(measure(Now::Exact(11)).broken.len(), 1);
    assert_eq!(measure(Now::Near(11)).broken.len(), 1);
    assert_eq!(measure(Now::Unmeasured).broken, [""; 0]);
}

#[test]
fn the_files_of_a_call_are_the_first_column_of_their_section() {
    assert!(files_of_section("# A page\n").is_none());
    let page = format!(
        "{SECTION}\n\n| file | work |\n| --- | --- |\n| `connection.rs` | see `core.rs` |\n| `wire/v1.rs`, `connection.rs` | |\n\n## Next\n\n| `other.rs` |\n"
    );
    let files = files_of_section(&page).unwrap().unwrap();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), ["connection.rs", "wire/v1.rs"]);
    assert!(files_of_section(&format!("{SECTION}\n\nNothing.\n")).unwrap().is_err());
}
