//! `rpcrdma serve`: sets a server up from options, and runs it until a signal stops it.

mod announced;
mod bounds;
mod configuration;
mod confine;
mod directories;
mod export;
mod exports5;
mod file;
mod kerberos;
pub(super) mod limits;
mod listen;
mod logs;
pub(super) mod observe;
mod passed;
mod problems;
mod ready;
mod reload;
mod run;
pub(super) mod status;
mod systemd;
mod trusted;

use std::collections::HashSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgGroup, ArgMatches, Args, CommandFactory, FromArgMatches, ValueEnum};
use rpcrdma::{CcpServer, PeerShares, ServerConfig, Versions};
use rpcrdma_nfs::fs::{DirectoryOptions, StateDirectory};
use rpcrdma_nfs::server::{HandleKey, NfsServer, Principals};
use rpcrdma_oncrpc::gss::GssServer;

use self::bounds::Bounds;
use self::confine::{Needs, confine};
use self::directories::{Directories, Shared};
use self::export::ExportOption;
use self::exports5::Listed;
use self::file::{Files, FromFile};
use self::kerberos::{Callers, Kerberos};
use self::logs::Logs;
use self::observe::Observe;
use self::passed::{Passed, Role};
pub(crate) use self::problems::Wrong;
use self::ready::Checked;
use self::reload::{Reloader, Rights};
use self::systemd::Manager;
use crate::arguments::{Common, ProfileName, listen_address};
use crate::commands::{Arguments, Command, Unparsed};
use crate::exit::Failure;
use crate::output;
use crate::provider::{ListenAt, Provider, ProviderOptions, may_use_adapters, raise_locked_memory};
use crate::tls::ServerTls;
use crate::trace::ServerLog;

const AFTER_HELP: &str = "\
The defaults serve this machine only. For other machines give an address that they can reach, for example
  rpcrdma serve --listen 0.0.0.0:20049 --export /=/srv/data,allow=192.0.2.0/24

Clients of an RDMA adapter need an address of that adapter, by the provider verbs. Give --listen once for each address:
  rpcrdma serve --listen verbs:192.0.2.1:20049 --listen iwarp:127.0.0.1:20049 /srv/data
The prefix of an address replaces --provider for it. rpcrdma devices lists the adapters of this machine. With --rpcbind, \
rpcbind learns one address for each transport (rdma, rdma6, tcp, tcp6): the first one given. With verbs the server raises its \
limit of locked memory (ulimit -l) as far as it may.

AUTH_SYS believes any user ID that a client machine claims. Unless you control every client, use allow= and keep squash=root, \
the default: root of a client then acts as nobody. A program on this machine can claim only its own user (see \
--trust-local-users). If rpcrdma does not run as root, it does everything as the user who runs it, and sets no set-id bits. \
Locks (NLM) are not served: mount with nolock.

With sec=krb5, Kerberos proves who calls. krb5i also detects changes of calls and replies, and krb5p also hides them; both copy \
data instead of placing it by RDMA. The machine needs libgssapi-krb5-2 (Debian, Ubuntu) or krb5-libs (Fedora, RHEL), its \
/etc/krb5.conf, and a keytab with a key of nfs/HOST. A caller is the user of the same name on this machine (auth_to_local of \
krb5.conf, and nsswitch), or the one that --principals gives it, with the groups of this machine's database. Principals without \
a user act as nobody, and so do those of machines (nfs/HOST, host/HOST, root/HOST, HOST$), whom root of a client calls as, unless \
--principals names a user for them. squash= applies after that.

Linux clients create security contexts over TCP also for mounts over RDMA. They use port 2049, whatever the port of the mount is. So \
with sec=krb5, krb5i or krb5p that is the default port of TCP. All listeners share the contexts.

