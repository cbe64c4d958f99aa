//! Causes and remedies of failures, by the status codes of the library. This module alone decides them. Of texts it reads one name,
//! which no language translates: a missing ticket-granting ticket has the code of any other missing ticket.
//!
//! The library's words say what it has seen. They lack the command that mends it, and a server's client gets numbers only.

use std::fmt;

use rpcrdma_oncrpc::gss::{MechanismError, major};

/// Returns the number of a status of krb5 as the library returns it: without a sign.
const fn krb5(code: i32) -> u32 {
    code.cast_unsigned()
}

/// Status codes of MIT's `krb5.h`, of the mechanism, and of the system, under their own names.
mod code {
    use super::krb5;

    pub(super) const ENOENT: u32 = 2;
    pub(super) const EACCES: u32 = 13;
    pub(super) const EISDIR: u32 = 21;
    pub(super) const KG_KEYTAB_NOMATCH: u32 = 39_756_033;
    pub(super) const KRB5KDC_ERR_NAME_EXP: u32 = krb5(-1_765_328_383);
    pub(super) const KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN: u32 = krb5(-1_765_328_378);
    pub(super) const KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN: u32 = krb5(-1_765_328_377);
    pub(super) const KRB5KDC_ERR_ETYPE_NOSUPP: u32 = krb5(-1_765_328_370);
    pub(super) const KRB5KDC_ERR_CLIENT_REVOKED: u32 = krb5(-1_765_328_366);
    pub(super) const KRB5KDC_ERR_KEY_EXP: u32 = krb5(-1_765_328_361);
    pub(super) const KRB5KDC_ERR_PREAUTH_FAILED: u32 = krb5(-1_765_328_360);
    pub(super) const KRB5KRB_AP_ERR_BAD_INTEGRITY: u32 = krb5(-1_765_328_353);
    pub(super) const KRB5KRB_AP_ERR_TKT_EXPIRED: u32 = krb5(-1_765_328_352);
    pub(super) const KRB5KRB_AP_ERR_TKT_NYV: u32 = krb5(-1_765_328_351);
    pub(super) const KRB5KRB_AP_ERR_NOT_US: u32 = krb5(-1_765_328_349);
    pub(super) const KRB5KRB_AP_ERR_SKEW: u32 = krb5(-1_765_328_347);
    pub(super) const KRB5KRB_AP_ERR_MODIFIED: u32 = krb5(-1_765_328_343);
    pub(super) const KRB5KRB_AP_ERR_BADKEYVER: u32 = krb5(-1_765_328_340);
    pub(super) const KRB5KRB_AP_ERR_NOKEY: u32 = krb5(-1_765_328_339);
    pub(super) const KRB5_CONFIG_CANTOPEN: u32 = krb5(-1_765_328_249);
    pub(super) const KRB5_CONFIG_BADFORMAT: u32 = krb5(-1_765_328_248);
    pub(super) const KRB5_CC_NOTFOUND: u32 = krb5(-1_765_328_243);
    pub(super) const KRB5_KDCREP_SKEW: u32 = krb5(-1_765_328_236);
    pub(super) const KRB5_REALM_UNKNOWN: u32 = krb5(-1_765_328_230);
    pub(super) const KRB5_KDC_UNREACH: u32 = krb5(-1_765_328_228);
    pub(super) const KRB5_KT_NOTFOUND: u32 = krb5(-1_765_328_203);
    pub(super) const KRB5_FCC_PERM: u32 = krb5(-1_765_328_190);
    pub(super) const KRB5_FCC_NOFILE: u32 = krb5(-1_765_328_189);
    pub(super) const KRB5_CC_FORMAT: u32 = krb5(-1_765_328_185);
    pub(super) const KRB5_CCACHE_BADVNO: u32 = krb5(-1_765_328_172);
    pub(super) const KRB5_KEYTAB_BADVNO: u32 = krb5(-1_765_328_171);
    pub(super) const KRB5_ERR_HOST_REALM_UNKNOWN: u32 = krb5(-1_765_328_167);
    pub(super) const KRB5_REALM_CANT_RESOLVE: u32 = krb5(-1_765_328_164);
    pub(super) const KRB5_CONFIG_NODEFREALM: u32 = krb5(-1_765_328_160);
    pub(super) const KRB5_KT_KVNONOTFOUND: u32 = krb5(-1_765_328_154);
    pub(super) const KRB5_KT_FORMAT: u32 = krb5(-1_765_328_149);
    pub(super) const KRB5_CONFIG_ETYPE_NOSUPP: u32 = krb5(-1_765_328_147);
}

