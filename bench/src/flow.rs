//! Prepared chunks through a device, arena to arena, several in flight.
//!
//! ```text
//! packets in the arena, in order of arrival -> bins by length, or a packer -> lane.submit ... lane.poll -> next chunk
//!                  made once                        made once                 timed, pass after pass
//! ```
//! Before a pass all headers and descriptors are made what they were, untimed. Payloads are whatever the last pass left.
//! A pass is timed while the pipeline is full: from the completion that first leaves as many chunks in flight as asked
//! for, until the last chunk is submitted.

mod prepare;

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Descriptor, VERDICT_DROP};
use godwit_device::{
    Device, DeviceChain, DeviceOptions, Implementation, Lane, Mode, Program, Transfer, cpu, has_own_memory,
};
use godwit_engine::FunctionProgram;
use godwit_function::Function;
use godwit_packet::{Arena, ArenaConfig, Layout, Region, Reuse};
use godwit_sched::Chunk;

use crate::frames::{HEADER_BYTES, Random};
use crate::function::Make;
use crate::passes::{Passes, Stream};
use crate::{Error, Size};

/// A packet that does not come back in this time never will: compiling is over, and chunks take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets that are compared with `ref` each time a flow is set up.
const SAMPLES: usize = 1024;
const ETHERNET_BYTES: usize = 14;
/// Polls without an answer before others get the core: a device that is the processor itself needs it, and of one that is not an
/// answer would come while the core is given away.
const POLLS_BEFORE_YIELD: u32 = 64;
const POLLS_BEFORE_YIELD_ELSEWHERE: u32 = 1 << 14;

/// What is to be done with a packet.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// Index of the function.
    pub(crate) instance: u16,
    pub(crate) variant: u8,
    pub(crate) parameter: u64,
    /// Variant and parameter of what `ref` does to the packet first, untimed: what is to be opened has to be closed.
    pub(crate) before: Option<(u8, u64)>,
    /// Its class, where there is a chain.
    pub(crate) row: u8,
}

/// Where packets go and in which form they lie there.
pub(crate) struct Site<'a> {
    pub(crate) device: &'a str,
    pub(crate) mode: Mode,
    /// For the CPU.
    pub(crate) implementation: Implementation,
    /// Whether packets stay in the device's own memory, so that its link is no limit.
    pub(crate) resident: bool,
    pub(crate) layout: Layout,
    /// How packets come to a device and back.
    pub(crate) transfer: Transfer,
    pub(crate) functions: &'a [Arc<dyn Function>],
    pub(crate) packets: usize,
    /// Room of a chunk.
    pub(crate) bins: usize,
    pub(crate) bin_packets: usize,
    pub(crate) in_flight: usize,
    /// Of the device's persistent groups, by function; empty: any group serves any.
    pub(crate) share: &'a [u32],
    /// What follows the functions that jobs name.
    pub(crate) chain: Option<Chain>,
}

/// Functions one after the other.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) hops: Arc<DeviceChain>,
    pub(crate) by: By,
}

/// Who leads packets from function to function. Where that is not the device, chunks come back after each, all packets of a
/// bin going the same way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The device itself.
    Device,
    /// The thread that feeds it, which submits chunks anew.
    Host,
    /// The same thread, which runs all functions behind the first itself, on its core.
    HostOnCpu,
}

/// Packets, and a device to send them through.
pub(crate) struct Flow {
    pub(crate) device: Arc<dyn Device>,
    lane: Box<dyn Lane>,
    /// The CPU's, where functions behind the first run there.
    rest: Option<Box<dyn Lane>>,
    region: Region,
    functions: Vec<Arc<dyn Function>>,
    packets: Vec<Packet>,
    in_flight: usize,
    chain: Option<Chain>,
    /// Not in flight; a chunk's number is its `opened_ns`, which no device looks at.
    chunks: Vec<Option<Chunk>>,
    /// By chunk: which stream it belongs to, each of which has chunks in flight of its own.
    stream_of: Vec<usize>,
    /// For each chunk its packets as they are submitted.
    fresh: Vec<(Vec<Descriptor>, Vec<Bin>)>,
    /// Packets that are dropped, of those in chunks, as compared with `ref`.
    drops: usize,
}

struct Packet {
    descriptor: Descriptor,
    headers: [u8; HEADER_BYTES],
    /// The whole frame, where a pass leaves nothing that the next can begin with.
    frame: Option<Box<[u8]>>,
    job: Job,
}

