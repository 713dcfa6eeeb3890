//! Chains as operators write them: what wins, what is refused, what is drawn.

use godwit_chain::{Chain, Edge, Error, Function, Next, Port, Verdict, Warning};

fn port(name: &str) -> Port {
    Port { name: name.to_owned(), receives: true, transmits: true }
}

fn function(name: &str, verdicts: &[&str]) -> Function {
    let verdict = |name: &&str| Verdict { name: (*name).to_owned(), chooses_port: *name == "chosen" };
    Function { name: name.to_owned(), kind: format!("{name}-kind"), verdicts: verdicts.iter().map(verdict).collect() }
}

/// `"lan [web] forward -> route"`: class in brackets and verdict may be absent.
fn edge(text: &str) -> Edge {
    let (left, to) = text.split_once(" -> ").unwrap();
    let mut words = left.split(' ');
    let mut edge = Edge { from: words.next().unwrap().to_owned(), to: to.to_owned(), ..Edge::default() };
    for word in words {
        match word.strip_prefix('[') {
            Some(class) => edge.class = Some(class.trim_end_matches(']').to_owned()),
            None => edge.verdict = Some(word.to_owned()),
        }
    }
    edge
}

fn chain(edges: &[&str]) -> Result<Chain, Error> {
    let ports = vec![port("lan"), port("wan")];
    let functions = vec![
        function("route", &["forward", "local"]),
        function("scan", &["clean", "match"]),
        function("echo", &["chosen"]),
    ];
    let edges: Vec<Edge> = edges.iter().map(|text| edge(text)).collect();
    Chain::new(ports, functions, &["web".to_owned(), "dns".to_owned()], &edges)
}

fn refusal(edges: &[&str]) -> (usize, String) {
    let error = chain(edges).unwrap_err();
    (error.edge(), error.to_string())
}

#[test]
fn the_most_specific_edge_wins() {
    let chain = chain(&[
        "lan -> route",
        "lan [web] -> drop",
        "route -> wan",
        "route [web] -> drop",
        "route local -> lan",
        "route [web] local -> scan",
        "scan -> wan",
    ])
    .unwrap();
    let decider = chain.decider();
    assert_eq!(decider.entry(0, 0), Next::Function(0));
    assert_eq!(decider.entry(0, 1), Next::Drop);
    assert_eq!(decider.entry(0, 2), Next::Function(0));
    assert_eq!(decider.entry(1, 0), Next::None);
    assert_eq!(decider.next(0, 0, 0), Next::Port(1));
    assert_eq!(decider.next(0, 1, 0), Next::Drop);
    assert_eq!(decider.next(0, 0, 1), Next::Port(0), "a verdict is more specific than a class");
    assert_eq!(decider.next(0, 2, 1), Next::Port(0));
    assert_eq!(decider.next(0, 1, 1), Next::Function(1));
    assert_eq!(decider.next(0, 1, 255), Next::Drop);
}

#[test]
fn the_default_class_can_be_named() {
    let chain = chain(&["lan [default] -> wan"]).unwrap();
    assert_eq!(chain.decider().entry(0, 0), Next::Port(1));
    assert_eq!(chain.decider().entry(0, 1), Next::None);
}

#[test]
fn egress_is_for_verdicts_that_choose_a_port() {
    let good = chain(&["lan -> echo", "echo -> egress"]).unwrap();
    assert_eq!(good.decider().next(2, 0, 0), Next::Egress);
    let (at, text) = refusal(&["lan -> route", "route forward -> egress"]);
    assert_eq!(
        (at, text.as_str()),
        (1, "`route` chooses no port with verdict `forward`, so this edge cannot lead to `egress`")
    );
    let (at, text) = refusal(&["lan -> route", "route local -> drop", "route -> egress"]);
    assert_eq!(at, 2);
    assert!(text.contains("with verdict `forward`"), "{text}");
    assert_eq!(refusal(&["lan -> egress"]).1, "`lan` chooses no port, so this edge cannot lead to `egress`");
}

