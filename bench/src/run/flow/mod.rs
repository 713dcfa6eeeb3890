//! Prepared chunks through a device, from arena to arena, with several chunks in flight.
//!
//! ```text
//! packets in the arena   -> bins by length,  -> lane.submit ... lane.poll -> next chunk
//! (arrival order)           or a packer
//!        made once            made once         timed, pass after pass
//! ```
//! Headers and descriptors are restored before each pass, untimed. Payloads keep the result of the
//! previous pass. A pass is timed while the pipeline is full: from the completion of as many chunks
//! as may be in flight, until the last chunk is submitted.

pub(crate) mod passes;
mod prepare;
mod resident;

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Descriptor, VERDICT_DROP};
use godwit_device::{
    Device, DeviceChain, DeviceOptions, Implementation, LAST_RESORT, Lane, Mode, Program, Transfer, has_own_memory,
};
use godwit_engine::FunctionProgram;
use godwit_function::Function;
use godwit_packet::{Arena, ArenaConfig, Layout, Region, Reuse};
use godwit_sched::Chunk;

use crate::error::Error;
use crate::load::frames::{HEADER_BYTES, Make, Random};
use crate::load::job::Job;
use crate::load::size::Size;
use crate::run::row::Details;
use passes::{Passes, Stream};
use resident::{Limited, Loader};

/// Time after which a missing chunk is an error. With compiled kernels, a chunk takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets that are compared with `ref` for each flow.
const SAMPLES: usize = 1024;
/// Bytes of an Ethernet header.
const ETHERNET_BYTES: usize = 14;
/// Number of empty polls before the thread yields its core. A device that runs on the CPU soon
/// needs the core.
const POLLS_BEFORE_YIELD: u32 = 64;
/// Number of empty polls before the thread yields its core, if the device is a separate processor.
/// The thread yields late, because a completion could arrive while it is suspended.
const POLLS_BEFORE_YIELD_ELSEWHERE: u32 = 1 << 14;

/// The device, the functions and the memory layout of a flow.
pub(crate) struct FlowConfig<'a> {
    pub(crate) device: &'a str,
    pub(crate) mode: Mode,
    /// Implementation on the CPU.
    pub(crate) implementation: Implementation,
    /// Whether packets stay in device memory, so that the link does not limit the rate.
    pub(crate) resident: bool,
    pub(crate) layout: Layout,
    /// How packets reach the device.
    pub(crate) transfer: Transfer,
    pub(crate) functions: &'a [Arc<dyn Function>],
    /// Packets in the arena, for each thread.
    pub(crate) packets: usize,
    /// Largest number of bins in a chunk.
    pub(crate) bins: usize,
    pub(crate) bin_packets: usize,
    /// Chunks in flight, for each stream.
    pub(crate) in_flight: usize,
    /// Shares of the persistent groups, by function. If it is empty, every group serves every
    /// function.
    pub(crate) share: &'a [u32],
    /// Functions that follow the function of each job.
    pub(crate) chain: Option<Chain>,
}

/// A chain of functions.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) hops: Arc<DeviceChain>,
    pub(crate) by: By,
}

/// The processor that moves packets from function to function. Unless this is the device, chunks
/// return to the host after each function, and all packets of a bin must have the same next
/// function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The device.
    Device,
    /// The thread that feeds the device submits the chunks again.
    Host,
    /// The thread that feeds the device runs all functions after the first on its core.
    HostOnCpu,
}

