//! Pages of the documentation, into which tasks write text between markers.

use std::fs;
use std::path::Path;

use crate::failure::{Context, Failure, ensure};

/// Lines of a page: a task writes the text between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Markers {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

impl Markers {
    /// Those of a page on which the interoperability suite writes one text.
    pub(crate) const USUAL: Self = Self {
        begin: "<!-- The suite writes this: cargo xtask interop --write-docs -->",
        end: "<!-- end -->",
    };
    /// Those of the tables of cases on docs/hardware.md, which has another text of the suite.
    pub(crate) const CASES: Self =
        Self { begin: "<!-- hardware cases: begin -->", end: "<!-- hardware cases: end -->" };
    /// Those of the goals on docs/performance.md.
    pub(crate) const GOALS: Self = Self {
        begin: "<!-- goals: `cargo xtask performance --write-docs` writes this -->",
        end: "<!-- end of goals -->",
    };
}

/// Replaces the text between markers of a page.
pub(crate) fn write_page(file: &Path, markers: Markers, text: &str) -> Result<(), Failure> {
    let page = fs::read_to_string(file).context(format!("reading {}", file.display()))?;
    let page = replaced(&page, markers, text).context(file.display())?;
    fs::write(file, page).context(format!("writing {}", file.display()))
}

fn replaced(page: &str, markers: Markers, table: &str) -> Result<String, Failure> {
    let Markers { begin, end } = markers;
    let (before, rest) =
        page.split_once(begin).ok_or_else(|| Failure::new(format!("the page has no line {begin}")))?;
    let after = rest.split_once(end).map(|(_, after)| after);
    ensure!(after.is_some(), "the page has no line {end}");
    Ok(format!("{before}{begin}\n\n{table}\n{end}{}", after.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_keeps_what_is_around_the_table() {
        for markers in [Markers::USUAL, Markers::CASES, Markers::GOALS] {
            let Markers { begin, end } = markers;
            let page = format!("a\n{begin}\nold\n{end}\nb\n");
            let written = format!("a\n{begin}\n\nnew\n\n{end}\nb\n");
            assert_eq!(replaced(&page, markers, "new\n").unwrap(), written);
            assert!(replaced("no markers", markers, "").is_err());
            assert!(replaced(begin, markers, "").is_err());
        }
    }
}
