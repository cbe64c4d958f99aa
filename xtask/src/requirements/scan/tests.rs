use super::*;

/// Returns line, id and test of each annotation.
fn found(text: &str) -> Vec<(usize, String, Option<String>)> {
    of_text(text).unwrap().into_iter().map(|a| (a.line, a.id, a.test)).collect()
}

/// Returns the tests of the annotations in a text.
fn tests(text: &str) -> Vec<Option<String>> {
    found(text).into_iter().map(|(_, _, test)| test).collect()
}

fn at(line: usize, id: &str, test: Option<&str>) -> (usize, String, Option<String>) {
    (line, id.to_owned(), test.map(str::to_owned))
}

#[test]
fn above_and_inside_of_a_test() {
    let text = r#"
/// Does something.
// requirement: a-1-1, a-1-2
#[test]
fn first() {
    for row in [1] {
        // requirement: a-2-1
        check(row);
    }
}

// requirement: a-3-1
#[tokio::test(start_paused = true)]
// requirement: a-3-2
async fn second() {}

// requirement: a-4-1
fn helper() {}
"#;
    let expected = [
        at(3, "a-1-1", Some("first")),
        at(3, "a-1-2", Some("first")),
        at(7, "a-2-1", Some("first")),
        at(12, "a-3-1", Some("second")),
        at(14, "a-3-2", Some("second")),
        at(17, "a-4-1", None),
    ];
    assert_eq!(found(text), expected);
}

#[test]
fn tests_in_modules_and_in_proptest() {
    let text = r#"
mod tests {
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any bytes.
        // requirement: a-1-1
        #[test]
        fn any(bytes in vec(any::<u8>(), 0..9)) {
            // requirement: a-1-2
            check(bytes);
        }
    }
}
"#;
    assert_eq!(tests(text), [Some("any".to_owned()), Some("any".to_owned())]);
}

#[test]
fn what_is_no_test_proves_nothing() {
    for text in [
        "// requirement: a-1-1\n#[test]\n#[ignore]\nfn slow() {}",
        "// requirement: a-1-1\n#[test]\n#[ignore = \"slow\"]\nfn slow() {}",
        "// requirement: a-1-1\n#[cfg(test)]\nfn helper() {}",
        "// requirement: a-1-1\n#[cfg(test)]\nmod tests { #[test] fn one() {} }",
        "// requirement: a-1-1\nconst ONE: u8 = 1;\n#[test]\nfn one() {}",
        "#[test]\nfn one() {}\n// requirement: a-1-1\nfn helper() {}",
        "// requirement: a-1-1\n\n#[test]\nfn one() {}",
        "macro_rules! case { ($name:ident) => {\n// requirement: a-1-1\n#[test]\nfn $name() {} } }",
        "// requirement: a-1-1\n#[test]\n#[cfg_attr(unix, ignore)]\nfn slow() {}",
        "// requirement: a-1-1\n#[test]\n#[cfg(windows)]\nfn other_system() {}",
        "/*\n// requirement: a-1-1\n#[test]\nfn one() {}\n*/",
        "#[test]\nconst fn one();\n// requirement: a-1-1\nfn helper() {}",
    ] {
        assert_eq!(tests(text), [None], "{text}");
    }
}

#[test]
fn a_literal_holds_no_comments() {
    let text = "#[test]\nfn one() {\n    let text = \"\n// requirement: a-1-1\n\";\n}";
    assert_eq!(found(text), []);
    let raw =
        "#[test]\nfn one() {\n    let text = r#\"\n// requirement: a-1-1\n\"#;\n    // requirement: a-1-2\n}";
    assert_eq!(found(raw), [at(6, "a-1-2", Some("one"))]);
    assert_eq!(found("const MARK: &str = \"// requirement: a-1-1\";"), []);
    let behind = "#[test]\nfn one() {\n    let x = \"ö // requirement: a\"; // requirement: a-1-1\n}";
    assert!(of_text(behind).is_err(), "the second one is a comment");
}

#[test]
fn what_is_almost_an_annotation_is_refused() {
    for line in [
        "//requirement: a-1-1",
        "//  requirement: a-1-1",
        "/// requirement: a-1-1",
        "//! requirement: a-1-1",
        "let one = 1; // requirement: a-1-1",
        "// requirement:",
        "// requirement: a-1-1,",
        "// requirement: a-1-1 a-1-2",
        "// requirement: a-1-1 (see there)",
    ] {
        let text = format!("fn one() {{\n    {line}\n}}\n");
        let failure = of_text(&text).unwrap_err().to_string();
        assert!(failure.starts_with("line 2: "), "{line}: {failure}");
    }
}

#[test]
fn words_about_requirements_are_no_annotation() {
    for line in
        ["// requirement is tested elsewhere", "// of conformance: much", "/// The conformance tests."]
    {
        assert_eq!(found(&format!("fn one() {{}}\n{line}\nfn two() {{}}\n")), [], "{line}");
    }
}

#[test]
fn what_is_not_rust_is_refused() {
    assert!(of_text("// requirement: a-1-1\nfn one() {").is_err());
}

/// This file has annotations, so the scan of the workspace must find it.
#[test]
fn the_workspace_is_scanned() {
    let files = workspace(&crate::project::project().unwrap()).unwrap();
    let proto = files.iter().find(|file| file.path == "crates/proto/src/wire/v1/tests.rs").unwrap();
    assert!(proto.annotations.iter().all(|annotation| annotation.test.is_some()));
    assert!(
        files.iter().all(|file| !file.path.starts_with("xtask/src/requirements")),
        "fixtures are literals"
    );
}
