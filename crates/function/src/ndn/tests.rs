use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::testing::{self, Directory, build_error, build_ok, run};

const NEXT_HOPS: &str = r#"
    [[next_hop]]
    name = "east"
    port = "b"
    destination_mac = "02:00:00:00:00:0a"
    source_mac = "02-00-00-00-00-0B"
    [[next_hop]]
    name = "here"
    local = true
    [[next_hop]]
    name = "nowhere"
    blackhole = true
"#;

fn element(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind, value.len() as u8][..], value].concat()
}

/// Returns a frame with an Interest for a name.
fn interest(uri: &str, hop_limit: Option<u8>) -> Vec<u8> {
    let mut name = Vec::new();
    parse_uri(uri.as_bytes(), &mut name).unwrap();
    let mut inside = [element(7, &name), element(10, &[1, 2, 3, 4])].concat();
    inside.extend(hop_limit.map(|hops| element(34, &[hops])).unwrap_or_default());
    [&[0x11; 12][..], &[0x86, 0x24], &element(5, &inside)].concat()
}

fn routes(routes: &[(&str, &str)]) -> String {
    let route = |(prefix, hop): &(&str, &str)| format!("[[route]]\nprefix = \"{prefix}\"\nnext_hop = \"{hop}\"\n");
    routes.iter().map(route).collect::<String>() + NEXT_HOPS
}

#[test]
fn an_interest_goes_by_its_longest_prefix() {
    let table = [("/a", "east"), ("/a/b", "here"), ("/a/b/c/d", "nowhere"), ("/x", "nowhere"), ("/x/...", "here")];
    let function = build_ok(&KIND, &routes(&table), &["a", "b"]);
    let forward = Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) };
    let local = Outcome { value: 1, ..Outcome::verdict(VERDICT_LOCAL) };
    for (name, expected) in [
        ("/a", forward),
        ("/a/x/y/z", forward),
        ("/a/b", local),
        ("/a/b/c", local),
        ("/a/b/c/d", Outcome::drop(DROP_BLACKHOLE)),
        ("/a/b/c/d/e", Outcome::drop(DROP_BLACKHOLE)),
        ("/a/b/c/e", local),
        ("/ab", Outcome::drop(DROP_NO_ROUTE)),
        ("/x", Outcome::drop(DROP_BLACKHOLE)),
        ("/x/.../y", local),
        ("/32=a", Outcome::drop(DROP_NO_ROUTE)),
    ] {
        let mut frame = interest(name, Some(9));
        assert_eq!(run(&*function, &mut frame), expected, "{name}");
        assert_eq!(frame.last(), Some(&if expected == forward { 8 } else { 9 }), "{name}");
    }
    let with_default = [&table[..], &[("/", "east"), ("ndn:/a/b/c/d", "here")]].concat();
    let function = build_ok(&KIND, &routes(&with_default), &["a", "b"]);
    assert_eq!(run(&*function, &mut interest("/ab", None)), forward);
    assert_eq!(run(&*function, &mut interest("/a/b/c/d", None)), local, "the last word counts");
}

#[test]
fn hops_end_before_the_next_station_and_not_before_this_one() {
    let function = build_ok(&KIND, &routes(&[("/a", "east"), ("/b", "here")]), &["a", "b"]);
    for (name, hops, expected) in [
        ("/a", 0, Outcome::drop(DROP_HOP_LIMIT)),
        ("/a", 1, Outcome::drop(DROP_HOP_LIMIT)),
        ("/a", 2, Outcome { port: 1, ..Outcome::verdict(VERDICT_FORWARD) }),
        ("/b", 0, Outcome::drop(DROP_HOP_LIMIT)),
        ("/b", 1, Outcome { value: 1, ..Outcome::verdict(VERDICT_LOCAL) }),
    ] {
        assert_eq!(run(&*function, &mut interest(name, Some(hops))), expected, "{name} {hops}");
    }
}

#[test]
fn names_come_from_file_and_stanza_and_wrong_lines_are_named() {
    let directory = Directory::new("ndn-names");
    std::fs::write(directory.0.join("names.txt"), "/a nowhere\n/a here\n/b\n").unwrap();
    let build = |stanza: &str| testing::build(&KIND, &format!("{stanza}\n{NEXT_HOPS}"), &["a", "b"], &directory.0);
    let function = build("names = \"names.txt\"\ndefault_next_hop = \"nowhere\"").unwrap();
    assert_eq!(run(&*function, &mut interest("/a", None)).verdict, VERDICT_LOCAL);
    assert_eq!(run(&*function, &mut interest("/b", None)), Outcome::drop(DROP_BLACKHOLE));
    let stanza = "default_next_hop = \"nowhere\"\n[[route]]\nprefix = \"/a\"\nnext_hop = \"east\"";
    let function = build(&format!("names = \"names.txt\"\n{stanza}")).unwrap();
    assert_eq!(run(&*function, &mut interest("/a", None)).verdict, VERDICT_FORWARD);
    let error = build("names = \"names.txt\"").err().unwrap().to_string();
    assert!(error.contains("names.txt:3: ") && error.contains("default_next_hop"), "{error}");
    let error = testing::build(&KIND, "names = \"n.txt\"", &[], Path::new("/nonexistent")).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/n.txt: "), "{error}");
}

