//! Costs of processors, by which the policy chooses.

use crate::counters::LANES;
use crate::scheme::Class;

/// Time that the CPU needs for the jobs of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuCost {
    /// Time of one job with AWS-LC, in nanoseconds.
    pub single_ns: u64,
    /// Time to sign a batch in SIMD lanes, in nanoseconds, for any number of jobs. The value is
    /// `None` if the SIMD lanes are not used.
    pub lanes_ns: Option<u64>,
}

impl CpuCost {
    /// Returns whether SIMD lanes sign `jobs` jobs faster than AWS-LC, which signs them one by one.
    pub(super) fn prefers_lanes(&self, jobs: usize) -> bool {
        self.lanes_ns.is_some_and(|lanes_ns| jobs as u64 * self.single_ns > lanes_ns)
    }

    /// Returns the time for `jobs` jobs, in nanoseconds.
    pub(super) fn time_ns(&self, jobs: usize) -> u64 {
        let one_by_one = |jobs: usize| jobs as u64 * self.single_ns;
        match self.lanes_ns {
            Some(lanes_ns) if self.prefers_lanes(LANES) => {
                let rest = jobs % LANES;
                (jobs / LANES) as u64 * lanes_ns + one_by_one(rest).min(lanes_ns)
            }
            _ => one_by_one(jobs),
        }
    }
}

/// Time that a device needs for the jobs of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCost {
    /// Time from submission to completion of one job on an idle device, in nanoseconds.
    pub latency_ns: u64,
    /// Time for which each job in a batch occupies the device, in nanoseconds.
    pub job_ns: u64,
}

/// CPU costs of all classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs(pub [CpuCost; Class::ALL.len()]);

impl Default for Costs {
    /// Returns the signing times that `bench sign` measured on one core of an Intel Emerald Rapids
    /// CPU with crypto_mb 11.15.
    fn default() -> Self {
        let cost = |single_ns, lanes_ns| CpuCost { single_ns, lanes_ns: Some(lanes_ns) };
        Self([
            cost(361_000, 740_000),
            cost(1_287_000, 3_600_000),
            cost(2_188_000, 6_800_000),
            cost(26_000, 53_000),
            cost(190_000, 300_000),
            cost(16_400, 30_000),
        ])
    }
}

impl Costs {
    /// Returns the costs of `class`.
    pub fn of(&self, class: Class) -> CpuCost {
        self.0[class.index()]
    }

    /// Returns the same costs without SIMD lanes.
    #[must_use]
    pub fn without_lanes(mut self) -> Self {
        self.0.iter_mut().for_each(|cost| cost.lanes_ns = None);
        self
    }
}
