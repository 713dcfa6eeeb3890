//! SAs of one or several cipher suites.

use std::fmt::Write as _;
use std::sync::Arc;

use godwit_function::Function;
use godwit_function::ipsec;
use godwit_function::ipsec::suite::{self, Authentication, Cipher, Protocol, SUITES, Suite};

use crate::error::Error;
use crate::load::build::build;
use crate::load::frames::Random;
use crate::load::job::Job;

/// Default number of SAs.
const SAS: u32 = 4096;
/// Default suite.
const SUITE: &str = "cbc128_sha1";
/// Suites of `mix`.
const MIX: [&str; 3] = ["cbc128_sha1", "gcm128", "chacha20_poly1305"];
/// Largest number of SAs that the kernel's parameter can address.
const SAS_MAX: u32 = 1 << 20;

/// The SAs that a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Name of a suite, or `mix`. Default: AES-128-CBC with HMAC-SHA1-96.
    pub(crate) suite: Option<String>,
    /// Number of SAs. Default: 4096.
    pub(crate) sas: Option<u32>,
    /// Whether packets are decrypted.
    pub(crate) decrypt: bool,
}

/// Outbound SAs of one suite, or of several suites alternately. For decryption, as many inbound SAs
/// with the same keys follow.
#[derive(Clone, Debug)]
pub(crate) struct Associations {
    suites: Vec<(u8, &'static Suite)>,
    pub(crate) sas: u32,
    inbound: bool,
    /// Whether half of the packets are encrypted and half are decrypted.
    both: bool,
}

impl Associations {
    /// Returns the SAs of a choice.
    pub(crate) fn of(choice: &Choice) -> Result<Self, Error> {
        let name = choice.suite.as_deref().unwrap_or(SUITE);
        let names = if name == "mix" { &MIX[..] } else { &[name] };
        let sas = choice.sas.unwrap_or(SAS);
        if sas > SAS_MAX / 2 {
            return Err(Error::Setup(format!("--sas {sas}: at most {} SAs are supported", SAS_MAX / 2)));
        }
        Self::new(names, sas, choice.decrypt)
    }

    /// Returns `sas` SAs of the suites in `names`. `inbound` adds the SAs for decryption.
    pub(crate) fn new(names: &[&str], sas: u32, inbound: bool) -> Result<Self, Error> {
        let suite = |name: &&str| {
            let number = suite::number(name);
            let known = || SUITES.iter().map(|suite| suite.name.to_owned()).chain(["mix".to_owned()]).collect();
            let unknown = || Error::Unknown { what: "suite", name: (*name).to_owned(), known: known() };
            number.map(|number| (number, &SUITES[usize::from(number)])).ok_or_else(unknown)
        };
        Ok(Self { suites: names.iter().map(suite).collect::<Result<_, _>>()?, sas, inbound, both: false })
    }

    /// Returns the suite, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&'static Suite> {
        if let [(_, suite)] = self.suites[..] { Some(suite) } else { None }
    }

    /// Returns `sas` SAs of the same suites.
    pub(crate) fn with(self, sas: u32) -> Self {
        Self { sas, ..self }
    }

    /// Returns the same SAs, for a random mix of encrypted and decrypted packets.
    pub(crate) fn both_ways(self) -> Self {
        Self { inbound: true, both: true, ..self }
    }

    /// Builds `ipsec` with these SAs. Their keys depend on `seed`. The host half assigns every
    /// packet to the first SA.
    pub(crate) fn function(&self, seed: u64) -> Result<Arc<dyn Function>, Error> {
        build("ipsec", &(self.text("sa", seed) + "[[policy]]\naction = \"protect\"\nsa = \"sa-0\"\n"))
    }

    /// Returns the names of the suites.
    pub(crate) fn name(&self) -> String {
        self.suites.iter().map(|(_, suite)| suite.name).collect::<Vec<_>>().join("+")
    }

    /// Returns the SA configuration as elements of the array `table`. The names are `sa-0` and so
    /// on.
    pub(crate) fn text(&self, table: &str, seed: u64) -> String {
        let mut text = String::new();
        for inbound in [false, true] {
            // The same seed gives both directions the same keys.
            let mut random = Random::new(seed);
            for sa in 0..if inbound && !self.inbound { 0 } else { self.sas } {
                let (name, direction) = if inbound { ("in", "in") } else { ("sa", "out") };
                // Writing to a String cannot fail.
                let _ = writeln!(
                    text,
                    "[[{table}]]\nname = \"{name}-{sa}\"\nspi = {}\ndirection = \"{direction}\"\n\
                     source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"",
                    4096 + sa
                );
                let suite = self.suite(sa).1;
                let mut key = |bytes: usize| {
                    let words = (0..bytes.div_ceil(4)).map(|_| format!("{:08x}", random.next_u32()));
                    let mut key = words.collect::<String>();
                    key.truncate(2 * bytes);
                    key
                };
                text += &transforms(suite, &key(suite.key_bytes + suite.salt_bytes()), &key(hmac_key_bytes(suite)));
                // A process with both directions of an SA must confirm it.
                if inbound && suite.authentication != Authentication::None {
                    text += "insecure = true\n";
                }
            }
        }
        text
    }

