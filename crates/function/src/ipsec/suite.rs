//! Cipher suites. A suite is a combination of IPsec protocol, cipher, authentication and key size.
//! `kernels/ipsec/suite.h` contains the same list.

/// IPsec protocol of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
    /// Authentication Header (RFC 4302).
    Ah,
}

/// Cipher that encrypts the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// AES-CBC (RFC 3602).
    Cbc,
    /// AES-CTR (RFC 3686). Together with [`Authentication::Ghash`], it is AES-GCM (RFC 4106).
    /// Together with [`Authentication::Ccm`], it is AES-CCM (RFC 4309).
    Ctr,
    /// ChaCha20 (RFC 7634).
    ChaCha20,
}

/// Algorithm that authenticates the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// No authentication.
    None,
    /// HMAC-SHA1-96 (RFC 2404).
    Sha1,
    /// HMAC-SHA-256-128 (RFC 4868).
    Sha256,
    /// GHASH, the authentication of AES-GCM (RFC 4106). With the null cipher, the suite is AES-GMAC
    /// (RFC 4543).
    Ghash,
    /// Poly1305 (RFC 7634).
    Poly1305,
    /// CBC-MAC of AES-CCM (RFC 4309).
    Ccm,
    /// HMAC-SHA-384-192 (RFC 4868).
    Sha384,
    /// HMAC-SHA-512-256 (RFC 4868).
    Sha512,
    /// AES-XCBC-MAC-96 (RFC 3566).
    Xcbc,
    /// AES-CMAC-96 (RFC 4494).
    Cmac,
}

/// Combination of protocol, cipher and authentication that an SA uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suite {
    /// Name of the suite in benchmarks, reports and lists.
    pub name: &'static str,
    /// ESP or AH.
    pub protocol: Protocol,
    /// Cipher of the payload.
    pub cipher: Cipher,
    /// Key size of the cipher or of GMAC, in bytes.
    pub key_bytes: usize,
    /// Authentication of the packet.
    pub authentication: Authentication,
}

