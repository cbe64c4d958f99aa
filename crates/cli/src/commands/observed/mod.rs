//! A running server as its observers see it: `stat ADDR`, `clients` and `top`.
//!
//! A [`Place`] is where a server can be observed: its control socket, or the address of its metrics, which knows no clients.
//!
//! *Errors.* A server that cannot be reached is [`Exit::Unreachable`].

pub(super) mod text;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request as HttpRequest;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper_util::rt::TokioIo;
use rpcrdma_nfs::fs::StateDirectory;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::serve::observe::control::reach;
use super::serve::observe::protocol::{ANSWER_MAX, Answer, Order, Request, SOCKET};
use super::serve::status::{Clients, Status};
use crate::exit::{Exit, Failure};
use crate::values::ends_with_number;

/// Port of the metrics if none is given.
pub(super) const METRICS_PORT: u16 = 9464;
/// Time for a server to answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The place at which a server can be observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// HOST:PORT of the metrics.
    Metrics(String),
    /// A control socket, or the state directory that it is in.
    Socket(PathBuf),
}

/// Parses HOST[:PORT] or a path. Text with a slash, or with a dot at its beginning, is a path. So is the name of a directory that
/// has a control socket.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let address = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let is_path = || {
        text.contains('/') || text.starts_with('.') || Path::new(text).join(SOCKET).symlink_metadata().is_ok()
    };
    if address.is_none() && !text.is_empty() && is_path() {
        return Ok(Place::Socket(text.into()));
    }
    let address = address.unwrap_or(text);
    let wrong = |why| format!("{text:?} is neither HOST:PORT of serve --metrics nor a path: {why}");
    if address.is_empty() || address.contains('/') {
        return Err(wrong("it names no host"));
    }
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        return Ok(Place::Metrics(format!("[{address}]:{METRICS_PORT}")));
    }
    let parts = address.rsplit_once(':').filter(|_| !address.ends_with(']'));
    let host = parts.map_or(address, |(host, _)| host);
    if host.parse::<std::net::Ipv4Addr>().is_err() && ends_with_number(host) {
        return Err(wrong("no name of a host ends with a number"));
    }
    match parts {
        Some((_, port)) if port.parse::<u16>().is_err() => Err(wrong("its port is not from 0 to 65535")),
        Some(_) => Ok(Place::Metrics(address.to_owned())),
        None => Ok(Place::Metrics(format!("{address}:{METRICS_PORT}"))),
    }
}

/// A server that is observed.
pub(crate) struct Observed {
    /// Name of the place, for messages.
    name: String,
    link: Link,
}

/// State directory of the unit for systemd.
const SERVICE_STATE: &str = "/var/lib/rpcrdma";

enum Link {
    /// HOST:PORT. Each question has a connection of its own.
    Metrics(String),
    Control {
        reader: BufReader<OwnedReadHalf>,
        writer: OwnedWriteHalf,
    },
}

impl Observed {
    /// Connects to this place, or to the control socket of the first default state directory that has one.
    ///
    /// # Errors
    /// Nobody answers there.
    pub(crate) async fn at(place: Option<&Place>) -> Result<Self, Failure> {
        match place {
            Some(Place::Metrics(address)) => {
                Ok(Self { name: address.clone(), link: Link::Metrics(address.clone()) })
            }
            Some(Place::Socket(path)) => Self::control(path).await.map(|(observed, _)| observed),
            None => {
                let mut places = StateDirectory::default_places().chain([PathBuf::from(SERVICE_STATE)]);
                match places.find(|directory| directory.join(SOCKET).exists()) {
                    Some(directory) => {
                        let (observed, user) = Self::control(&directory).await?;
                        // Any user can make a directory in some of the places.
                        if user != 0 && user != rustix::process::geteuid().as_raw() {
                            return Err(Failure::failed(format!(
                                "the server at {} runs as user {user}, neither root nor this user: name its state \
                                 directory to ask it",
                                observed.name
                            )));
                        }
                        Ok(observed)
                    }
                    None => Err(Failure::new(
                        Exit::Unreachable,
                        "no server has a control socket in a default state directory: give the address of its \
                         --metrics, or its state directory",
                    )),
                }
            }
        }
    }

