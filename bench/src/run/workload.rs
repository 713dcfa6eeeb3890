//! A function with its frames and its peer.

use std::sync::Arc;

use godwit_function::Function;

use crate::error::Error;
use crate::load::frames::{self, Make, Random};
use crate::load::job::Job;
use crate::run::row::Details;

/// Change of the packets before every pass, untimed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// Restores the frames.
    Frames,
    /// Restores the frames with new random destinations.
    Addresses,
    /// Makes other frames of the same lengths.
    Made,
}

/// A peer of a function.
pub(crate) struct Competitor<'a> {
    pub(crate) device: &'static str,
    pub(crate) implementation: &'static str,
    pub(crate) details: Details,
    /// `call` or `process`.
    pub(crate) mode: &'static str,
    /// Packets of a round.
    pub(crate) packets: usize,
    /// Runs one round over these frames and returns its time in nanoseconds.
    pub(crate) round: Round<'a>,
}

/// One round of a peer.
type Round<'a> = Box<dyn FnMut(&[Vec<u8>]) -> Result<f64, Error> + 'a>;

/// A function with its frames and its peer.
pub(crate) struct Workload<'a> {
    pub(crate) function: Arc<dyn Function>,
    pub(crate) frame: &'a Make<'a>,
    pub(crate) refresh: Refresh,
    pub(crate) competitor: Option<Competitor<'a>>,
    /// Chooses the work of each packet in a lane, which has no host half. `None` selects the
    /// function's default variant.
    pub(crate) job: Option<&'a (dyn Fn(&mut Random) -> Job + Sync)>,
    /// Whether the packer makes the chunks of a lane. Otherwise, each bin has packets of a single
    /// length.
    pub(crate) packed: bool,
    /// Function that processes all frames before each pass, untimed. It makes the packets for
    /// decryption.
    pub(crate) before: Option<Arc<dyn Function>>,
    /// Details of all our rows.
    pub(crate) details: Details,
}

impl Workload<'_> {
    /// Returns a workload of UDP frames with random payloads.
    pub(crate) fn new(function: Arc<dyn Function>) -> Self {
        Self {
            function,
            frame: &|size, random| frames::frame(size, random, &frames::noise),
            refresh: Refresh::Frames,
            competitor: None,
            job: None,
            packed: false,
            before: None,
            details: Details::default(),
        }
    }
}
