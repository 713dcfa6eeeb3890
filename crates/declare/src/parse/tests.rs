//! Tests of complete declarations.

use crate::declaration::{Extent, Form, MeterUnit, Shape};
use crate::generate;
use crate::{Declaration, Error};

/// Example declaration from the documentation.
const POLICE: &str = r#"/* godwit function police
summary = "Drops packets of senders that are on a list."
spec    = "local policy 7"
reads   = 34                     # bytes; writes default to 0
[verdicts]
pass    = "The sender is not on the list."
marked  = { text = "On the list with a mark.", value = "the mark" }
[drops]
truncated = "The frame ends before its IPv4 header."
listed    = "On the list with mark 0, or above the limit."
[params]
limit = { type = "u32", default = 10, range = [0, 255], text = "Highest mark that passes." }
[tables.senders]
shape = "lpm4"
row   = { mark = "u32" }
capacity = 1_000_000
[test]
frames = "police.pcap"
tables.senders = "senders.csv"
params.limit = 20
*/
int x;
"#;

#[test]
fn the_example_is_read_completely() {
    let police = Declaration::parse(POLICE).unwrap();
    assert_eq!((police.name.as_str(), police.line), ("police", 1));
    assert_eq!((police.reads, police.writes), (Extent::Bytes(34), Extent::Bytes(0)));
    assert_eq!((police.number, police.has_kernel, police.form), (None, true, Form::Lane));
    assert_eq!(police.variants, ["police"]);
    assert_eq!((police.verdict("marked"), police.drop_reason("listed")), (Some(1), Some(1)));
    assert_eq!(police.verdicts[1].value, "the mark");
    assert_eq!((police.params[0].default.as_deref(), police.params[0].range), (Some("10"), Some((0, 255))));
    assert_eq!((police.tables[0].shape, police.tables[0].capacity), (Shape::Lpm4, 1_000_000));
    let test = police.test.unwrap();
    assert_eq!((test.frames.as_str(), test.expect.as_str()), ("police.pcap", "police.expect"));
    assert_eq!(test.stanza, "tables.senders = \"senders.csv\"\nparams.limit = \"20\"\n");
}

#[test]
fn the_example_gives_header_contract_page_and_schema() {
    let police = Declaration::parse(POLICE).unwrap();
    let header = generate::header::header(&police, Some(128));
    for part in [
        "#define GW_POLICE_NUMBER 128u",
        "#define GW_POLICE_MARKED 1u",
        "#define GW_POLICE_LISTED 1u",
        "gw_u32 limit;",
        "gw_police_params(const gw_lane *lane)",
        "gw_police_senders_find(const gw_lane *lane, gw_u32 address, gw_police_senders_row *row)",
    ] {
        assert!(header.contains(part), "{part} is missing in\n{header}");
    }
    let contract = generate::contract(&police, Some(128));
    assert_eq!((contract.kind, contract.kernel, contract.verdict("marked")), ("police", Some(128), Some(1)));
    assert_eq!((contract.reads_bytes, contract.writes_bytes), (34, 0));
    let page = generate::page::page(&police);
    assert!(page.contains("| `listed` (1) | `police_dropped_listed` | On the list with mark 0, or above the limit. |"));
    assert!(page.contains("| `params.limit` | u32, 0 to 255 | `10` | Highest mark that passes. |"), "{page}");
    let schema = generate::schema::schema(&police);
    assert_eq!(schema["properties"]["params"]["properties"]["limit"]["maximum"], 255);
    assert_eq!(schema["properties"]["tables"]["properties"]["senders"]["type"], "string");
}

/// Replaces a piece of text in the example declaration, and returns the resulting error.
fn error_with(line: &str, replacement: &str) -> Error {
    assert!(POLICE.contains(line), "{line}");
    Declaration::parse(&POLICE.replacen(line, replacement, 1)).unwrap_err()
}

