//! Devices other than the CPU, and the reasons why devices are unused.

use godwit_device::{Found, KINDS, Unavailable};
use serde::Serialize;

/// A kind of device without usable devices on this machine.
#[derive(Debug, Serialize)]
pub(crate) struct NotUsed {
    /// `opencl` or `cuda`.
    pub(crate) kind: &'static str,
    /// Sentence that names the found devices and the reason why they are unused.
    pub(crate) sentence: Unavailable,
}

/// Devices other than the CPU, preferred kinds first, and the kinds without usable devices.
pub(crate) struct Others {
    pub(crate) found: Vec<Found>,
    pub(crate) not_used: Vec<NotUsed>,
}

/// Probes the drivers of all kinds.
pub(crate) fn others() -> Others {
    let mut others = Others { found: Vec::new(), not_used: Vec::new() };
    for (kind, probe) in KINDS.iter().filter_map(|kind| Some((kind.name, kind.probe()?))) {
        others.found.extend(probe.found);
        others.not_used.extend(probe.reason.map(|sentence| NotUsed { kind, sentence }));
    }
    others
}

/// Returns a sentence that tells how to use a device, or why it cannot be used.
pub(crate) fn sentence(found: &Found) -> String {
    let id = &found.capabilities.id;
    match &found.usable {
        Ok(()) => format!("{id} runs every function with device = \"{id}\""),
        Err(reason) => format!("{id} is not used: {reason}"),
    }
}
