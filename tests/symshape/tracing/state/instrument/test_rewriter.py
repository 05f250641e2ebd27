"""Instrumented programs against plain ones: results, exceptions, lines, and what the hooks are
told.
"""

import importlib
import linecache
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

import pytest

from symshape.tracing.state.instrument.rewriter import instrumented, is_instrumented
from tests.symshape.tracing.state.silent_hooks import HOOKS, SEEN

PROGRAM = '''
import os.path as paths
from collections import OrderedDict, deque

class Base:
    """A base."""
    factor = 2
    __slots__ = ("value", "log")
    def __init__(self, value):
        self.value = value
        self.log = []
    def scaled(self, by=3):
        return self.value * by * self.factor
    @property
    def double(self):
        return self.value + self.value
    @staticmethod
    def plain(x): return -x
    @classmethod
    def make(cls, x): return cls(x)

class Derived(Base):
    __slots__ = ()
    __match_args__ = ("value",)
    factor = Base.factor + 1
    names = [name for name in ("a", "b") if name is not None]
    def scaled(self, by=3):
        return super().scaled(by) + 1
    def other(self):
        return super(Derived, self).double

class Manager:
    def __init__(self, swallow): self.swallow, self.log = swallow, []
    def __enter__(self):
        self.log.append("in")
        return self
    def __exit__(self, kind, error, tb):
        self.log.append(getattr(kind, "__name__", None))
        return self.swallow
    async def __aenter__(self): return self.__enter__()
    async def __aexit__(self, *error): return self.__exit__(*error)

def attributes(n):
    d = Derived.make(n)
    d.value += 1
    d.log.append(d.scaled()); d.log.append(d.other())
    d.log += [d.plain(4), d.double, Base.scaled(d, by=5)]
    del d.value
    try:
        d.value
    except AttributeError as error:
        d.log.append(type(error).__name__)
    return d.log, Derived.names, Derived.factor

def handled(n):
    out = []
    for i in range(n):
        try:
            if i % 3 == 0:
                out.append(1 / (i % 2))
            elif i % 3 == 1:
                raise KeyError(i)
            else:
                out.append([].pop)
                [].pop()
        except ZeroDivisionError:
            out.append("zero")
            continue
        except (KeyError, IndexError) as error:
            out.append(repr(error))
            try:
                raise ValueError("inner") from error
            except ValueError as inner:
                out.append(repr(inner.__cause__))
        else:
            out.append("else")
        finally:
            out.append(i)
            if i == 7:
                break
    return [str(each)[:8] for each in out]

def groups(n):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(n), TypeError(n), OSError(n)])
    except* (ValueError, TypeError) as some:
        out.append(len(some.exceptions))
    except* OSError as rest:
        out.append(str(rest.exceptions[0]))
    return out

def managed(n):
    log = []
    with Manager(True) as one, Manager(False) as two:
        log.append(one.log is two.log)
        if n > 2:
            raise RuntimeError("x")
    for _ in range(2):
        with Manager(n > 4) as three:
            if n == 5:
                three.log.append(undefined_name)
            if n == 1:
                return one.log + two.log + three.log
    return log, one.log, two.log, three.log

def generated(n):
    def inner(k):
        try:
            got = yield k
            while got is not None:
                got = yield got * 2
        except ValueError as error:
            yield str(error)
        finally:
            done.append(k)
        return k + 1
    def outer():
        total = 0
        for k in range(n):
            total += yield from inner(k)
        return total
    done, out = [], []
    running = outer()
    out.append(next(running))
    out.append(running.send(5))
    out.append(running.throw(ValueError("thrown")))
    try:
        while True:
            out.append(next(running))
    except StopIteration as stop:
        out.append(stop.value)
    closed = outer()
    next(closed)
    closed.close()
    return out, done

async def ticks(n):
    for i in range(n):
        yield i

async def awaited(n):
    out = [i async for i in ticks(n) if i is not None]
    async for i in ticks(n):
        out.append(i)
        if i == 2:
            break
    else:
        out.append("else")
    async with Manager(True) as m:
        raise OSError("gone")
    out.append(m.log)
    async def one(k): return k * k
    out += [await one(k) for k in range(n)]
    return out

def comprehended(n):
    a = 2
    return ([x * a for x in range(n) if x is not a], {x: y for x, y in enumerate("abc")},
            {str(x) for x in range(a)}, sum(x + y for x in range(n) for y in range(x)),
            [[x for x in range(y)] for y in range(a)])

def closed(n):
    count = 0
    def add(k, *rest, scale=1, **more):
        nonlocal count
        count += k * scale + len(rest) + sum(more.values())
        return lambda: count
    f = add(n)
    add(1, 2, 3, scale=4, z=9)
    add(*[1, 2], **{"scale": 2})
    return f(), count, add.__name__, (lambda *, q=n: q)()

def matched(n):
    out = []
    for value in (1, "x", [1, 2, 3], {"a": 4, "b": 5}, Derived(n), Base(3), None, (n,), 2.5):
        match value:
            case None: out.append("none")
            case int(x) if x > 3: out.append(("int", x))
            case str() | bytes(): out.append("text")
            case [first, *rest]: out.append((first, rest))
            case {"a": a, **more}: out.append((a, more))
            case Derived(value): out.append(("derived", value))
            case Base(value=v, log=[]): out.append(("base", v))
            case float() as f: out.append(f)
            case _: out.append("other")
    return out

def imported(n):
    import os.path, json as j
    from math import pi, sqrt as root
    from os import path as p
    from . import nothing_here
    return pi

def imports(n):
    import os.path, json as j, xml.dom
    from math import pi, sqrt as root
    from os import path as p
    here = pi, root(n), p is os.path, j.dumps([n]), paths.join("a", "b")
    return *here, xml.dom.__name__, p is not j

def defined(n):
    class Local(Derived):
        size = n
        total = sum(range(n))
        def __init__(self): super().__init__(n); self.more = __class__.__name__
        def __eq__(self, other): return self is other
    x = Local()
    global made
    made = x.size
    taken = OrderedDict(a=n).popitem(), deque([n]).pop()
    return x.more, x == x, x != Local(), made, x.scaled(2), *taken

def raised(n):
    return [handled(1),
            attributes(2)[0][0] + (1 /
                                   (n - n))]

def run(n):
    import asyncio
    return asyncio.run(awaited(n))
'''
NAMES = [
    *(
        "attributes",
        "handled",
        "groups",
        "managed",
        "generated",
        "comprehended",
        "closed",
        "matched",
    ),
    *("imported", "imports", "defined", "raised", "run"),
]