#[test]
fn an_error_names_the_line_of_the_c_file() {
    for (line, replacement, number, part) in [
        ("reads   = 34", "reads   = 34 34", 4, "not valid TOML"),
        ("reads   = 34", "reads   = 70000", 4, "below 65535"),
        ("reads   = 34", "raeds   = 34", 4, "did you mean `reads`?"),
        ("pass    = \"The sender is not on the list.\"", "pass = 3", 6, "verdicts.pass"),
        ("truncated = ", "number = ", 1, "names a drop reason and a kernel number"),
        ("default = 10", "default = 300", 12, "between 0 and 255"),
        ("type = \"u32\"", "type = \"u33x\"", 12, "unknown type"),
        ("shape = \"lpm4\"", "shape = \"lpm\"", 13, "lpm4"),
        ("row   = { mark = \"u32\" }", "row   = { mark = \"u99\" }", 15, "unknown type"),
        ("row   = { mark = \"u32\" }", "row   = { half = \"u32\" }", 15, "reserved"),
        ("row   = { mark = \"u32\" }", "key   = { mark = \"u32\" }", 13, "has no `key`"),
        ("frames = \"police.pcap\"", "", 17, "test.frames"),
        ("summary = ", "sumary = ", 1, "`summary` is missing"),
    ] {
        let error = error_with(line, replacement);
        assert_eq!(error.line, number, "{replacement}: {error}");
        assert!(error.message.contains(part), "{replacement}: {error}");
    }
}

#[test]
fn written_bytes_are_also_read() {
    let written = |writes: &str| POLICE.replacen("reads   = 34", &format!("reads   = 34\nwrites  = {writes}"), 1);
    for writes in ["35", "\"all\""] {
        let error = Declaration::parse(&written(writes)).unwrap_err();
        assert!(error.message.contains("`writes` exceeds `reads`"), "{writes}: {error}");
    }
    let contract = generate::contract(&Declaration::parse(&written("34")).unwrap(), Some(128));
    assert_eq!((contract.reads_bytes, contract.writes_bytes), (34, 34));
}

