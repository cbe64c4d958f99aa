//! All descriptions: they parse, print as descriptions that parse to equal trees, and give code that `rustfmt` leaves.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcrdma_xdrgen::Specification;

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("specs")
}

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(specs().join(folder)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension != "md"));
    files.sort();
    files
}

fn descriptions() -> Vec<PathBuf> {
    ["ietf", "ours"].into_iter().flat_map(files).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_str().unwrap().to_owned()
}

fn generated(file: &Path) -> String {
    fs::read_to_string(Path::new(env!("OUT_DIR")).join(stem(file)).with_extension("rs")).unwrap()
}

#[test]
fn each_text_parses_and_prints_as_an_equal_one() {
    let files = descriptions();
    assert_eq!(files.len(), 17);
    for file in files {
        let tree = Specification::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(Specification::parse(&tree.to_string()).as_ref(), Ok(&tree), "{}", file.display());
    }
}

/// Each side file belongs to a description.
#[test]
fn each_side_file_is_used() {
    let known: BTreeSet<String> = descriptions().iter().map(|file| stem(file)).collect();
    for marks in files("marks") {
        assert!(known.contains(&stem(&marks)), "{}", marks.display());
    }
}

/// No text of the IETF needs a side file to give code.
#[test]
fn the_texts_of_the_ietf_need_no_side_file() {
    for file in files("ietf") {
        let code = rpcrdma_xdrgen::Generator::new(&file).generate().unwrap();
        let types = code.lines().filter(|line| {
            ["pub struct ", "pub enum ", "pub type "].iter().any(|start| line.starts_with(start))
        });
        let fewest = [("nfs40", 200), ("nfs41", 350), ("nfs42", 400)];
        let (_, fewest) = fewest.iter().find(|(name, _)| stem(&file) == *name).unwrap();
        assert!(types.count() >= *fewest, "{}", file.display());
    }
}

/// The notices of the code components are there, as their licence requires.
#[test]
fn the_texts_of_the_ietf_have_their_notices() {
    for file in files("ietf") {
        let text = fs::read_to_string(&file).unwrap();
        for part in
            ["IETF Trust and the persons identified", "Redistribution and use in source and binary forms"]
        {
            assert!(text.contains(part), "{}", file.display());
        }
    }
}

#[test]
fn rustfmt_leaves_the_code_as_it_is() {
    for file in descriptions() {
        let code = generated(&file);
        let mut rustfmt = Command::new("rustfmt")
            .args(["--edition", "2024", "--config", "max_width=100,use_small_heuristics=Default"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("rustfmt is a part of the toolchain");
        rustfmt.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        let output = rustfmt.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout == code.as_bytes(), "{}", file.display());
    }
}