/// A cause of failures. Several codes of the library have one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NoTicket,
    BadCache,
    Expired,
    Clocks,
    ServiceUnknown,
    OtherRealm,
    CallerUnknown,
    CallerBarred,
    KdcSilent,
    RealmUnknown,
    WrongKey,
    OldKey,
    NoKey,
    NoKeytab,
    KeytabForbidden,
    NotAKeytab,
    EncryptionType,
}

impl Fault {
    /// Returns the fault for a status. The mechanism's own code tells more than that of the GSS-API, if there is one.
    const fn of(major: u32, minor: u32) -> Option<Self> {
        Some(match minor {
            code::KRB5_CC_NOTFOUND | code::KRB5_FCC_NOFILE => Self::NoTicket,
            code::KRB5_FCC_PERM | code::KRB5_CC_FORMAT | code::KRB5_CCACHE_BADVNO => Self::BadCache,
            code::KRB5KRB_AP_ERR_TKT_EXPIRED => Self::Expired,
            code::KRB5KRB_AP_ERR_SKEW | code::KRB5KRB_AP_ERR_TKT_NYV | code::KRB5_KDCREP_SKEW => Self::Clocks,
            code::KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN => Self::ServiceUnknown,
            code::KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN => Self::CallerUnknown,
            code::KRB5KDC_ERR_CLIENT_REVOKED | code::KRB5KDC_ERR_NAME_EXP | code::KRB5KDC_ERR_KEY_EXP => {
                Self::CallerBarred
            }
            code::KRB5_KDC_UNREACH | code::KRB5_REALM_CANT_RESOLVE => Self::KdcSilent,
            code::KRB5_REALM_UNKNOWN
            | code::KRB5_CONFIG_CANTOPEN
            | code::KRB5_CONFIG_BADFORMAT
            | code::KRB5_CONFIG_NODEFREALM
            | code::KRB5_ERR_HOST_REALM_UNKNOWN => Self::RealmUnknown,
            code::KRB5KRB_AP_ERR_BAD_INTEGRITY
            | code::KRB5KRB_AP_ERR_MODIFIED
            | code::KRB5KDC_ERR_PREAUTH_FAILED => Self::WrongKey,
            code::KRB5KRB_AP_ERR_BADKEYVER | code::KRB5_KT_KVNONOTFOUND => Self::OldKey,
            code::KG_KEYTAB_NOMATCH | code::KRB5_KT_NOTFOUND | code::KRB5KRB_AP_ERR_NOT_US => Self::NoKey,
            code::ENOENT | code::KRB5KRB_AP_ERR_NOKEY => Self::NoKeytab,
            code::EACCES => Self::KeytabForbidden,
            code::KRB5_KEYTAB_BADVNO | code::KRB5_KT_FORMAT | code::EISDIR => Self::NotAKeytab,
            code::KRB5KDC_ERR_ETYPE_NOSUPP | code::KRB5_CONFIG_ETYPE_NOSUPP => Self::EncryptionType,
            _ => match major {
                major::NO_CRED => Self::NoTicket,
                major::CREDENTIALS_EXPIRED | major::CONTEXT_EXPIRED => Self::Expired,
                _ => return None,
            },
        })
    }
}

/// Proof of a client's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof<'a> {
    /// Tickets. The cache has a name if somebody gave one.
    Tickets(Option<&'a str>),
    /// The keys of a keytab.
    Keytab(&'a str),
}

/// A kind of files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Keytab,
    Cache,
}

/// An option of a program that names a file; nothing for the file that the program takes without it.
struct FileOption<'a>(&'static str, Option<&'a str>);

impl fmt::Display for FileOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.map_or(Ok(()), |path| write!(f, " -{} {path}", self.0))
    }
}

/// Returns whether a keytab can be read, and has no key of the wanted name.
pub(crate) const fn is_other_key(error: &MechanismError) -> bool {
    error.minor == code::KG_KEYTAB_NOMATCH
}

