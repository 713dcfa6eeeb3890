//! Random numbers of the simulation.

/// Sequence of pseudo-random numbers from one seed. The generator is SplitMix64 (Steele, Lea,
/// Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of random numbers that starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number between `min` and `max`.
    pub fn between(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a random element of `values`.
    ///
    /// # Panics
    /// Panics if `values` is empty.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[(self.between(0.0, values.len() as f64) as usize).min(values.len() - 1)]
    }

    /// Returns a random number with a log-normal distribution around 1.
    pub fn lognormal(&mut self, sigma: f64) -> f64 {
        // This is the method of Box and Muller, 1958.
        let (one, two) = (self.between(1e-12, 1.0), self.between(0.0, std::f64::consts::TAU));
        (sigma * (-2.0 * one.ln()).sqrt() * two.cos()).exp()
    }
}
