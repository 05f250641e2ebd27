"""Ops called with wrong sizes, indices and numbers: those that count as safe stay within their
arguments' memory.

Each case takes one recorded call of an op (from PyTorch's samples), changes some of its arguments,
and calls the op in a child process, with every tensor between pages that may not be touched.  A
child that dies of a signal read or wrote beyond its tensors.  That is a failure for an op that
``meta_fns.memory_safety`` calls safe, and for one that it calls checked where ``check_memory``
admitted the call; for others it is only counted.  (Small overruns of *results* may go unseen: those
are allocated by the op.)
"""

from __future__ import annotations

import ctypes
import functools
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import meta_fns
from tests.fuzz.harness import Counterexample, Outcome, fuzz, fuzz_parser
from tests.meta_fns.opdb import Call, record, text

GUARD = 1 << 24  # bytes before and after a tensor that may not be touched
PAGE = os.sysconf("SC_PAGE_SIZE")
SECONDS = 5  # for one call: some sizes are only large
_INTEGERS = (-1_000_000, -3, -1, 0, 1, 2, 3, 7, 1000, 100_000)
_FLOATS = (0.0, -1.0, 2.0, 1e9, float("inf"), float("-inf"), float("nan"))
_LARGEST = 100_000  # elements of a tensor
# MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; PROT_*
_PRIVATE_MAPPING, _NO_ACCESS, _READ_AND_WRITE = (0x4022, 0, 3)
_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_counts: Counter[str] = Counter()


def fenced(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that ends where the memory that may be touched ends; it is never given back (the child
    ends soon).
    """
    size = tensor.numel() * tensor.element_size()
    if not size:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    room = (size + PAGE - 1) // PAGE * PAGE
    base = _libc.mmap(None, room + 2 * GUARD, _NO_ACCESS, _PRIVATE_MAPPING, -1, 0)
    _libc.mprotect(base + GUARD, room, _READ_AND_WRITE)
    memory = (ctypes.c_char * size).from_address(base + GUARD + room - size)
    return torch.frombuffer(memory, dtype=tensor.dtype).reshape(tensor.shape).copy_(tensor)


def _other_tensor(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of other sizes, or with another number in it."""
    sizes = list(tensor.shape)
    for _ in range(rng.randint(0, 2)):
        kind = rng.randrange(4)
        if sizes and kind < 2:
            sizes[rng.randrange(len(sizes))] = rng.choice((0, 1, 1, 2, 3, 5, 9))
        elif sizes and kind == 2:
            sizes.pop(rng.randrange(len(sizes)))
        else:
            sizes.insert(rng.randint(0, len(sizes)), rng.choice((1, 2, 5)))
    count = functools.reduce(lambda a, b: a * b, sizes, 1)
    if count > _LARGEST:
        sizes, count = [1], 1
    flat = tensor.reshape(-1)
    repeats = -(-count // flat.numel()) if flat.numel() else 0
    made = (
        flat.repeat(repeats)[:count].clone() if repeats else torch.zeros(count, dtype=tensor.dtype)
    )
    if count and tensor.dtype in (torch.int64, torch.int32) and rng.random() < 0.6:
        made[rng.randrange(count)] = rng.choice(_INTEGERS)
    elif count and tensor.dtype.is_floating_point and rng.random() < 0.3:
        made[rng.randrange(count)] = rng.choice(_FLOATS)
    return made.reshape(sizes)


def changed(rng: random.Random, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of a call with one to three of them changed; None for one that cannot be."""
    leaves, tree = tree_flatten((call.args, call.kwargs))
    places = [i for i, each in enumerate(leaves) if isinstance(each, (torch.Tensor, int, float))]
    if not places or any(
        isinstance(each, torch.Tensor) and each.layout is not torch.strided for each in leaves
    ):
        return None
    chosen = set(rng.sample(places, min(len(places), rng.choice((1, 1, 2, 3)))))
    made: list[Any] = []
    for i, each in enumerate(leaves):
        other = i in chosen
        if isinstance(each, torch.Tensor):
            made.append(_other_tensor(rng, each) if other else each.detach().contiguous())
        elif other and type(each) is bool:
            made.append(not each)
        elif other and type(each) is int:
            made.append(rng.choice(_INTEGERS))
        else:
            made.append(rng.choice(_FLOATS) if other and type(each) is float else each)
    return tree_unflatten(made, tree)  # type: ignore[no-any-return]


def dies(call: Callable[[], object]) -> int:
    """The signal that ends a child process which makes a call; 0 if none does, or if it takes too
    long.
    """
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            call()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return 0 if ended == signal.SIGALRM else ended


def _call_fenced(call: Call, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    leaves, tree = tree_flatten((args, kwargs))
    near = [fenced(each) if isinstance(each, torch.Tensor) else each for each in leaves]
    given, named = tree_unflatten(near, tree)
    call.op(*given, **named)


def case(rng: random.Random, *, calls: Sequence[Call]) -> str | None:
    """One call of one op with changed arguments."""
    call = rng.choice(calls)
    made = changed(rng, call)
    if made is None:
        return None
    safety = meta_fns.memory_safety(call.op)
    if safety is meta_fns.MemorySafety.UNSAFE:
        return "unsafe, not called"
    if safety is meta_fns.MemorySafety.CHECKED:
        try:
            meta_fns.check_memory(call.op, *made)
        except meta_fns.MetaError:
            return "checked, refused"
        except Exception:  # a rule that meets arguments of wrong types
            return "checked, refused"
    ended = dies(partial(_call_fenced, call, *made))
    if ended:
        words = (
            f"{call.op}({text(list(made[0]))}, "
            f"{ ({name: text(each) for name, each in made[1].items()}) })"
        )
        raise Counterexample(
            f"{signal.Signals(ended).name} in {words}, which counts as {safety.name}"
        )
    return safety.name.lower()


@functools.cache
def recorded(smoke: bool) -> tuple[Call, ...]:
    """Calls of PyTorch's own samples, for ops with a rule: few of them for a smoke test."""
    torch.set_num_threads(1)  # a child of fork has no threads of a pool
    step = 40 if smoke else 1
    found = record(dtypes=(torch.float32, torch.int64), most=4, step=step)
    return tuple(
        each
        for each in found
        if each.op.namespace == "aten" and meta_fns.lookup(each.op) is not None
    )


def main(argv: Sequence[str] | None = None) -> Outcome:
    _counts.clear()
    args = fuzz_parser(__doc__, count=20_000, smoke=40).parse_args(argv)
    calls = recorded(bool(args.smoke))
    return fuzz("op_memory", partial(case, calls=calls), args, must_see=("safe",), counts=_counts)


__all__ = ["main"]
