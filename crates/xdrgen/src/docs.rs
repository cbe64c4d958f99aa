//! Documentation from comments: those directly above a declaration, and those behind it on its line.
//!
//! A comment's text may have any form, so it stands in a fenced block: Markdown and links mean nothing there.

use std::collections::HashMap;

use crate::error::Position;

/// A comment of a description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comment<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: Position,
    pub(crate) end: Position,
    /// Nothing but white space is before it on its line.
    pub(crate) is_first: bool,
}

/// A declared name, and where its declaration begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    pub(crate) start: Position,
    pub(crate) name: Position,
}

/// The comments of declarations, by the places of their names. They are no part of a description's meaning: any two are
/// equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Docs(HashMap<Position, Vec<String>>);

impl PartialEq for Docs {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Docs {}

impl Docs {
    /// Gives each comment to a declaration, or to none.
    pub(crate) fn of(comments: &[Comment<'_>], declared: &[Declared]) -> Self {
        let mut by_start = declared.to_vec();
        by_start.sort_by_key(|declared| declared.start);
        let mut by_name = declared.to_vec();
        by_name.sort_by_key(|declared| declared.name);
        let mut docs: HashMap<Position, Vec<String>> = HashMap::new();
        // The lines of comments that follow one another without a gap, and where they end.
        let mut above: (Vec<String>, usize) = (Vec::new(), 0);
        for comment in comments {
            let lines = lines(comment.text);
            if !comment.is_first {
                let before = by_name.partition_point(|declared| declared.name < comment.start);
                let owner = before.checked_sub(1).and_then(|index| by_name.get(index));
                if let Some(owner) = owner.filter(|owner| owner.name.line == comment.start.line) {
                    docs.entry(owner.name).or_default().extend(lines);
                }
                continue;
            }
            let (mut text, end) = std::mem::take(&mut above);
            if end + 1 != comment.start.line {
                text.clear();
            }
            text.extend(lines);
            let next = by_start.get(by_start.partition_point(|declared| declared.start < comment.end));
            match next.filter(|next| next.start.line <= comment.end.line + 1) {
                Some(owner) => docs.entry(owner.name).or_default().extend(text),
                None => above = (text, comment.end.line),
            }
        }
        docs.retain(|_, lines| !lines.is_empty());
        Self(docs)
    }

    /// Returns the lines for the declaration of the name at this place.
    pub(crate) fn get(&self, name: Position) -> Option<&[String]> {
        self.0.get(&name).map(Vec::as_slice)
    }
}

/// Returns the lines of a comment without its frame.
fn lines(text: &str) -> Vec<String> {
    // Characters that a comment of Rust must not have, or that change the direction of the text.
    let is_unsafe = |letter: char| {
        (letter.is_control() && letter != '\t')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let cut = |line: &str| {
        let line = line.trim().trim_start_matches('*').trim_end_matches('*');
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        line.chars().map(|letter| if is_unsafe(letter) { ' ' } else { letter }).collect::<String>()
    };
    let is_frame = |line: &String| line.chars().all(|letter| " \t*-=_#+".contains(letter));
    let mut lines: Vec<String> = text.lines().map(cut).collect();
    while lines.last().is_some_and(is_frame) {
        lines.pop();
    }
    let begin = lines.iter().position(|line| !is_frame(line)).unwrap_or(lines.len());
    lines.split_off(begin)
}
