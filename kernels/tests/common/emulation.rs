//! The CUDA text of the kernels, compiled by g++ over `cuda/emulation.h` and run here.

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

impl Emulation {
    /// Under the address and undefined behaviour sanitizers. `None`: there is no g++ here, or this is no x86-64.
    pub(crate) fn build(name: &str) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut text = godwit_kernels::cuda_source().to_owned();
        for (ptx, plain) in REPLACED {
            assert_eq!(text.matches(ptx).count(), 1, "{ptx}");
            text = text.replace(ptx, plain);
        }
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
        let source = folder.join("emulation.cpp");
        let program = folder.join("emulation");
        fs::write(&source, format!("#include \"emulation.h\"\n{text}\n#line 1\n#include \"main.h\"\n")).unwrap();
        let output = Command::new("g++")
            .args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"])
            .args(["-Wno-unknown-pragmas", "-fno-strict-aliasing"])
            .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
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
        let mut batch = chunk.batch.clone();
        let input = self.folder.join("input");
        let output = self.folder.join("output");
        let (mode, bin_packets) = match launch.mode {
            Mode::InPlace => (0, 0),
            Mode::ByGroup => (1, 0),
            Mode::Persistent { bin_packets } => (2, bin_packets),
        };
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
        let ended = Command::new(&self.program).arg(&input).arg(&output).output().unwrap();
        assert!(ended.status.success(), "{launch:?}: {}", String::from_utf8_lossy(&ended.stderr));
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