Limits hold for each client and for all clients together. A client that reaches a limit waits or is refused, and others go on. \
--memory bounds the messages and payloads of all connections. Each RDMA connection reserves (credits + 2) x inline bytes of it. \
With many connections, later ones get fewer credits, but at least --least-credits. \
Reserved bytes become memory only while messages arrive, and all reservations together get at most half. The rest is for \
payloads; a call that finds no memory waits. Each connection takes about 16 KiB more for its state, and up to 32 KiB while data comes. \
A quarter of --memory is for the Receives of the --least-credits of all connections, and a quarter for further credits.

--memory-per-peer bounds the part of --memory that one client address can hold. A client that reads slowly fills its own part \
and then waits, without delaying others. As a resource fills up, the limit of each address shrinks, so that a few addresses \
cannot exhaust it. In these limits, all addresses of one IPv6 network (its first 64 bits) count as one, because a host can use \
any number of them. All loopback addresses count as one too, because each local user can use them. allow= and the check of \
local users look at the whole address. A client whose connection was closed connects again when it needs to.

When the server is ready, it prints one line that begins with \"ready:\". The line ends with the command by which Linux mounts \
the first export, or with the reason why there is none. --json prints {pid, rdma, listeners: [{address, provider}], \
tcp, exports: [{name, directory, read_only, access, allow, closed, security}], mount, mount_note, metrics, control} instead. read_only says that no client may write, and access is \"ro\", \"rw\" or, if only some clients may write, \"mixed\". metrics has the address of --metrics, control the path of the control socket. listeners has each RDMA address with its \
provider, \"iwarp\" or \"verbs\"; rdma is the first of these addresses. With --check it prints {good, exports, notes}. SIGINT or SIGTERM stops the server: it answers calls in progress and flushes data. A \
second signal ends it at once. SIGHUP makes it read the files of --config and --exports again: exports \
and all their options change without the loss of a connection, and other changes are logged, because they need a restart. If anything \
is wrong, the exports in force stay, and the log says why. docs/serving.md shows such files, and a unit for systemd. --handover starts a \
server that takes the sockets of the one that runs, so that an upgrade refuses no client. A signal that was ignored when rpcrdma started has no \
effect: a shell script starts `rpcrdma serve DIR &` with SIGINT ignored.";

/// Serve a directory by NFSv3 over RDMA (software iWARP or adapters) and over TCP
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP,
    group(ArgGroup::new("exported").args(["directory", "export", "config", "exports"]).required(true).multiple(true)))]
