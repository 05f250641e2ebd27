"""A second process traces nothing; what has changed is traced; whatever is wrong with a store,
calls go on.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from symshape import events
from symshape.store.descriptions import Describer
from symshape.store.disk import DiskStore
from symshape.store.entry_format import EntryBody
from tests.discovery import REPOSITORY
from tests.symshape.store.storing import compiled, counts, entries, told

SCALE = 1.5


class _Model(torch.nn.Module):
    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, features)
        self.k = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) * self.k * SCALE


def test_another_compiled_function_loads(tmp_path: Path) -> None:
    model, x = _Model(), torch.randn(5, 4)
    first, second = compiled(model, tmp_path), compiled(_Model(), tmp_path)
    with told() as seen:
        torch.testing.assert_close(first(x), model(x))
        torch.testing.assert_close(second(x[:3]), second.fn(x[:3]))
    assert counts(first) == (1, 0)
    assert counts(second) == (0, 1)
    assert [type(each) for each in seen] == [events.Stored, events.Loaded]
    assert seen[0].digest == seen[1].digest == entries(tmp_path)[0].stem
    with torch.no_grad():  # its own parameters, as they are at each call
        second.fn.inner.weight.zero_()
        torch.testing.assert_close(second(x), second.fn(x))
    assert counts(second)[1] + counts(second)[0] == 2  # without gradients it is another program


def test_a_call_for_which_a_guard_is_undefined_condemns_no_entry(tmp_path: Path) -> None:
    def shared_out(x: torch.Tensor, total: int, parts: int) -> torch.Tensor:
        return x * 2 if total % parts == 0 else x + 1

    words = {"dynamic": {"total": "total", "parts": "parts"}}
    x, first = torch.ones(3), compiled(shared_out, tmp_path, **words)
    assert [first(x, *each)[0].item() for each in ((6, 3), (7, 3))] == [2.0, 2.0]
    second = compiled(shared_out, tmp_path, **words, options={"on_miss": "error"})
    with told() as seen, pytest.raises(symshape.MissError, match="parts = 0"):
        second(x, 6, 0)
    assert not [each for each in seen if isinstance(each, events.StoreFailed)]
    for total, parts in ((8, 4), (9, 4)):
        assert torch.equal(second(x, total, parts), shared_out(x, total, parts))
    assert counts(second) == (0, 2)


@pytest.mark.parametrize("change", ["attribute", "global", "shape", "class", "mode", "code"])
def test_what_has_changed_is_traced(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(5, 4)
    compiled(_Model(), tmp_path)(x)
    model: Any = _Model(3 if change == "shape" else 4)
    if change == "attribute":
        model.k = 3.0
    elif change == "global":
        monkeypatch.setitem(globals(), "SCALE", 2.5)
    elif change == "class":
        model = type("Other", (_Model,), {})()
    elif change == "mode":
        model.inner.weight.requires_grad_(False)
    elif change == "code":
        monkeypatch.setattr(_Model, "forward", lambda self, x: self.inner(x) - 1)
    second = compiled(model, tmp_path)
    torch.testing.assert_close(second(x), model(x))
    assert counts(second) == (1, 0)


def test_changes_after_loading_are_seen(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    compiled(_Model(), tmp_path)(x)
    second = compiled(_Model(), tmp_path)
    second(x)
    assert counts(second) == (0, 1)
    for k in (7.0, 2.0, 3.0):
        second.fn.k = k
        torch.testing.assert_close(second(x), second.fn(x))
    # the float is seen, and becomes a number that is read at each call
    assert counts(second)[0] in (1, 2)
    assert counts(second)[1] == 1


def test_sizes_that_another_process_saw_change_are_dynamic(tmp_path: Path) -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    first = compiled(double, tmp_path, dynamic=None)
    for n in (4, 7, 9):
        first(torch.ones(n, 2))
    assert counts(first) == (2, 0)
    globals()["SCALE"] = 4.0
    try:
        second = compiled(double, tmp_path, dynamic=None)
        for n in (3, 8, 11):
            torch.testing.assert_close(second(torch.ones(n, 2)), torch.full((n, 2), 4.0))
        assert counts(second) == (1, 0)  # static at first without the store
    finally:
        globals()["SCALE"] = 1.5


def test_arguments_that_are_objects(tmp_path: Path) -> None:
    def apply(x: torch.Tensor, fn: Any, mode: str = "a") -> torch.Tensor:
        return fn(x) if mode == "a" else x - 1

    x = torch.ones(3)
    first = compiled(apply, tmp_path)
    first(x, lambda y: y * 3)
    second = compiled(apply, tmp_path)
    assert second(x, lambda y: y * 3).tolist() == [3.0] * 3
    assert second(x, lambda y: y * 4).tolist() == [4.0] * 3
    assert second(x, lambda y: y * 4, mode="b").tolist() == [0.0] * 3
    assert counts(second) == (2, 1)


def test_two_names_of_one_object_stay_two_names_of_one_object(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self, tied: bool) -> None:
            super().__init__()
            self.a = torch.nn.Parameter(torch.ones(2))
            self.b = self.a if tied else torch.nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + (1.0 if self.a is self.b else 2.0)

    x = torch.zeros(2)
    compiled(Tied(True), tmp_path)(x)
    second = compiled(Tied(False), tmp_path)
    assert second(x).tolist() == [2.0, 2.0]
    assert counts(second) == (1, 0)


def test_wrong_files_are_told_and_taken_away(tmp_path: Path) -> None:
    model, x = _Model(), torch.randn(5, 4)
    compiled(model, tmp_path)(x)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    for content in (
        b"",
        whole[: len(whole) // 2],
        b"\x80\x04cos\nsystem\n",
        whole.replace(b'"mul.Tensor"', b'"div.Tensor"'),
    ):
        path.write_bytes(content)
        with told() as seen:
            second = compiled(model, tmp_path)
            torch.testing.assert_close(second(x), model(x))
        assert counts(second) == (1, 0)
        assert [type(each) for each in seen] == [events.StoreFailed, events.Stored]
        assert entries(tmp_path) == [path]
        assert path.read_bytes() != content


def test_a_store_that_fails_costs_an_event(tmp_path: Path) -> None:
    class Broken(DiskStore):
        def digests(self, address: str) -> list[str]:
            raise OSError("gone")

        def write(self, address: str, content: bytes) -> str:
            raise OSError("full")

    with told() as seen:
        fn = compiled(lambda x: x * 2, Broken(tmp_path))  # type: ignore[arg-type]
        assert fn(torch.ones(2)).tolist() == [2.0, 2.0]
        fn(torch.ones(2, 2))
    assert {each.reason for each in seen} == {
        "could not be read: gone",
        "could not be written: full",
    }
    with pytest.raises(symshape.InputError, match="store must be"):
        symshape.compile(lambda x: x, store=3)


def test_what_cannot_be_stored_is_told(tmp_path: Path) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    model = Counter()
    with told() as seen:
        fn = compiled(model, tmp_path)
        assert [float(fn(torch.zeros(()))) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert seen
    assert all(isinstance(each, events.NotStored) for each in seen)
    assert "writes outside its arguments (calls)" in seen[0].reason
    assert not entries(tmp_path)


def test_verified_too(tmp_path: Path) -> None:
    x = torch.randn(5, 4)
    compiled(_Model(), tmp_path)(x)
    second = compiled(_Model(), tmp_path, options={"verify": 1.0})
    torch.testing.assert_close(second(x), second.fn(x))
    assert counts(second) == (0, 1)
    assert second.stats().verified == 1


def test_sixteen_threads(tmp_path: Path) -> None:
    model = _Model()
    compiled(model, tmp_path)(torch.randn(5, 4))
    second = compiled(model, tmp_path)
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in range(1, 12):
                x = torch.full((n + seed, 4), float(n))
                torch.testing.assert_close(second(x), model(x))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not problems
    assert counts(second) == (0, 1)


_PROGRAM = """
import os, torch, symshape
SCALE = 2.0
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    def forward(self, x, *, add=None):
        y = self.inner(x) * SCALE
        return y if add is None else y + add
