//! Tests chains as operators configure them: precedence of edges, errors, warnings and drawings.

use godwit_chain::{Chain, Edge, Error, Function, Next, Port, Verdict, Warning};

fn port(name: &str) -> Port {
    Port { name: name.to_owned(), receives: true, transmits: true }
}

fn function(name: &str, verdicts: &[&str]) -> Function {
    let verdict = |name: &&str| Verdict { name: (*name).to_owned(), chooses_port: *name == "chosen" };
    Function { name: name.to_owned(), kind: format!("{name}-kind"), verdicts: verdicts.iter().map(verdict).collect() }
}

/// Parses an edge such as `"lan [web] forward -> route"`. The class in brackets and the verdict are
/// optional.
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
fn most_specific_edge_applies() {
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
fn edge_can_name_the_default_class() {
    let chain = chain(&["lan [default] -> wan"]).unwrap();
    assert_eq!(chain.decider().entry(0, 0), Next::Port(1));
    assert_eq!(chain.decider().entry(0, 1), Next::None);
}

#[test]
fn egress_requires_a_verdict_that_chooses_a_port() {
    let good = chain(&["lan -> echo", "echo -> egress"]).unwrap();
    assert_eq!(good.decider().next(2, 0, 0), Next::Egress);
    let error = chain(&["lan -> route", "route forward -> egress"]).unwrap_err();
    let (from, verdict) = ("route".to_owned(), Some("forward".to_owned()));
    assert_eq!(error, Error::NoPortChosen { edge: 1, from, verdict });
    let (at, text) = refusal(&["lan -> route", "route local -> drop", "route -> egress"]);
    assert_eq!(at, 2);
    assert!(text.contains("with verdict `forward`"), "{text}");
    let error = chain(&["lan -> egress"]).unwrap_err();
    assert_eq!(error, Error::NoPortChosen { edge: 0, from: "lan".to_owned(), verdict: None });
}

#[test]
fn suggests_names_for_unknown_ones() {
    for (edge, expected) in [
        ("lna -> route", "port or function `lna`, did you mean `lan`"),
        ("lan -> rout", "port or function `rout`, did you mean `route`"),
        ("lan -> dorp", "port or function `dorp`, did you mean `drop`"),
        ("lan [wbe] -> route", "class `wbe`, did you mean `web`"),
        ("route forwad -> wan", "verdict `forwad`, did you mean `forward`"),
        ("route nothing -> wan", "`forward` or `local`"),
    ] {
        let (at, text) = refusal(&["wan -> route", edge]);
        assert!(at == 1 && text.contains(expected), "{text}");
    }
    assert_eq!(chain(&["lan [wbe] -> route"]).unwrap_err().key(), Some("class"));
}

#[test]
fn rejects_two_next_stages_for_the_same_packets() {
    let (at, text) = refusal(&["lan -> route", "route [web] forward -> wan", "route [web] forward -> drop"]);
    assert_eq!(at, 2);
    for part in ["`route` with verdict `forward` for class `web`", "`wan`"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(refusal(&["lan -> route", "lan -> route"]).0, 1);
}

#[test]
fn rejects_verdicts_of_ports_and_wrong_directions() {
    let error = chain(&["lan forward -> route"]).unwrap_err();
    assert_eq!(error, Error::VerdictOfPort { edge: 0, port: "lan".to_owned() });
    let ports = vec![
        Port { name: "in".to_owned(), receives: true, transmits: false },
        Port { name: "out".to_owned(), receives: false, transmits: true },
    ];
    let refuse = |text| Chain::new(ports.clone(), Vec::new(), &[], &[edge(text)]).unwrap_err();
    assert_eq!(refuse("in -> in"), Error::ToReceiveOnly { edge: 0, port: "in".to_owned() });
    assert_eq!(refuse("out -> out"), Error::FromSendOnly { edge: 0, port: "out".to_owned() });
    assert!(Chain::new(ports.clone(), Vec::new(), &[], &[edge("in -> out")]).unwrap().warnings().is_empty());
}

#[test]
fn error_names_the_functions_of_a_cycle() {
    let (at, text) = refusal(&["lan -> route", "route -> scan", "scan clean -> wan", "scan match -> route"]);
    assert!(at == 3 && text.ends_with("route → scan → route"), "{text}");
    let (at, text) = refusal(&["lan -> wan", "scan -> scan"]);
    assert!(at == 1 && text.ends_with("scan → scan"), "{text}");
    // A function that follows the cycle is not part of it, so the message does not name it.
    let (_, text) = refusal(&["lan -> scan", "scan clean -> route", "scan match -> echo", "echo -> scan"]);
    assert!(text.ends_with(": scan → echo → scan"), "{text}");
    // An edge that applies to no packet closes no cycle.
    assert!(chain(&["lan -> scan", "scan -> scan", "scan clean -> wan", "scan match -> drop"]).is_ok());
}

#[test]
fn ranks_increase_along_edges() {
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
    assert!(chain.has_path(1, 0) && chain.has_path(1, 2) && chain.has_path(0, 2));
    assert!(!chain.has_path(0, 1) && !chain.has_path(2, 0) && !chain.has_path(0, 0));
}

#[test]
fn paths_of_other_classes_do_not_count() {
    let edges = ["lan [web] -> route", "lan [dns] -> scan", "route -> echo", "scan [web] -> echo", "scan -> wan"];
    let chain = chain(&[&edges[..], &["echo -> egress"]].concat()).unwrap();
    assert!(chain.has_path(0, 2));
    assert!(!chain.has_path(1, 2), "no packet of class web can reach scan");
}

#[test]
fn path_without_packets_has_no_weight() {
    let chain = chain(&["lan -> wan", "route -> scan", "scan -> wan"]).unwrap();
    assert_eq!(chain.path_max(&[10, 1, 100]), 0);
}

#[test]
fn warns_of_probable_mistakes() {
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
            "function `echo` is never used: no packet from a port can reach it",
            "the edge from `echo` to `lan` is never taken: more specific edges take all of its packets",
        ]
    );
    assert!(matches!(&chain.warnings()[4], Warning::EdgeCovered { edge: 4, .. }));
}

