//! Runs the user's C compiler as a preprocessor.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// The user's C compiler, with the flags for the file.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// Program, such as `cc`, `gcc-12` or `clang`. It is empty for preprocessed text.
    pub program: String,
    /// Compiler flags. Output flags, such as `-c` and `-o FILE`, are ignored.
    pub flags: Vec<String>,
    /// Folder in which the compiler runs. `None` selects the current folder.
    pub directory: Option<PathBuf>,
    /// Whether the text is C++ that is also C.
    pub cplusplus: bool,
}

impl Default for Compiler {
    /// Returns the compiler from the environment variable `CC`, or `cc`, without flags.
    fn default() -> Self {
        let program = std::env::var("CC").ok().filter(|program| !program.trim().is_empty());
        Self {
            program: program.unwrap_or_else(|| "cc".to_owned()),
            flags: Vec::new(),
            directory: None,
            cplusplus: false,
        }
    }
}

/// Flags that take a separate argument and do not affect the preprocessor.
const IGNORED_WITH_ARGUMENT: &[&str] = &["-o", "-MF", "-MT", "-MQ", "-x", "-l", "-T", "-u", "-z", "-Xlinker"];
/// Flags that change the preprocessor output, or write other files.
const IGNORED: &[&str] = &["-c", "-S", "-E", "-M", "-MM", "-MD", "-MMD", "-MP", "-MG", "-P", "-C", "-CC", "-pipe"];

impl Compiler {
    /// Returns no compiler, for preprocessed text.
    #[must_use]
    pub fn none() -> Self {
        Self { program: String::new(), flags: Vec::new(), directory: None, cplusplus: false }
    }

    /// Returns whether the text is preprocessed already.
    pub(super) fn is_preprocessed(&self) -> bool {
        self.program.is_empty()
    }

    /// Returns the flags that affect the preprocessor.
    fn preprocessor_flags(&self, with_includes: bool) -> Vec<&str> {
        let mut kept = Vec::new();
        let mut flags = self.flags.iter().map(String::as_str);
        while let Some(flag) = flags.next() {
            let forced = matches!(flag, "-include" | "-imacros");
            if IGNORED_WITH_ARGUMENT.contains(&flag) || forced && !with_includes {
                flags.next();
            } else if !IGNORED.contains(&flag) && !flag.starts_with("-save-temps") && !flag.starts_with("-x") {
                kept.push(flag);
            }
        }
        kept
    }

    /// Returns the text with included files and unexpanded macros. Macro definitions are kept.
    pub(super) fn flattened(&self, text: &str, folder: Option<&Path>) -> Result<(String, Flattened), Error> {
        let clang_first = self.program.contains("clang");
        let styles = [("-fdirectives-only", Flattened::All), ("-frewrite-includes", Flattened::FilesOnly)];
        let mut failure = None;
        for (flag, style) in if clang_first { [styles[1], styles[0]] } else { styles } {
            let mut flags = Vec::new();
            if let Some(folder) = folder.and_then(Path::to_str) {
                flags.extend(["-iquote", if folder.is_empty() { "." } else { folder }]);
            }
            flags.extend(self.preprocessor_flags(true));
            flags.extend(["-w", flag]);
            match self.preprocess(&flags, text) {
                Ok(text) => return Ok((text, style)),
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Compiler(format!("{}: no preprocessor", self.program))))
    }

    /// Returns the text with its macros expanded.
    pub(super) fn expanded(&self, text: &str, style: Flattened) -> Result<String, Error> {
        let mut flags = self.preprocessor_flags(false);
        if style == Flattened::All {
            flags.push("-undef");
        }
        flags.push("-w");
        self.preprocess(&flags, text)
    }

    fn preprocess(&self, flags: &[&str], text: &str) -> Result<String, Error> {
        let failed = |problem: &dyn std::fmt::Display| Error::Compiler(format!("{}: {problem}", self.program));
        // A program with arguments, such as "ccache gcc".
        let mut words = self.program.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("cc"));
        command.args(words).args(flags).args(["-E", "-x", if self.cplusplus { "c++" } else { "c" }, "-"]);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let mut input = child.stdin.take();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                // A compiler that ends early does not read its whole input. Its messages contain
                // the reason.
                input.as_mut().map(|input| input.write_all(text.as_bytes()))
            });
            child.wait_with_output()
        });
        let output = output.map_err(|error| failed(&error))?;
        if !output.status.success() {
            return Err(Error::Compiler(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        String::from_utf8(output.stdout).map_err(|_| failed(&"the preprocessed text is not UTF-8"))
    }
}

/// Content of a flattened text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flattened {
    /// Includes and conditions are resolved. Predefined macros are included (gcc).
    All,
    /// Includes are resolved, but conditions and command-line macros are not (clang).
    FilesOnly,
}
