//! Users and their groups from the server's own database, instead of what a caller claims. Callers of AUTH_SYS are found by
//! number, principals of Kerberos by name or number.
//!
//! The database (`getgrouplist(3)`: files, LDAP and others, by `nsswitch.conf`) may wait for a network. So
//! threads ask it, few at a time, and answers are kept for [`FRESH`]. During a look-up, all calls of that
//! user wait for it. A user can have more than the 16 groups of AUTH_SYS.
//!
//! **Fairness** (I6). A caller can claim any number of users. So each address, or IPv6 network ([`Origin`]),
//! has one look-up at a time, in the order of its calls. An answer is kept for the addresses that used it,
//! and counts for each of them. Beyond [`KNOWN_MAX`] users, the address with the most loses its oldest. So an
//! address with an equal part or less loses none.
//!
//! **Errors.** If the database fails or does not answer, the call gets NFS3ERR_JUKEBOX, and nothing is kept.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::User;
use rpcrdma_oncrpc::{AuthSys, Origin};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::NOBODY;

/// Time for which an answer of the database is valid.
pub(crate) const FRESH: Duration = Duration::from_secs(300);
/// Time for which a call waits for the database.
const PATIENCE: Duration = Duration::from_secs(10);
/// Look-ups at a time.
const AT_ONCE: usize = 4;
/// Most users that are remembered; each address counts its own.
const KNOWN_MAX: usize = 16_384;
/// Number of addresses below which unused ones are not removed.
const FEW: usize = 64;
/// Longest name of a user, in bytes (`LOGIN_NAME_MAX` of Linux).
pub(super) const USER_NAME_MAX: usize = 255;

/// The groups of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The user's own group.
    pub primary: u32,
    /// All groups of the user.
    pub groups: Vec<u32>,
}

/// A user of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The user's number.
    pub user: u32,
    /// The user's groups.
    pub membership: Membership,
}

/// Source of users and their groups.
pub trait UserDatabase: Send + Sync + 'static {
    /// Returns the groups of a user, or `None` if there is no such user. The call may wait: it has a thread
    /// of its own.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn membership(&self, user: u32) -> io::Result<Option<Membership>>;

    /// Returns the user with a name, or `None` if there is no such user: callers by Kerberos have names. The call may wait,
    /// too. By default no user has a name.
    ///
    /// # Errors
    /// The database cannot be asked.
    fn account(&self, _name: &str) -> io::Result<Option<Account>> {
        Ok(None)
    }
}

/// Database of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemUsers;

impl UserDatabase for SystemUsers {
    fn membership(&self, user: u32) -> io::Result<Option<Membership>> {
        let found = User::from_uid(user.into()).map_err(io::Error::from)?;
        found.map(|found| Ok(account(found)?.membership)).transpose()
    }

    fn account(&self, name: &str) -> io::Result<Option<Account>> {
        let found = User::from_name(name).map_err(io::Error::from)?;
        found.map(account).transpose()
    }
}

/// Returns a user of this machine with all groups.
fn account(found: User) -> io::Result<Account> {
    let name = std::ffi::CString::new(found.name).map_err(io::Error::other)?;
    let groups = nix::unistd::getgrouplist(&name, found.gid).map_err(io::Error::from)?;
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    let membership = Membership { primary: found.gid.as_raw(), groups };
    Ok(Account { user: found.uid.as_raw(), membership })
}

/// A user as the database is asked for. Names have at most [`USER_NAME_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum UserKey {
    Number(u32),
    Name(Arc<str>),
}

impl fmt::Display for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

/// The database does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silent;

type Answer = Arc<OnceCell<Option<Account>>>;

/// Database with a cache.
pub(super) struct Users {
    database: Arc<dyn UserDatabase>,
    state: Mutex<State>,
    places: Arc<Semaphore>,
}

/// All cached answers, and the origins that use them.
#[derive(Default)]
struct State {
    known: HashMap<UserKey, Known>,
    /// Origins. Peers without an address count as one.
    origins: HashMap<Option<Origin>, Holding>,
    /// Number of users of all origins.
    held: usize,
    /// Number of the next user, which gives users their order.
    next: u64,
    /// Number of `origins` at which unused ones are removed.
    full: usize,
}

