//! Texts that may contain keys. They are wiped from memory when dropped. No buffer is reallocated,
//! because that would leave a copy in freed memory.

use std::io::{self, Read};
use std::path::Path;

use godwit_engine::wipe_texts;
use serde_json::Value;
use zeroize::Zeroizing;

/// JSON value whose texts are wiped when it is dropped.
pub(crate) struct Secret(pub(crate) Value);

impl Drop for Secret {
    fn drop(&mut self) {
        wipe_texts(&mut self.0);
    }
}

/// Reads a text file. The path `-` is standard input.
///
/// # Errors
/// Returns an error if the file cannot be read or is not UTF-8.
pub(crate) fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    if path == Path::new("-") { read_all(io::stdin().lock()) } else { read_all(std::fs::File::open(path)?) }
}

fn read_all(mut from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(vec![0; 64 << 10]);
    let mut filled = 0;
    loop {
        if filled == bytes.len() {
            let mut larger = Zeroizing::new(vec![0; 2 * filled]);
            larger[..filled].copy_from_slice(&bytes);
            bytes = larger;
        }
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let text = std::str::from_utf8(&bytes[..filled]);
    text.map(|text| Zeroizing::new(text.to_owned()))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "this is not UTF-8 text"))
}

/// Returns `value` as one line of JSON, including the line end.
pub(crate) fn line(value: &Value) -> Zeroizing<Vec<u8>> {
    /// Writer that counts bytes.
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(1);
    // Both writers are infallible, and every Value has a JSON form.
    let _ = serde_json::to_writer(&mut count, value);
    let mut line = Zeroizing::new(Vec::with_capacity(count.0));
    let _ = serde_json::to_writer(&mut *line, value);
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_all_returns_the_whole_input() {
        let text: String = (0..100_000).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
        // Reads one byte at a time.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.0.read(&mut into[..1])
            }
        }
        assert_eq!(*read_all(text.as_bytes()).unwrap(), text);
        assert_eq!(*read_all(Slow(text.as_bytes())).unwrap(), text);
        assert!(read_all(&b"\xff"[..]).is_err());
    }

    #[test]
    fn a_line_is_allocated_once_and_texts_are_wiped() {
        let value = json!({ "sa": [{ "key": "00ff\"\u{7f}\n", "spi": 7 }] });
        let line = line(&value);
        assert_eq!(line.len(), line.capacity());
        assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), value);
        let mut wiped = value;
        wipe_texts(&mut wiped);
        assert_eq!(wiped, json!({ "sa": [{ "key": "", "spi": 7 }] }));
    }
}
