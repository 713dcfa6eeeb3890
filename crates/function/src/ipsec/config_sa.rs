//! Configuration of an SA, from `[[function.sa]]` in the configuration file or from a command with
//! the same keys.

use std::net::IpAddr;

use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::config::{SelectorConfig, value};
use super::replay::{WINDOW_MAX, WINDOW_MIN};
use super::sa::{Df, Lifetime, Sa, Udp};
use super::selector::Selector;
use super::suite::{self, Authentication, Cipher, SUITES, Suite};
use crate::Error;
use crate::key::{Key, is_weak};

/// Smallest SPI that is not reserved (RFC 4303, section 2.1).
pub(super) const SPI_MIN: u32 = 256;
/// Default size of the replay window, in packets (RFC 4303, section 3.4.3).
const WINDOW_DEFAULT: u32 = 64;
/// Default port of ESP in UDP (RFC 3948, section 2.1).
const UDP_PORT: u16 = 4500;
/// Default TTL or hop limit of the outer header.
const HOP_LIMIT_DEFAULT: u8 = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaConfig {
    pub(super) name: Spanned<String>,
    pub(super) spi: Spanned<u32>,
    direction: Direction,
    #[serde(default)]
    protocol: ProtocolName,
    #[serde(default)]
    mode: Mode,
    source: Spanned<IpAddr>,
    destination: Spanned<IpAddr>,
    encryption: Option<Encryption>,
    encryption_key: Option<Key>,
    authentication: Option<AuthenticationName>,
    authentication_key: Option<Key>,
    salt: Option<Key>,
    icv_bytes: Option<Spanned<u8>>,
    #[serde(default)]
    esn: bool,
    replay_window: Option<Spanned<u32>>,
    udp_encapsulation: Option<Spanned<UdpConfig>>,
    path_mtu: Option<Spanned<u16>>,
    dscp: Option<Dscp>,
    df: Option<Df>,
    ecn: Option<bool>,
    hop_limit: Option<Spanned<u8>>,
    lifetime: Option<Spanned<LifetimeConfig>>,
    selectors: Option<Spanned<Vec<Spanned<SelectorConfig>>>>,
    /// Whether insecure settings are accepted, such as encryption without authentication.
    #[serde(default)]
    insecure: bool,
    /// Whether the operator configures a new cryptographic key each time the process starts.
    key_is_new: Option<Spanned<bool>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    /// Encapsulates packets.
    Out,
    /// Decapsulates packets.
    In,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ProtocolName {
    #[default]
    Esp,
    Ah,
}

/// IPsec mode. Tunnel mode protects whole packets, and transport mode protects their payload.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    #[default]
    Tunnel,
    Transport,
}

