//! The whole engine with synthetic traffic and captures.
//!
//! | module | subject |
//! |---|---|
//! | `arrange`, `flood` | packets that functions split, join, create, drop and copy |
//! | `change`, `rekey` | changes of the chain and of SAs while packets flow |
//! | `config` | configurations, valid and invalid |
//! | `exchange` | packets that arrive at workers that do not own their state |
//! | `failover`, `spread` | devices that fail, and functions on several devices |
//! | `housekeeping` | regular work of functions |
//! | `live` | ports outside the engine |
//! | `load` | load programs |
//! | `placement` | placements that follow a profile, a load and a policy |
//! | `shapes` | workers, layouts and chunks of any size |
//! | `switch` | learned MAC addresses |
//! | `trace` | packet traces |

mod arrange;
mod change;
mod common;
mod config;
mod exchange;
mod failover;
mod failures;
mod faults;
mod flood;
mod housekeeping;
mod live;
mod load;
mod placement;
mod recorder;
mod rekey;
mod shapes;
mod socket;
mod spread;
mod switch;
mod trace;
