//! CUDA text of the kernels, compiled by g++ with `kernels/emulation/emulation.h`, and run on the
//! CPU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, slice};

use godwit_test_support::skip;

use super::batch::Batch;
use super::chunk::Chunk;

/// PTX, which g++ cannot compile, and its replacement. Each text must occur exactly once in the
/// source, so that a change of the kernels is noticed.
const REPLACED: &[(&str, &str)] = &[
    (
        r#"asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.counters), "=l"(words.extent)
                 : "l"(box)
                 : "memory");"#,
        "emulation::load_acquire(words.counters, words.extent, box);",
    ),
    (
        r#"asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");"#,
        "emulation::store_release(address, value);",
    ),
    (r#"asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));"#, "sum = a ^ b ^ c;"),
];

/// Compiled emulation.
pub(crate) struct Emulation {
    program: PathBuf,
    folder: PathBuf,
}

/// Shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) blocks: u64,
    /// Threads per block.
    pub(crate) threads: u64,
    /// Seed of the random order in which lanes run.
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
}

/// Transfer of packets and source of bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// Groups access packets in the arena.
    InPlace,
    /// Groups copy packets to and from a shadow of the arena.
    ByGroup,
    /// Like `ByGroup`, with persistent groups that take bins of up to `bin_packets` from mailboxes.
    Persistent { bin_packets: u64 },
}

/// Sanitizer that the emulation is compiled with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sanitizer {
    /// Address and undefined-behaviour sanitizer: an error ends the program.
    Addresses,
    /// Thread sanitizer: reports lanes that access the same memory without a barrier in between.
    Races,
}

impl Emulation {
    /// Compiles the kernels. Returns `None` and reports a skipped test without g++ or x86-64.
    pub(crate) fn build(name: &str, sanitizer: Sanitizer) -> Option<Self> {
        Self::build_text(name, sanitizer, godwit_kernels::cuda_source())
    }

    /// Like [`Emulation::build`], for a changed source text.
    pub(crate) fn build_text(name: &str, sanitizer: Sanitizer, text: &str) -> Option<Self> {
        let emulation = Self::compile(name, sanitizer, text);
        if emulation.is_none() {
            skip("CUDA emulation needs g++ and x86-64");
        }
        emulation
    }

    fn compile(name: &str, sanitizer: Sanitizer, text: &str) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut text = text.to_owned();
        for (ptx, plain) in REPLACED {
            assert_eq!(text.matches(ptx).count(), 1, "{ptx}");
            text = text.replace(ptx, plain);
        }
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("emulation");
        let source = folder.join("emulation.cpp");
        let program = folder.join("emulation");
        fs::write(&source, format!("#include \"emulation.h\"\n{text}\n#line 1\n#include \"main.h\"\n")).unwrap();
        let sanitizers: &[&str] = match sanitizer {
            Sanitizer::Addresses => &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
            // With this sanitizer, g++ warns about variables that are initialised.
            Sanitizer::Races => &["-fsanitize=thread", "-Wno-maybe-uninitialized"],
        };
        let output = Command::new("g++")
            .args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
            .args(["-Wno-unknown-pragmas", "-fno-strict-aliasing"])
            .args(sanitizers)
            .arg("-I")
            .arg(headers)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .output()
            .ok()?;
        assert!(output.status.success(), "g++:\n{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { program, folder })
    }

    /// Runs a chunk and returns its packets.
    pub(crate) fn run(&self, chunk: &Chunk, launch: Launch) -> Batch {
        let output = self.folder.join("output");
        let mut command = Command::new(&self.program);
        let result = command.args([self.input(chunk, launch), output.clone()]).output().unwrap();
        assert!(result.status.success(), "{launch:?}: {}", String::from_utf8_lossy(&result.stderr));
        let mut batch = chunk.batch.clone();
        let bytes = fs::read(&output).unwrap();
        let (arena, rest) = bytes.split_at(batch.arena.bytes().len());
        let (descriptors, rest) = rest.split_at(size_of_val(batch.descriptors.as_slice()));
        let (outcomes, trails) = rest.split_at(size_of_val(batch.outcomes.as_slice()));
        batch.arena.bytes_mut().copy_from_slice(arena);
        fill(&mut batch.descriptors, descriptors);
        fill(&mut batch.outcomes, outcomes);
        fill(&mut batch.trails, trails);
        batch
    }

