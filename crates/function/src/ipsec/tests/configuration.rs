//! Tests of the configuration.

use super::*;
use crate::Error;
use crate::testing::build_error;

#[test]
fn rejects_invalid_configurations_without_showing_keys() {
    let west = sa("west", 0x1001, "out", "");
    let east = sa("east", 0x2001, "in", "");
    let policy = |keys: &str| format!("[[policy]]\n{keys}\n");
    let short = west.replacen("0e0f\"", "\"", 1);
    let cases = [
        (short.clone(), "encryption_key of SA \"west\" must have 16 bytes (32 hex digits), but has 14"),
        (west.replace("10111213", "1011121"), "authentication_key of SA \"west\" must consist of 40 hex digits"),
        (west.replace("10111213", "101112zz"), "authentication_key of SA \"west\" must consist of 40 hex digits"),
        (west.replace("\"000102030405060708090a0b0c0d0e0f\"", "42424242"), "a string of 32 hex digits"),
        (west.clone() + &west.replace("4097", "4098"), "two SAs are called \"west\""),
        (west.clone() + &west.replace("\"west\"", "\"w2\""), "same SPI 0x1001 to 192.0.2.2 as SA \"west\""),
        (
            east.clone() + &east.replace("\"east\"", "\"e2\"").replace("2.1\"", "2.5\""),
            "same SPI 0x2001 as SA \"east\"",
        ),
        (sa("low", 0, "out", ""), "spi = 0 of SA \"low\" never appears in a packet"),
        (west.replace("192.0.2.2", "224.0.0.1"), "224.0.0.1 of SA \"west\""),
        (west.replace("192.0.2.2", "192.0.2.1"), "same source and destination"),
        (sa("west", 0x1001, "out", "selectors = [{ protocol = 6 }]"), "is outbound"),
        (sa("east", 0x2001, "in", "selectors = []"), "has no selectors"),
        (sa("east", 0x2001, "in", "selectors = [{ source_ports = 5 }]"), "ports need protocol"),
        (policy("action = \"protect\""), "must name its SA"),
        (policy("action = \"protect\"\nsa = \"wset\""), "no SA is called \"wset\": there are no SAs"),
        (west.clone() + &policy("action = \"protect\"\nsa = \"wset\""), "no SA is called \"wset\": the SAs are west"),
        (east.clone() + &policy("action = \"protect\"\nsa = \"east\""), "SA \"east\" is inbound"),
        (west.clone() + &policy("action = \"bypass\"\nsa = \"west\""), "only a policy with action"),
        (policy("action = \"bypass\"\ndestination_ports = 53"), "ports need protocol"),
        (policy("action = \"bypass\"\nprotocol = \"icmp\"\ndestination_ports = 53"), "ports need protocol"),
        (policy("action = \"allow\""), "unknown variant `allow`"),
        (policy("action = \"bypass\"\nsorce = \"10.0.0.0/8\""), "unknown field `sorce`"),
        (west.replace("aes-128-cbc", "aes-512-cbc"), "unknown variant `aes-512-cbc`"),
        (west.replace("spi = 4097", "spi = -1"), "-1"),
    ];
    for (stanza, expected) in cases {
        let error = build_error(&KIND, &stanza, &[]);
        let text = error.to_string();
        assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        assert!(!text.contains("0304") && !text.contains("4242"), "{text}");
        // The source line of an error may be shown, so it must not contain a key either.
        if let Error::Value { span: Some(span), .. } = error {
            assert!(!stanza[span].contains("0304"), "{text}");
        }
    }
}

/// Returns the configuration of an SA with these keys.
fn stanza(direction: &str, keys: &str) -> String {
    let (source, destination) =
        if direction == "out" { ("192.0.2.1", "192.0.2.2") } else { ("192.0.2.2", "192.0.2.1") };
    let defaults = [("source", source), ("destination", destination)];
    let defaults = defaults.iter().filter(|(key, _)| !keys.lines().any(|line| line.starts_with(key)));
    let addresses: String = defaults.map(|(key, value)| format!("{key} = \"{value}\"\n")).collect();
    format!("[[sa]]\nname = \"a\"\nspi = 4096\ndirection = \"{direction}\"\n{addresses}{keys}\n")
}

