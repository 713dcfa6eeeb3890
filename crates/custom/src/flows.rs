//! Runs `find`, `miss` and `update` of a user function, which keep the flow state. The C code is in
//! `kernels/tables/flows.h` and `kernels/dialect/loop_flows.c`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::marker::PhantomData;
use std::sync::Arc;

use godwit_abi::Outcome;
use godwit_packet::{Error, Image, ImageRef, Memory};

/// Number of steering buckets. C code returns it if the flow hash selects the worker.
const BUCKETS: u32 = godwit_packet::BUCKETS as u32;

/// C functions of one library. The field `NAME` holds the symbol `gw_custom_flows_NAME`.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    pub(crate) open: unsafe extern "C" fn(*mut u8, *const FlowsConfig) -> u64,
    pub(crate) prepare: unsafe extern "C" fn(*mut u8, *const FlowsCall<'_>),
    pub(crate) counts: unsafe extern "C" fn(*const u8, *mut FlowCounts),
    pub(crate) bucket: unsafe extern "C" fn(*const u8, *const u8, u64) -> u32,
}

/// Properties of the state of flows (`gw_flows_config` in C).
#[repr(C)]
#[derive(Debug)]
pub struct FlowsConfig {
    image: *const u8,
    seed: u64,
    capacity: u32,
    reserved: u32,
}

/// Frame of a packet (`gw_flows_frame` in C), whose bytes stay borrowed while this value exists.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FlowFrame<'a> {
    bytes: *const u8,
    length: u64,
    frame: PhantomData<&'a [u8]>,
}

/// Packets to prepare, and pointers to the results (`gw_flows_call` in C).
#[repr(C)]
#[derive(Debug)]
pub struct FlowsCall<'a> {
    frames: *const FlowFrame<'a>,
    times_ns: *const u64,
    now_ns: u64,
    settled: *mut u8,
    parameters: *mut u64,
    outcomes: *mut Outcome,
    count: u32,
    group: u32,
}

/// Flow counts of a worker, in the order of the function's counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows that exist now.
    pub active: u64,
    /// Flows that were created.
    pub created: u64,
    /// Flows that were removed because their timer ended.
    pub expired: u64,
    /// Flows that were not created, because the table, a limit or a resource was exhausted.
    pub refused: u64,
}

/// Work that `find`, `miss` and `update` chose for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowWork {
    /// The kernel runs with this parameter.
    Kernel(u64),
    /// The packet has this outcome, without the kernel.
    Settled(Outcome),
}

/// Time of the packets of a batch, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum FlowTime<'a> {
    /// All packets have this time.
    Now(u64),
    /// Each packet has its own time.
    Each(&'a [u64]),
}

/// State of the flows of one worker.
#[derive(Debug)]
pub struct Flows {
    entries: Entries,
    memory: Memory,
    /// Table image of the function, which `memory` points to.
    _image: Arc<Image>,
    settled: Vec<u8>,
    parameters: Vec<u64>,
    outcomes: Vec<Outcome>,
}

impl Flows {
    /// Creates the state for at most `capacity` flows.
    ///
    /// # Errors
    /// Returns an error if there is too little memory.
    pub fn new(entries: Entries, image: Arc<Image>, capacity: u32) -> Result<Self, Error> {
        let memory = Memory::new(entries.bytes(&image, capacity), "the flows of a function")?;
        let config = entries.config(&image, capacity);
        // SAFETY: the memory is zero, aligned to a page, and has the size for this configuration.
        // The configuration and the image are valid, and the image lives as long as this value.
        unsafe { (entries.open)(memory.base().as_ptr(), &config) };
        Ok(Self { entries, memory, _image: image, settled: Vec::new(), parameters: Vec::new(), outcomes: Vec::new() })
    }

    /// Finds, creates and updates the flows of packets in their order, and calls `work` for each
    /// packet. Lookups of different packets overlap only if `interleaves` is true. Without packets,
    /// this only removes expired flows.
    ///
    /// # Panics
    /// Panics if there is not one time per packet.
    pub fn prepare(
        &mut self,
        frames: &[FlowFrame<'_>],
        time: FlowTime<'_>,
        interleaves: bool,
        mut work: impl FnMut(FlowWork),
    ) {
        let count = frames.len();
        let (now_ns, times_ns) = match time {
            FlowTime::Now(now_ns) => (now_ns, std::ptr::null()),
            FlowTime::Each(times_ns) => {
                assert_eq!(times_ns.len(), count, "one time per packet");
                (0, times_ns.as_ptr())
            }
        };
        self.settled.resize(count, 0);
        self.parameters.resize(count, 0);
        self.outcomes.resize(count, Outcome::default());
        let call = FlowsCall {
            frames: frames.as_ptr(),
            times_ns,
            now_ns,
            settled: self.settled.as_mut_ptr(),
            parameters: self.parameters.as_mut_ptr(),
            outcomes: self.outcomes.as_mut_ptr(),
            count: count as u32,
            group: if interleaves { 0 } else { 1 },
        };
        // SAFETY: `new` has opened the memory, which is borrowed exclusively. All arrays have
        // `count` elements, and each frame is a shared slice that is valid during the call.
        unsafe { (self.entries.prepare)(self.memory.base().as_ptr(), &call) };
        for ((settled, parameter), outcome) in self.settled.iter().zip(&self.parameters).zip(&self.outcomes) {
            work(if *settled == 0 { FlowWork::Kernel(*parameter) } else { FlowWork::Settled(*outcome) });
        }
    }

    /// Returns the numbers of flows.
    pub fn counts(&self) -> FlowCounts {
        let mut counts = FlowCounts::default();
        // SAFETY: `new` has opened the memory. C writes the four numbers of the struct.
        unsafe { (self.entries.counts)(self.memory.base().as_ptr(), &mut counts) };
        counts
    }
}

impl<'a> FlowFrame<'a> {
    /// Returns the frame of a packet.
    pub fn new(frame: &'a [u8]) -> Self {
        Self { bytes: frame.as_ptr(), length: frame.len() as u64, frame: PhantomData }
    }
}

impl Entries {
    /// Returns the size of the state in bytes, for at most `capacity` flows.
    pub fn bytes(&self, image: &Image, capacity: u32) -> usize {
        // SAFETY: without memory, the function only reads the configuration and the parameters in
        // the image.
        unsafe { (self.open)(std::ptr::null_mut(), &self.config(image, capacity)) as usize }
    }

    fn config(&self, image: &Image, capacity: u32) -> FlowsConfig {
        let seed = RandomState::new().build_hasher().finish();
        FlowsConfig { image: ImageRef::from(image).as_ptr(), seed, capacity, reserved: 0 }
    }

    /// Returns the steering bucket of a frame, or `None` if the flow hash selects the worker.
    pub fn bucket(&self, image: &Image, frame: &[u8]) -> Option<u32> {
        // SAFETY: the image belongs to the function, and the frame is valid for its length.
        let bucket = unsafe { (self.bucket)(ImageRef::from(image).as_ptr(), frame.as_ptr(), frame.len() as u64) };
        (bucket < BUCKETS).then_some(bucket)
    }
}
