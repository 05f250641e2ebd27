"""Lists of code that is assumed never to change, and of values whose state a recording cannot
see.
"""

from __future__ import annotations

import builtins
import decimal
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

from symshape.user_code import OURS

_TORCH = f"{Path(str(torch.__file__)).parent}/"
_STANDARD = tuple({f"{Path(sysconfig.get_path(name))}/" for name in ("stdlib", "platstdlib")})
_MODULES = f"{_TORCH}nn/modules/"
_FLOWS = tuple(  # they call functions that a trace makes nodes of
    f"{_TORCH}_higher_order_ops/{each}.py"
    for each in ("cond", "while_loop", "scan", "associative_scan")
)
_SCALER = f"{_TORCH}amp/grad_scaler.py"  # stores in dictionaries what it did with each optimiser
_OF_TORCH_BUT_READ = (_MODULES, f"{_TORCH}nn/utils/", f"{_TORCH}optim/", _SCALER, *_FLOWS)
_MACHINERY = (f"{_MODULES}module.py", f"{_MODULES}_functions.py", f"{_MODULES}lazy.py")
_OF_USERS_OBJECTS = ["ao", "distributed/algorithms", "distributions", "nn/parallel", "utils/data"]
_FOLLOWED = tuple(f"{_TORCH}{each}/" for each in _OF_USERS_OBJECTS)
"""The folders of classes whose objects hold a user's objects, or settings that a user changes."""
_PYTHONS_OWN = re.compile(  # modules that the recording uses itself, or handles by class
    r"(abc|codecs|copy|copyreg|dataclasses|enum|fractions|functools|inspect|"
    r"linecache|numbers|operator|os|pathlib|pickle|posixpath|random|reprlib|threading|traceback|"
    r"types|typing|warnings|weakref|_weakrefset|_pydecimal|_pydatetime)\.py$|"
    r"(asyncio|concurrent|ctypes|encodings|importlib|logging|multiprocessing|re|zoneinfo)/"
)
_OF_CONTEXTS = (  # of contextlib: the recording uses them itself, and output is handled elsewhere
    *("_GeneratorContextManager", "contextmanager.", "_RedirectStream"),
)
_OUR_ATTRS = re.compile(r"<attrs generated (\w+ )?(symshape|guards|meta_fns)\.")
_ARRAYS = re.compile(r"/(numpy|sympy|mpmath|z3|_pytest|pluggy|typeguard)/")


def words(text: str) -> list[str]:
    """Return the words of a text; used for long lists of names."""
    return text.split()


@functools.lru_cache(maxsize=4096)
def is_trusted(filename: str) -> bool:
    """Return whether code of this file is assumed to depend on its arguments only: Python's,
    torch's internals, ours.

    The modules of torch (``nn.Linear`` …) are excluded: their results depend on their attributes.
    """
    if filename.startswith(_TORCH):
        return not filename.startswith(_OF_TORCH_BUT_READ) or filename.startswith(_MACHINERY)
    if filename.startswith((*OURS, "<frozen")):
        return True
    if filename.startswith("<attrs generated"):
        return bool(_OUR_ATTRS.match(filename))
    if "/site-packages/" in filename or "/dist-packages/" in filename:
        return bool(_ARRAYS.search(filename))
    return filename.startswith(_STANDARD)


def is_followed(code: types.CodeType) -> bool:
    """Return whether trusted code belongs to a class, and its reads and writes are recorded.

    A method reads and sets attributes of its object, and calls methods that a user's class
    overrides.  Properties are often inner functions.
    """
    name = code.co_qualname
    return "." in name and not name.startswith(_OF_CONTEXTS) and _is_followed(code.co_filename)


@functools.lru_cache(maxsize=4096)
def _is_followed(filename: str) -> bool:
    if filename.startswith(_TORCH):
        return filename.startswith(_FOLLOWED)
    if filename.startswith((*OURS, "<")) or not filename.startswith(_STANDARD):
        return False
    return not any(
        _PYTHONS_OWN.match(filename, len(each)) for each in _STANDARD if filename.startswith(each)
    )


def is_of_torch(filename: str) -> bool:
    """Return whether code of this file is torch's, ``torch.nn`` modules included."""
    return filename.startswith(_TORCH)


