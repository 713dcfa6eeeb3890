//! Runs a function on packets in memory: host half and kernel, bin after bin.

use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_abi::{Bin, Outcome, VERDICT_DROP};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane, Program};
use godwit_engine::FunctionProgram;
use godwit_function::{Function, HostHalf, WorkColumns};
use godwit_packet::Region;
use godwit_sched::Chunk;

use crate::error::Error;
use crate::load::frames::Packets;
use crate::progress::Progress;
use crate::run::lane;
use crate::run::options::LaneOptions;
use crate::run::rounds::median_p99;
use crate::run::row::{Details, Row};
use crate::run::workload::{Competitor, Refresh, Workload};

/// Packets of a bin.
const BIN_PACKETS: usize = 256;
/// Packets per pass. They fit into the L2 cache, like packets that a NIC has written to the cache.
pub(crate) const PACKETS: usize = 1024;
/// Time that an implementation runs before the next one takes its turn. It suffices to fill the
/// caches.
const ROUND: Duration = Duration::from_millis(20);

/// Measures a function at each size. All implementations and the peer take turns. With `--mode`, or
/// on a device other than the CPU, the packets go through a lane instead.
pub(crate) fn measure(
    workload: Workload<'_>,
    options: &LaneOptions,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, Error> {
    if options.through_lane() {
        return lane::measure(&workload, options, progress);
    }
    let common = &options.common;
    let Workload { function, frame, refresh, mut competitor, before, details, .. } = workload;
    let mut runners = runners(&function, common.implementation.as_deref())?;
    if !common.peers {
        competitor = None;
    }
    let kind = function.contract().kind;
    let mut rows = Vec::new();
    for &size in &common.sizes {
        progress(&format!("{kind} at {size}"));
        let mut packets = Packets::new(PACKETS, size, frame)?;
        let mut preparation = before.as_ref().map(|before| Preparation::new(before, &mut packets)).transpose()?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); runners.len()];
        let mut peer_times = Vec::new();
        let started = Instant::now();
        while started.elapsed() < common.time || times[0].is_empty() {
            for (runner, times) in runners.iter_mut().zip(&mut times) {
                let round = Instant::now();
                while round.elapsed() < ROUND || times.len() < 3 {
                    match refresh {
                        Refresh::Frames => (),
                        Refresh::Addresses => packets.redirect(),
                        Refresh::Made => packets.make_again(frame),
                    }
                    if let Some(preparation) = &mut preparation {
                        preparation.again(&mut packets)?;
                    }
                    times.push(runner.pass(&mut packets)?);
                }
            }
            if let Some(competitor) = &mut competitor {
                let plain = preparation.as_ref().map_or(packets.frames(), |preparation| preparation.plain.frames());
                peer_times.push((competitor.round)(plain)?);
            }
        }
        let bits = packets.bytes() as f64 * 8.0 / PACKETS as f64;
        let row = |device: &str, form: &str, mode: &str, times: &mut [f64], count: usize, details: Details| {
            let (p50, p99) = median_p99(times);
            let mpps = count as f64 / p50 * 1e3;
            Row {
                device: device.to_owned(),
                implementation: form.to_owned(),
                mode: mode.to_owned(),
                size: Some(size),
                batch: BIN_PACKETS,
                mpps,
                gbps: mpps * bits / 1e3,
                p50_us: p50 / 1e3 / count as f64 * BIN_PACKETS as f64,
                p99_us: p99 / 1e3 / count as f64 * BIN_PACKETS as f64,
                details,
                ..Row::default()
            }
        };
        for (runner, times) in runners.iter_mut().zip(&mut times) {
            let (kernel, _) = median_p99(&mut runner.kernel_ns);
            runner.kernel_ns.clear();
            let kernel_ns = runner.host_half.is_some().then(|| kernel / PACKETS as f64);
            let details = details.clone().with_option("kernel_ns", kernel_ns);
            rows.push(row("cpu", &runner.form, "call", times, PACKETS, details));
        }
        if let Some(competitor) = &competitor {
            let Competitor { device, implementation, mode, ref details, packets, .. } = *competitor;
            let details = details.clone();
            rows.push(Row { peer: true, ..row(device, implementation, mode, &mut peer_times, packets, details) });
        }
        report_ratio(&rows, progress);
    }
    Ok(rows)
}

