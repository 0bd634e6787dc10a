# The three modes: contexts, one call, and a fork for every call.
def line_by_line():
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)


def quiet_figures():
    """There is no display for `show`: figures are collected instead."""
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
    """Makes packages visible that were installed since this interpreter started."""
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
    os.close(REPLY)
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
    """One child per call, forked before it is asked for. Orphans of a call are reparented to its first process,
    and after its end here, where the agent ends them. The agent is told of every child: `A` before
    one is made, `I` its number, `F` when it has taken a call, `X` when that has exited."""
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
            disk = usage.ru_inblock, usage.ru_oublock
            send(b"X", b"%d %d %d %d %d %d" % (pid, status, micros, usage.ru_maxrss, *disk))


def become_call(control, change, take):
    import socket
    os.setsid()
    change(BECOME_REAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # A trial run: memory that every call touches is copied before a call waits for it.
    rehearsal = Request(b"")
    rehearsal.code = b"None"
    Session(False).call(rehearsal)
    text_of(Session(False))
    session = Session(False)
    line_by_line()
    message, descriptors, _, _ = socket.recv_fds(control, 8, 5)
    if len(descriptors) != 5:
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
    """Imports what most code imports ahead of calls. Single-threaded modules of the library only."""
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
    os.set_inheritable(REPLY, False)
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
