//! Text files of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::git;

/// Folders whose text is data, not prose: fuzz corpora, bad configurations with their expected
/// errors, the frozen notebook, benchmark results, code of public projects.
const DATA: &[&str] =
    &["fuzz/corpus/", "tests/bad-config/", "docs/notebook/", "bench/results/", "tools/gopt/tests/public/"];
/// Extensions of source files with `//` or `/* */` comments.
const SOURCES: &[&str] = &["rs", "c", "h", "cl", "cu", "cpp", "cc"];
/// Extensions of files with `#` comments.
const SCRIPTS: &[&str] = &["toml", "sh", "py"];

/// Kind of a text file, by the form of its prose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Source,
    Script,
    Markdown,
}

/// Text file.
pub(super) struct File {
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) text: String,
}

/// Paths of all files that git does not ignore, and the text of files with prose.
pub(super) struct Tree {
    paths: BTreeSet<String>,
    files: Vec<File>,
}

impl Tree {
    /// Reads the files below `root`.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let list = git(root, &["ls-files", "--cached", "--others", "--exclude-standard"])
            .ok_or("git does not list the files; tidy needs a git checkout")?;
        let paths: BTreeSet<String> = list.lines().filter(|path| root.join(path).exists()).map(str::to_owned).collect();
        let mut files = Vec::new();
        for path in &paths {
            let Some(kind) = kind(path) else { continue };
            let bytes = fs::read(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
            files.push(File { path: path.clone(), kind, text: String::from_utf8_lossy(&bytes).into_owned() });
        }
        Ok(Self { paths, files })
    }

    /// Builds a tree from `(path, text)` pairs.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let file = |(path, text): &(&str, &str)| {
            kind(path).map(|kind| File { path: (*path).to_owned(), kind, text: (*text).to_owned() })
        };
        Self { paths, files: files.iter().filter_map(file).collect() }
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.kind == Kind::Markdown)
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Returns whether `path` is a file, or a folder that contains files.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|first| first.starts_with(&folder))
    }
}

fn kind(path: &str) -> Option<Kind> {
    if DATA.iter().any(|folder| path.starts_with(folder)) {
        return None;
    }
    let extension = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    match extension {
        Some("md") => Some(Kind::Markdown),
        Some(extension) if SOURCES.contains(&extension) => Some(Kind::Source),
        Some(extension) if SCRIPTS.contains(&extension) => Some(Kind::Script),
        _ if path == "Makefile" => Some(Kind::Script),
        _ => None,
    }
}
