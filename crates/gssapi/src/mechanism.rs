//! Both sides of the mechanism krb5.

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpcrdma_oncrpc::gss::{
    Accepting, Acceptor, Created, Initiating, Initiator, MechanismError, Principal, Step,
};
use thiserror::Error;

use crate::ffi::{
    ACCEPT, CONFIDENTIALITY, CONTINUE_NEEDED, HOST_BASED_SERVICE, INDEFINITE, INITIATE, INTEGRITY, KRB5,
    MUTUAL, gss_OID,
};
use crate::library::{Functions, LoadError, functions, none};
use crate::objects::{
    Context, Credentials, Name, Output, check, configuration_fault, default_cache, input, oid,
};
use crate::protection::{Computing, KerberosContext, protected};
use crate::remedy;
use crate::stores::{PrivateCache, Source, Tickets, check_files, keytab_file, keytab_name, shown};
use crate::token::Role;

/// Service of NFS servers in names of Kerberos (RFC 7530 §3.2.1.1).
const SERVICE: &str = "nfs";
/// Variable that names the library's configuration.
const CONFIGURATION: &str = "KRB5_CONFIG";
/// The configuration without that variable.
const SYSTEM_CONFIGURATION: &str = "/etc/krb5.conf";

/// Reason why there are no credentials.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The library is missing.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The library cannot use its own configuration.
    #[error("the configuration of Kerberos, {files}: {error}")]
    Configuration {
        /// Its files.
        files: String,
        /// The library's error, and the remedy.
        error: MechanismError,
    },
    /// The library finds no credentials.
    #[error("{place}: {error}")]
    Credentials {
        /// Where the library looked.
        place: String,
        /// The library's error, and the remedy.
        error: MechanismError,
    },
}

impl OpenError {
    /// Returns the error of a look into this place. The configuration goes first: without it the library finds nothing.
    fn new(functions: &'static Functions, place: String, error: MechanismError) -> Self {
        match configuration_fault(functions) {
            Some(error) => {
                let files = std::env::var(CONFIGURATION).unwrap_or_else(|_| SYSTEM_CONFIGURATION.to_owned());
                Self::Configuration { files: shown(&files), error: remedy::of_configuration(error) }
            }
            None => Self::Credentials { place, error },
        }
    }
}

/// A keytab of a server.
#[derive(Clone, Debug)]
struct Keytab {
    path: PathBuf,
    /// Its name in messages.
    shown: String,
}

impl Keytab {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), shown: shown(&path.display().to_string()) }
    }

    /// Returns whether the system hides the file from this process.
    fn is_hidden(&self) -> bool {
        File::open(&self.path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }
}

/// A server's keys for the service `nfs`.
pub struct KerberosAcceptor {
    functions: &'static Functions,
    credentials: Arc<Credentials>,
    keytab: Option<Arc<Keytab>>,
    computing: Computing,
}

impl fmt::Debug for KerberosAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosAcceptor").finish_non_exhaustive()
    }
}

impl KerberosAcceptor {
    /// Opens a keytab, by default that of the system (`/etc/krb5.keytab`). It has to have a key of `nfs/HOST` for some HOST.
    /// `FILE:` or `WRFILE:` may stand in front of the path.
    ///
    /// # Errors
    /// Each variant of [`OpenError`].
    pub fn open(keytab: Option<&Path>) -> Result<Self, OpenError> {
        let functions = functions()?;
        let keytab = keytab.map(|given| Arc::new(Keytab::new(keytab_file(given))));
        let shown = keytab.as_ref().map(|keytab| keytab.shown.as_str());
        let failed = |error| {
            let place = shown.map_or("the keytab".to_owned(), |path| format!("the keytab {path}"));
            OpenError::new(functions, place, remedy::at_server(error, shown))
        };
        check_files(None, keytab.as_ref().map(|keytab| keytab.path.as_path())).map_err(failed)?;
        let name = Name::import(functions, SERVICE, HOST_BASED_SERVICE).map_err(failed)?;
        let file = keytab.as_ref().map(|keytab| keytab_name(&keytab.path));
        let stored = file.iter().map(|name| ("keytab", name.as_slice()));
        // A repeated token makes a context whose keys only its first sender has. So no cache of tokens on disk is needed.
        let store: Vec<_> = stored.clone().chain([("rcache", &b"none:"[..])]).collect();
        let credentials = Credentials::acquire(functions, Some(&name), ACCEPT, &store).or_else(|_| {
            // Older versions of the library do not know the key `rcache`.
            let store: Vec<_> = stored.collect();
            Credentials::acquire(functions, Some(&name), ACCEPT, &store)
        });
        let credentials = Arc::new(credentials.map_err(failed)?);
        Ok(Self { functions, credentials, keytab, computing: Computing::Tried })
    }

