//! Placements that change while packets flow. No packet is lost or overtaken, and the decisions are
//! those of the planner alone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use godwit_device::{Mode, opencl};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Opener, Options, Recorded, Report};
use godwit_sched::place::{
    FunctionSetup, Grid, Machine, MachineSetup, PlaceSet, PlaceSetup, Planner, PlannerConfig, Profile,
};
use godwit_test_support::{ConfigText, ControlClient, Folder, skip};
use serde_json::{Value, json};

use crate::common::{FAULTY, config, count};
use crate::faults::{Faults, Loss, opener};
use crate::recorder::{self, Record};
use crate::socket::run_with_socket;

/// Number of placements that the workers must take.
const SWITCHES: u64 = 200;
/// Packets that arrive before the next request, so that each placement processes some.
const PACKETS: u64 = 20;
/// Recorders by number, and whether they need packets in order.
const RECORDERS: [(&str, bool); 2] = [("one", false), ("two", true)];
const SMALL_CHUNKS: &str = "chunk_packets = 64\nbins = 5\nbin_packets = 32\nwatchdog_ms = 100000";

/// Configuration with two functions that may run on the CPU and on `device`.
fn text(device: &str, device_keys: &str, workers: usize, placement: &str) -> String {
    let keys = format!("device = [\"cpu\", \"{device}\"]");
    ConfigText::new()
        .engine(&format!("workers = {workers}\nin_flight_packets = 1024\nburst_packets = 64"))
        .table("placement", placement)
        .device(device, device_keys)
        .port("net", "synthetic", "size = 100\nflows = 1000\nseed = 7\nprobe = true\nrate = \"50kpps\"")
        .function("one", "template", &keys)
        .function("two", "template", &keys)
        .path(&["net", "one", "two", "net"])
        .to_string()
}

/// Returns a profile of this machine, in which the CPU has a low latency and the device a high
/// rate.
fn profile(config: &Config, device: &str) -> String {
    let here = config.identity();
    let mut text = format!(
        "format = 1\nnoise_cv = 0.02\n[machine]\ncpu = {:?}\ncores = {}\nconfig = {:?}\ngodwit = {:?}\n\
         [host]\nreceive_ns = 30.0\nstream_ns = 5.0\n",
        here.cpu, here.cores, here.config, here.godwit
    );
    for function in &config.functions {
        let curve = |device: &str, fit: &str| {
            format!(
                "[[curve]]\nfunction = {:?}\ndevice = {device:?}\nfit = {{ {fit}, error_median = 0.02 }}\n",
                function.name
            )
        };
        text += &curve("cpu", "packet_ns = 400.0, floor_ns = 400.0, trip_ns = 5000.0");
        let fit = "chunk_ns = 2000.0, packet_ns = 20.0, host_ns = 30.0, submit_ns = 7000.0, trip_ns = 90000.0";
        text += &curve(device, fit);
    }
    let power = |device: &str, asleep: f64, awake: f64| {
        format!(
            "[[power]]\ndevice = {device:?}\nmeter = \"rapl\"\nasleep = {asleep:?}\nawake = {awake:?}\nwake_us = 10.0\n\
             points = [{{ use = 1.0, watts = {:?} }}]\n",
            2.0 * awake
        )
    };
    text += &power("cpu", 10.0, 20.0);
    text += &power(device, 50.0, 80.0);
    format!("{text}[summary]\ncurves = {}\npoints = 0\npairs = 0\n", 2 * config.functions.len())
}

/// Configuration with its profile in a folder.
struct Placed {
    config: Config,
    record: Arc<Record>,
    profile: String,
    path: PathBuf,
    _folder: Folder,
}

impl Placed {
    fn new(text: &str, device: &str) -> Self {
        let folder = Folder::new();
        let path = folder.join("profile.toml");
        let mut config = config(&text.replace("PROFILE", &path.display().to_string()));
        let record = recorder::install(&mut config, &RECORDERS, 0);
        let profile = profile(&config, device);
        std::fs::write(&path, &profile).unwrap();
        Self { config, record, profile, path, _folder: folder }
    }

