//! Errors of the driver.

use opencl3::error_codes::ClError;

use crate::error::Error;

/// Returns a function that converts OpenCL driver errors to [`Error`]. The resulting error names
/// the device `id` and the failed `action`.
pub fn failed(id: &str, action: &'static str) -> impl Fn(ClError) -> Error {
    move |error| Error::Driver { id: id.to_owned(), action, reason: error.to_string() }
}
