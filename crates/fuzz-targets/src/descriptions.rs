//! Descriptions of RPC programs, and the side files of their marks.

use rpcrdma_xdrgen::{Error, Generator, Position, Specification};

/// A description (RFC 4506 §6, RFC 5531 §12) up to a zero byte, and its side file. A description that parses prints as
/// one that parses to an equal tree. Code, or the place of a fault, is the same each time, and the place is in its text.
pub fn descriptions(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, marks) = text.split_once('\0').unwrap_or((&text, ""));
    match Specification::parse(text) {
        Ok(tree) => {
            let printed = tree.to_string();
            assert_eq!(Specification::parse(&printed).as_ref(), Ok(&tree), "{printed}");
        }
        Err(fault) => assert!(is_in(fault.position, text), "{fault}"),
    }
    let generator = Generator::new("text.x").text(text).marks_text(marks);
    let (first, second) = (generator.generate(), generator.generate());
    assert_eq!(first.as_ref().ok(), second.as_ref().ok());
    if let Err(Error::Text { file, fault }) = first {
        let of = if file == "text.x" { text } else { marks };
        assert!(is_in(fault.position, of), "{file}:{fault}");
    }
}

/// Returns whether there is such a character, or the end of a line.
fn is_in(position: Position, text: &str) -> bool {
    let line = text.split('\n').nth(position.line.wrapping_sub(1));
    line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&position.column))
}
