//! The commands, in one file each, and the code that they share.

mod attributes;
mod bench;
mod checksum;
mod clients;
mod conform;
mod copy;
mod devices;
mod df;
mod du;
mod entry;
mod exports;
mod find;
mod ls;
mod mode;
mod names;
mod observed;
mod ping;
mod serve;
mod stat;
mod time;
mod top;
mod visit;
mod xdrgen;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime::{Builder, Handle};
use tokio::time::{sleep, timeout};

use crate::arguments::Common;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::signals::{StopSignals, survive_file_size_limit};
use crate::trace;

/// Time for tasks to end after the command. They remove temporary files meanwhile.
const LEAVE: Duration = Duration::from_secs(2);
/// Time for a server to read the arguments of calls that a failed command made: the limit of the session, and
/// a little more.
const DRAIN: Duration = Duration::from_secs(6);

/// Time for set-ups of connections that a command has abandoned. A connector gives them less time.
const SET_UP: Duration = Duration::from_secs(5);

/// Returns a function that describes why a listener cannot use this address.
pub(crate) fn cannot_listen(address: SocketAddr) -> impl Fn(io::Error) -> Failure {
    move |error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => {
                ": another server runs there; choose another port, or 0 for a free one"
            }
            io::ErrorKind::AddrNotAvailable => ": this machine does not have that address",
            io::ErrorKind::PermissionDenied if (1..1024).contains(&address.port()) => {
                ": ports below 1024 need rights; choose a higher one"
            }
            _ => "",
        };
        Failure::failed(format!("cannot listen on {address}: {error}{hint}"))
    }
}

const AFTER_HELP: &str = "\
Examples:
  rpcrdma serve /srv/data                          serve a directory on 127.0.0.1:20049
  rpcrdma get -r nfs://127.0.0.1/ copy             fetch all of it
  rpcrdma put report.pdf nfs://127.0.0.1/reports/  store a file
  rpcrdma sync photos nfs://127.0.0.1/photos       store what is new or changed in a directory
  rpcrdma -v cat nfs://127.0.0.1/notes.txt         see how each call travels

URLs: nfs://HOST[:PORT]/PATH. The default PORT is 20049 (rdma) or 2049 (tcp); rpcrdma serve takes 20048 \
for tcp. In a PATH, write %25 for a percent sign, %3F for ? and %23 for #. Write an IPv6 address in brackets: nfs://[::1]/. \
A query may follow: ?uid=NUMBER, ?gid=NUMBER, ?mountport=PORT and ?nfsport=PORT, with & between several.

