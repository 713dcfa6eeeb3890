//! Forms of the kernels for CPUs, compiled with the address and undefined-behaviour sanitizers, and
//! compared with the kernels of the library. A kernel may only access the buffers of its bin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_abi::Bin;
use godwit_kernels::{GROUP_MAX, Native, levels, natives};
use godwit_test_support::skip;

use crate::common::batch::Batch;
use crate::common::chunk::{Chunk, parts};
use crate::common::emulation::{bytes_of, fill};
use crate::common::ipsec::ipsec_parts;
use crate::common::ipsec_suites::suite_parts;
use crate::common::ipv6::ipv6_parts;
use crate::common::ndn::ndn_part;
use crate::common::whole::whole_parts;

/// Form of the kernels.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    /// Number of packets that gopt interleaves.
    group: u32,
    /// Index of the supported native form that runs the bins that it covers.
    native: Option<usize>,
}

/// Returns the native forms that this CPU supports.
fn supported_natives() -> Vec<&'static Native> {
    natives().iter().filter(|native| native.supported()).collect()
}

/// Program with sanitizers.
struct Sanitized {
    folder: PathBuf,
}

impl Sanitized {
    /// Compiles the kernels for the highest level of this CPU, and its native forms. Returns `None`
    /// and reports a skipped test if the compiler has no sanitizers.
    fn build() -> Option<Self> {
        let level = levels().iter().rfind(|level| level.supported())?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sanitized");
        fs::create_dir_all(&folder).unwrap();
        let built = Self { folder };
        let suffix = level.name.replace('-', "_");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = Path::new(env!("OUT_DIR"));
        let probe = built.compiler(&["-c", "-x", "c", "/dev/null"], "probe.o").status();
        if !probe.is_ok_and(|status| status.success()) {
            skip("kernels under sanitizers need a C compiler with sanitizers");
            return None;
        }
        let level_suffix = format!("-DGW_LEVEL={suffix}");
        let mut program = vec![format!("-DRUN_BIN=gw_run_bin_{suffix}"), "-DNATIVE_FORMS=".to_owned()];
        let mut sources = vec![(out.join(&suffix).join("cpu.c"), "cpu.o".to_owned(), vec![level_suffix], level.flags)];
        for native in supported_natives() {
            let suffix = native.name.replace('-', "_");
            program[1] += &format!("NATIVE_FORM({suffix}) ");
            let form = vec![format!("-DGW_NATIVE_FORM={suffix}")];
            sources.push((root.join(native.source), format!("native_{suffix}.o"), form, native.flags));
        }
        sources.push((root.join("tests/forms/sanitized/program.c"), "program.o".to_owned(), program, level.flags));
        let compilers: Vec<_> = sources
            .iter()
            .map(|(source, object, defines, flags)| {
                let mut command = built.compiler(flags, object);
                command.args(defines).arg("-c").arg(source).spawn().expect("the compiler compiled the probe")
            })
            .collect();
        for ((source, ..), mut compiler) in sources.iter().zip(compilers) {
            assert!(compiler.wait().unwrap().success(), "{}", source.display());
        }
        let mut link = built.compiler(&[], "program");
        link.args(sources.iter().map(|(_, object, ..)| built.folder.join(object)));
        assert!(link.status().unwrap().success(), "program");
        Some(built)
    }

