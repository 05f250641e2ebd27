"""The environment variables that symshape reads: the only list of their names, values, defaults and
meanings.

``docs/reference/environment.md`` is generated from this module. ``guards`` and ``setup.py`` cannot
import it and read their own variables; those are listed here too.
"""

from __future__ import annotations

import os

import attrs


@attrs.frozen
class Variable:
    """An environment variable.

    Attributes:
        name: the name.
        values: the values that it may have, as Markdown.
        default: the behaviour where the variable is unset or empty, as Markdown.
        meaning: the effect of a value, as Markdown.
        read: the moment at which the variable is read.
    """

    name: str
    values: str
    default: str
    meaning: str
    read: str

    def value(self) -> str:
        """Return the value in this process; empty where the variable is unset."""
        return os.environ.get(self.name, "")

    def is_set(self) -> bool:
        """Return whether the variable is set, if only to nothing."""
        return self.name in os.environ

    def is_on(self) -> bool:
        """Return whether the variable is set to something other than ``0``."""
        return self.value() not in ("", "0")


STORE = Variable(
    "SYMSHAPE_STORE",
    "a folder",
    "this user's folder of caches",
    "the folder in which `store=True` keeps programs",
    "when a store is made",
)
KEY = Variable(
    "SYMSHAPE_KEY",
    "a file",
    "a file in this user's folder of data, made when it is needed",
    "the key that signs compiled artefacts of this user's stores",
    "when an artefact is written or read",
)
LOGS = Variable(
    "SYMSHAPE_LOGS",
    "topics with commas: `recompiles`, `guards`, `captures`, `purchases`, `fallbacks`, `store`, "
    "`all`; and `json`",
    "no logs",
    "events of these topics go to Python's `logging`; with `json`, as one JSON object a line",
    "when symshape is imported",
)
NATIVE = Variable(
    "SYMSHAPE_NATIVE",
    "`0`, `built`",
    "C++ serves; what is missing is compiled in the background",
    "`0`: Python does the host's part of a call. `built`: C++ that is there is used, no compiler "
    "is started",
    "when an extension is first needed",
)
NATIVE_CACHE = Variable(
    "SYMSHAPE_NATIVE_CACHE",
    "a folder",
    "`native` in this user's folder of caches",
    "the folder in which compiled C++ is kept",
    "when an extension is looked for or compiled",
)
INTERPRETED = Variable(
    "SYMSHAPE_INTERPRETED",
    "`1`",
    "compiled modules of `guards` are used where they are",
    "`guards` is imported from its sources, to step through them",
    "when `guards` is imported",
)
COMPILE = Variable(
    "SYMSHAPE_COMPILE",
    "`0`, `1`",
    "`guards` is compiled where a C compiler is found",
    "`0`: nothing is compiled. `1`: a failure to compile is an error",
    "at installation",
)
PART = Variable(
    "SYMSHAPE_PART",
    "`guards`, `native`",
    "both",
    "the part that is compiled (used by `make`)",
    "at installation",
)
COMPILER = Variable(
    "CXX",
    "a command",
    "the first of `c++`, `g++`, `clang++` that is there",
    "the C++ compiler of the host's part of a call",
    "when an extension is compiled",
)
INDUCTOR_CACHE = Variable(
    "TORCHINDUCTOR_CACHE_DIR",
    "a folder",
    "Inductor's own choice",
    "Inductor's kernels; a stored artefact of Inductor finds its kernels there",
    "when a program is compiled by Inductor",
)
NSIGHT = Variable(
    "NSYS_PROFILING_SESSION_ID",
    "set by Nsight Systems",
    "no NVTX ranges",
    "each call of a program is an NVTX range with its operations and bytes",
    "when a function is compiled",
)
TORCH_TRACE = Variable(
    "TORCH_TRACE",
    "a folder",
    "no artefacts",
    "traced programs and their guards are written for tlparse",
    "by torch, when it is imported",
)
STRUCTURED_LOG = Variable(
    "MAST_HPC_JOB_NAME",
    "set by a job's scheduler",
    "artefacts only with `TORCH_TRACE`",
    "torch writes artefacts without `TORCH_TRACE`",
    "when a program is traced",
)
DEVICES = Variable(
    "CUDA_VISIBLE_DEVICES",
    "numbers of devices",
    "every device",
    "ranks that see one device each can share one trace: see [Ranks](../guides/store.md#ranks)",
    "by CUDA",
)

OWN = (STORE, KEY, LOGS, NATIVE, NATIVE_CACHE, INTERPRETED, COMPILE, PART)
"""The variables of symshape."""
OTHERS = (COMPILER, INDUCTOR_CACHE, TORCH_TRACE, STRUCTURED_LOG, NSIGHT, DEVICES)
"""The variables of others that change what symshape does."""
