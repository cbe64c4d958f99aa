//! Options `--exclude`, `--include` and `--exclude-from`, whose order on the command line counts.

use std::fs;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use rpcrdma_nfs::client::Filter;

use crate::exit::Failure;

/// A pattern, or a file of patterns.
#[derive(Clone, Debug)]
enum Given {
    Exclude(String),
    Include(String),
    ExcludeFrom(PathBuf),
}

/// Options for patterns, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    given: Vec<Given>,
}

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";
const EXCLUDE_FROM: &str = "exclude_from";

impl Filters {
    /// Returns the patterns. Reads the files that have some.
    ///
    /// # Errors
    /// A pattern is malformed, or a file cannot be read.
    pub(super) fn filter(&self) -> Result<Filter, Failure> {
        let mut filter = Filter::default();
        for given in &self.given {
            let added = match given {
                Given::Exclude(pattern) => filter.exclude(pattern),
                Given::Include(pattern) => filter.include(pattern),
                Given::ExcludeFrom(path) => {
                    let text = fs::read_to_string(path).map_err(|error| {
                        Failure::usage(format!("cannot read the patterns in {}: {error}", path.display()))
                    })?;
                    filter
                        .exclude_lines(&text)
                        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
                    Ok(())
                }
            };
            added.map_err(|error| Failure::usage(error.to_string()))?;
        }
        Ok(filter)
    }

    /// Returns whether there are no patterns.
    pub(super) fn is_empty(&self) -> bool {
        self.given.is_empty()
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        let texts = |id| {
            let values = matches.get_many::<String>(id).into_iter().flatten().cloned();
            matches.indices_of(id).into_iter().flatten().zip(values)
        };
        given.extend(texts(EXCLUDE).map(|(index, text)| (index, Given::Exclude(text))));
        given.extend(texts(INCLUDE).map(|(index, text)| (index, Given::Include(text))));
        let files = matches.get_many::<PathBuf>(EXCLUDE_FROM).into_iter().flatten();
        let indices = matches.indices_of(EXCLUDE_FROM).into_iter().flatten();
        given.extend(indices.zip(files.cloned().map(Given::ExcludeFrom)));
        given.sort_by_key(|(index, _)| *index);
        Ok(Self { given: given.into_iter().map(|(_, given)| given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Filters {
    fn augment_args(command: Command) -> Command {
        command
            .arg(
                Arg::new(EXCLUDE)
                    .long("exclude")
                    .value_name("PATTERN")
                    .action(ArgAction::Append)
                    .help("Leave out what matches PATTERN in a tree; may be repeated"),
            )
            .arg(
                Arg::new(INCLUDE)
                    .long("include")
                    .value_name("PATTERN")
                    .action(ArgAction::Append)
                    .help("Copy what matches PATTERN, whatever later patterns say; may be repeated"),
            )
            .arg(
                Arg::new(EXCLUDE_FROM)
                    .long("exclude-from")
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .value_parser(value_parser!(PathBuf))
                    .help("Take patterns from FILE, one a line; \"+ \" in front stands for --include"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filters: Filters,
    }

    fn filter(arguments: &[&str]) -> Result<Filter, String> {
        let line = Line::try_parse_from([&["get"], arguments].concat()).unwrap();
        line.filters.filter().map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_order_of_the_command_line_counts() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("patterns");
        fs::write(&file, "# sources\n+ *.rs\n*.c\n").unwrap();
        let file = file.to_str().unwrap();
        let out =
            |arguments: &[&str], name: &str| filter(arguments).unwrap().is_excluded(name.as_bytes(), false);
        assert!(out(&["--exclude", "*.c", "--include", "a.c"], "a.c"));
        assert!(!out(&["--include", "a.c", "--exclude", "*.c"], "a.c"));
        assert!(!out(&["--exclude-from", file, "--exclude", "*"], "a.rs"));
        assert!(out(&["--exclude", "*", "--exclude-from", file], "a.rs"));
        assert!(out(&["--exclude=x", "--exclude-from", file], "a.c"));
        assert!(filter(&["--exclude", "a**b"]).unwrap_err().contains("a**b"));
        assert!(
            filter(&["--exclude-from", "/nonexistent"]).unwrap_err().contains("cannot read the patterns")
        );
    }
}