def compiled(store):
    compiled = symshape.compile(Model(), store=store, dynamic=True, fullgraph=True)
    return symshape.compiled_of(compiled)
def call(fn, n):
    x = torch.ones(n, 4)
    for words in {}, {"add": 1.0}:
        assert torch.allclose(fn(x, **words), fn.fn(x, **words))
    return [fn.stats().traces, fn.stats().loaded]
def forked(store):
    fn = compiled(store)
    before = call(fn, 3)
    child = os.fork()
    if not child:
        os._exit(0 if call(fn, 5) == call(compiled(store), 4) == [0, 2] else 1)
    return [*before, os.waitpid(child, 0)[1], *call(fn, 6)]
"""


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    """A process of another file, with other lines, loads, as does one that it forks."""
    for folder, remarks in (("here", 0), ("there", 7)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "stored_program.py").write_text("# a remark\n" * remarks + _PROGRAM)
    store = str(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(tmp_path / "here"))
        program: Any = importlib.import_module("stored_program")
    try:
        assert program.call(program.compiled(store), 3) == [2, 0]
    finally:
        del sys.modules["stored_program"]
    paths = os.pathsep.join((str(tmp_path / "there"), str(REPOSITORY)))
    words = [
        sys.executable,
        "-c",
        f"import stored_program; print(stored_program.forked({store!r}))",
    ]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [0, 2, 0, 0, 2]


# -- what is done before the first call


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return x + SCALE


def test_an_entry_is_read_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: the first call compares again what it read, and no more."""
    x = torch.randn(5, 4)
    compiled(_Model(), tmp_path)(x)
    built: list[Any] = []
    monkeypatch.setattr(
        EntryBody, "built", lambda *args, of=EntryBody.built: built.append(0) or of(*args)
    )
    second = compiled(_Model(), tmp_path)
    assert len(built) == 1
    torch.testing.assert_close(second(x[:3]), second.fn(x[:3]))
    assert (counts(second), len(built)) == ((0, 1), 1)
    second.reset()
    torch.testing.assert_close(second(x), second.fn(x))
    assert (counts(second), len(built)) == ((0, 1), 2)  # a program of its own