/// Packets, and the device that processes them.
pub(crate) struct Flow {
    pub(crate) device: Arc<dyn Device>,
    lane: Box<dyn Lane>,
    /// Lane of the CPU, if it runs the functions after the first.
    rest: Option<Box<dyn Lane>>,
    /// Copies the packets to the device, if they stay there.
    loader: Option<Loader>,
    region: Region,
    functions: Vec<Arc<dyn Function>>,
    packets: Vec<Packet>,
    in_flight: usize,
    chain: Option<Chain>,
    /// Chunks by number, or `None` while a chunk is in flight. The field `opened_ns`, which devices
    /// ignore, contains the number.
    chunks: Vec<Option<Chunk>>,
    /// Stream index of each chunk. Each stream has a limit of chunks in flight.
    stream_of: Vec<usize>,
    /// Descriptors and bins of each chunk before submission.
    fresh: Vec<(Vec<Descriptor>, Vec<Bin>)>,
    /// Number of packets in chunks that were dropped during the comparison with `ref`.
    drops: usize,
}

struct Packet {
    descriptor: Descriptor,
    headers: [u8; HEADER_BYTES],
    /// The whole frame, if a pass changes more than the headers.
    frame: Option<Box<[u8]>>,
    job: Job,
}

/// Returns the saved tailroom of short frames, if all functions with tailroom agree on it.
fn saved(functions: &[Arc<dyn Function>]) -> [u8; 16] {
    let appending = functions.iter().filter(|function| function.properties().tailroom_bytes > 0);
    let mut kinds: Vec<_> = appending
        .map(|function| (function.properties().tailroom_bytes, function.properties().tailroom_saved))
        .collect();
    kinds.dedup();
    if let [(_, saved)] = kinds[..] { saved } else { [0; 16] }
}

impl Flow {
    /// Fills an arena with packets of `size`. `make` makes their frames, and `job` chooses their
    /// work.
    pub(crate) fn new(
        config: &FlowConfig<'_>,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
    ) -> Result<Self, Error> {
        Ok(Self::for_threads(config, 1, size, make, job)?.remove(0))
    }

    /// Makes a flow for each of several threads that feed one device. Each flow has a lane, and a
    /// region with `config.packets` packets.
    pub(crate) fn for_threads(
        config: &FlowConfig<'_>,
        threads: usize,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
    ) -> Result<Vec<Self>, Error> {
        let largest = |bytes: fn(&dyn Function) -> u16| {
            config.functions.iter().map(|function| usize::from(bytes(&**function))).max().unwrap_or(0)
        };
        // No spare headroom: whole buffers may be copied to the device. The IP header is aligned,
        // as in ports that write packets themselves.
        let headroom_bytes =
            (largest(|function| function.properties().headroom_bytes) + ETHERNET_BYTES).next_multiple_of(16);
        let arena_config = ArenaConfig {
            layout: config.layout,
            reuse: Reuse::Oldest,
            packets: config.packets,
            frame_bytes_max: size.frame_bytes_max().max(60),
            headroom_bytes: headroom_bytes - ETHERNET_BYTES,
            tailroom_bytes: largest(|function| function.properties().tailroom_bytes),
            tailroom_saved: saved(config.functions),
            align_bytes: if config.layout == Layout::Dense { 64 } else { 128 },
            prefix_bytes: 0,
            slot_bytes: None,
        };
        let bytes = Arena::bytes_for(&arena_config, threads).map_err(Error::setup)?;
        let memory = godwit_device::arena_memory(&[config.device], bytes).map_err(Error::setup)?;
        let arena = Arena::over(memory, arena_config, threads).map_err(Error::setup)?;
        let program = |(number, function): (usize, &Arc<dyn Function>)| -> Arc<dyn Program> {
            let name = format!("{}-{number}", function.contract().kind);
            Arc::new(FunctionProgram::new(name, Arc::clone(function)))
        };
        let mut programs: Vec<Arc<dyn Program>> = config.functions.iter().enumerate().map(program).collect();
        let reader = config.resident.then(|| resident::reader(&mut |_| {})).transpose()?;
        if let Some(reader) = &reader {
            programs.iter_mut().for_each(|program| {
                *program = Arc::new(Limited { program: Arc::clone(program), reads_bytes: 0 });
            });
            let program = program((programs.len(), reader));
            programs.push(Arc::new(Limited { program, reads_bytes: u16::MAX }));
        }
        let programs: Vec<(Arc<dyn Program>, Implementation)> =
            programs.into_iter().map(|program| (program, config.implementation)).collect();
        let options = DeviceOptions {
            mode: config.mode,
            lanes: threads,
            bins: config.bins,
            bin_packets: config.bin_packets,
            transfer: if config.resident { Transfer::Copy } else { config.transfer },
            share: config.share.to_vec(),
            chain: config.chain.as_ref().filter(|chain| chain.by == By::Device).map(|chain| Arc::clone(&chain.hops)),
            ..DeviceOptions::default()
        };
        let device = godwit_device::open(config.device, &programs, &arena.handle(), &options).map_err(Error::setup)?;
        let on_cpu = config.chain.as_ref().is_some_and(|chain| chain.by == By::HostOnCpu);
        let open_cpu = || {
            godwit_device::open(LAST_RESORT, &programs, &arena.handle(), &DeviceOptions::default())
                .map_err(Error::setup)
        };
        let rest = on_cpu.then(open_cpu).transpose()?;
        let mut random = Random::new(7);
        let flow = |region| {
            let mut flow = Self::over(config, Arc::clone(&device), region, size, make, job, &mut random)?;
            flow.rest = rest.clone().map(|rest| rest.lane().map_err(Error::setup)).transpose()?;
            let instance = config.functions.len() as u16;
            flow.loader = reader.as_ref().map(|reader| Loader::new(&**reader, instance, config.bin_packets));
            Ok(flow)
        };
        arena.split().into_iter().map(flow).collect()
    }

