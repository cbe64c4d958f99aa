//! Finds the mutants of a file, and the text with all of them behind switches.
//!
//! | code | mutants |
//! | --- | --- |
//! | body of a function | an early return of plain values ([`values`]) |
//! | condition, comparison, predicate closure | each part is true, and is false, where no other part has the same effect |
//! | `if let`, `while let` | never |
//! | `<`, `<=`, `>`, `>=` | the same with, or without, the equal |
//! | `+`, `-`, `*`, `/`, `%`, `<<`, `>>`, `&`, `|`, `^` | another operator |
//! | `min`, `max`, and saturating, wrapping and checked sums | one side; the other direction |
//! | arm of a match before an arm for all | deleted |
//! | statement: an assignment or a call | deleted |
//! | integer, `true`, `false` | one more; the opposite |
//!
//! Macros, patterns, types, constants and `Debug` stay. A `const fn` becomes a plain one if it can. All changes are
//! within a line, so lines of the copy are those of the file.

use std::collections::BTreeMap;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Lit, Pat, ReturnType, Signature, Stmt, UnOp};

use super::splice::{Piece, Site};
use super::values;
use crate::source::File;

/// A change of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Path of the file in the project.
    pub(crate) file: String,
    pub(crate) line: usize,
    /// Name of the function, with the type that it belongs to.
    pub(crate) function: String,
    /// Text before and after.
    pub(crate) change: String,
    /// Distinguishes mutants. It stays while the text of the function does.
    pub(crate) identity: String,
}

/// Adds the mutants of a file, and returns the places to change. The number of a mutant is its index.
pub(crate) fn sites(path: &str, file: &File, text: &str, mutants: &mut Vec<Mutant>) -> Vec<Site> {
    let mut finder = Finder {
        path,
        file,
        text,
        scope: Vec::new(),
        function: None,
        identities: BTreeMap::new(),
        mutants,
        sites: Vec::new(),
    };
    finder.visit_file(&file.syntax);
    finder.sites
}

/// Methods whose closure decides.
const PREDICATES: [&str; 14] = [
    "all",
    "any",
    "filter",
    "find",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "partition",
    "position",
    "retain",
    "rposition",
    "skip_while",
    "take_if",
    "take_while",
];

/// Calls and arguments that say how much memory to take in advance.
const HINTS: [&str; 3] = ["reserve", "with_capacity", "shrink_to_fit"];

struct Finder<'a> {
    path: &'a str,
    file: &'a File,
    text: &'a str,
    /// Names of the type and the functions around.
    scope: Vec<String>,
    /// Text of the outermost function here.
    function: Option<Range<usize>>,
    /// How often a change was seen in a function.
    identities: BTreeMap<String, usize>,
    mutants: &'a mut Vec<Mutant>,
    sites: Vec<Site>,
}

