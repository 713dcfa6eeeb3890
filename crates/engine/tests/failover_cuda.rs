//! A CUDA device, emulated, whose driver fails or which hangs while traffic flows: every packet is processed or counted, in order.

#[path = "../../device/tests/emulated/mod.rs"]
mod emulated;
mod failures;

use std::sync::{Mutex, PoisonError};

use emulated::Emulation;
use failures::{FAULTY, MACHINE, Machine, check, records, run, text};
use godwit_engine::Report;

/// CUDA_ERROR_LAUNCH_FAILED.
const LAUNCH_FAILED: i32 = 719;

/// Runs traffic on device `number` after the driver was told what is to happen; demands what holds whatever happens.
fn run_on(
    number: usize,
    driver: &Emulation,
    arena: &'static str,
    transfer: &str,
    tell: impl FnOnce(&Emulation),
) -> Report {
    let device = format!("cuda:{number}");
    let machine = Machine { arena, ..MACHINE };
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("out.pcap");
    // Packets that are to be copied must lie side by side, which those that come by way of another function seldom do.
    let ports = if transfer == "copy" { "1" } else { "0-30000" };
    let text = |device| text(&machine, device, true, &capture).replace("0-30000", ports);
    run(&text("cpu"), None).unwrap();
    let clean = records(&capture);
    // Kernels take their time here.
    let on_device = text(&device)
        .replace(FAULTY, &device)
        .replace("watchdog_ms = 20", &format!("watchdog_ms = 1000\ntransfer = \"{transfer}\""));
    tell(driver);
    let report = run(&on_device, None);
    driver.hold(false);
    driver.repair();
    let report = report.unwrap();
    check(&report, &records(&capture), &clean);
    report
}

/// Each test has a device of its own: what is lost is never given back.
fn check_loss(number: usize, transfer: &str, reason: &str, tell: impl FnOnce(&Emulation)) {
    // What the driver is told holds for all of the process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(driver) = emulated::emulation(16) else { return };
    let report = run_on(number, driver, "layout = \"slots\"", transfer, |_| ());
    assert_eq!((report.conservation.dropped, report.lost_devices.len()), (0, 0));
    let report = run_on(number, driver, "layout = \"dense\"", transfer, tell);
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert!(lost.reason.contains(reason), "{}", lost.reason);
    assert_eq!((lost.device.as_str(), lost.moved_to.as_str(), lost.workers), (&*format!("cuda:{number}"), "cpu", 2));
    assert!(report.conservation.dropped > 0, "{}", report.conservation);
    assert!(report.functions.iter().all(|function| function.device == "cpu"));
}

#[test]
fn a_copy_that_fails_loses_the_device_and_nothing_else() {
    check_loss(0, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuMemcpyBatchAsync_v2", 7, LAUNCH_FAILED));
}

#[test]
fn a_launch_that_fails_loses_the_device_and_nothing_else() {
    // The first is of the device itself, which runs its kernels once.
    check_loss(1, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuLaunchKernel", 9, LAUNCH_FAILED));
}

#[test]
fn an_event_that_cannot_be_recorded_loses_the_device_and_nothing_else() {
    check_loss(2, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuEventRecord", 8, LAUNCH_FAILED));
}

#[test]
fn a_kernel_that_fails_loses_the_device_and_nothing_else() {
    check_loss(3, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuEventQuery", 30, LAUNCH_FAILED));
}

#[test]
fn a_kernel_that_hangs_loses_the_device_and_nothing_else() {
    check_loss(4, "copy", "no finished chunk", |driver| driver.hold_after(11));
}

#[test]
fn a_repeated_launch_that_fails_loses_the_device_and_nothing_else() {
    check_loss(5, "zero_copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuGraphLaunch", 9, LAUNCH_FAILED));
}

#[test]
fn a_kernel_that_reaches_for_buffers_and_hangs_loses_the_device_and_nothing_else() {
    check_loss(6, "zero_copy", "no finished chunk", |driver| driver.hold_after(11));
}
