//! Devices that fail, hang, die or refuse. Each packet is processed or counted as dropped. The sent
//! packets equal those of a run without faults, and the order is the same.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_device::opencl::OpenClDevice;
use godwit_device::{Device, DeviceOptions, Program};
use godwit_engine::{Error, Opener, Report};
use godwit_packet::ArenaHandle;
use godwit_test_support::capture::Frame;
use godwit_test_support::{Folder, skip};
use proptest::prelude::*;

use crate::common::{FAULTY, count};
use crate::failures::{MACHINE, Machine, PACKETS, check, records, run, text};
use crate::faults::{Faults, Loss, opener};

/// Timeout of a process that detects a lost device and ends.
const TIMEOUT: Duration = Duration::from_secs(100);

/// Runs an engine. Returns the report and the records of the capture.
fn captured(machine: &Machine, device: &str, both_on_device: bool, opener: Option<Opener>) -> (Report, Vec<Frame>) {
    let folder = Folder::new();
    let capture = folder.join("out.pcap");
    let report = run(&text(machine, device, both_on_device, &capture), opener).unwrap();
    let records = records(&capture);
    (report, records)
}

/// Returns the records of a run without faults.
fn clean(machine: &Machine) -> Vec<Frame> {
    let (report, records) = captured(machine, "cpu", true, None);
    assert_eq!((report.conservation.sent, report.lost_devices.len()), (PACKETS, 0));
    records
}

#[test]
fn a_slow_device_changes_no_packet() {
    let faults = Faults { delay_polls: 9, fails_each: 0, loss: None };
    let (report, records) = captured(&MACHINE, FAULTY, true, Some(opener(FAULTY, faults)));
    check(&report, &records, &clean(&MACHINE));
    assert_eq!(report.conservation.dropped, 0);
    assert!(report.functions.iter().all(|function| function.device == FAULTY));
}

#[test]
fn a_device_with_some_failed_chunks_keeps_its_functions() {
    let faults = Faults { delay_polls: 1, fails_each: 4, loss: None };
    let (report, records) = captured(&MACHINE, FAULTY, true, Some(opener(FAULTY, faults)));
    check(&report, &records, &clean(&MACHINE));
    assert!(count(&report, "engine_dropped_device") > 0);
    assert_eq!(report.lost_devices.len(), 0);
    assert!(report.functions.iter().all(|function| function.device == FAULTY));
}

#[test]
fn a_device_is_lost_after_three_consecutive_failed_chunks() {
    let machine = Machine { workers: 1, ..MACHINE };
    let faults = Faults { delay_polls: 1, fails_each: 1, loss: None };
    let (report, records) = captured(&machine, FAULTY, false, Some(opener(FAULTY, faults)));
    check(&report, &records, &clean(&machine));
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert!(lost.reason.contains("3 consecutive chunks"), "{}", lost.reason);
    assert_eq!((lost.device.as_str(), lost.moved_to.as_str(), lost.workers), (FAULTY, "cpu", 1));
    // Three chunks, and two more that were in flight with the third.
    assert!(report.conservation.dropped <= 5 * 64, "{}", report.conservation);
    assert!(report.functions.iter().all(|function| function.device == "cpu"));
}

#[test]
fn a_device_that_refuses_chunks_loses_no_packet() {
    let faults = Faults { delay_polls: 3, fails_each: 0, loss: Some((Loss::Refuses, 5)) };
    let (report, records) = captured(&MACHINE, FAULTY, true, Some(opener(FAULTY, faults)));
    check(&report, &records, &clean(&MACHINE));
    assert_eq!(report.conservation.dropped, 0);
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert_eq!((lost.reason.as_str(), lost.packets, lost.workers), ("accepts no more chunks", 0, 2));
    assert!(report.functions.iter().all(|function| function.device == "cpu"));
}

#[test]
fn a_device_that_hangs_loses_only_its_packets_in_flight() {
    for arena in ["layout = \"slots\"", "layout = \"slots\"\nreuse = \"oldest\"", "layout = \"dense\""] {
        let machine = Machine { arena, ..MACHINE };
        let faults = Faults { delay_polls: 1, fails_each: 0, loss: Some((Loss::Hangs, 4)) };
        let (report, records) = captured(&machine, FAULTY, true, Some(opener(FAULTY, faults)));
        check(&report, &records, &clean(&machine));
        assert!(count(&report, "engine_dropped_device_lost") > 0, "{arena}");
        let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
        assert_eq!((lost.workers, lost.packets), (2, report.conservation.dropped));
        // Each worker has at most two chunks in flight.
        assert!(lost.packets <= 2 * 2 * 64, "{}", lost.packets);
    }
}

