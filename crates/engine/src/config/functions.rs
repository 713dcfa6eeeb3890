//! Reads the `[[function]]` stanzas.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use godwit_chain::names;
use godwit_device::{Implementation, LAST_RESORT, is_synchronous};
use godwit_function::{BuildContext, Durable, Error, Function, SendingKey};

use super::document::{Document, Stanza};
use super::error::ConfigError;

/// Maximum number of packet functions in a configuration.
pub const FUNCTIONS_MAX: usize = 64;

/// A configured packet function with its tables.
#[derive(Clone)]
pub struct FunctionConfig {
    /// Configured name of the function.
    pub name: String,
    /// Implementation of the kernel that runs on the CPU.
    pub implementation: Implementation,
    /// Names of the devices that run the function, such as `cpu`, `opencl:0` and `cuda:0`. The list
    /// is not empty and has no duplicates. Several devices share the function's packets.
    pub devices: Vec<String>,
    /// The function with its tables.
    pub function: Arc<dyn Function>,
    /// Line number of the function's stanza in the configuration, counted from 1.
    pub line: usize,
}

impl std::fmt::Debug for FunctionConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FunctionConfig")
            .field("name", &self.name)
            .field("kind", &self.function.contract().kind)
            .field("implementation", &self.implementation)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// Returns all valid values of a function's key `kind`.
pub fn function_kinds() -> Vec<&'static str> {
    godwit_function::kind_names()
}

/// Keys that every `[[function]]` stanza can have.
const KEYS: [&str; 4] = ["name", "kind", "impl", "device"];

pub(super) fn read<'a>(
    document: &Document<'a>,
    stanzas: Vec<Stanza<'a>>,
    ports: &[String],
    directory: &Path,
) -> Result<Vec<FunctionConfig>, ConfigError> {
    let mut functions: Vec<FunctionConfig> = Vec::new();
    for mut stanza in stanzas {
        if functions.len() == FUNCTIONS_MAX {
            return Err(document.refuse(stanza.span(), format!("too many functions: at most {FUNCTIONS_MAX}")));
        }
        let name = document.name(&mut stanza)?;
        let refuse = |message: String| Err(document.refuse(stanza.span_of("name"), message));
        if ports.contains(&name) {
            return refuse(format!("`{name}` is also the name of a port: a chain could not distinguish them"));
        }
        if let Some(other) = functions.iter().find(|function| function.name == name) {
            return refuse(format!("two functions are named `{name}`: the other one starts on line {}", other.line));
        }
        functions.push(read_one(document, stanza, name, ports, directory)?);
    }
    let all: Vec<Arc<dyn Function>> = functions.iter().map(|function| Arc::clone(&function.function)).collect();
    for (own, function) in functions.iter().enumerate() {
        let station = function.function.station();
        if let Some(Err(error)) = station.map(|station| station.connect(&all, own)) {
            return Err(document.refuse_line(function.line, format!("function `{}`: {error}", function.name)));
        }
    }
    check_shared_keys(document, &functions)?;
    Ok(functions)
}

/// Checks that no two functions send with the same key.
fn check_shared_keys(document: &Document<'_>, functions: &[FunctionConfig]) -> Result<(), ConfigError> {
    let mut users = HashMap::new();
    for function in functions {
        for SendingKey { name, owner, .. } in function.function.durable().map(Durable::keys).unwrap_or_default() {
            let own = format!("{owner} of function `{}`", function.name);
            if let Some(other) = users.insert(name, own.clone()) {
                let message = format!(
                    "{own} uses the key of {other}: repeated nonces or IVs would reveal the plaintext; use another key"
                );
                return Err(document.refuse_line(function.line, message));
            }
        }
    }
    Ok(())
}

