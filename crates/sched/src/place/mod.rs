//! Placement: decides from a measured model which device runs each function.
//!
//! The module is pure. It has no threads and no clock, and it reads no files. The caller passes
//! times, measurements and the text of a profile. The engine and the simulator run the same code.
//!
//! ```text
//! measurements ──> Forecast ──> Load ──┐
//!                                      ├─> Search ──> Choice ──> Planner ──> Placement, Decision
//! profile ──> Machine ──> Prediction ──┘      ^
//!                                           Goal (policy and its limit)
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `load` | [`Load`]: packets per second and frame lengths of each function |
//! | `profile/` | [`Profile`]: measured costs of one machine, read from TOML and checked |
//! | `model/` | [`Machine`]: predicts use, latency and power of a placement |
//! | `placement` | [`Placement`]: shares, limits and roles that the workers apply |
//! | `policy/` | [`POLICIES`]: one file per policy, found by a table |
//! | `search/` | [`Search`]: the best placement for a load |
//! | `planner/` | [`Planner`]: forecast, hysteresis, corrections, distrust |
//! | `thesis` | the rule of the thesis on adaptive scheduling, for comparison |
//! | `explain` | one sentence per decision |
//! | `sim/` | simulation in virtual time, with an oracle |

pub mod explain;
mod load;
mod model;
mod pin;
mod placement;
mod planner;
mod policy;
mod profile;
mod search;
pub mod sim;
mod thesis;

pub use load::{BUCKET_RATIO, FunctionLoad, LENGTH_CLASSES, Load, length_class_of};
pub use model::{
    Corrections, FunctionSetup, Machine, MachineSetup, ModelError, Place, PlaceSetup, Prediction, Resource,
};
pub use pin::PinError;
pub use placement::{Choice, PlaceLimits, PlaceSet, Placement, Role, Route, Setting};
pub use planner::{Decision, Measured, Observation, Outcome, Planner, PlannerConfig, Reason, Rule};
pub use policy::{Goal, GoalError, Limits, POLICIES, Policy, Score};
pub use profile::{
    Curve, CurvePoint, Fit, Host, Identity, Pair, Power, PowerPoint, Profile, ProfileError, ReceivePoint, Summary,
};
pub use search::{Grid, Search};
