//! The security policy database (RFC 4301, section 4.4.1): the first policy that matches counts.
//!
//! Policies with the same two prefix lengths form a group, and the packet's addresses, cut to these lengths, find those of
//! the group that can match: tuple space search (Srinivasan, Suri, Varghese, SIGCOMM 1999). What a packet costs grows
//! with the number of groups, not of policies. Groups are asked in the order of their first policies, until none is left
//! that could come before what was found.
//!
//! IPv4 and IPv6 have groups of their own. Two IPv4 addresses are a key as they are; two IPv6 addresses are hashed, and
//! what is found is asked again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};

use godwit_packet::simd::Isa;

use super::lookup::{Lookup, mix};
use super::selector::{Address, Match, Pattern, Selector, Shown};

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

impl Action {
    /// As numbers; neither of them is the index of an SA.
    const BYPASS: u32 = 1 << 31;
    const DISCARD: u32 = 1 << 31 | 1;

    fn encode(self) -> u32 {
        match self {
            Self::Protect(sa) => sa,
            Self::Bypass => Self::BYPASS,
            Self::Discard => Self::DISCARD,
        }
    }

    fn decode(code: u32) -> Self {
        match code {
            Self::BYPASS => Self::Bypass,
            Self::DISCARD => Self::Discard,
            sa => Self::Protect(sa),
        }
    }
}

/// Asking a table takes as long as asking about so many policies one after the other (`examples/prepare_ipsec.rs`).
const GROUP_MIN: usize = 4;

/// All policies, arranged to be asked.
pub(super) struct Policies {
    ipv4: Arranged<u32>,
    ipv6: Arranged<u128>,
}

impl Policies {
    /// At most 2^30 policies, and SAs: indexes must fit into an [`Answer`].
    pub(super) fn new(policies: &[Policy]) -> Self {
        debug_assert!(policies.len() <= 1 << 30);
        Self { ipv4: Arranged::new(policies), ipv6: Arranged::new(policies) }
    }

    /// Those that packets of IPv4 are asked about.
    #[inline(always)]
    pub(super) fn ipv4(&self) -> &Arranged<u32> {
        &self.ipv4
    }

    /// From now on the policy, which is the one with this order and protects, does so by another SA. Packets that are
    /// asked about meanwhile find either.
    pub(super) fn protect_by(&self, order: u32, policy: &Policy, sa: u32) {
        self.ipv4.protect_by(order, &policy.selector, sa);
        self.ipv6.protect_by(order, &policy.selector, sa);
    }
}

/// An address that policies can be found by.
pub(super) trait Findable: Address {
    /// Whether [`Findable::pair`] never gives the same for different addresses.
    const IS_EXACT: bool;

    /// Both addresses as one number.
    fn pair(source: Self, destination: Self) -> u64;

    fn policies(policies: &Policies) -> &Arranged<Self>;
}

impl Findable for u32 {
    const IS_EXACT: bool = true;

    #[inline]
    fn pair(source: Self, destination: Self) -> u64 {
        u64::from(source) << 32 | u64::from(destination)
    }

    #[inline]
    fn policies(policies: &Policies) -> &Arranged<Self> {
        &policies.ipv4
    }
}

impl Findable for u128 {
    const IS_EXACT: bool = false;

    #[inline]
    fn pair(source: Self, destination: Self) -> u64 {
        let half = |hash: u64, half: u128| mix(hash ^ half as u64);
        [source >> 64, source, destination >> 64, destination].into_iter().fold(0, half)
    }

    #[inline]
    fn policies(policies: &Policies) -> &Arranged<Self> {
        &policies.ipv6
    }
}

/// The policies of one family.
pub(super) struct Arranged<A> {
    /// In the order of their first policies.
    groups: Vec<Group<A>>,
    /// The lists that values of the groups' tables refer to.
    lists: Vec<Rule<A>>,
    /// Policies of small groups, in order.
    rest: Vec<Rule<A>>,
    /// There is one group, and nothing but it: what its table says is the answer.
    is_one_table: bool,
}

/// All policies for IPv4, where one table has them.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    /// Of both prefixes, as [`Findable::pair`] has them.
    masks: u64,
    lookup: &'a Lookup,
}

impl Table<'_> {
    /// The SA that protects packets between these addresses, given as a [`Findable::pair`], where the first place to look
    /// at says so. `None`: the answer may be any.
    #[inline(always)]
    pub(super) fn first_look(self, pair: u64, form: impl Isa) -> Option<u32> {
        Answer(self.lookup.first_look(pair & self.masks, form)).protects()
    }

    /// The answer.
    pub(super) fn answer(self, pair: u64) -> Answer {
        Answer(self.lookup.get(pair & self.masks))
    }
}

