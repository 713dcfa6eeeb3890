//! Names of application protocols and flow directions, shared by the rules, the protocol parsers
//! and the log records.

/// Direction within a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Direction {
    /// Data from the client, which opened the flow, to the server.
    ToServer = 0,
    /// Data from the server to the client.
    ToClient = 1,
}

impl Direction {
    /// Both directions, client first.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// Returns the other direction.
    pub fn opposite(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

macro_rules! apps {
    ($($(#[$doc:meta])* $variant:ident = $name:literal $(| $alias:literal)*;)*) => {
        /// Application protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum App { $($(#[$doc])* $variant,)* }

        impl App {
            /// Every protocol.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name in rules and records.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the protocols that a name in a rule covers.
            pub fn from_name(name: &str) -> AppSet {
                let mut set = AppSet::default();
                $(if [$name $(, $alias)*].contains(&name) { set.insert(Self::$variant); })*
                set
            }
        }
    };
}

apps! {
    /// HTTP/1.
    Http = "http1" | "http";
    /// HTTP/2.
    Http2 = "http2" | "http" | "doh2";
    /// DNS over UDP and TCP.
    Dns = "dns" | "doh2";
    /// TLS and SSL.
    Tls = "tls" | "ssl";
    /// SSH.
    Ssh = "ssh";
    /// SMTP.
    Smtp = "smtp";
    /// FTP control connection.
    Ftp = "ftp";
    /// FTP data connection.
    FtpData = "ftp-data";
    /// SMB 1 to 3.
    Smb = "smb";
    /// DCE/RPC.
    Dcerpc = "dcerpc";
    /// SIP.
    Sip = "sip";
    /// QUIC.
    Quic = "quic";
    /// MQTT.
    Mqtt = "mqtt";
    /// SNMP.
    Snmp = "snmp";
    /// Kerberos 5.
    Krb5 = "krb5";
    /// IKE.
    Ike = "ike";
    /// NFS.
    Nfs = "nfs";
    /// NTP.
    Ntp = "ntp";
    /// DHCP.
    Dhcp = "dhcp";
    /// TFTP.
    Tftp = "tftp";
    /// RDP.
    Rdp = "rdp";
    /// RFB (VNC).
    Rfb = "rfb";
    /// Telnet.
    Telnet = "telnet";
    /// WebSocket.
    Websocket = "websocket";
    /// Modbus.
    Modbus = "modbus";
    /// DNP3.
    Dnp3 = "dnp3";
    /// EtherNet/IP.
    Enip = "enip";
    /// IMAP.
    Imap = "imap";
    /// POP3.
    Pop3 = "pop3";
    /// LDAP.
    Ldap = "ldap";
    /// LLMNR.
    Llmnr = "llmnr";
    /// Multicast DNS.
    Mdns = "mdns";
    /// PostgreSQL.
    Pgsql = "pgsql";
    /// BitTorrent DHT.
    BittorrentDht = "bittorrent-dht";
}

impl App {
    /// Returns the protocol name in EVE log records, where HTTP/1 and HTTP/2 share a name.
    pub fn event_name(self) -> &'static str {
        match self {
            Self::Http => "http",
            other => other.name(),
        }
    }
}

/// Set of application protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct AppSet(u64);

impl AppSet {
    /// Adds a protocol.
    pub fn insert(&mut self, app: App) {
        self.0 |= 1 << app as u8;
    }

    /// Returns whether the set contains `app`.
    pub fn contains(self, app: App) -> bool {
        self.0 >> app as u8 & 1 == 1
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the protocols of both sets.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the members.
    pub fn iter(self) -> impl Iterator<Item = App> {
        App::ALL.iter().copied().filter(move |app| self.contains(*app))
    }
}

impl FromIterator<App> for AppSet {
    fn from_iter<T: IntoIterator<Item = App>>(apps: T) -> Self {
        let mut set = Self::default();
        apps.into_iter().for_each(|app| set.insert(app));
        set
    }
}
