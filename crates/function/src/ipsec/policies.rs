//! The security policy database (RFC 4301, section 4.4.1): the first policy that matches counts.
//!
//! Policies with the same two prefix lengths form a group, and the packet's addresses, cut to these lengths, find those of
//! the group that can match: tuple space search (Srinivasan, Suri, Varghese, SIGCOMM 1999). What a packet costs grows
//! with the number of groups, not of policies. Groups are asked in the order of their first policies, until none is left
//! that could come before what was found.

use std::collections::{BTreeMap, HashMap};

use super::lookup::Lookup;
use super::selector::{Match, Selector, Shown};

#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) selector: Selector,
    pub(super) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// By the SA with this index.
    Protect(u32),
    Bypass,
    Discard,
}

/// Asking a table takes as long as asking about so many policies one after the other (`examples/prepare_ipsec.rs`).
const GROUP_MIN: usize = 4;

/// All policies, arranged to be asked.
pub(super) struct Policies {
    /// In the order of their first policies.
    groups: Vec<Group>,
    /// The lists that values of the groups' tables refer to.
    lists: Vec<Rule>,
    /// Policies of small groups, in order.
    rest: Vec<Rule>,
}

/// The policies with the same prefix lengths.
struct Group {
    /// As [`pair`] of the masks.
    masks: u64,
    /// Order of the first policy.
    first: u32,
    /// Pairs of prefixes to [`Answer`]s.
    lookup: Lookup,
}

/// A policy, and how many come before it.
struct Rule {
    policy: Policy,
    order: u32,
    /// Whether a list ends here.
    last: bool,
}

impl Rule {
    fn answer(&self) -> Answer {
        Answer::new(self.order, self.policy.action)
    }

    #[inline]
    fn answers(&self, shown: &Shown) -> bool {
        match self.policy.selector.matches(shown) {
            Match::Yes => true,
            // A fragment that hides its ports must not slip past the policy that discards them.
            Match::Unknown => self.policy.action == Action::Discard,
            Match::No => false,
        }
    }
}

/// What a table says, as one number, of which the lower comes first:
///
/// ```text
/// | order of the policy | what follows from it |
///  63                 32 31                  0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Answer(u64);

impl Answer {
    /// No policy matches.
    const NONE: Self = Self(Lookup::ABSENT);
    /// In the lower half; neither of the first two: the index of an SA.
    const BYPASS: u32 = 1 << 31;
    const DISCARD: u32 = 1 << 31 | 1;
    /// One of a list, whose index is in the other bits, or none; the order is that of the first.
    const LIST: u32 = 1 << 30;

    fn new(order: u32, action: Action) -> Self {
        let action = match action {
            Action::Protect(sa) => sa,
            Action::Bypass => Self::BYPASS,
            Action::Discard => Self::DISCARD,
        };
        Self(u64::from(order) << 32 | u64::from(action))
    }

    fn list(order: u32, index: usize) -> Self {
        Self(u64::from(order) << 32 | u64::from(Self::LIST) | index as u64)
    }

    fn order(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The index in [`Policies::lists`].
    fn as_list(self) -> Option<usize> {
        let low = self.0 as u32;
        (low >> 30 == 1).then_some((low & !Self::LIST) as usize)
    }

    fn action(self) -> Option<Action> {
        match self.0 as u32 {
            _ if self == Self::NONE => None,
            Self::BYPASS => Some(Action::Bypass),
            Self::DISCARD => Some(Action::Discard),
            sa => Some(Action::Protect(sa)),
        }
    }
}

impl Policies {
    /// At most 2^30 policies, and SAs: indexes must fit into an [`Answer`].
    pub(super) fn new(policies: &[Policy]) -> Self {
        debug_assert!(policies.len() <= 1 << 30);
        let mut by_masks = BTreeMap::<u64, Vec<Rule>>::new();
        for (order, policy) in (0..).zip(policies) {
            let rule = Rule { policy: policy.clone(), order, last: false };
            by_masks.entry(masks(&policy.selector)).or_default().push(rule);
        }
        let mut arranged = Self { groups: Vec::new(), lists: Vec::new(), rest: Vec::new() };
        for (masks, rules) in by_masks {
            if rules.len() < GROUP_MIN {
                arranged.rest.extend(rules);
            } else {
                arranged.add_group(masks, rules);
            }
        }
        arranged.groups.sort_unstable_by_key(|group| group.first);
        arranged.rest.sort_unstable_by_key(|rule| rule.order);
        arranged
    }

