//! Packet rate and frame lengths of each function, from which every prediction is computed.

/// Number of ranges of frame lengths for which workers count packets separately.
pub const LENGTH_CLASSES: usize = 4;
/// Length in bytes of the longest frame in each length class but the last.
const CLASS_BYTES_MAX: [u16; LENGTH_CLASSES - 1] = [128, 512, 1024];
/// A length class counts as in use if it contains at least this fraction of a function's packets.
const CLASS_SHARE_MIN: f64 = 0.02;
/// A function counts as idle if it receives at most this fraction of all packets.
const IDLE_SHARE: f64 = 1e-4;
/// Ratio between the upper ends of two neighbouring ranges of loads. The search caches one result
/// for each range.
pub const BUCKET_RATIO: f64 = 1.05;

/// Returns the length class of a frame of `bytes` bytes.
#[inline]
pub fn length_class_of(bytes: u16) -> usize {
    CLASS_BYTES_MAX.iter().filter(|&&max| bytes > max).count()
}

/// Load of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FunctionLoad {
    /// Offered packets per second.
    pub pps: f64,
    /// Mean frame length, in bytes.
    pub bytes: f64,
    /// Fraction of the function's packets in each length class. The fractions add up to 1, or to 0
    /// without packets.
    pub classes: [f64; LENGTH_CLASSES],
}

impl FunctionLoad {
    /// Creates the load of `pps` packets per second, all of which have `bytes` bytes.
    pub fn fixed(pps: f64, bytes: u16) -> Self {
        let mut classes = [0.0; LENGTH_CLASSES];
        classes[length_class_of(bytes)] = 1.0;
        Self { pps, bytes: f64::from(bytes), classes }
    }

    /// Computes the load from the counters of an interval of `seconds` seconds. `packets` contains
    /// the number of packets in each length class.
    pub fn counted(packets: [u64; LENGTH_CLASSES], bytes: u64, seconds: f64) -> Self {
        let total: u64 = packets.iter().sum();
        if total == 0 || seconds <= 0.0 {
            return Self::default();
        }
        let count = total as f64;
        Self { pps: count / seconds, bytes: bytes as f64 / count, classes: packets.map(|each| each as f64 / count) }
    }

    /// Returns the number of length classes in use. Packets of different classes need separate
    /// batches.
    pub(super) fn labels(&self) -> f64 {
        self.classes.iter().filter(|&&share| share >= CLASS_SHARE_MIN).count().max(1) as f64
    }
}

/// Load of all functions, in the same order as in the machine model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Load of each function.
    pub functions: Vec<FunctionLoad>,
}

/// Key of a range of similar loads. Rates and lengths of two loads with equal keys differ by less
/// than [`BUCKET_RATIO`].
pub(super) type LoadKey = Vec<i16>;

impl Load {
    /// Returns the total number of packets per second.
    pub fn pps(&self) -> f64 {
        self.functions.iter().map(|function| function.pps).sum()
    }

    /// Returns the load with all rates multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let scale = |function: &FunctionLoad| FunctionLoad { pps: function.pps * factor, ..*function };
        Self { functions: self.functions.iter().map(scale).collect() }
    }

    /// Returns whether the function `index` receives too few packets for its placement to matter.
    pub(super) fn is_idle(&self, index: usize, total_pps: f64) -> bool {
        self.functions[index].pps <= IDLE_SHARE * total_pps
    }

    /// Returns the relative difference between this load and `other`. The difference is the sum of
    /// all changes in packet rate, divided by the larger total rate.
    pub fn distance(&self, other: &Self) -> f64 {
        let pairs = self.functions.iter().zip(&other.functions);
        let change: f64 = pairs.map(|(one, two)| (one.pps - two.pps).abs()).sum();
        let total = self.pps().max(other.pps());
        if total > 0.0 { change / total } else { 0.0 }
    }

    /// Writes the key for the range of similar loads to `key`.
    pub(super) fn write_key(&self, key: &mut LoadKey) {
        key.clear();
        let total = self.pps();
        for (index, function) in self.functions.iter().enumerate() {
            if self.is_idle(index, total) {
                key.extend([i16::MIN, 0, 0]);
            } else {
                let classes = function.classes.iter().rev();
                let bits = classes.fold(0, |bits, &share| bits << 1 | i16::from(share >= CLASS_SHARE_MIN));
                key.extend([bucket(function.pps), bucket(function.bytes), bits]);
            }
        }
    }

    /// Returns the largest load in the same bucket, which is a range of similar loads. A placement
    /// that can process this load can process every load in the bucket.
    pub(super) fn bucket_top(&self) -> Self {
        let total = self.pps();
        let top = |(index, function): (usize, &FunctionLoad)| {
            if self.is_idle(index, total) {
                return FunctionLoad { pps: 0.0, ..*function };
            }
            let [pps, bytes] = [function.pps, function.bytes].map(|value| BUCKET_RATIO.powi(bucket(value).into()));
            FunctionLoad { pps, bytes, classes: function.classes }
        };
        Self { functions: self.functions.iter().enumerate().map(top).collect() }
    }
}

fn bucket(value: f64) -> i16 {
    (value.max(1e-6).ln() / BUCKET_RATIO.ln() - 1e-9).ceil() as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_all_lengths() {
        let classes = [0, 128, 129, 512, 513, 1024, 1025, u16::MAX].map(length_class_of);
        assert_eq!(classes, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn counters_become_rates() {
        let load = FunctionLoad::counted([30, 0, 0, 10], 30 * 60 + 10 * 1500, 0.01);
        assert_eq!((load.pps, load.bytes, load.classes), (4000.0, 420.0, [0.75, 0.0, 0.0, 0.25]));
        assert_eq!(load.labels(), 2.0);
        assert_eq!(FunctionLoad::counted([0; 4], 0, 0.01), FunctionLoad::default());
    }

    #[test]
    fn bucket_top_is_at_most_five_percent_above_and_shares_the_key() {
        let (mut key, mut top_key) = (LoadKey::new(), LoadKey::new());
        for step in 0..2000_i32 {
            let pps = 1.01_f64.powi(step) * 3.0;
            let load = Load { functions: vec![FunctionLoad::fixed(pps, 700)] };
            let top = load.bucket_top();
            let ratio = top.functions[0].pps / pps;
            assert!((0.999_999..BUCKET_RATIO * 1.000_001).contains(&ratio), "{pps}: {ratio}");
            load.write_key(&mut key);
            top.write_key(&mut top_key);
            assert_eq!(key, top_key, "{pps}");
        }
    }

    #[test]
    fn distance_counts_every_change() {
        let load = |rates: [f64; 2]| Load { functions: rates.map(|pps| FunctionLoad::fixed(pps, 60)).to_vec() };
        assert_eq!(load([60.0, 40.0]).distance(&load([50.0, 50.0])), 0.2);
        assert_eq!(load([0.0, 0.0]).distance(&load([0.0, 0.0])), 0.0);
    }
}
