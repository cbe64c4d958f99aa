//! The builds whose tests `.ci/run` runs: targets of the workspace, and the conditions (`cfg`) that hold in each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Lit, Meta, Token};

use crate::failure::{Context, Failure, ensure};

/// The package that `.ci/run` also tests without its default features.
const ALSO_WITHOUT_FEATURES: &str = "rpcrdma-proto";
/// The conditions without a value that hold in every build for tests.
const FLAGS: [&str; 3] = ["test", "debug_assertions", "unix"];
/// The conditions with a value that hold on the machines of `.ci/run`.
const VALUES: [(&str, &str); 3] =
    [("target_os", "linux"), ("target_family", "unix"), ("target_pointer_width", "64")];

/// One build of a target for its tests.
#[derive(Debug, Default)]
pub(crate) struct Build {
    /// The root file of the target.
    pub(crate) root: PathBuf,
    pub(crate) features: BTreeSet<String>,
}

impl Build {
    /// Whether the condition of a `cfg` holds. An unknown condition does not.
    pub(crate) fn holds(&self, condition: &Meta) -> bool {
        match condition {
            Meta::Path(path) => FLAGS.iter().any(|flag| path.is_ident(flag)),
            Meta::NameValue(pair) => {
                let Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) = &pair.value else { return false };
                let value = value.value();
                VALUES.iter().any(|(name, due)| pair.path.is_ident(name) && value == *due)
                    || pair.path.is_ident("feature") && self.features.contains(&value)
            }
            Meta::List(list) => {
                let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
                    return false;
                };
                let mut parts = parts.iter().map(|part| self.holds(part));
                if list.path.is_ident("all") {
                    parts.all(|holds| holds)
                } else if list.path.is_ident("any") {
                    parts.any(|holds| holds)
                } else {
                    list.path.is_ident("not") && parts.next() == Some(false)
                }
            }
        }
    }
}

/// Output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    features: BTreeMap<String, Vec<String>>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
    /// Whether `cargo test` runs its tests: not so for benches and most examples.
    test: bool,
    #[serde(default, rename = "required-features")]
    required_features: Vec<String>,
}

/// Returns the builds of the workspace.
pub(crate) fn of_workspace(project: &Path) -> Result<Vec<Build>, Failure> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(project).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    of_metadata(&String::from_utf8_lossy(&output.stdout))
}

fn of_metadata(json: &str) -> Result<Vec<Build>, Failure> {
    let metadata: Metadata = serde_json::from_str(json).context("the output of cargo metadata")?;
    let mut builds = Vec::new();
    for package in metadata.packages {
        let mut sets = vec![default_features(&package.features)];
        if package.name == ALSO_WITHOUT_FEATURES {
            sets.push(BTreeSet::new());
        }
        for target in package.targets.iter().filter(|target| target.test) {
            let able = |features: &&BTreeSet<String>| {
                target.required_features.iter().all(|feature| features.contains(feature))
            };
            let build = |features: &BTreeSet<String>| Build {
                root: target.src_path.clone(),
                features: features.clone(),
            };
            builds.extend(sets.iter().filter(able).map(build));
        }
    }
    Ok(builds)
}

/// Returns the features that `default` enables, directly or not.
fn default_features(all: &BTreeMap<String, Vec<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec!["default".to_owned()];
    while let Some(feature) = open.pop() {
        if let Some(enabled) = all.get(&feature)
            && found.insert(feature)
        {
            open.extend(enabled.iter().cloned());
        }
    }
    found
}

#[cfg(test)]
mod tests;