    /// The rules of one group, in order; there is at least one.
    fn add_group(&mut self, masks: u64, rules: Vec<Rule>) {
        let first = rules[0].order;
        let mut by_prefixes = HashMap::<u64, Vec<Rule>>::new();
        for rule in rules {
            let same = by_prefixes.entry(addresses(&rule.policy.selector)).or_default();
            // Nothing comes through to what is behind a policy that asks for no more than the prefixes.
            if same.last().is_none_or(|before| !is_plain(&before.policy.selector)) {
                same.push(rule);
            }
        }
        let entries = by_prefixes.into_iter().map(|(prefixes, list)| (prefixes, self.add_list(list).0));
        let lookup = Lookup::new(&entries.collect::<Vec<_>>());
        self.groups.push(Group { masks, first, lookup });
    }

    fn add_list(&mut self, mut list: Vec<Rule>) -> Answer {
        if let [only] = &list[..]
            && is_plain(&only.policy.selector)
        {
            return only.answer();
        }
        let answer = Answer::list(list[0].order, self.lists.len());
        if let Some(last) = list.last_mut() {
            last.last = true;
        }
        self.lists.append(&mut list);
        answer
    }

    /// What the first policy that matches says; `None` where none does. Most packets need not show more than their
    /// addresses: `shown` is called where one must.
    #[inline]
    pub(super) fn find(&self, source: u32, destination: u32, shown: impl Fn() -> Shown) -> Option<Action> {
        let addresses = pair(source, destination);
        let mut found = Answer::NONE;
        for group in &self.groups {
            if group.first > found.order() {
                break;
            }
            let mut answer = Answer(group.lookup.get(addresses & group.masks));
            if let Some(list) = answer.as_list()
                && answer < found
            {
                answer = self.ask_list(list, &shown());
            }
            found = found.min(answer);
        }
        if self.rest.first().is_some_and(|rule| rule.order < found.order()) {
            let shown = shown();
            let mut before = self.rest.iter().take_while(|rule| rule.order < found.order());
            found = before.find(|rule| rule.answers(&shown)).map_or(found, Rule::answer);
        }
        found.action()
    }

    fn ask_list(&self, start: usize, shown: &Shown) -> Answer {
        for rule in &self.lists[start..] {
            if rule.answers(shown) {
                return rule.answer();
            }
            if rule.last {
                break;
            }
        }
        Answer::NONE
    }
}

#[inline]
fn pair(source: u32, destination: u32) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}

fn addresses(selector: &Selector) -> u64 {
    pair(selector.source.address_and_mask().0, selector.destination.address_and_mask().0)
}

fn masks(selector: &Selector) -> u64 {
    pair(selector.source.address_and_mask().1, selector.destination.address_and_mask().1)
}

