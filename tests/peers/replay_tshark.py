"""Decrypts with tshark what the gateway of examples/03-ipsec-gateway-out.toml sent, and compares.

usage: replay_tshark.py PLAIN.pcap ESP.pcap

The n-th frame of ESP.pcap must be the n-th frame of PLAIN.pcap: inside an ESP tunnel, up to the total length that its
IPv4 header states, or as it is where a policy let it pass (ICMP).
"""

import re
import struct
import subprocess
import sys

SA = (
    'uat:esp_sa:"IPv4","198.51.100.1","203.0.113.1","0x00001001",'
    '"AES-CBC [RFC3602]","0x000102030405060708090a0b0c0d0e0f",'
    '"HMAC-SHA-1-96 [RFC2404]","0x101112131415161718191a1b1c1d1e1f20212223"'
)
TSHARK = ["tshark", "-n", "-o", SA, "-o", "esp.enable_encryption_decode:TRUE", "-o", "esp.enable_authentication_check:TRUE"]
# What is inside may be malformed, and tshark stops there before it says whether the ICV is right.
TSHARK += ["--disable-protocol", "tcp", "--disable-protocol", "udp"]


def frames(path):
    """Frames of a pcap file of this machine's byte order."""
    with open(path, "rb") as file:
        data = file.read()
    offset, found = 24, []
    while offset < len(data):
        (captured,) = struct.unpack_from("=8xI4x", data, offset)
        found.append(data[offset + 16 : offset + 16 + captured])
        offset += 16 + captured
    return found


def sources(path):
    """Per frame, the byte sources that tshark shows: the frame itself, and what it decrypted."""
    text = subprocess.run(
        TSHARK + ["-r", path, "-x"], capture_output=True, text=True, check=True
    ).stdout
    found, name = [], None
    for line in text.splitlines():
        heading = re.fullmatch(r"(.+) \(\d+ bytes\):", line)
        dump = re.match(r"([0-9a-f]{4,})  ((?:[0-9a-f]{2} )+)", line + " ")
        if heading:
            name = heading.group(1)
            if name == "Frame":
                found.append({})
        elif dump:
            if name is None:
                if int(dump.group(1), 16) == 0:
                    found.append({})
                name = "Frame"
            found[-1].setdefault(name, bytearray()).extend(bytes.fromhex(dump.group(2)))
        elif not line:
            # A frame of one source has no heading; the next one's is told by its offset 0.
            name = None
    return found


AUTHENTIC = "ip.dst == 203.0.113.1 && esp.icv_good == 1"
FORGED = "ip.dst == 203.0.113.1 && esp.icv_good == 0"
BROKEN = "ip.dst == 203.0.113.1 && !esp.icv_good && _ws.malformed"


def count(path, display_filter):
    """Frames that fit a display filter."""
    command = TSHARK + ["-r", path, "-Y", display_filter, "-T", "fields", "-e", "frame.number"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def l3_offset(frame):
    """Bytes in front of the IPv4 packet."""
    offset = 12
    while frame[offset : offset + 2] in (b"\x81\x00", b"\x88\xa8"):
        offset += 4
    return offset + 2


def main(plain_path, esp_path):
    plain_frames, esp_frames, shown = frames(plain_path), frames(esp_path), sources(esp_path)
    assert len(plain_frames) == len(esp_frames) == len(shown), (len(plain_frames), len(esp_frames), len(shown))
    protected = 0
    for number, (plain, esp, source) in enumerate(zip(plain_frames, esp_frames, shown)):
        offset = l3_offset(plain)
        inner = plain[offset:]
        inner = inner[: int.from_bytes(inner[2:4], "big")]
        assert esp[:offset] == plain[:offset], f"packet {number}: other Ethernet header"
        if inner[9] == 1:
            assert esp == plain, f"packet {number}: ICMP was to pass as it is"
            continue
        assert "Decrypted Data" in source, f"packet {number}: tshark decrypted nothing"
        assert bytes(source["Decrypted Data"][: len(inner)]) == inner, f"packet {number}: other content"
        protected += 1
    assert protected > 0
    authentic, broken, forged = count(esp_path, AUTHENTIC), count(esp_path, BROKEN), count(esp_path, FORGED)
    assert forged == 0, f"tshark calls {forged} packets forged"
    assert authentic + broken == protected, f"tshark calls {authentic} of {protected} packets authentic"
    assert authentic >= 0.99 * protected, f"tshark says nothing about {broken} of {protected} packets"
    print(f"{len(esp_frames)} packets agree, {protected} of them in the tunnel")


if __name__ == "__main__":
    main(*sys.argv[1:])
