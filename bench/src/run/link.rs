//! Measures the copy rate of a device's link, and the share of it that packets use.

use std::time::Duration;

use godwit_device_bench as measure;

use crate::progress::Progress;
use crate::run::row::Details;

/// Size of the copies, in bytes. Every copy engine reaches its full rate at this size.
pub(crate) const COPY_BYTES: usize = 32 << 20;

/// Returns the total copy rate of both directions, in bytes per second. If it cannot be measured,
/// reports the reason and returns `None`.
pub(crate) fn link(device: &str, time: Duration, progress: &mut Progress<'_>) -> Option<f64> {
    let rates = measure::open(device).and_then(|mut device| device.copy(COPY_BYTES, time, &|| {}));
    match rates {
        Ok(rates) => {
            progress(&format!(
                "copies of 32 MiB: {:.1} GB/s to {device}, {:.1} from it, {:.1} both ways in sum",
                rates.host_to_device / 1e9,
                rates.device_to_host / 1e9,
                rates.both / 1e9
            ));
            Some(rates.both)
        }
        Err(error) => {
            progress(&format!("copies are not measured: {error}"));
            None
        }
    }
}

/// Returns the bytes per packet to the device and back, and their share of half the total copy
/// rate. `moved` is `None` if nothing is copied or counted.
pub(crate) fn moved(mpps: f64, moved: Option<[f64; 2]>, link: Option<f64>) -> Details {
    let Some([to, from]) = moved else { return Details::default() };
    let details = Details::default().with("to_device_bytes", to).with("from_device_bytes", from);
    let Some(link) = link else { return details };
    let busier = to.max(from) * mpps * 1e6;
    details.with("link_share", busier / (link / 2.0)).with("link_gbytes_per_s", link / 2e9)
}
