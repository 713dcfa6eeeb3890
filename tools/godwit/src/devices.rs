//! What devices are here besides the CPU, and why one is not used.

use godwit_device::{Found, Probe, cuda, opencl};
use serde::Serialize;

/// A kind of device of which nothing is used, and why.
#[derive(Debug, Serialize)]
pub(crate) struct NotUsed {
    /// `opencl` or `cuda`.
    pub(crate) kind: &'static str,
    /// What is here, and why it is not used.
    pub(crate) sentence: String,
}

/// Devices that are not the CPU, and what is not used at all.
pub(crate) struct Others {
    pub(crate) found: Vec<Found>,
    pub(crate) not_used: Vec<NotUsed>,
}

/// Asks every driver.
pub(crate) fn others() -> Others {
    let mut others = Others { found: Vec::new(), not_used: Vec::new() };
    for (kind, Probe { found, reason }) in [(opencl::ID, opencl::probe()), (cuda::ID, cuda::probe())] {
        others.found.extend(found);
        others.not_used.extend(reason.map(|sentence| NotUsed { kind, sentence }));
    }
    others
}

/// What a device is good for, in one sentence.
pub(crate) fn sentence(found: &Found) -> String {
    let id = &found.capabilities.id;
    match &found.usable {
        Ok(()) => format!("{id} runs every function that says device = \"{id}\""),
        Err(reason) => format!("{id} is not used: {reason}"),
    }
}
