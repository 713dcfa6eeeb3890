//! Tests the algorithms of the kernel with vectors of NIST CAVP, Wycheproof, OpenSSL and the RFCs.
//!
//! A small C program includes the headers of the kernel. It is compiled for each CPU level, with
//! and without AES instructions. The round keys and HMAC states come from a table image, so the
//! tests cover them too.

use godwit_function::ipsec::key_area::{KEY_AREA_BYTES, emit_keys};
use godwit_function::ipsec::suite::{self, SUITES};
use godwit_test_support::hex::hex;
use godwit_test_support::hex::unhex;
use godwit_test_support::repository;

use super::program::check;

/// Returns the bytes of an SA that hold its prepared keys, in hexadecimal digits.
fn area(suite: &str, inbound: bool, encryption_key: &[u8], authentication_key: &[u8]) -> String {
    let suite = &SUITES[usize::from(suite::number(suite).unwrap())];
    let mut area = [0; KEY_AREA_BYTES];
    emit_keys(suite, inbound, encryption_key, authentication_key, &mut area);
    hex(&area)
}

fn read(path: &str) -> String {
    let path = repository().join("tests/vectors/ipsec").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parses `NAME = value` lines into groups that blank lines separate.
fn groups(text: &str) -> Vec<Vec<(String, String)>> {
    let text = text.replace('\r', "");
    let group = |group: &str| {
        let pairs = group.lines().filter(|line| !line.starts_with(['#', '[']));
        pairs
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    };
    text.split("\n\n").map(group).filter(|group: &Vec<_>| !group.is_empty()).collect()
}

fn value<'a>(group: &'a [(String, String)], name: &str) -> &'a str {
    &group.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name} is not in {group:?}")).1
}

#[test]
fn aes_cbc_nist() {
    let mut operations = Vec::new();
    for (bits, rounds) in [(128, 10), (192, 12), (256, 14)] {
        for file in ["GFSbox", "KeySbox", "VarKey", "VarTxt", "MMT"] {
            let groups = groups(&read(&format!("nist-cavp/CBC{file}{bits}.rsp")));
            let cases: Vec<_> = groups.iter().filter(|group| group.iter().any(|(name, _)| name == "KEY")).collect();
            assert!(cases.len() >= 10, "{file}{bits}: {}", cases.len());
            for case in cases {
                let [key, iv, plain, cipher] = ["KEY", "IV", "PLAINTEXT", "CIPHERTEXT"].map(|name| value(case, name));
                let suite = format!("cbc{bits}_sha1");
                let [encrypt, decrypt] = [false, true].map(|inbound| area(&suite, inbound, &unhex(key), &[]));
                operations.push((format!("encrypt {rounds} {encrypt} {iv} {plain}"), cipher.to_owned(), true));
                operations.push((format!("decrypt {rounds} {decrypt} {iv} {cipher}"), plain.to_owned(), true));
                if iv.bytes().all(|digit| digit == b'0') && plain.len() == 32 {
                    operations.push((format!("block {rounds} {encrypt} {plain}"), cipher.to_owned(), true));
                }
            }
        }
    }
    check(&operations);
}

/// The plaintext includes its PKCS #5 padding. In an invalid case, the decrypted ciphertext differs
/// from the plaintext.
#[test]
fn aes_cbc_wycheproof() {
    let mut operations = Vec::new();
    let mut valid = 0;
    for [_, result, key, iv, message, cipher] in rows("wycheproof/aes-cbc.txt") {
        let message = none_if_empty(&message);
        let padding = 16 - message.len() / 2 % 16;
        let plain = format!("{message}{}", format!("{padding:02x}").repeat(padding));
        let is_valid = result == "valid";
        valid += usize::from(is_valid);
        let suite = format!("cbc{}_sha1", key.len() * 4);
        let [encrypt, decrypt] = [false, true].map(|inbound| area(&suite, inbound, &unhex(&key), &[]));
        let rounds = key.len() / 8 + 6;
        if is_valid {
            operations.push((format!("encrypt {rounds} {encrypt} {iv} {plain}"), cipher.clone(), true));
        }
        operations.push((format!("decrypt {rounds} {decrypt} {iv} {cipher}"), plain, is_valid));
    }
    assert_eq!((valid, operations.len()), (72, 72 + 213));
    check(&operations);
}

struct Hmac {
    key: String,
    message: String,
    tag: String,
    valid: bool,
}

fn hmac(hash: &str, cases: &[Hmac]) {
    let operation = |case: &Hmac| {
        let area = area(&format!("null_{hash}"), false, &[], &unhex(&case.key));
        (format!("{hash} {area} {} -", case.message), case.tag.clone(), case.valid)
    };
    check(&cases.iter().map(operation).collect::<Vec<_>>());
}

