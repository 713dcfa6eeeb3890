//! Finds out whether a chunk is finished.

use opencl3::error_codes::ClError;

use super::launch::Events;

/// State of a launch.
pub(super) enum Progress {
    Running,
    Ended(Result<(), ClError>),
    /// The driver failed to report the state.
    Unknown(ClError),
}

/// Returns the state of a launch. `None` if the driver accepted only some of its commands: no event
/// reports their end.
pub(super) fn progress(events: Option<&Events>) -> Progress {
    let Some(Events { launched, copied }) = events else { return Progress::Running };
    let last = copied.as_ref().unwrap_or(launched);
    match last.command_execution_status() {
        Ok(status) if status.0 > 0 => Progress::Running,
        // Reading the status is not a synchronization point. Waiting is one, and returns at once.
        Ok(status) if status.0 == 0 => Progress::Ended(last.wait()),
        Ok(status) => Progress::Ended(Err(ClError(status.0))),
        Err(error) => Progress::Unknown(error),
    }
}