@functools.lru_cache(maxsize=4096)
def is_machinery(name: str) -> bool:
    """Return whether a module of this name is Python's or torch's, so that its classes are assumed
    not to change.
    """
    if name.startswith(
        ("torch.nn.modules.", "torch.nn.utils.", "torch.optim.", "torch.amp.grad_scaler")
    ):
        return name == "torch.nn.modules.module"
    if (
        name.partition(".")[0] in sys.stdlib_module_names
        or name in ("builtins", "torch")
        or name.startswith("torch.")
    ):
        return name != "__main__"
    module = sys.modules.get(name)
    return module is not None and is_trusted(getattr(module, "__file__", None) or f"<{name}>")


_CHANGING = frozenset(
    words(
        "time _time _random secrets _secrets uuid _uuid queue _queue socket _socket select "
        "tempfile subprocess io _io posix nt os gc genericpath pathlib glob shutil fileinput "
        "locale platform getpass signal asyncio _thread multiprocessing concurrent"
    )
)
_CHANGING_CALLS = frozenset(
    {"open", "input", "eval", "exec", "breakpoint", "globals", "memoryview"}
)
_OF_THE_SYSTEM_BUT_STAYING = frozenset(
    {"fspath", "getenv", "fsencode", "fsdecode", "get_exec_path", "allocate_lock"}
)
CHANGING_METHODS = frozenset({"now", "today", "utcnow"})
"""The methods of classes of ``datetime`` that read the clock."""
_CHANGING_NAMES = frozenset(
    words(
        "sys.getrecursionlimit sys.getrefcount sys._getframe sys.gettrace sys.getprofile "
        "sys.getswitchinterval sys.getallocatedblocks sys.exc_info sys.setrecursionlimit "
        "sys.set_int_max_str_digits sys.getdlopenflags sys.get_asyncgen_hooks sys._current_frames "
        "sys.get_coroutine_origin_tracking_depth sys._current_exceptions sys._getframemodulename "
        "inspect.stack inspect.currentframe inspect.trace inspect.getouterframes "
        "traceback.extract_stack traceback.format_stack threading.current_thread "
        "threading.get_ident threading.main_thread threading.active_count threading.enumerate "
        "decimal.getcontext decimal.localcontext _decimal.getcontext importlib.import_module "
        "importlib.reload builtins.__import__"
    )
)
WARNING = frozenset(
    {"warn", "warn_explicit", "filters", "simplefilter", "filterwarnings", "catch_warnings"}
)
LOGGING = frozenset(
    words(
        "debug info warning warn error critical exception log level isEnabledFor getEffectiveLevel "
        "handlers disabled"
    )
)
WALKS = frozenset(
    words(
        "modules named_modules children named_children parameters named_parameters buffers "
        "named_buffers state_dict get_submodule get_parameter get_buffer apply train eval "
        "zero_grad requires_grad_ to half float double cuda"
    )
)
"""The methods of modules that read the parameters, buffers and submodules of a whole tree of
modules.
"""
BUILTINS = frozenset(vars(builtins))
"""The names that Python itself defines."""


def hides(function: Any) -> str:
    """Return the name of a Python function that reads a changing state (clock, files …); empty for
    any other.
    """
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


_INSTALLED = frozenset(
    words(
        "importlib.util.find_spec importlib.find_loader importlib._bootstrap._find_spec "
        "pkgutil.find_loader pkgutil.get_loader pkgutil.iter_modules pkgutil.walk_packages"
    )
)


def asks_what_is_installed(function: Any) -> bool:
    """Return whether a function tells which modules and packages can be imported."""
    module = getattr(function, "__module__", None) or ""
    return (
        module.startswith("importlib.metadata")
        or f"{module}.{getattr(function, '__name__', '')}" in _INSTALLED
    )


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
_STATEFUL: tuple[type, ...] = (
    *(torch.UntypedStorage, torch.ScriptObject, torch.futures.Future),
    decimal.Context,  # its precision can be set
    weakref.finalize,  # it looks itself up in its class
)
"""Classes of harmless modules, or not of C, whose objects are hidden all the same."""
_STAYING = frozenset({"UUID", "SafeUUID", "PurePath", "PurePosixPath", "PosixPath", "Path"})
_SEEN_INTO = (
    list,
    dict,
    set,
    frozenset,
    tuple,
    deque,
    bytearray,
    type,
    torch.nn.Module,
    types.SimpleNamespace,
)
_HARMLESS_NAMES = frozenset(
    words(
        "numpy.ufunc numpy._ArrayFunctionDispatcher _collections._tuplegetter "
        "builtins.instancemethod"  # a function of C in a class of pybind11
    )
)
_HEAP_TYPE = 1 << 9


