use super::*;

fn file(text: &str) -> File {
    File::parse("a.rs", vec!["a".to_owned()], text).unwrap()
}

const SAMPLE: &str = "\
//! A module.

/// A doc comment.
/* And another. */
pub struct Few {
    // A comment.
    one: u32,
    #[cfg(test)]
    seen: u32,
}

impl Few {
    /// Documented.
    #[must_use]
    fn method(
        &self,
    ) -> &'static str {

        \"text // that is
         no comment\"
    }
}

struct Config { a: u8, b: u8, c: u8 }
struct Pair(u8, u8);

#[cfg(all(test, feature = \"two\"))]
mod tests {
    struct Many { a: u8, b: u8, c: u8, d: u8 }
    fn long() {
        let x = 1;
    }
}
";

#[test]
fn code_lines_are_neither_blank_nor_comment_nor_test() {
    assert_eq!(file(SAMPLE).code_lines(), 14);
    assert_eq!(file("//! Nothing.\n\n/** None.\n * at all */\nstruct A;\n").code_lines(), 1);
}

#[test]
fn a_function_is_from_its_signature_to_its_brace() {
    let functions = functions(&file(SAMPLE));
    assert_eq!(functions.len(), 1, "{functions:?}");
    assert_eq!((functions[0].name.as_str(), functions[0].first, functions[0].lines()), ("method", 15, 7));
}

#[test]
fn fields_of_plain_data_and_of_tests_do_not_count() {
    let structs = structs(&Tree { files: vec![file(SAMPLE)] });
    let sizes: Vec<(usize, &str)> =
        structs.iter().map(|(fields, name, _)| (*fields, name.as_str())).collect();
    assert_eq!(sizes, [(2, "Pair"), (1, "Few")]);
}

#[test]
fn cfg_sites_of_tests_are_apart() {
    let text =
        "#[cfg(feature = \"two\")] mod a; #[cfg(not(feature = \"retired\"))] mod b; #[cfg(unix)] mod c;
        fn f() -> bool { cfg!(feature = \"two\") }
        #[cfg_attr(not(feature = \"two\"), allow(dead_code))] struct S;
        #[cfg(all(test, feature = \"two\"))] mod tests {}";
    let mut sites = CfgSites::default();
    cfg_sites("a.rs", text, Some(&file(text)), &mut sites);
    assert_eq!(
        sites,
        CfgSites { code: ["a.rs:1", "a.rs:1", "a.rs:2", "a.rs:3"].map(str::to_owned).into(), tests: 1 }
    );
    let mut sites = CfgSites::default();
    cfg_sites("a/tests.rs", text, None, &mut sites);
    assert_eq!(sites, CfgSites { code: Vec::new(), tests: 5 });
}
