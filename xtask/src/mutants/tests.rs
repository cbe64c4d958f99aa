use std::collections::BTreeSet;
use std::process::Command;

use super::rewrite::sites;
use super::splice::{Site, Spliced};
use super::*;
use crate::source::File;

fn rewritten(text: &str) -> (Vec<Mutant>, Vec<Site>) {
    let file = File::parse("lib.rs", Vec::new(), text).unwrap();
    let mut mutants = Vec::new();
    let sites = sites("lib.rs", &file, text, &mut mutants);
    (mutants, sites)
}

/// Returns the changes of a function's body.
fn changes(signature: &str, body: &str) -> Vec<String> {
    let (mutants, _) = rewritten(&format!("fn f({signature} {{ {body} }}"));
    mutants.into_iter().map(|mutant| mutant.change).collect()
}

/// Returns a text with its mutants, without spaces.
fn spliced(text: &str, dropped: &[usize]) -> String {
    let (_, mut sites) = rewritten(text);
    let spliced = Spliced::new(text, &mut sites, &dropped.iter().copied().collect());
    syn::parse_file(&spliced.text).unwrap();
    spliced.text.replace("crate::mutant::", "").split_whitespace().collect()
}

#[test]
fn a_body_returns_plain_values_of_its_type() {
    let of = |ty: &str| {
        let changes = changes(&format!(") -> {ty}"), "g()");
        changes
            .iter()
            .map(|change| change.replace("::core::default::Default::default()", "D"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("bool"), ["body → true", "body → false"]);
    assert_eq!(of("u32"), ["body → 0", "body → 1"]);
    assert_eq!(of("Option<(u8, A)>"), ["body → None", "body → Some((0, D))"]);
    assert_eq!(of("io::Result<()>"), ["body → Ok(())"]);
    assert_eq!(of("&str"), ["body → \"\""]);
    assert_eq!(of("impl Iterator<Item = u8>"), Vec::<String>::new());
    assert_eq!(changes(")", "let _ = g; h!();"), ["body → ()"]);
    // What the body does already is no change.
    assert_eq!(changes(") -> Option<u8>", "None"), ["body → Some(0)", "body → Some(1)"]);
    assert_eq!(changes(") -> A", "A::default()"), Vec::<String>::new());
}

#[test]
fn each_part_of_a_condition_is_true_or_false_where_that_matters() {
    assert_eq!(
        changes(")", "if a && !(b || c) { h!(); }")[1..],
        ["a → true", "a → false", "b → false", "c → false"]
    );
    assert_eq!(changes(")", "while let Some(x) = y {}")[1..], ["let Some(x) = y → never"]);
    assert_eq!(
        changes(")", "v.retain(|x| x.ok());"),
        ["v.retain(|x| x.ok()); → deleted", "x.ok() → true", "x.ok() → false"]
    );
    assert_eq!(changes(") -> bool", "a < b"), ["a < b → true", "a < b → false", "a < b → <="]);
    assert_eq!(changes(") -> bool", "true"), ["true → false"]);
}

#[test]
fn operators_numbers_arms_and_statements_change() {
    assert_eq!(
        changes(") -> A", "(a + 7u8).min(b)")[1..],
        ["(a + 7u8).min(b) → its receiver", "(a + 7u8).min(b) → its argument", "a + 7u8 → -", "7u8 → 8u8"]
    );
    assert_eq!(changes(") -> A", "a.saturating_sub(b)")[1..], ["a.saturating_sub(b) → saturating_add"]);
    assert_eq!(
        changes(")", "a.b += c; d.e(f)?; let g = h;")[1..],
        ["a.b += c → deleted", "d.e(f)?; → deleted"]
    );
    assert_eq!(
        changes(") -> A", "match a { B => c, D if e => f, _ => g }")[1..],
        ["arm B → deleted", "e → true", "e → false"]
    );
    assert_eq!(changes(") -> A", "match a { B => c, D => f }").len(), 1, "no arm takes the place of another");
}

#[test]
fn tests_constants_types_macros_and_hints_of_memory_stay() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> u8 { 1 + 1 } }",
        "const A: u8 = 1 + 1; static B: u8 = 2; enum C { D = 3 } struct E([u8; 4]);",
        "impl fmt::Debug for A { fn fmt(&self) -> u8 { 1 } }",
        "fn f() { println!(\"{}\", 1 + 1); }",
    ] {
        let (mutants, _) = rewritten(text);
        let of_body = mutants.iter().filter(|mutant| mutant.change != "body → ()");
        assert_eq!(of_body.count(), 0, "{text}");
    }
    assert_eq!(changes(") -> A", "Vec::with_capacity(1 + 1)").len(), 1);
    assert_eq!(changes(")", "self.a.reserve(1); let b = [c; 2];"), ["body → ()"]);
}