/// Reports the ratio of our best form to the peer at the last size.
fn report_ratio(rows: &[Row], progress: &mut Progress<'_>) {
    let Some(peer) = rows.last().filter(|row| row.peer) else {
        return;
    };
    let ours = rows.iter().filter(|row| !row.peer && row.size == peer.size).map(|row| row.mpps);
    let best = ours.fold(0.0, f64::max);
    progress(&format!("{best:.2} Mpps, {:.2} Mpps of {}: ratio {:.2}", peer.mpps, peer.device, best / peer.mpps));
}

/// Number of passes whose frames are made together. Most passes then find the caches as the
/// previous pass left them.
const PREPARED_PASSES: usize = 16;

/// Function that prepares the packets of each pass, such as encryption before decryption.
struct Preparation {
    plain: Packets,
    runner: Runner,
    /// Frames of the next passes.
    ready: Vec<Vec<Vec<u8>>>,
    /// Index in `ready` of the frames for the next pass.
    next: usize,
}

impl Preparation {
    /// Replaces `packets` with the results of `function`.
    fn new(function: &Arc<dyn Function>, packets: &mut Packets) -> Result<Self, Error> {
        let runner = Runner::new(function, Implementation::Native)?;
        let plain = Packets::of(packets.frames().to_vec())?;
        let mut preparation = Self { plain, runner, ready: Vec::new(), next: PREPARED_PASSES };
        let mut frames = Vec::with_capacity(PACKETS);
        preparation.each(&mut |_, frame| frames.push(frame.to_vec()))?;
        preparation.ready = vec![frames.clone(); PREPARED_PASSES];
        *packets = Packets::of(frames)?;
        Ok(preparation)
    }

    /// Replaces `packets` by new results of the same lengths.
    fn again(&mut self, packets: &mut Packets) -> Result<(), Error> {
        if self.next == PREPARED_PASSES {
            let mut ready = std::mem::take(&mut self.ready);
            for frames in &mut ready {
                self.each(&mut |index, frame| frames[index].copy_from_slice(frame))?;
            }
            (self.ready, self.next) = (ready, 0);
        }
        packets.exchange(&mut self.ready[self.next]);
        self.next += 1;
        Ok(())
    }

    /// Processes all packets once more, and calls `take` with each packet's index and frame.
    fn each(&mut self, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error> {
        let mut index = 0;
        let mut show = |region: &Region, chunk: &Chunk| {
            for descriptor in chunk.descriptors.iter() {
                take(index, region.frame(descriptor));
                index += 1;
            }
        };
        self.runner.pass_to(&mut self.plain, &mut show)?;
        Ok(())
    }
}

/// An implementation on the CPU.
struct Runner {
    form: String,
    lane: Box<dyn Lane>,
    host_half: Option<HostHalf>,
    variant: u8,
    kernel: u8,
    work: WorkColumns,
    outcomes: Vec<Outcome>,
    /// Kernel time of each pass.
    kernel_ns: Vec<f64>,
}

/// Returns the requested implementations. The default is `native`.
fn runners(function: &Arc<dyn Function>, implementation: Option<&str>) -> Result<Vec<Runner>, Error> {
    let implementations = match implementation {
        None | Some("native") => vec![Implementation::Native],
        Some("gopt") => vec![Implementation::Gopt],
        Some("scalar") => vec![Implementation::Scalar],
        Some("ref") => vec![Implementation::Ref],
        Some("all") => vec![Implementation::Ref, Implementation::Scalar, Implementation::Gopt, Implementation::Native],
        Some(name) => {
            let known = ["ref", "scalar", "gopt", "native", "all"].map(str::to_owned).to_vec();
            return Err(Error::Unknown { what: "implementation", name: name.to_owned(), known });
        }
    };
    implementations.into_iter().map(|implementation| Runner::new(function, implementation)).collect()
}

impl Runner {
    fn new(function: &Arc<dyn Function>, implementation: Implementation) -> Result<Self, Error> {
        let name = function.contract().kind.to_owned();
        let program: Arc<dyn Program> = Arc::new(FunctionProgram::new(name, Arc::clone(function)));
        let device = Arc::new(CpuDevice::new(vec![(program, implementation)]).map_err(Error::setup)?);
        Ok(Self {
            form: device.choices()[0].form.clone(),
            lane: device.lane().map_err(Error::setup)?,
            host_half: function.host_half(0, 1),
            variant: function.properties().variant,
            kernel: function.contract().bin_kernel(),
            work: WorkColumns::default(),
            outcomes: vec![Outcome::default(); BIN_PACKETS],
            kernel_ns: Vec::new(),
        })
    }