/// Whether the selector asks for nothing but addresses.
fn is_plain(selector: &Selector) -> bool {
    selector.protocol.is_none() && selector.source_ports.is_none() && selector.destination_ports.is_none()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::strategy::ValueTree;

    use super::*;
    use crate::ipsec::selector::{Ports, Prefix};

    /// Section 4.4.1 to the letter: one policy after the other.
    fn linear(policies: &[Policy], shown: &Shown) -> Option<Action> {
        policies.iter().find_map(|policy| match (policy.selector.matches(shown), policy.action) {
            (Match::Yes, action) => Some(action),
            (Match::Unknown, Action::Discard) => Some(Action::Discard),
            (Match::Unknown | Match::No, _) => None,
        })
    }

    fn find(arranged: &Policies, shown: &Shown) -> Option<Action> {
        arranged.find(shown.source, shown.destination, || *shown)
    }

    /// Few different ones, so that prefixes overlap, policies come twice, and packets match.
    fn address() -> impl Strategy<Value = u32> {
        (select(vec![10u8, 11]), 0..2u8, 0..4u8, 0..4u8).prop_map(|(a, b, c, d)| u32::from_be_bytes([a, b, c, d << 6]))
    }

    fn prefix(lengths: Vec<u32>) -> impl Strategy<Value = Prefix> {
        (address(), select(lengths)).prop_map(|(address, length)| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            Prefix::parse(&format!("{}/{length}", Ipv4Addr::from(address & mask))).unwrap()
        })
    }

    fn ports() -> impl Strategy<Value = Option<Ports>> {
        prop_oneof![
            3 => Just(None),
            1 => Just(Some(Ports::ANY)),
            3 => (0..4u16, 0..4u16).prop_map(|(one, other)| Some(Ports(one.min(other), one.max(other)))),
        ]
    }

    fn selector(lengths: Vec<u32>) -> impl Strategy<Value = Selector> {
        let protocol = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 3 => Just(Some(6)), 1 => Just(Some(17))];
        (prefix(lengths.clone()), prefix(lengths), protocol, ports(), ports()).prop_map(
            |(source, destination, protocol, source_ports, destination_ports)| {
                let with_ports = protocol.is_some_and(|protocol| protocol != 1);
                let (source_ports, destination_ports) =
                    if with_ports { (source_ports, destination_ports) } else { (None, None) };
                Selector { source, destination, protocol, source_ports, destination_ports }
            },
        )
    }

    /// The SA of a policy that protects is its place, so that no two answers look alike.
    fn policies() -> impl Strategy<Value = Vec<Policy>> {
        let lengths = select(vec![vec![24], vec![0, 24], vec![16, 24, 26], vec![0, 7, 8, 16, 23, 24, 25, 26, 32]]);
        let sizes = prop_oneof![0..GROUP_MIN * 2, 0..300usize];
        (lengths, sizes)
            .prop_flat_map(|(lengths, size)| prop::collection::vec((selector(lengths), 0..6u8), size))
            .prop_map(|drawn| {
                let action = |dice, order| match dice {
                    0 => Action::Bypass,
                    1 => Action::Discard,
                    _ => Action::Protect(order),
                };
                let number = (0..).zip(drawn);
                number.map(|(order, (selector, dice))| Policy { selector, action: action(dice, order) }).collect()
            })
    }

    fn shown() -> impl Strategy<Value = Shown> {
        let ports = prop::option::weighted(0.8, (0..5u16, 0..5u16));
        (address(), address(), 0..2u32, select(vec![1u8, 6, 6, 17]), ports).prop_map(
            |(source, destination, low, protocol, ports)| {
                let ports = ports.filter(|_| protocol != 1);
                Shown { source: source | low, destination, protocol, ports }
            },
        )
    }

    proptest! {
        #[test]
        fn the_same_as_one_after_the_other(
            policies in policies(),
            packets in prop::collection::vec(shown(), 200),
        ) {
            let arranged = Policies::new(&policies);
            for shown in &packets {
                prop_assert_eq!(find(&arranged, shown), linear(&policies, shown), "{:?}", shown);
            }
        }
    }

    #[test]
    fn random_databases_use_tables_lists_and_the_rest() {
        // What the comparison above is worth depends on it.
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut groups, mut lists, mut rest, mut actions) = (0, 0, 0, [0; 4]);
        for _ in 0..50 {
            let drawn = policies().new_tree(&mut runner).unwrap().current();
            let arranged = Policies::new(&drawn);
            groups += arranged.groups.len();
            lists += arranged.lists.len();
            rest += arranged.rest.len();
            for _ in 0..100 {
                let shown = shown().new_tree(&mut runner).unwrap().current();
                let place = match find(&arranged, &shown) {
                    Some(Action::Protect(_)) => 0,
                    Some(Action::Bypass) => 1,
                    Some(Action::Discard) => 2,
                    None => 3,
                };
                actions[place] += 1;
            }
        }
        assert!(groups > 50 && lists > 50 && rest > 50, "{groups} {lists} {rest}");
        assert!(actions.iter().all(|count| *count > 50), "{actions:?}");
    }

    #[test]
    fn many_policies_of_one_shape_are_one_group() {
        let policy = |order: u32| Policy {
            selector: Selector {
                destination: Prefix::parse(&format!("{}/24", Ipv4Addr::from(order << 8))).unwrap(),
                ..Selector::default()
            },
            action: Action::Protect(order),
        };
        let policies: Vec<_> = (0..10_000).map(policy).collect();
        let arranged = Policies::new(&policies);
        assert_eq!((arranged.groups.len(), arranged.lists.len(), arranged.rest.len()), (1, 0, 0));
        for order in 0..10_001 {
            let shown = Shown { source: 5, destination: order << 8 | 7, protocol: 6, ports: None };
            assert_eq!(find(&arranged, &shown), (order < 10_000).then_some(Action::Protect(order)));
        }
    }
}
