//! Macro definitions in a flattened text, and the changes that keep markers visible.

use std::collections::BTreeMap;

use crate::lexer::tokens;

/// Definition of a macro.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    /// Whether the macro takes arguments.
    pub(crate) takes_arguments: bool,
    /// Parameters and body, with single spaces.
    pub(crate) body: String,
}

/// Definitions at the end of a text, by name.
pub(crate) type Macros = BTreeMap<String, Macro>;

/// Identifier before a loop to which a `foreach` macro expands.
pub(super) const PROMISE: &str = "gopt_foreach_";

/// Identifier in the head of a `foreach` that the file does not define.
pub(crate) const DECLARES: &str = "gopt_declares_";

/// Name of the macro for batch loops.
pub(crate) const FOREACH: &str = "foreach";

/// Prepares a flattened text for expansion. Removes the definitions of markers, so that their calls
/// remain. The body of `foreach` then begins with [`PROMISE`]. Also returns the definitions.
pub(super) fn prepared(flat: &str, markers: &[String]) -> (String, Macros) {
    let mut text = String::with_capacity(flat.len());
    let mut macros = Macros::new();
    let mut lines = flat.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with('#') {
            text.push_str(line);
            continue;
        }
        let mut directive = line.to_owned();
        while directive.trim_end_matches(['\n', '\r']).ends_with('\\') {
            match lines.next() {
                Some(more) => directive.push_str(more),
                None => break,
            }
        }
        text.push_str(&changed(&directive, markers, &mut macros));
    }
    if !macros.contains_key(FOREACH) {
        let defined = format!("#define {FOREACH}(i, n) {PROMISE} for ({DECLARES} i = 0; i < (n); i++)\n");
        text.insert_str(0, &defined);
    }
    (text, macros)
}

/// Returns a directive for the expansion, with the same number of lines.
fn changed(directive: &str, markers: &[String], macros: &mut Macros) -> String {
    let rest = directive.trim_start().trim_start_matches('#').trim_start();
    let blank = || "\n".repeat(directive.matches('\n').count());
    if let Some(rest) = rest.strip_prefix("undef") {
        let name = rest.trim();
        macros.remove(name);
        return if markers.iter().any(|marker| marker == name) { blank() } else { directive.to_owned() };
    }
    let Some(rest) = rest.strip_prefix("define") else { return directive.to_owned() };
    let rest = rest.trim_start();
    let name_bytes = rest.find(|c: char| c != '_' && c != '$' && !c.is_alphanumeric()).unwrap_or(rest.len());
    let (name, rest) = rest.split_at(name_bytes);
    let takes_arguments = rest.starts_with('(');
    let (parameters, body) = match rest.split_once(')') {
        Some((parameters, body)) if takes_arguments => (&parameters[1..], body),
        _ => ("", rest),
    };
    let joined = body.replace("\\\n", " ");
    let body: Vec<&str> = tokens(&joined).into_iter().map(|token| token.text).collect();
    let body = body.join(" ");
    let result = if markers.iter().any(|marker| marker == name) {
        if takes_arguments && has_value(&body) {
            // The marker is an expression whose value must remain.
            let names = parameters.replace("...", "__VA_ARGS__");
            format!("#define {name}({parameters}) (gopt_marker_({names}), {body}){}", blank())
        } else {
            blank()
        }
    } else if name == FOREACH && takes_arguments {
        format!("#define {name}({parameters}) {PROMISE} {body}{}", blank())
    } else {
        directive.to_owned()
    };
    macros.insert(name.to_owned(), Macro { takes_arguments, body });
    result
}

/// Returns whether a marker body is an expression with a value, rather than a statement, a
/// prefetch, or nothing.
fn has_value(body: &str) -> bool {
    let bare = body.replace(['(', ')', ' '], "");
    let nothing = bare.is_empty() || bare.starts_with("void") || bare.starts_with('0') || bare.contains("prefetch");
    let statement = body.contains(';') || body.starts_with('{') || body.starts_with("do ") || body.contains("asm");
    !nothing && !statement
}

#[cfg(test)]
mod tests {
    use super::prepared;

    #[test]
    fn markers_are_no_longer_defined() {
        let flat = "#define MARK(a)\n#define VALUE(a) (*(a))\n#define foreach(i,n) for (i=0;i<n;i++)\n#define X 1\\\n+2\nMARK(x)\n#undef MARK\n";
        let (text, macros) = prepared(flat, &["MARK".to_owned(), "VALUE".to_owned()]);
        assert_eq!(
            text,
            "\n#define VALUE(a) (gopt_marker_(a), ( * ( a ) ))\n#define foreach(i,n) gopt_foreach_ for ( i = 0 ; i < n ; i ++ )\n\
             #define X 1\\\n+2\nMARK(x)\n\n"
        );
        assert_eq!(macros["X"].body, "1 + 2");
    }
}
