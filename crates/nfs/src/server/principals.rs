//! Users of principals: who a caller that Kerberos named is on this machine.
//!
//! The administrator's map comes first. Then principals of machines are nobody, whatever other rules say of them: a client
//! calls as its machine while it mounts, and for its root. For all others the mechanism's own rules name a user
//! ([`Principal::local`]), whom the database of users has to know.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rpcrdma_oncrpc::gss::Principal;
use thiserror::Error;

use super::users::{USER_NAME_MAX, UserKey};

/// Longest map, in bytes.
pub const MAP_MAX: u64 = 1 << 20;

/// First parts of the names of machines: the services that hosts have keys of, and root of a host.
const MACHINES: [&str; 3] = ["nfs", "host", "root"];

/// The administrator's map from principals to users. Default: empty.
#[derive(Clone, Debug, Default)]
pub struct Principals {
    map: HashMap<String, UserKey>,
}

/// Reason why a map cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file is too long.
    #[error("it is longer than {MAP_MAX} bytes")]
    TooLong,
    /// The file is not UTF-8.
    #[error("it is not UTF-8 text")]
    NotText,
    /// A line is wrong.
    #[error("line {line}: {fault}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Fault of the line.
        fault: LineError,
    },
}

/// Fault of a line of the map.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// The line has not two words.
    #[error("a line has a principal and a user, as in \"alice@EXAMPLE.ORG alice\", but {0:?} has {count}", count = words(*.1))]
    Words(String, usize),
    /// The principal has no realm.
    #[error(
        "{0:?} is no principal with a realm, such as alice@EXAMPLE.ORG or nfs/client.example.org@EXAMPLE.ORG"
    )]
    Principal(String),
    /// The user ID is too large.
    #[error("{0:?} is no user ID: at most {max} is allowed", max = u32::MAX - 1)]
    UserId(String),
    /// The user name is too long.
    #[error("a user name of {0} bytes: at most {USER_NAME_MAX} are allowed")]
    UserName(usize),
    /// An earlier line has this principal.
    #[error("{0:?} has a user already")]
    Duplicate(String),
}

/// Returns a number of words.
fn words(count: usize) -> String {
    if count == 1 { "1 word".to_owned() } else { format!("{count} words") }
}

/// User that a principal stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// This user, if the database knows the name.
    User(UserKey),
    /// A machine: nobody.
    Machine,
    /// No rule names a user: nobody.
    Unknown,
}

impl Principals {
    /// Reads a map from a file. Each line has a principal and a user, by name or ID. `#` begins a comment.
    ///
    /// # Errors
    /// Each variant of [`MapError`].
    pub fn read(path: &Path) -> Result<Self, MapError> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAP_MAX + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAP_MAX) {
            return Err(MapError::TooLong);
        }
        Self::parse(str::from_utf8(&bytes).map_err(|_| MapError::NotText)?)
    }

    /// Parses the text of a map.
    ///
    /// # Errors
    /// [`MapError::Line`] for the first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        let mut map = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let at_line = |fault| MapError::Line { line: index + 1, fault };
            if let Some((principal, user)) = parse_line(line).map_err(at_line)? {
                match map.entry(principal) {
                    Entry::Occupied(known) => {
                        return Err(at_line(LineError::Duplicate(known.key().clone())));
                    }
                    Entry::Vacant(new) => drop(new.insert(user)),
                }
            }
        }
        Ok(Self { map })
    }

    /// Returns the user that a principal stands for.
    pub(super) fn user(&self, principal: &Principal) -> Mapped {
        if let Some(user) = self.map.get(&principal.name) {
            return Mapped::User(user.clone());
        }
        if is_machine(&principal.name) {
            return Mapped::Machine;
        }
        match &principal.local {
            Some(name) if name.len() <= USER_NAME_MAX => {
                Mapped::User(UserKey::Name(Arc::from(name.as_str())))
            }
            _ => Mapped::Unknown,
        }
    }
}

/// Returns whether a principal is that of a machine: `nfs/HOST`, `host/HOST`, `root/HOST`, or `HOST$` of a Windows domain.
fn is_machine(name: &str) -> bool {
    let name = name.rsplit_once('@').map_or(name, |(name, _)| name);
    match name.split_once('/') {
        Some((first, _)) => MACHINES.contains(&first),
        None => name.ends_with('$'),
    }
}

