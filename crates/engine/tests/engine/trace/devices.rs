//! Packets on devices, on failing devices, and with sender threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use godwit_device::cpu::CpuDevice;
use godwit_device::{BinTime, Capabilities, Choice, Device, Error as DeviceError, Lane, Rejected};
use godwit_engine::trace::{Fate, Found, Packet};
use godwit_engine::{Engine, Opener, Options, Report};
use godwit_packet::Region;
use godwit_sched::Chunk;
use godwit_test_support::{Folder, skip};
use serde_json::json;

use super::common::{GATEWAY, TWICE, assert_agreement, path, run};
use crate::common::{FAULTY, config, count};
use crate::faults::{Faults, Loss, opener};

fn faulty(faults: Faults) -> (Report, Found) {
    let options = Options { opener: Some(opener(FAULTY, faults)), ..Options::default() };
    run(TWICE, Path::new("."), &json!({ "count": 4096 }), &options)
}

#[test]
fn packets_of_a_refused_chunk_move_to_the_cpu() {
    let (report, found) = faulty(Faults { delay_polls: 3, fails_each: 0, loss: Some((Loss::Refuses, 5)) });
    assert_agreement(&report, &found);
    assert_eq!((found.packets.len(), report.conservation.sent), (3000, 3000));
    let is_not_taken = |packet: &&Packet| path(packet).contains(&"not taken by opencl:9".to_owned());
    let not_taken: Vec<&Packet> = found.packets.iter().filter(is_not_taken).collect();
    assert!(!not_taken.is_empty());
    for packet in not_taken {
        let path = path(packet);
        let at = path.iter().position(|step| step == "not taken by opencl:9").unwrap();
        let function = path[at - 2].split(' ').next().unwrap();
        let expected =
            ["to opencl:9", "not taken by opencl:9", &format!("{function} bin of cpu"), "to cpu", "from cpu"];
        assert_eq!(path[at - 1..at + 4], expected, "{path:?}");
    }
    // Packets in open bins of the device also move to the CPU.
    let moved = ["number bin of opencl:9".to_owned(), "number bin of cpu".to_owned()];
    assert!(found.packets.iter().any(|packet| path(packet).windows(2).any(|pair| *pair == moved)));
}

#[test]
fn packets_on_a_lost_or_failing_device_are_shown_as_dropped() {
    for loss in [Loss::Dies, Loss::Hangs] {
        let (report, found) = faulty(Faults { delay_polls: 2, fails_each: 0, loss: Some((loss, 4)) });
        assert_agreement(&report, &found);
        let lost = found.packets.iter().filter(|packet| packet.fate == Fate::Dropped);
        let lost: Vec<_> = lost.map(|packet| path(packet).pop().unwrap()).collect();
        assert!(!lost.is_empty() && lost.iter().all(|step| step == "dropped: engine_dropped_device_lost"), "{lost:?}");
    }
    let (report, found) = faulty(Faults { delay_polls: 1, fails_each: 4, loss: None });
    assert_agreement(&report, &found);
    assert!(count(&report, "engine_dropped_device") > 0);
}

#[test]
fn workers_hand_packets_over_to_sender_threads() {
    let text = TWICE.replace("pin = false", "pin = false\nio = \"dual\"").replace("device = \"opencl:9\"", "");
    let text = text.replace("name = \"opencl:9\"", "name = \"cpu\"").replace("watchdog_ms = 20\n    chunks = 3", "");
    let (report, found) = run(&text, Path::new("."), &json!({ "count": 4096 }), &Options::default());
    assert_eq!((report.conservation.sent, found.packets.len(), found.missed), (3000, 3000, 0));
    for packet in &found.packets {
        assert_eq!((path(packet).pop().as_deref(), packet.fate), (Some("handed over for out"), Fate::Sent));
    }
}

/// Returns the usable OpenCL devices. Reports a skipped test if there is none.
fn devices() -> Vec<String> {
    let probe = godwit_device::opencl::probe();
    let usable = probe.found.into_iter().filter(|found| found.usable.is_ok()).map(|found| found.capabilities.id);
    let usable: Vec<String> = usable.collect();
    if usable.is_empty() {
        skip("no usable OpenCL device");
    }
    usable
}

