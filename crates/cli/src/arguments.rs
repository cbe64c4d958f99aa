//! Options that several commands share. Each command declares its own options in its file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rpcrdma::experimental::{BufferStructure, OperationBase, Profile};
use rpcrdma::{GssUser, Versions};
use rpcrdma_gssapi::KerberosInitiator;
use rpcrdma_nfs::client::{NfsUrl, Query, UrlError, process_credential};
use rpcrdma_oncrpc::Credential;
use rpcrdma_oncrpc::auth::GIDS_MAX;
use rpcrdma_oncrpc::gss::Service;

pub(crate) use crate::values::{
    host, inline_size, listen_address, pattern, resolve, seconds, size, some_seconds, whole,
};

use crate::exit::{Exit, Failure};
use crate::people::{group_id, user_id};
use crate::provider::ProviderOptions;
use crate::tls::ClientTls;

/// Options of all commands.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Common {
    /// Show on standard error how each call and its reply travelled: inline, or partly or wholly in chunks.
    /// The line also has the bytes moved by each RDMA operation, and the side that invalidated memory. -vv
    /// adds debug messages, -vvv all events
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Print one JSON document on standard output instead of text. Existing fields are stable; new ones may
    /// appear
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Options of all commands that are clients.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// Transport for NFS calls
    #[arg(long, value_enum, default_value_t = Proto::Rdma, help_heading = "Connection")]
    pub(crate) proto: Proto,
    /// TCP port of the MOUNT service, if the server does not answer MOUNT on its RDMA port and rpcbind does
    /// not know it
    #[arg(long, value_name = "PORT", value_parser = whole::<u16>(1, 65_535), help_heading = "Connection")]
    pub(crate) mountport: Option<u16>,
    /// Time limit for a connection, and for each reply including reconnection, in seconds, or with a unit (500ms,
    /// 2m). A reply may take
    /// longer while its data moves at 8 KiB a second or more. Each step of the search for a MOUNT service has
    /// this time too, and at most 10 seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = some_seconds, help_heading = "Connection")]
    pub(crate) timeout: Duration,
    /// Do not request CRCs over software iWARP; if the server does not request them either, there are none.
    /// For links with protection of their own, and for siw (the software iWARP of Linux) behind a proxy, where
    /// it rejects some correct CRCs. No effect on adapters
    #[arg(long, help_heading = "Connection")]
    pub(crate) no_crc: bool,
    /// Calls in flight at a time, at most: 1 to 1024. The server may grant fewer
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = whole::<u32>(1, 1024),
        help_heading = "Connection")]
    pub(crate) credits: u32,
    /// Connections to each server, 1 to 16. Calls are spread over them, so that more than one processor
    /// works for them at either end. If the server takes fewer from one address (serve
    /// --max-connections-per-peer), the command says so and goes on with those
    #[arg(long, visible_alias = "nconnect", value_name = "COUNT", default_value_t = 1,
        value_parser = whole::<u32>(1, 16), help_heading = "Connection")]
    pub(crate) connections: u32,
    /// Longest inline message, sent or received, in bytes: a multiple of 1024 from 1024 to 262144
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = inline_size, help_heading = "Connection")]
    pub(crate) inline: u32,
    /// Negotiate inline sizes and numbers of RDMA Reads by CONF_RDMA (RFC 5666 §6) on each RDMA connection,
    /// for servers without RFC 8797. Kerberos protects the exchange, as §11 requires: needs --sec krb5, krb5i
    /// or krb5p. Without a protected answer connections keep to messages of 1024 bytes, or to RFC 8797
    #[arg(long, conflicts_with = "insecure_conf_rdma", help_heading = "Connection")]
    pub(crate) conf_rdma: bool,
    /// As --conf-rdma, but without the protection that §11 requires: anyone able to change packets can slow
    /// calls or make them fail
    #[arg(long, help_heading = "Connection")]
    pub(crate) insecure_conf_rdma: bool,
    /// Version of RPC-over-RDMA. With auto, the client offers Version Two first; a server that refuses or
    /// does not answer is treated as speaking Version One
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = Version::One, help_heading = "Connection")]
    pub(crate) rpcrdma_version: Version,
    /// Drafts that define Version Two; both sides need the same profile [default: p1]
    #[arg(long, value_enum, value_name = "PROFILE", help_heading = "Connection")]
    pub(crate) profile: Option<ProfileName>,
    #[command(flatten)]
    pub(crate) security: Security,
    #[command(flatten)]
    pub(crate) tls: ClientTls,
    #[command(flatten)]
    pub(crate) sends: Sends,
    #[command(flatten)]
    pub(crate) rdma: ProviderOptions,
}

