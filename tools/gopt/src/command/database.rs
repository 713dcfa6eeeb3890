//! Reads compiler flags from `compile_commands.json`.

use std::path::Path;

use super::error::Error;

/// Returns a file's compiler and flags from the database in a folder.
pub(super) fn compiler(folder: &Path, file: &Path) -> Result<gopt::Compiler, Error> {
    let path = folder.join("compile_commands.json");
    let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|source| Error::Json { path: path.clone(), source })?;
    let entries = json.as_array().ok_or_else(|| Error::NotCommands(path.clone()))?;
    let wanted = canonical(file);
    for entry in entries {
        let string = |key: &str| entry.get(key).and_then(serde_json::Value::as_str);
        let directory = folder.join(string("directory").unwrap_or("."));
        if string("file").is_none_or(|file| canonical(&directory.join(file)) != wanted) {
            continue;
        }
        let words: Vec<String> = match (entry.get("arguments").and_then(serde_json::Value::as_array), string("command"))
        {
            (Some(list), _) => list.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect(),
            (None, Some(command)) => words(command),
            (None, None) => return Err(Error::WithoutCommand { path, file: file.to_owned() }),
        };
        let (program, flags) = words.split_first().ok_or_else(|| Error::EmptyCommand(path.clone()))?;
        // The file itself is given as text.
        let is_file = |flag: &String| !flag.starts_with('-') && canonical(&directory.join(flag)) == wanted;
        let flags = flags.iter().filter(|flag| !is_file(flag)).cloned().collect();
        return Ok(gopt::Compiler { program: program.clone(), flags, directory: Some(directory), cplusplus: false });
    }
    Err(Error::WithoutEntry { path, file: file.to_owned() })
}

fn canonical(path: &Path) -> std::path::PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Divides a command into words, as a shell does.
fn words(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut word, mut inside, mut quote) = (String::new(), false, None);
    let mut characters = command.chars();
    while let Some(one) = characters.next() {
        match (quote, one) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (None, '\'' | '"') => {
                quote = Some(one);
                inside = true;
            }
            (None | Some('"'), '\\') => {
                word.extend(characters.next());
                inside = true;
            }
            (None, space) if space.is_whitespace() => {
                if inside {
                    found.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            _ => {
                word.push(one);
                inside = true;
            }
        }
    }
    if inside {
        found.push(word);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_are_divided_as_by_a_shell() {
        assert_eq!(words(r#"cc -DA="x y" '-DB=\n' -o a\ b  c.c"#), ["cc", "-DA=x y", r"-DB=\n", "-o", "a b", "c.c"]);
    }
}
