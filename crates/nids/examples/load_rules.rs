//! Loads rule files, and prints how many rules fail for each unsupported option.

use godwit_nids::rules::{RuleSet, Variables};
use std::collections::BTreeMap;
use std::time::Instant;

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let commented = files.iter().any(|file| file == "--commented");
    files.retain(|file| file != "--commented");
    let begin = Instant::now();
    let set = match RuleSet::load(&files, &Variables::default(), commented) {
        Ok(set) => set,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    let mut reasons: BTreeMap<(&str, &str), (usize, &str)> = BTreeMap::new();
    for rule in &set.unsupported {
        let entry = reasons.entry((&rule.option, rule.reason)).or_default();
        entry.0 += 1;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.1.0));
    for ((option, reason), (count, _)) in reasons {
        println!("{count:6} {option}: {reason}");
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{} of {} rules loaded ({:.2} %) in {seconds:.2} s",
        set.rules.len(),
        set.total(),
        100.0 * set.rules.len() as f64 / set.total() as f64
    );
    let without = set.rules.iter().filter(|rule| rule.prefilter.is_none()).count();
    println!("{without} without a prefilter");
}
