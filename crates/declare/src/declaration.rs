//! Declaration of a packet function, as the result of parsing.

use crate::types::{Field, Scalar};

/// Declaration of a packet function.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Name of the function. It is the value of `kind` in the configuration, and the prefix of the
    /// function's counters and C names.
    pub name: String,
    /// Line of the C file on which the declaration begins.
    pub line: usize,
    /// Summary of the function, in one sentence.
    pub summary: String,
    /// Standard or paper that the function implements, or empty.
    pub spec: String,
    /// Kernel number of a built-in function. Other functions get a number when Godwit starts.
    pub number: Option<u8>,
    /// Whether the function has a kernel. Without one, all work runs on the CPU.
    pub has_kernel: bool,
    /// First word of the function's table image, in little-endian byte order.
    pub magic: u32,
    /// Part of the frame that the function reads, from its start.
    pub reads: Extent,
    /// Part of the frame that the function writes, from its start.
    pub writes: Extent,
    /// Maximum number of bytes that the function prepends to a frame.
    pub headroom_bytes: u16,
    /// Maximum number of bytes that the function appends to a frame.
    pub tailroom_bytes: u16,
    /// Whether the function must see packets in arrival order on the CPU.
    pub in_order: bool,
    /// Properties of the function's CPU code, if that code is written in Rust.
    pub host: HostUse,
    /// How device threads divide the packets of this function.
    pub form: Form,
    /// Names of the function's variants, such as encapsulation with a certain cipher. A variant's
    /// number is its index.
    pub variants: Vec<String>,
    /// Verdicts that the function can return. A verdict's number is its index in this list.
    pub verdicts: Vec<VerdictDeclaration>,
    /// Reasons why the function can drop a packet. A reason's number is its index in this list.
    pub drops: Vec<DropDeclaration>,
    /// Counters besides those of verdicts and drop reasons.
    pub counters: Vec<CounterDeclaration>,
    /// Numbers that C and Rust share.
    pub constants: Vec<Constant>,
    /// Structs of the table image, if the function's Rust code builds the image.
    pub records: Vec<Record>,
    /// Parameters of the configuration.
    pub params: Vec<Param>,
    /// Tables that Godwit builds and that commands change.
    pub tables: Vec<Table>,
    /// Flow state, if the function keeps any. Each flow belongs to one worker.
    pub flows: Option<Flows>,
    /// Resources that flows take and give back, such as ports.
    pub resources: Vec<Resource>,
    /// Word that selects the function's commands on the command line, such as `route`.
    pub alias: Option<String>,
    /// Commands that the function implements in Rust.
    pub commands: Vec<Command>,
    /// Test packets, if the declaration has any.
    pub test: Option<TestDeclaration>,
}

/// Part of a frame that begins at its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// A number of bytes at the start of the frame.
    Bytes(u16),
    /// The whole frame.
    #[default]
    All,
}

impl Extent {
    /// Returns the number of frame bytes, or [`Contract::ALL`](crate::Contract::ALL) for the whole
    /// frame.
    pub fn bytes(self) -> u16 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::All => crate::Contract::ALL,
        }
    }
}

/// Properties of a function's CPU code, which runs before and after the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUse {
    /// Whether the function reads each packet's outcome from the previous function. Such a function
    /// must be able to split, join or create packets, and must not need packets in arrival order.
    pub reads_previous: bool,
    /// Whether the function reads the arrival times of packets. It also receives their sequence
    /// numbers if it splits, joins or creates packets.
    pub reads_times: bool,
    /// Whether a device may run the next function before the CPU sees the results of this function.
    /// The CPU then sees each packet descriptor only after the last function, and only the verdict
    /// of each outcome is valid.
    pub continues_on_device: bool,
}

/// Tells how the threads of a work-group divide a batch of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Each thread processes whole packets.
    #[default]
    Lane,
    /// All threads of a work-group process one batch of packets together.
    Group,
    /// The threads of a work-group process one batch together and exchange values. Devices without
    /// such exchanges use [`Form::Lane`].
    Team,
}

/// Result that a function can return for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictDeclaration {
    /// Name of the verdict in function chains.
    pub name: String,
    /// Condition for this verdict, in one sentence.
    pub text: String,
    /// Whether the function selects the egress port for this verdict.
    pub chooses_port: bool,
    /// Meaning of `Outcome::value` for this verdict, or empty if the value is unused.
    pub value: String,
}

/// A reason for which a function drops a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropDeclaration {
    /// Name of the drop reason in counters.
    pub name: String,
    /// Condition for this drop, in one sentence.
    pub text: String,
}

/// A counter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterDeclaration {
    /// Name of the counter.
    pub name: String,
    /// Unit of the counter.
    pub unit: String,
    /// Description of the counter, in one sentence.
    pub text: String,
    /// For an array, the name of a verdict and the number of elements. Each packet with this
    /// verdict carries an index. The element at this index counts the packet and its bytes.
    pub array: Option<(String, u32)>,
}

