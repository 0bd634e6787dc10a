# Isle's check of Python code: runs in the sandbox's own interpreter, reads the code from standard input,
# parses and compiles it without running any of it, and prints what it found as one line of JSON.
import ast
import builtins
import json
import re
import sys
import warnings

MOST = 100
URL = re.compile(r"\b(?:https?|wss?|ftps?|ssh|git)://(?:[^\s/@]*@)?([A-Za-z0-9.-]+)", re.A)
SYSTEM = re.compile(r"/(?:etc|usr|bin|sbin|lib|lib64|boot|dev/(?!null|stdout|stderr|tty)|proc|sys|root)(?:/|$)")

# Modules that are known by their names, and what else is.
MODULES = """abc argparse array ast asyncio base64 bisect calendar cmath collections concurrent contextlib copy
csv ctypes dataclasses decimal difflib enum errno fnmatch fractions functools gc getpass glob gzip hashlib heapq
hmac html inspect io ipaddress itertools json keyword locale logging math mimetypes multiprocessing numbers
operator os pathlib pickle platform pprint queue random re secrets select shlex shutil signal socket sqlite3 ssl
statistics string struct subprocess sys tempfile textwrap threading time timeit tokenize traceback types typing
unicodedata unittest uuid warnings weakref zipfile zlib zoneinfo numpy pandas requests""".split()
ALIASES = {"np": "import numpy as np", "pd": "import pandas as pd", "plt": "import matplotlib.pyplot as plt",
           "sns": "import seaborn as sns", "sp": None, "tf": "import tensorflow as tf"}
PARTS = {"urllib": ("request", "parse", "error", "robotparser"), "xml": ("dom", "etree", "sax"),
         "http": ("client", "server", "cookies"), "importlib": ("util", "metadata", "resources", "import_module"),
         "email": ("message", "mime", "utils")}
OF_DATETIME = {"now", "utcnow", "today", "strptime", "fromisoformat", "fromtimestamp", "combine", "min", "max"}
NAMES = {name: module for module, names in {
    "pathlib": "Path PurePath",
    "collections": "Counter defaultdict deque OrderedDict namedtuple ChainMap",
    "dataclasses": "dataclass",
    "functools": "lru_cache partial reduce wraps cached_property",
    "itertools": "accumulate combinations permutations islice",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "enum": "Enum IntEnum",
    "abc": "ABC abstractmethod",
    "contextlib": "contextmanager suppress",
    "typing": "Any Callable Dict Iterable Iterator List Literal NamedTuple Optional Protocol Sequence Tuple TypedDict "
              "TypeVar Union",
    "datetime": "timedelta",
    "uuid": "uuid4",
}.items() for name in names.split()}

CALLS = {
    "eval": ("eval", "eval runs text as code"),
    "exec": ("eval", "exec runs text as code"),
    "__import__": ("dynamic_import", "the module is chosen while the code runs"),
    "importlib.import_module": ("dynamic_import", "the module is chosen while the code runs"),
    "os.system": ("shell", "os.system hands text to a shell"),
    "os.popen": ("shell", "os.popen hands text to a shell"),
    "subprocess.getoutput": ("shell", "subprocess.getoutput hands text to a shell"),
    "subprocess.getstatusoutput": ("shell", "subprocess.getstatusoutput hands text to a shell"),
    "pty.spawn": ("shell", "pty.spawn starts a program on a terminal"),
    "shutil.rmtree": ("delete_tree", "shutil.rmtree removes everything below a directory"),
    "os.removedirs": ("delete_tree", "os.removedirs removes directories upwards"),
    "pickle.load": ("unsafe_load", "pickle runs what the data says"),
    "pickle.loads": ("unsafe_load", "pickle runs what the data says"),
    "marshal.load": ("unsafe_load", "marshal trusts its data"),
    "marshal.loads": ("unsafe_load", "marshal trusts its data"),
    "shelve.open": ("unsafe_load", "shelve runs what the data says"),
    "dill.load": ("unsafe_load", "dill runs what the data says"),
    "dill.loads": ("unsafe_load", "dill runs what the data says"),
}
RUNNERS = {"subprocess." + name for name in ("run", "Popen", "call", "check_call", "check_output")}
NATIVE = {"ctypes", "cffi", "_ctypes"}
INSIDE = {"__subclasses__", "__globals__", "__builtins__", "__code__", "__closure__", "f_globals", "f_builtins"}
SHOWN = {"len", "sum", "max", "min", "sorted", "str", "repr", "int", "float", "list", "dict", "set", "tuple", "abs",
         "round", "type", "any", "all", "isinstance", "divmod", "pow", "bin", "hex", "oct", "ord", "chr", "format"}
PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
         ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.JoinedStr)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Names(ast.NodeVisitor):
    """What is bound anywhere, what is read anywhere, and what imported names stand for."""

    def __init__(self):
        self.bound, self.read, self.parts, self.stands_for, self.everything = set(), {}, {}, {}, False
        self.stored = set()

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load):
            self.read.setdefault(node.id, node)
        else:
            self.stored.add(node.id)

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name) and isinstance(node.value.ctx, ast.Load):
            self.parts.setdefault(node.value.id, set()).add(node.attr)
        self.generic_visit(node)

    def visit_Import(self, node):
        for name in node.names:
            local = name.asname or name.name.split(".")[0]
            self.bound.add(local)
            self.stands_for[local] = name.name if name.asname else local

    def visit_ImportFrom(self, node):
        for name in node.names:
            if name.name == "*":
                self.everything = True
            else:
                self.bound.add(name.asname or name.name)
                self.stands_for[name.asname or name.name] = (node.module or "") + "." + name.name

    def visit_arg(self, node):
        self.stored.add(node.arg)
        self.generic_visit(node)

    def generic_visit(self, node):
        for field in ("name", "rest"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                self.stored.add(value)
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            self.stored.update(node.names)
        super().generic_visit(node)


class Dangers(ast.NodeVisitor):
    def __init__(self, names, report):
        self.names, self.report, self.loops = names, report, 0

    def dotted(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.names.stored:
            return ""
        parts.append(self.names.stands_for.get(node.id, node.id))
        return ".".join(reversed(parts))

    def visit_Call(self, node):
        name = self.dotted(node.func)
        words = {word.arg: word.value for word in node.keywords}
        if name in CALLS:
            self.report(node, *CALLS[name])
        elif name in RUNNERS and "shell" in words and getattr(words["shell"], "value", True):
            self.report(node, "shell", name + " with shell=True hands text to a shell")
        elif name == "yaml.load" and "Loader" not in words and len(node.args) < 2:
            self.report(node, "unsafe_load", "yaml.load without a Loader may run what the data says")
        elif name in ("os.fork", "os.forkpty") and self.loops:
            self.report(node, "fork_loop", "a loop that forks")
        elif name in ("open", "io.open") and node.args and isinstance(node.args[0], ast.Constant):
            mode = node.args[1] if len(node.args) > 1 else words.get("mode")
            writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) & set("wax+")
            path = node.args[0].value
            if writes and isinstance(path, str) and SYSTEM.match(path):
                self.report(node, "system_write", "writes to " + path[:200])
        self.generic_visit(node)

    def visit_Import(self, node):
        for name in node.names:
            if name.name.split(".")[0] in NATIVE:
                self.report(node, "native_code", name.name + " calls code outside Python")

    def visit_ImportFrom(self, node):
        if (node.module or "").split(".")[0] in NATIVE:
            self.report(node, "native_code", node.module + " calls code outside Python")

    def visit_Attribute(self, node):
        if node.attr in INSIDE:
            self.report(node, "introspection", node.attr + " reaches into the interpreter")
        self.generic_visit(node)

    def visit_While(self, node):
        if isinstance(node.test, ast.Constant) and node.test.value and not leaves(node.body):
            self.report(node, "endless_loop", "nothing in this loop ends it")
        self.loop(node)

    def visit_For(self, node):
        self.loop(node)

    visit_AsyncFor = visit_For

    def loop(self, node):
        self.loops += 1
        self.generic_visit(node)
        self.loops -= 1


def leaves(body):
    """Whether something in the body of a loop may end it or gives others a turn."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)):
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "exit", "_exit", "quit", "abort", "next"):
            return True
        if not isinstance(node, FUNCTIONS):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def bare_texts(tree):
    """Texts that are statements of their own: words about the code, not part of it."""
    return {id(node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}


def domains(tree):
    skipped, found = bare_texts(tree), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            found.update(host.lower().strip(".") for host in URL.findall(node.value))
    return sorted(host for host in found if host)[:MOST]


def missing_imports(names):
    if names.everything:
        return []
    known = names.bound | names.stored | set(dir(builtins)) | {"display", "__file__"}
    wanted = []
    for name, node in names.read.items():
        if name in known:
            continue
        parts = names.parts.get(name, set())
        line = None
        if name == "datetime":
            line = "from datetime import datetime" if parts & OF_DATETIME or not parts else "import datetime"
        elif name in PARTS:
            used = [part for part in PARTS[name] if part in parts]
            line = "\n".join("import " + name + ("" if part == "import_module" else "." + part) for part in used)
        elif parts and name in MODULES:
            line = "import " + name
        elif parts and name in ALIASES:
            line = ALIASES[name]
        elif name in NAMES:
            line = "from " + NAMES[name] + " import " + name
        if line:
            wanted.extend((one, node) for one in line.split("\n"))
    return sorted(wanted, key=lambda one: one[0])


def is_shown(node):
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in SHOWN
    if isinstance(node, ast.Constant):
        return node.value is not None and node.value is not Ellipsis
    return isinstance(node, PLAIN)


class Text:
    def __init__(self, data):
        self.data = data
        self.starts = [0] + [match.end() for match in re.finditer(rb"\r\n|\r|\n", data)]

    def at(self, line, column):
        return self.starts[line - 1] + column

    def column(self, line, column):
        """Counted in characters from 1, as people do."""
        start = self.starts[line - 1]
        return len(self.data[start:start + column].decode("utf-8", "replace")) + 1


def edits(tree, text, names, answer):
    found = []
    imports = missing_imports(names)
    if imports:
        first = 0
        body = tree.body
        if body and id(getattr(body[0], "value", None)) in bare_texts(tree) and isinstance(body[0].value.value, str):
            first = 1
        while first < len(body) and isinstance(body[first], ast.ImportFrom) and body[first].module == "__future__":
            first += 1
        node = body[first]
        line = min([node.lineno] + [one.lineno for one in getattr(node, "decorator_list", [])])
        column = node.col_offset if line == node.lineno else 0
        lines = [line for line, _ in imports]
        inserted = "".join(one + "\n" for one in lines) if column == 0 else "; ".join(lines) + "; "
        found.append((text.at(line, column), inserted))
        for one, node in imports:
            answer["fixes"].append({"name": "missing_import", "line": node.lineno, "message": "added: " + one})
    last = tree.body[-1] if tree.body else None
    bare = isinstance(last, ast.Expr) and not text.data.rstrip().endswith(b";") and is_shown(last.value)
    if bare and not (len(tree.body) == 1 and isinstance(last.value, ast.Constant) and isinstance(last.value.value, str)):
        # What is inside brackets of its own starts after them; the statement has their place.
        found.append((text.at(last.lineno, last.col_offset), "print("))
        found.append((text.at(last.end_lineno, last.end_col_offset), ")"))
        answer["fixes"].append({"name": "last_value", "line": last.lineno,
                                "message": "the value of the last line is printed"})
    return found


def parse(source):
    return compile(source, "<code>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def check(data, fix):
    answer = {"errors": [], "findings": [], "fixes": [], "edits": [], "domains": []}
    try:
        source = data.decode("utf-8")
        tree = parse(source)
        compile(source, "<code>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as problem:
        answer["errors"].append({"line": problem.lineno or 1, "column": max(problem.offset or 1, 1),
                                 "message": str(problem.msg)[:500]})
        return answer
    except (ValueError, RecursionError, MemoryError, OverflowError) as problem:
        answer["errors"].append({"line": 1, "column": 1, "message": str(problem)[:500] or "nested too deeply"})
        return answer
    shift = 3 if data.startswith(b"\xef\xbb\xbf") else 0
    text = Text(data[shift:])
    names = Names()
    names.visit(tree)

    def report(node, name, message):
        if len(answer["findings"]) < MOST:
            column = text.column(node.lineno, node.col_offset)
            answer["findings"].append({"name": name, "line": node.lineno, "column": column, "message": message})

    Dangers(names, report).visit(tree)
    answer["findings"].sort(key=lambda one: (one["line"], one["column"]))
    answer["domains"] = domains(tree)
    if fix:
        found = sorted(edits(tree, text, names, answer), key=lambda one: one[0])
        changed, at = b"", 0
        for offset, inserted in found:
            changed += text.data[at:offset] + inserted.encode()
            at = offset
        changed += text.data[at:]
        try:
            parse(changed.decode())
            answer["edits"] = [[offset + shift, inserted] for offset, inserted in found]
        except SyntaxError:
            answer["fixes"] = []
    return answer


warnings.simplefilter("ignore")
print(json.dumps(check(sys.stdin.buffer.read(), "fix" in sys.argv[1:])))
