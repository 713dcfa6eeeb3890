//! A program made ready for the CPU: the form that this machine runs fastest.

use std::sync::Arc;
use std::time::Instant;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::{BinCall, Level, Native};
use godwit_packet::{Arena, ArenaConfig, ImageRef, Memory, Region, wipe_stack};

use super::group;
use crate::{Choice, Error, Implementation, Program};

/// Packets in the bin that levels are measured with.
const SAMPLE_PACKETS: usize = 64;
/// Passes over it; the fastest counts, because everything else on the machine only slows a pass down.
const SAMPLE_PASSES: usize = 9;

/// A program and the form of it that runs.
pub(super) struct Loaded {
    program: Arc<dyn Program>,
    /// A copy of the image, where the program's own is not aligned as kernels want it.
    aligned: Option<Memory>,
    form: Form,
    measured: Vec<(String, f64)>,
    /// How many packets take turns, and why.
    turns: Option<String>,
}

enum Form {
    Ref,
    Kernel(Kernels),
}

/// Compiled forms: a native one runs what it covers, the level the rest.
#[derive(Clone, Copy)]
struct Kernels {
    native: Option<&'static Native>,
    level: &'static Level,
    /// [`BinCall::group`].
    group: u32,
}

impl Kernels {
    /// # Safety
    ///
    /// As [`Level::run_bin`]; both forms are supported here.
    unsafe fn run_bin(self, kernel: u8, call: &BinCall) {
        let variant = u8::try_from(call.variant).expect("made from one");
        let native = self.native.filter(|native| native.covers(kernel, variant));
        // SAFETY: the caller keeps the contract, which is the same for both.
        unsafe { native.map_or_else(|| self.level.run_bin(kernel, call), |native| native.run_bin(kernel, call)) }
    }
}

impl Loaded {
    pub(super) fn new(program: Arc<dyn Program>, implementation: Implementation) -> Result<Self, Error> {
        let mut loaded =
            Self { aligned: aligned(program.image())?, program, form: Form::Ref, measured: Vec::new(), turns: None };
        if implementation == Implementation::Ref {
            return Ok(loaded);
        }
        let group = loaded.group(implementation)?;
        let mut fastest: Option<(&'static Level, f64)> = None;
        for level in godwit_kernels::levels().iter().filter(|level| level.supported()) {
            let (ns, tells) = loaded.measure_ns(Kernels { native: None, level, group })?;
            loaded.measured.push((level.name.to_owned(), ns));
            // Where the sample tells nothing, the highest level counts.
            if !tells || fastest.is_none_or(|(_, best)| ns < best) {
                fastest = Some((level, if tells { ns } else { f64::INFINITY }));
            }
        }
        // A machine older than the lowest level still runs the reference.
        let Some((level, mut best)) = fastest else {
            return Ok(loaded);
        };
        let mut kernels = Kernels { native: None, level, group };
        if implementation == Implementation::Native {
            let covers = |native: &Native| native.covers(loaded.program.kernel(), loaded.program.variant());
            for native in godwit_kernels::natives().iter().filter(|native| native.supported() && covers(native)) {
                let (ns, tells) = loaded.measure_ns(Kernels { native: Some(native), level, group })?;
                loaded.measured.push((native.name.to_owned(), ns));
                if !tells || ns < best {
                    (kernels.native, best) = (Some(native), ns);
                }
            }
        }
        loaded.form = Form::Kernel(kernels);
        Ok(loaded)
    }

    /// How many packets take turns, where the kernel has accesses that miss every cache.
    fn group(&mut self, implementation: Implementation) -> Result<u32, Error> {
        if !godwit_kernels::GOPT_KERNELS.contains(&self.program.kernel()) {
            if implementation == Implementation::Gopt {
                self.turns = Some("off: no access of this function misses every cache".to_owned());
            }
            return Ok(0);
        }
        let level = godwit_kernels::levels().iter().rfind(|level| level.supported());
        match (implementation, level) {
            (Implementation::Gopt | Implementation::Native, Some(level)) => {
                let mut turns = group::choose(level, self.image());
                if turns.group == 1 {
                    let measure = |group| self.measure_ns(Kernels { native: None, level, group });
                    let ((plain_ns, _), (turns_ns, _)) = (measure(1)?, measure(group::SAMPLE)?);
                    turns = turns.of_sample(plain_ns, turns_ns);
                }
                self.turns = Some(turns.reason);
                // Nobody asks for the plain loop: frames are fetched ahead at least.
                Ok(if implementation == Implementation::Native && turns.group == 1 { 0 } else { turns.group })
            }
            _ => Ok(1),
        }
    }

    /// The image as kernels read it.
    fn image(&self) -> ImageRef<'_> {
        self.aligned.as_ref().map_or(self.program.image(), ImageRef::from)
    }

    pub(super) fn kernel(&self) -> u8 {
        self.program.kernel()
    }

