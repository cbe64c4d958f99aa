//! From the tree to the model: every name is looked up, and the rules beside the grammar are checked (RFC 4506 §6.4,
//! RFC 5531 §12.3).
//!
//! *Errors.* The first rule that is broken, with the place of the word that breaks it.

use std::collections::{HashMap, HashSet};

use crate::error::{Fault, Position};
use crate::generator::Wrong;
use crate::graph;
use crate::lexer::Number;
use crate::marks::Marks;
use crate::model::{
    Arm, Base, Case, Item, Kind, Mark, Model, Procedure, Program, Shape, Size, Traits, TypeDef, TypeId,
    Union, Variant, Version,
};
use crate::names::{
    Scope, camel, of_procedures, plain_identifier, snake, type_identifier, variant_identifier,
    without_prefix, words,
};
use crate::symbols::{Body, Draft, Side, Symbol, Symbols, argument_name};
use crate::tree::{self, At, Declaration, Definition, Parameter, Specification, Tag, Type, Value};

/// Largest fixed-length array, in elements, and largest fixed part of a type, in bytes. Values of Rust hold it in place.
pub const FIXED_MAX: usize = 1 << 16;

/// Looks up all names of a description.
pub(crate) fn resolve(specification: &Specification, marks: &Marks) -> Result<Model, Wrong> {
    let symbols = Symbols::collect(specification, marks)?;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let passed = specification.passed.iter().flat_map(|line| line.split(|letter| !is_part(letter)));
    let resolver = Resolver { symbols: &symbols, passed: passed.collect(), marks };
    let mut types = Vec::new();
    for draft in &symbols.drafts {
        types.push(resolver.type_def(draft)?);
    }
    let mut programs = Vec::new();
    for definition in &specification.definitions {
        if let Definition::Program(program) = definition {
            programs.push(resolver.program(program)?);
        }
    }
    name_modules(&mut programs);
    graph::check_ends(&types)?;
    let aliases = Aliases::of(&types);
    for id in 0..types.len() {
        resolver.cases(id, &mut types, &aliases)?;
    }
    graph::find_lists(&mut types, &programs, &aliases);
    graph::check_aliases(&types)?;
    mark(&mut types, marks, &aliases).map_err(Wrong::Marks)?;
    graph::find_traits(&mut types);
    marks.finish().map_err(Wrong::Marks)?;
    let docs = specification.docs.clone();
    Ok(Model { constants: symbols.constants, types, programs, docs })
}

/// Puts the marks into the items.
fn mark(types: &mut [TypeDef], marks: &Marks, aliases: &Aliases) -> Result<(), Fault> {
    // A mark on an item whose type is another's name: the item gets the form of its own.
    let items = types.iter().flat_map(|def| def.kind.items());
    let forms =
        items.filter(|item| item.shape == Shape::One && marks.has_item(&item.path)).filter_map(|item| {
            let Item { base, shape, .. } = aliases.through(item, types);
            let is_counted = matches!(shape, Shape::Counted(_) | Shape::List(_));
            is_counted.then(|| (item.path.clone(), (base.clone(), shape.clone())))
        });
    let mut forms: HashMap<String, (Base, Shape)> = forms.collect();
    for item in types.iter_mut().flat_map(|def| def.kind.items_mut()) {
        if let Some((base, shape)) = forms.remove(&item.path) {
            (item.base, item.shape) = (base, shape);
        }
        marks.mark_item(item)?;
    }
    Ok(())
}

struct Resolver<'a, 's> {
    symbols: &'s Symbols<'a>,
    /// The words of the `%` lines.
    passed: HashSet<&'s str>,
    marks: &'s Marks,
}

