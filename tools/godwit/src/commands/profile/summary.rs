//! Summary of a profile for people.

use std::fmt::Write;

use godwit_sched::place::{Pair, Profile};

use crate::table::{Align, Table};

/// Returns the fitted costs and their errors, the losses by functions that run together, and the
/// power. `not_measured` contains each device without a power meter, and the reason.
pub(super) fn text(profile: &Profile, not_measured: &[(String, String)]) -> String {
    let mut text = String::from("Costs in nanoseconds; errors compare the costs with the measured points\n\n");
    text += &costs(profile);
    if !profile.pairs.is_empty() {
        text += "\nFunctions that run together, as shares of their rates alone\n\n";
        text += &together(&profile.pairs);
    }
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "\nreceiving and sending a packet {} ns, a second function {} ns more; noise {:.1} %",
        number(profile.host.receive_ns),
        number(profile.host.stream_ns),
        profile.noise_cv * 100.0
    );
    for power in &profile.powers {
        let (device, asleep, awake) = (&power.device, power.asleep, power.awake);
        let full = power.points.iter().map(|point| point.watts).fold(awake, f64::max);
        let _ = writeln!(text, "power of {device}: asleep {asleep:.0} W, awake {awake:.0} W, busy up to {full:.0} W");
    }
    for (device, reason) in not_measured {
        let _ = writeln!(text, "power of {device}: not measured: {reason}");
    }
    text
}

fn costs(profile: &Profile) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("function", Left),
        ("device", Left),
        ("mode", Left),
        ("chunk", Right),
        ("packet", Right),
        ("byte", Right),
        ("core", Right),
        ("core per chunk", Right),
        ("latency µs", Right),
        ("points", Right),
        ("error", Right),
        ("max", Right),
    ]);
    for curve in &profile.curves {
        let fit = curve.fit.unwrap_or_default();
        table.row(vec![
            curve.function.clone(),
            curve.device.clone(),
            curve.mode.clone(),
            number(fit.chunk_ns),
            number(fit.packet_ns),
            format!("{:.3}", fit.byte_ns),
            number(fit.host_ns),
            number(fit.submit_ns),
            number(fit.trip_ns / 1e3),
            curve.points.len().to_string(),
            format!("{:.1} %", fit.error_median * 100.0),
            format!("{:.1} %", fit.error_max * 100.0),
        ]);
    }
    table.text()
}

fn together(pairs: &[Pair]) -> String {
    use Align::{Left, Right};
    let mut table =
        Table::new(&[("functions", Left), ("device", Left), ("bytes", Right), ("shares", Right), ("sum", Right)]);
    for pair in pairs {
        let shares: Vec<String> = pair.of_solo.iter().map(|share| format!("{share:.2}")).collect();
        let sum: f64 = pair.of_solo.iter().sum();
        let functions = pair.functions.join(" + ");
        table.row(vec![
            functions,
            pair.device.clone(),
            pair.bytes.to_string(),
            shares.join(" + "),
            format!("{sum:.2}"),
        ]);
    }
    table.text()
}

/// Formats a number with one decimal below 100, and none above.
fn number(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}
