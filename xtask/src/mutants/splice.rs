//! Changed source text: places where mutants stand, and the text with their switches.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// A place in a file that has other text in the copy. Places nest.
#[derive(Debug)]
pub(crate) struct Site {
    /// Bytes of the file that the place replaces.
    pub(crate) range: Range<usize>,
    /// The text instead.
    pub(crate) pieces: Vec<Piece>,
    /// Numbers of the mutants here. Without any that compiles the text stays.
    pub(crate) mutants: Vec<usize>,
}

/// A piece of changed text.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes of the file, with the places inside.
    Source(Range<usize>),
    /// New text.
    Text(String),
    /// New text that only this mutant needs.
    Change(usize, String),
}

/// The changed text of a file.
#[derive(Debug, Default)]
pub(crate) struct Spliced {
    pub(crate) text: String,
    /// Bytes of the text that came with mutants, inner ones before those around them.
    regions: Vec<(Range<usize>, Vec<usize>)>,
}

impl Spliced {
    /// Changes a text at all places, without the mutants that do not compile. The order of places with one range is
    /// from the outside.
    pub(crate) fn new(text: &str, sites: &mut [Site], dropped: &BTreeSet<usize>) -> Self {
        sites.sort_by_key(|site| (site.range.start, Reverse(site.range.end)));
        let mut spliced = Self::default();
        spliced.emit(text, 0..text.len(), sites, dropped);
        spliced
    }

    /// Adds a part of the file, with those of the places that lie in it.
    fn emit(&mut self, text: &str, range: Range<usize>, sites: &[Site], dropped: &BTreeSet<usize>) {
        let mut at = range.start;
        for (index, site) in sites.iter().enumerate() {
            if site.range.start < at || site.range.end > range.end {
                continue;
            }
            self.text.push_str(text.get(at..site.range.start).unwrap_or_default());
            at = site.range.end;
            let inner = sites.get(index + 1..).unwrap_or_default();
            let left: Vec<usize> = site.mutants.iter().copied().filter(|id| !dropped.contains(id)).collect();
            if left.is_empty() {
                self.emit(text, site.range.clone(), inner, dropped);
                continue;
            }
            let start = self.text.len();
            for piece in &site.pieces {
                match piece {
                    Piece::Source(range) => self.emit(text, range.clone(), inner, dropped),
                    Piece::Text(piece) => self.text.push_str(piece),
                    Piece::Change(id, _) if dropped.contains(id) => {}
                    Piece::Change(id, piece) => {
                        let start = self.text.len();
                        self.text.push_str(piece);
                        self.regions.push((start..self.text.len(), vec![*id]));
                    }
                }
            }
            self.regions.push((start..self.text.len(), left));
        }
        self.text.push_str(text.get(at..range.end).unwrap_or_default());
    }

    /// Returns the mutants of the smallest part around these bytes of the text.
    pub(crate) fn mutants_at(&self, bytes: &Range<usize>) -> &[usize] {
        let around = |(region, _): &&(Range<usize>, Vec<usize>)| {
            region.start <= bytes.start && bytes.end <= region.end
        };
        self.regions.iter().find(around).map_or(&[], |(_, mutants)| mutants)
    }
}
