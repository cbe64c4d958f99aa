//! Acting as another user for the time of one operation.
//!
//! Where the process is root, the kernel itself decides what a caller may do: the thread takes the caller's
//! effective user, group and groups, and gives them back when the guard is dropped. Credentials belong to a
//! thread, so this happens on I/O threads only and never across an `.await`: the guard is not `Send`. Where the
//! process is not root, everything happens as the process's own user.
//!
//! Some changes NFS allows to callers, and the kernel to owners only. The thread makes them as the owner
//! ([`Actor::act_as_owner`]). That needs no capability to change objects of others, which a server may have given up.
//!
//! If the identity cannot be given back, the process ends: a thread that would go on with rights of somebody else
//! is worse than no server.

use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::fs::permission::Privileges;
use crate::fs::types::{FsError, Identity};

/// User id that nobody has: -1 means "unchanged" to the kernel.
const NO_ID: u32 = u32::MAX;

/// Who the process is, and whether it may be others.
#[derive(Debug)]
pub(super) struct Actor {
    own: Identity,
    groups: Vec<Gid>,
    opens_all: bool,
    switches: bool,
}

/// The calling thread has the identity asked for until this is dropped.
#[must_use]
pub(super) struct Acting<'a> {
    restore: Option<&'a Actor>,
    not_send: PhantomData<*const ()>,
}

impl Actor {
    /// Finds out whether this process may act as others (and loses its privileges when it does).
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
            // On a thread of its own: whatever happens to its credentials ends with it.
            actor.switches =
                std::thread::scope(|scope| scope.spawn(|| actor.sheds_privileges()).join().unwrap_or(false));
        }
        actor
    }

    fn sheds_privileges(&self) -> bool {
        let nobody = Identity { uid: 65534, gid: 65534, groups: Vec::new() };
        let Ok(_acting) = self.act_as(&nobody) else { return false };
        // None at all: that to change owners or modes of what belongs to others is as bad as that to read it.
        capabilities(None).is_ok_and(|sets| sets.effective.is_empty())
    }

    /// Whether the process is the superuser, of its user namespace at least.
    pub(super) fn is_root(&self) -> bool {
        self.own.uid == 0
    }

    /// Whether a file is the process's own, which yet opens only what the mode of a file allows.
    pub(super) fn needs_mode(&self, owner: u32) -> bool {
        owner == self.own.uid && !self.opens_all
    }

    /// Whether operations happen as their caller.
    pub(super) fn switches(&self) -> bool {
        self.switches
    }

    /// The identity by which the kernel judges what is done for `who`, and to which it gives what is made.
    pub(super) fn judged<'a>(&'a self, who: &'a Identity) -> &'a Identity {
        if self.switches { who } else { &self.own }
    }

    /// Rights beyond that, as they are now: the process may have given up capabilities since its start.
    pub(super) fn privileges(&self, who: &Identity) -> Privileges {
        // Acting as anybody but root, a thread has none.
        if self.outranks(who) {
            return Privileges::default();
        }
        let capable = effective();
        Privileges {
            give: capable.contains(CapabilitySet::CHOWN),
            own: capable.contains(CapabilitySet::FOWNER),
        }
    }

    /// Whether the process's own rights are wider than those of `who`.
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
    /// [`FsError::AccessDenied`] for an id that the kernel cannot represent; [`FsError::TryLater`] if it refuses.
    pub(super) fn act_as(&self, who: &Identity) -> Result<Acting<'_>, FsError> {
        if !self.switches || *who == self.own {
            return Ok(Acting { restore: None, not_send: PhantomData });
        }
        if who.uid == NO_ID || who.gid == NO_ID {
            return Err(FsError::AccessDenied);
        }
        let groups: Vec<Gid> =
            who.groups.iter().filter(|gid| **gid != NO_ID).map(|gid| Gid::from_raw(*gid)).collect();
        // Refused, this has changed nothing, and without the right to set groups (root of a user namespace) there is none
        // to set them back either: so the guard, which undoes whatever part has been done, begins behind it. The user
        // comes last, since from then on the thread may change nothing else.
        set_thread_groups(&groups).map_err(refusal)?;
        let acting = Acting { restore: Some(self), not_send: PhantomData };
        set_thread_res_gid(None, Gid::from_raw(who.gid), None).map_err(refusal)?;
        set_thread_res_uid(None, Uid::from_raw(who.uid), None).map_err(refusal)?;
        Ok(acting)
    }
}

/// The capabilities of this thread that are in effect.
fn effective() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// An id outside of the user namespace stays there: to try again would not help.
fn refusal(errno: Errno) -> FsError {
    if errno == Errno::INVAL { FsError::AccessDenied } else { FsError::TryLater }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Some(actor) = self.restore else { return };
        let restored = set_thread_res_uid(None, Uid::from_raw(actor.own.uid), None)
            .and_then(|()| set_thread_res_gid(None, Gid::from_raw(actor.own.gid), None))
            .and_then(|()| set_thread_groups(&actor.groups));
        if let Err(error) = restored {
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
        let who = Identity { uid: 4711, gid: 4712, groups: vec![4713] };
        {
            let _acting = actor.act_as(&who).unwrap();
            assert_eq!((geteuid().as_raw(), getegid().as_raw()), (4711, 4712));
            assert_eq!(getgroups().unwrap(), vec![Gid::from_raw(4713)]);
        }
        assert_eq!((geteuid().as_raw(), getegid().as_raw()), (actor.own.uid, actor.own.gid));
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
