//! Figures as SVG, drawn with plotters.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::series::{Data, Series};
use crate::definition::Figure;

/// Width of a figure, in pixels.
const WIDTH: u32 = 760;
/// Height of a figure without its legend, in pixels.
const HEIGHT: u32 = 380;
/// Height of a line of the legend, in pixels.
const LEGEND_LINE: u32 = 18;
/// Columns of the legend.
const LEGEND_COLUMNS: usize = 2;
/// Fraction of the distance between two positions that a bar group fills.
const GROUP_WIDTH: f64 = 0.8;
/// Series colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws the figure and returns the SVG text. `machine` is part of the caption.
pub(super) fn svg(figure: &Figure, data: &Data, machine: &str) -> Result<String, String> {
    let mut text = String::new();
    let lines = data.series.len().div_ceil(LEGEND_COLUMNS) as u32;
    let height = HEIGHT + lines * LEGEND_LINE + LEGEND_LINE;
    let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    draw(&area, figure, data, machine).map_err(|error| format!("figure {}: {error}", figure.id))?;
    drop(area);
    Ok(text)
}

fn draw(area: &Area<'_>, figure: &Figure, data: &Data, machine: &str) -> Drawn {
    area.fill(&WHITE)?;
    let (plot, legend) = area.split_vertically(HEIGHT);
    let caption = match &figure.paper {
        Some(paper) => format!("{} ({paper}), {machine}", figure.title),
        None => format!("{}, {machine}", figure.title),
    };
    let plot = plot.titled(&caption, ("sans-serif", 15))?;
    let top = data.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).fold(0.0, f64::max) * 1.05;
    let top = if top > 0.0 { top } else { 1.0 };
    let numbers: Option<Vec<f64>> = data.positions.iter().map(super::series::Position::number).collect();
    match numbers {
        Some(numbers) if numbers.len() > 3 => {
            let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
            if figure.log_x && low > 0.0 {
                curves(&plot, figure, data, &numbers, (low * 0.9..high * 1.1).log_scale(), top)?;
            } else {
                let margin = (high - low) * 0.03;
                curves(&plot, figure, data, &numbers, (low - margin).max(0.0)..high + margin, top)?;
            }
        }
        _ => bars(&plot, figure, data, top)?,
    }
    draw_legend(&legend, data)
}

/// Draws one line with points for each series.
fn curves<X>(plot: &Area<'_>, figure: &Figure, data: &Data, numbers: &[f64], range: X, top: f64) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(plot)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(range, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(axis(&figure.x))
        .y_desc(axis(&figure.y))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    for (index, Series { points, is_published, .. }) in data.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (numbers[x], y)).collect();
        if *is_published {
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), 5, 4, colour.stroke_width(2)))?;
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
        }
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    Ok(())
}

/// Draws a group of bars for each position.
fn bars(plot: &Area<'_>, figure: &Figure, data: &Data, top: f64) -> Drawn {
    let count = data.positions.len();
    let mut chart = ChartBuilder::on(plot)
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.5..count as f64 - 0.5, 0.0..top)?;
    let name = |value: &f64| {
        let is_position = value.fract().abs() < 1e-6 && *value > -0.5;
        if is_position { data.positions.get(*value as usize).map(ToString::to_string) } else { None }
            .unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(2 * count + 1)
        .x_desc(axis(&figure.x))
        .y_desc(axis(&figure.y))
        .x_label_formatter(&name)
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    let width = GROUP_WIDTH / data.series.len() as f64;
    for (index, Series { points, is_published, .. }) in data.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let style = if *is_published { colour.mix(0.5).filled() } else { colour.filled() };
        chart.draw_series(points.iter().map(|&(x, y)| {
            let left = x as f64 - GROUP_WIDTH / 2.0 + width * index as f64;
            Rectangle::new([(left, 0.0), (left + width * 0.95, y)], style)
        }))?;
    }
    Ok(())
}

fn draw_legend(legend: &Area<'_>, data: &Data) -> Drawn {
    let style = ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    for (index, series) in data.series.iter().enumerate() {
        let column = (index % LEGEND_COLUMNS) as i32 * (WIDTH as i32 - 60) / LEGEND_COLUMNS as i32 + 60;
        let line = (index / LEGEND_COLUMNS) as i32 * LEGEND_LINE as i32 + 8;
        let colour = COLOURS[index % COLOURS.len()];
        legend.draw(&Rectangle::new([(column, line - 5), (column + 14, line + 5)], colour.filled()))?;
        let name = if series.is_published { format!("{} (published)", series.name) } else { series.name.clone() };
        legend.draw(&Text::new(name, (column + 20, line), style.clone()))?;
    }
    Ok(())
}

/// Returns the title of an axis for a field of a row.
fn axis(field: &str) -> String {
    match field {
        "size" => "frame size, bytes".to_owned(),
        "batch" => "packets of a chunk, or size of a group".to_owned(),
        "mpps" => "million packets or lookups per second".to_owned(),
        "gbps" => "Gbps".to_owned(),
        "p50_us" => "median latency, µs".to_owned(),
        "p99_us" => "99th percentile of latency, µs".to_owned(),
        "watts" => "watts".to_owned(),
        other => other.replace('_', " "),
    }
}

/// Formats the number of an axis without trailing zeros.
fn short(value: f64) -> String {
    if value.abs() >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