/// What frames do without of the tailroom, each of which goes through one of the functions.
fn saved(functions: &[Arc<dyn Function>]) -> [u8; 16] {
    let appending = functions.iter().filter(|function| function.tailroom_bytes() > 0);
    let mut kinds: Vec<_> = appending.map(|function| (function.tailroom_bytes(), function.tailroom_saved())).collect();
    kinds.dedup();
    if let [(_, saved)] = kinds[..] { saved } else { [0; 16] }
}

impl Flow {
    /// Packets of `size` in an arena of their own. `make` makes the frame of each, `job` says what is done with it.
    pub(crate) fn new(
        site: &Site<'_>,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
    ) -> Result<Self, Error> {
        Ok(Self::for_threads(site, 1, size, make, job)?.remove(0))
    }

    /// The same for so many threads that feed one device, each with a lane of its own and `site.packets` packets in a region
    /// of its own.
    pub(crate) fn for_threads(
        site: &Site<'_>,
        threads: usize,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
    ) -> Result<Vec<Self>, Error> {
        let most = |bytes: fn(&dyn Function) -> u16| {
            site.functions.iter().map(|function| usize::from(bytes(&**function))).max().unwrap_or(0)
        };
        // Nothing to spare: what lies in a buffer may have to be copied. What is behind the Ethernet header is aligned, as
        // ports that write packets themselves can have it.
        let headroom_bytes = (most(|function| function.headroom_bytes()) + ETHERNET_BYTES).next_multiple_of(16);
        let config = ArenaConfig {
            layout: site.layout,
            reuse: Reuse::Oldest,
            packets: site.packets,
            frame_bytes_max: size.frame_bytes_max().max(60),
            headroom_bytes: headroom_bytes - ETHERNET_BYTES,
            tailroom_bytes: most(|function| function.tailroom_bytes()),
            tailroom_saved: saved(site.functions),
            align_bytes: if site.layout == Layout::Dense { 64 } else { 128 },
            prefix_bytes: 0,
            slot_bytes: None,
        };
        let bytes = Arena::bytes_for(&config, threads).map_err(Error::setup)?;
        let memory = godwit_device::arena_memory(&[site.device], bytes).map_err(Error::setup)?;
        let arena = Arena::over(memory, config, threads).map_err(Error::setup)?;
        let programs: Vec<(Arc<dyn Program>, Implementation)> = (0..)
            .zip(site.functions)
            .map(|(number, function): (usize, _)| {
                let name = format!("{}-{number}", function.contract().kind);
                let program = FunctionProgram::new(name, Arc::clone(function));
                (Arc::new(program) as Arc<dyn Program>, site.implementation)
            })
            .collect();
        let options = DeviceOptions {
            mode: site.mode,
            lanes: threads,
            bins: site.bins,
            bin_packets: site.bin_packets,
            resident: site.resident,
            transfer: site.transfer,
            share: site.share.to_vec(),
            chain: site.chain.as_ref().filter(|chain| chain.by == By::Device).map(|chain| Arc::clone(&chain.hops)),
            ..DeviceOptions::default()
        };
        let device = godwit_device::open(site.device, &programs, &arena.handle(), &options).map_err(Error::setup)?;
        let on_cpu = site.chain.as_ref().is_some_and(|chain| chain.by == By::HostOnCpu);
        let open_cpu = || {
            godwit_device::open(cpu::ID, &programs, &arena.handle(), &DeviceOptions::default()).map_err(Error::setup)
        };
        let rest = on_cpu.then(open_cpu).transpose()?;
        let mut random = Random::new(7);
        let flow = |region| {
            let mut flow = Self::over(site, Arc::clone(&device), region, size, make, job, &mut random)?;
            flow.rest = rest.clone().map(|rest| rest.lane().map_err(Error::setup)).transpose()?;
            Ok(flow)
        };
        arena.split().into_iter().map(flow).collect()
    }

