//! Connection of one worker to the CPU, which processes the batches of a submission one after the
//! other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use godwit_packet::Region;
use godwit_sched::Chunk;

use super::counters::Counters;
use super::program::Loaded;
use crate::check::{check, packets_of};
use crate::device::{BinTime, Lane, Rejected};
use crate::error::Error;

/// Connection of one worker to the CPU. A submission is finished when `submit` returns.
pub(super) struct CpuLane {
    programs: Arc<[Loaded]>,
    finished: VecDeque<(Chunk, Vec<BinTime>)>,
    times: Vec<BinTime>,
    counters: Counters,
}

impl CpuLane {
    pub(super) fn new(programs: Arc<[Loaded]>, counters: Counters) -> Self {
        Self { programs, finished: VecDeque::new(), times: Vec::new(), counters }
    }
}

impl Lane for CpuLane {
    fn submit(&mut self, region: &mut Region, mut chunk: Chunk) -> Result<(), Box<Rejected>> {
        let programs = &self.programs;
        if let Err(error) = check(region, &chunk, |instance| programs.get(usize::from(instance)).map(Loaded::kernel)) {
            return Err(Box::new(Rejected { chunk, error }));
        }
        let mut times = std::mem::take(&mut self.times);
        times.clear();
        let mut started = Instant::now();
        for (index, bin) in chunk.bins.iter().enumerate() {
            let range = packets_of(bin);
            let program = usize::from(bin.instance);
            programs[program].run(
                region,
                &mut chunk.descriptors[range.clone()],
                &chunk.parameters[range.clone()],
                &mut chunk.outcomes[range],
                bin.variant,
                self.counters.of_mut(program),
            );
            self.counters.publish(program);
            let ended = Instant::now();
            let elapsed_ns = ended.duration_since(started).as_nanos() as u64;
            times.push(BinTime { bin: index as u32, elapsed_ns });
            started = ended;
        }
        self.finished.push_back((chunk, times));
        Ok(())
    }

    fn poll(&mut self, _region: &mut Region) -> Result<Option<Chunk>, Error> {
        let Some((chunk, times)) = self.finished.pop_front() else {
            return Ok(None);
        };
        self.times = times;
        Ok(Some(chunk))
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }

    fn bin_times(&self) -> &[BinTime] {
        &self.times
    }
}
