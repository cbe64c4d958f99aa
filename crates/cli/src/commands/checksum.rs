//! `rpcrdma checksum`: prints or checks checksums of files, in the form of `sha256sum`.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rpcrdma_nfs::client::{Client, Error, NfsUrl, Node};
use rpcrdma_nfs::wire::{FileHandle, FileType};
use serde::Serialize;
use sha2::{Digest, Sha256, Sha512};
use tokio::task::JoinHandle;

use super::Tally;
use super::visit::Visit;
use crate::arguments::{Common, Connection, pattern};
use crate::connect::{Location, Servers};
use crate::exit::Failure;
use crate::output::{self, Text};

const AFTER_HELP: &str = "\
Each line has the checksum and the name of a file, as sha256sum prints it and takes it with -c: the path below URL of a file in a tree, and \
the last name of a file given as URL. So the lines of checksum -r nfs://HOST/DIR suit a local copy of DIR, and those of sha256sum suit \
--check. The data is read by this machine.

--check prints NAME: OK or NAME: FAILED for each line of FILE. The exit code is 0 only if all files are as listed, 1 if none is.

--json prints {algorithm, checksums: [{url, name, checksum}]}, and with --check {algorithm, checks: [{url, name, result}]}; result is \
\"ok\", \"mismatch\" or \"failed\" (the file could not be read).";

/// Files that are read at the same time.
const AT_A_TIME: usize = 16;

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Algorithm {
    /// SHA-256 (FIPS 180-4)
    Sha256,
    /// SHA-512 (FIPS 180-4)
    Sha512,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Returns the number of hexadecimal digits of a checksum.
    const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

/// Print or check checksums of files. Symbolic links given as URL are followed
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Checksum {
    /// Files to read; names may have wildcards. With --check, the directory of the files in the list
    #[arg(required_unless_present = "check", value_name = "URL", value_parser = pattern)]
    urls: Vec<NfsUrl>,
    /// Read directories with everything in them
    #[arg(short, long)]
    recursive: bool,
    /// Algorithm of the checksums
    #[arg(short, long, value_enum, default_value_t = Algorithm::Sha256)]
    algorithm: Algorithm,
    /// Compare the files that this local list names, or - for standard input. Names in it are below URL, or URLs
    /// themselves
    #[arg(short, long, value_name = "FILE", conflicts_with = "recursive")]
    check: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Serialize)]
struct Document {
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksums: Option<Vec<Sum>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<Vec<Check>>,
}

#[derive(Serialize)]
struct Sum {
    url: String,
    name: String,
    checksum: String,
}

#[derive(Serialize)]
struct Check {
    url: String,
    name: String,
    result: &'static str,
}

/// A file that is being read.
struct Reading<'a> {
    location: &'a Location,
    url: NfsUrl,
    name: Vec<u8>,
    sum: JoinHandle<Result<String, Error>>,
}

/// Output of the command.
struct Out {
    json: bool,
    text: Text,
    document: Document,
}

impl Out {
    fn sum(&mut self, url: &NfsUrl, name: &[u8], checksum: String) -> Result<(), Failure> {
        if self.json {
            let name = String::from_utf8_lossy(name).into_owned();
            let sum = Sum { url: url.to_string(), name, checksum };
            self.document.checksums.get_or_insert_default().push(sum);
            return Ok(());
        }
        let (escaped, name) = escape(name);
        self.text.line_with_name(format_args!("{}{checksum}  ", if escaped { "\\" } else { "" }), &name)?;
        self.text.flush()
    }

    fn check(&mut self, url: &NfsUrl, name: &[u8], result: &'static str) -> Result<(), Failure> {
        if self.json {
            let name = String::from_utf8_lossy(name).into_owned();
            self.document.checks.get_or_insert_default().push(Check { url: url.to_string(), name, result });
            return Ok(());
        }
        let (_, name) = escape(name);
        let told = match result {
            "ok" => ": OK\n",
            "mismatch" => ": FAILED\n",
            _ => ": FAILED open or read\n",
        };
        self.text.name_until("", &name, b':')?;
        self.text.line(told.trim_start_matches(':').trim_end())?;
        self.text.flush()
    }
}