/// Returns the hex digits of `bytes` different bytes.
fn digits(bytes: usize) -> String {
    (0..bytes).map(|byte| format!("{:02x}", byte + 0x30)).collect()
}

fn keys(encryption: &str, key: usize, authentication: &str, hmac_key: usize) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: &str| text += &format!("{name} = \"{value}\"\n");
    for (name, value, bytes) in [("encryption", encryption, key), ("authentication", authentication, hmac_key)] {
        if !value.is_empty() {
            add(name, value);
        }
        if bytes > 0 {
            add(&format!("{name}_key"), &digits(bytes));
        }
    }
    text
}

/// Part of the suite's name, configuration value, and length of the key in bytes.
const MACS: [(&str, &str, usize); 6] = [
    ("sha1", "hmac-sha1-96", 20),
    ("sha256", "hmac-sha-256-128", 32),
    ("sha384", "hmac-sha-384-192", 48),
    ("sha512", "hmac-sha-512-256", 64),
    ("xcbc", "aes-xcbc-96", 16),
    ("cmac", "aes-cmac-96", 16),
];

/// Returns the name of every suite and its configuration keys.
fn all_suites() -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for bits in [128, 192, 256] {
        let bytes = bits / 8;
        for (mode, salt) in [("cbc", 0), ("ctr", 4)] {
            for (hash, hmac, hmac_key) in MACS {
                let text = keys(&format!("aes-{bits}-{mode}"), bytes + salt, hmac, hmac_key);
                all.push((format!("{mode}{bits}_{hash}"), text));
            }
        }
        for mode in ["gcm", "gmac"] {
            all.push((format!("{mode}{bits}"), keys(&format!("aes-{bits}-{mode}"), bytes + 4, "", 0)));
        }
        all.push((format!("ccm{bits}"), keys(&format!("aes-{bits}-ccm"), bytes + 3, "", 0)));
        let ah = keys("", 0, &format!("aes-{bits}-gmac"), bytes + 4) + "protocol = \"ah\"\n";
        all.push((format!("ah_gmac{bits}"), ah));
    }
    for (hash, hmac, hmac_key) in MACS {
        all.push((format!("null_{hash}"), keys("null", 0, hmac, hmac_key)));
        all.push((format!("ah_{hash}"), keys("", 0, hmac, hmac_key) + "protocol = \"ah\"\n"));
    }
    all.push(("chacha20_poly1305".to_owned(), keys("chacha20-poly1305", 36, "", 0)));
    all.push(("cbc128_none".to_owned(), keys("aes-128-cbc", 16, "none", 0) + "insecure = true\n"));
    let name = |(name, text): (String, String)| {
        let suite = suite::SUITES.iter().find(|suite| suite.name == name).unwrap_or_else(|| panic!("{name}"));
        (suite.name, text)
    };
    all.into_iter().map(name).collect()
}

#[test]
fn every_suite_can_be_configured() {
    let all = all_suites();
    let distinct: std::collections::BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
    assert_eq!(distinct.len(), suite::SUITES.len());
    for (name, text) in &all {
        for direction in ["in", "out"] {
            let function = ipsec(&stanza(direction, text));
            let sa = function.database.sa(0).unwrap();
            assert_eq!(sa.suite().name, *name);
            let image = function.image().to_vec();
            assert_eq!(
                usize::from(image[64 + 12]),
                suite::SUITES.iter().position(|suite| suite.name == *name).unwrap()
            );
            let [first, second, third, fourth] = [0x30, 0x31, 0x32, 0x33].map(|b| b + sa.key.len() as u8);
            let salt = match sa.suite().salt_bytes() {
                4 => [first, second, third, fourth],
                // CCM: the flags of a counter block, and a salt of 3 bytes.
                3 => [3, first, second, third],
                _ => [0; 4],
            };
            assert_eq!(image[64 + 8..][..4], salt, "the salt follows the key");
            assert!(!format!("{sa:?}").contains("3031"));
        }
    }
    // The contract contains a variant for each suite and direction.
    let names: Vec<String> = suite::SUITES
        .iter()
        .flat_map(|suite| ["out", "in"].map(|direction| format!("{}_{direction}", suite.name)))
        .collect();
    assert_eq!(CONTRACT.variants, names);
}

