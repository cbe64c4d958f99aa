//! Names of Rust for names of XDR.
//!
//! Types become `UpperCamelCase`, members and procedures `snake_case`, constants `SCREAMING_SNAKE_CASE`. Two names of XDR
//! may become one: the later one gets a number. Keywords of Rust become raw identifiers, or get an underscore.

use std::collections::{HashMap, HashSet};

/// Returns the words of a name, in lower case: it is cut at underscores, and where a capital follows a small letter.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = None;
    for letter in name.chars() {
        if letter == '_'
            || (letter.is_ascii_uppercase() && before.is_some_and(|b: char| b.is_ascii_lowercase()))
        {
            words.push(String::new());
        }
        before = Some(letter);
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

pub(crate) fn camel(words: &[String]) -> String {
    let mut name = String::new();
    for word in words {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

pub(crate) fn snake(words: &[String]) -> String {
    words.join("_")
}

pub(crate) fn screaming(words: &[String]) -> String {
    words.join("_").to_ascii_uppercase()
}

/// Returns the words of some names without those that all of them begin with. Each name keeps one word, and begins with
/// a letter.
pub(crate) fn without_prefix<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = names.into_iter().map(words).collect();
    if all.len() < 2 {
        return all;
    }
    let (mut lost, mut count) = (0, 0);
    // Each word is looked at once: names may be long, and many.
    while let Some(word) = all.first().and_then(|first| first.get(count))
        && all.iter().all(|words| words.get(count) == Some(word))
    {
        count += 1;
        let remains = |words: &Vec<String>| {
            words.get(count).is_some_and(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()))
        };
        if all.iter().all(remains) {
            lost = count;
        }
    }
    for words in &mut all {
        words.drain(..lost);
    }
    all
}

/// Returns the words of the names of a version's procedures, without those that all of them begin with. The name of a
/// single procedure loses what it shares with the name of its program.
pub(crate) fn of_procedures<'a>(
    program: &str,
    procedures: impl IntoIterator<Item = &'a str>,
) -> Vec<Vec<String>> {
    let mut all = without_prefix(procedures);
    if let [alone] = &mut *all {
        let shared =
            words(program).iter().zip(&*alone).take_while(|(of_program, own)| of_program == own).count();
        let begins_with_letter =
            |word: &String| word.starts_with(|letter: char| letter.is_ascii_alphabetic());
        if alone.get(shared).is_some_and(begins_with_letter) {
            alone.drain(..shared);
        }
    }
    all
}

/// The names of one scope of Rust.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    taken: HashSet<String>,
    /// The number that the next name like this one tries first.
    next: HashMap<String, u32>,
}

impl Scope {
    /// Creates a scope in which these names are taken.
    pub(crate) fn with(names: &[&str]) -> Self {
        Self { taken: names.iter().map(|name| (*name).to_owned()).collect(), next: HashMap::new() }
    }

    /// Returns this name, or a similar one if it is taken.
    pub(crate) fn take(&mut self, wanted: String) -> String {
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        let joint = if wanted.ends_with(|end: char| end.is_ascii_digit()) { "_" } else { "" };
        let next = self.next.entry(wanted.clone()).or_insert(2);
        loop {
            let other = format!("{wanted}{joint}{next}");
            *next = next.saturating_add(1);
            if self.taken.insert(other.clone()) {
                return other;
            }
        }
    }
}

/// Returns an identifier for a method or a module, whose name is also shown: never a raw one.
pub(crate) fn plain_identifier(name: String) -> String {
    if is_reserved(&name) || matches!(name.as_str(), "self" | "super" | "crate") { name + "_" } else { name }
}

/// Returns an identifier for a member.
pub(crate) fn identifier(name: String) -> String {
    match name.as_str() {
        "self" | "super" | "crate" => name + "_",
        word if is_reserved(word) => format!("r#{word}"),
        _ => name,
    }
}

/// Returns an identifier for an arm or a value.
pub(crate) fn variant_identifier(name: String) -> String {
    if name == "Self" { name + "_" } else { name }
}

/// Returns an identifier for a type: none that generated code uses for something else.
pub(crate) fn type_identifier(name: String) -> String {
    if TAKEN.contains(&name.as_str()) { name + "_" } else { name }
}

