//! Assembles the kernel source texts: one per device language, and one for the CPU. Each text
//! contains all included files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::functions::Functions;
use crate::{compile, read};

/// Headers that only the compilers of devices include.
const NOT_CPU: &[&str] = &["dialect/cuda.h", "dialect/opencl.h"];
const NOT_CUDA: &[&str] = &["dialect/cpu.h", "dialect/aes_ni.h", "dialect/ghash_clmul.h", "dialect/opencl.h"];
/// Headers that the OpenCL text omits. They need work-items that exchange words, which OpenCL
/// kernels do not support (GW_TEAM_FORM).
const NOT_OPENCL: &[&str] = &[
    "dialect/cpu.h",
    "dialect/aes_ni.h",
    "dialect/ghash_clmul.h",
    "dialect/cuda.h",
    "dialect/aes_team.h",
    "dialect/aes_lane.h",
];

/// Writes one source text per device language, and a digest of all source texts.
pub(super) fn write_texts(root: &Path, out: &Path, functions: &Functions) {
    let teams = functions.kernels().filter(|(_, function)| function.declaration.form == godwit_declare::Form::Team);
    let teams: Vec<String> = teams.map(|(_, function)| format!("{}/group.h", function.declaration.name)).collect();
    let not_opencl: Vec<&str> = NOT_OPENCL.iter().copied().chain(teams.iter().map(String::as_str)).collect();
    let generated = functions.headers();
    let expand = |file: &str, left_out: &[&str]| flatten(root, &generated, file, left_out);
    let opencl = expand("opencl.cl", &not_opencl);
    let cuda = expand("cuda.cu", NOT_CUDA);
    let cpu = expand("cpu.c", NOT_CPU);
    // The digest is an FNV-1a hash, which does not protect against attacks. It identifies a kernel
    // version in caches and profiles.
    let digest = [&opencl, &cuda, &cpu]
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let cuda_group_lanes = definition(&cuda, "GW_GROUP_LANES");
    crate::write(&out.join("cuda_group_lanes.rs"), &format!("{cuda_group_lanes}\n"));
    let custom = expand("custom.c", NOT_CPU);
    crate::write(&out.join("custom.c"), &custom);
    crate::write(&out.join("kernels.cl"), &opencl);
    crate::write(&out.join("kernels.cu"), &cuda);
    crate::write(&out.join("digest.rs"), &format!("{digest:#018x}\n"));
}

/// Text of `cpu.c` with its includes expanded.
pub(super) struct CpuText {
    text: String,
    /// C functions whose packet loop gopt transforms. A transformed loop interleaves packets
    /// (`dialect/loop_gopt.c`).
    loops: Vec<String>,
}

/// Returns the text of `cpu.c` with its includes expanded. Also writes a Rust list of the kernels
/// that interleave packets to hide cache misses.
pub(super) fn cpu_text(root: &Path, out: &Path, functions: &Functions) -> CpuText {
    let text = flatten(root, &functions.headers(), "cpu.c", NOT_CPU);
    let (begin, end) = ("/* begin NAME */\n", "/* end NAME */\n");
    let before = text.split(begin).next().expect("split yields at least one part");
    let template =
        text.split(begin).nth(1).and_then(|rest| rest.split(end).next()).expect("loop_gopt.c has a template");
    let after = text.split(end).nth(1).expect("the template of loop_gopt.c ends");
    let compiler = preprocessor(&compile::compiler(root, out));
    let options = gopt::Options { name: "cpu.c", compiler, ..gopt::Options::default() };
    let expensive = gopt::expensive(&text, &options).unwrap_or_else(|error| panic!("gopt: {error}"));
    let (mut loops, mut others, mut cases) = (String::new(), String::new(), String::new());
    let mut rust = String::from(
        "/// Numbers of the kernels with expensive accesses, in which packets may be interleaved.\npub const GOPT_KERNELS: &[u8] = &[",
    );
    let mut named = vec!["gw_probe_table".to_owned()];
    for (number, function) in functions.kernels() {
        let name = &function.declaration.name;
        if expensive.contains(&format!("gw_{name}_packet")) {
            loops += &template.replace("NAME", name);
            write!(rust, "{number}, ").expect("writing to a String");
            named.push(format!("gw_bin_{name}"));
        } else {
            let touch = if function.touches { "" } else { "GW_NO_TOUCH" };
            if !touch.is_empty() {
                writeln!(others, "{touch}({name})").expect("writing to a String");
            }
            writeln!(others, "GW_BIN_LOOP({name})").expect("writing to a String");
        }
        writeln!(cases, "    case {number}:\n        gw_bin_{name}(call);\n        break;")
            .expect("writing to a String");
    }
    crate::write(&out.join("gopt.rs"), &format!("{rust}];\n"));
    let dispatch = format!(
        "{others}\nstatic inline void gw_run(gw_u32 kernel, const gw_bin_call *call)\n{{\n    switch (kernel) {{\n\
         {cases}    default:\n        break;\n    }}\n}}\n"
    );
    let text = format!("{before}{loops}{after}").replace("/* build: the other loops, and gw_run */\n", &dispatch);
    CpuText { text, loops: named }
}

