//! The Godwit command line.
fn main() {}
