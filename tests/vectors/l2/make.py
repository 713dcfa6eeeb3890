#!/usr/bin/env python3
"""Writes scapy.txt: frames before and after a switch. README.md has the format."""
from scapy.all import ARP, Dot1Q, Ether, IP, Raw, UDP

MACS = {"dst": "02:00:00:00:00:09", "src": "02:00:00:00:00:01"}
PAYLOADS = [IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=7, dport=9) / Raw(bytes(range(40))), ARP(psrc="192.0.2.1", pdst="192.0.2.2")]
lines = []
for payload in PAYLOADS:
    for vid in (1, 10, 4094):
        bare = Ether(**MACS) / payload
        def tagged(vlan, priority, eligible):
            return Ether(**MACS) / Dot1Q(vlan=vlan, prio=priority, id=eligible) / payload
        lines.append(("untagged", vid, bare, bare))
        lines.append(("tagged", vid, bare, tagged(vid, 0, 0)))
        for priority, eligible in ((0, 0), (5, 0), (7, 1)):
            received = tagged(vid, priority, eligible)
            lines.append(("tagged", vid, received, received))
            lines.append(("untagged", vid, received, bare))
            zero = tagged(0, priority, eligible)
            lines.append(("tagged", vid, zero, received))
            lines.append(("untagged", vid, zero, bare))
        double = Ether(**MACS) / Dot1Q(vlan=vid, prio=3) / Dot1Q(vlan=77, prio=1) / payload
        lines.append(("untagged", vid, double, Ether(**MACS) / Dot1Q(vlan=77, prio=1) / payload))
with open("scapy.txt", "w") as out:
    for egress, vid, received, sent in lines:
        out.write(f"{egress} {vid} {bytes(received).hex()} {bytes(sent).hex()}\n")
