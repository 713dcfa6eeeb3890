//! Proposed markers: their places, the patch, and the transformation of the patched text.

use std::process::Command;

use crate::common::{compile, has, run};

/// Program with four loops whose accesses depend on memory, and one that reads in order.
const PLAIN: &str = r#"#include <stdint.h>
#include <stdio.h>

struct entry {
    uint32_t key, value;
    struct entry *next;
};
static struct entry entries[4096];
static struct entry *heads[16384];
static uint32_t table[65536], in[1000], out[1000];

static struct entry *find(struct entry *entry, uint32_t key)
{
    while (entry && entry->key != key) {
        entry = entry->next;
    }
    return entry;
}

static void chains(int n)
{
    for (int i = 0; i < n; i++) {
        const struct entry *found = find(heads[in[i] & 16383], in[i]);
        out[i] = found ? found->value : 0;
    }
}

static void indirect(int n)
{
    for (int i = 0; i < n; i++) {
        uint32_t first = table[in[i] & 65535];
        if (first & 1) {
            first += table[first & 65535];
        }
        out[i] += first;
    }
}

static uint32_t search(const uint32_t *sorted, uint32_t count, uint32_t key)
{
    uint32_t low = 0;
    while (count > 1) {
        const uint32_t half = count / 2;
        low = sorted[low + half] <= key ? low + half : low;
        count -= half;
    }
    return low;
}

static void sums(int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += in[i] * 3u;
    }
    printf("%llu\n", (unsigned long long)sum);
}

int main(void)
{
    uint32_t state = 1;
    for (int i = 0; i < 4096; i++) {
        state = state * 1664525u + 1013904223u;
        entries[i] = (struct entry){state >> 12, state, heads[state >> 12 & 16383]};
        heads[state >> 12 & 16383] = &entries[i];
    }
    for (int i = 0; i < 65536; i++) {
        table[i] = state = state * 1664525u + 1013904223u;
    }
    for (int i = 0; i < 1000; i++) {
        in[i] = i & 1 ? entries[i].key : (uint32_t)i * 7919u;
    }
    chains(1000);
    indirect(1000);
    sums(1000);
    for (int i = 0; i < 1000; i++) {
        printf("%u %u\n", out[i], search(table, 9, in[i]) < 9);
    }
    return 0;
}
"#;

#[test]
fn the_patched_text_is_transformed_and_computes_the_same() {
    let options = gopt::Options { name: "in.c", ..gopt::Options::default() };
    let found = gopt::suggest(PLAIN, &options).expect("the text is C");
    let addresses: Vec<&str> = found.places.iter().map(|(_, address)| address.as_str()).collect();
    for expected in ["entry", "found", "&heads[in[i] & 16383]", "&table[in[i] & 65535]", "&table[first & 65535]"] {
        assert!(addresses.contains(&expected), "{expected}: {addresses:?}");
    }
    // Reads in order, and tables that fit into the first caches, need no marker.
    assert!(!addresses.iter().any(|address| address.contains("in[i]]") || *address == "&in[i]"), "{addresses:?}");
    // The loop around the binary search prints, so its marker is left out.
    assert!(!found.text.contains("g_expensive(&sorted"), "{}", found.patch);
    assert!(matches!(&found.refused[..], [one] if one.contains("printf")), "{:?}", found.refused);

    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, program) = (folder.path().join("in.c"), folder.path().join("program"));
    std::fs::write(&source, PLAIN).expect("the folder can be written");
    compile("cc", &["-w", "-O1"], &source, &program);
    let plain = run(&program, &[]);
    if has("patch") {
        let patch = folder.path().join("markers.patch");
        std::fs::write(&patch, &found.patch).expect("the folder can be written");
        let status = Command::new("patch").current_dir(folder.path()).args(["-p1", "-s", "-i"]).arg(&patch).status();
        assert!(status.expect("patch starts").success(), "{}", found.patch);
        assert_eq!(std::fs::read_to_string(&source).expect("the source remains"), found.text);
    }
    std::fs::write(&source, &found.text).expect("the folder can be written");
    compile("cc", &["-w", "-O1"], &source, &program);
    assert_eq!(run(&program, &[]), plain, "markers change nothing");
    let made = gopt::transform(&found.text, &options).unwrap_or_else(|error| panic!("{error}\n{}", found.patch));
    assert_eq!(made.loops.len(), 2, "{:?}", made.loops);
    std::fs::write(&source, &made.text).expect("the folder can be written");
    compile("cc", &["-w", "-O2", "-DGOPT_GROUP=7"], &source, &program);
    assert_eq!(run(&program, &[]), plain, "{}", made.text);
}

#[test]
fn a_text_without_dependent_accesses_needs_no_marker() {
    let options = gopt::Options { name: "in.c", ..gopt::Options::default() };
    let text = "int sum(const int *v, int n)\n{\n    int s = 0;\n    for (int i = 0; i < n; i++) { s += v[i]; }\n    return s;\n}\n";
    let found = gopt::suggest(text, &options).expect("the text is C");
    assert!(found.patch.is_empty() && found.places.is_empty(), "{}", found.patch);
    assert_eq!(found.text, text);
}
