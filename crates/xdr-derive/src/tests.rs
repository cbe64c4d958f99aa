//! The generated code and the refusals, as text.

use super::*;

/// Declarations of every kind.
const DECLARATIONS: &[&str] = &[
    "struct Empty;",
    "struct Name(#[xdr(max = 255)] Text);",
    "struct Put { #[xdr(max = 4)] key: Bytes, #[xdr(ddp, max = 8)] value: Payload }",
    "struct Lists { #[xdr(list)] any: Vec<u32>, #[xdr(list, max = 2)] few: Vec<u32>, id: u64 }",
    "struct Tree { #[xdr(recursive)] next: Option<Box<Tree>>, #[xdr(recursive, max = 2)] children: Vec<Tree> }",
    "struct Pair<A, B>(A, B);",
    "enum Status { Ok = 0, NoEntry = 2 }",
    "enum Got { #[xdr(value = 0)] Ok { #[xdr(max = 2)] words: Vec<u32> }, #[xdr(default)] Failed(Status) }",
    "enum Shape<T> { #[xdr(value = 0)] None, #[xdr(value = 1)] Some(T) }",
];

fn expanded(declaration: &str) -> syn::Result<String> {
    let default = quote!(::rpcrdma::xdr);
    Ok(expand(&syn::parse_str(declaration)?, default)?.to_string().replace(' ', ""))
}

/// A crate that depends on `rpcrdma` alone has no other crate of this project to name.
#[test]
fn generated_code_names_one_crate_by_one_path() {
    for declaration in DECLARATIONS {
        let code = expanded(declaration).unwrap();
        assert!(!code.contains("rpcrdma_xdr"), "{code}");
        let foreign: Vec<_> =
            code.replace("::rpcrdma::xdr::", "").match_indices("::rpcrdma").map(|(at, _)| at).collect();
        assert_eq!(foreign, [], "{code}");

        let elsewhere = expanded(&format!("#[xdr(crate = ::kv::hidden)] {declaration}")).unwrap();
        assert!(!elsewhere.contains("rpcrdma"), "{elsewhere}");
        assert_eq!(elsewhere, code.replace("::rpcrdma::xdr::", "::kv::hidden::"));
    }
}

#[test]
fn a_type_names_its_crate_by_any_path_of_modules() {
    for path in ["::kv::xdr", "kv::xdr", "crate::xdr", "self::xdr", "super::xdr"] {
        let code = expanded(&format!("#[xdr(crate = {path})] struct Empty;")).unwrap();
        assert!(code.contains(&format!("impl{path}::EncodeforEmpty")), "{code}");
    }
}

/// Each refusal says how to declare the item.
#[test]
fn wrong_declarations_are_refused() {
    for (declaration, refusal) in [
        ("struct A(#[xdr(ddp)] Bytes);", "a DDP-eligible item is counted: it needs `max = N`"),
        ("struct A(#[xdr(ddp, list, max = 1)] Vec<u32>);", "a linked list is not DDP-eligible"),
        ("struct A(#[xdr(ddp, recursive, max = 1)] Bytes);", "a DDP-eligible item is not recursive"),
        (
            "struct A(#[xdr(size = 1)] Bytes);",
            "a field accepts only `max = N`, `ddp`, `list` and `recursive`",
        ),
        (
            "#[xdr(max = 1)] struct A(Bytes);",
            "a type accepts only `crate = path`; other attributes belong to fields and arms",
        ),
        ("#[xdr(crate = a, crate = b)] struct A;", "a type names one crate"),
        ("#[xdr(crate = a)] #[xdr(crate = b)] struct A;", "a type names one crate"),
        ("#[xdr(crate = \"a\")] struct A;", "expected identifier"),
        (
            "struct A { a: Option<Box<A>> }",
            "a field that can hold its own type again needs `#[xdr(recursive)]`",
        ),
        (
            "struct A<T>(#[xdr(max = 1)] Vec<(T, [Self; 2])>);",
            "a field that can hold its own type again needs `#[xdr(recursive)]`",
        ),
        (
            "enum A { #[xdr(value = 1)] B { #[xdr(list, max = 1)] a: Vec<A> } }",
            "a field that can hold its own type again needs `#[xdr(recursive)]`",
        ),
        ("enum A {}", "an enumeration without values has no XDR form"),
        ("enum A { B }", "an enumeration needs explicit values: `Name = N`"),
        ("enum A { B(u32) }", "an arm with data needs `#[xdr(value = N)]` or `#[xdr(default)]`"),
        ("enum A { #[xdr(value = 1)] B, C }", "an arm needs `#[xdr(value = N)]` or `#[xdr(default)]`"),
        ("enum A { #[xdr(value = 1)] B = 1 }", "an arm's value is given by `#[xdr(value = N)]`"),
        ("enum A { #[xdr(value = 1, default)] B }", "an arm has one selector"),
        ("enum A { #[xdr(max = 1)] B }", "an arm accepts only `value = N` or `default`"),
        (
            "enum A { #[xdr(default)] B, #[xdr(value = 1)] C }",
            "the first field of a default arm holds the discriminant",
        ),
        ("enum A { #[xdr(default)] B(u32), #[xdr(default)] C(u32) }", "a union has one default arm"),
        ("union A { b: u32 }", "an XDR union is declared as an enum"),
    ] {
        assert_eq!(expanded(declaration).unwrap_err().to_string(), refusal, "{declaration}");
    }
}

/// A type of another module may have the name of this one.
#[test]
fn a_longer_path_is_another_type() {
    for declaration in [
        "struct A(b::A, Option<::b::A>, A::B, [b::A<u32>; 2]);",
        "struct A(#[xdr(list)] Vec<A>);",
        "struct A(#[xdr(recursive)] Option<Box<A>>);",
    ] {
        assert!(expanded(declaration).is_ok(), "{declaration}");
    }
}
