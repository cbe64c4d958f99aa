//! All names that a description declares, and the numbers of its constants.
//!
//! Constants, values of enumerations, types and programs share one name space (RFC 4506 §6.4, RFC 5531 §12.3). The
//! number of a constant or value may use names that come before it; sizes and cases, which are looked up later, may use
//! any.

use std::collections::HashMap;

use crate::error::{Fault, Position};
use crate::lexer::{Base as NumberBase, Number};
use crate::marks::Marks;
use crate::model::{Constant, TypeId, Variant};
use crate::names::{
    Scope, camel, of_procedures, screaming, type_identifier, variant_identifier, without_prefix, words,
};
use crate::tree::{
    At, Declaration, Definition, Enumerator, Item, Name, Parameter, Procedure, Specification, Type,
    UnionBody, Value,
};

/// Longest path of a type without a name, in letters: its members repeat it.
const PATH_MAX: usize = 1024;

/// The meaning of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    /// Index of a constant.
    Constant(usize),
    /// A value of an enumeration: index of the variant.
    Value(TypeId, usize),
    Type(TypeId),
    Program,
}

/// A type whose members are not looked up yet.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) path: String,
    pub(crate) rust: String,
    pub(crate) at: Position,
    pub(crate) body: Body<'a>,
    /// Only of an enumeration.
    pub(crate) variants: Vec<Variant>,
    /// Indices of the first variants with these numbers.
    pub(crate) numbers: HashMap<i32, usize>,
    origin: Origin,
}

