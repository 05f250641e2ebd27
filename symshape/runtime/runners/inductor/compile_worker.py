"""The compiling process: requests come on its standard input, answers go to its standard output.

:mod:`symshape.runtime.runners.inductor.compile_process` starts it.  It ends when its input ends,
that is at the latest with the process that started it, also in the middle of a compilation.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import sys
import threading
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO

import attrs

__all__ = ["Answer", "Conditions", "read", "write"]

IDLE = 60.0
"""The seconds without a request after which the process reports that it is idle."""
_LENGTH = struct.Struct("<Q")


@attrs.frozen
class Conditions:
    """The settings of a process that Inductor's code depends on.

    Attributes:
        configs: the configurations of Inductor and of AOTAutograd, complete.
        threads: torch's number of threads.
        matmul: the flags of CUDA matrix products, by name.
        made_for: the environment of the code under these settings (see
            :func:`symshape.runtime.runners.inductor.code.made_for`).
    """

    configs: tuple[Mapping[str, Any], ...]
    threads: int
    matmul: Mapping[str, Any]
    made_for: str

    @classmethod
    def present(cls) -> Conditions:
        """Return the settings of this process."""
        import torch

        from symshape.runtime.runners.inductor.code import made_for

        flags = {name: getattr(torch.backends.cuda.matmul, name) for name in _MATMUL}
        return cls(
            tuple(each.save_config_portable() for each in _configs()),
            torch.get_num_threads(),
            flags,
            made_for(),
        )

    def restored(self) -> bool:
        """Apply the settings to this process; return whether code compiled here then fits the other
        process.
        """
        import torch

        from symshape.runtime.runners.inductor.code import made_for

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings that do nothing any more
            for module, saved in zip(_configs(), self.configs, strict=True):
                for name, value in saved.items():
                    setattr(module, name, value)
        torch.set_num_threads(self.threads)
        for name, value in self.matmul.items():
            setattr(torch.backends.cuda.matmul, name, value)
        return made_for() == self.made_for


_MATMUL = (
    "allow_tf32",
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
)


def _configs() -> tuple[Any, ...]:
    from symshape.torch_internals import inductor_config

    return inductor_config.inductor, inductor_config.functorch


@attrs.frozen
class Answer:
    """The answer to a request.

    Attributes:
        number: the request's number; None to report an idle process.
        assumed: the assumptions on the named integers; None: exact values only.
        content: the code.
        reason: why there is no code; empty if there is.
    """

    number: int | None
    assumed: tuple[str, ...] | None = None
    content: bytes = b""
    reason: str = ""


def write(stream: BinaryIO, thing: Any) -> None:
    """Send an object."""
    content = pickle.dumps(thing)
    stream.write(_LENGTH.pack(len(content)))
    stream.write(content)
    stream.flush()


def read(stream: BinaryIO) -> Any:
    """Return the next object.

    Raises:
        EOFError: the stream has ended.
    """
    (length,) = _LENGTH.unpack(_whole(stream, _LENGTH.size))
    return pickle.loads(_whole(stream, length))


def _whole(stream: BinaryIO, length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content


def answer(number: int, conditions: Conditions, content: bytes) -> Answer:
    """Compile a request and return the answer."""
    import torch

    from symshape.runtime.runners.inductor.compile_request import Request

    try:
        if not conditions.restored():
            return Answer(
                number, reason="the process that compiles cannot be given this process's flags"
            )
        with torch.no_grad():
            _, assumed, code = Request.unpacked(content).compiled(keep=True)
    except Exception as error:  # a compiler may raise anything
        return Answer(
            number, reason=f"{type(error).__name__}: {error} (in the process that compiles)"
        )
    if code is None:
        return Answer(number, reason="torch cannot write what it compiled")
    return Answer(number, assumed, code)


def main() -> None:
    """Answer requests until the input ends."""
    given = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with the answers
    os.nice(5)  # give way to the process that calls the function
    asked: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                asked.put(read(given))
        except EOFError:
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            found = asked.get(timeout=IDLE)
        except queue.Empty:
            write(answers, Answer(None))
            continue
        write(answers, answer(*found))
