//! Ports that need no device: captures and synthetic traffic.

mod common;
mod load;
mod pcap_read;
mod pcap_write;
mod synthetic;