pub(crate) struct Serve {
    /// Directory to export as /, read-write unless --read-only is given
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Address and port for NFS over RDMA; port 0 selects a free one. Can be given several times. The prefix
    /// iwarp:, verbs: or auto: chooses the provider of this address, instead of --provider
    #[arg(long, value_name = "[PROVIDER:]ADDR[:PORT]", default_value = "127.0.0.1:20049")]
    listen: Vec<ListenAt>,
    /// Address and port for NFS and MOUNT over TCP [default: the address of the first --listen; port 20048, with
    /// Kerberos 2049, or a free one if they are in use]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address(20048))]
    tcp: Option<SocketAddr>,
    /// Serve RDMA only. Linux clients then cannot mount, because they send MOUNT over TCP
    #[arg(long, conflicts_with = "tcp")]
    no_tcp: bool,
    /// Export DIR under NAME; can be given several times. OPTION is ro, rw (default), allow=CIDR,
    /// squash=root|all|none, anonuid=UID, anongid=GID, sec=FLAVOR[:FLAVOR]..., secure or insecure (default). Of
    /// these, allow names the clients that may mount; repeat it for several (default: all; none: nobody). squash names the
    /// users that become nobody (default: root), whose IDs are anonuid and anongid (default: 65534). sec lists the flavours that calls may have, the preferred one first: sys (default),
    /// krb5, krb5i and krb5p.
    /// secure requires a source port below 1024 of TCP clients; it has no effect over RDMA. A directory
    /// inside another export keeps its own options, even for clients that reach it through the other one
    #[arg(long, value_name = "NAME=DIR[,OPTION]...")]
    export: Vec<ExportOption>,
    /// Export everything read-only
    #[arg(long)]
    read_only: bool,
    /// Register with this machine's rpcbind so that clients find the ports, and answer rpcbind queries on the
    /// ports of --listen and --tcp too
    #[arg(long)]
    rpcbind: bool,
    /// Do not request CRCs over software iWARP; clients that do not request them either then use none, such as
    /// siw, the software iWARP of Linux. For links with protection of their own, and for siw behind a proxy,
    /// where it rejects some correct CRCs. No effect on adapters
    #[arg(long)]
    no_crc: bool,
    /// Negotiate inline sizes and numbers of RDMA Reads with RDMA clients that ask by CONF_RDMA (RFC 5666
    /// §6), for clients without RFC 8797. Kerberos has to protect the exchange, as §11 requires: some export
    /// needs sec=krb5, krb5i or krb5p. Questions without integrity are refused
    #[arg(long, conflicts_with = "insecure_conf_rdma")]
    conf_rdma: bool,
    /// As --conf-rdma, but answer questions without the protection that §11 requires, too: anyone able to
    /// change packets can slow calls or make them fail
    #[arg(long)]
    insecure_conf_rdma: bool,
    /// Take the groups of a caller from this machine's database of users, by UID, not from the call. Group
    /// IDs that clients invent have no effect, and a user can be in more than 16 groups. Answers are kept for
    /// 5 minutes. Only callers that an export admits are looked up, one at a time for each client address
    #[arg(long)]
    manage_gids: bool,
    /// Believe any UID that a program on this machine claims; squash= still applies. By default the server
    /// asks the kernel for the owner of the program's socket, over TCP and software iWARP. A user other than
    /// root may claim only that UID, and has the groups of this machine's database. On an RDMA adapter the
    /// kernel knows no owner, so the server believes every UID there
    #[arg(long)]
    trust_local_users: bool,
    /// Versions of RPC-over-RDMA to serve
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Served::Both)]
    rpcrdma_version: Served,
    /// Drafts that define Version Two; clients need the same profile [default: p1]
    #[arg(long, value_enum, value_name = "PROFILE")]
    profile: Option<ProfileName>,
    /// Directory for data that must survive a restart (the key of file handles); never inside an export
    /// [default: $XDG_STATE_HOME/rpcrdma or ~/.local/state/rpcrdma]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Take the listening sockets over from the server that has the state directory, which then answers its last calls
    /// and ends. No client is refused meanwhile. Sockets whose address no option names are closed, and new addresses
    /// are opened. Without such a server this one starts as usual
    #[arg(long)]
    handover: bool,
    #[command(flatten)]
    observe: Observe,
    #[command(flatten)]
    kerberos: Kerberos,
    #[command(flatten)]
    tls: ServerTls,
    #[command(flatten)]
    rdma: ProviderOptions,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    logs: Logs,
    #[command(flatten)]
    files: Files,
}

/// Returns the arguments of a command line with those of the file that `--config` names. `given` are the options of the
/// command line.
///
/// # Errors
/// The file has faults, or its options do not go together with one another or with those of the command line.
pub(super) fn with_file(
    mut arguments: Arguments,
    given: &ArgMatches,
    words: &[OsString],
) -> Result<Arguments, Unparsed> {
    let Command::Serve(serve) = &arguments.command else { return Ok(arguments) };
    let mut read = FromFile::default();
    if let Some(path) = serve.files.config().map(Path::to_owned) {
        let mut command = Arguments::command();
        command.build();
        if let Some(options) = command.find_subcommand("serve") {
            read = FromFile::read(&path, options, given).map_err(|lines| Unparsed::File(lines.into()))?;
        }
        let both = Arguments::command().try_get_matches_from(read.with(words)).map_err(|error| match read
            .locate(&path, &error)
        {
            Some(line) => Unparsed::File(vec![line].into()),
            None => Unparsed::Line(error),
        })?;
        arguments = Arguments::from_arg_matches(&both)?;
    }
    if let Command::Serve(serve) = &mut arguments.command {
        serve.files.keep(words.to_vec(), read);
    }
    Ok(arguments)
}