impl Checksum {
    pub(crate) async fn run(&self, common: Common) -> Result<(), Failure> {
        let mut servers = Servers::new(&self.connection);
        let mut tally = Tally::default();
        let document = Document { algorithm: self.algorithm.name(), checksums: None, checks: None };
        let mut out = Out { json: common.json, text: Text::stdout(), document };
        match &self.check {
            Some(list) => {
                out.document.checks = Some(Vec::new());
                self.compare(list, &mut servers, &mut tally, &mut out).await?;
            }
            None => {
                out.document.checksums = Some(Vec::new());
                for given in &self.urls {
                    for url in servers.expand(given).await? {
                        self.sums(&mut servers, &url, &mut tally, &mut out).await?;
                    }
                }
            }
        }
        if common.json {
            output::document(&out.document)?;
        }
        servers.close().await;
        tally.finish()
    }

    /// Prints the checksums of a file, or of all files in a directory.
    async fn sums(
        &self,
        servers: &mut Servers<'_>,
        url: &NfsUrl,
        tally: &mut Tally,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let start = find(servers, url).await;
        let Some((location, node)) = tally.count_none(start)? else { return Ok(()) };
        if node.attributes.is_directory() && !self.recursive {
            let wrong = Failure::failed(format!("{url} is a directory: add -r to read its files"));
            return tally.count_none::<()>(Err(wrong)).map(drop);
        }
        let mut visit = Visit::new(&location, url, node);
        let mut reading = VecDeque::new();
        while let Some(node) = visit.next_met(tally).await? {
            let named = visit.depth() == 0;
            match node.attributes.file_type {
                FileType::Regular => {}
                FileType::Directory => continue,
                _ if named => {
                    let wrong = Failure::failed(format!("{url} is not a regular file"));
                    tally.count_none::<()>(Err(wrong))?;
                    continue;
                }
                // Links, devices and pipes in a tree have no content of their own.
                _ => continue,
            }
            let name = if named {
                url.file_name().unwrap_or_default().to_vec()
            } else {
                visit.names().join(b"/".as_slice())
            };
            let sum = self.read(&location.client, node.handle, &location.path);
            reading.push_back(Reading { location: &location, url: visit.url(), name, sum });
            if reading.len() >= AT_A_TIME {
                first(&mut reading, tally, out).await?;
            }
        }
        while !reading.is_empty() {
            first(&mut reading, tally, out).await?;
        }
        Ok(())
    }

    /// Begins to read a file.
    fn read(&self, client: &Client, file: FileHandle, path: &[u8]) -> JoinHandle<Result<String, Error>> {
        let (file, algorithm) = (client.file(file, path), self.algorithm);
        tokio::spawn(async move {
            let mut pieces = file.read_stream(0, None).await?;
            let (mut short, mut long) = (Sha256::new(), Sha512::new());
            while let Some(piece) = pieces.next().await? {
                match algorithm {
                    Algorithm::Sha256 => short.update(&piece),
                    Algorithm::Sha512 => long.update(&piece),
                }
            }
            Ok(match algorithm {
                Algorithm::Sha256 => hex(&short.finalize()),
                Algorithm::Sha512 => hex(&long.finalize()),
            })
        })
    }

    /// Compares the files of a list with their checksums in it.
    async fn compare(
        &self,
        list: &Path,
        servers: &mut Servers<'_>,
        tally: &mut Tally,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let base = match self.urls.as_slice() {
            [] => None,
            [base] => Some(base.literal()),
            _ => return Err(Failure::usage("--check takes one URL, the directory of the files in the list")),
        };
        let content = read_list(list)?;
        let shown = list.display();
        let mut wrong = 0_usize;
        let mut some = false;
        for line in content.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let Some((expected, name)) = parse_line(line, self.algorithm.digits()) else {
                wrong += 1;
                continue;
            };
            some = true;
            let url = match (url_of(&name), &base) {
                (Some(url), _) => url?,
                (None, Some(base)) => base
                    .below(name.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")),
                (None, None) => {
                    return Err(Failure::usage(format!(
                        "{shown} has names that are no URLs: add the URL of their directory"
                    )));
                }
            };
            let read = self.checksum_of(servers, &url).await;
            let result = match read {
                Ok(sum) if sum.eq_ignore_ascii_case(&expected) => Ok("ok"),
                Ok(_) => Err((Failure::failed(format!("{url}: its checksum is another one")), "mismatch")),
                Err(failure) => Err((failure, "failed")),
            };
            out.check(&url, &name, result.as_ref().map_or_else(|(_, result)| *result, |result| *result))?;
            tally.count(result.map_err(|(failure, _)| failure))?;
        }
        if !some {
            let what = self.algorithm.name();
            return Err(Failure::failed(format!("{shown} has no line with a {what} checksum and a name")));
        }
        if wrong > 0 {
            output::warn(format_args!("{shown}: {wrong} lines have no checksum and name"));
        }
        Ok(())
    }

