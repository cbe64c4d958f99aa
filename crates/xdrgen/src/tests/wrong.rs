//! Wrong descriptions, each with its whole message.

use super::code;

const GRAMMAR: &[(&str, &str)] = &[
    ("foo", "1:1: expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found `foo`"),
    (
        "int a;",
        "1:1: expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found the keyword `int`",
    ),
    (";", "1:1: expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found `;`"),
    ("const A = 1", "1:12: expected `;` at the end of the definition, found the end of the file"),
    ("const A 1;", "1:9: expected `=`, found the number `1`"),
    ("const A = ;", "1:11: expected a number, found `;`"),
    ("const int A = 1;", "1:7: expected the name of the constant, found the keyword `int`"),
    ("const uint32 A = 1;", "1:14: expected `=`: a constant has no type, found `A`"),
    ("typedef int;", "1:12: expected a name after the type, found `;`"),
    ("typedef void;", "1:9: expected a type after `typedef`, found the keyword `void`"),
    ("typedef int a[];", "1:15: expected a size, found `]`"),
    ("typedef int a[1;", "1:16: expected `]` after the size, found `;`"),
    ("typedef int a<1;", "1:16: expected `>` after the maximum, found `;`"),
    ("typedef int a<-;", "1:15: expected digits"),
    ("typedef int a<int>;", "1:15: expected a maximum or `>`, found the keyword `int`"),
    ("typedef int *;", "1:14: expected a name after `*`, found `;`"),
    ("typedef int a[1][2];", "1:17: expected `;` at the end of the definition, found `[`"),
    (
        "typedef opaque a;",
        "1:17: expected `[` or `<`: opaque data has a size or a maximum, or `<>`, found `;`",
    ),
    ("typedef opaque *a;", "1:16: expected a name: only a type with a name can be optional, found `*`"),
    ("typedef string a;", "1:17: expected `<`: a string has a maximum, or `<>`, found `;`"),
    ("typedef string a[4];", "1:17: expected `<`: a string has a maximum, or `<>`, found `[`"),
    ("typedef unsigned float a;", "1:18: expected a name after the type, found the keyword `float`"),
    ("typedef unsigned bool a;", "1:18: expected a name after the type, found the keyword `bool`"),
    ("typedef unsigned quadruple a;", "1:18: expected a name after the type, found the keyword `quadruple`"),
    ("typedef void a;", "1:14: expected `;` at the end of the definition, found `a`"),
    ("typedef void *a;", "1:14: expected `;` at the end of the definition, found `*`"),
    ("typedef int *a[2];", "1:15: expected `;` at the end of the definition, found `[`"),
    ("typedef int **a;", "1:14: expected a name after `*`, found `*`"),
    ("typedef string *a<>;", "1:16: expected a name: only a type with a name can be optional, found `*`"),
    ("typedef struct a;", "1:17: expected a name after the type, found `;`"),
    ("typedef struct < a;", "1:16: expected a name or `{`, found `<`"),
    ("typedef union < a;", "1:15: expected a name or `switch`, found `<`"),
    ("typedef program a;", "1:9: expected a type, found the keyword `program`"),
    ("enum { A = 1 };", "1:6: expected the name of the enumeration, found `{`"),
    ("enum a { };", "1:10: expected the name of a value, found `}`"),
    ("enum a { A };", "1:12: expected `=`: an enumeration states the value of each name, found `}`"),
    ("enum a { A = 1, };", "1:17: expected the name of a value, found `}`"),
    ("enum a { A = 1 B = 2 };", "1:16: expected `,` or `}`, found `B`"),
    ("enum a { A = };", "1:14: expected a number or a constant, found `}`"),
    ("struct a { };", "1:12: expected a member, found `}`"),
    ("struct a { int b };", "1:18: expected `;` after the member, found `}`"),
    ("struct a { int case; };", "1:16: expected a name after the type, found the keyword `case`"),
    ("struct a { int b; }", "1:20: expected `;` at the end of the definition, found the end of the file"),
    ("struct a { int b;", "1:18: expected a member, found the end of the file"),
    ("struct a { void b; };", "1:17: expected `;` after the member, found `b`"),
    ("struct a { int b, c; };", "1:17: expected `;` after the member, found `,`"),
    ("struct a { int b[<]; };", "1:18: expected a size, found `<`"),
    ("struct a { int b; } c;", "1:21: expected `;` at the end of the definition, found `c`"),
    ("struct a int b;", "1:10: expected `{`, found the keyword `int`"),
    ("union a { };", "1:9: expected `switch`, found `{`"),
    ("union a switch int b { };", "1:16: expected `(`, found the keyword `int`"),
    ("union a switch (void) { };", "1:17: expected the discriminant, found the keyword `void`"),
    ("union a switch (int b { };", "1:23: expected `)` after the discriminant, found `{`"),
    ("union a switch (int b) { };", "1:26: expected `case`, found `}`"),
    ("union a switch (int b) { default: void; };", "1:26: expected `case`, found the keyword `default`"),
    ("union a switch (int b) { case: void; };", "1:30: expected a value of the discriminant, found `:`"),
    (
        "union a switch (int b) { case 1 void; };",
        "1:33: expected `:` after the value, found the keyword `void`",
    ),
    ("union a switch (int b) { case 1: };", "1:34: expected the content of the arm, found `}`"),
    (
        "union a switch (int b) { case 1: void };",
        "1:39: expected `;` after the content of the arm, found `}`",
    ),
    (
        "union a switch (int b) { case 1: void; int c; };",
        "1:40: expected `}`, `case` or `default`, found the keyword `int`",
    ),
    (
        "union a switch (int b) { case 1: void; default void; };",
        "1:48: expected `:` after `default`, found the keyword `void`",
    ),
    (
        "union a switch (int b) { case 1: void; default: void; case 2: void; };",
        "1:55: expected `}`: `default` is the last arm, found the keyword `case`",
    ),
    (
        "program { version V { void A(void) = 1; } = 1; } = 1;",
        "1:9: expected the name of the program, found `{`",
    ),
    (
        "program P version V { void A(void) = 1; } = 1; } = 1;",
        "1:11: expected `{`, found the keyword `version`",
    ),
    (
        "program P { version { void A(void) = 1; } = 1; } = 1;",
        "1:21: expected the name of the version, found `{`",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; } = 1",
        "1:55: expected `;` at the end of the definition, found the end of the file",
    ),
    (
        "program P { version V { void A(int *) = 1; } = 1; } = 1;",
        "1:36: expected `)` or `,` after the argument, found `*`",
    ),
    ("program P { } = 1;", "1:13: expected `version`, found `}`"),
    ("program P { version V { } = 1; } = 1;", "1:25: expected the results' type, found `}`"),
    (
        "program P { version V { void A(void) = 1; } = 1; int } = 1;",
        "1:50: expected `version` or `}`, found the keyword `int`",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1 } = 1;",
        "1:49: expected `;` after the version, found `}`",
    ),
    (
        "program P { version V { void A(void) = 1; }; };",
        "1:44: expected `=` and the number of the version, found `;`",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; };",
        "1:51: expected `=` and the number of the program, found `;`",
    ),
    (
        "program P { version V { void A(void) = B; } = 1; } = 1;",
        "1:40: expected the number of the procedure, found `B`",
    ),
    (
        "program P { version V { void A(void) = 1 } = 1; } = 1;",
        "1:42: expected `;` after the procedure, found `}`",
    ),
    (
        "program P { version V { void A() = 1; } = 1; } = 1;",
        "1:32: expected the type of an argument, or `void`, found `)`",
    ),
    (
        "program P { version V { void A(void, int) = 1; } = 1; } = 1;",
        "1:36: expected `)` after `void`, found `,`",
    ),
    (
        "program P { version V { void A(int b c) = 1; } = 1; } = 1;",
        "1:38: expected `)` or `,` after the argument, found `c`",
    ),
    (
        "program P { version V { opaque A(void) = 1; } = 1; } = 1;",
        "1:25: expected the results' type, found the keyword `opaque`: give it a `typedef`",
    ),
    (
        "program P { version V { void (void) = 1; } = 1; } = 1;",
        "1:30: expected the name of the procedure, found `(`",
    ),
];

