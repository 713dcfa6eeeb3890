//! `cargo xtask new-function NAME`: creates a function from the template.

use std::path::Path;

/// Highest kernel number of a built-in function. Users' functions have higher numbers.
const NUMBER_MAX: u32 = 127;

/// Creates `kernels/NAME/NAME.h`. The next build compiles the function for all processors.
pub(crate) fn run(root: &Path, name: &str) -> Result<(), String> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || !name.chars().all(is_letter) {
        return Err(format!("`{name}` is not a name of a function: use lower-case letters, digits and `_`"));
    }
    let kernels = root.join("kernels");
    let folder = kernels.join(name);
    if folder.exists() {
        return Err(format!("{} exists: choose another name", folder.display()));
    }
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut used = Vec::new();
    let entries = std::fs::read_dir(&kernels).map_err(|error| format!("{}: {error}", kernels.display()))?;
    for entry in entries.flatten() {
        let other = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path().join(format!("{other}.h"));
        if path.is_file() {
            used.extend(number(&read(&path)?));
        }
    }
    let next = used.into_iter().max().map_or(0, |number| number + 1);
    if next > NUMBER_MAX {
        return Err(format!("all {NUMBER_MAX} numbers of kernels are in use"));
    }
    let text = from_template(&read(&kernels.join("template/template.h"))?, name, next);
    let path = folder.join(format!("{name}.h"));
    std::fs::create_dir(&folder)
        .and_then(|()| std::fs::write(&path, text))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("xtask: {} has number {next}; `kind = \"{name}\"` configures the function", path.display());
    Ok(())
}

/// Returns the number of a declaration.
fn number(text: &str) -> Option<u32> {
    let head = text.strip_prefix("/* godwit function ")?.split("*/").next()?;
    let line = head.lines().find(|line| line.starts_with("number"))?;
    line.split_once('=')?.1.trim().parse().ok()
}

/// Returns the template with another name and number.
fn from_template(template: &str, name: &str, number: u32) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut in_summary = false;
    for line in template.lines() {
        if line.starts_with("summary") {
            in_summary = line.ends_with("\"\"\"\\");
            lines.push("summary = \"Swaps the source and destination MAC address of every frame.\"".to_owned());
        } else if in_summary {
            in_summary = !line.ends_with("\"\"\"");
        } else if line.starts_with("number") {
            lines.push(format!("number  = {number}"));
        } else {
            lines.push(line.replace("template", name).replace("TEMPLATE", &name.to_ascii_uppercase()));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_function_has_its_own_name_and_number() {
        let template = std::fs::read_to_string(crate::repository().join("kernels/template/template.h")).unwrap();
        let text = from_template(&template, "police", 9);
        assert!(text.starts_with("/* godwit function police\nsummary = \"Swaps"));
        assert_eq!((number(&template), number(&text)), (Some(0), Some(9)));
        assert!(!text.to_lowercase().contains("template"));
        for part in ["gw_police_packet", "GW_POLICE_FORWARD", "GODWIT_POLICE_H"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
