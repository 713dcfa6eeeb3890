//! Finds the declaration of a packet function in a C file.

use crate::Error;
use crate::error::NameError;

/// Text with which a declaration begins.
const BEGIN: &str = "/* godwit function ";
/// Text with which a C comment and the declaration in it end.
const END: &str = "*/";
/// Maximum length of a function's name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 32;

/// A declaration as text, before its TOML is parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// Name of the function.
    pub(crate) name: &'a str,
    /// Line of the C file that contains the function's name. The TOML text begins on the next line.
    pub(crate) line: usize,
    /// TOML text.
    pub(crate) toml: &'a str,
}

/// Finds the declaration of a function in a C file. Only comments and empty lines may precede the
/// declaration.
pub(crate) fn find(text: &str) -> Result<Head<'_>, Error> {
    let missing =
        || Error { line: 1, message: "no declaration: the file must begin with `/* godwit function NAME`".to_owned() };
    let starts = text.match_indices(BEGIN).map(|(start, _)| start);
    let start = starts.into_iter().find(|&start| start == 0 || text[..start].ends_with('\n')).ok_or_else(missing)?;
    let line = 1 + lines_before(text, start);
    let rest = &text[start + BEGIN.len()..];
    let (first, body) = rest.split_once('\n').ok_or_else(missing)?;
    let name = first.trim();
    check_name(name, "function").map_err(|error| Error::at(line, error))?;
    let Some((toml, _)) = body.split_once(END) else {
        return Err(Error { line, message: "the declaration has no end: `*/` is missing".to_owned() });
    };
    Ok(Head { name, line, toml })
}

/// Returns the number of line ends in `text` before `offset`.
pub(crate) fn lines_before(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// Checks that a name is a valid identifier in C, Rust and TOML.
pub(crate) fn check_name(name: &str, what: &str) -> Result<(), NameError> {
    let valid = name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= NAME_BYTES_MAX;
    if !valid {
        return Err(NameError::Invalid { name: name.to_owned(), what: what.to_owned() });
    }
    Ok(())
}

/// Checks that a name is a valid C struct member. Members have no prefix, so reserved words are
/// invalid.
pub(crate) fn check_field_name(name: &str, what: &str) -> Result<(), NameError> {
    check_name(name, what)?;
    match RESERVED.contains(&name) {
        true => Err(NameError::Reserved { name: name.to_owned(), what: what.to_owned() }),
        false => Ok(()),
    }
}

/// Reserved words of C, C++ and OpenCL, which cannot be names of struct members.
const RESERVED: &[&str] = &[
    "alignas",
    "alignof",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "constant",
    "constexpr",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "event_t",
    "explicit",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "global",
    "goto",
    "half",
    "if",
    "image",
    "inline",
    "int",
    "kernel",
    "local",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "nullptr",
    "operator",
    "private",
    "protected",
    "public",
    "register",
    "restrict",
    "return",
    "sampler_t",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "uchar",
    "uint",
    "ulong",
    "union",
    "unsigned",
    "ushort",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declaration_is_found_after_a_licence() {
        let text = "/* licence */\n\n/* godwit function police\nreads = 34\n*/\nint x;\n";
        assert_eq!(find(text), Ok(Head { name: "police", line: 3, toml: "reads = 34\n" }));
    }

    #[test]
    fn incomplete_declarations_name_their_line() {
        for (text, line, part) in [
            ("int x;\n", 1, "no declaration"),
            ("  /* godwit function police\n*/", 1, "no declaration"),
            ("\n/* godwit function police\nreads = 34\n", 2, "`*/` is missing"),
            ("/* godwit function Police\n*/", 1, "`Police`"),
        ] {
            let error = find(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.message.contains(part), "{error}");
        }
        assert_eq!(check_name("half", "verdict"), Ok(()));
        assert!(matches!(check_field_name("half", "field"), Err(NameError::Reserved { .. })));
    }
}
