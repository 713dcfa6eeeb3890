//! Parameters and tables of a declared function, in the kernel's format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use godwit_declare::{Declaration, ImageLayout, Param, ParamShape, Scalar, Table, value};
use godwit_packet::{Image, ImageRef, Memory};
use toml::Spanned;

use super::entry::{Format, Key, Row, store};
use super::file;
use super::meter::Meter;
use super::shapes::{self, Content, Place};
use crate::{BuildContext, Error};

/// Alignment of tables, in bytes.
const ALIGN_BYTES: usize = 64;

/// Parameters and table files that are configured for a declared function.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) params: BTreeMap<String, Spanned<toml::Value>>,
    pub(crate) tables: BTreeMap<String, Spanned<PathBuf>>,
}

/// Tables of a configured function, in a format that kernels read and the host can change.
pub(crate) struct Declared {
    image: Arc<Image>,
    tables: Mutex<Vec<State>>,
}

pub(super) struct State {
    pub(super) name: String,
    pub(super) capacity: usize,
    pub(super) format: Format,
    pub(super) content: Box<dyn Content>,
    pub(super) entries: BTreeMap<Key, Row>,
}

impl Declared {
    /// Builds the tables of a declared function from its configuration.
    ///
    /// # Errors
    /// Returns the first problem of the configuration or of an entry file.
    pub(crate) fn new(declaration: &Declaration, values: &Values, context: &BuildContext<'_>) -> Result<Self, Error> {
        known("params", values.params.iter().map(|(name, value)| (name, value.span())), || {
            declaration.params.iter().map(|param| param.name.as_str()).collect()
        })?;
        known("tables", values.tables.iter().map(|(name, file)| (name, file.span())), || {
            declaration.tables.iter().map(|table| table.name.as_str()).collect()
        })?;
        let layout = ImageLayout::of(declaration);
        let params = params(declaration, &layout, values, context)?;
        let mut plans = Vec::new();
        let mut end = layout.bytes.next_multiple_of(ALIGN_BYTES);
        for (table, &header) in declaration.tables.iter().zip(&layout.tables) {
            let format = Format::new(table, context.ports);
            let entries = match values.tables.get(&table.name) {
                Some(name) => entries(context.directory, name, table, &format)?,
                None => Vec::new(),
            };
            let plan = shapes::plan(table, &format, &entries)?;
            let place = Place { header, offset: end };
            end = (end + plan.bytes).next_multiple_of(ALIGN_BYTES);
            plans.push((table, format, entries, plan, place));
        }
        let image = Arc::new(Image::without_secrets(Memory::new(end, "the tables of a function")?));
        image.write(0, &declaration.magic.to_le_bytes());
        image.write(8, &(end as u64).to_le_bytes());
        image.write(layout.params_offset, &params);
        let mut tables = Vec::new();
        for (table, format, entries, plan, place) in plans {
            let content = (plan.write)(&image, place)?;
            let (name, capacity) = (table.name.clone(), table.capacity as usize);
            tables.push(State { name, capacity, format, content, entries: entries.into_iter().collect() });
        }
        Ok(Self { image, tables: Mutex::new(tables) })
    }

    /// Returns the memory with all tables.
    pub(crate) fn image(&self) -> ImageRef<'_> {
        (&*self.image).into()
    }

    /// Returns the meter of the function, if it has one.
    pub(crate) fn meter(&self) -> Option<Arc<Meter>> {
        let (_, tables) = self.parts();
        tables.iter().find_map(|table| table.content.meter()).map(Arc::clone)
    }

    /// Returns the memory with all tables.
    pub(crate) fn shared_image(&self) -> Arc<Image> {
        Arc::clone(&self.image)
    }

    pub(super) fn parts(&self) -> (&Arc<Image>, MutexGuard<'_, Vec<State>>) {
        // A panic in a command poisons this lock, but the entries and tables are consistent even
        // after a failed change.
        (&self.image, self.tables.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns an error if the configuration contains a setting that the function does not declare.
fn known<'a>(
    section: &str,
    keys: impl Iterator<Item = (&'a String, std::ops::Range<usize>)>,
    names: impl Fn() -> Vec<&'a str>,
) -> Result<(), Error> {
    for (key, span) in keys {
        let names = names();
        if names.contains(&key.as_str()) {
            continue;
        }
        let message = match names.is_empty() {
            true => format!("the function declares no `{section}`: remove `{section}.{key}`"),
            false => format!("the function has no `{section}.{key}`: it declares `{}`", names.join("`, `")),
        };
        return Err(crate::config::value(span, message));
    }
    Ok(())
}

fn entries(
    directory: &Path,
    name: &Spanned<PathBuf>,
    table: &Table,
    format: &Format,
) -> Result<Vec<(Key, Row)>, Error> {
    file::read(directory, name.get_ref(), table, format)
}

/// Encodes all parameters in the format that kernels read.
fn params(
    declaration: &Declaration,
    layout: &ImageLayout,
    values: &Values,
    context: &BuildContext<'_>,
) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; layout.params_bytes];
    for (param, place) in declaration.params.iter().zip(&layout.params) {
        let given = values.params.get(&param.name);
        let refuse = |problem: &dyn std::fmt::Display| Error::Value {
            span: given.map(Spanned::span),
            message: format!("`params.{}`: {problem}", param.name),
        };
        let text = match (given, &param.default) {
            (Some(value), _) => text(value.get_ref()).map_err(|error| refuse(&error))?,
            (None, Some(default)) => default.clone(),
            (None, None) => return Err(refuse(&format!("the value is missing: {}", param.text))),
        };
        let words = value::check_param(param, &text, Some(context.ports)).map_err(|error| refuse(&error))?;
        let scalar = scalar(param);
        match param.shape {
            ParamShape::Scalar(_) => store(&mut bytes[place.first..], scalar, words[0]),
            ParamShape::Prefix4 | ParamShape::Prefix6 => {
                store(&mut bytes[place.first..], scalar, words[0]);
                store(&mut bytes[place.second..], scalar, words[1]);
            }
            ParamShape::List(..) => {
                store(&mut bytes[place.first..], Scalar::Unsigned(32), [words.len() as u64, 0]);
                let size = scalar.word_bytes() * scalar.words();
                for (index, words) in words.iter().enumerate() {
                    store(&mut bytes[place.second + index * size..], scalar, *words);
                }
            }
        }
    }
    Ok(bytes)
}

fn scalar(param: &Param) -> Scalar {
    match param.shape {
        ParamShape::Scalar(scalar) | ParamShape::List(scalar, _) => scalar,
        ParamShape::Prefix4 => Scalar::Unsigned(32),
        ParamShape::Prefix6 => Scalar::Ipv6,
    }
}

/// Returns a value of the configuration as text.
fn text(value: &toml::Value) -> Result<String, Error> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        toml::Value::Array(values) => Ok(values.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(",")),
        _ => Err(Error::value("the value must be a number, a text, a flag or a list of them")),
    }
}

impl std::fmt::Debug for Declared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Declared").field("bytes", &self.image.len()).finish_non_exhaustive()
    }
}