/// An answer of the database, once it is known.
struct Known {
    since: Instant,
    answer: Answer,
    /// Number of origins that use the answer.
    holders: usize,
}

/// Users of an origin.
struct Holding {
    /// Semaphore with one permit, for the look-up in progress.
    line: Arc<Semaphore>,
    /// Users by the order of their arrival, and their places there.
    users: BTreeMap<u64, UserKey>,
    numbers: HashMap<UserKey, u64>,
}

/// State of an answer.
enum Found {
    Known(Answer),
    /// Not known yet; the look-up waits behind others of this origin.
    Line(Arc<Semaphore>),
}

impl Default for Holding {
    fn default() -> Self {
        Self { line: Arc::new(Semaphore::new(1)), users: BTreeMap::new(), numbers: HashMap::new() }
    }
}

impl State {
    fn fresh(&self, user: &UserKey, now: Instant) -> Option<&Answer> {
        let known = self.known.get(user)?;
        (now.duration_since(known.since) < FRESH).then_some(&known.answer)
    }

    fn find(&mut self, origin: Option<Origin>, user: &UserKey, now: Instant) -> Found {
        if let Some(answer) = self.fresh(user, now).filter(|answer| answer.initialized()) {
            let answer = Arc::clone(answer);
            self.hold(origin, user);
            return Found::Known(answer);
        }
        Found::Line(Arc::clone(&self.holding(origin).line))
    }

    /// Returns the answer for a user whose look-up is next.
    fn begin(&mut self, origin: Option<Origin>, user: &UserKey, now: Instant) -> Answer {
        if let Some(answer) = self.fresh(user, now) {
            let answer = Arc::clone(answer);
            self.hold(origin, user);
            return answer;
        }
        let answer = Answer::default();
        let holders = self.known.get(user).map_or(0, |known| known.holders);
        self.known.insert(user.clone(), Known { since: now, answer: Arc::clone(&answer), holders });
        self.hold(origin, user);
        answer
    }

    fn holding(&mut self, origin: Option<Origin>) -> &mut Holding {
        if self.origins.len() >= self.full {
            let in_use =
                |holding: &Holding| !holding.users.is_empty() || Arc::strong_count(&holding.line) > 1;
            self.origins.retain(|_, holding| in_use(holding));
            self.full = FEW.max(self.origins.len().saturating_mul(2));
        }
        self.origins.entry(origin).or_default()
    }

    /// Counts a user for an origin; evicts others if necessary.
    fn hold(&mut self, origin: Option<Origin>, user: &UserKey) {
        let number = self.next;
        let holding = self.holding(origin);
        if holding.numbers.contains_key(user) {
            return;
        }
        holding.users.insert(number, user.clone());
        holding.numbers.insert(user.clone(), number);
        self.next += 1;
        self.held += 1;
        if let Some(known) = self.known.get_mut(user) {
            known.holders += 1;
        }
        if self.held > KNOWN_MAX {
            self.evict();
        }
    }

