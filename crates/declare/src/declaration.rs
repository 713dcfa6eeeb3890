//! A declaration as data.

use crate::types::{Field, Scalar};

/// Declaration of a function.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Name of the function: its kind, the prefix of its counters and of its names in C.
    pub name: String,
    /// Line of the C file on which the declaration begins.
    pub line: usize,
    /// Summary of the function, in one sentence.
    pub summary: String,
    /// Standard or paper that the function implements. May be empty.
    pub spec: String,
    /// Kernel number of a built-in function. Functions of users get a number at start.
    pub number: Option<u8>,
    /// Whether the function has a kernel. Without one, its host half settles every packet.
    pub has_kernel: bool,
    /// First word of the table image, in little-endian byte order.
    pub magic: u32,
    /// Bytes that the function reads from the start of the frame.
    pub reads: Extent,
    /// Bytes that the function writes from the start of the frame.
    pub writes: Extent,
    /// Maximum number of bytes that the function prepends to a frame.
    pub headroom_bytes: u16,
    /// Maximum number of bytes that the function appends to a frame.
    pub tailroom_bytes: u16,
    /// Whether the host half must see packets in arrival order.
    pub in_order: bool,
    /// Capabilities of a host half in Rust.
    pub host: HostUse,
    /// Form of the kernel on devices.
    pub form: Form,
    /// Names of the variants. The number of a variant is its index.
    pub variants: Vec<String>,
    /// Verdicts. The number of a verdict is its index.
    pub verdicts: Vec<VerdictDeclaration>,
    /// Drop reasons. The number of a reason is its index.
    pub drops: Vec<DropDeclaration>,
    /// Counters, in addition to verdicts and drops.
    pub counters: Vec<CounterDeclaration>,
    /// Numbers that C and Rust share.
    pub constants: Vec<Constant>,
    /// Structs of a table image that a host half in Rust builds.
    pub records: Vec<Record>,
    /// Parameters of the configuration.
    pub params: Vec<Param>,
    /// Tables that Godwit builds and changes.
    pub tables: Vec<Table>,
    /// State of flows, which the worker that owns the flow keeps.
    pub flows: Option<Flows>,
    /// Resources that flows take and give back.
    pub resources: Vec<Resource>,
    /// Word of the command line that runs the function's commands, such as `route`.
    pub alias: Option<String>,
    /// Commands of a host half in Rust.
    pub commands: Vec<Command>,
    /// Test packets.
    pub test: Option<TestDeclaration>,
}

/// Part of a frame, from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// This number of bytes.
    Bytes(u16),
    /// The whole frame.
    #[default]
    All,
}

impl Extent {
    /// Returns the number of bytes as in [`Contract::reads_bytes`](crate::Contract::reads_bytes).
    pub fn bytes(self) -> u16 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::All => crate::Contract::ALL,
        }
    }
}

/// Capabilities of a host half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUse {
    /// Whether it reads the outcome of the function that processed a packet before. This requires
    /// a host half that arranges packets, and a function without arrival order.
    pub reads_previous: bool,
    /// Whether a device may continue with the next function before the host half sees the outcomes.
    /// It then receives the descriptors as the last function left them, and only the verdict of
    /// each outcome is valid.
    pub continues_on_device: bool,
}

/// Form of a kernel on devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// One lane per packet.
    #[default]
    Lane,
    /// All lanes of a group work on one bin together.
    Group,
    /// A group form whose lanes exchange words; other devices use the lane form.
    Team,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictDeclaration {
    /// Name in chains.
    pub name: String,
    /// Condition, in one sentence.
    pub text: String,
    /// Whether the function chooses the egress port.
    pub chooses_port: bool,
    /// Meaning of `Outcome::value`. Empty if it is unused.
    pub value: String,
}