/// Names that mean something else in generated code.
const TAKEN: [&str; 24] = [
    "Self", "Option", "Some", "None", "Result", "Ok", "Err", "Vec", "Box", "String", "Bytes", "Text",
    "Payload", "Xdr", "Send", "Sync", "Future", "Into", "From", "Default", "Clone", "Copy", "Debug", "Drop",
];

/// Returns whether Rust reserves a word, in any edition.
fn is_reserved(word: &str) -> bool {
    matches!(
        word,
        "abstract"
            | "as"
            | "async"
            | "await"
            | "become"
            | "box"
            | "break"
            | "const"
            | "continue"
            | "do"
            | "dyn"
            | "else"
            | "enum"
            | "extern"
            | "false"
            | "final"
            | "fn"
            | "for"
            | "gen"
            | "if"
            | "impl"
            | "in"
            | "let"
            | "loop"
            | "macro"
            | "match"
            | "mod"
            | "move"
            | "mut"
            | "override"
            | "priv"
            | "pub"
            | "ref"
            | "return"
            | "static"
            | "struct"
            | "trait"
            | "true"
            | "try"
            | "type"
            | "typeof"
            | "unsafe"
            | "unsized"
            | "use"
            | "virtual"
            | "where"
            | "while"
            | "yield"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_names() {
        for (name, camel_case, snake_case) in [
            ("nfs_fh4", "NfsFh4", "nfs_fh4"),
            ("GETATTR3args", "Getattr3args", "getattr3args"),
            ("CB_GETATTR4res", "CbGetattr4res", "cb_getattr4res"),
            ("fooBar", "FooBar", "foo_bar"),
            ("a__b_", "AB", "a_b"),
            ("NFSv4", "Nfsv4", "nfsv4"),
            ("x", "X", "x"),
        ] {
            assert_eq!(
                (camel(&words(name)), snake(&words(name))),
                (camel_case.to_owned(), snake_case.to_owned())
            );
        }
    }

    #[test]
    fn common_prefixes_go_if_names_remain() {
        let strip = |names: &[&str]| -> Vec<String> {
            without_prefix(names.iter().copied()).iter().map(|words| camel(words)).collect()
        };
        assert_eq!(strip(&["OP_READ", "OP_WRITE_SAME"]), ["Read", "WriteSame"]);
        assert_eq!(strip(&["KV_A_X", "KV_A_Y"]), ["X", "Y"]);
        assert_eq!(strip(&["OP", "OP_READ"]), ["Op", "OpRead"], "a name would be empty");
        assert_eq!(strip(&["V_1", "V_2"]), ["V1", "V2"], "a name would begin with a digit");
        assert_eq!(strip(&["A_V_1", "A_V_2"]), ["V1", "V2"]);
        assert_eq!(strip(&["NFS3_OK", "NFS3ERR_PERM"]), ["Nfs3Ok", "Nfs3errPerm"]);
        assert_eq!(strip(&["OP_READ"]), ["OpRead"], "one name has no common prefix");
        assert_eq!(strip(&[]), [""; 0]);
    }

    #[test]
    fn a_single_procedure_loses_the_name_of_its_program() {
        for (program, procedures, expected) in [
            ("KV_PROG", &["KV_GET"][..], &["Get"][..]),
            ("KV", &["KV_GET"], &["Get"]),
            ("KV", &["KV"], &["Kv"]),
            ("KV", &["KV_1"], &["Kv1"]),
            ("KV", &["OTHER"], &["Other"]),
            ("KV", &["KV_GET", "KV_PUT"], &["Get", "Put"]),
        ] {
            let names = of_procedures(program, procedures.iter().copied());
            assert_eq!(names.iter().map(|words| camel(words)).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn names_that_are_taken() {
        let mut scope = Scope::with(&["Client"]);
        let wanted = ["Client", "A", "A", "A", "B3", "B3"];
        assert_eq!(
            wanted.map(|name| scope.take(name.to_owned())),
            ["Client2", "A", "A2", "A3", "B3", "B3_2"]
        );
    }

    #[test]
    fn words_of_rust() {
        assert_eq!(identifier("type".to_owned()), "r#type");
        assert_eq!(identifier("self".to_owned()), "self_");
        assert_eq!(identifier("data".to_owned()), "data");
        assert_eq!(plain_identifier("type".to_owned()), "type_");
        assert_eq!(plain_identifier("get".to_owned()), "get");
        assert_eq!(type_identifier("Option".to_owned()), "Option_");
        assert_eq!(type_identifier("Options".to_owned()), "Options");
    }
}
