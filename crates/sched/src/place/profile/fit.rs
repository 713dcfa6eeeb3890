//! Fits linear costs to measured points.

use super::{CurvePoint, Fit};

/// Assumed ratio of 99th percentile to median latency, if no latency was measured.
const TAIL: f64 = 2.0;
/// Load up to which a device counts as idle, as a fraction of its capacity.
const IDLE_LOAD: f64 = 0.1;
/// Minimum fraction of the maximum rate at which a measured point counts as full load.
const FULL_LOAD: f64 = 0.99;

/// Fits linear costs to the points that were measured at full load. Returns `None` if there are no
/// such points.
///
/// The device time per packet is `chunk_ns / chunk + packet_ns + byte_ns * bytes`. The core time
/// per packet is `submit_ns / chunk + host_ns`. Only `packet_ns` may be negative, because the cost
/// of some functions grows faster than the frame length. The fit minimises relative errors, because
/// short frames matter as much as long frames.
pub(super) fn fit(points: &[CurvePoint], device: &str) -> Option<Fit> {
    let full = || points.iter().filter(|point| point.load >= FULL_LOAD);
    let is_cpu = device == "cpu";
    let chunk = |point: &CurvePoint| 1.0 / point.filled.unwrap_or(point.chunk.into());
    let device_rows = full().map(|point| {
        // On the CPU, a submission costs nothing beyond its batches.
        let features = [if is_cpu { 0.0 } else { chunk(point) }, 1.0, f64::from(point.bytes)];
        (features, point.device_ns)
    });
    let [chunk_ns, packet_ns, byte_ns] = least_squares(device_rows, PACKET)?;
    let host_rows = full().filter(|point| point.host_ns > 0.0);
    let host_rows = host_rows.map(|point| ([if is_cpu { 0.0 } else { chunk(point) }, 1.0, 0.0], point.host_ns));
    let [submit_ns, host_ns, _] = least_squares(host_rows, 0).unwrap_or_default();

    let floor_ns = full().map(|point| point.device_ns).filter(|ns| *ns > 0.0).fold(f64::INFINITY, f64::min);
    let linear = |point: &CurvePoint| chunk_ns * chunk(point) + packet_ns + byte_ns * f64::from(point.bytes);
    let predict = |point: &CurvePoint| linear(point).max(floor_ns);
    let timed = full().filter(|point| point.device_ns > 0.0);
    let mut errors: Vec<f64> = timed.map(|point| (predict(point) / point.device_ns - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (error_median, error_max) = (errors[errors.len() / 2], errors[errors.len() - 1]);

    let idle = || points.iter().filter(|point| point.load <= IDLE_LOAD);
    let mut tails: Vec<f64> = idle().filter_map(|point| Some(point.p99_us? / point.p50_us?)).collect();
    tails.sort_by(f64::total_cmp);
    let tail = tails.get(tails.len() / 2).copied().unwrap_or(TAIL);
    let median = |point: &CurvePoint| point.p50_us.or_else(|| Some(point.p99_us? / tail));
    let trips = idle().filter_map(|point| Some(([0.0, 1.0, f64::from(point.bytes)], median(point)? * 1e3)));
    let [_, trip_ns, trip_byte_ns] = least_squares(trips, 0).unwrap_or_default();
    Some(Fit {
        chunk_ns,
        packet_ns,
        byte_ns,
        floor_ns,
        bin_ns: 0.0,
        host_ns,
        submit_ns,
        trip_ns,
        trip_byte_ns,
        tail,
        error_median,
        error_max,
    })
}

/// Bit of `packet_ns` in a bit mask of weights.
const PACKET: u8 = 0b010;

/// Returns the weights that minimise the relative errors of `features * weights`. Returns `None` if
/// there are no rows. Only weights in the bit mask `signed` may be negative. The function tries
/// each subset of the weights, and sets the other weights to 0.
fn least_squares(rows: impl Iterator<Item = ([f64; 3], f64)>, signed: u8) -> Option<[f64; 3]> {
    let mut rows: Vec<[f64; 3]> = rows.filter(|(_, y)| *y > 0.0).map(|(x, y)| x.map(|value| value / y)).collect();
    // The columns are scaled to equal size, because the test for linear dependence must not depend
    // on units.
    let sizes: [f64; 3] = std::array::from_fn(|i| rows.iter().map(|x| x[i] * x[i]).sum::<f64>().sqrt());
    rows.iter_mut().for_each(|x| x.iter_mut().zip(sizes).for_each(|(value, size)| *value /= size.max(1e-300)));
    let error = |weights: &[f64; 3]| -> f64 {
        let row = |x: &[f64; 3]| (x[0] * weights[0] + x[1] * weights[1] + x[2] * weights[2] - 1.0).powi(2);
        rows.iter().map(row).sum()
    };
    let candidates = (1..8_u8).filter_map(|free| solve(&rows, free));
    let is_valid = |weights: &[f64; 3]| (0..3).all(|i| weights[i] >= 0.0 || signed >> i & 1 == 1);
    let valid = candidates.filter(is_valid);
    let best = valid.min_by(|one, two| error(one).total_cmp(&error(two)))?;
    Some(std::array::from_fn(|i| if best[i] != 0.0 { best[i] / sizes[i] } else { 0.0 }))
}

/// Solves the normal equations for the weights in the bit mask `free`. All other weights are 0.
/// Returns `None` if the rows do not determine the weights.
fn solve(rows: &[[f64; 3]], free: u8) -> Option<[f64; 3]> {
    let is_free = |i: usize| free >> i & 1 == 1;
    let mut matrix = [[0.0; 4]; 3];
    for i in 0..3 {
        for j in 0..3 {
            let product = || rows.iter().map(|x| x[i] * x[j]).sum();
            matrix[i][j] = if is_free(i) && is_free(j) { product() } else { f64::from(u8::from(i == j)) };
        }
        matrix[i][3] = if is_free(i) { rows.iter().map(|x| x[i]).sum() } else { 0.0 };
    }
    // Gaussian elimination needs no exchange of rows here, because the matrix is positive
    // semidefinite.
    for i in 0..3 {
        let line = matrix[i];
        if line[i] < 1e-9 {
            return None;
        }
        for other in (0..3).filter(|&other| other != i) {
            let factor = matrix[other][i] / line[i];
            (0..4).for_each(|column| matrix[other][column] -= factor * line[column]);
        }
    }
    Some(std::array::from_fn(|i| matrix[i][3] / matrix[i][i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(chunk: u32, bytes: u16, load: f64, device_ns: f64, host_ns: f64) -> CurvePoint {
        let latency = 20_000.0 + 8.0 * f64::from(bytes);
        CurvePoint {
            chunk,
            bytes,
            load,
            filled: None,
            mpps: 1.0,
            host_ns,
            device_ns,
            p50_us: Some(latency / 1e3),
            p99_us: Some(3.0 * latency / 1e3),
            watts: None,
            runs: 3,
            cv: 0.0,
        }
    }

    #[test]
    fn finds_the_costs_of_a_linear_device() {
        let mut points = Vec::new();
        for chunk in [256, 1024, 4096, 16384] {
            for bytes in [60, 508, 1404] {
                let (per_chunk, length) = (f64::from(chunk), f64::from(bytes));
                let device_ns = 9000.0 / per_chunk + 3.0 + 0.0171 * length;
                points.push(point(chunk, bytes, 1.0, device_ns, 7000.0 / per_chunk + 40.0));
                points.push(point(chunk, bytes, 0.05, 500.0, 500.0));
            }
        }
        let fit = fit(&points, "cuda:0").expect("enough points");
        let near = |value: f64, truth: f64| (value / truth - 1.0).abs() < 1e-6;
        assert!(near(fit.chunk_ns, 9000.0) && near(fit.packet_ns, 3.0) && near(fit.byte_ns, 0.0171), "{fit:?}");
        assert!(near(fit.submit_ns, 7000.0) && near(fit.host_ns, 40.0), "{fit:?}");
        assert!(near(fit.trip_ns, 20_000.0) && near(fit.trip_byte_ns, 8.0) && near(fit.tail, 3.0), "{fit:?}");
        assert!(fit.error_max < 1e-6);
    }

    #[test]
    fn partly_filled_submissions_count_with_their_packets() {
        let mut points = Vec::new();
        for (chunk, filled) in [(256, 256.0), (1024, 700.0), (4096, 900.5)] {
            for bytes in [60, 1404] {
                let device_ns = 9000.0 / filled + 3.0 + 0.5 * f64::from(bytes);
                points.push(CurvePoint { filled: Some(filled), ..point(chunk, bytes, 1.0, device_ns, 0.0) });
            }
        }
        let fit = fit(&points, "cuda:0").expect("enough points");
        assert!((fit.chunk_ns / 9000.0 - 1.0).abs() < 1e-6 && fit.error_max < 1e-6, "{fit:?}");
    }

    #[test]
    fn few_points_are_enough_and_a_cost_per_packet_may_be_negative() {
        let points = [point(256, 60, 1.0, 60.0, 0.0), point(256, 1404, 1.0, 2800.0, 0.0)];
        let two = fit(&points, "cpu").expect("enough points");
        assert!(two.packet_ns < 0.0 && two.byte_ns > 0.0 && two.error_max < 1e-6, "{two:?}");
        assert_eq!(two.floor_ns, 60.0);
        // A cost per byte cannot be negative.
        let falling = [point(256, 60, 1.0, 60.0, 0.0), point(256, 1404, 1.0, 50.0, 0.0)];
        assert!(fit(&falling, "cpu").expect("enough points").byte_ns >= 0.0);
        let one = fit(&points[..1], "cpu").expect("enough points");
        assert!((one.packet_ns + 60.0 * one.byte_ns - 60.0).abs() < 1e-6, "{one:?}");
        assert_eq!(fit(&[], "cpu"), None);
    }
}
