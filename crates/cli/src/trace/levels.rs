//! [`LogLevel`]: which events are lines of the log.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::VARIABLE;
use crate::exit::Failure;

/// Events of a server without any option: its service, and warnings.
const SERVICE: &str = "warn,rpcrdma::clients=info,rpcrdma::mounts=info,rpcrdma::reload=info,rpcrdma::handover=info,rpcrdma::stop=info";

/// A value of `--log-level`: the least severe level of all events, or of those of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogLevel {
    target: Option<String>,
    level: LevelFilter,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, level) = match text.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, text),
        };
        if let Some(target) = target {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
            if target.is_empty() || !target.chars().all(is_part) {
                return Err(format!("{target:?} is no target, such as rpcrdma::mounts or rpcrdma_nfs"));
            }
        }
        let level = match level {
            "off" => LevelFilter::OFF,
            "error" => LevelFilter::ERROR,
            "warn" => LevelFilter::WARN,
            "info" => LevelFilter::INFO,
            "debug" => LevelFilter::DEBUG,
            "trace" => LevelFilter::TRACE,
            _ => return Err(format!("{level:?} is no level: off, error, warn, info, debug or trace")),
        };
        Ok(Self { target: target.map(str::to_owned), level })
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(target) = &self.target {
            write!(f, "{target}=")?;
        }
        self.level.fmt(f)
    }
}

/// The choice of events without `--log-level`.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// Value of the environment variable.
    pub(super) variable: Option<String>,
    /// Number of `-v`.
    pub(super) verbose: u8,
    /// Whether the process is a server.
    pub(super) server: bool,
}

impl Base {
    /// Returns the filter for these levels. A level without a target replaces the environment variable, which replaces
    /// `-v`. Those with a target are added; the last one of a target counts.
    ///
    /// # Errors
    /// The environment variable is no filter.
    pub(super) fn filter(&self, levels: &[LogLevel]) -> Result<EnvFilter, Failure> {
        let for_all = levels.iter().rfind(|level| level.target.is_none());
        let first = match (for_all, &self.variable) {
            (Some(level), _) => level.to_string(),
            (None, Some(variable)) => variable.clone(),
            (None, None) => self.by_verbosity().to_owned(),
        };
        let mut filter = EnvFilter::try_new(&first)
            .map_err(|error| Failure::usage(format!("{VARIABLE}={first:?} is not a filter: {error}")))?;
        for level in levels.iter().filter(|level| level.target.is_some()) {
            let directive = level.to_string().parse();
            filter = filter.add_directive(
                directive.map_err(|error| Failure::usage(format!("--log-level {level}: {error}")))?,
            );
        }
        Ok(filter)
    }

    const fn by_verbosity(&self) -> &'static str {
        match (self.verbose, self.server) {
            (0, true) => SERVICE,
            (0, false) => "error",
            (1, _) => "info,rpcrdma::call=debug,rpcrdma::serve=debug",
            (2, _) => "debug",
            _ => "trace",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(texts: &[&str]) -> Vec<LogLevel> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn sorted(base: &Base, texts: &[&str]) -> Vec<String> {
        let filter = base.filter(&levels(texts)).unwrap().to_string();
        let mut directives: Vec<String> = filter.split(',').map(str::to_owned).collect();
        directives.sort();
        directives
    }

    #[test]
    fn a_level_for_all_replaces_the_variable_which_replaces_the_verbosity() {
        let mut base = Base { variable: None, verbose: 0, server: true };
        assert_eq!(
            sorted(&base, &[]),
            [
                "rpcrdma::clients=info",
                "rpcrdma::handover=info",
                "rpcrdma::mounts=info",
                "rpcrdma::reload=info",
                "rpcrdma::stop=info",
                "warn"
            ]
        );
        assert_eq!(
            sorted(&base, &["rpcrdma::mounts=off", "rpcrdma_nfs=debug"]),
            [
                "rpcrdma::clients=info",
                "rpcrdma::handover=info",
                "rpcrdma::mounts=off",
                "rpcrdma::reload=info",
                "rpcrdma::stop=info",
                "rpcrdma_nfs=debug",
                "warn"
            ]
        );
        assert_eq!(sorted(&base, &["rpcrdma::slow=info", "error"]), ["error", "rpcrdma::slow=info"]);
        base.verbose = 2;
        assert_eq!(sorted(&base, &["x=info", "x=warn"]), ["debug", "x=warn"]);
        base.variable = Some("rpcrdma_proto=trace".to_owned());
        assert_eq!(sorted(&base, &["x=info"]), ["rpcrdma_proto=trace", "x=info"]);
        assert_eq!(sorted(&base, &["debug", "info"]), ["info"]);
        base = Base { variable: Some("a=b=c".to_owned()), verbose: 0, server: false };
        let complaint = base.filter(&[]).unwrap_err().to_string();
        assert!(complaint.contains("RPCRDMA_LOG=\"a=b=c\" is not a filter"), "{complaint}");
    }

    #[test]
    fn a_wrong_level_names_the_right_ones() {
        for (text, words) in [
            ("loud", "off, error, warn, info, debug or trace"),
            ("rpcrdma::slow=", "\"\" is no level"),
            ("=info", "\"\" is no target"),
            ("a b=info", "\"a b\" is no target"),
        ] {
            let complaint = text.parse::<LogLevel>().unwrap_err();
            assert!(complaint.contains(words), "{complaint}");
        }
    }
}
