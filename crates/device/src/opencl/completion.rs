//! Finds out whether the device has finished a chunk.

use opencl3::error_codes::ClError;

use super::launch::Events;

/// State of the launch of a chunk.
pub(super) enum Progress {
    Running,
    Ended(Result<(), ClError>),
    /// The driver failed to report the state.
    Unknown(ClError),
}

/// Returns the state of a launch. `events` is `None` if the driver accepted only some commands of
/// the launch. In this case no event reports their end, so the launch counts as running.
pub(super) fn progress(events: Option<&Events>) -> Progress {
    let Some(Events { launched, copied }) = events else { return Progress::Running };
    let last = copied.as_ref().unwrap_or(launched);
    match last.command_execution_status() {
        Ok(status) if status.0 > 0 => Progress::Running,
        // Reading the status of an event does not make the results visible to this thread, because
        // it is not a synchronization point. Waiting for the event is one, and it returns at once
        // here.
        Ok(status) if status.0 == 0 => Progress::Ended(last.wait()),
        Ok(status) => Progress::Ended(Err(ClError(status.0))),
        Err(error) => Progress::Unknown(error),
    }
}
