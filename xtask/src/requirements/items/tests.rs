use tempfile::TempDir;

use super::*;

/// Returns the names of the tests in a text.
fn names(text: &str) -> Vec<String> {
    Items::of(text, &Build::default()).unwrap().tests.into_iter().map(|test| test.name).collect()
}

#[test]
fn tests_that_a_build_has() {
    for text in [
        "#[test] fn one() {}",
        "#[tokio::test(start_paused = true)] async fn one() {}",
        "#[test] #[should_panic] fn one() {}",
        "#[test] #[cfg(unix)] fn one() {}",
        "#[cfg_attr(unix, test)] fn one() {}",
        "#[test] #[cfg_attr(windows, ignore)] fn one() {}",
        "#[cfg(test)] mod tests { mod inner { #[test] fn one() {} } }",
        "#![cfg(unix)] #[test] fn one() {}",
        "proptest! { #![proptest_config(x)] #[test] fn one(a in 0..9) {} }",
        "proptest::proptest! { #[test] fn one(a in 0..9) {} }",
        "use a::{b, c}; const F: fn() = f; impl A { fn x() {} } #[test] fn one() {}",
    ] {
        assert_eq!(names(text), ["one"], "{text}");
    }
}

#[test]
fn a_test_that_is_ignored_does_not_count() {
    for text in [
        "#[test] #[ignore] fn one() {}",
        "#[ignore = \"slow\"] #[test] fn one() {}",
        "#[test] #[cfg_attr(unix, ignore)] fn one() {}",
        "#[test] #[cfg_attr(all(test, unix), ignore = \"slow\")] fn one() {}",
        "#[cfg_attr(test, cfg_attr(unix, ignore))] #[test] fn one() {}",
    ] {
        assert_eq!(names(text), [""; 0], "{text}");
    }
}

#[test]
fn a_test_that_is_configured_out_does_not_count() {
    for text in [
        "#[test] #[cfg(any())] fn one() {}",
        "#[cfg(windows)] #[test] fn one() {}",
        "#[cfg(feature = \"unknown\")] mod tests { #[test] fn one() {} }",
        "#[cfg(any())] mod outer { mod tests { #[test] fn one() {} } }",
        "mod tests { #![cfg(any())] #[test] fn one() {} }",
        "#![cfg(not(test))] #[test] fn one() {}",
        "#![cfg_attr(test, cfg(any()))] #[test] fn one() {}",
        "#[cfg_attr(windows, test)] fn one() {}",
        "#[cfg(any())] proptest! { #[test] fn one(a in 0..9) {} }",
    ] {
        assert_eq!(names(text), [""; 0], "{text}");
    }
}

#[test]
fn a_test_where_cargo_does_not_look_does_not_count() {
    for text in [
        "/* #[test] fn one() {} */",
        "// #[test]\nfn one() {}",
        "macro_rules! never { () => { #[test] fn one() {} } }",
        "discard! { #[test] fn one() {} }",
        "discard!(#[test] fn one() {});",
        "fn outer() { #[test] fn one() {} }",
        "const _: () = { #[test] fn one() {} };",
        "impl A { #[test] fn one() {} }",
    ] {
        assert_eq!(names(text), [""; 0], "{text}");
    }
}

/// Makes a folder with these files, of which the first one is the root of the build.
fn tests_of(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut tests = Tests::new();
    let build = Build { root: folder.path().join(files[0].0), ..Build::default() };
    collect(&build, &mut tests).unwrap();
    let root = folder.path().canonicalize().unwrap();
    let below = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    tests
        .iter()
        .flat_map(|(path, tests)| tests.iter().map(move |test| (below(path), test.name.clone())))
        .collect()
}

#[test]
fn a_file_counts_only_if_a_module_reaches_it() {
    let found = tests_of(&[
        (
            "tests/main.rs",
            "mod a; mod b { mod c; } #[path = \"../other/d.rs\"] mod d; #[cfg(any())] mod off;",
        ),
        ("tests/a.rs", "mod inner; #[test] fn a() {}"),
        ("tests/a/inner.rs", "#[test] fn inner() {}"),
        ("tests/b/c/mod.rs", "mod e; #[test] fn c() {}"),
        ("tests/b/c/e.rs", "#[test] fn e() {}"),
        ("other/d.rs", "mod f; #[test] fn d() {}"),
        ("other/f.rs", "#[test] fn f() {}"),
        ("tests/off.rs", "#[test] fn off() {}"),
        ("tests/orphan.rs", "#[test] fn orphan() {}"),
        ("tests/a/orphan.rs", "#[test] fn orphan() {}"),
    ]);
    let expected = [
        ("other/d.rs", "d"),
        ("other/f.rs", "f"),
        ("tests/a/inner.rs", "inner"),
        ("tests/a.rs", "a"),
        ("tests/b/c/e.rs", "e"),
        ("tests/b/c/mod.rs", "c"),
    ];
    assert_eq!(found, expected.map(|(path, name)| (path.to_owned(), name.to_owned())));
}

#[test]
fn a_module_without_a_file_is_an_error() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("lib.rs");
    fs::write(&root, "mod gone;").unwrap();
    let failure = collect(&Build { root, ..Build::default() }, &mut Tests::new()).unwrap_err();
    assert!(failure.to_string().contains("module gone has neither"), "{failure}");
}
