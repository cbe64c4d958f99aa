//! The identity of another user for the duration of an operation.
//!
//! If the process is root, the kernel itself decides about a caller's rights. The thread takes on the
//! caller's effective user, group and groups, and returns to its own when the guard is dropped. Credentials
//! belong to a thread. So this happens for a few system calls that belong together, and never across an `.await`: the
//! guard is not `Send`. Threads of connections never do so (`looks` says why). If the process is not root, everything
//! happens as the process's own user.
//!
//! NFS allows callers some changes that the kernel allows to owners only. The thread makes them as the owner
//! ([`Actor::act_as_owner`]). That needs no capability to change objects of others, which a server may have
//! given up.
//!
//! If a thread cannot return to its identity, the process ends: going on with the rights of another user
//! would be worse.

use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::fs::permission::Privileges;
use crate::fs::types::{FsError, Identity};

/// User id that no user has: -1 means "unchanged" to the kernel.
const NO_ID: u32 = u32::MAX;

/// Identity of the process, and its ability to act as others.
#[derive(Debug)]
pub(super) struct Actor {
    own: Identity,
    groups: Vec<Gid>,
    opens_all: bool,
    switches: bool,
}

/// Guard: the calling thread has the requested identity until the drop.
#[must_use]
pub(super) struct Acting<'a> {
    restore: Option<(&'a Actor, Parts)>,
    not_send: PhantomData<*const ()>,
}

/// Parts of an identity that differ from those of the process. Only these are set, and set back: each costs two system
/// calls.
#[derive(Clone, Copy, Debug)]
struct Parts {
    groups: bool,
    gid: bool,
    uid: bool,
}

impl Actor {
    /// Determines whether this process may act as others, and loses its privileges then.
    pub(super) fn new() -> Self {
        let groups = getgroups().unwrap_or_default();
        let own = Identity {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: groups.iter().map(|gid| gid.as_raw()).collect(),
        };
        let opens_all = effective().contains(CapabilitySet::DAC_OVERRIDE);
        let mut actor = Self { own, groups, opens_all, switches: false };
        if geteuid().is_root() {
            actor.switches = true;
            // On a thread of its own, whose credentials end with it.
            actor.switches =
                std::thread::scope(|scope| scope.spawn(|| actor.sheds_privileges()).join().unwrap_or(false));
        }
        actor
    }

    fn sheds_privileges(&self) -> bool {
        let nobody = Identity { uid: 65534, gid: 65534, groups: Vec::new() };
        // Some callers will have other groups, even if this one does not.
        if set_thread_groups(&self.groups).is_err() {
            return false;
        }
        let Ok(_acting) = self.act_as(&nobody) else { return false };
        // No capability at all: those to change owners or modes of others' objects are as dangerous as those
        // to read them.
        capabilities(None).is_ok_and(|sets| sets.effective.is_empty())
    }

    /// Returns whether the process is the superuser, at least of its user namespace.
    pub(super) fn is_root(&self) -> bool {
        self.own.uid == 0
    }

    /// Returns whether a file is the process's own, and the process opens only what the file's mode allows.
    pub(super) fn needs_mode(&self, owner: u32) -> bool {
        owner == self.own.uid && !self.opens_all
    }

    /// Returns whether operations run as their caller.
    pub(super) fn switches(&self) -> bool {
        self.switches
    }

    /// Returns the identity that the kernel uses to check operations for `who`, and that owns new objects.
    pub(super) fn judged<'a>(&'a self, who: &'a Identity) -> &'a Identity {
        if self.switches { who } else { &self.own }
    }

    /// Returns the rights beyond that, as they are now. The process may have given up capabilities since its
    /// start.
    pub(super) fn privileges(&self, who: &Identity) -> Privileges {
        // A thread that acts as another user than root has none.
        if self.outranks(who) {
            return Privileges::default();
        }
        let capable = effective();
        Privileges {
            give: capable.contains(CapabilitySet::CHOWN),
            own: capable.contains(CapabilitySet::FOWNER),
        }
    }

    /// Returns whether the process's own rights exceed those of `who`.
    pub(super) fn outranks(&self, who: &Identity) -> bool {
        self.switches && who.uid != 0
    }