impl CpuText {
    /// Writes a version of `cpu.c` with transformed packet loops, and returns its path. Each x86-64
    /// level needs a separate version, because the compiler's predefined macros differ.
    pub(super) fn write_transformed(&self, build: &cc::Build, folder: &Path) -> PathBuf {
        let options = gopt::Options {
            name: "cpu.c",
            functions: &self.loops,
            compiler: preprocessor(build),
            ..gopt::Options::default()
        };
        let output = gopt::transform(&self.text, &options).unwrap_or_else(|error| panic!("gopt: {error}"));
        let path = folder.join("cpu.c");
        crate::write(&path, &output.text);
        path
    }
}

/// Returns the C compiler and its flags, which gopt uses as a preprocessor.
fn preprocessor(build: &cc::Build) -> gopt::Compiler {
    let tool = build.get_compiler();
    gopt::Compiler {
        program: tool.path().display().to_string(),
        flags: tool.args().iter().map(|flag| flag.to_string_lossy().into_owned()).collect(),
        ..gopt::Compiler::default()
    }
}

/// Returns the value of the numeric macro `name`. Panics unless the source text defines the macro
/// exactly once.
fn definition(text: &str, name: &str) -> u32 {
    let start = format!("#define {name} ");
    let mut values = text.lines().filter_map(|line| line.strip_prefix(start.as_str()));
    match (values.next(), values.next()) {
        (Some(value), None) => value.trim().trim_end_matches('u').parse().expect("a decimal number"),
        _ => panic!("{name} is not defined once"),
    }
}

/// Expands the includes of a C file, each at its first occurrence. `#line` directives keep file
/// names and line numbers correct in compiler messages.
///
/// `generated` maps paths to headers that exist only in memory. `left_out` names headers for other
/// compilers.
fn flatten(root: &Path, generated: &BTreeMap<String, String>, file: &str, left_out: &[&str]) -> String {
    let mut seen: BTreeSet<String> = left_out.iter().map(|name| (*name).to_owned()).collect();
    let mut text = String::new();
    append(root, generated, file, &mut seen, &mut text);
    text
}

fn append(
    root: &Path,
    generated: &BTreeMap<String, String>,
    file: &str,
    seen: &mut BTreeSet<String>,
    text: &mut String,
) {
    if !seen.insert(file.to_owned()) {
        return;
    }
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let content = generated.get(file).cloned().unwrap_or_else(|| read(&root.join(file)));
    // The declaration at the head is not for the compiler.
    let head = match content.starts_with("/* godwit function ") {
        true => content.lines().take_while(|line| *line != "*/").count() + 1,
        false => 0,
    };
    writeln!(text, "#line {} \"{file}\"", head + 1).expect("writing to a String");
    for (index, line) in content.lines().enumerate().skip(head) {
        let included = line.trim().strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        let Some(included) = included else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        append(root, generated, &resolve(folder, included), seen, text);
        writeln!(text, "#line {} \"{file}\"", index + 2).expect("writing to a String");
    }
}

/// Resolves the path `included` relative to `folder`. The result is relative to the root and
/// contains no `..`.
fn resolve(folder: &str, included: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in included.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
