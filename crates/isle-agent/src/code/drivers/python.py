# Isle's Python interpreter: runs inside the sandbox and speaks with the agent on descriptor 3.
# Modes: `server` forks one child per call, `once` runs one call, `context` runs calls one after
# another in one namespace. Output goes to the real descriptors 1 and 2, so that whatever a call
# starts is heard too; only the report (values, pictures, the exception) goes to the agent.
import _ast
import os
import signal
import sys

CONTROL = 3
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
        data = data[os.write(CONTROL, data):]


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


class Report:
    """What a call gives back beside its output."""

    def __init__(self):
        self.results, self.error, self.figures, self.size = [], None, set(), 0

    def add(self, kind, value):
        entry = {"kind": kind}
        entry.update(forms(value, self))
        self.results.append(entry)

    def send(self):
        import json
        data = json.dumps({"results": self.results, "error": self.error}).encode("utf-8", "replace")
        if len(data) > LARGEST_REPORT:
            texts = [{"kind": one["kind"], "text": one.get("text", ""),
                      "omitted": sorted(set(one) - {"kind", "text"})} for one in self.results]
            data = json.dumps({"results": texts[:50], "error": self.error}).encode("utf-8", "replace")
        send(b"R", data)


report = Report()


def text_of(value):
    try:
        text = repr(value)
    except Exception as problem:  # the value's own code
        text = f"<{type(value).__name__} whose repr failed: {problem!r}>"
    return text if len(text) <= LARGEST_TEXT else text[:LARGEST_TEXT] + "…"


def forms(value, target):
    """Every form of a value that has one; a form that fails or is too large is named."""
    import base64
    found, omitted = {}, []

    def put(form, content):
        if content is None:
            return
        if isinstance(content, (bytes, bytearray)):
            content = base64.b64encode(content).decode("ascii")
        size = len(content) if isinstance(content, str) else 0
        if size > LARGEST_FORM:
            omitted.append(form)
        else:
            found.setdefault(form, content)

    if isinstance(value, Bundle):
        put_bundle(put, value.data)
        return found
    if not isinstance(value, type):
        bundle = getattr(value, "_repr_mimebundle_", None)
        if callable(bundle):
            try:
                data = bundle()
                put_bundle(put, data[0] if isinstance(data, tuple) else data)
            except Exception:
                omitted.append("bundle")
        for form in ("html", "markdown", "svg", "png", "jpeg", "latex", "json"):
            method = getattr(value, f"_repr_{form}_", None)
            if callable(method):
                try:
                    content = method()
                    put(form, content[0] if isinstance(content, tuple) else content)
                except Exception:
                    omitted.append(form)
        if is_figure(value):
            target.figures.add(id(value))
            try:
                put("png", picture(value))
            except Exception:
                omitted.append("png")
        try:
            table = table_of(value)
        except Exception:
            table = None
            omitted.append("table")
        if table is not None:
            found["table"] = table
        if type(value) in (dict, list, tuple, str, int, float, bool) and "json" not in found:
            try:
                import json
                data = json.dumps(value, allow_nan=False)
                if len(data) <= LARGEST_TEXT:
                    found["json"] = json.loads(data)
            except (TypeError, ValueError, RecursionError):
                pass
    found.setdefault("text", text_of(value))
    if omitted:
        found["omitted"] = sorted(set(omitted))
    return found


MIME = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
        "image/png": "png", "image/jpeg": "jpeg", "text/latex": "latex", "application/json": "json"}


def put_bundle(put, data):
    for mime, content in dict(data or {}).items():
        if mime in MIME:
            put(MIME[mime], content)


class Bundle:
    def __init__(self, data):
        self.data = data


