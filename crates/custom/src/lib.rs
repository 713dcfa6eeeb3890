//! Packet functions that users write. Each function is one C file, which is compiled when the
//! configuration is read. The file passes through the following steps:
//!
//! ```text
//! my.c  -> source -> text -> gopt -> compiler -> inspect -> cache -> load -> Compiled
//!          trusted   one      lookups  child       ELF        0700     dlopen
//!          file      text     interleaved process
//! ```
//!
//! | module | task |
//! |---|---|
//! | `source` | reads a file that only trusted users may write |
//! | `text` | joins the file with the dialect, and refuses what a kernel must not contain |
//! | `compiler`, `sandbox` | run the system's C compiler in an unprivileged child process |
//! | `inspect` | refuses libraries that do more than define functions |
//! | `cache` | stores libraries by the SHA-256 of everything that they depend on |
//! | `load` | loads a library and returns its entry points |
//! | `checked` | runs a function under sanitizers, in a separate program |
//! | `expect` | outcomes as text, for files of expected outcomes |
//! | `package` | files with compiled functions, for machines without a compiler |
//! | `flows` | keeps the state of flows with the functions of a library |
//! | `forms` | runs all forms of a function between guard pages |
//!
//! The inspection stops mistakes, such as a call to libc, but not attacks. Any user who may write
//! the configuration may run code with the rights of the Godwit process.

mod cache;
pub mod checked;
mod compiler;
mod error;
pub mod expect;
pub mod flows;
pub mod forms;
mod inspect;
mod load;
pub mod package;
mod reference;
mod sandbox;
pub mod source;
mod text;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use godwit_abi::{Descriptor, Outcome};
use godwit_declare::{Contract, Declaration, generate};
use godwit_kernels::custom::{CustomKernel, CustomText};
use godwit_packet::ImageRef;

use compiler::Targets;
use package::Package;

pub use error::Error;
pub use reference::run_built_in;

/// Lowest kernel number of functions that users write.
pub const NUMBER_FIRST: u8 = 128;

/// A compiled and loaded function of a user. It is never unloaded.
#[derive(Debug)]
pub struct Compiled {
    /// Declaration of the function.
    pub declaration: &'static Declaration,
    /// Contract of the function.
    pub contract: &'static Contract,
    /// The kernel.
    pub kernel: CustomKernel,
    /// Functions that keep the flow state: first the reference, then one entry per level. The list
    /// is empty without flows.
    pub(crate) flows: Vec<flows::Entries>,
    /// Whether the libraries were compiled or came from the cache.
    pub origin: Origin,
}

/// Where the libraries of a function came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At least one of the function's libraries was just compiled.
    Compiler,
    /// All libraries came from the cache or from a package.
    Cache,
}

impl Compiled {
    /// Returns the functions that keep the flow state, compiled for this machine's highest level.
    /// Returns `None` if the function has no flows.
    pub fn flows(&self) -> Option<&flows::Entries> {
        self.flows.last()
    }

    /// Returns the maximum number of flows in a test, or 0 without flows.
    pub(crate) fn test_flows(&self) -> u32 {
        self.declaration.flows.as_ref().map_or(0, |flows| flows.capacity.min(checked::FLOWS_MAX))
    }

    /// Runs the unoptimised version of the kernel on one packet. `buffer` is the packet's whole
    /// buffer, and `image` is the function's table image.
    ///
    /// # Panics
    /// Panics if the frame does not lie within the buffer.
    pub fn run_ref(
        &self,
        image: ImageRef<'_>,
        buffer: &mut [u8],
        descriptor: &mut Descriptor,
        variant: u8,
        parameter: u64,
    ) -> Outcome {
        let number = self.kernel.text.number;
        reference::run_one(self.kernel.reference, number, image, buffer, descriptor, variant, parameter)
    }
}

