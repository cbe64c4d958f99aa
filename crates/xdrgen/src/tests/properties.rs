//! Properties: printing and parsing of any tree, and any text.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{code, marked};
use crate::Specification;
use crate::docs::Docs;
use crate::error::Position;
use crate::lexer::{Base, Number, is_keyword};
use crate::tree::{
    Arm, At, Declaration, Definition, Enumerator, Item, Name, Parameter, Procedure, Program, Shape, Tag,
    Type, UnionBody, Value, Version,
};

fn at<T>(value: T) -> At<T> {
    At::new(value, Position::START)
}

fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z][a-zA-Z0-9_]{0,6}".prop_filter("a keyword", |word| !is_keyword(word))
}

fn name() -> impl Strategy<Value = Name> {
    word().prop_map(at)
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        (i64::MIN..=-1).prop_map(|value| Number { value: value.into(), base: Base::Decimal }),
        (1..=u64::MAX).prop_map(|value| Number { value: value.into(), base: Base::Decimal }),
        any::<u64>().prop_map(|value| Number { value: value.into(), base: Base::Octal }),
        any::<u64>().prop_map(|value| Number { value: value.into(), base: Base::Hexadecimal }),
    ]
}

fn value() -> impl Strategy<Value = At<Value>> {
    prop_oneof![number().prop_map(Value::Number), word().prop_map(Value::Name)].prop_map(at)
}

fn enum_body() -> impl Strategy<Value = Vec<Enumerator>> {
    vec((name(), value()).prop_map(|(name, value)| Enumerator { name, value }), 1..4)
}

fn tag() -> impl Strategy<Value = Option<Tag>> {
    option::of(prop_oneof![Just(Tag::Enum), Just(Tag::Struct), Just(Tag::Union)])
}

/// Types without `opaque` and `string`, which have shapes of their own.
fn simple() -> impl Strategy<Value = Type> {
    prop_oneof![
        Just(Type::Int),
        Just(Type::Unsigned),
        Just(Type::Hyper),
        Just(Type::UnsignedHyper),
        Just(Type::Float),
        Just(Type::Double),
        Just(Type::Quadruple),
        Just(Type::Bool),
        (tag(), word()).prop_map(|(tag, name)| Type::Named(tag, name)),
        enum_body().prop_map(Type::Enum),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::One),
        Just(Shape::Optional),
        value().prop_map(Shape::Fixed),
        option::of(value()).prop_map(Shape::Counted),
    ]
}

fn item(kind: impl Strategy<Value = Type>) -> impl Strategy<Value = Item> {
    (kind, name(), shape()).prop_map(|(kind, name, shape)| Item { kind: at(kind), name, shape })
}

fn counted() -> impl Strategy<Value = Item> {
    (name(), option::of(value()), any::<bool>()).prop_map(|(name, max, is_string)| {
        let kind = if is_string { Type::String } else { Type::Opaque };
        Item { kind: at(kind), name, shape: Shape::Counted(max) }
    })
}

fn declaration_of(kind: BoxedStrategy<Type>) -> impl Strategy<Value = Declaration> {
    prop_oneof![
        1 => Just(Declaration::Void(at(()))),
        2 => counted().prop_map(Declaration::Item),
        6 => item(kind).prop_map(Declaration::Item),
    ]
}

fn struct_body(kind: BoxedStrategy<Type>) -> impl Strategy<Value = Vec<Declaration>> {
    vec(declaration_of(kind), 1..4)
}

fn union_body(kind: BoxedStrategy<Type>) -> impl Strategy<Value = UnionBody> {
    let arm = (vec(value(), 1..3), declaration_of(kind.clone()));
    let arm = arm.prop_map(|(cases, content)| Arm { cases, content });
    let default = option::of(declaration_of(kind.clone()));
    (item(kind), vec(arm, 1..3), default).prop_map(|(discriminant, arms, default)| UnionBody {
        discriminant,
        arms,
        default,
    })
}

/// Any type but `opaque` and `string`, to some depth.
fn kind() -> BoxedStrategy<Type> {
    simple()
        .prop_recursive(3, 24, 3, |inner| {
            let inner = inner.boxed();
            prop_oneof![
                struct_body(inner.clone()).prop_map(Type::Struct),
                union_body(inner).prop_map(|body| Type::Union(Box::new(body))),
            ]
        })
        .boxed()
}

fn parameter() -> impl Strategy<Value = Parameter> {
    prop_oneof![
        4 => kind().prop_map(|kind| Parameter { kind: at(kind), max: None, name: None }),
        1 => option::of(value())
            .prop_map(|max| Parameter { kind: at(Type::String), max, name: None }),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let argument =
        (parameter(), option::of(name())).prop_map(|(argument, name)| Parameter { name, ..argument });
    let procedure = (option::of(parameter()), name(), vec(argument, 0..3), number()).prop_map(
        |(results, name, arguments, number)| Procedure { results, name, arguments, number: at(number) },
    );
    let version = (name(), vec(procedure, 1..3), number());
    let version =
        version.prop_map(|(name, procedures, number)| Version { name, procedures, number: at(number) });
    (name(), vec(version, 1..3), number()).prop_map(|(name, versions, number)| Program {
        name,
        versions,
        number: at(number),
    })
}

fn definition() -> impl Strategy<Value = Definition> {
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Definition::Constant { name, value }),
        declaration_of(kind()).prop_map(Definition::Typedef),
        (name(), enum_body()).prop_map(|(name, body)| Definition::Enum { name, body }),
        (name(), struct_body(kind())).prop_map(|(name, body)| Definition::Struct { name, body }),
        (name(), union_body(kind()))
            .prop_map(|(name, body)| Definition::Union { name, body: Box::new(body) }),
        program().prop_map(Definition::Program),
    ]
}

fn specification() -> impl Strategy<Value = Specification> {
    (vec(definition(), 0..5), vec("[ -~]{0,12}", 0..3)).prop_map(|(definitions, passed)| {
        // The lexer cuts white space at the ends of lines.
        let passed = passed.iter().map(|line| line.trim_end().to_owned()).collect();
        Specification { definitions, passed, docs: Docs::default() }
    })
}

/// Words of the language in any order get further than random characters.
fn words() -> impl Strategy<Value = String> {
    let words = [
        "const", "typedef", "enum", "struct", "union", "switch", "case", "default", "program", "version",
        "void", "int", "unsigned", "hyper", "opaque", "string", "bool", "a", "b", "A", "B", "1", "0x2", "-3",
        "07", "{", "}", "(", ")", "<", ">", "[", "]", "=", ";", ",", ":", "*", "\n%a", "/* c */", "/*",
        "\u{20ac}",
    ];
    vec(proptest::sample::select(words.to_vec()), 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_tree_parses_to_an_equal_one(tree in specification()) {
        let text = tree.to_string();
        prop_assert_eq!(Specification::parse(&text), Ok(tree), "{}", text);
    }

    /// Most trees break a rule; none is too much for the checks.
    #[test]
    fn any_tree_gives_code_or_a_fault(tree in specification()) {
        let _ = code(&tree.to_string());
    }

    #[test]
    fn any_words_give_code_or_a_fault(text in words()) {
        let _ = code(&text);
    }

    #[test]
    fn any_text_gives_code_or_a_fault(text in any::<String>(), marks in any::<String>()) {
        let _ = marked(&text, &marks);
        let _ = marked("typedef opaque a<>;", &marks);
    }
}
