//! The rule language of Snort 2, Snort 3 and Suricata.
//!
//! | file | contents |
//! |---|---|
//! | `load.rs` | rule files, and the list of rules that do not load |
//! | `text.rs` | lines, headers and options as text |
//! | `build.rs` | from text to a [`Rule`] |
//! | `rule.rs` | a rule after parsing |
//! | `address.rs`, `port.rs`, `variables.rs`, `protocol.rs` | parts of a header |
//! | `meta.rs` | identification and classes |
//! | `field.rs` | the table of fields that rules inspect |
//! | `chains.rs` | fields, modifiers and contents while a rule is built |
//! | `content.rs`, `bytes.rs`, `pcre.rs`, `transform.rs`, `keywords.rs` | tests of fields |
//! | `packet_test.rs`, `state.rs`, `number.rs` | tests of packets and of state |
//! | `prefilter.rs` | choice of the content that the prefilter searches |

pub mod address;
mod build;
pub mod bytes;
mod chains;
pub mod content;
pub mod field;
mod keywords;
pub mod load;
pub mod meta;
pub mod number;
pub mod packet_test;
mod pcre;
pub mod port;
pub mod prefilter;
mod protocol;
pub mod rule;
pub mod state;
pub mod text;
pub mod transform;
pub mod variables;

pub use field::Field;
pub use load::{RuleSet, Unsupported};
pub use rule::Rule;
pub use variables::Variables;