#[test]
fn unknown_names_come_with_a_suggestion() {
    for (edge, expected) in [
        ("lna -> route", "unknown port or function `lna`, did you mean `lan`?"),
        ("lan -> rout", "unknown port or function `rout`, did you mean `route`?"),
        ("lan -> dorp", "unknown port or function `dorp`, did you mean `drop`?"),
        ("lan [wbe] -> route", "unknown class `wbe`, did you mean `web`?"),
        ("route forwad -> wan", "unknown verdict `forwad`, did you mean `forward`?"),
        ("route nothing -> wan", "unknown verdict `nothing`: there is `forward` and `local`"),
    ] {
        assert_eq!(refusal(&["wan -> route", edge]), (1, expected.to_owned()));
    }
    assert_eq!(chain(&["lan [wbe] -> route"]).unwrap_err().key(), Some("class"));
}

#[test]
fn the_same_packets_cannot_have_two_next_stages() {
    let (at, text) = refusal(&["lan -> route", "route [web] forward -> wan", "route [web] forward -> drop"]);
    assert_eq!(at, 2);
    assert_eq!(
        text,
        "this edge says again what follows `route` with verdict `forward` for class `web`: the edge to `wan` already does"
    );
    assert_eq!(refusal(&["lan -> route", "lan -> route"]).0, 1);
}

#[test]
fn ports_say_no_verdict_and_have_directions() {
    assert_eq!(
        refusal(&["lan forward -> route"]).1,
        "`lan` is a port and says no verdict, so an edge from it cannot have `verdict`"
    );
    let ports = vec![
        Port { name: "in".to_owned(), receives: true, transmits: false },
        Port { name: "out".to_owned(), receives: false, transmits: true },
    ];
    let refuse = |text| Chain::new(ports.clone(), Vec::new(), &[], &[edge(text)]).unwrap_err().to_string();
    assert_eq!(refuse("in -> in"), "port `in` only receives, so no edge can lead there");
    assert_eq!(refuse("out -> out"), "port `out` does not receive, so no edge can start there");
    assert!(Chain::new(ports.clone(), Vec::new(), &[], &[edge("in -> out")]).unwrap().warnings().is_empty());
}

#[test]
fn a_cycle_is_named() {
    let (at, text) = refusal(&["lan -> route", "route -> scan", "scan clean -> wan", "scan match -> route"]);
    assert_eq!((at, text.as_str()), (3, "the chain has a cycle: route → scan → route"));
    let (at, text) = refusal(&["lan -> wan", "scan -> scan"]);
    assert_eq!((at, text.as_str()), (1, "the chain has a cycle: scan → scan"));
    // Something that only hangs below the cycle is not named.
    let (_, text) = refusal(&["lan -> scan", "scan clean -> route", "scan match -> echo", "echo -> scan"]);
    assert_eq!(text, "the chain has a cycle: scan → echo → scan");
    // An edge that is never taken closes no cycle.
    assert!(chain(&["lan -> scan", "scan -> scan", "scan clean -> wan", "scan match -> drop"]).is_ok());
}

#[test]
fn ranks_grow_along_edges() {
    let chain = chain(&[
        "lan -> scan",
        "wan -> route",
        "scan clean -> route",
        "scan match -> echo",
        "route -> echo",
        "echo -> egress",
    ])
    .unwrap();
    assert_eq!(chain.ranks(), [2, 1, 3]);
    assert_eq!(chain.rank_of_departure(), 4);
    assert_eq!(chain.path_max(&[10, 1, 100]), 111);
    assert!(chain.reaches(1, 0) && chain.reaches(1, 2) && chain.reaches(0, 2));
    assert!(!chain.reaches(0, 1) && !chain.reaches(2, 0) && !chain.reaches(0, 0));
}

#[test]
fn what_only_other_classes_do_does_not_reach() {
    let edges = ["lan [web] -> route", "lan [dns] -> scan", "route -> echo", "scan [web] -> echo", "scan -> wan"];
    let chain = chain(&[&edges[..], &["echo -> egress"]].concat()).unwrap();
    assert!(chain.reaches(0, 2));
    assert!(!chain.reaches(1, 2), "no packet of class web gets to scan");
}