#[test]
fn wrong_stanzas_are_refused_with_the_reason() {
    let hop = |keys: &str| {
        format!(
            "[[route]]\nprefix = \"/a\"\nnext_hop = \"x\"\n[[next_hop]]\nname = \"x\"\nport = \"a\"\n\
             destination_mac = \"02:00:00:00:00:01\"\nsource_mac = \"02:00:00:00:00:02\"\n{keys}"
        )
    };
    for (stanza, part) in [
        (String::new(), "has no names"),
        ("name_file = 1".to_owned(), "name_file"),
        (routes(&[("a", "here")]), "does not begin with /"),
        (routes(&[("/a//b", "here")]), "nothing between"),
        (routes(&[("/a", "their")]), "no next hop has the name \"their\""),
        ("[[route]]\nprefix = \"/a\"".to_owned(), "no default_next_hop"),
        ("spare_next_hops = 100000\n[[route]]\nprefix = \"/a\"".to_owned(), "no default_next_hop"),
        (format!("spare_next_hops = 100000\n{}", routes(&[("/a", "here")])), "at most 65536"),
        (hop("local = true"), "either"),
        (hop("source_address = \"192.0.2.1\""), "needs both"),
        (hop("source_address = \"192.0.2.1\"\ndestination_address = \"2001:db8::1\""), "different IP versions"),
        (hop("source_address = \"192.0.2\"\ndestination_address = \"192.0.2.1\""), "not an IP address"),
        (hop("source_address = \"0.0.0.0\"\ndestination_address = \"192.0.2.1\""), "not the address of a station"),
        (hop("source_port = 5"), "needs both"),
    ] {
        let error = build_error(&KIND, &stanza, &["a", "b"]).to_string();
        assert!(error.contains(part), "{stanza}: {error}");
    }
}

/// A lookup compares whole names and not only hashes. The table has one bucket with two names,
/// whose hashes are partly equal.
#[test]
fn equal_fingerprints_do_not_make_equal_names() {
    let key = [3, 4];
    let name = |number: u32| element(8, format!("{number}").as_bytes());
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let (one, other) = (0..)
        .find_map(|number| {
            let fingerprint = (hash::hash(key, &name(number)) >> 32) as u32;
            seen.insert(fingerprint, number).map(|before| (before, number))
        })
        .unwrap();
    let mut names = Names::new();
    names.push(&name(one), 0);
    let hops = vec![("here".to_owned(), NextHop::Local), ("nowhere".to_owned(), NextHop::Blackhole)];
    let mut control = Control::new(Parts { key: Some(key), spare_names: 0, ..Parts::new(names, hops) }).unwrap();
    let table = control.table_mut();
    assert_eq!((table.next_hop(&name(one)), table.next_hop(&name(other))), (Some(0), None));
}

/// Names that collide in one bucket under a known hash key do not collide under another hash key.
/// Two tables never have the same hash key.
#[test]
fn collisions_of_names_cannot_be_chosen() {
    const CROWD: usize = 64;
    let bucket = |key: [u64; 2], name: &[u8]| hash::hash(key, name) & 0xfff;
    let name = |number: u32| element(8, format!("{number}").as_bytes());
    let crowd: Vec<Vec<u8>> = (0..).map(name).filter(|name| bucket([3, 4], name) == 7).take(CROWD).collect();
    let other = hash::random_key();
    let buckets: std::collections::HashSet<u64> = crowd.iter().map(|name| bucket(other, name)).collect();
    // Few of these names fall into the same bucket by chance.
    assert!(buckets.len() > CROWD * 2 / 3, "{} buckets for {CROWD} names", buckets.len());
    let [one, two] = [(); 2].map(|()| build_ok(&KIND, &routes(&[("/a", "here")]), &["a", "b"]).image().to_vec());
    assert!(one.len() == two.len() && one != two, "two tables have the same secret");
}

#[test]
fn a_table_is_full_when_it_is_full() {
    let mut names = Names::new();
    names.push(&element(8, b"a"), 0);
    let hops = vec![("here".to_owned(), NextHop::Local)];
    let mut control = Control::new(Parts { spare_names: 2, ..Parts::new(names, hops) }).unwrap();
    let table = control.table_mut();
    let mut written = Default::default();
    let added =
        (0u32..100).take_while(|number| table.insert(&element(8, &number.to_be_bytes()), 0, &mut written).is_ok());
    let added = added.count();
    assert!((2..=8).contains(&added), "{added}");
    assert_eq!(table.len(), added as u64 + 1);
    // The units of freed records are used again.
    for number in 0u32..1000 {
        let before = element(8, &if number == 0 { 0 } else { 1000 + number - 1 }.to_be_bytes());
        let freed = table.remove(&before, &mut written).unwrap();
        table.free_records(freed);
        table.insert(&element(8, &(1000 + number).to_be_bytes()), 0, &mut written).unwrap();
    }
    assert_eq!(table.len(), added as u64 + 1);
}

#[test]
fn a_look_up_costs_less_with_guides() {
    let mut names = Names::new();
    for site in 0..1000 {
        names.push_uri(format!("/com/site{site}").as_bytes(), 0).unwrap();
        if site % 10 == 0 {
            names.push_uri(format!("/com/site{site}/a/b/c/d").as_bytes(), 0).unwrap();
        }
    }
    let shape = shape::Shape::new(&names, [1, 2], None);
    assert_eq!((shape.guide, shape.entries), (2, 1200));
    let Probes { guided, longest_first, binary } = probes(&names, shape.guide, 4);
    assert!(guided < 1.3 && longest_first > 1.8 && binary > 1.0, "{guided} {longest_first} {binary}");
}
