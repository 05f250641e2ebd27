"""``symshape.trace``: one program, its guards, and the reasons why a call does not fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from guards.sets.codegen import Check, compile_check
from guards.sets.guard_set import GuardSet
from symshape.calls.arguments import flatten_call, values_of
from symshape.calls.outputs import finisher, result_of, unflatten
from symshape.calls.policies import Dynamic, policies
from symshape.dims import Policy
from symshape.errors import GuardViolation, InputError
from symshape.frontends.differences import structure_differences, violation_sentences
from symshape.frontends.logs import recorded
from symshape.frontends.what_if import integers_at, on_any_device, wanted_sizes
from symshape.graph.graph import Graph
from symshape.graph.program import Program, Symbol, slot_names
from symshape.graph.text import text
from symshape.options import Options
from symshape.spelling import nearest
from symshape.tracing.capture import capture
from symshape.tracing.intercept.python_warnings import kernels_as_in_eager
from symshape.user_code import name_of

if TYPE_CHECKING:
    import torch.fx

    from symshape.cost.cost import Cost
    from symshape.cost.peak_memory import PeakMemory
    from symshape.runtime.padding.report import PaddingReport


def trace(
    fn: Callable[..., Any],
    *args: Any,
    dynamic: Dynamic = None,
    options: Options | None = None,
    **kwargs: Any,
) -> Traced:
    """Run ``fn`` once on symbolic tensors; return the traced program, with the guards under which
    it is valid.

    Args:
        fn: a function or an ``nn.Module``.
        *args: an example call.  Nothing is computed with the tensors' data.
        dynamic: which sizes become symbols.  ``None``: every size of every tensor (integers stay
            constants); ``True``: integer arguments too; ``False``: none; a mapping from argument
            names, or torch.export's ``dynamic_shapes`` spelling: those it names, each a ``Dim``, a
            policy, a string or ``None`` for static.
        options: see :class:`symshape.Options`.
        **kwargs: the example call's keyword arguments.

    Raises:
        InputError: an argument cannot be traced.
        DimError: ``dynamic`` is malformed or names what does not exist.
        ConstraintViolation: the program fixes a size that was declared dynamic.
        DataDependentError: the program branches on data.
        UnsupportedError: the program does something that cannot be traced.
        ProgramError: the program refuses these sizes, as it would in eager.

    >>> import torch, symshape
    >>> traced = symshape.trace(lambda a, b: torch.cat([a, b]), torch.ones(3), torch.ones(5))
    >>> print(traced.output_specs.sizes[0])
    s0 + s1
    """
    if not callable(fn):
        raise InputError(f"symshape.trace needs a function or a module, not a {type(fn).__name__}")
    if options is not None and not isinstance(options, Options):
        raise InputError(f"options must be a symshape.Options, not {options!r}")
    check_call(fn, args, kwargs)
    call = flatten_call(fn, args, kwargs)
    wanted = policies(fn, call, dynamic, Policy.AUTO)
    return Traced(fn, recorded(capture(fn, call, wanted, options or Options(), serves=False)))


def check_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse keyword arguments that ``fn`` does not take, and name the nearest one that it takes.

    Raises:
        InputError: the argument does not exist.
    """
    import inspect

    try:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = list(signature.parameters)
        hints = (nearest(key, names) for key in kwargs if key not in names)
        hint = next(filter(None, hints), "")
        raise InputError(
            f"{name_of(fn)}() cannot be called like this: {error}{hint}; it takes "
            f"{', '.join(names)}"
        ) from None


