//! The report: a page and figures, generated from stored records.
//!
//! The newest record of each machine is used. Everything in the output comes from files of the
//! repository, so the output is the same wherever it is generated.

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

/// Reads the records below `results` and writes the page and the figures to `output`. Returns the
/// paths of the written files. Figures of earlier reports are removed.
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

/// Returns the newest record of each machine, sorted by the name of the machine.
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