Wildcards in names of a PATH, in quotes for the shell: * for any text, ? for one character, [a-z] and [!a-z] for one of several. \
They work where a command takes several existing files: ls, stat, cat, get, cp, mv, rm, df, du, find, chmod, chown, touch and checksum. \
Names that begin with . have to be matched by a . in the pattern. A file with the very name goes before the pattern; without a \
match, the name is taken as it stands. %2A, %3F and %5B are the characters * ? [ themselves. A ? before NAME=NUMBER begins a query.

A URL or local path that ends with / names a directory, as for cp and mv. If it names none, the command refuses and changes \
nothing (exit code 1). put -r, get -r and mv of a directory make it if it is absent, and so do mkdir and sync.

Sizes in bytes can end in K, M, G, T or P, alone or with iB, for 2^10 to 2^50 bytes, and in KB, MB and so on for 10^3, 10^6 bytes. \
Times in seconds can end in us, ms, s, m, h or d.

--json prints one document at the end, and {error: {message, kind, exit, causes}} in it, or alone, if the command fails. serve and \
bench --server print documents as they go, one a line. docs/json.md describes the documents.

Exit codes:
  0    done
  1    the operation failed
  2    wrong command line
  3    no connection to the server
  4    partly done: some of several operations failed, each is named on standard error; or a file changed
       while it was copied
  130  stopped by SIGINT, SIGTERM or SIGHUP before it was done
  141  the reader of the output has gone, as in rpcrdma ls URL | head; SIGPIPE ends other commands so

Environment:
  RPCRDMA_LOG  events to show instead of those that -v chooses, e.g. \"warn,rpcrdma_proto=trace\"
  NO_COLOR     no colours in messages
  LC_ALL, LC_CTYPE, LANG  without UTF-8 in them, terminals get a ? for each character beyond ASCII";

/// Serve and use NFS over RPC-over-RDMA (RFC 8166, RFC 8267), on software iWARP without RDMA hardware or a
/// kernel module, or on RDMA adapters
#[derive(Debug, Parser)]
#[command(name = "rpcrdma", version, after_help = AFTER_HELP, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory by NFSv3 over RDMA and TCP
    Serve(serve::Serve),
    /// Show a running server live: clients, calls a second, latencies
    Top(top::Top),
    /// List the connections of a running server, or end one
    Clients(clients::ClientsCommand),
    /// List what a server exports
    Exports(exports::Exports),
    /// List directories
    Ls(ls::Ls),
    /// Show the attributes of files, or the state of a running server
    Stat(stat::Stat),
    /// Write the content of files to standard output
    Cat(copy::Cat),
    /// Fetch files and directories
    Get(copy::Get),
    /// Store files and directories
    Put(copy::Put),
    /// Make one directory equal to another, by copies of what differs
    Sync(copy::Sync),
    /// Make directories
    Mkdir(names::Mkdir),
    /// Remove files and directories
    Rm(names::Rm),
    /// Rename or move files on one server
    Mv(names::Mv),
    /// Make hard or symbolic links
    Ln(names::Ln),
    /// Copy files and directories at servers
    Cp(copy::Cp),
    /// Change permissions
    Chmod(attributes::Chmod),
    /// Change owners and groups
    Chown(attributes::Chown),
    /// Change times, and make empty files
    Touch(time::Touch),
    /// Search directory trees
    Find(find::Find),
    /// Show the space that files and directories use
    Du(du::Du),
    /// Show the free space of file systems
    Df(df::Df),
    /// Print or check checksums of files
    Checksum(checksum::Checksum),
    /// Measure the round trip of NULL calls
    Ping(ping::Ping),
    /// Measure this machine, or two hosts: throughput, latency and CPU against plain TCP
    Bench(bench::Bench),
    /// Test how a server or a client speaks RPC-over-RDMA
    Conform(conform::Conform),
    /// List the RDMA devices of this machine
    Devices(devices::Devices),
    /// Print Rust for the description of an RPC program (a .x file)
    Xdrgen(xdrgen::Xdrgen),
}

/// Returns the words of a command line with the options of `find` as this program has them: `-name` becomes `--name`.
pub(crate) fn modern(words: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let (mut before, mut finding) = (true, false);
    words.enumerate().map(move |(index, word)| {
        let option = word.to_str().filter(|text| text.starts_with('-'));
        if finding && let Some(long) = option.filter(|option| find::is_expression(option)) {
            return format!("-{long}").into();
        }
        // The first word is the name of the program, the next one without a dash the command.
        if index > 0 && before && option.is_none() {
            (before, finding) = (false, word == "find");
        }
        word
    })
}

/// Reason why a command line cannot be used.
pub(crate) enum Unparsed {
    /// The parser refuses it, or prints help.
    Line(clap::Error),
    /// A file with options cannot be used.
    File(serve::Wrong),
}

impl From<clap::Error> for Unparsed {
    fn from(error: clap::Error) -> Self {
        Self::Line(error)
    }
}

/// Parses a command line, with the options of the file that `serve --config` names.
///
/// # Errors
/// Each variant of [`Unparsed`].
pub(crate) fn parse(words: &[OsString]) -> Result<Arguments, Unparsed> {
    let matches = Arguments::command().try_get_matches_from(words)?;
    let arguments = Arguments::from_arg_matches(&matches)?;
    if let (Command::Serve(_), Some((_, given))) = (&arguments.command, matches.subcommand()) {
        return serve::with_file(arguments, given, words);
    }
    Ok(arguments)
}

/// Least number of files that a command can open beside those that it was started with.
const DESCRIPTORS: usize = 7;

/// Checks that this process may open the few files that every command needs.
fn check_descriptors() -> Result<(), Failure> {
    let mut open = Vec::new();
    for _ in 0..DESCRIPTORS {
        let file = std::fs::File::open("/dev/null");
        open.push(file.map_err(|error| {
            Failure::failed(format!("cannot open files: {error}; allow this process more (ulimit -n 1024)"))
        })?);
    }
    Ok(())
}

