# Isle's Python interpreter: runs inside the sandbox, receives from the agent on descriptor 3 and sends on
# descriptor 4, a pipe: only bytes can be sent to the agent.
# Modes: `server` forks one child per call, `once` runs one call, `context` runs calls one after
# another in one namespace. Output goes to the real descriptors 1 and 2, so that output of
# its child processes is captured too; only the report (values, pictures, the exception) goes to the agent.
# It is one program in four parts, in this order: wire, results, session, serve. Here: the channel to
# the agent.
import _ast
import os
import signal
import sys

CONTROL = 3
REPLY = 4
AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
ONLY_AST = 0x400  # ast.PyCF_ONLY_AST
FUTURES = 0x1FF0000  # every `from __future__` flag
COROUTINE = 0x80  # inspect.CO_COROUTINE
BECOME_REAPER = 36  # prctl: orphans below come here
LARGEST_FORM = 4 << 20
LARGEST_TEXT = 256 << 10
LARGEST_REPORT = 8 << 20
TABLE_ROWS = 200
TABLE_COLUMNS = 100


def receive(count):
    parts = []
    while count:
        part = os.read(CONTROL, count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def send(kind, payload):
    data = kind + len(payload).to_bytes(4, "big") + payload
    while data:
        data = data[os.write(REPLY, data):]


class Request:
    """One call: fields of a tag, a length and bytes."""

    def __init__(self, body):
        self.code = self.path = self.cwd = self.environment = None
        self.arguments, self.given = [], []
        whole = []
        at = 0
        while at < len(body):
            tag, size = body[at:at + 1], int.from_bytes(body[at + 1:at + 5], "big")
            value = body[at + 5:at + 5 + size]
            at += 5 + size
            if tag == b"c":
                self.code = value
            elif tag == b"p":
                self.path = os.fsdecode(value)
            elif tag == b"d":
                self.cwd = value
            elif tag == b"a":
                self.arguments.append(os.fsdecode(value))
            elif tag == b"g":
                self.given.append(value)
            elif tag == b"e":
                whole.append(value)
        self.environment = whole

    @classmethod
    def next(cls):
        head = receive(5)
        return cls(receive(int.from_bytes(head[1:], "big")))


def variables(entries):
    return [entry.partition(b"=")[::2] for entry in entries]


def set_whole_environment(entries):
    wanted = dict(variables(entries))
    for name in list(os.environb):
        if name not in wanted:
            del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    if b"TZ" in wanted:
        import time
        time.tzset()