impl<'a> Resolver<'a, '_> {
    fn type_def(&self, draft: &Draft<'a>) -> Result<TypeDef, Fault> {
        let path = &draft.path;
        let kind = match draft.body {
            Body::Alias(item) => {
                let mut item = self.item(item, path)?;
                item.path.clone_from(path);
                Kind::Alias(item)
            }
            Body::Struct(body) => {
                let items = body.iter().map(|declaration| self.declaration(declaration, path));
                let items: Vec<Option<Item>> = items.collect::<Result<_, _>>()?;
                let items = items.into_iter().flatten().collect();
                unique_names(&items, "member")?;
                Kind::Struct(items)
            }
            Body::Enum => Kind::Enum(draft.variants.clone()),
            Body::Union(body) => Kind::Union(self.union(body, path)?),
            Body::Arguments(arguments) => {
                let items = arguments.iter().zip(1..).map(|(argument, number)| {
                    let name = argument_name(argument, number);
                    self.parameter(argument, format!("{path}.{name}"), name)
                });
                let items: Vec<Item> = items.collect::<Result<_, _>>()?;
                unique_names(&items, "argument")?;
                Kind::Struct(items)
            }
            Body::Results(results) => Kind::Alias(self.parameter(results, path.clone(), path.clone())?),
        };
        let (path, rust) = (path.clone(), draft.rust.clone());
        Ok(TypeDef { path, rust, at: draft.at, kind, traits: Traits::default() })
    }

    fn union(&self, body: &tree::UnionBody, path: &str) -> Result<Union, Fault> {
        let mut arms = Vec::new();
        for arm in &body.arms {
            let content = self.declaration(&arm.content, path)?;
            arms.push(Arm { values: arm.cases.clone(), cases: Vec::new(), content });
        }
        let default = body.default.as_ref().map(|content| self.declaration(content, path)).transpose()?;
        let discriminant = self.item(&body.discriminant, path)?;
        if discriminant.shape != Shape::One {
            return Err(Fault::new(discriminant.at, NO_DISCRIMINANT));
        }
        let union = Union { discriminant, arms, default };
        let contents = union.arms.iter().filter_map(|arm| arm.content.as_ref());
        // RFC 5531 §9 itself has an arm with the name of the discriminant.
        unique_names(contents.chain(union.default.iter().flatten()), "arm")?;
        Ok(union)
    }

    /// Returns nothing for void.
    fn declaration(&self, declaration: &Declaration, path: &str) -> Result<Option<Item>, Fault> {
        match declaration {
            Declaration::Void(_) => Ok(None),
            Declaration::Item(item) => self.item(item, path).map(Some),
        }
    }

    fn item(&self, item: &tree::Item, owner: &str) -> Result<Item, Fault> {
        let name = item.name.value.clone();
        let base = self.base(&item.kind)?;
        let shape = match &item.shape {
            tree::Shape::One => Shape::One,
            tree::Shape::Optional => Shape::Optional,
            tree::Shape::Counted(None) => Shape::Counted(None),
            tree::Shape::Counted(Some(max)) => Shape::Counted(Some(self.size(max)?)),
            tree::Shape::Fixed(size) => {
                let found = self.size(size)?;
                if usize::try_from(found.number).map_or(true, |number| number > FIXED_MAX) {
                    let reason =
                        format!("an array of fixed length {}; at most {FIXED_MAX} is allowed", found.number);
                    return Err(Fault::new(size.at, reason));
                }
                Shape::Fixed(found)
            }
        };
        let path = format!("{owner}.{name}");
        Ok(Item { name, path, at: item.name.at, base, shape, mark: Mark::default() })
    }

    fn parameter(&self, parameter: &Parameter, path: String, name: String) -> Result<Item, Fault> {
        let base = self.base(&parameter.kind)?;
        let shape = if base == Base::String {
            Shape::Counted(parameter.max.as_ref().map(|max| self.size(max)).transpose()?)
        } else {
            Shape::One
        };
        Ok(Item { name, path, at: parameter.kind.at, base, shape, mark: Mark::default() })
    }

    fn base(&self, kind: &At<Type>) -> Result<Base, Fault> {
        match &kind.value {
            Type::Int => Ok(Base::Int),
            Type::Unsigned => Ok(Base::Unsigned),
            Type::Hyper => Ok(Base::Hyper),
            Type::UnsignedHyper => Ok(Base::UnsignedHyper),
            Type::Float => Ok(Base::Float),
            Type::Double => Ok(Base::Double),
            Type::Bool => Ok(Base::Bool),
            Type::Opaque => Ok(Base::Opaque),
            Type::String => Ok(Base::String),
            Type::Quadruple => Err(Fault::new(
                kind.at,
                "`quadruple` is not supported: Rust has no type for it; use `opaque NAME[16]`",
            )),
            Type::Enum(_) | Type::Struct(_) | Type::Union(_) => match self.symbols.unnamed(kind.at) {
                Some(id) => Ok(Base::Type(id)),
                None => Err(Fault::new(kind.at, "a type without a name can't stand here")),
            },
            Type::Named(tag, name) => self.named(*tag, name, kind.at),
        }
    }

    fn named(&self, tag: Option<Tag>, name: &str, at: Position) -> Result<Base, Fault> {
        match self.symbols.find(name) {
            Some(Symbol::Type(id)) => {
                let found = self.symbols.drafts.get(id).map(|draft| draft.body);
                match tag {
                    Some(tag) if found.is_some_and(|body| body_tag(&body) != Some(tag)) => {
                        let is = found.as_ref().and_then(body_tag).map_or("a typedef", described);
                        Err(Fault::new(at, format!("`{name}` is {is}, not {}", described(tag))))
                    }
                    _ => Ok(Base::Type(id)),
                }
            }
            Some(Symbol::Constant(_) | Symbol::Value(..)) => {
                Err(Fault::new(at, format!("`{name}` is a constant, not a type")))
            }
            Some(Symbol::Program) => Err(Fault::new(at, format!("`{name}` is a program, not a type"))),
            None => self.foreign(name).ok_or_else(|| {
                let reason = format!(
                    "no type `{name}` is declared; if it comes from elsewhere, the side file names it under [types]"
                );
                Fault::new(at, reason)
            }),
        }
    }

    /// Returns a type that the description does not declare.
    fn foreign(&self, name: &str) -> Option<Base> {
        let of_c = || {
            Some(match name {
                "int32_t" | "int32" | "int16_t" | "int8_t" | "long" | "short" | "char" => Base::Int,
                "uint32_t" | "u_int32_t" | "uint32" | "uint16_t" | "uint8_t" | "u_int" | "uint"
                | "u_long" | "ulong" | "u_short" | "ushort" | "u_char" => Base::Unsigned,
                "int64_t" | "int64" | "quad_t" | "longlong_t" => Base::Hyper,
                "uint64_t" | "u_int64_t" | "uint64" | "u_quad_t" | "u_longlong_t" => Base::UnsignedHyper,
                "bool_t" => Base::Bool,
                _ => return None,
            })
        };
        let passed =
            || self.passed.contains(name).then(|| Base::External(type_identifier(camel(&words(name)))));
        self.marks.path_of(name).map(Base::External).or_else(of_c).or_else(passed)
    }

    fn size(&self, value: &At<Value>) -> Result<Size, Fault> {
        let found = self.symbols.number(value, "")?;
        let number = u32::try_from(found.number.value).map_err(|_| {
            let reason = format!("a size is from 0 to {}, not {}", u32::MAX, found.number.value);
            Fault::new(value.at, reason)
        })?;
        let expression = found.symbol.and_then(|symbol| self.symbols.expression(symbol));
        let text = expression.map_or_else(|| literal(found.number), |name| format!("{name} as usize"));
        Ok(Size { number, text })
    }

    /// Looks up the cases of a union, once all types are known.
    fn cases(&self, id: usize, types: &mut [TypeDef], aliases: &Aliases) -> Result<(), Fault> {
        let Some(TypeDef { kind: Kind::Union(union), .. }) = types.get(id) else { return Ok(()) };
        let discriminant = aliases.through(&union.discriminant, types);
        let refused = || Fault::new(union.discriminant.at, NO_DISCRIMINANT);
        if discriminant.shape != Shape::One {
            return Err(refused());
        }
        let domain = match &discriminant.base {
            Base::Int => Domain::Range("int", i32::MIN.into()..=i32::MAX.into()),
            Base::Unsigned => Domain::Range("unsigned int", 0..=u32::MAX.into()),
            Base::Bool => Domain::Range("bool", 0..=1),
            Base::Type(id) => match (types.get(*id), self.symbols.drafts.get(*id)) {
                (Some(TypeDef { kind: Kind::Enum(_), path, rust, .. }), Some(draft)) => {
                    Domain::Enum { path, rust, draft }
                }
                _ => return Err(refused()),
            },
            _ => return Err(refused()),
        };
        let mut all = Vec::new();
        let mut seen: HashMap<i128, Position> = HashMap::new();
        for value in union.arms.iter().flat_map(|arm| &arm.values) {
            let case = self.case(value, &domain)?;
            if let Some(first) = seen.insert(case.number, value.at) {
                let reason = format!("`case {}` has an arm already, at {first}", case.text);
                return Err(Fault::new(value.at, reason));
            }
            all.push(case);
        }
        let mut scope = Scope::default();
        if union.default.is_some() {
            scope.take("Default".to_owned());
        }
        let constants = all.iter().filter(|case| case.rust.is_empty()).map(|case| case.text.as_str());
        let mut constants = without_prefix(constants).into_iter();
        for case in &mut all {
            let wanted = if case.rust.is_empty() {
                variant_identifier(camel(&constants.next().unwrap_or_default()))
            } else {
                std::mem::take(&mut case.rust)
            };
            case.rust = scope.take(wanted);
        }
        let is_bool = discriminant.base == Base::Bool;
        let mut all = all.into_iter();
        if let Some(def) = types.get_mut(id)
            && let Kind::Union(union) = &mut def.kind
        {
            for arm in &mut union.arms {
                arm.cases = all.by_ref().take(arm.values.len()).collect();
            }
            // An item in an `Option` can't be DDP-eligible.
            if is_bool && let Some(item) = maybe(union).filter(|item| !self.marks.makes_eligible(&item.path))
            {
                def.kind = Kind::Maybe(item);
            }
        }
        Ok(())
    }

    fn case(&self, value: &At<Value>, domain: &Domain<'_>) -> Result<Case, Fault> {
        let found = self.symbols.number(value, "")?;
        let (number, text) = (found.number.value, value.value.to_string());
        let expression = found.symbol.and_then(|symbol| self.symbols.expression(symbol));
        let variant_of = |symbol| match symbol {
            Symbol::Value(id, index) => {
                self.symbols.drafts.get(id).and_then(|draft| draft.variants.get(index))
            }
            _ => None,
        };
        let named = found.symbol.and_then(variant_of);
        match domain {
            Domain::Enum { path, rust, draft } => {
                let index = i32::try_from(number).ok().and_then(|number| draft.numbers.get(&number));
                let variant = index.and_then(|index| draft.variants.get(*index));
                let variant = variant.ok_or_else(|| {
                    Fault::new(value.at, format!("`{text}` is no value of `{path}`, the discriminant's type"))
                })?;
                let word = format!("{rust}::{} as u32", variant.rust);
                let name = arm_name(named.unwrap_or(variant));
                Ok(Case { text, rust: name, word, number })
            }
            Domain::Range(name, range) => {
                if !range.contains(&number) {
                    return Err(Fault::new(
                        value.at,
                        format!("`{text}` is no value of `{name}`, the discriminant's type"),
                    ));
                }
                let is_u32 =
                    matches!(found.symbol, Some(Symbol::Constant(_))) && u32::try_from(number).is_ok();
                let word = match expression {
                    Some(name) if is_u32 => name,
                    Some(name) => format!("{name} as u32"),
                    None if number < 0 => format!("{number}_i32 as u32"),
                    None => literal(found.number),
                };
                let rust = match (named, &value.value) {
                    _ if *name == "bool" => (if number == 1 { "True" } else { "False" }).to_owned(),
                    (Some(variant), _) => arm_name(variant),
                    // The names of constants lose their prefix together.
                    (None, Value::Name(_)) => String::new(),
                    (None, Value::Number(_)) if number < 0 => format!("CaseMinus{}", number.unsigned_abs()),
                    (None, Value::Number(_)) => format!("Case{number}"),
                };
                Ok(Case { text, rust, word, number })
            }
        }
    }

    fn program(&self, program: &tree::Program) -> Result<Program, Fault> {
        let number = unsigned(&program.number, "program")?;
        if !(1..0x6000_0000).contains(&number) {
            let reason = format!("the program number {} is reserved (RFC 5531 §8.3)", program.number);
            return Err(Fault::new(program.number.at, reason));
        }
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        let mut versions = Vec::new();
        for version in &program.versions {
            let number = unsigned(&version.number, "version")?;
            if number == 0 {
                return Err(Fault::new(
                    version.number.at,
                    "the number of a version is 1 or more (RFC 5531 §8.1)",
                ));
            }
            if !names.insert(&version.name.value) {
                let reason = format!("the program has a version `{}` already", version.name);
                return Err(Fault::new(version.name.at, reason));
            }
            if !numbers.insert(number) {
                let reason = format!("the program has a version with the number {number} already");
                return Err(Fault::new(version.number.at, reason));
            }
            let procedures = self.procedures(&program.name.value, version)?;
            versions.push(Version {
                name: version.name.value.clone(),
                at: version.name.at,
                rust: String::new(),
                number,
                procedures,
            });
        }
        Ok(Program { name: program.name.value.clone(), number: program.number.value, versions })
    }

    fn procedures(&self, program: &str, version: &tree::Version) -> Result<Vec<Procedure>, Fault> {
        let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
        let mut methods = Scope::with(&METHODS);
        let mut types = Scope::with(&OF_MODULE);
        let mut procedures = Vec::new();
        let all = &version.procedures;
        let short = of_procedures(program, all.iter().map(|procedure| procedure.name.value.as_str()));
        for (procedure, words) in all.iter().zip(short) {
            let (name, at) = (procedure.name.value.clone(), procedure.name.at);
            let number = unsigned(&procedure.number, "procedure")?;
            if !names.insert(name.clone()) {
                return Err(Fault::new(at, format!("the version has a procedure `{name}` already")));
            }
            if !numbers.insert(number) {
                let reason = format!("the version has a procedure with the number {number} already");
                return Err(Fault::new(procedure.number.at, reason));
            }
            let arguments = self.side(procedure, Side::Arguments)?;
            let results = self.side(procedure, Side::Results)?;
            if number == 0 {
                if arguments.is_some() || results.is_some() {
                    let reason =
                        "procedure 0 takes and returns `void`: every program has it (RFC 5531 §12.1)";
                    return Err(Fault::new(procedure.number.at, reason));
                }
                self.marks.know_null(&version.name.value, &name);
                continue;
            }
            let marks = self.marks.procedure(&version.name.value, &name);
            let method = plain_identifier(methods.take(snake(&words)));
            let rust = types.take(type_identifier(camel(&words)));
            procedures.push(Procedure { name, at, method, rust, number, arguments, results, marks });
        }
        Ok(procedures)
    }

    /// Returns the arguments or the results of a procedure as one item.
    fn side(&self, procedure: &tree::Procedure, side: Side) -> Result<Option<Item>, Fault> {
        let (parameter, name) = match side {
            Side::Arguments => (procedure.arguments.first(), "arguments"),
            Side::Results => (procedure.results.as_ref(), "results"),
        };
        let Some(parameter) = parameter else { return Ok(None) };
        let base = match self.symbols.made(procedure, side) {
            Some(id) => Base::Type(id),
            None => self.base(&parameter.kind)?,
        };
        let path = format!("{}.{name}", procedure.name);
        let at = parameter.kind.at;
        Ok(Some(Item { name: name.to_owned(), path, at, base, shape: Shape::One, mark: Mark::default() }))
    }
}

