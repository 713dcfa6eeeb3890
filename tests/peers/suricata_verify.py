"""Runs the tests of suricata-verify with Godwit's inspector, and compares alerts with Suricata.

    suricata_verify.py REPLAY FOLDER [--suricata PROGRAM] [--list]

REPLAY is the example `replay` of crate godwit-nids. FOLDER contains one folder per test, with a
capture, a rule file and test.yaml. A test passes if the numbers of alerts that its checks require
are those of Godwit. Checks for other versions than 8 are ignored, as in suricata-verify.

With --suricata, the alerts of each test are also compared with those of this program: sid,
addresses, ports and number of alerts. Suricata 7 needs `-c` with its configuration, so PROGRAM
usually is a script. With --list, tests that fail or differ are listed with the rule options that
are not supported.
"""

import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

VERSION = (8, 0, 0)
# Arguments of Suricata that name a setting of Godwit.
EXTRA = ["outputs.eve-log.types.alert.payload=yes", "outputs.eve-log.types.files.force-hash=yes"]


class Test:
    def __init__(self, root, description):
        self.folder = os.path.dirname(description)
        self.name = os.path.relpath(self.folder, root)
        with open(description, encoding="utf-8") as file:
            self.content = yaml.safe_load(file)
        named = self.content.get("pcap")
        captures = glob.glob(self.folder + "/*.pcap") + glob.glob(self.folder + "/*.pcapng")
        self.capture = os.path.join(self.folder, named) if named else captures[0]
        self.rules = sorted(glob.glob(self.folder + "/*.rules"))[0]
        self.arguments = [word for line in self.content.get("args") or [] for word in line.split()]
        self.inline = "ips" in os.path.basename(self.folder) or "--simulate-ips" in self.arguments

    def settings(self):
        """Returns the arguments of Suricata as settings of Godwit."""
        settings = list(EXTRA)
        arguments = iter(self.arguments)
        for argument in arguments:
            if argument == "--set":
                settings.append(next(arguments))
            elif argument.startswith("--set="):
                settings.append(argument.removeprefix("--set="))
            elif argument == "-k" and next(arguments) == "none":
                settings.append("stream.checksum-validation=no")
        return settings + (["stream.inline=yes"] if self.inline else [])


def records(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run_godwit(replay, test):
    command = [replay, test.rules, test.capture] + test.settings()
    result = subprocess.run(command, cwd=test.folder, capture_output=True, check=False, timeout=120)
    errors = result.stderr.decode("utf-8", "replace")
    return records(result.stdout.decode("utf-8", "replace")), result.returncode, errors


def run_suricata(program, test):
    with tempfile.TemporaryDirectory() as output:
        command = [program] + test.arguments + (["--simulate-ips"] if test.inline else [])
        own = os.path.join(test.folder, "suricata.yaml")
        command += ["-c", own] if os.path.exists(own) else []
        command += ["-r", test.capture, "-S", test.rules, "-l", output]
        result = subprocess.run(command, cwd=test.folder, capture_output=True, check=False, timeout=120)
        written = os.path.join(output, "eve.json")
        if result.returncode != 0 or not os.path.exists(written):
            return None
        with open(written, encoding="utf-8", errors="replace") as file:
            return records(file.read())


def version(text):
    numbers = [int(number) for number in re.findall(r"\d+", str(text))]
    return tuple((numbers + [0, 0, 0])[:3])


def applies(check):
    for source in (check.get("requires") or {}, check):
        if "min-version" in source and version(source["min-version"]) > VERSION:
            return False
        if "lt-version" in source and VERSION >= version(source["lt-version"]):
            return False
    return True


def member(record, path):
    """Returns the member of a record at a path such as `tls.chain[0].__len`."""
    for part in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        if part == "__len":
            record = len(record)
        elif part.startswith("["):
            index = int(part[1:-1])
            record = record[index] if isinstance(record, list) and index < len(record) else None
        else:
            record = record.get(part) if isinstance(record, dict) else None
        if record is None:
            return None
    return record


def contains(expected, actual):
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(k in actual and contains(v, actual[k]) for k, v in expected.items())
    return str(expected) == str(actual)


def matches(record, wanted):
    for name, value in wanted.items():
        if name in ("has-key", "not-has-key"):
            if (member(record, value) is None) != (name == "not-has-key"):
                return False
            continue
        actual = record[name] if name in record else member(record, name)
        if isinstance(value, dict) and "find" in value:
            good = value["find"] in str(actual)
        elif isinstance(actual, list) and not isinstance(value, list):
            good = value in actual
        else:
            good = actual is not None and contains(value, actual)
        if not good:
            return False
    return True


def failed_checks(test, found):
    failed = []
    for check in test.content.get("checks") or []:
        wanted = check.get("filter")
        if not wanted or not applies(wanted) or (wanted.get("match") or {}).get("event_type") != "alert":
            continue
        count = sum(matches(record, wanted["match"]) for record in found)
        if count != wanted.get("count"):
            failed.append((wanted.get("count"), count, wanted["match"].get("alert.signature_id")))
    return failed


def alerts(found):
    keys = ("src_ip", "src_port", "dest_ip", "dest_port")
    alerts = (record for record in found if record.get("event_type") == "alert")
    return collections.Counter(
        (record["alert"]["signature_id"],) + tuple(record.get(key) for key in keys) for record in alerts
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("replay")
    parser.add_argument("folder")
    parser.add_argument("--suricata")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    replay, root = os.path.abspath(arguments.replay), os.path.abspath(arguments.folder)
    descriptions = sorted(glob.glob(root + "/**/test.yaml", recursive=True))
    passed, same, compared, partial = 0, 0, 0, 0
    for test in (Test(root, description) for description in descriptions):
        found, status, errors = run_godwit(replay, test)
        failed = failed_checks(test, found)
        good = not failed and status == 0
        passed += good
        unsupported = sorted(set(re.findall(r"\d+: ([^:\n]+): ", errors)))
        text = f"{test.name}: "
        if not good:
            text += "fails: " + ", ".join(f"sid {sid}: {got} for {want}" for want, got, sid in failed[:3])
        if arguments.suricata:
            theirs = run_suricata(arguments.suricata, test)
            if theirs is None or unsupported:
                partial += 1
            else:
                compared += 1
                equal = alerts(found) == alerts(theirs)
                same += equal
                if not equal:
                    ours, theirs = alerts(found), alerts(theirs)
                    good = False
                    text += f" differs: only here {dict(ours - theirs)}, only there {dict(theirs - ours)}"
        if arguments.list and not good:
            print(text + (f" (not supported: {', '.join(unsupported)})" if unsupported else ""))
    print(f"{passed} of {len(descriptions)} tests pass")
    if arguments.suricata:
        print(f"{same} of {compared} tests have the alerts of Suricata; {partial} use unsupported options or fail there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
