//! Tests of a planner that holds a placement.

use super::super::load::FunctionLoad;
use super::super::sim::{Wake, machine};
use super::*;

const LOOK_NS: u64 = 10_000_000;

#[test]
fn a_held_placement_keeps_a_slow_device_and_leaves_a_lost_one() {
    let machine = machine(Wake::Parked);
    let goal = Goal::parse("hold", None).expect("valid");
    let mut planner = Planner::new(machine.clone(), goal, PlannerConfig::default());
    let held = Choice::parse(&machine, "inspect=cuda:0 tunnel=cuda:0", planner.burst()).expect("valid");
    planner.pin(held.clone());
    let slow = Measured { packets: 10_000, busy_ns: 1e9 };
    let load = Load { functions: vec![FunctionLoad::fixed(1e6, 508); 2] };
    let mut seen = Observation { load, measured: vec![slow; 6], ..Observation::default() };
    for look in 0..200 {
        seen.now_ns = look * LOOK_NS;
        let decision = planner.look(&seen);
        assert_eq!(decision.outcome == Outcome::Moved, look == 0, "{decision:?}");
    }
    assert_eq!(planner.choice(), Some(&held));
    (seen.now_ns, seen.lost) = (200 * LOOK_NS, PlaceSet::of([1, 2]));
    let decision = planner.look(&seen);
    assert_eq!((decision.outcome, decision.reason), (Outcome::Moved, Reason::Lost(seen.lost)));
    assert!((0..2).all(|function| planner.choice().expect("placed").used_by(function, 3) == PlaceSet::of([0])));
}
