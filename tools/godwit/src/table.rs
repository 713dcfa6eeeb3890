//! Text tables with aligned columns.

use std::fmt::Write;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Table with a heading.
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self { columns: columns.iter().map(|&(title, align)| (title.to_owned(), align)).collect(), rows: Vec::new() }
    }

    /// Appends a row with one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Returns the table as text with one line per row, indented by two spaces.
    pub(crate) fn text(&self) -> String {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(column, (title, _))| {
                let cells = self.rows.iter().map(|row| row[column].chars().count());
                cells.chain([title.chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        let titles: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), &width) in row.iter().zip(&self.columns).zip(&widths) {
                // Writing to a String cannot fail.
                let _ = match align {
                    Align::Left => write!(line, "  {cell:<width$}"),
                    Align::Right => write!(line, "  {cell:>width$}"),
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Groups the digits of a number by thousands, such as `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats nanoseconds as microseconds, with two decimals below 100 µs and none above.
pub(crate) fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    if us < 100.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_width_of_its_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["a".into(), "1234".into()]);
        table.row(vec!["größer".into(), "1".into()]);
        assert_eq!(table.text(), "  name       n\n  a       1234\n  größer     1\n");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let cases = [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567"), (12_345_678, "12 345 678")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(microseconds(1_234), "1.23");
        assert_eq!(microseconds(123_456), "123");
    }
}
