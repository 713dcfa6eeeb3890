//! Documents that say what the code says.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_test_support::repository;

#[test]
fn the_page_of_counters_is_made_from_the_tables() {
    let page = repository().join("docs/counters.md");
    let expected = godwit_engine::counters::document();
    if std::env::var_os("GODWIT_WRITE").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let found = fs::read_to_string(&page).unwrap();
    assert!(found == expected, "docs/counters.md is old: GODWIT_WRITE=1 cargo test -p godwit --test documents");
}

/// Every Markdown file below `folder`, but for what is built or fetched.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && name != "out" && !name.starts_with('.') {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut found = Vec::new();
    pages(&repository(), &mut found);
    assert!(found.len() > 10, "{found:?}");
    let mut links = 0;
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        // `](target)`, without what follows a `#`.
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            assert!(page.with_file_name("").join(file).exists(), "{} links to {file}", page.display());
        }
    }
    assert!(links > 20, "only {links} links");
}
