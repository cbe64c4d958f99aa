//! `--exports FILE`: a list of exports in the form of exports(5), as other NFS servers of Linux read it.
//!
//! An export has its path as name, and the defaults of that form: `ro`, `root_squash`, `secure`, `sec=sys`, for the clients
//! that its lines name. Each client can have options of its own. Of several networks that contain a client, the smallest
//! decides. It has to stand in front of the others, since elsewhere the first one decides.
//!
//! Host names become addresses when the file is read. A name that has no address now keeps those of an earlier reading. So
//! a reload while names cannot be looked up takes nothing from clients. A name that never had one admits nobody until the
//! next reading. If a network with other options could contain that host, this is a fault: the host would get those. An
//! export that has no other clients stays, closed to all: without it, an export around it would open the directory under
//! its own terms.
//!
//! A name also keeps its addresses of one version of IP if it has none of that version now. After a look-up that failed for
//! AAAA alone, `getaddrinfo` returns the IPv4 addresses and no error, as for a name without AAAA. So the server cannot tell
//! an address that was removed from one that is out of reach. It keeps both, and a note names each kept address. Kept
//! addresses count last: one may belong to another host now.
//!
//! Options without an effect here are told, each once, with the reason. Options and clients that would need something else
//! of the server are faults, because an export without them could be open to the wrong clients.
//!
//! *Buffers.* The text of the file, and an entry for each client.
//!
//! *Errors.* Lines `FILE:LINE:COLUMN: saw X, expected Y`.

mod options;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::iter::Peekable;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::str::Chars;

use ipnet::IpNet;
use rpcrdma_nfs::server::{Admitted, ClientRule, Terms};

use self::options::{Choice, IGNORED};
use super::export::{ExportOption, check_name, parse_network};
use super::problems::{Position, Problems, text_of};

/// Exports of a file, and what the administrator should know about them.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) exports: Vec<ExportOption>,
    /// A line for each kind of option without effect, and for other surprises.
    pub(super) notes: Vec<String>,
    /// The host names with their addresses.
    pub(super) names: Names,
    /// Host names that have no address, neither now nor before.
    pub(super) missing: Vec<String>,
}

/// Addresses of host names.
pub(super) type Names = HashMap<String, Vec<IpAddr>>;

/// Source of the addresses of host names.
type Resolve<'a> = &'a dyn Fn(&str) -> Result<Vec<IpAddr>, String>;

/// Reads a file. Host names are looked up one after another. `before` has the addresses of an earlier reading.
///
/// # Errors
/// The faults of the file, a line each.
pub(super) fn read(path: &Path, before: &Names) -> Result<Listed, Vec<String>> {
    let resolve = |name: &str| match (name, 0).to_socket_addrs() {
        Ok(found) => Ok(found.map(|address| address.ip()).collect()),
        Err(error) => Err(error.to_string()),
    };
    parse(path, &text_of(path)?, before, &resolve)
}

fn parse(path: &Path, text: &str, before: &Names, resolve: Resolve<'_>) -> Result<Listed, Vec<String>> {
    let mut parser = Parser {
        cursor: Cursor { left: text.chars().peekable(), at: Position { line: 1, column: 1 } },
        problems: Problems::of(path),
        ignored: BTreeMap::new(),
        notes: Vec::new(),
        names: HashMap::new(),
        unresolved: BTreeMap::new(),
        exports: Vec::new(),
        places: HashMap::new(),
        before,
        kept: Vec::new(),
        resolve,
    };
    while parser.cursor.skip_to_line() {
        parser.line();
    }
    parser.finish()
}

/// Position in the text.
struct Cursor<'a> {
    left: Peekable<Chars<'a>>,
    at: Position,
}

