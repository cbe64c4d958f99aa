//! Words of the XDR language (RFC 4506 §6.2): names, numbers and signs.
//!
//! A line whose first visible character is `%` is not XDR: `rpcgen` copies it to its output. The lexer keeps these lines
//! aside, and the comments. Lines that begin with `#` belong to the C preprocessor and are refused.
//!
//! *Errors.* The first wrong character or number ends the text, with its place.

use std::fmt;

use crate::docs::Comment;
use crate::error::{Fault, Position};

/// Largest description, in bytes.
pub const FILE_MAX: usize = 1 << 20;

/// Longest name, in letters.
pub const NAME_MAX: usize = 255;

/// A word of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name or a keyword.
    Word(&'a str),
    /// A number.
    Number(Number),
    /// One of the signs that [`SIGNS`] lists.
    Sign(char),
    /// The end of the text.
    End,
}

/// A number: a constant of the language, in the base in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    /// From -2⁶³ to 2⁶⁴ - 1.
    pub(crate) value: i128,
    pub(crate) base: Base,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Octal,
    Decimal,
    Hexadecimal,
}

impl Number {
    const MIN: i128 = i64::MIN as i128;
    const MAX: i128 = u64::MAX as i128;
}

/// Prints the number as the language writes it.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            Base::Decimal => write!(f, "{}", self.value),
            Base::Octal if self.value == 0 => f.write_str("0"),
            Base::Octal => write!(f, "0{:o}", self.value),
            Base::Hexadecimal => write!(f, "0x{:x}", self.value),
        }
    }
}

/// Describes the word in a message.
impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) if is_keyword(word) => write!(f, "the keyword `{word}`"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Number(number) => write!(f, "the number `{number}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
            Self::End => f.write_str("the end of the file"),
        }
    }
}

/// Returns whether a word can't be a name (RFC 4506 §6.4, RFC 5531 §12.3).
pub(crate) fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "bool"
            | "case"
            | "const"
            | "default"
            | "double"
            | "quadruple"
            | "enum"
            | "float"
            | "hyper"
            | "int"
            | "opaque"
            | "program"
            | "string"
            | "struct"
            | "switch"
            | "typedef"
            | "union"
            | "unsigned"
            | "version"
            | "void"
    )
}

const SIGNS: &str = "{}()[]<>;:,=*";

/// The rest of a text.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    rest: &'a str,
    position: Position,
    /// Nothing but white space came on this line so far.
    at_line_start: bool,
    passed: Vec<&'a str>,
    comments: Vec<Comment<'a>>,
}

