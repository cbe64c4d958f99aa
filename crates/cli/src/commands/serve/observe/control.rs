//! The control socket: a Unix socket in the state directory, by which root and the server's user watch the server and end
//! connections ([`protocol`](super::protocol)).
//!
//! *Owner.* Several servers may share a state directory. The first has the socket; it is no other's as long as somebody
//! accepts connections there. A socket that nobody serves was left by a server that crashed, and is replaced. A lock keeps
//! two servers that start together from replacing each other's.
//!
//! *Bounds.* Few sessions at a time; the others are told so. A request is one line of at most [`REQUEST_MAX`] bytes. A session that asks nothing, or
//! does not read its answer, ends after a time.
//!
//! *Errors.* A session that fails ends alone. A request that is not understood gets an answer that says so.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::aside;
use super::give::{self, Giving, Turn};
use super::protocol::{Answer, REQUEST_MAX, Request, SOCKET};
use crate::commands::serve::status::Sources;
use crate::commands::serve::status::collect::{Before, Seen};

/// Most sessions at a time.
const SESSIONS: usize = 16;
/// Time after which a session without a request ends.
const IDLE: Duration = Duration::from_secs(600);
/// Time for a client to read an answer.
const READS: Duration = Duration::from_secs(15);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);
/// Name of the file whose lock serializes the starts of servers.
const LOCK: &str = "control.lock";

/// The control socket of this server.
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

/// Removes the socket unless another server has put its own there.
impl Drop for Control {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // If that fails, the next server replaces the socket.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns a path to a socket in this directory that is short enough for an address. The path may lead through the open
/// directory beside it, which has to live as long.
pub(in crate::commands) fn reach(directory: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    /// Longest path in the address of a socket, in bytes (unix(7)).
    const LONGEST: usize = 107;
    let path = directory.join(name);
    if path.as_os_str().len() <= LONGEST {
        return Ok((path, None));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())), Some(directory)))
}

impl Control {
    /// Listens in this state directory.
    ///
    /// # Errors
    /// Another server serves the socket, or the system refuses.
    pub(super) fn bind(state: &Path) -> io::Result<Self> {
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(state.join(LOCK))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let (near, _directory) = reach(state, SOCKET)?;
        let path = state.join(SOCKET);
        match std::os::unix::net::UnixStream::connect(&near) {
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    format!("another server has {} (give --state another directory)", path.display()),
                ));
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(error),
        }
        // The socket gets its rights before it has its name.
        let own = format!("{SOCKET}.{}", std::process::id());
        let (new, _directory) = reach(state, &own)?;
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        let named = fs::set_permissions(&new, fs::Permissions::from_mode(0o600))
            .and_then(|()| fs::rename(state.join(&own), &path))
            .and_then(|()| identity(&path));
        match named {
            Ok(file) => Ok(Self { listener, path, file }),
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(error)
            }
        }
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Serves sessions until the task is dropped.
    pub(super) async fn serve(self, sources: Sources, giving: Giving) {
        let places = Arc::new(Semaphore::new(SESSIONS));
        // The sessions end with this task.
        let mut sessions = tokio::task::JoinSet::new();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "control: accept failed");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            while sessions.try_join_next().is_some() {}
            if !belongs_here(&stream) {
                tracing::warn!("control: a process of another user was refused");
                continue;
            }
            if sessions.len() >= 2 * SESSIONS {
                tracing::debug!("control: too many sessions, also of those that are refused");
                continue;
            }
            let place = Arc::clone(&places).try_acquire_owned().ok();
            let (sources, giving) = (sources.clone(), giving.clone());
            sessions.spawn(async move {
                let ended = match place {
                    Some(_) => Session::new(stream, sources, giving).run().await,
                    None => refuse(stream).await,
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "control: a session failed");
                }
                drop(place);
            });
        }
    }
}

/// Returns whether the process at the other end belongs to root or to the server's user.
pub(in crate::commands::serve) fn belongs_here(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// Tells a client that there is no place for its session, once it has asked.
async fn refuse(stream: UnixStream) -> io::Result<()> {
    tracing::debug!("control: too many sessions");
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader).take(u64::try_from(REQUEST_MAX).unwrap_or(u64::MAX));
    let reason = format!("{SESSIONS} sessions are open, the most at a time: end one, or try again later");
    let mut answer = serde_json::to_vec(&Answer::Error(reason))?;
    answer.push(b'\n');
    let exchange = async {
        reader.read_until(b'\n', &mut Vec::new()).await?;
        writer.write_all(&answer).await
    };
    timeout(READS, exchange).await?
}