    /// Returns the cost model that the engine must use.
    fn machine(&self) -> Machine {
        let place = |device: &godwit_engine::config::DeviceConfig| PlaceSetup {
            id: device.id.clone(),
            device: device.id.clone(),
            persistent: device.mode == Mode::Persistent,
            chunk_packets: device.packing.chunk_packets,
            bin_packets: device.packing.bin_packets,
            deadline_ns: device.packing.deadline_ns,
            chunks: device.chunks as u8 - 1,
        };
        let function = |name: &str| FunctionSetup { name: name.to_owned(), places: PlaceSet::of([0, 1]) };
        let setup = MachineSetup {
            workers: self.config.engine.workers as u16,
            functions: vec![function("one"), function("two")],
            places: self.config.devices.iter().map(place).collect(),
        };
        Machine::new(&Profile::parse(&self.profile).unwrap(), &setup).unwrap()
    }
}

fn policy(name: &str, under: Option<&str>, placement: Option<&str>) -> Value {
    let mut request = json!({ "command": "policy", "policy": name });
    for (key, value) in [("under", under), ("placement", placement)] {
        if let Some(value) = value {
            request[key] = value.into();
        }
    }
    request
}

fn wait_for_packets(record: &Record, count: u64) {
    let received = || record.received.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>();
    let until = received() + count;
    while received() < until {
        std::thread::yield_now();
    }
}

/// Asserts that no packet was lost or overtaken.
fn assert_kept(report: &Report) {
    let flow = report.conservation;
    let probes = report.ports[0].probes.unwrap();
    assert_eq!((flow.sent, flow.dropped, flow.in_flight), (flow.received, 0, 0), "{flow}");
    assert_eq!((probes.received, probes.reordered), (flow.received, 0));
    let functions = report.functions.iter();
    assert!(functions.map(|function| function.packets).all(|packets| packets == flow.received));
}

/// Asserts that a planner without an engine decides the same, one decision after another.
fn assert_same_decisions(placed: &Placed, recorded: &[Recorded], goal: godwit_sched::place::Goal) {
    let grid = Grid { feeder_quarters: vec![0], worker_halvings: vec![0], ..Grid::default() };
    let mut planner = Planner::new(placed.machine(), goal, PlannerConfig { grid, ..PlannerConfig::default() });
    let mut looks = 0;
    for recorded in recorded {
        match recorded {
            Recorded::Goal(goal) => planner.set_goal(*goal),
            Recorded::Pin(choice) => planner.pin(choice.clone()),
            Recorded::Look(seen, decision) => {
                assert_eq!(planner.look(seen), **decision, "look {looks}");
                looks += 1;
            }
        }
    }
    assert!(looks as u64 > SWITCHES, "{looks}");
}

/// Cycles through all policies until the workers have taken [`SWITCHES`] placements.
fn switch(device: &str, device_keys: &str, workers: usize, opener: Option<Opener>) {
    let mut placed = Placed::new(&text(device, device_keys, workers, "profile = \"PROFILE\""), device);
    let goal = placed.config.placement.as_ref().unwrap().goal;
    let both = |place: &str| format!("one={place} two={place}");
    let (cpu, other, halves) = (both("cpu"), both(device), both(&format!("50%cpu+50%{device}")));
    let recorder = Arc::new(Mutex::new(Vec::new()));
    let options = Options { opener, recorder: Some(Arc::clone(&recorder)), ..Options::default() };
    let record = Arc::clone(&placed.record);
    let config =
        std::mem::replace(&mut placed.config, config(&text(device, device_keys, workers, "profile = \"PROFILE\"")));
    let report = run_with_socket(config, options, |path| {
        let mut client = ControlClient::connect(path);
        let mut number = 0;
        while number < SWITCHES {
            for request in [
                policy("throughput", None, None),
                policy("hold", None, Some(&cpu)),
                policy("latency", None, None),
                policy("hold", None, Some(&other)),
                policy("latency-bound", Some("200us"), None),
                policy("hold", None, Some(&halves)),
                policy("energy", None, None),
                policy("hold", None, Some(&cpu)),
                policy("power-cap", Some("300W"), None),
                policy("hold", None, Some(&other)),
            ] {
                let result = client.result(&request);
                assert_eq!((&result["policy"], &result["under"]), (&request["policy"], &request["under"]), "{result}");
                if let Some(placement) = request["placement"].as_str() {
                    let text = result["placement"].as_str().unwrap();
                    assert!(text.starts_with(&format!("{placement} workers={workers}")), "{placement}: {text}");
                }
                number = result["number"].as_u64().unwrap();
                wait_for_packets(&record, PACKETS);
            }
        }
        let shown = client.result(&json!({ "command": "policy" }));
        assert_eq!(shown["decisions"].as_array().unwrap().len(), 10, "{shown}");
        assert_eq!(client.result(&json!({ "command": "status" }))["placement"]["policy"], "hold");
    });
    assert_kept(&report);
    for id in ["cpu", device] {
        assert!(count(&report, &format!("device_packets{{device=\"{id}\"}}")) > PACKETS, "{id}");
    }
    assert_same_decisions(&placed, &recorder.lock().unwrap(), goal);
}