#[test]
fn structs_have_no_holes() {
    let text = |fields: &str| {
        format!(
            "/* godwit function own\nsummary = \"x\"\nnumber = 9\n[verdicts]\npass = \"Always.\"\n\
             [structs.image]\ntext = \"Header.\"\n{fields}\n*/\n"
        )
    };
    let declaration =
        Declaration::parse(&text("fields.a = \"u32: first\"\nfields.b = \"u32\"\nfields.c = \"u64[2]\"")).unwrap();
    let header = generate::header::header(&declaration, Some(9));
    assert!(header.contains("GW_STATIC_ASSERT(sizeof(gw_own_image) == 24, own_image_size);"), "{header}");
    assert!(header.contains("GW_ASSERT_OFFSET(gw_own_image, c, 8);"), "{header}");
    let rust = generate::rust::image(&declaration);
    assert!(rust.contains("pub struct OwnImage {") && rust.contains("pub c: [u64; 2],"), "{rust}");
    for (fields, part) in [
        ("fields.a = \"u32\"\nfields.c = \"u64\"", "4 bytes before `c`"),
        ("fields.a = \"u64\"\nfields.c = \"u32\"", "the last 4 bytes"),
    ] {
        let error = Declaration::parse(&text(fields)).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
}

/// The example of a function with state in the documentation.
const NAT44: &str = r#"/* godwit function nat44
summary = "Translates IPv4 flows to a pool of addresses."
reads   = 128
writes  = 128
[verdicts]
outbound = "The source was translated."
[drops]
no_port = "The pool has no free port for this flow."
[params]
pool = { type = "ipv4[]", max = 64, text = "Their addresses outside." }
each = { type = "u32", default = 512, text = "Most sessions of one source." }
[flows.session]
key      = { address = "be32", peer = "be32", port = "be16", peer_port = "be16", protocol = "u8" }
reverse  = { mapped = "be32", mapped_port = "be16", protocol = "u8" }
row      = { mapped = "be32", mapped_port = "be16", inside = "be32", inside_port = "be16", state = "u8" }
count    = true
capacity = 2_000_000
timeout  = { udp = 300, tcp = 7440 }
limit    = { by = "address", max = "each" }
[resources.port]
addresses = "pool"
ports     = [1024, 65535]
reverse   = ["mapped", "mapped_port"]
*/
"#;

#[test]
fn flows_and_resources_are_read() {
    let nat = Declaration::parse(NAT44).unwrap();
    let flows = nat.flows.as_ref().unwrap();
    assert_eq!((flows.key.len(), flows.reverse.len(), flows.row.len()), (5, 3, 5));
    assert_eq!(flows.timers, [("udp".to_owned(), 300), ("tcp".to_owned(), 7440)]);
    assert!(nat.needs_order());
    let header = generate::header::header(&nat, Some(128));
    assert!(header.contains("#define GW_NAT44_TIMER_TCP 1u"), "{header}");
    for (line, replacement, part) in [
        ("by = \"address\"", "by = \"source\"", "no field `source`"),
        ("max = \"each\"", "max = \"most\"", "`limit.max`"),
        ("addresses = \"pool\"", "addresses = \"each\"", "`ipv4[]`"),
        ("\"mapped\", \"mapped_port\"]", "\"mapped\", \"mapped\"]", "16 bits"),
        ("timeout  = { udp = 300, tcp = 7440 }", "", "timers"),
        ("*/", "[counters]\nsent_bytes = { text = \"Bytes.\" }\n*/", "`[counters]` or `[flows]`"),
        ("[drops]\nno_port = \"The pool has no free port for this flow.\"\n", "", "need a drop reason"),
        (
            "[resources.port]\naddresses = \"pool\"\nports     = [1024, 65535]\nreverse   = [\"mapped\", \"mapped_port\"]\n",
            "",
            "a second key needs",
        ),
    ] {
        let error = Declaration::parse(&NAT44.replacen(line, replacement, 1)).unwrap_err();
        assert!(error.message.contains(part), "{replacement}: {error}");
    }
}

/// A function with a counter and a meter.
const LIMIT: &str = r#"/* godwit function limit
summary = "Limits the rate of sources."
reads   = 34
[verdicts]
pass = "The source is within its rate."
[drops]
exceeded = "The source exceeds its rate."
[counters]
lost_bytes = { unit = "bytes", text = "Bytes of dropped packets." }
[tables.rates]
shape = "meter"
key   = { source = "ipv4", protocol = "u8" }
unit  = "packets"
*/
"#;

#[test]
fn counters_and_meters_are_read() {
    let limit = Declaration::parse(LIMIT).unwrap();
    assert!(limit.needs_order());
    assert_eq!((limit.kernel_counters(), limit.tables[0].unit), (1, MeterUnit::Packets));
    let contract = generate::contract(&limit, Some(128));
    assert_eq!((contract.kernel_counters.offset % 64, contract.kernel_counters.bytes().len()), (0, 8));
    assert_eq!((contract.counters[0].name, contract.counters[0].unit), ("lost_bytes", "bytes"));
    let header = generate::header::header(&limit, Some(128));
    for part in ["void gw_limit_count_lost_bytes(const gw_lane *lane, gw_u32 value)", "gw_limit_rates_color("] {
        assert!(header.contains(part), "{header}");
    }
    assert_eq!(
        generate::page::columns(Shape::Meter, &limit.tables[0].key, &limit.tables[0].row),
        ["source", "protocol", "rate", "burst", "excess"]
    );
    for (line, replacement, part) in [
        ("lost_bytes", "busy_ns", "each function has a counter of this name"),
        ("lost_bytes", "verdict_pass", "each function has a counter of this name"),
        ("text = \"Bytes of dropped packets.\"", "", "text"),
        ("source = \"ipv4\"", "sender = \"ipv4\"", "no key field `sender`"),
        ("source = \"ipv4\"", "source = \"u32\"", "`ipv4` or `ipv6`"),
        ("unit  = \"packets\"", "unit  = \"bytes\"", "unknown unit `bytes`"),
        ("unit  = \"packets\"", "row = { rate = \"u64\" }", "row"),
        ("unit  = \"packets\"", "capacity = 65537", "at most 65536"),
        ("*/", "[tables.more]\nshape = \"meter\"\nkey = { source = \"ipv6\" }\n*/", "at most one meter"),
        ("*/", "[flows.session]\nkey = { a = \"u8\" }\ntimeout = { t = 1 }\n*/", "a meter or `[flows]`"),
    ] {
        let error = Declaration::parse(&LIMIT.replacen(line, replacement, 1)).unwrap_err();
        assert!(error.message.contains(part), "{replacement}: {error}");
    }
}
