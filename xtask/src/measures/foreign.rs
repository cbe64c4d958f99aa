//! Places on the way of a Version One call that ask about something foreign to Version One.
//!
//! A place is a line of code in a function that the call enters, outside of the doors' own folders, that does
//! one of these:
//!
//! - The line names a field that leads to a foreign feature ([`FIELDS`]): an expression, a pattern, or a
//!   field that it fills. A file that declares such a field for something else, as a counter or a time, means
//!   its own.
//! - The line calls a hook: a method that a stand-in (`no_two.rs`, `no_retired.rs`, `wire/no_two.rs`)
//!   declares for a type of the engine; or a method that asks whether a door is open ([`QUESTIONS`]).
//! - The line names a module or an item of a door, by its path or by a name that a `use` takes from a door.
//!
//! So one `if let Some(two) = &mut self.two` is one place, whatever its block does with `two`.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Item, Type};

use super::names::is_stand_in;
use super::shape::functions;
use crate::source::{File, Tree};

/// Fields that lead to a foreign feature.
const FIELDS: [&str; 6] = ["two", "retired", "sending", "group", "groups", "continued"];
/// Methods of the engine that ask whether a door is open.
const QUESTIONS: [&str; 1] = ["is_plain"];
/// Modules that are doors.
const DOORS: [&str; 2] = ["two", "retired"];

/// Whether a file belongs to a door.
pub(crate) fn is_of_door(path: &str) -> bool {
    ["two/", "retired/", "wire/two/"].iter().any(|folder| path.starts_with(folder)) || is_stand_in(path)
}

/// Returns the places, as file and line, in the functions that execute some of the `lines`.
pub(crate) fn places(tree: &Tree, lines: &BTreeMap<String, BTreeSet<usize>>) -> Vec<String> {
    let hooks = hooks(tree);
    let mut places = Vec::new();
    for file in tree.files.iter().filter(|file| !is_of_door(&file.path)) {
        let Some(executed) = lines.get(&file.path) else { continue };
        let entered = functions(file).into_iter().filter_map(|function| {
            let span = function.first..=function.last;
            executed.range(span.clone()).next().map(|_| span)
        });
        let entered: Vec<_> = entered.collect();
        let imported = imported(file);
        let other = other_fields(file, &imported);
        let mut found = Places { hooks: &hooks, imported, other, lines: BTreeSet::new() };
        found.visit_file(&file.syntax);
        let within = |line: &usize| entered.iter().any(|span| span.contains(line)) && !file.is_test(*line);
        places.extend(found.lines.into_iter().filter(within).map(|line| format!("{}:{line}", file.path)));
    }
    places
}

/// Returns the names of the hooks: methods of the stand-ins, without those of types that the stand-ins
/// declare.
fn hooks(tree: &Tree) -> BTreeSet<String> {
    let mut hooks = BTreeSet::from(QUESTIONS.map(str::to_owned));
    for file in tree.files.iter().filter(|file| is_stand_in(&file.path)) {
        let mut own = BTreeSet::new();
        types(&file.syntax.items, &mut own);
        collect(&file.syntax.items, &own, &mut hooks);
    }
    hooks
}

/// Collects the types that items declare.
fn types(items: &[Item], found: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Enum(item) => drop(found.insert(item.ident.to_string())),
            Item::Struct(item) => drop(found.insert(item.ident.to_string())),
            Item::Mod(item) => {
                types(item.content.as_ref().map_or(&[][..], |(_, items)| items), found);
            }
            _ => {}
        }
    }
}