#[test]
fn a_path_that_no_packet_takes_has_no_weight() {
    let chain = chain(&["lan -> wan", "route -> scan", "scan -> wan"]).unwrap();
    assert_eq!(chain.path_max(&[10, 1, 100]), 0);
}

#[test]
fn what_is_probably_not_meant_is_said() {
    let chain = chain(&[
        "lan [web] -> route",
        "route forward -> wan",
        "route [dns] -> wan",
        "scan -> echo",
        "echo -> lan",
        "echo chosen -> wan",
    ])
    .unwrap();
    let warnings: Vec<String> = chain.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "no edge takes packets of classes `default`, `dns` from port `lan`: they are dropped and counted",
            "no edge takes packets with verdict `local` from `route`: they are dropped and counted",
            "function `scan` is never used: no edge leads to it",
            "function `echo` is never used: no packet can get there from a port",
            "the edge from `echo` to `lan` is never taken: more specific edges take all of its packets",
        ]
    );
    assert!(matches!(&chain.warnings()[4], Warning::EdgeCovered { edge: 4, .. }));
}

#[test]
fn the_drawing_follows_the_packet() {
    let chain = chain(&[
        "lan -> route",
        "wan [web] -> scan",
        "wan -> route",
        "route local -> drop",
        "route [web] forward -> scan",
        "route forward -> wan",
        "scan clean -> wan",
    ])
    .unwrap();
    let expected = "\
lan
└─ route (route-kind)
   ├─ forward [web] → scan (scan-kind)
   │  ├─ clean → wan
   │  └─ match → no edge: dropped and counted
   ├─ forward [all else] → wan
   └─ local → drop
wan
├─ [web] → scan (scan-kind), as above
└─ [all else] → route (route-kind), as above
echo (echo-kind): no packet gets here
";
    assert_eq!(chain.text(), expected);

    let dot = chain.graphviz();
    for line in [
        "in0 [shape=cds, label=\"lan\"];",
        "f0 [shape=box, label=\"route\\nroute-kind\"];",
        "in1 -> f1 [label=\"[web]\"];",
        "f0 -> out1 [label=\"forward [all else]\"];",
        "f0 -> drop [label=\"local\"];",
        "f1 -> none [label=\"match\"];",
    ] {
        assert!(dot.contains(line), "{line} is not in\n{dot}");
    }
    assert_eq!(dot.matches("out1 [shape").count(), 1);
    assert!(dot.starts_with("digraph chain {\n") && dot.ends_with("}\n"));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    const FUNCTIONS: usize = 6;
    const VERDICTS: usize = 3;
    const CLASSES: usize = 3;

    fn name(stage: usize) -> String {
        if stage < FUNCTIONS { format!("f{stage}") } else { format!("p{}", stage - FUNCTIONS) }
    }

    fn edges() -> impl Strategy<Value = Vec<Edge>> {
        let class = prop::option::of(0..CLASSES);
        let verdict = prop::option::of(0..VERDICTS);
        let edge = (0..FUNCTIONS + 2, class, verdict, 0..FUNCTIONS + 3).prop_map(|(from, class, verdict, to)| Edge {
            from: name(from),
            class: class.map(|class| if class == 0 { "default".to_owned() } else { format!("c{class}") }),
            verdict: verdict.filter(|_| from < FUNCTIONS).map(|verdict| format!("v{verdict}")),
            to: if to == FUNCTIONS + 2 { "drop".to_owned() } else { name(to) },
        });
        prop::collection::vec(edge, 0..24)
    }

    /// The rules of precedence, most specific first, for one question.
    fn expected(edges: &[Edge], from: &str, class: usize, verdict: Option<usize>) -> Next {
        let class = if class == 0 { "default".to_owned() } else { format!("c{class}") };
        let verdict = verdict.map(|verdict| format!("v{verdict}"));
        let find = |class: Option<&String>, verdict: Option<&String>| {
            edges
                .iter()
                .find(|edge| edge.from == from && edge.class.as_ref() == class && edge.verdict.as_ref() == verdict)
        };
        let by_verdict = verdict
            .as_ref()
            .and_then(|verdict| find(Some(&class), Some(verdict)).or_else(|| find(None, Some(verdict))));
        let edge = by_verdict.or_else(|| find(Some(&class), None)).or_else(|| find(None, None));
        match edge.map(|edge| edge.to.as_str()) {
            None => Next::None,
            Some("drop") => Next::Drop,
            Some(name) if name.starts_with('f') => Next::Function(name[1..].parse().unwrap()),
            Some(name) => Next::Port(name[1..].parse().unwrap()),
        }
    }

    proptest! {
        #[test]
        fn the_decider_says_what_the_edges_say(edges in edges()) {
            let functions = (0..FUNCTIONS).map(|index| function(&name(index), &["v0", "v1", "v2"])).collect();
            let ports = vec![port("p0"), port("p1")];
            let duplicates = (0..edges.len()).any(|at| {
                let same = |other: &Edge| (&other.from, &other.class, &other.verdict) == (&edges[at].from, &edges[at].class, &edges[at].verdict);
                edges[..at].iter().any(same)
            });
            let question = |from: usize, class, verdict| expected(&edges, &name(from), class, Some(verdict));
            // Reachability by closure: a cycle is a function that reaches itself.
            let mut leads = [[false; FUNCTIONS]; FUNCTIONS];
            for (from, row) in leads.iter_mut().enumerate() {
                for class in 0..CLASSES {
                    for verdict in 0..VERDICTS {
                        if let Next::Function(to) = question(from, class, verdict) {
                            row[usize::from(to)] = true;
                        }
                    }
                }
            }
            let direct = leads;
            for middle in 0..FUNCTIONS {
                for from in 0..FUNCTIONS {
                    for to in 0..FUNCTIONS {
                        leads[from][to] |= leads[from][middle] && leads[middle][to];
                    }
                }
            }
            let cyclic = (0..FUNCTIONS).any(|function| leads[function][function]);

            match Chain::new(ports, functions, &["c1".to_owned(), "c2".to_owned()], &edges) {
                Err(Error::Duplicate { .. }) => prop_assert!(duplicates),
                Err(Error::Cycle { edge, path }) => {
                    prop_assert!(cyclic && !duplicates);
                    prop_assert!(path.len() >= 2 && path.first() == path.last());
                    prop_assert_eq!(&edges[edge].from, &path[path.len() - 2]);
                    prop_assert_eq!(&edges[edge].to, &path[0]);
                    for pair in path.windows(2) {
                        let [from, to] = [&pair[0], &pair[1]].map(|name| name[1..].parse::<usize>().unwrap());
                        prop_assert!(direct[from][to], "{from} does not lead to {to}");
                    }
                }
                Err(error) => prop_assert!(false, "{}", error),
                Ok(chain) => {
                    prop_assert!(!cyclic && !duplicates);
                    for class in 0..CLASSES {
                        for port in 0..2 {
                            let expected = expected(&edges, &name(FUNCTIONS + port), class, None);
                            prop_assert_eq!(chain.decider().entry(port as u8, class as u8), expected);
                        }
                        for from in 0..FUNCTIONS {
                            for verdict in 0..VERDICTS {
                                let next = chain.decider().next(from as u16, class as u8, verdict as u8);
                                prop_assert_eq!(next, question(from, class, verdict));
                                if let Next::Function(to) = next {
                                    prop_assert!(chain.ranks()[usize::from(to)] > chain.ranks()[from]);
                                }
                            }
                        }
                    }
                    // Drawing never fails, whatever the chain.
                    prop_assert!(chain.text().lines().count() >= chain.functions().iter().enumerate().filter(|(index, _)| !chain.is_reached(*index)).count());
                    let whole = chain.graphviz().ends_with("}\n");
                    prop_assert!(whole);
                }
            }
        }
    }
}