impl Arranged<u32> {
    /// The only table, where there is nothing else to be asked.
    #[inline]
    pub(super) fn table(&self) -> Option<Table<'_>> {
        let group = self.groups.first().filter(|_| self.is_one_table)?;
        Some(Table { masks: u32::pair(group.masks.0, group.masks.1), lookup: &group.lookup })
    }
}

/// The policies with the same prefix lengths.
struct Group<A> {
    masks: (A, A),
    /// Order of the first policy.
    first: u32,
    /// Pairs of prefixes to [`Answer`]s.
    lookup: Lookup,
}

impl<A: Findable> Group<A> {
    #[inline(always)]
    fn ask(&self, source: A, destination: A) -> Answer {
        Answer(self.lookup.get(A::pair(source & self.masks.0, destination & self.masks.1)))
    }
}

/// A policy, and how many come before it.
struct Rule<A> {
    pattern: Pattern<A>,
    action: AtomicU32,
    order: u32,
    /// Whether a list ends here.
    last: bool,
}

impl<A: Address> Rule<A> {
    fn action(&self) -> Action {
        Action::decode(self.action.load(Ordering::Acquire))
    }

    fn answer(&self) -> Answer {
        Answer::new(self.order, self.action())
    }

    #[inline]
    fn answers(&self, shown: &Shown<A>) -> bool {
        match self.pattern.matches(shown) {
            Match::Yes => true,
            // A fragment that hides its ports must not slip past the policy that discards them.
            Match::Unknown => self.action() == Action::Discard,
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
pub(super) struct Answer(u64);

impl Answer {
    /// No policy matches.
    const NONE: Self = Self(Lookup::ABSENT);
    /// In the lower half: one of a list, whose index is in the other bits, or none; the order is that of the first.
    const LIST: u32 = 1 << 30;

    fn new(order: u32, action: Action) -> Self {
        Self(u64::from(order) << 32 | u64::from(action.encode()))
    }

    fn list(order: u32, index: usize) -> Self {
        Self(u64::from(order) << 32 | u64::from(Self::LIST) | index as u64)
    }

    fn order(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The index in [`Arranged::lists`].
    fn as_list(self) -> Option<usize> {
        let low = self.0 as u32;
        (low >> 30 == 1).then_some((low & !Self::LIST) as usize)
    }

    /// What the policy says; `None` where there is none. Of a list, the policy must have been found.
    #[inline(always)]
    pub(super) fn action(self) -> Option<Action> {
        // Most packets are protected, so that is asked first, in one comparison.
        match self.protects() {
            Some(sa) => Some(Action::Protect(sa)),
            None => (self != Self::NONE).then(|| Action::decode(self.0 as u32)),
        }
    }

    /// The SA of a policy that protects.
    #[inline(always)]
    fn protects(self) -> Option<u32> {
        let low = self.0 as u32;
        (low < Self::LIST).then_some(low)
    }
}

impl<A: Findable> Arranged<A> {
    fn new(policies: &[Policy]) -> Self {
        let mut by_masks = BTreeMap::<(A, A), Vec<Rule<A>>>::new();
        for (order, policy) in (0..).zip(policies) {
            let Some(pattern) = policy.selector.pattern() else { continue };
            let rule = Rule { pattern, action: policy.action.encode().into(), order, last: false };
            by_masks.entry(masks(&pattern)).or_default().push(rule);
        }
        let mut arranged = Self { groups: Vec::new(), lists: Vec::new(), rest: Vec::new(), is_one_table: false };
        for (masks, rules) in by_masks {
            if rules.len() < GROUP_MIN {
                arranged.rest.extend(rules);
            } else {
                arranged.add_group(masks, rules);
            }
        }
        arranged.groups.sort_unstable_by_key(|group| group.first);
        arranged.rest.sort_unstable_by_key(|rule| rule.order);
        arranged.is_one_table = arranged.groups.len() == 1 && arranged.lists.is_empty() && arranged.rest.is_empty();
        arranged
    }

    /// The rules of one group, in order; there is at least one.
    fn add_group(&mut self, masks: (A, A), rules: Vec<Rule<A>>) {
        let first = rules[0].order;
        let mut by_prefixes = HashMap::<u64, Vec<Rule<A>>>::new();
        for rule in rules {
            let same = by_prefixes.entry(prefixes(&rule.pattern)).or_default();
            // Nothing comes through to what is behind a policy that asks for no more than the prefixes.
            if !A::IS_EXACT || same.last().is_none_or(|before| !before.pattern.is_plain()) {
                same.push(rule);
            }
        }
        let entries = by_prefixes.into_iter().map(|(prefixes, list)| (prefixes, self.add_list(list).0));
        let lookup = Lookup::new(&entries.collect::<Vec<_>>());
        self.groups.push(Group { masks, first, lookup });
    }

    fn add_list(&mut self, mut list: Vec<Rule<A>>) -> Answer {
        if let [only] = &list[..]
            && A::IS_EXACT
            && only.pattern.is_plain()
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
    #[inline(always)]
    pub(super) fn find(&self, source: A, destination: A, shown: impl Fn() -> Shown<A>) -> Option<Action> {
        match self.groups.first() {
            Some(group) if self.is_one_table => group.ask(source, destination).action(),
            _ => self.find_among(source, destination, shown),
        }
    }

    /// [`Arranged::find`] among any groups, lists and other policies.
    #[inline(never)]
    fn find_among(&self, source: A, destination: A, shown: impl Fn() -> Shown<A>) -> Option<Action> {
        let mut found = Answer::NONE;
        for group in &self.groups {
            if group.first > found.order() {
                break;
            }
            let mut answer = group.ask(source, destination);
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

    fn ask_list(&self, start: usize, shown: &Shown<A>) -> Answer {
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

    fn protect_by(&self, order: u32, selector: &Selector, sa: u32) {
        let Some(pattern) = selector.pattern::<A>() else { return };
        if let Ok(place) = self.rest.binary_search_by_key(&order, |rule| rule.order) {
            self.rest[place].action.store(sa, Ordering::Release);
            return;
        }
        let Some(group) = self.groups.iter().find(|group| group.masks == masks(&pattern)) else { return };
        let key = prefixes(&pattern);
        let answer = Answer(group.lookup.get(key));
        if let Some(start) = answer.as_list() {
            let end = self.lists[start..].iter().position(|rule| rule.last).unwrap_or(0);
            // A policy that no packet comes through to is in no list.
            if let Some(rule) = self.lists[start..=start + end].iter().find(|rule| rule.order == order) {
                rule.action.store(sa, Ordering::Release);
            }
        } else if answer.order() == order {
            group.lookup.replace(key, Answer::new(order, Action::Protect(sa)).0);
        }
    }
}

fn prefixes<A: Findable>(pattern: &Pattern<A>) -> u64 {
    A::pair(pattern.source.address, pattern.destination.address)
}

fn masks<A: Address>(pattern: &Pattern<A>) -> (A, A) {
    (pattern.source.mask, pattern.destination.mask)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use proptest::sample::select;
    use proptest::strategy::ValueTree;

    use super::*;
    use crate::ipsec::selector::{Ports, Prefix};

    /// Section 4.4.1 to the letter: one policy after the other.
    fn linear(policies: &[Policy], shown: &Shown<IpAddr>) -> Option<Action> {
        policies.iter().find_map(|policy| match (policy.selector.matches(shown), policy.action) {
            (Match::Yes, action) => Some(action),
            (Match::Unknown, Action::Discard) => Some(Action::Discard),
            (Match::Unknown | Match::No, _) => None,
        })
    }

    fn find(arranged: &Policies, shown: &Shown<IpAddr>) -> Option<Action> {
        fn ask<A: Findable>(arranged: &Policies, shown: Shown<A>) -> Option<Action> {
            A::policies(arranged).find(shown.source, shown.destination, || shown)
        }
        let &Shown { source, destination, protocol, ports } = shown;
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                ask(arranged, Shown { source: u32::from(source), destination: destination.into(), protocol, ports })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                ask(arranged, Shown { source: u128::from(source), destination: destination.into(), protocol, ports })
            }
            _ => unreachable!("both are of one family"),
        }
    }

    /// An address of IPv6 that is as long as one of IPv4: so that both families get the same tests.
    fn widen(address: Ipv4Addr) -> Ipv6Addr {
        (u128::from(u32::from(address)) << 96).into()
    }

    /// Few different ones, so that prefixes overlap, policies come twice, and packets match.
    fn address() -> impl Strategy<Value = u32> {
        (select(vec![10u8, 11]), 0..2u8, 0..4u8, 0..4u8).prop_map(|(a, b, c, d)| u32::from_be_bytes([a, b, c, d << 6]))
    }

    fn prefix(lengths: Vec<u32>) -> impl Strategy<Value = [Prefix; 2]> {
        (address(), select(lengths)).prop_map(|(address, length)| {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            let address = Ipv4Addr::from(address & mask);
            let parse = |address: IpAddr| Prefix::parse(&format!("{address}/{length}")).unwrap();
            [parse(address.into()), parse(widen(address).into())]
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
        let family = prop_oneof![6 => 0..2usize, 1 => Just(2)];
        (prefix(lengths.clone()), prefix(lengths), family, protocol, ports(), ports()).prop_map(
            |(source, destination, family, protocol, source_ports, destination_ports)| {
                let with_ports = protocol.is_some_and(|protocol| protocol != 1);
                let (source_ports, destination_ports) =
                    if with_ports { (source_ports, destination_ports) } else { (None, None) };
                let of = |prefixes: [Prefix; 2]| prefixes.get(family).copied().unwrap_or_default();
                let (source, destination) = (of(source), of(destination));
                Selector { source, destination, protocol, source_ports, destination_ports }
            },
        )
    }

    /// The SA of a policy that protects is its place, so that no two answers look alike.
    fn policies() -> impl Strategy<Value = Vec<Policy>> {
        let lengths = select(vec![vec![24], vec![0, 24], vec![16, 24, 26], vec![0, 7, 8, 16, 23, 24, 25, 26, 32]]);
        let sizes = prop_oneof![0..GROUP_MIN * 4, 0..300usize];
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

    fn shown() -> impl Strategy<Value = Shown<IpAddr>> {
        let ports = prop::option::weighted(0.8, (0..5u16, 0..5u16));
        (any::<bool>(), address(), address(), 0..2u32, select(vec![1u8, 6, 6, 17]), ports).prop_map(
            |(wide, source, destination, low, protocol, ports)| {
                let ports = ports.filter(|_| protocol != 1);
                let of = |address: u32| {
                    let address = Ipv4Addr::from(address);
                    if wide { IpAddr::V6(widen(address)) } else { IpAddr::V4(address) }
                };
                Shown { source: of(source | low), destination: of(destination), protocol, ports }
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

        #[test]
        fn another_sa_is_the_same_as_another_policy(
            mut policies in policies(),
            packets in prop::collection::vec(shown(), 100),
            changed in prop::collection::vec(any::<prop::sample::Index>(), 20),
        ) {
            let arranged = Policies::new(&policies);
            for (turn, index) in (1000..).zip(changed) {
                let order = if policies.is_empty() { continue } else { index.index(policies.len()) };
                if let Action::Protect(_) = policies[order].action {
                    arranged.protect_by(order as u32, &policies[order], turn);
                    policies[order].action = Action::Protect(turn);
                }
            }
            for shown in &packets {
                prop_assert_eq!(find(&arranged, shown), linear(&policies, shown), "{:?}", shown);
            }
        }
    }

    #[test]
    fn random_databases_use_tables_lists_and_the_rest() {
        // What the comparisons above are worth depends on it.
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut groups, mut lists, mut rest, mut actions) = (0, 0, 0, [0; 4]);
        for _ in 0..50 {
            let drawn = policies().new_tree(&mut runner).unwrap().current();
            let arranged = Policies::new(&drawn);
            groups += arranged.ipv4.groups.len().min(arranged.ipv6.groups.len());
            lists += arranged.ipv4.lists.len().min(arranged.ipv6.lists.len());
            rest += arranged.ipv4.rest.len().min(arranged.ipv6.rest.len());
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
        let policy = |order: u32, prefix: String| Policy {
            selector: Selector { destination: Prefix::parse(&prefix).unwrap(), ..Selector::default() },
            action: Action::Protect(order),
        };
        let ipv4 = (0..10_000).map(|order| policy(order, format!("{}/24", Ipv4Addr::from(order << 8))));
        let ipv6 =
            (0..10_000).map(|order| policy(order + 10_000, format!("{}/64", Ipv6Addr::from(u128::from(order) << 64))));
        let arranged = Policies::new(&ipv4.chain(ipv6).collect::<Vec<_>>());
        let Policies { ipv4, ipv6 } = &arranged;
        assert_eq!((ipv4.groups.len(), ipv4.lists.len(), ipv4.rest.len()), (1, 0, 0));
        assert_eq!((ipv6.groups.len(), ipv6.lists.len(), ipv6.rest.len()), (1, 10_000, 0));
        for order in 0..10_001 {
            let shown = Shown { source: 5, destination: order << 8 | 7, protocol: 6, ports: None };
            let found = ipv4.find(shown.source, shown.destination, || shown);
            assert_eq!(found, (order < 10_000).then_some(Action::Protect(order)));
            let shown = Shown { source: 5, destination: u128::from(order) << 64 | 7, protocol: 6, ports: None };
            let found = ipv6.find(shown.source, shown.destination, || shown);
            assert_eq!(found, (order < 10_000).then_some(Action::Protect(order + 10_000)));
        }
    }
}
