//! Parser of the rule languages of Snort 2, Snort 3 and Suricata.
//!
//! | file | contents |
//! |---|---|
//! | `load.rs` | loads rule files, and lists the rules that do not load |
//! | `text.rs` | splits rule files into lines, headers and options |
//! | `build.rs` | builds a [`Rule`] from its text |
//! | `rule.rs` | a rule after parsing |
//! | `address.rs`, `port.rs`, `variables.rs`, `protocol.rs` | parts of a rule header |
//! | `meta.rs` | identification and classes of rules |
//! | `field.rs` | table of the fields that rules inspect |
//! | `chains.rs` | collects the tests of each field while a rule is built |
//! | `content.rs`, `bytes.rs`, `pcre.rs`, `transform.rs`, `keywords.rs` | tests of fields |
//! | `packet_test.rs`, `state.rs`, `number.rs` | tests of packets and of state |
//! | `prefilter.rs` | chooses the byte string for which the prefilter searches |

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
