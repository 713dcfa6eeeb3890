//! Reads rtnetlink messages about links, neighbours and routes, and requests them from the kernel.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use godwit_wire::MacAddress;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHopFlags, RouteProtocol, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use super::super::{Family, Prefix};

/// Multicast groups of rtnetlink(7) as bits, each with the address family of its messages. `None`
/// means both families.
const GROUPS: [(Option<Family>, u32); 6] = [
    (None, 1),
    (None, 4),
    (Some(Family::V4), 0x10),
    (Some(Family::V4), 0x40),
    (Some(Family::V6), 0x100),
    (Some(Family::V6), 0x400),
];
/// Size of the socket's receive buffer, in bytes. It has room for the notifications of about ten
/// thousand routes.
const RECEIVE_BYTES: usize = 8 << 20;
/// Maximum pause between two messages of the kernel's reply.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const HEADER_BYTES: usize = 16;
/// The error number ENOBUFS.
const NO_BUFFERS: i32 = 105;
/// Message type that adds a nexthop object (linux/rtnetlink.h, linux/nexthop.h). The netlink crate
/// lacks the types of these objects.
const NEW_NEXT_HOP: u16 = 104;
const DEL_NEXT_HOP: u16 = 105;

/// Change reported by the kernel or by zebra.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Link {
        index: u32,
        link: Option<Link>,
    },
    Neighbour {
        interface: u32,
        address: IpAddr,
        station: Option<MacAddress>,
        /// Whether the neighbour has not answered for a while. The kernel sends it another request
        /// when it must send a packet there.
        is_stale: bool,
    },
    Route {
        route: Route,
        is_there: bool,
    },
    NextHop {
        id: u32,
        target: Option<Target>,
    },
    /// The kernel removed a local address. It may also have removed routes without a message.
    AddressGone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) address: MacAddress,
    pub(super) mtu: u32,
    pub(super) is_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) prefix: Prefix,
    pub(super) table: u32,
    pub(super) metric: u32,
    /// Whether the kernel created the route for an interface address.
    pub(super) is_of_address: bool,
    pub(super) target: Target,
}

/// Target to which a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Link {
        interface: u32,
        gateway: Option<IpAddr>,
    },
    /// Nexthop object, which zebra defines.
    Object(u32),
    Local,
    Blackhole,
    Unreachable,
}

/// Parses all messages of a buffer and passes each one to `event`. Messages of unknown types are
/// skipped, because new kernels add types.
pub(super) fn read(mut bytes: &[u8], mut event: impl FnMut(Message)) {
    while bytes.len() >= HEADER_BYTES {
        let length = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if length < HEADER_BYTES || length > bytes.len() {
            return;
        }
        let (message, rest) = (&bytes[..length], &bytes[length.next_multiple_of(4).min(bytes.len())..]);
        bytes = rest;
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if let NEW_NEXT_HOP | DEL_NEXT_HOP = kind {
            if let Some((id, target)) = next_hop_object(&message[HEADER_BYTES..]) {
                event(Message::Event(Event::NextHop { id, target: target.filter(|_| kind == NEW_NEXT_HOP) }));
            }
            continue;
        }
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else { continue };
        match message.payload {
            NetlinkPayload::Done(_) => event(Message::Done),
            NetlinkPayload::Error(error) => match error.code {
                Some(code) => event(Message::Error(code.get())),
                None => event(Message::Done),
            },
            NetlinkPayload::InnerMessage(message) => {
                if let Some(change) = event_of(message) {
                    event(Message::Event(change));
                }
            }
            _ => {}
        }
    }
}

/// Parsed rtnetlink message.
pub(super) enum Message {
    Event(Event),
    Done,
    Error(i32),
}

