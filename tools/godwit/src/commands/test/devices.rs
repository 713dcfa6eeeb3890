//! Runs a function on this machine's OpenCL and CUDA devices.

use std::sync::Arc;
use std::time::Duration;

use godwit_abi::{Bin, Descriptor};
use godwit_custom::checked::{Answer, FRAME_BYTES_MAX};
use godwit_custom::forms::BIN_PACKETS;
use godwit_device::{Device, DeviceOptions, Implementation, Lane, Mode, Program};
use godwit_engine::FunctionProgram;
use godwit_function::Function;
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::Chunk;

use crate::failure::Failure;
use crate::progress::Progress;

/// Number of packets of a bin on a device.
const DEVICE_BIN_PACKETS: usize = 64;
/// Time after which a device without results counts as lost. Device compilers can be slow.
const WATCHDOG: Duration = Duration::from_secs(60);

/// One device in one of its modes.
struct Opened {
    name: String,
    device: Arc<dyn Device>,
    lane: Box<dyn Lane>,
    region: Region,
    kernel: u8,
}

/// All devices that run the function.
#[derive(Default)]
pub(super) struct Lanes {
    opened: Vec<Opened>,
    notices: Vec<String>,
}

impl Lanes {
    /// Opens every usable device, in every mode that it supports.
    pub(super) fn open(function: &Arc<dyn Function>, progress: &mut Progress) -> Result<Self, Failure> {
        let mut lanes = Self::default();
        for found in godwit_device::found() {
            let id = &found.capabilities.id;
            if let Err(reason) = &found.usable {
                lanes.notices.push(format!("{id}: {reason}"));
                continue;
            }
            let modes = godwit_device::kind_of(id).map_or(&[][..], |kind| kind.modes());
            for &mode in modes {
                match found.lacks(mode) {
                    Some(reason) => lanes.notices.push(format!("{id} in mode {}: {reason}", mode.name())),
                    None => {
                        progress.show(&format!("compiling the kernels for {id} in mode {}", mode.name()));
                        lanes.opened.push(open(id, mode, function)?);
                    }
                }
            }
        }
        Ok(lanes)
    }

    /// Returns the number of open devices.
    pub(super) fn len(&self) -> usize {
        self.opened.len()
    }

    /// Returns the names of the open devices.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.opened.iter().map(|opened| opened.name.clone())
    }

    /// Returns the reasons why devices are not used.
    pub(super) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Runs a bin of frames on a device. The frames have the parameters of `expected`, the results
    /// of the program with sanitizers. Returns the device name, the results and the counter values.
    pub(super) fn run(
        &mut self,
        index: usize,
        frames: &[Vec<u8>],
        expected: &[Answer],
    ) -> Result<(String, Vec<Answer>, Vec<u64>), Failure> {
        let opened = &mut self.opened[index];
        let runs = frames.iter().zip(expected).filter_map(|(frame, answer)| Some((&frame[..], answer.parameter?)));
        let before = opened.device.counters(0);
        let mut ran = opened.run(&runs.collect::<Vec<_>>())?.into_iter();
        let after = opened.device.counters(0);
        let counted = after.iter().zip(before).map(|(after, before)| after.wrapping_sub(before));
        // Devices see no packets that the CPU has settled.
        let answer = |expected: &Answer| expected.parameter.map_or_else(|| Some(expected.clone()), |_| ran.next());
        let answers = expected.iter().filter_map(answer).collect();
        Ok((opened.name.clone(), answers, counted.collect()))
    }
}

