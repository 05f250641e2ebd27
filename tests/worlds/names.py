"""Names that are looked up while a program runs: globals, imports, the environment, packages (class
1 of issue 8).
"""

from __future__ import annotations

import builtins
import contextvars
import decimal
import gc
import importlib
import logging
import math
import operator
import os
import sys
import tempfile
import threading
import types
import warnings
from typing import Any

import torch

from tests.worlds.world import World, importable, installed, item, module, on, put, world

NAMES = "1 names and surroundings"
ON = on(3)


def _source(body: str, **names: Any) -> types.ModuleType:
    return module(f"import math, os, sys\nK = 2\ndef fn(x):\n    {body}\n", **names)


@world(NAMES)
def getattr_with_a_computed_name() -> World:
    cfg = types.SimpleNamespace(scale_0=2)
    return World(
        lambda x: x * getattr(cfg, "scale_" + str(x.dim() - 1)), [ON, put(cfg, scale_0=3), ON]
    )


@world(NAMES)
def getattr_with_a_name_from_a_table() -> World:
    cfg, names = types.SimpleNamespace(**{"a b": 2}), ["a b"]
    return World(lambda x: x * getattr(cfg, names[0]), [ON, lambda: setattr(cfg, "a b", 3), ON])


@world(NAMES)
def attrgetter() -> World:
    cfg = types.SimpleNamespace(inner=types.SimpleNamespace(k=2))
    get = operator.attrgetter("inner.k")
    return World(lambda x: x * get(cfg), [ON, put(cfg.inner, k=3), ON])


@world(NAMES)
def globals_by_key() -> World:
    m = _source('return x * globals()["".join(["K"])]')
    return World(m.fn, [ON, put(m, K=3), ON])


@world(NAMES)
def eval_of_a_name() -> World:
    m = _source('return x * eval("K")')
    return World(m.fn, [ON, put(m, K=3), ON])


@world(NAMES)
def exec_of_a_text() -> World:
    m = _source('space = {"x": x}; exec(TEXT, space); return space["y"]', TEXT="y = x * 2")
    return World(m.fn, [ON, put(m, TEXT="y = x * 3"), ON])


@world(NAMES)
def module_through_vars() -> World:
    m, fn = _source("return x"), module('def fn(x): return x * vars(M)["".join("K")]')
    fn.M = m
    return World(fn.fn, [ON, put(m, K=3), ON])


@world(NAMES)
def module_through_sys_modules() -> World:
    importable("K = 2")
    m = _source('return x * sys.modules["a_world"].K')
    return World(m.fn, [ON, lambda: setattr(sys.modules["a_world"], "K", 3), ON])


@world(NAMES)
def from_import_inside() -> World:
    other = importable("K = 2")
    m = module("def fn(x):\n    from a_world import K\n    return x * K")
    return World(m.fn, [ON, put(other, K=3), ON])


@world(NAMES)
def import_inside() -> World:
    other = importable("K = 2")
    m = module("def fn(x):\n    import a_world\n    return x * a_world.K")
    return World(m.fn, [ON, put(other, K=3), ON])


@world(NAMES)
def import_inside_finds_another_module() -> World:
    importable("K = 2")
    m = module("def fn(x):\n    import a_world\n    return x * a_world.K")
    return World(m.fn, [ON, lambda: importable("K = 3"), ON])


@world(NAMES)
def import_by_importlib() -> World:
    other = importable("K = 2")
    return World(lambda x: x * importlib.import_module("a_world").K, [ON, put(other, K=3), ON])


@world(NAMES)
def function_imported_inside() -> World:
    importable("def by(x): return x * 2")
    m = module("def fn(x):\n    from a_world import by\n    return by(x)")
    return World(m.fn, [ON, lambda: setattr(sys.modules["a_world"], "by", lambda x: x * 3), ON])


@world(NAMES)
def module_with_getattr() -> World:
    other = module("STATE = [2]\ndef __getattr__(name): return STATE[0]")
    return World(lambda x: x * other.anything, [ON, lambda: item(other.STATE, 0, 3)(), ON])