/// Tests the cases in which the key is not longer than a block.
fn hmac_rfc(hash: &str, path: &str, count: usize) {
    let groups = groups(&read(path));
    let groups = groups.iter().filter(|group| group.iter().any(|(name, value)| name == "Key" && value.len() <= 128));
    let text = |group: &[(String, String)], name| value(group, name).to_owned();
    let case = |group: &Vec<_>| Hmac {
        key: text(group, "Key"),
        message: text(group, "Msg"),
        tag: text(group, "MD"),
        valid: true,
    };
    let cases: Vec<_> = groups.map(case).collect();
    assert_eq!(cases.len(), count);
    hmac(hash, &cases);
}

#[test]
fn hmac_sha1_rfc_2202() {
    hmac_rfc("sha1", "rfc2202/hmac-sha1.txt", 5);
}

#[test]
fn hmac_sha256_rfc_4231() {
    hmac_rfc("sha256", "rfc4231/hmac-sha256.txt", 4);
}

#[test]
fn hmac_sha384_and_sha512_rfc_4868() {
    hmac_rfc("sha384", "rfc4868/hmac-sha384.txt", 3);
    hmac_rfc("sha512", "rfc4868/hmac-sha512.txt", 3);
}

#[test]
fn aes_macs_rfc_3566_and_rfc_4493() {
    for (suite, path, count) in [("null_xcbc", "rfc3566/aes-xcbc.txt", 6), ("null_cmac", "rfc4493/aes-cmac.txt", 3)] {
        let groups = groups(&read(path));
        let mut operations = Vec::new();
        for group in groups.iter().filter(|group| group.iter().any(|(name, _)| name == "Key")) {
            let [key, message, tag] = ["Key", "Msg", "MD"].map(|name| value(group, name));
            operations.push((
                format!("mac {} {message} -", area(suite, false, &[], &unhex(key))),
                tag.to_owned(),
                true,
            ));
        }
        assert_eq!(operations.len(), count);
        check(&operations);
    }
}

