# What a call returns: values in their forms, figures, the exception.
class Report:
    """What a call returns beside its output."""

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
    """Rows and columns of a data frame, by its methods and not by its type."""
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