class Traced:
    """A traced function: data to look at, and callable on arguments that its guards admit."""

    def __init__(self, fn: Callable[..., Any], program: Program) -> None:
        self._fn = fn
        self._module = fn if isinstance(fn, torch.nn.Module) else None
        self.program = program
        self._check: Check | None = None

    @property
    def guards(self) -> GuardSet:
        """Return the minimal guards, each with its origin."""
        return self.program.guards

    @property
    def symbols(self) -> dict[str, Symbol]:
        """Return the symbols by name: hint, sources, and where an unbacked one was born."""
        return dict(self.program.symbols)

    @property
    def graph(self) -> Graph:
        """Return the traced ops."""
        return self.program.graph

    @property
    def output_specs(self) -> Any:
        """Return the result's structure with a ``TensorSpec`` for each tensor; sizes are ints or
        symbolic.
        """
        return self.program.output_specs

    @property
    def _compiled_check(self) -> Check:
        if self._check is None:
            self._check = compile_check(
                self.program.slot_guards(), slot_names(len(self.program.slots))
            )
        return self._check

    def check(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call with these arguments may run this program.

        Meta tensors stand for tensors on any device.  ``sizes=`` alone asks without tensors: see
        :meth:`explain`.

        >>> import torch, symshape
        >>> traced = symshape.trace(lambda a, b: a + b[1:], torch.ones(3), torch.ones(4))
        >>> traced.check(torch.ones(7), torch.ones(8)), traced.check(sizes={"a": (7,), "b": (8,)})
        (True, True)
        >>> traced.check(sizes={"a": (7,)})  # b as in the traced call
        False
        """
        sizes = wanted_sizes(args, kwargs)
        try:
            found = (
                self._integers(args, kwargs) if sizes is None else integers_at(self.program, sizes)
            )
        except InputError:
            if sizes is not None:
                raise
            return False
        return isinstance(found, tuple) and bool(self._compiled_check.check(found))

    def _integers(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, ...] | list[str]:
        """Return the integers of a call, or how its structure differs from the traced one."""
        call = on_any_device(flatten_call(self._fn, args, kwargs), self.program.call)
        return structure_differences(self.program, call) or values_of(call.leaves, call.keys)

    def explain(self, *args: Any, **kwargs: Any) -> list[str]:
        """Return a sentence for each reason why a call with these arguments may not run this
        program; empty if it may.

        Meta tensors stand for tensors on any device.  ``sizes=`` alone asks without tensors: it
        maps arguments to their sizes (None for an open one), integer arguments and symbols to their
        values.  A size that is not named follows from the named ones, or is as in the traced call.

        Raises:
            InputError: an argument cannot be traced at all, or ``sizes`` names what is not there.

        >>> import torch, symshape
        >>> traced = symshape.trace(lambda ids: ids.view(-1, 4), torch.ones(8))
        >>> (
        ...     traced.explain(sizes={"ids": (12,)}),
        ...     traced.explain(sizes={"ids": (5,)})[0].partition(";")[0],
        ... )
        ([], 'ids.size(0) % 4 == 0, but ids.size(0) = 5')
        """
        sizes = wanted_sizes(args, kwargs)
        found = self._integers(args, kwargs) if sizes is None else integers_at(self.program, sizes)
        if isinstance(found, list):
            return found
        return violation_sentences(self.program, self._compiled_check.guard_set, found)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Check the guards and run the program.

        Raises:
            GuardViolation: the arguments are outside the guards.
            RuntimeAssertionError: an assertion on data failed.
        """
        call = flatten_call(self._fn, args, kwargs)
        problems = structure_differences(self.program, call)
        values = values_of(call.leaves, call.keys)
        if not problems and not self._compiled_check.check(values):
            problems = violation_sentences(self.program, self._compiled_check.guard_set, values)
        if problems:
            raise GuardViolation(
                f"{self.program.name} was traced for other arguments:\n"
                + "\n".join(f"  {each}" for each in problems),
                tuple(problems),
            )
        with kernels_as_in_eager(self._fn):
            flat = self.program.run(call.leaves, values)
        tree = self.program.graph.output_tree
        finish = finisher(tree)
        return result_of(unflatten(flat, tree)) if finish is None else finish(flat, call.leaves)

    def report(self) -> str:
        """Return the trace in words, for terminals and logs: symbols, inputs, outputs, guards,
        costs, padding.

        >>> import torch, symshape
        >>> print(
        ...     symshape.trace(lambda x: x.view(-1, 4) * 2, torch.ones(8)).report().splitlines()[0]
        ... )
        <lambda>: 2 ops, 1 symbols, 1 guards
        """
        from symshape.frontends.reporting import traced_report

        return traced_report(self.program)

    def padding(self) -> PaddingReport:
        """Return for each symbol the repairs that let one program serve a range of its values, or
        the op that refuses.

        >>> import torch, symshape
        >>> print(symshape.trace(lambda x: x.mean(), torch.ones(5)).padding().symbols["s0"].padded)
        True
        """
        from symshape.runtime.padding.report import padding_of
        from symshape.runtime.runners.randomness import draws_any

        return padding_of(self.program, any_randomness=draws_any(self.program, Options()))

    def to_fx(self) -> torch.fx.GraphModule:
        """Return the program as an FX graph of ATen ops, sizes computed from the inputs' sizes."""
        from symshape.graph.to_fx import to_fx

        return to_fx(self.program)

    def print_readable(self, print_output: bool = True) -> str:
        """Return the program as text: one line an op, with shapes and the user's lines; print it by
        default.
        """
        shown = text(self.program.graph)
        if print_output:
            print(shown)  # noqa: T201 - asked for
        return shown

    def cost(self) -> Cost:
        """Return operations, bytes moved and kernels as formulas of the program's sizes.

        >>> import torch, symshape
        >>> traced = symshape.trace(
        ...     lambda a, b: a @ b, torch.ones(3, 4), torch.ones(4, 5), dynamic={"a": {0: "n"}}
        ... )
        >>> cost = traced.cost()
        >>> print(cost.flops, "|", cost.bytes, "|", cost.at(n=1000).flops)
        40*n | 36*n + 80 | 40000
        """
        from symshape.cost.cost import Cost

        return Cost.of(self.program)

    def peak_memory(self, *, schedule: str = "graph", alignment: int | None = None) -> PeakMemory:
        """Return the peak memory when the program runs op by op, in bytes, as a formula of its
        sizes.

        Args:
            schedule: ``graph``: tensors are freed after their last use, as symshape runs the
                program; ``eager``: they live as long as the program's own variables hold them, as
                without symshape.
            alignment: allocations are rounded up to a multiple of this, as an allocator does
                (CUDA's: 512).

        Raises:
            InputError: the alignment is not a positive integer, or there is no such schedule.
        """
        from symshape.cost.peak_memory import PeakMemory

        return PeakMemory.of(self.program, alignment, schedule)

    def __repr__(self) -> str:
        symbols = ", ".join(f"{symbol}" for symbol in self.program.symbols)
        ops, number = len(self.program.graph.nodes), len(self.program.guards)
        return (
            f"<Traced {self.program.name}: {ops} ops, symbols {symbols or 'none'}, {number} guards>"
        )

    def _repr_html_(self) -> str:
        from symshape.exploring.tables import traced_html

        return traced_html(self)