def _made(instrument: bool, source: str = PROGRAM) -> dict[str, Any]:
    file = "<the program>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    code = compile(source, file, "exec")
    names: dict[str, Any] = {"__name__": "program", "__package__": "tests"}
    exec(instrumented(code, HOOKS) if instrument else code, names)
    return names


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return "result", repr(function(*args))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        own = [line for line in text.splitlines() if "silent_hooks" not in line]
        return type(error), str(error), own if not isinstance(error, NameError) else ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 9])
def test_a_program_computes_and_raises_the_same(name: str, n: int) -> None:
    plain, ours = _made(False), _made(True)
    assert is_instrumented(ours[name].__code__, HOOKS)
    wanted = _outcome(plain[name], n)
    for _ in range(12):  # past the number of calls after which the interpreter specialises the code
        assert _outcome(ours[name], n) == wanted


def test_functions_inside_and_class_bodies_are_instrumented_too() -> None:
    ours = _made(True)
    SEEN.clear()
    ours["defined"](3)
    assert {("enter", "Local"), ("enter", "__init__"), ("store_attr", "Local", "more")} <= set(SEEN)


def _sample(owner: Any) -> Any:
    import math
    from os import path

    owner.size = len(owner.items)
    return math, path is not owner.append(1)


def test_what_the_hooks_are_told_in_order() -> None:
    class Owner:
        items = (1, 2)

        def append(self, _: int) -> None:
            return None

    ours = types.FunctionType(instrumented(_sample.__code__, HOOKS), globals())
    SEEN.clear()
    assert ours(Owner())[1] is True
    assert SEEN == [
        ("enter", "_sample"),
        ("importing", 0, "math"),
        ("loaded", "math"),
        ("importing", 0, "os"),
        ("loaded", "os"),
        ("importing from", "path"),
        ("imported", "os", "path"),
        ("load_global", "len"),
        ("load_attr", "items"),
        ("store_attr", "Owner", "size"),
        ("load_attr", "append"),
        ("is_same",),
    ]


def _deleting(owner: Any) -> None:
    global _LEVEL
    _LEVEL = 1
    del _LEVEL
    del owner.items


def test_deletions_are_told() -> None:
    ours = types.FunctionType(instrumented(_deleting.__code__, HOOKS), globals())
    SEEN.clear()
    owner = types.SimpleNamespace(items=1)
    ours(owner)
    assert SEEN[1:] == [
        ("store_global", "_LEVEL"),
        ("delete_global", "_LEVEL"),
        ("delete_attr", "SimpleNamespace", "items"),
    ]
    assert not vars(owner)
    assert "_LEVEL" not in globals()


