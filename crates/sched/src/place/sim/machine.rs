//! The simulated machine: 16 cores and one GPU with two modes.
//!
//! The costs are close to those of 16 cores and an NVIDIA H200. The power of the cores is invented,
//! because the real machine has no power meter. Results therefore describe the planner, not a real
//! machine.

use super::super::model::{FunctionSetup, Machine, MachineSetup, PlaceSetup};
use super::super::placement::PlaceSet;
use super::super::profile::{Bus, Curve, Fit, Host, Identity, Power, PowerPoint, Profile};
use super::super::search::Grid;

/// Number of workers.
const WORKERS: u16 = 16;
/// Relative error of the costs in each curve of the profile.
const ERROR: f64 = 0.03;

/// State of a sleeping GPU, which determines the time to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The GPU threads that wait for packets are parked, and the GPU context stays open. Waking the
    /// GPU takes 20 us.
    Parked,
    /// The GPU context is released. Waking the GPU takes 250 ms.
    Released,
}

/// Returns the model of the simulated machine with 16 cores and one GPU.
///
/// # Panics
/// Never panics, because the profile of this machine is complete.
pub fn machine(wake: Wake) -> Machine {
    let names = ["inspect", "tunnel"];
    let all = PlaceSet::of([0, 1, 2]);
    let place = |id: &str, device: &str, persistent: bool, chunk_packets: u32, deadline_ns: u64| PlaceSetup {
        id: id.to_owned(),
        device: device.to_owned(),
        persistent,
        chunk_packets,
        bin_packets: 64,
        deadline_ns,
        chunks: if persistent { 4 } else { 1 },
    };
    let setup = MachineSetup {
        workers: WORKERS,
        functions: names.map(|name| FunctionSetup { name: name.to_owned(), places: all }).to_vec(),
        places: vec![
            place("cpu", "cpu", false, 256, 100_000),
            place("cuda:0", "cuda:0", false, 16_384, 1_000_000),
            place("cuda:0/mailbox", "cuda:0", true, 1024, 100_000),
        ],
    };
    // The profile contains the costs of every function on every device.
    Machine::new(&profile(wake), &setup).expect("complete profile")
}

/// Returns the machine settings that simulations try. There are fewer than in the default grid,
/// because many seeds are simulated.
pub fn sim_grid() -> Grid {
    Grid { levels: vec![0, 1], feeder_quarters: vec![0, 1], worker_halvings: vec![0, 1, 2, 3] }
}

fn profile(wake: Wake) -> Profile {
    let curve = |function: &str, device: &str, mode: &str, fit: Fit| Curve {
        function: function.to_owned(),
        device: device.to_owned(),
        mode: mode.to_owned(),
        points: Vec::new(),
        fit: Some(Fit { tail: 1.5, error_median: ERROR, error_max: 2.0 * ERROR, ..fit }),
    };
    let on_cpu = |packet_ns: f64, byte_ns: f64| Fit {
        packet_ns,
        byte_ns,
        floor_ns: 50.0,
        trip_ns: 9_000.0,
        trip_byte_ns: 8.0,
        ..Fit::default()
    };
    let on_gpu = |host_ns: f64, packet_ns: f64, byte_ns: f64, trip_ns: f64| Fit {
        chunk_ns: 2_000.0,
        packet_ns,
        byte_ns,
        host_ns,
        submit_ns: 7_000.0,
        trip_ns,
        trip_byte_ns: 15.0,
        ..Fit::default()
    };
    let power = |device: &str, asleep: f64, awake: f64, full: f64, wake_us: f64| Power {
        device: device.to_owned(),
        meter: "none".to_owned(),
        asleep,
        awake,
        wake_us,
        points: vec![PowerPoint { load: 1.0, watts: full }],
    };
    let (asleep, wake_us) = match wake {
        Wake::Parked => (100.0, 20.0),
        Wake::Released => (78.0, 250_000.0),
    };
    Profile {
        format: 1,
        noise_cv: 0.02,
        machine: Identity::default(),
        host: Host { receive_ns: 28.0, stream_ns: 5.0, mixed_ns: 10.0 },
        receives: Vec::new(),
        curves: vec![
            curve("inspect", "cpu", "launch", on_cpu(-60.0, 2.0)),
            curve("inspect", "cuda:0", "launch", on_gpu(31.0, 2.2, 0.0255, 90_000.0)),
            curve("inspect", "cuda:0", "persistent", on_gpu(45.0, 3.5, 0.021, 24_000.0)),
            curve("tunnel", "cpu", "launch", on_cpu(68.0, 0.45)),
            curve("tunnel", "cuda:0", "launch", on_gpu(40.0, 1.7, 0.0253, 85_000.0)),
            curve("tunnel", "cuda:0", "persistent", on_gpu(55.0, 4.0, 0.027, 28_000.0)),
        ],
        pairs: Vec::new(),
        powers: vec![power("cpu", 40.0, 136.0, 200.0, 50.0), power("cuda:0", asleep, 118.0, 300.0, wake_us)],
        buses: vec![Bus {
            name: "PCIe".to_owned(),
            devices: vec!["cuda:0".to_owned()],
            in_gbps: 400.0,
            out_gbps: 400.0,
            packet_bytes: 32.0,
        }],
        summary: None,
    }
}