/// A number that C and Rust share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name of the number, without the prefix of the function.
    pub name: String,
    /// Rust type of the number: `u8` to `u64`, or `usize`.
    pub kind: String,
    /// Value of the number.
    pub value: u64,
    /// Meaning of the number.
    pub text: String,
}

/// A struct that C and Rust share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name of the struct, without the prefix of the function.
    pub name: String,
    /// Meaning of the struct.
    pub text: String,
    /// Fields of the struct in memory order.
    pub fields: Vec<Field>,
    /// Whether a struct of zeros is valid. The Rust struct then implements `Default`.
    pub has_default: bool,
}

/// A parameter in the configuration of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name of the parameter in the configuration and in C.
    pub name: String,
    /// Shape of the value.
    pub shape: ParamShape,
    /// Default value as text, or `None` if the parameter is required.
    pub default: Option<String>,
    /// Minimum and maximum, or `None` if all numbers are valid.
    pub range: Option<(u64, u64)>,
    /// Meaning of the parameter.
    pub text: String,
}

/// Shape of the value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamShape {
    /// One value.
    Scalar(Scalar),
    /// IPv4 prefix. Its members in C are `name` and `name_mask`.
    Prefix4,
    /// IPv6 prefix. Its C members are `name[2]` and `name_mask[2]`.
    Prefix6,
    /// List of values with a maximum number of elements. Its C members are `name_count` and
    /// `name[max]`.
    List(Scalar, u32),
}

/// Table of a function. Godwit builds the table from a file, and commands change it.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the table.
    pub name: String,
    /// Shape of the table, which determines how a lookup works.
    pub shape: Shape,
    /// Meaning of the table. It may be empty.
    pub text: String,
    /// Fields of the key. Only tables of the shapes `exact`, `acl` and `meter` have a key.
    pub key: Vec<Field>,
    /// Fields of a row, which a lookup returns.
    pub row: Vec<Field>,
    /// Number of entries that the table must hold.
    pub capacity: u32,
    /// Maximum number of different rows in an IPv4 prefix table.
    pub rows: u32,
    /// Quantity that the rates of a meter limit.
    pub unit: MeterUnit,
}

/// Quantity that the rates of a meter limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeterUnit {
    /// Bits of frames without FCS. Bursts are in bytes.
    #[default]
    Bits,
    /// Packets.
    Packets,
}

/// Shape of a table, which determines how a lookup works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Hash table that finds a row by its exact key.
    Exact,
    /// Maps an address to the row of its longest matching IPv4 prefix.
    Lpm4,
    /// Maps an address to the row of its longest matching IPv6 prefix.
    Lpm6,
    /// Array that finds a row by its index.
    Array,
    /// Access control list. Each row has a pattern over several fields. A lookup finds the matching
    /// row with the lowest priority number.
    Acl,
    /// Consistent hash table that assigns a row to each hash (Eisenbud et al., Maglev, NSDI 2016).
    Maglev,
    /// Set of byte strings that are searched in a payload.
    Strings,
    /// Rate limits by fields of the five-tuple. One worker owns all packets of an entry, and
    /// compares them with its rate.
    Meter,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 8] =
        [Self::Exact, Self::Lpm4, Self::Lpm6, Self::Array, Self::Acl, Self::Maglev, Self::Strings, Self::Meter];

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
            Self::Meter => "meter",
        }
    }
}

/// State of flows that a function keeps.
#[derive(Clone, Debug)]
pub struct Flows {
    /// Name of the state, such as `session`.
    pub name: String,
    /// Meaning of the state. It may be empty.
    pub text: String,
    /// Fields of a flow's key.
    pub key: Vec<Field>,
    /// Second key, for the flow's packets in the opposite direction. It is empty if flows have only
    /// one key.
    pub reverse: Vec<Field>,
    /// Fields of the state that the function keeps for a flow.
    pub row: Vec<Field>,
    /// Whether Godwit counts the packets and bytes of each flow.
    pub counts: bool,
    /// Number of flows that all workers hold together.
    pub capacity: u32,
    /// Name and duration in seconds of each timer. A flow uses one timer at a time.
    pub timers: Vec<(String, u32)>,
    /// Optional limit on the number of flows with the same value in a key field.
    pub limit: Option<FlowLimit>,
}

/// Limit on the number of flows with the same value in a key field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowLimit {
    /// Name of the key field. One worker processes all packets with the same value in this field,
    /// and counts their flows.
    pub by: String,
    /// Name of the parameter with the maximum number of flows.
    pub max: String,
}