    /// Removes the oldest user of the origin that holds most.
    fn evict(&mut self) {
        let Some(most) = self.origins.values_mut().max_by_key(|holding| holding.users.len()) else { return };
        let Some((_, user)) = most.users.pop_first() else { return };
        most.numbers.remove(&user);
        self.held -= 1;
        if let Some(known) = self.known.get_mut(&user) {
            known.holders -= 1;
            if known.holders == 0 {
                self.known.remove(&user);
            }
        }
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    pub(super) fn new(database: Arc<dyn UserDatabase>) -> Self {
        Self { database, state: Mutex::default(), places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity of a caller at `origin` with the groups of the database instead of the claimed
    /// ones. The claimed primary group stays if the user is in it. A user unknown to the database has no
    /// groups.
    ///
    /// # Errors
    /// The database does not answer.
    pub(super) async fn with_groups(
        &self,
        origin: Option<Origin>,
        claimed: &AuthSys,
    ) -> Result<AuthSys, Silent> {
        let user = claimed.uid;
        Ok(match self.answer(origin, &UserKey::Number(user)).await? {
            Some(Account { membership: Membership { primary, groups }, .. }) => {
                let gid = if groups.contains(&claimed.gid) { claimed.gid } else { primary };
                AuthSys { uid: user, gid, gids: groups, ..AuthSys::default() }
            }
            None => stranger(user),
        })
    }

    /// Returns the identity of a user by the database alone, for a caller at `origin`; `None` if there is no user of this
    /// name. A number that is unknown to the database has no groups.
    ///
    /// # Errors
    /// The database does not answer.
    pub(super) async fn identity(
        &self,
        origin: Option<Origin>,
        user: &UserKey,
    ) -> Result<Option<AuthSys>, Silent> {
        Ok(match (self.answer(origin, user).await?, user) {
            (Some(Account { user, membership: Membership { primary, groups } }), _) => {
                Some(AuthSys { uid: user, gid: primary, gids: groups, ..AuthSys::default() })
            }
            (None, UserKey::Number(user)) => Some(stranger(*user)),
            (None, UserKey::Name(_)) => None,
        })
    }

    async fn answer(&self, origin: Option<Origin>, user: &UserKey) -> Result<Option<Account>, Silent> {
        match timeout(PATIENCE, self.look_up(origin, user)).await {
            Ok(Ok(answer)) => answer.get().cloned().ok_or(Silent),
            Ok(Err(error)) => {
                tracing::warn!(%user, %error, "the database of users cannot be asked");
                Err(Silent)
            }
            Err(_) => {
                tracing::warn!(%user, "the database of users does not answer");
                Err(Silent)
            }
        }
    }

    /// Returns the database's answer once it is known.
    async fn look_up(&self, origin: Option<Origin>, user: &UserKey) -> io::Result<Answer> {
        let line = match self.lock().find(origin, user, Instant::now()) {
            Found::Known(answer) => return Ok(answer),
            Found::Line(line) => line,
        };
        let turn = line.acquire_owned().await.map_err(io::Error::other)?;
        let answer = self.lock().begin(origin, user, Instant::now());
        answer.get_or_try_init(|| self.ask(user, turn)).await?;
        Ok(answer)
    }

    async fn ask(&self, user: &UserKey, turn: OwnedSemaphorePermit) -> io::Result<Option<Account>> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
        let (database, user) = (Arc::clone(&self.database), user.clone());
        let asking = tokio::task::spawn_blocking(move || {
            // Stored by the thread, because the caller may give up earlier.
            let _kept = (place, turn);
            match user {
                UserKey::Number(user) => {
                    let found = database.membership(user)?;
                    Ok(found.map(|membership| Account { user, membership }))
                }
                UserKey::Name(name) => database.account(&name),
            }
        });
        asking.await.map_err(io::Error::other)?
    }
}

/// Returns a user without groups.
fn stranger(user: u32) -> AuthSys {
    AuthSys { uid: user, gid: NOBODY, ..AuthSys::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Database in which user 1 is in groups 100 to 139.
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

        fn account(&self, name: &str) -> io::Result<Option<Account>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match name {
                "alice" => {
                    let membership = Membership { primary: 100, groups: (100..140).collect() };
                    Ok(Some(Account { user: 1, membership }))
                }
                "slow" => Err(io::ErrorKind::TimedOut.into()),
                _ => Ok(None),
            }
        }
    }

    fn by_number(user: u32) -> UserKey {
        UserKey::Number(user)
    }

    const HERE: Option<Origin> = None;

    fn origin(last: u8) -> Option<Origin> {
        Some(Origin::of([192, 0, 2, last].into()))
    }

    fn claim(uid: u32, gid: u32) -> AuthSys {
        AuthSys { uid, gid, gids: vec![0, 27], ..AuthSys::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn groups_are_those_of_the_database_for_a_limited_time() {
        let table = Arc::new(Table::default());
        let users = Users::new(table.clone());
        for _ in 0..3 {
            let got = users.with_groups(HERE, &claim(1, 27)).await.unwrap();
            assert_eq!((got.uid, got.gid, got.gids.len()), (1, 100, 40));
            assert_eq!(
                users.with_groups(HERE, &claim(1, 139)).await.unwrap().gid,
                139,
                "a group of that user"
            );
        }
        assert_eq!(table.asked.load(Ordering::Relaxed), 1);
        tokio::time::advance(FRESH).await;
        users.with_groups(HERE, &claim(1, 27)).await.unwrap();
        assert_eq!(table.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn nobody_else_has_groups_and_a_failure_is_not_kept() {
        let table = Arc::new(Table::default());
        let users = Users::new(table.clone());
        let got = users.with_groups(HERE, &claim(3, 0)).await.unwrap();
        assert_eq!((got.gid, got.gids), (NOBODY, vec![]));
        for asked in 2..4 {
            assert_eq!(users.with_groups(HERE, &claim(2, 0)).await, Err(Silent));
            assert_eq!(table.asked.load(Ordering::Relaxed), asked);
        }
    }

    /// Database that is silent until the test makes it answer.
    struct Mute(Mutex<mpsc::Receiver<()>>);

    impl UserDatabase for Mute {
        fn membership(&self, _user: u32) -> io::Result<Option<Membership>> {
            let _ = self.0.lock().unwrap().recv();
            Ok(None)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn i6_a_silent_database_puts_calls_off() {
        let (answer, told) = mpsc::channel();
        let users = Arc::new(Users::new(Arc::new(Mute(Mutex::new(told)))));
        let (asking, waited) = (Arc::clone(&users), Instant::now());
        let call = tokio::spawn(async move { asking.with_groups(HERE, &claim(1, 1)).await });
        // The clock stands still while a thread works.
        while !call.is_finished() {
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(call.await.unwrap(), Err(Silent));
        assert!(waited.elapsed() >= PATIENCE);
        drop(answer);
    }

    #[tokio::test]
    async fn i6_the_memory_of_users_is_bounded_and_shared_out() {
        let users = Users::new(Arc::new(Table::default()));
        let now = Instant::now();
        let mut state = users.lock();
        let small: Vec<u32> = (0..100).collect();
        for user in &small {
            drop(state.begin(origin(1), &by_number(*user), now));
            // Another address uses them too, before it claims others.
            drop(state.begin(origin(2), &by_number(*user), now));
        }
        let many = u32::try_from(KNOWN_MAX).unwrap();
        for user in 1000..1000 + 2 * many {
            drop(state.begin(origin(2), &by_number(user), now));
        }
        assert_eq!((state.held, state.known.len()), (KNOWN_MAX, KNOWN_MAX));
        assert!(
            small.iter().all(|user| state.fresh(&by_number(*user), now).is_some()),
            "those of the other address"
        );
        assert_eq!(state.origins[&origin(1)].users.len(), 100);
        let counted: usize = state.origins.values().map(|holding| holding.numbers.len()).sum();
        assert_eq!(counted, KNOWN_MAX);
        let holders: usize = state.known.values().map(|known| known.holders).sum();
        assert_eq!(holders, KNOWN_MAX);
        // An outdated answer is requested again, and counts once.
        let later = now + FRESH;
        drop(state.begin(origin(1), &by_number(5), later));
        assert_eq!((state.held, state.known[&by_number(5)].holders), (KNOWN_MAX, 1));
    }

    #[tokio::test]
    async fn i6_addresses_without_users_are_forgotten() {
        let users = Users::new(Arc::new(Table::default()));
        let mut state = users.lock();
        for number in 0..10_000_u32 {
            let origin = Some(Origin::of(std::net::Ipv4Addr::from(number).into()));
            assert!(matches!(state.find(origin, &by_number(1), Instant::now()), Found::Line(_)));
        }
        assert!(state.origins.len() <= FEW, "{}", state.origins.len());
    }

    /// Known users wait for no look-up, and are held for each address that uses them.
    #[tokio::test]
    async fn i6_what_is_known_is_at_hand_for_every_address() {
        let users = Users::new(Arc::new(Table::default()));
        let (mut state, now) = (users.lock(), Instant::now());
        let answer = state.begin(origin(1), &by_number(1), now);
        assert!(
            matches!(state.find(origin(1), &by_number(1), now), Found::Line(_)),
            "the database has not answered"
        );
        answer.set(None).unwrap();
        assert!(matches!(state.find(origin(2), &by_number(1), now), Found::Known(_)));
        assert!(Arc::ptr_eq(&state.begin(origin(3), &by_number(1), now), &answer), "it is not asked again");
        assert_eq!((state.held, state.known[&by_number(1)].holders), (3, 3));
    }

    /// The room for unused addresses is not that of addresses with a call in line, or with users.
    #[tokio::test]
    async fn i6_a_flood_of_addresses_leaves_those_in_use() {
        let users = Users::new(Arc::new(Table::default()));
        let (mut state, now) = (users.lock(), Instant::now());
        let Found::Line(line) = state.find(origin(1), &by_number(1), now) else { panic!("nobody was asked") };
        drop(state.begin(origin(2), &by_number(2), now));
        for number in 0..1000_u32 {
            let other = Some(Origin::of(std::net::Ipv4Addr::from(number).into()));
            assert!(matches!(state.find(other, &by_number(1), now), Found::Line(_)));
        }
        let again = state.find(origin(1), &by_number(1), now);
        assert!(matches!(again, Found::Line(again) if Arc::ptr_eq(&again, &line)), "one look-up at a time");
        assert_eq!(state.origins[&origin(2)].users.len(), 1);
    }

    #[tokio::test]
    async fn i6_the_addresses_of_one_ipv6_network_ask_for_one_user_at_a_time() {
        let users = Users::new(Arc::new(Table::default()));
        let at = |address: &str| Some(Origin::of(address.parse().unwrap()));
        let mut state = users.lock();
        let mut line = |origin| match state.find(origin, &by_number(1), Instant::now()) {
            Found::Line(line) => line,
            Found::Known(_) => panic!("nobody was asked"),
        };
        let first = line(at("2001:db8::1"));
        assert!(Arc::ptr_eq(&first, &line(at("2001:db8::2"))));
        assert!(!Arc::ptr_eq(&first, &line(at("2001:db8:0:1::1"))));
    }

    /// Names and numbers are looked up under the same rules, and kept apart.
    #[tokio::test(start_paused = true)]
    async fn a_user_is_found_by_name_for_a_limited_time() {
        let table = Arc::new(Table::default());
        let users = Users::new(table.clone());
        let name = |name: &str| UserKey::Name(Arc::from(name));
        for _ in 0..3 {
            let got = users.identity(HERE, &name("alice")).await.unwrap().unwrap();
            assert_eq!((got.uid, got.gid, got.gids.len()), (1, 100, 40));
            assert_eq!(users.identity(HERE, &name("mallory")).await, Ok(None));
        }
        assert_eq!(table.asked.load(Ordering::Relaxed), 2);
        // A number that nobody has keeps its number.
        let got = users.identity(HERE, &by_number(7)).await.unwrap().unwrap();
        assert_eq!((got.uid, got.gid, got.gids), (7, NOBODY, vec![]));
        assert_eq!(users.identity(HERE, &name("slow")).await, Err(Silent));
        assert_eq!(table.asked.load(Ordering::Relaxed), 4);
        tokio::time::advance(FRESH).await;
        users.identity(HERE, &name("alice")).await.unwrap();
        assert_eq!(table.asked.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn root_is_in_the_database_of_this_machine() {
        let root = SystemUsers.membership(0).unwrap().unwrap();
        assert!(root.groups.contains(&root.primary));
        assert_eq!(SystemUsers.membership(u32::MAX - 7).unwrap(), None);
        assert_eq!(SystemUsers.account("root").unwrap(), Some(Account { user: 0, membership: root }));
        assert_eq!(SystemUsers.account("no such user, surely").unwrap(), None);
    }
}
