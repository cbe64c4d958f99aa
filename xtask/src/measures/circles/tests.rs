use super::*;
use crate::source::File;

fn tree(files: &[(&str, &str)]) -> Tree {
    let files = files.iter().map(|(path, text)| {
        let module =
            path.trim_end_matches(".rs").trim_end_matches("lib").split('/').filter(|name| !name.is_empty());
        File::parse(path, module.map(str::to_owned).collect(), text).unwrap()
    });
    Tree { files: files.collect() }
}

fn nodes(circles: &[Circle]) -> Vec<String> {
    circles.iter().map(ToString::to_string).collect()
}

/// `a`, a folder, and `b`, a file, name each other.
const CIRCLE: [(&str, &str); 4] = [
    ("lib.rs", "mod a; mod b;"),
    ("a.rs", "mod deep;"),
    ("a/deep.rs", "use crate::b::B; pub struct Deep;"),
    ("b.rs", "use crate::a::deep::Deep; pub struct B;"),
];

#[test]
fn a_folder_and_a_file_that_name_each_other_are_a_circle() {
    let circles = circles("iwarp", &tree(&CIRCLE));
    assert_eq!(nodes(&circles), ["iwarp: /{a, b}"]);
    assert_eq!(circles[0].arrows, ["a -> b (a/deep.rs:1)", "b -> a (b.rs:1)"]);
}

#[test]
fn files_alone_and_one_way_are_none() {
    let alone = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
    assert_eq!(circles("iwarp", &tree(&alone)), []);
    let one_way = [CIRCLE[0], CIRCLE[1], CIRCLE[2], ("b.rs", "pub struct B;")];
    assert_eq!(circles("iwarp", &tree(&one_way)), []);
}

#[test]
fn a_circle_may_go_through_the_root_of_a_folder_and_lie_deeper() {
    let deeper: Vec<(String, &str)> =
        CIRCLE.iter().map(|(path, text)| (format!("x/{path}"), *text)).collect();
    let deeper: Vec<(String, String)> = deeper
        .into_iter()
        .map(|(path, text)| (path.replace("x/lib.rs", "x.rs"), text.replace("crate", "crate::x")))
        .collect();
    let mut files: Vec<(&str, &str)> =
        deeper.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    files.push(("lib.rs", "mod x;"));
    assert_eq!(nodes(&circles("iwarp", &tree(&files))), ["iwarp: x/{a, b}"]);
}

#[test]
fn the_doors_of_the_engine_are_left_out() {
    let doors: Vec<(String, String)> = CIRCLE
        .iter()
        .map(|(path, text)| {
            (path.replace("a", "two"), text.replace("mod a", "mod two").replace("::a::", "::two::"))
        })
        .collect();
    let files: Vec<(&str, &str)> = doors.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    assert_eq!(circles("proto", &tree(&files)), []);
    assert_eq!(nodes(&circles("iwarp", &tree(&files))), ["iwarp: /{b, two}"]);
}

#[test]
fn exceptions_have_to_be_what_is_there() {
    let circles = circles("iwarp", &tree(&CIRCLE));
    assert_eq!(compare(&circles, &[("iwarp", "", &["a", "b"])]), Vec::<String>::new());
    assert!(compare(&circles, &[])[0].contains("a new import circle: iwarp: /{a, b}"));
    assert!(compare(&circles, &[("iwarp", "", &["a", "b", "c"])])[0].contains("c left the circle"));
    assert!(compare(&[], &[("iwarp", "", &["a", "b"])])[0].contains("remove it from the list"));
    let elsewhere = compare(&circles, &[("sim", "", &["a", "b"])]);
    assert_eq!(elsewhere.len(), 2, "{elsewhere:?}");
}
