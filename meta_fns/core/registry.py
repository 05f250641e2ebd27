"""The registry of rules by ATen overload, and the aliasing that schemas declare.

A rule is a function with the op's own parameters (names and defaults of the schema).  A ``Tensor``
is a ``TensorSpec``, ``Tensor[]`` a list of them, and an absent optional tensor None; ints in SymInt
slots may be symbolic. A Tensor slot of pointwise ops may hold a Python number, as it does at
``__torch_dispatch__`` level.  A rule returns a TensorSpec or a tuple/list of them, nested like the
schema's returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import attrs
import torch

from meta_fns.core.cost_rule import CostRule
from meta_fns.core.sizes import Size
from meta_fns.errors import DataDependentOutput, UnsupportedOp
from meta_fns.torch_internals import OpOverload

__all__ = [
    "NO_CONTEXT",
    "Aliasing",
    "Context",
    "Rule",
    "aliasing",
    "charge",
    "composite",
    "composite_of",
    "composites",
    "has_rule",
    "lookup",
    "register",
    "resolve",
    "rule",
    "rules",
]

_F = TypeVar("_F", bound=Callable[..., Any])


class Context(Protocol):
    """The source of unknown (unbacked) values for data-dependent rules.

    ``lower`` and ``upper`` are inclusive; None is unbounded.
    """

    def new_size(self, lower: Size, upper: Size | None) -> Size:
        """Return an unknown size (never negative)."""

    def count_of(self, counted: Any, lower: Size, upper: Size) -> Size:
        """Return the number of non-zero elements of a tensor (its spec), an unbacked size.

        The size is the same until the tensor is written to.
        """

    def new_int(self, lower: Size | None, upper: Size | None) -> Size:
        """Return an unknown integer."""

    def new_float(self) -> Any:
        """Return an unknown float."""

    def new_bool(self) -> Any:
        """Return an unknown bool."""


class _NoContext:
    """The context of plain inference, which refuses to make unknown values."""

    def _refuse(self, *_: object) -> Any:
        raise DataDependentOutput(
            "the result depends on the data of its arguments; pass ctx= to name what is unknown"
        )

    new_size = count_of = new_int = new_float = new_bool = _refuse


NO_CONTEXT: Context = _NoContext()


@attrs.frozen(eq=False)
class Rule:
    """The rule of one overload: ``fn(*args, **kwargs)``, or ``fn(ctx, *args, **kwargs)`` if
    ``data_dependent``.

    ``name`` is shown to users beside the op for a guard from the rule: its subject in words, by
    default the name of the function (``aten::mv: mv``, ``aten::add.Tensor: broadcast and
    promote``).  ``cost`` computes the cost of a call, if known; derived variants inherit it.

    ``padding`` is the op's padding rule (``meta_fns.padding``), or None: the op is not padded.
    ``functional`` is the overload that the rule was written for, if this one is derived from it (in
    place, ``out=``, copying).
    """

    overload: str
    fn: Callable[..., Any]
    data_dependent: bool = False
    padding: Callable[..., Any] | None = attrs.field(kw_only=True, default=None)
    functional: str = attrs.field(
        kw_only=True, default=attrs.Factory(lambda self: self.overload, takes_self=True)
    )
    name: str = attrs.field(
        kw_only=True, default=attrs.Factory(lambda self: _in_words(self.fn), takes_self=True)
    )
    cost: CostRule | None = attrs.field(kw_only=True, default=None)


def _in_words(fn: Callable[..., Any]) -> str:
    return fn.__name__.strip("_").replace("_", " ")


_rules: dict[str, Rule] = {}
_by_op: dict[OpOverload, Rule | None] = {}
_derivers: list[Callable[[OpOverload], Rule | None]] = []


def register(
    overload: str,
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    data_dependent: bool = False,
    padding: Callable[..., Any] | None = None,
) -> Rule:
    """Register ``fn`` as the rule of one overload (``"aten.mm.default"``), under a name for users
    (see ``Rule``).

    Raises: ValueError if the overload has a rule already, or if no name is given for an ``fn`` made
    inside a function, whose own name means nothing to users.
    """
    if overload in _rules:
        raise ValueError(
            f"two rules for {overload}: {_rules[overload].fn.__qualname__} and {fn.__qualname__}"
        )
    if name is None and "<" in fn.__qualname__:
        raise ValueError(f"the rule of {overload}, {fn.__qualname__}, needs a name")
    named: dict[str, Any] = {"name": name} if name else {}
    made = Rule(overload, fn, data_dependent, padding=padding, **named)
    _rules[overload] = made
    _by_op.clear()
    return made


def rule(
    *overloads: str,
    name: str | None = None,
    data_dependent: bool = False,
    padding: Callable[..., Any] | None = None,
) -> Callable[[_F], _F]:
    """Register the decorated function as the rule of one or several overloads that share a
    signature.
    """

    def wrap(fn: _F) -> _F:
        for overload in overloads:
            register(overload, fn, name=name, data_dependent=data_dependent, padding=padding)
        return fn

    return wrap


def charge(overload: str, cost: CostRule) -> None:
    """Add a cost rule to the rule of an overload.

    Raises: KeyError if the overload has no rule; ValueError if its rule has a cost already.
    """
    row = _rules[overload]
    if row.cost is not None:
        raise ValueError(f"two cost rules for {overload}: {row.cost.family} and {cost.family}")
    _rules[overload] = attrs.evolve(row, cost=cost)
    _by_op.clear()


def own_rule(overload: str) -> Rule | None:
    """Return the rule registered for an overload, by its name; None if it has no rule of its
    own.
    """
    return _rules.get(overload)


def replace(made: Rule) -> Rule:
    """Replace the rule of an overload."""
    _rules[made.overload] = made
    _by_op.clear()
    return made


def deriver(fn: Callable[[OpOverload], Rule | None]) -> Callable[[OpOverload], Rule | None]:
    """Register a maker of rules for overloads without their own rule (variants of a functional
    one).
    """
    _derivers.append(fn)
    return fn


def lookup(op: OpOverload) -> Rule | None:
    """Return the rule of an overload, or None.  One dict look-up after the first call."""
    try:
        return _by_op[op]
    except KeyError:
        found = _rules.get(str(op))
        if found is None:
            for make in _derivers:
                found = make(op)
                if found is not None:
                    break
        _by_op[op] = found
        return found


def resolve(overload: OpOverload | str) -> OpOverload:
    """Return the OpOverload of a name such as ``"aten.mm.default"`` (an OpOverload passes through).

    Raises: UnsupportedOp if this torch has no such overload.
    """
    if isinstance(overload, OpOverload):
        return overload
    parts = overload.replace("::", ".").split(".")
    try:
        space, name, *rest = parts
        found = getattr(getattr(getattr(torch.ops, space), name), rest[0] if rest else "default")
    except (AttributeError, ValueError, RuntimeError) as error:
        raise UnsupportedOp(f"this torch has no operator {overload!r}") from error
    assert isinstance(found, OpOverload)
    return found


def has_rule(overload: OpOverload | str) -> bool:
    """Return whether the overload has a rule (its own, or derived from its functional variant)."""
    return lookup(resolve(overload)) is not None


def rules() -> tuple[Rule, ...]:
    """Return every registered rule, by overload name (derived rules are not listed)."""
    return tuple(_rules[name] for name in sorted(_rules))


@attrs.frozen
class Aliasing:
    """The aliasing that the schema declares: positions count the schema's arguments and returns.

    ``view_of[i]``: the argument that output i is a view of (or None).  ``same_as[i]``: the argument
    that output i is (in-place, out=).  ``mutated``: the arguments that are written to.  ``names``:
    the argument names by position.
    """

    view_of: tuple[int | None, ...]
    same_as: tuple[int | None, ...]
    mutated: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def is_functional(self) -> bool:
        """Return whether no output shares storage with an argument, and no argument is written
        to.
        """
        return not self.mutated and not any(i is not None for i in (*self.view_of, *self.same_as))


_aliasing: dict[OpOverload, Aliasing] = {}


def aliasing(overload: OpOverload | str) -> Aliasing:
    """Return which outputs are views of, or the same as, which arguments, and which arguments are
    mutated.

    Source: the op's schema (cached by overload).
    """
    op = resolve(overload)
    found = _aliasing.get(op)
    if found is None:
        found = _aliasing[op] = _read_aliasing(op._schema)
    return found


_HIDDEN_VIEWS = frozenset(
    (
        *(
            "aten::_unsafe_view",
            "aten::unsafe_split",
            "aten::unsafe_split_with_sizes",
            "aten::unsafe_chunk",
        ),
        *("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"),
    )
)
"""The ops whose results share the memory of their first argument although their schemas do not say
so.
"""


def _read_aliasing(schema: torch.FunctionSchema) -> Aliasing:
    owners: dict[str, int] = {}
    parted: list[int] = []
    mutated = []
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is None:
            continue
        for name in info.before_set:
            owners[name] = position
        if "*" in info.after_set:
            parted.append(position)
        if info.is_write:
            mutated.append(position)
    views: list[int | None] = []
    sames: list[int | None] = []
    for result in schema.returns:
        info = result.alias_info
        owner = None if info is None else _owner(info.before_set, owners)
        if owner is None and info is not None and not info.before_set and parted:
            # `Tensor(a -> *) self … -> Tensor(a)[]`: torch's alias_info lacks the result's name
            owner = parted[0]
        written = info is not None and info.is_write
        views.append(None if written else owner)
        sames.append(owner if written else None)
    names = tuple(argument.name for argument in schema.arguments)
    if schema.name in _HIDDEN_VIEWS and not mutated:
        views = [0] * len(views)
    return Aliasing(tuple(views), tuple(sames), tuple(mutated), names)


def _owner(names: Iterable[str], owners: dict[str, int]) -> int | None:
    for name in names:
        if name in owners:
            return owners[name]
    return None


# -- composite overloads ---------------------------------------------------------------------------
#
# torch decomposes them into others before any rule is used, so the tracer never meets them; users
# name them (``aten.matmul``, ``aten.conv2d``).  They are not among the rules: ``meta_fns.infer``
# looks here after it has looked there.


_composites: dict[str, Callable[..., Any]] = {}


def composite(*overloads: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of specs for these overloads: it infers the operators into which they are
    decomposed.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            if overload in _composites:
                raise ValueError(f"{overload} has two definitions")
            _composites[overload] = fn
        return fn

    return register


def composite_of(op: OpOverload) -> Callable[..., Any] | None:
    """Return the function that infers a composite overload; None for other overloads."""
    return _composites.get(str(op))


def composites() -> tuple[str, ...]:
    """Return the composite overloads that can be inferred by name."""
    return tuple(sorted(_composites))
