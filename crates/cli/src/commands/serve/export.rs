//! An export: the option `--export NAME=DIR[,OPTION]...`, whose parts tables of `--config` have too.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use rpcrdma_nfs::fs::{DirectoryFs, Identity};
use rpcrdma_nfs::server::{Admitted, ClientRule, Export, ExportAccess, NOBODY, Security, Squash, Terms};

/// Directory to export, as the command line or a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportOption {
    /// Name that clients mount; begins with `/`.
    pub(crate) name: String,
    /// Directory that clients get.
    pub(crate) directory: PathBuf,
    /// Whether clients may only read.
    pub(crate) read_only: bool,
    /// Clients that may mount.
    pub(crate) allow: Admitted,
    /// Whether callers over TCP need a source port below 1024.
    pub(crate) secure: bool,
    /// Callers whose identity becomes that of [`Self::anonymous`].
    pub(crate) squash: Squash,
    /// User and group of callers without an identity.
    pub(crate) anonymous: (u32, u32),
    /// Flavours of security that calls may have, the preferred one first.
    pub(crate) security: Vec<Security>,
    /// Other terms for some of these flavours. Only a file of `--exports` has them.
    pub(crate) apart: Vec<Terms>,
    /// Other terms for some clients. Only a file of `--exports` has them.
    pub(crate) rules: Vec<ClientRule>,
}

/// Options that exclude one another: of each kind an export has one.
const ALTERNATIVES: [fn(&str) -> bool; 3] = [
    |option| matches!(option, "ro" | "rw"),
    |option| matches!(option, "secure" | "insecure"),
    |option| option.starts_with("squash="),
];