impl Cursor<'_> {
    fn peek(&mut self) -> Option<char> {
        self.left.peek().copied()
    }

    /// Returns whether a line ends after the backslash that is next.
    fn is_continued(&self) -> bool {
        let mut after = self.left.clone();
        after.next() == Some('\\') && matches!(after.next(), Some('\n' | '\r'))
    }

    fn next(&mut self) -> Option<char> {
        let next = self.left.next()?;
        if next == '\n' {
            self.at = Position { line: self.at.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some(next)
    }

    /// Skips spaces and ends of lines that a backslash continues. Returns whether something is left on the line.
    fn skip_spaces(&mut self) -> bool {
        loop {
            match self.peek() {
                None | Some('\n') => return false,
                Some(' ' | '\t' | '\r') => drop(self.next()),
                Some('\\') if self.is_continued() => while self.next().is_some_and(|next| next != '\n') {},
                Some('#') => {
                    self.skip_line();
                    return false;
                }
                Some(_) => return true,
            }
        }
    }

    /// Skips the rest of the line, but not its end.
    fn skip_line(&mut self) {
        while self.peek().is_some_and(|next| next != '\n') {
            self.next();
        }
    }

    /// Skips lines without content. Returns whether there is another line.
    fn skip_to_line(&mut self) -> bool {
        while !self.skip_spaces() {
            if self.next().is_none() {
                return false;
            }
        }
        true
    }

    /// Returns the next word, with quotes and escapes undone; it ends before a space outside of quotes.
    fn word(&mut self) -> Result<String, (Position, String)> {
        let mut bytes = Vec::new();
        let (start, mut quoted) = (self.at, None);
        while let Some(next) = self.peek() {
            let ends = matches!(next, ' ' | '\t' | '\r' | '\n') && quoted.is_none();
            if ends || next == '\n' || (quoted.is_none() && self.is_continued()) {
                break;
            }
            let at = self.at;
            self.next();
            match next {
                '"' => quoted = if quoted.is_some() { None } else { Some(at) },
                '\\' => bytes.push(self.octal().map_err(|saw| {
                    (
                        at,
                        format!("saw {saw:?}, expected \\ and three octal digits, such as \\040 for a space"),
                    )
                })?),
                other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if let Some(at) = quoted {
            return Err((at, "saw a quotation mark, expected another one on this line".to_owned()));
        }
        String::from_utf8(bytes)
            .map_err(|_| (start, "saw escapes that make no UTF-8, expected text".to_owned()))
    }

    /// Returns the byte of three octal digits; otherwise what stands there.
    fn octal(&mut self) -> Result<u8, String> {
        let digits: String = self.left.clone().take(3).take_while(|next| *next != '\n').collect();
        match u8::from_str_radix(&digits, 8) {
            Ok(byte) if digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                for _ in 0..3 {
                    self.next();
                }
                Ok(byte)
            }
            _ => Err(format!("\\{digits}")),
        }
    }
}

/// A client as a line has it: the text in front of the options, and the options.
struct Client {
    at: Position,
    host: String,
    options: Option<Options>,
}

/// Options between parentheses, or after a dash.
struct Options {
    at: Position,
    text: String,
}

/// Clients that one export has so far.
struct Growing {
    /// Place of its first line.
    at: Position,
    option: ExportOption,
    /// Terms of everyone, if a line has them.
    everyone: Option<Terms>,
    groups: Vec<ClientRule>,
    seen: HashSet<IpNet>,
    /// Clients whose names have no address.
    missing: Vec<(Position, String, Terms)>,
}

/// A client whose name keeps addresses of an earlier reading.
struct Keeping {
    at: Position,
    /// Position of the export.
    export: usize,
    host: String,
    addresses: Vec<IpAddr>,
    terms: Terms,
}

/// Addresses of an earlier reading by which a name admits clients.
struct Kept {
    /// The first place of the name where it does.
    at: Position,
    /// Number of these places.
    count: usize,
    addresses: BTreeSet<IpAddr>,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    problems: Problems,
    /// Options without effect: the first place of each, and the number of places.
    ignored: BTreeMap<&'static str, (Position, usize)>,
    notes: Vec<String>,
    /// Addresses of host names.
    names: HashMap<String, Result<Vec<IpAddr>, String>>,
    /// Host names that have no address now: the first place of each, and the number of places.
    unresolved: BTreeMap<String, (Position, usize)>,
    exports: Vec<Growing>,
    /// Positions in `exports`.
    places: HashMap<String, usize>,
    before: &'a Names,
    /// Clients with addresses of an earlier reading.
    kept: Vec<Keeping>,
    resolve: Resolve<'a>,
}

impl Parser<'_> {
    fn note(&mut self, at: Position, text: &str) {
        let line = self.problems.line(at, text);
        self.notes.push(line);
    }

    /// Parses a line: a path and its clients. After a fault the rest of the line is skipped.
    fn line(&mut self) {
        let at = self.cursor.at;
        let parsed = self.path().and_then(|path| {
            let index = self.export(at, path);
            self.clients(at, index)
        });
        if let Err((at, fault)) = parsed {
            self.problems.add(at, fault);
            self.cursor.skip_line();
        }
    }

    fn path(&mut self) -> Result<String, (Position, String)> {
        let at = self.cursor.at;
        let word = self.cursor.word()?;
        let path = match word.trim_end_matches('/') {
            "" if word.starts_with('/') => "/".to_owned(),
            path => path.to_owned(),
        };
        if !path.starts_with('/') {
            return Err((at, format!("saw {word:?}, expected the path of a directory, which begins with /")));
        }
        check_name(&path)
            .map_err(|fault| (at, format!("saw {word:?}, expected a path as it is: {fault}")))?;
        Ok(path)
    }

    /// Returns the position of the export with this path.
    fn export(&mut self, at: Position, path: String) -> usize {
        if let Some(index) = self.places.get(&path) {
            return *index;
        }
        let mut option = ExportOption::root(path.clone().into());
        option.name.clone_from(&path);
        let (everyone, groups, seen, missing) = (None, Vec::new(), HashSet::new(), Vec::new());
        self.exports.push(Growing { at, option, everyone, groups, seen, missing });
        self.places.insert(path, self.exports.len() - 1);
        self.exports.len() - 1
    }

    fn clients(&mut self, start: Position, index: usize) -> Result<(), (Position, String)> {
        let mut defaults = Choice::usual();
        let (mut any, mut bare) = (false, None);
        while self.cursor.skip_spaces() {
            if self.cursor.peek() == Some('-') {
                self.cursor.next();
                let at = self.cursor.at;
                let text = self.cursor.word()?;
                self.apply(&mut defaults, &Options { at, text })?;
                continue;
            }
            let client = self.client()?;
            if let (Some(before), true) = (&bare, client.host.is_empty()) {
                return Err((
                    client.at,
                    format!(
                        "saw a space before \"(\", expected {before}(OPTIONS), or *(OPTIONS) for everyone"
                    ),
                ));
            }
            bare = client.options.is_none().then(|| client.host.clone());
            any = true;
            let mut choice = defaults.clone();
            if let Some(options) = &client.options {
                self.apply(&mut choice, options)?;
            }
            self.admit(index, &client, choice.terms())?;
        }
        if !any {
            self.note(start, "no client is named, so everyone may mount: write * to say so");
            let client = Client { at: start, host: String::new(), options: None };
            self.admit(index, &client, defaults.terms())?;
        }
        Ok(())
    }

    fn client(&mut self) -> Result<Client, (Position, String)> {
        let at = self.cursor.at;
        let mut host = String::new();
        while let Some(next) =
            self.cursor.peek().filter(|next| !matches!(next, ' ' | '\t' | '\r' | '\n' | '('))
        {
            if self.cursor.is_continued() {
                break;
            }
            host.push(next);
            self.cursor.next();
        }
        if self.cursor.peek() != Some('(') {
            return Ok(Client { at, host, options: None });
        }
        let open = self.cursor.at;
        self.cursor.next();
        let options = self.cursor.at;
        let mut text = String::new();
        loop {
            match self.cursor.peek() {
                Some(')') => break,
                Some(next) if !next.is_whitespace() && !self.cursor.is_continued() => {
                    text.push(next);
                    self.cursor.next();
                }
                _ => return Err((open, format!("saw \"({text}\", expected a \")\" without spaces before"))),
            }
        }
        self.cursor.next();
        Ok(Client { at, host, options: Some(Options { at: options, text }) })
    }

    /// Applies options.
    fn apply(&mut self, choice: &mut Choice, options: &Options) -> Result<(), (Position, String)> {
        let at = |column: usize| Position { column: options.at.column + column, ..options.at };
        let ignored = &mut self.ignored;
        let remember = |column, name| ignored.entry(name).or_insert((at(column), 0)).1 += 1;
        choice.apply(&options.text, remember).map_err(|(column, fault)| (at(column), fault))
    }

    /// Adds a client to an export.
    fn admit(&mut self, index: usize, client: &Client, terms: Terms) -> Result<(), (Position, String)> {
        let named = matches!(client.host.as_str(), "" | "*");
        let networks = if named { None } else { Some(self.networks(client)?) };
        let kept = if named { Vec::new() } else { self.kept(&client.host) };
        if !kept.is_empty() {
            let (at, host, terms) = (client.at, client.host.clone(), terms.clone());
            self.kept.push(Keeping { at, export: index, host, addresses: kept, terms });
            if networks.as_ref().is_some_and(|(networks, _)| networks.is_empty()) {
                return Ok(());
            }
        }
        if client.host.is_empty() && client.options.is_some() {
            self.note(client.at, "options without a client are for everyone: write *(OPTIONS) to say so");
        }
        // Without an address there is nothing to admit, and no group may come to be without a network.
        if networks.as_ref().is_some_and(|(networks, _)| networks.is_empty()) {
            let missing = (client.at, client.host.clone(), terms);
            self.exports.get_mut(index).into_iter().for_each(|export| export.missing.push(missing.clone()));
            return Ok(());
        }
        let mut repeated = Vec::new();
        let Some(export) = self.exports.get_mut(index) else { return Ok(()) };
        match networks {
            None if export.everyone.is_some() => {
                let fault = format!("saw everyone twice for {}, expected one entry", export.option.name);
                return Err((client.at, fault));
            }
            None => export.everyone = Some(terms),
            Some((networks, is_name)) => {
                let group = match export.groups.iter().position(|group| group.terms == terms) {
                    Some(group) => group,
                    None => {
                        export.groups.push(ClientRule { networks: Vec::new(), terms });
                        export.groups.len() - 1
                    }
                };
                for network in networks {
                    // Other servers take the first of several networks, and a single host before any.
                    let is_host = network.prefix_len() == network.max_prefix_len();
                    let others = export.groups.iter().enumerate().filter(|(other, _)| *other != group);
                    let mut before = others.flat_map(|(_, group)| &group.networks);
                    let wider = before.find(|wider| wider.contains(&network));
                    if let Some(wider) = wider.filter(|_| !is_host) {
                        let fault = format!(
                            "saw {network} behind {wider}, which contains it and has other options, expected the \
                             smaller network first"
                        );
                        return Err((client.at, fault));
                    }
                    if export.seen.insert(network) {
                        export
                            .groups
                            .get_mut(group)
                            .into_iter()
                            .for_each(|group| group.networks.push(network));
                    } else if is_name {
                        repeated.push(network);
                    } else {
                        let fault =
                            format!("saw {network} twice for {}, expected one entry", export.option.name);
                        return Err((client.at, fault));
                    }
                }
            }
        }
        for network in repeated {
            let text = format!("{} is {network}, which an entry before has: that entry decides", client.host);
            self.note(client.at, &text);
        }
        Ok(())
    }

    /// Returns the networks of a client, and whether it is named by a host name. A name without an address has none.
    fn networks(&mut self, client: &Client) -> Result<(Vec<IpNet>, bool), (Position, String)> {
        let (host, at) = (client.host.as_str(), client.at);
        let refused = |reason: &str| {
            Err((at, format!("saw {host:?}, expected an address, a network, a host name or *: {reason}")))
        };
        if host.starts_with('@') {
            return refused("netgroups are not asked; name the networks of their hosts");
        }
        if host.starts_with("gss/") {
            return refused("write *(sec=krb5) instead");
        }
        let inner = host.strip_prefix('[').and_then(|host| host.split_once(']'));
        if inner.is_some_and(|(address, _)| address.parse::<std::net::Ipv6Addr>().is_ok()) {
            return refused("IPv6 addresses stand without brackets");
        }
        if host.contains(['*', '?', '[']) {
            return refused(
                "wildcards would need the name of each caller, which the server does not ask for; name the networks",
            );
        }
        if host.contains('/') {
            let network = network(host).ok_or(());
            return network
                .map(|network| (vec![network], false))
                .or_else(|()| refused("after / comes the length of the prefix or an IPv4 netmask"));
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok((vec![address.into()], false));
        }
        // A resolver would fill the missing numbers up.
        if host.chars().all(|next| next.is_ascii_digit() || next == '.') {
            return refused("an IPv4 address has four numbers up to 255");
        }
        let resolve = self.resolve;
        let found = self.names.entry(host.to_owned()).or_insert_with(|| resolve(host));
        let networks = |found: &[IpAddr]| {
            let mut networks: Vec<IpNet> = found.iter().copied().map(IpNet::from).collect();
            networks.sort_unstable();
            networks.dedup();
            Ok((networks, true))
        };
        match found {
            Ok(found) if !found.is_empty() => networks(found),
            _ if !host.chars().all(|next| next.is_alphanumeric() || "-._".contains(next)) => {
                refused("it has characters that no name has")
            }
            _ => {
                self.unresolved.entry(host.to_owned()).or_insert((at, 0)).1 += 1;
                Ok((Vec::new(), true))
            }
        }
    }

    /// Returns the addresses that a host name had before, of each version of IP of which it has none now.
    fn kept(&self, host: &str) -> Vec<IpAddr> {
        let (Some(before), Some(found)) = (self.before.get(host), self.names.get(host)) else {
            return Vec::new();
        };
        let found = found.as_deref().unwrap_or_default();
        let has = |address: &&IpAddr| found.iter().any(|other| other.is_ipv4() == address.is_ipv4());
        before.iter().filter(|address| !has(address)).copied().collect()
    }

    /// Returns the addresses of all host names, for the next reading.
    fn addresses(&self) -> Names {
        let all = self.names.iter().map(|(name, found)| {
            let found = found.as_deref().unwrap_or_default();
            (name.clone(), found.iter().copied().chain(self.kept(name)).collect::<Vec<_>>())
        });
        all.filter(|(_, addresses)| !addresses.is_empty()).collect()
    }

    /// Admits clients with the addresses that they had before, where no other entry has these. Returns those addresses.
    fn admit_kept(&mut self) -> BTreeMap<String, Kept> {
        let mut all: BTreeMap<String, Kept> = BTreeMap::new();
        for Keeping { at, export, host, mut addresses, terms } in std::mem::take(&mut self.kept) {
            let Some(export) = self.exports.get_mut(export) else { continue };
            addresses.retain(|address| export.seen.insert(IpNet::from(*address)));
            if addresses.is_empty() {
                continue;
            }
            let networks = addresses.iter().copied().map(IpNet::from);
            match export.groups.iter_mut().find(|group| group.terms == terms) {
                Some(group) => group.networks.extend(networks),
                None => export.groups.push(ClientRule { networks: networks.collect(), terms }),
            }
            let kept = all.entry(host).or_insert(Kept { at, count: 0, addresses: BTreeSet::new() });
            kept.count += 1;
            kept.addresses.extend(addresses);
        }
        all
    }

    /// Returns the notes about host names without an address, or without one of a version of IP, in the order of their
    /// places.
    fn lacking(&self, kept: &BTreeMap<String, Kept>) -> Vec<String> {
        let listed = |kept: &Kept| {
            let addresses: Vec<String> = kept.addresses.iter().map(ToString::to_string).collect();
            addresses.join(", ")
        };
        let nowhere = self.unresolved.iter().map(|(name, (at, count))| {
            let reason = self.names.get(name).and_then(|found| found.as_ref().err());
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let effect = match (self.before.get(name), kept.get(name)) {
                (Some(_), Some(kept)) => {
                    format!("its entry keeps the addresses of an earlier reading, {}", listed(kept))
                }
                (Some(_), None) => "other entries have its addresses of an earlier reading".to_owned(),
                (None, _) => "its entry admits nobody until the file is read again".to_owned(),
            };
            (*at, format!("the host name {name} has no address now{reason}: {effect}{}", times(*count)))
        });
        let partly = kept.iter().filter(|(name, _)| !self.unresolved.contains_key(*name));
        let partly = partly.map(|(name, kept)| {
            let version = if kept.addresses.iter().all(IpAddr::is_ipv4) { "IPv4" } else { "IPv6" };
            let text = format!(
                "the host name {name} has no {version} address now: its entry keeps those of an earlier reading, {}, until \
                 the server restarts or a reload finds others{}",
                listed(kept),
                times(kept.count)
            );
            (kept.at, text)
        });
        let mut notes: Vec<(Position, String)> = nowhere.chain(partly).collect();
        notes.sort_by_key(|(at, _)| *at);
        notes.into_iter().map(|(at, text)| self.problems.line(at, &text)).collect()
    }

    fn finish(mut self) -> Result<Listed, Vec<String>> {
        let kept = self.admit_kept();
        let (addresses, lacking) = (self.addresses(), self.lacking(&kept));
        let Self { mut problems, ignored, mut notes, unresolved, exports, before, .. } = self;
        for (name, reason) in IGNORED {
            if let (Some(reason), Some((at, count))) = (reason, ignored.get(name)) {
                let more = times(*count);
                notes.push(problems.line(*at, &format!("{name} has no effect{more}: {reason}")));
            }
        }
        notes.extend(lacking);
        let missing = unresolved.keys().filter(|name| !before.contains_key(*name)).cloned().collect();
        for (at, fault) in exports.iter().flat_map(Growing::doubtful) {
            problems.add(at, fault);
        }
        for closed in exports.iter().filter(|export| export.is_closed()) {
            let text = format!("nobody may mount {}: none of its clients has an address", closed.option.name);
            notes.push(problems.line(closed.at, &text));
        }
        problems.check()?;
        let exports = exports.into_iter().map(Growing::finish).collect();
        Ok(Listed { exports, notes, names: addresses, missing })
    }
}

impl Growing {
    /// Returns whether no client is left.
    fn is_closed(&self) -> bool {
        self.everyone.is_none() && self.groups.is_empty()
    }

    /// Returns a fault for each host without an address that other clients of the export may contain, with other terms.
    fn doubtful(&self) -> impl Iterator<Item = (Position, String)> {
        self.missing.iter().filter_map(|(at, host, terms)| {
            let wide = |group: &&ClientRule| group.terms != *terms;
            let mut networks = self.groups.iter().filter(wide).flat_map(|group| &group.networks);
            let network = networks.find(|network| network.prefix_len() < network.max_prefix_len());
            let everyone = self.everyone.as_ref().filter(|everyone| *everyone != terms).map(|_| "*".to_owned());
            let wider = network.map(ToString::to_string).or(everyone)?;
            let fault = format!(
                "saw {host}, which has no address now, expected one: the host may belong to {wider}, which has other options"
            );
            Some((*at, fault))
        })
    }

    /// Returns the export. Everyone has its own terms, or else the first group of clients; without any, nobody has.
    fn finish(self) -> ExportOption {
        let Self { mut option, everyone, mut groups, .. } = self;
        let (allow, terms) = match everyone {
            Some(terms) => (Admitted::Everybody, terms),
            None if groups.is_empty() => (Admitted::Networks(Vec::new()), Choice::usual().terms()),
            None => {
                let ClientRule { networks, terms } = groups.remove(0);
                (Admitted::Networks(networks), terms)
            }
        };
        let Terms { read_only, secure, squash, anonymous, security, apart } = terms;
        option.allow = allow;
        option.read_only = read_only;
        option.secure = secure;
        option.squash = squash;
        option.anonymous = (anonymous.uid, anonymous.gid);
        option.security = security;
        option.apart = apart;
        option.rules = groups;
        option
    }
}

/// Returns how often something occurs, for a note; nothing for a single time.
fn times(count: usize) -> String {
    if count > 1 { format!(" ({count} times)") } else { String::new() }
}

/// Parses a network: an address, and the length of the prefix or an IPv4 netmask.
fn network(text: &str) -> Option<IpNet> {
    if let Ok(network) = parse_network(text) {
        return Some(network.trunc());
    }
    let (address, mask) = text.split_once('/')?;
    let (address, mask) = (address.parse().ok()?, mask.parse().ok()?);
    IpNet::with_netmask(address, mask).ok().map(|network| network.trunc())
}

#[cfg(test)]
mod tests;
