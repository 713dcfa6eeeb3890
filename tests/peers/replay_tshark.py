"""Decrypts the output of the gateway in examples/03-ipsec-gateway-out.toml with tshark and compares it with the input.

usage: replay_tshark.py PLAIN.pcap ESP.pcap

The n-th frame of ESP.pcap must contain the n-th packet of PLAIN.pcap in an ESP tunnel, up to the total length in its
IPv4 header. ICMP bypasses IPsec by a policy, so these frames must be unchanged.
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
# The inner packet may be malformed. tshark would stop there before it reports the ICV check.
TSHARK += ["--disable-protocol", "tcp", "--disable-protocol", "udp"]


def frames(path):
    """Returns the frames of a pcap file in this machine's byte order."""
    with open(path, "rb") as file:
        data = file.read()
    offset, found = 24, []
    while offset < len(data):
        (captured,) = struct.unpack_from("=8xI4x", data, offset)
        found.append(data[offset + 16 : offset + 16 + captured])
        offset += 16 + captured
    return found


def sources(path):
    """Returns, for each frame, the byte sources that tshark prints: the frame and the decrypted data."""
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
            # A frame with a single source has no heading. The next frame then begins at offset 0.
            name = None
    return found


AUTHENTIC = "ip.dst == 203.0.113.1 && esp.icv_good == 1"
FORGED = "ip.dst == 203.0.113.1 && esp.icv_good == 0"
BROKEN = "ip.dst == 203.0.113.1 && !esp.icv_good && _ws.malformed"


def count(path, display_filter):
    """Returns the number of frames that match a display filter."""
    command = TSHARK + ["-r", path, "-Y", display_filter, "-T", "fields", "-e", "frame.number"]
    return len(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def l3_offset(frame):
    """Returns the offset of the IPv4 header in the frame, in bytes."""
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
        assert esp[:offset] == plain[:offset], f"packet {number}: the Ethernet header changed"
        if inner[9] == 1:
            assert esp == plain, f"packet {number}: the ICMP packet changed"
            continue
        assert "Decrypted Data" in source, f"packet {number}: tshark decrypted nothing"
        assert bytes(source["Decrypted Data"][: len(inner)]) == inner, f"packet {number}: the decrypted packet differs"
        protected += 1
    assert protected > 0
    authentic, broken, forged = count(esp_path, AUTHENTIC), count(esp_path, BROKEN), count(esp_path, FORGED)
    assert forged == 0, f"tshark reports a wrong ICV for {forged} packets"
    assert authentic + broken == protected, f"tshark reports {authentic + broken} ICVs, but {protected} packets are protected"
    assert authentic >= 0.99 * protected, f"tshark reports no ICV check for {broken} of {protected} packets"
    print(f"{len(esp_frames)} packets agree, {protected} of them in the tunnel")


if __name__ == "__main__":
    main(*sys.argv[1:])
