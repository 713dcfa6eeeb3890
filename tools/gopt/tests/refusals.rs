//! What gopt does not transform it refuses, with the line and the reason; and what looks like it, it takes.

use std::process::Command;

/// A text, the line that is at fault, and words of the reason.
type Refused = (&'static str, usize, &'static str);

/// A batch loop around some statements, which begin in line 6.
fn look(body: &str) -> String {
    around("", body)
}

/// The same with declarations, on one line each, in front of it.
fn around(before: &str, body: &str) -> String {
    format!(
        "#include <stdint.h>\nvoid find(const uint32_t *t, uint32_t *v, int n)\n{{\n{before}\n    for (int i = 0; i < n; i++) {{\n{body}\n        \
         g_expensive(&t[v[i]]);\n        v[i] = t[v[i]];\n    }}\n}}\n"
    )
}

fn transform(text: &str) -> Result<String, gopt::Refusal> {
    gopt::transform(text, &gopt::Options { name: "in.c", ..gopt::Options::default() })
}

fn refused(text: &str, line: usize, reason: &str) {
    match transform(text) {
        Ok(made) => panic!("not refused ({reason}):\n{text}\n{made}"),
        Err(refusal) => {
            assert!(refusal.reason.contains(reason), "{refusal}, not {reason}:\n{text}");
            assert_eq!((refusal.file.as_str(), refusal.line), ("in.c", line), "{refusal}:\n{text}");
        }
    }
}

#[test]
fn look_ups_that_depend_on_each_other() {
    let cases: &[(&str, &str, &str)] = &[
        ("int last = 0;", "last = v[i];", "last is declared outside"),
        ("uint32_t sum = 0;", "sum += v[i]; v[i] = sum;", "changed by it and read by others"),
        ("uint32_t sum = 0;", "v[i] = sum++;", "sum is declared outside"),
        ("double sum = 0;", "sum += v[i];", "sum is declared outside"),
        ("uint32_t a = 0;", "a += v[i]; a ^= v[i];", "a is declared outside"),
        ("int a = 0;", "a += v[i];", "a is declared outside"),
        ("uint32_t a = 0;", "uint32_t *p = &a; *p = v[i];", "the address of a"),
        ("uint32_t a[4] = {0};", "a[0] = v[i];", "same location through a"),
        ("uint32_t a[4] = {0};", "uint32_t *p = a; *p = v[i];", "a, an array that all"),
        ("struct { int x; } s = {0};", "s.x = i;", "s is declared outside"),
        ("", "*v = 3;", "same location through v"),
        ("", "v++;", "v is declared outside"),
        ("", "i++;", "changes the index i"),
        ("", "static int calls; calls++;", "a static variable is shared"),
        ("", "errno_like = 3;", "errno_like, which is not declared in this file"),
        ("", "printf(\"%u\", v[i]);", "printf inside"),
        ("", "volatile int x = i; (void)x;", "volatile"),
        ("", "if (v[i] == 3) { break; }", "break ends the batch loop"),
        ("", "if (v[i] == 3) { return; }", "return inside the batch loop"),
    ];
    for (before, body, reason) in cases {
        refused(&around(before, body), 6, reason);
    }
}

#[test]
fn changes_of_shared_variables_that_no_order_shows() {
    for (before, body) in [
        ("uint32_t sum = 0;", "sum += v[i];"),
        ("int count = 0;", "count++;"),
        ("unsigned long bits = 0;", "bits |= v[i];"),
        ("int any = 0;", "if (v[i] == 3) { any = 1; }"),
        ("uint32_t a[4] = {0};", "a[i & 3] += 1;"),
        ("const uint32_t a[4] = {0};", "v[i] ^= a[1];"),
    ] {
        transform(&around(before, body)).unwrap_or_else(|refusal| panic!("{before} {body}: {refusal}"));
    }
}

