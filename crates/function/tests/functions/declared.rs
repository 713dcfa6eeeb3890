//! Compares kernel lookups in declared tables with a model. Commands change the tables between the
//! lookups.

use std::collections::BTreeMap;
use std::sync::Arc;

use godwit_abi::{Descriptor, Outcome};
use godwit_function::{BuildContext, Function, custom};
use godwit_packet::{Arena, ArenaConfig, Region};
use godwit_test_support::{Folder, Random};
use serde_json::json;
use toml::de::DeTable;

use super::running::Idle;
use super::whole_bin::run_bin;

const PACKETS: usize = 200;

/// Returns the source of a function with one table. `lookup` fills in `row` from `frame`.
fn source(name: &str, table: &str, lookup: &str) -> String {
    format!(
        "/* godwit function {name}
summary = \"Looks up a table.\"
reads = 64
[verdicts]
found  = {{ text = \"There is a row.\", value = \"the row\" }}
absent = \"There is no row.\"
[tables.table]
{table}
row = {{ value = \"u24\" }}
*/
GW_LANE void gw_{name}_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{{
    const GW_GLOBAL gw_u8 *frame = gw_frame(lane, descriptor);
    gw_{name}_table_row row;
    row.value = 0;
{lookup}
    if (found) {{
        gw_verdict(outcome, GW_{upper}_FOUND, 0, row.value);
    }} else {{
        gw_verdict(outcome, GW_{upper}_ABSENT, 0, 0);
    }}
}}
",
        upper = name.to_ascii_uppercase()
    )
}

/// Builds a function from its source and the entries of its table.
fn build(folder: &Folder, name: &str, source: &str, header: &str, rows: &[Vec<String>]) -> Arc<dyn Function> {
    let source_path = folder.write(&format!("{name}.c"), source);
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    folder.write(&format!("{name}.csv"), format!("{header}\n{}\n", lines.join("\n")));
    let stanza = format!("source = \"{}\"\ntables.table = \"{name}.csv\"\n", source_path.display());
    let context = BuildContext { name, ports: &[], directory: folder.path() };
    let stanza = DeTable::parse(&stanza).unwrap();
    godwit_function::build(custom::KIND_NAME, stanza, &context).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn region() -> Region {
    Arena::new(ArenaConfig { packets: PACKETS, ..ArenaConfig::default() }, 1).unwrap().split().remove(0)
}

#[track_caller]
fn compare(function: &dyn Function, keys: &[Vec<u8>], expected: &[Option<u32>]) {
    let kernel = function.properties().custom_kernel.unwrap();
    let mut region = region();
    for (keys, expected) in keys.chunks(PACKETS).zip(expected.chunks(PACKETS)) {
        let mut descriptors: Vec<Descriptor> = keys.iter().map(|key| region.allocate(key.len()).unwrap()).collect();
        for (descriptor, key) in descriptors.iter().zip(keys) {
            region.frame_mut(descriptor).copy_from_slice(key);
        }
        let check = |outcomes: &[Outcome], form: &str| {
            for ((outcome, expected), key) in outcomes.iter().zip(expected).zip(keys) {
                let found = (outcome.verdict == 0).then_some(outcome.value);
                assert_eq!(found, *expected, "{form}, key {key:02x?}");
            }
        };
        for level in kernel.levels {
            for group in [0, 1, 7, 64] {
                let outcomes = run_bin(level, group, function, &mut region, &mut descriptors);
                check(&outcomes, &format!("{} in groups of {group}", level.name));
            }
        }
        let mut outcomes = Vec::new();
        for descriptor in &mut descriptors {
            let buffer = region.buffer_mut(descriptor);
            outcomes.push(function.run_ref(buffer, descriptor, 0, 0));
        }
        check(&outcomes, "ref");
        descriptors.into_iter().for_each(|descriptor| region.release(&descriptor));
    }
}

fn command(function: &dyn Function, command: &str, rows: &[Vec<String>]) {
    let request = json!({ "command": command, "table": "table", "rows": rows });
    let reply = function.operate().unwrap().command(&request, &Idle).unwrap();
    assert_eq!(reply["changed"], rows.len());
}

/// Adds, changes and removes random entries. Compares the lookups of all `keys` after each step.
fn change<K: Ord + Clone>(
    function: &dyn Function,
    random: &mut Random,
    mut model: BTreeMap<K, u32>,
    mut any_key: impl FnMut(&mut Random) -> K,
    words: impl Fn(&K) -> Vec<String>,
    keys: &[Vec<u8>],
    lookup: impl Fn(&BTreeMap<K, u32>, &[u8]) -> Option<u32>,
) {
    for step in 0..6 {
        let expected: Vec<Option<u32>> = keys.iter().map(|key| lookup(&model, key)).collect();
        compare(function, keys, &expected);
        if step % 2 == 0 {
            let added: BTreeMap<K, u32> = (0..50).map(|_| (any_key(random), random.below(1u32 << 24))).collect();
            let rows: Vec<Vec<String>> =
                added.iter().map(|(key, value)| [words(key), vec![format!("value={value}")]].concat()).collect();
            command(function, "add", &rows);
            model.extend(added);
        } else {
            let removed: Vec<K> = model.keys().filter(|_| random.one_in(4)).cloned().collect();
            command(function, "remove", &removed.iter().map(&words).collect::<Vec<_>>());
            for key in &removed {
                model.remove(key);
            }
        }
    }
}

fn rows<K>(model: &BTreeMap<K, u32>, words: impl Fn(&K) -> Vec<String>) -> Vec<Vec<String>> {
    model.iter().map(|(key, value)| [words(key), vec![value.to_string()]].concat()).collect()
}

#[test]
fn exact_tables_agree_with_a_map() {
    let (folder, mut random) = (Folder::new(), Random::new(1));
    for (name, key, bytes) in [("packed", "be32", 4), ("wide", "be64", 8)] {
        let table = format!("shape = \"exact\"\nkey = {{ a = \"be16\", b = \"{key}\" }}\ncapacity = 2000");
        let load = if bytes == 4 { "gw_load_be32" } else { "gw_load_be64" };
        let lookup = format!(
            "    gw_{name}_table_key key;\n    key.a = (gw_u16)gw_load_be16(frame);\n    key.b = {load}(frame + 2);\n    \
             const gw_u32 found = gw_{name}_table_find(lane, &key, &row);"
        );
        let any_key = |random: &mut Random| (random.below(8u16), random.below(300u64) << (8 * bytes - 9));
        let words = |(a, b): &(u16, u64)| vec![a.to_string(), b.to_string()];
        let model: BTreeMap<_, u32> = (0..500).map(|_| (any_key(&mut random), random.below(1u32 << 24))).collect();
        let function = build(&folder, name, &source(name, &table, &lookup), "a,b,value", &rows(&model, words));
        let keys: Vec<Vec<u8>> = (0..400)
            .map(|_| {
                let (a, b) = any_key(&mut random);
                [&a.to_be_bytes()[..], &b.to_be_bytes()[8 - bytes..], &[0; 50]].concat()
            })
            .collect();
        change(&*function, &mut random, model, any_key, words, &keys, |model, frame| {
            let a = u16::from_be_bytes([frame[0], frame[1]]);
            let b = frame[2..2 + bytes].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            model.get(&(a, b)).copied()
        });
    }
}

#[test]
fn lpm4_tables_agree_with_a_scan() {
    let (folder, mut random) = (Folder::new(), Random::new(2));
    let lookup = "    const gw_u32 found = gw_prefixes_table_find(lane, gw_load_be32(frame), &row);";
    // The addresses lie in few networks. Many prefixes thus cover each other.
    let any_address = |random: &mut Random| 0x0a00_0000 | random.below(4u32) << 8 | random.below(256u32);
    let any_key = |random: &mut Random| {
        let length = 16 + random.below(17u32) as u8;
        (any_address(random) & u32::MAX << (32 - length), length)
    };
    let words = |(prefix, length): &(u32, u8)| vec![format!("{}/{length}", std::net::Ipv4Addr::from(*prefix))];
    let model: BTreeMap<_, u32> = (0..60).map(|_| (any_key(&mut random), random.below(1u32 << 24))).collect();
    let table = "shape = \"lpm4\"\ncapacity = 1000";
    let function = build(&folder, "prefixes", &source("prefixes", table, lookup), "prefix,value", &rows(&model, words));
    let keys: Vec<Vec<u8>> =
        (0..400).map(|_| [&any_address(&mut random).to_be_bytes()[..], &[0; 60]].concat()).collect();
    change(&*function, &mut random, model, any_key, words, &keys, |model, frame| {
        let address = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        let covers = |(prefix, length): &(u32, u8)| (address ^ prefix).checked_shr(32 - u32::from(*length)) == Some(0);
        let best = model.iter().filter(|(key, _)| covers(key)).max_by_key(|((_, length), _)| *length);
        best.map(|(_, value)| *value)
    });
}

#[test]
fn lpm6_tables_agree_with_a_scan() {
    let (folder, mut random) = (Folder::new(), Random::new(6));
    let lookup = "    const gw_u32 found =\n        gw_networks_table_find(lane, gw_load_be64(frame), gw_load_be64(frame + 8), &row);";
    // Few networks, so that prefixes cover each other.
    let any_address = |random: &mut Random| {
        let low = u128::from(random.below(3u32)) << 62 | u128::from(random.below(16u32));
        0x2001_0db8 << 96 | u128::from(random.below(4u32)) << 64 | low
    };
    let mask = |length: u8| u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let any_key = |random: &mut Random| {
        let length = random.pick(&[0, 32, 62, 63, 64, 65, 66, 124, 125, 126, 127, 128]);
        (any_address(random) & mask(length), length)
    };
    let words = |(prefix, length): &(u128, u8)| vec![format!("{}/{length}", std::net::Ipv6Addr::from(*prefix))];
    let model: BTreeMap<_, u32> = (0..60).map(|_| (any_key(&mut random), random.below(1u32 << 24))).collect();
    let table = "shape = \"lpm6\"\ncapacity = 1000";
    let function = build(&folder, "networks", &source("networks", table, lookup), "prefix,value", &rows(&model, words));
    let keys: Vec<Vec<u8>> =
        (0..400).map(|_| [&any_address(&mut random).to_be_bytes()[..], &[0; 48]].concat()).collect();
    change(&*function, &mut random, model, any_key, words, &keys, |model, frame| {
        let address = u128::from_be_bytes(frame[..16].try_into().unwrap());
        let covers = |(prefix, length): &(u128, u8)| (address ^ prefix) & mask(*length) == 0;
        let best = model.iter().filter(|(key, _)| covers(key)).max_by_key(|((_, length), _)| *length);
        best.map(|(_, value)| *value)
    });
}

#[test]
fn strings_agree_with_a_scan() {
    let (folder, mut random) = (Folder::new(), Random::new(7));
    let source = "/* godwit function words
summary = \"Searches byte strings.\"
reads = 64
[verdicts]
found  = { text = \"There is a pattern.\", value = \"number of matches, and the pattern that ends first\" }
absent = \"There is none.\"
[tables.table]
shape = \"strings\"
capacity = 1000
*/
GW_LANE void gw_words_packet(const gw_lane *lane, gw_descriptor *descriptor, gw_outcome *outcome)
{
    gw_u32 first = 0;
    const gw_u32 found = gw_words_table_search(lane, gw_frame(lane, descriptor), 64, &first);
    gw_verdict(outcome, found ? GW_WORDS_FOUND : GW_WORDS_ABSENT, 0, found << 16 | first);
}
";
    // Few letters, so that patterns overlap. One of them needs hexadecimal digits.
    let any_word =
        |random: &mut Random| -> Vec<u8> { (0..1 + random.below(5u32)).map(|_| random.pick(b"ab,\0")).collect() };
    let text = |word: &Vec<u8>| -> String {
        word.iter().map(|byte| if *byte == 0 { "|00|".to_owned() } else { char::from(*byte).to_string() }).collect()
    };
    let mut model: std::collections::BTreeSet<Vec<u8>> = (0..40).map(|_| any_word(&mut random)).collect();
    let entries: Vec<Vec<String>> = model.iter().map(|word| vec![text(word)]).collect();
    let function = build(&folder, "words", source, "pattern", &entries);
    let keys: Vec<Vec<u8>> = (0..400).map(|_| (0..64).map(|_| random.pick(b"ab,\0xyz")).collect()).collect();
    for step in 0..6 {
        let search = |frame: &Vec<u8>| {
            let ends = |end: usize| model.iter().enumerate().filter(move |(_, word)| frame[..end].ends_with(word));
            let first = (1..=64).find_map(|end| ends(end).next()).map(|(number, _)| number as u32)?;
            Some((1..=64).map(|end| ends(end).count() as u32).sum::<u32>() << 16 | first)
        };
        let expected: Vec<Option<u32>> = keys.iter().map(search).collect();
        compare(&*function, &keys, &expected);
        let changed: Vec<Vec<u8>> = match step % 2 {
            0 => {
                (0..20).map(|_| any_word(&mut random)).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
            }
            _ => model.iter().filter(|_| random.one_in(4)).cloned().collect(),
        };
        let words: Vec<Vec<String>> = changed.iter().map(|word| vec![text(word)]).collect();
        command(&*function, if step % 2 == 0 { "add" } else { "remove" }, &words);
        for word in changed {
            if step % 2 == 0 {
                model.insert(word)
            } else {
                model.remove(&word)
            };
        }
    }
}

#[test]
fn arrays_agree_with_a_map() {
    let (folder, mut random) = (Folder::new(), Random::new(3));
    let lookup = "    const gw_u32 found = gw_numbers_table_find(lane, gw_load_be16(frame), &row);";
    let words = |index: &u16| vec![index.to_string()];
    let any_key = |random: &mut Random| random.below(300u16);
    let model: BTreeMap<_, u32> = (0..100).map(|_| (any_key(&mut random), random.below(1u32 << 24))).collect();
    let table = "shape = \"array\"\ncapacity = 300";
    let function = build(&folder, "numbers", &source("numbers", table, lookup), "index,value", &rows(&model, words));
    let keys: Vec<Vec<u8>> = (0u16..400).map(|index| [&index.to_be_bytes()[..], &[0; 62]].concat()).collect();
    change(&*function, &mut random, model, any_key, words, &keys, |model, frame| {
        model.get(&u16::from_be_bytes([frame[0], frame[1]])).copied()
    });
}

/// Key of a rule: its priority, a prefix with its length, and the first and last port.
type Rule = (u32, u32, u8, u16, u16);

#[test]
fn acl_tables_agree_with_a_scan() {
    let (folder, mut random) = (Folder::new(), Random::new(4));
    let lookup = "    gw_rules_table_key key;\n    key.address = gw_load_be32(frame);\n    \
                  key.port = (gw_u16)gw_load_be16(frame + 4);\n    \
                  const gw_u32 found = gw_rules_table_find(lane, &key, &row);";
    let mut priority = 0;
    let mut any_key = move |random: &mut Random| -> Rule {
        priority += 1;
        let length = random.pick(&[0, 8, 24, 32]);
        let address = 0x0a00_0000 | random.below(4u32) << 8 | random.below(8u32);
        let first = random.below(100u16);
        let prefix = if length == 0 { 0 } else { address & u32::MAX << (32 - u32::from(length)) };
        // All priorities differ, so one rule is the best.
        (priority * 7919 % 100_003, prefix, length, first, first + random.below(50u16))
    };
    let words = |(priority, prefix, length, first, last): &Rule| {
        vec![priority.to_string(), format!("{}/{length}", std::net::Ipv4Addr::from(*prefix)), format!("{first}-{last}")]
    };
    let model: BTreeMap<_, u32> = (0..40).map(|_| (any_key(&mut random), random.below(1u32 << 24))).collect();
    let table = "shape = \"acl\"\nkey = { address = \"ipv4\", port = \"be16\" }\ncapacity = 400";
    let header = "priority,address,port,value";
    let function = build(&folder, "rules", &source("rules", table, lookup), header, &rows(&model, words));
    let keys: Vec<Vec<u8>> = (0..400)
        .map(|_| {
            let address = 0x0a00_0000 | random.below(4u32) << 8 | random.below(8u32);
            [&address.to_be_bytes()[..], &random.below(160u16).to_be_bytes(), &[0; 58]].concat()
        })
        .collect();
    change(&*function, &mut random, model, any_key, words, &keys, |model, frame| {
        let address = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        let port = u16::from_be_bytes([frame[4], frame[5]]);
        let matches = |(_, prefix, length, first, last): &Rule| {
            let covered = *length == 0 || (address ^ prefix) >> (32 - u32::from(*length)) == 0;
            covered && (*first..=*last).contains(&port)
        };
        // Rules are sorted by priority.
        model.iter().find(|(rule, _)| matches(rule)).map(|(_, value)| *value)
    });
}

#[test]
fn maglev_tables_return_existing_rows_and_move_few_keys() {
    let (folder, mut random) = (Folder::new(), Random::new(5));
    let lookup = "    const gw_u32 found = gw_backends_table_find(lane, gw_load_be32(frame), &row);";
    let table = "shape = \"maglev\"\ncapacity = 50";
    let model: BTreeMap<String, u32> = (0..20).map(|number| (format!("backend-{number}"), number)).collect();
    let words = |name: &String| vec![name.clone()];
    let function = build(&folder, "backends", &source("backends", table, lookup), "name,value", &rows(&model, words));
    let keys: Vec<Vec<u8>> = (0..400).map(|_| [&random.next_u32().to_be_bytes()[..], &[0; 60]].concat()).collect();
    let found = |function: &dyn Function| -> Vec<Option<u32>> {
        let mut region = region();
        let mut lookup = |key: &Vec<u8>| {
            let mut descriptor = region.allocate(key.len()).unwrap();
            region.frame_mut(&descriptor).copy_from_slice(key);
            let buffer = region.buffer_mut(&descriptor);
            let outcome = function.run_ref(buffer, &mut descriptor, 0, 0);
            region.release(&descriptor);
            (outcome.verdict == 0).then_some(outcome.value)
        };
        keys.iter().map(&mut lookup).collect()
    };
    let before = found(&*function);
    compare(&*function, &keys, &before);
    command(&*function, "remove", &[vec!["backend-7".to_owned()]]);
    let after = found(&*function);
    compare(&*function, &keys, &after);
    assert!(after.iter().all(|value| value.is_some_and(|value| value < 20 && value != 7)));
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after && **before != Some(7)).count();
    assert!(moved < keys.len() / 10, "{moved} of {}", keys.len());
}

#[test]
fn mistakes_of_the_author_are_refused() {
    let folder = Folder::new();
    let context = BuildContext { name: "mine", ports: &[], directory: folder.path() };
    let good = source("mine", "shape = \"array\"", "    const gw_u32 found = gw_mine_table_find(lane, 1, &row);");
    let refused = |source: &str, keys: &str| {
        folder.write("mine.c", source);
        let stanza = format!("source = \"mine.c\"\n{keys}");
        godwit_function::build(custom::KIND_NAME, DeTable::parse(&stanza).unwrap(), &context)
            .err()
            .unwrap_or_else(|| panic!("accepted: {keys}"))
            .to_string()
    };
    for (before, after, parts) in [
        ("row.value = 0;", "row.valeu = 0;", &["mine.c:15: ", "valeu"][..]),
        ("row.value = 0;", "row.value = 0", &["mine.c:1", "expected"]),
        ("row.value = 0;", "puts(\"x\");", &["mine.c:15: ", "puts"]),
        ("row.value = 0;", "goto end;", &["mine.c:15: ", "`goto`"]),
        ("row.value = 0;", "#include <stdio.h>", &["mine.c:15: ", "one file"]),
        ("reads = 64", "raeds = 64", &["mine.c:3: ", "raeds"]),
        ("shape = \"array\"", "shape = \"arary\"", &["arary", "array"]),
        ("shape = \"array\"", "shape = \"strings\"", &["mine.c", "has no `row`"]),
        ("function mine", "function ipv4", &["built-in"]),
    ] {
        assert!(good.contains(before));
        let message = refused(&good.replace(before, after), "");
        assert!(parts.iter().all(|part| message.contains(part)) && !message.contains('\n'), "{after}: {message}");
    }
    folder.write("bad.csv", "index,value\n1,2\n1,3\n");
    folder.write("header.csv", "index,valeu\n");
    folder.write("wide.csv", "index,value\n1,2,3\n");
    folder.write("large.csv", "index,value\n1024,3\n");
    for (keys, part) in [
        ("tables.table = \"bad.csv\"", "bad.csv:3: line 2 has the same key"),
        ("tables.table = \"header.csv\"", "header.csv:1: there is no column `valeu`"),
        ("tables.table = \"wide.csv\"", "wide.csv:2: "),
        ("tables.table = \"large.csv\"", "not below the capacity 1024"),
        ("tables.table = \"absent.csv\"", "absent.csv: "),
        ("tables.other = \"bad.csv\"", "no `tables.other`"),
        ("params.limit = 3", "declares no `params`"),
    ] {
        let message = refused(&good, keys);
        assert!(message.contains(part), "{keys}: {message}");
    }
}

#[test]
fn mistakes_of_the_operator_are_refused() {
    let folder = Folder::new();
    let lookup = "    const gw_u32 found = gw_small_table_find(lane, 1, &row);";
    let function =
        build(&folder, "small", &source("small", "shape = \"array\"\ncapacity = 2", lookup), "index,value", &[]);
    for (request, part) in [
        (json!({ "command": "add" }), "\"table\" must be one of `table`"),
        (json!({ "command": "drop", "table": "table" }), "add, remove and list"),
        (json!({ "command": "add", "table": "table" }), "\"rows\""),
        (json!({ "command": "add", "table": "table", "rows": [["1"]] }), "`value` is missing"),
        (json!({ "command": "add", "table": "table", "rows": [["1", "2", "3"]] }), "one value too many"),
        (json!({ "command": "add", "table": "table", "rows": [["1", "index=2"]] }), "two values"),
        (json!({ "command": "add", "table": "table", "rows": [["7", "2"]] }), "not below the capacity"),
        (json!({ "command": "remove", "table": "table", "rows": [["1"]] }), "no entry 1"),
    ] {
        let message = function.operate().unwrap().command(&request, &Idle).unwrap_err().to_string();
        assert!(message.contains(part), "{request}: {message}");
    }
    command(&*function, "add", &[vec!["1".to_owned(), "2".to_owned()]]);
    let list = function.operate().unwrap().command(&json!({ "command": "list", "table": "table" }), &Idle).unwrap();
    assert_eq!(list, json!({ "columns": ["index", "value"], "rows": [["1", "2"]], "total": 1 }));
}
