//! How many packets take turns while memory answers: found by reading a function's own table.

use std::hint::black_box;
use std::time::Instant;

use godwit_kernels::{GROUP_MAX, Level, PROBE_READS};
use godwit_packet::ImageRef;

/// Look-ups of one measurement, and how often each is made; the fastest counts.
const ROUNDS: u32 = 1024;
const PASSES: u32 = 4;
/// A table that answers sooner lies in a cache near the core: turns hide nothing of a single read. A
/// guess from the latency of second-level caches; not measured with functions.
const NEAR_NS: f64 = 6.0;
/// A smaller group that is this near the best takes less room in the cache.
const NEAR_BEST: f64 = 1.03;
const LINE_BYTES: usize = 64;

/// A group and why it is that.
pub(super) struct Turns {
    pub(super) group: u32,
    pub(super) reason: String,
}

/// The group that a sample of packets is measured with, where the table is near. Bench `dpi`: 8 to 32 are alike.
pub(super) const SAMPLE: u32 = 16;
/// Turns that gain less than this over a near table are not worth having.
const SAMPLE_GAIN: f64 = 1.1;

impl Turns {
    /// Of a near table: turns still pay for a function whose packets wait for long chains of reads, as an automaton makes them
    /// byte by byte. `plain_ns` and `turns_ns` are what a packet of the sample takes without and with [`SAMPLE`] in turns.
    pub(super) fn of_sample(self, plain_ns: f64, turns_ns: f64) -> Self {
        if plain_ns < SAMPLE_GAIN * turns_ns {
            return self;
        }
        let near = self.reason.strip_prefix("off: ").unwrap_or(&self.reason);
        let reason =
            format!("{SAMPLE} in turns: {near}, but a packet takes {plain_ns:.0} ns alone, {turns_ns:.0} ns so");
        Self { group: SAMPLE, reason }
    }
}

/// Measures with a level that is supported here.
pub(super) fn choose(level: &Level, image: ImageRef<'_>) -> Turns {
    assert!(level.supported());
    let lines = (image.len() / LINE_BYTES) as u64;
    let size = format!("table of {}", size(image.len()));
    if lines < u64::from(GROUP_MAX) {
        return Turns { group: 1, reason: format!("off: {size}") };
    }
    let mut seed = 1;
    let mut read_ns = |group: u32| {
        let rounds = if group == 0 { ROUNDS / 4 } else { ROUNDS };
        let pass = |_| {
            seed += u64::from(ROUNDS) << 8;
            let started = Instant::now();
            // SAFETY: the level is supported, as asserted; the image is as long as `lines` says, and is read by bytes.
            black_box(unsafe { level.probe(image.as_ptr(), lines, seed, rounds, group) });
            started.elapsed().as_nanos() as f64 / f64::from(rounds * PROBE_READS)
        };
        (0..PASSES).map(pass).fold(f64::INFINITY, f64::min)
    };
    let alone_ns = read_ns(0);
    if alone_ns < NEAR_NS {
        return Turns { group: 1, reason: format!("off: {size} answers in {alone_ns:.1} ns") };
    }
    let groups = (2..=GROUP_MAX.ilog2()).map(|power| 1 << power);
    let measured: Vec<(u32, f64)> = groups.map(|group| (group, read_ns(group))).collect();
    let best_ns = measured.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
    // The list is not empty, and one of its entries is the best.
    let (group, ns) = measured.into_iter().find(|(_, ns)| *ns <= best_ns * NEAR_BEST).unwrap_or((GROUP_MAX, best_ns));
    let reason = format!("{group} in turns: {size} answers in {alone_ns:.1} ns, every {ns:.1} ns where {group} wait");
    Turns { group, reason }
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
    fn a_table_in_the_cache_needs_no_turns_and_says_so() {
        let Some(level) = godwit_kernels::levels().iter().find(|level| level.supported()) else { return };
        let memory = godwit_packet::Memory::new(100, "a table").expect("there is memory");
        let turns = choose(level, ImageRef::from(&memory));
        assert_eq!((turns.group, turns.reason.as_str()), (1, "off: table of 1 KiB"));
    }

    #[test]
    fn long_chains_of_reads_take_turns_over_a_near_table_too() {
        let near = || Turns { group: 1, reason: "off: table of 1 KiB".to_owned() };
        let turns = near().of_sample(500.0, 250.0);
        let reason = "16 in turns: table of 1 KiB, but a packet takes 500 ns alone, 250 ns so";
        assert_eq!((turns.group, turns.reason.as_str()), (SAMPLE, reason));
        let turns = near().of_sample(12.0, 11.5);
        assert_eq!((turns.group, turns.reason.as_str()), (1, "off: table of 1 KiB"));
    }

    #[test]
    fn any_table_gets_a_group_that_the_kernels_have() {
        let Some(level) = godwit_kernels::levels().iter().find(|level| level.supported()) else { return };
        let memory = godwit_packet::Memory::new(48 << 20, "a table").expect("there is memory");
        let turns = choose(level, ImageRef::from(&memory));
        assert!((1..=GROUP_MAX).contains(&turns.group), "{}", turns.reason);
        assert!(turns.reason.contains("table of 48 MiB answers in"), "{}", turns.reason);
    }
}
