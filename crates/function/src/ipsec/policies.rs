//! Security policy database (RFC 4301, section 4.4.1). The first matching policy applies.
//!
//! Policies with the same two prefix lengths form a group. Each group has a hash table from masked
//! addresses to the policies that can match (tuple space search; Srinivasan, Suri, Varghese,
//! SIGCOMM 1999). The cost per packet grows with the number of groups, not of policies.
//!
//! Groups are searched in the order of their first policies. The search ends when the remaining
//! groups contain only policies after the best match.
//!
//! IPv4 and IPv6 have separate groups. The lookup key contains two whole IPv4 addresses, but only a
//! hash of two IPv6 addresses. For IPv6, all fields of each policy that may match are therefore
//! compared.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};

use godwit_packet::simd::Isa;

use super::lookup::{Lookup, mix};
use super::selector::{Address, Match, PacketFields, Pattern, Selector};

#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) selector: Selector,
    pub(super) action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Encapsulate with the SA of this index.
    Protect(u32),
    Bypass,
    Discard,
}

impl Action {
    // Values for actions without an SA, larger than every SA index.
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

/// Minimum number of policies in a group with a hash table. One lookup takes as long as the
/// comparison of a packet with this many policies (measured by `examples/prepare_ipsec.rs`).
const GROUP_MIN: usize = 4;

/// All policies, indexed for searching.
pub(super) struct Policies {
    ipv4: FamilyPolicies<u32>,
    ipv6: FamilyPolicies<u128>,
}

impl Policies {
    /// Builds the search index of the policies. At most 2^30 policies and 2^30 SAs are possible,
    /// because an [`Answer`] has 30 bits for their numbers.
    pub(super) fn new(policies: &[Policy]) -> Self {
        debug_assert!(policies.len() <= 1 << 30);
        Self { ipv4: FamilyPolicies::new(policies), ipv6: FamilyPolicies::new(policies) }
    }

    #[inline(always)]
    pub(super) fn ipv4(&self) -> &FamilyPolicies<u32> {
        &self.ipv4
    }

    /// Replaces the SA of the `protect` policy at position `order`. A concurrent search finds
    /// either the old or the new SA.
    pub(super) fn set_sa(&self, order: u32, policy: &Policy, sa: u32) {
        self.ipv4.set_sa(order, &policy.selector, sa);
        self.ipv6.set_sa(order, &policy.selector, sa);
    }
}

/// Address type of a policy index, for IPv4 or IPv6.
pub(super) trait PolicyAddress: Address {
    /// Whether different address pairs always have different [`PolicyAddress::pair`] values.
    const IS_EXACT: bool;

    /// Returns the lookup key for a source and a destination address.
    fn pair(source: Self, destination: Self) -> u64;

    fn policies(policies: &Policies) -> &FamilyPolicies<Self>;
}

impl PolicyAddress for u32 {
    const IS_EXACT: bool = true;

    #[inline]
    fn pair(source: Self, destination: Self) -> u64 {
        u64::from(source) << 32 | u64::from(destination)
    }

    #[inline]
    fn policies(policies: &Policies) -> &FamilyPolicies<Self> {
        &policies.ipv4
    }
}

impl PolicyAddress for u128 {
    const IS_EXACT: bool = false;

    #[inline]
    fn pair(source: Self, destination: Self) -> u64 {
        let half = |hash: u64, half: u128| mix(hash ^ half as u64);
        [source >> 64, source, destination >> 64, destination].into_iter().fold(0, half)
    }

    #[inline]
    fn policies(policies: &Policies) -> &FamilyPolicies<Self> {
        &policies.ipv6
    }
}

/// Policies for one address family.
pub(super) struct FamilyPolicies<A> {
    /// Groups of policies with the same two prefix lengths, in the order of their first policies.
    groups: Vec<Group<A>>,
    /// Lists of policies that are compared with a packet one by one. An [`Answer`] refers to a list
    /// by its index.
    lists: Vec<Rule<A>>,
    /// Policies of groups too small for a hash table, in order.
    rest: Vec<Rule<A>>,
    /// Whether one hash table contains all policies. One lookup then decides a packet.
    is_one_table: bool,
}

/// The only hash table, if it holds all policies for IPv4.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    /// Masks of the source and destination prefix, packed by [`PolicyAddress::pair`].
    masks: u64,
    lookup: &'a Lookup,
}

