//! Runs random shapes.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{compile, has, run};
use crate::shapes::{HEAD, MAIN, shape};

/// Shapes of a plain test run.
const SHAPES: u64 = 10_000;
/// Shapes in one program.
const CHUNK: u64 = 250;
/// Flags of the compilers, in rotation. A long run uses the sanitizers only, which take most of
/// the time.
const FLAGS: [&[&str]; 4] = [
    &["-w", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    &["-w", "-O1"],
    &["-w", "-O0"],
    &["-w", "-O0"],
];
/// Comment between the declarations and a shape.
const SEPARATOR: &str = "/* shape */\n";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// `GOPT_SHAPES=N` tries N shapes, and `GOPT_SEED` sets the number of the first one.
#[test]
fn random_shapes_compute_the_same_in_groups_of_every_size_or_are_refused() {
    let first = number("GOPT_SEED").unwrap_or(0);
    let count = number("GOPT_SHAPES").unwrap_or(SHAPES);
    let (end, is_long) = (first + count, count > SHAPES);
    let compilers: Vec<&str> = ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)).collect();
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if begin >= end {
                        return;
                    }
                    let index = ((begin - first) / CHUNK) as usize;
                    let compiler = compilers[index / 4 % compilers.len()];
                    chunk(begin, CHUNK.min(end - begin), compiler, if is_long { FLAGS[0] } else { FLAGS[index % 4] });
                }
            });
        }
    });
}

/// Transforms some shapes. Runs the legal ones in one program.
fn chunk(begin: u64, count: u64, compiler: &str, flags: &[&str]) {
    let mut functions = String::new();
    let mut legal = Vec::new();
    for number in begin..begin + count {
        if let Some(made) = transformed(number) {
            functions += &made;
            legal.push(number);
        }
    }
    let mut text = format!(
        "#include <stdio.h>\n#define GOPT_GROUP group\nstatic unsigned group;\n\
         static inline void g_expensive(const void *address, ...)\n{{\n    (void)address;\n}}\n{HEAD}\n{functions}\n\
         static void (*const shapes[])(uint32_t *, uint32_t *, int) = {{\n"
    );
    for one in &legal {
        writeln!(text, "    shape_{one},").expect("writing to a String");
    }
    let numbers: Vec<String> = legal.iter().map(u64::to_string).collect();
    write!(text, "}};\nstatic const int numbers[] = {{{}}};\n{MAIN}", numbers.join(", ")).expect("writing to a String");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("shapes.c"), folder.path().join("shapes"));
    std::fs::write(&source, &text).expect("the folder can be written");
    compile(compiler, flags, &source, &program);
    let found = run(&program, &[]);
    if !found.is_empty() {
        panic!("{compiler} {flags:?}, {}:\n{found}", kept(&text).display());
    }
}

/// Transforms a legal shape. Expects the refusal of an illegal one.
fn transformed(number: u64) -> Option<String> {
    let shape = shape(number);
    let text = format!("{HEAD}{SEPARATOR}{}", shape.text);
    let options = gopt::Options { name: "shape.i", compiler: gopt::Compiler::none(), ..gopt::Options::default() };
    match gopt::transform(&text, &options) {
        Ok(made) if shape.is_legal => {
            let (_, made) = made.text.split_once(SEPARATOR).expect("the comment remains");
            Some(made.to_owned())
        }
        Ok(_) => panic!("shape {number} is illegal, but not refused: {}", kept(&text).display()),
        Err(gopt::Error::Refusal(refusal)) if !shape.is_legal => {
            let line = text.lines().nth(refusal.line - 1).unwrap_or_default();
            assert!(line.contains("refused"), "shape {number}: {refusal}: {}", kept(&text).display());
            None
        }
        Err(error) => panic!("shape {number}: {error}: {}", kept(&text).display()),
    }
}

/// Writes a text for the reader of a failure.
fn kept(text: &str) -> std::path::PathBuf {
    let path = Path::new(&std::env::temp_dir()).join("gopt-shape.c");
    std::fs::write(&path, text).expect("the folder for temporary files can be written");
    path
}
