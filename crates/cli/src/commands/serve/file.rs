//! `serve --config FILE`: options from a file in TOML.
//!
//! The keys are the long names of the options of `serve`. A value becomes the word that the command line would have, and the
//! parser of the command line takes it. So each option is defined once, and a wrong value has the message of that parser
//! with its place in the file. Options that occur several times are lists. Exports are tables `[[export]]`, whose keys
//! are the parts of `--export`.
//!
//! An option on the command line replaces the key of the file, lists too. A directory on the command line replaces the
//! tables `[[export]]`.
//!
//! *Buffers.* The text of the file while it is read.
//!
//! *Errors.* Lines `FILE:LINE:COLUMN: KEY: saw X, expected Y`, for all faults of the file at once.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::export::{ExportOption, check_name};
use super::exports5::{self, Listed, Names};
use super::problems::{Places, Position, Problems, nearest, text_of};

/// Key of the exports.
const EXPORT: &str = "export";
/// Options that have no meaning in a file.
const ELSEWHERE: [&str; 4] = ["config", "check", "help", "version"];
/// Keys of a table `[[export]]`.
const EXPORT_KEYS: [&str; 11] =
    ["name", "directory", "ro", "rw", "secure", "insecure", "allow", "squash", "sec", "anonuid", "anongid"];

/// Options about files with options.
#[derive(Debug, Args)]
pub(super) struct Files {
    /// Take options from FILE, in TOML: the keys are the long names of these options. Each export is a table
    /// [[export]] with name, directory, and the options of --export. The command line goes first.
    /// SIGHUP makes the server read the exports again
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    config: Option<PathBuf>,
    /// Export the directories that FILE lists in the form of exports(5), as /etc/exports does. SIGHUP makes
    /// the server read FILE again
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    exports: Option<PathBuf>,
    /// Directory in which exports may lie that come by SIGHUP, beside those of the start; can be given several
    /// times
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    reload_below: Vec<PathBuf>,
    /// Check the options and files, say whether they are good, and end. Nothing is opened for clients
    #[arg(long, help_heading = FILES)]
    check: bool,
    /// The command line, for another reading.
    #[arg(skip)]
    words: Vec<OsString>,
    /// Content of the file of `--config`.
    #[arg(skip)]
    read: FromFile,
    /// Addresses of host names, from the last reading of the file of `--exports`.
    #[arg(skip)]
    names: Arc<Mutex<Names>>,
}

const FILES: &str = "Files with options";

impl Files {
    /// Returns the addresses of host names of the last reading, which clones share.
    pub(super) fn names(&self) -> Arc<Mutex<Names>> {
        Arc::clone(&self.names)
    }

    /// Takes the addresses of an earlier reading over.
    pub(super) fn go_on_with(&mut self, names: Arc<Mutex<Names>>) {
        self.names = names;
    }

    /// Keeps the addresses of host names for the next reading, once the exports of this one are in force.
    pub(super) fn remember(&self, names: Names) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Returns the file of `--config`.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Returns whether the options are to be checked only.
    pub(super) fn are_checked(&self) -> bool {
        self.check
    }

    /// Returns the directories in which later exports may lie.
    pub(super) fn reload_below(&self) -> &[PathBuf] {
        &self.reload_below
    }

    /// Keeps the command line, and what the file has.
    pub(super) fn keep(&mut self, words: Vec<OsString>, read: FromFile) {
        (self.words, self.read) = (words, read);
    }

    /// Returns the command line.
    pub(super) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Returns the keys of the file that are in force, with their values.
    pub(super) fn keys(&self) -> &BTreeMap<String, Vec<String>> {
        &self.read.keys
    }

    /// Returns the files with their options.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let named = [("--config", &self.config), ("--exports", &self.exports)];
        named.into_iter().filter_map(|(option, path)| Some((option, path.clone()?)))
    }

    /// Returns the exports of the files.
    ///
    /// # Errors
    /// The faults of the file of `--exports`.
    pub(super) fn exports(&self) -> Result<Listed, Vec<String>> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let read = self.exports.as_deref().map(|file| exports5::read(file, &names));
        let mut listed = read.transpose()?.unwrap_or_default();
        listed.exports.splice(0..0, self.read.exports.iter().cloned());
        Ok(listed)
    }
}