/// Returns the principal and the user of a line; `None` if it has only a comment or nothing.
fn parse_line(line: &str) -> Result<Option<(String, UserKey)>, LineError> {
    let text = line.split_once('#').map_or(line, |(text, _)| text).trim();
    let words: Vec<&str> = text.split_whitespace().collect();
    let (principal, user) = match words.as_slice() {
        [] => return Ok(None),
        [principal, user] => (*principal, *user),
        words => return Err(LineError::Words(text.to_owned(), words.len())),
    };
    if !principal.rsplit_once('@').is_some_and(|(name, realm)| !name.is_empty() && !realm.is_empty()) {
        return Err(LineError::Principal(principal.to_owned()));
    }
    let user = if user.bytes().all(|byte| byte.is_ascii_digit()) {
        // The last number means "no user" in system calls.
        let number = user.parse().ok().filter(|number| *number != u32::MAX);
        UserKey::Number(number.ok_or_else(|| LineError::UserId(user.to_owned()))?)
    } else if user.len() > USER_NAME_MAX {
        return Err(LineError::UserName(user.len()));
    } else {
        UserKey::Name(Arc::from(user))
    };
    Ok(Some((principal.to_owned(), user)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn principal(name: &str, local: Option<&str>) -> Principal {
        Principal { name: name.to_owned(), mechanism: Bytes::new(), local: local.map(str::to_owned) }
    }

    fn named(name: &str) -> Mapped {
        Mapped::User(UserKey::Name(Arc::from(name)))
    }

    fn fault(text: &str) -> (usize, LineError) {
        match Principals::parse(text) {
            Err(MapError::Line { line, fault }) => (line, fault),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn the_map_goes_before_the_mechanisms_rules() {
        let text = "# users of the other realm\n\nalice@OTHER.EXAMPLE  ally # since 2026\n\
                    bob@EXAMPLE 1007\r\n\tnfs/client.example@EXAMPLE root\n";
        let principals = Principals::parse(text).unwrap();
        for (name, local, expected) in [
            ("alice@OTHER.EXAMPLE", None, named("ally")),
            ("alice@OTHER.EXAMPLE", Some("alice"), named("ally")),
            ("bob@EXAMPLE", Some("bob"), Mapped::User(UserKey::Number(1007))),
            ("nfs/client.example@EXAMPLE", None, named("root")),
            ("carol@EXAMPLE", Some("carol"), named("carol")),
            ("carol@OTHER.EXAMPLE", None, Mapped::Unknown),
            // Names of principals differ by case.
            ("Bob@EXAMPLE", None, Mapped::Unknown),
        ] {
            assert_eq!(principals.user(&principal(name, local)), expected, "{name}");
        }
    }

    /// Even if `auth_to_local` names a user for them.
    #[test]
    fn machines_are_nobody_unless_the_map_names_them() {
        let principals = Principals::default();
        for name in
            ["nfs/a.example@EXAMPLE", "host/a.example@EXAMPLE", "root/a.example@EXAMPLE", "A$@EXAMPLE"]
        {
            assert_eq!(principals.user(&principal(name, Some("root"))), Mapped::Machine, "{name}");
        }
        for name in ["alice/admin@EXAMPLE", "root@EXAMPLE", "nfs@EXAMPLE", "nfs\\/x@EXAMPLE"] {
            assert_eq!(principals.user(&principal(name, Some("alice"))), named("alice"), "{name}");
        }
    }

    #[test]
    fn a_local_name_too_long_for_a_user_is_no_user() {
        let long = "x".repeat(USER_NAME_MAX + 1);
        let found = |local: &str| Principals::default().user(&principal("x@EXAMPLE", Some(local)));
        assert_eq!(found(&long), Mapped::Unknown);
        assert_eq!(found(&long[1..]), named(&long[1..]));
    }

    #[test]
    fn bad_lines_are_named() {
        assert_eq!(fault("a@B c\nalice@EXAMPLE"), (2, LineError::Words("alice@EXAMPLE".into(), 1)));
        assert_eq!(fault("a@B c d # e"), (1, LineError::Words("a@B c d".into(), 3)));
        for name in ["alice", "@EXAMPLE", "alice@"] {
            assert_eq!(fault(&format!("{name} alice")), (1, LineError::Principal(name.into())));
        }
        for number in ["4294967295", "99999999999"] {
            assert_eq!(fault(&format!("a@B {number}")), (1, LineError::UserId(number.into())));
        }
        let long = "x".repeat(USER_NAME_MAX + 1);
        assert_eq!(fault(&format!("a@B {long}")), (1, LineError::UserName(USER_NAME_MAX + 1)));
        assert_eq!(fault("a@B c\n# d\na@B e"), (3, LineError::Duplicate("a@B".into())));
        let told = Principals::parse("alice").unwrap_err().to_string();
        assert!(told.contains("line 1") && told.contains("\"alice\" has 1 word"), "{told}");
    }

    #[test]
    fn i6_a_map_is_bounded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let comment = "#".repeat(usize::try_from(MAP_MAX).unwrap());
        std::fs::write(file.path(), &comment).unwrap();
        assert!(Principals::read(file.path()).is_ok());
        std::fs::write(file.path(), comment + "#").unwrap();
        assert!(matches!(Principals::read(file.path()), Err(MapError::TooLong)));
        std::fs::write(file.path(), [0xff]).unwrap();
        assert!(matches!(Principals::read(file.path()), Err(MapError::NotText)));
        assert!(matches!(Principals::read(Path::new("/nonexistent/map")), Err(MapError::Read(_))));
    }
}
