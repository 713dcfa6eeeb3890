//! A rule after parsing.

use super::address::AddressSet;
use super::bytes::{ByteExtract, ByteJump, ByteMath, ByteTest, IsDataAt};
use super::content::Content;
use super::field::Field;
use super::number::NumberTest;
use super::packet_test::PacketTest;
use super::port::PortSet;
use super::state::{Bit, FlowInt, FlowTest, Threshold};
use super::transform::Transform;
use crate::app::AppSet;
use crate::regex::Regex;
use std::sync::Arc;

/// File and line of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
}

/// Action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Accepts the packet without an alert, and ignores all further rules.
    Pass,
    /// Drops the packet and the rest of the flow, with an alert.
    Drop,
    /// Drops the packet, resets the connection, and reports an alert.
    Reject,
    /// Reports an alert.
    Alert,
}

/// Protocol part of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// IP protocol numbers that the rule matches. An empty list matches all protocols.
    pub numbers: Vec<u8>,
    /// IP version, or `None` for both versions.
    pub version: Option<u8>,
    /// Application protocols that the rule matches. An empty set matches all protocols.
    pub apps: AppSet,
    /// Whether the rule inspects only single packets (`tcp-pkt`).
    pub packets_only: bool,
    /// Whether the rule inspects only reassembled data (`tcp-stream`).
    pub stream_only: bool,
    /// Kind of non-IP frames that the rule inspects: ARP frames, or all Ethernet frames.
    pub link: Option<Link>,
}

/// Protocol below IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// ARP.
    Arp,
    /// Any Ethernet frame.
    Ether,
}

/// Arrow between the two endpoints in a rule header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrow {
    /// Packets from the first endpoint to the second endpoint match (`->`).
    Forward,
    /// `<>`: packets in both directions match.
    Both,
    /// `=>`: the rule tests both directions of one transaction.
    Transaction,
}

/// Addresses and ports of one endpoint in a rule header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Addresses.
    pub addresses: Arc<AddressSet>,
    /// Ports.
    pub ports: Arc<PortSet>,
}

/// Tests of one field, in the order of the rule.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Field that the tests inspect.
    pub field: Field,
    /// Transformations of the field, in the order in which they are applied.
    pub transforms: Vec<Transform>,
    /// Tests.
    pub tests: Vec<Test>,
}

/// Test of a field.
#[derive(Debug, Clone)]
pub enum Test {
    /// Byte string.
    Content(Content),
    /// Regular expression.
    Pcre(Pcre),
    /// Compares a number in the field.
    ByteTest(ByteTest),
    /// Reads a number from the field, and moves the next test's position by it.
    ByteJump(ByteJump),
    /// Stores a number from the field in a variable.
    ByteExtract(ByteExtract),
    /// Calculates with a number from the field.
    ByteMath(ByteMath),
    /// Tests whether the field has a byte at a position.
    DataAt(IsDataAt),
    /// Length of the field.
    Size(NumberTest),
    /// Value of a number field.
    Number(NumberTest),
    /// Decodes Base64, and tests the result.
    Base64 {
        /// Maximum number of encoded bytes.
        bytes: Option<u32>,
        /// Position of the encoded bytes.
        offset: u32,
        /// Whether the position counts from the end of the previous match.
        relative: bool,
        /// Tests of the decoded bytes.
        tests: Vec<Test>,
    },
    /// Tests that the field does not exist.
    Absent {
        /// Whether the rule also matches if the field exists and passes the other tests.
        or_else: bool,
    },
}

/// Regular expression as a test.
#[derive(Debug, Clone)]
pub struct Pcre {
    /// Compiled expression.
    pub regex: Regex,
    /// Whether the test succeeds if the expression does not match.
    pub negated: bool,
    /// Whether the search starts at the end of the previous match.
    pub relative: bool,
    /// Variables for the capture groups, sorted by group number.
    pub captures: Vec<(u8, Capture)>,
}

/// Variable in which a capture group is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    /// Variable of the flow, by name.
    Flow(String),
    /// Variable of the packet, by name.
    Packet(String),
}

/// Position of the test that contains the prefilter's byte string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefilter {
    /// Index in [`Rule::chains`] for the group of the test.
    pub chain: usize,
    /// Index of the test in [`Chain::tests`].
    pub test: usize,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// File and line of the rule.
    pub place: Place,
    /// Action of the rule.
    pub action: Action,
    /// Protocol part of the rule header.
    pub protocol: Protocol,
    /// First endpoint in the rule header.
    pub source: Endpoint,
    /// Second endpoint in the rule header.
    pub destination: Endpoint,
    /// Arrow between the two endpoints.
    pub arrow: Arrow,
    /// Identification of the rule.
    pub meta: Meta,
    /// Test of the flow.
    pub flow: FlowTest,
    /// Tests of the packet.
    pub packet: Vec<PacketTest>,
    /// Tests of fields.
    pub chains: Vec<Chain>,
    /// Tests and changes of named bits.
    pub bits: Vec<Bit>,
    /// Tests and changes of integer variables.
    pub ints: Vec<FlowInt>,
    /// Limit for alerts.
    pub threshold: Option<Threshold>,
    /// Test with the prefilter's byte string. Without one, the prefilter never excludes the rule.
    pub prefilter: Option<Prefilter>,
    /// Whether the rule reports no alerts (option `noalert`).
    pub noalert: bool,
    /// Whether the rule reports an alert even with the action `pass`.
    pub alert: bool,
    /// Whether a match ends the inspection of the flow.
    pub bypass: bool,
    /// Whether the rule stores files (option `filestore`). It then matches only transactions with a
    /// file.
    pub filestore: bool,
}

/// Identification of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Rule number.
    pub sid: u32,
    /// Group of the rule number.
    pub gid: u32,
    /// Revision.
    pub rev: u32,
    /// Text of the alert.
    pub message: String,
    /// Class of the rule.
    pub class: Option<String>,
    /// Severity, 1 (high) to 255.
    pub priority: u8,
    /// References, as they are written in the rule.
    pub references: Vec<String>,
    /// Metadata: pairs of key and value.
    pub metadata: Vec<(String, String)>,
    /// Side that is attacked, `src_ip` or `dest_ip`.
    pub target: Option<String>,
}

impl Rule {
    /// Returns whether the rule tests fields of transactions, such as HTTP requests.
    pub fn has_transaction(&self) -> bool {
        self.chains.iter().any(|chain| chain.field.is_transaction())
    }

    /// Returns the `content` test for the prefilter, and the group of tests that contains it.
    pub fn prefilter_content(&self) -> Option<(&Chain, &Content)> {
        let prefilter = self.prefilter?;
        let chain = &self.chains[prefilter.chain];
        match &chain.tests[prefilter.test] {
            Test::Content(content) => Some((chain, content)),
            _ => None,
        }
    }
}
