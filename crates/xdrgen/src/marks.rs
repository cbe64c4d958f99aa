//! The side file: what a description can't say (`docs/marks.md` of this crate describes it).
//!
//! *Errors.* Every name in the side file must be in the description, with a form that the mark fits.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use crate::error::{Fault, Position};
use crate::lexer::FILE_MAX;
use crate::model::{Base, Effect, Eligible, Item, Mark, Shape, Size};

/// Most names that an error suggests.
const MEANT_MAX: usize = 3;

/// Longest names that are compared letter by letter, in bytes.
const COMPARED_MAX: usize = 128;

/// The marks of a side file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    text: String,
    tables: Tables,
    /// Names that the description has, each behind the name of its table.
    used: RefCell<BTreeSet<String>>,
    /// All items and procedures of the description, as `used` has them.
    known: RefCell<BTreeSet<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tables {
    constants: BTreeMap<String, Spanned<i64>>,
    types: BTreeMap<String, Spanned<String>>,
    items: BTreeMap<String, Spanned<ItemMarks>>,
    procedures: BTreeMap<String, Spanned<ProcedureMarks>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemMarks {
    max: Option<u32>,
    ddp: Option<Ddp>,
    #[serde(default)]
    utf8: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "`ddp` is true, false or \"slices\"")]
enum Ddp {
    Flag(bool),
    Form(DdpForm),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DdpForm {
    Slices,
}

/// Marks of a procedure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcedureMarks {
    pub(crate) effect: Effect,
    pub(crate) integrity: bool,
    /// Most DDP-eligible arguments.
    pub(crate) eligible: Option<u32>,
    /// Path of a function.
    pub(crate) bounds: Option<String>,
}