#[test]
fn the_run_ends_if_a_lost_device_holds_all_buffers() {
    let arena = "packets = 64";
    let machine = Machine { workers: 1, in_flight: 128, arena, ..MACHINE };
    // Within this delay, all packets reach the device, in two chunks.
    let faults = Faults { delay_polls: 100_000, fails_each: 0, loss: Some((Loss::Dies, 0)) };
    let folder = Folder::new();
    let text = text(&machine, FAULTY, true, &folder.join("out.pcap"));
    let Err(error) = run(&text, Some(opener(FAULTY, faults))) else { panic!("the run continued without buffers") };
    assert!(matches!(&error, Error::ArenaLost { device, buffers: 64 } if device == FAULTY), "{error}");
    assert!(error.is_users());
}

/// Returns an OpenCL device that runs on the processor. Other processes may use other devices.
fn processor() -> Option<(usize, String)> {
    let found = godwit_device::opencl::probe().found;
    let number = found.iter().position(|found| found.usable.is_ok() && found.kind == "cpu")?;
    Some((number, found[number].capabilities.id.clone()))
}

/// Returns Godwit's kernels with a change: a group hangs at a bin of 7, 15, 23 … packets.
fn hanging_kernels() -> String {
    let source = godwit_kernels::opencl_source();
    let after = "const gw_bin bin = bins[index];";
    assert!(source.contains(after), "the kernels do not contain: {after}");
    source.replace(
        after,
        &format!("{after} while (((volatile __global const gw_bin *)bins)[index].count % 8u == 7u) {{}}"),
    )
}

#[test]
#[ignore = "hangs a core until its process exits: run by `a_hanging_kernel_loses_only_its_device`"]
fn a_kernel_hangs() {
    let (number, id) = processor().unwrap();
    let open = {
        let id = id.clone();
        move |requested: &str, programs: &[(Arc<dyn Program>, _)], arena: &ArenaHandle, options: &DeviceOptions| {
            (requested == id).then(|| {
                let programs = programs.iter().map(|(program, _)| Arc::clone(program)).collect();
                let device = OpenClDevice::with_kernels(number, programs, arena, options, &hanging_kernels())?;
                Ok(Arc::new(device) as Arc<dyn Device>)
            })
        }
    };
    let folder = Folder::new();
    let capture = folder.join("out.pcap");
    let text = text(&MACHINE, FAULTY, true, &capture).replace(FAULTY, &id);
    let report = run(&text.replace("watchdog_ms = 20", "watchdog_ms = 1000"), Some(Opener(Arc::new(open)))).unwrap();
    check(&report, &records(&capture), &clean(&MACHINE));
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert!(lost.reason.contains("no finished chunk"), "{}", lost.reason);
    assert_eq!((lost.device.as_str(), lost.moved_to.as_str()), (id.as_str(), "cpu"));
    assert!(report.functions.iter().all(|function| function.device.contains("cpu")), "{:?}", report.functions);
}

/// The kernel really hangs. It runs in another process, which must exit by itself.
#[test]
fn a_hanging_kernel_loses_only_its_device() {
    if processor().is_none() {
        skip("no usable OpenCL device runs on the processor");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "failover::a_kernel_hangs", "--ignored", "--nocapture"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if started.elapsed() > TIMEOUT => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(status.is_some_and(|status| status.success()), "{status:?}: {text}");
}

fn faults() -> impl Strategy<Value = Faults> {
    let loss = prop::sample::select(vec![Loss::Hangs, Loss::Dies, Loss::Refuses]);
    let loss = prop::option::weighted(0.8, (loss, 0u64..20));
    (0u32..20, prop::sample::select(vec![0u64, 0, 1, 2, 7]), loss).prop_map(|(delay_polls, fails_each, loss)| Faults {
        delay_polls,
        fails_each,
        loss,
    })
}

fn machines() -> impl Strategy<Value = Machine> {
    let arenas = vec!["layout = \"slots\"", "layout = \"slots\"\nreuse = \"oldest\"", "layout = \"dense\""];
    (1usize..4, 8u32..12, 1usize..200, prop::sample::select(vec![1usize, 31, 64]), 1usize..40, 2usize..6)
        .prop_flat_map(move |shape| (Just(shape), prop::sample::select(arenas.clone())))
        .prop_map(|((workers, in_flight, chunk, bin, leftover, chunks), arena)| Machine {
            workers,
            in_flight: 1 << in_flight,
            chunk,
            bin,
            leftover,
            chunks,
            arena,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_processed_or_counted_with_any_faults(
        machine in machines(),
        faults in faults(),
        both_on_device: bool,
    ) {
        let (report, records) = captured(&machine, FAULTY, both_on_device, Some(opener(FAULTY, faults)));
        check(&report, &records, &clean(&MACHINE));
    }
}
