//! Function that checks the engine: `echo`, whose host half numbers packets and asserts that each
//! one returns once. Its commands change the image and wait for packets in flight.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use godwit_abi::{Descriptor, Outcome, VERDICT_DROP};
use godwit_engine::config::Config;
use godwit_function::{Complete, Contract, Error, Function, HostHalf, Operate, Prepare, Running, Work};
use godwit_packet::{Image, ImageRef, Memory, Region};
use serde_json::{Value, json};

/// Maximum number of generations of the image.
const GENERATIONS: usize = 64;

/// Function that replaces `echo`.
struct Probe {
    echo: Arc<dyn Function>,
    image: Image,
    state: Arc<State>,
}

/// State that all workers share.
#[derive(Default)]
pub(crate) struct State {
    /// Number of changes of the image.
    generation: AtomicUsize,
    /// Number of ports in the image of each generation. It only decreases.
    ports: Mutex<Vec<u32>>,
    prepared: Vec<AtomicU64>,
    completed: Vec<AtomicU64>,
    /// Highest port that the kernel selected in each generation.
    port_max: Vec<AtomicU64>,
    /// Every `drops_each`-th packet is dropped on completion. 0 means none.
    drops_each: u64,
    pub(crate) dropped: AtomicU64,
    /// Packets that returned twice, were never prepared, or were processed with an older image.
    pub(crate) wrong: AtomicU64,
}

impl State {
    fn new(ports: u32, drops_each: u64) -> Self {
        let counts = || (0..GENERATIONS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        Self {
            ports: Mutex::new(vec![ports]),
            prepared: counts(),
            completed: counts(),
            port_max: counts(),
            drops_each,
            ..Self::default()
        }
    }

    /// Returns the numbers of prepared and completed packets, and the highest port, of a
    /// generation.
    pub(crate) fn generation(&self, generation: usize) -> [u64; 3] {
        [&self.prepared, &self.completed, &self.port_max].map(|counts| counts[generation].load(Ordering::SeqCst))
    }

    /// Returns the numbers of prepared and completed packets of all generations.
    pub(crate) fn sum(&self) -> [u64; 2] {
        [&self.prepared, &self.completed].map(|counts| counts.iter().map(|count| count.load(Ordering::SeqCst)).sum())
    }
}

/// Replaces the `echo` function `name` by a probe with `ports` ports in its image.
pub(crate) fn install(config: &mut Config, name: &str, ports: u32, drops_each: u64) -> Arc<State> {
    let function = config.functions.iter_mut().find(|function| function.name == name).unwrap();
    let mut memory = Memory::new(function.function.image().len(), "a test").unwrap();
    function.function.image().copy_to(0, &mut memory);
    memory[4..8].copy_from_slice(&ports.to_le_bytes());
    let state = Arc::new(State::new(ports, drops_each));
    let probe = Probe { echo: Arc::clone(&function.function), image: Image::new(memory), state: Arc::clone(&state) };
    function.function = Arc::new(probe);
    state
}

impl Function for Probe {
    fn contract(&self) -> &'static Contract {
        self.echo.contract()
    }

    fn image(&self) -> ImageRef<'_> {
        (&self.image).into()
    }

    fn host_half(&self, worker: usize, _workers: usize) -> Option<HostHalf> {
        let state = Arc::clone(&self.state);
        let host = ProbeHost { state, next: (worker as u64) << 32, in_flight: HashSet::new() };
        Some(HostHalf::Prepare(Box::new(host)))
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn run_ref(&self, buffer: &mut [u8], descriptor: &mut Descriptor, variant: u8, parameter: u64) -> Outcome {
        self.echo.run_ref(buffer, descriptor, variant, parameter)
    }
}

impl Operate for Probe {
    fn command(&self, request: &Value, running: &dyn Running) -> Result<Value, Error> {
        match request["command"].as_str() {
            // Removes one port, and waits until all earlier packets are completed.
            Some("fewer") => {
                let generation = {
                    let mut ports = self.state.ports.lock().unwrap();
                    let fewer = ports.last().unwrap() - 1;
                    ports.push(fewer);
                    self.image.write(4, &fewer.to_le_bytes());
                    ports.len() - 1
                };
                running.image_changed(4..8)?;
                self.state.generation.store(generation, Ordering::Release);
                running.quiesce()?;
                let left: i64 = (0..generation)
                    .map(|generation| self.state.generation(generation))
                    .map(|[prepared, completed, _]| prepared as i64 - completed as i64)
                    .sum();
                Ok(json!({ "left": left }))
            }
            Some("bug") => panic!("panic on purpose"),
            _ => Err(Error::Command { message: "unknown command of a probe".to_owned() }),
        }
    }
}

struct ProbeHost {
    state: Arc<State>,
    next: u64,
    /// Parameters of packets in flight.
    in_flight: HashSet<u64>,
}

impl Prepare for ProbeHost {
    fn prepare(&mut self, _region: &Region, descriptors: &[Descriptor], work: &mut Vec<Work>) {
        let generation = self.state.generation.load(Ordering::Acquire);
        self.state.prepared[generation].fetch_add(descriptors.len() as u64, Ordering::SeqCst);
        for _ in descriptors {
            self.next += 1;
            let parameter = (generation as u64) << 56 | self.next;
            assert!(self.in_flight.insert(parameter));
            // Only `complete` reads the variant.
            work.push(Work::Run { variant: (parameter % 3) as u8, parameter });
        }
    }
}

impl Complete for ProbeHost {
    fn complete(&mut self, variant: u8, descriptors: &[Descriptor], parameters: &[u64], outcomes: &mut [Outcome]) {
        assert_eq!([descriptors.len(), outcomes.len()], [parameters.len(); 2]);
        for (parameter, outcome) in parameters.iter().zip(outcomes) {
            let generation = (parameter >> 56) as usize;
            let ports = self.state.ports.lock().unwrap()[generation];
            let is_correct = self.in_flight.remove(parameter)
                && u64::from(variant) == parameter % 3
                && (outcome.verdict == VERDICT_DROP || u32::from(outcome.port) < ports);
            self.state.wrong.fetch_add(u64::from(!is_correct), Ordering::SeqCst);
            self.state.completed[generation].fetch_add(1, Ordering::SeqCst);
            self.state.port_max[generation].fetch_max(outcome.port.into(), Ordering::SeqCst);
            if self.state.drops_each > 0 && parameter.is_multiple_of(self.state.drops_each) {
                *outcome = Outcome::drop(0);
                self.state.dropped.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}
