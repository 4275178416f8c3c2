//! Charts with two axes as SVG, in the colours of the page that they are part of.

use super::escaped;
use std::fmt::Write;

/// The page's colours of curves, similar ones far apart; curves beyond begin again.
const COLOURS: [u8; 7] = [0, 1, 2, 3, 4, 6, 5];

/// Dashes of curves, so that they can be told apart without colours. Strong curves are solid.
const DASHES: [&str; 7] = ["none", "8 3", "2.5 2.5", "9 3 2.5 3", "14 4", "5 5", "9 3 2.5 3 2.5 3"];

/// Space around the plot.
const TOP: f64 = 12.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 46.0;
const LEFT: f64 = 62.0;

/// An axis from `low` to `high`.
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) logarithmic: bool,
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) label: String,
}

impl Axis {
    /// The place of a value between 0 and 1; values outside are at the ends.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        let part = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low));
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }
}

/// Something that is drawn in the colour of a curve.
pub(super) enum ChartMark {
    Line {
        style: usize,
        strong: bool,
        title: String,
        points: Vec<(f64, f64)>,
    },
    /// x, and the range of y.
    Band {
        style: usize,
        points: Vec<(f64, f64, f64)>,
    },
    /// A measured value with its error bar.
    Dot {
        style: usize,
        radius: f64,
        title: String,
        x: f64,
        y: f64,
        low: f64,
        high: f64,
    },
}

/// A chart.
pub(super) struct Chart {
    pub(super) name: String,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) marks: Vec<ChartMark>,
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let (w, h, name) = (self.width, self.height, escaped(&self.name));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" aria-label=\"{name}\">\n"
        );
        self.draw_axes(&mut svg);
        // Bands are behind lines, and dots in front of them.
        for layer in 0..3 {
            self.marks.iter().filter(|mark| mark.layer() == layer).for_each(|mark| {
                self.draw(mark, &mut svg);
            });
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn at_x(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (self.width - LEFT - RIGHT)
    }

    fn at_y(&self, y: f64) -> f64 {
        self.height - BOTTOM - self.y.place(y) * (self.height - TOP - BOTTOM)
    }

    fn draw_axes(&self, svg: &mut String) {
        let (right, low) = (self.width - RIGHT, self.height - BOTTOM);
        for (value, words) in &self.y.ticks {
            let y = self.at_y(*value);
            line(svg, "grid", (LEFT, y), (right, y));
            text(svg, "end", (LEFT - 8.0, y + 4.0), words);
        }
        for (value, words) in &self.x.ticks {
            let x = self.at_x(*value);
            line(svg, "grid", (x, TOP), (x, low));
            text(svg, "middle", (x, low + 18.0), words);
        }
        line(svg, "axis", (LEFT, TOP), (LEFT, low));
        line(svg, "axis", (LEFT, low), (right, low));
        text(svg, "middle", ((LEFT + right) / 2.0, low + 38.0), &self.x.label);
        let (middle, label) = ((TOP + low) / 2.0, escaped(&self.y.label));
        let _ = writeln!(
            svg,
            "<text text-anchor=\"middle\" transform=\"translate(12 {middle:.1}) rotate(-90)\">{label}</text>"
        );
    }

    fn draw(&self, mark: &ChartMark, svg: &mut String) {
        // Writing to a string cannot fail.
        let _ = match mark {
            ChartMark::Line { style, strong, title, points } => {
                let path = self.path(points.iter().copied());
                let (stroke, title) = (stroke(*style, *strong), escaped(title));
                writeln!(
                    svg,
                    "<path class=\"curve\" d=\"M{path}\" fill=\"none\" {stroke}>\
                     <title>{title}</title></path>"
                )
            }
            ChartMark::Band { style, points } => {
                let up = points.iter().map(|(x, low, _)| (*x, *low));
                let path = self.path(up.chain(points.iter().rev().map(|(x, _, high)| (*x, *high))));
                let fill = colour(*style);
                writeln!(svg, "<path d=\"M{path}Z\" fill=\"{fill}\" fill-opacity=\".16\"/>")
            }
            ChartMark::Dot { style, radius, title, x, y, low, high } => {
                let (x, y, fill) = (self.at_x(*x), self.at_y(*y), colour(*style));
                let (low, high, title) = (self.at_y(*low), self.at_y(*high), escaped(title));
                writeln!(
                    svg,
                    "<g class=\"dot\"><path d=\"M{x:.1} {low:.1}V{high:.1}\" stroke=\"var(--fg)\"/>\
                     <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"var(--bg)\"/>\
                     <title>{title}</title></g>"
                )
            }
        };
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let place = |(x, y)| format!("{:.1} {:.1}", self.at_x(x), self.at_y(y));
        points.map(place).collect::<Vec<_>>().join("L")
    }
}

