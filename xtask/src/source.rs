//! The modules of a crate, parsed, with the lines that belong to tests.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, Item, Meta};

use crate::failure::{Context, Failure};

/// The parsed files of one crate without its tests: the module tree from `lib.rs` or `main.rs`, without modules
/// of tests.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// A file of a crate.
#[derive(Debug)]
pub(crate) struct File {
    /// Path below `src`, with slashes.
    pub(crate) path: String,
    /// Path of its module below the crate's root, empty for the root.
    pub(crate) module: Vec<String>,
    pub(crate) syntax: syn::File,
    /// Lines with code, of tests too: neither blank nor comment.
    code: BTreeSet<usize>,
    /// Lines of items for tests.
    tests: Vec<RangeInclusive<usize>>,
}

impl File {
    /// Parses a file.
    pub(crate) fn parse(path: &str, module: Vec<String>, text: &str) -> Result<Self, Failure> {
        let syntax = syn::parse_file(text).context(path)?;
        let stream: TokenStream = text.parse().map_err(|error| Failure::new(format!("{path}: {error}")))?;
        let lines: Vec<&str> = text.lines().collect();
        let mut code = BTreeSet::new();
        collect_code(stream, &lines, &mut code);
        let mut tests = Tests::default();
        tests.visit_file(&syntax);
        Ok(Self { path: path.to_owned(), module, syntax, code, tests: tests.lines })
    }

    /// Whether a line belongs to a test.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the number of lines with code, without tests.
    pub(crate) fn code_lines(&self) -> usize {
        self.code.iter().filter(|line| !self.is_test(**line)).count()
    }
}

impl Tree {
    /// Reads the crate whose sources are in this folder, from this root file.
    pub(crate) fn read(src: &Path, root: &str) -> Result<Self, Failure> {
        let mut tree = Self { files: Vec::new() };
        tree.add(src, &src.join(root), Vec::new())?;
        Ok(tree)
    }

    /// Adds a file and the files of its modules.
    fn add(&mut self, src: &Path, path: &Path, module: Vec<String>) -> Result<(), Failure> {
        let text = fs::read_to_string(path).context(path.display())?;
        let below = path.strip_prefix(src).unwrap_or(path);
        let file = File::parse(&slashes(below), module.clone(), &text)?;
        let folder = path.parent().unwrap_or(src);
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let below =
            if matches!(stem, "lib" | "main" | "mod") { folder.to_owned() } else { folder.join(stem) };
        let mut modules = Vec::new();
        out_of_line(&file.syntax.items, &below, &module, &mut modules);
        self.files.push(file);
        for (name, module, attributes, below) in modules {
            let path = match path_attribute(&attributes) {
                Some(path) => folder.join(path),
                None => {
                    let single = below.join(format!("{name}.rs"));
                    if single.exists() { single } else { below.join(&name).join("mod.rs") }
                }
            };
            self.add(src, &path, module)?;
        }
        Ok(())
    }
}

/// Returns the Rust files below a folder, tests too: paths with slashes, in order.
pub(crate) fn rust_files(folder: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(here) = open.pop() {
        for entry in fs::read_dir(&here).context(here.display())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.insert(slashes(path.strip_prefix(folder).unwrap_or(&path)));
            }
        }
    }
    Ok(found)
}

/// A module in a file of its own: name, path, attributes and folder.
type OutOfLine = (String, Vec<String>, Vec<Attribute>, PathBuf);

/// Finds the modules in files of their own, without those of tests.
fn out_of_line(items: &[Item], below: &Path, module: &[String], found: &mut Vec<OutOfLine>) {
    for item in items {
        let Item::Mod(item) = item else { continue };
        if item.attrs.iter().any(is_for_tests) {
            continue;
        }
        let name = item.ident.to_string();
        let mut path = module.to_vec();
        path.push(name.clone());
        match &item.content {
            None => found.push((name, path, item.attrs.clone(), below.to_owned())),
            Some((_, items)) => out_of_line(items, &below.join(&name), &path, found),
        }
    }
}

/// Returns a path with slashes.
fn slashes(path: &Path) -> String {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    parts.join("/")
}

/// Returns the value of `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether an attribute keeps its item to builds for tests: `#[test]`, or a `cfg` that needs `test`.
pub(crate) fn is_for_tests(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
        }
        _ => false,
    }
}

/// Whether a condition of a `cfg` holds in builds for tests only.
fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parts =
                list.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
            let Ok(parts) = parts else { return false };
            if list.path.is_ident("all") {
                parts.iter().any(needs_test)
            } else {
                list.path.is_ident("any") && parts.iter().all(needs_test)
            }
        }
        Meta::NameValue(_) => false,
    }
}

/// Collects the lines of tokens. The tokens of a doc comment lie on its text, which begins with slashes.
fn collect_code(stream: TokenStream, lines: &[&str], code: &mut BTreeSet<usize>) {
    let comment = |at: LineColumn| {
        let line = lines.get(at.line - 1).copied().unwrap_or_default();
        let text: String = line.chars().skip(at.column).take(3).collect();
        ["///", "//!", "/**", "/*!"].contains(&text.as_str())
    };
    for token in stream {
        let span = token.span();
        match token {
            _ if comment(span.start()) => {}
            TokenTree::Group(group) => {
                if group.delimiter() != Delimiter::None {
                    code.insert(group.span_open().start().line);
                    code.insert(group.span_close().end().line);
                }
                collect_code(group.stream(), lines, code);
            }
            _ => code.extend(span.start().line..=span.end().line),
        }
    }
}

/// Finds the lines of items, statements, fields and arms that are for tests.
#[derive(Default)]
struct Tests {
    lines: Vec<RangeInclusive<usize>>,
}

impl Tests {
    fn add(&mut self, attributes: &[Attribute], node: &impl Spanned) {
        if attributes.iter().any(is_for_tests) {
            let span = node.span();
            let first = attributes.iter().map(|attribute| attribute.span().start().line).min();
            let first = first.unwrap_or(usize::MAX).min(span.start().line);
            self.lines.push(first..=span.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item(&mut self, item: &'ast Item) {
        self.add(item_attributes(item), item);
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        self.add(attributes, item);
        syn::visit::visit_impl_item(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.add(&field.attrs, field);
        syn::visit::visit_field(self, field);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.add(&field.attrs, field);
        syn::visit::visit_field_value(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.add(&variant.attrs, variant);
        syn::visit::visit_variant(self, variant);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.add(&arm.attrs, arm);
        syn::visit::visit_arm(self, arm);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        self.add(&local.attrs, local);
        syn::visit::visit_local(self, local);
    }
}

/// Returns the attributes of an item.
fn item_attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
