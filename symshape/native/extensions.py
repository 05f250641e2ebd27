"""The list of C++ extensions, and the flags that compile them.

``setup.py`` runs this file where torch is not installed: it imports the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass

FLAGS = ("-std=c++20", "-O2", "-g0", "-fwrapv", "-DNDEBUG")


@dataclass(frozen=True)
class Extension:
    """One extension.

    Attributes:
        name: its full module name; its source has the same path, with the ending ``.cpp``.
        libraries: torch's libraries that it is linked with; without any it does not depend on the
            version of torch.
        headers: files beside the source that it includes.
    """

    name: str
    libraries: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The path of the source, from the folder that holds the package."""
        return f"{self.name.replace('.', '/')}.cpp"

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the source and of its headers."""
        folder = self.source.rpartition("/")[0]
        return (self.source, *(f"{folder}/{each}" for each in self.headers))


_TORCH = ("c10", "torch_cpu", "torch_python")

EXTENSIONS = (
    Extension("symshape.calls.compiled_reading", _TORCH),
    Extension("symshape.tracing.state.compiled_checks", ("c10",)),
    Extension("symshape.tracing.state.compiled_reads"),
    Extension("symshape.runtime.runners.compiled_launch", _TORCH, ("compiled_copies.h",)),
)
