"""Warnings of a traced program, as eager shows them: text, file, line, and once for each line.

In a trace, our own frames stand between the program and the code that warns.  Texts of torch show
the names of sizes.  Torch's C++ warns from the innermost Python frame, which is ours.  So each
warning is caught, placed at the frame that eager would cite, and given to Python again.

The warnings of a trace are shown when it has succeeded.  After a failed one the function runs
eagerly and warns itself.  Where a filter makes an error of a warning, the error is raised at once.
So is a warning shown at once where the program has set filters of its own (``catch_warnings``).

Python calls ``match`` of a filter's regular expressions.  The first filter here is our own: it
catches the warnings of threads that trace, and none of the others.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, NamedTuple, SupportsIndex

import torch

from symshape import forks
from symshape.errors import SymShapeError
from symshape.graph.codegen import Run, StepLines
from symshape.graph.fast_calls import Telling
from symshape.torch_internals.operators import calling_ops
from symshape.tracing.restart import Restart
from symshape.tracing.symbolic.nodes import texts
from symshape.user_code import Location, is_ours, is_torchs, stated_location

PYTHONS_WARN, _PYTHONS_WARN_EXPLICIT = warnings.warn, warnings.warn_explicit
"""Python's functions, which a trace replaces by ours."""
_OVERRIDES = torch.overrides.__file__
_BETWEEN = (contextlib.__file__, functools.__file__, _OVERRIDES)
"""The files whose frames belong to ours where they stand between them."""
_GENERATED = "<symshape "
_NAMESPACE = "__symshape_steps__"
_OF_GRAPHS = ("symshape.graph.", "symshape.torch_internals.")
_OF_C = "__symshape_warned__"
"""The attribute of warnings that were raised as errors: whether C++ warned."""


class _Place(NamedTuple):
    """The place that a warning cites: its file and line, and the namespace that remembers it."""

    file: str
    line: int
    module: str
    names: dict[str, Any]

    @classmethod
    def of(cls, frame: FrameType) -> _Place:
        names = frame.f_globals
        return cls(
            frame.f_code.co_filename, frame.f_lineno, names.get("__name__") or "<string>", names
        )

    @classmethod
    def of_location(cls, location: Location, fn: Callable[..., Any] | None = None) -> _Place:
        names = _namespace(location[0], fn)
        return cls(*location[:2], names.get("__name__") or "<string>", names)


def _namespace(file: str, fn: Callable[..., Any] | None) -> dict[str, Any]:
    """Return the namespace of the module of a file: that of ``fn``, or of a module that is
    imported; an empty one if it is not known.
    """
    function: Any = inspect.unwrap(fn) if fn is not None else None
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    function = getattr(function, "__func__", function)
    if getattr(getattr(function, "__code__", None), "co_filename", None) == file:
        names: dict[str, Any] = function.__globals__
        return names
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None) or {}
        if names.get("__file__") == file:
            return names
    return {}


class _Warning(NamedTuple):
    """One warning and its place."""

    message: Any
    category: type[Warning]
    place: _Place
    source: Any = None
    of_c: bool = False

    def show(self) -> None:
        """Have Python show the warning, or raise it, by the filters that are set now."""
        place = self.place
        registry = place.names.setdefault("__warningregistry__", {})
        try:
            with _asleep():
                _PYTHONS_WARN_EXPLICIT(
                    self.message,
                    self.category,
                    place.file,
                    place.line,
                    place.module,
                    registry,
                    None,
                    self.source,
                )
        except Warning as error:
            error.__dict__[_OF_C] = self.of_c
            raise


class _Thread(threading.local):
    """The innermost block of each thread whose warnings are caught, and the warning that is being
    looked at.
    """

    block: _Block | None = None
    text = module = ""


_thread = _Thread()


@contextmanager
def _asleep() -> Iterator[None]:
    outer, _thread.block = _thread.block, None
    try:
        yield
    finally:
        _thread.block = outer


