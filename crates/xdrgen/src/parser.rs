//! The parser: recursive descent over the grammar of RFC 4506 §6.3 and RFC 5531 §12.2.
//!
//! It takes some forms beside the grammar that published descriptions have: `unsigned` alone, `struct NAME` as a type,
//! `string` and names in lists of arguments, a named constant in `const`. It looks up no names.
//!
//! *Errors.* The first word that does not continue the text ends it, with what was expected and what was found. Types
//! inside one another are limited, so no text makes the parser recurse without end.

use crate::docs::{Declared, Docs};
use crate::error::{Fault, Position};
use crate::lexer::{FILE_MAX, Lexer, Number, Token, is_keyword};
use crate::tree::{
    Arm, At, Declaration, Definition, Enumerator, Item, Name, Parameter, Procedure, Program, Shape,
    Specification, Tag, Type, UnionBody, Value, Version,
};

/// Most types without names of their own, one inside the other.
pub const DEPTH_MAX: usize = 32;

impl Specification {
    /// Parses a description.
    ///
    /// # Errors
    /// The text has more than [`FILE_MAX`] bytes, does not follow the grammar, or nests types deeper than [`DEPTH_MAX`]. A
    /// name has more than [`NAME_MAX`](crate::NAME_MAX) letters.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        if text.len() > FILE_MAX {
            let reason = format!("the file has more than {FILE_MAX} bytes");
            return Err(Fault::new(Position::START, reason));
        }
        let mut parser = Parser::new(text)?;
        let mut definitions = Vec::new();
        while parser.token != Token::End {
            definitions.push(parser.definition()?);
        }
        let passed = parser.lexer.passed().iter().map(|line| (*line).to_owned()).collect();
        let docs = Docs::of(parser.lexer.comments(), &parser.declared);
        Ok(Self { definitions, passed, docs })
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next word.
    token: Token<'a>,
    at: Position,
    depth: usize,
    declared: Vec<Declared>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, Fault> {
        let mut lexer = Lexer::new(text);
        let (token, at) = lexer.next()?;
        Ok(Self { lexer, token, at, depth: 0, declared: Vec::new() })
    }

    /// Takes the next word.
    fn take(&mut self) -> Result<Token<'a>, Fault> {
        let taken = self.token;
        (self.token, self.at) = self.lexer.next()?;
        Ok(taken)
    }

    fn expected(&self, what: &str) -> Fault {
        Fault::new(self.at, format!("expected {what}, found {}", self.token))
    }

    fn is_word(&self, word: &str) -> bool {
        self.token == Token::Word(word)
    }

    /// Takes the next word if it is this one.
    fn accept_word(&mut self, word: &str) -> Result<bool, Fault> {
        let is = self.is_word(word);
        if is {
            self.take()?;
        }
        Ok(is)
    }

    fn accept(&mut self, sign: char) -> Result<bool, Fault> {
        let is = self.token == Token::Sign(sign);
        if is {
            self.take()?;
        }
        Ok(is)
    }

    /// Takes this sign; `why` says more about it.
    fn sign(&mut self, sign: char, why: &str) -> Result<(), Fault> {
        if self.accept(sign)? { Ok(()) } else { Err(self.expected(&format!("`{sign}`{why}"))) }
    }

    fn name(&mut self, what: &str) -> Result<Name, Fault> {
        match self.token {
            Token::Word(word) if !is_keyword(word) => {
                let name = Name::new(word.to_owned(), self.at);
                self.take()?;
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Takes the name of a declaration that begins at `start`.
    fn declared(&mut self, start: Position, what: &str) -> Result<Name, Fault> {
        let name = self.name(what)?;
        self.declared.push(Declared { start, name: name.at });
        Ok(name)
    }

    fn number(&mut self, what: &str) -> Result<At<Number>, Fault> {
        match self.token {
            Token::Number(number) => {
                let number = At::new(number, self.at);
                self.take()?;
                Ok(number)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn value(&mut self, what: &str) -> Result<At<Value>, Fault> {
        let at = self.at;
        let value = match self.token {
            Token::Number(number) => Value::Number(number),
            Token::Word(word) if !is_keyword(word) => Value::Name(word.to_owned()),
            _ => return Err(self.expected(what)),
        };
        self.take()?;
        Ok(At::new(value, at))
    }

    fn definition(&mut self) -> Result<Definition, Fault> {
        let Token::Word(word) = self.token else { return Err(self.expected(DEFINITION)) };
        let start = self.at;
        let definition = match word {
            "const" => self.constant()?,
            "typedef" => {
                self.take()?;
                Definition::Typedef(self.declaration_from(start, "a type")?)
            }
            "enum" => {
                self.take()?;
                let name = self.declared(start, "the name of the enumeration")?;
                Definition::Enum { name, body: self.enum_body()? }
            }
            "struct" => {
                self.take()?;
                let name = self.declared(start, "the name of the structure")?;
                Definition::Struct { name, body: self.struct_body()? }
            }
            "union" => {
                self.take()?;
                let name = self.declared(start, "the name of the union")?;
                Definition::Union { name, body: Box::new(self.union_body()?) }
            }
            "program" => Definition::Program(self.program()?),
            _ => return Err(self.expected(DEFINITION)),
        };
        self.sign(';', " at the end of the definition")?;
        Ok(definition)
    }

    fn constant(&mut self) -> Result<Definition, Fault> {
        let start = self.at;
        self.take()?;
        let name = self.declared(start, "the name of the constant")?;
        if matches!(self.token, Token::Word(_)) {
            return Err(self.expected("`=`: a constant has no type"));
        }
        self.sign('=', "")?;
        Ok(Definition::Constant { name, value: self.value("a number")? })
    }

    /// Counts the types around this one while `read` reads it.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth >= DEPTH_MAX {
            return Err(Fault::new(self.at, format!("types inside one another, more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn enum_body(&mut self) -> Result<Vec<Enumerator>, Fault> {
        self.sign('{', "")?;
        let mut body = Vec::new();
        loop {
            let name = self.declared(self.at, "the name of a value")?;
            self.sign('=', ": an enumeration states the value of each name")?;
            body.push(Enumerator { name, value: self.value("a number or a constant")? });
            if self.accept('}')? {
                return Ok(body);
            }
            self.sign(',', " or `}`")?;
        }
    }

    fn struct_body(&mut self) -> Result<Vec<Declaration>, Fault> {
        self.nested(|parser| {
            parser.sign('{', "")?;
            let mut body = Vec::new();
            loop {
                body.push(parser.declaration("a member")?);
                parser.sign(';', " after the member")?;
                if parser.accept('}')? {
                    return Ok(body);
                }
            }
        })
    }

    fn union_body(&mut self) -> Result<UnionBody, Fault> {
        self.nested(|parser| {
            if !parser.accept_word("switch")? {
                return Err(parser.expected("`switch`"));
            }
            parser.sign('(', "")?;
            let at = parser.at;
            let Declaration::Item(discriminant) = parser.declaration("the discriminant")? else {
                return Err(Fault::new(at, "expected the discriminant, found the keyword `void`"));
            };
            parser.sign(')', " after the discriminant")?;
            parser.sign('{', "")?;
            let mut arms = vec![parser.arm()?];
            while parser.is_word("case") {
                arms.push(parser.arm()?);
            }
            let mut default = None;
            if parser.accept_word("default")? {
                parser.sign(':', " after `default`")?;
                default = Some(parser.declaration("the content of the arm")?);
                parser.sign(';', " after the content of the arm")?;
                parser.sign('}', ": `default` is the last arm")?;
            } else {
                parser.sign('}', ", `case` or `default`")?;
            }
            Ok(UnionBody { discriminant, arms, default })
        })
    }

    fn arm(&mut self) -> Result<Arm, Fault> {
        if !self.is_word("case") {
            return Err(self.expected("`case`"));
        }
        let mut cases = Vec::new();
        while self.accept_word("case")? {
            cases.push(self.value("a value of the discriminant")?);
            self.sign(':', " after the value")?;
        }
        let content = self.declaration("the content of the arm")?;
        self.sign(';', " after the content of the arm")?;
        Ok(Arm { cases, content })
    }

    fn declaration(&mut self, what: &str) -> Result<Declaration, Fault> {
        self.declaration_from(self.at, what)
    }

    /// Reads a declaration whose first word is at `start`.
    fn declaration_from(&mut self, start: Position, what: &str) -> Result<Declaration, Fault> {
        if self.is_word("void") {
            let at = self.at;
            self.take()?;
            return Ok(Declaration::Void(At::new((), at)));
        }
        let kind = self.kind(what)?;
        if self.token == Token::Sign('*') {
            if matches!(kind.value, Type::Opaque | Type::String) {
                return Err(self.expected("a name: only a type with a name can be optional"));
            }
            self.take()?;
            let name = self.declared(start, "a name after `*`")?;
            return Ok(Declaration::Item(Item { kind, name, shape: Shape::Optional }));
        }
        let name = self.declared(start, "a name after the type")?;
        let shape = match (&kind.value, self.token) {
            (Type::String, Token::Sign('<')) => self.counted()?,
            (Type::String, _) => return Err(self.expected("`<`: a string has a maximum, or `<>`")),
            (_, Token::Sign('<')) => self.counted()?,
            (_, Token::Sign('[')) => {
                self.take()?;
                let size = self.value("a size")?;
                self.sign(']', " after the size")?;
                Shape::Fixed(size)
            }
            (Type::Opaque, _) => {
                return Err(self.expected("`[` or `<`: opaque data has a size or a maximum, or `<>`"));
            }
            _ => Shape::One,
        };
        Ok(Declaration::Item(Item { kind, name, shape }))
    }

    /// Reads `<MAXIMUM>` or `<>`.
    fn counted(&mut self) -> Result<Shape, Fault> {
        self.take()?;
        if self.accept('>')? {
            return Ok(Shape::Counted(None));
        }
        let max = self.value("a maximum or `>`")?;
        self.sign('>', " after the maximum")?;
        Ok(Shape::Counted(Some(max)))
    }

    /// Reads a type, `opaque` and `string` among them.
    fn kind(&mut self, what: &str) -> Result<At<Type>, Fault> {
        let at = self.at;
        let Token::Word(word) = self.token else { return Err(self.expected(what)) };
        let simple = match word {
            "int" => Type::Int,
            "hyper" => Type::Hyper,
            "float" => Type::Float,
            "double" => Type::Double,
            "quadruple" => Type::Quadruple,
            "bool" => Type::Bool,
            "opaque" => Type::Opaque,
            "string" => Type::String,
            "unsigned" => return self.unsigned(at),
            "enum" => return self.tagged(Tag::Enum, at),
            "struct" => return self.tagged(Tag::Struct, at),
            "union" => return self.tagged(Tag::Union, at),
            _ => Type::Named(None, self.name(what)?.value),
        };
        if !matches!(simple, Type::Named(..)) {
            self.take()?;
        }
        Ok(At::new(simple, at))
    }

    /// Reads what follows `unsigned`: nothing, too. `rpcgen` knows more than the RFCs: types of C that take one word.
    fn unsigned(&mut self, at: Position) -> Result<At<Type>, Fault> {
        self.take()?;
        let kind = match self.token {
            Token::Word("hyper") => Type::UnsignedHyper,
            Token::Word("int" | "long" | "short" | "char") => Type::Unsigned,
            _ => return Ok(At::new(Type::Unsigned, at)),
        };
        self.take()?;
        Ok(At::new(kind, at))
    }

    /// Reads a body, or the name of a type of this kind.
    fn tagged(&mut self, tag: Tag, at: Position) -> Result<At<Type>, Fault> {
        self.take()?;
        let kind = match (tag, self.token) {
            (_, Token::Word(word)) if !is_keyword(word) => {
                self.take()?;
                Type::Named(Some(tag), word.to_owned())
            }
            (Tag::Enum, Token::Sign('{')) => Type::Enum(self.enum_body()?),
            (Tag::Struct, Token::Sign('{')) => Type::Struct(self.struct_body()?),
            (Tag::Union, Token::Word("switch")) => Type::Union(Box::new(self.union_body()?)),
            (Tag::Enum | Tag::Struct, _) => return Err(self.expected("a name or `{`")),
            (Tag::Union, _) => return Err(self.expected("a name or `switch`")),
        };
        Ok(At::new(kind, at))
    }

    fn program(&mut self) -> Result<Program, Fault> {
        let start = self.at;
        self.take()?;
        let name = self.declared(start, "the name of the program")?;
        self.sign('{', "")?;
        let mut versions = Vec::new();
        loop {
            if !self.is_word("version") {
                let what = if versions.is_empty() { "`version`" } else { "`version` or `}`" };
                return Err(self.expected(what));
            }
            versions.push(self.version()?);
            if self.accept('}')? {
                break;
            }
        }
        self.sign('=', " and the number of the program")?;
        Ok(Program { name, versions, number: self.number("the number of the program")? })
    }

    fn version(&mut self) -> Result<Version, Fault> {
        let start = self.at;
        self.take()?;
        let name = self.declared(start, "the name of the version")?;
        self.sign('{', "")?;
        let mut procedures = Vec::new();
        loop {
            procedures.push(self.procedure()?);
            if self.accept('}')? {
                break;
            }
        }
        self.sign('=', " and the number of the version")?;
        let number = self.number("the number of the version")?;
        self.sign(';', " after the version")?;
        Ok(Version { name, procedures, number })
    }

    fn procedure(&mut self) -> Result<Procedure, Fault> {
        let start = self.at;
        let results =
            if self.accept_word("void")? { None } else { Some(self.parameter("the results' type")?) };
        let name = self.declared(start, "the name of the procedure")?;
        self.sign('(', " and the arguments")?;
        let mut arguments = Vec::new();
        if !self.accept_word("void")? {
            loop {
                let mut argument = self.parameter("the type of an argument, or `void`")?;
                if matches!(self.token, Token::Word(_)) {
                    argument.name = Some(self.name("`,` or `)`")?);
                }
                arguments.push(argument);
                if !self.accept(',')? {
                    break;
                }
            }
        }
        self.sign(')', if arguments.is_empty() { " after `void`" } else { " or `,` after the argument" })?;
        self.sign('=', " and the number of the procedure")?;
        let number = self.number("the number of the procedure")?;
        self.sign(';', " after the procedure")?;
        Ok(Procedure { results, name, arguments, number })
    }

    fn parameter(&mut self, what: &str) -> Result<Parameter, Fault> {
        let kind = self.kind(what)?;
        let mut max = None;
        if kind.value == Type::String
            && self.token == Token::Sign('<')
            && let Shape::Counted(found) = self.counted()?
        {
            max = found;
        }
        if kind.value == Type::Opaque {
            return Err(Fault::new(
                kind.at,
                format!("expected {what}, found the keyword `opaque`: give it a `typedef`"),
            ));
        }
        Ok(Parameter { kind, max, name: None })
    }
}

const DEFINITION: &str = "`const`, `typedef`, `enum`, `struct`, `union` or `program`";
