//! The function under test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_custom::Compiled;
use godwit_declare::TestDeclaration;
use godwit_function::{BuildContext, Function, custom};
use toml::de::DeTable;

use crate::failure::Failure;

/// Maximum number of bytes that a tested function may add before and after a frame.
const ROOM_BYTES_MAX: u16 = 1024;

/// A compiled function, with the tables and parameters of its test.
pub(super) struct Subject {
    pub(super) path: PathBuf,
    pub(super) compiled: &'static Compiled,
    pub(super) function: Arc<dyn Function>,
    ports: Vec<String>,
}

impl Subject {
    /// Compiles a function, and builds its tables from the files in `[test]`.
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let compiled = godwit_custom::load(path, None).map_err(Failure::user)?;
        let contract = compiled.contract;
        if contract.headroom_bytes > ROOM_BYTES_MAX || contract.tailroom_bytes > ROOM_BYTES_MAX {
            let message =
                format!("{}: a test has at most {ROOM_BYTES_MAX} bytes of headroom and tailroom", path.display());
            return Err(Failure::User(message));
        }
        let absolute = std::path::absolute(path).map_err(Failure::user)?;
        let test = compiled.declaration.test.as_ref();
        let ports = test.map_or_else(|| vec!["in".to_owned(), "out".to_owned()], |test| test.ports.clone());
        let source = toml::Value::String(absolute.display().to_string());
        let stanza = format!("source = {source}\n{}", test.map_or("", |test| &test.stanza));
        let stanza = DeTable::parse(&stanza).map_err(Failure::user)?;
        let directory = absolute.parent().unwrap_or(Path::new("/"));
        let context = BuildContext { name: &compiled.declaration.name, ports: &ports, directory };
        let function = godwit_function::build(custom::KIND_NAME, stanza, &context)
            .map_err(|error| Failure::User(format!("{}: [test]: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), compiled, function, ports })
    }

    /// Returns the test packets that the declaration names.
    pub(super) fn test(&self) -> Option<&'static TestDeclaration> {
        self.compiled.declaration.test.as_ref()
    }

    /// Returns the folder of the C file.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// Returns the names of the ports.
    pub(super) fn ports(&self) -> &[String] {
        &self.ports
    }

    /// Returns the failure for a fault of the function.
    pub(super) fn fault(&self, line: Option<usize>, message: &str) -> Failure {
        let path = self.path.display();
        match line {
            Some(line) => Failure::User(format!("{path}:{line}: {message}")),
            None => Failure::User(format!("{path}: {message}")),
        }
    }
}