const WORDS: &[(&str, &str)] = &[
    ("const A = 0x;", "1:11: expected digits"),
    ("const A = 0X1;", "1:11: expected an octal digit, since the number begins with 0, found `X` in `0X1`"),
    ("const A = -01;", "1:11: expected a decimal number without a leading 0 after `-`"),
    ("const A = +1;", "1:11: the character `+` has no meaning in the language"),
    ("const A = 1.5;", "1:12: the character `.` has no meaning in the language"),
    ("const A = 01777777777777777777777777;", "1:11: expected a number of at most 64 bits"),
    ("const A = 0xg;", "1:11: expected a hexadecimal digit, found `g` in `0xg`"),
    ("const A = 09;", "1:11: expected an octal digit, since the number begins with 0, found `9` in `09`"),
    ("const A = 1a;", "1:11: expected a decimal digit, found `a` in `1a`"),
    ("const A = 1_000;", "1:11: expected a decimal digit, found `_` in `1_000`"),
    ("const A = -0x1;", "1:11: expected a decimal number without a leading 0 after `-`"),
    ("const A = - 1;", "1:11: expected digits"),
    ("const A = 18446744073709551616;", "1:11: expected a number of at most 64 bits"),
    ("const A = -9223372036854775809;", "1:11: expected a number of at most 64 bits"),
    ("const A = 0x10000000000000000000000000000000000000000;", "1:11: expected a number of at most 64 bits"),
    ("const A = \"a\";", "1:11: the language has no strings or characters as constants"),
    ("const A = 'a';", "1:11: the language has no strings or characters as constants"),
    ("const _A = 1;", "1:7: expected a name, which begins with a letter, found `_`"),
    ("const A = 1 + 1;", "1:13: the character `+` has no meaning in the language"),
    ("const \u{e4} = 1;", "1:7: the character `\\u{e4}` has no meaning in the language"),
    ("const A = 1 / 1;", "1:13: the character `/` has no meaning in the language"),
    ("const A = 1; // one", "1:14: expected a comment `/* … */`, found `//`"),
    ("const A = 1;\n\t /* one", "2:3: expected `*/` at the end of this comment, found the end of the file"),
    (
        "#include <a.h>",
        "1:1: a line for the C preprocessor: run `cpp -P` on the file first, or delete the line",
    ),
    ("const A = 1; %x", "1:14: a `%` line has nothing but white space before the sign"),
    ("const A = 1;\r\nconst A 2;\r\n", "2:9: expected `=`, found the number `2`"),
    ("\u{feff}const A = 1;", "1:1: the character `\\u{feff}` has no meaning in the language"),
    ("/*/ const A = 1;", "1:1: expected `*/` at the end of this comment, found the end of the file"),
    ("/* /* */ */", "1:10: expected `const`, `typedef`, `enum`, `struct`, `union` or `program`, found `*`"),
    (
        "  # 1 \"a.h\"",
        "1:3: a line for the C preprocessor: run `cpp -P` on the file first, or delete the line",
    ),
    ("/* a */ %x", "1:9: a `%` line has nothing but white space before the sign"),
];

