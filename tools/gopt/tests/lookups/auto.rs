//! `GOPT_GROUP=auto` selects the fastest form while the program runs.

use std::path::Path;
use std::process::Command;

use crate::common::{SANITIZED, compile, has, run};

/// Lookups whose clock counts accesses: `PLAIN` for each in the plain loop, `HIDDEN` for each
/// prefetched one.
const COUNTED: &str = r#"
#include <stdio.h>
static unsigned long reads, prefetches;
#define g_expensive(address)
#define GOPT_PREFETCH(address) ((void)(address), prefetches++)
#define GOPT_CLOCK() (PLAIN * (reads - prefetches) + HIDDEN * prefetches)
static unsigned table[1024], in[5000], out[5000];
static void find(int n)
{
    for (int i = 0; i < n; i++) {
        g_expensive(&table[in[i] % 1024]);
        out[i] = table[in[i] % 1024];
        reads++;
    }
}
int main(void)
{
    unsigned long digest = 0;
    for (unsigned i = 0; i < 1024; i++) { table[i] = i * 2654435761u; }
    for (unsigned i = 0; i < 5000; i++) { in[i] = i * 40503u; }
    for (int n = 0; n < 300; n++) {
        find(n * 37 % 5000);
        for (int i = 0; i < n; i++) { digest = digest * 31 + out[i]; }
    }
    printf("%lu %d\n", digest, reads > 2 * prefetches);
    return 0;
}
"#;

/// Loops in two threads.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#define g_expensive(address)
static unsigned table[1024];
typedef struct { unsigned in[5000], out[5000]; unsigned long digest; } part;
static part parts[2];
static void *find(void *argument)
{
    part *own = argument;
    for (int times = 0; times < 20; times++) {
        unsigned *in = own->in, *out = own->out;
        for (int i = 0; i < 5000; i++) {
            g_expensive(&table[in[i] % 1024]);
            out[i] = table[in[i] % 1024];
        }
        for (int i = 0; i < 5000; i++) { own->digest = own->digest * 31 + own->out[i]; own->in[i] += own->out[i]; }
    }
    return 0;
}
int main(void)
{
    pthread_t threads[2];
    for (unsigned i = 0; i < 1024; i++) { table[i] = i * 2654435761u; }
    for (unsigned i = 0; i < 10000; i++) { parts[i / 5000].in[i % 5000] = i * 40503u; }
    for (int i = 0; i < 2; i++) { pthread_create(&threads[i], 0, find, &parts[i]); }
    for (int i = 0; i < 2; i++) { pthread_join(threads[i], 0); }
    printf("%lx %lx\n", parts[0].digest, parts[1].digest);
    return 0;
}
"#;

fn generated(text: &str, folder: &Path) -> std::path::PathBuf {
    let made = gopt::transform(text, &gopt::Options { name: "in.c", auto: true, ..gopt::Options::default() });
    let path = folder.join("generated.c");
    std::fs::write(&path, made.unwrap_or_else(|error| panic!("{error}")).text).expect("the folder can be written");
    path
}

#[test]
fn auto_selects_the_form_with_the_shortest_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = generated(COUNTED, folder.path());
    let program = folder.path().join("program");
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        let result = |flags: &[&str]| {
            let flags = [&["-O2", "-Wall", "-Wextra", "-Werror"], flags].concat();
            compile(compiler, &flags, &source, &program);
            run(&program, &[])
        };
        let digest = |text: &str| text.split(' ').next().map(str::to_owned);
        let plain = result(&["-DGOPT_GROUP=1", "-DPLAIN=1", "-DHIDDEN=1"]);
        let cached = result(&["-DGOPT_GROUP=auto", "-DPLAIN=10", "-DHIDDEN=11"]);
        let missed = result(&["-DGOPT_GROUP=auto", "-DPLAIN=30", "-DHIDDEN=11"]);
        assert!(cached.ends_with(" 1\n"), "{compiler}: the plain loop is faster: {cached}");
        assert!(missed.ends_with(" 0\n"), "{compiler}: the interleaved loop is faster: {missed}");
        assert_eq!((digest(&cached), digest(&missed)), (digest(&plain), digest(&plain)), "{compiler}");
    }
}

#[test]
fn auto_measures_in_each_thread() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = generated(THREADS, folder.path());
    let program = folder.path().join("program");
    compile("cc", &["-O1", "-pthread", "-DGOPT_GROUP=1"], &source, &program);
    let plain = run(&program, &[]);
    let address = [&["-O1", "-pthread", "-DGOPT_GROUP=auto"], SANITIZED].concat();
    compile("cc", &address, &source, &program);
    assert_eq!(run(&program, &[]), plain);
    // Some machines cannot run programs with this sanitizer.
    compile("cc", &["-O1", "-g", "-pthread", "-DGOPT_GROUP=auto", "-fsanitize=thread"], &source, &program);
    let output = Command::new(&program).output().expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unexpected memory mapping") {
        eprintln!("skipped: the thread sanitizer cannot run here");
    } else {
        assert!(output.status.success(), "{errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), plain);
    }
}

#[test]
fn markers_with_values_are_in_each_form() {
    let text = "#include <stdio.h>\n#define FETCH(p) (*(p))\nstatic int table[64], in[100], out[100];\nint main(void)\n{\n    \
                for (int i = 0; i < 64; i++) { table[i] = i * 7; }\n    for (int i = 0; i < 100; i++) { in[i] = i * 3 % 64; }\n    \
                for (int i = 0; i < 100; i++) { out[i] = FETCH(&table[in[i]]); }\n    \
                int sum = 0;\n    for (int i = 0; i < 100; i++) { sum = sum * 3 + out[i]; }\n    printf(\"%d\\n\", sum);\n    return 0;\n}\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let markers = ["FETCH".to_owned()];
    let options = gopt::Options { name: "in.c", markers: &markers, auto: true, ..gopt::Options::default() };
    let made = gopt::transform(text, &options).unwrap_or_else(|error| panic!("{error}"));
    let (source, program) = (folder.path().join("in.c"), folder.path().join("program"));
    std::fs::write(&source, text).expect("the folder can be written");
    compile("cc", &["-O1", "-fwrapv"], &source, &program);
    let plain = run(&program, &[]);
    std::fs::write(&source, made.text).expect("the folder can be written");
    for group in ["-DGOPT_GROUP=1", "-DGOPT_GROUP=7", "-DGOPT_GROUP=auto"] {
        compile("cc", &["-O1", "-fwrapv", "-Wall", "-Werror", "-DGOPT_AUTO_SAMPLE=8", group], &source, &program);
        assert_eq!(run(&program, &[]), plain, "{group}");
    }
}
