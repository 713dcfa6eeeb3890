//! Errors of the crate. A job without a signature is a refusal, not an error ([`crate::Refusal`]).

use std::path::PathBuf;

/// Error that occurs while keys are loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or certificate file is refused.
    #[error("{}: {reason}", file.display())]
    Key {
        /// Refused file.
        file: PathBuf,
        /// Reason and remedy.
        reason: Reason,
    },
    /// The memory for keys cannot be locked.
    #[error("cannot lock {bytes} bytes of key memory ({source}): raise RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=)")]
    Memory {
        /// Size of the memory.
        bytes: usize,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

/// Reason why a file with a key or a certificate is refused.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Read(std::io::Error),
    /// Every user of the machine can access the key.
    #[error("is accessible to all users (mode {mode:04o}): run chmod 600 on it")]
    WorldReadable {
        /// Permission bits.
        mode: u32,
    },
    /// The file exceeds the size of a key file.
    #[error("has more than {0} bytes, which no key file needs")]
    Large(usize),
    /// No private key was found.
    #[error("contains no private key in PEM form (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)")]
    NoKey,
    /// More than one private key was found.
    #[error("contains more than one private key: keep one key in each file")]
    SeveralKeys,
    /// The key is encrypted by a passphrase.
    #[error("is encrypted by a passphrase: decrypt it with `openssl pkey -in FILE -out FILE`")]
    Encrypted,
    /// The PEM text or its content is damaged.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// The algorithm of the key is not supported.
    #[error("has an unsupported kind of key: RSA with 2048, 3072 or 4096 bits, P-256, P-384 or Ed25519 is expected")]
    Unsupported,
    /// The RSA modulus has fewer than 2048 bits.
    #[error("has an RSA key of {bits} bits, which is weak: use at least 2048")]
    Weak {
        /// Size of the modulus.
        bits: usize,
    },
    /// The components of the key contradict each other.
    #[error("contains an inconsistent key: {0}")]
    Inconsistent(String),
    /// No certificate was found.
    #[error("contains no certificate in PEM form")]
    NoCertificate,
    /// The certificate has another public key.
    #[error("does not match the certificate {}: its public key differs", certificate.display())]
    Mismatch {
        /// File of the certificate.
        certificate: PathBuf,
    },
    /// The signer process does not hold the certificate's key.
    #[error("belongs to a key that the signer does not hold: add the key to its configuration, and reload the signer")]
    NotHeld,
    /// The certificate has expired.
    #[error("the certificate expired {days} days ago: renew it")]
    Expired {
        /// Number of days since the end of the validity.
        days: u64,
    },
    /// The validity of the certificate has not begun.
    #[error("the certificate is not valid before {days} days from now: check the clock of this machine")]
    NotYetValid {
        /// Number of days until the validity begins, rounded up.
        days: u64,
    },
}