impl ChartMark {
    fn layer(&self) -> usize {
        match self {
            ChartMark::Band { .. } => 0,
            ChartMark::Line { .. } => 1,
            ChartMark::Dot { .. } => 2,
        }
    }
}

/// A legend of curves: style, whether strong, words.
pub(super) fn legend(entries: impl IntoIterator<Item = (usize, bool, String)>) -> String {
    let entry = |(style, strong, words): (usize, bool, String)| {
        let stroke = stroke(style, strong);
        format!(
            "<span><svg width=\"30\" height=\"14\" aria-hidden=\"true\"><path d=\"M1 7H29\" {stroke}/>\
             </svg>{}</span>",
            escaped(&words)
        )
    };
    let entries: String = entries.into_iter().map(entry).collect();
    format!("<div class=\"row legend\">{entries}</div>\n")
}

fn colour(style: usize) -> String {
    format!("var(--c{})", COLOURS[style % COLOURS.len()])
}

fn stroke(style: usize, strong: bool) -> String {
    let (dashes, width) = match strong {
        true => ("none", 3.0),
        false => (DASHES[style % DASHES.len()], 1.7),
    };
    let colour = colour(style);
    format!("stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" stroke-width=\"{width}\"")
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, anchor: &str, (x, y): (f64, f64), words: &str) {
    let words = escaped(words);
    let _ =
        writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, logarithmic: bool) -> Axis {
        let ticks = vec![(low, "<low>".to_string()), (high, "high".to_string())];
        Axis { low, high, logarithmic, ticks, label: "label & unit".to_string() }
    }

    #[test]
    fn values_are_placed_by_their_axes_and_stay_inside() {
        let linear = axis(0.0, 4.0, false);
        assert_eq!([-1.0, 0.0, 1.0, 9.0].map(|v| linear.place(v)), [0.0, 0.0, 0.25, 1.0]);
        let decades = axis(1e-4, 1.0, true);
        assert!((decades.place(1e-3) - 0.25).abs() < 1e-12);
        assert_eq!([0.0, f64::NAN, 1.0].map(|v| decades.place(v)), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_chart_has_its_marks_in_order_and_its_words_escaped() {
        let points = vec![(0.0, 0.0), (4.0, 1.0)];
        let chart = Chart {
            name: "a \"name\"".to_string(),
            width: 200.0,
            height: 100.0,
            x: axis(0.0, 4.0, false),
            y: axis(0.0, 1.0, false),
            marks: vec![
                ChartMark::Dot {
                    style: 1,
                    radius: 3.0,
                    title: "dot".into(),
                    x: 2.0,
                    y: 0.5,
                    low: 0.4,
                    high: 0.6,
                },
                ChartMark::Line { style: 8, strong: true, title: "a < b".into(), points },
                ChartMark::Band { style: 0, points: vec![(0.0, 0.0, 0.5), (4.0, 0.5, 1.0)] },
            ],
        };
        let svg = chart.svg();
        let place = |words: &str| svg.find(words).unwrap_or_else(|| panic!("{words} in {svg}"));
        assert!(
            place("fill-opacity") < place("class=\"curve\"")
                && place("class=\"curve\"") < place("class=\"dot\"")
        );
        assert!(svg.contains("M62.0 54.0L186.0 12.0") && svg.contains("var(--c1)"), "{svg}");
        assert!(
            svg.contains("a &lt; b")
                && svg.contains("&lt;low&gt;")
                && svg.contains("label &amp; unit")
        );
        assert!(!svg.contains("NaN") && svg.contains("a &quot;name&quot;"));
    }
}
