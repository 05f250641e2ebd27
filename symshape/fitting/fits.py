"""``symshape.fits``: the memory of a model as a formula of its sizes, and the largest sizes that
fit on a device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from guards.terms import arithmetic, fold
from guards.terms.term import Term
from symshape.cost.graph_memory import DeviceMemory
from symshape.cost.liveness import PARAMETERS, PARTS
from symshape.cost.optimizers import OPTIMIZERS, MakeOptimizer, OptimizerMemory, optimizer_memory
from symshape.cost.peak_memory import PeakMemory
from symshape.cost.solving import allowed_range, limiting
from symshape.cost.step_memory import ReservedAt, StepMemory
from symshape.cost.units import amount, shown
from symshape.dims import Dim
from symshape.errors import GuardViolation, InputError
from symshape.exploring.tables import Table, table_html, table_text
from symshape.forks import cached_property
from symshape.frontends.trace import Traced, trace
from symshape.frontends.training import Loss, TracedTraining, trace_training
from symshape.graph.steps import Node
from symshape.options import Options

__all__ = ["Fits", "budget_of", "fits", "fits_of"]

_ALIGNMENT = 512  # bytes: the allocator's
_MOST = 2**40  # the largest size that is tried
_PAIRS = 12  # pairs of sizes of the frontier
_TRIES = 64  # sizes next to one that the guards refuse, tried one by one
_ALWAYS = ("parameters", "gradients", "optimizer")
"""The parts that are shown however small they are."""
_SHOWN = 1000  # a term of less than this fraction of the peak is left out of the formula in words


class Fits:
    """The memory of a model as a formula of its sizes, and the largest sizes within a budget.

    Two numbers stand for each size. ``peak`` is exact for the tensors of the program: no larger
    size can fit. ``reserved`` is a model of what the device gives: torch's allocator, replayed,
    with the workspaces of cuBLAS, and of cuDNN if the model is on a CUDA device: its ops are run
    there, each alone. ``largest`` is the largest for which the model stays within the budget.

    Attributes:
        name: the model's.
        symbols: the names of the sizes, in the order in which the caller named them.
        budget: the bytes that may be used: the budget that was given, less the context of the
            process if the budget is the whole device.
        train: the name of the optimizer; empty for inference.
        dtypes: the dtypes of the parameters.
        peak: the live bytes at the peak, as formulas; parameters of the module that no op reads
            count.
        example: the sizes of the example, or those that were given for it (``at``).
    """

    def __init__(
        self,
        traced: Traced,
        budget: int,
        *,
        train: str = "",
        optimizer: OptimizerMemory | None = None,
        symbols: Sequence[str] = (),
        at: Mapping[str, int] | None = None,
        schedule: str = "eager",
        device: DeviceMemory | None = None,
    ) -> None:
        self.name = traced.program.name
        self.budget = budget
        self.train = train
        unread = list(_unread(traced))
        self.peak = _beside(traced.peak_memory(schedule=schedule), unread)
        self.peak.check_known()
        aligned = [-(-each // _ALIGNMENT) * _ALIGNMENT for each in unread]
        self._aligned = _beside(
            traced.peak_memory(schedule=schedule, alignment=_ALIGNMENT), aligned
        )
        trains = isinstance(traced, TracedTraining)
        self._model = StepMemory(
            traced.program, schedule, optimizer, trains=trains, device=device, beside=unread
        )
        self.symbols = tuple(symbols) or self.peak.domain.symbols
        hints = {
            each.name: each.hint
            for each in traced.program.symbols.values()
            if each.hint is not None
        }
        for name in at or {}:
            self.peak.domain.require(name)
        self.peak.domain.check_sizes(at or {})
        self._assumed = dict.fromkeys(_reserves(traced.program.graph.nodes), 0)
        self.example = (
            {name: hints.get(name, 1) for name in self.peak.domain.symbols}
            | self._assumed
            | dict(at or {})
        )
        self._of_data = [
            each.name
            for each in traced.program.symbols.values()
            if not each.sources and each.name not in {*self._assumed, *(at or ())}
        ]
        lifted = [each.tensor for each in traced.program.graph.lifted if not each.constant]
        self.dtypes = tuple(
            dict.fromkeys(_short(each.dtype) for each in lifted if each.is_floating_point())
        )
        self._largest: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}

    def reserved(self, **sizes: int) -> ReservedAt:
        """Return the most memory that the allocator reserves and hands out at these sizes, by its
        model.

        Raises:
            InputError: a symbol is missing or unknown, or a value is no size.
            GuardViolation: the trace does not hold for these sizes.
        """
        return self._model.at(**{**self._assumed, **sizes})

    def assume(self, device: DeviceMemory) -> None:
        """Use another device's memory of libraries, instead of the current device's."""
        self._model.assume(device)
        self._largest.clear()

    def bound(self, symbol: str, **others: int) -> int:
        """Return the size of which no larger one can fit: above it, the program's tensors alone
        exceed the budget.

        Raises:
            InputError: nothing fits, everything fits, or the formula cannot be solved for the
                symbol.
            GuardViolation: the trace does not hold for the other sizes.
        """
        return self._aligned.largest(symbol, bytes=self.budget, **{**self._assumed, **others})

    def largest(self, symbol: str, **others: int) -> int:
        """Return the largest size that fits by the model of the allocator, where the others are
        given.

        Raises:
            InputError: not even the smallest fits, every size fits, or a symbol is missing or
                unknown.
            GuardViolation: the trace does not hold for the other sizes.

        >>> import torch, symshape
        >>> model = torch.nn.Linear(8, 1).requires_grad_(False)
        >>> symshape.fits(model, torch.ones(4, 8), memory="1 GB", batch=0).largest("batch")
        26738688
        """
        others = {**self._assumed, **others}
        key = symbol, tuple(sorted(others.items()))
        if key not in self._largest:
            self._largest[key] = self._found(symbol, others)
        return self._largest[key]

    def _found(self, symbol: str, others: Mapping[str, int]) -> int:
        domain = self.peak.domain
        domain.require(symbol)
        needed = frozenset(domain.symbols) - {symbol}
        domain.check_names(others, needed)
        domain.check_sizes(others)
        least, high = allowed_range(domain, symbol, others)
        if not self._fits(symbol, least, others):
            where = ", ".join(f"{name}={value}" for name, value in others.items())
            memory = shown(self.budget, "B")
            raise InputError(
                f"{self.name} does not fit in {memory}: not even {symbol}={least} {where}".rstrip()
            )
        good, bad = least, _MOST if high is None else high + 1
        step = least
        while good + step < bad:
            value = self._near(symbol, others, good, good + step)
            if value is not None and not self._fits(symbol, value, others):
                bad = value
                break
            good, step = (good if value is None else value), step * 2
        if bad == _MOST:
            raise InputError(
                f"every {symbol} fits: the memory does not grow with it, and no guard bounds it"
            )
        while bad - good > 1:
            middle = (good + bad) // 2
            value = self._near(symbol, others, good, middle)
            if value is None:
                nearer = self._allowed(symbol, others, range(middle + 1, min(bad, middle + _TRIES)))
                if nearer is None:
                    break
                value = nearer
            if self._fits(symbol, value, others):
                good = value
            else:
                bad = value
        return good

    def _near(self, symbol: str, others: Mapping[str, int], above: int, value: int) -> int | None:
        """Return the largest size up to ``value``, and larger than ``above``, that the guards
        allow.
        """
        return self._allowed(symbol, others, range(value, max(above, value - _TRIES), -1))

    def _allowed(self, symbol: str, others: Mapping[str, int], values: range) -> int | None:
        guards = self.peak.domain.guards
        return next((each for each in values if guards.holds({**others, symbol: each})), None)

    def _fits(self, symbol: str, value: int, others: Mapping[str, int]) -> bool:
        return self._model.fits(self.budget, {**others, symbol: value})

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The largest sizes: the first for the example's other sizes; empty if not even the
        smallest fits.

        Raises:
            GuardViolation: the trace does not hold for the sizes that were given (``at``).
        """
        if not self.symbols:
            return {}
        others = {name: size for name, size in self.example.items() if name != self.symbols[0]}
        try:
            return {self.symbols[0]: self.largest(self.symbols[0], **others), **others}
        except InputError:
            return {}

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The ops whose kernels allocate an unknown amount for themselves, so that less may fit."""
        return self._model.unknown(self.example)

    @cached_property
    def fits(self) -> bool:
        """True if the example itself fits."""
        return self._model.fits(self.budget, self.example)

    @cached_property
    def pairs(self) -> tuple[dict[str, int], ...]:
        """Sizes that fit, of which none can grow alone: powers of two of the second size, up to
        the greatest that the guards allow, with the largest of the first.
        """
        if len(self.symbols) < 2:
            return (self.sizes,) if self.sizes else ()
        first, second = self.symbols[:2]
        rest = {name: size for name, size in self.example.items() if name not in (first, second)}
        found: list[dict[str, int]] = []
        for other in self._allowed_powers(second, rest):
            if len(found) == _PAIRS:
                break
            try:
                size = self.largest(first, **{second: other}, **rest)
            except GuardViolation:  # a guard speaks of this size and others
                continue
            except InputError:
                if found:
                    break
                continue
            found.append({first: size, second: other, **rest})
        following = [each[first] for each in found[1:]]
        return tuple(
            [each for each, after in zip_longest(found, following) if each[first] != after]
        )

    def _allowed_powers(self, symbol: str, others: Mapping[str, int]) -> Iterator[int]:
        """Yield the example's size and the powers of two above it, up to the greatest size that the
        guards allow.

        A power that the guards refuse is replaced by the next smaller size that they allow.
        """
        broken = self.peak.domain.broken
        try:
            _, high = allowed_range(self.peak.domain, symbol, others)
        except InputError:  # guards speak of the first size, too
            high = None
        last = 0
        for power in _powers(self.example[symbol]):
            most = power if high is None else min(power, high)
            nearest = range(most, max(last, most - _TRIES), -1)
            value = next((each for each in nearest if not broken({**others, symbol: each})), None)
            if value is not None:
                yield (last := value)
            if high is not None and power >= high:
                return

    @cached_property
    def _ends(self) -> list[dict[str, int]]:
        """The sizes that the sentence names: the largest first size, and the largest second one."""
        chosen = [self.sizes] if self.sizes else []
        chosen += [each for each in self.pairs if each not in chosen]
        return chosen[:1] + chosen[1:][-1:]

    @cached_property
    def limits(self) -> tuple[str, ...]:
        """The guards that bound the largest sizes, where memory is left for larger ones."""
        if not self._ends:
            return ()
        found: list[str] = []
        for symbol, point in zip(self.symbols, (self._ends[0], self._ends[-1]), strict=False):
            others = {name: size for name, size in point.items() if name != symbol}
            found += limiting(self.peak.domain, symbol, point[symbol], others)
        return tuple(dict.fromkeys(found))

    # -- shown
    @property
    def formula(self) -> str:
        """The parts of the peak at the largest sizes, as formulas in words.

        Terms of inputs, activations and outputs that are less than a thousandth of the peak are
        left out.
        """
        point = self.sizes or self.example
        moment = self._moment(point)
        least = sum(fold.evaluate(term, point) for term in moment) // _SHOWN
        found = []
        for part, term in zip(PARTS, moment, strict=True):
            text = _amounts(term, point, 0 if part in _ALWAYS else least)
            if text:
                name = (
                    f"{'/'.join(self.dtypes)} {part}"
                    if part == "parameters" and self.dtypes
                    else part
                )
                found.append(f"{name} {text}")
        return " + ".join(found) or "0 B"

    def _moment(self, point: Mapping[str, int]) -> tuple[Term, ...]:
        """Return the parts at the moment that is the peak at these sizes."""
        totals = [fold.evaluate(each.total, point) for each in self.peak.moments]
        moment = self.peak.moments[totals.index(max(totals))]
        return tuple(self.peak.domain.simplified(each) for each in moment.parts)

    @property
    def answer(self) -> str:
        """The largest sizes in words."""
        budget = shown(self.budget, "B")
        if not self.symbols:
            found = f"fits in {budget}" if self.fits else f"does not fit in {budget}"
            return f"{found}{self._assuming}"
        if not self.pairs and not self.sizes:
            return f"does not fit in {budget}{self._assuming}"
        first, *others = self._ends
        named = " × ".join(f"{name} {first[name]}" for name in self.symbols)
        more = "".join(
            f" or {' × '.join(str(each[name]) for name in self.symbols)}" for each in others
        )
        bounded = f" (the guards allow no more: {', '.join(self.limits)})" if self.limits else ""
        return f"fits up to {named}{more} in {budget}{bounded}{self._assuming}"

    @property
    def _assuming(self) -> str:
        """The sizes that depend on data and are not given, in words."""
        if not self._of_data:
            return ""
        sizes = ", ".join(f"{name} = {self.example[name]}" for name in self._of_data)
        return f" (for {sizes}, which depends on data: give the most that may come, at=…)"

    def __str__(self) -> str:
        less = (
            f" (without the workspaces of {', '.join(self.unknown)}, which are not known)"
            if self.unknown
            else ""
        )
        return f"{self.formula}: {self.answer}{less}"

    def __repr__(self) -> str:
        return f"<Fits of {self.name}: {self.answer}>"

    def table(self) -> Table:
        """Return a table: sizes that fit, with the live bytes and the reserved bytes there."""
        rows = []
        for each in self.pairs:
            at = self._model.at(self.budget, **each)
            live = self.peak.at(**each).total
            rows.append(
                (
                    *(str(each[name]) for name in self.symbols),
                    *(shown(n, "B") for n in (live, at.reserved)),
                )
            )
        columns = (*self.symbols, "live tensors", "reserved")
        return Table(
            f"{self.name} in {shown(self.budget, 'B')}",
            columns,
            tuple(rows),
            numbers=frozenset(columns),
        )

    def text(self) -> str:
        """Return the table as text."""
        return table_text(self.table())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<div><p>{escape(str(self))}</p>{table_html(self.table())}</div>"


def fits(
    model: Callable[..., Any],
    example: Any,
    *,
    memory: int | str | None = None,
    train: str | MakeOptimizer | None = None,
    loss: Loss | None = None,
    at: Mapping[str, int] | None = None,
    options: Options | None = None,
    **dims: Any,
) -> Fits:
    """Return the memory of a model as a formula of its sizes, and the largest sizes that fit.

    Args:
        model: a module, or a function.
        example: an example call: a tensor, a tuple of arguments, or a mapping of keyword arguments.
            The model does not run, so it may be small. On a CUDA device ops of cuDNN run alone, to
            see what memory they ask for.
        memory: the budget (a number of bytes, or ``"80 GB"``); without it the memory of the current
            CUDA device, less the context of the process.
        train: ``adamw``, ``adam``, ``sgd``, ``momentum`` (SGD with momentum), or a function that
            makes an optimizer of a list of parameters: a step of training; None for inference.
        loss: computes the loss from the result; without it the result is the loss, or has it as
            ``.loss``.
        at: sizes by name, at which the other sizes are solved for; without it those of the example.
        options: as for :func:`symshape.trace`.
        **dims: the sizes that vary, by the names that they get: the number of a dimension of every
            tensor argument that has the same size there, or a mapping from arguments to dimensions.

    Raises:
        InputError: a dimension or the budget is malformed or missing, or as :func:`symshape.trace`
            says; so do its other errors.

    >>> import torch, symshape
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    ... )
    >>> found = symshape.fits(
    ...     model, torch.ones(4, 64), memory="80 GB", train="adamw", loss=torch.mean, batch=0
    ... )
    >>> found.peak.at(batch=1000).optimizer
    135176
    """
    args, kwargs = _call(example)
    budget = budget_of(memory)
    dynamic, symbols = _dynamic(model, args, kwargs, dims)
    if train is None:
        with torch.no_grad():
            traced = trace(model, *args, dynamic=dynamic, options=options, **kwargs)
        return fits_of(traced, budget, symbols=symbols, at=at)
    maker = OPTIMIZERS.get(train) if isinstance(train, str) else train
    if maker is None:
        raise InputError(
            f"there is no optimizer {train!r}; choose from {', '.join(OPTIMIZERS)}, or pass a "
            "function"
        )
    step = trace_training(
        model, *args, loss=loss, optimizer=maker, dynamic=dynamic, options=options, **kwargs
    )
    return fits_of(
        step, budget, train=train if isinstance(train, str) else "", symbols=symbols, at=at
    )


def fits_of(
    traced: Traced,
    budget: int,
    *,
    train: str = "",
    symbols: Sequence[str] = (),
    at: Mapping[str, int] | None = None,
) -> Fits:
    """Return the answer for a traced program, or a traced step of training."""
    optimizer = None
    if isinstance(traced, TracedTraining) and traced.optimizer is not None:
        optimizer = optimizer_memory(traced.optimizer, 1)
        train = train or optimizer.name.lower()
    return Fits(traced, budget, train=train, optimizer=optimizer, symbols=symbols, at=at)


def _unread(traced: Traced) -> Iterator[int]:
    """Yield the bytes of the module's parameters and buffers that the program does not read."""
    if traced._module is None:
        return
    seen = {each.tensor.untyped_storage()._cdata for each in traced.program.graph.lifted}
    for tensor in (*traced._module.parameters(), *traced._module.buffers()):
        storage = tensor.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            yield storage.nbytes()


