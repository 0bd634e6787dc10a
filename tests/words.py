#!/usr/bin/env python3
"""Keeps phrases that are hard to search for out of user-visible text.

`tests/words.txt` lists phrases and what to write instead. Scanned are the prose of Markdown pages
(without code blocks, code spans and generated parts, which quote the program) and, in Rust sources,
string literals and `///` comments outside tests. Findings below a path of ENFORCED fail; findings
elsewhere are counted per crate. To enforce a crate, clear its findings and add it to ENFORCED.

Usage: words.py [--only PATH]...   list every finding below PATH, and fail if there is one
"""

import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

# Files and directories, from the root of the repository, that must be free of the phrases.
ENFORCED = [
    "README.md",
    "SPECIFICATION.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    ".github",
    "docs",
    "crates/isle",
    "crates/isle-egress",
    "crates/isle-fail",
    "crates/isle-fuzz",
    "crates/isle-mcp",
    "crates/isle-probe",
    "crates/isle-server",
    "crates/isle-store",
    "crates/isle-trees",
]


def phrases():
    """The list as (pattern, phrase, suggestion)."""
    found = []
    for number, line in enumerate((REPOSITORY / "tests/words.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        phrase, arrow, suggestion = (part.strip() for part in line.partition("->"))
        if not (phrase and arrow and suggestion):
            sys.exit(f"tests/words.txt:{number}: expected `phrase -> suggestion`")
        words = []
        for word in phrase.split():
            if word == "*":
                words.append(r"\S+")
            elif word.endswith("*"):
                words.append(re.escape(word[:-1]) + r"\w*")
            else:
                words.append(re.escape(word))
        found.append((re.compile(r"(?<!\w)" + r"\s+".join(words) + r"(?!\w)", re.I), phrase, suggestion))
    return found


def markdown(text):
    """The prose of a page: same length and lines, with code and generated parts blanked."""
    lines, fenced, generated = [], False, False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        elif line.startswith(("<!-- generated", "<!-- attacks:")):
            generated = True
        elif line.startswith("<!-- end of "):
            generated = False
        if fenced or generated:
            line = ""
        lines.append(re.sub(r"`[^`]*`|\]\([^)]*\)", lambda code: "␀" * len(code[0]), line))
    yield 1, "\n".join(lines)


RUST = re.compile(
    r"""(?P<doc>(?:^[ \t]*///[^\n]*\n?)+)
      | (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<char>'(?:\\.[^']*|[^'\\\n])')
      | (?P<raw>\bb?r(?P<hashes>\#*)"(?P<rawtext>.*?)"(?P=hashes))
      | "(?P<string>(?:[^"\\]|\\.)*)"
    """,
    re.X | re.S | re.M,
)


def rust(text):
    """String literals of several words and `///` comments of a source, without its tests, each with its line."""
    tests = re.search(r"^#\[cfg\((?:all\()?test\b[^\n]*\]\s*(?:#\[[^\n]*\]\s*)*mod \w+ \{", text, re.M)
    text = text[: tests.start()] if tests else text
    for match in RUST.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["doc"] is not None:
            yield line, re.sub(r"^[ \t]*///", "", match["doc"], flags=re.M)
        elif match["rawtext"] is not None:
            yield line, match["rawtext"]
        elif match["string"] is not None and " " in match["string"]:
            # Line continuations and escaped line ends are white space; keep the number of lines.
            yield line, re.sub(r"\\n", "  ", match["string"].replace("\\\n", " \n"))


def sources(only):
    """What is scanned, with its reader."""
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / ".github").rglob("*.md")]
    code = [
        path
        for path in (REPOSITORY / "crates").glob("*/src/**/*.rs")
        if path.name != "tests.rs" and not path.stem.endswith("_tests") and "tests" not in path.parts[:-1]
    ]
    for path, reader in [*((page, markdown) for page in sorted(pages)), *((one, rust) for one in sorted(code))]:
        if not only or any(below(path, one) for one in only):
            yield path, reader


def below(path, place):
    """Whether a path is a place or below it."""
    return path == place or place in path.parents


def findings(only):
    """Every place of a phrase: path, line, phrase, suggestion."""
    wanted = phrases()
    for path, reader in sources(only):
        for start, text in reader(path.read_text()):
            for pattern, phrase, suggestion in wanted:
                for match in pattern.finditer(text):
                    yield path, start + text.count("\n", 0, match.start()), phrase, suggestion


def main():
    arguments, only = sys.argv[1:], []
    while arguments:
        option = arguments.pop(0)
        if option != "--only" or not arguments:
            sys.exit(__doc__)
        only.append(Path(arguments.pop(0)).resolve())
    for path in only:
        if not path.exists():
            sys.exit(f"words: {path} does not exist")
    enforced = only or [REPOSITORY / name for name in ENFORCED]
    wrong, counts = [], {}
    for path, line, phrase, suggestion in sorted(set(findings(only))):
        name = path.relative_to(REPOSITORY)
        if any(below(path, place) for place in enforced):
            wrong.append(f"{name}:{line}: {phrase} → {suggestion}")
        else:
            part = "/".join(name.parts[:2]) if name.parts[0] == "crates" else str(name)
            counts[part] = counts.get(part, 0) + 1
    for one in wrong:
        print(one)
    for part, count in sorted(counts.items()):
        print(f"words: not enforced yet: {part}: {count}")
    print(f"words: {len(wrong)} to rewrite")
    sys.exit(1 if wrong else 0)


main()
