//! Observer of a worker's packets. The worker reports each step of a packet, and the observer
//! passes it to the tracer while a trace runs.
//!
//! Without a trace, each method costs a single branch.

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

    /// Checks whether a trace has started or ended. The worker calls this method before it receives
    /// packets.
    #[inline]
    pub(crate) fn poll(&mut self) {
        self.tracer.poll();
    }

    /// Returns whether a trace is looking for matching packets.
    #[inline]
    pub(crate) fn is_choosing(&self) -> bool {
        self.tracer.is_choosing()
    }

    /// Reports that packets arrived from a port. `now_ns` is their arrival time on the worker's
    /// clock.
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

    /// Reports that `function` created a packet that does not derive from another packet.
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

    /// Reports that `function` has prepared packets for its kernel. `work` describes the kernel's
    /// work for each packet. It is empty if the function does not prepare packets.
    #[inline]
    pub(crate) fn prepared(&mut self, plan: &ChainPlan, function: usize, packets: &[Descriptor], work: &WorkColumns) {
        if self.tracer.is_tracing() {
            self.tracer.prepared(plan, function, packets, work);
        }
    }

    /// Reports that `function` created `packet` from `original`.
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

    /// Reports that `function` holds a packet until more packets arrive.
    #[inline]
    pub(crate) fn held(&mut self, plan: &ChainPlan, function: usize, packet: &Descriptor) {
        if self.tracer.is_tracing() {
            self.tracer.held(&plan.stages[function].name, packet);
        }
    }

    /// Reports that `function` joined `packet` with `held` earlier packets. `whole` is the
    /// resulting packet.
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

    /// Reports that packets were put into batches for a device.
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

    /// Reports that packets were submitted to a device. `number` counts this worker's submissions
    /// to the device.
    #[inline]
    pub(crate) fn submitted(&mut self, device: &str, number: u64, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.submitted(device, number, chunk);
        }
    }

    /// Reports that a device rejected a submission.
    #[inline]
    pub(crate) fn rejected(&mut self, device: &str, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.rejected(device, chunk);
        }
    }

    /// Reports that a device returned a submission.
    #[inline]
    pub(crate) fn returned(&mut self, device: &str, chunk: &Chunk) {
        if self.tracer.is_tracing() {
            self.tracer.returned(device, chunk);
        }
    }

    /// Reports that packets went from `function` to `next` without leaving the device. `verdict` is
    /// the result of `function`.
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

    /// Reports the outcomes of packets that `function` processed. `class` returns the class of a
    /// packet.
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

    /// Reports that a packet was dropped. `reason` is the index of the drop reason's counter.
    #[inline]
    pub(crate) fn dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, reason: usize) {
        if self.tracer.is_tracing() {
            self.tracer.dropped(plan, packet, reason);
        }
    }

    /// Reports that a flooded packet was copied to `copy`. The copy leaves through `port`.
    #[inline]
    pub(crate) fn copied(&mut self, packet: &Descriptor, copy: &Descriptor, port: u8) {
        if self.tracer.is_tracing() {
            self.tracer.copied(packet, copy, port);
        }
    }

    /// Reports the drop of a flooded packet's copy, which was meant for `port`.
    #[inline]
    pub(crate) fn copy_dropped(&mut self, plan: &ChainPlan, packet: &Descriptor, port: u8, reason: usize) {
        if self.tracer.is_tracing() {
            self.tracer.copy_dropped(plan, packet, port, reason);
        }
    }

    /// Reports that packets are about to leave. `outs` has one list of packets per port.
    #[inline]
    pub(crate) fn departing(&mut self, region: &Region, outs: &[Vec<Departure>]) {
        if self.tracer.is_tracing() {
            self.tracer.departing(region, outs);
        }
    }

    /// Returns whether traced packets are about to leave. The caller must then call
    /// [`Observer::departed`].
    #[inline]
    pub(crate) fn has_departing(&self) -> bool {
        self.tracer.has_departing()
    }

    /// Reports that all departing packets have left. If `to_sender` is set, the sender thread of
    /// the worker took them. Otherwise, the ports accepted `accepted` packets and refused `refused`
    /// packets.
    #[cold]
    pub(crate) fn departed(&mut self, to_sender: bool, accepted: usize, refused: usize) {
        self.tracer.departed(to_sender, accepted, refused);
    }
}