class _Block:
    """A block whose warnings are caught: ``seen`` returns whether it has taken care of one."""

    def seen(self, text: str, category: type[Warning], module: str, frame: FrameType) -> bool:
        raise NotImplementedError


class _TracedBlock(_Block):
    """The warnings of a trace, held until it has succeeded."""

    def __init__(self) -> None:
        self.held: list[_Warning] = []
        self._earlier: list[_Warning] = []
        self.outer: tuple[int, ...] = ()

    def begin(self) -> None:
        """Note the filters that are set now: later ones are the program's own."""
        self.outer = _filters_in_force()

    def seen(self, text: str, category: type[Warning], module: str, frame: FrameType) -> bool:
        raw: FrameType | None = frame
        level = 0
        while raw is not None and raw.f_globals.get("__name__") != module:
            raw, level = raw.f_back, level + 1
        at = next(itertools.islice(frames_of_eager(frame), level if raw else 0, None), None)
        if at is None:
            return False
        self.tell(_Warning(texts.with_values(text), category, _Place.of(at), of_c=True))
        return True

    def tell(self, warning: _Warning) -> None:
        """Hold a warning, or show it at once.

        Raises:
            Warning: a filter makes errors of such warnings.
        """
        if _filters_in_force() != self.outer:  # the program's own
            warning.show()
            return
        action = _action(warning)
        if action == "error":
            warning.show()
        elif action != "ignore":
            self.held.append(warning)

    def forget(self) -> None:
        """Forget the warnings so far, since the program warns again.

        C++ warns only once in a process of many things: these warnings are kept, unless they come
        again.
        """
        self._earlier += [each for each in self.held if each.of_c]
        self.held.clear()

    def show(self) -> None:
        """Show the warnings that are held."""
        held, self.held = self.held, []
        again = [each for each in held if each.of_c]
        for each in self._earlier:
            if each in again:
                again.remove(each)
            else:
                held.insert(0, each)
        self._earlier.clear()
        for each in held:
            each.show()


class _RunBlock(_Block):
    """The warnings of the kernels of a graph, shown at once, at the lines of the program."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn
        self.told = False

    def seen(self, text: str, category: type[Warning], module: str, frame: FrameType) -> bool:
        place = self._place(frame)
        if place is None:
            return False
        self.told = True
        _Warning(text, category, place, of_c=True).show()
        return True

    def _place(self, frame: FrameType | None) -> _Place | None:
        while frame is not None:
            steps, file = frame.f_globals.get(_NAMESPACE), frame.f_code.co_filename
            if isinstance(steps, StepLines) and steps.code is frame.f_code:
                location = steps.location(frame.f_lineno, frame.f_locals.get("lap", 0))
                if location is None:
                    return None
                return _Place.of_location(location, self._fn)
            if file != calling_ops and not str(frame.f_globals.get("__name__")).startswith(
                _OF_GRAPHS
            ):
                return None
            frame = frame.f_back
        return None


class _GraphBlock(_Block):
    """The warnings of a graph that runs node by node on symbols, shown at once: each cites the line
    that the node came from.
    """

    def seen(self, text: str, category: type[Warning], module: str, frame: FrameType) -> bool:
        location = stated_location()
        if location is None:
            return False
        _Warning(texts.with_values(text), category, _Place.of_location(location)).show()
        return True


def frames_of_eager(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that would be there without the trace, the innermost first.

    Left out are our frames, what stands between them, and a function of torch that has asked a
    function mode: the mode calls it once more.
    """
    inner: FrameType | None = None
    while frame is not None:
        if not _is_own(frame.f_code.co_filename):
            yield frame
            frame, inner = frame.f_back, frame
            continue
        asked, last = False, frame
        while frame is not None:
            file = frame.f_code.co_filename
            own = _is_own(file)
            if not own and file not in _BETWEEN:
                break
            if own or file == _OVERRIDES:
                asked, last = file == _OVERRIDES, frame
            frame = frame.f_back
        frame = last.f_back
        if asked and frame is not None and inner is not None and _same(frame, inner):
            frame = frame.f_back


