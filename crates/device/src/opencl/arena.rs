//! Allocates packet memory that an OpenCL device can access.

use godwit_packet::Memory;

use super::driver::{pinned, svm};
use super::probe::usable;
use crate::error::Error;
use crate::options::Mode;

/// Allocates packet memory that the device `number` uses. The memory is page-locked if the device
/// has separate memory. Otherwise, it is shared virtual memory (SVM), which persistent work-groups
/// need.
///
/// # Errors
/// Returns [`Error::Absent`] if the device does not exist, and [`Error::Unusable`] if it has no
/// suitable memory. Returns [`Error::TooLarge`] if the size exceeds the device's limit, and
/// [`Error::Driver`] if the device has too little memory.
pub fn arena_memory(number: usize, bytes: usize) -> Result<Memory, Error> {
    let (found, device) = usable(number)?;
    let id = &found.capabilities.id;
    if !found.host_memory {
        return pinned(&found, &svm::context(number, id, device)?, device, bytes, "the packet arena");
    }
    if let Some(lacks) = found.lacks(Mode::Persistent) {
        return Err(Error::Unusable { id: id.clone(), reason: lacks.clone() });
    }
    svm::allocate(&found, &svm::context(number, id, device)?, bytes, "the packet arena")
}
