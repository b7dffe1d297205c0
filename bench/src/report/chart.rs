//! Line charts as SVG that take the page's colours for text and grid.

use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::ranged1d::{
    AsRangedCoord, KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter,
};
use plotters::prelude::*;

use crate::stats::Spread;

/// Stands for the page's text colour, which plotters does not know.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_IN_SVG: &str = "#010203";

/// One direction of a chart.
pub struct Axis {
    pub name: &'static str,
    pub from: f64,
    pub to: f64,
    /// Where the grid and its labels are.
    pub ticks: Vec<f64>,
    pub label: Box<dyn Fn(f64) -> String>,
}

pub struct Curve {
    pub color: RGBColor,
    pub points: Vec<(f64, f64)>,
    /// From lowest to highest at a place, where several runs were made.
    pub ranges: Vec<(f64, f64, f64)>,
    /// Fill the area below, and leave the points unmarked.
    pub area: bool,
}

/// A place of a curve, and from where to where it went in several runs.
pub type Value = (f64, Option<(f64, f64)>);

/// A median between the least and the greatest.
pub fn value(spread: Spread) -> Value {
    (spread.median, Some((spread.min, spread.max)))
}

impl Curve {
    /// Over the names of an axis, in their order; there need not be a value at each.
    pub fn over_names(color: RGBColor, values: impl Iterator<Item = Option<Value>>) -> Self {
        let mut curve = Self {
            color,
            points: Vec::new(),
            ranges: Vec::new(),
            area: false,
        };
        for (place, value) in values.enumerate() {
            let Some((middle, range)) = value else {
                continue;
            };
            let place = place as f64;
            curve.points.push((place, middle));
            let range = range.map(|(lowest, highest)| (place, lowest, highest));
            curve.ranges.extend(range);
        }
        curve
    }
}

impl Axis {
    /// From zero to a little over `highest`, with about five ticks on round numbers.
    pub fn linear(
        name: &'static str,
        highest: f64,
        label: impl Fn(f64) -> String + 'static,
    ) -> Self {
        let highest = highest.max(1.0);
        let step = round_step(highest / 5.0);
        let ticks = (0..=6)
            .map(|n| f64::from(n) * step)
            .filter(|tick| *tick <= highest * 1.08);
        Self {
            name,
            from: 0.0,
            to: highest * 1.08,
            ticks: ticks.collect(),
            label: Box::new(label),
        }
    }

    /// Over the decades of `values`, which are placed by their `log10`.
    pub fn logarithmic(
        name: &'static str,
        values: impl Iterator<Item = f64> + Clone,
        label: impl Fn(f64) -> String + 'static,
    ) -> Self {
        let lowest = values.clone().fold(f64::INFINITY, f64::min).log10().floor();
        let highest = values.fold(f64::NEG_INFINITY, f64::max).log10().ceil();
        let (from, to) = if lowest < highest {
            (lowest, highest)
        } else {
            (-1.0, 1.0)
        };
        let ticks = (from as i32..=to as i32).map(f64::from).collect();
        Self {
            name,
            from,
            to,
            ticks,
            label: Box::new(move |power| label(10_f64.powf(power))),
        }
    }

    /// Names side by side, at 0, 1, 2 and so on.
    pub fn names(name: &'static str, names: Vec<String>) -> Self {
        let ticks: Vec<f64> = (0..names.len()).map(|index| index as f64).collect();
        let label = move |place: f64| names.get(place.round() as usize).cloned();
        Self {
            name,
            from: -0.2,
            to: ticks.len() as f64 - 0.8,
            ticks,
            label: Box::new(move |place| label(place).unwrap_or_default()),
        }
    }
}

/// An axis in plotters' terms: the ticks are ours, not those it would choose.
pub struct Scale<'a>(&'a Axis);

impl<'a> From<&'a Axis> for Scale<'a> {
    fn from(axis: &'a Axis) -> Self {
        Self(axis)
    }
}

impl<'a> AsRangedCoord for &'a Axis {
    type CoordDescType = Scale<'a>;
    type Value = f64;
}

impl Ranged for Scale<'_> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.0.from) / (self.0.to - self.0.from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.0.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.0.from..self.0.to
    }
}

