"""A symbolic shape and guard engine for PyTorch programs whose sizes vary.

>>> import torch, symshape
>>> traced = symshape.trace(lambda x: x.reshape(-1), torch.ones(3, 4))
>>> print(traced.output_specs.sizes[0])
s0*s1

The floors, from the ground up:

- ``dims``, ``options``, ``events`` and ``errors``: the user's settings, and what users are told.
- ``torch_internals``: the private parts of torch that are used; ``native``: the extensions in C++.
- ``calls``: reading of calls, and the one maker of their keys.
- ``graph``: a traced program as data, and its executable forms.
- ``tracing``: makes programs. ``runtime``: stores and runs them in one process; ``store``: between
  processes.
- ``exploring``: reports. ``cost``: the cost of programs, as formulas. ``planning``: the sizes to
  capture.
- ``frontends``: the entry points.

A warm call runs ``Compiled.__call__`` (``frontends/compiled.py``). A function of
``calls/call_key.py`` makes the call's exact key, with ``calls/modes.py``. The memo of the cache
(``runtime/cache.py``) gives the entry, whose runner (``runtime/runners``) runs. New sizes that fit
an entry are found by ``runtime/known_calls.py``, or by the dispatcher (``runtime/dispatcher.py``)
with ``call_key.read`` and the dispatch tree (``EntryCache.find``). On a miss
``frontends/misses.py`` makes an entry: ``calls/arguments.py`` names the arguments,
``calls/policies.py`` says which sizes become symbols, a program source
(``frontends/program_sources.py``) traces by ``tracing/capture.py`` or loads, ``runners/choice.py``
makes the runner, and ``EntryCache.publish`` adds the entry.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING

_collects = gc.isenabled()
# a full collection during these imports visits all objects of torch (0.1 s), and finds no garbage
gc.disable()
try:
    # first: raises where another package is called guards or meta_fns
    from symshape import own_packages  # noqa: F401
    from symshape.dims import Dim, Policy
    from symshape.errors import (
        ConstraintViolation,
        DataDependentError,
        DimError,
        FallbackWarning,
        GuardViolation,
        InputError,
        InternalError,
        MissError,
        ProgramError,
        RankError,
        RunnerError,
        RuntimeAssertionError,
        SymShapeError,
        UnsupportedError,
        UntestedTorchWarning,
        VerificationError,
    )
    from symshape.frontends.compile import Compiled, compile
    from symshape.frontends.compiled_module import compiled_of
    from symshape.frontends.logs import set_logs, set_logs_from_environment
    from symshape.frontends.stats import Stats
    from symshape.frontends.trace import Traced, trace
    from symshape.options import Options
finally:
    if _collects:
        gc.enable()

_LATER = {
    "auditing.audit": ("audit_padding",),
    "auditing.report": ("PaddingAudit",),
    "cost.devices": ("DevicePeaks", "measure_device"),
    "cost.limit": ("Limit",),
    "cost.roofline": ("Roofline",),
    "fitting.fits": ("Fits", "fits"),
    "frontends.backend_report": ("BackendReport", "backend_report"),
    "frontends.baking": ("Baked", "bake"),
    "frontends.custom_rules": ("register_rule",),
    "frontends.exploration.explore": ("explore",),
    "frontends.training": ("TracedTraining", "trace_training"),
    "frontends.what_if": ("Which",),
    "planning.bucket_plan": ("BucketPlan",),
    "planning.planner": ("plan",),
    "planning.traffic": ("Traffic",),
}
"""The names that no call needs, by module: loaded when one is first asked for (PEP 562)."""

if TYPE_CHECKING:
    from symshape.auditing.audit import audit_padding
    from symshape.auditing.report import PaddingAudit
    from symshape.cost.devices import DevicePeaks, measure_device
    from symshape.cost.limit import Limit
    from symshape.cost.roofline import Roofline
    from symshape.fitting.fits import Fits, fits
    from symshape.frontends.backend_report import BackendReport, backend_report
    from symshape.frontends.baking import Baked, bake
    from symshape.frontends.custom_rules import register_rule
    from symshape.frontends.exploration.explore import explore
    from symshape.frontends.training import TracedTraining, trace_training
    from symshape.frontends.what_if import Which
    from symshape.planning.bucket_plan import BucketPlan
    from symshape.planning.planner import plan
    from symshape.planning.traffic import Traffic
else:
    _HOME = {name: module for module, names in _LATER.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return found


__version__ = "0.1.0"

__all__ = [
    "BackendReport",
    "Baked",
    "BucketPlan",
    "Compiled",
    "ConstraintViolation",
    "DataDependentError",
    "DevicePeaks",
    "Dim",
    "DimError",
    "FallbackWarning",
    "Fits",
    "GuardViolation",
    "InputError",
    "InternalError",
    "Limit",
    "MissError",
    "Options",
    "PaddingAudit",
    "Policy",
    "ProgramError",
    "RankError",
    "Roofline",
    "RunnerError",
    "RuntimeAssertionError",
    "Stats",
    "SymShapeError",
    "Traced",
    "TracedTraining",
    "Traffic",
    "UnsupportedError",
    "UntestedTorchWarning",
    "VerificationError",
    "Which",
    "audit_padding",
    "backend_report",
    "bake",
    "compile",
    "compiled_of",
    "explore",
    "fits",
    "measure_device",
    "plan",
    "register_rule",
    "set_logs",
    "trace",
    "trace_training",
]


def __dir__() -> list[str]:
    """Return the public names: what was imported to make them is none of them."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


set_logs_from_environment()
del set_logs_from_environment