def display(*values, raw=False, **_):
    """Shows values in their richest forms; with raw=True each is a dict of MIME type to content."""
    for value in values:
        report.add("display", Bundle(value) if raw else value)


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def picture(figure):
    import io
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def collect_figures():
    """Figures drawn and not shown otherwise; closed, so that the next call starts with none."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if id(figure) not in report.figures:
            report.add("figure", figure)
    pyplot.close("all")


def cell(value):
    if value is None or isinstance(value, (str, bool)):
        return value if not isinstance(value, str) or len(value) <= 1000 else value[:1000] + "…"
    if isinstance(value, int):
        return int(value) if abs(int(value)) < 1 << 53 else str(value)
    item = getattr(value, "item", None)
    if callable(item) and not isinstance(value, float):
        try:
            value = item()
        except Exception:
            return str(value)[:1000]
        if value is None or isinstance(value, (str, bool, int)):
            return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value)[:1000]


def table_of(value):
    """Rows and columns of a data frame, by what it can do and not by whose it is."""
    columns = getattr(value, "columns", None)
    shape = getattr(value, "shape", None)
    if columns is None or callable(columns) or not isinstance(shape, tuple) or len(shape) != 2:
        return None
    head = getattr(value, "head", None)
    if not callable(head):
        return None
    top = head(TABLE_ROWS)
    if callable(getattr(top, "itertuples", None)):
        rows = top.itertuples(index=False, name=None)
    elif callable(getattr(top, "rows", None)):
        rows = top.rows()
    else:
        return None
    names = [str(name) for name in columns][:TABLE_COLUMNS]
    return {"columns": names, "rows": [[cell(one) for one in list(row)[:TABLE_COLUMNS]] for row in rows],
            "total_rows": int(shape[0]), "total_columns": int(shape[1])}


def describe(problem, sources):
    """Prints an exception as Python does and keeps it as data, without the frames of this file."""
    import linecache
    import traceback
    for name, text in sources.items():
        lines = text.splitlines(True)
        linecache.cache[name] = (len(text), None, lines, name)

    def trim(one, seen):
        while one is not None and id(one) not in seen:
            seen.add(id(one))
            frames = one.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename == "<isle>":
                frames = frames.tb_next
            one.__traceback__ = frames
            if one.__context__ is not None:
                trim(one.__context__, seen)
            one = one.__cause__
    trim(problem, set())
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    frames = [{"file": frame.filename, "line": frame.lineno, "function": frame.name, "text": frame.line or ""}
              for frame in traceback.extract_tb(problem.__traceback__)[-100:]]
    if isinstance(problem, SyntaxError) and problem.lineno is not None:
        frames.append({"file": problem.filename or "", "line": problem.lineno, "function": "",
                       "text": (problem.text or "").rstrip("\n")})
    kind = type(problem)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else \
        f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(problem)
    except Exception:
        message = ""
    report.error = {"name": name, "message": message[:10000], "traceback": frames,
                    "text": text if len(text) <= 40000 else text[:20000] + "\n…\n" + text[-20000:]}
    try:
        sys.stderr.write(text)
    except Exception:
        os.write(2, text.encode("utf-8", "replace"))


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def exit_code(problem):
    """What Python would exit with."""
    code = problem.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


class Session:
    """A namespace, and how code runs in it."""

    def __init__(self, keeps):
        self.keeps, self.flags, self.count, self.sources, self.loop = keeps, 0, 0, {}, None
        import types
        module = types.ModuleType("__main__")
        module.__builtins__ = sys.modules["builtins"]
        sys.modules["__main__"] = module
        self.namespace = module.__dict__
        self.module = module
        sys.modules["builtins"].display = display

    def source(self, request):
        if request.path is not None:
            with open(request.path, "rb") as file:
                code = file.read()
            self.namespace["__file__"] = request.path
            return code, request.path
        self.count += 1
        name = f"<cell {self.count}>" if self.keeps else "<string>"
        if self.keeps:
            self.sources[name] = request.code.decode("utf-8", "replace")
            while len(self.sources) > 200:
                del self.sources[next(iter(self.sources))]
        return request.code, name

    def execute(self, code, name):
        tree = compile(code, name, "exec", ONLY_AST | AWAIT | self.flags, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr) and not code.rstrip().endswith(b";"):
            last = _ast.Expression(tree.body.pop().value)
        flags = self.flags
        value = None
        if tree.body:
            compiled = compile(tree, name, "exec", AWAIT | flags, True)
            flags |= compiled.co_flags & FUTURES
            if self.keeps:
                self.flags = flags
            self.finish(compiled)
        if last is not None:
            value = self.finish(compile(last, name, "eval", AWAIT | flags, True))
        return value

    def finish(self, compiled):
        value = eval(compiled, self.namespace)
        if not compiled.co_flags & COROUTINE:
            return value
        import asyncio
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(value)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self.loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise

    def call(self, request):
        """Runs one call and says with which code it ended."""
        global report
        report = Report()
        sys.argv = ["-c" if request.path is None else request.path, *request.arguments]
        code = 0
        try:
            try:
                text, name = self.source(request)
                value = self.execute(text, name)
                if value is not None:
                    if self.keeps:
                        self.namespace["_"] = value
                    report.add("value", value)
            except SystemExit as leaving:
                code = exit_code(leaving)
            except BaseException as problem:
                code = 130 if isinstance(problem, KeyboardInterrupt) else 1
                describe(problem, self.sources)
            collect_figures()
        except BaseException as problem:  # the code's own forms and figures, or an interrupt among them
            code = code or 1
            describe(problem, {})
        flush()
        return code


def enter(request, whole):
    """Working directory and environment of a call."""
    if request.cwd is not None:
        try:
            os.chdir(request.cwd)
        except OSError as problem:
            send(b"E", b"%d" % (problem.errno or 0))
            return False
    if whole:
        set_whole_environment(request.environment)
    for name, value in variables(request.given):
        os.environb[name] = value
    return True


def line_by_line():
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)


def quiet_figures():
    """`show` has nothing to show on here: figures are collected instead."""
    import warnings
    warnings.filterwarnings("ignore", message=".*(non-interactive|non-GUI backend|currently using agg)")


def serve_context():
    session = Session(True)
    line_by_line()
    quiet_figures()
    during = signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            request = Request.next()
        except EOFError:
            return 0
        if not enter(request, False):
            continue
        refresh_packages()
        code = 130
        try:
            signal.signal(signal.SIGINT, during)
            code = session.call(request)
        except KeyboardInterrupt:
            pass
        during = signal.getsignal(signal.SIGINT)
        if during is None:
            during = signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        flush()
        report.send()
        send(b"D", b"%d" % code)


def refresh_packages():
    """Packages installed since this interpreter started are found."""
    sys.path_importer_cache.clear()
    site = sys.modules.get("site")
    if site is not None and site.ENABLE_USER_SITE:
        place = site.getusersitepackages()
        if place not in sys.path and os.path.isdir(place):
            site.addsitedir(place)


def run_once(session, request, forked):
    if request.path is not None:
        here = os.path.dirname(os.path.realpath(request.path))
        sys.path[:1] = [here]
    code = session.call(request)
    report.send()
    os.close(CONTROL)
    if session.loop is not None and not session.loop.is_closed():
        session.loop.close()
    if not forked:
        sys.exit(code)
    finish(session, code)


def finish(session, code):
    """Ends a forked call as Python ends: threads joined, exit functions run, the code's own objects
    finalised, files flushed. Taking down what came with the fork is left to the kernel."""
    import atexit
    import gc
    import _io
    threading = sys.modules.get("threading")
    try:
        if threading is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
        names = session.namespace
        for private in (True, False):
            for name in list(names):
                if name != "__builtins__" and (name[:1] == "_" and name[1:2] != "_") == private:
                    names[name] = None
        gc.collect()
        for one in gc.get_objects():
            if isinstance(one, _io._IOBase) and not one.closed:
                try:
                    one.flush()
                except Exception:
                    pass
    except SystemExit:
        pass
    except BaseException:
        sys.excepthook(*sys.exc_info())
    flush()
    os._exit(code)


def prctl():
    import ctypes
    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: call(option, value, 0, 0, 0)


def serve_forks():
    """One child per call, forked before it is asked for. Orphans of a call come to its first process,
    and after its end here, where the agent ends them. The agent is told of every child: `A` before
    one is made, `I` its number, `F` when it has taken a call, `X` when that has ended."""
    import atexit, base64, gc, importlib, io, json, linecache, select, socket  # noqa: warm
    import time, tokenize, traceback, types, warnings  # noqa: warm
    change = prctl()
    if change(BECOME_REAPER, 1) != 0:
        return 3
    quiet_figures()
    control = socket.socket(fileno=CONTROL)
    awake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    taken, take = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poll = select.poll()
    poll.register(control, 0)
    poll.register(awake, select.POLLIN)
    poll.register(taken, select.POLLIN)
    running, idle, warmed = set(), None, False
    gc.freeze()
    while True:
        if idle is None:
            send(b"A", b"")
            try:
                idle = os.fork()
            except OSError:  # the limit on processes: calls wait until one is free
                send(b"I", b"0 %d" % os.getpid())
                time.sleep(0.05)
                continue
            if idle == 0:
                signal.set_wakeup_fd(-1)
                for one in (awake, wake, taken):
                    os.close(one)
                become_call(control, change, take)
            send(b"I", b"%d %d" % (idle, os.getpid()))
        ready = poll.poll(None if warmed else 250)
        if not ready and not warmed:
            warmed = True
            warm_up()
            continue
        for descriptor, _ in ready:
            if descriptor == CONTROL:
                return 0
            if descriptor == taken and os.read(taken, 4096):
                running.add(idle)
                idle = None
            elif descriptor == awake:
                os.read(awake, 4096)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == idle:
                idle = None
            micros = int((usage.ru_utime + usage.ru_stime) * 1e6)
            running.discard(pid)
            send(b"X", b"%d %d %d %d" % (pid, status, micros, usage.ru_maxrss))


def become_call(control, change, take):
    import socket
    os.setsid()
    change(BECOME_REAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Once for nothing: what every call touches becomes this process's own before anybody waits.
    rehearsal = Request(b"")
    rehearsal.code = b"None"
    Session(False).call(rehearsal)
    text_of(Session(False))
    session = Session(False)
    line_by_line()
    message, descriptors, _, _ = socket.recv_fds(control, 8, 4)
    if len(descriptors) != 4:
        os._exit(0)
    os.write(take, b"t")
    os.close(take)
    send(b"F", b"%s %d" % (message, os.getpid()))
    control.detach()
    for target, one in enumerate(descriptors):
        os.dup2(one, target, target < 3)
    for one in descriptors:
        os.close(one)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        request = Request.next()
    except (EOFError, OSError):  # nobody wants it any more
        os._exit(0)
    if not enter(request, True):
        os._exit(1)
    refresh_packages()
    run_once(session, request, True)


def warm_up():
    """What most code imports, while nobody waits. Single-threaded modules of the library only."""
    for name in ("asyncio", "collections", "csv", "datetime", "decimal", "fractions", "functools", "glob",
                 "hashlib", "itertools", "math", "pathlib", "random", "re", "shutil", "statistics",
                 "string", "subprocess", "tempfile", "textwrap", "threading", "time", "typing",
                 "urllib.parse", "uuid"):
        try:
            __import__(name)
        except ImportError:
            pass
    import gc
    gc.collect()
    gc.freeze()


def main():
    mode = sys.argv[1]
    os.set_inheritable(CONTROL, False)
    if mode == "server":
        try:
            return serve_forks()
        except ImportError:
            return 3
        except OSError:  # nobody listens any more
            return 0
    if mode == "context":
        return serve_context()
    request = Request.next()
    if not enter(request, False):
        return 1
    quiet_figures()
    line_by_line()
    return run_once(Session(False), request, False)


sys.exit(main())
