//! Bench definitions, read from `bench/definitions/*.toml`.
//!
//! The binary embeds the files, so it works without the source tree.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

include!(concat!(env!("OUT_DIR"), "/definitions.rs"));

/// One bench: its purpose, its workload and its figures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Name on the command line, and the value of `bench` in its rows.
    pub name: String,
    /// Purpose, in one sentence.
    pub why: String,
    /// Name of the code that runs it (`subject/mod.rs`).
    pub subject: String,
    /// Reproduced figures and tables of papers, such as `PIPSEA figure 8`.
    #[serde(default)]
    pub paper: Vec<String>,
    /// Peers that it measures in the same run.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Devices that `godwit bench all` measures, if present. The bench also accepts other devices.
    pub devices: Vec<String>,
    /// Goal, in one sentence with the number.
    pub goal: Option<String>,
    /// Whether `godwit bench all` runs it.
    #[serde(default)]
    pub suite: bool,
    /// Default options, and parameters without an option.
    #[serde(default)]
    pub workload: toml::Table,
    /// Options that it accepts beyond the common ones.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether its rows appear in the table of results.
    #[serde(default = "yes")]
    pub table: bool,
    /// Row field that separates the table lines, in addition to the device.
    pub group: Option<String>,
    /// Content of a cell of the table.
    #[serde(default)]
    pub cell: Cell,
    /// Figures to draw from its rows.
    #[serde(default)]
    pub figure: Vec<Figure>,
}

fn yes() -> bool {
    true
}

/// Content of a cell in the table of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Gbps and Mpps.
    #[default]
    Rate,
    /// Median and 99th percentile of the latency.
    Latency,
}

/// One figure, drawn from the rows of a definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Unique name, used as file name.
    pub id: String,
    /// Title of the figure.
    pub title: String,
    /// Figure of a paper that it reproduces.
    pub paper: Option<String>,
    /// Definitions whose rows are drawn. The default is the definition of the figure.
    #[serde(default)]
    pub benches: Vec<String>,
    /// Row field of the horizontal axis: `size`, `batch`, `bench`, `impl`, `device`, `mode` or a
    /// detail.
    pub x: String,
    /// Row field of the vertical axis: `mpps`, `gbps`, `p50_us`, `p99_us`, `watts` or a detail.
    pub y: String,
    /// Row field that separates the series.
    pub series: String,
    /// Whether the horizontal axis is logarithmic.
    #[serde(default)]
    pub log_x: bool,
    /// Values that row fields must have. An array lists several permitted values.
    #[serde(default)]
    pub filter: BTreeMap<String, toml::Value>,
    /// Numbers that a paper gives in its text.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// Points that a paper gives in its text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Name of the series.
    pub series: String,
    /// Horizontal and vertical value of each point.
    pub points: Vec<(X, f64)>,
    /// Paper and section.
    pub source: String,
}

/// Horizontal position of a published point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number, such as a frame size.
    Number(f64),
    /// A name, such as `imix`.
    Text(String),
}

/// Returns all definitions, in alphabetical order.
///
/// # Panics
/// Panics if a definition in the binary is invalid. A test reads all of them.
pub fn definitions() -> &'static [Definition] {
    static PARSED: OnceLock<Vec<Definition>> = OnceLock::new();
    PARSED.get_or_init(|| {
        let parse = |(file, text): &(&str, &str)| {
            toml::from_str(text).unwrap_or_else(|error| panic!("bench/definitions/{file}: {error}"))
        };
        DEFINITIONS.iter().map(parse).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_definition_is_valid() {
        let mut names = BTreeSet::new();
        let mut figures = BTreeSet::new();
        for (definition, (file, _)) in definitions().iter().zip(DEFINITIONS) {
            assert_eq!(format!("{}.toml", definition.name), *file);
            assert!(names.insert(&definition.name) && !definition.devices.is_empty(), "{file}");
            for device in &definition.devices {
                assert!(godwit_device::is_id(device), "{file}: {device}");
            }
            for figure in &definition.figure {
                assert!(figures.insert(&figure.id), "{file}: two figures are called {}", figure.id);
            }
        }
    }
}