/// A drop reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropDeclaration {
    /// Name in counters.
    pub name: String,
    /// Condition, in one sentence.
    pub text: String,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterDeclaration {
    /// Name of the counter.
    pub name: String,
    /// Unit of the counter.
    pub unit: String,
    /// Description, in one sentence.
    pub text: String,
    /// For an array of counters: the verdict whose `Outcome::value` is the index, and the number of
    /// elements. The worker counts packets and bytes after the kernel.
    pub array: Option<(String, u32)>,
}

/// A number that C and Rust share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name, without the prefix of the function.
    pub name: String,
    /// Type in Rust: `u8` to `u64`, or `usize`.
    pub kind: String,
    /// Value.
    pub value: u64,
    /// Meaning.
    pub text: String,
}

/// A struct that C and Rust share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name, without the prefix of the function.
    pub name: String,
    /// Meaning.
    pub text: String,
    /// Fields in the order of memory.
    pub fields: Vec<Field>,
    /// Whether all bits may be zero, so that Rust implements `Default`.
    pub has_default: bool,
}

/// A parameter of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Key in the configuration, and name in C.
    pub name: String,
    /// Shape of the value.
    pub shape: ParamShape,
    /// Default value as text. Required in the configuration if `None`.
    pub default: Option<String>,
    /// Smallest and largest number.
    pub range: Option<(u64, u64)>,
    /// Meaning.
    pub text: String,
}

/// Shape of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamShape {
    /// One value.
    Scalar(Scalar),
    /// IPv4 prefix: `name` and `name_mask` in C.
    Prefix4,
    /// IPv6 prefix: `name[2]` and `name_mask[2]` in C.
    Prefix6,
    /// List of at most this number of values: `name_count` and `name[max]` in C.
    List(Scalar, u32),
}

/// A table that Godwit builds from a file and changes by commands.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the table.
    pub name: String,
    /// Shape of the table.
    pub shape: Shape,
    /// Meaning. May be empty.
    pub text: String,
    /// Fields of the key, for `exact` and `acl`.
    pub key: Vec<Field>,
    /// Fields of a row.
    pub row: Vec<Field>,
    /// Number of entries that the table must hold.
    pub capacity: u32,
    /// Number of different rows that an `lpm4` table must hold.
    pub rows: u32,
}

/// Shape of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Hash table of complete keys.
    Exact,
    /// Longest matching IPv4 prefix.
    Lpm4,
    /// Longest matching IPv6 prefix.
    Lpm6,
    /// Rows by number.
    Array,
    /// Patterns over several fields, with priorities.
    Acl,
    /// Consistent hash over rows (Eisenbud et al., Maglev, NSDI 2016).
    Maglev,
    /// Byte strings, searched in a payload.
    Strings,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 7] =
        [Self::Exact, Self::Lpm4, Self::Lpm6, Self::Array, Self::Acl, Self::Maglev, Self::Strings];

    /// Returns the name of the shape.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Lpm4 => "lpm4",
            Self::Lpm6 => "lpm6",
            Self::Array => "array",
            Self::Acl => "acl",
            Self::Maglev => "maglev",
            Self::Strings => "strings",
        }
    }
}

/// State of flows.
#[derive(Clone, Debug)]
pub struct Flows {
    /// Name of the state, such as `session`.
    pub name: String,
    /// Meaning. May be empty.
    pub text: String,
    /// Fields of the key.
    pub key: Vec<Field>,
    /// Fields of the second key, for packets in the other direction. Empty if there is none.
    pub reverse: Vec<Field>,
    /// Fields of a row that the function uses.
    pub row: Vec<Field>,
    /// Whether Godwit counts packets and bytes of each row.
    pub counts: bool,
    /// Number of flows that all workers hold together.
    pub capacity: u32,
    /// Name and seconds of each timer. A row uses one of them.
    pub timers: Vec<(String, u32)>,
    /// Limit of the number of flows, if there is one.
    pub limit: Option<FlowLimit>,
}

/// Limit of the number of flows that share a field of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowLimit {
    /// Field of the key. Packets are steered by it, so that one worker counts all its flows.
    pub by: String,
    /// Parameter with the maximum.
    pub max: String,
}