const NO_DISCRIMINANT: &str = "a discriminant is an `int`, `unsigned int`, `bool` or enumeration";

/// Methods that every client or service has; a procedure must not have their names.
const METHODS: [&str; 5] = ["new", "caller", "accepts_flavor", "requires_integrity", "is_light"];

/// Types and type parameters in the module of a version: they hide those around it.
pub(crate) const OF_MODULE: [&str; 5] = ["Client", "Server", "Service", "S", "C"];

/// The values of a discriminant.
enum Domain<'a> {
    Range(&'static str, std::ops::RangeInclusive<i128>),
    Enum { path: &'a str, rust: &'a str, draft: &'a Draft<'a> },
}

/// Returns the name of the arm for a value. A second name of one number is a constant, so it has another form.
fn arm_name(variant: &Variant) -> String {
    match variant.same_as {
        None => variant.rust.clone(),
        Some(_) => variant_identifier(camel(&words(&variant.rust))),
    }
}

/// Returns the content of the arm for TRUE, if FALSE has none.
fn maybe(union: &Union) -> Option<Item> {
    let arm = |wanted| {
        let of_case = union.arms.iter().find(|arm| arm.cases.iter().any(|case| case.number == wanted));
        of_case.map(|arm| &arm.content).or(union.default.as_ref())
    };
    let (Some(Some(content)), Some(None)) = (arm(1), arm(0)) else { return None };
    Some(content.clone())
}

