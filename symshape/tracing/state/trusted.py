"""What a recording need not look into, and what it cannot: code that is taken to stay, and values that hide state."""

from __future__ import annotations

import builtins
import functools
import re
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import guards
import meta_fns

_TORCH = f"{Path(str(torch.__file__)).parent}/"
_OURS = (
    *(f"{Path(str(each)).parent}/" for each in (guards.__file__, meta_fns.__file__)),
    f"{Path(__file__).parents[2]}/",
)
_STANDARD = tuple({f"{Path(sysconfig.get_path(name))}/" for name in ("stdlib", "platstdlib")})
_MODULES = f"{_TORCH}nn/modules/"
_FLOWS = tuple(  # they call what a trace makes nodes of
    f"{_TORCH}_higher_order_ops/{each}.py" for each in ("cond", "while_loop", "scan", "associative_scan")
)
_SCALER = f"{_TORCH}amp/grad_scaler.py"  # notes in dictionaries what it did with each optimiser
_OF_TORCH_BUT_READ = (_MODULES, f"{_TORCH}nn/utils/", f"{_TORCH}optim/", _SCALER, *_FLOWS)
_MACHINERY = (f"{_MODULES}module.py", f"{_MODULES}_functions.py", f"{_MODULES}lazy.py")
_ARRAYS = re.compile(r"/(numpy|sympy|mpmath|z3|_pytest|pluggy|typeguard)/")


def words(text: str) -> list[str]:
    """The words of a text: lists of names that are long."""
    return text.split()


@functools.lru_cache(maxsize=4096)
def is_trusted(filename: str) -> bool:
    """Whether code of this file is taken to compute from its arguments alone: of Python, of torch's inside, of ours.

    The modules of torch (``nn.Linear`` …) are not: what they compute hangs on their attributes.
    """
    if filename.startswith(_TORCH):
        return not filename.startswith(_OF_TORCH_BUT_READ) or filename.startswith(_MACHINERY)
    if filename.startswith((*_OURS, "<frozen", "<attrs generated")):
        return True
    if "/site-packages/" in filename or "/dist-packages/" in filename:
        return bool(_ARRAYS.search(filename))
    return filename.startswith(_STANDARD)


def is_of_torch(filename: str) -> bool:
    """Whether code of this file is torch's, its modules too."""
    return filename.startswith(_TORCH)


@functools.lru_cache(maxsize=4096)
def is_machinery(name: str) -> bool:
    """Whether a module of this name is of Python or of torch: what its classes have is taken to stay."""
    if name.startswith(("torch.nn.modules.", "torch.nn.utils.", "torch.optim.", "torch.amp.grad_scaler")):
        return name == "torch.nn.modules.module"
    if name.partition(".")[0] in sys.stdlib_module_names or name in ("builtins", "torch") or name.startswith("torch."):
        return name != "__main__"
    module = sys.modules.get(name)
    return module is not None and is_trusted(getattr(module, "__file__", None) or f"<{name}>")


_CHANGING = frozenset(
    words(
        "time _time _random secrets _secrets uuid _uuid queue _queue socket _socket select tempfile subprocess io _io "
        "posix nt os gc genericpath pathlib glob shutil fileinput locale platform getpass signal asyncio _thread "
        "multiprocessing concurrent"
    )
)
_CHANGING_CALLS = frozenset({"open", "input", "eval", "exec", "breakpoint", "globals", "memoryview"})
_OF_THE_SYSTEM_BUT_STAYING = frozenset({"fspath", "getenv", "fsencode", "fsdecode", "get_exec_path", "allocate_lock"})
CHANGING_METHODS = frozenset({"now", "today", "utcnow"})
"""Methods of classes of ``datetime`` that read the clock."""
_CHANGING_NAMES = frozenset(
    words(
        "sys.getrecursionlimit sys.getrefcount sys._getframe sys.gettrace sys.getprofile sys.getswitchinterval "
        "sys.getallocatedblocks sys.exc_info sys.setrecursionlimit inspect.stack inspect.currentframe inspect.trace "
        "inspect.getouterframes traceback.extract_stack traceback.format_stack threading.current_thread "
        "threading.get_ident threading.main_thread threading.active_count threading.enumerate decimal.getcontext "
        "decimal.localcontext _decimal.getcontext importlib.import_module importlib.reload builtins.__import__"
    )
)
WARNING = frozenset({"warn", "warn_explicit", "filters", "simplefilter", "filterwarnings", "catch_warnings"})
LOGGING = frozenset(
    words("debug info warning warn error critical exception log level isEnabledFor getEffectiveLevel handlers disabled")
)
WALKS = frozenset(
    words(
        "modules named_modules children named_children parameters named_parameters buffers named_buffers state_dict "
        "get_submodule get_parameter get_buffer apply train eval zero_grad requires_grad_ to half float double cuda"
    )
)
"""Methods of modules that read the tables of a whole tree."""
BUILTINS = frozenset(vars(builtins))
"""The names that Python itself brings."""