    /// Fills a region with packets.
    fn over(
        site: &Site<'_>,
        device: Arc<dyn Device>,
        mut region: Region,
        size: Size,
        make: &Make<'_>,
        job: &mut dyn FnMut(&mut Random) -> Job,
        random: &mut Random,
    ) -> Result<Self, Error> {
        let lane = Arc::clone(&device).lane().map_err(Error::setup)?;
        let mut packets = Vec::with_capacity(site.packets);
        for _ in 0..site.packets {
            let frame = make(size, random);
            let descriptor =
                region.allocate(frame.len()).ok_or_else(|| Error::Setup("the region is full".to_owned()))?;
            region.frame_mut(&descriptor).copy_from_slice(&frame);
            let mut headers = [0; HEADER_BYTES];
            headers.copy_from_slice(&frame[..HEADER_BYTES]);
            let mut packet = Packet { descriptor, headers, frame: None, job: job(random) };
            if let Some((variant, parameter)) = packet.job.before {
                let function = &site.functions[usize::from(packet.job.instance)];
                let buffer = region.buffer_mut(&descriptor);
                let outcome = function.run_ref(buffer, &mut packet.descriptor, variant, parameter);
                if outcome.verdict == VERDICT_DROP {
                    return Err(Error::Setup(format!("a packet cannot be made what it is to be: {outcome:?}")));
                }
                packet.frame = Some(region.frame(&packet.descriptor).into());
            }
            packets.push(packet);
        }
        Ok(Self {
            device,
            lane,
            rest: None,
            region,
            functions: site.functions.to_vec(),
            packets,
            in_flight: site.in_flight.max(1),
            chain: site.chain.clone(),
            chunks: Vec::new(),
            stream_of: Vec::new(),
            fresh: Vec::new(),
            drops: 0,
        })
    }

    /// Bytes of all frames, per packet.
    pub(crate) fn frame_bytes(&self) -> f64 {
        let bytes: usize = self.packets.iter().map(|packet| usize::from(packet.descriptor.length)).sum();
        bytes as f64 / self.packets.len() as f64
    }

    /// Packets of the arena that are in chunks, and chunks.
    pub(crate) fn prepared(&self) -> (usize, usize) {
        let packets = self.chunks.iter().flatten().map(|chunk| chunk.packets as usize).sum();
        (packets, self.chunks.len())
    }

    /// Packets and chunks of each stream.
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

    /// How the lane's groups were used so far, where it has some: in how many there were bins of one function alone, and of several.
    pub(crate) fn groups_note(&self) -> String {
        let groups = self.lane.bins_by_group();
        if groups.is_empty() {
            return String::new();
        }
        let served = |group: &[u64]| group.iter().filter(|bins| **bins > 0).count();
        let alone = |function: usize| groups.iter().filter(|group| served(group) == 1 && group[function] > 0).count();
        let alone: Vec<String> = (0..self.functions.len()).map(|function| alone(function).to_string()).collect();
        let mixed = groups.iter().filter(|group| served(group) > 1).count();
        format!("; {} groups served one function alone, {mixed} both", alone.join(" and "))
    }