def _beside(peak: PeakMemory, unread: Sequence[int]) -> PeakMemory:
    """Return the peak with these bytes of further parameters."""
    more = [each.plus(PARAMETERS, sum(unread)) for each in peak.moments]
    return PeakMemory(peak.domain, more, peak.left_out) if unread else peak


def _reserves(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the symbols of what cuDNN's batch norm keeps for backward: an amount that only cuDNN
    knows, mostly none.
    """
    for node in nodes:
        if str(node.op) == "aten.cudnn_batch_norm.default":
            yield from (each.symbol for each in node.bindings)


def budget_of(memory: int | str | None) -> int:
    """Return a budget in bytes: the given one, or what the current CUDA device has for tensors.

    Raises:
        InputError: it is no amount, or there is none and no CUDA device.
    """
    if memory is not None:
        return amount(memory, "bytes", "memory")
    if not torch.cuda.is_available():
        raise InputError(
            "there is no CUDA device here: say how much memory there is, such as memory='80 GB'"
        )
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return int(total) - DeviceMemory.here().context


def _call(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    wanted = "a tensor, a tuple of arguments or a mapping of keyword arguments"
    raise InputError(f"example must be {wanted}, not {type(example).__name__}")


def _dynamic(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dims: Mapping[str, Any]
) -> tuple[dict[str, dict[int, Dim]], tuple[str, ...]]:
    """Return which sizes vary, as for ``trace``, and their names.

    Raises:
        InputError: a dimension is malformed, or no argument has it.
    """
    if not dims:
        raise InputError("say which sizes vary, such as batch=0, length=1 (numbers of dimensions)")
    if type(dims.get("dynamic", 0)) is not int:
        raise InputError(
            "fits takes no dynamic=…: name the sizes that vary, as batch=0, length=1 (numbers of "
            "dimensions), or batch={'ids': 0, 'mask': 0}"
        )
    target = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        bound = inspect.signature(target).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise InputError(f"the example is no call of the model: {error}") from None
    tensors = {
        name: each for name, each in bound.arguments.items() if isinstance(each, torch.Tensor)
    }
    tensors |= {name: each for name, each in kwargs.items() if isinstance(each, torch.Tensor)}
    dynamic: dict[str, dict[int, Dim]] = {}
    for name, where in dims.items():
        for argument, dim in _places(name, where, tensors):
            found = dynamic.setdefault(argument, {})
            if dim in found:
                raise InputError(
                    f"dimension {dim} of {argument} is named twice: {found[dim].name} and {name}"
                )
            found[dim] = Dim(name)
    return dynamic, tuple(dims)


def _places(
    name: str, where: Any, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, int]]:
    if isinstance(where, Mapping):
        for argument, dim in where.items():
            if argument in tensors and (
                type(dim) is not int or not 0 <= dim < tensors[argument].dim()
            ):
                raise InputError(
                    f"{name}={{{argument!r}: {dim!r}}}: {argument} has {tensors[argument].dim()} "
                    "dimensions"
                )
            yield argument, dim
        return
    if type(where) is not int or where < 0:
        raise InputError(
            f"{name}={where!r} must be the number of a dimension, or a mapping from arguments to "
            "dimensions"
        )
    having = {argument: each for argument, each in tensors.items() if each.dim() > where}
    if not having:
        raise InputError(f"{name}={where}: no tensor argument has a dimension {where}")
    size = next(iter(having.values())).size(where)
    yield from ((argument, where) for argument, each in having.items() if each.size(where) == size)


def _powers(example: int) -> Iterator[int]:
    """Yield the example's size and the powers of two above it."""
    yield example
    power = 1 << example.bit_length()
    while power < _MOST:
        yield power
        power *= 2


def _short(dtype: torch.dtype) -> str:
    """Return ``f32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "f")


def _amounts(term: Term, point: Mapping[str, int], least: int) -> str:
    """Return a formula of bytes with units: ``2 kB·batch + 512 B·batch·length``; empty if all of it
    is left out.

    Args:
        term: the formula.
        point: the sizes at which terms are compared.
        least: the bytes from which on a term is shown.
    """
    constant, items = arithmetic.split(term)
    terms = [(coefficient, monomial) for monomial, coefficient in items]
    kept = [(n, each) for n, each in terms if abs(n * fold.evaluate(each, point)) > least]
    found = [f"{shown(n, 'B')}·{_factors(each)}" for n, each in kept]
    if abs(constant) > least:
        found.append(shown(constant, "B"))
    return " + ".join(found).replace("+ -", "− ")


def _factors(monomial: Term) -> str:
    powers: dict[str, int] = {}
    for atom in arithmetic.factors(monomial):
        text = str(atom)
        powers[text] = powers.get(text, 0) + 1
    digits = str.maketrans("23456789", "²³⁴⁵⁶⁷⁸⁹")
    return "·".join(
        text + (str(n).translate(digits) if n > 1 else "") for text, n in powers.items()
    )