impl Finder<'_> {
    /// Returns the bytes of a node.
    fn range(node: &impl Spanned) -> Range<usize> {
        node.span().byte_range()
    }

    /// Returns the text of a node on one line.
    fn shown(&self, node: &impl Spanned) -> String {
        let text = self.text.get(Self::range(node)).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Adds a mutant.
    fn mutant(&mut self, at: Span, change: String) -> usize {
        let function = self.scope.join("::");
        let text = self.function.clone().and_then(|range| self.text.get(range)).unwrap_or_default();
        let identity = format!("{}\n{function}\n{text}\n{change}", self.path);
        let count = self.identities.entry(identity.clone()).or_default();
        *count += 1;
        self.mutants.push(Mutant {
            file: self.path.to_owned(),
            line: at.start().line,
            function,
            change,
            identity: format!("{identity}\n{count}"),
        });
        self.mutants.len() - 1
    }

    /// Adds a place with one mutant: text around the node.
    fn wrap(&mut self, node: &impl Spanned, change: String, around: impl FnOnce(usize) -> (String, String)) {
        let id = self.mutant(node.span(), change);
        let range = Self::range(node);
        let (before, after) = around(id);
        let pieces = vec![Piece::Text(before), Piece::Source(range.clone()), Piece::Text(after)];
        self.sites.push(Site { range, pieces, mutants: vec![id] });
    }

    /// Adds the mutants of a function.
    fn function(
        &mut self,
        signature: &Signature,
        block: &Block,
        range: Range<usize>,
        go: impl FnOnce(&mut Self),
    ) {
        if self.file.is_test(signature.ident.span().start().line) {
            return;
        }
        let outermost = self.function.is_none();
        if outermost {
            self.function = Some(range.clone());
        }
        self.scope.push(signature.ident.to_string());
        let (first, site) = (self.mutants.len(), self.sites.len());
        let whole = vec![Piece::Source(range.clone())];
        self.sites.push(Site { range, pieces: whole, mutants: Vec::new() });
        if let Some(constness) = &signature.constness {
            self.sites.push(Site { range: Self::range(constness), pieces: Vec::new(), mutants: Vec::new() });
        }
        self.body(signature, block);
        go(self);
        let all: Vec<usize> = (first..self.mutants.len()).collect();
        for site in self.sites.iter_mut().skip(site).take(1 + usize::from(signature.constness.is_some())) {
            site.mutants.clone_from(&all);
        }
        self.scope.pop();
        if outermost {
            self.function = None;
        }
    }

    /// Adds the early returns of a function.
    fn body(&mut self, signature: &Signature, block: &Block) {
        let values = match (&signature.output, block.stmts.as_slice()) {
            (ReturnType::Default, [] | [Stmt::Expr(..)]) if block.stmts.iter().all(is_deleted) => return,
            (ReturnType::Default, _) => vec![String::new()],
            (ReturnType::Type(..), [Stmt::Expr(Expr::Binary(only), None)]) if is_condition(&only.op) => {
                return;
            }
            (ReturnType::Type(..), [Stmt::Expr(Expr::Lit(_), None)]) => return,
            (ReturnType::Type(_, ty), _) => values::of(ty),
        };
        let range = Self::range(block);
        let (start, end) = (range.start + 1, range.end);
        let old = self.text.get(start..end - 1).unwrap_or_default().trim();
        let (mut pieces, mut mutants) = (vec![Piece::Source(range.start..start)], Vec::new());
        for value in values {
            if old == value || old.ends_with("::default()") && value.ends_with("::default()") {
                continue;
            }
            let shown = if value.is_empty() { "()" } else { &value };
            let id = self.mutant(signature.ident.span(), format!("body → {shown}"));
            pieces.push(Piece::Change(id, format!(" if crate::mutant::on({id}) {{ return {value}; }}")));
            mutants.push(id);
        }
        pieces.push(Piece::Source(start..end));
        self.sites.push(Site { range, pieces, mutants });
    }

    /// Adds the mutants of a condition: that it is true, or false, if no other part has the same effect.
    fn condition(&mut self, condition: &Expr, yes: bool, no: bool) {
        match condition {
            Expr::Paren(inner) => self.condition(&inner.expr, yes, no),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => self.condition(&unary.expr, no, yes),
            Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => {
                self.condition(&both.left, true, no);
                self.condition(&both.right, true, false);
            }
            Expr::Binary(both) if matches!(both.op, BinOp::Or(_)) => {
                self.condition(&both.left, yes, true);
                self.condition(&both.right, false, true);
            }
            Expr::Let(inner) => {
                if no {
                    let change = format!("{} → never", self.shown(condition));
                    self.wrap(condition, change, |id| {
                        (String::new(), format!(" && !crate::mutant::on({id})"))
                    });
                }
                self.visit_expr(&inner.expr);
            }
            _ => {
                for (wanted, value) in [(yes, "true"), (no, "false")] {
                    let shown = self.shown(condition);
                    if wanted && shown != value {
                        let change = format!("{shown} → {value}");
                        self.wrap(condition, change, |id| {
                            (format!("crate::mutant::pick({id}, "), format!(", {value})"))
                        });
                    }
                }
                match condition {
                    Expr::Binary(both) if is_condition(&both.op) => self.comparison(both),
                    Expr::Lit(_) => {}
                    _ => self.visit_expr(condition),
                }
            }
        }
    }

    /// Adds the other comparison with regard to equal values.
    fn comparison(&mut self, both: &syn::ExprBinary) {
        let (old, new) = match both.op {
            BinOp::Lt(_) => ("<", "<="),
            BinOp::Le(_) => ("<=", "<"),
            BinOp::Gt(_) => (">", ">="),
            BinOp::Ge(_) => (">=", ">"),
            _ => return visit::visit_expr_binary(self, both),
        };
        let change = |id| format!("crate::mutant::pick({id}, l {old} r, l {new} r)");
        self.operator(both, &both.left, &both.right, "&", &[(new, &change)], "");
    }

    /// Adds an operation on two values with its changes. Each change is shown, and makes the text with its number.
    fn operator(
        &mut self,
        whole: &impl Spanned,
        left: &Expr,
        right: &Expr,
        by: &str,
        changes: &[(&str, &dyn Fn(usize) -> String)],
        value: &str,
    ) {
        let mut pieces = vec![
            Piece::Text(format!("(match ({by}(")),
            Piece::Source(Self::range(left)),
            Piece::Text(format!("), {by}(")),
            Piece::Source(Self::range(right)),
            Piece::Text(")) { (l, r) => ".to_owned()),
        ];
        let mut mutants = Vec::new();
        for (shown, change) in changes {
            let id = self.mutant(whole.span(), format!("{} → {shown}", self.shown(whole)));
            pieces.push(Piece::Change(id, change(id)));
            mutants.push(id);
        }
        pieces.push(Piece::Text(format!("{value} }})")));
        self.sites.push(Site { range: Self::range(whole), pieces, mutants });
        self.visit_expr(left);
        self.visit_expr(right);
    }

    /// Adds another operation on two values.
    fn replacement(
        &mut self,
        whole: &impl Spanned,
        (left, right): (&Expr, &Expr),
        old: &str,
        changes: &[(&str, &str)],
    ) {
        let make = |new: &str| {
            let new = new.to_owned();
            move |id: usize| format!("if crate::mutant::on({id}) {{ {new} }} else ")
        };
        let made: Vec<_> = changes.iter().map(|(shown, new)| (*shown, make(new))).collect();
        let changes: Vec<(&str, &dyn Fn(usize) -> String)> =
            made.iter().map(|(shown, make)| (*shown, make as &dyn Fn(usize) -> String)).collect();
        self.operator(whole, left, right, "", &changes, &format!("{{ {old} }}"));
    }

    /// Adds the mutants of a method call.
    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        if HINTS.contains(&name.as_str()) {
            return self.visit_expr(&call.receiver);
        }
        if name == "then" || name == "then_some" {
            self.condition(&call.receiver, true, true);
            return call.args.iter().for_each(|argument| self.visit_expr(argument));
        }
        let other = match name.as_str() {
            "saturating_add" => "saturating_sub",
            "saturating_sub" => "saturating_add",
            "wrapping_add" => "wrapping_sub",
            "wrapping_sub" => "wrapping_add",
            "checked_add" => "checked_sub",
            "checked_sub" => "checked_add",
            _ => "",
        };
        match call.args.first() {
            Some(argument) if call.args.len() == 1 && (name == "min" || name == "max") => {
                let changes = [("its receiver", "l"), ("its argument", "r")];
                self.replacement(call, (&call.receiver, argument), &format!("l.{name}(r)"), &changes);
            }
            Some(argument) if !other.is_empty() => {
                let change = format!("l.{other}(r)");
                let changes = [(other, change.as_str())];
                self.replacement(call, (&call.receiver, argument), &format!("l.{name}(r)"), &changes);
            }
            Some(Expr::Closure(closure)) if PREDICATES.contains(&name.as_str()) => {
                self.visit_expr(&call.receiver);
                self.condition(&closure.body, true, true);
            }
            _ => visit::visit_expr_method_call(self, call),
        }
    }

    /// Adds the deletion of arms before an arm for all values.
    fn arms(&mut self, arms: &[syn::Arm]) {
        let named = |pattern: &syn::PatIdent| {
            pattern.subpat.is_none() && pattern.ident.to_string().starts_with(char::is_lowercase)
        };
        let all = |arm: &syn::Arm| match &arm.pat {
            Pat::Wild(_) => true,
            Pat::Ident(pattern) => named(pattern),
            _ => false,
        };
        let last = arms.iter().position(all).unwrap_or(0);
        for (index, arm) in arms.iter().enumerate() {
            match &arm.pat {
                Pat::Guard(guarded) => self.condition(&guarded.guard, true, true),
                pattern if index < last => {
                    let change = format!("arm {} → deleted", self.shown(pattern));
                    self.wrap(pattern, change, |id| (String::new(), format!(" if !crate::mutant::on({id})")));
                }
                _ => {}
            }
            self.visit_expr(&arm.body);
        }
    }

    /// Adds the deletion of an assignment or call; `end` follows it.
    fn deletion(&mut self, node: &impl Spanned, end: &str) {
        let change = format!("{} → deleted", self.shown(node));
        self.wrap(node, change, |id| (format!("(if !crate::mutant::on({id}) {{ "), format!(" }}){end}")));
    }

    /// Adds the change of an integer or a truth value.
    fn literal(&mut self, literal: &syn::ExprLit) {
        let new = match &literal.lit {
            Lit::Int(value) => {
                let Some(next) = value.base10_parse::<u128>().ok().and_then(|value| value.checked_add(1))
                else {
                    return;
                };
                format!("{next}{}", value.suffix())
            }
            Lit::Bool(value) => (!value.value).to_string(),
            _ => return,
        };
        let change = format!("{} → {new}", self.shown(literal));
        self.wrap(literal, change, |id| {
            (format!("(if crate::mutant::on({id}) {{ {new} }} else {{ "), " })".to_owned())
        });
    }
}

