//! Fuzz targets over functions and kernels together. Panics when something that must hold does not.

use std::cell::RefCell;
use std::sync::Arc;

use godwit_abi::{Bin, Descriptor, Outcome, VERDICT_DROP};
use godwit_device::cpu::CpuDevice;
use godwit_device::{Device, Implementation, Lane};
use godwit_function::{Function, HostHalf, Work, ipsec};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_sched::Chunk;

use crate::program::FunctionProgram;

/// The receiving end of some tunnels.
struct Gateway {
    function: Arc<dyn Function>,
    host_half: Box<dyn HostHalf>,
    lane: Box<dyn Lane>,
    region: Region,
    chunk: Option<Chunk>,
}

/// A frame longer than this is none.
const FRAME_BYTES_MAX: usize = 2048;

impl Gateway {
    fn new() -> Self {
        let function = ipsec::fuzz::function();
        let program = Arc::new(FunctionProgram::new("fuzzed".to_owned(), Arc::clone(&function)));
        let device = Arc::new(CpuDevice::new(vec![(program, Implementation::Scalar)]).expect("there is memory"));
        let config = ArenaConfig { packets: 2, frame_bytes_max: FRAME_BYTES_MAX, ..Default::default() };
        Self {
            host_half: function.host_half(0, 1).expect("ipsec has a host half"),
            function,
            lane: device.lane().expect("the CPU has a lane"),
            region: Arena::new(config, 1).expect("there is memory").split().remove(0),
            chunk: Some(Chunk::new(1, 1)),
        }
    }

    fn pass(&mut self, frame: &[u8]) {
        let before = self.region.allocate(frame.len()).expect("there is a window");
        self.region.window_mut(&before).fill(0x5a);
        self.region.frame_mut(&before).copy_from_slice(frame);
        let mut work = Vec::new();
        self.host_half.prepare(&self.region, &[before], &mut work);
        match work[..] {
            [Work::Done(outcome)] => self.check_outcome(outcome),
            [Work::Run { variant, parameter }] => self.run(before, variant, parameter),
            _ => panic!("{} things are to be done with one packet", work.len()),
        }
        self.region.release(&before);
        assert_eq!(self.region.allocated(), 0);
    }

    /// Through the kernel, which does what the reference does.
    fn run(&mut self, before: Descriptor, variant: u8, parameter: u64) {
        let mut window = self.region.window_mut(&before).to_vec();
        let mut expected = before;
        let outcome = self.function.run_ref(&mut window, &mut expected, variant, parameter);
        let mut chunk = self.chunk.take().expect("it comes back each time");
        chunk.bins.clear();
        let kernel = self.function.contract().kernel;
        chunk.bins.push(Bin { count: 1, kernel, variant, length_bytes: before.length, ..Bin::default() });
        chunk.packets = 1;
        (chunk.descriptors[0], chunk.parameters[0]) = (before, parameter);
        self.lane.submit(&mut self.region, chunk).expect("the chunk is sound");
        let mut chunk = self.lane.poll(&mut self.region).expect("the CPU does not fail").expect("it is done at once");
        let after = chunk.descriptors[0];
        assert_eq!(chunk.outcomes[0], outcome, "the kernel and ref do not agree");
        if outcome.verdict != VERDICT_DROP {
            assert_eq!(after, expected);
            let head = usize::from(expected.head);
            let frame = &window[head..head + usize::from(expected.length)];
            assert!(self.region.frame(&after) == frame, "the kernel and ref make different packets");
        }
        self.host_half.complete(variant, &[after], &[parameter], &mut chunk.outcomes[..1]);
        self.check_outcome(chunk.outcomes[0]);
        self.chunk = Some(chunk);
    }

    /// It is one that the contract names.
    fn check_outcome(&self, outcome: Outcome) {
        let contract = self.function.contract();
        match outcome.verdict {
            VERDICT_DROP => assert!(usize::from(outcome.reason) < contract.drops.len()),
            verdict => assert!(usize::from(verdict) < contract.verdicts.len()),
        }
    }
}

/// Takes `data` as a frame for some inbound SAs, or as what is inside an authentic packet: [`ipsec::fuzz::frame`].
pub fn ipsec_inbound(data: &[u8]) {
    thread_local! {
        static GATEWAY: RefCell<Gateway> = RefCell::new(Gateway::new());
    }
    let frame = ipsec::fuzz::frame(data);
    if frame.len() <= FRAME_BYTES_MAX {
        GATEWAY.with_borrow_mut(|gateway| gateway.pass(&frame));
    }
}
