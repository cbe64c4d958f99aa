//! A description as text again: one that parses to an equal tree.

use std::fmt::{self, Display, Formatter};

use crate::tree::{
    Arm, At, Declaration, Definition, Enumerator, Item, Parameter, Procedure, Program, Shape, Specification,
    Type, UnionBody, Value,
};

/// Prints the description with one definition a line, without its comments. The `%` lines come first.
impl Display for Specification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in &self.passed {
            writeln!(f, "%{line}")?;
        }
        for definition in &self.definitions {
            writeln!(f, "{definition};")?;
        }
        Ok(())
    }
}

impl Display for Definition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { name, value } => write!(f, "const {} = {}", name.value, value.value),
            Self::Typedef(declaration) => write!(f, "typedef {declaration}"),
            Self::Enum { name, body } => write!(f, "enum {} {}", name.value, EnumBody(body)),
            Self::Struct { name, body } => write!(f, "struct {} {}", name.value, StructBody(body)),
            Self::Union { name, body } => write!(f, "union {} {body}", name.value),
            Self::Program(program) => program.fmt(f),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl<T: Display> Display for At<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

struct EnumBody<'a>(&'a [Enumerator]);

impl Display for EnumBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (enumerator, before) in self.0.iter().zip(std::iter::once("{ ").chain(std::iter::repeat(", "))) {
            write!(f, "{before}{} = {}", enumerator.name, enumerator.value)?;
        }
        f.write_str(" }")
    }
}

struct StructBody<'a>(&'a [Declaration]);

impl Display for StructBody<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("{ ")?;
        for declaration in self.0 {
            write!(f, "{declaration}; ")?;
        }
        f.write_str("}")
    }
}

impl Display for UnionBody {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "switch ({}) {{ ", self.discriminant)?;
        for Arm { cases, content } in &self.arms {
            for case in cases {
                write!(f, "case {case}: ")?;
            }
            write!(f, "{content}; ")?;
        }
        if let Some(content) = &self.default {
            write!(f, "default: {content}; ")?;
        }
        f.write_str("}")
    }
}

impl Display for Declaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void(_) => f.write_str("void"),
            Self::Item(item) => item.fmt(f),
        }
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, name, shape } = self;
        match shape {
            Shape::One => write!(f, "{kind} {name}"),
            Shape::Fixed(size) => write!(f, "{kind} {name}[{size}]"),
            Shape::Counted(None) => write!(f, "{kind} {name}<>"),
            Shape::Counted(Some(max)) => write!(f, "{kind} {name}<{max}>"),
            Shape::Optional => write!(f, "{kind} *{name}"),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int => f.write_str("int"),
            Self::Unsigned => f.write_str("unsigned int"),
            Self::Hyper => f.write_str("hyper"),
            Self::UnsignedHyper => f.write_str("unsigned hyper"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Quadruple => f.write_str("quadruple"),
            Self::Bool => f.write_str("bool"),
            Self::Opaque => f.write_str("opaque"),
            Self::String => f.write_str("string"),
            Self::Enum(body) => write!(f, "enum {}", EnumBody(body)),
            Self::Struct(body) => write!(f, "struct {}", StructBody(body)),
            Self::Union(body) => write!(f, "union {body}"),
            Self::Named(None, name) => f.write_str(name),
            Self::Named(Some(tag), name) => write!(f, "{} {name}", tag.keyword()),
        }
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "program {} {{ ", self.name)?;
        for version in &self.versions {
            write!(f, "version {} {{ ", version.name)?;
            for procedure in &version.procedures {
                write!(f, "{procedure}; ")?;
            }
            write!(f, "}} = {}; ", version.number)?;
        }
        write!(f, "}} = {}", self.number)
    }
}

impl Display for Procedure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.results {
            Some(results) => write!(f, "{results} {}(", self.name)?,
            None => write!(f, "void {}(", self.name)?,
        }
        if self.arguments.is_empty() {
            f.write_str("void")?;
        }
        for (argument, before) in
            self.arguments.iter().zip(std::iter::once("").chain(std::iter::repeat(", ")))
        {
            write!(f, "{before}{argument}")?;
        }
        write!(f, ") = {}", self.number)
    }
}

impl Display for Parameter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if let Some(max) = &self.max {
            write!(f, "<{max}>")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}
