#!/usr/bin/env python3
"""Runs what the documentation shows, and checks its links.

Every ```console block of the Markdown files in the root and below docs/ is a recorded session:
lines that begin with `$ ` are commands (`> ` continues one), the lines below a command are its output. A page is one
shell with a daemon of its own. In an output `…` stands for any text of a line, alone on a line
for any number of lines. A command without output is only required to succeed; one whose output
shows `error[` is required to fail.

Usage: run.py ISLE_PROGRAM [PAGE...]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT = "120"


def sessions(text):
    """The commands of a page with line number and expected output."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
            continue
        if not inside:
            continue
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][2]:
            found[-1][1].append(line[2:])
        elif found:
            found[-1][2].append(line.rstrip())
    return [(number, "\n".join(command), output) for number, command, output in found]


def pattern(expected):
    """A regular expression for an expected output."""
    parts = []
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            # Columns of a table move with what is in them.
            pieces = [re.sub(r"(\\ )+", r" +", re.escape(piece)) for piece in line.split("…")]
            parts.append(r"[^\n]*".join(pieces) + r"[ ]*\n")
    return re.compile("".join(parts))


class Page:
    """One shell in a directory of its own, with a daemon of its own."""

    def __init__(self, isle):
        self.work = Path(tempfile.mkdtemp(prefix="isle-docs-"))
        programs = self.work / "bin"
        programs.mkdir()
        (programs / "isle").symlink_to(isle)
        self.home = self.work / "home"
        self.home.mkdir()
        keep = {name: value for name, value in os.environ.items() if not name.startswith("ISLE_")}
        self.environment = keep | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "ISLE_STATE_DIR": str(self.work / "state"),
            "ISLE_RUNTIME_DIR": str(self.work / "run"),
            # Where the host cannot enforce every limit, the sessions take what it can.
            "ISLE_ALLOW_DOWNGRADE": "1",
            "COLUMNS": "120",
        }
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.home,
            env=self.environment,
            start_new_session=True,
        )

    def run(self, command):
        """Output and exit status of a command."""
        script = self.work / "command"
        script.write_text(command + "\n")
        mark = "@@isle-docs-done"
        self.shell.stdin.write(f". {script} </dev/null; status=$?; echo; echo {mark} $status\n")
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line.startswith(mark):
                # The empty line before the mark belongs to us unless the output ended without one.
                text = "".join(lines)
                return text[:-1] if text.endswith("\n\n") or text == "\n" else text, int(line.split()[1])
            lines.append(line)
        return "".join(lines), -1

    def close(self):
        """Stops everything the page started and removes it."""
        def isle(*arguments):
            subprocess.run(
                ["isle", *arguments], env=self.environment, cwd=self.home, check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
            )

        isle("rm", "--all", "--wipe")
        # What sandboxes wrote that were destroyed without wiping, or belong to another namespace, may be
        # of other ids, and goes only with its sandbox.
        volumes = Path(self.environment["ISLE_STATE_DIR"]) / "native" / "volumes"
        for volume in sorted(volumes.glob("*")):
            namespace, _, name = volume.name.rpartition("@")
            chosen = ["--namespace", namespace or "default"]
            isle("exec", name, *chosen, "--", "true")
            isle("rm", name, "--wipe", *chosen)
        isle("stop")
        try:
            os.killpg(self.shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.shell.wait()
        self.note_identity()
        shutil.rmtree(self.work, ignore_errors=True)

    def note_identity(self):
        """Where a whole run is checked for leaks: what its daemon's control groups are named after."""
        instance = Path(self.environment["ISLE_STATE_DIR"]) / "instance"
        if (run := os.environ.get("ISLE_TEST_RUN")) and instance.exists():
            with open(Path(run) / "instances", "a", encoding="utf-8") as instances:
                instances.write(f"isle-{json.loads(instance.read_text())['id']}\n")


def watch(page):
    """Kills a page that hangs; returns the watcher, to be stopped."""
    return subprocess.Popen(["bash", "-c", f"sleep {TIMEOUT} && kill -9 -- -{page.shell.pid}"],
                            start_new_session=True, stderr=subprocess.DEVNULL)


def check_sessions(isle, path):
    """Runs a page; yields what is wrong."""
    commands = sessions(path.read_text())
    if not commands:
        return
    page = Page(isle)
    try:
        for number, command, expected in commands:
            watcher = watch(page)
            try:
                output, status = page.run(command)
            finally:
                os.killpg(watcher.pid, signal.SIGKILL)
                watcher.wait()
            where = f"{path.relative_to(REPOSITORY)}:{number}: $ {command}"
            if status == -1:
                yield f"{where}\nthe shell exited or took longer than {TIMEOUT} s:\n{output}"
                return
            fails = any("error[" in line for line in expected)
            if (status != 0) != fails:
                yield f"{where}\nexit status {status}:\n{output}"
            elif expected and not pattern(expected).fullmatch(output):
                yield f"{where}\nexpected:\n" + "\n".join(expected) + f"\ngot:\n{output}"
    finally:
        page.close()


def anchors(path):
    """The fragments of a page's headings, as GitHub makes them."""
    found = set()
    fenced = False
    for line in path.read_text().splitlines():
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("#"):
            text = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(text.replace(" ", "-"))
    return found


def check_links(path):
    """Yields links to files and headings that do not exist."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        name, _, fragment = target.partition("#")
        if "://" in name:
            continue
        page = path.parent / name if name else path
        if not page.exists():
            yield f"{path.relative_to(REPOSITORY)}: the link target {name} does not exist"
        elif fragment and fragment not in anchors(page):
            yield f"{path.relative_to(REPOSITORY)}: {target}: there is no such heading"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    isle = Path(sys.argv[1]).resolve()
    pages = [Path(name).resolve() for name in sys.argv[2:]]
    pages = pages or [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
    wrong, ran = [], 0
    for path in pages:
        ran += len(sessions(path.read_text()))
        wrong += check_links(path)
        wrong += check_sessions(isle, path)
    for one in wrong:
        print(one, file=sys.stderr)
    print(f"docs: {ran} commands of {len(pages)} pages, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
