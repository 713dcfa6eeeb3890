//! Emulated CUDA device that hangs, or whose driver fails, while traffic flows. Each packet is
//! processed or counted as dropped, and the order stays.

#[path = "engine/common.rs"]
mod common;
#[path = "engine/failures.rs"]
mod failures;

use std::sync::{Mutex, PoisonError};

use godwit_engine::Report;
use godwit_test_support::Folder;
use godwit_test_support::cuda::{self, Emulation};

use common::FAULTY;
use failures::{MACHINE, Machine, check, records, run, text};

/// `CUDA_ERROR_LAUNCH_FAILED`.
const LAUNCH_FAILED: i32 = 719;

/// Runs traffic on device `number` after `prepare`, and asserts the properties that must hold.
fn run_on(
    number: usize,
    driver: &Emulation,
    arena: &'static str,
    transfer: &str,
    prepare: impl FnOnce(&Emulation),
) -> Report {
    let device = format!("cuda:{number}");
    let machine = Machine { arena, ..MACHINE };
    let folder = Folder::new();
    let capture = folder.join("out.pcap");
    // Copied packets must be adjacent, which is rare after another function. With this class,
    // almost no packet has another function before.
    let ports = if transfer == "copy" { "1" } else { "0-30000" };
    let text = |device| text(&machine, device, true, &capture).replace("0-30000", ports);
    run(&text("cpu"), None).unwrap();
    let clean = records(&capture);
    // Emulated kernels are slow.
    let on_device = text(&device)
        .replace(FAULTY, &device)
        .replace("watchdog_ms = 20", &format!("watchdog_ms = 1000\ntransfer = \"{transfer}\""));
    prepare(driver);
    let report = run(&on_device, None);
    driver.hold(false);
    driver.repair();
    let report = report.unwrap();
    check(&report, &records(&capture), &clean);
    report
}

/// Checks that a device is lost for a reason, with a copy or zero-copy. Each test uses another
/// device, because lost devices are leaked.
fn check_loss(number: usize, transfer: &str, reason: &str, prepare: impl FnOnce(&Emulation)) {
    // Settings of the driver apply to the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(driver) = cuda::emulation(env!("CARGO_TARGET_TMPDIR"), 16) else { return };
    let report = run_on(number, driver, "layout = \"slots\"", transfer, |_| ());
    assert_eq!((report.conservation.dropped, report.lost_devices.len()), (0, 0));
    let report = run_on(number, driver, "layout = \"dense\"", transfer, prepare);
    let [lost] = report.lost_devices.as_slice() else { panic!("{:?}", report.lost_devices) };
    assert!(lost.reason.contains(reason), "{}", lost.reason);
    assert_eq!((lost.device.as_str(), lost.moved_to.as_str(), lost.workers), (&*format!("cuda:{number}"), "cpu", 2));
    assert!(report.conservation.dropped > 0, "{}", report.conservation);
    assert!(report.functions.iter().all(|function| function.device == "cpu"));
}

#[test]
fn a_failing_copy_loses_only_the_device() {
    check_loss(0, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuMemcpyBatchAsync_v2", 7, LAUNCH_FAILED));
}

#[test]
fn a_failing_launch_loses_only_the_device() {
    // The device makes the first launch when it is opened.
    check_loss(1, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuLaunchKernel", 9, LAUNCH_FAILED));
}

#[test]
fn an_event_that_cannot_be_recorded_loses_only_the_device() {
    check_loss(2, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuEventRecord", 8, LAUNCH_FAILED));
}

#[test]
fn a_failing_kernel_loses_only_the_device() {
    check_loss(3, "copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuEventQuery", 30, LAUNCH_FAILED));
}

#[test]
fn a_hanging_kernel_loses_only_the_device() {
    check_loss(4, "copy", "no finished chunk", |driver| driver.hold_after(11));
}

#[test]
fn a_failing_graph_launch_loses_only_the_device() {
    check_loss(5, "zero_copy", "LAUNCH_FAILED", |driver| driver.break_call(c"cuGraphLaunch", 9, LAUNCH_FAILED));
}

#[test]
fn a_hanging_zero_copy_kernel_loses_only_the_device() {
    check_loss(6, "zero_copy", "no finished chunk", |driver| driver.hold_after(11));
}