@world(NAMES)
def attribute_of_a_module_of_the_users() -> World:
    other = module("K = 2")
    return World(lambda x: x * other.K, [ON, put(other, K=3), ON])


@world(NAMES)
def global_of_a_function_of_another_module() -> World:
    other = module("K = 2\ndef by(x): return x * K")
    m = module("def fn(x): return BY(x)", BY=other.by)
    return World(m.fn, [ON, put(other, K=3), ON])


@world(NAMES)
def global_deleted_shows_the_builtin() -> World:
    m = module("def max(a, b): return 7\ndef fn(x): return x * max(2, 3)")
    return World(m.fn, [ON, lambda: delattr(m, "max"), ON])


@world(NAMES)
def global_hides_a_builtin() -> World:
    m = module("def fn(x): return x * max(2, 3)")
    return World(m.fn, [ON, put(m, max=min), ON])


@world(NAMES)
def builtin_added() -> World:
    m = module("def fn(x): return x * A_WORLD_K")
    builtins.A_WORLD_K = 2  # type: ignore[attr-defined]
    return World(
        m.fn, [ON, put(builtins, A_WORLD_K=3), ON], undo=lambda: delattr(builtins, "A_WORLD_K")
    )


@world(NAMES)
def global_name_error_is_caught() -> World:
    m = module(
        "def fn(x):\n    try:\n        return x * LATER\n    except NameError:\n        return x"
    )
    return World(m.fn, [ON, put(m, LATER=3), ON])


@world(NAMES)
def function_of_torch_patched() -> World:
    before = torch.relu
    return World(
        lambda x: torch.relu(x),
        [ON, put(torch, relu=torch.tanh), ON],
        undo=lambda: setattr(torch, "relu", before),
    )


@world(NAMES)
def method_of_tensor_patched() -> World:
    torch.Tensor.of_a_world = lambda x: x * 2  # type: ignore[attr-defined]
    return World(
        lambda x: x.of_a_world(),
        [ON, lambda: setattr(torch.Tensor, "of_a_world", lambda x: x * 3), ON],
        undo=lambda: delattr(torch.Tensor, "of_a_world"),
    )


@world(NAMES)
def constant_of_the_standard_library_patched() -> World:
    pi = math.pi
    return World(
        lambda x: x * math.pi, [ON, put(math, pi=3.0), ON], undo=lambda: setattr(math, "pi", pi)
    )


@world(NAMES)
def function_of_the_standard_library_patched() -> World:
    sqrt = math.sqrt
    return World(
        lambda x: x * math.sqrt(4.0),
        [ON, put(math, sqrt=lambda v: v), ON],
        undo=lambda: setattr(math, "sqrt", sqrt),
    )


@world(NAMES)
def environment() -> World:
    os.environ["A_WORLD"] = "2"
    return World(
        lambda x: x * int(os.environ["A_WORLD"]), [ON, item(os.environ, "A_WORLD", "3"), ON]
    )


@world(NAMES)
def environment_by_getenv() -> World:
    return World(
        lambda x: x * int(os.getenv("A_WORLD", "2")), [ON, item(os.environ, "A_WORLD", "3"), ON]
    )


@world(NAMES)
def environment_by_membership() -> World:
    return World(
        lambda x: x * 2 if "A_WORLD" in os.environ else x,
        [ON, item(os.environ, "A_WORLD", "3"), ON],
    )


@world(NAMES)
def context_variable() -> World:
    var = contextvars.ContextVar("var", default=2)
    return World(lambda x: x * var.get(), [ON, lambda: var.set(3), ON])


@world(NAMES)
def context_variable_reset() -> World:
    var = contextvars.ContextVar("var", default=2)
    token = var.set(3)
    return World(lambda x: x * var.get(), [ON, lambda: var.reset(token), ON])


@world(NAMES)
def function_called_in_another_context() -> World:
    var = contextvars.ContextVar("var", default=2)
    other = contextvars.copy_context()
    other.run(var.set, 3)
    by = lambda x: x * var.get()  # noqa: E731
    switch = [by]
    return World(lambda x: switch[0](x), [ON, item(switch, 0, lambda x: other.run(by, x)), ON])