    /// Fills a region with packets.
    fn over(
        config: &FlowConfig<'_>,
        device: Arc<dyn Device>,
        mut region: Region,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
        random: &mut Random,
    ) -> Result<Self, Error> {
        let lane = Arc::clone(&device).lane().map_err(Error::setup)?;
        let mut packets = Vec::with_capacity(config.packets);
        for _ in 0..config.packets {
            let frame = make(size, random);
            let descriptor =
                region.allocate(frame.len()).ok_or_else(|| Error::Setup("the region is full".to_owned()))?;
            region.frame_mut(&descriptor).copy_from_slice(&frame);
            let mut headers = [0; HEADER_BYTES];
            headers.copy_from_slice(&frame[..HEADER_BYTES]);
            let mut packet = Packet { descriptor, headers, frame: None, job: job(random) };
            if let Some((variant, parameter)) = packet.job.before {
                let function = &config.functions[usize::from(packet.job.instance)];
                let buffer = region.buffer_mut(&descriptor);
                let outcome = function.run_ref(buffer, &mut packet.descriptor, variant, parameter);
                if outcome.verdict == VERDICT_DROP {
                    return Err(Error::Setup(format!("`ref` dropped a packet that it must encrypt: {outcome:?}")));
                }
                packet.frame = Some(region.frame(&packet.descriptor).into());
            }
            packets.push(packet);
        }
        Ok(Self {
            device,
            lane,
            rest: None,
            loader: None,
            region,
            functions: config.functions.to_vec(),
            packets,
            in_flight: config.in_flight.max(1),
            chain: config.chain.clone(),
            chunks: Vec::new(),
            stream_of: Vec::new(),
            fresh: Vec::new(),
            drops: 0,
        })
    }

    /// Returns the mean frame length.
    pub(crate) fn frame_bytes(&self) -> f64 {
        let bytes: usize = self.packets.iter().map(|packet| usize::from(packet.descriptor.length)).sum();
        bytes as f64 / self.packets.len() as f64
    }

    /// Returns the number of packets in chunks, and the number of chunks.
    pub(crate) fn prepared(&self) -> (usize, usize) {
        let packets = self.chunks.iter().flatten().map(|chunk| chunk.packets as usize).sum();
        (packets, self.chunks.len())
    }

