//! A mechanism for tests: keys from names, and checksums that anyone can compute. It protects nothing.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::mechanism::{
    Accepting, Acceptor, Created, Initiating, Initiator, MechanismError, SecurityContext, Step, major,
};
use crate::auth::Principal;

/// Object identifier of the mechanism, in the part that nobody owns (2.25).
const MECHANISM: Bytes = Bytes::from_static(&[0x69, 0x01]);
/// Length of a checksum without repeats, in bytes.
const SUM_LEN: usize = 8;

/// The only minor status that the mechanism has words for.
pub const EXPLAINED: u32 = 7_001;

/// Both sides of the mechanism.
#[derive(Clone, Debug)]
pub struct TestMechanism {
    /// Name of the caller, or of the server.
    pub name: String,
    /// Tokens that the initiator sends: at least one.
    pub rounds: u8,
    /// Lifetime of contexts.
    pub lifetime: Option<Duration>,
    /// Makes every function of contexts fail as too old, once it is set.
    pub expired: Arc<AtomicBool>,
    /// Bytes that are added to each token.
    pub padding: usize,
    /// Whether contexts say that they are quick.
    pub quick: bool,
    /// Makes the functions of contexts that protect fail, once it is set, and no others.
    pub mute: Arc<AtomicBool>,
    /// Length of checksums, in bytes: at least 8. The same on both sides.
    pub mic_len: usize,
    /// Makes checksums wrong, once it is set, and no other function.
    pub lies: Arc<AtomicBool>,
    /// Checksums that contexts computed or checked on threads whose names begin with `gss-`.
    pub threaded: Arc<AtomicUsize>,
    /// Contexts that acceptors have begun.
    pub begun: Arc<AtomicUsize>,
    /// Whether the mechanism asks for threads. Tests in virtual time set this to `false`: a thread has no virtual time.
    pub waits: bool,
}

impl TestMechanism {
    /// Creates the mechanism with one round, short checksums, and without an end of contexts.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rounds: 1,
            lifetime: None,
            expired: Arc::default(),
            mute: Arc::default(),
            padding: 0,
            quick: false,
            mic_len: SUM_LEN,
            lies: Arc::default(),
            threaded: Arc::default(),
            begun: Arc::default(),
            waits: true,
        }
    }

    fn created(&self, peer: &str, secret: &str) -> Created {
        let mut hasher = DefaultHasher::new();
        hasher.write(secret.as_bytes());
        let [expired, mute, lies] = [&self.expired, &self.mute, &self.lies].map(Arc::clone);
        let context = TestContext {
            key: hasher.finish(),
            expired,
            mute,
            lies,
            threaded: Arc::clone(&self.threaded),
            quick: self.quick,
            mic_len: self.mic_len.max(SUM_LEN),
        };
        Created { context: Arc::new(context), peer: principal(peer), lifetime: self.lifetime }
    }
}

/// Returns the principal of a name. Its local user is the part before `@`; a name with `/` there is no user's.
#[must_use]
pub fn principal(name: &str) -> Principal {
    let local = name.split_once('@').map_or(name, |(user, _)| user);
    let local = (!local.is_empty() && !local.contains('/')).then(|| local.to_owned());
    Principal { name: name.to_owned(), mechanism: MECHANISM, local }
}

/// Keys of a context.
#[derive(Debug)]
struct TestContext {
    key: u64,
    expired: Arc<AtomicBool>,
    mute: Arc<AtomicBool>,
    quick: bool,
    mic_len: usize,
    lies: Arc<AtomicBool>,
    threaded: Arc<AtomicUsize>,
}

impl TestContext {
    fn protect(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        self.check_age()?;
        if self.mute.load(Ordering::Relaxed) {
            return Err(MechanismError::new(major::FAILURE, 5, "the test context protects nothing"));
        }
        let sum = self.sum(message);
        if self.lies.load(Ordering::Relaxed) {
            return Ok(sum.iter().map(|byte| byte ^ 1).collect::<Vec<_>>().into());
        }
        Ok(sum)
    }

    fn note_thread(&self) {
        let is_worker = thread::current().name().is_some_and(|name| name.starts_with("gss-"));
        self.threaded.fetch_add(is_worker.into(), Ordering::Relaxed);
    }

    fn check_age(&self) -> Result<(), MechanismError> {
        if self.expired.load(Ordering::Relaxed) {
            return Err(MechanismError::new(major::CONTEXT_EXPIRED, 1, "the test context has expired"));
        }
        Ok(())
    }

