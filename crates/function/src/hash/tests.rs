use std::path::Path;

use super::*;
use crate::testing::{self, Directory, build_error, build_ok, run};

fn listed(algorithm: Algorithm, text: &str) -> Result<Vec<u32>, (usize, String)> {
    let listed = digests::parse(text.as_bytes(), algorithm)?;
    Ok(listed.iter().map(|entry| entry.line).collect())
}

#[test]
fn output_of_md5sum_is_a_list() {
    let digest = "d41d8cd98f00b204e9800998ecf8427e";
    let text = format!("# empty\n\n{digest}  file\r\n{}\tname\n{digest}", digest.to_uppercase());
    assert_eq!(listed(Algorithm::Md5, &text), Ok(vec![3, 4, 5]));
    let parsed = digests::parse(text.as_bytes(), Algorithm::Md5).unwrap();
    assert!(parsed.iter().all(|entry| entry.digest == parsed[0].digest && entry.digest[16..] == [0; 16]));
}

#[test]
fn other_lines_are_errors_with_their_number() {
    for (algorithm, digits) in [(Algorithm::Md5, 32), (Algorithm::Sha1, 40), (Algorithm::Sha256, 64)] {
        for wrong in ["g".repeat(digits), "0".repeat(digits - 1), "0".repeat(digits + 2), " ".to_owned()] {
            let (line, message) = listed(algorithm, &format!("#\n{wrong}")).unwrap_err();
            assert_eq!(line, 2, "{wrong}");
            assert!(message.contains(&format!("{digits} hex digits")), "{message}");
        }
    }
}

#[test]
fn first_line_of_a_digest_counts() {
    let digest = |byte| [byte; 32];
    let entry = |byte, line| Listed { digest: digest(byte), line };
    let function = Hash::new(Algorithm::Sha256, Over::Frame, vec![entry(9, 4), entry(1, 3), entry(9, 2)]).unwrap();
    assert_eq!(function.listed, [entry(1, 3), entry(9, 2)]);
    assert_eq!(function.tables(), [("digests".to_owned(), 2)]);
}

/// The digest of a frame covers all bytes, and that of a payload only the payload.
#[test]
fn digest_covers_frame_or_payload() {
    let mut frame = vec![0; 14];
    frame.extend(b"abc");
    for (over, value) in [("frame", None), ("payload", Some(0x9001_5098))] {
        let function = build_ok(&KIND, &format!("algorithm = 'md5'\nover = '{over}'"), &[]);
        let outcomes = [0, 1].map(|byte| {
            let mut frame = frame.clone();
            frame[0] = byte;
            run(&*function, &mut frame)
        });
        assert_eq!(outcomes[0] == outcomes[1], over == "payload", "{outcomes:?}");
        assert!(value.is_none_or(|value| outcomes[0].value == value), "{outcomes:?}");
        for length in 0..14 {
            assert_eq!(run(&*function, &mut frame[..length].to_vec()), Outcome::drop(DROP_TRUNCATED));
        }
    }
}

#[test]
fn configuration_is_checked() {
    for (stanza, part) in [
        ("", "algorithm"),
        ("algorithm = 'md4'", "md4"),
        ("algorithm = 'md5'\nover = 'header'", "header"),
        ("algorithm = 'md5'\ndigest = 'x'", "digest"),
        ("algorithm = 'md5'\ndigests = 'no such file'", "no such file"),
    ] {
        let error = build_error(&KIND, stanza, &[]).to_string();
        assert!(error.contains(part), "{error}");
    }
    let folder = Directory::new("hash");
    std::fs::write(folder.0.join("empty"), "# nothing\n").unwrap();
    std::fs::write(folder.0.join("wrong"), "#\n#\nabc\n").unwrap();
    for (name, part) in [("empty", "empty:1: the file contains no digest"), ("wrong", "wrong:3: the line must begin")] {
        let stanza = format!("algorithm = 'sha1'\ndigests = '{name}'");
        let Err(error) = testing::build(&KIND, &stanza, &[], Path::new(&folder.0)) else {
            panic!("{name} is accepted")
        };
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// Every digest is in the slot of its first bits, for any number of digests.
#[test]
fn slots_contain_their_digests() {
    for count in [0_u32, 1, 2, 3, 255, 1000] {
        let digest = |number: u32| {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
            digest
        };
        let listed = (0..count).map(|number| Listed { digest: digest(number), line: number + 1 }).collect();
        let function = Hash::new(Algorithm::Sha256, Over::Frame, listed).unwrap();
        let image = function.image().to_vec();
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let (shift, rows) = (word(8), word(16) as usize);
        assert!((8..=31).contains(&shift));
        for number in 0..count {
            let first = u32::from_be_bytes(digest(number)[..4].try_into().unwrap());
            let slot = (first >> shift) as usize;
            let [start, end] = [slot, slot + 1].map(|slot| word(64 + 4 * slot) as usize);
            assert!((start..end).any(|row| word(rows + 64 * row + 32) == number + 1), "{number} of {count}");
        }
        assert_eq!(image.len(), rows + 64 * count as usize);
    }
}
