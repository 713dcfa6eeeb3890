//! The points of a figure, taken from the rows of a record.

use std::collections::BTreeMap;

use crate::definition::{Figure, X};
use crate::run::record::RecordedRow;
use crate::run::row::{Detail, Row};

/// Points of a curve: horizontal position and value.
type Points = Vec<(Position, f64)>;

/// The data of one figure.
#[derive(Debug, PartialEq)]
pub(super) struct Data {
    /// Positions on the horizontal axis in order. Numbers come before names.
    pub(super) positions: Vec<Position>,
    /// The curves or groups of bars.
    pub(super) series: Vec<Series>,
}

/// One curve or one group of bars.
#[derive(Debug, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Pairs of a position index and a value, sorted by the index.
    pub(super) points: Vec<(usize, f64)>,
    /// Whether the values come from a paper.
    pub(super) is_published: bool,
}

/// A position on the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Position {
    /// A number, such as a frame size in bytes.
    Number(f64),
    /// A name, such as `imix`.
    Name(String),
}

impl Position {
    fn of(detail: &Detail) -> Self {
        match detail {
            Detail::Text(text) => text.parse().map_or_else(|_| Self::Name(text.clone()), Self::Number),
            number => Self::Number(number.number().unwrap_or(0.0)),
        }
    }

