//! `godwit rules`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use godwit_nids::detect::Engine;
use godwit_nids::literal::Frequencies;
use godwit_nids::rules::{RuleSet, Unsupported, Variables};
use serde::Serialize;

use crate::control::Target;
use crate::failure::Failure;
use crate::output::{self, Json};

/// Check rule files, or reload the rules of a running godwit.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<RulesCommand>,
    #[command(flatten)]
    check: Option<CheckArguments>,
}

#[derive(Subcommand)]
enum RulesCommand {
    /// List the rules that do not load, and count the others. `godwit rules FILE…` does the same.
    Check(CheckArguments),
    /// Read the rule files of a `nids` function again and replace its rules, while packets flow.
    Reload(ReloadArguments),
}

#[derive(Args)]
struct CheckArguments {
    /// Rule files.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Also load rules behind a `#`.
    #[arg(long)]
    commented: bool,
    /// Write the result as JSON; - is standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct ReloadArguments {
    #[command(flatten)]
    target: Target,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    match (&arguments.command, &arguments.check) {
        (Some(RulesCommand::Reload(arguments)), _) => reload(arguments),
        (Some(RulesCommand::Check(arguments)), _) | (None, Some(arguments)) => check(arguments),
        (None, None) => Err(Failure::User("no rule file: `godwit rules --help` shows the usage".to_owned())),
    }
}

/// Result of a check.
#[derive(Serialize)]
struct Checked {
    files: Vec<String>,
    loaded: usize,
    unsupported: Vec<Row>,
    without_pattern: usize,
    patterns: usize,
    pattern_sets: usize,
    image_bytes: usize,
    took_ms: u64,
    /// Peak memory of the process, if the system reports it.
    peak_bytes: Option<u64>,
}

/// Rule that does not load.
#[derive(Serialize)]
struct Row {
    file: String,
    line: u32,
    sid: Option<u32>,
    option: String,
    reason: &'static str,
}

fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    let json = Json::open(arguments.json.as_deref())?;
    let begin = Instant::now();
    let mut set = RuleSet::load(&arguments.files, &Variables::default(), arguments.commented).map_err(Failure::user)?;
    let unsupported = std::mem::take(&mut set.unsupported);
    let without_pattern = set.rules.iter().filter(|rule| rule.prefilter.is_none()).count();
    let engine = Engine::new(set, &Frequencies::new(), 0);
    let checked = Checked {
        files: arguments.files.iter().map(|file| file.display().to_string()).collect(),
        loaded: engine.rules.len(),
        unsupported: unsupported.into_iter().map(row).collect(),
        without_pattern,
        patterns: engine.literals(),
        pattern_sets: engine.sets.len() + usize::from(!engine.payload.is_empty()),
        image_bytes: engine.image_bytes(),
        took_ms: begin.elapsed().as_millis() as u64,
        peak_bytes: peak_bytes(),
    };
    output::print_text(&json, &checked.text())?;
    json.write(&checked)
}

fn row(rule: Unsupported) -> Row {
    let Unsupported { place, sid, option, reason } = rule;
    Row { file: place.file.to_string(), line: place.line, sid, option, reason }
}

/// Returns the peak memory of this process.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

impl Checked {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut options: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for Row { file, line, option, reason, .. } in &self.unsupported {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{file}:{line}: {option}: {reason}");
            *options.entry((option, reason)).or_default() += 1;
        }
        if !options.is_empty() {
            text += "\nrules that do not load, by option\n";
        }
        for ((option, reason), count) in options {
            let _ = writeln!(text, "{count:8}  {option}: {reason}");
        }
        let total = self.loaded + self.unsupported.len();
        let share = 100.0 * self.loaded as f64 / total.max(1) as f64;
        let _ = writeln!(text, "{} of {total} rules loaded ({share:.2} %)", self.loaded);
        let _ = writeln!(text, "{} patterns in {} sets", self.patterns, self.pattern_sets);
        let _ = writeln!(text, "{} rules without a pattern", self.without_pattern);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let _ = write!(text, "{:.1} MiB of tables per device", mib(self.image_bytes as u64));
        if let Some(peak) = self.peak_bytes {
            let _ = write!(text, ", {:.0} MiB at most in this process", mib(peak));
        }
        let _ = writeln!(text, ", {:.2} s", self.took_ms as f64 / 1000.0);
        text
    }
}

fn reload(arguments: &ReloadArguments) -> Result<(), Failure> {
    let target = &arguments.target;
    let result = target.socket.connect()?.send(&target.request(&["nids"], "reload"))?;
    let number = |key: &str| result[key].as_u64().unwrap_or(0);
    output::print(&format!(
        "{} rules loaded, {} not supported, in {:.2} s\n",
        number("rules"),
        number("unsupported"),
        number("took_ms") as f64 / 1000.0
    ))
}