/// Runs the command.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { common, command } = arguments;
    let log = if let Command::Serve(serve) = &command { Some(serve.log()) } else { None };
    trace::start(common.verbose, log.as_ref())?;
    check_descriptors()?;
    match command {
        // `serve` and `bench` have an orderly end of their own.
        Command::Serve(serve) if serve.is_check() => serve.check(common),
        Command::Serve(serve) => {
            // Privileges are given up while the process has one thread.
            let prepared = serve.prepare()?;
            trace::detach();
            let result = on_runtime(Builder::new_multi_thread(), prepared.run(common));
            // A line that nobody reads would hold the end up.
            if trace::finish() { result } else { result.map_err(|failure| Failure::silent(failure.exit())) }
        }
        // On one thread, so that a round trip has no thread switch.
        Command::Ping(ping) => on_runtime(Builder::new_current_thread(), orderly(ping.run(common))),
        // Each measurement has a runtime of its own.
        Command::Bench(bench) => bench.run(common),
        Command::Conform(conform) => client(conform.run(common)),
        Command::Devices(devices) => devices.run(common),
        Command::Xdrgen(xdrgen) => xdrgen.run(common),
        Command::Top(top) => reporting(top.run(common)),
        Command::Clients(clients) => client(clients.run(common)),
        Command::Exports(exports) => client(exports.run(common)),
        Command::Ls(ls) => client(ls.run(common)),
        Command::Stat(stat) => client(stat.run(common)),
        Command::Cat(cat) => client(cat.run(common)),
        // After a signal these report the work completed; so do those that change names.
        Command::Get(get) => on_runtime(threads(get.connections()), orderly(get.run(common))),
        Command::Put(put) => {
            let umask = umask();
            on_runtime(threads(put.connections()), orderly(put.run(common, umask)))
        }
        Command::Sync(sync) => reporting(sync.run(common)),
        Command::Mkdir(mkdir) => reporting(mkdir.run(common)),
        Command::Rm(rm) => on_runtime(threads(rm.connections()), orderly(rm.run(common))),
        Command::Mv(mv) => reporting(mv.run(common)),
        Command::Ln(ln) => reporting(ln.run(common)),
        Command::Cp(cp) => {
            let umask = umask();
            reporting(cp.run(common, umask))
        }
        Command::Chmod(chmod) => {
            let umask = umask();
            reporting(chmod.run(common, umask))
        }
        Command::Chown(chown) => reporting(chown.run(common)),
        Command::Touch(touch) => {
            let umask = umask();
            reporting(touch.run(common, umask))
        }
        Command::Find(find) => client(find.run(common)),
        Command::Du(du) => client(du.run(common)),
        Command::Df(df) => client(df.run(common)),
        Command::Checksum(checksum) => client(checksum.run(common)),
    }
}

/// Returns the permission bits that this process denies to new files. They can be read only by changing them,
/// so no other thread may exist yet.
fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Runs a command that a signal ends.
fn client(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    reporting(until_signal(command))
}

/// Runs a command that takes signals itself, to report the work completed.
fn reporting(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    on_runtime(Builder::new_multi_thread(), orderly(command))
}

/// Returns the runtime of a command that makes many small calls. The calls of one connection are fastest on one thread, where
/// those that are ready together leave together.
fn threads(connections: u32) -> Builder {
    if connections > 1 { Builder::new_multi_thread() } else { Builder::new_current_thread() }
}

/// Runs a command. If the command fails, waits for its tasks to end or for a signal.
///
/// Some servers react badly if tasks are cut off: a connection whose set-up was given up, and calls whose
/// arguments the server is reading. This holds for commands whose time has passed too.
async fn orderly(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let result = command.await;
    if let Err(failure) = &result {
        let limit = match (failure.is_late(), failure.exit()) {
            (true, _) => SET_UP,
            (false, Exit::Unreachable) => LEAVE,
            (false, _) => DRAIN,
        };
        let mut signals = StopSignals::new()?;
        let tasks = Handle::current().metrics();
        let ended = async {
            while tasks.num_alive_tasks() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            // A silent server makes this wait end by its time limit.
            _ = timeout(limit, ended) => {}
            _ = signals.next() => {}
        }
    }
    result
}

fn on_runtime(
    mut builder: Builder,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))?;
    let result = runtime.block_on(async {
        survive_file_size_limit()?;
        command.await
    });
    if result.as_ref().is_err_and(Failure::is_late) {
        runtime.shutdown_background();
    } else {
        runtime.shutdown_timeout(LEAVE);
    }
    result
}

/// Runs a command to its end or to the first SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn until_signal<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut signals = StopSignals::new()?;
    tokio::select! {
        result = command => result,
        signal = signals.next() => Err(Failure::interrupted(signal)),
    }
}

/// Most failures that the document of a command lists; all are printed.
const LISTED: usize = 1000;

/// Counts of the operations of one command. Failures are printed, and the other operations go on.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    failed: usize,
    /// Messages of the first failures.
    messages: Vec<String>,
}

