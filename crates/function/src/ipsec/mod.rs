//! IPsec: ESP in tunnel mode over IPv4 (RFC 4303, RFC 4301), AES-128-CBC (RFC 3602) with HMAC-SHA1-96 (RFC 2404).

use crate::{Contract, Drop, Kind, Verdict};

/// The registration.
pub const KIND: Kind = Kind {
    contract: &CONTRACT,
    build: |_, _| {
        Err(crate::Error::Value {
            span: None,
            message: "ipsec has no tables yet".into(),
        })
    },
};

/// What the function says of itself. The kernel's contract block says the same.
pub const CONTRACT: Contract = Contract {
    kind: "ipsec",
    summary: "ESP tunnels over IPv4: encrypts and decrypts with AES-128-CBC and HMAC-SHA1-96",
    kernel: 3,
    verdicts: &[
        said(
            "encrypted",
            "a policy protects the packet: it is now an ESP packet between the tunnel's endpoints",
        ),
        said(
            "decrypted",
            "an ESP packet for one of our endpoints was authentic: the packet is now what was inside",
        ),
        said("bypass", "a policy lets the packet pass as it is"),
        said("not_ipv4", "the frame carries no IPv4; it passes as it is"),
    ],
    drops: &[
        drop("truncated", "the frame ends before the IPv4 packet does"),
        drop(
            "malformed",
            "an IPv4 or ESP header contradicts itself, or the outer checksum is wrong",
        ),
        drop(
            "policy_discard",
            "a policy discards the packet, or none matches it (RFC 4301, section 4.4.1)",
        ),
        drop(
            "no_sa",
            "an ESP packet for one of our endpoints names an SPI that is not configured",
        ),
        drop(
            "no_room",
            "the window or the outer packet has no room for headers, padding and ICV",
        ),
        drop("authentication", "the ICV is wrong"),
        drop(
            "padding",
            "the padding of an authentic packet is not 1, 2, 3 … (RFC 4303, section 2.4)",
        ),
        drop(
            "sequence_exhausted",
            "the SA has used all 2^32 - 1 sequence numbers",
        ),
        drop(
            "wrong_worker",
            "another worker owns the SA; steering was bypassed",
        ),
        drop(
            "policy_mismatch",
            "what was inside is not what the SA is for (RFC 4301, section 5.2)",
        ),
        drop(
            "fragment",
            "a fragment of an ESP packet for one of our endpoints: not reassembled",
        ),
        drop(
            "dummy",
            "traffic flow padding: next header 59 (RFC 4303, section 2.6)",
        ),
        drop(
            "congestion",
            "the tunnel saw congestion but the packet inside cannot carry the mark (RFC 6040, section 4.2)",
        ),
    ],
    variants: &["encrypt_aes128cbc_sha1", "decrypt_aes128cbc_sha1"],
    in_order: true,
    headroom_bytes: 44,
    tailroom_bytes: 29,
    spec: "RFC 4301, RFC 4303, RFC 3602, RFC 2404, RFC 6040",
};

const fn said(name: &'static str, sentence: &'static str) -> Verdict {
    Verdict {
        name,
        sentence,
        chooses_port: false,
    }
}

const fn drop(name: &'static str, sentence: &'static str) -> Drop {
    Drop { name, sentence }
}