impl<'a> Lexer<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        let position = Position::START;
        Self { rest: text, position, at_line_start: true, passed: Vec::new(), comments: Vec::new() }
    }

    /// Returns the comments so far.
    pub(crate) fn comments(&self) -> &[Comment<'a>] {
        &self.comments
    }

    /// Returns the `%` lines so far, without the sign.
    pub(crate) fn passed(&self) -> &[&'a str] {
        &self.passed
    }

    /// Returns the next word and its place.
    pub(crate) fn next(&mut self) -> Result<(Token<'a>, Position), Fault> {
        self.skip()?;
        let position = self.position;
        let Some(first) = self.rest.chars().next() else { return Ok((Token::End, position)) };
        let token = if first.is_ascii_alphabetic() {
            let word = self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_');
            if word.len() > NAME_MAX {
                let reason = format!("a name of {} letters; at most {NAME_MAX} are allowed", word.len());
                return Err(Fault::new(position, reason));
            }
            Token::Word(word)
        } else if first.is_ascii_digit() || first == '-' {
            Token::Number(self.number()?)
        } else if SIGNS.contains(first) {
            self.advance();
            Token::Sign(first)
        } else {
            return Err(Fault::new(position, stray(first)));
        };
        Ok((token, position))
    }

    /// Skips white space, comments and `%` lines.
    fn skip(&mut self) -> Result<(), Fault> {
        loop {
            let start = self.position;
            match self.rest.chars().next() {
                Some(space) if space.is_whitespace() => {
                    self.advance();
                }
                Some('%') if self.at_line_start => {
                    let line = self.take_while(|letter| letter != '\n');
                    self.passed.push(line.strip_prefix('%').unwrap_or(line).trim_end());
                }
                Some('#') if self.at_line_start => {
                    let reason =
                        "a line for the C preprocessor: run `cpp -P` on the file first, or delete the line";
                    return Err(Fault::new(start, reason));
                }
                Some('/') => {
                    let is_first = self.at_line_start;
                    self.advance();
                    if self.rest.starts_with('/') {
                        let reason = "expected a comment `/* … */`, found `//`";
                        return Err(Fault::new(start, reason));
                    }
                    if !self.rest.starts_with('*') {
                        return Err(Fault::new(start, stray('/')));
                    }
                    self.advance();
                    let text = self.comment(start)?;
                    self.comments.push(Comment { text, start, end: self.position, is_first });
                }
                _ => return Ok(()),
            }
        }
    }

    /// Takes a comment behind its first two characters, and returns its text.
    fn comment(&mut self, start: Position) -> Result<&'a str, Fault> {
        let text = self.rest;
        while let Some(letter) = self.advance() {
            if letter == '*' && self.rest.starts_with('/') {
                let length = text.len() - self.rest.len() - 1;
                self.advance();
                return Ok(text.get(..length).unwrap_or_default());
            }
        }
        Err(Fault::new(start, "expected `*/` at the end of this comment, found the end of the file"))
    }

    fn number(&mut self) -> Result<Number, Fault> {
        let start = self.position;
        let is_negative = self.rest.starts_with('-');
        if is_negative {
            self.advance();
        }
        let text = self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let (base, radix, digits) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
            (Some(digits), _) => (Base::Hexadecimal, 16, digits),
            (None, Some("")) => (Base::Octal, 8, "0"),
            (None, Some(digits)) => (Base::Octal, 8, digits),
            (None, None) => (Base::Decimal, 10, text),
        };
        if is_negative && base != Base::Decimal {
            return Err(Fault::new(start, "expected a decimal number without a leading 0 after `-`"));
        }
        if let Some(wrong) = digits.chars().find(|digit| !digit.is_digit(radix)) {
            let kind = match base {
                Base::Octal => "an octal digit, since the number begins with 0",
                Base::Decimal => "a decimal digit",
                Base::Hexadecimal => "a hexadecimal digit",
            };
            return Err(Fault::new(start, format!("expected {kind}, found `{wrong}` in `{text}`")));
        }
        if digits.is_empty() {
            return Err(Fault::new(start, "expected digits"));
        }
        let value =
            i128::from_str_radix(digits, radix).ok().map(|value| if is_negative { -value } else { value });
        match value {
            Some(value) if (Number::MIN..=Number::MAX).contains(&value) => Ok(Number { value, base }),
            _ => Err(Fault::new(start, "expected a number of at most 64 bits")),
        }
    }

    /// Takes characters as long as they are wanted.
    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !is_wanted(letter)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.position.column += taken.chars().count();
        self.at_line_start = false;
        taken
    }

    /// Takes one character.
    fn advance(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let letter = letters.next()?;
        self.rest = letters.as_str();
        if letter == '\n' {
            self.position = Position { line: self.position.line + 1, column: 1 };
            self.at_line_start = true;
        } else {
            self.position.column += 1;
            self.at_line_start &= letter.is_whitespace();
        }
        Some(letter)
    }
}

/// Describes a character that begins no word.
fn stray(letter: char) -> String {
    match letter {
        '"' | '\'' => "the language has no strings or characters as constants".to_owned(),
        '_' => "expected a name, which begins with a letter, found `_`".to_owned(),
        '%' => "a `%` line has nothing but white space before the sign".to_owned(),
        letter => format!("the character `{}` has no meaning in the language", letter.escape_default()),
    }
}
