#!/usr/bin/env python3
"""What a run of all.sh amounts to: every skipped test with its reason, then one line of totals.

A skipped test counts as passed nowhere. A test that leaves out a part is listed, and counts as
passed. A suite that is not made of Rust tests counts as one test.

Usage: totals.py RUN_DIRECTORY
"""

import json
import re
import sys
from pathlib import Path

# Stages whose output says how many tests they ran.
RUST = ("rust", "as-user")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NEXTEST = re.compile(r"Summary \[.*?\] +(?:(\d+)/)?(\d+) tests? run: (.*)")
FLAKY = re.compile(r"FLAKY \d+/\d+ \[.*?\] (?:\(.*?\) )?(\S+ \S+)")
LIBTEST = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed")


def count(text):
    """Passed, failed and never started, of one log."""
    passed = failed = missing = 0
    text = COLOUR.sub("", text)
    # What nextest shows of a failed test has a result of libtest in it.
    with_nextest = NEXTEST.search(text) is not None
    for line in text.splitlines():
        if found := NEXTEST.search(line):
            begun, planned, rest = found.groups()
            numbers = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|timed out|exec failed)", rest)}
            passed += numbers.pop("passed", 0)
            failed += sum(numbers.values())
            missing += int(planned) - int(begun) if begun else 0
        elif not with_nextest and (found := LIBTEST.search(line)):
            passed += int(found.group(1))
            failed += int(found.group(2))
    return passed, failed, missing


def main(run):
    passed = failed = missing = 0
    flaky = set()
    for status in sorted((run / "logs").glob("*.status")):
        name, good = status.stem, status.read_text().strip() == "0"
        if name in RUST:
            text = (run / "logs" / f"{name}.log").read_text(errors="replace")
            flaky |= {(name, test) for test in FLAKY.findall(COLOUR.sub("", text))}
            more = count(text)
            passed, failed, missing = passed + more[0], failed + more[1], missing + more[2]
            if not good and not more[1]:
                failed += 1
        else:
            passed, failed = passed + good, failed + (not good)
    records = [json.loads(line) for line in (run / "skips.jsonl").read_text().splitlines()]
    whole = unique(one for one in records if not one["partly"])
    parts = unique(one for one in records if one["partly"])
    # One that is no Rust test was never counted as passed.
    passed -= sum(1 for one in whole if not one["program"].endswith(".sh"))
    show("skipped", whole)
    show("skipped in part", parts)
    for stage, test in sorted(flaky):
        print(f"flaky, in {stage}: failed and then passed: {test}")
    if missing:
        print(f"{missing} tests were not started")
    print(f"{passed} passed, {failed} failed, {len(whole)} skipped")


def unique(records):
    """Each once: a test that skips in a loop, or was run twice, says the same again."""
    return list({json.dumps(one, sort_keys=True): one for one in records}.values())


def show(title, records):
    """A table: the reason, then the tests it kept from running."""
    by_reason = {}
    for one in records:
        name = f"{one['program']} {one['test']}"
        by_reason.setdefault((one["user"], one["reason"]), []).append(name)
    for (user, reason), names in sorted(by_reason.items()):
        print(f"{title}, as {user}: {reason}")
        for name in sorted(names):
            print(f"    {name}")


main(Path(sys.argv[1]))