/// Options for the identity of the caller.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Security {
    /// Identity of the caller for NFS calls. With sys, the server believes the user's number. With krb5, a
    /// Kerberos ticket proves who calls. krb5i also detects changes of calls and replies, krb5p also encrypts
    /// them; both copy data instead of placing it by RDMA
    #[arg(long, value_enum, value_name = "FLAVOR", default_value_t = Flavor::Sys, help_heading = SECURITY)]
    pub(crate) sec: Flavor,
    /// Cache of Kerberos tickets, for instance FILE:/tmp/krb5cc_1000 [default: KRB5CCNAME, or that of the
    /// system]
    #[arg(long, value_name = "NAME", conflicts_with = "keytab", help_heading = SECURITY)]
    pub(crate) ccache: Option<String>,
    /// Keytab with the caller's key, perhaps with FILE: or WRFILE: in front. The command gets its own ticket with
    /// the first key in it
    #[arg(long, value_name = "FILE", help_heading = SECURITY)]
    pub(crate) keytab: Option<PathBuf>,
    /// Name of the server in its Kerberos principal, nfs/NAME [default: the host in the URL]
    #[arg(long, value_name = "NAME", value_parser = host_name, help_heading = SECURITY)]
    pub(crate) server_name: Option<String>,
    /// UID of the caller for --sec sys, or the name of a user of this machine. A URL with ?uid= goes first
    /// [default: that of this process]
    #[arg(long, value_name = "USER", value_parser = user_id, help_heading = SECURITY)]
    pub(crate) uid: Option<u32>,
    /// GID of the caller for --sec sys, or the name of a group of this machine. A URL with ?gid= goes first
    /// [default: that of this process]
    #[arg(long, value_name = "GROUP", value_parser = group_id, help_heading = SECURITY)]
    pub(crate) gid: Option<u32>,
    /// Further groups of the caller, for --sec sys, at most 16 [default: those of this process, or none if the UID or
    /// GID is given]
    #[arg(long, value_name = "GROUP[,GROUP]...", value_delimiter = ',', value_parser = group_id,
        help_heading = SECURITY)]
    pub(crate) groups: Option<Vec<u32>>,
}

/// Security flavour of NFS calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flavor {
    /// AUTH_SYS
    #[default]
    Sys,
    /// Kerberos: proof of the caller
    Krb5,
    /// Kerberos with integrity
    Krb5i,
    /// Kerberos with privacy
    Krb5p,
}

impl Flavor {
    /// Returns the protection of calls by RPCSEC_GSS; `None` for AUTH_SYS.
    pub(crate) const fn service(self) -> Option<Service> {
        match self {
            Self::Sys => None,
            Self::Krb5 => Some(Service::None),
            Self::Krb5i => Some(Service::Integrity),
            Self::Krb5p => Some(Service::Privacy),
        }
    }
}

impl Security {
    /// Returns the user of Kerberos for calls to this host; `None` for AUTH_SYS. May wait for files and a KDC.
    ///
    /// # Errors
    /// There are no credentials, or options have no effect.
    pub(crate) fn user(&self, host: &str) -> Result<Option<Arc<GssUser>>, Failure> {
        let Some(service) = self.sec.service() else {
            let unused = [
                ("--ccache", self.ccache.is_some()),
                ("--keytab", self.keytab.is_some()),
                ("--server-name", self.server_name.is_some()),
            ];
            return match unused.iter().find(|(_, given)| *given) {
                Some((option, _)) => {
                    Err(Failure::usage(format!("{option} needs --sec krb5, --sec krb5i or --sec krb5p")))
                }
                None => Ok(None),
            };
        };
        let unused = [
            ("--uid", self.uid.is_some()),
            ("--gid", self.gid.is_some()),
            ("--groups", self.groups.is_some()),
        ];
        if let Some((option, _)) = unused.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "{option} is about AUTH_SYS: with Kerberos the ticket says who calls"
            )));
        }
        let initiator = KerberosInitiator::open(self.ccache.as_deref(), self.keytab.as_deref())
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let name = self.server_name.as_deref().unwrap_or(host);
        Ok(Some(Arc::new(GssUser::new(Arc::new(initiator), format!("nfs@{name}"), service))))
    }
}