/// Returns the error of a file that is there, and is none of the kind that is wanted: a directory or a pipe.
pub(crate) fn irregular(kind: Kind) -> MechanismError {
    let minor = match kind {
        Kind::Keytab => code::KRB5_KT_FORMAT,
        Kind::Cache => code::KRB5_CC_FORMAT,
    };
    MechanismError::new(major::NO_CRED, minor, "it is not a regular file")
}

/// Returns the error of a client of `nfs/HOST`, with the remedy.
pub(crate) fn at_client(error: MechanismError, proof: Proof<'_>, host: &str) -> MechanismError {
    let remedy = Fault::of(error.major, error.minor).and_then(|fault| {
        // The KDC has no such ticket-granting ticket: the host is taken for one of another realm.
        let other = fault == Fault::ServiceUnknown && error.text.contains("krbtgt/");
        let fault = if other { Fault::OtherRealm } else { fault };
        match proof {
            Proof::Keytab(keytab) => with_keytab(fault, keytab, host),
            Proof::Tickets(cache) => with_tickets(fault, cache, host),
        }
    });
    extended(error, remedy)
}

/// Returns the error of the library's configuration, with the remedy.
pub(crate) fn of_configuration(error: MechanismError) -> MechanismError {
    let remedy = "this user must be able to read it and all that it includes, and it must have the form of krb5.conf(5)";
    extended(error, Some(remedy.to_owned()))
}

/// Returns the error of a server that cannot read its keytab any more.
pub(crate) fn of_hidden_keytab(error: MechanismError, keytab: &str) -> MechanismError {
    let remedy = format!(
        "the server may not read {keytab} any more: it keeps the right to the folder where the file was at its start; restart it"
    );
    extended(error, Some(remedy))
}

/// Returns whether a server could not open its keytab.
pub(crate) const fn is_unread_keytab(error: &MechanismError) -> bool {
    matches!(Fault::of(error.major, error.minor), Some(Fault::NoKeytab | Fault::KeytabForbidden))
}

/// Returns the error of a server, with the remedy. `None` is the keytab of the system.
pub(crate) fn at_server(error: MechanismError, keytab: Option<&str>) -> MechanismError {
    let fault = Fault::of(error.major, error.minor);
    extended(error, fault.and_then(|fault| of_server(fault, keytab)))
}

fn extended(error: MechanismError, remedy: Option<String>) -> MechanismError {
    match remedy {
        Some(remedy) => MechanismError { text: format!("{}; {remedy}", error.text), ..error },
        None => error,
    }
}

/// Words that a macro needs, for a KDC without an answer.
macro_rules! kdc {
    () => {
        "is krb5kdc running there? Port 88 of UDP and TCP must pass the firewall, and kdc = in krb5.conf must name that host"
    };
}

/// Cause and remedy if the library has no ticket in time. It tries each KDC of the realm for a second to ten, several times.
pub(crate) const OVERDUE: &str = concat!("no KDC of the realm has given a ticket in time; ", kdc!());

const CLOCKS: &str =
    "more than 5 minutes are too much: compare date -u on both machines, and let NTP set the clocks";

/// Returns the remedy where it does not depend on what proves the caller.
fn of_client(fault: Fault, host: &str) -> Option<String> {
    Some(match fault {
        Fault::Clocks => format!("this machine's clock is not that of the KDC or of the server; {CLOCKS}"),
        Fault::ServiceUnknown => format!(
            "call the server by the name in its key, or make the key: kadmin addprinc -randkey nfs/{host}; [domain_realm] of \
             krb5.conf names the realm of a host"
        ),
        Fault::OtherRealm => format!(
            "krb5.conf takes {host} for a host of another realm; a line of its [domain_realm] gives the host its realm: {host} = \
             REALM"
        ),
        Fault::CallerBarred => "kadmin getprinc PRINCIPAL shows why".to_owned(),
        Fault::KdcSilent => kdc!().to_owned(),
        Fault::RealmUnknown => {
            "[realms] of /etc/krb5.conf (or of KRB5_CONFIG) must have the realm, with kdc = HOST".to_owned()
        }
        Fault::EncryptionType => format!(
            "permitted_enctypes of krb5.conf and the key have no type in common; kadmin getprinc nfs/{host} shows those of \
             the key"
        ),
        _ => return None,
    })
}