impl Table<'_> {
    /// Returns the SA that protects packets with this address pair. The function searches only one
    /// of two hash buckets, so the caller must call [`Table::answer`] if the result is `None`.
    #[inline(always)]
    pub(super) fn first_bucket_sa(self, pair: u64, isa: impl Isa) -> Option<u32> {
        Answer(self.lookup.get_in_first_bucket(pair & self.masks, isa)).sa()
    }

    pub(super) fn answer(self, pair: u64) -> Answer {
        Answer(self.lookup.get(pair & self.masks))
    }
}

impl FamilyPolicies<u32> {
    #[inline]
    pub(super) fn table(&self) -> Option<Table<'_>> {
        let group = self.groups.first().filter(|_| self.is_one_table)?;
        Some(Table { masks: u32::pair(group.masks.0, group.masks.1), lookup: &group.lookup })
    }
}

/// Policies with the same two prefix lengths.
struct Group<A> {
    masks: (A, A),
    /// Position of the group's first policy among all policies.
    first: u32,
    /// Results of lookups, by masked address pair.
    lookup: Lookup,
}

impl<A: PolicyAddress> Group<A> {
    #[inline(always)]
    fn get(&self, source: A, destination: A) -> Answer {
        Answer(self.lookup.get(A::pair(source & self.masks.0, destination & self.masks.1)))
    }
}

/// Policy in the search index. `order` is its position among all policies.
struct Rule<A> {
    pattern: Pattern<A>,
    action: AtomicU32,
    order: u32,
    /// Whether this is the last policy of its list.
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
    fn applies_to(&self, fields: &PacketFields<A>) -> bool {
        match self.pattern.matches(fields) {
            Match::Yes => true,
            // A fragment without ports must not evade a policy that discards packets to a port.
            Match::Unknown => self.action() == Action::Discard,
            Match::No => false,
        }
    }
}

/// Result of a table lookup, packed into one number. Among several results, the smallest number
/// belongs to the first policy:
///
/// ```text
/// | position of policy  | action or list |
///  63                 32 31            0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Answer(u64);

impl Answer {
    /// No policy matches.
    const NONE: Self = Self(Lookup::ABSENT);
    /// Flag in the lower half of a lookup result, which marks a list of policies to compare with
    /// the packet one by one. The other bits of the lower half are the list index.
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

    fn as_list(self) -> Option<usize> {
        let low = self.0 as u32;
        (low >> 30 == 1).then_some((low & !Self::LIST) as usize)
    }

    /// Returns the policy's action, or `None` if no policy matches. The answer must not be a list.
    #[inline(always)]
    pub(super) fn action(self) -> Option<Action> {
        // Most packets are protected, so this case comes first and needs one comparison.
        match self.sa() {
            Some(sa) => Some(Action::Protect(sa)),
            None => (self != Self::NONE).then(|| Action::decode(self.0 as u32)),
        }
    }

    /// Returns the SA if the action is `protect`.
    #[inline(always)]
    fn sa(self) -> Option<u32> {
        let low = self.0 as u32;
        (low < Self::LIST).then_some(low)
    }
}

impl<A: PolicyAddress> FamilyPolicies<A> {
    fn new(policies: &[Policy]) -> Self {
        let mut by_masks = BTreeMap::<(A, A), Vec<Rule<A>>>::new();
        for (order, policy) in (0..).zip(policies) {
            let Some(pattern) = policy.selector.pattern() else { continue };
            let rule = Rule { pattern, action: policy.action.encode().into(), order, last: false };
            by_masks.entry(masks(&pattern)).or_default().push(rule);
        }
        let mut family = Self { groups: Vec::new(), lists: Vec::new(), rest: Vec::new(), is_one_table: false };
        for (masks, rules) in by_masks {
            if rules.len() < GROUP_MIN {
                family.rest.extend(rules);
            } else {
                family.add_group(masks, rules);
            }
        }
        family.groups.sort_unstable_by_key(|group| group.first);
        family.rest.sort_unstable_by_key(|rule| rule.order);
        family.is_one_table = family.groups.len() == 1 && family.lists.is_empty() && family.rest.is_empty();
        family
    }