/// Versions of RPC-over-RDMA that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Served {
    /// Version One, RFC 8166
    #[value(name = "1")]
    One,
    /// Version Two
    #[value(name = "2")]
    Two,
    /// Versions One and Two; the server answers each client in the version that the client begins with
    Both,
}

impl Served {
    const fn with(self, profile: ProfileName) -> Versions {
        match self {
            Self::One => Versions::ONE,
            Self::Two => Versions::two(profile.profile()),
            Self::Both => Versions::both(profile.profile()),
        }
    }
}

impl Serve {
    /// Returns the versions to serve.
    fn versions(&self) -> Result<Versions, Failure> {
        let wrong = match (self.rpcrdma_version, self.profile) {
            (Served::One, Some(_)) => {
                "--profile is about Version Two: it has no meaning with --rpcrdma-version 1"
            }
            (Served::Two, _) if self.insecure_conf_rdma => {
                "--insecure-conf-rdma is about Version One: Version Two has characteristics for that"
            }
            (Served::Two, _) if self.conf_rdma => {
                "--conf-rdma is about Version One: Version Two has characteristics for that"
            }
            (version, profile) => return Ok(version.with(profile.unwrap_or(ProfileName::P1))),
        };
        Err(Failure::usage(wrong))
    }

    /// Returns the choice of the log.
    pub(crate) fn log(&self) -> ServerLog {
        self.logs.choice()
    }

    /// Returns which questions of CONF_RDMA are answered; `None` without an answer to any.
    fn ccp(&self) -> Option<CcpServer> {
        match (self.conf_rdma, self.insecure_conf_rdma) {
            (true, _) => Some(CcpServer::Protected),
            (false, true) => Some(CcpServer::Insecure),
            (false, false) => None,
        }
    }

    /// Returns whether the options are to be checked only.
    pub(crate) fn is_check(&self) -> bool {
        self.files.are_checked()
    }

    /// Checks the options and all files, and says that they are good. Nothing is opened for clients.
    ///
    /// # Errors
    /// Anything that would keep the server from a start with these options, as for a wrong command line.
    pub(crate) fn check(&self, common: Common) -> Result<(), Failure> {
        let settled = self.settle().map_err(|wrong| {
            let failure = wrong.told();
            let message = failure.to_string();
            if failure.is_silent() { failure } else { Failure::usage(message) }
        })?;
        if let Some(directory) = reload::missing(&settled.options) {
            return Err(Failure::usage(format!("cannot serve: {} is no directory", directory.display())));
        }
        if let Some(state) = &self.state {
            trusted::check_outside([("--state", state.clone())], &settled.options)
                .map_err(|failure| Failure::usage(failure.to_string()))?;
        }
        let checked = Checked::new(&settled.options, settled.notes);
        if common.json {
            return output::document(&checked);
        }
        checked.notes().iter().for_each(output::warn);
        output::line(checked.line())
    }

    /// Returns the exports of the options and files, perhaps none.
    fn exports(&self) -> Result<Listed, Wrong> {
        let mut options: Vec<ExportOption> =
            self.directory.clone().map(ExportOption::root).into_iter().collect();
        options.extend(self.export.iter().cloned());
        let mut listed = self.files.exports()?;
        options.append(&mut listed.exports);
        if self.read_only {
            options.iter_mut().for_each(ExportOption::close_to_changes);
        }
        let mut names = HashSet::new();
        if let Some(twice) = options.iter().find(|option| !names.insert(option.name.as_str())) {
            return Err(Failure::usage(format!("two exports have the name {}", twice.name)).into());
        }
        Ok(Listed { exports: options, ..listed })
    }

