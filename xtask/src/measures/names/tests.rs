use super::*;

fn tree(files: &[(&str, &str, &str)]) -> Tree {
    let module = |path: &str| path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let files = files.iter().map(|(path, of, text)| File::parse(path, module(of), text).unwrap());
    Tree { files: files.collect() }
}

fn arrows(tree: &Tree) -> Vec<(String, String)> {
    let uses = Names::of(tree).uses(tree);
    uses.into_iter().map(|used| (used.from.join("::"), used.to.join("::"))).collect()
}

fn arrow(from: &str, to: &str) -> (String, String) {
    (from.to_owned(), to.to_owned())
}

#[test]
fn names_lead_to_the_file_that_defines_them() {
    let lib = ("lib.rs", "", "mod one; mod two; pub use two::Two;");
    let two = ("two.rs", "two", "pub struct Two; pub fn make() {}");
    for text in [
        "use crate::two::Two;",
        "use super::two::{self};",
        // A re-export of the parent.
        "use crate::Two;",
        "fn f() { crate::two::make() }",
        "type T = super::Two;",
        // All names of the parent.
        "use super::*; fn f() -> Two { loop {} }",
        // Tokens of a macro.
        "fn f() { println!(\"{:?}\", crate::two::make()) }",
        "mod inner { use super::super::two::make; }",
    ] {
        let tree = tree(&[lib, two, ("one.rs", "one", text)]);
        assert_eq!(arrows(&tree), [arrow("", "two"), arrow("one", "two")], "{text}");
    }
}

#[test]
fn tests_other_crates_and_a_files_own_names_draw_no_arrow() {
    let lib = ("lib.rs", "", "mod one; mod two;");
    let two = ("two.rs", "two", "pub struct Two;");
    for text in [
        "#[cfg(test)] use crate::two::Two;",
        "#[cfg(test)] mod tests { use crate::two::Two; }",
        "use bytes::Bytes; use std::fmt;",
        "/// See [`crate::two::Two`].\npub struct One; fn f() -> self::One { crate::one::One }",
        // A variable of a module's name.
        "use super::*; fn f(two: u32) -> u32 { two }",
    ] {
        assert_eq!(arrows(&tree(&[lib, two, ("one.rs", "one", text)])), [], "{text}");
    }
}

#[test]
fn re_exports_of_a_module_elsewhere_are_its_own_affair() {
    let tree = tree(&[
        ("lib.rs", "", "mod one; mod two; mod three;"),
        ("one.rs", "one", "use crate::two::Three;"),
        ("two.rs", "two", "pub use crate::three::Three;"),
        ("three.rs", "three", "pub struct Three;"),
    ]);
    assert_eq!(arrows(&tree), [arrow("one", "two"), arrow("two", "three")]);
}

#[test]
fn a_ring_of_re_exports_ends() {
    let tree = tree(&[
        ("lib.rs", "", "mod one; mod two;"),
        ("one.rs", "one", "pub use super::two::*; pub use super::two::Nothing; type T = Nothing;"),
        ("two.rs", "two", "pub use super::one::*; pub use super::one::Nothing;"),
    ]);
    assert_eq!(arrows(&tree), [arrow("one", "two"), arrow("two", "one")]);
}

#[test]
fn fields_of_tests_do_not_count() {
    let file = |text| File::parse("one.rs", vec!["one".to_owned()], text).unwrap();
    assert!(reads_field(&file("fn f(x: X) -> u32 { x.ledger.y }"), "ledger"));
    assert!(reads_field(&file("fn f() -> X { X { ledger: 1 } }"), "ledger"));
    assert!(!reads_field(&file("fn ledger() {} #[cfg(test)] fn f(x: X) -> u32 { x.ledger }"), "ledger"));
}