    /// Adds a group of policies with the same prefix lengths. `rules` holds these policies in order
    /// and is not empty.
    fn add_group(&mut self, masks: (A, A), rules: Vec<Rule<A>>) {
        let first = rules[0].order;
        let mut by_prefixes = HashMap::<u64, Vec<Rule<A>>>::new();
        for rule in rules {
            let same = by_prefixes.entry(prefixes(&rule.pattern)).or_default();
            // A policy without conditions on other fields matches all packets of this entry, so
            // later policies never apply.
            if !A::IS_EXACT || same.last().is_none_or(|before| !before.pattern.is_address_only()) {
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
            && only.pattern.is_address_only()
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

    /// Returns the action of the first matching policy, or `None` if no policy matches. `fields` is
    /// called only if the addresses do not determine the policy.
    #[inline(always)]
    pub(super) fn find(&self, source: A, destination: A, fields: impl Fn() -> PacketFields<A>) -> Option<Action> {
        match self.groups.first() {
            Some(group) if self.is_one_table => group.get(source, destination).action(),
            _ => self.find_general(source, destination, fields),
        }
    }

    /// Searches the policies like [`FamilyPolicies::find`], but supports several hash tables and
    /// lists.
    #[inline(never)]
    fn find_general(&self, source: A, destination: A, fields: impl Fn() -> PacketFields<A>) -> Option<Action> {
        let mut found = Answer::NONE;
        for group in &self.groups {
            if group.first > found.order() {
                break;
            }
            let mut answer = group.get(source, destination);
            if let Some(list) = answer.as_list()
                && answer < found
            {
                answer = self.search_list(list, &fields());
            }
            found = found.min(answer);
        }
        if self.rest.first().is_some_and(|rule| rule.order < found.order()) {
            let fields = fields();
            let mut before = self.rest.iter().take_while(|rule| rule.order < found.order());
            found = before.find(|rule| rule.applies_to(&fields)).map_or(found, Rule::answer);
        }
        found.action()
    }

    fn search_list(&self, start: usize, fields: &PacketFields<A>) -> Answer {
        for rule in &self.lists[start..] {
            if rule.applies_to(fields) {
                return rule.answer();
            }
            if rule.last {
                break;
            }
        }
        Answer::NONE
    }

    fn set_sa(&self, order: u32, selector: &Selector, sa: u32) {
        let Some(pattern) = selector.pattern::<A>() else { return };
        if let Ok(index) = self.rest.binary_search_by_key(&order, |rule| rule.order) {
            self.rest[index].action.store(sa, Ordering::Release);
            return;
        }
        let Some(group) = self.groups.iter().find(|group| group.masks == masks(&pattern)) else { return };
        let key = prefixes(&pattern);
        let answer = Answer(group.lookup.get(key));
        if let Some(start) = answer.as_list() {
            let end = self.lists[start..].iter().position(|rule| rule.last).unwrap_or(0);
            // The list omits a policy that no packet can reach.
            if let Some(rule) = self.lists[start..=start + end].iter().find(|rule| rule.order == order) {
                rule.action.store(sa, Ordering::Release);
            }
        } else if answer.order() == order {
            group.lookup.replace(key, Answer::new(order, Action::Protect(sa)).0);
        }
    }
}

fn prefixes<A: PolicyAddress>(pattern: &Pattern<A>) -> u64 {
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

    /// Searches the policies one by one, as described in RFC 4301, section 4.4.1.
    fn linear(policies: &[Policy], fields: &PacketFields<IpAddr>) -> Option<Action> {
        policies.iter().find_map(|policy| match (policy.selector.matches(fields), policy.action) {
            (Match::Yes, action) => Some(action),
            (Match::Unknown, Action::Discard) => Some(Action::Discard),
            (Match::Unknown | Match::No, _) => None,
        })
    }

    fn find(policies: &Policies, fields: &PacketFields<IpAddr>) -> Option<Action> {
        fn search<A: PolicyAddress>(policies: &Policies, fields: PacketFields<A>) -> Option<Action> {
            A::policies(policies).find(fields.source, fields.destination, || fields)
        }
        let &PacketFields { source, destination, protocol, ports } = fields;
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => search(
                policies,
                PacketFields { source: u32::from(source), destination: destination.into(), protocol, ports },
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => search(
                policies,
                PacketFields { source: u128::from(source), destination: destination.into(), protocol, ports },
            ),
            _ => unreachable!("both addresses are of one family"),
        }
    }

    /// Converts an IPv4 address to an IPv6 address with the same leading bits. Both families then
    /// get the same tests.
    fn widen(address: Ipv4Addr) -> Ipv6Addr {
        (u128::from(u32::from(address)) << 96).into()
    }

    /// Draws addresses from a small set, so that prefixes overlap and policies match packets.
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
                let prefix = |prefixes: [Prefix; 2]| prefixes.get(family).copied().unwrap_or_default();
                let (source, destination) = (prefix(source), prefix(destination));
                Selector { source, destination, protocol, source_ports, destination_ports }
            },
        )
    }

    /// Draws random policies. Each policy that protects packets has a different SA, which
    /// identifies the policy.
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