def test_an_entry_that_was_read_ahead_is_read_again_where_its_tensors_are_others(
    tmp_path: Path,
) -> None:
    x, model = torch.randn(5, 4), _Model()
    compiled(model, tmp_path)(x)
    for change in ("parameter", "memory"):
        second = compiled(model, tmp_path)
        weight = model.inner.weight
        if change == "parameter":
            model.inner.weight = torch.nn.Parameter(torch.randn(4, 4))
        else:
            weight.data = torch.randn(4, 4)
        torch.testing.assert_close(second(x), model(x))
        assert counts(second) == (0, 1)


@pytest.mark.parametrize(
    "change", ["attribute", "global", "parameter", "gradients", "code", "class"]
)
def test_changes_between_compiling_and_the_first_call(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(5, 4)

    class Child(_Model):
        pass

    model: Any = Child()
    monkeypatch.setattr(
        sys.modules[__name__], "_scaled", types.FunctionType(_scaled.__code__, globals(), "_scaled")
    )
    fn: Any = _calls_scaled if change == "code" else model
    compiled(fn, tmp_path)(x)
    second = compiled(fn, tmp_path)
    if change == "attribute":
        model.k = 3.0
    elif change == "global":
        monkeypatch.setitem(globals(), "SCALE", 2.5)
    elif change == "parameter":
        model.inner = torch.nn.Linear(4, 6)
    elif change == "gradients":
        model.requires_grad_(False)
    elif change == "code":
        _scaled.__code__ = _shifted.__code__
    else:
        Child.__bases__ = (_Negated,)
    result, expected = second(x), fn(x)
    torch.testing.assert_close(result, expected)
    assert result.requires_grad == expected.requires_grad
    assert counts(second)[0] == 1


def _calls_scaled(x: torch.Tensor) -> torch.Tensor:
    return _scaled(x) - 1


class _Negated(_Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -super().forward(x)


# -- what Python's and torch's own functions read of an object without a record
_UNSEEN = {
    "default of a context variable": (
        "import contextvars\nV = contextvars.ContextVar('v', default=2.0)\n"
        "def f(x): return x * V.get()",
        ("default=2.0", "default=3.0"),
    ),
    "members of an Enum": (
        "import enum\nclass C(enum.Enum):\n    A = 1\n    B = 2\ndef f(x): return x * len(C)",
        ("    B = 2\n", ""),
    ),
    "maxlen": (
        "from collections import deque\nC = deque([1, 2], maxlen=2)\n"
        "def f(x):\n    d = C.copy(); d.append(3)\n    return x * len(d)",
        ("maxlen=2", "maxlen=3"),
    ),
    "maxlen of a subclass": (
        "from collections import deque\nclass D(deque): pass\nC = D([1, 2], maxlen=2)\n"
        "def f(x):\n    d = C.copy(); d.append(3)\n    return x * len(d)",
        ("maxlen=2", "maxlen=3"),
    ),
    "default_factory": (
        "from collections import defaultdict\nC = defaultdict(int)\n"
        "def f(x): return x * (2 if C.default_factory is int else 3)",
        ("(int)", "(float)"),
    ),
    "code of a default_factory": (
        "from collections import defaultdict\nC = defaultdict(lambda: 2)\n"
        "def f(x): return x * C.copy()['a']",
        (": 2", ": 3"),
    ),
    "metadata of a field": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n"
        "    a: float = dataclasses.field(default=1.0, metadata={'k': 2})\n"
        "def f(x): return x * dataclasses.fields(D)[0].metadata['k']",
        ("'k': 2", "'k': 3"),
    ),
    "annotations of a class": (
        "import typing\nclass K:\n    a: int\n"
        "def f(x): return x * (2 if typing.get_type_hints(K)['a'] is int else 3)",
        ("a: int", "a: float"),
    ),
    "annotations of a function": (
        "import typing\ndef g(a: int): pass\n"
        "def f(x): return x * (2 if typing.get_type_hints(g)['a'] is int else 3)",
        ("a: int", "a: float"),
    ),
    "signature of a class": (
        "import inspect\nclass K:\n    def __init__(self, a=2): pass\n"
        "def f(x): return x * inspect.signature(K).parameters['a'].default",
        ("a=2", "a=3"),
    ),
    "names in a class": (
        "class K:\n    a = 1\n    b = 2\n"
        "def f(x): return x * len([k for k in vars(K) if k[0] != '_'])",
        ("    b = 2\n", ""),
    ),
    "values in a base": (
        "class B:\n    a = 1\nclass K(B): pass\n"
        "def f(x): return x * sum(v for k, v in vars(K.__mro__[1]).items() if k == 'a')",
        ("a = 1", "a = 4"),
    ),
    "registered with an abstract class": (
        "import abc\nclass K(abc.ABC): pass\nclass Z: pass\nK.register(Z)\nz = Z()\n"
        "def f(x): return x * (2 if isinstance(z, K) else 3)",
        ("K.register(Z)\n", ""),
    ),
    "registered with Python's": (
        "import numbers\nclass Z: pass\nz = Z()\n"
        "def f(x): return x * (2 if isinstance(z, numbers.Number) else 3)",
        ("z = Z()\n", "z = Z()\nnumbers.Integral.register(Z)\n"),
    ),
    "name of a class": (
        "class K: pass\nK.__name__ = 'a'\ndef f(x): return x * len(K.__name__)",
        ("'a'", "'bbb'"),
    ),
    "storage": (
        "T = torch.ones(2)\ndef f(x): return x * T.untyped_storage().nbytes()",
        ("torch.ones(2)", "torch.ones(4)[:2]"),
    ),
    "base of a view": (
        "T = torch.ones(3)\ndef f(x): return x * (2 if T._base is None else 3)",
        ("T = torch.ones(3)", "B = torch.ones(3); T = B.view(3)"),
    ),
    "shared memory": (
        "T = torch.ones(3)\ndef f(x): return x * (2 if T.is_shared() else 3)",
        ("T = torch.ones(3)", "T = torch.ones(3).share_memory_()"),
    ),
    "retained gradient": (
        "T = torch.ones(3, requires_grad=True) * 2\n"
        "def f(x): return x * (2 if T.retains_grad else 3)",
        ("* 2\n", "* 2\nT.retain_grad()\n"),
    ),
    "a module that was missing": (
        "def f(x):\n    try: import missing_of_symshape\n    except ImportError: return x * 3\n"
        "    return x * 2",
        ("def f", "import sys; sys.modules['missing_of_symshape'] = torch\ndef f"),
    ),
    "lines": (
        "def g(): pass\ndef f(x): return x * g.__code__.co_firstlineno",
        ("def g", "\ndef g"),
    ),
}


def _program(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = types.ModuleType("stored_case")
    monkeypatch.setitem(sys.modules, "stored_case", made)
    vars(made)["torch"] = torch
    exec(compile(text, "stored_case.py", "exec"), vars(made))
    return made


@pytest.mark.filterwarnings("ignore::symshape.FallbackWarning")
@pytest.mark.parametrize("case", _UNSEEN)
def test_what_no_trace_sees_is_described(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, (old, new) = _UNSEEN[case]
    assert text.count(old) == 1
    monkeypatch.setitem(sys.modules, "missing_of_symshape", torch)
    monkeypatch.delitem(sys.modules, "missing_of_symshape")
    x = torch.ones(2)
    for each in (text, text.replace(old, new)):
        program = _program(each, monkeypatch)
        fn = compiled(program.f, tmp_path, fullgraph=False)
        torch.testing.assert_close(fn(x), program.f(x))
        assert fn.stats().loaded == 0


@pytest.mark.parametrize(
    "case", ["default of a context variable", "maxlen", "signature of a class"]
)
def test_what_is_described_alike_loads(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        fn = compiled(_program(_UNSEEN[case][0], monkeypatch).f, tmp_path)
        fn(torch.ones(2))
        assert counts(fn) == (1 - number, number)


def test_a_registration_after_loading_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _UNSEEN["registered with an abstract class"][0].replace("K.register(Z)\n", "")
    x = torch.ones(2)
    for _ in range(2):  # of a traced program, and of a loaded one
        program = _program(text, monkeypatch)
        fn = compiled(program.f, tmp_path)
        fn(x)
        program.K.register(program.Z)
        torch.testing.assert_close(fn(x), x * 2)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("members of an Enum", "C"),
        ("metadata of a field", "D"),
        ("annotations of a class", "K"),
        ("signature of a class", "K"),
        ("names in a class", "K"),
        ("registered with an abstract class", "K"),
        ("name of a class", "K"),
    ],
)
def test_descriptions_of_classes(case: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, (old, new) = _UNSEEN[case]
    one, same, other = (
        Describer().of(vars(_program(each, monkeypatch))[name])
        for each in (text, text, text.replace(old, new))
    )
    assert one == same != other


def test_a_later_use_of_a_flag_changes_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python adds the combinations of a ``Flag`` to its class when they are first asked for."""
    text = "import enum\nclass C(enum.Flag):\n    A = 1\n    B = 2\n"
    program = _program(text, monkeypatch)
    before = Describer().of(program.C)
    assert program.C.A | program.C.B
    assert Describer().of(program.C) == before
