//! Functions built from their configuration.

use std::path::Path;
use std::sync::Arc;

use godwit_function::{BuildContext, Function};
use toml::de::DeTable;

use crate::error::Error;

/// Builds a function of `kind` with the port `out`. `stanza` contains its configuration keys.
pub(crate) fn build(kind: &str, stanza: &str) -> Result<Arc<dyn Function>, Error> {
    build_with_ports(kind, stanza, &["out".to_owned()])
}

/// Builds a function of `kind` with these ports. `stanza` contains its configuration keys.
pub(crate) fn build_with_ports(kind: &str, stanza: &str, ports: &[String]) -> Result<Arc<dyn Function>, Error> {
    let registration =
        godwit_function::kind(kind).ok_or_else(|| Error::Setup(format!("there is no function kind `{kind}`")))?;
    let context = BuildContext { name: kind, ports, directory: Path::new(".") };
    let table = DeTable::parse(stanza).map_err(Error::setup)?;
    (registration.build)(table, &context).map_err(Error::setup)
}
