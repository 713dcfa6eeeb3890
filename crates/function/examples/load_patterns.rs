//! Measures the time to load patterns: parsing the text, and building the table image.
//!
//! `load_patterns FILE` measures a pattern file. `load_patterns` without an argument measures
//! 10,000 random patterns of 4 to 40 bytes, first with all byte values and then with lower case
//! letters.

use std::time::Instant;

use godwit_function::Function;
use godwit_function::dpi::{Case, Dpi, parse_patterns};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(file) = std::env::args().nth(1) {
        return measure(&file, &std::fs::read(&file)?);
    }
    measure("random bytes", &random_patterns(10_000, |random| format!("|{:02x}|", random as u8)))?;
    measure("random letters", &random_patterns(10_000, |random| char::from(b'a' + (random % 26) as u8).to_string()))
}

fn random_patterns(count: usize, byte: fn(u64) -> String) -> Vec<u8> {
    let mut state = 1u64;
    let mut random = || {
        // Linear congruential generator (Knuth, The Art of Computer Programming, volume 2, section
        // 3.3.4, table 1, line 26). Its upper bits are more random.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut text = String::new();
    for _ in 0..count {
        for _ in 0..4 + random() % 37 {
            text += &byte(random());
        }
        text.push('\n');
    }
    text.into_bytes()
}

fn measure(name: &str, text: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
    for case in [Case::Sensitive, Case::Insensitive] {
        let begin = Instant::now();
        let patterns = parse_patterns(text).map_err(|(line, message)| format!("line {line}: {message}"))?;
        let parsed = begin.elapsed();
        let function = Dpi::new(patterns, case)?;
        let total = begin.elapsed();
        println!(
            "{name}, {case:?}: {} patterns; read {:.0} ms, build {:.0} ms; image {} MiB",
            function.patterns().len(),
            parsed.as_secs_f64() * 1e3,
            (total - parsed).as_secs_f64() * 1e3,
            function.image().len() >> 20,
        );
    }
    Ok(())
}
