//! Single-rate token buckets with three colors (RFC 2697), in integer arithmetic.

/// Number of parts of a token. A rate in tokens per second thus adds a whole number of parts each
/// nanosecond.
const PARTS: u128 = 1_000_000_000;

/// Color of a packet, which the kernel reads as its parameter (`kernels/tables/meter.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    /// The packet is within the rate and the burst.
    Green = 0,
    /// The packet exceeds the burst, but not the excess burst.
    Yellow = 1,
    /// The packet exceeds both.
    Red = 2,
    /// The table has no entry for the packet.
    None = 3,
}

/// Configured rate of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Number of tokens added per second. A token is a bit or a packet.
    pub(crate) per_second: u64,
    /// Maximum number of tokens for green packets.
    pub(crate) burst: u64,
    /// Maximum number of tokens for yellow packets.
    pub(crate) excess: u64,
}

/// Tokens of one entry, in parts of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    committed: u128,
    excess: u128,
    filled_ns: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub(crate) fn full(rate: &Rate, now_ns: u64) -> Self {
        Self { committed: parts(rate.burst), excess: parts(rate.excess), filled_ns: now_ns }
    }

    /// Returns the color of a packet that costs `cost` tokens, and takes the tokens unless the
    /// packet is red (RFC 2697, section 3, color-blind mode). A time before the last one adds no
    /// tokens.
    pub(crate) fn take(&mut self, rate: &Rate, cost: u64, now_ns: u64) -> Color {
        let added = u128::from(now_ns.saturating_sub(self.filled_ns)) * u128::from(rate.per_second);
        self.filled_ns = self.filled_ns.max(now_ns);
        let filled = self.committed.saturating_add(added);
        self.committed = filled.min(parts(rate.burst));
        self.excess = self.excess.saturating_add(filled - self.committed).min(parts(rate.excess));
        let cost = parts(cost);
        if cost <= self.committed {
            self.committed -= cost;
            Color::Green
        } else if cost <= self.excess {
            self.excess -= cost;
            Color::Yellow
        } else {
            Color::Red
        }
    }
}

fn parts(tokens: u64) -> u128 {
    u128::from(tokens) * PARTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Adds one token at a time, as RFC 2697 section 3 describes it.
    fn slow(rate: &Rate, packets: &[(u64, u64)]) -> Vec<Color> {
        let (mut committed, mut excess, mut now) = (rate.burst, rate.excess, packets[0].0);
        let color = |(time, cost): &(u64, u64)| {
            let interval = SECOND / rate.per_second;
            while now + interval <= *time {
                now += interval;
                if committed < rate.burst {
                    committed += 1;
                } else if excess < rate.excess {
                    excess += 1;
                }
            }
            if committed >= *cost {
                committed -= cost;
                Color::Green
            } else if excess >= *cost {
                excess -= cost;
                Color::Yellow
            } else {
                Color::Red
            }
        };
        packets.iter().map(color).collect()
    }

    #[test]
    fn colors_are_those_of_the_standard() {
        let mut state = 1u64;
        let mut below = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % end
        };
        let mut seen = [0; 3];
        for _ in 0..200 {
            // The interval between tokens is a whole number of nanoseconds here, and packets arrive
            // at multiples of it.
            let rate = Rate { per_second: [1, 10, 1000][below(3) as usize], burst: below(50), excess: below(50) };
            let interval = SECOND / rate.per_second;
            let mut time = 7 * SECOND;
            let packets: Vec<(u64, u64)> = (0..100)
                .map(|_| {
                    time += interval * below(20);
                    (time, 1 + below(30))
                })
                .collect();
            let mut bucket = Bucket::full(&rate, packets[0].0);
            let fast: Vec<Color> = packets.iter().map(|&(time, cost)| bucket.take(&rate, cost, time)).collect();
            assert_eq!(fast, slow(&rate, &packets), "{rate:?}");
            fast.iter().for_each(|color| seen[*color as usize] += 1);
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    }

    #[test]
    fn parts_of_tokens_are_not_lost() {
        let rate = Rate { per_second: 3, burst: 2, excess: 0 };
        let mut bucket = Bucket::full(&rate, 0);
        // For three tokens a second, the interval is not a whole number of nanoseconds.
        let green = (0..=3_000_000).filter(|step| bucket.take(&rate, 1, step * 1_000_000) == Color::Green).count();
        assert!((9000..=9002).contains(&green), "{green}");
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let rate = Rate { per_second: u64::MAX, burst: u64::MAX, excess: u64::MAX };
        let mut bucket = Bucket::full(&rate, 0);
        assert_eq!(bucket.take(&rate, u64::MAX, u64::MAX), Color::Green);
        assert_eq!(bucket.take(&rate, u64::MAX, 0), Color::Yellow);
        assert_eq!(bucket.take(&rate, 1, 0), Color::Red);
    }
}
