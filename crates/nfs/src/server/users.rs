//! Groups of users by the server's own database, instead of those that a caller claims.
//!
//! The database (`getgrouplist(3)`: files, LDAP and so on, as `nsswitch.conf` says) may wait for a network. So threads ask
//! it, few at a time, and its answers are kept for [`FRESH`]. While a user is looked up, all calls of that user wait for that one
//! look-up. There can be more groups than the 16 of AUTH_SYS.
//!
//! **Errors.** A database that fails or keeps quiet puts the call off (NFS3ERR_JUKEBOX); nothing of that is kept.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rpcrdma_oncrpc::AuthSys;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

use super::NOBODY;

/// How long an answer of the database is good.
pub(crate) const FRESH: Duration = Duration::from_secs(300);
/// How long a call waits for the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions to the database at a time.
const AT_ONCE: usize = 4;
/// Users that are remembered. A caller can claim any number.
const KNOWN_MAX: usize = 4096;

/// The groups of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The user's own group.
    pub primary: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
}

/// Knows users and their groups.
pub trait UserDatabase: Send + Sync + 'static {
    /// The groups of a user; `None` if there is no such user. May wait: it is called on a thread of its own.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn membership(&self, user: u32) -> io::Result<Option<Membership>>;
}

/// The database of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemUsers;

impl UserDatabase for SystemUsers {
    fn membership(&self, user: u32) -> io::Result<Option<Membership>> {
        let Some(found) = nix::unistd::User::from_uid(user.into()).map_err(io::Error::from)? else {
            return Ok(None);
        };
        let name = std::ffi::CString::new(found.name).map_err(io::Error::other)?;
        let groups = nix::unistd::getgrouplist(&name, found.gid).map_err(io::Error::from)?;
        let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
        Ok(Some(Membership { primary: found.gid.as_raw(), groups }))
    }
}

type Answer = Arc<OnceCell<Option<Membership>>>;

/// A database with a memory.
pub(super) struct Users {
    database: Arc<dyn UserDatabase>,
    known: Mutex<HashMap<u32, (Instant, Answer)>>,
    places: Arc<Semaphore>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    pub(super) fn new(database: Arc<dyn UserDatabase>) -> Self {
        Self { database, known: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn answer(&self, user: u32, now: Instant) -> Answer {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, answer)) = known.get(&user)
            && now.duration_since(*since) < FRESH
        {
            return Arc::clone(answer);
        }
        if known.len() >= KNOWN_MAX && !known.contains_key(&user) {
            let oldest = known.iter().min_by_key(|(_, (since, _))| *since).map(|(user, _)| *user);
            oldest.and_then(|oldest| known.remove(&oldest));
        }
        let answer = Answer::default();
        known.insert(user, (now, Arc::clone(&answer)));
        answer
    }

    /// Puts the groups of the database in the place of those that were claimed. The claimed group stays if the user is in it.
    /// Of somebody who is not in the database no group is believed. `None`: the database does not answer.
    pub(super) async fn with_groups(&self, claimed: AuthSys) -> Option<AuthSys> {
        let user = claimed.uid;
        let answer = self.answer(user, Instant::now());
        let known = match answer.get() {
            Some(known) => known,
            None => match timeout(PATIENCE, answer.get_or_try_init(|| self.ask(user))).await {
                Ok(Ok(known)) => known,
                Ok(Err(error)) => {
                    tracing::warn!(user, %error, "the database of users cannot be asked");
                    return None;
                }
                Err(_) => {
                    tracing::warn!(user, "the database of users does not answer");
                    return None;
                }
            },
        };
        Some(match known {
            Some(Membership { primary, groups }) => {
                let gid = if groups.contains(&claimed.gid) { claimed.gid } else { *primary };
                AuthSys { gid, gids: groups.clone(), ..claimed }
            }
            None => AuthSys { gid: NOBODY, gids: Vec::new(), ..claimed },
        })
    }

    async fn ask(&self, user: u32) -> io::Result<Option<Membership>> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let database = Arc::clone(&self.database);
        let asking = tokio::task::spawn_blocking(move || {
            // Kept by the thread: the caller may give up before.
            let _place = place;
            database.membership(user)
        });
        asking.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// User 1 is in groups 100 to 139.
    #[derive(Default)]
    struct Table {
        asked: AtomicU32,
    }

    impl UserDatabase for Table {
        fn membership(&self, user: u32) -> io::Result<Option<Membership>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match user {
                1 => Ok(Some(Membership { primary: 100, groups: (100..140).collect() })),
                2 => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(None),
            }
        }
    }

    fn claim(uid: u32, gid: u32) -> AuthSys {
        AuthSys { uid, gid, gids: vec![0, 27], ..AuthSys::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn groups_are_those_of_the_database_for_a_limited_time() {
        let table = Arc::new(Table::default());
        let users = Users::new(table.clone());
        for _ in 0..3 {
            let got = users.with_groups(claim(1, 27)).await.unwrap();
            assert_eq!((got.uid, got.gid, got.gids.len()), (1, 100, 40));
            assert_eq!(users.with_groups(claim(1, 139)).await.unwrap().gid, 139, "a group of that user");
        }
        assert_eq!(table.asked.load(Ordering::Relaxed), 1);
        tokio::time::advance(FRESH).await;
        users.with_groups(claim(1, 27)).await.unwrap();
        assert_eq!(table.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn nobody_else_has_groups_and_a_failure_is_not_kept() {
        let table = Arc::new(Table::default());
        let users = Users::new(table.clone());
        let got = users.with_groups(claim(3, 0)).await.unwrap();
        assert_eq!((got.gid, got.gids), (NOBODY, vec![]));
        for asked in 2..4 {
            assert_eq!(users.with_groups(claim(2, 0)).await, None);
            assert_eq!(table.asked.load(Ordering::Relaxed), asked);
        }
    }

    /// Keeps quiet until it is told to answer.
    struct Silent(Mutex<mpsc::Receiver<()>>);

    impl UserDatabase for Silent {
        fn membership(&self, _user: u32) -> io::Result<Option<Membership>> {
            let _ = self.0.lock().unwrap().recv();
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn i6_a_silent_database_puts_calls_off() {
        let (answer, told) = mpsc::channel();
        let users = Arc::new(Users::new(Arc::new(Silent(Mutex::new(told)))));
        let (asking, waited) = (Arc::clone(&users), Instant::now());
        let call = tokio::spawn(async move { asking.with_groups(claim(1, 1)).await });
        // The clock does not move by itself while a thread is at work.
        while !call.is_finished() {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(call.await.unwrap(), None);
        assert!(waited.elapsed() >= PATIENCE);
        drop(answer);
    }

    #[tokio::test]
    async fn i6_the_memory_of_users_is_bounded() {
        let users = Users::new(Arc::new(Table::default()));
        for user in 0..=u32::try_from(KNOWN_MAX).unwrap() {
            users.answer(user, Instant::now());
        }
        assert_eq!(users.known.lock().unwrap().len(), KNOWN_MAX);
    }

    #[test]
    fn root_is_in_the_database_of_this_machine() {
        let root = SystemUsers.membership(0).unwrap().unwrap();
        assert!(root.groups.contains(&root.primary));
        assert_eq!(SystemUsers.membership(u32::MAX - 7).unwrap(), None);
    }
}
