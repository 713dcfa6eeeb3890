//! Kernel parameters for the frames of a test. The host half of a function computes them, such as
//! the color of a packet.

use godwit_function::{Arrange, Arrangement, Function, HostHalf, Step, Work};
use godwit_packet::{Arena, ArenaConfig, Stamp};

use crate::failure::Failure;

use super::FRAME_BYTES_MAX;

/// Returns the parameters of captured frames, which arrive at their captured times.
pub(super) fn captured(function: &dyn Function, frames: &[(u64, Vec<u8>)]) -> Result<Vec<u64>, Failure> {
    let Some(mut host_half) = meter(function) else { return Ok(vec![0; frames.len()]) };
    let config = ArenaConfig { frame_bytes_max: FRAME_BYTES_MAX, ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).map_err(Failure::user)?.split().remove(0);
    let mut parameters = Vec::with_capacity(frames.len());
    for (sequence, (time_ns, frame)) in (0..).zip(frames) {
        let full = || Failure::Bug("the arena of the test is full".to_owned());
        let packet = region.allocate(frame.len()).ok_or_else(full)?;
        region.frame_mut(&packet).copy_from_slice(frame);
        let mut steps = Vec::new();
        host_half.arrange(&mut Arrangement {
            region: &mut region,
            now_ns: *time_ns,
            live: false,
            ending: false,
            arrived: &[packet],
            previous: &[],
            stamps: &[Stamp { sequence, time_ns: *time_ns }],
            steps: &mut steps,
        });
        region.release(&packet);
        let [Step::Keep { work: Work::Run { parameter, .. }, .. }] = steps[..] else {
            return Err(Failure::Bug("the host half does not keep a packet".to_owned()));
        };
        parameters.push(parameter);
    }
    Ok(parameters)
}

/// Returns parameters for mutated frames, starting with frame number `first`. All colors of a meter
/// occur.
pub(super) fn mutated(function: &dyn Function, first: u64, count: usize) -> Vec<u64> {
    let colors = if meter(function).is_some() { 4 } else { 1 };
    (first..).take(count).map(|number| number % colors).collect()
}

/// Returns the host half of a function with a meter. The forms themselves run the host half of a
/// function with flows, which prepares packets and does not arrange them.
fn meter(function: &dyn Function) -> Option<Box<dyn Arrange>> {
    match function.host_half(0, 1) {
        Some(HostHalf::Arrange(half)) => Some(half),
        _ => None,
    }
}
