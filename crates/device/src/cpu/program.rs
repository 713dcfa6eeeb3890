//! A packet function that is loaded for the CPU, in the fastest compiled version for this machine.

use std::sync::Arc;
use std::time::Instant;

use godwit_abi::{Descriptor, Outcome};
use godwit_kernels::{BinCall, Level, Native};
use godwit_packet::{Arena, ArenaConfig, ImageRef, Memory, Region, wipe_stack};

use super::interleaving;
use crate::device::Choice;
use crate::error::Error;
use crate::program::{Implementation, Program};

/// Number of packets that a measurement processes at a time.
const SAMPLE_PACKETS: usize = 64;
/// Number of times that a measurement is repeated. Only the shortest time counts, because other
/// work on the machine can only increase the times.
const SAMPLE_PASSES: usize = 9;
/// Number of times that all levels are measured in turns.
const LEVEL_ROUNDS: usize = 3;
/// Maximum ratio between the time of the selected level and the shortest time. The highest level
/// with such a time is selected, so functions with the same code use the same level.
const LEVEL_NEAR_BEST: f64 = 1.02;

/// Packet function with the selected version of its kernel.
pub(super) struct Loaded {
    program: Arc<dyn Program>,
    /// Copy of the function's tables with the alignment that kernels need. The value is `None` if
    /// the original tables are already aligned.
    aligned: Option<Memory>,
    form: LoadedForm,
    measured: Vec<(String, f64)>,
    /// Number of interleaved packets, and the reason for it.
    interleaving: Option<String>,
}

enum LoadedForm {
    Ref,
    /// The least optimised kernel, which replaces `ref` for a function with counters.
    Counting(Kernels),
    Kernel(Kernels),
}

/// Packet arrays of a batch, and this worker's counters of the kernel.
struct Packets<'a> {
    descriptors: &'a mut [Descriptor],
    parameters: &'a [u64],
    outcomes: &'a mut [Outcome],
    counters: &'a mut [u64],
}

/// Compiled versions of a kernel. A version for a CPU feature such as AVX-512 supports only some
/// variants. The version for an x86-64 level processes all others.
#[derive(Clone, Copy)]
struct Kernels {
    native: Option<&'static Native>,
    level: &'static Level,
    group: u32,
}

impl Kernels {
    /// # Safety
    ///
    /// Same as [`Level::run_bin`]. This machine must support both compiled versions.
    unsafe fn run_bin(self, kernel: u8, call: &BinCall) {
        let variant = u8::try_from(call.variant).expect("the variant was converted from a u8");
        let native = self.native.filter(|native| native.covers(kernel, variant));
        // SAFETY: the caller upholds the contract, which is the same for both versions.
        unsafe { native.map_or_else(|| self.level.run_bin(kernel, call), |native| native.run_bin(kernel, call)) }
    }
}

impl Loaded {
    pub(super) fn new(program: Arc<dyn Program>, implementation: Implementation) -> Result<Self, Error> {
        let aligned = aligned(program.image())?;
        let mut loaded = Self { aligned, program, form: LoadedForm::Ref, measured: Vec::new(), interleaving: None };
        if implementation == Implementation::Ref {
            // `ref` cannot count, so a function with counters runs its kernel instead.
            if loaded.counter_count() > 0
                && let Some(level) = loaded.reference_level()
            {
                loaded.form = LoadedForm::Counting(Kernels { native: None, level, group: 0 });
            }
            return Ok(loaded);
        }
        let group = loaded.group(implementation)?;
        // A machine that supports none of the x86-64 levels uses the reference implementation.
        let Some((level, mut best)) = loaded.select_level(group)? else {
            return Ok(loaded);
        };
        let mut kernels = Kernels { native: None, level, group };
        if implementation == Implementation::Native {
            let covers = |native: &Native| native.covers(loaded.program.kernel(), loaded.program.variant());
            for native in godwit_kernels::natives().iter().filter(|native| native.supported() && covers(native)) {
                let (ns, is_significant) = loaded.measure_ns(Kernels { native: Some(native), level, group })?;
                loaded.measured.push((native.name.to_owned(), ns));
                if !is_significant || ns < best {
                    (kernels.native, best) = (Some(native), ns);
                }
            }
        }
        loaded.form = LoadedForm::Kernel(kernels);
        Ok(loaded)
    }