    /// Lets the library protect the messages of all contexts, to compare it or to find an error.
    #[must_use]
    pub const fn with_library_protection(mut self) -> Self {
        self.computing = Computing::Library;
        self
    }
}

impl Acceptor for KerberosAcceptor {
    fn begin(&self) -> Box<dyn Accepting> {
        Box::new(AcceptingContext {
            context: Context::none(self.functions),
            credentials: Arc::clone(&self.credentials),
            keytab: self.keytab.clone(),
            computing: self.computing,
        })
    }
}

struct AcceptingContext {
    context: Context,
    credentials: Arc<Credentials>,
    keytab: Option<Arc<Keytab>>,
    computing: Computing,
}

impl AcceptingContext {
    /// Returns the error with its remedy. The keytab was read at the start, but later it may be out of reach.
    fn explained(&self, error: MechanismError) -> MechanismError {
        match &self.keytab {
            Some(keytab) if remedy::is_unread_keytab(&error) && keytab.is_hidden() => {
                remedy::of_hidden_keytab(error, &keytab.shown)
            }
            keytab => remedy::at_server(error, keytab.as_ref().map(|keytab| keytab.shown.as_str())),
        }
    }
}

impl Accepting for AcceptingContext {
    fn step(&mut self, token: &[u8]) -> Result<Step, MechanismError> {
        let functions = self.context.functions();
        let (mut minor, mut seconds, mut flags) = (0, 0, 0);
        let mut token = input(token);
        let mut mechanism: gss_OID = null_mut();
        let mut name = Name::none(functions);
        let mut answer = Output::new(functions);
        // SAFETY: all pointers are null where the library allows that, or to values that live longer than the call. No other
        // thread has the context.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_accept_sec_context)(
                &raw mut minor,
                &raw mut self.context.handle,
                self.credentials.handle,
                &raw mut token,
                none(),
                &raw mut name.handle,
                &raw mut mechanism,
                &raw mut answer.buffer,
                &raw mut flags,
                &raw mut seconds,
                none(),
            )
        };
        let status = check(functions, status, minor).map_err(|error| self.explained(error))?;
        let token = answer.to_bytes();
        if status & CONTINUE_NEEDED != 0 {
            return Ok(Step { token, created: None });
        }
        let peer =
            Principal { name: name.display()?, mechanism: Bytes::from_static(KRB5), local: name.local() };
        let context = std::mem::replace(&mut self.context, Context::none(functions));
        let context = protected(context, Role::Acceptor, flags, self.computing);
        Ok(Step { token, created: Some(created(context, peer, seconds)) })
    }
}

/// Returns a context that is complete. Its lifetime is in seconds.
fn created(context: KerberosContext, peer: Principal, seconds: u32) -> Created {
    let lifetime = (seconds != INDEFINITE).then(|| Duration::from_secs(seconds.into()));
    Created { context: Arc::new(context), peer, lifetime }
}

/// A client's credentials: tickets in a cache, or keys in a keytab.
pub struct KerberosInitiator {
    functions: &'static Functions,
    tickets: Arc<Tickets>,
    source: Source,
    computing: Computing,
}

impl fmt::Debug for KerberosInitiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = self.tickets.cache.as_ref().map(PrivateCache::name);
        f.debug_struct("KerberosInitiator").field("private_cache", &cache).finish_non_exhaustive()
    }
}

