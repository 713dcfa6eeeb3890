//! Explains each planner decision in one sentence, for `status`, the event log and the benchmarks.

use super::load::Load;
use super::model::{Machine, Prediction};
use super::placement::{Choice, PlaceSet};
use super::planner::{Decision, Move, Outcome, Reason};
use super::policy::Goal;

/// Smaller changes in a device's fraction of a function's packets are not mentioned.
const SHARE_MIN: f64 = 0.005;
const CHANGES_MAX: usize = 4;

/// Describes a planner decision in one sentence. Another sentence names each device that receives
/// fewer packets because it was too slow.
pub fn explain(machine: &Machine, goal: &Goal, decision: &Decision) -> String {
    match (&decision.moved, decision.outcome) {
        (Some(moved), Outcome::Moved) => explain_move(machine, goal, decision, moved),
        _ => format!("Stayed: {}.", why_stayed(machine, goal, decision)),
    }
}

fn explain_move(machine: &Machine, goal: &Goal, decision: &Decision, moved: &Move) -> String {
    let mut text = slow_places(machine, moved);
    text += &changes(machine, moved.from.as_ref(), &moved.to);
    text += ": ";
    text += &why_moved(machine, goal, decision, moved);
    text += "; ";
    text += &state(machine, &decision.after);
    text.push('.');
    text
}

/// Returns a sentence for each device that receives fewer packets because it was too slow.
fn slow_places(machine: &Machine, moved: &Move) -> String {
    let Some(from) = &moved.from else { return String::new() };
    let places = machine.places.len();
    let total = |choice: &Choice, place: usize| choice.shares.iter().skip(place).step_by(places).sum::<f64>();
    let lost = |(place, _): &&(usize, f64)| total(&moved.to, *place) < total(from, *place) - SHARE_MIN;
    let sentence = |(place, rate): &(usize, f64)| {
        format!("Moved back: {} gave {rate:.2} of its profile. ", machine.places[*place].setup.id)
    };
    moved.slow.iter().filter(lost).map(sentence).collect()
}

/// Lists the differences between two placements.
fn changes(machine: &Machine, from: Option<&Choice>, to: &Choice) -> String {
    let mut list = Vec::new();
    let places = machine.places.len();
    for (function, name) in machine.functions.iter().enumerate() {
        for (place, of) in machine.places.iter().enumerate() {
            let new = to.shares[function * places + place];
            let percent = |share: f64| (share * 100.0).round();
            match from.map(|from| from.shares[function * places + place]) {
                Some(old) if new > old + SHARE_MIN => {
                    list.push(format!("{name}: {} -> {} % on {}", percent(old), percent(new), of.setup.id));
                }
                None if new >= 1.0 => list.push(format!("{name} on {}", of.setup.id)),
                None if new > 0.0 => list.push(format!("{name}: {} % on {}", percent(new), of.setup.id)),
                _ => {}
            }
        }
    }
    let more = list.len().saturating_sub(CHANGES_MAX);
    list.truncate(CHANGES_MAX);
    if more > 0 {
        list.push(format!("{more} other shares"));
    }
    let (old, new) = (from.map(|from| from.setting), to.setting);
    if old.is_some_and(|old| old.workers != new.workers) {
        list.push(format!("{} of {} workers awake", new.workers, machine.workers));
    }
    if old.map_or(0, |old| old.feeders) != new.feeders {
        list.push(match new.feeders {
            0 => "all workers feed and compute".to_owned(),
            1 => "1 worker only feeds devices".to_owned(),
            feeders => format!("{feeders} workers only feed devices"),
        });
    }
    if let Some(place) = chunk_change(machine, from, to) {
        list.push(format!("chunks of {} packets", machine.chunk_packets(place, new.level)));
    }
    if let Some(asleep) = asleep(machine, from, to) {
        list.push(asleep);
    }
    if list.is_empty() { "the same shares".to_owned() } else { list.join(", ") }
}

/// Returns a device that is in use and gets another submission size.
fn chunk_change(machine: &Machine, from: Option<&Choice>, to: &Choice) -> Option<usize> {
    let old = from.map_or(0, |from| from.setting.level);
    to.setting
        .on
        .iter()
        .find(|&place| machine.chunk_packets(place, old) != machine.chunk_packets(place, to.setting.level))
}

/// Names the devices that go to sleep in the new placement.
fn asleep(machine: &Machine, from: Option<&Choice>, to: &Choice) -> Option<String> {
    let from = from?;
    let devices = machine.devices.iter().enumerate();
    let sleeps = |index: &usize| machine.is_on(*index, from.setting.on) && !machine.is_on(*index, to.setting.on);
    let names: Vec<&str> = devices.filter(|(index, _)| sleeps(index)).map(|(_, device)| device.id.as_str()).collect();
    (!names.is_empty()).then(|| format!("{} asleep", names.join(" and ")))
}

