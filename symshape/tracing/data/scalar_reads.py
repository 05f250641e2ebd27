"""Numbers that a program reads from tensors of one element: their values in the example call, and
their guards.

Such numbers are a float argument that varies, a counter of an optimiser's steps, a rate in a
tensor. The program computes with their values when it runs. Where it branches on one, the trace
takes the branch of the example call. The comparison becomes a question that each later call is
asked (:class:`symshape.calls.questions.Question`): its few ops on single numbers are repeated
before the call. Numbers that need more ops (a loss) are known only when the graph runs.

Floats that are made of integer arguments (a counter of epochs over their number) are compared in
the same way, unless they are exact ratios, which a guard can express. Integers and bools in tensors
(a counter of updates, a flag that a buffer was filled) are numbers too: a condition on them alone
is a question.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from guards.terms import fold
from guards.terms.boolean import ite
from guards.terms.term import Term
from symshape.calls.floats import FloatLeaf
from symshape.calls.questions import DATA, Question
from symshape.errors import Reason, UnsupportedError
from symshape.graph.float_terms import FloatTerm
from symshape.graph.step_cursor import StepCursor
from symshape.graph.steps import Node, Value, map_argument, written_values
from symshape.torch_internals import dispatch
from symshape.tracing.data.number_questions import (
    COMPARE,
    Asked,
    Number,
    Root,
    are_alone,
    is_number,
    is_plain,
    memories,
)
from symshape.tracing.symbolic.nodes.environment import Data
from symshape.tracing.trace_state import TraceState

_MOST = 4096
"""The most comparisons of one trace that later calls are asked."""


class _Unknown(Exception):
    """The number is known only when the graph runs."""


class ScalarData(Data):
    """The numbers of one trace, computed beside it on copies of their tensors.

    Args:
        trace: the trace.
        arguments: float arguments by symbol: their positions among the leaves of the call, and
            these leaves.
        integers: integer arguments by symbol: their positions among the leaves of the call.
    """

    def __init__(
        self,
        trace: TraceState,
        arguments: Mapping[str, tuple[int, torch.Tensor]],
        integers: Mapping[str, int],
    ) -> None:
        self._trace = trace
        self._arguments = arguments
        self._integers = integers
        self._floats: dict[str, float] = {}
        self._whole: dict[str, int] = {}  # read from tensors
        self._roots: dict[Value, Root] = {}
        self._known: dict[int, dict[Value, torch.Tensor]] = {}  # by ids of storages
        self._lost: set[int] = set()  # ids of storages
        self._written: set[int] = set()  # likewise
        self._ran: list[Node] = []
        self._asked: dict[str, tuple[str, Number, Number, bool]] = {}
        self._new = StepCursor(trace.steps)
        self._given = memories(each for _, each in trace.originals.values())

    def is_argument(self, term: FloatTerm | float) -> bool:
        """Return whether a float's only data are float arguments, or it is made of integer
        arguments alone.
        """
        if not isinstance(term, FloatTerm):
            return False
        names = term.unbacked()
        return (
            all(name in self._arguments for name in names) if names else self._is_of_integers(term)
        )

    def _is_of_integers(self, term: FloatTerm) -> bool:
        return all(
            each.name in self._integers or each.name in self._whole for each in term.symbols()
        )

    def decide(
        self, relation: str, left: FloatTerm | float, right: FloatTerm | float
    ) -> bool | None:
        """Return the answer to a comparison in the example call, which later calls are asked; None:
        data decide.

        Raises:
            ArithmeticError, ValueError: the computation of a number raises it, as in the program.
        """
        terms = [each for each in (left, right) if isinstance(each, FloatTerm)]
        if not terms or len(self._asked) >= _MOST:
            return None
        self._catch_up()
        if not all(map(self._is_of_integers, terms)):
            return None
        whole = [
            each.args[0]
            for each in terms
            if each.op == "from_int" and isinstance(each.args[0], Term)
        ]
        if not all(map(self._trace.env.exact_as_float, whole)):
            return None  # Python compares an integer with a float exactly
        key = f"{relation} {left} {right}"  # the text distinguishes 0.0 from -0.0
        if key not in self._asked:
            if any(name not in self._floats for each in terms for name in each.unbacked()):
                return None
            answer = COMPARE[relation](self._value(left), self._value(right))
            self._asked[key] = relation, left, right, answer
        return self._asked[key][-1]

    def holds(self, condition: Term) -> bool | None:
        """Return whether a condition on integers in tensors holds in the example call; None: only a
        run can tell.

        Later calls are asked for the condition.
        """
        if len(self._asked) >= _MOST:
            return None
        self._catch_up()
        if any(each.name not in self._whole for each in condition.symbols):
            return None
        answer = bool(fold.evaluate(condition, self._whole))
        self._asked[str(condition)] = "eq", ite(condition, 1, 0), 1, answer
        return answer

    def fixed(self, term: FloatTerm) -> Mapping[str, float] | None:
        """Return the values of float arguments in a term, fixed by a guard; None if the term has
        other numbers.
        """
        if not self.is_argument(term):
            return None
        found = [(name, *self._arguments[name]) for name in sorted(term.unbacked())]
        with dispatch.modes_disabled(), dispatch.DisableTorchFunction():
            for _, position, leaf in found:
                self._trace.note(Question(position, "number"), leaf)
            return {name: leaf.item() for name, _, leaf in found}

    def questions(self, leaves: Sequence[Any]) -> dict[Question, Hashable]:
        """Return the question about all comparisons that every call is asked, with this call's
        answer; else nothing.
        """
        if not self._asked:
            return {}
        values = self._trace.lifting.tensors.items()
        written = [tensor for value, tensor in values if id(value.storage) in self._written]
        about = Asked.of(
            self._ran,
            self._roots,
            [each[:3] for each in self._asked.values()],
            written,
            self._integers,
        )
        question = Question(about.last, DATA, about)
        answer = question.among(leaves)
        if answer != tuple(found for *_, found in self._asked.values()):
            raise UnsupportedError(
                "the program branches on numbers in tensors, and these numbers changed while "
                "it was traced; pass them as arguments",
                reason=Reason.NUMBERS,
            )
        # numbers that the program made are the same in each call
        if not about.sources and not about.integers:
            return {}
        return {question: answer}

    # -- computing beside the trace
    def _value(self, term: FloatTerm | float) -> float:
        whole = {**self._trace.env.hints, **self._whole}
        return term.evaluate(whole, self._floats) if isinstance(term, FloatTerm) else term

    def _catch_up(self) -> None:
        """Repeat, on copies, the steps since the last time that compute single numbers."""
        with dispatch.modes_disabled(), dispatch.DisableTorchFunction(), torch.no_grad():
            for node in self._new.nodes():
                ran = self._runs(node)
                for value in written_values(node):
                    self._written.add(id(value.storage))
                    if not ran:
                        self._lose(value.storage)

    def _runs(self, node: Node) -> bool:
        if not is_plain(node):
            return False
        try:
            args = map_argument(node.args, self._real)
            kwargs = {name: map_argument(arg, self._real) for name, arg in node.kwargs.items()}
        except _Unknown:
            return False
        result = node.op(*args, **kwargs)
        for binding in node.bindings:
            if binding.kind == "float":
                self._floats[binding.symbol] = result
            else:
                self._whole[binding.symbol] = int(result)
        results = (result,) if node.single else tuple(result or ())
        for output, made in zip(node.outputs, results, strict=False):
            if output is not None:
                self._know(output, made)
        self._ran.append(node)
        return True

    def _real(self, leaf: Any) -> Any:
        """Return the tensor or number for an argument of a node; raise ``_Unknown`` if there is
        none.
        """
        if type(leaf) is FloatTerm:
            known = all(each.name in self._whole for each in leaf.symbols())
            if not known or any(name not in self._floats for name in leaf.unbacked()):
                raise _Unknown
            try:
                return leaf.evaluate(self._whole, self._floats)
            except (ArithmeticError, ValueError):
                raise _Unknown from None
        if type(leaf) is Term and all(each.name in self._whole for each in leaf.symbols):
            return fold.evaluate(leaf, self._whole)
        if type(leaf) is not Value:
            raise _Unknown
        found = self._known.get(id(leaf.storage), {}).get(leaf)
        return self._root(leaf) if found is None else found

    def _root(self, value: Value) -> torch.Tensor:
        where: Any = None
        tensor = self._trace.lifting.tensors.get(value)
        if tensor is not None:
            where = tensor
        elif value in self._trace.originals:
            where, tensor = self._trace.originals[value]
        if tensor is None or not is_number(value) or id(value.storage) in self._lost:
            raise _Unknown
        # a write to another tensor would change this one
        if not are_alone([tensor], self._in_memory):
            raise _Unknown
        self._roots[value] = Root(
            where, tensor.dtype, type(where) is int and type(tensor) is not FloatLeaf
        )
        return self._know(value, tensor.detach().clone())

    def _in_memory(self, memory: int) -> int:
        """Return how many known tensors share a storage: a write to one changes them all."""
        return self._given[memory] + self._trace.lifting.in_memory[memory]

    def _know(self, value: Value, tensor: torch.Tensor) -> torch.Tensor:
        self._known.setdefault(id(value.storage), {})[value] = tensor
        return tensor

    def _lose(self, storage: object) -> None:
        self._lost.add(id(storage))
        self._known.pop(id(storage), None)