    /// Measures all levels that this machine supports. Returns the selected level and its time in
    /// nanoseconds, or `None` if there is no level.
    fn select_level(&mut self, group: u32) -> Result<Option<(&'static Level, f64)>, Error> {
        let levels: Vec<&'static Level> = self.levels().iter().filter(|level| level.supported()).collect();
        let mut times = vec![f64::INFINITY; levels.len()];
        let mut is_significant = true;
        for _ in 0..LEVEL_ROUNDS {
            for (level, time) in levels.iter().zip(&mut times) {
                let (ns, significant) = self.measure_ns(Kernels { native: None, level, group })?;
                *time = time.min(ns);
                is_significant &= significant;
            }
        }
        self.measured.extend(levels.iter().zip(&times).map(|(level, ns)| (level.name.to_owned(), *ns)));
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        let mut timed = levels.into_iter().zip(times);
        // A time is not significant if the kernel drops all packets. The highest level is then
        // selected.
        Ok(match is_significant {
            true => timed.rfind(|(_, ns)| *ns <= best * LEVEL_NEAR_BEST),
            false => timed.next_back().map(|(level, _)| (level, f64::INFINITY)),
        })
    }

    /// Selects how many packets the kernel interleaves. Interleaving hides cache misses, so it is
    /// used only for kernels whose reads are likely to miss the caches.
    fn group(&mut self, implementation: Implementation) -> Result<u32, Error> {
        let interleaves = match self.program.custom_kernel() {
            Some(kernel) => kernel.interleaves,
            None => godwit_kernels::GOPT_KERNELS.contains(&self.program.kernel()),
        };
        if !interleaves {
            if implementation == Implementation::Gopt {
                self.interleaving = Some("off: no access of this function misses every cache".to_owned());
            }
            return Ok(0);
        }
        let level = self.levels().iter().rfind(|level| level.supported());
        match (implementation, level) {
            (Implementation::Gopt | Implementation::Native, Some(level)) => {
                let mut selected = interleaving::choose(level, self.image());
                if selected.group == 1 {
                    let measure = |group| self.measure_ns(Kernels { native: None, level, group });
                    let ((plain_ns, _), (interleaved_ns, _)) = (measure(1)?, measure(interleaving::SAMPLE)?);
                    selected = selected.with_sample(plain_ns, interleaved_ns);
                }
                self.interleaving = Some(selected.reason);
                // Like group size 1, group size 0 disables interleaving, but its loop also
                // prefetches frames.
                Ok(if implementation == Implementation::Native && selected.group == 1 { 0 } else { selected.group })
            }
            _ => Ok(1),
        }
    }

