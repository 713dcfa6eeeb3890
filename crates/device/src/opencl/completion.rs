//! Finds out whether the device has finished a submission.

use opencl3::error_codes::ClError;

use super::launch::Events;

/// State of the launch of a submission.
pub(super) enum Progress {
    Running,
    Ended(Result<(), ClError>),
    /// The driver failed to report the state.
    Unknown(ClError),
}

/// Returns the state of a launch. `events` is `None` if the driver accepted only some commands of
/// the launch. The launch then counts as running, because no event reports its end.
pub(super) fn progress(events: Option<&Events>) -> Progress {
    let Some(Events { launched, copied }) = events else { return Progress::Running };
    let last = copied.as_ref().unwrap_or(launched);
    match last.command_execution_status() {
        Ok(status) if status.0 > 0 => Progress::Running,
        // A status query is not a synchronization point, so it does not make the results visible to
        // this thread. The wait for the event does, and it returns at once here.
        Ok(status) if status.0 == 0 => Progress::Ended(last.wait()),
        Ok(status) => Progress::Ended(Err(ClError(status.0))),
        Err(error) => Progress::Unknown(error),
    }
}
