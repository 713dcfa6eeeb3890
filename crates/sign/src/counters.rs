//! Counters of one signer.

use serde::Serialize;

/// Number of SIMD lanes, and maximum number of jobs that the CPU signs at once.
pub const LANES: usize = 8;

/// Counters of jobs and batches. Each received job is signed, refused, or in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Number of received jobs.
    pub received: u64,
    /// Number of jobs that were answered with a signature.
    pub signed: u64,
    /// Number of refused jobs, summed over all reasons.
    pub refused: u64,
    /// Number of jobs refused because too many jobs waited.
    pub refused_backlog: u64,
    /// Number of jobs refused because the scheme does not fit the key or the message is too long.
    pub refused_invalid: u64,
    /// Number of jobs that the client cancelled.
    pub refused_cancelled: u64,
    /// Number of jobs for which AWS-LC reported an error.
    pub refused_failed: u64,
    /// Number of jobs refused because the signer process ended or was not running.
    pub refused_lost: u64,
    /// Jobs that wait or are on a processor.
    pub in_flight: u64,
    /// Number of signatures that were made one at a time.
    pub signed_single: u64,
    /// Number of signatures that were made in SIMD lanes.
    pub signed_lanes: u64,
    /// Number of signatures that devices made.
    pub signed_device: u64,
    /// Number of batches signed in SIMD lanes, by batch size. Index 0 counts batches with one job.
    pub batches_by_fill: [u64; LANES],
    /// Number of batches that were submitted to devices.
    pub device_batches: u64,
    /// Number of wrong signatures from SIMD lanes. Verification with the public key found them, and
    /// the jobs were signed again.
    pub faults_lanes: u64,
    /// Number of wrong signatures from devices. Verification with the public key found them, and
    /// the jobs were signed again.
    pub faults_device: u64,
    /// Number of jobs that a device did not answer before the deadline. The CPU signs them too.
    pub late: u64,
    /// Number of ignored results, whose jobs were cancelled or already answered.
    pub results_ignored: u64,
    /// Number of devices that were declared lost.
    pub devices_lost: u64,
    /// 1 if the SIMD lanes are disabled after too many wrong results, otherwise 0.
    pub lanes_lost: u64,
    /// Connections to the process of the signer that were lost.
    pub signers_lost: u64,
}

impl Counters {
    /// Returns whether every received job is accounted for.
    pub fn is_conserved(&self) -> bool {
        let refused = self.refused_backlog
            + self.refused_invalid
            + self.refused_cancelled
            + self.refused_failed
            + self.refused_lost;
        self.received == self.signed + self.refused + self.in_flight
            && self.refused == refused
            && self.signed == self.signed_single + self.signed_lanes + self.signed_device
    }

    /// Adds the counters of another signer.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.signed += other.signed;
        self.refused += other.refused;
        self.refused_backlog += other.refused_backlog;
        self.refused_invalid += other.refused_invalid;
        self.refused_cancelled += other.refused_cancelled;
        self.refused_failed += other.refused_failed;
        self.refused_lost += other.refused_lost;
        self.in_flight += other.in_flight;
        self.signed_single += other.signed_single;
        self.signed_lanes += other.signed_lanes;
        self.signed_device += other.signed_device;
        self.batches_by_fill.iter_mut().zip(other.batches_by_fill).for_each(|(sum, count)| *sum += count);
        self.device_batches += other.device_batches;
        self.faults_lanes += other.faults_lanes;
        self.faults_device += other.faults_device;
        self.late += other.late;
        self.results_ignored += other.results_ignored;
        self.devices_lost += other.devices_lost;
        self.lanes_lost += other.lanes_lost;
        self.signers_lost += other.signers_lost;
    }
}
