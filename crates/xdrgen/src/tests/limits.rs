//! Limits: at each one, and one beyond it.

use std::fs;

use super::{code, marked};
use crate::{DEPTH_MAX, Error, FILE_MAX, FIXED_MAX, Generator, NAME_MAX};

fn error(text: &str) -> String {
    code(text).unwrap_err().to_string()
}

#[test]
fn types_inside_one_another() {
    let nested = |depth: usize| {
        let open = "struct { ".repeat(depth - 1);
        let close = " } a; ".repeat(depth - 1);
        format!("struct s {{ {open}int a;{close} }};")
    };
    assert!(code(&nested(DEPTH_MAX)).is_ok());
    // `struct s { ` and a `struct { ` for each level.
    let column = 12 + 9 * (DEPTH_MAX - 1) + 7;
    let message = format!("t.x:1:{column}: types inside one another, more than 32 deep");
    assert_eq!(error(&nested(DEPTH_MAX + 1)), message);
    assert_eq!(error(&nested(50_000)), message, "no text exhausts the stack");
}

#[test]
fn the_length_of_files() {
    let text = |length: usize| "const A = 1;".to_owned() + &" ".repeat(length - 12);
    assert!(code(&text(FILE_MAX)).is_ok());
    let message = "1:1: the file has more than 1048576 bytes";
    assert_eq!(error(&text(FILE_MAX + 1)), format!("t.x:{message}"));
    let marks = marked("const A = 1;", &" ".repeat(FILE_MAX + 1)).unwrap_err().to_string();
    assert_eq!(marks, format!("t.toml:{message}"));
    // A device without end is not read to its end.
    if cfg!(unix) {
        let endless = Generator::new("/dev/zero").generate().unwrap_err().to_string();
        assert_eq!(endless, format!("/dev/zero:{message}"));
    }
}

#[test]
fn the_length_of_names() {
    let name = |length: usize| "n".repeat(length);
    assert!(code(&format!("const {} = 1;", name(NAME_MAX))).is_ok());
    assert_eq!(
        error(&format!("const {} = 1;", name(NAME_MAX + 1))),
        "t.x:1:7: a name of 256 letters; at most 255 are allowed"
    );
    // Each member of a type without a name repeats the names around it.
    let nested = |depth: usize, inner: usize| {
        let open: String = (0..depth).map(|_| "struct { ").collect();
        let close: String = (0..depth).map(|_| format!("}} {};", name(NAME_MAX))).collect();
        format!("struct {} {{ {open} int a; {close} }};", name(inner))
    };
    assert!(code(&nested(3, NAME_MAX)).is_ok());
    assert!(code(&nested(4, NAME_MAX)).unwrap_err().to_string().ends_with(
        "the names of the types and members around this type have 1279 letters; at most 1024 are allowed"
    ));
}

/// The work grows with the text. Work that grew with its square would take minutes for each of these.
#[test]
fn the_largest_files() {
    let filled = |begin: &str, each: &dyn Fn(usize) -> String, end: &str| {
        let mut text = begin.to_owned();
        for number in 1.. {
            let next = each(number);
            if text.len() + next.len() + end.len() > FILE_MAX {
                break;
            }
            text.push_str(&next);
        }
        text + end
    };
    let halves = |number: usize| -> String {
        (0..16).map(|bit| if number >> bit & 1 == 1 { "a__" } else { "a_" }).collect()
    };
    for (name, text) in [
        ("values", filled("enum e { A = 0", &|n| format!(", a{n} = {n}"), " };")),
        ("names of one value", filled("enum e { A = 0", &|n| format!(", a{n} = 0"), " };")),
        (
            "cases",
            filled("enum e { A = 0 }; union u switch (int a) { ", &|n| format!("case {n}: "), "void; };"),
        ),
        ("names that become one", filled("", &|n| format!("typedef int {}b;", halves(n)), "")),
        (
            "procedures",
            filled("program P { version V { ", &|n| format!("int a{n}(string) = {n};"), " } = 1; } = 1;"),
        ),
        (
            "typedefs",
            filled(
                "typedef int t0;",
                &|n| format!("typedef t{} t{n}; struct s{n} {{ t{n} a; }};", n - 1),
                "",
            ),
        ),
        ("types of elsewhere", filled("%t", &|n| format!("\n%a{n}\ntypedef t b{n}<>;"), "")),
    ] {
        let done = code(&text).map(|_| ());
        assert!(done.is_ok(), "{name}: {done:?}");
    }
}

