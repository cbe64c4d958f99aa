//! Patterns for whole lines: of the kernel's log, and of what a row of the conformance tester has seen.

/// Whether a text is as the pattern says: `*` stands for any characters, also none, and all else for itself.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        let Some(at) = text.find(part) else { return false };
        text = text.get(at + part.len()..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_the_whole_text() {
        for (pattern, text) in [
            ("abc", "abc"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*c", "abcabc"),
            ("*b*", "abc"),
            ("a*b*c", "a b b c"),
            ("*aa", "aaa"),
            ("code *, type *.", "code 1, type 22."),
            ("**", "x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("abc", "abcd"),
            ("", "a"),
            ("a*c", "abcd"),
            ("*b", "abc"),
            ("b*", "abc"),
            ("a*b*c", "acb"),
            ("ab*bc", "abc"),
            ("code *, type *.", "code 1."),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
