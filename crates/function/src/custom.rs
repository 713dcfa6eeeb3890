//! Functions that users write (`kind = "custom"`). Such a function is one C file, which also
//! contains its declaration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_custom::Compiled;
use godwit_declare::Contract;
use godwit_packet::{ImageRef, SteerKey};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

pub use godwit_custom::{Error, Origin, prepare};

use crate::declared::{Declared, FlowState, Values};
use crate::{BuildContext, Function, HostHalf, Lifecycle, Operate, Properties, Running};

/// Value of `kind` in the configuration.
pub const KIND_NAME: &str = "custom";

/// Configuration of a function that a user wrote.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Path of the C file or package, relative to the directory of the configuration.
    source: Spanned<PathBuf>,
    /// Expected SHA-256 of this file, in hexadecimal digits.
    sha256: Option<String>,
    /// Values of the parameters that the function declares.
    #[serde(default)]
    params: BTreeMap<String, Spanned<toml::Value>>,
    /// Files with the entries of the declared tables.
    #[serde(default)]
    tables: BTreeMap<String, Spanned<PathBuf>>,
}

/// Configured function that a user wrote.
#[derive(Debug)]
struct Custom {
    compiled: &'static Compiled,
    declared: Declared,
    /// State of flows, if the function declares any.
    flows: Option<FlowState>,
}

/// Creates a user-written function from its stanza. Compiles its C file and builds its tables.
pub(crate) fn build(
    stanza: Spanned<DeTable<'_>>,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Function>, crate::Error> {
    let Config { source, sha256, params, tables } = crate::config::read(stanza)?;
    let compiled = godwit_custom::load(&context.directory.join(source.get_ref()), sha256.as_deref())?;
    let declared = Declared::new(compiled.declaration, &Values { params, tables }, context)?;
    let flows = compiled
        .flows()
        .zip(compiled.declaration.flows.as_ref())
        .map(|(entries, flows)| FlowState::new(*entries, declared.shared_image(), flows.name.clone(), flows.capacity));
    Ok(Arc::new(Custom { compiled, declared, flows }))
}

impl Function for Custom {
    fn contract(&self) -> &'static Contract {
        self.compiled.contract
    }

    fn image(&self) -> ImageRef<'_> {
        self.declared.image()
    }

    fn host_half(&self, worker: usize, workers: usize) -> Option<HostHalf> {
        match &self.flows {
            Some(flows) => Some(flows.host_half(worker, workers)),
            None => Some(self.declared.meter()?.host_half()),
        }
    }

    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        match &self.flows {
            Some(flows) => Some(flows.steer_key()),
            None => Some(self.declared.meter()?.steer_key()),
        }
    }

    fn properties(&self) -> Properties {
        Properties { custom_kernel: Some(&self.compiled.kernel), ..Properties::of(self.compiled.contract) }
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn lifecycle(&self) -> Option<&dyn Lifecycle> {
        Some(self)
    }

    /// Runs the kernel on one packet, as compiled without optimization.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.compiled.run_ref(self.image(), buffer, descriptor, variant, parameter)
    }
}

impl Operate for Custom {
    fn tables(&self) -> Vec<(String, u64)> {
        self.flows.iter().map(FlowState::table).collect()
    }

    fn counts(&self) -> Vec<u64> {
        self.flows.as_ref().map(FlowState::counts).unwrap_or_default()
    }

    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, crate::Error> {
        self.declared.command(request, running)
    }
}

impl Lifecycle for Custom {
    fn start(&self, _live: bool) -> Result<(), crate::Error> {
        self.flows.as_ref().map_or(Ok(()), FlowState::check_memory)
    }
}
