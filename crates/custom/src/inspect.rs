//! Inspects a compiled library before it is loaded. The library may define functions and constants,
//! but its code must not run when it is loaded.

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

/// Names of sections whose code runs when a library is loaded or unloaded.
const RUNNING: &[&str] = &[".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors", ".init", ".fini"];

/// Reason why a library is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsafe {
    /// The file is no library, or is damaged.
    #[error("the library is not valid: {0}")]
    Invalid(#[from] object::Error),
    /// A symbol must come from another library.
    #[error("the library needs `{0}`: a kernel calls no other library")]
    Undefined(String),
    /// A symbol has a resolver.
    #[error("the library chooses a function when it is loaded (IFUNC)")]
    Indirect,
    /// A section has code of this kind.
    #[error("the library has a section `{0}`: code would run when it is loaded")]
    Running(String),
    /// Memory is writable and executable.
    #[error("the library has memory that is writable and executable")]
    WritableCode,
    /// The stack is executable.
    #[error("the library needs an executable stack")]
    ExecutableStack,
    /// The file has an interpreter.
    #[error("the library is a program")]
    Program,
    /// The library has thread-local variables.
    #[error("the library has variables of a thread")]
    ThreadLocal,
    /// The library names another one.
    #[error("the library needs another library")]
    Needed,
    /// Code has relocations.
    #[error("the library changes its code when it is loaded")]
    TextRelocation,
    /// The library has an initializer.
    #[error("the library runs code when it is loaded")]
    Initializer,
}

/// Checks that a library contains only what a kernel may contain. `bytes` is the content of the
/// library file.
///
/// # Errors
/// Returns the first problem, in one sentence.
pub(crate) fn inspect(bytes: &[u8]) -> Result<(), Unsafe> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    if let Some(symbol) =
        file.dynamic_symbols().find(|symbol| symbol.is_undefined() && !symbol.name().unwrap_or("").is_empty())
    {
        return Err(Unsafe::Undefined(symbol.name().unwrap_or("?").to_owned()));
    }
    let is_indirect = |kind: u8| kind == elf::STT_GNU_IFUNC;
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        if is_indirect(symbol.elf_symbol().st_type()) {
            return Err(Unsafe::Indirect);
        }
    }
    for section in file.sections() {
        let name = section.name().unwrap_or("");
        if RUNNING.contains(&name) && section.size() > 0 {
            return Err(Unsafe::Running(name.to_owned()));
        }
    }
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, bytes)?;
    for header in headers {
        let flags = header.p_flags(endian);
        let (writable, executable) = (flags & elf::PF_W != 0, flags & elf::PF_X != 0);
        match header.p_type(endian) {
            elf::PT_LOAD if writable && executable => {
                return Err(Unsafe::WritableCode);
            }
            elf::PT_GNU_STACK if executable => return Err(Unsafe::ExecutableStack),
            elf::PT_INTERP => return Err(Unsafe::Program),
            elf::PT_TLS => return Err(Unsafe::ThreadLocal),
            _ => {}
        }
    }
    needs_nothing(&file, bytes)
}

/// Checks the dynamic section of the library. The library must not load other libraries, and must
/// not contain relocations in code.
fn needs_nothing(file: &ElfFile64<'_, Endianness>, bytes: &[u8]) -> Result<(), Unsafe> {
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, bytes)?;
    for header in headers {
        let Some(entries) = header.dynamic(endian, bytes)? else { continue };
        for entry in entries {
            use object::read::elf::Dyn;
            match entry.d_tag(endian).into_u64() as i64 {
                elf::DT_NEEDED => return Err(Unsafe::Needed),
                elf::DT_TEXTREL => return Err(Unsafe::TextRelocation),
                elf::DT_INIT | elf::DT_FINI => return Err(Unsafe::Initializer),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Converts a tag of the dynamic section to 64 bits. 32-bit files have 32-bit tags.
trait IntoU64 {
    fn into_u64(self) -> u64;
}

impl IntoU64 for u64 {
    fn into_u64(self) -> u64 {
        self
    }
}

impl IntoU64 for i64 {
    fn into_u64(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// Compiles a text to a library with the system's C compiler and only these flags.
    fn library(text: &str, flags: &[&str]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (source, output) = (folder.path().join("a.c"), folder.path().join("a.so"));
        std::fs::write(&source, text).unwrap();
        let status = Command::new(Path::new("/usr/bin/cc"))
            .args(["-shared", "-fPIC", "-nostdlib", "-w"])
            .args(flags)
            .arg(&source)
            .arg("-o")
            .arg(&output)
            .stderr(Stdio::inherit())
            .status()
            .unwrap();
        assert!(status.success(), "{text}");
        std::fs::read(&output).unwrap()
    }

    #[test]
    fn a_plain_library_is_accepted() {
        inspect(&library("int f(int a) { return a + 1; }", &[])).unwrap();
    }

    #[test]
    fn libraries_that_do_more_are_refused() {
        for (text, flags, part) in [
            ("int puts(const char *); int f(void) { return puts(\"\"); }", &[][..], "needs `puts`"),
            ("__attribute__((constructor)) void f(void) {}", &[], "code would run"),
            (
                "static int a(void) { return 1; } static void *r(void) { return a; } int f(void) __attribute__((ifunc(\"r\")));",
                &[],
                "IFUNC",
            ),
            ("int f(void) { return 1; }", &["-Wl,-z,execstack"], "executable stack"),
            ("__thread int a; int f(void) { return a; }", &["-ftls-model=initial-exec"], "thread"),
        ] {
            let message = inspect(&library(text, flags)).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        assert!(matches!(inspect(b"#!/bin/sh\n"), Err(Unsafe::Invalid(_))));
    }
}
