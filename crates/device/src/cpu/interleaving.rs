//! Selects how many packets a CPU kernel interleaves to hide cache misses. The selection is based
//! on measured read times of the function's table.

use std::hint::black_box;
use std::time::Instant;

use godwit_kernels::{GROUP_MAX, Level, PROBE_READS};
use godwit_packet::ImageRef;

/// Number of lookups in one measurement.
const ROUNDS: u32 = 1024;
/// Number of times that each measurement is repeated. Only the fastest result counts.
const PASSES: u32 = 8;
/// Read latency below which a table is assumed to lie in a cache near the core, in nanoseconds. The
/// value is an estimate from the latency of second-level caches.
const NEAR_NS: f64 = 6.0;
/// Factor within which a measured time counts as equal to the best time. The smallest number of
/// interleaved packets within this factor is selected, because it uses the least cache.
const NEAR_BEST: f64 = 1.03;
const LINE_BYTES: usize = 64;

/// Number of interleaved packets, and the reason for it.
pub(super) struct Interleaving {
    pub(super) group: u32,
    pub(super) reason: String,
}

/// Number of interleaved packets in the comparison with plain processing. In the benchmark `dpi`, 8
/// to 32 interleaved packets are equally fast.
pub(super) const SAMPLE: u32 = 16;
/// Minimum speedup that justifies interleaving if the table is in a nearby cache.
const SAMPLE_GAIN: f64 = 1.1;

impl Interleaving {
    /// Enables interleaving if a comparison shows that it is faster. `plain_ns` is the measured
    /// time per packet without interleaving, and `interleaved_ns` the time with [`SAMPLE`]
    /// interleaved packets.
    ///
    /// Interleaving can help even if the table is in a nearby cache. For example, an automaton that
    /// reads a payload byte by byte waits for every read.
    pub(super) fn with_sample(self, plain_ns: f64, interleaved_ns: f64) -> Self {
        if plain_ns < SAMPLE_GAIN * interleaved_ns {
            return self;
        }
        let near = self.reason.strip_prefix("off: ").unwrap_or(&self.reason);
        let reason = format!(
            "{SAMPLE} interleaved: {near}, but a packet takes {plain_ns:.0} ns alone and {interleaved_ns:.0} ns interleaved"
        );
        Self { group: SAMPLE, reason }
    }
}

/// Measures reads of a table, and selects the number of interleaved packets. This machine must
/// support the x86-64 level `level`.
pub(super) fn choose(level: &Level, image: ImageRef<'_>) -> Interleaving {
    assert!(level.supported());
    let lines = (image.len() / LINE_BYTES) as u64;
    let size = format!("table of {}", size(image.len()));
    if lines < u64::from(GROUP_MAX) {
        return Interleaving { group: 1, reason: format!("off: {size}") };
    }
    let mut seed = 1;
    let mut read_ns = |group: u32| {
        let rounds = if group == 0 { ROUNDS / 4 } else { ROUNDS };
        let pass = |_| {
            seed += u64::from(ROUNDS) << 8;
            let started = Instant::now();
            // SAFETY: the level is supported, as asserted. The image has `lines` lines and is read
            // as bytes.
            black_box(unsafe { level.probe(image.as_ptr(), lines, seed, rounds, group) });
            started.elapsed().as_nanos() as f64 / f64::from(rounds * PROBE_READS)
        };
        (0..PASSES).map(pass).fold(f64::INFINITY, f64::min)
    };
    let alone_ns = read_ns(0);
    if alone_ns < NEAR_NS {
        return Interleaving { group: 1, reason: format!("off: {size} responds in {alone_ns:.1} ns") };
    }
    let groups = (2..=GROUP_MAX.ilog2()).map(|power| 1 << power);
    let measured: Vec<(u32, f64)> = groups.map(|group| (group, read_ns(group))).collect();
    let best_ns = measured.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
    let (group, ns) = measured.into_iter().find(|(_, ns)| *ns <= best_ns * NEAR_BEST).unwrap_or((GROUP_MAX, best_ns));
    let reason =
        format!("{group} interleaved: {size} responds in {alone_ns:.1} ns, interleaved reads in {ns:.1} ns each");
    Interleaving { group, reason }
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{} MiB", bytes.div_ceil(1 << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_interleave_over_a_table_in_the_cache() {
        let Some(level) = godwit_kernels::levels().iter().find(|level| level.supported()) else { return };
        let memory = godwit_packet::Memory::new(100, "a table").expect("there is memory");
        let interleaving = choose(level, ImageRef::from(&memory));
        assert_eq!((interleaving.group, interleaving.reason.as_str()), (1, "off: table of 1 KiB"));
    }

    #[test]
    fn interleaves_over_a_near_table_if_a_sample_is_faster() {
        let near = || Interleaving { group: 1, reason: "off: table of 1 KiB".to_owned() };
        let Interleaving { group, reason } = near().with_sample(500.0, 250.0);
        assert_eq!(group, SAMPLE);
        assert!(["1 KiB", "500 ns", "250 ns"].iter().all(|value| reason.contains(value)), "{reason}");
        let interleaving = near().with_sample(12.0, 11.5);
        assert_eq!((interleaving.group, interleaving.reason.as_str()), (1, "off: table of 1 KiB"));
    }

    #[test]
    fn chooses_a_group_size_that_the_kernels_support() {
        let Some(level) = godwit_kernels::levels().iter().find(|level| level.supported()) else { return };
        let memory = godwit_packet::Memory::new(48 << 20, "a table").expect("there is memory");
        let Interleaving { group, reason } = choose(level, ImageRef::from(&memory));
        assert!((1..=GROUP_MAX).contains(&group), "{reason}");
        assert!(reason.contains("table of 48 MiB responds in"), "{reason}");
    }
}
