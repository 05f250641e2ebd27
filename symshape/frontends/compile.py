"""``symshape.compile``: a function that computes the same through traced programs; see
:mod:`compiled`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from symshape.calls.policies import Dynamic
from symshape.errors import InputError
from symshape.frontends.compiled import Compiled
from symshape.frontends.compiled_module import CompiledModule, can_be_module, module_of
from symshape.options import Options, options_of
from symshape.runtime.runners.choice import RunnerName, check_name

__all__ = ["Compiled", "compile"]


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    dynamic: Dynamic = None,
    fullgraph: bool = False,
    runner: RunnerName = "auto",
    store: Any = False,
    options: Options | Mapping[str, Any] | None = None,
) -> Any:
    """Return a function that computes what ``fn`` computes, through traced programs that it stores
    and reuses.

    The first call is traced with static sizes; a call with other sizes is traced with those that
    changed as symbols; from then on no call is traced until the program takes another branch.

    A call that cannot be traced runs ``fn`` eagerly, once, on the call's own arguments; the first
    such call warns (:class:`symshape.FallbackWarning`) with the reason and the line.  Tracing is
    tried again for other sizes, another structure of arguments, or changed state, so rarely that
    the cost is negligible.  Calls with new sizes run eagerly, too, once traces have served few
    calls besides their own (``Options.free_traces``).  Errors of the program (such as a wrong
    keyword) are raised by the program itself, as without ``compile``.

    Args:
        fn: a function or an ``nn.Module``; without it, a decorator.
        dynamic: ``None`` as above; ``True``: symbols from the first call on; ``False``: one program
            for each tuple of sizes; a description by argument as in :func:`symshape.trace`.
        fullgraph: a call that cannot be traced raises the reason instead of running eagerly.
        runner: ``eager`` runs op by op, ``inductor`` compiles each program with Inductor,
            ``cudagraph`` replays a CUDA graph for each exact set of sizes, ``padded`` serves ranges
            of sizes by one program each, where that is proven to be right.  ``auto`` is ``padded``
            or ``cudagraph`` for CUDA programs, once either is worth its price, else ``eager``.
        store: programs are stored between processes: a call of another process, of the same code
            that reads the same values, is served by them and not traced.  ``True`` for this user's
            folder of caches, a path, a URL (``s3://…``, ``redis://…``), or a store.
        options: a :class:`symshape.Options`, or a dictionary of its fields.

    A compiled module shares the attributes of the original module: it is an instance of the same
    class, with the same parameters, ``state_dict``, hooks and methods.  Methods that call
    ``self(...)``, as ``generate`` does, call the compiled module.  It has ``stats()``, ``entries``
    … where the module has no such name of its own; :func:`symshape.compiled_of` always has them.

    Raises:
        InputError: ``fn`` is not callable, there is no such option, or (when called with
            ``fullgraph=True``) an argument cannot be traced.
        DimError, ConstraintViolation: (when called) ``dynamic`` does not fit the call or the
            program.
        UnsupportedError, DataDependentError: (when called with ``fullgraph=True``) the program
            cannot be traced.
        RunnerError: there is no such runner.
        MissError: (with ``on_miss="error"`` among the options) nothing stored serves the call; or
            the store holds a certificate that its entries no longer prove.

    >>> import torch, symshape
    >>> double = symshape.compile(lambda x: x * 2)
    >>> for n in (8, 1, 2, 0):
    ...     assert double(torch.ones(n)).shape == (n,)
    >>> double.stats().traces
    2
    """
    if fn is None:
        return functools.partial(
            compile,
            dynamic=dynamic,
            fullgraph=fullgraph,
            runner=runner,
            store=store,
            options=options,
        )
    if not callable(fn):
        raise _not_to_call(type(fn).__name__)
    if isinstance(fn, (Compiled, CompiledModule)):
        raise InputError(
            "this function is already compiled by symshape.compile; pass the function that it was "
            "made of"
        )
    chosen = options_of(options)
    if store is not False:
        chosen = attrs.evolve(chosen, store=store)
    if chosen.on_miss == "error":
        if chosen.store is False or chosen.store is None:
            raise InputError(
                'on_miss="error" needs a store: without one there is no program that could serve a '
                "call"
            )
        fullgraph = True  # nothing runs eagerly, either
    compiled = Compiled(fn, dynamic, check_name(runner), chosen, fullgraph=fullgraph)
    return module_of(compiled) if can_be_module(fn) else compiled


def _not_to_call(kind: str) -> InputError:
    above = f": put @{kind} above symshape.compile" if kind in ("classmethod", "property") else ""
    return InputError(f"symshape.compile needs a function or a module, not a {kind}{above}")