    /// Returns the compiled versions of the kernel, one per x86-64 level.
    fn levels(&self) -> &'static [Level] {
        self.program.custom_kernel().map_or_else(godwit_kernels::levels, |kernel| kernel.levels)
    }

    /// Returns the kernel with the least optimisation.
    fn reference_level(&self) -> Option<&'static Level> {
        match self.program.custom_kernel() {
            Some(kernel) => Some(kernel.reference),
            None => godwit_kernels::levels().iter().find(|level| level.supported()),
        }
    }

    /// Returns the number of counters that the kernel increments.
    pub(super) fn counter_count(&self) -> usize {
        self.program.counter_bytes().len() / 8
    }

    /// Returns the tables that kernels read.
    fn image(&self) -> ImageRef<'_> {
        self.aligned.as_ref().map_or(self.program.image(), ImageRef::from)
    }

    pub(super) fn kernel(&self) -> u8 {
        self.program.kernel()
    }

    pub(super) fn choice(&self) -> Choice {
        let form = match &self.form {
            LoadedForm::Ref | LoadedForm::Counting(_) => Implementation::Ref.name().to_owned(),
            LoadedForm::Kernel(Kernels { native: None, level, group: 0 | 1 }) => level.name.to_owned(),
            LoadedForm::Kernel(Kernels { native: None, level, group }) => format!("gopt {group}, {}", level.name),
            LoadedForm::Kernel(Kernels { native: Some(native), level, .. }) => {
                format!("{}, {}", native.name, level.name)
            }
        };
        Choice {
            function: self.program.name().to_owned(),
            form,
            measured: self.measured.clone(),
            turns: self.interleaving.clone(),
        }
    }

    /// Processes packets. The caller has checked that the packets lie in `region`. All slices have
    /// the same length. `counters` are this worker's counters of the kernel.
    pub(super) fn run(
        &self,
        region: &mut Region,
        descriptors: &mut [Descriptor],
        parameters: &[u64],
        outcomes: &mut [Outcome],
        variant: u8,
        counters: &mut [u64],
    ) {
        match &self.form {
            LoadedForm::Kernel(kernels) | LoadedForm::Counting(kernels) => {
                let packets = Packets { descriptors, parameters, outcomes, counters };
                self.run_kernel(*kernels, region, packets, variant);
            }
            LoadedForm::Ref => {
                for ((descriptor, &parameter), outcome) in descriptors.iter_mut().zip(parameters).zip(outcomes) {
                    let buffer = region.buffer_mut(descriptor);
                    *outcome = self.program.run_ref(buffer, descriptor, variant, parameter);
                }
            }
        }
    }

    fn run_kernel(&self, kernels: Kernels, region: &mut Region, packets: Packets<'_>, variant: u8) {
        let Packets { descriptors, parameters, outcomes, counters } = packets;
        assert!(counters.len() == self.counter_count());
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
            counters: counters.as_mut_ptr(),
        };
        // SAFETY: the arrays have `count` entries each. Every descriptor names a buffer of
        // `region`, to which `&mut` gives exclusive access. The host half of this kernel built the
        // image. This machine supports both forms.
        unsafe { kernels.run_bin(self.program.kernel(), &call) };
    }

    /// Measures the processing time per packet in nanoseconds with sample packets. Also returns
    /// whether this time is significant. It is not significant if the function drops every sample
    /// packet for lack of a table entry.
    fn measure_ns(&self, kernels: Kernels) -> Result<(f64, bool), Error> {
        let config = ArenaConfig { packets: SAMPLE_PACKETS, ..ArenaConfig::default() };
        let mut region = Arena::new(config, 1)?.split().remove(0);
        let sample = sample_frame();
        let fresh: Vec<Descriptor> =
            std::iter::from_fn(|| region.allocate(sample.len())).take(SAMPLE_PACKETS).collect();
        let parameters = vec![0; fresh.len()];
        let mut outcomes = vec![Outcome::default(); fresh.len()];
        let mut counters = vec![0; self.counter_count()];
        let mut best_ns = f64::INFINITY;
        for _ in 0..SAMPLE_PASSES {
            for descriptor in &fresh {
                region.frame_mut(descriptor).copy_from_slice(&sample);
            }
            let mut descriptors = fresh.clone();
            let variant = self.program.variant();
            let started = Instant::now();
            let packets = Packets {
                descriptors: &mut descriptors,
                parameters: &parameters,
                outcomes: &mut outcomes,
                counters: &mut counters,
            };
            self.run_kernel(kernels, &mut region, packets, variant);
            best_ns = best_ns.min(started.elapsed().as_nanos() as f64);
        }
        // The kernel may have left secret keys on the stack. Padding of later data structures could
        // expose these keys.
        wipe_stack();
        let is_significant = outcomes.iter().any(|outcome| outcome.verdict != godwit_abi::VERDICT_DROP);
        Ok((best_ns / fresh.len() as f64, is_significant))
    }
}

/// Alignment of tables that kernels need, in bytes. It equals the size of a cache line.
const IMAGE_ALIGN_BYTES: usize = 64;

fn aligned(image: ImageRef<'_>) -> Result<Option<Memory>, Error> {
    // Tables that change at run time are always aligned. They must not be copied, because a copy
    // would miss later changes.
    if matches!(image, ImageRef::Changing(_)) || image.as_ptr().addr().is_multiple_of(IMAGE_ALIGN_BYTES) {
        return Ok(None);
    }
    let mut memory = Memory::new(image.len(), "a table image")?;
    image.copy_to(0, &mut memory);
    Ok(Some(memory))
}

/// Returns a UDP packet of 256 bytes, which serves as a sample in measurements.
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