impl Security {
    /// Returns the AUTH_SYS credential of calls: that of this process, with what the URL says and, where it says
    /// nothing, what these options say.
    ///
    /// # Errors
    /// A URL names a user for Kerberos, or there are more groups than a credential holds.
    pub(crate) fn credential(&self, query: Query) -> Result<Credential, Failure> {
        if self.sec != Flavor::Sys && (query.uid.is_some() || query.gid.is_some()) {
            return Err(Failure::usage(
                "?uid= and ?gid= are about AUTH_SYS: with Kerberos the ticket says who calls",
            ));
        }
        let (uid, gid) = (query.uid.or(self.uid), query.gid.or(self.gid));
        let Credential::Sys(mut sys) = process_credential() else { return Ok(process_credential()) };
        if let Some(groups) = &self.groups {
            if groups.len() > GIDS_MAX {
                return Err(Failure::usage(format!("--groups takes at most {GIDS_MAX} groups (RFC 5531)")));
            }
            sys.gids.clone_from(groups);
        } else if uid.is_some() || gid.is_some() {
            sys.gids.clear();
        }
        sys.uid = uid.unwrap_or(sys.uid);
        sys.gid = gid.unwrap_or(sys.gid);
        Ok(Credential::Sys(sys))
    }
}

const SECURITY: &str = "Security";

/// Parses the name of a host, as it stands in a principal nfs/NAME.
fn host_name(text: &str) -> Result<String, String> {
    let is_allowed = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ':');
    if text.is_empty() || !text.chars().all(is_allowed) {
        return Err("it is the name of a host alone, such as files.example.net: letters, digits, \".\", \"-\", \"_\" and \":\", \
                    without \"nfs/\" and without a realm"
            .to_owned());
    }
    Ok(text.to_owned())
}

/// Options for the division of Version Two messages among Sends (rtrext-02, version-two-07 §6.6.2).
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Sends {
    /// Most Sends that carry one long message of Version Two without RDMA Reads and Writes, 0 to 64. With 1,
    /// no message is divided. 0 is like 1. In p1 and p2, 0 also turns off the extension rtrext-02, to
    /// which --placement belongs [default: 8, but 3 for replies that could use a Reply chunk]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(0, 64), help_heading = SENDS)]
    pub(crate) continuation: Option<u32>,
    /// Space for a data item in each Receive, in bytes: a multiple of 4096 from 4096 to 249856; p1 and p2
    /// only. The other side can place an item there by a Send, without RDMA Read or Write. A Receive then has
    /// this length and 1 KiB [default: no such space]
    #[arg(long, value_name = "BYTES", value_parser = placement_size, help_heading = SENDS)]
    pub(crate) placement: Option<u32>,
    /// Most messages in one Send, sent or received, 1 to 64; p1 and p2 only. Messages that are ready at the
    /// same time share a Send if the other side can do this too. An experiment: no document defines it
    /// [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32>(1, 64), help_heading = SENDS)]
    pub(crate) combine: Option<u32>,
    /// First number of the four operations of rtrext-02, in p2: the draft numbers them in two ways. In p1 the
    /// first is always 5. Both sides need the same number [default: 5]
    #[arg(long, value_enum, value_name = "NUMBER", help_heading = SENDS)]
    pub(crate) opttype_base: Option<FirstOperation>,
}

/// First operation number of rtrext-02.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FirstOperation {
    /// As in the table of operations (rtrext-02 §9.1)
    #[value(name = "5")]
    Five,
    /// As in the XDR (rtrext-02 §10.2)
    #[value(name = "1")]
    One,
}

impl FirstOperation {
    const fn base(self) -> OperationBase {
        match self {
            Self::Five => OperationBase::Separate,
            Self::One => OperationBase::Tables,
        }
    }
}

const SENDS: &str = "Version Two: round trips";

impl Sends {
    /// Checks these options against the versions spoken and the inline size, in bytes. Returns the versions
    /// with the operation numbers chosen.
    ///
    /// # Errors
    /// An option has no effect with these versions or with another option.
    pub(crate) fn check(self, versions: Versions, inline: u32) -> Result<Versions, Failure> {
        if let Some(bytes) = self.placement {
            let holds = BufferStructure::with_items(1, bytes).total;
            if inline > holds {
                return Err(Failure::usage(format!(
                    "--inline {inline} is longer than the Receives of --placement {bytes}, which hold {holds} bytes"
                )));
            }
        }
        let wrong = match versions.profile() {
            None if self.continuation.is_some() => {
                "--continuation is about Version Two: change --rpcrdma-version"
            }
            None if self.placement.is_some() => "--placement is about Version Two: change --rpcrdma-version",
            None if self.combine.is_some() => "--combine is about Version Two: change --rpcrdma-version",
            None if self.opttype_base.is_some() => {
                "--opttype-base is about Version Two: change --rpcrdma-version"
            }
            Some(Profile::P3) if self.combine.is_some() => {
                "--combine has no meaning with --profile p3: choose p1 or p2"
            }
            Some(Profile::P3) if self.placement.is_some() => {
                "--placement has no meaning with --profile p3: choose p1 or p2"
            }
            _ if self.placement.is_some() && self.continuation == Some(0) => {
                "--placement has no meaning with --continuation 0"
            }
            _ if self.opttype_base.is_some() && self.continuation == Some(0) => {
                "--opttype-base has no meaning with --continuation 0"
            }
            _ => {
                let Some(first) = self.opttype_base else { return Ok(versions) };
                let wrong =
                    |error| Failure::usage(format!("--opttype-base: {error}; choose 5, or --profile p2"));
                return versions.with_operations(first.base()).map_err(wrong);
            }
        };
        Err(Failure::usage(wrong))
    }

