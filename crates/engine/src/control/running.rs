//! Gives the control commands of a packet function access to the running engine.

use std::ops::Range;
use std::time::Duration;

use godwit_device::Device;
use godwit_function::{Error, Running};

use crate::plan::grace::GracePeriods;

/// Longest time for which [`Running::quiesce`] waits for packets in flight. They normally leave
/// much earlier.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

/// Access of one function to the running engine.
pub(crate) struct RunningFunction<'a, D> {
    pub(crate) function: usize,
    /// All devices that may run the function.
    pub(crate) devices: D,
    pub(crate) graces: &'a GracePeriods,
}

impl<'a, D: Iterator<Item = &'a dyn Device> + Clone> Running for RunningFunction<'_, D> {
    fn image_changed(&self, range: Range<usize>) -> Result<(), Error> {
        for device in self.devices.clone() {
            device.update_image(self.function, range.clone()).map_err(|error| refuse(error.to_string()))?;
        }
        Ok(())
    }

    fn quiesce(&self) -> Result<(), Error> {
        match self.graces.wait(QUIET_LIMIT) {
            true => Ok(()),
            false => Err(refuse(format!("packets are still in flight after {} s", QUIET_LIMIT.as_secs()))),
        }
    }

    fn request_quiesce(&self) -> u64 {
        self.graces.ask()
    }

    fn is_quiesced(&self, asked: u64) -> bool {
        self.graces.is_answered(asked)
    }
}

fn refuse(message: String) -> Error {
    Error::Command { message }
}
