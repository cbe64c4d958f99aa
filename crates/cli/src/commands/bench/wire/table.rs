//! Tables in Markdown, which is also plain text, with columns as wide as their cells.

/// Returns the lines of a table: a row for each name, and a column of cells for each title.
pub(super) fn table(names: Vec<String>, titles: &[String], columns: Vec<Vec<String>>) -> Vec<String> {
    let width = |cells: &[String], title: &str| {
        cells.iter().map(String::len).chain([title.len(), 4]).max().unwrap_or_default()
    };
    let first = width(&names, "what");
    let widths: Vec<usize> = columns.iter().zip(titles).map(|(cells, title)| width(cells, title)).collect();
    let line = |name: &str, cells: Vec<&str>| {
        let mut line = format!("| {name:<first$} |");
        for (cell, width) in cells.into_iter().zip(&widths) {
            line.push_str(&format!(" {cell:>width$} |"));
        }
        line
    };
    let rules: Vec<String> = widths.iter().map(|width| format!("{}:", "-".repeat(width - 1))).collect();
    let mut lines = vec![
        line("what", titles.iter().map(String::as_str).collect()),
        line(&"-".repeat(first), rules.iter().map(String::as_str).collect()),
    ];
    for (index, name) in names.iter().enumerate() {
        let cells = columns.iter().map(|cells| cells.get(index).map_or("", String::as_str)).collect();
        lines.push(line(name, cells));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let lines = table(
            strings(&["a", "longer"]),
            &strings(&["one", "a title"]),
            vec![strings(&["12345678", "1"]), strings(&["x"])],
        );
        let expected = [
            "| what   |      one | a title |",
            "| ------ | -------: | ------: |",
            "| a      | 12345678 |       x |",
            "| longer |        1 |         |",
        ];
        assert_eq!(lines, expected);
    }
}
