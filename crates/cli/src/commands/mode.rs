//! Permissions as `chmod` takes them: octal, or symbolic as in POSIX (`u+rwX,go-w`).

use std::str::FromStr;

/// All bits that a mode has.
const ALL: u32 = 0o7777;
/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;
/// The sticky bit.
const STICKY: u32 = 0o1000;

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// This mode. In octal with less than five digits, set-id bits of directories stay, as with the GNU coreutils.
    Octal {
        /// The mode.
        mode: u32,
        /// Whether set-id bits of directories are changed too.
        whole: bool,
    },
    /// Clauses, one after the other.
    Symbolic(Vec<Clause>),
}

/// Part of a symbolic mode, such as `u+rw`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clause {
    /// Bits of the classes named; `None` if none is, which means all that the umask leaves.
    who: Option<u32>,
    operator: Operator,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Bits for all classes, and whether `X` adds execution to directories and programs.
    Bits { bits: u32, programs: bool },
    /// The bits that a class has, by its shift.
    Class(u32),
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a mode: write it in octal, such as 644, or as letters: [ugoa]*[-+=][rwxXst]*, or a class \
                 u, g or o after the sign, with commas between several (u+rwX,go-w)"
            )
        };
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= ALL).ok_or_else(wrong)?;
            return Ok(Self::Octal { mode, whole: text.len() > 4 });
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses).ok_or_else(wrong)?;
        }
        Ok(Self::Symbolic(clauses))
    }
}

/// Adds the clauses of a part between commas: classes, and one or several signs with letters.
fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let signs = ['+', '-', '='];
    let (classes, mut rest) = part.split_at(part.find(signs)?);
    let mut who = None;
    for class in classes.chars() {
        let bits = match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return None,
        };
        who = Some(who.unwrap_or_default() | bits);
    }
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            _ => Operator::Set,
        };
        let after = rest.get(1..)?;
        let (letters, next) = after.split_at(after.find(signs).unwrap_or(after.len()));
        clauses.push(Clause { who, operator, what: parse_letters(letters)? });
        rest = next;
    }
    Some(())
}

fn parse_letters(letters: &str) -> Option<What> {
    match letters {
        "u" => return Some(What::Class(6)),
        "g" => return Some(What::Class(3)),
        "o" => return Some(What::Class(0)),
        _ => {}
    }
    let (mut bits, mut programs) = (0, false);
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => programs = true,
            's' => bits |= SET_ID,
            't' => bits |= STICKY,
            _ => return None,
        }
    }
    Some(What::Bits { bits, programs })
}

impl Change {
    /// Returns the mode after the change of an object with this `mode`.
    pub(super) fn apply(&self, mode: u32, directory: bool, umask: u32) -> u32 {
        match self {
            Self::Octal { mode: new, whole } => {
                let kept = if directory && !whole { mode & SET_ID } else { 0 };
                new | kept
            }
            Self::Symbolic(clauses) => {
                clauses.iter().fold(mode & ALL, |mode, clause| clause.apply(mode, directory, umask))
            }
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, directory: bool, umask: u32) -> u32 {
        let bits = match self.what {
            What::Bits { bits, programs } => {
                let runs = programs && (directory || mode & 0o111 != 0);
                bits | if runs { 0o111 } else { 0 }
            }
            What::Class(shift) => {
                let class = mode >> shift & 7;
                class << 6 | class << 3 | class
            }
        };
        // Without a class, the umask protects bits.
        let affected = self.who.unwrap_or(ALL);
        let bits = bits & affected & if self.who.is_none() { !(umask & 0o777) } else { ALL };
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => {
                // Set-id bits of a directory stay unless they are named; the sticky bit goes with "other" or with all.
                let kept = if directory { SET_ID } else { 0 };
                let cleared = affected & !kept;
                mode & !cleared | bits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected modes are those of `chmod` of the GNU coreutils, with umask 022.
    #[test]
    fn modes_after_a_change() {
        for (text, before, directory, after) in [
            ("644", 0o755, false, 0o644),
            ("0", 0o755, false, 0),
            ("7777", 0o644, false, 0o7777),
            ("755", 0o2700, true, 0o2755),
            ("00755", 0o2700, true, 0o755),
            ("755", 0o2700, false, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("+w", 0o444, false, 0o644),
            ("a+w", 0o444, false, 0o666),
            ("-w", 0o666, false, 0o466),
            ("a-w", 0o666, false, 0o444),
            ("go-w", 0o666, false, 0o644),
            ("u+rwX,go-w", 0o666, false, 0o644),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("u=rwx,g=rx,o=", 0o666, false, 0o750),
            ("g=u", 0o640, false, 0o660),
            ("o=g-w", 0o670, false, 0o675),
            ("u=g", 0o750, false, 0o550),
            ("u+s", 0o755, false, 0o4755),
            ("g+s", 0o755, true, 0o2755),
            ("o+s", 0o755, false, 0o755),
            ("+t", 0o755, true, 0o1755),
            ("u=rw", 0o4755, false, 0o655),
            ("g=rx", 0o2775, true, 0o2755),
            ("a=r", 0o1777, false, 0o444),
            ("u-x+w", 0o555, false, 0o655),
            ("ug=rw,o=", 0o777, false, 0o660),
        ] {
            let change: Change = text.parse().unwrap();
            let found = change.apply(before, directory, 0o022);
            assert_eq!(format!("{found:o}"), format!("{after:o}"), "{text} of {before:o}");
        }
    }

    #[test]
    fn no_modes() {
        for text in [
            "", "8", "99", "10000", "17777", "u", "ux", "u+y", "z+x", "u+rg", "u+x,", ",u+x", "+é", "644,u+x",
        ] {
            let wrong = text.parse::<Change>().unwrap_err();
            assert!(wrong.contains("u+rwX,go-w"), "{text}: {wrong}");
        }
    }
}
