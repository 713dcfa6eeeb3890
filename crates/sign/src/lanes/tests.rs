//! Compares signatures of SIMD lanes with those of AWS-LC, and tests whether faults are found. The
//! tests need crypto_mb and a CPU with AVX-512 IFMA.

use godwit_test_support::skip;

use super::*;
use crate::scheme::Hash;
use crate::testing;

/// Loads the library, or reports that the test is skipped.
fn library() -> Option<Arc<Library>> {
    testing::library().map_err(|error| skip(format_args!("lanes: {error}"))).ok()
}

#[test]
fn lanes_sign_like_aws_lc() {
    let Some(library) = library() else { return };
    let mut lanes = Lanes::new(library).unwrap();
    for class in Class::ALL {
        if !lanes.works(class) {
            skip(format_args!("lanes of {}: crypto_mb makes wrong signatures", class.name()));
            continue;
        }
        let keys: Vec<Key> = (0..2).map(|number| testing::key(class, number)).collect();
        for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.is_of(class)) {
            for count in 1..=LANES {
                let messages: Vec<Vec<u8>> = (0..count).map(|lane| vec![lane as u8; 16 * lane + count]).collect();
                let job = |(lane, message)| LaneJob { key: &keys[lane % 2], scheme, message };
                let jobs: Vec<_> = messages.iter().map(Vec::as_slice).enumerate().map(job).collect();
                let signatures = lanes.sign(class, &jobs);
                for (lane, job) in jobs.iter().enumerate() {
                    let signature = signatures[lane].as_ref().expect("a signature");
                    assert!(job.key.verifies(scheme, job.message, signature), "{class:?} {scheme:?} lane {lane}");
                    if matches!(scheme, Scheme::RsaPkcs1(_) | Scheme::Ed25519) {
                        assert_eq!(Some(signature), job.key.sign(scheme, job.message).as_ref(), "{scheme:?}");
                    }
                }
                assert!(signatures[count..].iter().all(Option::is_none));
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_a_crt_half_is_found() {
    let Some(library) = library() else { return };
    let mut lanes = Lanes::new(library).unwrap();
    for class in [Class::Rsa2048, Class::Rsa3072, Class::Rsa4096] {
        let good = testing::key(class, 0);
        let bits = class.rsa_bits().unwrap() / 2;
        for bit in [0, 1, 63, 64, bits / 2, bits - 1] {
            let mut bad = testing::key(class, 1);
            let Some(Words::Rsa(words)) = bad.words_mut() else { panic!("RSA") };
            words.flip_bit(bit);
            let scheme = Scheme::RsaPss(Hash::Sha256);
            let job = |lane| LaneJob { key: if lane == 3 { &bad } else { &good }, scheme, message: b"hello" };
            let jobs: [_; LANES] = std::array::from_fn(job);
            let signatures = lanes.sign(class, &jobs);
            for (lane, signature) in signatures.iter().enumerate() {
                assert_eq!(signature.is_some(), lane != 3, "{class:?} bit {bit} lane {lane}");
            }
        }
    }
}

#[test]
fn keys_of_another_class_are_refused() {
    let Some(library) = library() else { return };
    let mut lanes = Lanes::new(library).unwrap();
    let (rsa, ec) = (testing::key(Class::Rsa2048, 0), testing::key(Class::EcdsaP256, 0));
    let scheme = Scheme::RsaPkcs1(Hash::Sha256);
    let jobs = [&rsa, &ec].map(|key| LaneJob { key, scheme, message: b"" });
    assert!(lanes.sign(Class::Rsa3072, &jobs).iter().all(Option::is_none));
    assert!(lanes.sign(Class::Ed25519, &jobs).iter().all(Option::is_none));
    let signatures = lanes.sign(Class::Rsa2048, &jobs);
    assert!(signatures[0].is_some() && signatures[1].is_none());
}