/// For each type: the last one of the typedefs that only give another name, which begin with it. They form no circle.
pub(crate) struct Aliases(Vec<TypeId>);

impl Aliases {
    /// Follows all typedefs. A chain of them is walked once.
    pub(crate) fn of(types: &[TypeDef]) -> Self {
        let next = |id: TypeId| match types.get(id).map(|def| &def.kind) {
            Some(Kind::Alias(Item { shape: Shape::One, base: Base::Type(next), .. })) => {
                matches!(types.get(*next), Some(TypeDef { kind: Kind::Alias(_), .. })).then_some(*next)
            }
            _ => None,
        };
        let mut ends: Vec<Option<TypeId>> = vec![None; types.len()];
        for start in 0..types.len() {
            let mut chain = vec![start];
            let mut end = start;
            while let Some(further) = next(end) {
                end = further;
                if let Some(Some(known)) = ends.get(end) {
                    end = *known;
                    break;
                }
                chain.push(end);
            }
            for id in chain {
                if let Some(place) = ends.get_mut(id) {
                    *place = Some(end);
                }
            }
        }
        Self(ends.into_iter().flatten().collect())
    }

    /// Returns what an item is once all typedefs that only give names are followed.
    pub(crate) fn through<'t>(&self, item: &'t Item, types: &'t [TypeDef]) -> &'t Item {
        if item.shape == Shape::One
            && let Base::Type(id) = item.base
            && let Some(end) = self.0.get(id)
            && let Some(TypeDef { kind: Kind::Alias(last), .. }) = types.get(*end)
        {
            return last;
        }
        item
    }
}