#[test]
fn what_has_no_state_that_can_be_saved() {
    let cases: &[(&str, &str)] = &[
        ("uint32_t a[v[i]]; a[0] = 1; (void)a;", "an array of variable length"),
        ("if (setjmp(buffer)) { continue; }", "setjmp depends on the stack"),
        ("uint32_t *p = alloca(4); (void)p;", "alloca depends on the stack"),
        ("goto out;", "goto out leaves the batch loop"),
        ("void *p = &&here; goto *p; here:;", "leaves the batch loop"),
        ("struct s { int x; } s = {1}; (void)s;", "a type is declared inside"),
        ("uint32_t a[] = {1, 2}; (void)a;", "an array without its size"),
        ("__typeof__(v[i]) x = 1; (void)x;", "a type that depends on an expression"),
        ("const char *f = __func__; (void)f;", "__func__ would name another function"),
        ("int gopt_x = 1; gopt_x++;", "names that begin with gopt_"),
        ("g_expensive(&t[v[i]++]);", "a side effect or a call"),
        ("g_expensive(place(i));", "a side effect or a call"),
        ("v[i] = g_expensive(t) + 1;", "must be a separate statement"),
        ("g_expensive(t, v);", "takes one address"),
        ("g_expensive();", "takes one address"),
        ("foreach_member(m, v) { v[i]++; }", "missing here, or a macro"),
    ];
    for (body, reason) in cases {
        let found = transform(&look(body)).expect_err(body);
        assert!(found.reason.contains(reason), "{body}: {found}, not {reason}");
        assert_eq!(found.line, 6, "{body}: {found}");
    }
}

#[test]
fn directives_and_macros_that_hide_what_must_be_seen() {
    refused(&look("#ifdef X\n v[i] = 1;\n#endif"), 6, "a preprocessor directive");
    let macros: &[(&str, &str, &str)] = &[
        ("#define LEAVE(x) if (x) break", "LEAVE(v[i]);", "the macro LEAVE hides break"),
        ("#define FETCH(x) g_expensive(x)", "FETCH(t);", "the macro FETCH hides g_expensive"),
        (
            "#define KEY (key + 1)",
            "uint32_t key = v[i]; g_expensive(&t[1]); v[i] = KEY;",
            "the macro KEY names the local variable key",
        ),
        (
            "#define TEXT(x) #x",
            "uint32_t key = v[i]; g_expensive(&t[1]); v[i] = TEXT(key)[0];",
            "the local variable key to text",
        ),
        ("#define COUNT(x) ((x)++)", "COUNT(n);", "the macro COUNT may change n"),
        ("#define COUNT (total++)", "COUNT;", "the macro COUNT may change total"),
    ];
    for (definition, body, reason) in macros {
        let text = look(body).replace("#include <stdint.h>\n", &format!("{definition}\nstatic int total;"));
        refused(&text, 6, reason);
    }
}