    /// Makes headers and descriptors what they were.
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
        self.lane.copy_region(&mut self.region, true).map_err(Error::setup)
    }

    /// Runs all chunks once and compares packets spread over all of them with `ref`: outcome, descriptor and frame, byte
    /// for byte. Gives how many were compared, and what bins took where the device tells.
    pub(crate) fn verify(&mut self) -> Result<(usize, Vec<(Bin, u64)>), Error> {
        self.verify_frames(true)
    }

    /// The same; `frames`: whether they come back, and are compared too.
    pub(crate) fn verify_frames(&mut self, frames: bool) -> Result<(usize, Vec<(Bin, u64)>), Error> {
        self.refresh()?;
        let (packets, _) = self.prepared();
        let step = (packets / SAMPLES).max(1);
        // Where each sample is, and what `ref` makes of it.
        let mut expected = Vec::new();
        let mut seen = 0;
        for chunk in self.chunks.iter().flatten() {
            for bin in &chunk.bins {
                for place in chunk.range(bin) {
                    seen += 1;
                    if seen % step != 0 && seen != 1 {
                        continue;
                    }
                    let mut descriptor = chunk.descriptors[place];
                    let mut buffer = self.region.buffer_mut(&descriptor).to_vec();
                    let function = &self.functions[usize::from(bin.instance)];
                    let parameter = chunk.parameters[place];
                    let mut outcome = function.run_ref(&mut buffer, &mut descriptor, bin.variant, parameter);
                    let mut at = usize::from(bin.instance);
                    while let Some(next) = self.next(at, bin.row, outcome.verdict) {
                        let function = &self.functions[next];
                        outcome = function.run_ref(&mut buffer, &mut descriptor, function.variant(), 0);
                        at = next;
                    }
                    expected.push((chunk.opened_ns as usize, place, buffer, descriptor, outcome));
                }
            }
        }
        let mut observed = Vec::new();
        self.pass_all(&mut self.no_passes(), Some(&mut observed))?;
        self.lane.copy_region(&mut self.region, false).map_err(Error::setup)?;
        for (chunk, place, buffer, descriptor, outcome) in &expected {
            let Some(chunk) = &self.chunks[*chunk] else { continue };
            let (got, said) = (chunk.descriptors[*place], chunk.outcomes[*place]);
            let head = usize::from(descriptor.head);
            let frame = &buffer[head..head + usize::from(descriptor.length)];
            // What is in the buffer of a packet that is dropped means nothing.
            let dropped = outcome.verdict == VERDICT_DROP;
            let differs = got != *descriptor || frames && self.region.frame(&got) != frame;
            if said != *outcome || !dropped && differs {
                let device = self.device.capabilities().id.clone();
                let what = format!(
                    "packet {place} of a chunk: {said:?} {got:?}, but `ref` says {outcome:?} {descriptor:?}, or \
                     their frames differ"
                );
                return Err(Error::Wrong { who: device, what });
            }
        }
        self.drops = self.dropped();
        Ok((expected.len(), observed))
    }

    /// Where packets go behind a function.
    fn next(&self, function: usize, row: u8, verdict: u8) -> Option<usize> {
        self.chain.as_ref()?.hops.next(function, row, verdict)
    }

    /// Makes a chunk that came back ready for the functions behind those that it went through; false: there are none.
    fn send_on(&self, chunk: &mut Chunk) -> bool {
        let Some(Chain { hops, by: By::Host | By::HostOnCpu }) = &self.chain else { return false };
        let next_of = |bin: &Bin| {
            let said = chunk.outcomes[bin.first as usize].verdict;
            hops.next(bin.instance.into(), bin.row, said)
        };
        let next: Vec<Option<usize>> = chunk.bins.iter().map(next_of).collect();
        if next.iter().any(Option::is_none) {
            return false;
        }
        for (bin, next) in chunk.bins.iter_mut().zip(next.into_iter().flatten()) {
            let function = &self.functions[next];
            (bin.instance, bin.kernel, bin.variant) = (next as u16, function.contract().kernel, function.variant());
        }
        true
    }

    /// All functions behind the first, on this core. The chunk is at the second.
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

    /// Packets that the last pass dropped.
    fn dropped(&self) -> usize {
        let of = |chunk: &Chunk, bin: &Bin| {
            chunk.outcomes[chunk.range(bin)].iter().filter(|said| said.verdict == VERDICT_DROP).count()
        };
        self.chunks.iter().flatten().map(|chunk| chunk.bins.iter().map(|bin| of(chunk, bin)).sum::<usize>()).sum()
    }

    /// Passes over all packets for about `time`, three at least.
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

    /// A pass over packets that are dropped at once would be fast.
    pub(crate) fn check_drops(&self) -> Result<(), Error> {
        let dropped = self.dropped();
        if dropped != self.drops {
            let what = format!("{dropped} packets dropped while it was timed, {} when compared with ref", self.drops);
            return Err(Error::Wrong { who: self.device.capabilities().id.clone(), what });
        }
        Ok(())
    }

    /// Every buffer of a chunk that is not in flight.
    pub(crate) fn buffers_of(&mut self, chunk: usize, look: &mut dyn FnMut(&mut [u8])) {
        for descriptor in &self.fresh[chunk].0 {
            look(self.region.buffer_mut(descriptor));
        }
    }

    /// For each stream what it took, in no pass so far.
    pub(crate) fn no_passes(&self) -> Vec<Passes> {
        (0..self.streams()).map(|_| Passes::default()).collect()
    }

    fn pass_all(&mut self, passes: &mut [Passes], observed: Option<&mut Vec<(Bin, u64)>>) -> Result<(), Error> {
        let all = vec![usize::MAX; passes.len()];
        self.pass(passes, observed, &all)
    }

    /// All chunks once, or of each stream the first `chunks_max`. `passes` has one for each stream. `observed` gets what bins took; a
    /// pass that is timed does without.
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
                        return Err(Error::Wrong { who, what: format!("no chunk came back for {PATIENCE:?}") });
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
