//! Parses the protocol in a rule header.

use super::rule::{Link, Protocol};
use crate::app::{App, AppSet};

/// Parses the word of a rule header that names the protocol.
pub(super) fn parse(word: &str) -> Result<Protocol, &'static str> {
    let any = Protocol {
        numbers: Vec::new(),
        version: None,
        apps: AppSet::default(),
        packets_only: false,
        stream_only: false,
        link: None,
    };
    let numbers = |numbers: &[u8]| Protocol { numbers: numbers.to_vec(), ..any.clone() };
    Ok(match word.to_ascii_lowercase().as_str() {
        "ip" | "any" | "pkthdr" | "file" => any,
        "tcp" => numbers(&[6]),
        "tcp-pkt" => Protocol { packets_only: true, ..numbers(&[6]) },
        "tcp-stream" => Protocol { stream_only: true, ..numbers(&[6]) },
        "udp" => numbers(&[17]),
        "icmp" => numbers(&[1, 58]),
        "icmpv4" => numbers(&[1]),
        "icmpv6" => numbers(&[58]),
        "sctp" => numbers(&[132]),
        "ipv4" | "ip4" => Protocol { version: Some(4), ..any },
        "ipv6" | "ip6" => Protocol { version: Some(6), ..any },
        "arp" => Protocol { link: Some(Link::Arp), ..any },
        "ether" => Protocol { link: Some(Link::Ether), ..any },
        name => {
            let apps = App::from_name(name);
            if apps.is_empty() {
                return Err("the protocol is not supported");
            }
            Protocol { apps, ..any }
        }
    })
}

/// Returns the protocols of Snort's `service` option.
pub(super) fn services(value: &str) -> AppSet {
    value
        .split(',')
        .flat_map(|name| match name.trim() {
            "netbios-ssn" => App::from_name("smb").iter().collect::<Vec<_>>(),
            name => App::from_name(name).iter().collect(),
        })
        .collect()
}