impl ValueFormatter<f64> for Scale<'_> {
    fn format_ext(&self, value: &f64) -> String {
        (self.0.label)(*value)
    }
}

/// The next of 1, 2, 2.5, 5, 10, 20, ... that is not under `value`.
fn round_step(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0].map(|step| step * decade);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(10.0 * decade)
}

/// A chart as an SVG element.
pub fn draw(size: (u32, u32), x: &Axis, y: &Axis, curves: &[Curve]) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw_into(&mut svg, size, x, y, curves).map_err(|error| anyhow!("drawing a plot: {error}"))?;
    Ok(svg.replace(INK_IN_SVG, "currentColor"))
}

/// Curves over a place from zero to the highest of their values.
pub fn from_zero(
    size: (u32, u32),
    x: &Axis,
    label: impl Fn(f64) -> String + 'static,
    curves: &[Curve],
) -> anyhow::Result<String> {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let ranges = curves.iter().flat_map(|curve| &curve.ranges);
    let values = points.map(|(_, value)| *value);
    let highest = values.chain(ranges.map(|(_, _, highest)| *highest));
    let y = Axis::linear("", highest.fold(0.0, f64::max), label);
    draw(size, x, &y, curves)
}

fn draw_into(
    svg: &mut String,
    size: (u32, u32),
    x: &Axis,
    y: &Axis,
    curves: &[Curve],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .margin_top(14)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let text = ("sans-serif", 13).into_font().color(&INK.mix(0.75));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.12))
        .axis_style(INK.mix(0.3))
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(x.name)
        .x_labels(x.ticks.len())
        .y_labels(y.ticks.len())
        .draw()?;
    for curve in curves {
        let Curve {
            color,
            points,
            ranges,
            area,
        } = curve;
        if *area {
            let below = AreaSeries::new(points.iter().copied(), y.from, color.mix(0.15));
            chart.draw_series(below.border_style(color.stroke_width(2)))?;
            continue;
        }
        chart.draw_series(ranges.iter().map(|(place, lowest, highest)| {
            PathElement::new(
                [(*place, *lowest), (*place, *highest)],
                color.mix(0.4).stroke_width(6),
            )
        }))?;
        chart.draw_series(LineSeries::new(
            points.iter().copied(),
            color.stroke_width(3),
        ))?;
        chart.draw_series(
            points
                .iter()
                .map(|point| Circle::new(*point, 4, color.filled())),
        )?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(round_step(1300.0), 2000.0);
        assert_eq!(round_step(5.1), 10.0);
        assert_eq!(round_step(0.04), 0.05);
    }

    #[test]
    fn axes_hold_their_values() {
        let rates = Axis::linear("tps", 12_345.0, |value| value.to_string());
        assert!(rates.to > 12_345.0 && rates.ticks.len() >= 3);
        let times = Axis::logarithmic("ms", [0.3, 42.0].into_iter(), |ms| format!("{ms:.1}"));
        assert_eq!((times.from, times.to, times.ticks.len()), (-1.0, 2.0, 4));
        assert_eq!((times.label)(2.0), "100.0");
        let names = Axis::names("clients", vec!["1".to_owned(), "16".to_owned()]);
        assert_eq!((names.label)(1.0), "16");
        assert_eq!((names.label)(7.0), "");
    }

    #[test]
    fn a_curve_leaves_out_places_without_a_value() {
        let values = [Some((5.0, Some((4.0, 6.0)))), None, Some((7.0, None))];
        let curve = Curve::over_names(RGBColor(0, 0, 0), values.into_iter());
        assert_eq!(curve.points, [(0.0, 5.0), (2.0, 7.0)]);
        assert_eq!(curve.ranges, [(0.0, 4.0, 6.0)]);
    }

    #[test]
    fn text_takes_the_colour_of_the_page() {
        let axis = || Axis::linear("seconds", 4.0, |value| value.to_string());
        let curve = Curve {
            color: RGBColor(200, 0, 0),
            points: vec![(0.0, 1.0), (4.0, 3.0)],
            ranges: Vec::new(),
            area: false,
        };
        let svg = draw((300, 200), &axis(), &axis(), &[curve]).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("currentColor"));
        assert!(!svg.contains(INK_IN_SVG) && svg.contains("#C80000"));
    }
}
