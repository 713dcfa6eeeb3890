//! Tests the signer with real keys: answers, refusals, cancellation, faults and lost devices.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use godwit_sign::{
    Class, Device, Done, Hash, JobId, MESSAGE_BYTES_MAX, PolicyConfig, Refusal, Scheme, Signer, measure_costs,
};

use crate::model::{Model, Mood};
use crate::{key, library};

const SCHEME: Scheme = Scheme::RsaPss(Hash::Sha256);

/// Returns a signer that always prefers its device.
fn with_device(mood: &Arc<Mutex<Mood>>) -> Signer {
    let config = PolicyConfig { fill_ns: 0, deadline_ns: 5_000, lost_ns: 50_000, ..PolicyConfig::default() };
    let devices: Vec<Box<dyn Device>> = vec![Box::new(Model::new(mood))];
    Signer::new(config, library(), devices).unwrap()
}

/// Runs turns in virtual time until no job is in flight.
fn drain(signer: &mut Signer, now_ns: &mut u64, done: &mut Vec<Done>) {
    for _ in 0..100_000 {
        signer.turn(*now_ns, done);
        assert!(signer.counters().is_conserved(), "{:?}", signer.counters());
        if signer.counters().in_flight == 0 {
            return;
        }
        *now_ns += 500;
    }
    panic!("jobs are left: {:?}", signer.counters());
}

fn submit(signer: &mut Signer, count: usize) -> Vec<(JobId, Vec<u8>)> {
    let key = key(Class::Rsa2048);
    let message = |number: usize| format!("message {number}").into_bytes();
    (0..count).map(|number| (signer.submit(key.clone(), SCHEME, &message(number)).unwrap(), message(number))).collect()
}

/// Checks that every job has exactly one answer, and that each answer is a valid signature.
fn check(jobs: &[(JobId, Vec<u8>)], done: &[Done]) {
    let key = key(Class::Rsa2048);
    let answered: BTreeSet<JobId> = done.iter().map(|done| done.id).collect();
    assert_eq!((answered.len(), done.len()), (jobs.len(), jobs.len()));
    for Done { id, result } in done {
        let (_, message) = jobs.iter().find(|(job, _)| job == id).expect("a submitted job");
        assert!(key.verifies(SCHEME, message, result.as_ref().unwrap()));
    }
}

#[test]
fn devices_answer_and_lost_ones_are_replaced() {
    for mood in [Mood::Good, Mood::Flipped, Mood::Silent, Mood::Lost] {
        let mood = Arc::new(Mutex::new(mood));
        let mut signer = with_device(&mood);
        let jobs = submit(&mut signer, 40);
        let (mut now_ns, mut done) = (0, Vec::new());
        drain(&mut signer, &mut now_ns, &mut done);
        check(&jobs, &done);
        let counters = signer.counters();
        match *mood.lock().unwrap() {
            Mood::Good => assert_eq!((counters.signed_device, counters.devices_lost), (40, 0)),
            Mood::Flipped => assert_eq!((counters.signed_device, counters.faults_device), (0, 3)),
            Mood::Silent => assert_eq!((counters.signed_device, counters.late), (0, 40)),
            Mood::Lost => assert_eq!((counters.signed_device, counters.devices_lost), (0, 1)),
        }
    }
}

/// The device starts to return wrong results, or stops answering, between two batches.
#[test]
fn a_device_that_fails_under_load_causes_no_wrong_answer() {
    for failure in [Mood::Flipped, Mood::Silent, Mood::Lost] {
        let mood = Arc::new(Mutex::new(Mood::Good));
        let mut signer = with_device(&mood);
        let (mut now_ns, mut done, mut jobs) = (0, Vec::new(), Vec::new());
        for round in 0..6 {
            if round == 3 {
                *mood.lock().unwrap() = failure;
            }
            jobs.append(&mut submit(&mut signer, 20));
            for _ in 0..5 {
                signer.turn(now_ns, &mut done);
                now_ns += 500;
            }
        }
        drain(&mut signer, &mut now_ns, &mut done);
        check(&jobs, &done);
        assert!(signer.counters().signed_device >= 20, "{failure:?}: {:?}", signer.counters());
    }
}

#[test]
fn invalid_jobs_are_refused() {
    let mut signer = Signer::new(PolicyConfig { jobs_max: 2, ..PolicyConfig::default() }, None, Vec::new()).unwrap();
    let [rsa, ec] = [Class::Rsa2048, Class::EcdsaP256].map(key);
    assert_eq!(signer.submit(ec, SCHEME, b""), Err(Refusal::Invalid));
    let long = [0; MESSAGE_BYTES_MAX + 1];
    assert_eq!(signer.submit(rsa.clone(), SCHEME, &long), Err(Refusal::Invalid));
    assert!(signer.submit(rsa.clone(), SCHEME, &long[1..]).is_ok());
    assert!(signer.submit(rsa.clone(), SCHEME, b"").is_ok());
    assert_eq!(signer.submit(rsa, SCHEME, b""), Err(Refusal::Backlog));
    let mut done = Vec::new();
    while signer.turn(0, &mut done) {}
    let counters = signer.counters();
    assert_eq!((counters.signed_single, counters.refused_invalid, counters.refused_backlog), (2, 2, 1));
    assert!(counters.is_conserved());
}

#[test]
fn cancelled_jobs_are_not_answered() {
    let mood = Arc::new(Mutex::new(Mood::Good));
    let mut signer = with_device(&mood);
    let mut jobs = submit(&mut signer, 20);
    let (mut now_ns, mut done) = (0, Vec::new());
    let waiting = jobs.remove(3).0;
    signer.cancel(waiting);
    signer.turn(now_ns, &mut done); // the others are on the device
    let on_device = jobs.remove(7).0;
    signer.cancel(on_device);
    signer.cancel(on_device);
    drain(&mut signer, &mut now_ns, &mut done);
    now_ns += 10_000;
    signer.turn(now_ns, &mut done);
    check(&jobs, &done);
    let counters = signer.counters();
    assert_eq!((counters.refused_cancelled, counters.results_ignored), (2, 1), "{counters:?}");
}

#[test]
fn costs_are_measured_for_present_classes() {
    let Some(library) = library() else { return };
    let costs = measure_costs(&[key(Class::EcdsaP256), key(Class::EcdsaP384)], Some(&library)).unwrap();
    for class in [Class::EcdsaP256, Class::EcdsaP384] {
        let cost = costs.of(class);
        assert!(cost.single_ns > 1_000 && cost.lanes_ns.is_some_and(|lanes_ns| lanes_ns > cost.single_ns), "{cost:?}");
    }
    let without = measure_costs(&[key(Class::EcdsaP256)], None).unwrap();
    assert!(Class::ALL.iter().all(|class| without.of(*class).lanes_ns.is_none()));
}