    /// Returns the number, if the position is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Name(_) => None,
        }
    }

    /// Returns a sort key that orders numbers by value, and then names alphabetically.
    fn key(&self) -> (bool, u64, String) {
        match self {
            // The bits of a positive number have the order of its value.
            Self::Number(number) => (false, number.max(0.0).to_bits(), String::new()),
            Self::Name(name) => (true, 0, name.clone()),
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Returns the data of `figure` in the definition `definition`, or `None` if the record has no row
/// for it.
///
/// If several rows have the same series and position, the best one counts: the highest rate or the
/// lowest latency.
pub(super) fn data(figure: &Figure, definition: &str, rows: &[RecordedRow]) -> Option<Data> {
    let mut best: BTreeMap<String, Vec<(Position, f64)>> = BTreeMap::new();
    let lower_is_better = figure.y.ends_with("_us");
    for RecordedRow { definition: found, row } in rows {
        let belongs = if figure.benches.is_empty() { found == definition } else { figure.benches.contains(found) };
        if !belongs || !passes(figure, row) {
            continue;
        }
        let (Some(x), Some(y)) = (field(row, &figure.x), field(row, &figure.y).and_then(|value| value.number())) else {
            continue;
        };
        let x = Position::of(&x);
        let points = best.entry(series_name(figure, row)).or_default();
        match points.iter_mut().find(|(position, _)| *position == x) {
            Some((_, value)) if lower_is_better => *value = value.min(y),
            Some((_, value)) => *value = value.max(y),
            None => points.push((x, y)),
        }
    }
    if best.is_empty() {
        return None;
    }
    let published = figure.published.iter().map(|published| {
        let position = |x: &X| match x {
            X::Number(number) => Position::Number(*number),
            X::Text(text) => Position::Name(text.clone()),
        };
        let points = published.points.iter().map(|(x, y)| (position(x), *y)).collect();
        (published.series.clone(), points, true)
    });
    let all: Vec<(String, Points, bool)> =
        best.into_iter().map(|(name, points)| (name, points, false)).chain(published).collect();
    let mut positions: Vec<Position> = Vec::new();
    for (position, _) in all.iter().flat_map(|(_, points, _)| points) {
        if !positions.contains(position) {
            positions.push(position.clone());
        }
    }
    positions.sort_by_key(Position::key);
    let index = |position: &Position| positions.iter().position(|known| known == position).unwrap_or(0);
    let series = all
        .iter()
        .map(|(name, points, is_published)| {
            let mut points: Vec<(usize, f64)> = points.iter().map(|(x, y)| (index(x), *y)).collect();
            points.sort_by_key(|(x, _)| *x);
            Series { name: name.clone(), points, is_published: *is_published }
        })
        .collect();
    Some(Data { positions, series })
}

/// Returns whether the row passes the figure's filter.
fn passes(figure: &Figure, row: &Row) -> bool {
    figure.filter.iter().all(|(name, permitted)| {
        let Some(value) = field(row, name) else { return false };
        match permitted {
            toml::Value::Array(values) => values.iter().any(|permitted| equals(permitted, &value)),
            permitted => equals(permitted, &value),
        }
    })
}

fn equals(permitted: &toml::Value, value: &Detail) -> bool {
    match permitted {
        toml::Value::String(text) => *text == plain(value),
        toml::Value::Integer(number) => value.number() == Some(*number as f64),
        toml::Value::Float(number) => value.number() == Some(*number),
        _ => false,
    }
}

/// Returns the series name of a row. The name of a peer's series includes the peer.
fn series_name(figure: &Figure, row: &Row) -> String {
    let value = field(row, &figure.series).map(|value| plain(&value)).unwrap_or_default();
    match (row.peer, figure.series.as_str()) {
        (true, "device") | (false, _) => value,
        (true, _) => format!("{} {value}", row.device),
    }
}

/// Returns the value of a row field, or of a detail with this name.
pub(super) fn field(row: &Row, name: &str) -> Option<Detail> {
    Some(match name {
        "bench" => Detail::Text(row.bench.clone()),
        "device" => Detail::Text(row.device.clone()),
        "impl" => Detail::Text(row.implementation.clone()),
        "mode" => Detail::Text(row.mode.clone()),
        "size" => Detail::Text(row.size?.to_string()),
        "batch" => Detail::Count(row.batch as u64),
        "mpps" => Detail::Number(row.mpps),
        "gbps" => Detail::Number(row.gbps),
        "p50_us" => Detail::Number(row.p50_us),
        "p99_us" => Detail::Number(row.p99_us),
        "watts" => Detail::Number(row.watts?),
        _ => row.details.get(name)?.clone(),
    })
}

/// Returns the value as text, without rounding counts.
fn plain(value: &Detail) -> String {
    match value {
        Detail::Text(text) => text.clone(),
        Detail::Count(count) => count.to_string(),
        Detail::Number(number) => format!("{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::size::Size;
    use crate::run::row::Details;

    fn figure(text: &str) -> Figure {
        toml::from_str(&format!("id = \"f\"\ntitle = \"t\"\nx = \"size\"\ny = \"gbps\"\nseries = \"device\"\n{text}"))
            .unwrap()
    }

    fn row(device: &str, size: Size, gbps: f64, bins: u64) -> RecordedRow {
        let details = Details::default().with("bins", bins);
        let row = Row { device: device.to_owned(), size: Some(size), gbps, details, ..Row::default() };
        RecordedRow { definition: "ipsec".to_owned(), row }
    }

    #[test]
    fn the_best_row_of_a_position_is_drawn_and_numbers_precede_names() {
        let rows = [
            row("cpu", "imix".parse().unwrap(), 5.0, 1),
            row("cpu", Size::Bytes(1408), 40.0, 1),
            row("cpu", Size::Bytes(64), 6.0, 1),
            row("cpu", Size::Bytes(64), 7.0, 2),
        ];
        let data = data(&figure(""), "ipsec", &rows).unwrap();
        let names: Vec<String> = data.positions.iter().map(Position::to_string).collect();
        assert_eq!(names, ["64", "1408", "imix"]);
        assert_eq!(data.series[0].points, [(0, 7.0), (1, 40.0), (2, 5.0)]);
    }

    #[test]
    fn the_filter_and_the_definition_select_rows() {
        let rows = [row("cpu", Size::Bytes(64), 6.0, 16), row("cpu", Size::Bytes(64), 7.0, 32)];
        let selected = data(&figure("filter = { bins = 16 }"), "ipsec", &rows).unwrap();
        assert_eq!(selected.series[0].points, [(0, 6.0)]);
        assert_eq!(data(&figure("filter = { bins = 64 }"), "ipsec", &rows), None);
        assert_eq!(data(&figure(""), "dpi", &rows), None);
        assert!(data(&figure("benches = [\"ipsec\"]"), "dpi", &rows).is_some());
    }

    #[test]
    fn published_points_form_a_series() {
        let rows = [row("cpu", Size::Bytes(64), 6.0, 16)];
        let text = "[[published]]\nseries = \"PIPSEA\"\npoints = [[1280, 11.09]]\nsource = \"section 4.3\"";
        let data = data(&figure(text), "ipsec", &rows).unwrap();
        assert_eq!(data.positions.len(), 2);
        assert_eq!((data.series[1].points.as_slice(), data.series[1].is_published), ([(1, 11.09)].as_slice(), true));
    }
}
