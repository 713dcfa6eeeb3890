//! Simulation of the planner in virtual time.
//!
//! A run has a trace of loads, a machine, and a truth: the machine's profile with random errors per
//! function and place. The planner looks every 10 ms and knows only the profile and measurements.
//! An oracle knows the truth and the present load, and changes placements for free. A run compares
//! both. Its seed determines it completely.
//!
//! Queues are fluids. A worker holds packets in flight and in the ring of its port. When half of
//! the packets in flight are used, the worker uses the overflow places of its placement (the
//! reflex).
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