    /// Returns the number of packets and chunks of each stream.
    pub(crate) fn prepared_by_stream(&self) -> Vec<(usize, usize)> {
        let mut prepared = vec![(0, 0); self.streams()];
        for (chunk, &stream) in self.chunks.iter().flatten().zip(&self.stream_of) {
            prepared[stream].0 += chunk.packets as usize;
            prepared[stream].1 += 1;
        }
        prepared
    }

    fn streams(&self) -> usize {
        self.stream_of.iter().max().map_or(1, |last| last + 1)
    }

    /// Counts the persistent groups that served only one function, and those that served several.
    pub(crate) fn groups(&self) -> Details {
        let groups = self.lane.bins_by_group();
        if groups.is_empty() {
            return Details::default();
        }
        let served = |group: &[u64]| group.iter().filter(|bins| **bins > 0).count();
        let alone = |function: usize| groups.iter().filter(|group| served(group) == 1 && group[function] > 0).count();
        let alone: usize = (0..self.functions.len()).map(alone).sum();
        let mixed = groups.iter().filter(|group| served(group) > 1).count();
        Details::default().with("groups_one_function", alone).with("groups_several_functions", mixed)
    }

    /// Restores headers and descriptors.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        for Packet { descriptor, headers, frame, .. } in &self.packets {
            match frame {
                Some(frame) => self.region.frame_mut(descriptor).copy_from_slice(frame),
                None => self.region.frame_mut(descriptor)[..HEADER_BYTES].copy_from_slice(headers),
            }
        }
        for (chunk, (descriptors, bins)) in self.chunks.iter_mut().flatten().zip(&self.fresh) {
            chunk.descriptors.copy_from_slice(descriptors);
            chunk.bins.clone_from(bins);
        }
        if let Some(loader) = &mut self.loader {
            let packets: Vec<Descriptor> = self.packets.iter().map(|packet| packet.descriptor).collect();
            loader.load(&mut *self.lane, &mut self.region, &packets)?;
        }
        Ok(())
    }

    /// Runs all chunks once and compares a sample of the packets with `ref`: outcome, descriptor
    /// and frame, byte for byte. Skips frames that stay on the device. Returns the sample size, and
    /// the time of each bin if the device reports it.
    pub(crate) fn verify(&mut self) -> Result<(usize, Vec<(Bin, u64)>), Error> {
        self.verify_frames(self.loader.is_none())
    }

    /// Does the same as [`Flow::verify`]. If `frames` is false, frames do not return to the host
    /// and are not compared.
    pub(crate) fn verify_frames(&mut self, frames: bool) -> Result<(usize, Vec<(Bin, u64)>), Error> {
        self.refresh()?;
        let (packets, _) = self.prepared();
        let step = (packets / SAMPLES).max(1);
        // Chunk and index of each sample, and the result of `ref`.
        let mut expected = Vec::new();
        let mut seen = 0;
        for chunk in self.chunks.iter().flatten() {
            for bin in &chunk.bins {
                for slot in chunk.range(bin) {
                    seen += 1;
                    if seen % step != 0 && seen != 1 {
                        continue;
                    }
                    let mut descriptor = chunk.descriptors[slot];
                    let mut buffer = self.region.buffer_mut(&descriptor).to_vec();
                    let function = &self.functions[usize::from(bin.instance)];
                    let parameter = chunk.parameters[slot];
                    let mut outcome = function.run_ref(&mut buffer, &mut descriptor, bin.variant, parameter);
                    let mut current = usize::from(bin.instance);
                    while let Some(next) = self.next(current, bin.row, outcome.verdict) {
                        let function = &self.functions[next];
                        outcome = function.run_ref(&mut buffer, &mut descriptor, function.properties().variant, 0);
                        current = next;
                    }
                    expected.push((chunk.opened_ns as usize, slot, buffer, descriptor, outcome));
                }
            }
        }
        let mut observed = Vec::new();
        self.pass_all(&mut self.no_passes(), Some(&mut observed))?;
        for (chunk, slot, buffer, descriptor, outcome) in &expected {
            let Some(chunk) = &self.chunks[*chunk] else { continue };
            let (got, verdict) = (chunk.descriptors[*slot], chunk.outcomes[*slot]);
            let head = usize::from(descriptor.head);
            let frame = &buffer[head..head + usize::from(descriptor.length)];
            // The buffer of a dropped packet is undefined.
            let dropped = outcome.verdict == VERDICT_DROP;
            let differs = got != *descriptor || frames && self.region.frame(&got) != frame;
            if verdict != *outcome || !dropped && differs {
                let device = self.device.capabilities().id.clone();
                let what = format!(
                    "packet {slot} of a chunk: {verdict:?} {got:?}, but `ref` returned {outcome:?} {descriptor:?}, or \
                     the frames differ"
                );
                return Err(Error::Wrong { who: device, what });
            }
        }
        self.drops = self.dropped();
        Ok((expected.len(), observed))
    }

    /// Returns the function after `function`.
    fn next(&self, function: usize, row: u8, verdict: u8) -> Option<usize> {
        self.chain.as_ref()?.hops.next(function, row, verdict)
    }

    /// Prepares a completed chunk for its next functions. Returns false if there are none.
    fn send_on(&self, chunk: &mut Chunk) -> bool {
        let Some(Chain { hops, by: By::Host | By::HostOnCpu }) = &self.chain else { return false };
        let next_of = |bin: &Bin| {
            let verdict = chunk.outcomes[bin.first as usize].verdict;
            hops.next(bin.instance.into(), bin.row, verdict)
        };
        let next: Vec<Option<usize>> = chunk.bins.iter().map(next_of).collect();
        if next.iter().any(Option::is_none) {
            return false;
        }
        for (bin, next) in chunk.bins.iter_mut().zip(next.into_iter().flatten()) {
            let function = &self.functions[next];
            (bin.instance, bin.kernel, bin.variant) =
                (next as u16, function.contract().bin_kernel(), function.properties().variant);
        }
        true
    }

    /// Runs all remaining functions on this core.
    fn run_rest(&mut self, mut chunk: Chunk) -> Result<Chunk, Error> {
        let Some(mut rest) = self.rest.take() else { return Ok(chunk) };
        loop {
            rest.submit(&mut self.region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
            let done = rest.poll(&mut self.region).map_err(Error::setup)?;
            chunk = done.ok_or_else(|| Error::Setup("the CPU did not finish a chunk".to_owned()))?;
            if !self.send_on(&mut chunk) {
                break;
            }
        }
        self.rest = Some(rest);
        Ok(chunk)
    }

    /// Returns the number of packets that the last pass dropped.
    fn dropped(&self) -> usize {
        let in_bin = |chunk: &Chunk, bin: &Bin| {
            chunk.outcomes[chunk.range(bin)].iter().filter(|outcome| outcome.verdict == VERDICT_DROP).count()
        };
        self.chunks.iter().flatten().map(|chunk| chunk.bins.iter().map(|bin| in_bin(chunk, bin)).sum::<usize>()).sum()
    }

    /// Runs passes over all packets for about `time`, but at least three passes.
    pub(crate) fn measure(&mut self, time: Duration) -> Result<Passes, Error> {
        let mut passes = Passes::default();
        let (started, mut done) = (Instant::now(), 0);
        while done < 3 || started.elapsed() < time {
            self.refresh()?;
            self.pass_all(std::slice::from_mut(&mut passes), None)?;
            done += 1;
        }
        self.check_drops()?;
        Ok(passes)
    }

    /// Checks that the timed passes dropped as many packets as the verification, because passes
    /// over dropped packets would be too fast.
    pub(crate) fn check_drops(&self) -> Result<(), Error> {
        let dropped = self.dropped();
        if dropped != self.drops {
            let what = format!("the timed passes dropped {dropped} packets, the verification {}", self.drops);
            return Err(Error::Wrong { who: self.device.capabilities().id.clone(), what });
        }
        Ok(())
    }

    /// Calls `look` with every buffer of a chunk that is not in flight.
    pub(crate) fn buffers_of(&mut self, chunk: usize, look: &mut dyn FnMut(&mut [u8])) {
        for descriptor in &self.fresh[chunk].0 {
            look(self.region.buffer_mut(descriptor));
        }
    }

    /// Returns empty statistics for each stream.
    pub(crate) fn no_passes(&self) -> Vec<Passes> {
        (0..self.streams()).map(|_| Passes::default()).collect()
    }

    fn pass_all(&mut self, passes: &mut [Passes], observed: Option<&mut Vec<(Bin, u64)>>) -> Result<(), Error> {
        let all = vec![usize::MAX; passes.len()];
        self.pass(passes, observed, &all)
    }

    /// Runs all chunks once, or the first `chunks_max` of each stream. `passes` has one element for
    /// each stream. `observed` receives the bin times, and timed passes do not use it.
    pub(crate) fn pass(
        &mut self,
        passes: &mut [Passes],
        mut observed: Option<&mut Vec<(Bin, u64)>>,
        chunks_max: &[usize],
    ) -> Result<(), Error> {
        let moved = self.lane.moved_bytes();
        let started = Instant::now();
        let chunks_of = |stream: usize| {
            let own = self.stream_of.iter().enumerate().filter(move |(_, of)| **of == stream).map(|(number, _)| number);
            own.take(chunks_max[stream]).collect()
        };
        let mut streams: Vec<Stream> =
            (0..passes.len()).map(|stream| Stream::new(chunks_of(stream), started)).collect();
        let mut submitted = vec![started; self.chunks.len()];
        let (mut answered, mut idle) = (started, 0);
        let elsewhere = has_own_memory(&self.device.capabilities().id);
        let polls_before_yield = if elsewhere { POLLS_BEFORE_YIELD_ELSEWHERE } else { POLLS_BEFORE_YIELD };
        while self.lane.in_flight() > 0 || streams.iter().any(|stream| !stream.waiting.is_empty()) {
            for stream in &mut streams {
                while stream.in_flight < self.in_flight {
                    let Some(number) = stream.waiting.pop_front() else { break };
                    let Some(chunk) = self.chunks[number].take() else { continue };
                    submitted[number] = Instant::now();
                    self.lane.submit(&mut self.region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
                    stream.submitted(submitted[number]);
                }
            }
            let Some(mut chunk) = self.lane.poll(&mut self.region).map_err(Error::setup)? else {
                idle += 1;
                if idle >= polls_before_yield {
                    std::thread::yield_now();
                    if answered.elapsed() > PATIENCE {
                        let who = self.device.capabilities().id.clone();
                        return Err(Error::Wrong { who, what: format!("no chunk completed within {PATIENCE:?}") });
                    }
                } else {
                    std::hint::spin_loop();
                }
                continue;
            };
            (answered, idle) = (Instant::now(), 0);
            if self.send_on(&mut chunk) {
                if self.rest.is_none() {
                    self.lane.submit(&mut self.region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
                    continue;
                }
                chunk = self.run_rest(chunk)?;
                answered = Instant::now();
            }
            let number = chunk.opened_ns as usize;
            let stream = self.stream_of[number];
            passes[stream].latencies_ns.push(answered.duration_since(submitted[number]).as_nanos() as f64);
            streams[stream].answered(answered, chunk.packets);
            if let Some(observed) = &mut observed {
                let times = self.lane.bin_times().iter();
                observed.extend(times.map(|time| (chunk.bins[time.bin as usize], time.elapsed_ns)));
            }
            self.chunks[number] = Some(chunk);
        }
        for (stream, passes) in streams.into_iter().zip(&mut *passes) {
            stream.add_to(passes, started);
        }
        for (sum, (now, before)) in passes[0].moved_bytes.iter_mut().zip(self.lane.moved_bytes().into_iter().zip(moved))
        {
            *sum += now - before;
        }
        Ok(())
    }
}