    /// Returns the files that the server trusts, each with the option or variable that names it.
    fn trusted(&self, options: &[ExportOption]) -> impl Iterator<Item = (&'static str, PathBuf)> {
        self.tls.files().chain(self.kerberos.files(options)).chain(self.files.paths())
    }

    /// Checks the options together, and reads all files.
    fn settle(&self) -> Result<Settled, Wrong> {
        self.rdma.check(self.listeners().map(|(provider, _)| provider), self.no_crc)?;
        let descriptors = limits::for_connections(limits::raise_descriptors());
        let Listed { exports: options, mut notes, names, missing: nameless } = self.exports()?;
        if options.is_empty() {
            let message = "nothing is exported: give DIR, --export, tables [[export]] in the file of --config, or lines in \
                           that of --exports";
            return Err(Failure::usage(message).into());
        }
        let missing = self.files.reload_below().iter().filter(|path| !path.is_dir());
        notes.extend(missing.map(|path| {
            format!(
                "--reload-below {} is no directory now, so exports there may need a restart (Landlock)",
                path.display()
            )
        }));
        let (mut config, shares) = self.bounds.config(self.versions()?, descriptors)?;
        config.ccp = self.ccp();
        config.slow_call = self.logs.slow();
        config.local_owners = !self.trust_local_users;
        // The files need not be readable after the rights are given up.
        config.tls = self.tls.settings(!self.no_tcp)?;
        if self.tls.is_demanded()
            && let Some((_, address)) = self.listeners().find(|(_, address)| !address.ip().is_loopback())
        {
            tracing::warn!(%address, "--xprtsec is about TCP: calls over RDMA have no TLS (RFC 9289)");
        }
        if let Some(warning) = kerberos::kept_out(&options, self.tls.is_demanded()) {
            output::warn(warning);
        }
        let callers = self.kerberos.open(&options)?;
        if self.conf_rdma && callers.contexts.is_none() {
            let message = "--conf-rdma needs Kerberos, which no export allows: give an --export the option sec=krb5, \
                           sec=krb5i or sec=krb5p";
            return Err(Failure::usage(message).into());
        }
        trusted::check_outside(self.trusted(&options), &options)?;
        self.files.remember(names);
        Ok(Settled { options, notes, missing: nameless, config, shares, callers })
    }

    /// Opens the exports and gives up rights that the server no longer needs. Call this while the process has
    /// one thread.
    pub(crate) fn prepare(self) -> Result<Prepared, Failure> {
        let (manager, passed) = Manager::take()?;
        if passed.has(Role::Tcp) && self.no_tcp {
            return Err(Failure::usage("a socket for TCP was passed, which --no-tcp forbids"));
        }
        // Clients have applied their own umask, so new files get their mode at once. The files of the state
        // directory have explicit modes.
        rustix::process::umask(rustix::fs::Mode::empty());
        let Settled { options, notes, missing, config, shares, callers } =
            self.settle().map_err(Wrong::told)?;
        notes.iter().for_each(output::warn);
        let Callers { contexts, principals } = callers;
        let Opened { nfs, state, reloader, shared } = self.open(&options, &shares, principals)?;
        self.kerberos.check(&options)?;
        Ok(Prepared {
            serve: self,
            options,
            config,
            shares,
            nfs,
            state,
            contexts,
            reloader,
            manager,
            passed,
            shared,
            missing,
        })
    }

