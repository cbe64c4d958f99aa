//! The tree of a description, as the grammar has it (RFC 4506 §6.3, RFC 5531 §12.2), before any name is looked up.
//!
//! Two trees are equal if they differ only in the places of their words. Printing a tree gives a text that parses to an
//! equal one.

use crate::docs::Docs;
use crate::error::Position;
use crate::lexer::Number;

/// A part of the tree with its place in the text.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) at: Position,
}

impl<T> At<T> {
    pub(crate) const fn new(value: T, at: Position) -> Self {
        Self { value, at }
    }
}

/// The place is no part of the meaning.
impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

pub(crate) type Name = At<String>;

/// All definitions of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    pub(crate) definitions: Vec<Definition>,
    /// The `%` lines, without the sign.
    pub(crate) passed: Vec<String>,
    pub(crate) docs: Docs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Definition {
    Constant { name: Name, value: At<Value> },
    Typedef(Declaration),
    Enum { name: Name, body: Vec<Enumerator> },
    Struct { name: Name, body: Vec<Declaration> },
    Union { name: Name, body: Box<UnionBody> },
    Program(Program),
}

/// A number, or the name of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(Number),
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enumerator {
    pub(crate) name: Name,
    pub(crate) value: At<Value>,
}

/// A member of a structure, an arm's content, a discriminant or a typedef.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Declaration {
    Void(At<()>),
    Item(Item),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) kind: At<Type>,
    pub(crate) name: Name,
    pub(crate) shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Fixed(At<Value>),
    Counted(Option<At<Value>>),
    Optional,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Int,
    Unsigned,
    Hyper,
    UnsignedHyper,
    Float,
    Double,
    Quadruple,
    Bool,
    Opaque,
    String,
    Enum(Vec<Enumerator>),
    Struct(Vec<Declaration>),
    Union(Box<UnionBody>),
    /// A name, perhaps with the kind of its type in front: `struct foo`.
    Named(Option<Tag>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Enum,
    Struct,
    Union,
}

impl Tag {
    pub(crate) const fn keyword(self) -> &'static str {
        match self {
            Self::Enum => "enum",
            Self::Struct => "struct",
            Self::Union => "union",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnionBody {
    pub(crate) discriminant: Item,
    pub(crate) arms: Vec<Arm>,
    pub(crate) default: Option<Declaration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) cases: Vec<At<Value>>,
    pub(crate) content: Declaration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: Name,
    pub(crate) versions: Vec<Version>,
    pub(crate) number: At<Number>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) name: Name,
    pub(crate) procedures: Vec<Procedure>,
    pub(crate) number: At<Number>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Procedure {
    /// `None` for void.
    pub(crate) results: Option<Parameter>,
    pub(crate) name: Name,
    /// Empty for void.
    pub(crate) arguments: Vec<Parameter>,
    pub(crate) number: At<Number>,
}

/// An argument, or the results. A maximum is only for strings, which the grammar does not have here, but published
/// descriptions do (RFC 1833 §2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) kind: At<Type>,
    pub(crate) max: Option<At<Value>>,
    pub(crate) name: Option<Name>,
}
