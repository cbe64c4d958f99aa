//! Needs of a task on the machine that it runs on: rights, and programs.

use std::path::PathBuf;

use rustix::process::geteuid;

/// Directories of programs for administrators, which the search path need not have.
pub(crate) const ADMINISTRATION: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Needs of a group of measures, or of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Root, for namespaces, links and mounts.
    pub(crate) root: bool,
    /// Programs with the packages that have them.
    pub(crate) programs: &'static [(&'static str, &'static str)],
}

impl Needs {
    /// Returns what this process lacks, with the remedy.
    pub(crate) fn lacking(&self) -> Option<String> {
        self.lacking_of(geteuid().is_root(), is_installed)
    }

    fn lacking_of(&self, root: bool, installed: impl Fn(&str) -> bool) -> Option<String> {
        if self.root && !root {
            return Some("it needs root".to_owned());
        }
        let missing = self.programs.iter().filter(|(program, _)| !installed(program));
        let missing: Vec<String> =
            missing.map(|(program, package)| format!("{program} (package {package})")).collect();
        (!missing.is_empty()).then(|| format!("missing: {}", missing.join(", ")))
    }
}

/// Returns whether a program is in the search path, or where programs of administrators are.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ADMINISTRATION.map(PathBuf::from))
        .any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { root: true, programs: &[("one", "first"), ("two", "second")] };

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        assert_eq!(NEEDS.lacking_of(false, |_| true).as_deref(), Some("it needs root"));
        assert_eq!(NEEDS.lacking_of(true, |_| true), None);
        assert_eq!(
            NEEDS.lacking_of(true, |name| name == "one").as_deref(),
            Some("missing: two (package second)")
        );
        let none = Needs { root: false, programs: &[] };
        assert_eq!(none.lacking_of(false, |_| false), None);
    }

    #[test]
    fn programs_are_found() {
        assert!(is_installed("sh"));
        assert!(!is_installed("a-program-that-nobody-has"));
    }
}