impl ExportOption {
    /// Returns `directory` exported as `/` to all clients, with root squashed.
    pub(crate) fn root(directory: PathBuf) -> Self {
        Self {
            name: "/".to_owned(),
            directory,
            read_only: false,
            allow: Admitted::Everybody,
            secure: false,
            squash: Squash::default(),
            anonymous: (NOBODY, NOBODY),
            security: vec![Security::Sys],
            apart: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Returns the export of this open directory.
    pub(crate) fn with(&self, directory: Arc<DirectoryFs>) -> Export {
        let mut export = Export::new(self.name.clone(), directory);
        export.origin = Some(self.directory.display().to_string());
        export.read_only = self.read_only;
        export.allow.clone_from(&self.allow);
        export.secure = self.secure;
        export.security.clone_from(&self.security);
        export.apart.clone_from(&self.apart);
        export.squash = self.squash;
        let (uid, gid) = self.anonymous;
        export.anonymous = Identity { uid, gid, groups: Vec::new() };
        export.rules.clone_from(&self.rules);
        export
    }

    /// Returns the terms of some clients or flavours that differ from the fields of the export.
    fn other_terms(&self) -> impl Iterator<Item = &Terms> {
        let rules = self.rules.iter().map(|rule| &rule.terms);
        self.apart.iter().chain(rules.flat_map(|terms| std::iter::once(terms).chain(&terms.apart)))
    }

    /// Lets no client change anything.
    pub(super) fn close_to_changes(&mut self) {
        self.read_only = true;
        let rules = self.rules.iter_mut().map(|rule| &mut rule.terms);
        for terms in rules {
            terms.read_only = true;
            terms.apart.iter_mut().for_each(|terms| terms.read_only = true);
        }
        self.apart.iter_mut().for_each(|terms| terms.read_only = true);
    }

    /// Returns whether clients may write: all of them, some or none.
    pub(crate) fn access(&self) -> ExportAccess {
        ExportAccess::of(self.other_terms().map(|terms| terms.read_only).chain([self.read_only]))
    }

    /// Returns the flavours that calls of any client may have. Those of clients without other terms come first.
    pub(crate) fn flavors(&self) -> Vec<Security> {
        let others = self.other_terms().map(|terms| terms.security.as_slice());
        Security::all([self.security.as_slice()].into_iter().chain(others))
    }

    /// Returns whether any client may use Kerberos.
    pub(crate) fn allows_kerberos(&self) -> bool {
        let others = self.other_terms().flat_map(|terms| &terms.security);
        self.security.iter().chain(others).any(|flavor| flavor.is_kerberos())
    }

    /// Returns whether root of any client stays root.
    pub(crate) fn keeps_root(&self) -> bool {
        self.squash == Squash::Nobody || self.other_terms().any(|terms| terms.squash == Squash::Nobody)
    }

    /// Returns the networks of clients that may mount: `None` if all may, and an empty list if nobody may.
    pub(crate) fn admitted(&self) -> Option<Vec<IpNet>> {
        if self.allow.is_everybody() {
            return None;
        }
        let rules = self.rules.iter().flat_map(|rule| &rule.networks);
        Some(self.allow.networks().iter().chain(rules).copied().collect())
    }

    /// Applies an option, as it stands in `--export`.
    ///
    /// # Errors
    /// There is no such option, or its value is wrong.
    pub(super) fn apply(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=') {
            None if option == "ro" => self.read_only = true,
            None if option == "rw" => self.read_only = false,
            None if option == "secure" => self.secure = true,
            None if option == "insecure" => self.secure = false,
            Some(("allow", "none")) => self.allow.close(),
            Some(("allow", network)) => self.allow.add(parse_network(network)?),
            Some(("squash", "none")) => self.squash = Squash::Nobody,
            Some(("squash", "root")) => self.squash = Squash::Root,
            Some(("squash", "all")) => self.squash = Squash::Everybody,
            Some(("anonuid", user)) => self.anonymous.0 = parse_id(user)?,
            Some(("anongid", group)) => self.anonymous.1 = parse_id(group)?,
            Some(("sec", flavors)) => self.security = parse_security(flavors)?,
            _ => {
                return Err(format!(
                    "{option:?} is none of the options ro, rw, allow=CIDR|none, secure, insecure, squash=root|all|none, \
                     anonuid=UID, anongid=GID, sec=FLAVOR[:FLAVOR]... (a directory with a comma in its name cannot be exported this way)"
                ));
            }
        }
        Ok(())
    }
}

impl FromStr for ExportOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no \"=\": write NAME=DIR, for example /data=/srv/data"))?;
        check_name(name)?;
        let mut parts = rest.split(',');
        let directory = parts.next().unwrap_or_default();
        if directory.is_empty() {
            return Err(format!("{text:?} names no directory: write NAME=DIR"));
        }
        let mut export = Self::root(directory.into());
        export.name = name.to_owned();
        if parts.clone().filter(|option| option.starts_with("sec=")).count() > 1 {
            return Err(format!(
                "{text:?} has sec= twice: write all flavours in one, for example sec=krb5:krb5i"
            ));
        }
        for is_one in ALTERNATIVES {
            let given: Vec<&str> = parts.clone().filter(|option| is_one(option)).collect();
            if let [first, second, ..] = given.as_slice() {
                return Err(format!("{text:?} has {first} and {second}: give one of them"));
            }
        }
        parts.try_for_each(|option| export.apply(option))?;
        Ok(export)
    }
}

/// Checks the name of an export.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let Some(components) = name.strip_prefix('/') else {
        return Err(format!("the name {name:?} has to begin with \"/\", for example /data"));
    };
    if !components.is_empty() && components.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(format!("the name {name:?} has an empty, \".\" or \"..\" component"));
    }
    Ok(())
}

/// Parses the number of a user or group. Negative numbers count from the end, as in exports(5).
pub(super) fn parse_id(text: &str) -> Result<u32, String> {
    // The last number means "none" in system calls.
    let number = match text.parse::<i64>() {
        Ok(number @ ..-1) => u32::try_from(number + (1 << 32)).ok(),
        Ok(number) => u32::try_from(number).ok().filter(|number| *number != u32::MAX),
        Err(_) => None,
    };
    number.ok_or_else(|| format!("{text:?} is no number of a user or group, 0 to {}", u32::MAX - 1))
}

