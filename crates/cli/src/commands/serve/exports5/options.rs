//! Options of exports(5) for one list of them: what each does, or why it does nothing here.
//!
//! Several `sec=` in one list make groups: `ro`, `rw` and the options of squashing behind a `sec=` hold for its flavours alone.
//! Such options in front of the first `sec=`, and all others, hold for every flavour. With one `sec=` the order has no meaning.
//!
//! *Buffers.* An entry for each flavour.
//!
//! *Errors.* The text of a fault, without its place.

use rpcrdma_nfs::fs::Identity;
use rpcrdma_nfs::server::{NOBODY, Security, Squash, Terms};

use super::super::export::{parse_id, parse_security};
use super::super::problems::nearest;

/// Options without effect here, each with the reason; `None`: the server does what the option says.
pub(super) const IGNORED: [(&str, Option<&str>); 28] = [
    ("sync", None),
    ("no_subtree_check", None),
    ("async", Some("data is as stable as the client asks for (RFC 1813 §3.3.7)")),
    ("wdelay", Some("writes are never held back")),
    ("no_wdelay", None),
    (
        "subtree_check",
        Some("handles are sealed, and directories that move into another export leave this one"),
    ),
    ("hide", None),
    ("nocrossmnt", None),
    ("nohide", Some("other file systems below are not entered: export each of them")),
    ("crossmnt", Some("other file systems below are not entered: export each of them")),
    ("zfs_snapdir", Some("other file systems below are not entered: export each of them")),
    ("secure_locks", Some("locks (NLM) are not served")),
    ("insecure_locks", Some("locks (NLM) are not served")),
    ("auth_nlm", Some("locks (NLM) are not served")),
    ("no_auth_nlm", Some("locks (NLM) are not served")),
    ("acl", Some("access lists (NFSACL) are not served; those of the file system hold")),
    ("no_acl", None),
    ("pnfs", Some("pNFS is a part of NFS version 4")),
    ("no_pnfs", None),
    ("security_label", Some("labels are a part of NFS version 4.2")),
    ("fsid", Some("the number of an export follows from its path and directory")),
    ("reexport", Some("the number of an export follows from its path and directory")),
    ("refer", Some("referrals are a part of NFS version 4: clients see this directory itself")),
    ("replicas", Some("other locations are a part of NFS version 4")),
    ("xprtsec", None),
    ("nordirplus", Some("READDIRPLUS is served")),
    ("coherent", Some("READDIRPLUS is served")),
    ("no_dot_dot", Some("no name leads out of an export")),
];

/// Options of [`IGNORED`] that can have a value.
const VALUED: [&str; 4] = ["fsid", "reexport", "refer", "replicas"];

/// Options that the server cannot follow, each with the reason.
const REFUSED: [(&str, &str); 4] = [
    ("mountpoint", "the server does not check whether a directory is a mount point"),
    ("mp", "the server does not check whether a directory is a mount point"),
    ("xprtsec", "protection by TLS is the same for all exports: use --xprtsec"),
    ("v4root", "pseudo file systems are a part of NFS version 4"),
];

/// Options with effect.
const KNOWN: [&str; 11] = [
    "ro",
    "rw",
    "secure",
    "insecure",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "anonuid=",
    "anongid=",
    "sec=",
];

/// Options that can differ between flavours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    read_only: bool,
    /// Whether root is squashed.
    root: bool,
    /// Whether everybody is squashed, whatever `root` says.
    all: bool,
}

impl Flags {
    fn squash(self) -> Squash {
        match self {
            Self { all: true, .. } => Squash::Everybody,
            Self { root: true, .. } => Squash::Root,
            _ => Squash::Nobody,
        }
    }
}

/// Choices that the options of a client have made so far.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Flags of flavours that the next `sec=` names.
    common: Flags,
    secure: bool,
    anonymous: Identity,
    /// Flavours in the order of preference, never empty.
    flavors: Vec<(Security, Flags)>,
    /// Flavours of the `sec=` before, if the list has several.
    group: Vec<Security>,
}

/// Result of an option.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The option is in force.
    InForce,
    /// The option of [`IGNORED`] with this name has no effect.
    Ignored(&'static str),
}

impl Choice {
    /// Returns what holds for a client without options, by exports(5).
    pub(super) fn usual() -> Self {
        let common = Flags { read_only: true, root: true, all: false };
        Self {
            common,
            secure: true,
            anonymous: Identity { uid: NOBODY, gid: NOBODY, groups: Vec::new() },
            flavors: vec![(Security::Sys, common)],
            group: Vec::new(),
        }
    }

