//! The CUDA text of the kernels, compiled by g++ over `cuda/emulation.h` and run here.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, slice};

use super::batch::Batch;
use super::chunk::Chunk;

/// What g++ cannot compile: PTX. Each must occur, so that none is forgotten when it changes.
const REPLACED: &[(&str, &str)] = &[
    (
        r#"asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(look.counters), "=l"(look.extent)
                 : "l"(box)
                 : "memory");"#,
        "emulation::load_acquire(look.counters, look.extent, box);",
    ),
    (
        r#"asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");"#,
        "emulation::store_release(address, value);",
    ),
    (r#"asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));"#, "sum = a ^ b ^ c;"),
];

/// The compiled program.
pub(crate) struct Emulation {
    program: PathBuf,
    folder: PathBuf,
}

/// Where the groups of a chunk get the packets from, and how their lanes take turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) blocks: u64,
    pub(crate) threads: u64,
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
}

/// Who brings packets to the groups, and how these come by their bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    /// They work in the arena itself.
    InPlace,
    /// The groups do, to a shadow of the arena.
    ByGroup,
    /// So they do, and stay: bins of up to `bin_packets` come in mailboxes.
    Persistent { bin_packets: u64 },
}

/// Which mistakes end the program, or are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sanitizer {
    /// Addresses that are nobody's, and undefined behaviour.
    Addresses,
    /// Lanes that reach the same memory with no barrier between them.
    Races,
}

impl Emulation {
    /// `None`: there is no g++ here, or this is no x86-64; says so.
    pub(crate) fn build(name: &str, sanitizer: Sanitizer) -> Option<Self> {
        Self::build_text(name, sanitizer, godwit_kernels::cuda_source())
    }

    /// The same of a text that is not quite that of the kernels.
    pub(crate) fn build_text(name: &str, sanitizer: Sanitizer, text: &str) -> Option<Self> {
        let emulation = Self::compile(name, sanitizer, text);
        if emulation.is_none() {
            // Past the test harness, which shows nothing of a test that passes.
            std::io::stderr().write_all(b"skipped: no g++ here to emulate CUDA with\n").unwrap();
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
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
        let source = folder.join("emulation.cpp");
        let program = folder.join("emulation");
        fs::write(&source, format!("#include \"emulation.h\"\n{text}\n#line 1\n#include \"main.h\"\n")).unwrap();
        let sanitizers: &[&str] = match sanitizer {
            Sanitizer::Addresses => &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
            // It keeps g++ from seeing what is initialised where.
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

    /// The chunk's packets afterwards.
    pub(crate) fn run(&self, chunk: &Chunk, launch: Launch) -> Batch {
        let output = self.folder.join("output");
        let mut command = Command::new(&self.program);
        let ended = command.args([self.input(chunk, launch), output.clone()]).output().unwrap();
        assert!(ended.status.success(), "{launch:?}: {}", String::from_utf8_lossy(&ended.stderr));
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

    /// The data races that the thread sanitizer reports, but for those that are none ([`is_exchange`], [`is_read_in_vain`]).
    pub(crate) fn races(&self, chunk: &Chunk, launch: Launch) -> Vec<String> {
        // The sanitizer wants certain addresses for itself.
        let is_fixed = Command::new("setarch").args(["-R", "true"]).status().is_ok_and(|status| status.success());
        let mut command = Command::new(if is_fixed { "setarch".as_ref() } else { self.program.as_os_str() });
        if is_fixed {
            command.arg("-R").arg(&self.program);
        }
        command
            .args([self.input(chunk, launch), self.folder.join("output")])
            .env("TSAN_OPTIONS", "exitcode=0 suppress_equal_addresses=0");
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && !said.contains("FATAL"), "{launch:?}: {said}");
        let reports = said.split("==================\n").filter(|report| report.contains("WARNING: ThreadSanitizer"));
        reports.filter(|report| !is_exchange(report) && !is_read_in_vain(report)).map(str::to_owned).collect()
    }

    /// A file with all that the program is to know.
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

/// Whether a lane writes what another of its warp had read. Teams of `ipsec` do so: what is written has come out of an exchange of
/// words to which the other brought what it read, and an exchange waits for all lanes of the warp; but by itself it orders nothing in
/// memory, and the sanitizer does not follow what is in registers.
fn is_exchange(report: &str) -> bool {
    let Some([now, before]) = accesses_in_a_warp(report) else { return false };
    now.what.starts_with("Write of size") && before.what.starts_with("Previous read of size")
}

/// Whether a lane of a team of `ipsec` reads what another has written: it does when it has no block left, and reads the first again
/// for nothing.
fn is_read_in_vain(report: &str) -> bool {
    let Some([now, before]) = accesses_in_a_warp(report) else { return false };
    now.what.starts_with("Read of size")
        && now.place.contains("gw_ipsec_fetch ")
        && before.what.starts_with("Previous write of size")
        && before.place.contains("gw_ipsec_write ")
}

/// One of two accesses to the same memory.
struct Access<'a> {
    what: &'a str,
    /// The innermost function.
    place: &'a str,
}

/// The two that a report is about, the later one first, if both are by lanes of the same warp.
fn accesses_in_a_warp(report: &str) -> Option<[Access<'_>; 2]> {
    let lines = || report.lines().map(str::trim);
    let found: Vec<(&str, &str)> = lines()
        .zip(lines().skip(1))
        .filter(|(line, _)| line.contains(" of size ") && line.contains(" by thread "))
        .collect();
    let &[now, before] = found.as_slice() else { return None };
    let warp = |what: &str| {
        let thread = what.split(" by thread ").nth(1)?.trim_end_matches(':');
        let about = lines().find(|line| line.starts_with(&format!("Thread {thread} 'warp ")))?;
        Some(about.split('\'').nth(1)?.to_owned())
    };
    let is_one = warp(now.0).is_some() && warp(now.0) == warp(before.0);
    is_one.then(|| [now, before].map(|(what, place)| Access { what, place }))
}

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: the structs of the ABI and integers have no padding.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn fill<T: Copy>(values: &mut [T], bytes: &[u8]) {
    assert_eq!(size_of_val(values), bytes.len());
    // SAFETY: any bytes are a value of these structs, which have integers only.
    unsafe { slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes.len()) }.copy_from_slice(bytes);
}
