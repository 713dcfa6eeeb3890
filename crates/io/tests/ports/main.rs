//! Tests of ports that need no device. These are the ports for capture files and for synthetic
//! traffic.

mod common;
mod load;
mod pcap_read;
mod pcap_write;
mod synthetic;
