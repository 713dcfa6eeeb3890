//! Chunks of a flow's packets, made once: by length, apart by function, or by a packer.

use std::time::Instant;

use godwit_abi::Bin;
use godwit_sched::{Chunk, Insert, Packer, PackerConfig};

use super::{Flow, Job, Packet};
use crate::Error;

impl Flow {
    /// Chunks of `batch` packets in order of arrival; within a chunk, bins of packets of the same length, longest first.
    pub(crate) fn prepare_by_length(&mut self, batch: usize, bin_packets: usize) {
        self.prepare((0..self.packets.len()).collect::<Vec<_>>().chunks(batch), bin_packets);
    }

    /// The same with packets of one function in a chunk; chunks of each function are a stream of their own.
    pub(crate) fn prepare_apart(&mut self, batch: usize, bin_packets: usize) {
        let of = |instance: u16| -> Vec<usize> {
            (0..self.packets.len()).filter(|&packet| self.packets[packet].job.instance == instance).collect()
        };
        let apart: Vec<Vec<usize>> =
            (0..self.functions.len() as u16).map(of).filter(|packets| !packets.is_empty()).collect();
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
            // Stable: within a length, packets stay neighbours.
            let key = |&index: &usize| {
                let Packet { descriptor, job, .. } = &self.packets[index];
                (std::cmp::Reverse(descriptor.length), job.instance, job.variant, job.row)
            };
            batch.sort_by_key(key);
            let mut chunk = Chunk::new(0, batch.len());
            let mut first = 0;
            for run in batch.chunk_by(|one, next| key(one) == key(next)).flat_map(|run| run.chunks(bin_packets)) {
                chunk.bins.push(self.bin(run[0], first, run.len()));
                for (place, &index) in (first..).zip(run) {
                    chunk.descriptors[place] = self.packets[index].descriptor;
                    chunk.parameters[place] = self.packets[index].job.parameter;
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
            kernel: self.functions[usize::from(job.instance)].contract().kernel,
            variant: job.variant,
            instance: job.instance,
            length_bytes: descriptor.length,
            row: job.row,
            ..Bin::default()
        }
    }

    /// Chunks as a packer makes them of the packets in order of arrival; what would wait for more packets at the end is left
    /// out. The packer knows from `observed` what bins take. Gives its nanoseconds per packet.
    pub(crate) fn prepare_by_packer(&mut self, config: &PackerConfig, observed: &[(Bin, u64)]) -> Result<f64, Error> {
        let kernels: Vec<u8> = self.functions.iter().map(|function| function.contract().kernel).collect();
        // One is always filling.
        let sets = self.packets.len() / (config.chunk_packets as usize).max(1) * 4 + 8;
        let mut packer = Packer::new(config.clone(), &kernels, sets).map_err(Error::setup)?;
        observed.iter().for_each(|(bin, elapsed_ns)| packer.observe(bin, *elapsed_ns));
        let mut prepared = Vec::new();
        let started = Instant::now();
        let mut packed = 0;
        for Packet { descriptor, job, .. } in &self.packets {
            let Job { instance, variant, parameter, .. } = *job;
            let mut said = packer.insert(0, instance, variant, descriptor, parameter);
            if said == Insert::Refused {
                prepared.extend(packer.take(0));
                said = packer.insert(0, instance, variant, descriptor, parameter);
            }
            packed += usize::from(said != Insert::Refused);
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