def _remembered(question: Callable[[type], bool]) -> Callable[[type], bool]:
    """Return a question about classes with a cache: each class is asked about once."""
    return functools.lru_cache(maxsize=4096)(question)


_OF_C = frozenset(
    (
        *("operator.attrgetter", "operator.itemgetter", "operator.methodcaller"),
        *("collections.defaultdict", "collections.deque"),  # on the heap from 3.12 on
        *("decimal.Decimal", "decimal.Context", "zoneinfo.ZoneInfo"),
    )
)
"""The names of classes of C that are heap types like Python classes, and claim to be from a Python
module.
"""


@_remembered
def is_of_c(kind: type) -> bool:
    """Return whether a class is written in C, so that no recording sees what its objects hold."""
    if not kind.__flags__ & _HEAP_TYPE:
        return True
    if (
        f"{kind.__module__}.{kind.__qualname__}" in _OF_C
        or kind.__module__ in sys.builtin_module_names
    ):
        return kind.__module__ != "builtins" or kind.__qualname__ in dir(sys.modules["builtins"])
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file.endswith((".so", ".pyd"))


@_remembered
def is_made(kind: type) -> bool:
    """Return whether a class does not stand in the module that it names, as where torch makes a
    class at run time for each module (``torch.fx.GraphModule``).
    """
    if is_of_c(kind):
        return False
    found: Any = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is not kind


@_remembered
def is_of_machinery(kind: type) -> bool:
    """Return whether a class is Python's or torch's, so that it is assumed not to change."""
    return is_machinery(kind.__module__) and not is_made(kind)


@_remembered
def is_hidden(kind: type) -> bool:
    """Return whether a class's objects hold a changing state that is not recorded: a C class,
    unless harmless.
    """
    if kind.__module__ in (*_CHANGING, "threading") and kind.__qualname__ not in _STAYING:
        return True  # through some of them, threads pass values to each other
    if issubclass(kind, _STATEFUL):
        return True
    return any(
        is_of_c(each)
        and each is not object
        and not issubclass(each, _SEEN_INTO)
        and not is_harmless(each)
        for each in kind.__mro__
    )


_READ_BY_FUNCTIONS = ("torch.distributions", "configparser", "weakref", "_weakrefset")


@_remembered
def is_whole(kind: type) -> bool:
    """Return whether trusted code that is no method of the class reads any attribute of an object
    without a record.
    """
    if any(each.__module__.startswith(_READ_BY_FUNCTIONS) for each in kind.__mro__):
        return True
    return kind.__module__.startswith(
        (
            "collections",
            "torch.distributions",
            "argparse",
            "configparser",
            "weakref",
            "_weakrefset",
            "contextlib",
            "numpy",
            "reprlib",
        )
    )


READING_METHODS = frozenset(
    words(
        "__call__ forward _call_impl _wrapped_call_impl __init__ __getattr__ __setattr__ "
        "__delattr__ __dir__ __repr__ parameters named_parameters buffers named_buffers modules "
        "named_modules children named_children _named_members _version training state_dict "
        "get_submodule get_parameter get_buffer get_extra_state extra_repr _get_name"
    )
)
"""The methods of ``nn.Module`` that set no attributes, or only those that they are asked to set."""
_SETS_NOTHING = (
    "typing",
    "abc",
    "enum",
    "types",
    "torch.nn.modules.module",
    "torch.autograd.function",
)


@_remembered
def has_trusted_base(kind: type) -> bool:
    """Return whether trusted methods, whose writes are not recorded, may set attributes of a
    class's objects.
    """
    return any(
        is_of_machinery(each) and not is_of_c(each) and each.__module__ not in _SETS_NOTHING
        for each in kind.__mro__
    )


def is_harmless(kind: type) -> bool:
    """Return whether the values of a C class never change, or are handled elsewhere."""
    if issubclass(kind, _HARMLESS) or kind.__module__.partition(".")[0] in _HARMLESS_MODULES:
        return True
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _HARMLESS_NAMES:
        return True
    names = {each.__name__ for each in kind.__mro__ if kind.__module__ == "numpy"}
    return "void" not in names and not names.isdisjoint(("generic", "dtype"))