    /// Applies a list of options, separated by commas. `ignored` learns of each option without effect, with the number of
    /// characters in front of it.
    ///
    /// # Errors
    /// The first fault, with the number of characters in front of its option.
    pub(super) fn apply(
        &mut self,
        list: &str,
        mut ignored: impl FnMut(usize, &'static str),
    ) -> Result<(), (usize, String)> {
        let groups = list.split(',').filter(|option| option.starts_with("sec=")).count();
        let (mut at, mut begun) = (0, false);
        self.group.clear();
        for option in list.split(',') {
            let here = at;
            at += option.chars().count() + 1;
            if option.is_empty() {
                continue;
            }
            if let Some(flavors) = option.strip_prefix("sec=") {
                // Flavours of the defaults of a line are replaced, not added to: `-sec=sys host(sec=krb5)` admits krb5 alone.
                if !std::mem::replace(&mut begun, true) {
                    self.flavors.clear();
                }
                self.add(flavors, groups > 1).map_err(|fault| (here, fault))?;
                continue;
            }
            match self.set(option).map_err(|fault| (here, fault))? {
                Taken::InForce => {}
                Taken::Ignored(name) => ignored(here, name),
            }
        }
        Ok(())
    }

    /// Adds the flavours of a `sec=`.
    fn add(&mut self, text: &str, is_group: bool) -> Result<(), String> {
        let saw = |fault: String| format!("saw \"sec={text}\", expected another value: {fault}");
        let named = parse_security(text).map_err(saw)?;
        for flavor in &named {
            if !self.flavors.iter().any(|(known, _)| known == flavor) {
                self.flavors.push((*flavor, self.common));
            }
        }
        self.group = if is_group { named } else { Vec::new() };
        Ok(())
    }

    /// Changes the flags of the group, or else of all flavours.
    fn change(&mut self, change: impl Fn(&mut Flags)) {
        let Self { common, flavors, group, .. } = self;
        if group.is_empty() {
            change(common);
        }
        flavors
            .iter_mut()
            .filter(|(flavor, _)| group.is_empty() || group.contains(flavor))
            .for_each(|(_, flags)| change(flags));
    }

    fn set(&mut self, option: &str) -> Result<Taken, String> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let saw = |fault: String| format!("saw {option:?}, expected another value: {fault}");
        match (name, value) {
            ("ro", None) => self.change(|flags| flags.read_only = true),
            ("rw", None) => self.change(|flags| flags.read_only = false),
            ("secure", None) => self.secure = true,
            ("insecure", None) => self.secure = false,
            ("root_squash", None) => self.change(|flags| flags.root = true),
            ("no_root_squash", None) => self.change(|flags| flags.root = false),
            ("all_squash", None) => self.change(|flags| flags.all = true),
            ("no_all_squash", None) => self.change(|flags| flags.all = false),
            ("anonuid", Some(user)) => self.anonymous.uid = parse_id(user).map_err(saw)?,
            ("anongid", Some(group)) => self.anonymous.gid = parse_id(group).map_err(saw)?,
            ("xprtsec", Some(policies)) if is_every_policy(policies) => {}
            _ => return without_effect(name, value, option),
        }
        Ok(Taken::InForce)
    }

    /// Returns the terms of the client.
    pub(super) fn terms(&self) -> Terms {
        let own = self.flavors.first().map_or(self.common, |(_, flags)| *flags);
        let of = |flags: Flags, security: Vec<Security>| Terms {
            read_only: flags.read_only,
            secure: self.secure,
            squash: flags.squash(),
            anonymous: self.anonymous.clone(),
            security,
            apart: Vec::new(),
        };
        let others = self.flavors.iter().filter(|(_, flags)| *flags != own);
        let apart = others.map(|(flavor, flags)| of(*flags, vec![*flavor])).collect();
        Terms { apart, ..of(own, self.flavors.iter().map(|(flavor, _)| *flavor).collect()) }
    }
}

/// Returns whether `xprtsec=` has all policies, which is the default and excludes nobody.
fn is_every_policy(policies: &str) -> bool {
    let mut named: Vec<&str> = policies.split(':').collect();
    named.sort_unstable();
    named == ["mtls", "none", "tls"]
}

/// Returns an option that has no effect here.
///
/// # Errors
/// The server cannot follow the option, or nobody knows it.
fn without_effect(name: &str, value: Option<&str>, option: &str) -> Result<Taken, String> {
    if let Some((_, reason)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return Err(format!("saw {option:?}, expected no such option here: {reason}"));
    }
    let takes = |known: &str| known == name && (value.is_none() || VALUED.contains(&known));
    if let Some((name, _)) = IGNORED.iter().find(|(known, _)| takes(known)) {
        return Ok(Taken::Ignored(name));
    }
    let names = KNOWN.into_iter().chain(IGNORED.into_iter().map(|(name, _)| name));
    let near = nearest(option, names);
    let hint = near.map_or_else(|| "an option of exports(5)".to_owned(), |near| format!("{near:?}"));
    Err(format!("saw the unknown option {option:?}, expected {hint}"))
}
