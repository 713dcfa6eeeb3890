//! Variables in rule headers, such as `$HOME_NET`. Names and default values come from Suricata's
//! `suricata.yaml`.

use std::collections::BTreeMap;

/// List of inclusive ranges.
pub(super) type List<T> = Vec<(T, T)>;

const ADDRESSES: &[(&str, &str)] = &[
    ("HOME_NET", "[192.168.0.0/16,10.0.0.0/8,172.16.0.0/12]"),
    ("EXTERNAL_NET", "!$HOME_NET"),
    ("HTTP_SERVERS", "$HOME_NET"),
    ("SMTP_SERVERS", "$HOME_NET"),
    ("SQL_SERVERS", "$HOME_NET"),
    ("DNS_SERVERS", "$HOME_NET"),
    ("TELNET_SERVERS", "$HOME_NET"),
    ("AIM_SERVERS", "$EXTERNAL_NET"),
    ("DC_SERVERS", "$HOME_NET"),
    ("DNP3_SERVER", "$HOME_NET"),
    ("DNP3_CLIENT", "$HOME_NET"),
    ("MODBUS_CLIENT", "$HOME_NET"),
    ("MODBUS_SERVER", "$HOME_NET"),
    ("ENIP_CLIENT", "$HOME_NET"),
    ("ENIP_SERVER", "$HOME_NET"),
    ("SSH_SERVERS", "$HOME_NET"),
    ("FTP_SERVERS", "$HOME_NET"),
    ("SIP_SERVERS", "$HOME_NET"),
];

const PORTS: &[(&str, &str)] = &[
    ("HTTP_PORTS", "80"),
    ("SHELLCODE_PORTS", "!80"),
    ("ORACLE_PORTS", "1521"),
    ("SSH_PORTS", "22"),
    ("DNP3_PORTS", "20000"),
    ("MODBUS_PORTS", "502"),
    ("FILE_DATA_PORTS", "[$HTTP_PORTS,110,143]"),
    ("FTP_PORTS", "21"),
    ("GENEVE_PORTS", "6081"),
    ("VXLAN_PORTS", "4789"),
    ("TEREDO_PORTS", "3544"),
    ("SIP_PORTS", "[5060,5061,5600]"),
];

/// Address variables and port variables.
#[derive(Debug, Clone)]
pub struct Variables {
    addresses: BTreeMap<String, String>,
    ports: BTreeMap<String, String>,
}

impl Default for Variables {
    fn default() -> Self {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self { addresses: map(ADDRESSES), ports: map(PORTS) }
    }
}

impl Variables {
    /// Defines an address variable. `name` has no `$` prefix.
    pub fn set_address(&mut self, name: &str, value: &str) {
        self.addresses.insert(name.to_owned(), value.to_owned());
    }

    /// Defines a port variable. `name` does not begin with `$`.
    pub fn set_port(&mut self, name: &str, value: &str) {
        self.ports.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn address(&self, name: &str) -> Option<&str> {
        self.addresses.get(name).map(String::as_str)
    }

    pub(super) fn port(&self, name: &str) -> Option<&str> {
        self.ports.get(name).map(String::as_str)
    }
}

/// Splits a list at commas outside brackets.
pub(super) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}