fn event_of(message: RouteNetlinkMessage) -> Option<Event> {
    match message {
        RouteNetlinkMessage::NewLink(message) => link(&message),
        RouteNetlinkMessage::DelLink(message) => Some(Event::Link { index: message.header.index, link: None }),
        RouteNetlinkMessage::NewNeighbour(message) => neighbour(&message, true),
        RouteNetlinkMessage::DelNeighbour(message) => neighbour(&message, false),
        RouteNetlinkMessage::NewRoute(message) => {
            route(&message, true).map(|route| Event::Route { route, is_there: true })
        }
        RouteNetlinkMessage::DelRoute(message) => {
            route(&message, false).map(|route| Event::Route { route, is_there: false })
        }
        RouteNetlinkMessage::DelAddress(_) => Some(Event::AddressGone),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<MacAddress> {
    <[u8; 6]>::try_from(bytes).ok().map(MacAddress)
}

fn link(message: &LinkMessage) -> Option<Event> {
    let mut link = Link { name: String::new(), address: MacAddress::default(), mtu: 0, is_up: false };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.address = mac(bytes).unwrap_or_default(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            _ => {}
        }
    }
    // A bridge also sends messages about its ports. They have other attributes and are ignored
    // here.
    if link.name.is_empty() || message.header.interface_family != AddressFamily::Unspec {
        return None;
    }
    link.is_up = message.header.flags.contains(LinkFlags::Up);
    Some(Event::Link { index: message.header.index, link: Some(link) })
}

fn neighbour(message: &NeighbourMessage, is_there: bool) -> Option<Event> {
    let mut address = None;
    let mut station = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(IpAddr::V4(*v4)),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(IpAddr::V6(*v6)),
            NeighbourAttribute::LinkLayerAddress(bytes) => station = mac(bytes),
            _ => {}
        }
    }
    use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
    let is_known = is_there && matches!(message.header.state, Reachable | Stale | Delay | Probe | Permanent);
    let station = station.filter(|station| is_known && !station.is_multicast());
    let is_stale = message.header.state == Stale;
    Some(Event::Neighbour { interface: message.header.ifindex, address: address?, station, is_stale })
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(value) => address(value),
        RouteAttribute::Via(RouteVia::Inet(v4)) => Some((*v4).into()),
        RouteAttribute::Via(RouteVia::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    }
}

/// Returns the route in a message. Returns `None` for a route that Godwit ignores, such as a route
/// for certain source addresses.
fn route(message: &RouteMessage, is_there: bool) -> Option<Route> {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    if header.flags.contains(RouteFlags::Cloned) || header.source_prefix_length > 0 || header.tos > 0 {
        return None;
    }
    let (mut to, mut via, mut interface, mut object) = (any, None, None, None);
    let (mut table, mut metric) = (u32::from(header.table), 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(value) => to = address(value)?,
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::NhId(id) => object = Some(*id),
            // Only the first usable path of a multipath route is used.
            RouteAttribute::MultiPath(paths) => {
                let dead = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
                let path = paths.iter().find(|path| !path.flags.intersects(dead))?;
                interface = Some(path.interface_index);
                via = path.attributes.iter().find_map(gateway);
            }
            other => via = gateway(other).or(via),
        }
    }
    let target = match header.kind {
        RouteType::Unicast => match (interface, object) {
            (Some(interface), _) => Target::Link { interface, gateway: via },
            (None, Some(id)) => Target::Object(id),
            (None, None) => Target::Unreachable,
        },
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast => Target::Local,
        RouteType::BlackHole => Target::Blackhole,
        RouteType::Unreachable | RouteType::Prohibit => Target::Unreachable,
        // Zebra does not state the target of a withdrawn route.
        RouteType::Unspec if !is_there => Target::Unreachable,
        _ => return None,
    };
    let prefix = Prefix::of(to, header.destination_prefix_length)?;
    let is_of_address = header.protocol == RouteProtocol::Kernel;
    Some(Route { prefix, table, metric, is_of_address, target })
}

