//! Estimates the processing time of a batch from the times of earlier batches.

use godwit_abi::Bin;

use crate::config::VARIANTS;

/// Factor by which each new observation reduces the weight of older ones. It corresponds to an
/// average over about 64 observations.
const KEEP: f64 = 1.0 - 1.0 / 64.0;
/// Frame length in bytes that defines the unit of byte counts. A full batch of such frames has the
/// byte count 1.
const FRAME_BYTES: f64 = 1024.0;
/// Regularisation weights of the fixed cost, the cost per packet and the cost per byte. A smaller
/// weight lets a cost change faster. The cost per byte changes fastest, because the processing time
/// usually grows with the frame length (PIPSEA, figure 7).
const STIFFNESS: [f64; 3] = [1e-3, 1e-4, 1e-5];

/// Estimates the processing time of a batch. An estimate is the sum of a fixed cost, a cost per
/// packet and a cost per byte.
///
/// PIPSEA measures these costs once, before the start (section 3.3). This model adapts to the
/// device while traffic runs, with a least-squares fit to exponentially weighted observations.
/// Before the first observation of a kind of processing, the estimate is proportional to the bytes
/// of the batch. The factor is then the average time per byte of all kinds.
///
/// ```
/// use godwit_sched::{Bin, CostModel};
///
/// let mut costs = CostModel::new(1, 64);
/// let long = Bin { count: 64, length_bytes: 1500, ..Bin::default() };
/// costs.observe(&long, 50_000);
///
/// let short = Bin { length_bytes: 60, ..long };
/// assert!(costs.estimate_ns(&short) < costs.estimate_ns(&long));
/// ```
#[derive(Debug)]
pub struct CostModel {
    variants: Vec<Fit>,
    bin_packets: f64,
    /// Exponential average of the time per byte over all kinds of processing, in nanoseconds. The
    /// value is 1 before the first observation.
    byte_ns: f64,
    observed: bool,
}

/// Sums for the least-squares fit of one kind of processing.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    /// Upper triangle of the symmetric matrix of feature products, row by row.
    products: [f64; 6],
    times: [f64; 3],
    weights_ns: [f64; 3],
    observed: bool,
}

impl CostModel {
    /// Creates a cost model without observations. It covers `functions` functions, whose batches
    /// have at most `bin_packets` packets.
    pub fn new(functions: usize, bin_packets: u32) -> Self {
        Self {
            variants: vec![Fit::default(); functions * VARIANTS],
            bin_packets: f64::from(bin_packets.max(1)),
            byte_ns: 1.0,
            observed: false,
        }
    }

    /// Estimates the time that a device needs for `bin`, in nanoseconds. The result is never
    /// negative.
    ///
    /// Before the first observation of this kind of processing, the result serves only to sort
    /// batches.
    ///
    /// # Panics
    /// Panics if the function of the batch does not exist.
    pub fn estimate_ns(&self, bin: &Bin) -> f64 {
        let fit = &self.variants[fit_index(bin)];
        if !fit.observed {
            return bytes(bin) * self.byte_ns;
        }
        let features = self.features(bin);
        features.iter().zip(fit.weights_ns).map(|(feature, weight)| feature * weight).sum::<f64>().max(0.0)
    }

    /// Records that a device needed `elapsed_ns` nanoseconds for the batch `bin`.
    ///
    /// # Panics
    /// Panics if the function of the batch does not exist.
    pub fn observe(&mut self, bin: &Bin, elapsed_ns: u64) {
        let elapsed_ns = elapsed_ns as f64;
        if bytes(bin) > 0.0 {
            let byte_ns = elapsed_ns / bytes(bin);
            self.byte_ns = if self.observed { byte_ns + (self.byte_ns - byte_ns) * KEEP } else { byte_ns };
            self.observed = true;
        }
        let x = self.features(bin);
        let prior_ns = [0.0, 0.0, self.byte_ns * self.bin_packets * FRAME_BYTES];
        let fit = &mut self.variants[fit_index(bin)];
        let products = [x[0] * x[0], x[0] * x[1], x[0] * x[2], x[1] * x[1], x[1] * x[2], x[2] * x[2]];
        for (sum, product) in fit.products.iter_mut().zip(products) {
            *sum = *sum * KEEP + product;
        }
        for (sum, feature) in fit.times.iter_mut().zip(x) {
            *sum = *sum * KEEP + feature * elapsed_ns;
        }
        fit.weights_ns = fit.solve(prior_ns);
        fit.observed = true;
    }

    /// Returns the three properties from which the time of a batch is estimated: the constant 1,
    /// the packet count and the byte count. Each is scaled to about 1 for a full batch of average
    /// frames.
    fn features(&self, bin: &Bin) -> [f64; 3] {
        [1.0, f64::from(bin.count) / self.bin_packets, bytes(bin) / (self.bin_packets * FRAME_BYTES)]
    }
}

