//! Plain values of types, which take the place of what a function returns.

use syn::{GenericArgument, PathArguments, PathSegment, Type};

/// Returns expressions of a type. Some of them may not compile: a type is known by its name only.
pub(crate) fn of(ty: &Type) -> Vec<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(of_path).unwrap_or_default(),
        Type::Tuple(tuple) => {
            let first: Vec<String> =
                tuple.elems.iter().filter_map(|element| of(element).into_iter().next()).collect();
            if first.len() < tuple.elems.len() { Vec::new() } else { vec![format!("({})", first.join(", "))] }
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => vec!["\"\"".to_owned()],
            Type::Slice(_) => vec!["&mut []".to_owned()],
            _ => Vec::new(),
        },
        Type::Array(_) => vec![DEFAULT.to_owned()],
        Type::Paren(inner) => of(&inner.elem),
        Type::Group(inner) => of(&inner.elem),
        _ => Vec::new(),
    }
}

const DEFAULT: &str = "::core::default::Default::default()";

fn of_path(segment: &PathSegment) -> Vec<String> {
    let name = segment.ident.to_string();
    let inner = || argument(segment).map(of).unwrap_or_default();
    match name.as_str() {
        "bool" => vec!["true".to_owned(), "false".to_owned()],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => {
            vec!["0".to_owned(), "1".to_owned()]
        }
        "Option" => {
            let some = inner().into_iter().map(|value| format!("Some({value})"));
            std::iter::once("None".to_owned()).chain(some).collect()
        }
        "Result" => inner().into_iter().map(|value| format!("Ok({value})")).collect(),
        _ => vec![DEFAULT.to_owned()],
    }
}

/// Returns the first type in the angle brackets.
fn argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
