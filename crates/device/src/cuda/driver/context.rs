//! CUDA context of a device, and errors of the CUDA driver.

use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::error::Error;

/// Returns a function that converts CUDA driver errors to [`Error`]. The resulting error names the
/// device `id` and the failed `action`.
pub fn failed(id: &str, action: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: text(error) }
}

/// Returns the description and the name of a driver error.
pub(crate) fn text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let meaning = error.error_string().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{meaning} ({name})")
}

/// The primary context of a CUDA device, which all libraries of the process share.
pub struct Context {
    /// Name of the device.
    pub id: String,
    /// Handle of the device.
    pub device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: any thread may use a context after a call to `bind`.
unsafe impl Send for Context {}
// SAFETY: see above. The driver locks shared state.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of `device`, and makes it current in this thread. `id` is the
    /// name of the device.
    ///
    /// # Errors
    /// Returns [`Error::Driver`] if the driver fails.
    pub fn new(id: &str, device: sys::CUdevice) -> Result<Arc<Self>, Error> {
        // SAFETY: the driver is initialized, because it has returned `device`.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed(id, "create a context"))?;
        let context = Arc::new(Self { id: id.to_owned(), device, context });
        context.bind().map_err(failed(id, "make a context current"))?;
        Ok(context)
    }

    /// Makes the context current in the calling thread, as most driver calls require.
    ///
    /// # Errors
    /// Returns the driver's error.
    pub fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { result::ctx::set_current(self.context) }
    }

    /// Returns the value of a device attribute, or 0 if the driver does not know the attribute.
    pub fn attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        // SAFETY: the device exists. The value of an unknown attribute is 0.
        unsafe { result::device::get_attribute(self.device, attribute) }.unwrap_or(0)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context was retained once and is released once. All of its objects are gone,
        // because each of them holds a reference to it.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}
