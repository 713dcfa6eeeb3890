//! Makes the chunks of a flow once: sorted by length, separated by function, or made by the packer.

use std::time::Instant;

use godwit_abi::Bin;
use godwit_sched::{Chunk, Insert, Packer, PackerConfig};

use super::{Flow, Packet};
use crate::error::Error;
use crate::load::job::Job;

impl Flow {
    /// Makes chunks of `batch` packets in arrival order. Each bin of a chunk contains packets of
    /// one length, longest first.
    pub(crate) fn prepare_by_length(&mut self, batch: usize, bin_packets: usize) {
        self.prepare((0..self.packets.len()).collect::<Vec<_>>().chunks(batch), bin_packets);
    }

    /// Makes separate chunks of `batch` packets for each function. The chunks of each function form
    /// a stream.
    pub(crate) fn prepare_apart(&mut self, batch: usize, bin_packets: usize) {
        let of_function = |instance: u16| -> Vec<usize> {
            (0..self.packets.len()).filter(|&packet| self.packets[packet].job.instance == instance).collect()
        };
        let apart: Vec<Vec<usize>> =
            (0..self.functions.len() as u16).map(of_function).filter(|packets| !packets.is_empty()).collect();
        self.prepare(apart.iter().flat_map(|packets| packets.chunks(batch)), bin_packets);
        self.stream_of = apart
            .iter()
            .enumerate()
            .flat_map(|(stream, packets)| vec![stream; packets.len().div_ceil(batch)])
            .collect();
    }

    fn prepare<'a>(&mut self, batches: impl Iterator<Item = &'a [usize]>, bin_packets: usize) {
        let batches: Vec<Vec<usize>> = batches.map(<[_]>::to_vec).collect();
        let mut prepared = Vec::new();
        for mut batch in batches {
            let key = |&index: &usize| {
                let Packet { descriptor, job, .. } = &self.packets[index];
                (std::cmp::Reverse(descriptor.length), job.instance, job.variant, job.row)
            };
            batch.sort_by_key(key);
            let mut chunk = Chunk::new(0, batch.len());
            let mut first = 0;
            for run in batch.chunk_by(|one, next| key(one) == key(next)).flat_map(|run| run.chunks(bin_packets)) {
                chunk.bins.push(self.bin(run[0], first, run.len()));
                for (slot, &index) in (first..).zip(run) {
                    chunk.descriptors[slot] = self.packets[index].descriptor;
                    chunk.parameters[slot] = self.packets[index].job.parameter;
                }
                first += run.len();
            }
            chunk.packets = first as u32;
            prepared.push(chunk);
        }
        self.adopt(prepared);
    }

    fn bin(&self, packet: usize, first: usize, count: usize) -> Bin {
        let Packet { descriptor, job, .. } = &self.packets[packet];
        Bin {
            first: first as u32,
            count: count as u16,
            kernel: self.functions[usize::from(job.instance)].contract().bin_kernel(),
            variant: job.variant,
            instance: job.instance,
            length_bytes: descriptor.length,
            row: job.row,
            ..Bin::default()
        }
    }

    /// Makes chunks with the engine's packer, from packets in arrival order. Omits packets that
    /// would wait for more. The packer sorts by the bin times in `observed`. Returns the packer's
    /// nanoseconds per packet.
    pub(crate) fn prepare_by_packer(&mut self, config: &PackerConfig, observed: &[(Bin, u64)]) -> Result<f64, Error> {
        let kernels: Vec<u8> = self.functions.iter().map(|function| function.contract().bin_kernel()).collect();
        // The packer needs a set of bins for every chunk, and one set that it fills.
        let sets = self.packets.len() / (config.chunk_packets as usize).max(1) * 4 + 8;
        let mut packer = Packer::new(config.clone(), &kernels, sets).map_err(Error::setup)?;
        observed.iter().for_each(|(bin, elapsed_ns)| packer.observe(bin, *elapsed_ns));
        let mut prepared = Vec::new();
        let started = Instant::now();
        let mut packed = 0;
        for Packet { descriptor, job, .. } in &self.packets {
            let Job { instance, variant, parameter, .. } = *job;
            let mut inserted = packer.insert(0, instance, variant, descriptor, parameter);
            if inserted == Insert::Refused {
                prepared.extend(packer.take(0));
                inserted = packer.insert(0, instance, variant, descriptor, parameter);
            }
            packed += usize::from(inserted != Insert::Refused);
            if packer.ready(0) {
                prepared.extend(packer.take(0));
            }
        }
        let each_ns = started.elapsed().as_nanos() as f64 / packed.max(1) as f64;
        if prepared.is_empty() {
            prepared.extend(packer.take(0));
        }
        self.adopt(prepared);
        Ok(each_ns)
    }

    fn adopt(&mut self, prepared: Vec<Chunk>) {
        self.fresh = prepared.iter().map(|chunk| (chunk.descriptors.to_vec(), chunk.bins.clone())).collect();
        self.stream_of = vec![0; prepared.len()];
        self.chunks = prepared.into_iter().map(Some).collect();
        for (number, chunk) in self.chunks.iter_mut().flatten().enumerate() {
            chunk.opened_ns = number as u64;
        }
    }
}