#[test]
fn arrays_and_members_in_place() {
    assert!(code(&format!("typedef opaque a[{FIXED_MAX}];")).is_ok());
    assert_eq!(
        error(&format!("typedef opaque a[{}];", FIXED_MAX + 1)),
        "t.x:1:18: an array of fixed length 65537; at most 65536 is allowed"
    );
    assert!(code("typedef int a[64]; typedef a b[256];").is_ok());
    assert_eq!(
        error("typedef int a[65536]; typedef a b[65536]; typedef b c[65536]; typedef c d[65536];"),
        "t.x:1:13: `a` holds 262144 bytes in members and arrays of fixed length; at most 65536 are allowed"
    );
    assert_eq!(
        error("struct s { opaque a[65536]; int b; };"),
        "t.x:1:8: `s` holds 65540 bytes in members and arrays of fixed length; at most 65536 are allowed"
    );
}

/// Each type of a long chain names the next one. No walk over it recurses.
#[test]
fn a_long_chain_of_types() {
    let link = |number: u32| format!("typedef t{} t{number};", number + 1);
    let chain: String = (0..20_000).map(link).collect();
    assert!(code(&format!("{chain} typedef int t20000;")).is_ok());
    let circle = error(&format!("{chain} typedef t0 t20000;"));
    assert_eq!(
        circle,
        "t.x:1:12: `t0` holds itself in place, so its size has no end: it must do so by `*` or `<>`"
    );
    let link = |number: u32| format!("struct t{number} {{ t{} *a; int b; }};", number + 1);
    let chain: String = (0..20_000).map(link).collect();
    assert!(code(&format!("{chain} typedef int t20000;")).is_ok());
    assert!(code(&format!("{chain} typedef t0 t20000;")).is_ok());
}

#[test]
fn files_that_are_not_there() {
    let missing = Generator::new("no/such.x").generate();
    assert!(matches!(&missing, Err(Error::File { path, .. }) if path.ends_with("such.x")), "{missing:?}");
    let missing = Generator::new("t.x").text("").marks("no/such.toml").generate();
    assert!(matches!(&missing, Err(Error::File { path, .. }) if path.ends_with("such.toml")), "{missing:?}");
    let unwritten = Generator::new("t.x").text("").write_to("no/such");
    assert!(matches!(&unwritten, Err(Error::File { path, .. }) if path.ends_with("t.rs")), "{unwritten:?}");
}

#[test]
fn bytes_that_are_no_utf8() {
    let directory = std::env::temp_dir().join(format!("rpcrdma-xdrgen-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("latin1.x");
    fs::write(&file, b"/* f\xfcr */ const A = 1;").unwrap();
    assert!(Generator::new(&file).generate().unwrap().contains("pub const A: u32 = 1;"));
    fs::write(&file, b"const \xfc = 1;").unwrap();
    let error = Generator::new(&file).generate().unwrap_err().to_string();
    assert!(
        error.ends_with("latin1.x:1:7: the character `\\u{fffd}` has no meaning in the language"),
        "{error}"
    );
    let written = Generator::new(&file).text("const A = 1;").write_to(&directory).unwrap();
    assert_eq!(written, directory.join("latin1.rs"));
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn paths_of_the_crate() {
    for path in ["", "::", "a b", "a::", "1a", "a;"] {
        let error = Generator::new("t.x").text("").crate_path(path).generate().unwrap_err().to_string();
        assert_eq!(error, format!("`{path}` is no path of a crate, such as `::rpcrdma` or `crate::rpc`"));
    }
}