fn unique_names<'i>(items: impl IntoIterator<Item = &'i Item>, what: &str) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    for item in items {
        if !seen.insert(&item.name) {
            return Err(Fault::new(item.at, format!("`{}` names another {what} already", item.name)));
        }
    }
    Ok(())
}

fn unsigned(number: &At<Number>, what: &str) -> Result<u32, Fault> {
    u32::try_from(number.value.value).map_err(|_| {
        let reason = format!("the number of a {what} is from 0 to {}, not {}", u32::MAX, number.value.value);
        Fault::new(number.at, reason)
    })
}

/// Returns a number as Rust writes it.
pub(crate) fn literal(number: Number) -> String {
    use crate::lexer::Base::{Decimal, Hexadecimal, Octal};
    match number.base {
        Decimal => number.value.to_string(),
        Octal if number.value < 8 => number.value.to_string(),
        Octal => format!("0o{:o}", number.value),
        Hexadecimal => format!("{:#x}", number.value),
    }
}

/// Gives the modules of versions their names; those of two programs may have one name.
fn name_modules(programs: &mut [Program]) {
    let primitive = ["bool", "u8", "u32", "i32", "u64", "i64", "f32", "f64", "usize", "str"];
    let mut scope = Scope::with(&primitive);
    for program in programs {
        for version in &mut program.versions {
            version.rust = plain_identifier(scope.take(snake(&words(&version.name))));
        }
    }
}

const fn body_tag(body: &Body<'_>) -> Option<Tag> {
    match body {
        Body::Alias(_) | Body::Results(_) => None,
        Body::Struct(_) | Body::Arguments(_) => Some(Tag::Struct),
        Body::Enum => Some(Tag::Enum),
        Body::Union(_) => Some(Tag::Union),
    }
}

const fn described(tag: Tag) -> &'static str {
    match tag {
        Tag::Enum => "an enumeration",
        Tag::Struct => "a structure",
        Tag::Union => "a union",
    }
}