impl Tally {
    /// Counts an operation. Returns `None` if it failed; the failure is printed.
    ///
    /// # Errors
    /// A failure after which nothing else can succeed.
    fn count<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Ok(value) => {
                self.done += 1;
                Ok(Some(value))
            }
            Err(failure) if failure.exit() == Exit::Failed => {
                output::warn(&failure);
                self.failed += 1;
                if self.messages.len() < LISTED {
                    self.messages.push(failure.to_string());
                }
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Counts a failure as [`count`](Self::count) does. A success is counted later, with what it leads to.
    ///
    /// # Errors
    /// A failure after which nothing else can succeed.
    fn count_none<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        let counted = self.count(result)?;
        self.done -= usize::from(counted.is_some());
        Ok(counted)
    }

    /// Returns the result of all operations together.
    fn finish(self) -> Result<(), Failure> {
        let exit = match (self.done, self.failed) {
            (_, 0) => return Ok(()),
            (0, _) => Exit::Failed,
            _ => Exit::Partial,
        };
        Err(Failure::silent(exit).with_causes(self.messages))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn exit_codes_of_several_operations() {
        let code = |results: Vec<Result<(), Failure>>| {
            let mut tally = Tally::default();
            for result in results {
                if let Err(failure) = tally.count(result) {
                    return failure.exit().code();
                }
            }
            tally.finish().map_or_else(|failure| failure.exit().code(), |()| 0)
        };
        let failed = || Err(Failure::failed("x"));
        assert_eq!(code(vec![]), 0);
        assert_eq!(code(vec![Ok(()), Ok(())]), 0);
        assert_eq!(code(vec![failed(), failed()]), 1);
        assert_eq!(code(vec![Ok(()), failed()]), 4);
        assert_eq!(code(vec![failed(), Ok(())]), 4);
        assert_eq!(code(vec![Ok(()), Err(Failure::new(Exit::Unreachable, "x")), failed()]), 3);
    }

    /// A set-up that is cut off can cost the server its listener. The wait has a limit, whatever a task does.
    #[tokio::test(start_paused = true)]
    async fn a_failed_command_goes_on_until_its_tasks_have_ended() {
        let failures: [(fn() -> Failure, Duration); 3] = [
            (|| Failure::new(Exit::Unreachable, "x"), LEAVE),
            (|| Failure::new(Exit::Unreachable, "x").late(), SET_UP),
            (|| Failure::failed("x"), DRAIN),
        ];
        for (failure, limit) in failures {
            goes_on(failure(), Duration::from_millis(100), Duration::from_millis(100)).await;
            goes_on(failure(), Duration::from_secs(3600), limit).await;
        }
    }

    /// Checks how long a failed command goes on with a task of this length.
    async fn goes_on(failure: Failure, length: Duration, expected: Duration) {
        let task = tokio::spawn(sleep(length));
        let began = tokio::time::Instant::now();
        assert!(orderly(async { Err(failure) }).await.is_err());
        let took = began.elapsed();
        assert!((expected..expected + Duration::from_millis(10)).contains(&took), "{took:?}");
        task.abort();
        let _ = task.await;
    }

    /// A connector has two steps, and then closes the connection a little later.
    #[test]
    fn a_connector_needs_less_than_the_time_for_abandoned_set_ups() {
        let step = rpcrdma_iwarp::Timeouts::default().abandoned;
        assert!(2 * step + Duration::from_millis(500) < SET_UP && SET_UP < DRAIN);
    }

    #[test]
    fn options_of_find_have_one_dash_or_two() {
        let modern = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            super::modern(words).map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("rpcrdma find u -name x -mtime -7", "rpcrdma find u --name x --mtime -7"),
            ("rpcrdma -v --json find u -print0", "rpcrdma -v --json find u --print0"),
            ("rpcrdma find u --name x -v", "rpcrdma find u --name x -v"),
            ("rpcrdma find u -names x", "rpcrdma find u -names x"),
            ("rpcrdma ls find -name x", "rpcrdma ls find -name x"),
            ("find ls -name x", "find ls -name x"),
        ] {
            assert_eq!(modern(line), expected);
        }
    }

    #[test]
    fn the_declaration_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_option_and_command_is_described() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let id = argument.get_id();
                assert!(argument.get_help().is_some(), "{} {id}", command.get_name());
            }
            for sub in command.get_subcommands() {
                assert!(sub.get_about().is_some(), "{}", sub.get_name());
                check(sub);
            }
        }
        let mut command = Arguments::command();
        command.build();
        check(&command);
    }
}