#[test]
fn loops_and_annotations_that_are_none() {
    let cases: &[Refused] = &[
        ("int f(int *t)\n{\n    g_expensive(t);\n    return *t;\n}\n", 3, "outside any batch loop"),
        (
            "void f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        t[i]++;\n    }\n}\n",
            1,
            "no batch loop",
        ),
        ("void f(int *t, int n)\n{\n    foreach (i, n) {\n        t[i]++;\n    }\n}\n", 3, "has no expensive access"),
        (
            "void f(int *t)\n{\n    for (int i = 0; t[i]; i++) {\n        g_expensive(t);\n    }\n}\n",
            3,
            "a batch loop must count",
        ),
        ("void f(int *t)\n{\n    for (;;) {\n        g_expensive(t);\n    }\n}\n", 3, "a batch loop must count"),
        (
            "void f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        inside:\n        g_expensive(t);\n    }\n    goto inside;\n}\n",
            7,
            "goto inside enters the batch loop",
        ),
        (
            "static int g(int *t) { g_expensive(t); return g(t + *t); }\nvoid f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        t[i] = g(t + i);\n    }\n}\n",
            1,
            "recursion: g calls itself",
        ),
        (
            "static int g(int *t) { g_expensive(t); return *t; }\nvoid f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        int (*p)(int *) = g;\n        t[i] = p(t);\n        t[i] += g(t + i);\n    }\n}\n",
            5,
            "g has expensive accesses and is used as a value",
        ),
        (
            "static int x;\nstatic int g(int *t) { g_expensive(t); return *t + x; }\nvoid f(int *t, int n)\n{\n    int x = n;\n    for (int i = 0; i < n; i++) {\n        t[i] = g(t + i) + x;\n    }\n}\n",
            7,
            "g uses x of the file",
        ),
        (
            "static int g(int *t) { g_expensive(t); return *t; }\nvoid f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        t[i] = likely(g(t + i));\n    }\n}\n",
            5,
            "which may be a macro",
        ),
        (
            "static int x;\nstatic int g(int *t) { x = *t; g_expensive(t); return x; }\nvoid f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        t[i] = g(t + i);\n    }\n}\n",
            2,
            "x is declared outside",
        ),
        (
            "static int g(int *t) { g_expensive(t); return *t; }\nvoid f(int *t, int n)\n{\n    for (int i = 0; i < n; i++) {\n        for (int k = 0; k < 3; k += g(t)) {\n            t[i]++;\n        }\n    }\n}\n",
            5,
            "in the step of a for loop",
        ),
        (
            "static int g(int *t) { g_expensive(t); return *t; }\nvoid unused(int *t)\n{\n    g(t);\n}\nvoid f(int *t, int n)\n{\n    foreach (i, n) {\n        t[i]++;\n    }\n}\n",
            1,
            "reached from no batch loop",
        ),
    ];
    for (text, line, reason) in cases {
        refused(text, *line, reason);
    }
}

/// Labels of a function are one name space, whichever loop they stand in.
#[test]
fn every_batch_loop_of_a_function_has_labels_of_its_own() {
    let helper = "static int g(int *t) { if (t[0]) { return 1; } g_expensive(t + 1); return t[1]; }\n";
    let round = |label: &str| {
        format!(
            "for (int i = 0; i < n; i++) {{ int k = 0; while (g(t + i + k)) {{ if (t[i]) {{ continue; }} \
             if (++k == 3) {{ goto {label}; }} }} {label}: v[i] += k; if (k) {{ continue; }} v[i]++; }}\n"
        )
    };
    let text = format!("{helper}void f(int *t, int *v, int n)\n{{\n{}{}{}}}\n", round("a"), round("b"), round("c"));
    let made = transform(&text).unwrap_or_else(|refusal| panic!("{refusal}"));
    let mut labels: Vec<&str> = made
        .split_inclusive(':')
        .filter_map(|part| part.strip_suffix(':')?.rsplit([' ', '\n', ';', '{', '}']).next())
        .filter(|word| word.starts_with("gopt_"))
        .collect();
    let all = labels.len();
    assert!(all > 12, "{labels:?}");
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), all, "{made}");
}

#[test]
fn line_directives_name_the_file_and_the_line() {
    let text = format!("#line 40 \"other.h\"\n{}", look("break;"));
    let refusal = transform(&text).expect_err("a loop that breaks");
    assert_eq!((refusal.file.as_str(), refusal.line), ("other.h", 45));
}

#[test]
fn the_command_says_where_and_why_and_ends_with_2() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.c"), folder.path().join("out.c"));
    let gopt = |text: &str| {
        std::fs::write(&input, text).expect("the folder can be written");
        Command::new(env!("CARGO_BIN_EXE_gopt")).arg(&input).arg("-o").arg(&output).output().expect("gopt starts")
    };
    let refused = gopt(&look("break;"));
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("in.c:6: break ends the batch loop"), "{message}");
    assert!(!output.exists());
    assert!(gopt(&look("v[i]++;")).status.success());
    assert!(std::fs::read_to_string(&output).expect("gopt wrote it").contains("gopt_at_1:"));
    assert_eq!(
        Command::new(env!("CARGO_BIN_EXE_gopt")).arg("nowhere.c").output().expect("gopt starts").status.code(),
        Some(2)
    );
}