#[test]
fn policies_switch_placements_without_loss_and_in_order() {
    let faults = Faults { delay_polls: 5, fails_each: 0, loss: None };
    for workers in [1, 2] {
        switch(FAULTY, SMALL_CHUNKS, workers, Some(opener(FAULTY, faults)));
    }
}

#[test]
fn policies_switch_placements_on_an_opencl_device() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable OpenCL device");
        return;
    };
    switch(&found.capabilities.id, SMALL_CHUNKS, 1, None);
}

#[test]
fn a_flag_selects_the_next_policy() {
    let faults = Faults { delay_polls: 1, fails_each: 0, loss: None };
    let placed = Placed::new(&text(FAULTY, SMALL_CHUNKS, 1, "profile = \"PROFILE\"\npolicy = \"energy\""), FAULTY);
    let next = Arc::new(AtomicBool::new(false));
    let options =
        Options { opener: Some(opener(FAULTY, faults)), next_policy: Some(Arc::clone(&next)), ..Options::default() };
    let report = run_with_socket(placed.config, options, |path| {
        let mut client = ControlClient::connect(path);
        let policy_after = |client: &mut ControlClient| {
            next.store(true, Ordering::Relaxed);
            while next.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            client.result(&json!({ "command": "policy" }))["policy"].as_str().unwrap().to_owned()
        };
        // The power cap and the latency bound have no limit yet, so they are skipped.
        let names: Vec<String> = (0..4).map(|_| policy_after(&mut client)).collect();
        assert_eq!(names, ["hold", "throughput", "latency", "energy"]);
        client.result(&policy("latency-bound", Some("150us"), None));
        client.result(&policy("power-cap", Some("400W"), None));
        let names: Vec<String> = (0..6).map(|_| policy_after(&mut client)).collect();
        assert_eq!(names, ["hold", "throughput", "latency", "latency-bound", "energy", "power-cap"]);
        assert_eq!(client.result(&json!({ "command": "policy" }))["under"], "400W");
    });
    assert_kept(&report);
}

#[test]
fn a_lost_device_leaves_the_placement() {
    let text = text(
        FAULTY,
        SMALL_CHUNKS,
        2,
        &format!("profile = \"PROFILE\"\npolicy = \"hold\"\nhold = \"one={FAULTY} two={FAULTY}\""),
    );
    let placed = Placed::new(&text, FAULTY);
    let faults = Faults { delay_polls: 2, fails_each: 0, loss: Some((Loss::Dies, 20)) };
    let options = Options { opener: Some(opener(FAULTY, faults)), ..Options::default() };
    let record = Arc::clone(&placed.record);
    let report = run_with_socket(placed.config, options, |path| {
        let mut client = ControlClient::connect(path);
        let shown = loop {
            let shown = client.result(&json!({ "command": "policy" }));
            if !shown["placement"].as_str().unwrap().contains(FAULTY) {
                break shown;
            }
            std::thread::yield_now();
        };
        let last = shown["decisions"].as_array().unwrap().last().unwrap()["sentence"].as_str().unwrap().to_owned();
        assert!(last.contains(&format!("{FAULTY} is lost")), "{last}");
        let error = client.error(&policy("hold", None, Some(&format!("one={FAULTY}"))));
        assert_eq!(error, format!("device `{FAULTY}` is lost"));
        client.result(&policy("throughput", None, None));
        wait_for_packets(&record, 1000);
    });
    let flow = report.conservation;
    let lost = count(&report, "engine_dropped_device_lost");
    assert!(flow.holds() && flow.dropped == lost && flow.in_flight == 0, "{flow}");
    assert_eq!((report.lost_devices.len(), report.ports[0].probes.unwrap().reordered), (1, 0));
}

