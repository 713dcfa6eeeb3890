//! Computes the latency of a packet function on a device from the device load.

use super::super::profile::{CurvePoint, Fit};

/// Device loads for which a latency is stored, as fractions of the capacity. `godwit profile`
/// measures at these loads.
pub(super) const USES: [f64; 4] = [0.05, 0.25, 0.6, 0.95];
/// Relative growth of the latency per unit of load, above the highest load in [`USES`].
const OVERLOAD_GROWTH: f64 = 40.0;
/// 99th percentile of an exponentially distributed waiting time, as a multiple of its mean: ln 100.
const WAIT_P99: f64 = 4.6;

/// Median and 99th percentile of the latency in nanoseconds, for each device load in [`USES`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Knots {
    pub(super) p50_ns: [f64; USES.len()],
    pub(super) p99_ns: [f64; USES.len()],
}

/// Measured latencies for one submission size and one frame length.
#[derive(Clone, Debug)]
pub(in super::super) struct LatencyCurve {
    chunk: f64,
    bytes: f64,
    knots: Knots,
}

impl LatencyCurve {
    /// Groups measured points by submission size and frame length. Leaves out groups of one point,
    /// because they do not show how the latency grows with the load.
    pub(super) fn group(points: &[CurvePoint]) -> Vec<Self> {
        let mut groups: Vec<(u32, u16, Vec<[f64; 3]>)> = Vec::new();
        for point in points {
            let Some(p99_us) = point.p99_us else { continue };
            // If the median was not measured, the 99th percentile replaces it as an upper bound.
            let p50_us = point.p50_us.unwrap_or(p99_us);
            let row = [point.load, p50_us * 1e3, p99_us * 1e3];
            match groups.iter_mut().find(|(chunk, bytes, _)| (*chunk, *bytes) == (point.chunk, point.bytes)) {
                Some((_, _, rows)) => rows.push(row),
                None => groups.push((point.chunk, point.bytes, vec![row])),
            }
        }
        let curve = |(chunk, bytes, mut rows): (u32, u16, Vec<[f64; 3]>)| {
            rows.sort_by(|one, two| one[0].total_cmp(&two[0]));
            (rows.len() > 1).then(|| Self {
                chunk: chunk.into(),
                bytes: bytes.into(),
                knots: Knots {
                    p50_ns: USES.map(|load| interpolate(rows.iter().map(|row| (row[0], row[1])), load)),
                    p99_ns: USES.map(|load| interpolate(rows.iter().map(|row| (row[0], row[2])), load)),
                },
            })
        };
        groups.into_iter().filter_map(curve).collect()
    }
}

/// Properties of a function on a device from which its latency is estimated.
pub(super) struct Way<'a> {
    pub(super) fit: &'a Fit,
    /// Frame length, in bytes.
    pub(super) bytes: f64,
    /// Largest number of packets in a submission.
    pub(super) chunk: f64,
    pub(super) deadline_ns: f64,
    /// Number of submissions in flight per worker.
    pub(super) chunks: f64,
    /// Time per packet on the resource that limits the packet rate, in nanoseconds.
    pub(super) packet_ns: f64,
    /// Number of workers that submit packets to the device.
    pub(super) lanes: f64,
}

impl Knots {
    /// Returns the latencies for a submission size and a frame length. Uses the measured curves
    /// with the nearest submission size. Returns `None` if `curves` is empty.
    pub(super) fn measured(curves: &[LatencyCurve], chunk: f64, bytes: f64) -> Option<Self> {
        let distance = |curve: &LatencyCurve| (curve.chunk / chunk).ln().abs();
        let nearest = curves.iter().min_by(|one, two| distance(one).total_cmp(&distance(two)))?.chunk;
        let same = || curves.iter().filter(|curve| curve.chunk == nearest);
        let below = same().filter(|curve| curve.bytes <= bytes).max_by(|one, two| one.bytes.total_cmp(&two.bytes));
        let above = same().filter(|curve| curve.bytes > bytes).min_by(|one, two| one.bytes.total_cmp(&two.bytes));
        let (Some(below), Some(above)) = (below, above) else {
            return below.or(above).map(|curve| curve.knots);
        };
        let weight = (bytes - below.bytes) / (above.bytes - below.bytes);
        let mix = |one: [f64; USES.len()], two: [f64; USES.len()]| {
            std::array::from_fn(|index| one[index] + weight * (two[index] - one[index]))
        };
        Some(Self {
            p50_ns: mix(below.knots.p50_ns, above.knots.p50_ns),
            p99_ns: mix(below.knots.p99_ns, above.knots.p99_ns),
        })
    }

