# A namespace, and how the code of a call runs in it.
def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def exit_code(problem):
    """The exit code Python would have."""
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
        """Runs one call and returns its exit code."""
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


