//! The command line: messages, exit codes, compilation databases, and the compiler wrapper.

use std::path::Path;
use std::process::{Command, Output};

const LOOKUP: &str = "#include \"table.h\"\n#define g_expensive(p)\nint find(const int *t, int *v, int n)\n{\n    \
                      for (int i = 0; i < n; i++) {\n        g_expensive(&t[v[i] & MASK]);\n        \
                      v[i] = t[v[i] & MASK];\n    }\n    return 0;\n}\n";

fn gopt(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gopt"));
    command.current_dir(folder).args(arguments).env_remove("CC").output().expect("gopt starts")
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("the folder can be written");
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_refusal_has_place_reason_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "table.h", "#define MASK 7\n");
    write(folder.path(), "in.c", &LOOKUP.replace("v[i] = t", "if (v[i] == 3) { break; }\n        v[i] = t"));
    let refused = gopt(folder.path(), &["in.c", "-o", "out.c"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(message(&refused).starts_with("gopt: in.c:7: break ends the batch loop"), "{}", message(&refused));
    assert!(!folder.path().join("out.c").exists());
    assert_eq!(gopt(folder.path(), &["nowhere.c"]).status.code(), Some(2));
}

#[test]
fn the_transformed_loop_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "table.h", "#define MASK 7\n");
    write(folder.path(), "in.c", LOOKUP);
    let made = gopt(folder.path(), &["in.c", "-o", "out.c"]);
    assert!(made.status.success(), "{}", message(&made));
    assert!(message(&made).contains("in.c:5: note: the iterations of this loop are interleaved"), "{}", message(&made));
    assert!(std::fs::read_to_string(folder.path().join("out.c")).expect("gopt wrote it").contains("gopt_at_1:"));
}

#[test]
fn flags_reach_the_preprocessor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("inc")).expect("the folder can be written");
    write(folder.path(), "inc/table.h", "#define MASK WIDTH\n");
    write(folder.path(), "in.c", LOOKUP);
    assert!(message(&gopt(folder.path(), &["in.c"])).contains("table.h"));
    let made = gopt(folder.path(), &["in.c", "-I", "inc", "-D", "WIDTH=15"]);
    assert!(made.status.success(), "{}", message(&made));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(text.contains("& 15"), "{text}");
    let database = format!(
        "[{{\"directory\": {:?}, \"command\": \"cc -Iinc -DWIDTH=31 -c in.c -o in.o\", \"file\": \"in.c\"}}]",
        folder.path()
    );
    write(folder.path(), "compile_commands.json", &database);
    let made = gopt(folder.path(), &["--build", ".", "in.c"]);
    assert!(made.status.success(), "{}", message(&made));
    assert!(String::from_utf8_lossy(&made.stdout).contains("& 31"));
    write(folder.path(), "other.c", LOOKUP);
    assert!(message(&gopt(folder.path(), &["--build", ".", "other.c"])).contains("has no entry for other.c"));
}

#[test]
fn the_wrapper_compiles_as_the_compiler_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "table.h", "#define MASK 7\n");
    write(folder.path(), "in.c", LOOKUP);
    write(
        folder.path(),
        "main.c",
        "int find(const int *, int *, int);\nint main(void) { int t[8] = {5, 6, 7}, v[2] = {1, 2}; find(t, v, 2); return v[0] + v[1]; }\n",
    );
    let made = gopt(folder.path(), &["cc", "-O1", "-MMD", "-MF", "in.d", "-c", "in.c", "-o", "in.o"]);
    assert!(made.status.success(), "{}", message(&made));
    let dependencies = std::fs::read_to_string(folder.path().join("in.d")).expect("dependencies are written");
    assert!(dependencies.starts_with("in.o: in.c") && dependencies.contains("table.h"), "{dependencies}");
    let symbols = std::fs::read(folder.path().join("in.o")).expect("the object is written");
    assert!(symbols.len() > 900, "the object has the interleaved loop");
    assert!(gopt(folder.path(), &["cc", "main.c", "in.o", "-o", "program"]).status.success());
    let program = Command::new(folder.path().join("program")).status().expect("the program starts");
    assert_eq!(program.code(), Some(13));
    // A refusal is an error, unless the user prefers the plain loop.
    write(folder.path(), "bad.c", &LOOKUP.replace("v[i] = t", "if (v[i] == 3) { break; }\n        v[i] = t"));
    let refused = gopt(folder.path(), &["cc", "-c", "bad.c"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(message(&refused).contains("bad.c:7: break ends"), "{}", message(&refused));
    let plain = gopt(folder.path(), &["cc", "--fallback", "--", "-c", "bad.c"]);
    assert!(plain.status.success() && message(&plain).contains("warning"), "{}", message(&plain));
    // Errors of the compiler reach the user with its exit code.
    write(folder.path(), "wrong.c", "int f(void) { return x; }\n");
    let wrong = gopt(folder.path(), &["cc", "-c", "wrong.c"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(message(&wrong).contains("wrong.c:1"), "{}", message(&wrong));
}
