//! Tests of the whole inspector.

mod corpus;
mod suricata;
