//! The tests of a build: its module tree from the root file, without the items that the build leaves out.
//!
//! A test is a function with an attribute `test` (also `tokio::test`) that is not ignored, in a module or in
//! `proptest!`. `cargo test` runs none of the others: functions in functions, in definitions of macros, and in files
//! that no `mod` reaches. What another macro makes of its tokens is unknown, so tests in its arguments do not count.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, Meta, Token};

use super::builds::Build;
use crate::failure::{Context, Failure, ensure};

/// The function of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// Its lines, with the comments and attributes directly above.
    pub(crate) lines: RangeInclusive<usize>,
}

/// The tests of files, by canonical path: `#[path]` has several for one file.
pub(crate) type Tests = BTreeMap<PathBuf, Vec<Test>>;

/// A module in a file of its own.
#[derive(Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// The inline modules around it.
    within: Vec<String>,
    /// The value of `#[path = "…"]`.
    path: Option<String>,
}

/// Adds the tests of a build.
pub(crate) fn collect(build: &Build, tests: &mut Tests) -> Result<(), Failure> {
    let mut open = vec![(build.root.clone(), true)];
    while let Some((path, owns_folder)) = open.pop() {
        let text = fs::read_to_string(&path).context(path.display())?;
        let items = Items::of(&text, build).context(path.display())?;
        let folder = path.parent().unwrap_or(&path);
        let below = if owns_folder { folder.to_owned() } else { path.with_extension("") };
        for module in &items.modules {
            open.push(located(module, folder, &below)?);
        }
        let path = path.canonicalize().context(path.display())?;
        let found = tests.entry(path).or_default();
        for test in items.tests {
            if !found.contains(&test) {
                found.push(test);
            }
        }
    }
    Ok(())
}

/// Returns the file of a module, and whether its own modules are in its folder rather than in one of its name.
fn located(module: &Module, folder: &Path, below: &Path) -> Result<(PathBuf, bool), Failure> {
    let within = |base: &Path| module.within.iter().fold(base.to_owned(), |path, name| path.join(name));
    if let Some(path) = &module.path {
        let base = if module.within.is_empty() { folder.to_owned() } else { within(below) };
        return Ok((base.join(path), true));
    }
    let base = within(below);
    let single = base.join(format!("{}.rs", module.name));
    if single.exists() {
        return Ok((single, false));
    }
    let inner = base.join(&module.name).join("mod.rs");
    ensure!(
        inner.exists(),
        "module {} has neither {} nor {}",
        module.name,
        single.display(),
        inner.display()
    );
    Ok((inner, true))
}

/// The items of one file that matter here. Tokens know their positions; comments are not tokens.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    build: &'a Build,
    lines: Vec<&'a str>,
    pub(crate) tests: Vec<Test>,
    modules: Vec<Module>,
}

/// The part of an item that has been read: enough to know what its braces hold.
enum Head {
    Open,
    Function(String),
    Module(String),
    Proptest,
    /// An item without tests.
    Other,
}

impl<'a> Items<'a> {
    /// Reads the text of a file.
    pub(crate) fn of(text: &'a str, build: &'a Build) -> Result<Self, Failure> {
        let stream: TokenStream = text.parse().map_err(|error| Failure::new(format!("not Rust: {error}")))?;
        let mut items = Self { build, lines: text.lines().collect(), tests: Vec::new(), modules: Vec::new() };
        items.walk(stream, &[]);
        Ok(items)
    }

    /// Walks over the items of the file, of an inline module, or of `proptest!`.
    fn walk(&mut self, stream: TokenStream, within: &[String]) {
        let mut tokens = stream.into_iter().peekable();
        let mut attributes = Attributes::default();
        let mut head = Head::Open;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let inner = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!');
                    let inner = tokens.next_if(inner).is_some();
                    let Some(TokenTree::Group(group)) = tokens.peek() else { continue };
                    let Ok(meta) = syn::parse2::<Meta>(group.stream()) else { continue };
                    if inner {
                        let mut of_all = Attributes::default();
                        of_all.add(&meta, self.build);
                        if of_all.off {
                            return;
                        }
                    } else {
                        attributes.first.get_or_insert(punct.span().start().line);
                        attributes.add(&meta, self.build);
                    }
                }
                TokenTree::Ident(ident) if matches!(head, Head::Open) => {
                    let next = tokens.peek().map(ToString::to_string).unwrap_or_default();
                    match ident.to_string().as_str() {
                        "fn" => head = Head::Function(next),
                        "mod" => head = Head::Module(next),
                        "proptest" if next == "!" => head = Head::Proptest,
                        "macro_rules" | "impl" | "trait" | "extern" if next != "fn" => head = Head::Other,
                        _ => {}
                    }
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.item(&head, &std::mem::take(&mut attributes), Some(&group), within);
                    head = Head::Open;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => {
                    self.item(&head, &std::mem::take(&mut attributes), None, within);
                    head = Head::Open;
                }
                _ => {}
            }
        }
    }

    /// Takes one item, with its braces if it has some.
    fn item(&mut self, head: &Head, attributes: &Attributes, braces: Option<&Group>, within: &[String]) {
        if attributes.off {
            return;
        }
        match (head, braces) {
            (Head::Function(name), Some(body)) if attributes.test && !attributes.ignored => {
                let lines = self.begin(attributes, body)..=body.span_close().end().line;
                self.tests.push(Test { name: name.clone(), lines });
            }
            (Head::Module(name), Some(body)) => {
                self.walk(body.stream(), &[within, std::slice::from_ref(name)].concat());
            }
            (Head::Module(name), None) => {
                let (name, within, path) = (name.clone(), within.to_vec(), attributes.path.clone());
                self.modules.push(Module { name, within, path });
            }
            (Head::Proptest, Some(body)) => self.walk(body.stream(), within),
            _ => {}
        }
    }

    /// Returns the first line of a test: of the comments directly above its attributes.
    fn begin(&self, attributes: &Attributes, body: &Group) -> usize {
        let first = attributes.first.unwrap_or_else(|| body.span_open().start().line);
        let above = |number: &usize| {
            number
                .checked_sub(1)
                .and_then(|index| self.lines.get(index))
                .is_some_and(|line| line.trim_start().starts_with("//"))
        };
        (1..first).rev().take_while(above).last().unwrap_or(first)
    }
}

/// The attributes in front of an item.
#[derive(Default)]
struct Attributes {
    /// Line of the first attribute.
    first: Option<usize>,
    test: bool,
    ignored: bool,
    /// Whether the build leaves the item out.
    off: bool,
    path: Option<String>,
}

impl Attributes {
    fn add(&mut self, meta: &Meta, build: &Build) {
        let path = meta.path();
        self.test |= path.segments.last().is_some_and(|last| last.ident == "test");
        self.ignored |= path.is_ident("ignore");
        match meta {
            Meta::List(list) if path.is_ident("cfg") => {
                self.off |= !list.parse_args::<Meta>().is_ok_and(|condition| build.holds(&condition));
            }
            Meta::List(list) if path.is_ident("cfg_attr") => {
                let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
                let mut parts = parts.into_iter().flatten();
                if parts.next().is_some_and(|condition| build.holds(&condition)) {
                    parts.for_each(|part| self.add(&part, build));
                }
            }
            Meta::NameValue(pair) if path.is_ident("path") => {
                if let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value {
                    self.path = Some(value.value());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