def _is_own(file: str) -> bool:
    return is_ours(file) or file.startswith(_GENERATED)


def _same(one: FrameType, other: FrameType) -> bool:
    """Return whether two frames run one function, perhaps with hooks in its code."""
    first, second = one.f_code, other.f_code
    return (first.co_filename, first.co_firstlineno, first.co_name) == (
        second.co_filename,
        second.co_firstlineno,
        second.co_name,
    )


def _action(warning: _Warning) -> str:
    """Return what the filters that are set now do with a warning."""
    text, place = str(warning.message), warning.place
    for each in list(warnings.filters):
        if each is _CATCHES:
            continue
        action, message, category, module, line = each
        if (
            _matches(message, text)
            and issubclass(warning.category, category)
            and _matches(module, place.module)
            and line in (0, place.line)
        ):
            return str(action)
    return str(getattr(warnings, "defaultaction", "default"))


def _matches(wanted: Any, text: str) -> bool:
    if wanted is None:
        return True
    return bool(wanted == text if isinstance(wanted, str) else wanted.match(text))


def _filters_in_force() -> tuple[int, ...]:
    found: Any = warnings
    return tuple(id(getattr(found, each, None)) for each in _OF_FILTERS)


_OF_FILTERS = ("filters", "showwarning", "_showwarnmsg_impl")


# -- the filter
class _Text:
    def match(self, text: str) -> bool:
        _thread.text = text
        return _thread.block is not None


class _Module:
    def match(self, module: str) -> bool:
        _thread.module = module
        return True


class _Category:
    """Stands for a class of warnings: Python asks it last, so it decides."""

    def __subclasscheck__(self, category: Any) -> bool:
        block = _thread.block
        return block is not None and block.seen(
            _thread.text, category, _thread.module, sys._getframe(1)
        )


_CATCHES: Any = ("ignore", _Text(), _Category(), _Module(), 0)


class _Filters(list[Any]):
    """Python's list of filters, in which ours stays the first one, also in its copies."""

    def insert(self, index: SupportsIndex, item: Any) -> None:
        super().insert(max(1, int(index)) if int(index) >= 0 else index, item)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Filters(found) if isinstance(index, slice) else found

    def __setitem__(self, index: Any, items: Any) -> None:
        super().__setitem__(index, items)
        if self[:1] != [_CATCHES]:
            super().insert(0, _CATCHES)