#[test]
fn the_salt_can_be_a_separate_key() {
    let text = keys("aes-128-gcm", 16, "", 0) + "salt = \"0a0b0c0d\"\n";
    let sa = ipsec(&stanza("out", &text)).database.sa(0).unwrap();
    assert_eq!((*sa.salt, sa.key.len(), sa.icv_bytes), ([10, 11, 12, 13], 16, 16));
    let sa = ipsec(&stanza("out", &(text + "icv_bytes = 8\n"))).database.sa(0).unwrap();
    assert_eq!(sa.icv_bytes, 8);
}

#[test]
fn rejects_invalid_sas_without_showing_keys() {
    let gcm = keys("aes-128-gcm", 20, "", 0);
    let cbc = keys("aes-128-cbc", 16, "hmac-sha1-96", 20);
    let with = |text: &str, more: &str| format!("{text}{more}\n");
    let cases = [
        ("out", with("", ""), "needs encryption"),
        ("out", keys("aes-128-cbc", 16, "", 0), "needs authentication"),
        ("out", keys("aes-128-cbc", 16, "none", 0), "is not authenticated"),
        ("out", keys("null", 0, "none", 0), "ESP does not support null with none"),
        ("out", keys("aes-192-cbc", 24, "none", 0), "ESP does not support aes-192-cbc with none"),
        ("out", keys("null", 0, "aes-128-gmac", 20), "set encryption = \"aes-128-gmac\""),
        ("out", keys("aes-128-gcm", 20, "hmac-sha1-96", 20), "authenticated by aes-128-gcm: leave authentication out"),
        (
            "out",
            keys("aes-128-gcm", 16, "", 0),
            "encryption_key of SA \"a\" must have 20 bytes (40 hex digits), but has 16",
        ),
        ("out", with(&gcm, "salt = \"00010203\""), "encryption_key of SA \"a\" must have 16 bytes"),
        ("out", with(&gcm, "icv_bytes = 10"), "icv_bytes = 10 of SA \"a\" must be one of 16, 12, 8"),
        ("out", with(&cbc, "icv_bytes = 16"), "icv_bytes = 16 of SA \"a\" must be one of 12"),
        ("out", with(&cbc, "salt = \"00010203\""), "salt of SA \"a\" is not used"),
        ("out", keys("null", 16, "hmac-sha1-96", 20), "encryption_key of SA \"a\" is not used"),
        ("out", keys("aes-128-gcm", 20, "", 20), "authentication_key of SA \"a\" is not used"),
        ("out", keys("aes-128-cbc", 0, "hmac-sha1-96", 20), "encryption_key of SA \"a\" is missing"),
        ("out", keys("aes-128-cbc", 16, "hmac-sha-256-128", 20), "authentication_key of SA \"a\" must have 32 bytes"),
        ("out", keys("aes-128-cbc", 16, "hmac-sha-384-192", 32), "authentication_key of SA \"a\" must have 48 bytes"),
        ("out", keys("aes-128-cbc", 16, "aes-xcbc-96", 20), "authentication_key of SA \"a\" must have 16 bytes"),
        ("out", keys("aes-128-cbc", 16, "aes-cmac-96", 32), "authentication_key of SA \"a\" must have 16 bytes"),
        ("out", keys("aes-128-cbc", 16, "hmac-sha-512-256", 48), "authentication_key of SA \"a\" must have 64 bytes"),
        ("out", cbc.replace(&digits(16), &"00".repeat(16)), "encryption_key of SA \"a\" repeats a few bytes"),
        ("out", cbc.replace(&digits(20), &"30313233".repeat(5)), "authentication_key of SA \"a\" repeats a few bytes"),
        ("out", keys("aes-128-cbc", 16, "hmac-sha1-96", 20) + "protocol = \"ah\"", "AH, which does not encrypt"),
        ("out", keys("", 0, "none", 0) + "protocol = \"ah\"", "AH does not support none"),
        ("out", keys("", 0, "", 0) + "protocol = \"ah\"", "needs authentication"),
        ("out", with(&cbc, "mode = \"transport\"\ndf = \"set\""), "df of SA \"a\""),
        ("out", with(&cbc, "hop_limit = 0"), "hop_limit = 0 of SA \"a\""),
        ("out", with(&cbc, "dscp = 64"), "dscp must be \"copy\" or 0 to 63"),
        ("out", with(&cbc, "replay_window = 64"), "replay_window of SA \"a\""),
        ("in", with(&cbc, "replay_window = 31"), "must be 32 to 4096, or 0 for none"),
        ("in", with(&cbc, "replay_window = 4097"), "must be 32 to 4096, or 0 for none"),
        ("in", with(&cbc, "replay_window = 0\nesn = true"), "replay_window = 0 of SA \"a\""),
        ("out", with(&cbc, "destination = \"2001:db8::1\""), "one is IPv4, the other IPv6"),
        ("out", with(&cbc, "udp_encapsulation = { source_port = 0 }"), "has port 0"),
        ("out", with(&cbc, "lifetime = { hard_packets = 0 }"), "hard_packets = 0"),
        ("out", with(&cbc, "lifetime = { soft_bytes = 2, hard_bytes = 1 }"), "soft_bytes = 2 of SA \"a\""),
        (
            "in",
            with(&cbc, "selectors = [{ source = \"::/0\", destination = \"10.0.0.0/8\" }]"),
            "one is IPv4, the other IPv6",
        ),
    ];
    for (direction, text, expected) in cases {
        let error = build_error(&KIND, &stanza(direction, &text), &[]);
        let message = error.to_string();
        assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        assert!(!message.contains("3031"), "{message}");
        if let Error::Value { span: Some(span), .. } = error {
            assert!(!stanza(direction, &text)[span].contains("3031"), "{message}");
        }
    }
    // Weak keys are accepted with the key `insecure`.
    ipsec(&stanza("out", &(cbc.replace(&digits(16), &"00".repeat(16)) + "insecure = true\n")));
}

