//! A description whose names are looked up: the form that code is written from.

use crate::docs::Docs;
use crate::error::Position;
use crate::lexer::Number;
use crate::marks::ProcedureMarks;
use crate::tree::{At, Value};

/// Index of a type in [`Model::types`].
pub(crate) type TypeId = usize;

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) constants: Vec<Constant>,
    /// The types of the file in their order, each behind those that it holds without a name.
    pub(crate) types: Vec<TypeDef>,
    pub(crate) programs: Vec<Program>,
    pub(crate) docs: Docs,
}

#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) at: Position,
    pub(crate) rust: String,
    pub(crate) number: Number,
}

#[derive(Clone, Debug)]
pub(crate) struct TypeDef {
    /// The name, or the names of the types and members around it: `outer.member`.
    pub(crate) path: String,
    pub(crate) rust: String,
    pub(crate) at: Position,
    pub(crate) kind: Kind,
    pub(crate) traits: Traits,
}

/// Properties of a type that follow from its members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traits {
    pub(crate) is_copy: bool,
    /// Whether a value may hold a floating-point number.
    pub(crate) has_float: bool,
    /// Whether a value may hold a DDP-eligible item.
    pub(crate) has_eligible: bool,
    /// Whether values have a largest size.
    pub(crate) has_end: bool,
    /// Types of one number hold one another, if they are [`recursive`](Self::is_recursive).
    pub(crate) circle: usize,
    pub(crate) is_recursive: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Alias(Item),
    Struct(Vec<Item>),
    Enum(Vec<Variant>),
    Union(Union),
    /// A union of a boolean, which has nothing in its arm for FALSE.
    Maybe(Item),
}

#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) at: Position,
    pub(crate) rust: String,
    pub(crate) number: i32,
    /// The variant with this number, if there is one before this.
    pub(crate) same_as: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Union {
    pub(crate) discriminant: Item,
    pub(crate) arms: Vec<Arm>,
    pub(crate) default: Option<Option<Item>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Arm {
    /// The values as the text has them, until they are looked up.
    pub(crate) values: Vec<At<Value>>,
    pub(crate) cases: Vec<Case>,
    /// `None` for void.
    pub(crate) content: Option<Item>,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The value as the text has it.
    pub(crate) text: String,
    /// Name of the arm in Rust.
    pub(crate) rust: String,
    /// The word on the wire, as a constant expression of Rust.
    pub(crate) word: String,
    pub(crate) number: i128,
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    /// Name of the item for the side file: `type.member`.
    pub(crate) path: String,
    pub(crate) at: Position,
    pub(crate) base: Base,
    pub(crate) shape: Shape,
    pub(crate) mark: Mark,
}

/// The marks of an item in the side file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) eligible: Eligible,
    pub(crate) utf8: bool,
}

/// Whether an item may travel in a chunk, and as which type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Eligible {
    #[default]
    No,
    /// In one slice: `Bytes`, or `Text`.
    Joined,
    /// In the slices in which it arrived: `Payload`.
    Slices,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Int,
    Unsigned,
    Hyper,
    UnsignedHyper,
    Float,
    Double,
    Bool,
    Opaque,
    String,
    Type(TypeId),
    /// A type of elsewhere, by its path in Rust.
    External(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Fixed(Size),
    Counted(Option<Size>),
    Optional,
    /// A linked list: its elements come without the last member, which leads to the next.
    List(Option<Size>),
}

/// A size or maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) number: u32,
    /// The number as an expression of Rust for a `usize`.
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) number: Number,
    pub(crate) versions: Vec<Version>,
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) at: Position,
    /// Name of the module.
    pub(crate) rust: String,
    pub(crate) number: u32,
    pub(crate) procedures: Vec<Procedure>,
}

#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    pub(crate) name: String,
    pub(crate) at: Position,
    /// Name of the method.
    pub(crate) method: String,
    /// Name of the type.
    pub(crate) rust: String,
    pub(crate) number: u32,
    /// `None` for void.
    pub(crate) arguments: Option<Item>,
    pub(crate) results: Option<Item>,
    pub(crate) marks: ProcedureMarks,
}

/// The kind of change that a procedure makes, as `oncrpc::Effect` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Effect {
    Idempotent,
    Data,
    #[default]
    State,
}

impl Kind {
    /// Returns whether a type is another name for something that needs no type of its own.
    pub(crate) const fn is_alias(&self) -> bool {
        match self {
            Self::Alias(item) | Self::Maybe(item) => {
                !matches!(item.shape, Shape::Counted(_) | Shape::List(_))
            }
            Self::Struct(_) | Self::Enum(_) | Self::Union(_) => false,
        }
    }

    /// Returns all items of a type, discriminants excepted.
    pub(crate) fn items(&self) -> Vec<&Item> {
        match self {
            Self::Alias(item) | Self::Maybe(item) => vec![item],
            Self::Struct(items) => items.iter().collect(),
            Self::Enum(_) => Vec::new(),
            Self::Union(union) => {
                let arms = union.arms.iter().filter_map(|arm| arm.content.as_ref());
                arms.chain(union.default.as_ref().and_then(Option::as_ref)).collect()
            }
        }
    }

    /// Returns all items of a type, to be changed; discriminants excepted.
    pub(crate) fn items_mut(&mut self) -> Vec<&mut Item> {
        match self {
            Self::Alias(item) | Self::Maybe(item) => vec![item],
            Self::Struct(items) => items.iter_mut().collect(),
            Self::Enum(_) => Vec::new(),
            Self::Union(union) => {
                let arms = union.arms.iter_mut().filter_map(|arm| arm.content.as_mut());
                arms.chain(union.default.as_mut().and_then(Option::as_mut)).collect()
            }
        }
    }
}