/// Options that a file has.
#[derive(Debug, Default)]
pub(super) struct FromFile {
    /// Words for the parser of the command line.
    words: Vec<OsString>,
    /// The keys in force with their values, for comparison.
    keys: BTreeMap<String, Vec<String>>,
    /// Places of the keys.
    places: BTreeMap<String, Position>,
    exports: Vec<ExportOption>,
}

impl FromFile {
    /// Reads a file. `serve` declares the options; `given` are those of the command line, which replace those of the file.
    ///
    /// # Errors
    /// The faults of the file, a line each.
    pub(super) fn read(path: &Path, serve: &Command, given: &ArgMatches) -> Result<Self, Vec<String>> {
        Self::parse(path, &text_of(path)?, serve, given)
    }

    fn parse(path: &Path, text: &str, serve: &Command, given: &ArgMatches) -> Result<Self, Vec<String>> {
        let mut problems = Problems::of(path);
        let (table, faults) = DeTable::parse_recoverable(text);
        let faults = faults.iter().map(|fault| {
            let byte = fault.span().map_or(0, |span| span.start);
            (byte, format!("no TOML: {}", fault.message().replace('\n', ", ")))
        });
        problems.add_all(text, faults.collect());
        // Further faults may only follow from a fault of the form.
        problems.check()?;
        let mut reader =
            Reader { serve, given, faults: Vec::new(), places: Vec::new(), read: Self::default() };
        for (key, value) in table.get_ref() {
            reader.key(key, value);
        }
        let Reader { faults, mut places, mut read, .. } = reader;
        let mut problems = Problems::of(path);
        problems.add_all(text, faults);
        problems.check()?;
        places.sort_unstable();
        let mut passage = Places::of(text);
        read.places = places.into_iter().map(|(byte, key)| (key, passage.at(byte))).collect();
        Ok(read)
    }

    /// Returns the command line with the options of the file, which stand behind the command.
    pub(super) fn with(&self, words: &[OsString]) -> Vec<OsString> {
        let is_command = |word: &OsString| !word.to_str().is_some_and(|word| word.starts_with('-'));
        let command = words.iter().skip(1).position(is_command).map_or(words.len(), |index| index + 2);
        let (before, after) = words.split_at(command.min(words.len()));
        before.iter().chain(&self.words).chain(after).cloned().collect()
    }

    /// Returns the line for an error of the options together, if it is about a key of the file.
    pub(super) fn locate(&self, path: &Path, error: &clap::Error) -> Option<String> {
        let names = error.context().filter_map(|(_, value)| match value {
            ContextValue::String(name) => Some(vec![name.as_str()]),
            ContextValue::Strings(names) => Some(names.iter().map(String::as_str).collect()),
            _ => None,
        });
        let names: Vec<&str> = names.flatten().collect();
        let (key, at) = names.iter().find_map(|name| {
            let name = name.strip_prefix("--")?.split([' ', '=']).next()?;
            self.places.get_key_value(name)
        })?;
        let text = error.to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        let message = lines.collect::<Vec<_>>().join(" ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        Some(Problems::of(path).line(*at, &format!("{key}: {message}")))
    }
}

/// Returns how a value looks in a message.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Integer(_) | DeValue::Float(_) => scalar(value).unwrap_or_else(|| "a number".to_owned()),
    }
}

/// Returns the word of the command line for a text or a number.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

/// Reads the keys of a file.
///
/// Lines and columns are counted at the end, in one passage: a count for each key would read the text once for each key.
struct Reader<'a> {
    serve: &'a Command,
    given: &'a ArgMatches,
    /// Faults, each with its byte in the text.
    faults: Vec<(usize, String)>,
    /// Bytes of the keys in force.
    places: Vec<(usize, String)>,
    read: FromFile,
}

type Value<'i> = Spanned<DeValue<'i>>;

