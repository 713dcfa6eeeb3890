//! `hash` and `aes` with the published test vectors of their algorithms, in every implementation.

use godwit_abi::{Bin, Descriptor, Outcome};
use godwit_function::{Function, aes, hash};
use godwit_packet::{Arena, ArenaConfig};
use godwit_test_cases::build;
use godwit_test_support::hex::unhex;

use super::implementations::{Job, implementations};

/// Ethernet header with an EtherType for experiments, so that the rest of the frame is the payload.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];

const NAMES: [&str; 3] = ["md5", "sha1", "sha256"];

/// A text and its digests by MD5, SHA-1 and SHA-256, where a standard publishes them.
type Vector = (String, [Option<&'static str>; 3]);

/// Returns the vectors of RFC 1321 (appendix A.5), and of the examples of NIST for FIPS 180.
fn vectors() -> Vec<Vector> {
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let md5 = |text: &str, digest| (text.to_owned(), [Some(digest), None, None]);
    vec![
        (
            String::new(),
            [
                Some("d41d8cd98f00b204e9800998ecf8427e"),
                Some("da39a3ee5e6b4b0d3255bfef95601890afd80709"),
                Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ],
        ),
        (
            "abc".to_owned(),
            [
                Some("900150983cd24fb0d6963f7d28e17f72"),
                Some("a9993e364706816aba3e25717850c26c9cd0d89d"),
                Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ],
        ),
        (
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_owned(),
            [
                None,
                Some("84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
                Some("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
            ],
        ),
        md5("a", "0cc175b9c0f1b6a831c399e269772661"),
        md5("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        md5("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
        md5(letters, "d174ab98d277d9f5a5611c2c9f419d9f"),
        md5(&"1234567890".repeat(8), "57edf4a22be3c955ac49da2e2107b67a"),
    ]
}

/// Outcome and resulting frame of each packet.
type Results = Vec<(Outcome, Vec<u8>)>;

/// Runs frames through `ref` and every implementation of this machine. Returns the name of each
/// with its results.
fn run_all(function: &dyn Function, frames: &[Vec<u8>]) -> Vec<(String, Results)> {
    let config = ArenaConfig { packets: frames.len(), ..ArenaConfig::default() };
    let mut region = Arena::new(config, 1).unwrap().split().remove(0);
    let fresh: Vec<Descriptor> = frames.iter().map(|frame| region.allocate(frame.len()).unwrap()).collect();
    let variant = function.properties().variant;
    let mut results = Vec::new();
    let mut expected = Vec::new();
    for (frame, &descriptor) in frames.iter().zip(&fresh) {
        let (mut buffer, mut after) = (region.buffer_mut(&descriptor).to_vec(), descriptor);
        let head = usize::from(descriptor.head);
        buffer[head..head + frame.len()].copy_from_slice(frame);
        let outcome = function.run_ref(&mut buffer, &mut after, variant, 0);
        expected.push((outcome, buffer[head..head + usize::from(after.length)].to_vec()));
    }
    results.push(("ref".to_owned(), expected));
    // The test `matrix` reports the others.
    for implementation in implementations().into_iter().filter(|implementation| implementation.available.is_ok()) {
        for (frame, descriptor) in frames.iter().zip(&fresh) {
            region.frame_mut(descriptor).copy_from_slice(frame);
        }
        let mut descriptors = fresh.clone();
        let mut outcomes = vec![Outcome::default(); frames.len()];
        let bin =
            Bin { count: frames.len() as u16, kernel: function.contract().bin_kernel(), variant, ..Bin::default() };
        (implementation.run)(Job {
            region: &mut region,
            image: function.image(),
            bins: &[bin],
            descriptors: &mut descriptors,
            parameters: &vec![0; frames.len()],
            outcomes: &mut outcomes,
        });
        let found = outcomes.into_iter().zip(&descriptors);
        let found = found.map(|(outcome, descriptor)| (outcome, region.frame_mut(descriptor).to_vec())).collect();
        results.push((implementation.name, found));
    }
    results
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&HEADER[..], payload].concat()
}

#[test]
fn digests_are_those_of_the_standards() {
    for (algorithm, name) in NAMES.iter().enumerate() {
        let vectors = vectors();
        let vectors: Vec<(&str, &str)> =
            vectors.iter().filter_map(|(text, digests)| Some((text.as_str(), digests[algorithm]?))).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests");
        let lines: String = vectors.iter().map(|(text, digest)| format!("{digest}  {text}\n")).collect();
        std::fs::write(&path, format!("# digests of the standards\n\n{lines}")).unwrap();
        let stanza = format!("algorithm = '{name}'\nover = 'payload'\ndigests = {path:?}");
        let function = build("hash", &stanza, 1);
        let frames: Vec<Vec<u8>> = vectors.iter().map(|(text, _)| frame(text.as_bytes())).collect();
        let changed: Vec<Vec<u8>> = frames.iter().map(|frame| [&frame[..], b"?"].concat()).collect();
        for (form, results) in run_all(&*function, &[frames, changed].concat()) {
            let (listed, passed) = results.split_at(vectors.len());
            for ((line, vector), (outcome, _)) in (3..).zip(&vectors).zip(listed) {
                let expected = Outcome { value: line, ..Outcome::verdict(hash::VERDICT_LISTED) };
                assert_eq!(*outcome, expected, "{name}, {form}: {vector:?}");
            }
            assert!(passed.iter().all(|(outcome, _)| outcome.verdict == hash::VERDICT_PASS), "{name}, {form}");
        }
        // Without a list, the value is the start of the digest.
        let function = build("hash", &format!("algorithm = '{name}'\nover = 'payload'"), 1);
        let frames: Vec<Vec<u8>> = vectors.iter().map(|(text, _)| frame(text.as_bytes())).collect();
        for (form, results) in run_all(&*function, &frames) {
            for ((text, digest), (outcome, _)) in vectors.iter().zip(results) {
                let value = u32::from_str_radix(&digest[..8], 16).unwrap();
                assert_eq!(outcome, Outcome { value, ..Outcome::verdict(hash::VERDICT_PASS) }, "{form}: {text}");
            }
        }
    }
}

/// NIST SP 800-38A, appendix F.2.1 and F.2.2.
#[test]
fn cbc_gives_the_example_of_the_standard() {
    let plain = unhex(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    );
    let sealed = unhex(
        "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b273bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
    );
    // The rest after the last whole block stays unchanged.
    let [plain, sealed] = [plain, sealed].map(|blocks| frame(&[&blocks[..], b"rest"].concat()));
    for (direction, from, to) in [("encrypt", &plain, &sealed), ("decrypt", &sealed, &plain)] {
        let stanza = format!(
            "cipher = 'aes-128-cbc'\ndirection = '{direction}'\nkey = '2b7e151628aed2a6abf7158809cf4f3c'\n\
             iv = '000102030405060708090a0b0c0d0e0f'"
        );
        let function = build("aes", &stanza, 1);
        for (form, results) in run_all(&*function, &vec![from.clone(); 20]) {
            for (outcome, frame) in results {
                assert_eq!(outcome, Outcome::verdict(aes::VERDICT_DONE), "{form}");
                assert_eq!(frame, *to, "{direction}, {form}");
            }
        }
    }
}

/// RFC 8439, section 2.8.2. The example has additional data, so its tag is a different one.
#[test]
fn chacha20_gives_the_example_of_the_standard() {
    let text = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
    let sealed = unhex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
    );
    let function = |direction| {
        let stanza = format!(
            "cipher = 'chacha20-poly1305'\ndirection = '{direction}'\n\
             key = '808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f'\niv = '070000004041424344454647'"
        );
        build("aes", &stanza, 1)
    };
    let plain = frame(text.as_bytes());
    let mut tags = Vec::new();
    for (form, results) in run_all(&*function("encrypt"), &vec![plain.clone(); 3]) {
        for (outcome, frame) in results {
            assert_eq!(outcome, Outcome::verdict(aes::VERDICT_DONE), "{form}");
            let (data, tag) = frame[HEADER.len()..].split_at(text.len());
            assert_eq!(data, sealed, "{form}");
            tags.push(tag.to_vec());
        }
    }
    assert!(tags[0].len() == 16 && tags.iter().all(|tag| *tag == tags[0]));
    let authentic = [&frame(&sealed)[..], &tags[0]].concat();
    let mut forged = authentic.clone();
    forged[30] ^= 1;
    for (form, results) in run_all(&*function("decrypt"), &[authentic, forged.clone(), plain[..15].to_vec()]) {
        let outcomes: Vec<Outcome> = results.iter().map(|(outcome, _)| *outcome).collect();
        let dropped = Outcome::drop(aes::DROP_FORGED);
        assert_eq!(outcomes, [Outcome::verdict(aes::VERDICT_DONE), dropped, dropped], "{form}");
        assert_eq!(results[0].1, plain, "{form}");
        assert_eq!(results[1].1, forged, "{form}: a forged packet is unchanged");
    }
}