fn with_tickets(fault: Fault, cache: Option<&str>, host: &str) -> Option<String> {
    let c = FileOption("c", cache);
    Some(match fault {
        Fault::NoTicket | Fault::NoKey | Fault::NoKeytab => {
            format!("kinit{c} gets a ticket, and klist{c} shows it")
        }
        Fault::Expired => format!("kinit{c} gets a new ticket"),
        Fault::BadCache | Fault::KeytabForbidden | Fault::NotAKeytab if cache.is_some() => {
            "kinit -c FILE gets a ticket into another file; give that one".to_owned()
        }
        Fault::BadCache | Fault::KeytabForbidden | Fault::NotAKeytab => {
            "kinit -c FILE gets a ticket into another file, which KRB5CCNAME then names".to_owned()
        }
        Fault::CallerUnknown | Fault::WrongKey | Fault::OldKey => {
            format!("the realm has changed since the ticket was made; kinit{c} gets a new one")
        }
        _ => return of_client(fault, host),
    })
}

fn with_keytab(fault: Fault, keytab: &str, host: &str) -> Option<String> {
    Some(match fault {
        Fault::NoTicket | Fault::NoKey | Fault::NoKeytab => {
            format!("kadmin ktadd -k {keytab} PRINCIPAL makes a keytab, and klist -k {keytab} shows its keys")
        }
        Fault::NotAKeytab => "this is no keytab; kadmin ktadd -k FILE PRINCIPAL makes one".to_owned(),
        Fault::KeytabForbidden => format!("the user of this command must be able to read {keytab}"),
        Fault::CallerUnknown => format!(
            "the realm does not have the principal of the first key; kadmin addprinc -randkey PRINCIPAL makes it, and ktadd \
             -k {keytab} PRINCIPAL gets its key"
        ),
        Fault::WrongKey | Fault::OldKey => format!(
            "the realm has another key for the principal; kadmin ktadd -k {keytab} PRINCIPAL gets a new one"
        ),
        _ => return of_client(fault, host),
    })
}

fn of_server(fault: Fault, keytab: Option<&str>) -> Option<String> {
    let k = FileOption("k", keytab);
    Some(match fault {
        Fault::NoTicket | Fault::NoKey | Fault::NoKeytab => format!(
            "kadmin makes the key: addprinc -randkey nfs/HOST, then ktadd{k} nfs/HOST, where HOST is the name by which \
             clients call"
        ),
        Fault::KeytabForbidden => {
            "root, or the user who starts the server, must be able to read it".to_owned()
        }
        Fault::NotAKeytab => "this is no keytab; kadmin ktadd -k FILE nfs/HOST makes one".to_owned(),
        Fault::Expired => {
            "the client needs a new ticket (kinit), unless this machine's clock is fast: compare date -u"
                .to_owned()
        }
        Fault::Clocks => format!("this machine's clock is not that of the client; {CLOCKS}"),
        Fault::WrongKey => format!("the realm has another key; kadmin ktadd{k} nfs/HOST gets a new one"),
        Fault::OldKey => format!(
            "kadmin ktadd{k} nfs/HOST gets the newest key; if the keytab has it, the client's ticket is older: kinit there"
        ),
        Fault::EncryptionType => {
            "permitted_enctypes of krb5.conf must have the type of the key; klist -ke shows it".to_owned()
        }
        _ => return None,
    })
}