    pub(super) fn choice(&self) -> Choice {
        let form = match &self.form {
            Form::Ref => Implementation::Ref.name().to_owned(),
            Form::Kernel(Kernels { native: None, level, group: 0 | 1 }) => level.name.to_owned(),
            Form::Kernel(Kernels { native: None, level, group }) => format!("gopt {group}, {}", level.name),
            Form::Kernel(Kernels { native: Some(native), level, .. }) => format!("{}, {}", native.name, level.name),
        };
        Choice {
            function: self.program.name().to_owned(),
            form,
            measured: self.measured.clone(),
            turns: self.turns.clone(),
        }
    }

    /// Runs packets that all lie in `region`; the caller checked that. All slices have the same length.
    pub(super) fn run(
        &self,
        region: &mut Region,
        descriptors: &mut [Descriptor],
        parameters: &[u64],
        outcomes: &mut [Outcome],
        variant: u8,
    ) {
        match &self.form {
            Form::Kernel(kernels) => {
                self.run_kernel(*kernels, region, descriptors, parameters, outcomes, variant);
            }
            Form::Ref => {
                for ((descriptor, &parameter), outcome) in descriptors.iter_mut().zip(parameters).zip(outcomes) {
                    let buffer = region.buffer_mut(descriptor);
                    *outcome = self.program.run_ref(buffer, descriptor, variant, parameter);
                }
            }
        }
    }

    fn run_kernel(
        &self,
        kernels: Kernels,
        region: &mut Region,
        descriptors: &mut [Descriptor],
        parameters: &[u64],
        outcomes: &mut [Outcome],
        variant: u8,
    ) {
        assert!(descriptors.len() == parameters.len() && descriptors.len() == outcomes.len());
        debug_assert!(descriptors.iter().all(|descriptor| region.contains(descriptor)));
        let image = self.image();
        let call = BinCall {
            arena: region.arena_base(),
            image: image.as_ptr(),
            descriptors: descriptors.as_mut_ptr(),
            parameters: parameters.as_ptr(),
            outcomes: outcomes.as_mut_ptr(),
            count: descriptors.len() as u32,
            variant: u32::from(variant),
            group: kernels.group,
        };
        // SAFETY: the arrays have `count` entries each; every descriptor names a buffer of `region`, which
        // `&mut` makes ours alone; the image is the one this kernel's host half built; both forms are supported here.
        unsafe { kernels.run_bin(self.program.kernel(), &call) };
    }

    /// Nanoseconds per packet of a sample bin, the fastest of some passes; and whether that tells forms apart. It does not
    /// where every packet is dropped: a function whose tables have nothing for the sample is done with it at once.
    fn measure_ns(&self, kernels: Kernels) -> Result<(f64, bool), Error> {
        let config = ArenaConfig { packets: SAMPLE_PACKETS, ..ArenaConfig::default() };
        let mut region = Arena::new(config, 1)?.split().remove(0);
        let sample = sample_frame();
        let fresh: Vec<Descriptor> =
            std::iter::from_fn(|| region.allocate(sample.len())).take(SAMPLE_PACKETS).collect();
        let parameters = vec![0; fresh.len()];
        let mut outcomes = vec![Outcome::default(); fresh.len()];
        let mut best_ns = f64::INFINITY;
        for _ in 0..SAMPLE_PASSES {
            for descriptor in &fresh {
                region.frame_mut(descriptor).copy_from_slice(&sample);
            }
            let mut descriptors = fresh.clone();
            let variant = self.program.variant();
            let started = Instant::now();
            self.run_kernel(kernels, &mut region, &mut descriptors, &parameters, &mut outcomes, variant);
            best_ns = best_ns.min(started.elapsed().as_nanos() as f64);
        }
        // The kernel may have spilled keys of the table, which whatever is built here next would carry along in its padding.
        wipe_stack();
        let tells = outcomes.iter().any(|outcome| outcome.verdict != godwit_abi::VERDICT_DROP);
        Ok((best_ns / fresh.len() as f64, tells))
    }
}

/// Kernels read tables at cache-line boundaries.
const IMAGE_ALIGN_BYTES: usize = 64;

fn aligned(image: ImageRef<'_>) -> Result<Option<Memory>, Error> {
    // One that changes lies at such a boundary: a copy would not follow it.
    if matches!(image, ImageRef::Changing(_)) || image.as_ptr().addr().is_multiple_of(IMAGE_ALIGN_BYTES) {
        return Ok(None);
    }
    let mut memory = Memory::new(image.len(), "a table image")?;
    image.copy_to(0, &mut memory);
    Ok(Some(memory))
}

/// A UDP packet of 256 bytes: what a level is measured with.
fn sample_frame() -> Vec<u8> {
    let mut frame = vec![0x5a; 256];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    let header = [0x45, 0, 0, 242, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame[14..34].copy_from_slice(&header);
    let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..42].copy_from_slice(&[0x13, 0x88, 0x13, 0x89, 0, 222, 0, 0]);
    frame
}