/// Waits until the client has closed the session.
async fn has_gone(reader: &mut BufReader<OwnedReadHalf>) {
    if reader.fill_buf().await.is_ok_and(|ahead| !ahead.is_empty()) {
        // It has asked ahead, and is there.
        std::future::pending::<()>().await;
    }
}

/// A client of the control socket.
struct Session {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    sources: Sources,
    before: Option<Before>,
    giving: Giving,
    /// The right to be the successor, of a client that has the sockets.
    turn: Option<Turn>,
}

impl Session {
    fn new(stream: UnixStream, sources: Sources, giving: Giving) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: BufReader::new(reader), writer, sources, before: None, giving, turn: None }
    }

    async fn run(mut self) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = u64::try_from(REQUEST_MAX).unwrap_or(u64::MAX);
            let mut limited = (&mut self.reader).take(limit);
            // A client takes the end of the session for the end of the server once it has the sockets.
            let idle = if self.turn.is_some() { Duration::MAX } else { IDLE };
            let Ok(read) = timeout(idle, limited.read_until(b'\n', &mut line)).await else { return Ok(()) };
            if read? == 0 {
                return Ok(());
            }
            let whole = line.last() == Some(&b'\n');
            let request = if whole || line.len() < REQUEST_MAX {
                serde_json::from_slice(&line).map_err(|error| format!("not a request: {error}"))
            } else {
                Err(format!("a request has at most {REQUEST_MAX} bytes"))
            };
            let (answer, sockets) = match (request, self.turn.is_some()) {
                (Ok(Request::Go), true) => return self.go().await,
                (Ok(Request::Handover { version }), false) => {
                    let offer = tokio::select! {
                        offer = self.giving.offer(version) => offer,
                        () = has_gone(&mut self.reader) => return Ok(()),
                    };
                    match offer {
                        Ok((offer, sockets, turn)) => {
                            self.turn = Some(turn);
                            (offer, sockets)
                        }
                        Err(answer) => (answer, Vec::new()),
                    }
                }
                (Ok(request), _) => (self.answer(request), Vec::new()),
                (Err(reason), _) => (Answer::Error(reason), Vec::new()),
            };
            let mut text = aside(|| serde_json::to_vec(&answer))?;
            text.push(b'\n');
            timeout(READS, give::send(self.writer.as_ref(), &text, &sockets)).await??;
            if !whole {
                return Ok(());
            }
        }
    }

    /// Gives the session to the server, which ends it.
    async fn go(mut self) -> io::Result<()> {
        let stream = self.reader.into_inner().reunite(self.writer).map_err(io::Error::other)?;
        if let Some(turn) = self.turn.take() {
            self.giving.go(stream, turn).await;
        }
        Ok(())
    }

    fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(aside(|| self.sources.status()))),
            Request::Clients { skip, count, by, reverse } => {
                let choose = |seen: &mut Vec<Seen>| by.apply(seen, Seen::facts, (skip, count), reverse);
                Answer::Clients(aside(|| self.sources.clients(&mut self.before, choose)))
            }
            Request::Disconnect { id } => Answer::Disconnected(self.sources.disconnect(id)),
            Request::Handover { .. } => Answer::Error("the sockets were given already".to_owned()),
            Request::Go => Answer::Error("no sockets were given".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_served_is_not_taken() {
        let state = tempfile::tempdir().unwrap();
        let first = Control::bind(state.path()).unwrap();
        let mode = fs::metadata(first.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = Control::bind(state.path()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.to_string().contains("another server has"), "{refused}");
        assert!(first.path().exists());
        drop(first);
        assert!(!state.path().join(SOCKET).exists());
        drop(Control::bind(state.path()).unwrap());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_serves_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(SOCKET);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let control = Control::bind(state.path()).unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());
        // Another server's socket stays.
        fs::remove_file(&path).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(control);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn the_path_of_a_state_directory_may_be_long() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("x".repeat(200));
        fs::create_dir(&state).unwrap();
        let control = Control::bind(&state).unwrap();
        let (near, _directory) = reach(&state, SOCKET).unwrap();
        UnixStream::connect(&near).await.unwrap();
        assert!(Control::bind(&state).is_err());
        drop(control);
        assert!(!state.join(SOCKET).exists());
    }
}