impl Marks {
    /// Parses a side file.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if text.len() > FILE_MAX {
            let reason = format!("the file has more than {FILE_MAX} bytes");
            return Err(Fault::new(Position::START, reason));
        }
        let tables: Tables = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            // The message may have several lines.
            let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            Fault::new(position(text, start), reason)
        })?;
        let types = tables.types.iter().map(|(name, path)| (name, path.get_ref(), path.span()));
        let functions = tables
            .procedures
            .iter()
            .filter_map(|(name, marks)| Some((name, marks.get_ref().bounds.as_ref()?, marks.span())));
        if let Some((name, path, span)) = types.chain(functions).find(|(_, path, _)| !is_path(path)) {
            let reason = format!("`{path}` is no path of Rust, for `{name}`");
            return Err(Fault::new(position(text, span.start), reason));
        }
        Ok(Self { text: text.to_owned(), tables, used: RefCell::default(), known: RefCell::default() })
    }

    /// Returns the path of a type of elsewhere.
    pub(crate) fn path_of(&self, name: &str) -> Option<String> {
        let path = self.tables.types.get(name)?.get_ref().clone();
        self.use_name("type", name);
        Some(path)
    }

    /// Returns the number of a constant of elsewhere.
    pub(crate) fn constant(&self, name: &str) -> Option<i64> {
        let number = *self.tables.constants.get(name)?.get_ref();
        self.use_name("constant", name);
        Some(number)
    }

    fn use_name(&self, table: &str, name: &str) {
        self.used.borrow_mut().insert(format!("{table} {name}"));
    }

    fn know(&self, table: &str, name: &str) {
        self.known.borrow_mut().insert(format!("{table} {name}"));
    }

    /// Remembers a procedure 0, which can have no marks.
    pub(crate) fn know_null(&self, version: &str, name: &str) {
        self.know("null", name);
        self.know("null", &format!("{version}.{name}"));
    }

    /// Returns whether there are marks for the item of this path.
    pub(crate) fn has_item(&self, path: &str) -> bool {
        self.tables.items.contains_key(path)
    }

    /// Returns whether the item of this path is DDP-eligible.
    pub(crate) fn makes_eligible(&self, path: &str) -> bool {
        let ddp = self.tables.items.get(path).and_then(|marks| marks.get_ref().ddp);
        !matches!(ddp, None | Some(Ddp::Flag(false)))
    }

    /// Puts the marks of an item into it.
    pub(crate) fn mark_item(&self, item: &mut Item) -> Result<(), Fault> {
        self.know("item", &item.path);
        let Some(entry) = self.tables.items.get(&item.path) else { return Ok(()) };
        self.use_name("item", &item.path);
        let refused = |reason: String| Fault::new(position(&self.text, entry.span().start), reason);
        let ItemMarks { max, ddp, utf8 } = *entry.get_ref();
        let path = &item.path;
        if let Some(max) = max {
            let (Shape::Counted(size) | Shape::List(size)) = &mut item.shape else {
                return Err(refused(format!("`{path}` is no counted item: it has no maximum")));
            };
            if let Some(size) = size
                && size.number < max
            {
                let reason = format!("`{path}` holds at most {}, not {max}", size.number);
                return Err(refused(reason));
            }
            *size = Some(Size { number: max, text: max.to_string() });
        }
        let eligible = match ddp {
            None | Some(Ddp::Flag(false)) => Eligible::No,
            Some(Ddp::Flag(true)) => Eligible::Joined,
            Some(Ddp::Form(DdpForm::Slices)) => Eligible::Slices,
        };
        if eligible != Eligible::No {
            match (&item.base, &item.shape) {
                (Base::Opaque | Base::String, Shape::Counted(Some(_))) => {}
                (Base::Opaque | Base::String, Shape::Counted(None)) => {
                    return Err(refused(format!("`{path}` needs `max`, since it is DDP-eligible")));
                }
                _ => {
                    let reason =
                        format!("`{path}` can't be DDP-eligible: only counted opaque data and strings can");
                    return Err(refused(reason));
                }
            }
        }
        if utf8 && (item.base != Base::String || eligible != Eligible::No) {
            return Err(refused(format!(
                "`{path}` can't be UTF-8: only strings can that are not DDP-eligible"
            )));
        }
        item.mark = Mark { eligible, utf8 };
        Ok(())
    }

    /// Returns the marks of a procedure.
    pub(crate) fn procedure(&self, version: &str, name: &str) -> ProcedureMarks {
        self.know("procedure", name);
        let key = format!("{version}.{name}");
        let key = if self.tables.procedures.contains_key(&key) { key } else { name.to_owned() };
        let marks = self.tables.procedures.get(&key).map(|marks| marks.get_ref().clone());
        self.use_name("procedure", &key);
        marks.unwrap_or_default()
    }

    /// Returns the names of the description that may be meant by one that it does not have.
    fn hint(&self, table: &str, name: &str) -> Option<String> {
        let known = self.known.borrow();
        let all = || known.iter().filter_map(|known| known.strip_prefix(table)?.strip_prefix(' '));
        let own = name.rsplit('.').next().unwrap_or(name);
        // A name that ends so, such as the member of another type, or that differs in a few letters.
        let ends = |known: &&str| {
            known.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with(['.', '_']))
        };
        let near = |known: &str| distance(name, known).min(distance(own, known));
        let short = |name: &&str| name.len() <= COMPARED_MAX;
        let nearest = || {
            Some(name).filter(short)?;
            let (letters, known) = all().filter(short).map(|known| (near(known), known)).min()?;
            (letters <= (own.len() / 3).max(1)).then_some(known)
        };
        let meant: Vec<&str> = match all().filter(ends).take(MEANT_MAX).collect::<Vec<_>>() {
            found if found.is_empty() => nearest().into_iter().collect(),
            found => found,
        };
        let meant: Vec<String> = meant.iter().map(|known| format!("`{known}`")).collect();
        (!meant.is_empty()).then(|| format!("is {} meant?", meant.join(" or ")))
    }

    /// Checks that every name was used.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        let used = self.used.borrow();
        let tables = &self.tables;
        let constants = tables.constants.iter().map(|(name, mark)| ("constant", name, mark.span()));
        let types = tables.types.iter().map(|(name, mark)| ("type", name, mark.span()));
        let items = tables.items.iter().map(|(name, mark)| ("item", name, mark.span()));
        let procedures = tables.procedures.iter().map(|(name, mark)| ("procedure", name, mark.span()));
        let all = constants.chain(types).chain(items).chain(procedures);
        let unused = all.filter(|(table, name, _)| !used.contains(&format!("{table} {name}")));
        let Some((table, name, span)) = unused.min_by_key(|(.., span)| span.start) else { return Ok(()) };
        let reason = match table {
            "item" => {
                let hint = self.hint("item", name);
                let hint =
                    hint.unwrap_or_else(|| "an item is a member `type.member`, or a typedef".to_owned());
                format!("the description has no item `{name}`: {hint}")
            }
            "procedure" if self.known.borrow().contains(&format!("null {name}")) => {
                format!("`{name}` is procedure 0, which has no marks: it does nothing")
            }
            "procedure" => match self.hint("procedure", name) {
                Some(hint) => format!("the description has no procedure `{name}`: {hint}"),
                None => format!("the description has no procedure `{name}`"),
            },
            _ => format!("the description needs no {table} `{name}` of elsewhere"),
        };
        Err(Fault::new(position(&self.text, span.start), reason))
    }
}

/// Returns the number of letters to change, add or leave out until one name is the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, letter) in one.chars().enumerate() {
        let (mut diagonal, mut left) = (line, line + 1);
        for (place, facing) in row.iter_mut().zip(std::iter::once(None).chain(other.chars().map(Some))) {
            let above = *place;
            *place = match facing {
                None => left,
                Some(facing) => (diagonal + usize::from(letter != facing)).min(above + 1).min(left + 1),
            };
            (diagonal, left) = (above, *place);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Returns the place of a byte of a text.
fn position(text: &str, byte: usize) -> Position {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

/// Returns whether a text is a path of Rust, without generic arguments.
pub(crate) fn is_path(text: &str) -> bool {
    let names = text.strip_prefix("::").unwrap_or(text).split("::");
    names.into_iter().all(|name| {
        let name = name.strip_prefix("r#").unwrap_or(name);
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}
