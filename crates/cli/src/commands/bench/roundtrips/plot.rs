//! Curves of latency by distance as an SVG picture. The picture needs no other file. Its background follows
//! light and dark themes.
//!
//! It has two panels. Each has axes, broad bands for one and two round trips of the link, the curves over
//! them, and a legend below. Curves that coincide stay visible: every second one is dashed, with hollow marks
//! around those of the other. Equal curves make equal bytes.

use super::distances::{Curve, Curves, Panel, Point, size};
use super::latency;
use crate::commands::bench::svg::{Svg, Units};

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 460.0;
/// Left edges of the plots.
const LEFT: [f64; 2] = [64.0, 526.0];
const TOP: f64 = 62.0;
const PLOT: (f64, f64) = (300.0, 250.0);
/// Distance of the legend below the plot.
const LEGEND: f64 = 62.0;
const LINE: f64 = 17.0;
/// Most marks on the axis of times.
const TICKS: f64 = 6.0;

const STYLE: &str = "
text { font: 12px sans-serif; fill: #24292f; }
.head { font-size: 15px; font-weight: bold; }
.title { font-weight: bold; }
.back { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; fill: none; }
.axis { stroke: #57606a; stroke-width: 1; fill: none; }
.trip { stroke: #dfe3e8; stroke-width: 7; fill: none; }
.curve { stroke-width: 2; fill: none; }
.mark { stroke-width: 1.5; }
.over { stroke-dasharray: 7 7; }
.hollow { fill: none; }
.c0 { stroke: #0b6fb8; } .c0.full { fill: #0b6fb8; }
.c1 { stroke: #d45500; }
.c2 { stroke: #17834f; } .c2.full { fill: #17834f; }
.c3 { stroke: #a3359b; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.back { fill: #0d1117; }
.grid { stroke: #30363d; }
.axis { stroke: #8b949e; }
.trip { stroke: #343b44; }
.c0 { stroke: #58b0f0; } .c0.full { fill: #58b0f0; }
.c1 { stroke: #ff9a52; }
.c2 { stroke: #4cc38a; } .c2.full { fill: #4cc38a; }
.c3 { stroke: #e58ade; }
}
";

/// Draws the curves as SVG.
pub(super) fn draw(curves: &Curves) -> String {
    let mut svg = Svg::default();
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    svg.begin(
        "svg",
        &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("width", &WIDTH),
            ("height", &HEIGHT),
            ("viewBox", &view),
            ("role", &"img"),
        ],
    );
    let head = format!("Latency by distance, measured on a simulated link of {} Gb/s", curves.gigabits);
    svg.text("title", &[], &head);
    svg.text("style", &[], STYLE);
    svg.element("rect", &[("class", &"back"), ("width", &WIDTH), ("height", &HEIGHT)]);
    svg.text("text", &[("class", &"head"), ("x", &Units(16.0)), ("y", &Units(26.0))], &head);
    for (panel, left) in curves.panels.iter().zip(LEFT) {
        Frame::new(panel, left).draw(&mut svg, panel);
    }
    svg.finish()
}

/// Scales of a panel.
struct Frame {
    left: f64,
    /// The longest distance, in kilometres.
    far: f64,
    /// Time at the top, in milliseconds.
    most: f64,
    /// Distance of the marks on the time axis, in milliseconds.
    step: f64,
}

impl Frame {
    fn new(panel: &Panel, left: f64) -> Self {
        let points = || panel.curves.iter().flat_map(|curve| &curve.points);
        let far = points().map(|point| point.kilometres).fold(1.0, f64::max);
        let slowest = points().map(milliseconds).fold(2.0 * round_trip(far), f64::max);
        let step = step(slowest);
        Self { left, far, most: step * (slowest / step).ceil(), step }
    }

    fn x(&self, kilometres: f64) -> f64 {
        self.left + PLOT.0 * kilometres / self.far
    }

    fn y(&self, milliseconds: f64) -> f64 {
        TOP + PLOT.1 * (1.0 - milliseconds / self.most)
    }

    fn draw(&self, svg: &mut Svg, panel: &Panel) {
        let title = format!("WRITE, or a long Call, with {} of data", size(panel.bytes));
        svg.text("text", &[("class", &"title"), ("x", &Units(self.left)), ("y", &Units(TOP - 14.0))], &title);
        self.axes(svg);
        self.trips(svg);
        for (index, curve) in panel.curves.iter().enumerate() {
            let line: String = curve.points.iter().zip(0..).map(|(point, nth)| self.go(nth, point)).collect();
            line_of(svg, index, &line);
            let marks: String = curve
                .points
                .iter()
                .map(|point| mark(index, self.x(point.kilometres), self.y(milliseconds(point))))
                .collect();
            marks_of(svg, index, &marks);
        }
        self.legend(svg, &panel.curves);
    }

    fn go(&self, nth: usize, point: &Point) -> String {
        let to = if nth == 0 { 'M' } else { 'L' };
        format!("{to}{} {}", Units(self.x(point.kilometres)), Units(self.y(milliseconds(point))))
    }

    fn axes(&self, svg: &mut Svg) {
        let (bottom, right) = (TOP + PLOT.1, self.left + PLOT.0);
        for count in 0..=10 {
            let time = f64::from(count) * self.step;
            if time > self.most * 1.001 {
                break;
            }
            let y = self.y(time);
            let line = format!("M{} {}H{}", Units(self.left), Units(y), Units(right));
            svg.element("path", &[("class", &"grid"), ("d", &line)]);
            let place = (Units(self.left - 7.0), Units(y + 4.0));
            // Steps are 1, 2 or 5 of some power of ten.
            let shown = format!("{}", (time * 1e6).round() / 1e6);
            svg.text("text", &[("text-anchor", &"end"), ("x", &place.0), ("y", &place.1)], &shown);
        }
        for fifth in 0..=5 {
            let kilometres = self.far * f64::from(fifth) / 5.0;
            let x = self.x(kilometres);
            let line = format!("M{} {}v5", Units(x), Units(bottom));
            svg.element("path", &[("class", &"axis"), ("d", &line)]);
            let place = (Units(x), Units(bottom + 19.0));
            svg.text(
                "text",
                &[("text-anchor", &"middle"), ("x", &place.0), ("y", &place.1)],
                &kilometres.to_string(),
            );
        }
        let line = format!("M{} {}V{}H{}", Units(self.left), Units(TOP), Units(bottom), Units(right));
        svg.element("path", &[("class", &"axis"), ("d", &line)]);
        let middle = Units(self.left + PLOT.0 / 2.0);
        svg.text(
            "text",
            &[("text-anchor", &"middle"), ("x", &middle), ("y", &Units(bottom + 37.0))],
            "distance one way, km",
        );
        let turn =
            format!("translate({} {}) rotate(-90)", Units(self.left - 38.0), Units(TOP + PLOT.1 / 2.0));
        svg.text(
            "text",
            &[("text-anchor", &"middle"), ("transform", &turn)],
            "from the call to its result, ms",
        );
    }

    /// Draws the lines of one and of two round trips of the link.
    fn trips(&self, svg: &mut Svg) {
        let ends = [1.0, 2.0].map(|count| self.y(count * round_trip(self.far)));
        for end in ends {
            let far = (Units(self.x(self.far)), Units(end));
            let line = format!("M{} {}L{} {}", Units(self.x(0.0)), Units(self.y(0.0)), far.0, far.1);
            svg.element("path", &[("class", &"trip"), ("d", &line)]);
        }
        let [one, two] = ends;
        // The names stand beside the ends of the lines, one above the other if these are close.
        for (end, name) in [(one, "1 round trip"), (two.min(one - 14.0), "2 round trips")] {
            let place = (Units(self.left + PLOT.0 + 9.0), Units(end + 4.0));
            svg.text("text", &[("x", &place.0), ("y", &place.1)], name);
        }
    }

    fn legend(&self, svg: &mut Svg, curves: &[Curve]) {
        let top = TOP + PLOT.1 + LEGEND;
        let start = Units(self.left);
        let place = |row: usize| top + LINE * row as f64;
        for (row, curve) in curves.iter().enumerate() {
            let y = place(row);
            line_of(svg, row, &format!("M{start} {}h42", Units(y)));
            let marks = [7.0, 35.0].map(|x| mark(row, self.left + x, y));
            marks_of(svg, row, &marks.concat());
            let name = format!("{}: {}", short(curve.way.operation), curve.way.mechanism);
            svg.text("text", &[("x", &Units(self.left + 50.0)), ("y", &Units(y + 4.0))], &name);
        }
        let y = place(curves.len());
        let line = format!("M{start} {}h42", Units(y));
        svg.element("path", &[("class", &"trip"), ("d", &line)]);
        svg.text(
            "text",
            &[("x", &Units(self.left + 50.0)), ("y", &Units(y + 4.0))],
            "round trips of the link alone",
        );
    }
}

/// Returns the text in parentheses, the NFS name, if there is one.
fn short(operation: &str) -> &str {
    let inner = operation.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inner.map_or(operation, |(name, _)| name)
}

const fn is_over(index: usize) -> bool {
    index % 2 == 1
}

fn line_of(svg: &mut Svg, index: usize, line: &str) {
    let over = if is_over(index) { " over" } else { "" };
    svg.element("path", &[("class", &format_args!("curve c{index}{over}")), ("d", &line)]);
}

fn marks_of(svg: &mut Svg, index: usize, marks: &str) {
    let kind = if is_over(index) { "hollow" } else { "full" };
    svg.element("path", &[("class", &format_args!("mark c{index} {kind}")), ("d", &marks)]);
}

/// Returns the path of a square mark: a small one, or one around it.
fn mark(index: usize, x: f64, y: f64) -> String {
    let side = if is_over(index) { 9.0 } else { 4.0 };
    let corner = (Units(x - side / 2.0), Units(y - side / 2.0));
    format!("M{} {}h{side}v{side}h-{side}z", corner.0, corner.1)
}

fn milliseconds(point: &Point) -> f64 {
    point.microseconds / 1e3
}

/// Returns the milliseconds of a round trip over a link of this length.
fn round_trip(kilometres: f64) -> f64 {
    latency(kilometres).as_secs_f64() * 2e3
}

/// Returns a step of 1, 2 or 5 times a power of ten for an axis up to `most`, in milliseconds, with few
/// marks.
fn step(most: f64) -> f64 {
    let powers = (0..15).map(|power| 10_u64.pow(power));
    let steps = powers.flat_map(|power| [power, 2 * power, 5 * power]);
    // Steps from a nanosecond on, each computed from integers to be exact.
    let mut steps = steps.map(|step| step as f64 / 1e6);
    steps.find(|step| most / step <= TICKS).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::distances::tests::measured;
    use super::super::mechanisms::Way;
    use super::*;

    const MOST_BYTES: usize = 40_000;

    /// The picture in the documentation equals the output of the command.
    #[test]
    fn the_picture_in_the_documentation_is_what_is_measured() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/round-trips.svg");
        let drawn = draw(&measured());
        assert!(drawn.len() <= MOST_BYTES, "{} bytes", drawn.len());
        let committed = std::fs::read_to_string(page).unwrap();
        assert!(
            drawn == committed,
            "docs/round-trips.svg is stale: rpcrdma bench roundtrips --svg docs/round-trips.svg"
        );
    }

    #[test]
    fn tags_are_in_order() {
        let drawn = draw(&one_curve("a & b", 3.0));
        let mut open = Vec::new();
        for tag in drawn.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap();
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
        }
        assert!(open.is_empty());
        assert!(drawn.contains("WRITE: a &amp; b"));
    }

    /// On a slow link the curves stay inside the picture.
    #[test]
    fn what_is_slow_is_in_the_picture() {
        let panel = &one_curve("x", 90_000_000.0).panels[0];
        let frame = Frame::new(panel, 0.0);
        assert_eq!((frame.step, frame.most), (20_000.0, 100_000.0));
        assert!((frame.y(90_000.0) - (TOP + PLOT.1 * 0.1)).abs() < 1e-9);
    }

    #[test]
    fn marks_of_an_axis_are_few() {
        assert_eq!([0.9, 1.0, 6.0, 6.1, 19.9, 31.0].map(step), [0.2, 0.2, 1.0, 2.0, 5.0, 10.0]);
    }

    fn one_curve(mechanism: &'static str, microseconds: f64) -> Curves {
        let points = [0.0, 1000.0].map(|kilometres| Point { kilometres, microseconds });
        let way = Way { operation: "call with placed data (WRITE)", mechanism, section: "§2.2" };
        let curve = Curve { way, points: points.to_vec() };
        Curves { gigabits: 40.0, panels: vec![Panel { bytes: 8192, curves: vec![curve] }] }
    }
}
