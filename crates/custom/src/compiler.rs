//! Compiles user functions with the system's C compiler, once per x86-64 level, such as x86-64-v3.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use godwit_kernels::custom::CustomText;
use godwit_kernels::{Level, levels};

use crate::cache::{self, Cache};
use crate::{Error, inspect, sandbox, text};

/// Paths of C compilers, in order of preference.
const COMPILERS: &[&str] = &["/usr/bin/cc", "/usr/local/bin/cc", "/usr/bin/gcc", "/usr/bin/clang"];
/// Environment variable that selects another compiler by its absolute path.
const COMPILER_VARIABLE: &str = "GODWIT_CC";
/// Compiler flags for every library. Built-in functions use the same flags
/// (`kernels/build/compile.rs`).
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-omit-frame-pointer",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden",
    "-ffreestanding",
    "-fPIC",
    "-g1",
    "-Wall",
    "-Wno-unused-function",
    "-Werror=implicit-function-declaration",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
    "-Werror=return-type",
    "-shared",
    "-nostdlib",
    "-nostartfiles",
    "-Wl,--no-undefined",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    "-Wl,-z,noexecstack",
    "-Wl,--build-id=none",
];
/// Name of a library in the folder of its compiler.
const LIBRARY: &str = "out.so";
/// Optimisation flag for all libraries except the reference.
const OPTIMISED: &str = "-O3";

/// Paths of a function's compiled libraries, which have passed the inspection.
#[derive(Debug)]
pub(crate) struct Libraries {
    /// Libraries by supported x86-64 level, in ascending order.
    pub(crate) levels: Vec<(&'static Level, PathBuf)>,
    /// Reference library, which is not optimised and does not interleave packets.
    pub(crate) reference: PathBuf,
    /// Whether the C compiler ran, because a library was not in the cache.
    pub(crate) is_compiled: bool,
}

/// One run of the compiler.
struct Job {
    /// x86-64 level of the library, or `None` for the reference library.
    level: Option<&'static Level>,
    flags: Vec<&'static str>,
}

/// x86-64 levels for which a function is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// The levels that this machine supports.
    ThisMachine,
    /// All levels.
    All,
}

/// Returns the libraries of a function from the cache, and compiles missing ones.
pub(crate) fn libraries(path: &Path, custom: &CustomText<'_>, targets: Targets) -> Result<Libraries, Error> {
    let supported = levels().iter().filter(|level| targets == Targets::All || level.supported());
    let mut jobs: Vec<Job> =
        supported.map(|level| Job { level: Some(level), flags: [&[OPTIMISED][..], level.flags].concat() }).collect();
    let Some(base) = jobs.first().and_then(|job| job.level) else {
        return Err(refused(path, "this machine supports no level of the kernels"));
    };
    jobs.insert(0, Job { level: None, flags: [&["-O0"][..], base.flags].concat() });

    let compiler = Compiler::find(path)?;
    let cache = Cache::open()?;
    let keys: Vec<String> = jobs.iter().map(|job| compiler.key(custom, job)).collect();
    let mut paths: Vec<Option<PathBuf>> = keys.iter().map(|key| cache.find(key)).collect::<Result<_, _>>()?;
    let is_compiled = paths.iter().any(Option::is_none);
    if is_compiled {
        // Compile the reference library first. The C compiler then reports errors in the user's
        // text before gopt, the optimizer, reads it.
        let reference = compiler.compile(path, custom, &text::reference(custom), &jobs[0].flags)?;
        paths[0] = Some(cache.store(&keys[0], &reference)?);
        let plain = text::plain(path, custom, &compiler.front(&jobs[0].flags))?;
        let missing: Vec<usize> = (1..jobs.len()).filter(|&index| paths[index].is_none()).collect();
        let compile = |index: usize| {
            let text = text::interleaved(path, custom, &plain, compiler.front(&jobs[index].flags))?;
            compiler.compile(path, custom, &text, &jobs[index].flags)
        };
        for (&index, object) in missing.iter().zip(on_all_cores(&missing, compile)) {
            paths[index] = Some(cache.store(&keys[index], &object?)?);
        }
    }
    let mut paths = paths.into_iter().flatten();
    let Some(reference) = paths.next() else { unreachable!("every job has a library") };
    let levels = jobs.iter().filter_map(|job| job.level).zip(paths).collect();
    Ok(Libraries { levels, reference, is_compiled })
}

/// Calls `work` for each index, in parallel on all cores. Returns the results in index order.
pub(crate) fn on_all_cores<T: Send>(indices: &[usize], work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(indices.len());
    let run = || {
        let mut done = Vec::new();
        while let Some(&index) = indices.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((index, work(index)));
        }
        done
    };
    let mut results = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined =
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn refused(path: &Path, message: impl Into<String>) -> Error {
    Error::Refused { path: path.to_owned(), message: message.into() }
}

/// The system's C compiler.
#[derive(Debug)]
pub(crate) struct Compiler {
    program: PathBuf,
    /// Digest of the compiler's path, file size and modification time.
    identity: String,
}