#[test]
fn requests_that_cannot_be_met_are_refused_and_change_nothing() {
    let faults = Faults { delay_polls: 1, fails_each: 0, loss: None };
    let placed = Placed::new(&text(FAULTY, SMALL_CHUNKS, 1, "profile = \"PROFILE\"\npolicy = \"latency\""), FAULTY);
    let options = Options { opener: Some(opener(FAULTY, faults)), ..Options::default() };
    let report = run_with_socket(placed.config, options, |path| {
        let mut client = ControlClient::connect(path);
        for (request, part) in [
            (policy("speed", None, None), "`speed` is not a policy; the policies are throughput, latency"),
            (policy("energy", Some("3W"), None), "policy `energy` has no limit"),
            (policy("latency-bound", None, None), "needs a limit: set `under`, for example to 200us"),
            (policy("power-cap", Some("300"), None), "`300` is no limit"),
            (policy("energy", None, Some("one=cpu")), "policy `energy` takes no placement"),
            (policy("hold", None, Some("three=cpu")), "there is no function `three`; the functions are one, two"),
            (policy("hold", None, Some("one=cuda:7")), "function `one` cannot run on `cuda:7`"),
            (policy("hold", None, Some("one=60%cpu")), "add up to 60 %"),
            (policy("hold", None, Some("workers=0")), "workers = 0"),
            (json!({ "command": "policy", "policy": 7 }), "`policy` must be a string"),
            (json!({ "command": "policy", "under": "3W" }), "need the string `policy`"),
            (json!({ "command": "policy", "goal": "energy" }), "`goal`"),
        ] {
            let error = client.error(&request);
            assert!(error.contains(part) && !error.contains('\n'), "{request}: {error}");
        }
        assert_eq!(client.result(&json!({ "command": "policy" }))["policy"], "latency");
    });
    assert_kept(&report);
    let text = ConfigText::new().port("net", "synthetic", "rate = \"1kpps\"").function("one", "echo", "");
    let plain = config(&text.path(&["net", "one", "net"]).to_string());
    run_with_socket(plain, Options::default(), |path| {
        let error = ControlClient::connect(path).error(&json!({ "command": "policy" }));
        assert!(error.contains("no placement is configured: add [placement]"), "{error}");
    });
}

