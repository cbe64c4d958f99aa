//! A measure with its figure.

/// A figure of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// Name for `--list`.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    /// The figure before the engine was rebuilt.
    pub(crate) start: &'static str,
    pub(crate) now: Now,
    pub(crate) target: String,
    /// The counted places, for `--list`.
    pub(crate) list: Vec<String>,
    /// Violations of the gate.
    pub(crate) broken: Vec<String>,
    /// Remarks that fail nothing.
    pub(crate) notes: Vec<String>,
}

/// The figure at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    /// A count that the table has to state exactly.
    Exact(usize),
    /// A count that may differ from the table's by [`TOLERANCE`](super::gates::TOLERANCE).
    Near(usize),
    /// A count without a gate, which the table need not follow.
    Free(usize),
    Text(String),
    /// Valgrind counts this figure, and is missing.
    Unmeasured,
}

impl Measure {
    /// Returns a measure without a list, faults or notes.
    pub(crate) fn new(
        key: &'static str,
        title: &'static str,
        start: &'static str,
        now: Now,
        target: String,
    ) -> Self {
        Self { key, title, start, now, target, list: Vec::new(), broken: Vec::new(), notes: Vec::new() }
    }

    /// Adds the counted places.
    pub(crate) fn with_list(mut self, list: Vec<String>) -> Self {
        self.list = list;
        self
    }

    /// Requires a count of at most this, as it is or of what valgrind counted.
    pub(crate) fn at_most(mut self, most: usize) -> Self {
        if let Now::Exact(now) | Now::Near(now) | Now::Free(now) = self.now
            && now > most
        {
            let hint = format!("cargo xtask measures --list {}", self.key);
            self.broken.push(format!("{}: {now}, and at most {most} are allowed ({hint})", self.title));
        }
        self
    }
}
