//! Checks whether several workers can share a function chain.

use godwit_chain::Chain;

use super::document::Document;
use super::error::ConfigError;
use super::functions::FunctionConfig;
use super::settings::EngineConfig;

/// Checks that no packet needs state that belongs to two different workers.
///
/// Some functions keep state for many flows, such as IPsec SAs. The state of a flow belongs to one
/// worker, which must receive all packets of the flow. The check fails if packets of one class can
/// reach two such functions.
pub(super) fn check(
    document: &Document<'_>,
    engine: &EngineConfig,
    chain: &Chain,
    functions: &[FunctionConfig],
) -> Result<(), ConfigError> {
    if engine.workers == 1 {
        return Ok(());
    }
    for class in 0..chain.classes().len() {
        let mut keyed = functions
            .iter()
            .enumerate()
            .filter(|(index, entry)| chain.is_reached_by(*index, class) && entry.function.steer_key().is_some());
        if let (Some((_, first)), Some((_, second))) = (keyed.next(), keyed.next()) {
            let message = format!(
                "packets of class `{}` can reach both `{}` and `{}`, which keep state for many flows: \
                 set workers = 1",
                chain.classes()[class],
                first.name,
                second.name
            );
            return Err(document.refuse_line(second.line, message));
        }
    }
    Ok(())
}