    async fn checksum_of(&self, servers: &mut Servers<'_>, url: &NfsUrl) -> Result<String, Failure> {
        let (location, node) = find(servers, url).await?;
        if node.attributes.file_type != FileType::Regular {
            return Err(Failure::failed(format!("{url} is not a regular file")));
        }
        let sum = self.read(&location.client, node.handle, &location.path).await;
        finished(sum)?.map_err(|error| location.failure(error))
    }
}

/// Takes the first of the files that are read, and prints its checksum.
async fn first(reading: &mut VecDeque<Reading<'_>>, tally: &mut Tally, out: &mut Out) -> Result<(), Failure> {
    let Some(Reading { location, url, name, sum }) = reading.pop_front() else { return Ok(()) };
    let sum = finished(sum.await)?.map_err(|error| location.failure_at(&url, error));
    match tally.count(sum)? {
        Some(sum) => out.sum(&url, &name, sum),
        None => Ok(()),
    }
}

/// Returns the result of a task.
fn finished<T>(task: Result<T, tokio::task::JoinError>) -> Result<T, Failure> {
    task.map_err(|error| Failure::failed(format!("a task failed: {error}")))
}

async fn find(servers: &mut Servers<'_>, url: &NfsUrl) -> Result<(Location, Node), Failure> {
    let location = servers.locate(url).await?;
    let found = location.client.lookup(&location.path).await;
    let node = found.map_err(|error| location.failure(error))?;
    Ok((location, node))
}

/// Longest list that is read, in bytes.
const LIST: u64 = 1 << 30;

fn read_list(list: &Path) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let read = if list == Path::new("-") {
        io::stdin().lock().take(LIST).read_to_end(&mut content)
    } else {
        fs::File::open(list).and_then(|file| file.take(LIST).read_to_end(&mut content))
    };
    read.map_err(|error| Failure::failed(format!("cannot read {}: {error}", list.display())))?;
    Ok(content)
}

/// Returns the URL, if a name in a list is one.
fn url_of(name: &[u8]) -> Option<Result<NfsUrl, Failure>> {
    let text = std::str::from_utf8(name).ok().filter(|text| text.starts_with("nfs://"))?;
    let url = text.parse().map_err(|error: rpcrdma_nfs::client::UrlError| Failure::failed(error.to_string()));
    Some(url)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a name as lists have it, and whether a backslash begins the line. If so, `\n`, `\r` and `\\` in the name stand for
/// a newline, a carriage return and a backslash.
fn escape(name: &[u8]) -> (bool, Vec<u8>) {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            byte => escaped.push(byte),
        }
    }
    (escaped.len() != name.len(), escaped)
}

/// Returns checksum and name of a line with a checksum of this many digits: `SUM  NAME` or `SUM *NAME`.
fn parse_line(line: &[u8], digits: usize) -> Option<(String, Vec<u8>)> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let (sum, rest) = line.split_at_checked(digits)?;
    let name = rest.strip_prefix(b"  ").or_else(|| rest.strip_prefix(b" *"))?;
    if name.is_empty() || !sum.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let sum = String::from_utf8_lossy(sum).into_owned();
    if !escaped {
        return Some((sum, name.to_vec()));
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some((sum, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_lists() {
        let sum = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";
        for (name, escaped) in [(b"a b".as_slice(), false), (b"a\nb\\c\rd", true), (b"\xff", false)] {
            let (special, shown) = escape(name);
            assert_eq!(special, escaped);
            let mut line = format!("{}{sum}  ", if special { "\\" } else { "" }).into_bytes();
            line.extend(shown);
            assert_eq!(parse_line(&line, 64), Some((sum.to_owned(), name.to_vec())));
        }
        let parsed = |line: String| parse_line(line.as_bytes(), 64).map(|(_, name)| name);
        assert_eq!(parsed(format!("{sum} *x")), Some(b"x".to_vec()));
        for line in [
            String::new(),
            sum.to_owned(),
            format!("{sum}  "),
            format!("{sum} x"),
            format!("{sum}\tx"),
            format!("x{sum}  x"),
            format!("\\{sum}  \\x"),
            format!("SHA256 (x) = {sum}"),
        ] {
            assert_eq!(parsed(line.clone()), None, "{line}");
        }
        assert_eq!(parse_line(format!("{sum}  x").as_bytes(), 128), None);
    }
}