    /// Runs a pass over all packets. Returns the nanoseconds of the kernel and both steps of the
    /// host half.
    fn pass(&mut self, packets: &mut Packets) -> Result<f64, Error> {
        self.pass_to(packets, &mut |_, _| ())
    }

    /// Runs a pass, and calls `show` with each completed chunk.
    fn pass_to(&mut self, packets: &mut Packets, show: &mut dyn FnMut(&Region, &Chunk)) -> Result<f64, Error> {
        let (mut total_ns, mut kernel_ns) = (0.0, 0.0);
        let mut chunk = Chunk::new(1, BIN_PACKETS);
        for start in (0..PACKETS).step_by(BIN_PACKETS) {
            let range = start..start + BIN_PACKETS;
            packets.refresh(range.clone());
            chunk.descriptors.copy_from_slice(&packets.descriptors[range.clone()]);
            let mut bin =
                Bin { count: BIN_PACKETS as u16, kernel: self.kernel, variant: self.variant, ..Bin::default() };
            let started = Instant::now();
            if let Some(HostHalf::Prepare(host_half)) = &mut self.host_half {
                self.work.clear();
                host_half.prepare_columns(&packets.region, &chunk.descriptors, &mut self.work);
                match self.work.run(0) {
                    Some((variant, BIN_PACKETS)) => bin.variant = variant,
                    _ => {
                        let what = format!("the host half did not prepare one run of packets: {:?}", self.work.at(0));
                        return Err(Error::Wrong { who: self.form.clone(), what });
                    }
                }
                chunk.parameters.copy_from_slice(self.work.parameters(0..BIN_PACKETS));
            }
            chunk.bins.clear();
            chunk.bins.push(bin);
            let begun = started.elapsed();
            self.lane.submit(&mut packets.region, chunk).map_err(|rejected| Error::setup(rejected.error))?;
            let done = self.lane.poll(&mut packets.region).map_err(Error::setup)?;
            kernel_ns += (started.elapsed() - begun).as_nanos() as f64;
            if let (Some(host_half), Some(chunk)) = (&mut self.host_half, &done) {
                // A worker copies the outcomes too.
                self.outcomes.copy_from_slice(&chunk.outcomes);
                host_half.completing().complete(bin.variant, &chunk.descriptors, &chunk.parameters, &mut self.outcomes);
            }
            total_ns += started.elapsed().as_nanos() as f64;
            chunk = done.ok_or_else(|| Error::Setup("the CPU did not complete a chunk".to_owned()))?;
            self.check(&chunk)?;
            show(&packets.region, &chunk);
        }
        self.kernel_ns.push(kernel_ns);
        Ok(total_ns)
    }

    /// Checks that a function with a host half drops nothing, because a pass over dropped packets
    /// would be too fast.
    fn check(&self, chunk: &Chunk) -> Result<(), Error> {
        let drops = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| outcome.verdict == VERDICT_DROP).count();
        let dropped = if self.host_half.is_some() { drops(&self.outcomes).max(drops(&chunk.outcomes)) } else { 0 };
        if dropped == 0 {
            return Ok(());
        }
        let what = format!("it dropped {dropped} of {} packets", chunk.outcomes.len());
        Err(Error::Wrong { who: self.form.clone(), what })
    }
}