    fn fields() -> impl Strategy<Value = PacketFields<IpAddr>> {
        let ports = prop::option::weighted(0.8, (0..5u16, 0..5u16));
        (any::<bool>(), address(), address(), 0..2u32, select(vec![1u8, 6, 6, 17]), ports).prop_map(
            |(wide, source, destination, low, protocol, ports)| {
                let ports = ports.filter(|_| protocol != 1);
                let ip = |address: u32| {
                    let address = Ipv4Addr::from(address);
                    if wide { IpAddr::V6(widen(address)) } else { IpAddr::V4(address) }
                };
                PacketFields { source: ip(source | low), destination: ip(destination), protocol, ports }
            },
        )
    }

    proptest! {
        #[test]
        fn finds_the_same_policy_as_a_linear_search(
            policies in policies(),
            packets in prop::collection::vec(fields(), 200),
        ) {
            let index = Policies::new(&policies);
            for fields in &packets {
                prop_assert_eq!(find(&index, fields), linear(&policies, fields), "{:?}", fields);
            }
        }

        #[test]
        fn changing_the_sa_equals_changing_the_policy(
            mut policies in policies(),
            packets in prop::collection::vec(fields(), 100),
            changed in prop::collection::vec(any::<prop::sample::Index>(), 20),
        ) {
            let indexed = Policies::new(&policies);
            for (turn, index) in (1000..).zip(changed) {
                let order = if policies.is_empty() { continue } else { index.index(policies.len()) };
                if let Action::Protect(_) = policies[order].action {
                    indexed.set_sa(order as u32, &policies[order], turn);
                    policies[order].action = Action::Protect(turn);
                }
            }
            for fields in &packets {
                prop_assert_eq!(find(&indexed, fields), linear(&policies, fields), "{:?}", fields);
            }
        }
    }

    #[test]
    fn random_databases_use_tables_lists_and_the_rest() {
        // The test is meaningful only if the random policies use every part of the search index.
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut groups, mut lists, mut rest, mut actions) = (0, 0, 0, [0; 4]);
        for _ in 0..50 {
            let drawn = policies().new_tree(&mut runner).unwrap().current();
            let indexed = Policies::new(&drawn);
            groups += indexed.ipv4.groups.len().min(indexed.ipv6.groups.len());
            lists += indexed.ipv4.lists.len().min(indexed.ipv6.lists.len());
            rest += indexed.ipv4.rest.len().min(indexed.ipv6.rest.len());
            for _ in 0..100 {
                let fields = fields().new_tree(&mut runner).unwrap().current();
                let action = match find(&indexed, &fields) {
                    Some(Action::Protect(_)) => 0,
                    Some(Action::Bypass) => 1,
                    Some(Action::Discard) => 2,
                    None => 3,
                };
                actions[action] += 1;
            }
        }
        assert!(groups > 50 && lists > 50 && rest > 50, "{groups} {lists} {rest}");
        assert!(actions.iter().all(|count| *count > 50), "{actions:?}");
    }

    #[test]
    fn policies_with_equal_prefix_lengths_form_one_group() {
        let policy = |order: u32, prefix: String| Policy {
            selector: Selector { destination: Prefix::parse(&prefix).unwrap(), ..Selector::default() },
            action: Action::Protect(order),
        };
        let ipv4 = (0..10_000).map(|order| policy(order, format!("{}/24", Ipv4Addr::from(order << 8))));
        let ipv6 =
            (0..10_000).map(|order| policy(order + 10_000, format!("{}/64", Ipv6Addr::from(u128::from(order) << 64))));
        let policies = Policies::new(&ipv4.chain(ipv6).collect::<Vec<_>>());
        let Policies { ipv4, ipv6 } = &policies;
        assert_eq!((ipv4.groups.len(), ipv4.lists.len(), ipv4.rest.len()), (1, 0, 0));
        assert_eq!((ipv6.groups.len(), ipv6.lists.len(), ipv6.rest.len()), (1, 10_000, 0));
        for order in 0..10_001 {
            let fields = PacketFields { source: 5, destination: order << 8 | 7, protocol: 6, ports: None };
            let found = ipv4.find(fields.source, fields.destination, || fields);
            assert_eq!(found, (order < 10_000).then_some(Action::Protect(order)));
            let fields = PacketFields { source: 5, destination: u128::from(order) << 64 | 7, protocol: 6, ports: None };
            let found = ipv6.find(fields.source, fields.destination, || fields);
            assert_eq!(found, (order < 10_000).then_some(Action::Protect(order + 10_000)));
        }
    }
}
