"""Files of a store that are damaged, cut off or hostile, and disks that are full: calls are right,
nothing is run.

Each case writes the entry of a small program to a store, with the name of its own digest, changed
in one of the ways below (one of them names another op), and calls a fresh compiled function as
another process would.  The oracle is the program in eager; a hook of Python's for audits sees
whether a word of the file is compiled, imported or given to the system.  A second kind of case
fills the disk at one write, flush, rename or folder after the other (``ENOSPC``).  Afterwards the
store holds only what can be read, and serves.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import meta_fns
import symshape
from symshape.store.disk import DiskStore
from symshape.store.entry_format import read_header
from symshape.store.entry_text import checked
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser

CANARY = "canary_of_fuzz"
_TEXTS = (
    f"__import__('os').system('touch {CANARY}')",
    f"x'); import {CANARY} #",
    f"{CANARY}.system",
    "os:system",
    f"/tmp/{CANARY}",
    "__class__.__mro__",
    "aten.add",
)
_VALUES = (
    -1,
    1 << 62,
    1 << 5000,
    1e308,
    None,
    True,
    [],
    {},
    [[]] * 100,
    {"object": 0},
    {"value": 3},
    {"term": 9},
)
_HEARD = frozenset(
    {
        "compile",
        "exec",
        "import",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "subprocess.Popen",
        "open",
    }
)
_heard: list[str] = []
_counts: Counter[str] = Counter()


class Model(torch.nn.Module):
    """A program with an attribute, parameters and a global."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.k = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.relu(self.inner(x)) * self.k, x[: x.shape[0] // 2]])


@functools.cache
def _hook() -> None:
    def hear(event: str, args: tuple[Any, ...]) -> None:
        # of ast.parse, which reads formulas and makes no code
        if event == "compile" and args[1] == "<unknown>":
            return
        if event in _HEARD and CANARY in repr(args):
            _heard.append(f"{event} {args!r}"[:300])

    sys.addaudithook(hear)


@functools.cache
def _entry() -> tuple[Model, str, bytes]:
    """The model, the address of its entry, and the entry."""
    torch.manual_seed(0)
    model = Model()
    folder = tempfile.mkdtemp(prefix="symshape-fuzz-")
    _call(model, folder)
    ((kept,), store) = list(DiskStore(folder).all()), DiskStore(folder)
    content = store.read(kept.address, kept.digest)
    shutil.rmtree(folder)
    return model, kept.address, content


def _call(model: Model, folder: str) -> Any:
    """A compiled function of a process that begins, after two calls that are right."""
    fn = symshape.compiled_of(symshape.compile(model, dynamic=True, store=folder))
    for n in (3, 6):
        x = torch.linspace(-1.0, 1.0, 4 * n).reshape(n, 4)
        if not torch.equal(fn(x), model(x)):
            raise Counterexample(f"another result than eager's for {n} rows")
    return fn


# -- ways to change a file