/// Collects the hooks among items.
fn collect(items: &[Item], own: &BTreeSet<String>, hooks: &mut BTreeSet<String>) {
    for item in items {
        match item {
            Item::Mod(item) => {
                collect(item.content.as_ref().map_or(&[][..], |(_, items)| items), own, hooks);
            }
            Item::Impl(item) => {
                let Type::Path(of) = &*item.self_ty else { continue };
                let is_own =
                    of.path.segments.last().is_some_and(|last| own.contains(&last.ident.to_string()));
                if is_own || item.trait_.is_some() {
                    continue;
                }
                hooks.extend(item.items.iter().filter_map(|item| match item {
                    syn::ImplItem::Fn(function) => Some(function.sig.ident.to_string()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
}

/// Returns the names that the `use` items of a file take from a door.
fn imported(file: &File) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for item in &file.syntax.items {
        let Item::Use(item) = item else { continue };
        for (path, name) in super::names::flatten(&item.tree) {
            let of_door = path.iter().any(|part| DOORS.contains(&part.as_str()));
            found.extend(name.filter(|_| of_door));
        }
    }
    found
}

/// Returns the fields that a file declares under a name of [`FIELDS`] for something else: no flag, and of no
/// door's type.
fn other_fields(file: &File, imported: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = Declared { imported, other: BTreeSet::new() };
    found.visit_file(&file.syntax);
    found.other
}

struct Declared<'a> {
    imported: &'a BTreeSet<String>,
    other: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Declared<'_> {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        let Some(name) = field.ident.as_ref().map(ToString::to_string) else { return };
        let mut named = Named(BTreeSet::new());
        named.visit_type(&field.ty);
        let is_foreign =
            |name: &String| name == "bool" || self.imported.contains(name) || DOORS.contains(&name.as_str());
        if FIELDS.contains(&name.as_str()) && !named.0.iter().any(is_foreign) {
            self.other.insert(name);
        }
    }
}

/// The names in a type.
struct Named(BTreeSet<String>);

impl<'ast> Visit<'ast> for Named {
    fn visit_ident(&mut self, name: &'ast syn::Ident) {
        self.0.insert(name.to_string());
    }
}

/// Collects the lines of places in a file.
struct Places<'a> {
    hooks: &'a BTreeSet<String>,
    imported: BTreeSet<String>,
    /// Names of [`FIELDS`] that mean something else in this file.
    other: BTreeSet<String>,
    lines: BTreeSet<usize>,
}

impl Places<'_> {
    fn is_field(&self, name: &str) -> bool {
        FIELDS.contains(&name) && !self.other.contains(name)
    }

    fn field(&mut self, member: &syn::Member) {
        if let syn::Member::Named(name) = member
            && self.is_field(&name.to_string())
        {
            self.lines.insert(name.span().start().line);
        }
    }

    /// Adds fields and hooks among tokens that are not parsed.
    fn tokens(&mut self, stream: TokenStream) {
        let mut before = '\0';
        for token in stream {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) => {
                    let text = name.to_string();
                    let is_field = self.is_field(&text) || self.hooks.contains(&text);
                    if before == '.' && is_field || self.imported.contains(&text) {
                        self.lines.insert(name.span().start().line);
                    }
                    before = '\0';
                }
                TokenTree::Punct(punct) => before = punct.as_char(),
                TokenTree::Literal(_) => before = '\0',
            }
        }
    }
}

impl<'ast> Visit<'ast> for Places<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    /// A signature asks nothing.
    fn visit_signature(&mut self, _: &'ast syn::Signature) {}

    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        self.field(&field.member);
        syn::visit::visit_expr_field(self, field);
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.field(&field.member);
        syn::visit::visit_field_value(self, field);
    }

    fn visit_field_pat(&mut self, field: &'ast syn::FieldPat) {
        self.field(&field.member);
        syn::visit::visit_field_pat(self, field);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if self.hooks.contains(&call.method.to_string()) {
            self.lines.insert(call.method.span().start().line);
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names = path.segments.iter().map(|segment| segment.ident.to_string());
        let single = path.segments.len() == 1;
        let is_door = |name: &str| self.imported.contains(name) || (!single && DOORS.contains(&name));
        if names.any(|name| is_door(&name)) {
            self.lines.insert(path.span().start().line);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

#[cfg(test)]
mod tests;