/// Returns cause and remedy of a status that a server of `nfs/HOST` told its client. `None` if the codes say nothing.
pub(crate) fn of_peer(major: u32, minor: u32, host: &str) -> Option<String> {
    Some(match Fault::of(major, minor)? {
        Fault::NoKey => format!(
            "it has no key of nfs/{host}; call it by the name in its key, or add this one there: kadmin ktadd nfs/{host}"
        ),
        Fault::NoKeytab | Fault::NoTicket | Fault::KeytabForbidden | Fault::NotAKeytab => {
            format!("it cannot read a key; its keytab must have one of nfs/{host}, and its log says more")
        }
        Fault::Expired => {
            "the ticket has expired; kinit gets a new one, unless the server's clock is fast: compare date -u"
                .to_owned()
        }
        Fault::Clocks => format!("its clock is not that of this machine; {CLOCKS}"),
        Fault::WrongKey => format!(
            "its key is not that of the realm; kadmin ktadd nfs/{host} on the server gets a new one, then kinit here"
        ),
        Fault::OldKey => format!(
            "it does not have the version of the key for which the ticket was made; kinit gets a new ticket, or else kadmin \
             ktadd nfs/{host} on the server gets the newest key"
        ),
        Fault::EncryptionType => format!(
            "it does not permit the ticket's encryption type; kadmin getprinc nfs/{host} shows the types of its keys"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: u32 = major::FAILURE;

    fn error(major: u32, minor: u32) -> MechanismError {
        MechanismError::new(major, minor, "words")
    }

    /// Checks that a text is the library's words and one line behind them, with this part.
    fn check(error: &MechanismError, part: &str) {
        let remedy = error.text.strip_prefix("words; ").unwrap_or_default();
        assert!(remedy.contains(part) && !remedy.contains('\n'), "{part}: {error:?}");
    }

    #[test]
    fn each_fault_at_a_client_has_its_remedy() {
        for (major, minor, part) in [
            (major::NO_CRED, code::KRB5_CC_NOTFOUND, "kinit"),
            (major::NO_CRED, code::KRB5_FCC_NOFILE, "kinit"),
            (major::NO_CRED, code::KRB5_FCC_PERM, "KRB5CCNAME"),
            (major::NO_CRED, code::KRB5_CCACHE_BADVNO, "KRB5CCNAME"),
            (major::NO_CRED, 0, "kinit"),
            (FAILURE, code::KRB5KRB_AP_ERR_TKT_EXPIRED, "kinit gets a new ticket"),
            (major::CREDENTIALS_EXPIRED, 0, "kinit gets a new ticket"),
            (FAILURE, code::KRB5KRB_AP_ERR_SKEW, "date -u"),
            (FAILURE, code::KRB5_KDCREP_SKEW, "date -u"),
            (FAILURE, code::KRB5KRB_AP_ERR_TKT_NYV, "date -u"),
            (FAILURE, code::KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN, "addprinc -randkey nfs/files.test"),
            (FAILURE, code::KRB5_KDC_UNREACH, "krb5kdc"),
            (FAILURE, code::KRB5_REALM_UNKNOWN, "[realms]"),
            (FAILURE, code::KRB5_CONFIG_NODEFREALM, "[realms]"),
            (FAILURE, code::KRB5KRB_AP_ERR_BAD_INTEGRITY, "kinit"),
            (FAILURE, code::KRB5KDC_ERR_ETYPE_NOSUPP, "getprinc nfs/files.test"),
        ] {
            check(&at_client(error(major, minor), Proof::Tickets(None), "files.test"), part);
        }
    }

    #[test]
    fn a_named_cache_is_named_in_the_remedy() {
        for (minor, part) in [
            (code::KRB5_FCC_NOFILE, "kinit -c /c gets a ticket, and klist -c /c shows it"),
            (code::KRB5KRB_AP_ERR_TKT_EXPIRED, "kinit -c /c gets a new ticket"),
            (code::KRB5KRB_AP_ERR_BAD_INTEGRITY, "kinit -c /c gets a new one"),
            (code::KRB5_CC_FORMAT, "give that one"),
        ] {
            check(&at_client(error(major::NO_CRED, minor), Proof::Tickets(Some("/c")), "files.test"), part);
        }
    }

    /// No key of that name is missing, but the realm of the host.
    #[test]
    fn a_host_of_an_unknown_realm_needs_a_line_of_the_configuration() {
        let unknown = |server: &str| {
            let text = format!("Server {server}@ONE.TEST not found in Kerberos database");
            let error = MechanismError::new(FAILURE, code::KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN, text);
            at_client(error, Proof::Tickets(None), "files.two.test").text
        };
        let told = unknown("krbtgt/TWO.TEST");
        assert!(told.contains("[domain_realm]") && told.contains("files.two.test = REALM"), "{told}");
        assert!(!told.contains("addprinc"), "{told}");
        assert!(unknown("nfs/files.two.test").contains("addprinc"));
    }

    #[test]
    fn each_fault_of_a_clients_keytab_has_its_remedy() {
        for (minor, part) in [
            (code::ENOENT, "ktadd -k /k PRINCIPAL"),
            (code::KRB5_KEYTAB_BADVNO, "this is no keytab"),
            (code::EISDIR, "this is no keytab"),
            (code::KRB5_CC_NOTFOUND, "klist -k /k"),
            (code::EACCES, "read /k"),
            (code::KRB5KRB_AP_ERR_BAD_INTEGRITY, "another key"),
            (code::KRB5KDC_ERR_PREAUTH_FAILED, "another key"),
            (code::KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN, "addprinc -randkey"),
            (code::KRB5KDC_ERR_CLIENT_REVOKED, "getprinc"),
            (code::KRB5_KDC_UNREACH, "krb5kdc"),
            (code::KRB5_KDCREP_SKEW, "date -u"),
        ] {
            check(&at_client(error(major::NO_CRED, minor), Proof::Keytab("/k"), "files.test"), part);
        }
    }

    #[test]
    fn each_fault_at_a_server_has_its_remedy() {
        for (major, minor, part) in [
            (major::NO_CRED, code::ENOENT, "ktadd -k /k nfs/HOST"),
            (major::NO_CRED, code::KG_KEYTAB_NOMATCH, "ktadd -k /k nfs/HOST"),
            (major::NO_CRED, code::EACCES, "read it"),
            (major::NO_CRED, code::KRB5_KEYTAB_BADVNO, "no keytab"),
            (major::NO_CRED, code::EISDIR, "no keytab"),
            (FAILURE, code::KRB5KRB_AP_ERR_NOKEY, "ktadd -k /k nfs/HOST"),
            (FAILURE, code::KRB5KRB_AP_ERR_NOT_US, "ktadd -k /k nfs/HOST"),
            (FAILURE, code::KRB5KRB_AP_ERR_BADKEYVER, "the newest key"),
            (FAILURE, code::KRB5_KT_KVNONOTFOUND, "the newest key"),
            (FAILURE, code::KRB5KRB_AP_ERR_BAD_INTEGRITY, "another key"),
            (FAILURE, code::KRB5KRB_AP_ERR_MODIFIED, "another key"),
            (FAILURE, code::KRB5KRB_AP_ERR_SKEW, "date -u"),
            (FAILURE, code::KRB5KRB_AP_ERR_TKT_EXPIRED, "kinit"),
        ] {
            check(&at_server(error(major, minor), Some("/k")), part);
        }
        // The keytab of the system needs no option.
        check(&at_server(error(FAILURE, code::KRB5KRB_AP_ERR_NOKEY), None), "then ktadd nfs/HOST");
    }

    #[test]
    fn each_fault_that_a_server_tells_has_its_remedy() {
        for (minor, part) in [
            (code::KRB5KRB_AP_ERR_NOT_US, "no key of nfs/files.test"),
            (code::KRB5KRB_AP_ERR_NOKEY, "keytab"),
            (code::KRB5KRB_AP_ERR_BADKEYVER, "kinit gets a new ticket"),
            (code::KRB5KRB_AP_ERR_BAD_INTEGRITY, "ktadd nfs/files.test"),
            (code::KRB5KRB_AP_ERR_SKEW, "date -u"),
            (code::KRB5KRB_AP_ERR_TKT_NYV, "date -u"),
            (code::KRB5KRB_AP_ERR_TKT_EXPIRED, "kinit"),
            (code::KRB5KDC_ERR_ETYPE_NOSUPP, "getprinc nfs/files.test"),
        ] {
            let told = of_peer(FAILURE, minor, "files.test").unwrap_or_default();
            assert!(told.contains(part) && !told.contains('\n'), "{part}: {told}");
        }
    }

    #[test]
    fn codes_without_a_meaning_leave_the_words_as_they_are() {
        assert_eq!(of_peer(FAILURE, 99, "files.test"), None);
        assert_eq!(at_client(error(FAILURE, 99), Proof::Tickets(None), "files.test"), error(FAILURE, 99));
        assert_eq!(at_client(error(FAILURE, 0), Proof::Keytab("/k"), "files.test"), error(FAILURE, 0));
        assert_eq!(at_server(error(major::DEFECTIVE_TOKEN, 0), None), error(major::DEFECTIVE_TOKEN, 0));
        // A fault of clients is none of a server.
        assert_eq!(at_server(error(FAILURE, code::KRB5_KDC_UNREACH), None).text, "words");
    }

    #[test]
    fn codes_are_numbers_without_a_sign() {
        // KRB5KRB_AP_ERR_SKEW as a server sends it.
        assert_eq!(code::KRB5KRB_AP_ERR_SKEW, 0x96c7_3a25);
    }
}
