//! Users and groups of this machine, by name. The system's name service answers (`/etc/passwd`, `/etc/group`, and what
//! `/etc/nsswitch.conf` adds). The server's names can differ: NFS version 3 carries numbers only.

use nix::unistd::{Group, Uid, User};

/// Parses a user: a UID, or the name of a user of this machine.
pub(crate) fn user_id(text: &str) -> Result<u32, String> {
    match number(text) {
        Some(uid) => Ok(uid),
        None => Ok(user(text)?.uid.as_raw()),
    }
}

/// Parses a group: a GID, or the name of a group of this machine.
pub(crate) fn group_id(text: &str) -> Result<u32, String> {
    if let Some(gid) = number(text) {
        return Ok(gid);
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("{text:?} is neither a GID nor a group of this machine")),
        Err(error) => Err(format!("cannot look up the group {text:?}: {error}")),
    }
}

/// Returns the login group of a user, given by name or UID.
pub(crate) fn login_group(text: &str) -> Result<u32, String> {
    let user = match number(text) {
        Some(uid) => match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => user,
            Ok(None) => return Err(format!("no user of this machine has the UID {uid}: name the group")),
            Err(error) => return Err(format!("cannot look up the user {uid}: {error}")),
        },
        None => user(text)?,
    };
    Ok(user.gid.as_raw())
}

fn user(name: &str) -> Result<User, String> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(format!("{name:?} is neither a UID nor a user of this machine")),
        Err(error) => Err(format!("cannot look up the user {name:?}: {error}")),
    }
}

/// Returns a number in decimal digits. The greatest one means "no change" to many systems, and is none.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups() {
        assert_eq!(user_id("1000"), Ok(1000));
        assert_eq!(user_id("root"), Ok(0));
        assert_eq!(group_id("root"), Ok(0));
        assert_eq!(login_group("root"), Ok(0));
        assert_eq!(login_group("0"), Ok(0));
        for text in ["", "no such user", "-1", "+1", "4294967295", "4294967296", "a:b"] {
            assert!(user_id(text).unwrap_err().contains("user of this machine"), "{text}");
            assert!(group_id(text).unwrap_err().contains("group of this machine"), "{text}");
        }
        assert!(login_group("4000000000").unwrap_err().contains("name the group"));
    }
}
