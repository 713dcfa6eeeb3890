#!/usr/bin/env python3
"""Measures what a trace of dropped packets and a scan of an on-link network cost, as ratios of rates.

The scan is measured alone and beside good traffic. Alone, all packets are for stations whose
addresses are not known: for few stations, and for random ones. Beside good traffic, the rate of
this traffic is compared with and without the scan.

The runs with and without the trace, or the scan, alternate, and the medians are compared. Prints
one row per ratio for the table in fuzz/README.md, and fails if a ratio is below 0.9. Needs idle
cores: other processes change the rates.

    scripts/rates.py [--seconds N] [--rounds N] [--godwit PATH]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

RATIO_MIN = 0.9

ROUTER = """
[[port]]
name = "lan"
kind = "synthetic"
flows = {flows}
destination = "{destination}"

[[port]]
name = "wan"
kind = "synthetic"
{scan}

[[function]]
name = "route"
kind = "ipv4"

[[function.next_hop]]
name = "link"
port = "wan"
{next_hop}

[[function.next_hop]]
name = "router"
port = "wan"
{known}

[[function.route]]
prefix = "10.0.0.0/16"
next_hop = "link"

[[function.route]]
prefix = "10.1.0.0/16"
next_hop = "router"

[[function]]
name = "self"
kind = "responder"

[[function.interface]]
port = "wan"
mac = "02:00:00:00:01:02"
addresses = ["10.0.0.1/16"]

[[chain]]
from = "lan"
to = "route"

[[chain]]
from = "route"
verdict = "forward"
to = "egress"

[[chain]]
from = "route"
to = "self"

[[chain]]
from = "self"
verdict = "other"
to = "drop"

[[chain]]
from = "self"
to = "egress"
"""

KNOWN = 'destination_mac = "02:00:00:00:01:01"\nsource_mac = "02:00:00:00:01:02"'
ON_LINK = "on_link = true"
# Fewer stations than the neighbour table holds, and more.
FEW_STATIONS, MANY_STATIONS = 1000, 60000
# A scan from a separate port, in addition to other traffic.
SCAN_RATE = "500kpps"
SCAN = f"""
[[port]]
name = "scan"
kind = "synthetic"
rate = "{SCAN_RATE}"
flows = {MANY_STATIONS}
destination = "10.0.0.0/16"

[[chain]]
from = "scan"
to = "route"
"""


def run(*command):
    """Returns the output of a command that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"rates: {' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Rates:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.control = self.folder / "control"

    def config(self, flows, next_hop, destination="10.0.0.0/16", scan=""):
        path = self.folder / "router.toml"
        path.write_text(
            ROUTER.format(flows=flows, next_hop=next_hop, known=KNOWN, destination=destination, scan=scan)
        )
        return path

    def report_of(self, config):
        return json.loads(run(self.options.godwit, "run", config, "--seconds", self.options.seconds, "--json", "-"))

    def scan(self):
        """Returns the packets per second to few stations, and to random ones."""
        rates = {FEW_STATIONS: [], MANY_STATIONS: []}
        for _ in range(self.options.rounds):
            for flows, measured in rates.items():
                report = self.report_of(self.config(flows, ON_LINK))
                measured.append(report["conservation"]["received"] / self.options.seconds)
        return rates[FEW_STATIONS], rates[MANY_STATIONS]

    def beside(self):
        """Returns the packets per second that are forwarded without and with a scan beside them."""
        without, scanned = [], []
        for _ in range(self.options.rounds):
            for scan, measured in (("", without), (SCAN, scanned)):
                report = self.report_of(self.config(FEW_STATIONS, ON_LINK, "10.1.0.0/16", scan))
                forwarded = next(port for port in report["ports"] if port["name"] == "lan")
                measured.append(forwarded["received_packets"] / self.options.seconds)
        return without, scanned

    def received(self):
        report = json.loads(run(self.options.godwit, "status", "--control", self.control, "--json", "-"))
        return report["conservation"]["received"], time.monotonic()

    def rate(self):
        (before, begin), _, (after, end) = self.received(), time.sleep(self.options.seconds), self.received()
        return (after - before) / (end - begin)

    def trace(self):
        """Returns the packets per second without and with a trace of dropped packets. None is dropped."""
        config = self.config(MANY_STATIONS, KNOWN)
        command = [self.options.godwit, "run", config, "--control", self.control]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while subprocess.run([self.options.godwit, "status", "--control", self.control], capture_output=True).returncode:
                if process.poll() is not None:
                    sys.exit("rates: the run did not start")
                time.sleep(0.1)
            without, traced = [], []
            for _ in range(self.options.rounds):
                without.append(self.rate())
                command = [self.options.godwit, "trace", "--control", self.control, "--dropped", "--timeout", "600"]
                trace = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.3)
                traced.append(self.rate())
                trace.terminate()
                trace.wait()
            return without, traced
        finally:
            process.terminate()
            process.wait()

    def report(self, name, rates):
        """Prints the row of a ratio. Returns whether it is large enough."""
        without, measured = map(statistics.median, rates)
        ratio = measured / without
        work = f"{without / 1e6:.2f} and {measured / 1e6:.2f} million packets per second"
        seconds = 2 * self.options.rounds * self.options.seconds
        print(f"| {time.strftime('%Y-%m-%d')} | {name} | {seconds} s | {work} | ratio {ratio:.2f} |")
        return ratio >= RATIO_MIN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--godwit", default="target/release/godwit")
    with tempfile.TemporaryDirectory() as folder:
        rates = Rates(parser.parse_args(), folder)
        results = [
            rates.report("trace of dropped packets", rates.trace()),
            rates.report("scan of an on-link network", rates.scan()),
            rates.report(f"scan of an on-link network at {SCAN_RATE} beside other traffic", rates.beside()),
        ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
