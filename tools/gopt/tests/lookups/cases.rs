//! Legal lookups compute the same in every form, and illegal ones are refused at their line.

use std::path::{Path, PathBuf};

use crate::common::{SANITIZED, compile, has, run};

/// Files with legal cases. A comment `batch` marks each loop that gopt must transform.
const LEGAL: &[&str] = &["loops", "sums", "macros", "types", "functions", "serial", "shapes", "structures"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn options(compiler: &str) -> gopt::Options<'static> {
    let compiler = gopt::Compiler { program: compiler.to_owned(), ..gopt::Compiler::default() };
    gopt::Options { name: "in.c", compiler, ..gopt::Options::default() }
}

/// Returns the lines that contain a comment.
fn lines(text: &str, comment: &str) -> Vec<usize> {
    let comment = format!("/* {comment} */");
    text.lines().enumerate().filter(|(_, line)| line.contains(&comment)).map(|(index, _)| index + 1).collect()
}

#[test]
fn legal_lookups_compute_the_same_in_groups_of_every_size() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let program = temporary.path().join("program");
    let folder = folder();
    let include = format!("-I{}", folder.display());
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        for case in LEGAL {
            let path = folder.join(format!("{case}.c"));
            let text = read(&path);
            let options = gopt::Options { folder: Some(&folder), ..options(compiler) };
            let made = gopt::transform(&text, &options).unwrap_or_else(|error| panic!("{compiler}, {case}: {error}"));
            let found: Vec<usize> = made.loops.iter().map(|(_, line)| *line).collect();
            assert_eq!(found, lines(&text, "batch"), "{compiler}, {case}: transformed loops");
            compile(compiler, &["-w", "-O1", &include], &path, &program);
            let plain = run(&program, &["1"]);
            let generated = temporary.path().join("generated.c");
            std::fs::write(&generated, &made.text).expect("the folder can be written");
            let sanitized = [&["-w", "-O1", include.as_str()], SANITIZED].concat();
            for flags in [&["-w", "-O2", &include][..], &sanitized] {
                compile(compiler, flags, &generated, &program);
                for group in ["1", "2", "7", "32", "64"] {
                    assert_eq!(run(&program, &[group]), plain, "{compiler} {flags:?}, {case}, group {group}");
                }
            }
            let made = gopt::transform(&text, &gopt::Options { auto: true, ..options }).expect("as without `auto`");
            std::fs::write(&generated, &made.text).expect("the folder can be written");
            let auto = [&sanitized[..], &["-DGOPT_GROUP=auto", "-DGOPT_AUTO_SAMPLE=8"]].concat();
            compile(compiler, &auto, &generated, &program);
            assert_eq!(run(&program, &[]), plain, "{compiler}, {case}, group auto");
        }
    }
}

#[test]
fn illegal_lookups_are_refused_at_their_line() {
    let folder = folder();
    let all = read(&folder.join("illegal.c"));
    let options = gopt::Options { folder: Some(&folder), ..options("cc") };
    let mut count = 0;
    for case in all.split("//// ").skip(1) {
        let (reason, body) = case.split_once('\n').expect("a reason ends with its line");
        let text = format!("#include \"common.h\"\n{body}");
        let refusal = match gopt::transform(&text, &options) {
            Err(gopt::Error::Refusal(refusal)) => refusal,
            other => panic!("{reason}: {other:?}\n{text}"),
        };
        assert!(refusal.reason.contains(reason), "{refusal}, not {reason}:\n{text}");
        assert!(lines(&text, "refused").contains(&refusal.line), "{refusal}:\n{text}");
        count += 1;
    }
    assert!(count > 60, "{count} cases");
}