    /// Runs a chunk and returns the data races that the thread sanitizer reports, except the false
    /// ones ([`is_exchange`], [`is_unused_read`]).
    pub(crate) fn races(&self, chunk: &Chunk, launch: Launch) -> Vec<String> {
        // The thread sanitizer needs fixed addresses, so address randomisation is disabled.
        let is_fixed = Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success());
        let mut command = Command::new(if is_fixed { "setarch".as_ref() } else { self.program.as_os_str() });
        if is_fixed {
            command.arg("-R").arg(&self.program);
        }
        command
            .args([self.input(chunk, launch), self.folder.join("output")])
            .env("TSAN_OPTIONS", "exitcode=0 suppress_equal_addresses=0");
        let result = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success() && !stderr.contains("FATAL"), "{launch:?}: {stderr}");
        let reports = stderr.split("==================\n").filter(|report| report.contains("WARNING: ThreadSanitizer"));
        reports.filter(|report| !is_exchange(report) && !is_unused_read(report)).map(str::to_owned).collect()
    }

    /// Writes the input of the program to a file and returns its path.
    fn input(&self, chunk: &Chunk, launch: Launch) -> PathBuf {
        let batch = &chunk.batch;
        let (mode, bin_packets) = match launch.mode {
            Mode::InPlace => (0, 0),
            Mode::ByGroup => (1, 0),
            Mode::Persistent { bin_packets } => (2, bin_packets),
        };
        let input = self.folder.join("input");
        let header = [
            batch.arena.bytes().len() as u64,
            chunk.images.bytes().len() as u64,
            chunk.image_offsets.len() as u64,
            batch.descriptors.len() as u64,
            chunk.bins.len() as u64,
            launch.blocks,
            launch.threads,
            launch.seed,
            mode,
            bin_packets,
        ];
        let parts = [
            bytes_of(&header),
            batch.arena.bytes(),
            chunk.images.bytes(),
            bytes_of(&chunk.image_offsets),
            bytes_of(&batch.descriptors),
            bytes_of(&batch.parameters),
            bytes_of(&batch.outcomes),
            bytes_of(&chunk.bins),
        ];
        fs::write(&input, parts.concat()).unwrap();
        input
    }
}

/// Returns whether a lane wrote memory that another lane of its warp had read.
///
/// Teams of `ipsec` do this without a race. The written word depends on an exchange to which the
/// other lane contributed the word that it had read, and an exchange waits for all lanes of the
/// warp. The sanitizer does not see this order, because the words are in registers.
fn is_exchange(report: &str) -> bool {
    let Some([later, earlier]) = accesses_in_a_warp(report) else { return false };
    later.kind.starts_with("Write of size") && earlier.kind.starts_with("Previous read of size")
}

/// Returns whether a lane of an `ipsec` team read memory that another lane had written. A lane
/// without a remaining block does this: it reads the first block again and discards it.
fn is_unused_read(report: &str) -> bool {
    let Some([later, earlier]) = accesses_in_a_warp(report) else { return false };
    later.kind.starts_with("Read of size")
        && later.function.contains("gw_ipsec_fetch ")
        && earlier.kind.starts_with("Previous write of size")
        && earlier.function.contains("gw_ipsec_write ")
}

/// One of the two accesses in a report.
struct Access<'a> {
    /// Line that states read or write, and the thread.
    kind: &'a str,
    /// Line of the innermost function.
    function: &'a str,
}

/// Returns the two accesses of a report, the later one first, if both lanes are in the same warp.
fn accesses_in_a_warp(report: &str) -> Option<[Access<'_>; 2]> {
    let lines = || report.lines().map(str::trim);
    let found: Vec<(&str, &str)> = lines()
        .zip(lines().skip(1))
        .filter(|(line, _)| line.contains(" of size ") && line.contains(" by thread "))
        .collect();
    let &[later, earlier] = found.as_slice() else { return None };
    let warp = |kind: &str| {
        let thread = kind.split(" by thread ").nth(1)?.trim_end_matches(':');
        let line = lines().find(|line| line.starts_with(&format!("Thread {thread} 'warp ")))?;
        Some(line.split('\'').nth(1)?.to_owned())
    };
    let same_warp = warp(later.0).is_some() && warp(later.0) == warp(earlier.0);
    same_warp.then(|| [later, earlier].map(|(kind, function)| Access { kind, function }))
}

pub(crate) fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: integers and the structs of the ABI have no padding.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

pub(crate) fn fill<T: Copy>(values: &mut [T], bytes: &[u8]) {
    assert_eq!(size_of_val(values), bytes.len());
    // SAFETY: the structs contain only integers, so all bytes are valid values.
    unsafe { slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes.len()) }.copy_from_slice(bytes);
}