/// Where a type has its name from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Text,
    Member,
    Procedure,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    Alias(&'a Item),
    Struct(&'a [Declaration]),
    Enum,
    Union(&'a UnionBody),
    /// The arguments of a procedure with more than one, or with a string.
    Arguments(&'a [Parameter]),
    /// The results of a procedure that returns a string.
    Results(&'a Parameter),
}

impl Body<'_> {
    /// Returns whether two types for arguments or results are equal. Types without names make a difference.
    fn is_equal(&self, other: &Self) -> bool {
        let has_name = |parameter: &Parameter| {
            !matches!(parameter.kind.value, Type::Enum(_) | Type::Struct(_) | Type::Union(_))
        };
        match (self, other) {
            (Body::Arguments(all), Body::Arguments(others)) => all == others && all.iter().all(has_name),
            (Body::Results(results), Body::Results(others)) => results == others,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Symbols<'a> {
    marks: &'a Marks,
    names: HashMap<&'a str, (Symbol, Position)>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) drafts: Vec<Draft<'a>>,
    /// Types without a name, by the place of their first word.
    unnamed: HashMap<Position, TypeId>,
    /// Types made for arguments and results, by the place of the procedure's name.
    made: HashMap<(Position, Side), TypeId>,
    /// The types of `made`, by their paths.
    by_path: HashMap<String, Vec<TypeId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Arguments,
    Results,
}

/// A number that a text states, and the constant or value that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) number: Number,
    pub(crate) symbol: Option<Symbol>,
}

impl<'a> Symbols<'a> {
    /// Collects the names of a description.
    pub(crate) fn collect(specification: &'a Specification, marks: &'a Marks) -> Result<Self, Fault> {
        let mut symbols = Self {
            marks,
            names: HashMap::new(),
            constants: Vec::new(),
            drafts: Vec::new(),
            unnamed: HashMap::new(),
            made: HashMap::new(),
            by_path: HashMap::new(),
        };
        for definition in &specification.definitions {
            symbols.definition(definition)?;
        }
        symbols.give_names();
        Ok(symbols)
    }

    fn definition(&mut self, definition: &'a Definition) -> Result<(), Fault> {
        match definition {
            Definition::Constant { name, value } => {
                let number = self.number(value, " before this place")?.number;
                self.declare(name, Symbol::Constant(self.constants.len()))?;
                self.constants.push(Constant {
                    name: name.value.clone(),
                    at: name.at,
                    rust: String::new(),
                    number,
                });
                Ok(())
            }
            Definition::Typedef(Declaration::Void(at)) => {
                Err(Fault::new(at.at, "expected a type after `typedef`, found the keyword `void`"))
            }
            Definition::Typedef(Declaration::Item(item)) => self.typedef(item),
            Definition::Enum { name, body } => {
                let id = self.named(name, Body::Enum)?;
                self.enumerators(id, body)
            }
            Definition::Struct { name, body } => {
                self.named(name, Body::Struct(body))?;
                self.members(body, &name.value)
            }
            Definition::Union { name, body } => {
                self.named(name, Body::Union(body))?;
                self.arms(body, &name.value)
            }
            Definition::Program(program) => {
                self.declare(&program.name, Symbol::Program)?;
                for version in &program.versions {
                    let all = &version.procedures;
                    let names = all.iter().map(|procedure| procedure.name.value.as_str());
                    let short = of_procedures(&program.name.value, names);
                    for (procedure, words) in all.iter().zip(short) {
                        self.procedure(procedure, &camel(&words))?;
                    }
                }
                Ok(())
            }
        }
    }

    fn typedef(&mut self, item: &'a Item) -> Result<(), Fault> {
        use crate::tree::Shape::One;
        let path = &item.name.value;
        match (&item.kind.value, &item.shape) {
            (Type::Enum(body), One) => {
                let id = self.named(&item.name, Body::Enum)?;
                self.enumerators(id, body)
            }
            (Type::Struct(body), One) => {
                self.named(&item.name, Body::Struct(body))?;
                self.members(body, path)
            }
            (Type::Union(body), One) => {
                self.named(&item.name, Body::Union(body))?;
                self.arms(body, path)
            }
            _ => {
                self.named(&item.name, Body::Alias(item))?;
                self.kind(&item.kind, format!("{path}.element"))
            }
        }
    }

    fn declare(&mut self, name: &'a Name, symbol: Symbol) -> Result<(), Fault> {
        match self.names.insert(&name.value, (symbol, name.at)) {
            None => Ok(()),
            Some((_, first)) => {
                Err(Fault::new(name.at, format!("`{}` is declared already, at {first}", name.value)))
            }
        }
    }

    fn named(&mut self, name: &'a Name, body: Body<'a>) -> Result<TypeId, Fault> {
        let rust = camel(&words(&name.value));
        let id = self.draft(name.value.clone(), rust, name.at, body, Origin::Text);
        self.declare(name, Symbol::Type(id))?;
        Ok(id)
    }

    fn draft(&mut self, path: String, rust: String, at: Position, body: Body<'a>, origin: Origin) -> TypeId {
        let (variants, numbers) = (Vec::new(), HashMap::new());
        self.drafts.push(Draft { path, rust, at, body, variants, numbers, origin });
        self.drafts.len() - 1
    }

    /// Makes a type for arguments or results. Versions share one that they declare equally.
    fn make(&mut self, at: Position, side: Side, path: &str, rust: String, body: Body<'a>) {
        let of_path = self.by_path.get(path).into_iter().flatten();
        let is_equal = |id: &&TypeId| self.drafts.get(**id).is_some_and(|draft| draft.body.is_equal(&body));
        let id = match of_path.copied().find(|id| is_equal(&id)) {
            Some(known) => known,
            None => {
                let id = self.draft(path.to_owned(), rust, at, body, Origin::Procedure);
                self.by_path.entry(path.to_owned()).or_default().push(id);
                id
            }
        };
        self.made.insert((at, side), id);
    }

    fn members(&mut self, body: &'a [Declaration], path: &str) -> Result<(), Fault> {
        for declaration in body {
            self.declaration(declaration, path)?;
        }
        Ok(())
    }

    fn arms(&mut self, body: &'a UnionBody, path: &str) -> Result<(), Fault> {
        self.kind(&body.discriminant.kind, format!("{path}.{}", body.discriminant.name))?;
        for declaration in body.arms.iter().map(|arm| &arm.content).chain(&body.default) {
            self.declaration(declaration, path)?;
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &'a Declaration, path: &str) -> Result<(), Fault> {
        match declaration {
            Declaration::Void(_) => Ok(()),
            Declaration::Item(item) => self.kind(&item.kind, format!("{path}.{}", item.name)),
        }
    }

    /// Makes a type for a body that stands where it is used.
    fn kind(&mut self, kind: &'a At<Type>, path: String) -> Result<(), Fault> {
        let rust = camel(&words(&path.replace('.', "_")));
        self.kind_as(kind, path, rust)
    }

    /// Makes such a type with this name.
    fn kind_as(&mut self, kind: &'a At<Type>, path: String, rust: String) -> Result<(), Fault> {
        let body = match &kind.value {
            Type::Enum(_) => Body::Enum,
            Type::Struct(body) => Body::Struct(body),
            Type::Union(body) => Body::Union(body),
            _ => return Ok(()),
        };
        if path.len() > PATH_MAX {
            let reason = format!(
                "the names of the types and members around this type have {} letters; at most {PATH_MAX} are allowed",
                path.len()
            );
            return Err(Fault::new(kind.at, reason));
        }
        let id = self.draft(path.clone(), rust, kind.at, body, Origin::Member);
        self.unnamed.insert(kind.at, id);
        match &kind.value {
            Type::Enum(body) => self.enumerators(id, body),
            Type::Struct(body) => self.members(body, &path),
            Type::Union(body) => self.arms(body, &path),
            _ => Ok(()),
        }
    }

    fn enumerators(&mut self, id: TypeId, body: &'a [Enumerator]) -> Result<(), Fault> {
        let mut scope = Scope::default();
        let mut firsts: HashMap<i32, String> = HashMap::new();
        let wanted = without_prefix(body.iter().map(|enumerator| enumerator.name.value.as_str()));
        for (index, (enumerator, words)) in body.iter().zip(wanted).enumerate() {
            let number = self.number(&enumerator.value, " before this place")?.number.value;
            let number = i32::try_from(number).map_err(|_| {
                let reason =
                    format!("a value of an enumeration is from {} to {}, not {number}", i32::MIN, i32::MAX);
                Fault::new(enumerator.value.at, reason)
            })?;
            self.declare(&enumerator.name, Symbol::Value(id, index))?;
            let same_as = firsts.get(&number).cloned();
            let wanted =
                if same_as.is_some() { screaming(&words) } else { variant_identifier(camel(&words)) };
            let (name, rust) = (enumerator.name.value.clone(), scope.take(wanted));
            if same_as.is_none() {
                firsts.insert(number, rust.clone());
            }
            // Later values may name this one.
            if let Some(draft) = self.drafts.get_mut(id) {
                draft.numbers.entry(number).or_insert(index);
                let at = enumerator.name.at;
                draft.variants.push(Variant { name, at, rust, number, same_as });
            }
        }
        Ok(())
    }

    fn procedure(&mut self, procedure: &'a Procedure, short: &str) -> Result<(), Fault> {
        let Procedure { results, name, arguments, .. } = procedure;
        let path = format!("{}.arguments", name.value);
        let is_string = |parameter: &Parameter| parameter.kind.value == Type::String;
        if arguments.len() > 1 || arguments.iter().any(is_string) {
            self.make(
                name.at,
                Side::Arguments,
                &path,
                format!("{short}Arguments"),
                Body::Arguments(arguments),
            );
        }
        if let [argument] = &**arguments {
            self.kind_as(&argument.kind, path, format!("{short}Arguments"))?;
        } else {
            for (argument, number) in arguments.iter().zip(1..) {
                self.kind(&argument.kind, format!("{path}.{}", argument_name(argument, number)))?;
            }
        }
        let path = format!("{}.results", name.value);
        if let Some(results) = results {
            if is_string(results) {
                self.make(name.at, Side::Results, &path, format!("{short}Results"), Body::Results(results));
            }
            self.kind_as(&results.kind, path, format!("{short}Results"))?;
        }
        Ok(())
    }

    /// Gives all types and constants their names in Rust: first those that have a name in the text.
    fn give_names(&mut self) {
        let mut scope = Scope::default();
        for origin in [Origin::Text, Origin::Member, Origin::Procedure] {
            for draft in self.drafts.iter_mut().filter(|draft| draft.origin == origin) {
                draft.rust = scope.take(type_identifier(std::mem::take(&mut draft.rust)));
            }
        }
        for constant in &mut self.constants {
            constant.rust = scope.take(screaming(&words(&constant.name)));
        }
    }

    /// Looks a name up.
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|(symbol, _)| *symbol)
    }

    pub(crate) fn unnamed(&self, at: Position) -> Option<TypeId> {
        self.unnamed.get(&at).copied()
    }

    pub(crate) fn made(&self, procedure: &Procedure, side: Side) -> Option<TypeId> {
        self.made.get(&(procedure.name.at, side)).copied()
    }

    /// Returns the number that a value states; `place` says where its name must be declared.
    pub(crate) fn number(&self, value: &At<Value>, place: &str) -> Result<Found, Fault> {
        let name = match &value.value {
            Value::Number(number) => return Ok(Found { number: *number, symbol: None }),
            Value::Name(name) => name,
        };
        let symbol = self.find(name);
        let number = match symbol {
            Some(Symbol::Constant(index)) => self.constants.get(index).map(|constant| constant.number),
            Some(Symbol::Value(id, index)) => {
                let variant = self.drafts.get(id).and_then(|draft| draft.variants.get(index));
                variant.map(|variant| decimal(variant.number.into()))
            }
            Some(Symbol::Type(_)) => {
                return Err(Fault::new(value.at, format!("`{name}` is a type, not a constant")));
            }
            Some(Symbol::Program) => {
                return Err(Fault::new(value.at, format!("`{name}` is a program, not a constant")));
            }
            None => self.marks.constant(name).or_else(|| known(name)).map(|number| decimal(number.into())),
        };
        let number =
            number.ok_or_else(|| Fault::new(value.at, format!("no constant `{name}` is declared{place}")))?;
        Ok(Found { number, symbol })
    }

    /// Returns the expression of Rust for a constant or a value, without a cast.
    pub(crate) fn expression(&self, symbol: Symbol) -> Option<String> {
        match symbol {
            Symbol::Constant(index) => Some(self.constants.get(index)?.rust.clone()),
            Symbol::Value(id, index) => {
                let draft = self.drafts.get(id)?;
                Some(format!("{}::{}", draft.rust, draft.variants.get(index)?.rust))
            }
            Symbol::Type(_) | Symbol::Program => None,
        }
    }
}

/// Returns the number of a constant that descriptions use without declaring it: of `bool` (RFC 4506 §4.4), or of an
/// authentication flavour (RFC 5531 §8.2).
fn known(name: &str) -> Option<i64> {
    Some(match name {
        "FALSE" | "AUTH_NONE" | "AUTH_NULL" => 0,
        "TRUE" | "AUTH_SYS" | "AUTH_UNIX" => 1,
        "AUTH_SHORT" => 2,
        "AUTH_DH" => 3,
        "RPCSEC_GSS" => 6,
        _ => return None,
    })
}

const fn decimal(value: i128) -> Number {
    Number { value, base: NumberBase::Decimal }
}

/// Returns the name of an argument: its own, or one with its number.
pub(crate) fn argument_name(argument: &Parameter, number: usize) -> String {
    argument.name.as_ref().map_or_else(|| format!("argument_{number}"), |name| name.value.clone())
}
