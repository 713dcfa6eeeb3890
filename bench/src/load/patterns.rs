//! The patterns of `dpi`, and payloads that contain them.

use std::sync::Arc;
use std::time::Instant;

use godwit_function::Function;

use crate::error::Error;
use crate::load::build::build;
use crate::load::frames::Random;
use crate::load::routes;
use crate::progress::Progress;

/// Share of the packets that contain a pattern, in percent.
pub(crate) const MATCHING_PERCENT: u32 = 30;

/// Returns 10,000 patterns of 8 to 24 letters.
pub(crate) fn patterns() -> Vec<String> {
    let mut random = Random::new(10_000);
    let mut word = || (0..8 + random.below(17)).map(|_| (b'a' + random.below(26) as u8) as char).collect::<String>();
    (0..10_000).map(|_| word()).collect()
}

/// Builds `dpi` with these patterns.
pub(crate) fn inspection(patterns: &[String], progress: &mut Progress<'_>) -> Result<Arc<dyn Function>, Error> {
    let file = routes::temporary(patterns.join("\n").as_bytes())?;
    let started = Instant::now();
    let function = build("dpi", &format!("patterns = {:?}", file.path().display().to_string()))?;
    let built_ms = started.elapsed().as_millis();
    progress(&format!(
        "{} patterns: image of {} MiB built in {built_ms} ms",
        patterns.len(),
        function.image().len() >> 20
    ));
    Ok(function)
}

/// Fills a payload with random bytes. 30 % of the payloads contain a pattern.
pub(crate) fn plant(patterns: &[String], random: &mut Random, payload: &mut [u8]) {
    payload.fill_with(|| random.next_u32() as u8);
    let pattern = patterns[random.below(patterns.len() as u32) as usize].as_bytes();
    if random.below(100) < MATCHING_PERCENT && payload.len() > pattern.len() {
        let offset = random.below((payload.len() - pattern.len()) as u32) as usize;
        payload[offset..offset + pattern.len()].copy_from_slice(pattern);
    }
}
