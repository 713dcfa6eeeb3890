//! Tables and parameters of a function that a declaration describes. They are built from files, and
//! commands change them while packets flow.
//!
//! | module | holds |
//! |---|---|
//! | `entry` | entries as text and as keys and rows |
//! | `flows` | flow state on the workers |
//! | `file` | files of entries |
//! | `image` | the table image: parameters and all tables |
//! | `meter` | packet rates, whose tokens the workers keep |
//! | `rows` | rows, which entries with equal contents share |
//! | `shapes` | one module per shape: its part of the image, and its changes |
//! | `commands` | commands of the operator |

mod commands;
mod entry;
mod file;
mod flows;
mod image;
mod meter;
mod rows;
mod shapes;

pub(crate) use flows::FlowState;
pub(crate) use image::{Declared, Values};