    fn suite(&self, sa: u32) -> (u8, &'static Suite) {
        self.suites[sa as usize % self.suites.len()]
    }

    /// Returns a job with a random SA and a random sequence number, from which the IV is derived.
    pub(crate) fn any(&self, random: &mut Random) -> Job {
        let (sa, sequence) = (random.below(self.sas), random.next_u32().max(1).into());
        let (number, _) = self.suite(sa);
        let encrypt = (suite::variant(number, false), ipsec::parameter(sa, sequence));
        if !self.inbound || (self.both && random.below(2) == 0) {
            return Job { instance: 0, variant: encrypt.0, parameter: encrypt.1, before: None, row: 0 };
        }
        let parameter = ipsec::parameter(self.sas + sa, sequence);
        Job { instance: 0, variant: suite::variant(number, true), parameter, before: Some(encrypt), row: 0 }
    }
}

/// Returns the length of a suite's HMAC key, in bytes.
pub(crate) fn hmac_key_bytes(suite: &Suite) -> usize {
    match suite.authentication {
        Authentication::Sha1 => 20,
        Authentication::Sha256 => 32,
        Authentication::Sha384 => 48,
        Authentication::Sha512 => 64,
        Authentication::Xcbc | Authentication::Cmac => 16,
        Authentication::None | Authentication::Ghash | Authentication::Poly1305 | Authentication::Ccm => 0,
    }
}

/// Returns the default length of a suite's ICV, in bytes.
pub(crate) fn icv_bytes(suite: &Suite) -> usize {
    match suite.authentication {
        Authentication::None => 0,
        Authentication::Sha1 | Authentication::Xcbc | Authentication::Cmac => 12,
        Authentication::Sha384 => 24,
        Authentication::Sha512 => 32,
        Authentication::Sha256 | Authentication::Ghash | Authentication::Poly1305 | Authentication::Ccm => 16,
    }
}

/// Returns the configured keys of an SA's transform. Both secrets are hexadecimal. `cipher_key`
/// belongs to the cipher or to GMAC and ends with the salt.
pub(crate) fn transforms(suite: &Suite, cipher_key: &str, hmac_key: &str) -> String {
    let bits = 8 * suite.key_bytes;
    let encryption = match (suite.cipher, suite.authentication) {
        (Cipher::Cbc, _) => format!("aes-{bits}-cbc"),
        (Cipher::Ctr, Authentication::Ghash) => format!("aes-{bits}-gcm"),
        (Cipher::Ctr, Authentication::Ccm) => format!("aes-{bits}-ccm"),
        (Cipher::Ctr, _) => format!("aes-{bits}-ctr"),
        (Cipher::ChaCha20, _) => "chacha20-poly1305".to_owned(),
        (Cipher::Null, Authentication::Ghash) => format!("aes-{bits}-gmac"),
        (Cipher::Null, _) => "null".to_owned(),
    };
    let mut text = match (suite.protocol, suite.key_bytes) {
        (Protocol::Esp, 0) => format!("encryption = \"{encryption}\"\n"),
        (Protocol::Esp, _) => format!("encryption = \"{encryption}\"\nencryption_key = \"{cipher_key}\"\n"),
        (Protocol::Ah, 0) => "protocol = \"ah\"\n".to_owned(),
        (Protocol::Ah, _) => {
            format!("protocol = \"ah\"\nauthentication = \"{encryption}\"\nauthentication_key = \"{cipher_key}\"\n")
        }
    };
    text += &match suite.authentication {
        Authentication::Sha1 => {
            format!("authentication = \"hmac-sha1-96\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::Sha256 => {
            format!("authentication = \"hmac-sha-256-128\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::Sha384 => {
            format!("authentication = \"hmac-sha-384-192\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::Sha512 => {
            format!("authentication = \"hmac-sha-512-256\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::Xcbc => {
            format!("authentication = \"aes-xcbc-96\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::Cmac => {
            format!("authentication = \"aes-cmac-96\"\nauthentication_key = \"{hmac_key}\"\n")
        }
        Authentication::None => "authentication = \"none\"\ninsecure = true\n".to_owned(),
        Authentication::Ghash | Authentication::Poly1305 | Authentication::Ccm => String::new(),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_sas_of_every_suite() {
        for suite in SUITES {
            let associations = Associations::new(&[suite.name], 3, true).unwrap();
            if let Err(error) = associations.function(1) {
                panic!("{}: {error}", suite.name);
            }
        }
        assert!(Associations::new(&["aes"], 1, false).is_err());
    }
}
