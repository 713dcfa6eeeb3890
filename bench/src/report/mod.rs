//! The report: a page and figures, generated from stored records.
//!
//! The report uses the newest record of each machine. It depends only on files of the repository,
//! so the output is the same on every machine.

mod figure;
mod page;
mod series;

use std::fs;
use std::path::{Path, PathBuf};

use crate::definition::definitions;
use crate::error::Error;
use crate::run::record::Record;

/// Name of the page.
const PAGE: &str = "results.md";
/// Folder of the figures, next to the page.
const FIGURES: &str = "figures";

/// A machine and its newest record.
struct Machine {
    record: Record,
    figures: Vec<DrawnFigure>,
}

/// A figure that was drawn for a machine.
struct DrawnFigure {
    title: String,
    /// Path of the SVG file, relative to the page.
    file: String,
    /// Sources of the published values in the figure.
    sources: Vec<String>,
}

/// Reads the records below `results`, and writes the page and the figures to `output`. Returns the
/// paths of the written files, and removes figures of earlier reports.
///
/// # Errors
/// Returns an error if there is no record, a record is invalid, or a file cannot be written.
pub fn report(results: &Path, output: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut machines = newest(results)?;
    let folder = output.join(FIGURES);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| cannot(&folder, "remove", &error))?;
    }
    let mut written = Vec::new();
    for machine in &mut machines {
        let name = machine.record.manifest.machine.clone();
        let folder = folder.join(&name);
        fs::create_dir_all(&folder).map_err(|error| cannot(&folder, "create", &error))?;
        for definition in definitions() {
            for figure in &definition.figure {
                let Some(data) = series::data(figure, &definition.name, &machine.record.rows) else { continue };
                let path = folder.join(format!("{}.svg", figure.id));
                let svg = figure::svg(figure, &data, &name).map_err(Error::Setup)?;
                write(&path, &svg)?;
                machine.figures.push(DrawnFigure {
                    title: figure.title.clone(),
                    file: format!("{FIGURES}/{name}/{}.svg", figure.id),
                    sources: figure.published.iter().map(|published| published.source.clone()).collect(),
                });
                written.push(path);
            }
        }
    }
    let page = output.join(PAGE);
    write(&page, &page::text(&machines))?;
    written.push(page);
    Ok(written)
}

/// Returns the newest record of each machine, sorted by machine name.
fn newest(results: &Path) -> Result<Vec<Machine>, Error> {
    let mut machines = Vec::new();
    for folder in entries(results)?.into_iter().filter(|path| path.is_dir()) {
        let is_record = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let mut records = Vec::new();
        for path in entries(&folder)?.into_iter().filter(is_record) {
            let text = fs::read(&path).map_err(|error| cannot(&path, "read", &error))?;
            let record: Record = serde_json::from_slice(&text)
                .map_err(|error| Error::Setup(format!("{}: this is not a record: {error}", path.display())))?;
            records.push(record);
        }
        let time = |record: &Record| (record.manifest.date.clone(), record.manifest.time.clone());
        if let Some(record) = records.into_iter().max_by_key(time) {
            machines.push(Machine { record, figures: Vec::new() });
        }
    }
    if machines.is_empty() {
        return Err(Error::Setup(format!(
            "{}: there is no record; `godwit bench all --record {}` makes one",
            results.display(),
            results.display()
        )));
    }
    Ok(machines)
}

/// Returns the paths in a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = fs::read_dir(folder).and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut paths: Vec<PathBuf> = read.map_err(|error| cannot(folder, "read", &error))?;
    paths.sort();
    Ok(paths)
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| cannot(path, "write", &error))
}

fn cannot(path: &Path, action: &str, error: &std::io::Error) -> Error {
    Error::Setup(format!("{}: cannot {action}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::size::Size;
    use crate::run::manifest::Manifest;
    use crate::run::row::Row;

    fn record(folder: &Path, commit: &str, time: &str, mpps: f64) {
        let row = |device: &str, size, peer| Row {
            bench: "ipsec".to_owned(),
            device: device.to_owned(),
            implementation: "avx512".to_owned(),
            mode: "call".to_owned(),
            size: Some(Size::Bytes(size)),
            mpps,
            gbps: mpps * f64::from(size) * 8.0 / 1e3,
            peer,
            ..Row::default()
        };
        let rows = [row("cpu", 64, false), row("cpu", 1408, false), row("ipsec-mb", 64, true)];
        let manifest = Manifest {
            commit: commit.to_owned(),
            date: "2026-11-25".to_owned(),
            time: time.to_owned(),
            ..Manifest::of_this_machine(Some("two-cores"))
        };
        let record = Record::new(manifest, &rows);
        let path = record.path(folder);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    #[test]
    fn the_page_shows_the_newest_record_of_a_machine_and_its_figures() {
        let folder = tempfile::tempdir().unwrap();
        let (results, output) = (folder.path().join("results"), folder.path().join("output"));
        record(&results, "aaaa", "10:00:00", 11.0);
        record(&results, "bbbb", "11:00:00", 12.0);
        fs::create_dir_all(output.join("figures/gone")).unwrap();
        let written = report(&results, &output).unwrap();
        let page = fs::read_to_string(output.join("results.md")).unwrap();
        assert!(page.contains("## two-cores") && page.contains("`bbbb`") && !page.contains("`aaaa`"), "{page}");
        assert!(page.contains("| ipsec | cpu | avx512 | 6.14 (12.0) |"), "{page}");
        assert!(page.contains("| ipsec | *ipsec-mb* | *avx512* |"), "{page}");
        assert!(page.contains("(figures/two-cores/ipsec.svg)"), "{page}");
        let svg = fs::read_to_string(output.join("figures/two-cores/ipsec.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("1408") && svg.contains("ipsec-mb"), "{svg}");
        assert!(written.contains(&output.join("results.md")) && !output.join("figures/gone").exists());
    }

    #[test]
    fn a_folder_without_records_and_an_invalid_record_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let message = |results: &Path| report(results, folder.path()).unwrap_err().to_string();
        assert!(message(&folder.path().join("absent")).contains("absent"));
        fs::create_dir_all(folder.path().join("results/two-cores")).unwrap();
        assert!(message(&folder.path().join("results")).contains("bench all --record"));
        fs::write(folder.path().join("results/two-cores/2026-11-25-aaaa.json"), "{").unwrap();
        assert!(message(&folder.path().join("results")).contains("2026-11-25-aaaa.json"));
    }
}