    /// Returns the checksum, repeated up to its length.
    fn sum(&self, message: &[&[u8]]) -> Bytes {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.key);
        // However the message is cut.
        message.iter().flat_map(|part| part.iter()).for_each(|byte| hasher.write_u8(*byte));
        hasher.finish().to_be_bytes().into_iter().cycle().take(self.mic_len).collect()
    }

    fn mix(&self, data: impl Iterator<Item = u8>) -> Vec<u8> {
        let key = self.key.to_be_bytes();
        data.zip(key.into_iter().cycle()).map(|(byte, key)| byte ^ key).collect()
    }
}

impl SecurityContext for TestContext {
    fn growth(&self) -> usize {
        self.mic_len
    }

    fn is_quick(&self) -> bool {
        self.quick
    }

    fn mic(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        let mic = self.protect(message);
        // Afterwards, so that a test may wait for a failure.
        self.note_thread();
        mic
    }

    fn verify(&self, message: &[&[u8]], mic: &[u8]) -> Result<(), MechanismError> {
        self.note_thread();
        self.check_age()?;
        if self.sum(message) == *mic {
            Ok(())
        } else {
            Err(MechanismError::new(major::BAD_MIC, 2, "a checksum is wrong"))
        }
    }

    fn wrap(&self, message: &[&[u8]]) -> Result<Bytes, MechanismError> {
        let mut wrapped = self.mic(message)?.to_vec();
        wrapped.extend(self.mix(message.iter().flat_map(|part| part.iter().copied())));
        Ok(wrapped.into())
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Bytes, MechanismError> {
        let (mic, data) = wrapped.split_at_checked(self.mic_len).ok_or_else(|| {
            MechanismError::new(major::DEFECTIVE_TOKEN, 3, "a wrapped message is too short")
        })?;
        let message = self.mix(data.iter().copied());
        self.verify(&[&message], mic)?;
        Ok(message.into())
    }
}

/// Creation of a context. A token has the number of the round, and the name of its sender.
struct Rounds {
    mechanism: TestMechanism,
    /// Tokens sent or taken.
    round: u8,
    peer: String,
}

impl Rounds {
    fn token(&self) -> Bytes {
        let mut token = vec![self.round, self.mechanism.rounds];
        token.extend_from_slice(self.mechanism.name.as_bytes());
        token.resize(token.len() + self.mechanism.padding, 0);
        token.into()
    }

    /// Returns the number of rounds of the other side, and its name.
    fn read(&self, token: &[u8]) -> Result<(u8, String), MechanismError> {
        let defect = || MechanismError::new(major::DEFECTIVE_TOKEN, 4, "a test token is wrong");
        match token {
            [round, rounds, name @ ..] if *round == self.round => {
                let name = str::from_utf8(name).map_err(|_| defect())?;
                Ok((*rounds, name.trim_end_matches('\0').to_owned()))
            }
            _ => Err(defect()),
        }
    }
}

impl Accepting for Rounds {
    fn step(&mut self, token: &[u8]) -> Result<Step, MechanismError> {
        self.round += 1;
        let (rounds, peer) = self.read(token)?;
        self.peer = peer;
        let created = (self.round >= rounds).then(|| {
            let secret = format!("{}/{}", self.peer, self.mechanism.name);
            self.mechanism.created(&self.peer, &secret)
        });
        Ok(Step { token: self.token(), created })
    }
}

impl Acceptor for TestMechanism {
    fn begin(&self) -> Box<dyn Accepting> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Box::new(Rounds { mechanism: self.clone(), round: 0, peer: String::new() })
    }

    fn may_wait(&self) -> bool {
        self.waits
    }
}

impl Initiating for Rounds {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step, MechanismError> {
        if let Some(token) = token {
            let (_, peer) = self.read(token)?;
            self.peer = peer;
            if self.round >= self.mechanism.rounds {
                let secret = format!("{}/{}", self.mechanism.name, self.peer);
                return Ok(Step {
                    token: Bytes::new(),
                    created: Some(self.mechanism.created(&self.peer, &secret)),
                });
            }
        }
        self.round += 1;
        Ok(Step { token: self.token(), created: None })
    }

    fn explain(&self, _: u32, minor: u32) -> Option<String> {
        (minor == EXPLAINED).then(|| "an odd number; count again".to_owned())
    }
}

impl Initiator for TestMechanism {
    fn begin(&self, service: &str) -> Result<Box<dyn Initiating>, MechanismError> {
        Ok(Box::new(Rounds { mechanism: self.clone(), round: 0, peer: service.to_owned() }))
    }

    fn may_wait(&self) -> bool {
        self.waits
    }
}
