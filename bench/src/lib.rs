//! Benches of Godwit, and the peers that they compare it with.
//!
//! A bench is a definition in `bench/definitions/NAME.toml`. The definition names a subject, which
//! is the code that measures. Every subject verifies its results before it measures them. Rounds of
//! all competitors alternate, and each figure is the median of its rounds.
//!
//! | path | contents |
//! |---|---|
//! | `definition.rs` | definitions of benches and their figures |
//! | `load/` | workloads: frames, SAs, routes, names |
//! | `report/` | the page and the figures, generated from stored records |
//! | `run/` | techniques of measurement that subjects share |
//! | `subject/` | the code that measures; subjects do not import each other |
//! | `suite.rs` | runs a bench, or all benches |
//!
//! Imports go from `suite` to `subject`, from there to `run`, and from there to `load`.
#![warn(unsafe_code)]

pub mod definition;
mod error;
mod load;
mod progress;
mod report;
mod run;
mod subject;
mod suite;

pub use error::Error;
pub use godwit_device::{Mode, Transfer};
pub use godwit_packet::Layout;
pub use load::size::Size;
pub use progress::Progress;
pub use report::report;
pub use run::manifest::{Gpu, Manifest};
pub use run::options::{OptionSpec, Request};
pub use run::record::{Record, RecordedRow};
pub use run::row::{Detail, Details, Row};
pub use suite::{Outcome, find, options, run, run_all};