/// Opens a device in one mode.
fn open(id: &str, mode: Mode, function: &Arc<dyn Function>) -> Result<Opened, Failure> {
    let refuse = |error: godwit_device::Error| Failure::User(format!("{id}: {error}"));
    let properties = function.properties();
    let config = ArenaConfig {
        packets: 2 * BIN_PACKETS,
        frame_bytes_max: FRAME_BYTES_MAX,
        headroom_bytes: usize::from(properties.headroom_bytes).next_multiple_of(128).max(128),
        tailroom_bytes: usize::from(properties.tailroom_bytes).next_multiple_of(64).max(64),
        ..ArenaConfig::default()
    };
    let bytes = Arena::bytes_for(&config, 1).map_err(Failure::user)?;
    let memory = godwit_device::arena_memory(&[id], bytes).map_err(refuse)?;
    let arena = Arena::over(memory, config, 1).map_err(Failure::user)?;
    let program: Arc<dyn Program> = Arc::new(FunctionProgram::new("test".to_owned(), Arc::clone(function)));
    let options = DeviceOptions {
        mode,
        bins: BIN_PACKETS / DEVICE_BIN_PACKETS,
        bin_packets: DEVICE_BIN_PACKETS,
        watchdog: WATCHDOG,
        ..DeviceOptions::default()
    };
    let device = godwit_device::open(id, &[(program, Implementation::Native)], &arena.handle(), &options);
    let device = device.map_err(refuse)?;
    let name = format!("{id} in mode {}", device.mode().name());
    let lane = Arc::clone(&device).lane().map_err(refuse)?;
    Ok(Opened { name, device, lane, region: arena.split().remove(0), kernel: function.contract().bin_kernel() })
}

impl Opened {
    /// Runs frames, each with the parameter of the kernel.
    fn run(&mut self, frames: &[(&[u8], u64)]) -> Result<Vec<Answer>, Failure> {
        if frames.is_empty() {
            return Ok(Vec::new());
        }
        let mut before = Vec::with_capacity(frames.len());
        for (frame, _) in frames {
            let Some(descriptor) = self.region.allocate(frame.len()) else {
                return Err(Failure::Bug("the arena of the test is full".to_owned()));
            };
            self.region.frame_mut(&descriptor).copy_from_slice(frame);
            before.push(descriptor);
        }
        let chunk = chunk(&before, frames, self.kernel);
        self.lane
            .submit(&mut self.region, chunk)
            .map_err(|rejected| Failure::User(format!("{}: {}", self.name, rejected.error)))?;
        let chunk = loop {
            match self.lane.poll(&mut self.region) {
                Ok(Some(chunk)) => break chunk,
                Ok(None) => std::thread::yield_now(),
                Err(error) => return Err(Failure::User(format!("{}: {error}", self.name))),
            }
        };
        let mut answers = Vec::with_capacity(frames.len());
        for (index, before) in before.iter().enumerate() {
            let after = chunk.descriptors[index];
            answers.push(Answer {
                outcome: chunk.outcomes[index],
                moved: i32::from(after.head) - i32::from(before.head),
                frame: self.region.frame_mut(&after).to_vec(),
                parameter: Some(frames[index].1),
                is_new: false,
            });
            self.region.release(&after);
        }
        Ok(answers)
    }
}

/// Returns a chunk with these packets. Each frame has its kernel parameter.
fn chunk(descriptors: &[Descriptor], frames: &[(&[u8], u64)], kernel: u8) -> Chunk {
    let mut chunk = Chunk::new(descriptors.len().div_ceil(DEVICE_BIN_PACKETS), descriptors.len());
    for (entry, descriptor) in descriptors.iter().enumerate() {
        chunk.descriptors[entry] = *descriptor;
        chunk.parameters[entry] = frames[entry].1;
    }
    for (index, packets) in descriptors.chunks(DEVICE_BIN_PACKETS).enumerate() {
        chunk.bins.push(Bin {
            first: (index * DEVICE_BIN_PACKETS) as u32,
            count: packets.len() as u16,
            kernel,
            length_bytes: packets.iter().map(|packet| packet.length).max().unwrap_or(0),
            ..Bin::default()
        });
    }
    chunk.packets = descriptors.len() as u32;
    chunk
}
