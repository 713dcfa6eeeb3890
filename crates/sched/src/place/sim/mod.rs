//! Simulates the planner in virtual time.
//!
//! A run has a sequence of loads, a machine, and the machine's true costs. The true costs are those
//! in the machine's profile with random errors. The planner runs every 10 ms and knows only the
//! profile and measurements. An oracle knows the true costs and the current load, and changes
//! placements at no cost. A run compares the planner with the oracle. The seed determines a run
//! completely.
//!
//! The simulation treats queues as fluids. A worker holds packets in flight and in the ring of its
//! port. At half of its limit of packets in flight, it uses the additional devices that its
//! placement allows. This reaction is called the reflex.
//!
//! | file | contents |
//! |---|---|
//! | `machine` | the simulated machine |
//! | `trace` | [`Trace`]: loads over time |
//! | `world` | queues, reflex, wake-up times, power |
//! | `oracle` | best placement at every moment |
//! | `run` | [`Run`]: one run and its [`Report`] |
//! | `random` | random numbers |

mod machine;
mod oracle;
mod random;
mod run;
mod trace;
mod world;

pub use machine::{Wake, machine, sim_grid};
pub use oracle::Oracle;
pub use random::Random;
pub use run::{Report, Run};
pub use trace::{Kind, Trace};
