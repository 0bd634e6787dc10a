#!/usr/bin/env python3
"""Writes docs/understand/traceability.md from tests/promises.toml: each promise and the tests that check it.

Fails when a promise has no test, when a test does not exist, and when an id is used twice.

Usage: traceability.py            write the page
       traceability.py --check    fail when the page is out of date
"""

import re
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs/understand/traceability.md"
PROMISES = REPOSITORY / "tests/promises.toml"
REBUILD = "tests/traceability.py"

HEAD = """\
# Traceability

```sh
tests/traceability.py           # write this page from tests/promises.toml
tests/traceability.py --check   # what `make lint` runs
```

Each row is a promise of [SPECIFICATION.md](../../SPECIFICATION.md) in detail, with the tests that check it: a test function, a script, or a documentation page whose commands are run as a test. Promises and test names are in `tests/promises.toml`; this page is generated, do not edit it. [Testing](testing.md) says how to run the suites and what is not part of `make test`.

"""


# A test attribute, what may stand between it and the function, and the function's name.
TEST = re.compile(
    r"#\[(?:\w+::)*test(?:\([^\]]*\))?\]\s*(?:#\[[^\n]*\]\s*|//[^\n]*\n\s*)*(?:pub(?:\([a-z]+\))? )?(?:async )?fn (\w+)\("
)
# Bodies that are run in several cases: `per_tier!(name, other_name)`.
CASES = re.compile(r"\bper_\w+!\s*[({]([\w\s,]*)[)}]")


def test_functions():
    """Where each test function is: name to path."""
    found = {}
    for path in sorted((REPOSITORY / "crates").rglob("*.rs")):
        text = path.read_text()
        names = TEST.findall(text)
        for listed in CASES.findall(text):
            names += [name for name in re.findall(r"\w+", listed) if f"fn {name}(" in text]
        for name in names:
            found.setdefault(name, path)
    return found


def page(sections):
    """The page, and what is wrong with the promises."""
    functions, wrong, seen, parts = test_functions(), [], set(), [HEAD]
    count = sum(len(section["promise"]) for section in sections)
    tests = {name for section in sections for promise in section["promise"] for name in promise["tests"]}
    parts.append(f"{count} promises, {len(tests)} tests, scripts and pages.\n")
    for section in sections:
        parts.append(f"\n## {section['title']}\n\n| id | promise | checked by |\n|---|---|---|\n")
        for promise in section["promise"]:
            if promise["id"] in seen:
                wrong.append(f"{promise['id']}: used twice")
            seen.add(promise["id"])
            if not promise["tests"]:
                wrong.append(f"{promise['id']}: no test checks this promise")
            links = []
            for name in promise["tests"]:
                path = REPOSITORY / name if "/" in name else functions.get(name)
                if path is None or not path.exists():
                    wrong.append(f"{promise['id']}: there is no test, script or page {name}")
                    continue
                links.append(f"[`{name}`](../../{path.relative_to(REPOSITORY)})")
            text = promise["text"].replace("|", "\\|")
            parts.append(f"| {promise['id']} | {text} | {', '.join(links)} |\n")
    return "".join(parts), wrong


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    text, wrong = page(tomllib.loads(PROMISES.read_text())["section"])
    for one in wrong:
        print(f"tests/promises.toml: {one}", file=sys.stderr)
    if not wrong and not sys.argv[1:]:
        PAGE.write_text(text)
    elif not PAGE.exists() or PAGE.read_text() != text:
        wrong.append("")
        print(f"{PAGE.relative_to(REPOSITORY)} is out of date; run {REBUILD}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


main()
