"""A symbolic shape and guard engine for PyTorch programs whose sizes vary.

>>> import torch, symshape
>>> traced = symshape.trace(lambda x: x.reshape(-1), torch.ones(3, 4))
>>> print(traced.output_specs.sizes[0])
s0*s1
"""

from symshape.dims import Dim, Policy
from symshape.errors import (
    ConstraintViolation,
    DataDependentError,
    DimError,
    GuardViolation,
    InputError,
    ProgramError,
    RunnerError,
    RuntimeAssertionError,
    SymShapeError,
    UnsupportedError,
)
from symshape.frontends.compile import Compiled, Stats, compile
from symshape.frontends.trace import Traced, trace
from symshape.options import Options

__version__ = "0.1.0"

__all__ = [
    "Compiled",
    "ConstraintViolation",
    "DataDependentError",
    "Dim",
    "DimError",
    "GuardViolation",
    "InputError",
    "Options",
    "Policy",
    "ProgramError",
    "RunnerError",
    "RuntimeAssertionError",
    "Stats",
    "SymShapeError",
    "Traced",
    "UnsupportedError",
    "compile",
    "trace",
]