/// Resource that flows take and give back: pairs of an address and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name of the resource.
    pub name: String,
    /// Parameter with the list of addresses.
    pub addresses: String,
    /// First and last port.
    pub ports: (u16, u16),
    /// Fields of the reverse key that hold the address and the port. Packets to a port are steered
    /// to the worker that owns it.
    pub reverse: (String, String),
}

/// A command to a running function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Word after the name of the function.
    pub name: String,
    /// Value of `command` in the request.
    pub request: String,
    /// Effect, in one sentence.
    pub text: String,
    /// Options and words.
    pub arguments: Vec<CommandArgument>,
    /// Key of the request under which rows are sent, if the command sends rows.
    pub rows: Option<String>,
    /// Words of a row: on the command line, and in a line of `file`. One word: the command accepts
    /// several rows.
    pub words: Vec<String>,
    /// Whether rows of one word are sent as texts instead of objects.
    pub plain: bool,
    /// Name of the TOML stanzas of `--file`, if it is not a file of lines.
    pub stanza: Option<String>,
    /// Whether `--file` is accepted.
    pub file: bool,
    /// Whether requests may contain keys, so that texts are wiped.
    pub secret: bool,
    /// Sentence after success. `{}` is replaced by the number of rows with their noun.
    pub done: String,
    /// Noun of a row, singular and plural.
    pub noun: (String, String),
    /// Columns of the printed list, if the command prints one. Other values of a row follow them.
    pub columns: Vec<Column>,
    /// Key of the reply with the list.
    pub list: Option<String>,
    /// Key of the reply with the total number of rows.
    pub total: Option<String>,
    /// Keys of the last row that request the next page, if the list has pages.
    pub page: Vec<String>,
    /// Whether the list is printed as lines of words, as in a file, instead of a table.
    pub lines: bool,
}

/// Column of a printed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Key in a row.
    pub key: String,
    /// Text for a missing value.
    pub absent: String,
}

/// Option of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandArgument {
    /// Name of the option, and key of the request or row.
    pub name: String,
    /// Meaning.
    pub text: String,
    /// Whether the option is a number.
    pub number: bool,
    /// Whether the option has no value.
    pub flag: bool,
    /// Whether the option belongs to each row instead of the request.
    pub in_row: bool,
    /// Whether the option is required.
    pub required: bool,
    /// Default value. Empty if there is none.
    pub default: String,
}

/// Test packets of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDeclaration {
    /// Capture with the frames.
    pub frames: String,
    /// File with the expected outcome of each frame.
    pub expect: String,
    /// Number of ports in the test configuration.
    pub ports: u32,
    /// TOML text of the keys `tables` and `params` in the test configuration.
    pub stanza: String,
}

impl Declaration {
    /// Returns the number of a verdict.
    pub fn verdict(&self, name: &str) -> Option<u8> {
        self.verdicts.iter().position(|verdict| verdict.name == name).and_then(|index| u8::try_from(index).ok())
    }

    /// Returns the number of a drop reason.
    pub fn drop_reason(&self, name: &str) -> Option<u8> {
        self.drops.iter().position(|drop| drop.name == name).and_then(|index| u8::try_from(index).ok())
    }

    /// Returns the name of a drop reason's macro in C, without the prefix of the function. It
    /// begins with `drop_` if a verdict has the same name.
    pub fn drop_macro(&self, name: &str) -> String {
        if self.verdict(name).is_some() { format!("drop_{name}") } else { name.to_owned() }
    }

    /// Returns whether a host half in Rust builds the table image.
    pub fn has_own_image(&self) -> bool {
        self.records.iter().any(|record| record.name == "image")
    }

    /// Returns whether the packets of a flow must be processed in arrival order before the kernel.
    pub fn needs_order(&self) -> bool {
        self.in_order || self.flows.is_some()
    }
}