/// Returns the byte at which something begins.
fn at<T>(spanned: &Spanned<T>) -> usize {
    spanned.span().start
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, key: &str, saw: &str, expected: &str) {
        self.faults.push((at, format!("{key}: saw {saw}, expected {expected}")));
    }

    /// Returns whether the command line has an option itself.
    fn is_given(&self, id: &str) -> bool {
        let has = self.given.try_contains_id(id).is_ok();
        has && self.given.value_source(id) == Some(ValueSource::CommandLine)
    }

    fn key(&mut self, key: &Spanned<std::borrow::Cow<'_, str>>, value: &Value<'_>) {
        let (at, name) = (at(key), key.get_ref().as_ref());
        if name == EXPORT {
            return self.exports(value);
        }
        let serve = self.serve;
        let is_key = |long: &str| !ELSEWHERE.contains(&long);
        let options: Vec<&Arg> =
            serve.get_arguments().filter(|option| option.get_long().is_some_and(is_key)).collect();
        let Some(option) = options.iter().find(|option| option.get_long() == Some(name)) else {
            if ELSEWHERE.contains(&name) {
                return self.fault(at, name, "an option of the command line", "it there alone");
            }
            let names = options.iter().filter_map(|option| option.get_long());
            let expected = match nearest(name, names) {
                Some(near) => format!("{near:?}"),
                None => "the long name of an option that rpcrdma serve --help shows".to_owned(),
            };
            return self.fault(at, name, "an unknown key", &expected);
        };
        let Some(words) = self.words(option, name, value) else { return };
        if self.is_given(option.get_id().as_str()) {
            return;
        }
        let value = |word: &OsString| match word.to_string_lossy().split_once('=') {
            Some((_, value)) => value.to_owned(),
            None => "true".to_owned(),
        };
        self.read.keys.insert(name.to_owned(), words.iter().map(value).collect());
        self.places.push((at, name.to_owned()));
        self.read.words.extend(words);
    }

    /// Returns the words of the command line for a value of an option. `None` if there is a fault.
    fn words(&mut self, option: &Arg, name: &str, value: &Value<'_>) -> Option<Vec<OsString>> {
        let at = at(value);
        let flag = OsString::from(format!("--{name}"));
        match (option.get_action(), value.get_ref()) {
            (ArgAction::SetTrue, DeValue::Boolean(set)) => Some(if *set { vec![flag] } else { Vec::new() }),
            (ArgAction::SetTrue, other) => {
                self.fault(at, name, &shown(other), "true or false");
                None
            }
            (ArgAction::Count, DeValue::Integer(count)) => match count.as_str().parse::<u8>() {
                Ok(count @ 0..=3) => Some(vec![flag; count.into()]),
                _ => {
                    self.fault(at, name, &shown(value.get_ref()), "a number from 0 to 3");
                    None
                }
            },
            (ArgAction::Append, DeValue::Array(values)) => {
                let words = values.iter().map(|value| self.word(option, name, value));
                // All faults are told.
                let words: Vec<Option<OsString>> = words.collect();
                words.into_iter().collect()
            }
            _ => self.word(option, name, value).map(|word| vec![word]),
        }
    }

    /// Returns the word for one value, if the parser of the option takes it.
    fn word(&mut self, option: &Arg, name: &str, value: &Value<'_>) -> Option<OsString> {
        let at = at(value);
        let kind = option.get_value_names().and_then(<[_]>::first).map_or("a value", |name| name.as_str());
        let Some(text) = scalar(value.get_ref()) else {
            let list =
                if matches!(option.get_action(), ArgAction::Append) { ", or a list of them" } else { "" };
            let expected = format!("{kind} as a text or number{list}");
            self.fault(at, name, &shown(value.get_ref()), &expected);
            return None;
        };
        let word = OsString::from(format!("--{name}={text}"));
        let alone = self.serve.clone().try_get_matches_from([OsString::from("serve"), word.clone()]);
        // Others say that something else is missing.
        let expected = match alone
            .err()
            .filter(|error| matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation))
        {
            None => return Some(word),
            Some(error) => match (error.source(), error.get(ContextKind::ValidValue)) {
                (Some(reason), _) => format!("{kind}: {reason}"),
                (None, Some(ContextValue::Strings(values))) => format!("one of {}", values.join(", ")),
                (None, _) => kind.to_owned(),
            },
        };
        self.fault(at, name, &shown(value.get_ref()), &expected);
        None
    }

    fn exports(&mut self, value: &Value<'_>) {
        let expected = "tables [[export]]";
        let DeValue::Array(tables) = value.get_ref() else {
            return self.fault(at(value), EXPORT, &shown(value.get_ref()), expected);
        };
        let is_replaced = self.is_given(EXPORT) || self.is_given("directory");
        for table in tables {
            let DeValue::Table(keys) = table.get_ref() else {
                self.fault(at(table), EXPORT, &shown(table.get_ref()), expected);
                continue;
            };
            let export = self.export(at(table), keys);
            self.read.exports.extend(export.filter(|_| !is_replaced));
        }
    }

    /// Returns the export of a table. `None` if there is a fault.
    fn export(&mut self, start: usize, table: &DeTable<'_>) -> Option<ExportOption> {
        let mut export = ExportOption::root(PathBuf::new());
        let (mut named, mut has_directory, mut good) = (false, false, true);
        let mut alternatives = BTreeMap::new();
        for (key, value) in table {
            let (place, name) = (at(value), key.get_ref().as_ref());
            let full = format!("{EXPORT}.{name}");
            let result = match (name, value.get_ref()) {
                ("name", DeValue::String(text)) => {
                    named = true;
                    export.name = text.to_string();
                    check_name(text).map_err(|fault| format!("a path: {fault}"))
                }
                ("directory", DeValue::String(text)) if !text.is_empty() => {
                    has_directory = true;
                    export.directory = PathBuf::from(text.as_ref());
                    Ok(())
                }
                ("name" | "directory", _) => Err("a path as a text".to_owned()),
                ("ro" | "rw" | "secure" | "insecure", DeValue::Boolean(set)) => {
                    let kind = if matches!(name, "ro" | "rw") { "ro or rw" } else { "secure or insecure" };
                    if *set && alternatives.insert(kind, ()).is_some() {
                        Err(format!("one of {kind}"))
                    } else if *set {
                        export.apply(name)
                    } else {
                        Ok(())
                    }
                }
                ("ro" | "rw" | "secure" | "insecure", _) => Err("true or false".to_owned()),
                // An empty list would admit everybody.
                ("allow", DeValue::Array(networks)) if networks.is_empty() => Err(
                    "at least one network, or \"none\" for nobody (without this key, all clients may mount)"
                        .to_owned(),
                ),
                ("allow", DeValue::Array(networks)) => {
                    for network in networks {
                        good &= self.part(&mut export, (&full, name), network);
                    }
                    Ok(())
                }
                ("sec", DeValue::Array(flavors)) => flavors_of(flavors).and_then(|text| export.apply(&text)),
                (name, _) if EXPORT_KEYS.contains(&name) => {
                    good &= self.part(&mut export, (&full, name), value);
                    Ok(())
                }
                (name, _) => {
                    let near = nearest(name, EXPORT_KEYS);
                    let expected = near.map_or_else(|| EXPORT_KEYS.join(", "), |near| format!("{near:?}"));
                    let place = at(key);
                    self.fault(place, &full, "an unknown key", &expected);
                    good = false;
                    Ok(())
                }
            };
            if let Err(expected) = result {
                good = false;
                self.fault(place, &full, &shown(value.get_ref()), &expected);
            }
        }
        for (there, key) in [(named, "name"), (has_directory, "directory")] {
            if !there && !table.keys().any(|given| given.get_ref() == key) {
                good = false;
                self.fault(start, EXPORT, &format!("no {key}"), &format!("{key} = \"PATH\""));
            }
        }
        good.then_some(export)
    }

    /// Applies a value as the option of `--export` with this name. Returns whether that succeeds.
    fn part(&mut self, export: &mut ExportOption, (full, name): (&str, &str), value: &Value<'_>) -> bool {
        let applied = match scalar(value.get_ref()) {
            Some(text) => export.apply(&format!("{name}={text}")),
            None => Err("a text or number".to_owned()),
        };
        if let Err(expected) = &applied {
            self.fault(at(value), full, &shown(value.get_ref()), expected);
        }
        applied.is_ok()
    }
}

/// Returns the option `sec=` for a list of flavours.
fn flavors_of(flavors: &toml::de::DeArray<'_>) -> Result<String, String> {
    let names: Option<Vec<String>> = flavors.iter().map(|flavor| scalar(flavor.get_ref())).collect();
    names.map(|names| format!("sec={}", names.join(":"))).ok_or_else(|| "a list of texts".to_owned())
}

#[cfg(test)]
mod tests;