fn why_moved(machine: &Machine, goal: &Goal, decision: &Decision, moved: &Move) -> String {
    let load = load_text(&moved.load);
    match decision.reason {
        Reason::Overload => format!("{load} need {}", need(machine, &decision.before)),
        Reason::Lost(places) => format!("{} is lost or far too slow", place_names(machine, places)),
        Reason::Goal => format!("the policy is now {}", goal.policy.name),
        Reason::Gain | Reason::Tuning => {
            format!("{} for {load}", gain_text(goal, decision.gain, &decision.before, &decision.after))
        }
        Reason::Rate => format!("the rate changed by more than 10 % to {load}"),
        _ => load,
    }
}

fn why_stayed(machine: &Machine, goal: &Goal, decision: &Decision) -> String {
    let percent = |share: f64| (share * 100.0).round();
    let gain = || gain_text(goal, decision.gain, &decision.before, &decision.after);
    match decision.reason {
        Reason::Held => "the placement is held".to_owned(),
        Reason::Best => format!("no other placement is better; {}", state(machine, &decision.before)),
        Reason::SmallGain => {
            format!(
                "the best other placement {}, less than the {} % that a move must gain",
                gain(),
                percent(decision.required)
            )
        }
        Reason::Lasting(left) => format!("the best other placement {}, but for {left} looks too few", gain()),
        Reason::Falling => format!("the best other placement {}, but the load is still falling", gain()),
        Reason::Dwell(left_ns) => {
            format!(
                "the best other placement {}, but the next move is due in {} ms",
                gain(),
                left_ns.div_ceil(1_000_000)
            )
        }
        Reason::Unearned(joules) => {
            format!("the best other placement {}, but waking the devices again would cost {joules:.2} J more", gain())
        }
        Reason::NoPlace => "the remaining devices cannot run all functions".to_owned(),
        Reason::SameRate => "the rate has changed by less than 10 %".to_owned(),
        reason => format!("{reason:?}"),
    }
}

/// Describes the gain of a placement in the policy's unit, such as watts.
fn gain_text(goal: &Goal, gain: f64, before: &Prediction, after: &Prediction) -> String {
    let change = |old: f64, new: f64| ((old - new) / old * 100.0).round();
    if gain.is_infinite() {
        return "meets the requirement of the policy".to_owned();
    }
    let percent = (gain * 100.0).round();
    match (goal.policy.needs_latency && goal.policy.unit.is_none(), goal.policy.folds_workers) {
        (true, _) => format!("lowers the p99 latency by {} %", change(before.p99_ns, after.p99_ns)),
        (false, true) if goal.limits.watts.is_infinite() => match (before.watts, after.watts) {
            (Some(old), Some(new)) => format!("saves {:.0} W ({percent} %)", old - new),
            _ => format!("saves {:.1} cores ({percent} %)", before.awake - after.awake),
        },
        _ => format!("carries {:.2} times the rate", after.headroom / before.headroom),
    }
}

/// Describes how much of the fullest resource a load needs.
fn need(machine: &Machine, before: &Prediction) -> String {
    let name = machine.resource_name(before.limit);
    if before.load > 1.0 {
        format!("{:.1} times {name}", before.load)
    } else {
        format!("{:.0} % of {name}", before.load * 100.0)
    }
}

/// Describes the predicted resource use, latency and power.
fn state(machine: &Machine, prediction: &Prediction) -> String {
    let mut text = format!("now {:.1} of {} cores", prediction.cores, machine.workers);
    let name = machine.resource_name(prediction.limit);
    text += &format!(", {:.0} % of {name}", 100.0 * prediction.load);
    if prediction.p99_ns > 0.0 {
        text += &format!(", p99 about {}", time(prediction.p99_ns));
    }
    if let Some(watts) = prediction.watts {
        text += &format!(", {watts:.0} W");
    }
    text
}

fn load_text(load: &Load) -> String {
    let pps = load.pps();
    let bytes: f64 = load.functions.iter().map(|function| function.pps * function.bytes).sum::<f64>() / pps.max(1e-9);
    match pps {
        0.0 => "no packets".to_owned(),
        _ if pps < 1e4 => format!("{pps:.0} packets/s of {bytes:.0} bytes"),
        _ => format!("{} Mpps of {bytes:.0} bytes", digits(pps / 1e6)),
    }
}

/// Formats a number with about three digits.
fn digits(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn time(ns: f64) -> String {
    if ns >= 1e7 {
        format!("{:.0} ms", ns / 1e6)
    } else if ns >= 1e6 {
        format!("{:.1} ms", ns / 1e6)
    } else {
        format!("{:.0} us", ns / 1e3)
    }
}

fn place_names(machine: &Machine, places: PlaceSet) -> String {
    let names: Vec<&str> = places.iter().map(|place| machine.places[place].setup.id.as_str()).collect();
    names.join(" and ")
}
