//! Techniques of measurement that subjects share: options, rows, rounds, and the harnesses that run
//! functions.
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | the options of a bench, and their values |
//! | `row.rs` | one line of results |
//! | `rounds.rs` | competitors that take turns; median and 99th percentile |
//! | `devices.rs` | the devices of this machine |
//! | `cores.rs` | the cores of this process, and threads pinned to them |
//! | `peer.rs` | peers that are separate programs |
//! | `power.rs` | the mean power of a device during a run |
//! | `feed.rs` | chunk size, bin size and arena size for a device |
//! | `link.rs` | the copy rate of a device's link |
//! | `workload.rs` | a function with its frames and its peer |
//! | `flow/` | prepared chunks through a lane, compared with `ref` and then timed |
//! | `several.rs` | several flows at the same time |
//! | `call.rs` | a function on packets in memory, called bin after bin |
//! | `lane.rs` | the same function through the lane of a device |
//! | `record.rs`, `manifest.rs` | stored results, and the machine that produced them |

pub(crate) mod call;
pub(crate) mod cores;
pub(crate) mod devices;
pub(crate) mod feed;
pub(crate) mod flow;
pub(crate) mod lane;
pub(crate) mod link;
pub(crate) mod manifest;
pub(crate) mod options;
pub(crate) mod peer;
pub(crate) mod power;
pub(crate) mod record;
pub(crate) mod rounds;
pub(crate) mod row;
pub(crate) mod several;
pub(crate) mod workload;
