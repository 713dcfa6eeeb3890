//! Describes the function chain to the workers, and changes the chain at run time.

pub(crate) mod build;
pub(crate) mod chain_plan;
pub(crate) mod change;
pub(crate) mod changer;
pub(crate) mod epoch;
pub(crate) mod grace;
pub(crate) mod stations;
