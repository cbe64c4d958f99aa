//! Options of RPC-with-TLS (RFC 9289): those of clients, and those of `serve`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rpcrdma::tls::{Anchors, ClientAuth, Identity, TlsClient, TlsError, TlsServer};

use crate::arguments::Proto;
use crate::exit::Failure;

const HEADING: &str = "TLS on TCP";

/// Protection of TCP connections. The names are those of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Security {
    /// No TLS
    #[default]
    None,
    /// Encryption; the server has a certificate
    Tls,
    /// Encryption; both sides have a certificate
    Mtls,
}

/// Options of clients.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClientTls {
    /// Protection of TCP connections (RFC 9289). With tls or mtls there is no connection without it
    #[arg(long, value_enum, value_name = "PROTECTION", default_value_t = Security::None, help_heading = HEADING)]
    xprtsec: Security,
    /// File with certificates of the authorities that may vouch for the server (PEM)
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    tls_ca: Option<PathBuf>,
    /// File with the certificate of this client, then those of intermediate authorities (PEM), for mtls
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = HEADING)]
    tls_cert: Option<PathBuf>,
    /// File with the private key of --tls-cert (PEM, without passphrase)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = HEADING)]
    tls_key: Option<PathBuf>,
    /// Name or address that the server's certificate must have [default: the host as given]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    tls_name: Option<String>,
}

/// Options of servers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerTls {
    /// Protection that the server demands on TCP (RFC 9289). With tls, a TCP client without TLS gets
    /// AUTH_TOOWEAK for every call but NULL; with mtls, the client needs a certificate of --tls-client-ca too. With
    /// none and --tls-cert, clients may choose. RPC-over-RDMA has no TLS: calls over RDMA are served as before
    #[arg(long, value_enum, value_name = "PROTECTION", default_value_t = Security::None, help_heading = HEADING)]
    xprtsec: Security,
    /// File with the certificate of this server, then those of intermediate authorities (PEM). Clients can then
    /// ask for TLS on the TCP port
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = HEADING)]
    tls_cert: Option<PathBuf>,
    /// File with the private key of --tls-cert (PEM, without passphrase)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = HEADING)]
    tls_key: Option<PathBuf>,
    /// File with certificates of the authorities that may vouch for clients (PEM). A client that shows a
    /// certificate of another authority is refused
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = HEADING)]
    tls_client_ca: Option<PathBuf>,
}

fn failed(error: TlsError) -> Failure {
    Failure::failed(error.to_string())
}

fn identity(files: Option<(&Path, &Path)>) -> Result<Option<Identity>, Failure> {
    files.map(|(chain, key)| Identity::from_files(chain, key)).transpose().map_err(failed)
}

impl ClientTls {
    /// Returns the settings for a server with this host name; `None` without TLS.
    ///
    /// # Errors
    /// Options that have no effect together, or files that cannot be used.
    pub(crate) fn settings(&self, proto: Proto, host: &str) -> Result<Option<TlsClient>, Failure> {
        let Self { xprtsec, tls_ca, tls_cert, tls_key, tls_name } = self;
        let given = [
            (tls_ca.is_some(), "--tls-ca"),
            (tls_cert.is_some(), "--tls-cert"),
            (tls_name.is_some(), "--tls-name"),
        ];
        if *xprtsec == Security::None {
            return match given.into_iter().find(|(given, _)| *given) {
                Some((_, option)) => {
                    Err(Failure::usage(format!("{option} has no effect without --xprtsec tls or mtls")))
                }
                None => Ok(None),
            };
        }
        if proto == Proto::Rdma {
            return Err(Failure::usage(
                "--xprtsec is about TCP: RFC 9289 defines TLS for TCP, not for RPC-over-RDMA. Add --proto tcp, or \
                 protect the network of RDMA by other means, such as WireGuard or IPsec",
            ));
        }
        let files = tls_cert.as_deref().zip(tls_key.as_deref());
        match xprtsec {
            Security::Mtls if files.is_none() => {
                return Err(Failure::usage("--xprtsec mtls needs --tls-cert and --tls-key"));
            }
            Security::Tls if files.is_some() => {
                return Err(Failure::usage("--tls-cert has no effect with --xprtsec tls: choose mtls"));
            }
            _ => {}
        }
        let Some(anchors) = tls_ca else {
            return Err(Failure::usage(
                "--xprtsec needs --tls-ca: the authorities that may vouch for the server",
            ));
        };
        let anchors = Anchors::from_file(anchors).map_err(failed)?;
        let name = tls_name.as_deref().unwrap_or(host);
        TlsClient::new(name, &anchors, identity(files)?).map(Some).map_err(|error| match error {
            TlsError::Name { .. } => Failure::usage(format!("{error} (--tls-name)")),
            error => failed(error),
        })
    }
}

impl ServerTls {
    /// Returns whether TCP clients without TLS are refused.
    pub(crate) fn is_demanded(&self) -> bool {
        self.xprtsec != Security::None
    }

    /// Returns the files that the server trusts, each with its option.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let Self { tls_cert, tls_key, tls_client_ca, .. } = self;
        let named = [("--tls-cert", tls_cert), ("--tls-key", tls_key), ("--tls-client-ca", tls_client_ca)];
        named.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)))
    }

    /// Returns the settings; `None` without TLS.
    ///
    /// # Errors
    /// Options that have no effect together, or files that cannot be used.
    pub(crate) fn settings(&self, serves_tcp: bool) -> Result<Option<TlsServer>, Failure> {
        let Self { xprtsec, tls_cert, tls_key, tls_client_ca } = self;
        let Some(identity) = identity(tls_cert.as_deref().zip(tls_key.as_deref()))? else {
            return match xprtsec {
                Security::None => Ok(None),
                Security::Tls | Security::Mtls => {
                    Err(Failure::usage("--xprtsec needs --tls-cert and --tls-key"))
                }
            };
        };
        if !serves_tcp {
            return Err(Failure::usage("--tls-cert has no effect with --no-tcp: TLS is for TCP (RFC 9289)"));
        }
        let anchors = tls_client_ca.as_ref().map(Anchors::from_file).transpose().map_err(failed)?;
        let clients = match (xprtsec, anchors) {
            (Security::Mtls, None) => return Err(Failure::usage("--xprtsec mtls needs --tls-client-ca")),
            (Security::Mtls, Some(anchors)) => ClientAuth::Required(anchors),
            (Security::None | Security::Tls, Some(anchors)) => ClientAuth::Optional(anchors),
            (Security::None | Security::Tls, None) => ClientAuth::None,
        };
        let settings = TlsServer::new(identity, clients).map_err(failed)?;
        Ok(Some(if *xprtsec == Security::None { settings } else { settings.only() }))
    }
}
