//! Memory for an arena that an OpenCL device accesses.

use godwit_packet::Memory;

use super::driver::{pinned, svm};
use super::probe::usable;
use crate::error::Error;
use crate::options::Mode;

/// Allocates memory for an arena on device `number`. The memory is page-locked if the device has
/// its own memory. Otherwise it is SVM, which persistent groups need.
///
/// # Errors
/// [`Error::Absent`] and [`Error::Unusable`] if the device does not exist or has no suitable
/// memory. [`Error::TooLarge`] if the size exceeds its limit. [`Error::Driver`] if it has too
/// little memory.
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
