//! How long a bin will take, learned from how long bins took.

use godwit_abi::Bin;

/// Variants that a function can have: all values of `u8`.
const VARIANTS: usize = 256;
/// What is kept of older observations at each new one: the last 64 or so count.
const KEEP: f64 = 1.0 - 1.0 / 64.0;
/// Frame length that makes a full bin of weight 1, bytes.
const FRAME_BYTES: f64 = 1024.0;
/// How firmly fixed cost, cost per packet and cost per byte stay where they were as long as observations do
/// not tell them apart: the cost per byte gives way first, since time grows with length (PIPSEA, figure 7).
const STIFFNESS: [f64; 3] = [1e-3, 1e-4, 1e-5];

/// Estimates time as fixed + per packet + per byte, for each function and variant.
///
/// PIPSEA measures this once, before it starts (section 3.3); here it follows the device while traffic flows,
/// as a least-squares fit to exponentially fading observations. Until a variant has been observed, its bins
/// count by their bytes, at the nanoseconds per byte seen of all variants.
#[derive(Debug)]
pub struct CostModel {
    variants: Vec<Fit>,
    bin_packets: f64,
    /// Of everything observed, an exponential average. 1 before anything was.
    byte_ns: f64,
    observed: bool,
}

/// Fading sums of one variant: of products of features, and of features times time.
#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    /// xx, upper triangle row by row: 00 01 02 11 12 22.
    products: [f64; 6],
    times: [f64; 3],
    weights_ns: [f64; 3],
    observed: bool,
}

impl CostModel {
    /// Knows nothing yet of `instances` functions whose bins hold `bin_packets` at most.
    pub fn new(instances: usize, bin_packets: u32) -> Self {
        Self {
            variants: vec![Fit::default(); instances * VARIANTS],
            bin_packets: f64::from(bin_packets.max(1)),
            byte_ns: 1.0,
            observed: false,
        }
    }

    /// Nanoseconds that a device will need for `bin`, as far as is known; never negative. Only the order of
    /// estimates means anything until the bin's variant was observed.
    ///
    /// # Panics
    /// Where there is no such function.
    pub fn estimate_ns(&self, bin: &Bin) -> f64 {
        let fit = &self.variants[place(bin)];
        if !fit.observed {
            return bytes(bin) * self.byte_ns;
        }
        let features = self.features(bin);
        features.iter().zip(fit.weights_ns).map(|(feature, weight)| feature * weight).sum::<f64>().max(0.0)
    }

    /// Learns that `bin` took `elapsed_ns`.
    ///
    /// # Panics
    /// Where there is no such function.
    pub fn observe(&mut self, bin: &Bin, elapsed_ns: u64) {
        // Exact below 2^53 ns, which is a hundred days.
        let elapsed_ns = elapsed_ns as f64;
        if bytes(bin) > 0.0 {
            let byte_ns = elapsed_ns / bytes(bin);
            self.byte_ns = if self.observed { byte_ns + (self.byte_ns - byte_ns) * KEEP } else { byte_ns };
            self.observed = true;
        }
        let x = self.features(bin);
        let prior_ns = [0.0, 0.0, self.byte_ns * self.bin_packets * FRAME_BYTES];
        let fit = &mut self.variants[place(bin)];
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

    /// All about 1 for a full bin of frames of middle length, so that the stiffnesses can be compared.
    fn features(&self, bin: &Bin) -> [f64; 3] {
        [1.0, f64::from(bin.count) / self.bin_packets, bytes(bin) / (self.bin_packets * FRAME_BYTES)]
    }
}

impl Fit {
    /// The weights that fit best, held to `prior` by the stiffness: (XX + S) w = Xt + S prior, by Cholesky's
    /// factors. XX is a sum of squares and S is positive, so that no pivot comes out as 0.
    fn solve(&self, prior: [f64; 3]) -> [f64; 3] {
        let [a00, a01, a02, a11, a12, a22] = self.products;
        let [s0, s1, s2] = STIFFNESS;
        let b = [self.times[0] + s0 * prior[0], self.times[1] + s1 * prior[1], self.times[2] + s2 * prior[2]];
        // Rounding may eat a pivot's last bits; half of the stiffness is a floor that it cannot reach.
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

fn place(bin: &Bin) -> usize {
    usize::from(bin.instance) * VARIANTS + usize::from(bin.variant)
}

/// A work-group is done when its longest packet is (PIPSEA, section 3.4), so every packet counts as the longest.
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
    fn before_any_observation_bytes_count() {
        let model = CostModel::new(1, 64);
        assert!(model.estimate_ns(&bin(0, 3, 100)) < model.estimate_ns(&bin(1, 1, 301)));
    }

    #[test]
    fn a_linear_device_is_learned() {
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
    fn a_device_that_changes_is_followed() {
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
    fn observations_all_alike_leave_the_cost_with_the_bytes() {
        let mut model = CostModel::new(1, 64);
        for _ in 0..100 {
            model.observe(&bin(0, 64, 1000), 64_000);
        }
        let (short, long) = (model.estimate_ns(&bin(0, 64, 100)), model.estimate_ns(&bin(0, 64, 1000)));
        assert!((long - 64_000.0).abs() < 640.0 && short < 0.2 * long, "{short} {long}");
    }

    #[test]
    fn an_unseen_variant_is_compared_at_the_rate_of_the_seen_ones() {
        let mut model = CostModel::new(2, 64);
        model.observe(&bin(0, 64, 1000), 640);
        assert!(model.estimate_ns(&bin(1, 64, 500)) < model.estimate_ns(&bin(0, 64, 1000)));
    }

    #[test]
    fn degenerate_observations_do_no_harm() {
        let mut model = CostModel::new(1, 1);
        for _ in 0..10_000 {
            model.observe(&bin(0, 0, 0), 0);
            model.observe(&bin(0, u16::MAX, u16::MAX), u64::MAX);
        }
        let estimate = model.estimate_ns(&bin(0, 1, 64));
        assert!(estimate.is_finite() && estimate >= 0.0, "{estimate}");
    }
}