    /// Applies these options to a configuration.
    pub(crate) fn apply(self, config: &mut rpcrdma::Config) {
        if let Some(count) = self.continuation {
            config.continued_parts = usize::try_from(count.max(1)).unwrap_or(1);
            config.transmissions.enabled = count > 0;
            config.transmissions.reply_sends = config.continued_parts;
        }
        if let Some(bytes) = self.placement {
            config.place_items(BufferStructure::with_items(1, bytes));
            // Longer Receives must not reduce the number of Sends.
            let limits = &mut config.limits;
            let most = usize::try_from(limits.read_total).unwrap_or(usize::MAX).max(limits.continued_len);
            let wanted = config.continued_parts.saturating_mul(config.receive_size);
            limits.continued_len = limits.continued_len.max(wanted.min(most));
        }
        if let Some(count) = self.combine {
            config.combined_messages = usize::try_from(count).unwrap_or(1);
            config.limits.combined_messages = config.combined_messages;
        }
    }
}

fn placement_size(text: &str) -> Result<u32, String> {
    match size(text)? {
        bytes @ 4096..=249_856 if bytes.is_multiple_of(4096) => {
            u32::try_from(bytes).map_err(|error| error.to_string())
        }
        bytes => Err(format!("{bytes} is not a multiple of 4096 from 4096 to 249856")),
    }
}

impl Connection {
    /// Returns the versions to speak.
    ///
    /// # Errors
    /// An option has no effect with the chosen transport, provider or version.
    pub(crate) fn versions(&self) -> Result<Versions, Failure> {
        if let Some(option) = self.rdma.given().filter(|_| self.proto == Proto::Tcp) {
            return Err(Failure::usage(format!(
                "{option} is about RDMA: it has no meaning with --proto tcp"
            )));
        }
        self.rdma.check([&self.rdma.provider], self.no_crc)?;
        let two = self.rpcrdma_version != Version::One;
        let wrong = if self.proto == Proto::Tcp && two {
            "--rpcrdma-version is about RDMA: it has no meaning with --proto tcp"
        } else if self.proto == Proto::Tcp && self.insecure_conf_rdma {
            "--insecure-conf-rdma is about RDMA: it has no meaning with --proto tcp"
        } else if self.proto == Proto::Tcp && self.conf_rdma {
            "--conf-rdma is about RDMA: it has no meaning with --proto tcp"
        } else if self.profile.is_some() && !two {
            "--profile is about Version Two: add --rpcrdma-version 2 or auto"
        } else if self.insecure_conf_rdma && self.rpcrdma_version == Version::Two {
            "--insecure-conf-rdma is about Version One: Version Two has characteristics for that"
        } else if self.conf_rdma && self.rpcrdma_version == Version::Two {
            "--conf-rdma is about Version One: Version Two has characteristics for that"
        } else if self.conf_rdma && self.security.sec == Flavor::Sys {
            "--conf-rdma needs --sec krb5, --sec krb5i or --sec krb5p: AUTH_SYS protects nothing"
        } else {
            let versions = self.rpcrdma_version.with(self.profile.unwrap_or(ProfileName::P1));
            return self.sends.check(versions, self.inline);
        };
        Err(Failure::usage(wrong))
    }
}

/// Versions of RPC-over-RDMA that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Version {
    /// Version One, RFC 8166
    #[value(name = "1")]
    One,
    /// Version Two
    #[value(name = "2")]
    Two,
    /// Version Two if the server speaks it
    Auto,
}

impl Version {
    /// Returns these versions with Version Two as the profile defines it.
    pub(crate) const fn with(self, profile: ProfileName) -> Versions {
        match self {
            Self::One => Versions::ONE,
            Self::Two => Versions::two(profile.profile()),
            Self::Auto => Versions::both(profile.profile()),
        }
    }
}

