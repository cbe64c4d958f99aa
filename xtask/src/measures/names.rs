//! The names that a file of a crate uses, resolved to the files that define them.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Item, UseTree};

use crate::source::{File, Tree};

/// Maximum number of re-exports from a name to its item: a bound on rings of re-exports.
const DEPTH: usize = 16;

/// The path of a module below the crate's root.
pub(crate) type Module = Vec<String>;

/// A use of a name of another file of the crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    /// Module of the file with the name.
    pub(crate) from: Module,
    /// Module of the file that defines the item.
    pub(crate) to: Module,
    /// File and line of the name.
    pub(crate) at: (String, usize),
}

/// The modules of a crate, and the names in them.
#[derive(Debug, Default)]
pub(crate) struct Names {
    modules: BTreeMap<Module, Scope>,
}

/// The names in a module.
#[derive(Debug, Default)]
struct Scope {
    /// Module of the file that this module is in.
    file: Module,
    items: BTreeSet<String>,
    /// Names bound by `use`, with their paths.
    bound: BTreeMap<String, Vec<String>>,
    /// Paths of `use PATH::*`.
    globs: Vec<Vec<String>>,
}

/// The meaning of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Module(Module),
    /// An item of this module.
    Item(Module),
}

impl Names {
    /// Collects the names of a crate. Stand-ins of the two doors (`no_….rs`) are left out.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut names = Self::default();
        for file in files(tree) {
            names.add(file, &file.module, &file.syntax.items);
        }
        names
    }

    fn add(&mut self, file: &File, module: &[String], items: &[Item]) {
        let mut scope = Scope { file: file.module.clone(), ..Scope::default() };
        for item in items {
            if file.is_test(item.span().start().line) {
                continue;
            }
            let name = match item {
                Item::Use(item) => {
                    for (path, name) in flatten(&item.tree) {
                        match name {
                            Some(name) => drop(scope.bound.insert(name, path)),
                            None => scope.globs.push(path),
                        }
                    }
                    continue;
                }
                Item::Mod(item) => {
                    if let Some((_, items)) = &item.content {
                        let mut inner = module.to_vec();
                        inner.push(item.ident.to_string());
                        self.add(file, &inner, items);
                    }
                    continue;
                }
                Item::Const(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Fn(item) => &item.sig.ident,
                Item::Static(item) => &item.ident,
                Item::Struct(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                Item::Macro(item) => match &item.ident {
                    Some(name) => name,
                    None => continue,
                },
                _ => continue,
            };
            scope.items.insert(name.to_string());
        }
        self.modules.insert(module.to_vec(), scope);
    }

    /// Returns the uses of other files' names in the crate, without tests.
    pub(crate) fn uses(&self, tree: &Tree) -> BTreeSet<Use> {
        let mut uses = BTreeSet::new();
        for file in files(tree) {
            let mut paths = Paths { module: file.module.clone(), found: Vec::new() };
            paths.visit_file(&file.syntax);
            for Named { module, path, line } in paths.found {
                if file.is_test(line) {
                    continue;
                }
                let target = match self.resolve(&module, &path, &module, DEPTH) {
                    Some(Target::Item(target)) => target,
                    // A single name of a module may be a variable's.
                    Some(Target::Module(target)) if path.len() > 1 => target,
                    _ => continue,
                };
                let Some(scope) = self.modules.get(&target) else { continue };
                if scope.file != file.module {
                    let (from, to) = (file.module.clone(), scope.file.clone());
                    uses.insert(Use { from, to, at: (file.path.clone(), line) });
                }
            }
        }
        uses
    }

    /// Returns the meaning of a path in a module. Re-exports are followed in the modules around `viewer`
    /// alone: another module's are its own affair.
    fn resolve(&self, module: &[String], path: &[String], viewer: &[String], depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(Vec::new()),
            "self" => Target::Module(module.to_vec()),
            "super" => Target::Module(module.split_last()?.1.to_vec()),
            // Only a module has names behind it.
            name if !rest.is_empty() && self.child(module, name).is_some() => self.child(module, name)?,
            name => self.find(module, name, viewer, depth)?,
        };
        while let (Target::Module(at), Some((name, after))) = (&target, rest.split_first()) {
            let next = match name.as_str() {
                "self" => Some(target.clone()),
                "super" => Some(Target::Module(at.split_last()?.1.to_vec())),
                name if viewer.starts_with(at) => self.find(at, name, viewer, depth),
                name => self.child(at, name),
            };
            let Some(next) = next else { return Some(Target::Item(at.clone())) };
            (target, rest) = (next, after);
        }
        Some(target)
    }

    /// Returns the module of this name in a module.
    fn child(&self, module: &[String], name: &str) -> Option<Target> {
        let mut child = module.to_vec();
        child.push(name.to_owned());
        self.modules.contains_key(&child).then_some(Target::Module(child))
    }

    /// Finds a name in a module: an item, a module, or something in scope by `use`.
    fn find(&self, module: &[String], name: &str, viewer: &[String], depth: usize) -> Option<Target> {
        let depth = depth.checked_sub(1)?;
        let scope = self.modules.get(module)?;
        if scope.items.contains(name) {
            return Some(Target::Item(module.to_vec()));
        }
        if let Some(child) = self.child(module, name) {
            return Some(child);
        }
        if let Some(path) = scope.bound.get(name) {
            // A name of another crate with a module's own name would refer to itself.
            return if path.first().is_some_and(|first| first == name) && path.len() == 1 {
                Some(Target::Item(module.to_vec()))
            } else {
                self.resolve(module, path, viewer, depth)
            };
        }
        scope.globs.iter().find_map(|path| match self.resolve(module, path, viewer, depth)? {
            Target::Module(from) if from != module => self.find(&from, name, viewer, depth),
            _ => None,
        })
    }
}