/// All suites. The number of a suite is its index.
pub const SUITES: &[Suite] = &[
    suite("cbc128_sha1", Protocol::Esp, Cipher::Cbc, 16, Authentication::Sha1),
    suite("cbc192_sha1", Protocol::Esp, Cipher::Cbc, 24, Authentication::Sha1),
    suite("cbc256_sha1", Protocol::Esp, Cipher::Cbc, 32, Authentication::Sha1),
    suite("cbc128_sha256", Protocol::Esp, Cipher::Cbc, 16, Authentication::Sha256),
    suite("cbc192_sha256", Protocol::Esp, Cipher::Cbc, 24, Authentication::Sha256),
    suite("cbc256_sha256", Protocol::Esp, Cipher::Cbc, 32, Authentication::Sha256),
    suite("cbc128_none", Protocol::Esp, Cipher::Cbc, 16, Authentication::None),
    suite("ctr128_sha1", Protocol::Esp, Cipher::Ctr, 16, Authentication::Sha1),
    suite("ctr192_sha1", Protocol::Esp, Cipher::Ctr, 24, Authentication::Sha1),
    suite("ctr256_sha1", Protocol::Esp, Cipher::Ctr, 32, Authentication::Sha1),
    suite("ctr128_sha256", Protocol::Esp, Cipher::Ctr, 16, Authentication::Sha256),
    suite("ctr192_sha256", Protocol::Esp, Cipher::Ctr, 24, Authentication::Sha256),
    suite("ctr256_sha256", Protocol::Esp, Cipher::Ctr, 32, Authentication::Sha256),
    suite("null_sha1", Protocol::Esp, Cipher::Null, 0, Authentication::Sha1),
    suite("null_sha256", Protocol::Esp, Cipher::Null, 0, Authentication::Sha256),
    suite("gcm128", Protocol::Esp, Cipher::Ctr, 16, Authentication::Ghash),
    suite("gcm192", Protocol::Esp, Cipher::Ctr, 24, Authentication::Ghash),
    suite("gcm256", Protocol::Esp, Cipher::Ctr, 32, Authentication::Ghash),
    suite("gmac128", Protocol::Esp, Cipher::Null, 16, Authentication::Ghash),
    suite("gmac192", Protocol::Esp, Cipher::Null, 24, Authentication::Ghash),
    suite("gmac256", Protocol::Esp, Cipher::Null, 32, Authentication::Ghash),
    suite("chacha20_poly1305", Protocol::Esp, Cipher::ChaCha20, 32, Authentication::Poly1305),
    suite("ah_sha1", Protocol::Ah, Cipher::Null, 0, Authentication::Sha1),
    suite("ah_sha256", Protocol::Ah, Cipher::Null, 0, Authentication::Sha256),
    suite("ah_gmac128", Protocol::Ah, Cipher::Null, 16, Authentication::Ghash),
    suite("ah_gmac192", Protocol::Ah, Cipher::Null, 24, Authentication::Ghash),
    suite("ah_gmac256", Protocol::Ah, Cipher::Null, 32, Authentication::Ghash),
    suite("ccm128", Protocol::Esp, Cipher::Ctr, 16, Authentication::Ccm),
    suite("ccm192", Protocol::Esp, Cipher::Ctr, 24, Authentication::Ccm),
    suite("ccm256", Protocol::Esp, Cipher::Ctr, 32, Authentication::Ccm),
    suite("cbc128_sha384", Protocol::Esp, Cipher::Cbc, 16, Authentication::Sha384),
    suite("cbc192_sha384", Protocol::Esp, Cipher::Cbc, 24, Authentication::Sha384),
    suite("cbc256_sha384", Protocol::Esp, Cipher::Cbc, 32, Authentication::Sha384),
    suite("ctr128_sha384", Protocol::Esp, Cipher::Ctr, 16, Authentication::Sha384),
    suite("ctr192_sha384", Protocol::Esp, Cipher::Ctr, 24, Authentication::Sha384),
    suite("ctr256_sha384", Protocol::Esp, Cipher::Ctr, 32, Authentication::Sha384),
    suite("null_sha384", Protocol::Esp, Cipher::Null, 0, Authentication::Sha384),
    suite("ah_sha384", Protocol::Ah, Cipher::Null, 0, Authentication::Sha384),
    suite("cbc128_sha512", Protocol::Esp, Cipher::Cbc, 16, Authentication::Sha512),
    suite("cbc192_sha512", Protocol::Esp, Cipher::Cbc, 24, Authentication::Sha512),
    suite("cbc256_sha512", Protocol::Esp, Cipher::Cbc, 32, Authentication::Sha512),
    suite("ctr128_sha512", Protocol::Esp, Cipher::Ctr, 16, Authentication::Sha512),
    suite("ctr192_sha512", Protocol::Esp, Cipher::Ctr, 24, Authentication::Sha512),
    suite("ctr256_sha512", Protocol::Esp, Cipher::Ctr, 32, Authentication::Sha512),
    suite("null_sha512", Protocol::Esp, Cipher::Null, 0, Authentication::Sha512),
    suite("ah_sha512", Protocol::Ah, Cipher::Null, 0, Authentication::Sha512),
    suite("cbc128_xcbc", Protocol::Esp, Cipher::Cbc, 16, Authentication::Xcbc),
    suite("cbc192_xcbc", Protocol::Esp, Cipher::Cbc, 24, Authentication::Xcbc),
    suite("cbc256_xcbc", Protocol::Esp, Cipher::Cbc, 32, Authentication::Xcbc),
    suite("ctr128_xcbc", Protocol::Esp, Cipher::Ctr, 16, Authentication::Xcbc),
    suite("ctr192_xcbc", Protocol::Esp, Cipher::Ctr, 24, Authentication::Xcbc),
    suite("ctr256_xcbc", Protocol::Esp, Cipher::Ctr, 32, Authentication::Xcbc),
    suite("null_xcbc", Protocol::Esp, Cipher::Null, 0, Authentication::Xcbc),
    suite("ah_xcbc", Protocol::Ah, Cipher::Null, 0, Authentication::Xcbc),
    suite("cbc128_cmac", Protocol::Esp, Cipher::Cbc, 16, Authentication::Cmac),
    suite("cbc192_cmac", Protocol::Esp, Cipher::Cbc, 24, Authentication::Cmac),
    suite("cbc256_cmac", Protocol::Esp, Cipher::Cbc, 32, Authentication::Cmac),
    suite("ctr128_cmac", Protocol::Esp, Cipher::Ctr, 16, Authentication::Cmac),
    suite("ctr192_cmac", Protocol::Esp, Cipher::Ctr, 24, Authentication::Cmac),
    suite("ctr256_cmac", Protocol::Esp, Cipher::Ctr, 32, Authentication::Cmac),
    suite("null_cmac", Protocol::Esp, Cipher::Null, 0, Authentication::Cmac),
    suite("ah_cmac", Protocol::Ah, Cipher::Null, 0, Authentication::Cmac),
];