/// Documents that define Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileName {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02
    P1,
    /// draft-cel-nfsv4-rpcrdma-version-two-03
    P2,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07
    P3,
}

impl ProfileName {
    pub(crate) const fn profile(self) -> Profile {
        match self {
            Self::P1 => Profile::P1,
            Self::P2 => Profile::P2,
            Self::P3 => Profile::P3,
        }
    }
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Proto {
    /// RPC-over-RDMA
    Rdma,
    /// TCP with record marking
    Tcp,
}

impl Proto {
    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }

    /// Returns the default port: 20049 for RDMA (RFC 8267 §9), 2049 for TCP.
    pub(crate) const fn default_port(self) -> u16 {
        match self {
            Self::Rdma => 20049,
            Self::Tcp => 2049,
        }
    }
}

/// Source or destination of a copy: a local path or a URL.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// A local path.
    Local(PathBuf),
    /// A URL.
    Remote(NfsUrl),
}

impl Place {
    /// Parses an operand: text that begins with `nfs:` is a URL, any other text is a path.
    pub(crate) fn parse(text: OsString) -> Result<Self, String> {
        Self::parse_by(text, |url| url.parse().map_err(|error: UrlError| error.to_string()))
    }

    /// Parses an operand as [`parse`](Self::parse) does; the path of a URL may have wildcards.
    pub(crate) fn parse_pattern(text: OsString) -> Result<Self, String> {
        Self::parse_by(text, pattern)
    }

    fn parse_by(text: OsString, url: impl Fn(&str) -> Result<NfsUrl, String>) -> Result<Self, String> {
        match text.to_str() {
            Some(text) if text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("nfs:")) => {
                url(text).map(Self::Remote)
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_inline_fits_the_receives_with_a_place() {
        let sends = Sends { placement: Some(8192), continuation: None, combine: None, opttype_base: None };
        let versions = Versions::two(Profile::P1);
        assert!(sends.check(versions, 8192 + BufferStructure::HEAD).is_ok());
        let refused = sends.check(versions, 12 << 10).unwrap_err().to_string();
        assert!(refused.contains("--inline 12288") && refused.contains("9216 bytes"), "{refused}");
    }

    /// RFC 1813 §2.3, RFC 8267 §9.
    // requirement: rfc1813-2.3-1
    // requirement: rfc8267-4.2-1
    #[test]
    fn default_ports() {
        assert_eq!((Proto::Tcp.default_port(), Proto::Rdma.default_port()), (2049, 20049));
    }

    #[test]
    fn places() {
        assert!(matches!(Place::parse("nfs://h/x".into()), Ok(Place::Remote(_))));
        assert!(matches!(Place::parse("NFS://h/x".into()), Ok(Place::Remote(_))));
        assert!(matches!(Place::parse("nfs".into()), Ok(Place::Local(_))));
        assert!(matches!(Place::parse("./nfs://h/x".into()), Ok(Place::Local(_))));
        assert!(Place::parse("nfs:/h/x".into()).is_err());
    }

    /// RFC 5531, AUTH_SYS: who is named by the URL goes before who is named by the options.
    #[test]
    fn the_caller_is_the_one_that_is_named() {
        let sys = |security: &Security, query: &str| {
            let url: NfsUrl = format!("nfs://h/{query}").parse().unwrap();
            match security.credential(url.query()) {
                Ok(Credential::Sys(sys)) => (sys.uid, sys.gid, sys.gids),
                other => panic!("{other:?}"),
            }
        };
        let mut security = Security::default();
        let process = sys(&security, "");
        assert_eq!(process.0, rustix::process::geteuid().as_raw());
        assert_eq!(sys(&security, "?uid=7"), (7, process.1, vec![]));
        security.uid = Some(1);
        security.gid = Some(2);
        assert_eq!(sys(&security, ""), (1, 2, vec![]));
        assert_eq!(sys(&security, "?gid=3"), (1, 3, vec![]));
        security.groups = Some(vec![4, 5]);
        assert_eq!(sys(&security, "?uid=9"), (9, 2, vec![4, 5]));
        security.groups = Some(vec![0; 17]);
        assert!(security.credential(Query::default()).unwrap_err().to_string().contains("at most 16"));
        security = Security { sec: Flavor::Krb5, ..Security::default() };
        assert!(security.credential(Query::default()).is_ok());
        let query = "nfs://h/?uid=1".parse::<NfsUrl>().unwrap().query();
        assert!(security.credential(query).unwrap_err().to_string().contains("?uid="));
        security.gid = Some(1);
        assert!(security.user("h").unwrap_err().to_string().starts_with("--gid is about AUTH_SYS"));
    }
}