fn rows<const N: usize>(path: &str) -> Vec<[String; N]> {
    let text = read(path);
    let row = |line: &str| {
        let fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        fields.try_into().unwrap_or_else(|_| panic!("{path}: {line}"))
    };
    text.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn hmac_wycheproof(hash: &str, counts: (usize, usize)) {
    let case = |[_, result, key, message, tag]: [String; 5]| Hmac { key, message, tag, valid: result == "valid" };
    let cases: Vec<Hmac> = rows(&format!("wycheproof/hmac-{hash}.txt")).into_iter().map(case).collect();
    let valid = cases.iter().filter(|case| case.valid).count();
    assert_eq!((valid, cases.len()), counts);
    hmac(hash, &cases);
}

#[test]
fn hmac_sha1_wycheproof() {
    hmac_wycheproof("sha1", (54, 158));
}

#[test]
fn hmac_sha256_wycheproof() {
    hmac_wycheproof("sha256", (54, 162));
}

#[test]
fn hmac_sha384_and_sha512_wycheproof() {
    hmac_wycheproof("sha384", (54, 162));
    hmac_wycheproof("sha512", (54, 162));
}

#[test]
fn aes_ctr_rfc_3686() {
    let mut operations = Vec::new();
    for (bits, rounds) in [(128, 10), (192, 12), (256, 14)] {
        let groups = groups(&read(&format!("rfc3686/aes-{bits}-ctr.txt")));
        let cases: Vec<_> = groups.iter().filter(|group| group.iter().any(|(name, _)| name == "KEY")).collect();
        assert_eq!(cases.len(), 3, "{bits}");
        for case in cases {
            let [key, iv, plain, cipher] = ["KEY", "IV", "PLAINTEXT", "CIPHERTEXT"].map(|name| value(case, name));
            let (nonce, counter) = iv.split_at(24);
            assert_eq!(counter, "00000001");
            let area = area(&format!("ctr{bits}_sha1"), false, &unhex(key), &[]);
            operations.push((format!("ctr {rounds} {area} {nonce} {plain}"), cipher.to_lowercase(), true));
        }
    }
    check(&operations);
}

#[test]
fn aes_gcm_nist() {
    let mut operations = Vec::new();
    for (bits, rounds) in [(128, 10), (256, 14)] {
        let groups = groups(&read(&format!("nist-cavp/gcmEncryptExtIV{bits}.rsp")));
        let cases: Vec<_> = groups.iter().filter(|group| group.iter().any(|(name, _)| name == "Key")).collect();
        assert_eq!(cases.len(), 1125, "{bits}");
        for case in cases {
            let [key, iv, aad, plain, cipher, tag] =
                ["Key", "IV", "AAD", "PT", "CT", "Tag"].map(|name| value(case, name));
            operations.push((gcm(rounds, key, iv, or_empty(aad), or_empty(plain)), format!("{cipher}{tag}"), true));
        }
    }
    check(&operations);
}

/// The nonces of 11 bytes in the tests with variable nonces. Their key is in the first group of
/// each nonce length.
#[test]
fn aes_ccm_nist() {
    let mut operations = Vec::new();
    for (bits, rounds) in [(128, 10), (192, 12), (256, 14)] {
        let mut key = String::new();
        for group in groups(&read(&format!("nist-cavp/VNT{bits}.rsp"))) {
            if let [(name, value)] = &group[..] {
                key = if name == "Key" { value.clone() } else { key };
                continue;
            }
            if !group.iter().any(|(name, nonce)| name == "Nonce" && nonce.len() == 22) {
                continue;
            }
            let [nonce, aad, plain, cipher] = ["Nonce", "Adata", "Payload", "CT"].map(|name| value(&group, name));
            let area = area(&format!("ccm{bits}"), false, &unhex(&key), &[]);
            operations.push((format!("ccm {rounds} {area} {nonce} {aad} {plain}"), cipher.to_owned(), true));
        }
    }
    assert_eq!(operations.len(), 3 * 10);
    check(&operations);
}

/// Returns `-` for an empty field, because spaces separate the fields of a line.
fn or_empty(hex: &str) -> &str {
    if hex.is_empty() { "-" } else { hex }
}

fn none_if_empty(hex: &str) -> &str {
    if hex == "-" { "" } else { hex }
}

fn gcm(rounds: usize, key: &str, iv: &str, aad: &str, plain: &str) -> String {
    let area = area(&format!("gcm{}", key.len() * 4), false, &unhex(key), &[]);
    format!("gcm {rounds} {area} {iv} {aad} {plain}")
}

/// In an invalid case, the tag differs from the computed tag.
#[test]
fn aes_gcm_and_gmac_wycheproof() {
    let mut operations = Vec::new();
    for [_, result, key, iv, aad, plain, cipher, tag] in rows("wycheproof/aes-gcm.txt") {
        let expected = format!("{}{}", none_if_empty(&cipher), none_if_empty(&tag));
        operations.push((gcm(key.len() / 8 + 6, &key, &iv, &aad, &plain), expected, result == "valid"));
    }
    for [_, result, key, iv, message, tag] in rows("wycheproof/aes-gmac.txt") {
        operations.push((gcm(key.len() / 8 + 6, &key, &iv, &message, "-"), tag, result == "valid"));
    }
    let valid = operations.iter().filter(|(.., valid)| *valid).count();
    assert_eq!((valid, operations.len()), (116 + 45, 197 + 207));
    check(&operations);
}

#[test]
fn chacha20_rfc_8439() {
    let groups = groups(&read("rfc8439/chacha20.txt"));
    let cases: Vec<_> = groups.iter().filter(|group| group.iter().any(|(name, _)| name == "KEY")).collect();
    assert_eq!(cases.len(), 3);
    let operation = |case: &&Vec<(String, String)>| {
        let [key, nonce, counter, plain, cipher] =
            ["KEY", "NONCE", "INITIAL_BLOCK_COUNTER", "PLAINTEXT", "CIPHERTEXT"].map(|name| value(case, name));
        let area = area("chacha20_poly1305", false, &unhex(key), &[]);
        (format!("chacha20 {area} {nonce} {counter} {plain}"), cipher.to_owned(), true)
    };
    check(&cases.iter().map(operation).collect::<Vec<_>>());
}

/// The cases cover carries, the reduction modulo 2^130 - 5 and the clamped bits (RFC 8439, section
/// 2.5.2 and appendix A.3).
#[test]
fn poly1305_rfc_8439() {
    let rows = rows::<3>("rfc8439/poly1305.txt");
    let operation = |[key, message, tag]: [String; 3]| (format!("poly1305 {key} {message}"), tag, true);
    let operations: Vec<_> = rows.into_iter().map(operation).collect();
    assert_eq!(operations.len(), 9);
    check(&operations);
}

#[test]
fn chacha20_poly1305_openssl() {
    let groups = groups(&read("openssl/chacha20-poly1305.txt"));
    let operation = |case: &Vec<(String, String)>| {
        let [key, iv, aad, tag, plain, cipher] =
            ["Key", "IV", "AAD", "Tag", "Plaintext", "Ciphertext"].map(|name| value(case, name));
        let area = area("chacha20_poly1305", false, &unhex(key), &[]);
        let is_valid = case.iter().all(|(name, _)| name != "Result");
        (format!("aead {area} {iv} {} {}", or_empty(aad), or_empty(plain)), format!("{cipher}{tag}"), is_valid)
    };
    let operations: Vec<_> = groups.iter().map(operation).collect();
    assert_eq!((operations.len(), operations.iter().filter(|(.., valid)| *valid).count()), (5, 4));
    check(&operations);
}

#[test]
fn chacha20_poly1305_wycheproof() {
    let mut operations = Vec::new();
    for [_, result, key, iv, aad, plain, cipher, tag] in rows("wycheproof/chacha20-poly1305.txt") {
        let area = area("chacha20_poly1305", false, &unhex(&key), &[]);
        let expected = format!("{}{}", none_if_empty(&cipher), none_if_empty(&tag));
        operations.push((format!("aead {area} {iv} {aad} {plain}"), expected, result == "valid"));
    }
    let valid = operations.iter().filter(|(.., valid)| *valid).count();
    assert_eq!((valid, operations.len()), (256, 316));
    check(&operations);
}