def _long(branches: int) -> str:
    lines = ["def long(x, y):", "    total = 0", "    while y:", "        y -= 1", "        try:"]
    for i in range(branches):
        lines += [
            f"            if x == {i + 1000}:",
            f"                total += name_{i} * {i}.5 + x.real",
        ]
        lines += ["                continue"] if i % 50 == 7 else []
    lines += [
        "            total += x.denominator",
        "            if x is None: break",
        "        finally:",
    ]
    lines += ["            total += 1", "    return total"]
    return "\n".join([*(f"name_{i} = {i}" for i in range(branches)), *lines])


@pytest.mark.parametrize("branches", [1, 2, 3, 5, 8, 12, 20, 40, 100, 400, 3000])
def test_long_functions_with_many_constants_names_and_long_jumps(branches: int) -> None:
    source = _long(branches)
    plain, ours = _made(False, source), _made(True, source)
    for x in {0, 1000, 1007, 1000 + branches // 2, 999 + branches, 10**6}:
        assert ours["long"](x, 3) == plain["long"](x, 3)


@pytest.mark.parametrize("size", range(1, 140, 3))
def test_jumps_that_grow_because_of_what_is_inserted(size: int) -> None:
    body = "\n".join(f"        total += x.real + {i}" for i in range(size))
    source = (
        f"def loop(x):\n    total = 0\n    for i in range(3):\n{body}\n        if i == x: "
        "break\n    return total"
    )
    plain, ours = _made(False, source), _made(True, source)
    assert [ours["loop"](x) for x in range(4)] == [plain["loop"](x) for x in range(4)]


def _events(function: Callable[..., Any], n: int, install: Callable[[Any], None]) -> list[Any]:
    events = []

    def note(frame: types.FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == "<the program>" and event in (
            "call",
            "return",
            "line",
            "exception",
        ):
            events.append((event, frame.f_code.co_name, frame.f_lineno))
        return note

    install(note)
    try:
        _outcome(function, n)
    finally:
        install(None)
    return events


@pytest.mark.parametrize("name", [each for each in NAMES if each not in ("run", "imported")])
@pytest.mark.parametrize("install", [sys.setprofile, sys.settrace])
def test_profilers_and_debuggers_see_the_same_events_and_lines(
    name: str, install: Callable[[Any], None]
) -> None:
    plain, ours = _made(False), _made(True)
    for n in (1, 5):
        wanted = _events(plain[name], n, install)
        assert wanted
        assert _events(ours[name], n, install) == wanted


def test_a_debugger_that_is_there_when_code_is_made_and_warm_code_runs_on_under_one() -> None:
    ours = _made(True)
    for _ in range(100):
        ours["handled"](9)
    assert _events(ours["handled"], 9, sys.settrace) == _events(
        _made(False)["handled"], 9, sys.settrace
    )


# -- modules of Python's own, instrumented as a whole
def _copy(name: str, instrument: bool, *without: str) -> Any:
    path = importlib.import_module(name).__file__
    assert path is not None
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType(name)
    module.__dict__.update(__file__=path, __package__=name.rpartition(".")[0])
    exec(instrumented(code, HOOKS) if instrument else code, module.__dict__)
    for each in without:
        setattr(module, each, None)
    return module


def _named(function: Callable[..., Any], *args: Any) -> Any:
    """The outcome, its class by name: that of the copy is another one."""
    kind, text, *_ = _outcome(function, *args)
    return (kind if isinstance(kind, str) else kind.__name__), text


def _json_decoder(m: Any) -> Any:
    from json.scanner import py_make_scanner

    decoder = m.JSONDecoder()
    decoder.parse_string = m.py_scanstring
    decoder.scan_once = py_make_scanner(decoder)
    texts = [
        '{"a": [1, 2.5, -3e9, true, null], "b": {"c": "\\u00e9\\n\\ud83d\\ude00"}}',
        "[]",
        '[{}, "", NaN]',
    ]
    bad = ['{"a": }', "[1,, 2]", '"abc', '{"a" 1}', "[1 2]", "", '"\\x"', '{"a": 1,}', "nul"]
    return [_named(decoder.decode, each) for each in [*texts, *bad]]


def _json_encoder(m: Any) -> Any:
    values = [
        {"b": [1, 2.5, None, True], "a": {"é": "\n\u2028😀"}, 3: ()},
        [],
        {},
        [float("inf"), -0.0],
        "x" * 9,
    ]
    made = [m.JSONEncoder(indent=i, sort_keys=False, ensure_ascii=i is None) for i in (None, 0, 3)]
    out = [_named(each.encode, value) for each in made for value in values]
    loop: list[Any] = []
    loop.append(loop)
    return out, _named(made[0].encode, loop), _named(made[0].encode, {1: {2}})


def _textwrap(m: Any) -> Any:
    text = (
        "The quick-brown fox; jumped over\tthe 'lazy' dog -- it did so very-very-long-hyphenated. "
        * 5
    )
    filled = [
        m.fill(text, width=w, break_on_hyphens=h)
        for w in (1, 7, 20, 55, 200)
        for h in (True, False)
    ]
    more = [m.shorten(text, w) for w in (12, 40, 100)]
    return filled, more, m.dedent("    a\n      b\n    c\n"), m.indent(text, "> "), m.wrap("", 4)


def _difflib(m: Any) -> Any:
    a, b = (
        ["one two three", "four", "five", "six seven"],
        ["one two tree", "five", "six seven", "eight"],
    )
    matcher = m.SequenceMatcher(None, a[0] * 9, b[0] * 7)
    out = [
        list(m.unified_diff(a, b)),
        list(m.context_diff(a, b)),
        list(m.ndiff(a, b)),
        matcher.get_opcodes(),
    ]
    return (
        out,
        matcher.ratio(),
        m.get_close_matches("appel", ["ape", "apple", "peach"]),
        m.HtmlDiff().make_table(a, b),
    )


def _ast(m: Any) -> Any:
    tree = m.parse(PROGRAM)
    return (
        m.unparse(tree),
        m.dump(tree, indent=1)[:9000],
        m.literal_eval("{1: [2, (3, -4.5)]}"),
        m.get_docstring(tree),
    )


def _decimal(m: Any) -> Any:
    numbers = [
        m.Decimal(each)
        for each in ("1.1", "-22.5", "3e-7", "7e30", "0", "Infinity", "NaN", "123456.789")
    ]
    unary = (
        "sqrt",
        "ln",
        "exp",
        "log10",
        "to_eng_string",
        "normalize",
        "__str__",
        "__neg__",
        "adjusted",
        "is_snan",
    )
    binary = (
        "__add__",
        "__sub__",
        "__mul__",
        "__truediv__",
        "__divmod__",
        "__pow__",
        "compare",
        "quantize",
    )
    one = [_named(getattr(a, name)) for a in numbers for name in unary]
    return one, [_named(getattr(a, name), b) for a in numbers for b in numbers for name in binary]


def _fractions(m: Any) -> Any:
    numbers = [m.Fraction(each) for each in ("3/7", "-1.25", "1e-3", "12", "0")] + [m.Fraction(2.5)]
    names = (
        "__add__",
        "__sub__",
        "__mul__",
        "__truediv__",
        "__floordiv__",
        "__mod__",
        "__pow__",
        "__lt__",
        "__eq__",
    )
    out = [
        _named(getattr(a, name), b) for a in numbers for b in [*numbers, 2, 1.5] for name in names
    ]
    more = [
        _named(getattr(a, name))
        for a in numbers
        for name in ("__hash__", "__round__", "limit_denominator")
    ]
    return out, more, _named(m.Fraction, "1/x"), _named(m.Fraction, 1, 0)


def _statistics(m: Any) -> Any:
    data = [1.5, 2, 2, 3.25, 9, 11, 0.5]
    names = (
        "mean fmean geometric_mean harmonic_mean median median_low median_grouped mode "
        "multimode pstdev variance"
    )
    out = [
        _named(getattr(m, name), data) for name in (names + " stdev quantiles pvariance").split()
    ]
    normal = m.NormalDist(3, 2)
    return (
        out,
        _named(m.mean, []),
        normal.cdf(2),
        normal.inv_cdf(0.3),
        repr(normal + normal),
        m.linear_regression(data, data[::-1]),
    )


@pytest.mark.parametrize(
    ("name", "without", "asked"),
    [
        ("json.decoder", (), _json_decoder),
        ("json.encoder", ("c_make_encoder",), _json_encoder),
        ("textwrap", (), _textwrap),
        ("difflib", (), _difflib),
        ("ast", (), _ast),
        ("_pydecimal", (), _decimal),
        ("fractions", (), _fractions),
        ("statistics", (), _statistics),
    ],
)
def test_modules_of_python_answer_as_they_do(
    name: str, without: tuple[str, ...], asked: Callable[[Any], Any]
) -> None:
    wanted = asked(_copy(name, False, *without))
    SEEN.clear()
    assert asked(_copy(name, True, *without)) == wanted
    assert len(SEEN) > 250