def _flipped(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.choice(b'{}[]",:0123456789abcx\n-')
    return bytes(data)


def _cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def _leaves(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of nested data: its container, and the key there."""
    for key in data if type(data) is dict else range(len(data)):
        yield data, key
        if type(data[key]) in (dict, list):
            yield from _leaves(data[key])


def _hostile(rng: random.Random, content: bytes) -> bytes:
    """Well-formed, with one to three of its parts replaced."""
    lines = [json.loads(each) for each in content.splitlines()]
    part = lines[rng.random() < 0.8]
    for _ in range(rng.randint(1, 3)):
        owner, key = rng.choice(list(_leaves(part)))
        kind = rng.randrange(4)
        if kind == 0:
            owner[key] = rng.choice(_TEXTS)
        elif kind == 1:
            owner[key] = rng.choice(_VALUES)
        elif kind == 2 and type(owner[key]) is int:
            owner[key] += rng.choice((-1, 1, 1000))
        else:
            other, there = rng.choice(list(_leaves(part)))
            owner[key] = json.loads(json.dumps(other[there]))
    return "\n".join((*map(json.dumps, lines), "")).encode()


@functools.cache
def _op_names() -> tuple[str, ...]:
    """Every op with a rule, as entries name ops: those that an entry may not name, too."""
    found = []
    for packet in dir(torch.ops.aten):
        overloads = getattr(getattr(torch.ops.aten, packet), "overloads", list)()
        found += [
            f"{packet}.{each}" for each in overloads if meta_fns.has_rule(f"aten.{packet}.{each}")
        ]
    return (
        *found,
        "resize_.default",
        "set_.source_Tensor",
        "as_strided.default",
        "as_strided_.default",
    )


def _hostile_op(rng: random.Random, content: bytes) -> bytes:
    """One step is another op, or one that reads as much as it is told to."""
    lines = [json.loads(each) for each in content.splitlines()]
    graph = lines[1]["graph"]
    step = rng.choice([each for each in graph["steps"] if "op" in each])
    values = [each for each in step["args"] if type(each) is dict and "value" in each]
    graph["ops"].append(rng.choice(_op_names() if rng.random() < 0.7 else _GEOMETRIC))
    step["op"], step["outputs"] = len(graph["ops"]) - 1, step["outputs"][:1]
    kind = rng.randrange(3)
    if kind == 0:
        step["args"] = [*values[:1], [5000], [1]]
    elif kind == 1:
        step["args"] = [
            *values,
            *rng.choice(([], [0], [5000], [[5000]], [[5000], [0]], [-1, 5000])),
        ]
    return "\n".join((*map(json.dumps, lines), "")).encode()


_GEOMETRIC = (
    "_reshape_alias.default",
    "as_strided.default",
    "as_strided_copy.default",
    "_unsafe_view.default",
)


def _nonsense(rng: random.Random, content: bytes) -> bytes:
    return rng.choice(
        (b"", b"\n\n", rng.randbytes(1000), b"[" * 100_000 + b"\n[]\n", b"{}\n{}\n", content * 2)
    )


_CHANGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "flipped": _flipped,
    "cut off": _cut,
    "hostile": _hostile,
    "hostile op": _hostile_op,
    "nonsense": _nonsense,
}


def _file_case(rng: random.Random, folder: str) -> str:
    model, address, content = _entry()
    what = rng.choice(("flipped", "cut off", "hostile", "hostile op", "hostile op", "nonsense"))
    changed = _CHANGES[what](rng, content)
    if changed == content:
        return "not changed"
    forged = rng.random() < 0.7  # else damage that came after the file was written
    name = hashlib.sha256(changed if forged else content).hexdigest()
    path = Path(folder, address, f"{name}.entry")
    path.parent.mkdir(parents=True)
    path.write_bytes(changed)
    path.chmod(0o600)
    _counts[_outcome(model, folder, forged)] += 1
    if _heard:
        raise Counterexample(f"what a file says was done: {_heard}")
    if not forged and path.exists() and path.read_bytes() == changed:
        raise Counterexample("a damaged file is still there")
    return what


def _outcome(model: Model, folder: str, forged: bool) -> str:
    """What became of the file.  Only one that is an entry, forged, may lead to other results:
    stores are to be trusted with what programs compute, and with nothing else.
    """
    fn = symshape.compiled_of(symshape.compile(model, dynamic=True, store=folder))
    x = torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
    try:
        found = fn(x)
        if isinstance(found, torch.Tensor) and _reach(found) > found.untyped_storage().nbytes():
            raise SystemError("a result reaches beyond its storage")
        right = torch.equal(found, model(x))
    except SystemError as error:
        raise Counterexample(str(error)) from error
    except Exception as error:
        if not (forged and fn.stats().loaded):
            raise Counterexample(f"{type(error).__name__}: {error}") from error
        return "forged programs that fail when they run"
    if fn.stats().loaded:
        if not forged:
            raise Counterexample("a damaged file was served")
        return f"forged programs that run, {'alike' if right else 'otherwise'}"
    if not right:
        raise Counterexample("another result than eager's")
    return "refused"


def _reach(tensor: torch.Tensor) -> int:
    """The bytes of its storage that a tensor reaches."""
    if not tensor.numel():
        return 0
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


# -- a disk that is full


@contextmanager
def _full_at(number: int) -> Iterator[list[str]]:
    """From the call of this number on, whatever needs room on the disk fails; answers the calls."""
    calls: list[str] = []

    def limited(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "os.open" and not args[1] & os.O_CREAT:  # reading needs no room
                return real(*args, **kwargs)
            calls.append(name)
            if len(calls) > number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args, **kwargs)

        return call

    with ExitStack() as stack:
        for name, owner, attribute in _WRITES:
            stack.enter_context(
                mock.patch.object(owner, attribute, limited(name, getattr(owner, attribute)))
            )
        yield calls


_WRITES: tuple[tuple[str, Any, str], ...] = (
    ("os.open", os, "open"),
    ("os.fsync", os, "fsync"),
    ("os.replace", os, "replace"),
    ("mkdir", Path, "mkdir"),
    ("os.utime", os, "utime"),
)


def _full_case(rng: random.Random, folder: str) -> str:
    model, _, _ = _entry()
    number = rng.randrange(8)
    with _full_at(number) as calls:
        _call(model, folder)
    _counts[
        f"disks full at the {calls[number]}" if len(calls) > number else "disks with room enough"
    ] += 1
    return "full"


def _tmpfs_case(rng: random.Random, folder: str) -> str:
    """A file system of a few pages, which entries of other programs fill."""
    model, address, content = _entry()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    try:
        store, refused = DiskStore(folder), 0
        for i in range(rng.randint(0, 24)):
            try:
                store.write(address, b"%d" % i + content)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                refused += 1
        for each in list(store.all()):  # no entries, but whole files
            store.remove(each.address, each.digest) if rng.random() < 0.3 else store.read(
                each.address, each.digest
            )
        fn = _call(model, folder)
        _counts[f"tmpfs, {'full before' if refused else 'with room before'}"] += 1
        _valid(folder, but=b"0123456789")
        return "tmpfs" if fn.stats().traces else "failed"
    finally:
        subprocess.run(["umount", folder], check=True)


def _valid(folder: str, but: bytes = b"") -> None:
    """That each file that is left is whole, and that nothing but files of entries is left."""
    store = DiskStore(folder)
    for each in store.all():
        content = store.read(each.address, each.digest)
        if hashlib.sha256(content).hexdigest() != each.digest:
            raise Counterexample(f"{each.digest} is not whole")
        if content[:1] not in [bytes((each,)) for each in but]:
            checked(read_header(content, each.digest))
    left = [each.name for each in Path(folder).glob("*/.*")]
    if left:
        raise Counterexample(f"left behind: {left}")


def case(rng: random.Random, *, kinds: Sequence[str]) -> str | None:
    """One store that something is wrong with."""
    _hook()
    _heard.clear()
    folder = tempfile.mkdtemp(prefix="symshape-fuzz-")
    kind = rng.choice(kinds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", symshape.FallbackWarning)
            if kind == "tmpfs":
                return _tmpfs_case(rng, folder)
            found = (_file_case if kind == "file" else _full_case)(rng, folder)
            if kind == "full":
                _valid(folder)
            return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> Outcome:
    _counts.clear()
    parser = fuzz_parser(__doc__, count=1200, smoke=8)
    parser.add_argument(
        "--tmpfs", action="store_true", help="small file systems too (needs the right to mount)"
    )
    args = parser.parse_args(argv)
    kinds = ("file",) * 5 + ("full",) + ("tmpfs",) * args.tmpfs
    return fuzz(
        "store_files",
        partial(case, kinds=kinds),
        args,
        must_see=("hostile", "full"),
        counts=_counts,
    )


__all__ = ["main"]