#[test]
fn a_trace_shows_the_steps_of_a_device_chain() {
    for device in devices() {
        let folder = Folder::new();
        folder.write("patterns.txt", "attack\ne\n");
        let stanza = format!("[[device]]\nname = \"{device}\"\n[packing]\nchunk_packets = 256\nbins = 40\n");
        let on_device = |text: String, kind: &str| {
            text.replace(&format!("kind = \"{kind}\""), &format!("kind = \"{kind}\"\ndevice = \"{device}\""))
        };
        let traffic = "name = \"lan\"\nkind = \"synthetic\"\npackets = 2000\nflows = 100\ndestination = \"10.0.0.0/12\"\n\
             size = { min = 60, max = 700 }\npayload = \"pattern\"\npatterns = \"patterns.txt\"";
        // Port `wan` receives nothing.
        let text = GATEWAY.replace("[[chain]]\n    from = \"wan\"\n    to = \"lan\"\n", "");
        let text = text.replace("name = \"lan\"\n    kind = \"synthetic\"", traffic);
        let text = stanza + &on_device(on_device(text, "dpi"), "ipv4");
        let (report, found) = run(&text, folder.path(), &json!({ "count": 4096 }), &Options::default());
        assert!(report.lost_devices.is_empty(), "{:?}", report.lost_devices);
        assert_eq!(found.packets.len(), 2000);
        assert_agreement(&report, &found);
        let expected = [
            "branch > inspect".to_owned(),
            format!("inspect bin of {device}"),
            format!("to {device}"),
            format!("from {device}"),
            "inspect: clean > route (led)".to_owned(),
            "route: forward > wan".to_owned(),
            "sent by wan".to_owned(),
        ];
        let continued = found.packets.iter().filter(|packet| path(packet) == expected).count();
        let clean = count(&report, "dpi_verdict_clean{function=\"inspect\"}");
        assert!(clean > 0 && continued as u64 == clean, "{continued} of {clean}: {:?}", path(&found.packets[0]));
    }
}

/// Device that returns no chunk before the test allows it.
struct Gated {
    capabilities: Capabilities,
    cpu: Arc<CpuDevice>,
    /// Number of submitted chunks.
    submitted: Arc<AtomicUsize>,
    is_open: Arc<AtomicBool>,
}

impl Device for Gated {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn choices(&self) -> Vec<Choice> {
        self.cpu.choices()
    }

    fn lane(self: Arc<Self>) -> Result<Box<dyn Lane>, DeviceError> {
        let cpu = Arc::clone(&self.cpu).lane()?;
        Ok(Box::new(GatedLane { device: self, cpu }))
    }
}

struct GatedLane {
    device: Arc<Gated>,
    cpu: Box<dyn Lane>,
}

impl Lane for GatedLane {
    fn submit(&mut self, region: &mut Region, chunk: Chunk) -> Result<(), Box<Rejected>> {
        self.cpu.submit(region, chunk)?;
        self.device.submitted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn poll(&mut self, region: &mut Region) -> Result<Option<Chunk>, DeviceError> {
        if self.device.is_open.load(Ordering::SeqCst) { self.cpu.poll(region) } else { Ok(None) }
    }

    fn in_flight(&self) -> usize {
        self.cpu.in_flight()
    }

    fn bin_times(&self) -> &[BinTime] {
        self.cpu.bin_times()
    }
}

#[test]
fn a_packet_in_flight_at_the_end_of_a_trace_is_shown_as_such() {
    let (submitted, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (device_submitted, device_is_open) = (Arc::clone(&submitted), Arc::clone(&is_open));
    let opener = Opener(Arc::new(move |requested, programs, _, _| {
        (requested == FAULTY).then(|| {
            let cpu = Arc::new(CpuDevice::new(programs.to_vec())?);
            let capabilities = Capabilities { id: FAULTY.to_owned(), ..cpu.capabilities().clone() };
            let (submitted, is_open) = (Arc::clone(&device_submitted), Arc::clone(&device_is_open));
            Ok(Arc::new(Gated { capabilities, cpu, submitted, is_open }) as Arc<dyn Device>)
        })
    }));
    let text = TWICE.replace("workers = 2", "workers = 1").replace("packets = 3000", "packets = 1");
    let engine = Engine::new(config(&text), &Options { opener: Some(opener), ..Options::default() }).unwrap();
    let trace = engine.trace(&json!({ "count": 2 })).unwrap();
    let (report, found) = std::thread::scope(|scope| {
        let running = scope.spawn(|| engine.run(&Arc::new(AtomicBool::new(false)), None, &mut |_| {}).unwrap());
        while submitted.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let unfinished = trace.read(Duration::ZERO);
        assert!(unfinished.packets.is_empty() && !unfinished.over, "{unfinished:?}");
        let found = trace.stop();
        is_open.store(true, Ordering::SeqCst);
        (running.join().unwrap(), found)
    });
    assert_eq!((report.conservation.received, report.conservation.sent), (1, 1));
    let [packet] = found.packets.as_slice() else { panic!("{found:?}") };
    assert_eq!((packet.fate, path(packet).pop().as_deref()), (Fate::InFlight, Some("to opencl:9")));
}
