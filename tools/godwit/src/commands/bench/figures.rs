//! Rows of `godwit bench ipsec --figures` as figures: a table for each, Gbps by size.

use godwit_bench::Row;

use crate::table::{Align, Table};

/// What a figure's sizes are, and what was measured without ports.
fn title(figure: &str) -> &'static str {
    match figure {
        "ipsec-pipsea-8" => "PIPSEA, figure 8: prepared chunks in memory; Gbps of payload by bytes of payload",
        "ipsec-pipsea-12" => {
            "PIPSEA, figure 12: launch, persistent: chunks in memory by the packer, one core that feeds; engine: port to port, all cores, \
             encryption only; Gbps as they come in by bytes of plain frame, without FCS"
        }
        _ => "APUNet, figure 9(a): port to port, all cores; Gbps as they come in by bytes of frame, without FCS",
    }
}

/// Sizes are columns, combinations and who ran them are lines.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for figure in firsts(rows, |row| row.bench.clone()) {
        let of: Vec<&Row> = rows.iter().filter(|row| row.bench == figure).collect();
        let size = |row: &Row| row.size.map_or_else(|| "-".to_owned(), |size| size.to_string());
        let sizes = firsts(of.iter().copied(), size);
        let mut columns =
            vec![("Gbps", Align::Left), ("device", Align::Left), ("impl", Align::Left), ("mode", Align::Left)];
        columns.extend(sizes.iter().map(|size| (size.as_str(), Align::Right)));
        let mut table = Table::new(&columns);
        let mut lines = firsts(of.iter().copied(), line);
        // Stable: what is held against each other stands together.
        let combinations = firsts(of.iter().copied(), combination);
        lines.sort_by_key(|line| combinations.iter().position(|combination| *combination == line[0]));
        for line in &lines {
            let cell = |wanted: &String| {
                let found = of.iter().find(|row| self::line(row) == *line && size(row) == *wanted);
                found.map_or_else(|| "-".to_owned(), |row| format!("{:.2}", row.gbps))
            };
            table.row(line.iter().cloned().chain(sizes.iter().map(cell)).collect());
        }
        text += &format!("{figure}: {}\n{}{}\n", title(&figure), table.text(), peers(&of, &combinations));
    }
    text
}

/// Which combinations there is a peer for.
fn peers(rows: &[&Row], combinations: &[String]) -> String {
    let (with, without): (Vec<&String>, Vec<&String>) = combinations
        .iter()
        .partition(|combination| rows.iter().any(|row| row.peer && self::combination(row) == **combination));
    let names = |combinations: &[&String]| combinations.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    match (with.is_empty(), without.is_empty()) {
        (true, _) => "  no peer was measured\n".to_owned(),
        (false, true) => {
            "  peer: one core, bare jobs, no ports; call: ours beside it, as a whole function\n".to_owned()
        }
        (false, false) => format!(
            "  peer: one core, bare jobs, no ports; call: ours beside it, as a whole function\n  no peer for {}\n",
            names(&without)
        ),
    }
}

/// In front of the note.
fn combination(row: &Row) -> String {
    row.note.split(';').next().unwrap_or_default().to_owned()
}

/// What a line begins with: combination, device, implementation, mode.
fn line(row: &Row) -> [String; 4] {
    let device = if row.peer { format!("{} (peer)", row.device) } else { row.device.clone() };
    [combination(row), device, row.implementation.clone(), row.mode.to_owned()]
}

/// Each value once, in order of appearance.
fn firsts<'a, T: PartialEq>(rows: impl IntoIterator<Item = &'a Row>, of: impl Fn(&Row) -> T) -> Vec<T> {
    let mut found = Vec::new();
    for value in rows.into_iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(combination: &str, device: &str, bytes: u16, gbps: f64) -> Row {
        Row {
            bench: "ipsec-pipsea-8".to_owned(),
            device: device.to_owned(),
            implementation: "i".to_owned(),
            mode: "launch",
            size: Some(godwit_bench::Size::Bytes(bytes)),
            batch: 1,
            mpps: 1.0,
            gbps,
            p50_us: 1.0,
            p99_us: 1.0,
            watts: None,
            peer: device == "other",
            note: format!("{combination}; more"),
        }
    }

    #[test]
    fn a_figure_has_sizes_as_columns_and_says_where_there_is_no_peer() {
        let mut rows = vec![
            row("A ENC", "cpu", 64, 1.0),
            row("A ENC", "cpu", 256, 2.0),
            row("A DEC", "cpu", 64, 3.0),
            row("A ENC", "other", 64, 4.0),
        ];
        let text = self::text(&rows);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["Gbps", "device", "impl", "mode", "64", "256"]);
        assert_eq!(lines[2], ["A", "ENC", "cpu", "i", "launch", "1.00", "2.00"]);
        assert_eq!(lines[3], ["A", "ENC", "other", "(peer)", "i", "launch", "4.00", "-"]);
        assert_eq!(lines[4], ["A", "DEC", "cpu", "i", "launch", "3.00", "-"]);
        assert!(text.contains("no peer for A DEC\n"), "{text}");
        rows.pop();
        assert!(self::text(&rows).contains("no peer was measured"));
    }
}
