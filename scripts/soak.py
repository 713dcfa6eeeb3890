#!/usr/bin/env python3
"""Runs a router with an IPsec tunnel under load, and changes everything that can change at run time.

Each second: a reload, an SA with a new key, 20 route changes, and a status. Each 20 seconds: the
link of the tunnel goes down for 2 seconds. The soak fails if a request is refused, a packet is not
accounted for, the process ends early, or its memory, descriptors or threads grow.

The last line is a row for the table in fuzz/README.md. Needs root, because it creates interfaces in
a network namespace.

    scripts/soak.py [--seconds N] [--godwit PATH] [--workers N] [--device ID]
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

# Resident memory may grow by this much after the first minute.
GROWTH_BYTES_MAX = 16 << 20
FLAP_SECONDS = 20
DOWN_SECONDS = 2

CONFIG = """
[engine]
workers = {workers}
idle = "sleep"

[[port]]
name = "lan"
kind = "synthetic"
rate = "20kpps"
size = "imix"
source = "10.1.0.0/16"
destination = "10.2.0.0/16"

[[port]]
name = "wan"
kind = "af_xdp"
interface = "soak"

[[function]]
name = "route"
kind = "ipv4"
{device}

[[function.next_hop]]
name = "provider"
port = "wan"
destination_mac = "02:00:00:00:00:02"
source_mac = "02:00:00:00:00:01"

[[function.route]]
prefix = "10.0.0.0/8"
next_hop = "provider"

[[function]]
name = "tunnel"
kind = "ipsec"

[[function.sa]]
name = "out"
{sa}

[[function.policy]]
action = "protect"
sa = "out"

[[class]]
name = "branch"
destination = "10.2.0.0/17"

[[chain]]
from = "lan"
to = "route"

[[chain]]
from = "route"
verdict = "forward"
to = "tunnel"

[[chain]]
from = "route"
to = "drop"

[[chain]]
from = "tunnel"
to = "wan"

[[chain]]
from = "wan"
to = "drop"
"""

SA = """spi = {spi}
direction = "out"
source = "198.51.100.1"
destination = "203.0.113.1"
encryption = "aes-128-gcm"
encryption_key = "{key}"
"""


def run(*command, **options):
    """Returns the output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"soak: {' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def usage(pid):
    """Returns resident bytes, descriptors and threads of a process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    field = lambda name: int(status.split(name + ":")[1].split()[0])
    return field("VmRSS") << 10, len(os.listdir(f"/proc/{pid}/fd")), field("Threads")


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.control = self.folder / "control"
        self.counts = dict.fromkeys(["reloads", "rekeys", "route changes", "link flaps"], 0)
        self.spi = 0x1000

    def sa(self):
        """Returns the keys of an SA that no earlier one had."""
        self.spi += 1
        return SA.format(spi=self.spi, key=os.urandom(20).hex())

    def ask(self, *arguments, **options):
        command, *rest = arguments
        return run(self.options.godwit, *command.split(), "--control", self.control, *rest, **options)

    def start(self):
        device = f'device = "{self.options.device}"' if self.options.device else ""
        config = self.folder / "soak.toml"
        config.write_text(CONFIG.format(workers=self.options.workers, device=device, sa=self.sa()))
        workers = str(self.options.workers)
        run("ip", "link", "add", "soak", "numrxqueues", workers, "numtxqueues", workers, "type", "veth", "peer", "name",
            "peer", "numrxqueues", workers, "numtxqueues", workers)
        for name in ["soak", "peer"]:
            run("ip", "link", "set", name, "up")
        command = [self.options.godwit, "run", config, "--control", self.control, "--json", self.folder / "report.json",
            "--state", self.folder / "state"]
        self.log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        deadline = time.monotonic() + 60
        while subprocess.run([self.options.godwit, "status", "--control", self.control], capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"soak: the run did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.1)

    def turn(self, second):
        self.ask("reload")
        self.counts["reloads"] += 1
        self.ask("sa replace", "--function", "tunnel", "--file", "-", input=f'[[sa]]\nname = "out"\n{self.sa()}')
        self.counts["rekeys"] += 1
        prefixes = [f"10.2.{number}.0/24" for number in range(second % 16 * 10, second % 16 * 10 + 10)]
        for prefix in prefixes:
            self.ask("route add", "--function", "route", prefix, "provider")
        self.ask("route delete", "--function", "route", *prefixes)
        self.counts["route changes"] += 2 * len(prefixes)
        if second % FLAP_SECONDS == 0:
            run("ip", "link", "set", "peer", "down")
        if second % FLAP_SECONDS == DOWN_SECONDS:
            run("ip", "link", "set", "peer", "up")
            self.counts["link flaps"] += 1
        report = json.loads(self.ask("status", "--json", "-"))
        health = report.get("health", {})
        if any(health.values()):
            sys.exit(f"soak: second {second}: {health}")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit("soak: the run did not end within 10 s of SIGTERM")
        if code != 0:
            sys.exit(f"soak: exit code {code}: {(self.folder / 'log').read_text()[-2000:]}")
        report = json.loads((self.folder / "report.json").read_text())
        if not report["conserved"]:
            sys.exit(f"soak: not conserved: {report['conservation']}")
        return report["conservation"]

    def soak(self):
        self.start()
        begin, first = time.monotonic(), None
        second = 0
        while (elapsed := time.monotonic() - begin) < self.options.seconds:
            second += 1
            self.turn(second)
            if self.process.poll() is not None:
                sys.exit(f"soak: the run ended after {elapsed:.0f} s: {(self.folder / 'log').read_text()[-2000:]}")
            if first is None and elapsed >= min(60, self.options.seconds / 2):
                first = usage(self.process.pid)
            time.sleep(max(0, begin + second - time.monotonic()))
        last = usage(self.process.pid)
        first = first or last
        conservation = self.end()
        if last[0] > first[0] + GROWTH_BYTES_MAX or last[1] > first[1] + 2 or last[2] > first[2] + 2:
            sys.exit(f"soak: memory, descriptors, threads grew from {first} to {last}")
        changes = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        print(f"| {time.strftime('%Y-%m-%d')} | soak | {self.options.seconds} s | {changes} | "
              f"{conservation['received']} packets conserved; resident {first[0] >> 20} to {last[0] >> 20} MB |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--godwit", default="target/release/godwit")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", help="device of the route function, such as opencl:0")
    options = parser.parse_args()
    options.godwit = os.path.abspath(options.godwit)
    if os.environ.get("GODWIT_SOAK") != "inside":
        os.environ["GODWIT_SOAK"] = "inside"
        os.execvp("unshare", ["unshare", "--net", "--", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        Soak(options, folder).soak()


if __name__ == "__main__":
    main()
