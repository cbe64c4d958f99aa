//! Ratios to raw TCP as bars in an SVG picture. The picture needs no other file. Its background follows light and dark
//! themes.
//!
//! Each panel has the rows of one kind: throughput, where more is better, and latency, where less is better. A row has a bar
//! for each series, that is, for each wire. A line marks raw TCP itself.

use super::svg::{Svg, Units};

const WIDTH: f64 = 920.0;
/// Left end of the bars, and the longest one.
const LEFT: f64 = 250.0;
const SPAN: f64 = 600.0;
/// Heights of a bar, and of the space between rows.
const BAR: f64 = 12.0;
const GAP: f64 = 12.0;
/// Heights of the headline, of a panel's title, and of a line of the legend.
const HEAD: f64 = 40.0;
const TITLE: f64 = 30.0;
const LINE: f64 = 17.0;
/// Number of colours; further series repeat them.
const COLOURS: usize = 5;

const STYLE: &str = "
text { font: 12px sans-serif; fill: #24292f; }
.head { font-size: 15px; font-weight: bold; }
.title { font-weight: bold; }
.back { fill: #ffffff; }
.axis { stroke: #57606a; stroke-width: 1; stroke-dasharray: 4 3; fill: none; }
.c0 { fill: #0b6fb8; } .c1 { fill: #d45500; } .c2 { fill: #17834f; } .c3 { fill: #a3359b; } .c4 { fill: #8a6d00; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.back { fill: #0d1117; }
.axis { stroke: #8b949e; }
.c0 { fill: #58b0f0; } .c1 { fill: #ff9a52; } .c2 { fill: #4cc38a; } .c3 { fill: #e58ade; } .c4 { fill: #d9b84a; }
}
";

/// A row of a panel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bars {
    pub(super) name: String,
    /// Ratio to raw TCP of each series; `None` where it was not measured.
    pub(super) ratios: Vec<Option<f64>>,
}

/// Rows of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) rows: Vec<Bars>,
}

/// Draws panels without rows left out. `series` names the bars of each row.
pub(super) fn draw(head: &str, series: &[String], panels: &[Panel]) -> String {
    let panels: Vec<&Panel> = panels.iter().filter(|panel| !panel.rows.is_empty()).collect();
    let row = BAR * series.len().max(1) as f64 + GAP;
    let rows: usize = panels.iter().map(|panel| panel.rows.len()).sum();
    let height = HEAD + panels.len() as f64 * TITLE + rows as f64 * row + (series.len() + 1) as f64 * LINE;
    let mut svg = Svg::default();
    let view = format!("0 0 {WIDTH} {}", Units(height));
    svg.begin(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("width", &WIDTH),
            ("height", &Units(height)),
            ("viewBox", &view),
            ("role", &"img"),
        ],
    );
    svg.text("title", &[], head);
    svg.text("style", &[], STYLE);
    svg.element("rect", &[("class", &"back"), ("width", &WIDTH), ("height", &Units(height))]);
    svg.text("text", &[("class", &"head"), ("x", &Units(16.0)), ("y", &Units(26.0))], head);
    let mut y = HEAD;
    for panel in panels {
        svg.text("text", &[("class", &"title"), ("x", &Units(16.0)), ("y", &Units(y + 16.0))], panel.title);
        y += TITLE;
        let scale = SPAN / longest(panel);
        let end = y + row * panel.rows.len() as f64 - GAP / 2.0;
        for bars in &panel.rows {
            draw_row(&mut svg, bars, y, scale);
            y += row;
        }
        let one = Units(LEFT + scale);
        let line = format!("M{one} {}V{}", Units(end - row * panel.rows.len() as f64), Units(end));
        svg.element("path", &[("class", &"axis"), ("d", &line)]);
    }
    for (index, name) in series.iter().enumerate() {
        let class = format!("c{}", index % COLOURS);
        let (x, top) = (Units(LEFT), Units(y + 2.0));
        svg.element("rect", &[("class", &class), ("x", &x), ("y", &top), ("width", &24), ("height", &BAR)]);
        svg.text("text", &[("x", &Units(LEFT + 32.0)), ("y", &Units(y + BAR))], name);
        y += LINE;
    }
    svg.finish()
}

fn draw_row(svg: &mut Svg, bars: &Bars, y: f64, scale: f64) {
    let middle = y + BAR * bars.ratios.len() as f64 / 2.0 + 4.0;
    svg.text("text", &[("x", &Units(16.0)), ("y", &Units(middle))], &bars.name);
    for (index, ratio) in bars.ratios.iter().enumerate() {
        let Some(ratio) = ratio else { continue };
        let (top, class) = (y + BAR * index as f64, format!("c{}", index % COLOURS));
        let width = Units(ratio * scale);
        svg.element(
            "rect",
            &[
                ("class", &class),
                ("x", &Units(LEFT)),
                ("y", &Units(top)),
                ("width", &width),
                ("height", &Units(BAR - 1.0)),
            ],
        );
        let place = (Units(LEFT + ratio * scale + 5.0), Units(top + BAR - 2.0));
        svg.text("text", &[("x", &place.0), ("y", &place.1)], &format!("{ratio:.2}"));
    }
}

/// Returns the longest ratio of a panel, or raw TCP itself.
fn longest(panel: &Panel) -> f64 {
    panel.rows.iter().flat_map(|bars| &bars.ratios).flatten().copied().fold(1.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(title: &'static str, ratios: &[Option<f64>]) -> Panel {
        Panel { title, rows: vec![Bars { name: "READ <over> RDMA".to_owned(), ratios: ratios.to_vec() }] }
    }

    #[test]
    fn bars_are_as_long_as_their_ratios() {
        let series = ["one".to_owned(), "two".to_owned()];
        let drawn = draw("head", &series, &[panel("latency", &[Some(0.5), Some(2.0)])]);
        // The longest bar has the whole width, and raw TCP half of it.
        assert!(
            drawn.contains("width=\"150\" height=\"11\"") && drawn.contains("width=\"600\" height=\"11\""),
            "{drawn}"
        );
        assert!(drawn.contains(&format!("d=\"M{} ", LEFT + 300.0)), "{drawn}");
        assert!(
            drawn.contains("READ &lt;over&gt; RDMA") && drawn.contains(">0.50<") && drawn.contains(">two<")
        );
    }

    #[test]
    fn what_was_not_measured_has_no_bar() {
        let drawn = draw("head", &["one".to_owned()], &[panel("throughput", &[None])]);
        assert!(!drawn.contains("height=\"11\""), "{drawn}");
        let nothing = Panel { title: "nothing", rows: Vec::new() };
        assert!(!draw("head", &[], &[nothing]).contains("nothing"));
    }
}
