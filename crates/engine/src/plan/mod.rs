//! Stores the function chain in the form that workers use to process packets, and changes the chain
//! at run time.

pub(crate) mod build;
pub(crate) mod chain_plan;
pub(crate) mod change;
pub(crate) mod changer;
pub(crate) mod epoch;
pub(crate) mod grace;
pub(crate) mod stations;