    /// Takes on the identity of the owner of an object, as a member of `group`.
    ///
    /// # Errors
    /// As [`Self::act_as`].
    pub(super) fn act_as_owner(&self, owner: u32, group: u32) -> Result<Acting<'_>, FsError> {
        self.act_as(&Identity { uid: owner, gid: group, groups: Vec::new() })
    }

    /// Takes on the identity of `who`.
    ///
    /// # Errors
    /// [`FsError::AccessDenied`] for an id that the kernel cannot represent; [`FsError::TryLater`] if it
    /// refuses.
    pub(super) fn act_as(&self, who: &Identity) -> Result<Acting<'_>, FsError> {
        if !self.switches || *who == self.own {
            return Ok(Acting { restore: None, not_send: PhantomData });
        }
        if who.uid == NO_ID || who.gid == NO_ID {
            return Err(FsError::AccessDenied);
        }
        debug_assert!(
            tokio::runtime::Handle::try_current().is_err(),
            "a thread of connections acts as a caller"
        );
        let own = &self.own;
        let parts =
            Parts { groups: who.groups != own.groups, gid: who.gid != own.gid, uid: who.uid != own.uid };
        // A refusal here has changed nothing. Without the right to set groups (root of a user namespace),
        // they could not be set back either. So the guard, which undoes partial changes, begins afterwards.
        // The user comes last, because then the thread may change nothing else.
        if parts.groups {
            let groups = who.groups.iter().filter(|gid| **gid != NO_ID);
            let groups: Vec<Gid> = groups.map(|gid| Gid::from_raw(*gid)).collect();
            set_thread_groups(&groups).map_err(refusal)?;
        }
        let acting = Acting { restore: Some((self, parts)), not_send: PhantomData };
        if parts.gid {
            set_thread_res_gid(None, Gid::from_raw(who.gid), None).map_err(refusal)?;
        }
        if parts.uid {
            set_thread_res_uid(None, Uid::from_raw(who.uid), None).map_err(refusal)?;
        }
        Ok(acting)
    }
}

/// Returns the effective capabilities of this thread.
fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// Returns the refusal for an error. An id outside the user namespace stays outside, so a retry would not
/// help.
fn refusal(errno: Errno) -> FsError {
    if errno == Errno::INVAL { FsError::AccessDenied } else { FsError::TryLater }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Some((actor, parts)) = self.restore else { return };
        let restore = || {
            if parts.uid {
                set_thread_res_uid(None, Uid::from_raw(actor.own.uid), None)?;
            }
            if parts.gid {
                set_thread_res_gid(None, Gid::from_raw(actor.own.gid), None)?;
            }
            if parts.groups { set_thread_groups(&actor.groups) } else { Ok(()) }
        };
        if let Err(error) = restore() {
            tracing::error!(%error, "a thread cannot return to the identity of the process");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::set_capabilities;

    use super::*;

    /// As in a user namespace, or a container without this capability.
    #[test]
    fn root_that_may_not_set_groups_serves_as_itself() {
        if !geteuid().is_root() {
            return;
        }
        let switches = std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SETGID);
            sets.permitted.remove(CapabilitySet::SETGID);
            set_capabilities(None, sets).unwrap();
            Actor::new().switches()
        });
        assert!(!switches.join().unwrap());
    }

    #[test]
    fn the_identity_ends_with_the_guard_and_stays_on_its_thread() {
        let actor = Actor::new();
        if !actor.switches() {
            return;
        }
        let present = || Identity {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect(),
        };
        let own = actor.own.clone();
        let other = Identity { uid: 4711, gid: 4712, groups: vec![4713] };
        // Everything differs from the process, or a single part.
        for who in [
            other.clone(),
            Identity { uid: other.uid, ..own.clone() },
            Identity { gid: other.gid, ..own.clone() },
            Identity { groups: other.groups, ..own.clone() },
        ] {
            let acting = actor.act_as(&who).unwrap();
            assert_eq!(present(), who);
            drop(acting);
            assert_eq!(present(), own);
        }
        assert!(capabilities(None).unwrap().effective.contains(CapabilitySet::DAC_OVERRIDE));
    }

    #[test]
    fn an_id_that_means_unchanged_is_refused() {
        let actor = Actor::new();
        if actor.switches() {
            let who = Identity { uid: u32::MAX, gid: 1, groups: Vec::new() };
            assert_eq!(actor.act_as(&who).err(), Some(FsError::AccessDenied));
        }
    }
}