/// Pool of address-port pairs. A flow takes a pair and later gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name of the resource.
    pub name: String,
    /// Name of the parameter with the list of addresses.
    pub addresses: String,
    /// First and last port of the pool.
    pub ports: (u16, u16),
    /// Names of the address field and the port field in the key for the opposite direction. Each
    /// worker owns some ports of the pool. Packets in the opposite direction go to the worker that
    /// owns their port.
    pub reverse: (String, String),
}

impl Resource {
    /// Number of steering buckets, which select a packet's worker. Each bucket owns one block of
    /// ports per address.
    const BUCKETS: u32 = 128;

    /// Returns the number of ports in a block.
    pub(crate) fn block(&self) -> u32 {
        let (first, last) = self.ports;
        (u32::from(last) - u32::from(first) + 1) / Self::BUCKETS
    }
}

/// A command that the operator sends to a running function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Name of the command, which follows the function's name on the command line.
    pub name: String,
    /// Value of `command` in the request.
    pub request: String,
    /// Effect of the command, in one sentence.
    pub text: String,
    /// Options of the command line.
    pub arguments: Vec<CommandArgument>,
    /// Name of the request field with the rows, if the command sends rows.
    pub rows: Option<String>,
    /// Names of the values in a row, in their order on the command line and in the `--file` file.
    /// Only rows with one value may be repeated on the command line.
    pub words: Vec<String>,
    /// Whether each row in a request is a string instead of an object. Such rows have only one
    /// value.
    pub plain: bool,
    /// Name of the TOML tables with the rows in the `--file` file, or `None` if each line of the
    /// file is a row.
    pub stanza: Option<String>,
    /// Whether the command accepts the option `--file`.
    pub file: bool,
    /// Whether requests may contain cryptographic keys. Their text is then wiped from memory.
    pub secret: bool,
    /// Sentence that is printed after success. `{}` is replaced with the number of rows, such as
    /// `3 routes`.
    pub done: String,
    /// Noun for a row, in the singular and in the plural.
    pub noun: (String, String),
    /// Columns of the printed list. Other values follow the columns.
    pub columns: Vec<Column>,
    /// Name of the field in the reply that contains the list.
    pub list: Option<String>,
    /// Name of the reply field that contains the total number of rows.
    pub total: Option<String>,
    /// Fields that identify the next page of a list. The next request contains their values from
    /// the last row. The list is empty if there are no pages.
    pub page: Vec<String>,
    /// Whether the list is printed as lines of words instead of a table.
    pub lines: bool,
}

/// Column of a printed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Reply field that the column shows for each row.
    pub key: String,
    /// Text that is printed for a missing value.
    pub absent: String,
}

/// Option of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandArgument {
    /// Name of the option on the command line and in the request.
    pub name: String,
    /// Meaning of the option.
    pub text: String,
    /// Whether the value of the option is a number.
    pub number: bool,
    /// Whether the option has no value.
    pub flag: bool,
    /// Whether the option applies to each row instead of the whole request.
    pub in_row: bool,
    /// Whether the option is required.
    pub required: bool,
    /// Default value of the option, or empty.
    pub default: String,
}

/// Test packets of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDeclaration {
    /// File name of the capture that contains the frames.
    pub frames: String,
    /// Name of the file with the expected outcome of each frame.
    pub expect: String,
    /// Names of the ports. The number of a port is its index.
    pub ports: Vec<String>,
    /// Names of verdicts and drop reasons that cannot occur with the test's tables.
    pub unreached: Vec<String>,
    /// TOML text of `tables` and `params` in the test's configuration.
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

    /// Returns the C macro name of a drop reason, without the function's prefix. If a verdict has
    /// the same name, the macro name begins with `drop_`.
    pub fn drop_macro(&self, name: &str) -> String {
        if self.verdict(name).is_some() { format!("drop_{name}") } else { name.to_owned() }
    }

    /// Returns whether the function's Rust code builds its table image.
    pub fn has_own_image(&self) -> bool {
        self.records.iter().any(|record| record.name == "image")
    }

    /// Returns the number of counters that the kernel increments. These are all declared counters,
    /// unless Rust code builds the function's tables or replaces its kernel.
    pub fn kernel_counters(&self) -> usize {
        if self.has_kernel && !self.has_own_image() { self.counters.len() } else { 0 }
    }

    /// Returns whether the function must see packets in arrival order on the CPU. Functions with
    /// flows or meters need this order.
    pub fn needs_order(&self) -> bool {
        self.in_order || self.has_state()
    }

    /// Returns the properties of the function's CPU code. Functions with flows or meters read the
    /// times of packets.
    pub fn host_use(&self) -> HostUse {
        HostUse { reads_times: self.host.reads_times || self.has_state(), ..self.host }
    }

    /// Returns whether Godwit keeps flows or meters for the function.
    fn has_state(&self) -> bool {
        self.flows.is_some() || self.tables.iter().any(|table| table.shape == Shape::Meter)
    }
}
