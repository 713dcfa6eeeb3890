//! Packet scheduler: packs packets into batches, and batches into submissions for a device.
//!
//! The algorithm is the packet scheduler of PIPSEA (Park et al., CCS 2016, sections 3.2-3.6). The
//! crate has no I/O, no threads and no clock. The caller passes the time, so a whole run can use
//! virtual time. The README of this crate draws the algorithm.
//!
//! The example packs two packets into a submission:
//!
//! ```
//! use godwit_sched::{Descriptor, Insert, Packer, PackerConfig};
//!
//! let config = PackerConfig { chunk_packets: 2, ..PackerConfig::default() };
//! let mut packer = Packer::new(config, &[0], 2)?;
//! let packet = Descriptor { length: 60, ..Descriptor::default() };
//! assert_eq!(packer.insert(0, 0, 0, &packet, 7), Insert::Binned);
//! assert_eq!(packer.insert(5, 0, 0, &packet, 8), Insert::ChunkFull);
//! let chunk = packer.take(5).expect("two packets wait and a set of bins is free");
//! assert_eq!(chunk.parameters[chunk.range(&chunk.bins[0])], [7, 8]);
//! packer.give_back(chunk);
//! # Ok::<(), godwit_sched::Error>(())
//! ```
#![forbid(unsafe_code)]

mod chunk;
mod config;
mod cost;
mod label;
mod packer;
mod parameters;
mod parts;
pub mod place;

pub use chunk::Chunk;
pub use config::{Error, Grouping, PackerConfig};
pub use cost::CostModel;
pub use godwit_abi::{Bin, Descriptor, Outcome, PART_MORE, PART_REST};
pub use label::{Label, length_class};
pub use packer::{Insert, Packer, Stream};
pub use parameters::Parameters;
