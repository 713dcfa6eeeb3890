//! Built-in functions without Rust code. Each consists of a kernel and a declaration, which defines
//! the parameters and tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_declare::{Contract, Declaration};
use godwit_kernels::declared::DECLARED;
use godwit_packet::{ImageRef, SteerKey};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::declared::{Declared, Values};
use crate::{BuildContext, Error, Function, HostHalf, KINDS, Operate, Running};

/// Configuration of a built-in function without Rust code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Values of the parameters that the function declares.
    #[serde(default)]
    params: BTreeMap<String, Spanned<toml::Value>>,
    /// Files with the entries of the declared tables.
    #[serde(default)]
    tables: BTreeMap<String, Spanned<PathBuf>>,
}

/// Configured built-in function that has no part in Rust.
#[derive(Debug)]
struct BuiltIn {
    contract: &'static Contract,
    declared: Declared,
}

/// Returns the contracts and declarations of the built-in functions that have no Rust code.
pub fn all() -> impl Iterator<Item = (&'static Contract, &'static str)> {
    let in_rust = |name: &str| KINDS.iter().any(|kind| kind.contract.kind == name);
    DECLARED.iter().copied().filter(move |(contract, _)| !in_rust(contract.kind))
}

/// Creates a built-in function from its configuration stanza.
pub(crate) fn build(
    (contract, text): (&'static Contract, &str),
    stanza: Spanned<DeTable<'_>>,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Function>, Error> {
    let Config { params, tables } = crate::config::read(stanza)?;
    let declaration = Declaration::parse(text).unwrap_or_else(|error| unreachable!("the build has parsed it: {error}"));
    let declared = Declared::new(&declaration, &Values { params, tables }, context)?;
    Ok(Arc::new(BuiltIn { contract, declared }))
}

impl Function for BuiltIn {
    fn contract(&self) -> &'static Contract {
        self.contract
    }

    fn image(&self) -> ImageRef<'_> {
        self.declared.image()
    }

    fn host_half(&self, _worker: usize, _workers: usize) -> Option<HostHalf> {
        Some(self.declared.meter()?.host_half())
    }

    fn steer_key(&self) -> Option<Arc<dyn SteerKey>> {
        Some(self.declared.meter()?.steer_key())
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    /// Runs the kernel form for the lowest x86-64 level on one packet.
    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        let (number, image) = (self.contract.bin_kernel(), self.image());
        godwit_custom::run_built_in(number, image, buffer, descriptor, variant, parameter)
    }
}

impl Operate for BuiltIn {
    fn command(&self, request: &serde_json::Value, running: &dyn Running) -> Result<serde_json::Value, Error> {
        self.declared.command(request, running)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Both versions of the function `template` must return the same results.
    #[test]
    fn a_declaration_and_a_kernel_are_a_function() {
        let declared = DECLARED.iter().copied().find(|(contract, _)| contract.kind == "template").unwrap();
        let context = BuildContext { name: "under test", ports: &[], directory: Path::new(".") };
        let stanza = || DeTable::parse("").unwrap();
        let functions =
            [build(declared, stanza(), &context).unwrap(), crate::build("template", stanza(), &context).unwrap()];
        for length in [0, 13, 14, 60] {
            let results = functions.each_ref().map(|function| {
                let mut buffer: Vec<u8> = (0..128).collect();
                let mut descriptor = Descriptor { head: 32, length, ..Descriptor::default() };
                let outcome = function.run_ref(&mut buffer, &mut descriptor, 0, 0);
                (outcome, descriptor, buffer)
            });
            assert_eq!(results[0], results[1], "{length} bytes");
        }
    }

    #[test]
    fn undeclared_keys_are_refused() {
        let declared = DECLARED.iter().copied().find(|(contract, _)| contract.kind == "template").unwrap();
        let context = BuildContext { name: "under test", ports: &[], directory: Path::new(".") };
        let error = build(declared, DeTable::parse("params.limit = 3").unwrap(), &context).err().unwrap();
        assert!(error.to_string().contains("declares no `params`"), "{error}");
    }
}