#[test]
fn a_text_without_markers_has_nothing_to_transform() {
    let without = |text: &str| match gopt::transform(text, &options("cc")) {
        Err(gopt::Error::WithoutMarker(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    };
    assert!(without("int f(int a) { return a; }\n").contains("no marker"));
    let text = "#define MISS(p)\nint f(int *a) {\n    MISS(a);\n    return *a;\n}\n";
    assert!(without(text).contains("--marker MISS"));
}

#[test]
fn permissions_allow_what_gopt_cannot_see() {
    let text = "#include <stdlib.h>\n#define g_expensive(p)\ndouble sum;\nint far(int);\n\
                void f(int *t, int *v, int n)\n{\n    for (int i = 0; i < n; i++) {\n        g_expensive(&t[v[i]]);\n        \
                v[i] = far(t[v[i]]) + rand();\n        sum += v[i];\n    }\n}\n";
    let (pure, unordered) = (["far".to_owned()], ["rand".to_owned()]);
    let reason = |options: &gopt::Options<'_>| match gopt::transform(text, options) {
        Err(gopt::Error::Refusal(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(&options("cc")).contains("--pure far"));
    let with_pure = gopt::Options { pure: &pure, ..options("cc") };
    assert!(reason(&with_pure).contains("--unordered rand"));
    let with_both = gopt::Options { unordered: &unordered, ..with_pure };
    assert!(reason(&with_both).contains("--reassociate"));
    let with_all = gopt::Options { reassociate: true, ..with_both };
    assert_eq!(gopt::transform(text, &with_all).expect("everything is allowed").loops.len(), 1);
}

#[test]
fn directives_and_macros_determine_the_place_of_a_refusal() {
    let text = "#line 40 \"other.h\"\n#define g_expensive(p)\n#define LEAVE(x) if (x) break\nvoid f(int *t, int n)\n{\n    \
                for (int i = 0; i < n; i++) {\n        g_expensive(&t[i]);\n        LEAVE(t[i]);\n    }\n}\n";
    let refusal = match gopt::transform(text, &options("cc")) {
        Err(gopt::Error::Refusal(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!((refusal.file.as_str(), refusal.line), ("other.h", 46));
    let text = text.replace("#line 40 \"other.h\"\n", "");
    let refusal = gopt::transform(&text, &options("cc")).expect_err("a loop that breaks").to_string();
    assert!(refusal.starts_with("in.c:7: break ends"), "{refusal}");
    assert!(refusal.ends_with("(in the expansion of the macro LEAVE)"), "{refusal}");
}

#[test]
fn a_loop_in_an_included_file_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = "static void f(int *t, int *v, int n)\n{\n    for (int i = 0; i < n; i++) {\n        g_expensive(&t[v[i]]);\n        \
                  v[i] = t[v[i]];\n    }\n}\n";
    std::fs::write(folder.path().join("loop.h"), header).expect("the folder can be written");
    let text = "#define g_expensive(p)\nstruct s { int a; };\n#include \"loop.h\"\n";
    let options = gopt::Options { folder: Some(folder.path()), ..options("cc") };
    let refusal = gopt::transform(text, &options).expect_err("a loop in a header").to_string();
    assert!(refusal.contains("loop.h:3: the batch loop is in the included file"), "{refusal}");
}

#[test]
fn cplusplus_is_named_as_the_reason() {
    let cplusplus = |text: &str| {
        let program = if has("g++") { "g++" } else { "c++" };
        let compiler = gopt::Compiler { program: program.to_owned(), cplusplus: true, ..gopt::Compiler::default() };
        gopt::transform(text, &gopt::Options { compiler, ..options("c++") })
    };
    let around = |body: &str| {
        format!(
            "#define g_expensive(p)\nstruct s {{ int x; }};\nvoid f(const struct s *t, int *v, int n)\n{{\n    \
             for (int i = 0; i < n; i++) {{\n        const struct s *p = &t[v[i]];\n        g_expensive(p);\n        {body}\n    }}\n}}\n"
        )
    };
    let made = cplusplus(&around("v[i] = p->x;")).expect("C++ that is also C");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("made.cc"), folder.path().join("made.o"));
    std::fs::write(&source, made.text).expect("the folder can be written");
    if has("g++") {
        let mut command = std::process::Command::new("g++");
        command.args(["-Wall", "-Wextra", "-Werror", "-c"]).arg(&source).arg("-o").arg(&program);
        let output = command.output().expect("the compiler starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for body in ["auto &q = *p; v[i] = q.x;", "v[i] = static_cast<int>(p->x);", "v[i] = std::max(p->x, 3);"] {
        let refusal = match cplusplus(&around(body)) {
            Err(gopt::Error::Refusal(refusal)) => refusal,
            other => panic!("{body}: {other:?}"),
        };
        assert!(refusal.reason.contains("C++"), "{body}: {refusal}");
        assert_eq!(refusal.line, 8, "{body}: {refusal}");
    }
}