const NAMES: &[(&str, &str)] = &[
    ("const A = 1; const A = 2;", "1:20: `A` is declared already, at 1:7"),
    ("const A = 1;\nstruct A { int b; };", "2:8: `A` is declared already, at 1:7"),
    ("enum a { A = 1 };\nenum b { A = 1 };", "2:10: `A` is declared already, at 1:10"),
    (
        "const A = 1; program A { version V { void B(void) = 1; } = 1; } = 1;",
        "1:22: `A` is declared already, at 1:7",
    ),
    ("const A = B; const B = 1;", "1:11: no constant `B` is declared before this place"),
    ("enum a { A = B, B = 1 };", "1:14: no constant `B` is declared before this place"),
    ("typedef int a<B>;", "1:15: no constant `B` is declared"),
    ("struct a { int b; }; typedef int c<a>;", "1:36: `a` is a type, not a constant"),
    (
        "program P { version V { void A(void) = 1; } = 1; } = 1; const A = P;",
        "1:67: `P` is a program, not a constant",
    ),
    (
        "typedef foo a;",
        "1:9: no type `foo` is declared; if it comes from elsewhere, the side file names it under [types]",
    ),
    (
        "%struct food;\ntypedef foo a;",
        "2:9: no type `foo` is declared; if it comes from elsewhere, the side file names it under [types]",
    ),
    ("const A = 1; typedef A a;", "1:22: `A` is a constant, not a type"),
    ("enum a { A = 1 }; typedef A b;", "1:27: `A` is a constant, not a type"),
    ("program P { version V { void A(P) = 1; } = 1; } = 1;", "1:32: `P` is a program, not a type"),
    ("enum a { A = 1 }; typedef struct a b;", "1:27: `a` is an enumeration, not a structure"),
    ("struct a { int b; }; typedef union a b;", "1:30: `a` is a structure, not a union"),
    (
        "union a switch (int b) { case 1: void; }; typedef enum a b;",
        "1:51: `a` is a union, not an enumeration",
    ),
    ("typedef int a; typedef struct a b;", "1:24: `a` is a typedef, not a structure"),
    ("struct a { int b; hyper b; };", "1:25: `b` names another member already"),
    ("union a switch (int b) { case 1: int c; case 2: int c; };", "1:53: `c` names another arm already"),
    ("union a switch (int b) { case 1: int c; default: int c; };", "1:54: `c` names another arm already"),
    (
        "program P { version V { void A(int b, int b) = 1; } = 1; } = 1;",
        "1:39: `b` names another argument already",
    ),
    (
        "program P { version V { void A(void) = 1; void A(void) = 2; } = 1; } = 1;",
        "1:48: the version has a procedure `A` already",
    ),
    (
        "program P { version V { void A(void) = 1; void B(void) = 1; } = 1; } = 1;",
        "1:58: the version has a procedure with the number 1 already",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; version V { void A(void) = 1; } = 2; } = 1;",
        "1:58: the program has a version `V` already",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; version W { void A(void) = 1; } = 1; } = 1;",
        "1:84: the program has a version with the number 1 already",
    ),
];