@world(NAMES)
def thread_local() -> World:
    local = threading.local()
    local.k = 2
    return World(lambda x: x * local.k, [ON, put(local, k=3), ON])


@world(NAMES)
def name_of_the_thread() -> World:
    before = threading.current_thread().name
    return World(
        lambda x: x * len(threading.current_thread().name),
        [ON, lambda: setattr(threading.current_thread(), "name", "another"), ON],
        undo=lambda: setattr(threading.current_thread(), "name", before),
    )


@world(NAMES)
def arguments_of_the_process() -> World:
    before = list(sys.argv)

    def undo() -> None:
        sys.argv[:] = before

    return World(lambda x: x * len(sys.argv), [ON, lambda: sys.argv.append("more"), ON], undo=undo)


@world(NAMES)
def recursion_limit() -> World:
    return World(
        lambda x: x * sys.getrecursionlimit(), [ON, lambda: sys.setrecursionlimit(4321), ON]
    )


@world(NAMES)
def working_directory() -> World:
    return World(lambda x: x * len(os.getcwd()), [ON, lambda: os.chdir("/"), ON])


@world(NAMES)
def decimal_context() -> World:
    def fn(x: Any) -> Any:
        return x * float(decimal.Decimal(1) / 3)

    return World(fn, [ON, lambda: setattr(decimal.getcontext(), "prec", 3), ON])


@world(NAMES)
def level_of_a_logger() -> World:
    logger = logging.getLogger("a_world")
    logger.setLevel(logging.ERROR)
    return World(
        lambda x: x * 2 if logger.isEnabledFor(logging.DEBUG) else x * 3,
        [ON, lambda: logger.setLevel(logging.DEBUG), ON],
        undo=lambda: logger.setLevel(logging.NOTSET),
    )


@world(NAMES)
def warnings_filter() -> World:
    def fn(x: Any) -> Any:
        try:
            warnings.warn("a world", stacklevel=1)
        except UserWarning:
            return x * 2
        return x * 3

    return World(
        fn,
        [ON, lambda: warnings.simplefilter("error"), ON, lambda: warnings.simplefilter("ignore")],
    )


@world(NAMES)
def garbage_collector_switch() -> World:
    return World(
        lambda x: x * 2 if gc.isenabled() else x * 3,
        [ON, gc.disable, ON, gc.enable],
        undo=gc.enable,
    )


@world(NAMES)
def local_of_the_caller() -> World:
    m = module(
        "import sys\ndef inner(): return sys._getframe(1).f_locals['k']\n"
        "def fn(x):\n    k = STATE['k']\n    return x * inner()",
        STATE={"k": 2},
    )
    return World(m.fn, [ON, lambda: item(m.STATE, "k", 3)(), ON])


@world(NAMES)
def name_of_the_caller() -> World:
    m = module(
        "import sys\ndef fn(x): return x * (2 if sys._getframe(1).f_code.co_name == '_look_call' "
        "else 3)"
    )
    return World(m.fn, [ON, ON])


@world(NAMES)
def file_changes() -> World:
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "k")

    def write(k: int) -> None:
        with open(path, "w") as file:
            file.write(str(k))

    def fn(x: Any) -> Any:
        with open(path) as file:
            return x * int(file.read())

    write(2)
    return World(fn, [ON, lambda: write(3), ON], undo=folder.cleanup)


@world(NAMES)
def file_appears() -> World:
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "k")
    return World(
        lambda x: x * 2 if os.path.exists(path) else x * 3,
        [ON, lambda: os.mkdir(path), ON],
        undo=folder.cleanup,
    )


@world(NAMES)
def global_of_an_installed_package() -> World:
    package = installed("K = 2\ndef by(x): return x * K")
    return World(lambda x: package.by(x), [ON, put(package, K=3), ON])


@world(NAMES)
def function_in_a_global_of_an_installed_package() -> World:
    package = installed("ACT = torch.relu\ndef by(x): return ACT(x)")
    return World(lambda x: package.by(x), [ON, put(package, ACT=torch.tanh), ON])


