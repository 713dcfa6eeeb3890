"""Sends frames by one interface and takes what comes by another: echo between them swaps addresses and changes nothing else.

    veth_frames.py SEND RECEIVE COUNT     says how many were sent, came back, and were as they should be

At most 64 are on their way, so nothing is lost for want of room.
"""

import select
import socket
import struct
import sys
import time


def frame(number):
    payload = bytes((number + place) & 255 for place in range(18 + number * 13 % 1450))
    udp = struct.pack("!HHHH", 1000 + number % 7, 9, 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number & 65535, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\1\0\1")
    total = sum(struct.unpack("!10H", header))
    total = (total & 65535) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~((total & 65535) + (total >> 16)) & 65535) + header[12:]
    return b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x08\0" + header + udp


def raw(interface):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    opened.bind((interface, 3))
    return opened


send, receive, count = raw(sys.argv[1]), raw(sys.argv[2]), int(sys.argv[3])
sent, came = [], []
last = time.monotonic()
while len(came) < count and time.monotonic() - last < 5:
    while len(sent) < count and len(sent) - len(came) < 64:
        sent.append(frame(len(sent)))
        send.send(sent[-1])
    if select.select([receive], [], [], 0.05)[0]:
        got, where = receive.recvfrom(65536)
        # What this socket's own side sends is seen too.
        if where[2] != socket.PACKET_OUTGOING and got[12:14] == b"\x08\0":
            came.append(got)
            last = time.monotonic()
swapped = [one[6:12] + one[:6] + one[12:] for one in sent]
print("sent", len(sent), "came", len(came), "right", sum(one == other for one, other in zip(swapped, came)))
