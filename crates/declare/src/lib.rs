//! Declarations of packet functions.
//!
//! A function is declared once, in the comment at the head of its C file:
//!
//! ```c
//! /* godwit function police
//! summary = "Drops packets of senders that are on a list."
//! ...
//! */
//! ```
//!
//! The text between the first line and `*/` is TOML. [`Declaration::parse`] reads and checks it. An
//! error names the line of the C file. The build of `kernels/` calls this crate for built-in
//! functions, and `godwit-custom` calls it at start for functions of users. Both get the same
//! header, contract and page:
//!
//! | module | result |
//! |---|---|
//! | [`mod@generate`]`::header` | numbers, structs and accessors in C |
//! | [`mod@generate`]`::rust` | the same numbers and structs in Rust, and the [`Contract`] |
//! | [`mod@generate`]`::page` | tables of the documentation page |
//! | [`mod@generate`]`::schema` | JSON Schema of the configuration |
//!
//! The crate reads no files and starts no processes.
#![forbid(unsafe_code)]

mod contract;
mod declaration;
mod error;
pub mod generate;
mod head;
mod layout;
mod parse;
mod types;
pub mod value;
pub mod words;

pub use contract::{Contract, Counter, Drop, KernelCounters, Verdict};
pub use declaration::{
    Column, Command, CommandArgument, Constant, CounterDeclaration, Declaration, DropDeclaration, Extent, FlowLimit,
    Flows, Form, HostUse, MeterUnit, Param, ParamShape, Record, Resource, Shape, Table, TestDeclaration,
    VerdictDeclaration,
};
pub use error::{Error, ValueError};
pub use layout::{FlowLayout, ImageLayout, Packing, ParamLayout, RecordLayout};
pub use types::{Field, FieldType, Scalar};
