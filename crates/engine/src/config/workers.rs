//! Whether several workers can share the work of a chain.

use godwit_chain::Chain;

use super::document::Document;
use super::{ConfigError, EngineConfig, FunctionConfig};

/// A packet has one worker. State for many flows (an SA) belongs to one worker too, and packets that need it are steered
/// there; a packet that may need two such states cannot be at both workers.
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
                "packets of class `{}` can get to both `{}` and `{}`, which keep state for many flows at once: \
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