#[test]
fn drawing_is_in_packet_order() {
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

    /// Determines the edge that one packet takes. The most specific edge has precedence.
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
        fn decider_matches_the_edges(edges in edges()) {
            let functions = (0..FUNCTIONS).map(|index| function(&name(index), &["v0", "v1", "v2"])).collect();
            let ports = vec![port("p0"), port("p1")];
            let duplicates = (0..edges.len()).any(|at| {
                let same = |other: &Edge| (&other.from, &other.class, &other.verdict) == (&edges[at].from, &edges[at].class, &edges[at].verdict);
                edges[..at].iter().any(same)
            });
            let next_stage = |from: usize, class, verdict| expected(&edges, &name(from), class, Some(verdict));
            // The loop computes the transitive closure of the edges. A function in a cycle reaches
            // itself.
            let mut paths = [[false; FUNCTIONS]; FUNCTIONS];
            for (from, row) in paths.iter_mut().enumerate() {
                for class in 0..CLASSES {
                    for verdict in 0..VERDICTS {
                        if let Next::Function(to) = next_stage(from, class, verdict) {
                            row[usize::from(to)] = true;
                        }
                    }
                }
            }
            let direct = paths;
            for middle in 0..FUNCTIONS {
                for from in 0..FUNCTIONS {
                    for to in 0..FUNCTIONS {
                        paths[from][to] |= paths[from][middle] && paths[middle][to];
                    }
                }
            }
            let cyclic = (0..FUNCTIONS).any(|function| paths[function][function]);

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
                                prop_assert_eq!(next, next_stage(from, class, verdict));
                                if let Next::Function(to) = next {
                                    prop_assert!(chain.ranks()[usize::from(to)] > chain.ranks()[from]);
                                }
                            }
                        }
                    }
                    // Drawing must succeed for every chain.
                    prop_assert!(chain.text().lines().count() >= chain.functions().iter().enumerate().filter(|(index, _)| !chain.is_reached(*index)).count());
                    let whole = chain.graphviz().ends_with("}\n");
                    prop_assert!(whole);
                }
            }
        }
    }
}