/// All loaded functions, each with the digest of its source.
static LOADED: Mutex<Vec<(String, &'static Compiled)>> = Mutex::new(Vec::new());

/// Loads a function from a package or from a C file, which is compiled if necessary. Returns the
/// same function if the file was loaded before. `sha256` is the expected SHA-256 of the file in
/// hexadecimal.
///
/// # Errors
/// Returns an error with one sentence for the user. It names the line of the file if there is one.
pub fn load(path: &Path, sha256: Option<&str>) -> Result<&'static Compiled, Error> {
    let bytes = source::read(path)?;
    if let Some(expected) = sha256
        && !source::sha256(&bytes).eq_ignore_ascii_case(expected)
    {
        let message = "the file does not have the SHA-256 of the configuration: compare both files".to_owned();
        return Err(Error::Refused { path: path.to_owned(), message });
    }
    let digest = cache::digest(&[&bytes]);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = loaded.iter().find(|(known, _)| *known == digest) {
        return Ok(known);
    }
    let package = package::is_package(&bytes).then(|| Package::read(path, &bytes)).transpose()?;
    let (file, text) = match &package {
        Some(package) => (package.text(path, "file")?.to_owned(), package.text(path, "source")?),
        None => (path.display().to_string(), utf8(path, &bytes)?),
    };
    let number = next_number(loaded.len(), path)?;
    let declaration = declare(path, text)?;
    if let Some((_, other)) = loaded.iter().find(|(_, other)| other.declaration.name == declaration.name) {
        let (name, file) = (&declaration.name, other.kernel.text.file);
        let message = format!("{file} declares another function `{name}`: rename one of them");
        return Err(Error::Line { path: path.to_owned(), line: declaration.line, message });
    }
    let (declaration, text, file) = (Box::leak(Box::new(declaration)), text.to_owned().leak(), file.leak());
    let text = CustomText { declaration, number, file, text };
    let libraries = match &package {
        Some(package) => package.libraries(path)?,
        None => compiler::libraries(path, &text, Targets::ThisMachine)?,
    };
    let functions = load::load(&libraries, declaration.flows.is_some())?;
    let compiled = Box::leak(Box::new(Compiled {
        declaration,
        contract: generate::contract(declaration, Some(number)),
        kernel: CustomKernel {
            levels: functions.levels,
            reference: functions.reference,
            interleaves: functions.interleaves,
            text,
        },
        flows: functions.flows,
        origin: if libraries.is_compiled { Origin::Compiler } else { Origin::Cache },
    }));
    loaded.push((digest, compiled));
    Ok(compiled)
}

/// Compiles the libraries of a C file without loading them, unless they are in the cache. The next
/// start then runs no compiler.
///
/// # Errors
/// Returns an error in the same cases as [`load`].
pub fn prepare(path: &Path) -> Result<Origin, Error> {
    let bytes = source::read(path)?;
    let text = utf8(path, &bytes)?;
    let (declaration, file) = (declare(path, text)?, path.display().to_string());
    let text = CustomText { declaration: &declaration, number: NUMBER_FIRST, file: &file, text };
    let libraries = compiler::libraries(path, &text, Targets::ThisMachine)?;
    Ok(if libraries.is_compiled { Origin::Compiler } else { Origin::Cache })
}

/// Returns the content of a C file as text.
fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Line {
        path: path.to_owned(),
        line: 1,
        message: "the file is not UTF-8 text".to_owned(),
    })
}

fn next_number(loaded: usize, path: &Path) -> Result<u8, Error> {
    u8::try_from(usize::from(NUMBER_FIRST) + loaded).ok().filter(|number| *number < Contract::NO_KERNEL).ok_or_else(
        || Error::Refused {
            path: path.to_owned(),
            message: "too many functions of users: at most 127 different ones".to_owned(),
        },
    )
}

/// Reads and checks the declaration in a user function's text, without compiling the function.
///
/// # Errors
/// Returns the first problem, with its line in the file.
pub fn declare(path: &Path, text: &str) -> Result<Declaration, Error> {
    let at = |line: usize, message: String| Error::Line { path: path.to_owned(), line, message };
    let declaration = Declaration::parse(text).map_err(|error| at(error.line, error.message))?;
    let built_in = |what: &str| Err(at(declaration.line, format!("{what} belongs to built-in functions only")));
    if declaration.number.is_some() {
        return built_in("`number`");
    }
    if !declaration.has_kernel || declaration.form != godwit_declare::Form::Lane {
        return built_in("`kernel` or `form`");
    }
    if !declaration.records.is_empty() || !declaration.commands.is_empty() || declaration.alias.is_some() {
        return built_in("`[structs]` or `[commands]`");
    }
    if let Some(counter) = declaration.counters.iter().find(|counter| counter.array.is_some()) {
        let name = &counter.name;
        return Err(at(
            declaration.line,
            format!(
                "counters.{name}: arrays of counters belong to built-in functions only: remove `verdict` and `size`"
            ),
        ));
    }
    if declaration.host != godwit_declare::HostUse::default() || declaration.in_order {
        return built_in("`host` or `in_order`");
    }
    if let Some((contract, _)) =
        godwit_kernels::declared::DECLARED.iter().find(|(contract, _)| contract.kind == declaration.name)
    {
        let message = format!("`{}` is a built-in function: choose another name", contract.kind);
        return Err(at(declaration.line, message));
    }
    text::check(text).map_err(|(line, message)| at(line, message))?;
    Ok(declaration)
}