const RULES: &[(&str, &str)] = &[
    (
        "typedef quadruple a;",
        "1:9: `quadruple` is not supported: Rust has no type for it; use `opaque NAME[16]`",
    ),
    ("typedef int a[-1];", "1:15: a size is from 0 to 4294967295, not -1"),
    ("typedef opaque a<0x100000000>;", "1:18: a size is from 0 to 4294967295, not 4294967296"),
    ("const A = -1; typedef int a<A>;", "1:29: a size is from 0 to 4294967295, not -1"),
    (
        "enum a { A = 0x80000000 };",
        "1:14: a value of an enumeration is from -2147483648 to 2147483647, not 2147483648",
    ),
    (
        "union a switch (hyper b) { case 1: void; };",
        "1:23: a discriminant is an `int`, `unsigned int`, `bool` or enumeration",
    ),
    (
        "union a switch (int b<>) { case 1: void; };",
        "1:21: a discriminant is an `int`, `unsigned int`, `bool` or enumeration",
    ),
    (
        "struct s { int a; }; union a switch (s b) { case 1: void; };",
        "1:40: a discriminant is an `int`, `unsigned int`, `bool` or enumeration",
    ),
    (
        "typedef int *p; union a switch (p b) { case 1: void; };",
        "1:35: a discriminant is an `int`, `unsigned int`, `bool` or enumeration",
    ),
    (
        "%struct x;\nunion a switch (x b) { case 1: void; };",
        "2:19: a discriminant is an `int`, `unsigned int`, `bool` or enumeration",
    ),
    (
        "enum e { A = 1 }; union a switch (e b) { case 2: void; };",
        "1:47: `2` is no value of `e`, the discriminant's type",
    ),
    (
        "enum e { A = 1 }; const B = 3; union a switch (e b) { case B: void; };",
        "1:60: `B` is no value of `e`, the discriminant's type",
    ),
    (
        "union a switch (bool b) { case 2: void; };",
        "1:32: `2` is no value of `bool`, the discriminant's type",
    ),
    (
        "union a switch (unsigned b) { case -1: void; };",
        "1:36: `-1` is no value of `unsigned int`, the discriminant's type",
    ),
    (
        "union a switch (int b) { case 0x80000000: void; };",
        "1:31: `0x80000000` is no value of `int`, the discriminant's type",
    ),
    (
        "union a switch (int b) { case 1: void; case 01: int c; };",
        "1:45: `case 01` has an arm already, at 1:31",
    ),
    (
        "enum e { A = 1, B = 1 }; union a switch (e b) { case A: case B: void; };",
        "1:62: `case B` has an arm already, at 1:54",
    ),
    ("typedef a a;", "1:11: `a` holds itself in place, so its size has no end: it must do so by `*` or `<>`"),
    (
        "typedef b a; typedef a b;",
        "1:11: `a` holds itself in place, so its size has no end: it must do so by `*` or `<>`",
    ),
    (
        "struct a { b c[2]; }; struct b { a d; };",
        "1:8: `a` holds itself in place, so its size has no end: it must do so by `*` or `<>`",
    ),
    ("typedef a *a;", "1:12: `a` names itself and holds nothing else: a structure must stand between"),
    (
        "typedef b *a; typedef c b[2]; union c switch (bool d) { case TRUE: a e; case FALSE: void; };",
        "1:12: `a` names itself and holds nothing else: a structure must stand between",
    ),
    (
        "struct a { void; }; struct b { a c<2>; };",
        "1:34: the elements of `b.c` take no bytes, so nothing would limit their number",
    ),
    (
        "typedef opaque a[0]; typedef a b<>;",
        "1:32: the elements of `b` take no bytes, so nothing would limit their number",
    ),
    (
        "union a switch (int b) { case 1: a c; default: void; };",
        "1:7: `a` holds itself in place, so its size has no end: it must do so by `*` or `<>`",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; } = 0;",
        "1:54: the program number 0 is reserved (RFC 5531 §8.3)",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; } = 0x60000000;",
        "1:54: the program number 0x60000000 is reserved (RFC 5531 §8.3)",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; } = -1;",
        "1:54: the number of a program is from 0 to 4294967295, not -1",
    ),
    (
        "program P { version V { void A(void) = 1; } = 1; } = 0x100000000;",
        "1:54: the number of a program is from 0 to 4294967295, not 4294967296",
    ),
    (
        "program P { version V { void A(void) = 1; } = -1; } = 1;",
        "1:47: the number of a version is from 0 to 4294967295, not -1",
    ),
    (
        "program P { version V { void A(void) = 1; } = 0; } = 1;",
        "1:47: the number of a version is 1 or more (RFC 5531 §8.1)",
    ),
    (
        "program P { version V { void A(void) = 0x100000000; } = 1; } = 1;",
        "1:40: the number of a procedure is from 0 to 4294967295, not 4294967296",
    ),
    (
        "program P { version V { int A(void) = 0; } = 1; } = 1;",
        "1:39: procedure 0 takes and returns `void`: every program has it (RFC 5531 §12.1)",
    ),
];

#[test]
fn each_wrong_description_has_its_message() {
    let mut differences = Vec::new();
    for (text, message) in GRAMMAR.iter().chain(WORDS).chain(NAMES).chain(RULES) {
        let found = code(text).unwrap_or_else(|error| error.to_string());
        if found != format!("t.x:{message}") {
            differences.push(format!("{text}\n  found    {found}\n  expected t.x:{message}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