@world(NAMES)
def table_of_an_installed_package() -> World:
    package = installed("TABLE = {'k': 2}\ndef by(x): return x * TABLE['k']")
    return World(lambda x: package.by(x), [ON, lambda: item(package.TABLE, "k", 3)(), ON])


@world(NAMES)
def constant_of_an_installed_package() -> World:
    package = installed("K = 2")
    return World(lambda x: x * package.K, [ON, put(package, K=3), ON])


@world(NAMES)
def instance_of_a_class_of_an_installed_package() -> World:
    package = installed(
        "class C:\n    def __init__(self): self.k = 2\n    def by(self, x): return x * self.k"
    )
    c = package.C()
    return World(lambda x: c.by(x), [ON, put(c, k=3), ON])


@world(NAMES)
def class_of_an_installed_package() -> World:
    package = installed("class C:\n    k = 2\n    def by(self, x): return x * self.k")
    c = package.C()
    return World(lambda x: c.by(x), [ON, put(package.C, k=3), ON])


@world(NAMES)
def closure_of_an_installed_package() -> World:
    package = installed(
        "def make():\n    k = [2]\n    def by(x): return x * k[0]\n    return by, k\nby, k = make()"
    )
    return World(lambda x: package.by(x), [ON, lambda: item(package.k, 0, 3)(), ON])


@world(NAMES)
def function_attribute_of_an_installed_package() -> World:
    package = installed("def by(x): return x * by.k\nby.k = 2")
    return World(lambda x: package.by(x), [ON, lambda: setattr(package.by, "k", 3), ON])


@world(NAMES)
def function_of_an_installed_package_patched() -> World:
    package = installed("def inner(x): return x * 2\ndef by(x): return inner(x)")
    return World(lambda x: package.by(x), [ON, put(package, inner=lambda x: x * 3), ON])


@world(NAMES)
def module_of_an_installed_package() -> World:
    package = installed(
        "SWITCH = {'on': True}\nclass M(nn.Module):\n    def forward(self, x): return self.by(x)\n"
        "    def by(self, x): return x * 2 if SWITCH['on'] else x * 3"
    )
    m = package.M()
    return World(m, [ON, lambda: item(package.SWITCH, "on", False)(), ON])


@world(NAMES)
def list_attribute_of_a_module_of_an_installed_package() -> World:
    package = installed(
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.ks "
        "= [2]\n"
        "    def forward(self, x): return x * self.ks[0]"
    )
    m = package.M()
    return World(m, [ON, lambda: item(m.ks, 0, 3)(), ON])


@world(NAMES)
def underscored_attribute_of_a_module_of_an_installed_package() -> World:
    package = installed(
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self._k "
        "= 2\n"
        "    def forward(self, x): return x * self._k"
    )
    m = package.M()
    return World(m, [ON, put(m, _k=3), ON])


@world(NAMES)
def registry_of_an_installed_package() -> World:
    package = installed(
        "REGISTRY = {}\ndef register(name, fn): REGISTRY[name] = fn\ndef call(name, x): return "
        "REGISTRY[name](x)"
    )
    package.register("act", torch.relu)
    return World(
        lambda x: package.call("act", x), [ON, lambda: package.register("act", torch.tanh), ON]
    )


@world(NAMES)
def grad_mode_read() -> World:
    return World(
        lambda x: x * 2 if torch.is_grad_enabled() else x * 3,
        [ON, lambda: torch.set_grad_enabled(False), ON],
    )


@world(NAMES)
def user_function_mode_around_a_call() -> World:
    from torch.overrides import TorchFunctionMode

    class Twice(TorchFunctionMode):
        k = 2

        def __torch_function__(
            self, fn: Any, kinds: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = fn(*args, **(kwargs or {}))
            return result * self.k if fn is torch.relu else result

    mode = Twice()
    inside = [False]

    def enter() -> None:
        mode.__enter__()
        inside[0] = True

    def leave() -> None:
        if inside[0]:
            mode.__exit__(None, None, None)
            inside[0] = False

    return World(
        lambda x: torch.relu(x), [ON, enter, ON, put(mode, k=5), ON, leave, ON], undo=leave
    )