    /// Connects to a control socket. Returns the user whose process listens there, too.
    async fn control(path: &Path) -> Result<(Self, u32), Failure> {
        let name = path.display().to_string();
        let unreachable = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => ": no server has this state directory",
                io::ErrorKind::ConnectionRefused => ": its server has ended",
                io::ErrorKind::PermissionDenied => ": only root and the server's user may",
                _ => "",
            };
            Failure::new(Exit::Unreachable, format!("cannot reach the server at {name}: {error}{hint}"))
        };
        let (directory, file) = if path.is_dir() {
            (path, SOCKET)
        } else {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or(SOCKET);
            (path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")), file)
        };
        let (near, _directory) = reach(directory, file).map_err(unreachable)?;
        let stream = UnixStream::connect(&near).await.map_err(unreachable)?;
        let user = stream.peer_cred().map_err(unreachable)?.uid();
        let (reader, writer) = stream.into_split();
        Ok((Self { name, link: Link::Control { reader: BufReader::new(reader), writer } }, user))
    }

    /// Returns the name of the place.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the place knows clients: the control socket does.
    pub(crate) const fn knows_clients(&self) -> bool {
        matches!(self.link, Link::Control { .. })
    }

    /// Asks for the state of the server.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn status(&mut self) -> Result<Status, Failure> {
        let status = match &mut self.link {
            Link::Metrics(address) => timeout(LIMIT, fetch(address)).await.unwrap_or_else(|_| Err(late())),
            Link::Control { .. } => match self.ask(&Request::Status).await {
                Ok(Answer::Status(status)) => return Ok(*status),
                Ok(other) => Err(unexpected(&other)),
                Err(error) => Err(error),
            },
        };
        status.map_err(|error| self.failure(&error))
    }

    /// Asks for `count` open connections after the first `skip` in this order.
    ///
    /// # Errors
    /// There is no answer, or the place knows no clients.
    pub(crate) async fn clients(
        &mut self,
        (skip, count): (usize, Option<usize>),
        by: Order,
        reverse: bool,
    ) -> Result<Clients, Failure> {
        match self.ask(&Request::Clients { skip, count, by, reverse }).await {
            Ok(Answer::Clients(clients)) => Ok(clients),
            Ok(other) => Err(self.failure(&unexpected(&other))),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Ends a connection; returns whether there was one.
    ///
    /// # Errors
    /// There is no answer, or the place knows no clients.
    pub(crate) async fn disconnect(&mut self, id: u64) -> Result<bool, Failure> {
        match self.ask(&Request::Disconnect { id }).await {
            Ok(Answer::Disconnected(was_there)) => Ok(was_there),
            Ok(other) => Err(self.failure(&unexpected(&other))),
            Err(error) => Err(self.failure(&error)),
        }
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure::new(Exit::Unreachable, format!("no answer from the server at {}: {error}", self.name))
    }

    async fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        let Link::Control { reader, writer } = &mut self.link else {
            return Err(io::Error::other(
                "the address of --metrics knows no clients: give the state directory",
            ));
        };
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let exchange = async {
            writer.write_all(&line).await?;
            let mut answer = Vec::new();
            reader.take(ANSWER_MAX).read_until(b'\n', &mut answer).await?;
            if answer.last() != Some(&b'\n') {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
            }
            Ok(serde_json::from_slice(&answer)?)
        };
        timeout(LIMIT, exchange).await.unwrap_or_else(|_| Err(late()))
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("none within {LIMIT:?}"))
}

fn unexpected(answer: &Answer) -> io::Error {
    match answer {
        Answer::Error(reason) => io::Error::other(reason.clone()),
        _ => io::Error::other("an answer to another question"),
    }
}

/// Gets the status document of a server by HTTP.
async fn fetch(address: &str) -> io::Result<Status> {
    let stream = TcpStream::connect(address).await?;
    let other = |error| io::Error::other(format!("{error}: is this the address of serve --metrics?"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
    let request = HttpRequest::get("/status")
        .header(HOST, address)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(other)?;
        let status = response.status();
        if !status.is_success() {
            return Err(io::Error::other(format!(
                "it answers {status}: is this serve --metrics of rpcrdma?"
            )));
        }
        let limit = usize::try_from(ANSWER_MAX).unwrap_or(usize::MAX);
        let body = Limited::new(response.into_body(), limit).collect().await.map_err(io::Error::other)?;
        Ok(serde_json::from_slice(&body.to_bytes())?)
    };
    tokio::pin!(connection, exchange);
    tokio::select! {
        biased;
        done = &mut exchange => return done,
        ended = &mut connection => ended.map_err(other)?,
    }
    // The connection has ended, and the exchange has all there is.
    exchange.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_paths() {
        let metrics = |text: &str| Ok(Place::Metrics(text.to_owned()));
        for (text, parsed) in [
            ("h", metrics("h:9464")),
            ("h:1", metrics("h:1")),
            ("127.0.0.1:9", metrics("127.0.0.1:9")),
            ("::1", metrics("[::1]:9464")),
            ("[::1]", metrics("[::1]:9464")),
            ("[::1]:7", metrics("[::1]:7")),
            ("http://h:1/", metrics("h:1")),
            ("/run/x", Ok(Place::Socket("/run/x".into()))),
            ("./x", Ok(Place::Socket("./x".into()))),
            (".", Ok(Place::Socket(".".into()))),
        ] {
            assert_eq!(place(text), parsed, "{text}");
        }
        for (text, hint) in [
            ("", "no host"),
            ("h:x", "its port"),
            ("http://h/metrics", "no host"),
            ("9464", "ends with a number"),
            ("127.1:9464", "ends with a number"),
        ] {
            let wrong = place(text).unwrap_err();
            assert!(wrong.contains(hint), "{wrong}");
        }
    }
}
