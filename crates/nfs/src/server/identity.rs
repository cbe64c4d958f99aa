//! As whom a caller acts in an export: flavour, squash rules, and the user of a principal.
//!
//! Each call asks here before it looks at anything, also one that is answered from memory. Look-ups in the database of users
//! wait on threads of their own ([`super::users`]).

use std::sync::Arc;

use rpcrdma_oncrpc::auth::GIDS_MAX;
use rpcrdma_oncrpc::{AuthSys, Credential, Shown};

use super::exports::Served;
use super::memory::{Room, Soon};
use super::principals::Mapped;
use super::refusals::Refusal;
use super::security::{Acting, Purpose};
use super::users::UserKey;
use super::{Caller, Shared, Squash};
use crate::fs::Identity;
use crate::wire::Status;

/// Identity under which a caller acts.
pub(crate) struct Known {
    pub(crate) who: Identity,
    /// Memory for groups beyond those that a call can claim.
    pub(crate) room: Option<Room>,
}

impl Shared {
    /// Returns the identity under which a caller acts in an export. The database of users is asked only if
    /// the export admits the caller and does not squash the identity.
    ///
    /// # Errors
    /// [`Status::Acces`] if the export does not admit the caller. [`Status::Jukebox`] if the database of
    /// users does not answer now, or the share of the caller's address has no memory for the groups.
    pub(crate) fn identity(
        self: &Arc<Self>,
        served: &Arc<Served>,
        caller: &Caller,
        purpose: Purpose,
    ) -> Soon<Result<Known, Status>> {
        let now = |who| Soon::Now(Some(Ok(Known { who, room: None })));
        let terms = match served.admits(caller, purpose) {
            Err(_) => return Soon::Now(Some(Err(Status::Acces))),
            Ok((Acting::Anonymous, terms)) => return now(terms.anonymous.clone()),
            Ok((Acting::Caller, terms)) => terms,
        };
        match &caller.credential {
            Credential::Sys(claimed)
                if (self.manage_groups || caller.is_local_user()) && !terms.squashes(claimed.uid) =>
            {
                let (shared, served, claimed) = (Arc::clone(self), Arc::clone(served), claimed.clone());
                let caller = caller.clone();
                Soon::Later(Box::pin(async move {
                    let known = shared.users.with_groups(caller.origin(), &claimed).await;
                    shared.known(&served, &caller, known.map_err(|_| Status::Jukebox)?).await
                }))
            }
            Credential::Gss(gss) if terms.squash != Squash::Everybody => {
                let user = match self.principals.user(&gss.principal) {
                    Mapped::User(user) => user,
                    Mapped::Machine => return now(terms.anonymous.clone()),
                    Mapped::Unknown => {
                        self.refuse_principal(caller, &gss.principal.name);
                        return now(terms.anonymous.clone());
                    }
                };
                if matches!(user, UserKey::Number(user) if terms.squashes(user)) {
                    return now(terms.anonymous.clone());
                }
                self.principal(served, caller, user)
            }
            claimed => now(terms.identity(claimed)),
        }
    }

    /// Returns the identity of a caller who has a user by the rules for principals.
    fn principal(
        self: &Arc<Self>,
        served: &Arc<Served>,
        caller: &Caller,
        user: UserKey,
    ) -> Soon<Result<Known, Status>> {
        let (shared, served, caller) = (Arc::clone(self), Arc::clone(served), caller.clone());
        Soon::Later(Box::pin(async move {
            let found = shared.users.identity(caller.origin(), &user).await;
            if let Some(known) = found.map_err(|_| Status::Jukebox)? {
                return shared.known(&served, &caller, known).await;
            }
            if let Credential::Gss(gss) = &caller.credential {
                shared.refuse_principal(&caller, &gss.principal.name);
            }
            let terms = served.terms(&caller).ok_or(Status::Acces)?;
            Ok(Known { who: terms.anonymous.clone(), room: None })
        }))
    }

    /// Applies the rules of an export to a user of the database, and reserves memory for many groups.
    async fn known(&self, served: &Served, caller: &Caller, user: AuthSys) -> Result<Known, Status> {
        let terms = served.terms(caller).ok_or(Status::Acces)?;
        let room = if user.gids.len() > GIDS_MAX {
            let room = self.room(caller.ip(), size_of_val(user.gids.as_slice())).await;
            Some(room.ok_or(Status::Jukebox)?)
        } else {
            None
        };
        Ok(Known { who: terms.identity(&Credential::Sys(user)), room })
    }

    fn refuse_principal(&self, caller: &Caller, name: &str) {
        let why = format_args!("\"{}\" has no user here, and acts as nobody", Shown(name.as_bytes()));
        self.refusals.refuse(Refusal::Principal, caller.address(), &why);
    }
}