#[test]
fn a_text_has_all_its_mutants_behind_switches() {
    assert_eq!(
        spliced("fn f() -> bool { a < 3 }", &[]),
        "fnf()->bool{pick(0,pick(1,(match(&(a),&((ifon(3){4}else{3}))){(l,r)=>pick(2,l<r,l<=r)}),false),true)}"
    );
    assert_eq!(spliced("fn f() { self.a = 1; }", &[]), "fnf(){(if!on(0){self.a=(ifon(1){2}else{1})});}");
    assert_eq!(spliced("const fn f() -> u8 { a }", &[]), "fnf()->u8{ifon(0){return0;}ifon(1){return1;}a}");
}

#[test]
fn dropped_mutants_leave_the_text_as_it_was() {
    let text = "const fn f() -> u8 { a + 1 }";
    assert_eq!(spliced(text, &[0, 1, 2, 3]), text.replace(' ', ""), "a const fn again");
    assert_eq!(spliced(text, &[0, 2]), "fnf()->u8{ifon(1){return1;}a+(ifon(3){2}else{1})}");
}

#[test]
fn an_error_belongs_to_the_smallest_part_around_it() {
    let text = "fn f() -> u8 { a + 1 }\nfn g() {}";
    let (_, mut sites) = rewritten(text);
    let spliced = Spliced::new(text, &mut sites, &BTreeSet::new());
    let at = |part: &str| {
        let start = spliced.text.find(part).unwrap();
        spliced.mutants_at(&(start..start + part.len())).to_vec()
    };
    assert_eq!(at("return 1;"), [1]);
    assert_eq!(at("l - r"), [2]);
    assert_eq!(at("{ 2 }"), [3]);
    assert_eq!(at("l + r"), [2]);
    assert_eq!(at("fn f"), [0, 1, 2, 3]);
    assert!(at("fn g").is_empty());
}

#[test]
fn a_mutant_is_known_again_while_its_function_stays() {
    let identities = |text: &str| {
        let (mutants, _) = rewritten(text);
        mutants.into_iter().map(|mutant| mutant.identity).collect::<BTreeSet<_>>()
    };
    let (f, g) = ("fn f() -> u8 { a + b + b }", "fn g() -> u8 { 1 }");
    let before = identities(f);
    assert_eq!(before.len(), 4, "two equal changes are two mutants");
    assert!(identities(&format!("{g}\n{f}")).is_superset(&before));
    assert!(identities(&f.replace('a', "c")).is_disjoint(&before));
}

const MANIFEST: &str = "[workspace]\nmembers = [\"crates/*\"]\nresolver = \"3\"\n";
const PACKAGE: &str = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
const CODE: &str = "
pub const LIMIT: u32 = three();

const fn three() -> u32 {
    3
}

pub fn is_high(level: u32) -> bool {
    level > LIMIT
}

pub fn name() -> Name {
    Name
}

pub struct Name;

pub fn countdown(mut left: u32) {
    while left > 0 {
        left -= 1;
    }
}

pub fn idle() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    #[test]
    fn high() {
        assert!(super::is_high(5));
        super::countdown(3);
    }
}
";

/// Cargo builds a small package with its mutants, and its test kills some of them.
#[test]
fn the_tests_of_a_package_judge_its_mutants() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path();
    for (path, text) in
        [("Cargo.toml", MANIFEST), ("crates/small/Cargo.toml", PACKAGE), ("crates/small/src/lib.rs", CODE)]
    {
        build::write(&project.join(path), text.as_bytes()).unwrap();
    }
    for (program, arguments) in [("git", ["init", "-q"]), ("cargo", ["generate-lockfile", "--offline"])] {
        assert!(Command::new(program).args(arguments).current_dir(project).status().unwrap().success());
    }
    let options =
        Options { package: "small".into(), file: Vec::new(), with: Vec::new(), jobs: 2, again: false };
    let work = project.join("work");
    let report = mutants(project, &work, &options).unwrap();
    assert_eq!(report, REPORT);
    // Nothing is judged twice.
    let verdicts = fs::read_to_string(work.join("small.tsv")).unwrap();
    assert_eq!(mutants(project, &work, &options).unwrap(), REPORT);
    let again = fs::read_to_string(work.join("small.tsv")).unwrap();
    assert!(again.strip_prefix(&verdicts).unwrap().lines().all(|line| line.contains("not reached")));
}

const REPORT: &str = "\
| file in `crates/small/src/` | mutants | killed | of these by time-out | survived | not reached |
| --- | ---: | ---: | ---: | ---: | ---: |
| `lib.rs` | 11 | 5 | 1 | 3 | 3 |
| all | 11 | 5 | 1 | 3 | 3 |

crates/small/src/lib.rs:9 is_high: level > LIMIT → true (not reached)
crates/small/src/lib.rs:9 is_high: level > LIMIT → >= (not reached)
crates/small/src/lib.rs:18 countdown: body → () (survived)
crates/small/src/lib.rs:19 countdown: left > 0 → false (survived)
crates/small/src/lib.rs:19 countdown: 0 → 1 (survived)
crates/small/src/lib.rs:25 idle: 0 → 1 (not reached)
";