/// Checks a profile that was changed by `edit`. Returns the error.
fn refused(placement: &str, edit: impl FnOnce(&str) -> String) -> String {
    let placed = Placed::new(&text(FAULTY, SMALL_CHUNKS, 1, placement), FAULTY);
    assert!(placed.config.check_placement().is_ok() || placement.contains("hold ="));
    std::fs::write(&placed.path, edit(&placed.profile)).unwrap();
    let error = placed.config.check_placement().unwrap_err().to_string();
    let faults = Faults { delay_polls: 1, fails_each: 0, loss: None };
    let options = Options { opener: Some(opener(FAULTY, faults)), ..Options::default() };
    let at_start = Engine::new(placed.config, &options).map(|_| ()).unwrap_err();
    assert!(
        at_start.is_users() && error.ends_with(at_start.to_string().trim_start_matches("[placement]: ")),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn profiles_that_do_not_fit_are_refused_with_one_sentence() {
    let plain = "profile = \"PROFILE\"";
    let replace = |from: &'static str, to: &'static str| {
        move |text: &str| {
            assert!(text.contains(from), "{from}: {text}");
            text.replacen(from, to, 1)
        }
    };
    let capped = "profile = \"PROFILE\"\npolicy = \"power-cap\"\nunder = \"300W\"";
    let without_power = |text: &str| {
        let (before, power) = text.split_once("[[power]]").unwrap();
        before.to_owned() + &power[power.find("[summary]").unwrap()..]
    };
    for (error, part) in [
        (refused(plain, replace("cpu = \"", "cpu = \"Z80, not ")), "measured with cpu = Z80, not "),
        (refused(plain, replace("config = \"", "config = \"0")), "measured with config = 0"),
        (refused(plain, replace("godwit = \"", "godwit = \"9.")), "has version 9."),
        (refused(plain, replace("format = 1", "format = 2")), "has format 2, but this Godwit needs format 1"),
        (refused(plain, |text| text[..text.len() - 40].to_owned()), "the profile is"),
        (refused(plain, |text| text[..text.len() / 2].to_owned()), "the profile is"),
        (
            refused(plain, replace("packet_ns = 400.0", "packet_ns = 1e30")),
            "packet_ns = 1000000000000000000000000000000 is impossible",
        ),
        (refused(plain, replace("host_ns = 30.0", "host_ns = -1.0")), "host_ns = -1 is impossible"),
        (
            refused(
                plain,
                replace("function = \"two\"\ndevice = \"opencl:9\"", "function = \"six\"\ndevice = \"opencl:9\""),
            ),
            "no measurement of function `two` on device `opencl:9` in mode launch",
        ),
        (refused(capped, without_power), "policy `power-cap` needs a power meter"),
    ] {
        assert!(error.contains(part) && error.contains("profile.toml: "), "{part}: {error}");
        assert!(error.starts_with("test.toml:"), "{error}");
    }
    let wrong_hold = "profile = \"PROFILE\"\npolicy = \"hold\"\nhold = \"one=cuda:3\"";
    let error = refused(wrong_hold, str::to_owned);
    assert!(error.contains("hold: function `one` cannot run on `cuda:3`"), "{error}");
    let placed = Placed::new(&text(FAULTY, SMALL_CHUNKS, 1, plain), FAULTY);
    std::fs::remove_file(&placed.path).unwrap();
    let error = placed.config.check_placement().unwrap_err().to_string();
    assert!(error.contains("cannot read the profile") && error.contains("`godwit profile CONFIG -o "), "{error}");
}

/// A profile of another device of the same name is refused.
#[test]
fn a_profile_of_another_device_is_refused() {
    let probe = opencl::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable OpenCL device");
        return;
    };
    let id = &found.capabilities.id;
    let placed = Placed::new(&text(id, SMALL_CHUNKS, 1, "profile = \"PROFILE\""), id);
    let other = format!("devices = {{ {id:?} = \"another device\" }}\nconfig = ");
    std::fs::write(&placed.path, placed.profile.replacen("config = ", &other, 1)).unwrap();
    let error = placed.config.check_placement().unwrap_err().to_string();
    assert!(error.contains(&format!("{id} = another device, but this machine has ")), "{error}");
}

/// Without `[placement]`, the same functions are balanced as before, and nothing is measured.
#[test]
fn a_configuration_without_placement_has_none() {
    let text =
        text(FAULTY, SMALL_CHUNKS, 1, "profile = \"PROFILE\"").replace("[placement]\nprofile = \"PROFILE\"\n", "");
    let config = Config::parse(&text, "test.toml", Path::new(".")).unwrap();
    assert!(config.placement.is_none() && config.check_placement().is_ok());
    let faults = Faults { delay_polls: 1, fails_each: 0, loss: None };
    let report =
        run_with_socket(config, Options { opener: Some(opener(FAULTY, faults)), ..Options::default() }, |path| {
            let status = ControlClient::connect(path).result(&json!({ "command": "status" }));
            assert!(status.get("placement").is_none());
        });
    assert!(report.placement.is_none());
}