/// Returns the identifier and the target of a nexthop object. The target of a group is the target
/// of its first member.
fn next_hop_object(message: &[u8]) -> Option<(u32, Option<Target>)> {
    const ID: u16 = 1;
    const GROUP: u16 = 2;
    const BLACKHOLE: u16 = 4;
    const INTERFACE: u16 = 5;
    const GATEWAY: u16 = 6;
    let mut attributes = message.get(8..)?;
    let (mut id, mut interface, mut gateway, mut other) = (None, None, None, None);
    while let [low, high, kind_low, kind_high, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let value = attributes.get(4..length)?;
        let number = || value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match u16::from_ne_bytes([kind_low, kind_high]) & 0x3fff {
            ID => id = number(),
            GROUP => other = number().map(Target::Object),
            BLACKHOLE => other = Some(Target::Blackhole),
            INTERFACE => interface = number(),
            GATEWAY => {
                gateway = match *value {
                    [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
                    _ => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
                }
            }
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let target = other.or_else(|| interface.map(|interface| Target::Link { interface, gateway }));
    Some((id?, target))
}

/// Socket that receives the kernel's notifications.
pub(super) struct Monitor(Socket);

impl Monitor {
    pub(super) fn open(family: Family) -> std::io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let of_family = |(group, _): &&(Option<Family>, u32)| group.is_none_or(|group| group == family);
        let groups = GROUPS.iter().filter(of_family).fold(0, |groups, (_, bit)| groups | bit);
        // The kernel may refuse this buffer size to an unprivileged process. The default size
        // suffices, except when a full table of routes arrives at once.
        let _ = socket.set_rx_buf_sz(RECEIVE_BYTES as i32);
        socket.bind(&SocketAddr::new(0, groups))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    /// Reads all notifications that have arrived and passes them to `event`. Returns `false` if
    /// notifications were lost. The caller must then request the complete state.
    pub(super) fn read(&self, mut event: impl FnMut(Event)) -> std::io::Result<bool> {
        let mut is_whole = true;
        loop {
            match self.0.recv_from_full() {
                Ok((bytes, _)) => read(&bytes, |message| {
                    if let Message::Event(change) = message {
                        event(change);
                    }
                }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(is_whole),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The receive buffer overflowed. New notifications arrive only after the socket is
                // read until the buffer is empty.
                Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => is_whole = false,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Socket for requests to the kernel.
pub(super) struct Requester(Socket);

impl Requester {
    pub(super) fn open() -> std::io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        let _ = socket.set_rx_buf_sz(RECEIVE_BYTES as i32);
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Self(socket))
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> std::io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map(|_| ())
    }

    /// Requests all links, neighbours and routes from the kernel, waits for the replies and passes
    /// each entry to `event`.
    pub(super) fn dump(&self, family: Family, mut event: impl FnMut(Event)) -> std::io::Result<()> {
        let family = match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        };
        let mut neighbours = NeighbourMessage::default();
        neighbours.header.family = family;
        let mut routes = RouteMessage::default();
        routes.header.address_family = family;
        let requests = [
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            RouteNetlinkMessage::GetNeighbour(neighbours),
            RouteNetlinkMessage::GetRoute(routes),
        ];
        for request in requests {
            self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
            let mut ended = None;
            let mut last_read = Instant::now();
            while ended.is_none() {
                match self.0.recv_from_full() {
                    Ok((bytes, _)) => {
                        last_read = Instant::now();
                        read(&bytes, |message| match message {
                            Message::Event(change) => event(change),
                            Message::Done => ended = Some(Ok(())),
                            Message::Error(code) => ended = Some(Err(std::io::Error::from_raw_os_error(-code))),
                        });
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock && last_read.elapsed() < ANSWER_LIMIT => {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    /// Makes the kernel resolve or probe a neighbour by sending an empty UDP packet to its discard
    /// port (RFC 863). Unlike a netlink request, the packet needs no privileges.
    pub(super) fn resolve(&self, interface: u32, address: IpAddr) -> std::io::Result<()> {
        const DISCARD: u16 = 9;
        let (from, to): (std::net::SocketAddr, std::net::SocketAddr) = match address {
            IpAddr::V4(v4) => ((std::net::Ipv4Addr::UNSPECIFIED, 0).into(), (v4, DISCARD).into()),
            IpAddr::V6(v6) => {
                let to = std::net::SocketAddrV6::new(v6, DISCARD, 0, interface);
                ((std::net::Ipv6Addr::UNSPECIFIED, 0).into(), to.into())
            }
        };
        let socket = std::net::UdpSocket::bind(from)?;
        socket.set_nonblocking(true)?;
        socket.send_to(&[], to).map(|_| ())
    }
}