/// Whether an operator gives a truth value.
const fn is_condition(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::And(_)
            | BinOp::Or(_)
            | BinOp::Eq(_)
            | BinOp::Ne(_)
            | BinOp::Lt(_)
            | BinOp::Le(_)
            | BinOp::Gt(_)
            | BinOp::Ge(_)
    )
}

/// Returns an arithmetic operator and its change.
const fn arithmetic(op: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match op {
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        BinOp::Mul(_) => ("*", "/"),
        BinOp::Div(_) => ("/", "*"),
        BinOp::Rem(_) => ("%", "/"),
        BinOp::Shl(_) => ("<<", ">>"),
        BinOp::Shr(_) => (">>", "<<"),
        BinOp::BitAnd(_) => ("&", "|"),
        BinOp::BitOr(_) => ("|", "&"),
        BinOp::BitXor(_) => ("^", "|"),
        _ => return None,
    })
}

/// Whether an operator assigns.
const fn is_assignment(op: &BinOp) -> bool {
    !is_condition(op) && arithmetic(op).is_none()
}

/// Whether a statement is a call, or an assignment, that has its own mutant.
fn is_deleted(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expr, semicolon) => match expr {
            Expr::Assign(_) => true,
            Expr::Binary(both) => is_assignment(&both.op),
            expr => semicolon.is_some() && is_call(expr),
        },
        _ => false,
    }
}