    /// Gives up rights that are not needed to serve these directories. Returns whether all others are closed.
    fn confine(
        &self,
        options: &[ExportOption],
        state: &StateDirectory,
        kernel_handles: bool,
    ) -> Result<bool, Failure> {
        let addresses = self.listeners().map(|(_, address)| address);
        let ports: Vec<u16> =
            addresses.chain(self.tcp).chain(self.observe.address()).map(|address| address.port()).collect();
        let adapters = self.listeners().any(|(provider, address)| may_use_adapters(provider, address.ip()));
        let below = self.files.reload_below().iter().map(PathBuf::as_path);
        let directories = options.iter().map(|option| option.directory.as_path());
        let directories: Vec<&Path> = directories.chain(below).chain([state.path()]).collect();
        let mut folders = self.kerberos.folders(options);
        // They are read again at SIGHUP.
        folders.extend(self.files.paths().flat_map(|(_, file)| kerberos::folders_of(&file)));
        let needs = Needs {
            superuser: options.iter().any(ExportOption::keeps_root),
            ports: &ports,
            directories: &directories,
            folders: &folders,
            listed: &kerberos::listed(options),
            kernel_handles,
            adapters,
            // Raised before the right to raise it is given up.
            lock_memory: adapters && !raise_locked_memory(),
        };
        confine(&needs).map_err(|error| Failure::failed(format!("cannot give up privileges: {error}")))
    }
}

/// Options that were checked together.
struct Settled {
    options: Vec<ExportOption>,
    notes: Vec<String>,
    /// Host names of clients that have no address now.
    missing: Vec<String>,
    config: ServerConfig,
    shares: PeerShares,
    callers: Callers,
}

/// Open exports.
struct Opened {
    nfs: NfsServer,
    /// The state directory.
    state: PathBuf,
    reloader: Option<Reloader>,
    shared: Option<Shared>,
}

/// Server with open exports that does not listen yet.
pub(crate) struct Prepared {
    serve: Serve,
    options: Vec<ExportOption>,
    config: ServerConfig,
    shares: PeerShares,
    nfs: NfsServer,
    /// The state directory.
    state: PathBuf,
    /// Contexts of callers by Kerberos, if an export allows it.
    contexts: Option<Arc<GssServer>>,
    /// `None` if there is no file to read again.
    reloader: Option<Reloader>,
    manager: Manager,
    passed: Passed,
    /// Directories that the server before this one may have open, with `--handover`.
    shared: Option<Shared>,
    /// Host names of clients that have no address now.
    missing: Vec<String>,
}

impl Serve {
    /// Returns the RDMA addresses with their providers.
    fn listeners(&self) -> impl Iterator<Item = (&Provider, SocketAddr)> {
        self.listen.iter().map(|at| (at.provider(&self.rdma), at.address))
    }

    /// Opens the exports.
    fn open(
        &self,
        options: &[ExportOption],
        shares: &PeerShares,
        principals: Principals,
    ) -> Result<Opened, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::failed(format!("cannot serve: {error}"));
        let directories: Vec<&Path> = options.iter().map(|option| option.directory.as_path()).collect();
        let state = match &self.state {
            Some(path) => StateDirectory::open_outside(path, &directories),
            None => StateDirectory::open_default(&directories),
        }
        .map_err(|error| Failure::failed(format!("cannot serve: {error} (--state)")))?;
        let mut shared = self.handover.then(|| Shared::begin(&state));
        let mut opened = Directories::new(state, DirectoryOptions::default());
        let exports = reload::open(&mut opened, options)
            .map_err(|reason| Failure::failed(format!("cannot serve: {reason}")))?;
        let is_confined = self.confine(options, opened.state(), opened.have_kernel_handles())?;
        if is_confined {
            opened.without_kernel_handles();
        }
        if let Some(shared) = &mut shared {
            shared.opened(&opened);
        }
        let mut settings = self.bounds.server(shares);
        settings.manage_groups = self.manage_gids;
        settings.principals = principals;
        let state = opened.state().path().to_owned();
        let nfs = NfsServer::new(HandleKey::from_state(opened.state()), exports, settings)
            .map_err(|error| failed(&error))?;
        let reloader = self.files.paths().next().map(|_| {
            let rights = Rights::of(options, self.files.reload_below(), is_confined);
            Reloader::new(self, options, opened, rights, nfs.clone())
        });
        Ok(Opened { nfs, state, reloader, shared })
    }
}
