fn main() {
    let name = std::env::args().nth(1).unwrap_or("engine".into());
    let peers = std::env::args().nth(2).is_some();
    let rows = godwit_bench::run(&name, &godwit_bench::BenchOptions { peers, ..Default::default() }, &mut |line| eprintln!("{line}")).unwrap();
    for row in rows { println!("{}", serde_json::to_string(&row).unwrap()); }
}
