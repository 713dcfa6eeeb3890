//! Observer of a worker's packets. The parts of the worker report each step to it. It passes the
//! steps to the tracer while packets are traced.
//!
//! Each method has one inlined branch, which is false without a trace. A part therefore reports
//! its steps unconditionally.

use godwit_abi::Outcome;
use godwit_function::WorkColumns;
use godwit_io::Departure;
use godwit_packet::{Descriptor, Region, Stamp};
use godwit_sched::Chunk;

use crate::observe::trace::{Origin, Tracer};
use crate::plan::chain_plan::ChainPlan;

/// Observer of the packets of one worker.
pub(crate) struct Observer {
    tracer: Tracer,
}

impl Observer {
    pub(crate) fn new(tracer: Tracer) -> Self {
        Self { tracer }
    }

    /// Checks for the start or end of a trace. The worker calls this once per loop iteration,
    /// before it receives packets.
    #[inline]
    pub(crate) fn poll(&mut self) {
        self.tracer.poll();
    }

    /// Returns whether a trace chooses among arriving packets.
    #[inline]
    pub(crate) fn is_choosing(&self) -> bool {
        self.tracer.is_choosing()
    }

    /// Packets arrived from a port. `now_ns` is their time of arrival on the worker's clock.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        plan: &ChainPlan,
        region: &Region,
        packets: &[Descriptor],
        stamps: &[Stamp],
        now_ns: u64,
    ) {
        if self.tracer.is_choosing() {
            self.tracer.choose(plan, region, packets, stamps, now_ns, &Origin::Port);
        }
    }

    /// `function` created a packet, but not from another packet.
    #[inline]
    pub(crate) fn created(
        &mut self,
        plan: &ChainPlan,
        region: &Region,
        function: usize,
        packet: &Descriptor,
        stamp: Stamp,
        now_ns: u64,
    ) {
        if self.tracer.is_choosing() {
            let origin = Origin::Function(&plan.stages[function].name);
            self.tracer.choose(plan, region, std::slice::from_ref(packet), &[stamp], now_ns, &origin);
        }
    }

    /// The host half of `function` prepared these packets. Without a host half, `work` is empty.
    #[inline]
    pub(crate) fn prepared(&mut self, plan: &ChainPlan, function: usize, packets: &[Descriptor], work: &WorkColumns) {
        if self.tracer.is_tracing() {
            self.tracer.prepared(plan, function, packets, work);
        }
    }

    /// The host half of `function` created `packet` from `original`.
    #[inline]
    pub(crate) fn split(
        &mut self,
        plan: &ChainPlan,
        region: &Region,
        function: usize,
        original: &Descriptor,
        packet: &Descriptor,
    ) {
        if self.tracer.is_tracing() {
            self.tracer.split(&plan.stages[function].name, region, original, packet);
        }
    }

    /// The host half of `function` holds the packet until others arrive.
    #[inline]
    pub(crate) fn held(&mut self, plan: &ChainPlan, function: usize, packet: &Descriptor) {
        if self.tracer.is_tracing() {
            self.tracer.held(&plan.stages[function].name, packet);
        }
    }

    /// The host half of `function` joined the packet with `held` others. `whole` is the result.
    #[inline]
    pub(crate) fn joined(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        packet: &Descriptor,
        whole: &Descriptor,
        held: u32,
    ) {
        if self.tracer.is_tracing() {
            self.tracer.joined(&plan.stages[function].name, packet, whole, held);
        }
    }

    /// These packets were put into bins of the device.
    #[inline]
    pub(crate) fn binned(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        device: &str,
        variant: u8,
        packets: &[Descriptor],
    ) {
        if self.tracer.is_tracing() {
            self.tracer.binned(plan, function, device, variant, packets);
        }
    }

    /// Chunk number `number` of this worker was submitted to the device.
    #[inline]
    pub(crate) fn submitted(&mut self, device: &str, number: u64, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.submitted(device, number, chunk);
        }
    }

    /// The device rejected the chunk.
    #[inline]
    pub(crate) fn rejected(&mut self, device: &str, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.rejected(device, chunk);
        }
    }

    /// The device returned the chunk.
    #[inline]
    pub(crate) fn returned(&mut self, device: &str, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.returned(device, chunk);
        }
    }

    /// These packets continued on the device, from `function` with this verdict to function `next`.
    #[inline]
    pub(crate) fn continued(
        &mut self,
        plan: &ChainPlan,
        function: usize,
        verdict: u8,
        next: usize,
        packets: &[Descriptor],
    ) {
        if self.tracer.is_tracing() {
            self.tracer.continued(plan, function, verdict, next, packets);
        }
    }

    /// `function` returned these outcomes. `class` returns the class of a packet.
    #[inline]
    pub(crate) fn verdicts(
        &mut self,
        plan: &ChainPlan,
        class: impl Fn(&Descriptor) -> u8,
        function: usize,
        packets: &[Descriptor],
        outcomes: &[Outcome],
    ) {
        if self.tracer.is_tracing() {
            self.tracer.verdicts(plan, class, function, packets, outcomes);
        }
    }

    /// The packet was dropped. `reason` is the index of the drop counter.
    #[inline]
    pub(crate) fn dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, reason: usize) {
        if self.tracer.is_tracing() {
            self.tracer.dropped(plan, packet, reason);
        }
    }

    /// `copy` was made of a flooded packet, to leave by `port`.
    #[inline]
    pub(crate) fn copied(&mut self, packet: &Descriptor, copy: &Descriptor, port: u8) {
        if self.tracer.is_tracing() {
            self.tracer.copied(packet, copy, port);
        }
    }

    /// The copy of a flooded packet for `port` was dropped.
    #[inline]
    pub(crate) fn copy_dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, port: u8, reason: usize) {
        if self.tracer.is_tracing() {
            self.tracer.copy_dropped(plan, packet, port, reason);
        }
    }

    /// The packets in `outs`, one list per port, are about to be given to their ports.
    #[inline]
    pub(crate) fn departing(&mut self, region: &Region, outs: &[Vec<Departure>]) {
        if self.tracer.is_tracing() {
            self.tracer.departing(region, outs);
        }
    }

    /// Returns whether traced packets wait for [`Observer::departed`].
    #[inline]
    pub(crate) fn has_departing(&self) -> bool {
        self.tracer.has_departing()
    }

    /// All departing packets left: they were given to the sender thread, or the ports `accepted`
    /// and `refused` these numbers of them.
    #[cold]
    pub(crate) fn departed(&mut self, to_sender: bool, accepted: usize, refused: usize) {
        self.tracer.departed(to_sender, accepted, refused);
    }
}