impl KerberosInitiator {
    /// Finds credentials: in this cache of tickets, by default the user's (`KRB5CCNAME`).
    ///
    /// With a keytab, tickets are got with its first key. They are in memory, in a cache that ends with these credentials, and
    /// no other one is read. With both, the named cache takes them; tickets that are already there go first, whoever they are
    /// for. `FILE:` or `WRFILE:` may stand in front of the keytab's path.
    ///
    /// # Errors
    /// Each variant of [`OpenError`].
    pub fn open(cache: Option<&str>, keytab: Option<&Path>) -> Result<Self, OpenError> {
        let functions = functions()?;
        let keytab = keytab.map(keytab_file);
        let source = Source::new(cache, keytab);
        let failed = |error, default: Option<&str>| {
            let error = remedy::at_client(error, source.proof(), "HOST");
            OpenError::new(functions, source.place(default), error)
        };
        let file = keytab.map(keytab_name);
        let (private, default) = match (cache, &file) {
            (Some(_), _) => (None, None),
            (None, Some(_)) => {
                let private = PrivateCache::new(functions).map_err(|error| failed(error, None))?;
                (Some(private), None)
            }
            // Without a name, the library searches a collection of caches. If it cannot read one, version 1.20 (of Debian 12)
            // frees a pointer that it never set (`krb5_cccol_have_content`).
            (None, None) => (None, default_cache(functions)),
        };
        let cache = cache.or(default.as_deref());
        check_files(cache, keytab).map_err(|error| failed(error, cache))?;
        let used = private.as_ref().map(|private| private.name().to_bytes()).or(cache.map(str::as_bytes));
        let mut store = Vec::new();
        store.extend(used.map(|cache| ("ccache", cache)));
        store.extend(file.iter().map(|name| ("client_keytab", name.as_slice())));
        let credentials = Credentials::acquire(functions, None, INITIATE, &store).map_err(|error| {
            failed(file.as_deref().and_then(|name| unusable(functions, name)).unwrap_or(error), cache)
        })?;
        let tickets = Arc::new(Tickets { credentials, cache: private });
        Ok(Self { functions, tickets, source, computing: Computing::Tried })
    }

    /// Words for a ticket that does not come in time, with a remedy.
    pub const OVERDUE: &str = remedy::OVERDUE;

    /// Lets the library protect the messages of all contexts, to compare it or to find an error.
    #[must_use]
    pub const fn with_library_protection(mut self) -> Self {
        self.computing = Computing::Library;
        self
    }
}

/// Returns the reason why a keytab cannot be read. The library tells it of keys for a server only.
fn unusable(functions: &'static Functions, keytab: &[u8]) -> Option<MechanismError> {
    let name = Name::import(functions, SERVICE, HOST_BASED_SERVICE).ok()?;
    let error = Credentials::acquire(functions, Some(&name), ACCEPT, &[("keytab", keytab)]).err()?;
    // Clients need no key of this service.
    (!remedy::is_other_key(&error)).then_some(error)
}

impl Initiator for KerberosInitiator {
    fn begin(&self, service: &str) -> Result<Box<dyn Initiating>, MechanismError> {
        Ok(Box::new(InitiatingContext {
            context: Context::none(self.functions),
            tickets: Arc::clone(&self.tickets),
            target: Name::import(self.functions, service, HOST_BASED_SERVICE)?,
            service: service.to_owned(),
            source: self.source.clone(),
            computing: self.computing,
        }))
    }

    fn overdue(&self) -> String {
        Self::OVERDUE.to_owned()
    }
}

struct InitiatingContext {
    context: Context,
    tickets: Arc<Tickets>,
    target: Name,
    service: String,
    source: Source,
    computing: Computing,
}

impl InitiatingContext {
    /// Returns the host of the service.
    fn host(&self) -> &str {
        self.service.split_once('@').map_or(&self.service, |(_, host)| host)
    }
}

impl Initiating for InitiatingContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<Step, MechanismError> {
        let functions = self.context.functions();
        let (mut minor, mut seconds, mut flags) = (0, 0, 0);
        let mut token = input(token.unwrap_or_default());
        let mut mechanism = oid(KRB5);
        let mut answer = Output::new(functions);
        // RFC 2203 §5.2.2: neither replay detection nor sequencing.
        let wanted = MUTUAL | INTEGRITY | CONFIDENTIALITY;
        // SAFETY: all pointers are null where the library allows that, or to values that live longer than the call. No other
        // thread has the context.
        #[allow(unsafe_code)]
        let status = unsafe {
            (functions.gss_init_sec_context)(
                &raw mut minor,
                self.tickets.credentials.handle,
                &raw mut self.context.handle,
                self.target.handle,
                &raw mut mechanism,
                wanted,
                0,
                none(),
                &raw mut token,
                none(),
                &raw mut answer.buffer,
                &raw mut flags,
                &raw mut seconds,
            )
        };
        let status = check(functions, status, minor)
            .map_err(|error| remedy::at_client(error, self.source.proof(), self.host()))?;
        let token = answer.to_bytes();
        if status & CONTINUE_NEEDED != 0 {
            return Ok(Step { token, created: None });
        }
        let peer = Principal { name: self.service.clone(), mechanism: Bytes::from_static(KRB5), local: None };
        let context = std::mem::replace(&mut self.context, Context::none(functions));
        let context = protected(context, Role::Initiator, flags, self.computing);
        Ok(Step { token, created: Some(created(context, peer, seconds)) })
    }
    fn explain(&self, major: u32, minor: u32) -> Option<String> {
        remedy::of_peer(major, minor, self.host())
    }
}