/// Defines an enum whose variants are configuration values.
macro_rules! names {
    ($type:ident: $($name:literal $variant:ident),*) => {
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
        enum $type {
            $(#[serde(rename = $name)] $variant),*
        }

        impl $type {
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

names! {
    Encryption:
    "null" Null, "aes-128-cbc" Aes128Cbc, "aes-192-cbc" Aes192Cbc, "aes-256-cbc" Aes256Cbc,
    "aes-128-ctr" Aes128Ctr, "aes-192-ctr" Aes192Ctr, "aes-256-ctr" Aes256Ctr,
    "aes-128-gcm" Aes128Gcm, "aes-192-gcm" Aes192Gcm, "aes-256-gcm" Aes256Gcm,
    "aes-128-gmac" Aes128Gmac, "aes-192-gmac" Aes192Gmac, "aes-256-gmac" Aes256Gmac,
    "aes-128-ccm" Aes128Ccm, "aes-192-ccm" Aes192Ccm, "aes-256-ccm" Aes256Ccm,
    "chacha20-poly1305" ChaCha20Poly1305
}

names! {
    AuthenticationName:
    "hmac-sha1-96" HmacSha1, "hmac-sha-256-128" HmacSha256, "hmac-sha-384-192" HmacSha384,
    "hmac-sha-512-256" HmacSha512, "aes-xcbc-96" AesXcbc, "aes-cmac-96" AesCmac,
    "aes-128-gmac" Aes128Gmac, "aes-192-gmac" Aes192Gmac, "aes-256-gmac" Aes256Gmac,
    "none" None
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UdpConfig {
    #[serde(default = "udp_port")]
    source_port: u16,
    #[serde(default = "udp_port")]
    destination_port: u16,
    #[serde(default)]
    keepalive_s: u16,
}

/// Minimum path MTU, in bytes. With a smaller value, less than 400 bytes would remain for a packet
/// inside the tunnel.
pub(super) const PATH_MTU_MIN: u16 = 576;

pub(super) fn check_path_mtu(given: &Spanned<u16>) -> Result<u16, Error> {
    match *given.get_ref() {
        mtu if mtu < PATH_MTU_MIN => value(given, format!("path_mtu = {mtu} must be at least {PATH_MTU_MIN}")),
        mtu => Ok(mtu),
    }
}

fn udp_port() -> u16 {
    UDP_PORT
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LifetimeConfig {
    soft_bytes: Option<u64>,
    hard_bytes: Option<u64>,
    soft_packets: Option<u64>,
    hard_packets: Option<u64>,
}

/// DSCP of the outer header. `None` is the configuration value `"copy"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dscp(Option<u8>);

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "dscp must be \"copy\" or 0 to 63")]
        enum Written {
            Number(i64),
            Name(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) if (0..64).contains(&number) => Ok(Self(Some(number as u8))),
            Written::Name(name) if name == "copy" => Ok(Self(None)),
            _ => Err(serde::de::Error::custom("dscp must be \"copy\" or 0 to 63")),
        }
    }
}

/// Returns the cipher with the configured name, and its key size in bytes. Some names also
/// determine the authentication.
fn encryption(name: Encryption) -> (Cipher, usize, Option<Authentication>) {
    use Encryption as E;
    let ghash = Some(Authentication::Ghash);
    match name {
        E::Null => (Cipher::Null, 0, None),
        E::Aes128Cbc => (Cipher::Cbc, 16, None),
        E::Aes192Cbc => (Cipher::Cbc, 24, None),
        E::Aes256Cbc => (Cipher::Cbc, 32, None),
        E::Aes128Ctr => (Cipher::Ctr, 16, None),
        E::Aes192Ctr => (Cipher::Ctr, 24, None),
        E::Aes256Ctr => (Cipher::Ctr, 32, None),
        E::Aes128Gcm => (Cipher::Ctr, 16, ghash),
        E::Aes192Gcm => (Cipher::Ctr, 24, ghash),
        E::Aes256Gcm => (Cipher::Ctr, 32, ghash),
        E::Aes128Gmac => (Cipher::Null, 16, ghash),
        E::Aes192Gmac => (Cipher::Null, 24, ghash),
        E::Aes256Gmac => (Cipher::Null, 32, ghash),
        E::Aes128Ccm => (Cipher::Ctr, 16, Some(Authentication::Ccm)),
        E::Aes192Ccm => (Cipher::Ctr, 24, Some(Authentication::Ccm)),
        E::Aes256Ccm => (Cipher::Ctr, 32, Some(Authentication::Ccm)),
        E::ChaCha20Poly1305 => (Cipher::ChaCha20, 32, Some(Authentication::Poly1305)),
    }
}

/// Returns the authentication with the configured name, and the GMAC key size in bytes, which is 0
/// without GMAC.
fn authentication(name: AuthenticationName) -> (Authentication, usize) {
    use AuthenticationName as A;
    match name {
        A::HmacSha1 => (Authentication::Sha1, 0),
        A::HmacSha256 => (Authentication::Sha256, 0),
        A::HmacSha384 => (Authentication::Sha384, 0),
        A::HmacSha512 => (Authentication::Sha512, 0),
        A::AesXcbc => (Authentication::Xcbc, 0),
        A::AesCmac => (Authentication::Cmac, 0),
        A::Aes128Gmac => (Authentication::Ghash, 16),
        A::Aes192Gmac => (Authentication::Ghash, 24),
        A::Aes256Gmac => (Authentication::Ghash, 32),
        A::None => (Authentication::None, 0),
    }
}

/// Returns the size of the authentication key in bytes, or 0 if the cipher also authenticates. An
/// HMAC key is as long as the hash value (RFC 2404, section 3; RFC 4868, section 2.1.1).
fn hmac_key_bytes(authentication: Authentication) -> usize {
    match authentication {
        Authentication::Sha1 => 20,
        Authentication::Sha256 => 32,
        Authentication::Sha384 => 48,
        Authentication::Sha512 => 64,
        Authentication::Xcbc | Authentication::Cmac => 16,
        _ => 0,
    }
}

impl SaConfig {
    /// Converts the configuration to an SA.
    ///
    /// # Errors
    /// Returns [`Error::Value`] for settings that are invalid or insecure. The message contains no
    /// cryptographic key.
    pub(super) fn resolve(&self) -> Result<Sa, Error> {
        let (name, spi) = (self.name.get_ref(), *self.spi.get_ref());
        if spi == 0 {
            let message = format!("spi = 0 of SA \"{name}\" never appears in a packet: use {SPI_MIN} or more");
            return value(&self.spi, message);
        }
        self.check_endpoints()?;
        self.check_tunnel_only()?;
        let suite = self.suite()?;
        let number = suite::number(suite.name).unwrap_or(0);
        let mut sa = Sa {
            name: name.clone(),
            spi,
            direction: self.direction,
            suite: number,
            mode: self.mode,
            source: *self.source.get_ref(),
            destination: *self.destination.get_ref(),
            key: Zeroizing::default(),
            salt: Zeroizing::default(),
            hmac_key: Zeroizing::default(),
            icv_bytes: self.icv_bytes(suite)?,
            esn: self.esn,
            replay_window: self.replay_window()?,
            udp: self.udp(suite)?,
            keepalive_s: self.udp_encapsulation.as_ref().map_or(0, |given| given.get_ref().keepalive_s),
            path_mtu: self.path_mtu()?,
            dscp: self.dscp.and_then(|dscp| dscp.0),
            df: self.df.unwrap_or_default(),
            ecn: self.ecn.unwrap_or(true),
            hop_limit: self.hop_limit()?,
            lifetime: self.lifetime()?,
            selectors: self.selectors()?,
            insecure: self.insecure,
            key_is_new: self.key_is_new()?,
        };
        self.take_keys(suite, &mut sa)?;
        if sa.is_insecure() && !self.insecure {
            let message = "is not authenticated, so anyone on the path can change its packets: set authentication \
                           (insecure = true overrides this)";
            return self.refuse(message);
        }
        Ok(sa)
    }

    /// Returns an error about the SA. The message quotes only the line with the SA's name, because
    /// other lines may contain cryptographic keys.
    fn refuse<T>(&self, problem: &str) -> Result<T, Error> {
        value(&self.name, format!("SA \"{}\" {problem}", self.name.get_ref()))
    }

    fn key_error(&self, key: &str, problem: &str) -> Error {
        let message = format!("{key} of SA \"{}\" {problem}", self.name.get_ref());
        Error::Value { span: Some(self.name.span()), message }
    }
    fn check_endpoints(&self) -> Result<(), Error> {
        let name = self.name.get_ref();
        for endpoint in [&self.source, &self.destination] {
            let address = endpoint.get_ref();
            let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            if address.is_unspecified() || address.is_multicast() || is_broadcast {
                let message = format!("{address} of SA \"{name}\" cannot be an endpoint: use a unicast address");
                return value(endpoint, message);
            }
        }
        let (source, destination) = (self.source.get_ref(), self.destination.get_ref());
        if source == destination {
            return value(&self.destination, format!("SA \"{name}\" has the same source and destination address"));
        }
        if source.is_ipv4() != destination.is_ipv4() {
            let message =
                format!("SA \"{name}\" has the endpoints {source} and {destination}: one is IPv4, the other IPv6");
            return value(&self.destination, message);
        }
        Ok(())
    }

    /// Rejects settings of the outer header in transport mode.
    fn check_tunnel_only(&self) -> Result<(), Error> {
        let given = [
            ("dscp", self.dscp.is_some()),
            ("df", self.df.is_some()),
            ("ecn", self.ecn.is_some()),
            ("hop_limit", self.hop_limit.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((key, _)) if self.mode == Mode::Transport => {
                let problem = "is a setting of the outer header, which transport mode does not have: leave it out";
                Err(self.key_error(key, problem))
            }
            _ => Ok(()),
        }
    }

    fn suite(&self) -> Result<&'static Suite, Error> {
        let esp = self.protocol == ProtocolName::Esp;
        let (cipher, key_bytes, own) = match (esp, self.encryption) {
            (true, Some(name)) => encryption(name),
            (true, None) => return self.refuse("needs encryption = \"...\" (\"null\" for no encryption)"),
            (false, None) => (Cipher::Null, 0, None),
            (false, Some(_)) => return self.refuse("uses AH, which does not encrypt: leave encryption out"),
        };
        let named = self.authentication.map(authentication);
        let encryption = self.encryption.map_or("", Encryption::name);
        let (authentication, gmac_key_bytes) = match (own, named) {
            (Some(own), None) => (own, 0),
            (Some(_), Some(_)) => {
                return self.refuse(&format!("is authenticated by {encryption}: leave authentication out"));
            }
            (None, Some(named)) => named,
            (None, None) => return self.refuse("needs authentication = \"...\""),
        };
        let protocol = if esp { suite::Protocol::Esp } else { suite::Protocol::Ah };
        let key_bytes = if esp { key_bytes } else { gmac_key_bytes };
        let matches = |suite: &&Suite| {
            (suite.protocol, suite.cipher, suite.key_bytes, suite.authentication)
                == (protocol, cipher, key_bytes, authentication)
        };
        let gmac_of_esp = esp && gmac_key_bytes > 0;
        match SUITES.iter().find(matches) {
            Some(suite) if !gmac_of_esp => Ok(suite),
            _ => {
                let with = self.authentication.map_or("", AuthenticationName::name);
                let problem = if esp {
                    format!("ESP does not support {encryption} with {with}")
                } else {
                    format!("AH does not support {with}")
                };
                let hint = if gmac_of_esp { format!(": for GMAC, set encryption = \"{with}\"") } else { String::new() };
                value(&self.name, format!("{problem}, which SA \"{}\" needs{hint}", self.name.get_ref()))
            }
        }
    }

    /// Reads the cryptographic keys of the SA. Returns an error if a key has the wrong length or
    /// looks weak.
    fn take_keys(&self, suite: &Suite, sa: &mut Sa) -> Result<(), Error> {
        let hmac_bytes = hmac_key_bytes(suite.authentication);
        let of_ah = suite.protocol == suite::Protocol::Ah;
        let (name, key) = if of_ah && suite.key_bytes > 0 {
            ("authentication_key", &self.authentication_key)
        } else {
            ("encryption_key", &self.encryption_key)
        };
        let reject_unused = |name: &str, key: &Option<Key>| match key {
            Some(_) => Err(self.key_error(name, "is not used: leave it out")),
            None => Ok(()),
        };
        if of_ah {
            reject_unused("encryption_key", &self.encryption_key)?;
        }
        if suite.key_bytes == 0 {
            reject_unused("encryption_key", &self.encryption_key)?;
        } else {
            let salt_bytes = suite.salt_bytes();
            let lengths = match (&self.salt, salt_bytes) {
                (_, 0) => vec![suite.key_bytes],
                (Some(_), _) => vec![suite.key_bytes],
                // Without a configured salt, the last bytes of the configured key are the salt, as
                // in KEYMAT (RFC 4106, section 8.1; RFC 3686, section 5.1; RFC 4309, section 7.1).
                (None, _) => vec![suite.key_bytes + salt_bytes],
            };
            let key = self.key(name, key, &lengths)?;
            sa.key = Zeroizing::new(key[..suite.key_bytes].to_vec());
            sa.salt[..key.len() - suite.key_bytes].copy_from_slice(&key[suite.key_bytes..]);
            self.check_strength(name, &sa.key)?;
        }
        if suite.salt_bytes() == 0 {
            reject_unused("salt", &self.salt)?;
        } else if self.salt.is_some() {
            let salt = self.key("salt", &self.salt, &[suite.salt_bytes()])?;
            sa.salt[..salt.len()].copy_from_slice(&salt);
        }
        if hmac_bytes > 0 {
            sa.hmac_key = self.key("authentication_key", &self.authentication_key, &[hmac_bytes])?;
            self.check_strength("authentication_key", &sa.hmac_key)?;
        } else if name != "authentication_key" {
            reject_unused("authentication_key", &self.authentication_key)?;
        }
        Ok(())
    }

    fn key(&self, name: &str, key: &Option<Key>, lengths: &[usize]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let Some(key) = key else { return Err(self.key_error(name, "is missing")) };
        key.with_length(lengths).map_err(|error| self.key_error(name, &error.to_string()))
    }

    fn check_strength(&self, name: &str, key: &[u8]) -> Result<(), Error> {
        if is_weak(key) && !self.insecure {
            let problem = "repeats a few bytes: generate a random key (insecure = true overrides this)";
            return Err(self.key_error(name, problem));
        }
        Ok(())
    }

    fn icv_bytes(&self, suite: &Suite) -> Result<u8, Error> {
        let allowed: &[u8] = match (suite.authentication, suite.cipher) {
            (Authentication::None, _) => &[0],
            (Authentication::Sha1 | Authentication::Xcbc | Authentication::Cmac, _) => &[12],
            (Authentication::Sha384, _) => &[24],
            (Authentication::Sha512, _) => &[32],
            // RFC 4106, section 6, and RFC 4309, section 6, permit these ICV lengths.
            (Authentication::Ghash, Cipher::Ctr) | (Authentication::Ccm, _) => &[16, 12, 8],
            (Authentication::Sha256 | Authentication::Ghash | Authentication::Poly1305, _) => &[16],
        };
        match &self.icv_bytes {
            None => Ok(allowed[0]),
            Some(given) if allowed.contains(given.get_ref()) => Ok(*given.get_ref()),
            Some(given) => {
                let allowed = allowed.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
                let name = self.name.get_ref();
                value(given, format!("icv_bytes = {} of SA \"{name}\" must be one of {allowed}", given.get_ref()))
            }
        }
    }

    fn replay_window(&self) -> Result<u32, Error> {
        let is_inbound = self.direction == Direction::In;
        let name = self.name.get_ref();
        match &self.replay_window {
            Some(given) if !is_inbound => {
                let message = format!("replay_window of SA \"{name}\" is for inbound SAs: leave it out");
                value(given, message)
            }
            Some(given) if *given.get_ref() == 0 && self.esn => {
                // The receiver infers the upper half of an extended sequence number from the replay
                // window (RFC 4303, section 3.4.3).
                value(given, format!("replay_window = 0 of SA \"{name}\" cannot be combined with esn = true"))
            }
            Some(given) if *given.get_ref() == 0 => Ok(0),
            Some(given) if (WINDOW_MIN..=WINDOW_MAX).contains(given.get_ref()) => Ok(*given.get_ref()),
            Some(given) => value(
                given,
                format!(
                    "replay_window = {} of SA \"{name}\" must be {WINDOW_MIN} to {WINDOW_MAX}, or 0 for none",
                    given.get_ref()
                ),
            ),
            None if is_inbound => Ok(WINDOW_DEFAULT),
            None => Ok(0),
        }
    }

    fn key_is_new(&self) -> Result<bool, Error> {
        match &self.key_is_new {
            Some(given) if self.direction == Direction::In => {
                let message = format!("key_is_new of SA \"{}\" is for outbound SAs: leave it out", self.name.get_ref());
                value(given, message)
            }
            Some(given) => Ok(*given.get_ref()),
            None => Ok(false),
        }
    }

    fn udp(&self, suite: &Suite) -> Result<Option<Udp>, Error> {
        let Some(given) = &self.udp_encapsulation else { return Ok(None) };
        let UdpConfig { source_port, destination_port, keepalive_s } = *given.get_ref();
        let name = self.name.get_ref();
        if suite.protocol == suite::Protocol::Ah {
            let message =
                format!("SA \"{name}\" uses AH, which cannot be encapsulated in UDP: leave udp_encapsulation out");
            return value(given, message);
        }
        if source_port == 0 || destination_port == 0 {
            return value(given, format!("udp_encapsulation of SA \"{name}\" has port 0: use 1 to 65535"));
        }
        if keepalive_s > 0 && self.direction == Direction::In {
            return value(given, format!("SA \"{name}\" is inbound: set keepalive_s on the outbound SA"));
        }
        Ok(Some(Udp { source_port, destination_port }))
    }

    fn path_mtu(&self) -> Result<u16, Error> {
        let Some(given) = &self.path_mtu else { return Ok(0) };
        if self.direction == Direction::In || self.mode == Mode::Transport {
            return value(
                given,
                format!("path_mtu of SA \"{}\" is for outbound tunnels: leave it out", self.name.get_ref()),
            );
        }
        check_path_mtu(given)
    }

    fn hop_limit(&self) -> Result<u8, Error> {
        match &self.hop_limit {
            None => Ok(HOP_LIMIT_DEFAULT),
            Some(given) if *given.get_ref() == 0 => {
                value(given, format!("hop_limit = 0 of SA \"{}\" must be 1 to 255", self.name.get_ref()))
            }
            Some(given) => Ok(*given.get_ref()),
        }
    }

    fn lifetime(&self) -> Result<Lifetime, Error> {
        let Some(given) = &self.lifetime else { return Ok(Lifetime::ENDLESS) };
        let keys = given.get_ref();
        let name = self.name.get_ref();
        for (unit, soft, hard) in
            [("bytes", keys.soft_bytes, keys.hard_bytes), ("packets", keys.soft_packets, keys.hard_packets)]
        {
            if hard == Some(0) {
                return value(given, format!("hard_{unit} = 0 of SA \"{name}\" must be at least 1"));
            }
            if let (Some(soft), Some(hard)) = (soft, hard)
                && soft > hard
            {
                let message = format!("soft_{unit} = {soft} of SA \"{name}\" must be at most hard_{unit} = {hard}");
                return value(given, message);
            }
        }
        let or_endless = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
        Ok(Lifetime {
            soft_bytes: or_endless(keys.soft_bytes),
            hard_bytes: or_endless(keys.hard_bytes),
            soft_packets: or_endless(keys.soft_packets),
            hard_packets: or_endless(keys.hard_packets),
        })
    }

    fn selectors(&self) -> Result<Vec<Selector>, Error> {
        let name = self.name.get_ref();
        match (&self.selectors, self.direction) {
            (Some(selectors), Direction::Out) => {
                let message =
                    format!("SA \"{name}\" is outbound and cannot have selectors: policies select its packets");
                value(selectors, message)
            }
            (Some(selectors), Direction::In) if selectors.get_ref().is_empty() => value(
                selectors,
                format!("SA \"{name}\" has no selectors and would accept no packet: leave the key out to accept all"),
            ),
            (Some(selectors), Direction::In) => selectors.get_ref().iter().map(SelectorConfig::resolve).collect(),
            (None, Direction::Out) => Ok(Vec::new()),
            (None, Direction::In) => Ok(vec![Selector::default()]),
        }
    }
}