/// Parses a network; an address is a network of one host.
pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>().or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from)).map_err(|_| {
        format!("{text:?} is not a network such as 192.0.2.0/24 or 2001:db8::/32, nor an address")
    })
}

/// Parses flavours of security, separated by colons.
pub(super) fn parse_security(text: &str) -> Result<Vec<Security>, String> {
    let mut flavors = Vec::new();
    for name in text.split(':') {
        let flavor = Security::from_name(name).ok_or_else(|| {
            let all = Security::ALL.map(Security::name).join(", ");
            format!("{name:?} in sec={text} is none of the flavours {all}; separate several by colons")
        })?;
        if flavors.contains(&flavor) {
            return Err(format!("sec={text} names {name} twice"));
        }
        flavors.push(flavor);
    }
    Ok(flavors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ExportOption, String> {
        text.parse()
    }

    #[test]
    fn exports() {
        assert_eq!(parse("/=/srv"), Ok(ExportOption::root("/srv".into())));
        for (text, networks) in [("allow=none", 0), ("allow=none,allow=::1", 1), ("allow=::1,allow=none", 1)]
        {
            let admitted = parse(&format!("/a=/b,{text}")).unwrap().admitted();
            assert_eq!(admitted.map(|admitted| admitted.len()), Some(networks), "{text}");
        }
        let export = parse("/a/b=rel/dir,ro,allow=10.0.0.0/8,allow=::1,squash=all").unwrap();
        assert_eq!((export.name.as_str(), export.directory.to_str()), ("/a/b", Some("rel/dir")));
        assert!(export.read_only);
        assert_eq!(export.allow.networks(), ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]);
        assert_eq!(export.squash, Squash::Everybody);
        assert!(!parse("/a=/b,rw").unwrap().read_only);
        assert!(!export.secure && parse("/a=/b,secure").unwrap().secure);
        assert!(!parse("/a=/b,insecure").unwrap().secure);
        assert_eq!(export.security, [Security::Sys]);
        assert_eq!(parse("/a=/b,anonuid=7,anongid=-2").unwrap().anonymous, (7, u32::MAX - 1));
        let security = parse("/a=/b,sec=krb5p:sys:krb5,ro").unwrap().security;
        assert_eq!(security, [Security::Krb5p, Security::Sys, Security::Krb5]);
        assert_eq!(parse("/a=/b=c").unwrap().directory.to_str(), Some("/b=c"));
    }

    #[test]
    fn refusals_say_what_to_type() {
        for (text, hint) in [
            ("/srv", "NAME=DIR"),
            ("data=/srv", "begin with"),
            ("/=", "no directory"),
            ("/a//b=/srv", "empty"),
            ("/a/../b=/srv", ".."),
            ("/a/=/srv", "empty"),
            ("/=/srv,rx", "ro, rw"),
            ("/=/srv,allow=10.0.0.0/33", "192.0.2.0/24"),
            ("/=/srv,squash=me", "squash=root"),
            ("/=/srv,anonuid=-1", "\"-1\" is no number of a user"),
            ("/=/srv,anongid=4294967295", "0 to 4294967294"),
            ("/=/srv,sec=", "\"\" in sec= is none of the flavours sys, krb5, krb5i, krb5p"),
            ("/=/srv,sec=krb5:dh", "\"dh\" in sec=krb5:dh"),
            ("/=/srv,sec=krb5+sys", "by colons"),
            ("/=/srv,sec=krb5:sys:krb5", "names krb5 twice"),
            ("/=/srv,sec=krb5,sec=sys", "sec= twice"),
            ("/=/srv,squash=none,squash=all", "squash=none and squash=all"),
            ("/=/srv,ro,rw", "has ro and rw: give one"),
            ("/=/srv,secure,allow=::1,insecure", "secure and insecure"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
