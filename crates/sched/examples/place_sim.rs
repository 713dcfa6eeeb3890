//! Simulates the planner, which assigns functions to devices, for many random seeds. Compares it
//! with an oracle that knows the true costs, and with a rule from a thesis on adaptive scheduling.
//!
//! Run it with `cargo run --release -p godwit-sched --example place_sim [SEEDS] [SECONDS]
//! [FILTER]`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use godwit_sched::place::sim::{Kind, Random, Report, Run, Trace, Wake, machine, sim_grid};
use godwit_sched::place::{Goal, Rule};

/// Name, planner rule and model error of each row in the output. The error is the standard
/// deviation of the difference between simulated costs and the model's costs.
const ROWS: [(&str, Rule, f64); 3] =
    [("gain", Rule::Gain, 0.05), ("gain, errors 15 %", Rule::Gain, 0.15), ("thesis", Rule::Thesis, 0.05)];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let number = |text: Option<String>, default: f64| text.and_then(|text| text.parse().ok()).unwrap_or(default);
    let seeds = number(arguments.next(), 100.0) as u64;
    let seconds = number(arguments.next(), 20.0);
    println!("{seeds} seeds of {seconds} s; columns are mean and worst, relative to the oracle, in percent");
    println!(
        "{:10} {:9} {:18} {:>14} {:>14} {:>16} {:>14} {:>7} {:>6} {:>6} {:>6}",
        "policy", "trace", "rule", "joules", "carried", "lost", "latency", "starved", "moves", "flaps", "time"
    );
    let only = arguments.next();
    for (policy, kinds) in [("energy", &Kind::ALL[..]), ("throughput", &Kind::ALL), ("latency", &Kind::ALL)] {
        for &kind in kinds {
            if only.as_ref().is_some_and(|only| !format!("{policy} {kind:?}").contains(only.as_str())) {
                continue;
            }
            for (name, rule, sigma) in ROWS {
                let start = Instant::now();
                let reports = simulate(policy, kind, rule, sigma, seeds, seconds);
                let count = reports.len() as f64;
                let mean = |field: fn(&Report) -> f64| reports.iter().map(field).sum::<f64>() / count;
                let worst = |field: fn(&Report) -> f64| reports.iter().map(field).fold(f64::NEG_INFINITY, f64::max);
                let pair =
                    |field: fn(&Report) -> f64| format!("{:.2} {:.1}", 100.0 * mean(field), 100.0 * worst(field));
                println!(
                    "{policy:10} {:9} {name:18} {:>14} {:>14} {:>16} {:>14} {:>7.3} {:>6.1} {:>6} {:>5.1}s",
                    format!("{kind:?}"),
                    pair(|report| report.joules),
                    pair(|report| report.carried),
                    format!("{:.4} {:.3}", 100.0 * mean(|report| report.lost), 100.0 * worst(|report| report.lost)),
                    pair(|report| report.latency),
                    reports.iter().map(|report| report.starvation).fold(1.0, f64::min),
                    mean(|report| f64::from(report.moves)),
                    reports.iter().map(|report| report.flaps).sum::<u32>(),
                    start.elapsed().as_secs_f64(),
                );
            }
        }
    }
}

/// Simulates all seeds in parallel, with one thread per core.
fn simulate(policy: &str, kind: Kind, rule: Rule, sigma: f64, seeds: u64, seconds: f64) -> Vec<Report> {
    let goal = Goal::parse(policy, None).expect("a policy");
    let machine = machine(Wake::Parked);
    let grid = sim_grid();
    let next = AtomicU64::new(0);
    let reports = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let trace = Trace::random(&machine, kind, seconds, &mut Random::new(seed));
                    let run = Run { machine: &machine, goal, rule, grid: &grid, sigma, seed };
                    let report = run.run(&trace);
                    reports.lock().expect("no thread panics").push(report);
                }
            });
        }
    });
    reports.into_inner().expect("no thread panics")
}