const fn suite(
    name: &'static str,
    protocol: Protocol,
    cipher: Cipher,
    key_bytes: usize,
    authentication: Authentication,
) -> Suite {
    Suite { name, protocol, cipher, key_bytes, authentication }
}

/// Returns the number of the suite called `name`.
pub fn number(name: &str) -> Option<u8> {
    let index = SUITES.iter().position(|suite| suite.name == name)?;
    u8::try_from(index).ok()
}

/// Returns the variant of packets for a suite and a direction.
pub const fn variant(suite: u8, inbound: bool) -> u8 {
    2 * suite + inbound as u8
}

impl Suite {
    /// Returns the size of the IV in a packet, in bytes.
    pub const fn iv_bytes(&self) -> usize {
        match (self.cipher, self.authentication) {
            (Cipher::Cbc, _) => 16,
            (Cipher::Ctr | Cipher::ChaCha20, _) | (_, Authentication::Ghash) => 8,
            (Cipher::Null, _) => 0,
        }
    }

    /// Returns the alignment of the padded payload of ESP, in bytes (RFC 4303, section 2.4).
    pub const fn block_bytes(&self) -> usize {
        match self.cipher {
            Cipher::Cbc => 16,
            _ => 4,
        }
    }

    /// Returns the size of the salt that precedes the IV in the nonce, in bytes.
    pub const fn salt_bytes(&self) -> usize {
        match (self.cipher, self.authentication) {
            // RFC 4309, section 7.1.
            (_, Authentication::Ccm) => 3,
            (Cipher::Ctr | Cipher::ChaCha20, _) | (_, Authentication::Ghash) => 4,
            _ => 0,
        }
    }

    /// Returns whether reuse of a nonce under the same key reveals the key or the plaintext.
    pub const fn is_counter_mode(&self) -> bool {
        self.salt_bytes() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every suite with the list of the kernel.
    #[test]
    fn the_kernel_lists_the_same_suites() {
        let header = include_str!("../../../../kernels/ipsec/suite.h");
        let rows: Vec<Vec<&str>> = header
            .lines()
            .filter_map(|line| line.trim().strip_prefix("X(")?.split_once(')'))
            .map(|(row, _)| row.split(',').map(str::trim).collect())
            .filter(|row: &Vec<&str>| row[0].parse::<usize>().is_ok())
            .collect();
        let ours: Vec<Vec<String>> = (0..)
            .zip(SUITES)
            .map(|(number, suite): (usize, _)| {
                let upper = |prefix: &str, value: String| format!("GW_IPSEC_{prefix}{}", value.to_uppercase());
                vec![
                    number.to_string(),
                    suite.name.to_owned(),
                    upper("", format!("{:?}", suite.protocol)),
                    upper("CIPHER_", format!("{:?}", suite.cipher)),
                    suite.key_bytes.to_string(),
                    upper("AUTH_", format!("{:?}", suite.authentication)),
                ]
            })
            .collect();
        assert_eq!(rows, ours);
    }
}
