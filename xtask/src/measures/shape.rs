//! Sizes of functions and structs, and places with `cfg`.

use syn::spanned::Spanned;
use syn::visit::Visit;

use crate::source::{File, Tree};

/// Structs of plain data. They configure, bound or count, and are no state of the engine.
const PLAIN_DATA: [&str; 8] = [
    // Settings, which callers fill.
    "Config",
    "Limits",
    "Timeouts",
    "Characteristics",
    "Exchanged",
    // Counters, which callers read.
    "Stats",
    "Messages",
    "SessionStats",
];

/// A function: the lines from its signature to its closing brace, without comments and attributes above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

impl Function {
    /// Returns the number of lines.
    pub(crate) const fn lines(&self) -> usize {
        self.last - self.first + 1
    }
}

/// Returns the functions of a file, without tests.
pub(crate) fn functions(file: &File) -> Vec<Function> {
    let mut found = Functions { path: &file.path, found: Vec::new() };
    found.visit_file(&file.syntax);
    let mut functions = found.found;
    functions.retain(|function| !file.is_test(function.first));
    functions
}

struct Functions<'a> {
    path: &'a str,
    found: Vec<Function>,
}

impl Functions<'_> {
    fn add(&mut self, signature: &syn::Signature, last: usize) {
        let (path, name) = (self.path.to_owned(), signature.ident.to_string());
        self.found.push(Function { path, name, first: signature.span().start().line, last });
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, item.span().end().line);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, item.span().end().line);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if item.default.is_some() {
            self.add(&item.sig, item.span().end().line);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

/// Returns the structs of the engine with their numbers of fields, the largest first.
pub(crate) fn structs(tree: &Tree) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    for file in &tree.files {
        let mut structs = Structs { file, found: Vec::new() };
        structs.visit_file(&file.syntax);
        found.extend(structs.found.into_iter().map(|(fields, name)| (fields, name, file.path.clone())));
    }
    found.sort_by(|one, other| other.cmp(one));
    found
}

struct Structs<'a> {
    file: &'a File,
    found: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for Structs<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let name = item.ident.to_string();
        if !self.file.is_test(item.span().start().line) && !PLAIN_DATA.contains(&name.as_str()) {
            let fields = item.fields.iter().filter(|field| !self.file.is_test(field.span().start().line));
            self.found.push((fields.count(), name));
        }
    }
}

/// The places with a `cfg` of a door's feature: in code, and in tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CfgSites {
    pub(crate) code: Vec<String>,
    pub(crate) tests: usize,
}

/// Returns the attributes and macros `cfg`, `cfg_attr` and `cfg!` that name `two` or `retired`. `text` is a
/// complete file; `file` is its parsed form, or `None` if the file is a test.
pub(crate) fn cfg_sites(path: &str, text: &str, file: Option<&File>, sites: &mut CfgSites) {
    let Ok(syntax) = syn::parse_file(text) else { return };
    let mut found = Sites(Vec::new());
    found.visit_file(&syntax);
    for line in found.0 {
        match file {
            Some(file) if !file.is_test(line) => sites.code.push(format!("{path}:{line}")),
            _ => sites.tests += 1,
        }
    }
}

struct Sites(Vec<usize>);

impl Sites {
    fn add(&mut self, path: &syn::Path, tokens: &proc_macro2::TokenStream) {
        let is_cfg = path.is_ident("cfg") || path.is_ident("cfg_attr");
        let text = tokens.to_string();
        if is_cfg && ["\"two\"", "\"retired\""].iter().any(|feature| text.contains(feature)) {
            self.0.push(path.span().start().line);
        }
    }
}

impl<'ast> Visit<'ast> for Sites {
    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.add(&list.path, &list.tokens);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add(&call.path, &call.tokens);
        syn::visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests;