fn read_one<'a>(
    document: &Document<'a>,
    mut stanza: Stanza<'a>,
    name: String,
    ports: &[String],
    directory: &Path,
) -> Result<FunctionConfig, ConfigError> {
    let line = document.line(stanza.span().start);
    let kind_text = stanza.require_text(document, "kind")?;
    let kind_name = kind_text.get_ref();
    let kinds = function_kinds();
    if !kinds.contains(&kind_name.as_str()) {
        return Err(document.refuse(kind_text.span(), names::unknown("kind of function", kind_name, &kinds)));
    }
    let implementation = match stanza.take_text(document, "impl")? {
        None => None,
        Some(text) => {
            let all = Implementation::ALL;
            match all.into_iter().find(|known| known.name() == text.get_ref()) {
                Some(known) => Some(known),
                None => {
                    let message = names::unknown("value", text.get_ref(), &all.map(Implementation::name));
                    return Err(document.refuse(text.span(), format!("`impl`: {message}")));
                }
            }
        }
    };
    let devices = read_devices(document, &mut stanza, &name, implementation)?;
    let context = BuildContext { name: &name, ports, directory };
    let function = match godwit_function::build(kind_name, stanza.take_table(), &context) {
        Ok(function) => function,
        Err(error) => return Err(refuse(document, &stanza, &name, directory, &error)),
    };
    Ok(FunctionConfig { name, implementation: implementation.unwrap_or_default(), devices, function, line })
}

fn read_devices(
    document: &Document<'_>,
    stanza: &mut Stanza<'_>,
    name: &str,
    implementation: Option<Implementation>,
) -> Result<Vec<String>, ConfigError> {
    let texts = stanza.take_texts(document, "device")?;
    let mut devices: Vec<String> = Vec::new();
    for text in &texts {
        let refuse = |message: String| Err(document.refuse(text.span(), message));
        let device = text.get_ref();
        if !godwit_device::is_id(device) {
            return refuse(format!("function `{name}` cannot run on {}", no_device(device)));
        }
        if devices.contains(device) {
            return refuse(format!("function `{name}` lists `{device}` twice"));
        }
        devices.push(device.clone());
    }
    let of_cpu = implementation.filter(|implementation| *implementation != Implementation::Scalar);
    if let (Some(implementation), Some(first)) = (of_cpu, texts.first())
        && !devices.iter().any(|device| is_synchronous(device))
    {
        let (implementation, device) = (implementation.name(), first.get_ref());
        let message = format!("function `{name}`: `impl = \"{implementation}\"` is for the CPU, not for `{device}`");
        return Err(document.refuse(first.span(), message));
    }
    if devices.is_empty() {
        devices.push(LAST_RESORT.to_owned());
    }
    Ok(devices)
}

/// Returns the end of an error message, which lists the valid device names.
pub(super) fn no_device(name: &str) -> String {
    format!("`{}`: valid devices are {} with a device number N", name.escape_debug(), godwit_device::id_forms())
}

/// Converts a function error into a configuration error. The result names the faulty line in the
/// stanza, or in a file to which the stanza refers.
fn refuse(document: &Document<'_>, stanza: &Stanza<'_>, name: &str, directory: &Path, error: &Error) -> ConfigError {
    match error {
        Error::Toml(error) => document.refuse_toml(error, stanza, &KEYS),
        Error::Value { span, message } => document.refuse(span.clone().unwrap_or(stanza.span()), message),
        Error::File { path, .. } => {
            let at = stanza.span_of_text(|text| directory.join(text) == *path);
            document.refuse(at, format!("function `{name}`: cannot read {error}"))
        }
        Error::Line { path, line, message } => ConfigError::of_file(path, *line, message),
        Error::Custom(error) => match error {
            godwit_function::custom::Error::Line { path, line, message } => ConfigError::of_file(path, *line, message),
            error => document.refuse(stanza.span(), format!("function `{name}`: {error}")),
        },
        Error::Memory(_) | Error::Command { .. } => {
            document.refuse(stanza.span(), format!("function `{name}`: {error}"))
        }
    }
}