class _Installed:
    """The filter is installed while some thread catches warnings, each in a block."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        # an interrupt may end a block before it is taken out of here
        self._blocks = weakref.WeakSet[_Block]()
        self._before: list[Any] = []
        self._ours: list[Any] = []

    @contextmanager
    def catching(self, block: _Block) -> Iterator[None]:
        """Return a context in which ``block`` catches the warnings of this thread."""
        outer = _thread.block
        try:
            self._begin(block)
            _thread.block = block
            yield
        finally:
            _thread.block = outer
            self._end(block)

    def _begin(self, block: _Block) -> None:
        with self._lock:
            alone = not self._blocks
            self._blocks.add(block)
            Telling.blocks = len(self._blocks)
            if not alone:
                return
            found: Any = warnings.filters
            if found is not self._ours:
                is_copy = type(found) is _Filters  # left by a thread in `catch_warnings`
                self._before = (
                    [each for each in found if each is not _CATCHES] if is_copy else found
                )
                self._ours = found if is_copy else _Filters([_CATCHES, *found])
                warnings.filters = self._ours

    def _end(self, block: _Block) -> None:
        with self._lock:
            self._blocks.discard(block)
            Telling.blocks = len(self._blocks)
            # else a thread is in `catch_warnings`: its copy, and ours behind it, catch nothing
            if not self._blocks and warnings.filters is self._ours:
                now = [each for each in self._ours if each is not _CATCHES]
                if now != self._before:
                    self._before[:] = now
                warnings.filters = self._before


_installed = _Installed()


def _warn(
    message: Any,
    category: Any = None,
    stacklevel: int = 1,
    source: Any = None,
    **options: Any,
) -> None:
    """Act as ``warnings.warn``, whose ``stacklevel`` counts the frames that eager would have."""
    block = _thread.block
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    at = None
    if isinstance(block, _TracedBlock) and isinstance(kind, type) and issubclass(kind, Warning):
        at = _at_level(frames_of_eager(sys._getframe(1)), stacklevel, **options)
    if at is None:
        PYTHONS_WARN(message, category, max(stacklevel, 1) + 1, source, **options)
    else:
        assert isinstance(block, _TracedBlock)
        if type(message) is str and is_torchs(sys._getframe(1).f_code.co_filename):
            message = texts.with_values(message)
        block.tell(_Warning(message, kind, _Place.of(at), source))


def _at_level(
    frames: Iterator[FrameType], level: int, skip_file_prefixes: Sequence[str] = ()
) -> FrameType | None:
    """Return the frame that ``warnings.warn`` cites; None if there are not so many."""
    prefixes = tuple(skip_file_prefixes)
    level = max(2, level) if prefixes else level
    first = next(frames, None)
    if level <= 1 or first is None:
        return first
    others = (
        each
        for each in frames
        if not (prefixes and each.f_code.co_filename.startswith(prefixes))
        and not ("importlib" in (file := each.f_code.co_filename) and "_bootstrap" in file)
    )
    return next(itertools.islice(others, level - 2, None), None)


def _warn_explicit(*args: Any, **kwargs: Any) -> None:
    """Act as ``warnings.warn_explicit``, whose caller says the place itself."""
    with _asleep():
        _PYTHONS_WARN_EXPLICIT(*args, **kwargs)


def _put_back(functions: tuple[Any, Any]) -> None:
    warnings.warn, warnings.warn_explicit = functions


@contextmanager
def told_as_in_eager(serves: bool) -> Iterator[Callable[[], None]]:
    """Return a context whose warnings are shown at its end as eager shows them.

    The context gives the function that forgets the warnings so far: another attempt begins.

    Args:
        serves: whether eager runs and warns if the block raises; else an error of the program
            leaves its warnings shown.
    """
    outer = (warnings.warn, warnings.warn_explicit)
    if outer[0] is _warn and not isinstance(_thread.block, _TracedBlock):
        outer = (PYTHONS_WARN, _PYTHONS_WARN_EXPLICIT)  # an interrupt left ours
    block = _TracedBlock()
    try:
        with _installed.catching(block):
            block.begin()
            warnings.warn, warnings.warn_explicit = _warn, _warn_explicit
            yield block.forget
    except (Exception, Restart) as error:
        _put_back(outer)
        if serves or isinstance(error, (SymShapeError, Restart)):
            block.forget()
        block.show()
        raise
    finally:
        _put_back(outer)
    block.show()


def is_warning(error: BaseException, *, of_c: bool = False) -> bool:
    """Return whether a filter made this error of a warning that was caught here.

    Args:
        error: any error.
        of_c: whether C++ must have warned, which may not warn again when the function runs eagerly.
    """
    made: bool | None = error.__dict__.get(_OF_C) if isinstance(error, Warning) else None
    return made is not None and (made or not of_c)


def run_as_in_eager(run: Run, fn: Callable[..., Any]) -> Run:
    """Return ``run`` with each run in :func:`kernels_as_in_eager`."""

    def placed(leaves: Sequence[Any], values: Sequence[int]) -> list[Any]:
        with kernels_as_in_eager(fn):
            return run(leaves, values)

    return placed


@contextmanager
def kernels_as_in_eager(fn: Callable[..., Any]) -> Iterator[_RunBlock]:
    """Return a context in which warnings of the kernels of a graph cite the lines of ``fn``."""
    block = _RunBlock(fn)
    with _installed.catching(block):
        yield block


def nodes_as_in_eager() -> AbstractContextManager[None]:
    """Return a context in which warnings of a graph that runs on symbols cite the lines of its
    nodes (``user_code.at``).
    """
    return _installed.catching(_GraphBlock())
