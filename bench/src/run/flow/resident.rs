//! Packets that stay in device memory, so that the link does not limit the rate.
//!
//! Devices copy only the bytes that functions access. The functions of a resident flow therefore
//! claim to access none. Another function, which reads whole frames, copies the packets to the
//! device before each pass, untimed.

use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_device::{Lane, Program};
use godwit_function::Function;
use godwit_packet::{ImageRef, Region};
use godwit_sched::Chunk;

use crate::error::Error;
use crate::load::patterns;
use crate::progress::Progress;

/// Packets of a chunk that copies packets to the device.
const CHUNK_PACKETS: usize = 1 << 14;

/// A program with other limits of the bytes that it accesses.
pub(super) struct Limited {
    pub(super) program: Arc<dyn Program>,
    /// See [`Program::reads_bytes`]. The program claims to write nothing.
    pub(super) reads_bytes: u16,
}

impl Program for Limited {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn kernel(&self) -> u8 {
        self.program.kernel()
    }

    fn image(&self) -> ImageRef<'_> {
        self.program.image()
    }

    fn variant(&self) -> u8 {
        self.program.variant()
    }

    fn reads_bytes(&self) -> u16 {
        self.reads_bytes
    }

    fn writes_bytes(&self) -> u16 {
        0
    }

    fn headroom_bytes(&self) -> u16 {
        self.program.headroom_bytes()
    }

    fn tailroom_bytes(&self) -> u16 {
        self.program.tailroom_bytes()
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.program.run_ref(buffer, descriptor, variant, parameter)
    }
}

/// Returns a function that reads frames and changes nothing.
pub(super) fn reader(progress: &mut Progress<'_>) -> Result<Arc<dyn Function>, Error> {
    patterns::inspection(&["a pattern".to_owned()], progress)
}

/// Copies packets to the device.
pub(super) struct Loader {
    /// Bins of the reader, without packets.
    bin: Bin,
    bin_packets: usize,
    chunk: Option<Chunk>,
}

impl Loader {
    /// Creates a loader. `reader` is the program `instance` of the device, and a bin has at most
    /// `bin_packets` packets.
    pub(super) fn new(reader: &dyn Function, instance: u16, bin_packets: usize) -> Self {
        let (kernel, variant) = (reader.contract().bin_kernel(), reader.properties().variant);
        let bin = Bin { kernel, variant, instance, ..Bin::default() };
        let chunk = Chunk::new(CHUNK_PACKETS.div_ceil(bin_packets), CHUNK_PACKETS);
        Self { bin, bin_packets, chunk: Some(chunk) }
    }

    /// Copies these packets to the device, and waits for the end.
    pub(super) fn load(
        &mut self,
        lane: &mut dyn Lane,
        region: &mut Region,
        packets: &[Descriptor],
    ) -> Result<(), Error> {
        for packets in packets.chunks(CHUNK_PACKETS) {
            let Some(mut chunk) = self.chunk.take() else { break };
            chunk.bins.clear();
            chunk.descriptors[..packets.len()].copy_from_slice(packets);
            chunk.packets = packets.len() as u32;
            for first in (0..packets.len()).step_by(self.bin_packets) {
                let count = self.bin_packets.min(packets.len() - first);
                chunk.bins.push(Bin { first: first as u32, count: count as u16, ..self.bin });
            }
            lane.submit(region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
            self.chunk = loop {
                match lane.poll(region).map_err(Error::setup)? {
                    Some(chunk) => break Some(chunk),
                    None => std::thread::yield_now(),
                }
            };
        }
        Ok(())
    }
}
