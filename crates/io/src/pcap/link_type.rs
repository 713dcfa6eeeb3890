//! Link types of capture files. The numbers are the LINKTYPE_* values of
//! draft-ietf-opsawg-pcaplinktype.

use std::path::Path;

use crate::Error;

/// Value of LINKTYPE_ETHERNET, the link type of Ethernet.
pub(super) const ETHERNET: u16 = 1;

/// Returns an error if the link type is not Ethernet.
pub(super) fn check(path: &Path, link_type: u16) -> Result<(), Error> {
    if link_type == ETHERNET { Ok(()) } else { Err(error(path, link_type)) }
}

pub(super) fn error(path: &Path, link_type: u16) -> Error {
    Error::LinkType { path: path.to_owned(), link_type, name: name(link_type) }
}

/// Returns the name of a link type, if it is a common one.
fn name(link_type: u16) -> &'static str {
    match link_type {
        0 => "BSD loopback",
        ETHERNET => "Ethernet",
        8 => "SLIP",
        9 => "PPP",
        101 => "raw IP",
        104 => "Cisco HDLC",
        105 => "IEEE 802.11",
        107 => "frame relay",
        108 => "OpenBSD loopback",
        113 => "Linux cooked capture",
        127 => "IEEE 802.11 with radiotap",
        195 => "IEEE 802.15.4",
        228 => "raw IPv4",
        229 => "raw IPv6",
        276 => "Linux cooked capture 2",
        _ => "not Ethernet",
    }
}