impl Compiler {
    /// Finds the C compiler. Tries only absolute paths, because an attacker could change `PATH`.
    pub(crate) fn find(path: &Path) -> Result<Self, Error> {
        let refused = |message: String| Error::Refused { path: path.to_owned(), message };
        let program = match std::env::var_os(COMPILER_VARIABLE) {
            Some(program) if Path::new(&program).is_absolute() => PathBuf::from(program),
            Some(_) => return Err(refused(format!("{COMPILER_VARIABLE} must be an absolute path"))),
            None => COMPILERS.iter().map(PathBuf::from).find(|program| program.exists()).ok_or_else(|| {
                refused(format!(
                    "a function of your own needs a C compiler, and there is none of {}: install one, or use a file of `godwit build`",
                    COMPILERS.join(", ")
                ))
            })?,
        };
        let real = std::fs::canonicalize(&program).map_err(|source| Error::File { path: program.clone(), source })?;
        let metadata = std::fs::metadata(&real).map_err(|source| Error::File { path: real.clone(), source })?;
        let identity = format!("{} {} {} {}", real.display(), metadata.len(), metadata.mtime(), metadata.ino());
        Ok(Self { program, identity })
    }

    /// Returns the name of a library in the cache.
    fn key(&self, custom: &CustomText<'_>, job: &Job) -> String {
        let kernels = format!("{:016x} {} {}", CustomText::digest(), custom.number, custom.file);
        let flags = [FLAGS, &job.flags[..]].concat().join(" ");
        let version = env!("CARGO_PKG_VERSION");
        let parts = [custom.text, &kernels, &flags, &self.identity, version];
        cache::digest(&parts.map(str::as_bytes))
    }

    /// Returns the compiler path and flags that gopt, the optimizer, uses for preprocessing.
    fn front(&self, flags: &[&str]) -> gopt::Compiler {
        let flags = FLAGS.iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
        gopt::Compiler { program: self.program.display().to_string(), flags, ..gopt::Compiler::default() }
    }

    /// Runs the compiler in `folder` with `text` as standard input.
    pub(crate) fn run(
        &self,
        path: &Path,
        custom: &CustomText<'_>,
        folder: &Path,
        arguments: &[&str],
        text: &str,
    ) -> Result<(), Error> {
        let mut command = sandbox::command(&self.program, folder, sandbox::Task::Compiler);
        command.args(arguments);
        let messages = run(&mut command, text).map_err(|source| Error::File { path: self.program.clone(), source })?;
        messages.map_or(Ok(()), |messages| Err(explain(path, custom, &messages)))
    }

    /// Compiles a source text in a child process, inspects the library, and returns its bytes.
    fn compile(&self, path: &Path, custom: &CustomText<'_>, text: &str, flags: &[&str]) -> Result<Vec<u8>, Error> {
        let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
        let file_error = |source| Error::File { path: folder.path().to_owned(), source };
        sandbox::give(folder.path()).map_err(file_error)?;
        let output = folder.path().join(LIBRARY);
        let arguments = [FLAGS, flags, &["-x", "c", "-", "-o", LIBRARY]].concat();
        self.run(path, custom, folder.path(), &arguments, text)?;
        let object = std::fs::read(&output).map_err(file_error)?;
        inspect::inspect(&object).map_err(|reason| refused(path, reason.to_string()))?;
        Ok(object)
    }
}

/// Runs a compiler with `text` as standard input. Returns its messages if it fails.
fn run(command: &mut Command, text: &str) -> std::io::Result<Option<String>> {
    let mut child = command.spawn()?;
    let mut input = child.stdin.take();
    let text = text.to_owned();
    // Write the text on a separate thread. The compiler may print messages before it has read
    // everything, so both processes could otherwise wait for each other.
    let writer = std::thread::spawn(move || {
        if let Some(input) = &mut input {
            // Ignore write errors, because a compiler that ends early closes its input.
            let _ = input.write_all(text.as_bytes());
        }
    });
    let output = child.wait_with_output()?;
    let _ = writer.join();
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Returns the first problem in the user's file that the compiler's messages describe.
fn explain(path: &Path, custom: &CustomText<'_>, messages: &str) -> Error {
    for message in messages.lines() {
        let Some((place, problem)) = message.split_once(": error: ").or_else(|| message.split_once(": fatal error: "))
        else {
            continue;
        };
        let mut parts = place.rsplitn(3, ':');
        let (_, line, name) = (parts.next(), parts.next(), parts.next());
        if let (Some(line), Some(name)) = (line.and_then(|line| line.parse().ok()), name)
            && name == custom.file
        {
            // The compiler appends the name of a warning option, which does not help users.
            let problem = problem.split(" [-W").next().unwrap_or(problem);
            return Error::Line { path: path.to_owned(), line, message: sentence(problem) };
        }
    }
    if let Some(symbol) = undefined_symbol(messages) {
        let message =
            format!("`{symbol}` does not exist in a kernel, which has no libc: use the functions of the dialect");
        return match line_of(custom.text, symbol) {
            Some(line) => Error::Line { path: path.to_owned(), line, message },
            None => Error::Refused { path: path.to_owned(), message },
        };
    }
    let first =
        messages.lines().find(|line| line.contains("error")).or(messages.lines().next()).unwrap_or("no message");
    Error::Refused { path: path.to_owned(), message: format!("the C compiler failed: {}", sentence(first)) }
}

/// Returns the name of the missing function in a linker message, if there is one.
fn undefined_symbol(messages: &str) -> Option<&str> {
    let rest = messages.split_once("undefined reference to ").or_else(|| messages.split_once("undefined symbol: "))?.1;
    rest.trim_start_matches(['`', '\'', '"']).split(['\'', '"', '\n', ' ']).next()
}

/// Returns the number of the first line that uses a name.
fn line_of(source: &str, name: &str) -> Option<usize> {
    let lines = text::code_lines(source);
    let uses = |line: &String| {
        line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|word| word == name)
    };
    lines.iter().position(uses).map(|index| index + 1)
}

/// Converts a message of the compiler to one line of text.
fn sentence(message: &str) -> String {
    message.replace('\n', " ").trim().replace(['‘', '’'], "`")
}
