//! SAs of the suites that a bench is asked for.

use std::fmt::Write as _;

use godwit_function::ipsec;
use godwit_function::ipsec::suite::{self, Authentication, Cipher, Protocol, SUITES, Suite};

use crate::flow::Job;
use crate::frames::Random;
use crate::{BenchOptions, Error};

/// SAs that packets are spread over, unless the user says otherwise.
const SAS: u32 = 4096;
/// The suite, unless the user says otherwise.
const SUITE: &str = "cbc128_sha1";
/// What `mix` stands for.
const MIX: [&str; 3] = ["cbc128_sha1", "gcm128", "chacha20_poly1305"];
/// The most that the kernel's parameter can name.
const SAS_MAX: u32 = 1 << 20;

/// Outbound SAs of one suite, or of several in turn; where packets are opened, as many inbound ones behind them, with the same
/// keys.
#[derive(Clone, Debug)]
pub(crate) struct Associations {
    suites: Vec<(u8, &'static Suite)>,
    pub(crate) sas: u32,
    inbound: bool,
    /// Of packets of SAs in both directions, half are sealed.
    both: bool,
}

impl Associations {
    /// What the options say.
    pub(crate) fn asked(options: &BenchOptions) -> Result<Self, Error> {
        let name = options.suite.as_deref().unwrap_or(SUITE);
        let names = if name == "mix" { &MIX[..] } else { &[name] };
        let sas = options.sas.unwrap_or(SAS);
        if sas > SAS_MAX / 2 {
            return Err(Error::Setup(format!("{sas} SAs: at most {}", SAS_MAX / 2)));
        }
        Self::new(names, sas, options.decrypt)
    }

    /// `inbound`: packets are opened.
    pub(crate) fn new(names: &[&str], sas: u32, inbound: bool) -> Result<Self, Error> {
        let suite = |name: &&str| {
            let number = suite::number(name);
            let known = || SUITES.iter().map(|suite| suite.name.to_owned()).chain(["mix".to_owned()]).collect();
            let unknown = || Error::Unknown { what: "suite", name: (*name).to_owned(), known: known() };
            number.map(|number| (number, &SUITES[usize::from(number)])).ok_or_else(unknown)
        };
        Ok(Self { suites: names.iter().map(suite).collect::<Result<_, _>>()?, sas, inbound, both: false })
    }

    /// The suite, where there is one.
    pub(crate) fn only(&self) -> Option<&'static Suite> {
        if let [(_, suite)] = self.suites[..] { Some(suite) } else { None }
    }

    /// Of the same suites, so many.
    pub(crate) fn with(self, sas: u32) -> Self {
        Self { sas, ..self }
    }

    /// Packets are sealed and opened at random.
    pub(crate) fn both_ways(self) -> Self {
        Self { inbound: true, both: true, ..self }
    }

    /// The suites, for people.
    pub(crate) fn name(&self) -> String {
        self.suites.iter().map(|(_, suite)| suite.name).collect::<Vec<_>>().join("+")
    }

    /// The SAs, called `sa-0` and so on, keys by seed, each a table of the array called `table`.
    pub(crate) fn text(&self, table: &str, seed: u64) -> String {
        let mut text = String::new();
        for inbound in [false, true] {
            // The same seed: the same keys.
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
                // Who seals and opens at once has both directions of an SA.
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

    /// A packet of any SA, with any sequence number: what the IV is made from.
    pub(crate) fn any(&self, random: &mut Random) -> Job {
        let (sa, sequence) = (random.below(self.sas), random.next_u32().max(1).into());
        let (number, _) = self.suite(sa);
        let protect = (suite::variant(number, false), ipsec::parameter(sa, sequence));
        if !self.inbound || (self.both && random.below(2) == 0) {
            return Job { instance: 0, variant: protect.0, parameter: protect.1, before: None, row: 0 };
        }
        let parameter = ipsec::parameter(self.sas + sa, sequence);
        Job { instance: 0, variant: suite::variant(number, true), parameter, before: Some(protect), row: 0 }
    }
}

/// Bytes of the key of a suite's HMAC.
pub(crate) fn hmac_key_bytes(suite: &Suite) -> usize {
    match suite.authentication {
        Authentication::Sha1 => 20,
        Authentication::Sha256 => 32,
        Authentication::None | Authentication::Ghash | Authentication::Poly1305 => 0,
    }
}

/// Bytes of a suite's ICV where an SA does not choose them.
pub(crate) fn icv_bytes(suite: &Suite) -> usize {
    match suite.authentication {
        Authentication::None => 0,
        Authentication::Sha1 => 12,
        Authentication::Sha256 | Authentication::Ghash | Authentication::Poly1305 => 16,
    }
}

/// What an SA of a suite says is done to packets, with its keys in hexadecimal: that of the cipher or of GMAC, the salt behind, and
/// that of HMAC.
pub(crate) fn transforms(suite: &Suite, cipher_key: &str, hmac_key: &str) -> String {
    let bits = 8 * suite.key_bytes;
    let encryption = match (suite.cipher, suite.authentication) {
        (Cipher::Cbc, _) => format!("aes-{bits}-cbc"),
        (Cipher::Ctr, Authentication::Ghash) => format!("aes-{bits}-gcm"),
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
        Authentication::None => "authentication = \"none\"\ninsecure = true\n".to_owned(),
        Authentication::Ghash | Authentication::Poly1305 => String::new(),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::build;

    #[test]
    fn sas_of_every_suite_can_be_built() {
        for suite in SUITES {
            let associations = Associations::new(&[suite.name], 3, true).unwrap();
            let stanza = associations.text("sa", 1) + "[[policy]]\naction = \"protect\"\nsa = \"sa-0\"\n";
            if let Err(error) = build("ipsec", &stanza) {
                panic!("{}: {error}", suite.name);
            }
        }
        assert!(Associations::new(&["aes"], 1, false).is_err());
    }
}
