//! Computes a digest of the functions and their tables. Measurements of one configuration are valid
//! for every configuration with the same digest.

use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Key of a function that does not influence its costs on a device.
const DEVICE: &str = "device";
/// End of the names of keys with secret values, which the digest does not include.
const SECRET: &str = "key";

/// Digest of the `[[function]]` stanzas, and the files that these stanzas name.
#[derive(Clone, Default)]
pub(super) struct FunctionsDigest {
    stanzas: Sha256,
    files: Vec<PathBuf>,
}

impl FunctionsDigest {
    /// Computes the digest of the stanzas in a configuration document. Relative paths start at
    /// `directory`.
    pub(super) fn new(root: &DeTable<'_>, directory: &Path) -> Self {
        let mut digest = Self::default();
        let functions = root.iter().filter(|(key, _)| key.get_ref() == "function");
        functions.for_each(|(_, stanzas)| digest.feed(stanzas, directory, 0));
        digest
    }

    /// Returns the digest of the stanzas and of the files that they name, as text.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub(super) fn text(&self) -> io::Result<String> {
        let mut digest = self.stanzas.clone();
        for path in &self.files {
            let content = std::fs::read(path)?;
            digest.update((content.len() as u64).to_le_bytes());
            digest.update(content);
        }
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn feed(&mut self, value: &Spanned<DeValue<'_>>, directory: &Path, depth: usize) {
        match value.get_ref() {
            DeValue::String(text) => {
                self.text_of(0, text);
                let path = directory.join(&**text);
                if path.is_file() {
                    self.files.push(path);
                }
            }
            DeValue::Integer(value) => self.text_of(1, &value.to_string()),
            DeValue::Float(value) => self.text_of(2, value.as_str()),
            DeValue::Boolean(value) => self.text_of(3, if *value { "true" } else { "false" }),
            DeValue::Datetime(value) => self.text_of(4, &value.to_string()),
            DeValue::Array(values) => {
                self.text_of(5, &values.len().to_string());
                values.iter().for_each(|value| self.feed(value, directory, depth + 1));
            }
            DeValue::Table(table) => {
                let is_left_out = |key: &str| key.ends_with(SECRET) || depth == 1 && key == DEVICE;
                let keys = table.iter().map(|(key, value)| (key.get_ref().as_ref(), value));
                let mut keys: Vec<(&str, &Spanned<DeValue<'_>>)> = keys.collect();
                keys.retain(|(key, _)| !is_left_out(key));
                keys.sort_by_key(|(key, _)| *key);
                self.text_of(6, &keys.len().to_string());
                for (key, value) in keys {
                    self.text_of(0, key);
                    self.feed(value, directory, depth + 1);
                }
            }
        }
    }

    /// Adds a text to the digest. `kind` distinguishes values of different types with the same
    /// text.
    fn text_of(&mut self, kind: u8, text: &str) {
        self.stanzas.update([kind]);
        self.stanzas.update((text.len() as u64).to_le_bytes());
        self.stanzas.update(text);
    }
}

#[cfg(test)]
mod tests {
    use godwit_test_support::Folder;

    use super::*;

    fn digest(text: &str, directory: &Path) -> String {
        let root = DeTable::parse(text).expect("valid TOML").into_inner();
        FunctionsDigest::new(&root, directory).text().expect("readable files")
    }

    #[test]
    fn digest_depends_on_functions_and_their_files_only() {
        let folder = Folder::new();
        folder.write("routes.txt", "one");
        let function = "[[function]]\nname = \"a\"\nkind = \"ipv4\"\nroutes = \"routes.txt\"\n";
        let digest = |text: &str| digest(text, folder.path());
        let first = digest(function);
        assert_eq!(first.len(), 64);
        for same in [
            "[engine]\nworkers = 3\n[[function]]\nname = \"a\"\nkind = \"ipv4\"\nroutes = \"routes.txt\"\n",
            "[[function]] # a comment\nroutes = \"routes.txt\"\nkind = \"ipv4\"\nname = \"a\"\ndevice = \"cuda:0\"\n",
            &format!("{function}encryption_key = \"00\"\n"),
        ] {
            assert_eq!(digest(same), first, "{same}");
        }
        for other in
            [&function.replace("\"a\"", "\"b\""), &function.replace("ipv4", "ipv6"), &format!("{function}ttl = 1\n")]
        {
            assert_ne!(digest(other), first, "{other}");
        }
        folder.write("routes.txt", "two");
        assert_ne!(digest(function), first);
    }
}