def hides(function: Any) -> str:
    """What a function of Python's reads that changes by itself; nothing if empty."""
    return _hides(getattr(function, "__module__", None) or "", getattr(function, "__name__", ""))


@functools.lru_cache(maxsize=4096)
def _hides(module: str, name: str) -> str:
    if name in _OF_THE_SYSTEM_BUT_STAYING or module == "posixpath":
        return ""
    if module.partition(".")[0] in _CHANGING or f"{module}.{name}" in _CHANGING_NAMES:
        return f"{module}.{name}"
    if module == "builtins" and name in _CHANGING_CALLS:
        return name
    return ""


_HARMLESS_MODULES = (
    "torch",
    "functorch",
    "decimal",
    "_decimal",
    "datetime",
    "fractions",
    "re",
    "typing",
    "types",
    "enum",
)
_HARMLESS: tuple[type, ...] = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    slice,
    range,
    type(Ellipsis),
    type(NotImplemented),
    property,
    types.CodeType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    types.UnionType,
    re.Pattern,
    re.Match,
    torch.Size,
    torch.dtype,
    torch.device,
)
_STAYING = frozenset({"UUID", "SafeUUID", "PurePath", "PurePosixPath", "PosixPath", "Path"})
_SEEN_INTO = (list, dict, set, frozenset, tuple, deque, bytearray, type, torch.nn.Module, types.SimpleNamespace)
_HARMLESS_NAMES = frozenset(words("numpy.ufunc numpy._ArrayFunctionDispatcher _collections._tuplegetter"))
_HEAP_TYPE = 1 << 9


def _remembered(question: Callable[[type], bool]) -> Callable[[type], bool]:
    """A question about classes, asked once for each."""
    return functools.lru_cache(maxsize=4096)(question)


_OF_C = frozenset(
    (
        *("operator.attrgetter", "operator.itemgetter", "operator.methodcaller"),
        *("collections.defaultdict", "collections.deque"),  # on the heap from 3.12 on
        *("decimal.Decimal", "decimal.Context", "zoneinfo.ZoneInfo"),
    )
)
"""Classes of C that lie on the heap, as those of Python's do, and say that they are of a module in Python."""


@_remembered
def is_of_c(kind: type) -> bool:
    """Whether a class is written in C: what its objects hold is seen by nobody."""
    if not kind.__flags__ & _HEAP_TYPE:
        return True
    if f"{kind.__module__}.{kind.__qualname__}" in _OF_C or kind.__module__ in sys.builtin_module_names:
        return kind.__module__ != "builtins" or kind.__qualname__ in dir(sys.modules["builtins"])
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file.endswith((".so", ".pyd"))


@_remembered
def is_hidden(kind: type) -> bool:
    """Whether objects of a class hold what changes and cannot be seen: those of C, but for the harmless."""
    if kind.__module__ in (*_CHANGING, "threading") and kind.__qualname__ not in _STAYING:
        return True  # what other threads are told by, too
    if issubclass(kind, weakref.finalize):  # it looks itself up in its class
        return True
    return any(
        is_of_c(each) and each is not object and not issubclass(each, _SEEN_INTO) and not is_harmless(each)
        for each in kind.__mro__
    )


@_remembered
def is_whole(kind: type) -> bool:
    """Whether the methods of a class read any of an object's attributes without telling: trusted code on values."""
    return kind.__module__.startswith(
        ("collections", "torch.distributions", "argparse", "configparser", "weakref", "_weakrefset", "contextlib")
    )


READING_METHODS = frozenset(
    words(
        "__call__ forward _call_impl _wrapped_call_impl __init__ __getattr__ __setattr__ __delattr__ __dir__ __repr__ "
        "parameters named_parameters buffers named_buffers modules named_modules children named_children "
        "_named_members _version training state_dict get_submodule get_parameter get_buffer get_extra_state extra_repr "
        "_get_name"
    )
)
"""Methods of ``nn.Module`` that set no attributes, or only those that they are told to."""
_SETS_NOTHING = ("typing", "abc", "enum", "types", "torch.nn.modules.module", "torch.autograd.function")


@_remembered
def has_trusted_base(kind: type) -> bool:
    """Whether methods that are taken to stay, and tell nothing, may set attributes of the objects of a class."""
    return any(
        is_machinery(each.__module__) and not is_of_c(each) and each.__module__ not in _SETS_NOTHING
        for each in kind.__mro__
    )


def is_harmless(kind: type) -> bool:
    """Whether the values of a class that is written in C never change, or are looked after elsewhere."""
    if issubclass(kind, _HARMLESS) or kind.__module__.partition(".")[0] in _HARMLESS_MODULES:
        return True
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _HARMLESS_NAMES:
        return True
    return kind.__module__ == "numpy" and any(each.__name__ in ("generic", "dtype") for each in kind.__mro__)