impl Fit {
    /// Returns the three costs that fit the observations best, regularised towards `prior`.
    ///
    /// The vector w of costs solves (XX + S) w = Xt + S prior, by Cholesky decomposition. XX is the
    /// matrix `products`, Xt is the vector `times`, and S is the diagonal matrix of `STIFFNESS`. XX
    /// is a sum of squares and S is positive, so no pivot is 0.
    fn solve(&self, prior: [f64; 3]) -> [f64; 3] {
        let [a00, a01, a02, a11, a12, a22] = self.products;
        let [s0, s1, s2] = STIFFNESS;
        let b = [self.times[0] + s0 * prior[0], self.times[1] + s1 * prior[1], self.times[2] + s2 * prior[2]];
        // Rounding errors can make a pivot too small. Half of the matching element of `STIFFNESS`
        // is therefore the minimum.
        let l00 = (a00 + s0).sqrt();
        let l10 = a01 / l00;
        let l20 = a02 / l00;
        let l11 = (a11 + s1 - l10 * l10).max(s1 / 2.0).sqrt();
        let l21 = (a12 - l20 * l10) / l11;
        let l22 = (a22 + s2 - l20 * l20 - l21 * l21).max(s2 / 2.0).sqrt();

        let y0 = b[0] / l00;
        let y1 = (b[1] - l10 * y0) / l11;
        let y2 = (b[2] - l20 * y0 - l21 * y1) / l22;

        let w2 = y2 / l22;
        let w1 = (y1 - l21 * w2) / l11;
        let w0 = (y0 - l10 * w1 - l20 * w2) / l00;
        [w0, w1, w2]
    }
}

/// Returns the index in [`CostModel::variants`] for a batch.
fn fit_index(bin: &Bin) -> usize {
    usize::from(bin.instance) * VARIANTS + usize::from(bin.variant)
}

/// Returns the number of bytes that determines the time of a batch. All packets count with the
/// length of the longest frame, because a work-group ends with its longest packet (PIPSEA, section
/// 3.4).
fn bytes(bin: &Bin) -> f64 {
    f64::from(bin.length_bytes) * f64::from(bin.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bin(variant: u8, count: u16, length_bytes: u16) -> Bin {
        Bin { count, variant, length_bytes, ..Bin::default() }
    }

    #[test]
    fn estimates_by_bytes_before_any_observation() {
        let model = CostModel::new(1, 64);
        assert!(model.estimate_ns(&bin(0, 3, 100)) < model.estimate_ns(&bin(1, 1, 301)));
    }

    #[test]
    fn learns_a_linear_device() {
        let mut model = CostModel::new(1, 64);
        let truth_ns =
            |bin: &Bin| 5_000 + 30 * u64::from(bin.count) + 2 * u64::from(bin.count) * u64::from(bin.length_bytes);
        for round in 0..200_u16 {
            let bin = bin(3, 1 + round * 7 % 64, 60 + round * 131 % 1440);
            model.observe(&bin, truth_ns(&bin));
        }
        for (count, length) in [(1, 60), (64, 60), (1, 1500), (64, 1500), (20, 777)] {
            let bin = bin(3, count, length);
            let (estimate, truth) = (model.estimate_ns(&bin), truth_ns(&bin) as f64);
            assert!((estimate - truth).abs() < 0.02 * truth, "{count} x {length}: {estimate} for {truth}");
        }
    }

    #[test]
    fn follows_a_device_whose_speed_changes() {
        let mut model = CostModel::new(1, 64);
        let bin = bin(0, 64, 512);
        for _ in 0..1000 {
            model.observe(&bin, 10_000);
        }
        for _ in 0..400 {
            model.observe(&bin, 90_000);
        }
        assert!((model.estimate_ns(&bin) - 90_000.0).abs() < 1_000.0);
    }

    #[test]
    fn attributes_time_to_bytes_if_all_observations_are_equal() {
        let mut model = CostModel::new(1, 64);
        for _ in 0..100 {
            model.observe(&bin(0, 64, 1000), 64_000);
        }
        let (short, long) = (model.estimate_ns(&bin(0, 64, 100)), model.estimate_ns(&bin(0, 64, 1000)));
        assert!((long - 64_000.0).abs() < 640.0 && short < 0.2 * long, "{short} {long}");
    }

    #[test]
    fn estimates_unseen_variants_by_the_average_time_per_byte() {
        let mut model = CostModel::new(2, 64);
        model.observe(&bin(0, 64, 1000), 640);
        assert!(model.estimate_ns(&bin(1, 64, 500)) < model.estimate_ns(&bin(0, 64, 1000)));
    }

    #[test]
    fn stays_finite_after_degenerate_observations() {
        let mut model = CostModel::new(1, 1);
        for _ in 0..10_000 {
            model.observe(&bin(0, 0, 0), 0);
            model.observe(&bin(0, u16::MAX, u16::MAX), u64::MAX);
        }
        let estimate = model.estimate_ns(&bin(0, 1, 64));
        assert!(estimate.is_finite() && estimate >= 0.0, "{estimate}");
    }
}
