/* godwit function responder
summary = """\
    Implements the host side of a router: ARP, neighbour discovery, echo replies, ICMP errors, \
    fragmentation."""
spec    = "RFC 826, RFC 792, RFC 1812 section 4.3, RFC 4443, RFC 4861 sections 7.2 and 7.3"
kernel  = false
tailroom = 48                    # of a reply or ICMP error, in addition to its packet
variants = ["settled"]
host    = ["reads_previous"]
[verdicts]
reply = {
    text = """\
        The frame was replaced by a reply or an ICMP error; it leaves by the port that it arrived \
        on.""",
    port = true,
}
forward = {
    text = """\
        A fragment, a packet whose station was resolved, or an address request; it leaves by the \
        port of the next hop.""",
    port = true,
}
other = "The responder does not handle this frame; it is unchanged."
[drops]
untold = """\
    An ICMP error was due, but the RFCs forbid it for this packet, or the rate limit was reached."""
unresolved = """\
    The address of the next station is not resolved yet, and the packet cannot wait for it."""
no_room = "There is no buffer space for a fragment, a reply or an ICMP error."
policed = """\
    The station is new, and packets for too many new stations arrived on this port in the last \
    second."""
[counters]
asked = {
    unit = "frames",
    text = "Address requests sent (ARP requests and neighbour solicitations).",
}
learned = {
    unit = "addresses",
    text = "Station addresses learned, including changes of known ones.",
}
silent = {
    unit = "stations",
    text = "Stations that did not answer address requests.",
}
evicted = {
    unit = "stations",
    text = """\
        Stations given up before an answer, because newer ones needed their place in the table.""",
}
*/