/// Returns the files whose names count.
fn files(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| !is_stand_in(&file.path))
}

/// Whether a file stands in for a door in builds without the door's feature.
pub(crate) fn is_stand_in(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("no_"))
}

/// Whether code of a file reads or fills a field of this name outside of tests.
pub(crate) fn reads_field(file: &File, name: &str) -> bool {
    let mut fields = Fields { file, name, found: false };
    fields.visit_file(&file.syntax);
    fields.found
}

struct Fields<'a> {
    file: &'a File,
    name: &'a str,
    found: bool,
}

impl<'ast> Visit<'ast> for Fields<'_> {
    fn visit_member(&mut self, member: &'ast syn::Member) {
        if let syn::Member::Named(name) = member {
            self.found |= name == self.name && !self.file.is_test(name.span().start().line);
        }
    }
}

/// Returns the paths of a `use`, each with the name that it binds; `None` for all names of a module.
pub(crate) fn flatten(tree: &UseTree) -> Vec<(Vec<String>, Option<String>)> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), tree)];
    while let Some((mut path, tree)) = open.pop() {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                open.push((path, &part.tree));
            }
            UseTree::Name(name) => {
                let mut bound = name.ident.to_string();
                if bound == "self" {
                    bound = path.last().cloned().unwrap_or_default();
                } else {
                    path.push(bound.clone());
                }
                found.push((path, Some(bound)));
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                found.push((path, Some(rename.rename.to_string())));
            }
            UseTree::Glob(_) => found.push((path, None)),
            UseTree::Group(group) => open.extend(group.items.iter().map(|tree| (path.clone(), tree))),
        }
    }
    found
}

/// A path in the source.
struct Named {
    module: Module,
    path: Vec<String>,
    line: usize,
}

/// Collects the paths of a file.
struct Paths {
    /// The module that the walk is in.
    module: Module,
    found: Vec<Named>,
}

impl Paths {
    fn add(&mut self, path: Vec<String>, line: usize) {
        self.found.push(Named { module: self.module.clone(), path, line });
    }
}

impl<'ast> Visit<'ast> for Paths {
    /// An attribute names nothing of the crate's own.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        syn::visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for (path, _) in flatten(&item.tree) {
            self.add(path, item.span().start().line);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.add(names.collect(), path.span().start().line);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        for (path, line) in paths_in(call.tokens.clone()) {
            self.add(path, line);
        }
        syn::visit::visit_macro(self, call);
    }
}

/// Returns the paths of at least two names in tokens that are not parsed.
fn paths_in(stream: TokenStream) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut tokens = stream.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => found.extend(paths_in(group.stream())),
            TokenTree::Ident(first) => {
                let line = first.span().start().line;
                let mut path = vec![first.to_string()];
                let colon =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
                while tokens.next_if(colon).is_some() {
                    if tokens.next_if(colon).is_none() {
                        break;
                    }
                    let Some(TokenTree::Ident(name)) =
                        tokens.next_if(|token| matches!(token, TokenTree::Ident(_)))
                    else {
                        break;
                    };
                    path.push(name.to_string());
                }
                if path.len() > 1 {
                    found.push((path, line));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