#[test]
fn rejects_sas_that_would_repeat_nonces() {
    let one = stanza("out", &keys("aes-128-gcm", 20, "", 0));
    let other = |text: String| text.replace("\"a\"", "\"b\"").replace("4096", "4097");
    let error = build_error(&KIND, &(one.clone() + &other(one.clone())), &[]).to_string();
    assert!(error.contains("SA \"b\" reuses the key of another outbound SA"), "{error}");
    let ctr = stanza("out", &keys("aes-128-ctr", 20, "hmac-sha1-96", 20));
    assert!(build_error(&KIND, &(one.clone() + &other(ctr)), &[]).to_string().contains("nonces"));
    // A different salt gives different nonces, and a different SPI gives different CBC IVs.
    ipsec(&(one.clone() + &other(one.replace("43\"", "44\""))));
    // The peer uses the same nonces in the other direction, so both directions need different keys.
    let inbound = stanza("in", &keys("aes-128-gcm", 20, "", 0));
    for both in [one.clone() + &other(inbound.clone()), inbound.clone() + &other(one.clone())] {
        let error = build_error(&KIND, &both, &[]).to_string();
        assert!(error.contains("SA \"b\" uses the key and salt of an SA of the other direction"), "{error}");
    }
    ipsec(&(one.clone() + &other(inbound.replace("43\"", "44\""))));
    ipsec(&(one + &other(inbound.clone() + "insecure = true\n")));
    ipsec(&(inbound.clone() + &other(inbound)));
    let cbc = stanza("out", &keys("aes-128-cbc", 16, "hmac-sha1-96", 20));
    ipsec(&(cbc.clone() + &other(cbc.clone())));
    // The IV depends only on the first 32 bits of the destination address.
    let to = |host: &str| {
        let endpoints = format!("source = \"2001:db8::{host}:1\"\ndestination = \"2001:db8::{host}:2\"");
        cbc.replace("source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"", &endpoints)
    };
    let two = to("a") + &to("b").replace("\"a\"", "\"b\"");
    assert!(build_error(&KIND, &two, &[]).to_string().contains("reuses the key"), "{two}");
}

#[test]
fn room_equals_the_needs_of_the_sas() {
    let room = |text: &str| {
        let function = ipsec(text);
        (
            function.properties().headroom_bytes,
            function.properties().tailroom_bytes,
            function.properties().tailroom_saved,
        )
    };
    let cbc = keys("aes-128-cbc", 16, "hmac-sha1-96", 20);
    // A frame may have a VLAN tag or not. The tailroom must suffice for the case that needs more
    // padding.
    let (headroom, tailroom, saved) = room(&stanza("out", &cbc));
    assert_eq!((headroom, tailroom), (44, 29));
    for (length, saved) in saved.into_iter().enumerate() {
        let padding = [14, 18].map(|l2: usize| (64 + l2 - length - 2) % 16).into_iter().max().unwrap();
        assert_eq!(usize::from(saved), 15 - padding, "{length}");
    }
    assert_eq!(room(&stanza("in", &cbc)), (0, 0, [0; 16]));
    let ipv6 = "source = \"2001:db8::1\"\ndestination = \"2001:db8::2\"\n";
    let gcm = keys("aes-256-gcm", 36, "", 0);
    assert_eq!(room(&stanza("out", &(gcm.clone() + ipv6 + "udp_encapsulation = {}\n"))).0, 40 + 8 + 8 + 8);
    let (headroom, tailroom, saved) = room(&stanza("out", &(gcm.clone() + "mode = \"transport\"\n")));
    assert_eq!((headroom, tailroom), (16, 3 + 2 + 16));
    // The prefix before ESP consists of 14 bytes of layer 2 and whole 32-bit words. The frame
    // length modulo 4 therefore determines the padding.
    assert_eq!(saved[..8], [3, 0, 1, 2, 3, 0, 1, 2]);
    let ah = keys("", 0, "aes-128-gmac", 20) + "protocol = \"ah\"\n";
    assert_eq!(room(&stanza("out", &ah)), (20 + 12 + 8 + 16, 0, [0; 16]));
    assert_eq!(room(&stanza("out", &(ah + ipv6))), (40 + 40, 0, [0; 16]));
    assert_eq!(room("headroom_bytes = 88\ntailroom_bytes = 49\n"), (88, 49, [0; 16]));
    let for_any_suite = (CONTRACT.headroom_bytes, CONTRACT.tailroom_bytes, [0; 16]);
    assert_eq!(room(""), for_any_suite, "SAs that are added later fit, whatever their suite is");
    for (name, text) in all_suites() {
        let (headroom, tailroom, _) = room(&stanza("out", &(text + ipv6)));
        assert!(headroom <= CONTRACT.headroom_bytes && tailroom <= CONTRACT.tailroom_bytes, "{name}");
    }
}

#[test]
fn saved_tailroom_is_within_the_tailroom() {
    for (name, text) in all_suites() {
        let sa = |mode: &str| stanza("out", &format!("{text}mode = \"{mode}\"\n"));
        let other = sa("transport").replace("\"a\"", "\"b\"").replace("4096", "4097").replace("\"3031", "\"aa31");
        let two = sa("tunnel") + &other;
        for sas in [sa("tunnel"), sa("transport"), two] {
            for configured in ["", "tailroom_bytes = 1\n", "tailroom_bytes = 64\n"] {
                let function = ipsec(&format!("{configured}{sas}"));
                let saved = function.properties().tailroom_saved.into_iter().max().map(u16::from);
                assert!(saved <= Some(function.properties().tailroom_bytes), "{name}: {configured}{sas}");
            }
        }
    }
}

#[test]
fn a_reserved_spi_is_accepted_with_a_warning() {
    let function = ipsec(&(sa("low", 255, "out", "") + &sa("usual", 256, "in", "")));
    assert_eq!(
        function.operate().unwrap().warnings(),
        ["spi = 255 of SA \"low\" is reserved by IANA: use 256 or more"]
    );
}

#[test]
fn the_image_has_the_layout_of_image_h() {
    let selectors = "selectors = [{}, { source = \"10.0.0.0/8\", protocol = 6, destination_ports = \"80-81\" }]";
    let function = ipsec(&(sa("west", 0x1001, "out", "") + &sa("east", 0x2001, "in", selectors)));
    let image = function.image().to_vec();
    let word = |at: usize| u32::from_le_bytes(*image[at..].first_chunk().unwrap());
    assert_eq!(&image[..4], b"IPSE");
    let slots = 3 * 128;
    let first_selector = 64 + slots * 576;
    assert_eq!([word(4), word(8), word(16)], [slots as u32, 64, first_selector as u32]);
    assert_eq!(image.len(), first_selector + word(12) as usize * 64);
    assert_eq!(
        &image[64 + 128..][..16],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        "encryption uses the key first"
    );
    let inbound = 64 + 576;
    assert_eq!(&image[inbound + 128 + 160..][..16], &image[64 + 128..][..16], "decryption uses the key last");
    assert_eq!([word(64), word(64 + 4)], [0x1001, 1]);
    assert_eq!(image[64 + 12..][..4], [0, 12, 64, 0]);
    assert_eq!([word(inbound + 16), word(inbound + 32), word(inbound + 4)], [0xc000_0202, 0xc000_0201, 3]);
    assert_eq!([word(inbound + 52), word(inbound + 56)], [1, 2]);
    let second = first_selector + 2 * 64;
    assert_eq!([word(second), word(second + 16)], [0x0a00_0000, 0]);
    assert_eq!(image[second + 32..][..6], [8, 0, 4, 1, 6, 0]);
    assert_eq!([word(second + 40), word(second + 44)], [0xffff_0000, 81 << 16 | 80]);
    assert_eq!(image[first_selector + 32..][..6], [0, 0, 0, 0, 0, 1]);
    assert!(image[64 + 2 * 576..first_selector].iter().all(|byte| *byte == 0));
}

#[test]
fn the_image_contains_the_settings_of_an_sa() {
    let more = "source = \"2001:db8::1\"\ndestination = \"2001:db8::2\"\nesn = true\ndf = \"clear\"\ndscp = 46\necn = false\n\
                hop_limit = 9\nudp_encapsulation = { source_port = 4501 }\n";
    let function = ipsec(&stanza("out", &(keys("aes-256-gcm", 36, "", 0) + more + "icv_bytes = 12\n")));
    let image = function.image().to_vec();
    let word = |at: usize| u32::from_le_bytes(*image[at..].first_chunk().unwrap());
    assert_eq!(word(64 + 4), 0x01 | 0x08 | 0x10 | 0x20 | 0x40 | 0x100 | 0x200);
    assert_eq!(image[64 + 12..][..4], [17, 12, 9, 46]);
    assert_eq!([0, 4, 8, 12].map(|at| word(64 + 32 + at)), [0x2001_0db8, 0, 0, 2]);
    assert_eq!(word(64 + 48), 4500 << 16 | 4501);
    let transport = keys("aes-128-cbc", 16, "hmac-sha1-96", 20) + "mode = \"transport\"\n";
    let image = ipsec(&stanza("in", &transport)).image().to_vec();
    assert_eq!(image[64 + 4], 0x01 | 0x02 | 0x04);
}