/// Whether an expression is a call that does more than to take memory in advance.
fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Call(_) => true,
        Expr::MethodCall(call) => !HINTS.contains(&call.method.to_string().as_str()),
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Await(inner) => is_call(&inner.base),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, Self::range(item), |finder| finder.visit_block(&item.block));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, Self::range(item), |finder| finder.visit_block(&item.block));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, Self::range(item), |finder| finder.visit_block(block));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let implemented = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if implemented.is_some_and(|last| last.ident == "Debug") {
            return;
        }
        let name = self.shown(&item.self_ty);
        self.scope.push(name.split('<').next().unwrap_or_default().to_owned());
        item.items.iter().for_each(|item| self.visit_impl_item(item));
        self.scope.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.scope.push(item.ident.to_string());
        item.items.iter().for_each(|item| self.visit_trait_item(item));
        self.scope.pop();
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = statement
            && is_call(expr)
        {
            self.deletion(statement, ";");
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::If(branch) => {
                self.condition(&branch.cond, true, true);
                self.visit_block(&branch.then_branch);
                if let Some((_, other)) = &branch.else_branch {
                    self.visit_expr(other);
                }
            }
            Expr::While(repeat) => {
                self.condition(&repeat.cond, true, true);
                self.visit_block(&repeat.body);
            }
            Expr::Match(choice) => {
                self.visit_expr(&choice.expr);
                self.arms(&choice.arms);
            }
            Expr::Binary(both) if is_condition(&both.op) => self.condition(expr, true, true),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => self.condition(expr, true, true),
            Expr::Binary(both) => match arithmetic(&both.op) {
                Some((old, new)) => {
                    let change = format!("l {new} r");
                    let sides = (&*both.left, &*both.right);
                    self.replacement(both, sides, &format!("l {old} r"), &[(new, &change)]);
                }
                None => {
                    self.deletion(expr, "");
                    visit::visit_expr_binary(self, both);
                }
            },
            Expr::Assign(assignment) => {
                self.deletion(expr, "");
                visit::visit_expr_assign(self, assignment);
            }
            Expr::MethodCall(call) => self.method(call),
            Expr::Call(call) => {
                let hint = |path: &syn::ExprPath| {
                    path.path.segments.last().is_some_and(|last| HINTS.iter().any(|hint| last.ident == hint))
                };
                if !matches!(&*call.func, Expr::Path(path) if hint(path)) {
                    visit::visit_expr_call(self, call);
                }
            }
            Expr::Lit(literal) => self.literal(literal),
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Const(_) => {}
            _ => visit::visit_expr(self, expr),
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
}