    /// Estimates the latencies of a device without measurements. A latency consists of the latency
    /// of an idle device, the time to fill a submission, and the wait for earlier submissions.
    ///
    /// A packet waits for a full submission only if the device is busy. For the 99th percentile,
    /// the device counts as busy with twice its load. Earlier submissions form a queue with
    /// constant service time (M/D/1).
    pub(super) fn estimated(way: &Way<'_>) -> Self {
        let Way { fit, bytes, chunk, deadline_ns, chunks, packet_ns, lanes } = way;
        let trip_ns = fit.trip_ns + fit.trip_byte_ns * bytes;
        let at = |load: f64| {
            let fill_ns = (chunk * packet_ns * lanes / load).min(*deadline_ns);
            let filled = (fill_ns * load / (packet_ns * lanes)).clamp(1.0, *chunk);
            let wait_ns = load * filled * packet_ns / (2.0 * chunks * (1.0 - load));
            (fill_ns, wait_ns)
        };
        let p50 = |load: f64| {
            let (fill_ns, wait_ns) = at(load);
            trip_ns + load * fill_ns / 2.0 + wait_ns
        };
        let p99 = |load: f64| {
            let (fill_ns, wait_ns) = at(load);
            fit.tail.max(1.0) * trip_ns + (2.0 * load).min(1.0) * fill_ns + WAIT_P99 * wait_ns
        };
        Self { p50_ns: USES.map(p50), p99_ns: USES.map(p99) }
    }

    /// Multiplies all latencies by `factor`.
    pub(super) fn scale(&mut self, factor: f64) {
        self.p50_ns.iter_mut().chain(&mut self.p99_ns).for_each(|value| *value *= factor);
    }

    /// Returns the median and the 99th percentile of the latency at a device load, in nanoseconds.
    #[inline]
    pub(super) fn at(&self, load: f64) -> (f64, f64) {
        let last = USES.len() - 1;
        if load >= USES[last] {
            let growth = 1.0 + OVERLOAD_GROWTH * (load - USES[last]);
            return (self.p50_ns[last] * growth, self.p99_ns[last] * growth);
        }
        let Some(above) = USES.iter().position(|knot| load < *knot).filter(|index| *index > 0) else {
            return (self.p50_ns[0], self.p99_ns[0]);
        };
        let weight = (load - USES[above - 1]) / (USES[above] - USES[above - 1]);
        let mix = |values: &[f64; USES.len()]| values[above - 1] + weight * (values[above] - values[above - 1]);
        (mix(&self.p50_ns), mix(&self.p99_ns))
    }
}

/// Interpolates linearly between latencies that are sorted by load. Below the lowest load, the
/// latency is constant. Above the highest load, it grows in proportion to `1 / (1 - load)`.
fn interpolate(points: impl Iterator<Item = (f64, f64)>, x: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (next_x, next_y) in points {
        if next_x >= x {
            return before.map_or(next_y, |(last_x, last_y)| {
                let width = next_x - last_x;
                if width > 0.0 { last_y + (x - last_x) / width * (next_y - last_y) } else { next_y }
            });
        }
        before = Some((next_x, next_y));
    }
    before.map_or(0.0, |(last_x, y)| y * ((1.0 - last_x) / (1.0 - x)).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(chunk: u32, bytes: u16, load: f64, p99_us: f64) -> CurvePoint {
        CurvePoint {
            chunk,
            bytes,
            load,
            filled: None,
            mpps: 1.0,
            host_ns: 0.0,
            device_ns: 1.0,
            p50_us: Some(p99_us / 2.0),
            p99_us: Some(p99_us),
            watts: None,
            runs: 1,
            cv: 0.0,
        }
    }

    #[test]
    fn measured_latencies_are_reproduced_and_interpolated() {
        let loads = [(0.05, 100.0), (0.25, 200.0), (0.6, 550.0), (0.95, 900.0)];
        let mut points = Vec::new();
        for (load, p99) in loads {
            points.push(point(1024, 60, load, p99));
            points.push(point(1024, 1060, load, 3.0 * p99));
            points.push(point(64, 60, load, p99 / 10.0));
        }
        let curves = LatencyCurve::group(&points);
        assert_eq!(curves.len(), 3);
        let knots = Knots::measured(&curves, 2000.0, 60.0).expect("curves");
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
        loads.iter().for_each(|(load, p99)| near(knots.at(*load).1, p99 * 1e3));
        near(knots.at(0.01).1, 100e3);
        near(knots.at(0.425).1, 375e3);
        assert!(knots.at(1.05).1 > 4.0 * 900e3);
        near(Knots::measured(&curves, 900.0, 560.0).expect("curves").at(0.25).1, 400e3);
        near(Knots::measured(&curves, 900.0, 9000.0).expect("curves").at(0.25).1, 600e3);
        near(Knots::measured(&curves, 100.0, 60.0).expect("curves").at(0.25).0, 10e3);
    }

    #[test]
    fn estimate_grows_with_the_load() {
        let fit = Fit { trip_ns: 100e3, tail: 1.4, ..Fit::default() };
        let way =
            Way { fit: &fit, bytes: 60.0, chunk: 16_384.0, deadline_ns: 1e6, chunks: 1.0, packet_ns: 3.7, lanes: 16.0 };
        let knots = Knots::estimated(&way);
        let found: Vec<f64> = USES.iter().map(|load| knots.at(*load).1 / 1e3).collect();
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
        for (found, measured) in found.iter().zip([143.0, 639.0, 1245.0]) {
            assert!((found / measured - 1.0).abs() < 0.8, "{found} {measured}");
        }
    }
}