    /// Returns a command that runs the compiler. Its messages go to standard error.
    fn compiler(&self, arguments: &[&str], output: &str) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-g", "-w", "-fno-strict-aliasing", "-fno-math-errno"]);
        // Compilers take seconds for the kernels. With optimisation or forced inlining, they take
        // minutes, because the sanitizers add code to every access.
        command.args(["-O0", "-Dalways_inline=unused"]);
        command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-I"]).arg(root);
        command.arg("-I").arg(Path::new(env!("OUT_DIR")).join("include"));
        command.args(arguments).arg("-o").arg(self.folder.join(output));
        command
    }

    /// Runs a chunk in a form. Returns its packets.
    fn run(&self, chunk: &Chunk, form: Form) -> Batch {
        let mut batch = chunk.batch.clone();
        let header = [
            batch.arena.bytes().len(),
            chunk.images.bytes().len(),
            chunk.image_offsets.len(),
            batch.descriptors.len(),
            chunk.bins.len(),
            form.group as usize,
        ]
        .map(|number| number as u64);
        let natives = supported_natives();
        // For each bin: the index of the native form that runs it, or `u32::MAX`.
        let runs = |bin: &Bin| form.native.filter(|&index| natives[index].covers(bin.kernel, bin.variant));
        let forms: Vec<u32> = chunk.bins.iter().map(|bin| runs(bin).map_or(u32::MAX, |index| index as u32)).collect();
        let parts = [
            bytes_of(&header),
            batch.arena.bytes(),
            chunk.images.bytes(),
            bytes_of(&chunk.image_offsets),
            bytes_of(&batch.descriptors),
            bytes_of(&batch.parameters),
            bytes_of(&batch.outcomes),
            bytes_of(&chunk.bins),
            bytes_of(&forms),
        ];
        let [input, output] = ["input", "output"].map(|name| self.folder.join(name));
        fs::write(&input, parts.concat()).unwrap();
        let mut command = Command::new(self.folder.join("program"));
        let result = command.args([&input, &output]).env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
        assert!(result.status.success(), "{form:?}: {}", String::from_utf8_lossy(&result.stderr));
        let bytes = fs::read(&output).unwrap();
        let (arena, rest) = bytes.split_at(batch.arena.bytes().len());
        let (descriptors, outcomes) = rest.split_at(size_of_val(batch.descriptors.as_slice()));
        batch.arena.bytes_mut().copy_from_slice(arena);
        fill(&mut batch.descriptors, descriptors);
        fill(&mut batch.outcomes, outcomes);
        batch
    }

    /// Asserts that the kernels with sanitizers give the results of the library.
    fn assert_same(&self, chunk: &Chunk, expected: &Batch, form: Form) {
        let batch = self.run(chunk, form);
        for (index, outcome) in expected.outcomes.iter().enumerate() {
            let context = format!("packet {index} of {}, {form:?}", chunk.name_of(index));
            assert_eq!(batch.outcomes[index], *outcome, "{context}");
            assert_eq!(batch.descriptors[index], expected.descriptors[index], "{context}");
            assert!(batch.buffer(index) == expected.buffer(index), "{context}: the buffers differ");
        }
    }
}

/// Returns packets of every function, in bins of these sizes.
fn all_functions(bin_packets: &[usize]) -> Chunk {
    let packets = bin_packets.iter().sum();
    let all = parts(packets).into_iter().chain(ipsec_parts(packets, 5)).chain(ipv6_parts(packets, 7));
    Chunk::new(all.chain([ndn_part(packets, 7)]).chain(whole_parts(packets, 8)).collect(), bin_packets)
}

/// Returns packets of every IPsec suite and direction, in bins of these sizes.
fn all_suites(seed: u64, bin_packets: &[usize]) -> Chunk {
    Chunk::new(suite_parts(bin_packets.iter().sum(), seed), bin_packets)
}

#[test]
fn every_form_for_cpus_stays_within_its_buffers() {
    let Some(sanitized) = Sanitized::build() else { return };
    let chunk = all_functions(&[33, 1, 256, 2, 32, 31]);
    let expected = chunk.run_on_cpu();
    for group in [0, 1, 7, GROUP_MAX] {
        sanitized.assert_same(&chunk, &expected, Form { group, ..Form::default() });
    }
    for index in 0..supported_natives().len() {
        sanitized.assert_same(&chunk, &expected, Form { native: Some(index), ..Form::default() });
    }
    for (seed, bins) in [(7, &[33, 1, 7, 64][..]), (9, &[256]), (11, &[16, 17, 15])] {
        let chunk = all_suites(seed, bins);
        let expected = chunk.run_on_cpu();
        if bins.len() == 4 {
            sanitized.assert_same(&chunk, &expected, Form::default());
        }
        for index in 0..supported_natives().len() {
            sanitized.assert_same(&chunk, &expected, Form { native: Some(index), ..Form::default() });
        }
    }
    for native in natives().iter().filter(|native| !native.supported()) {
        skip(format_args!("the CPU lacks some of {:?} for native {}", native.features, native.name));
    }

    // The sanitizers notice a kernel that reads behind its buffer: the descriptors claim buffers
    // that end before the frame.
    let mut chunk = Chunk::new(parts(4), &[4]);
    for descriptor in &mut chunk.batch.descriptors {
        (descriptor.room, descriptor.head, descriptor.length) = (1, 64, 60);
    }
    let found = std::panic::catch_unwind(|| sanitized.run(&chunk, Form::default()));
    let message = *found.expect_err("the program fails").downcast::<String>().unwrap();
    assert!(message.contains("use-after-poison"), "{message}");
}
