"""The state of one trace: what the recorder of ops and those who work with it share."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from meta_fns import TensorSpec
from meta_fns.torch_internals import OpOverload
from symshape.calls.questions import Question
from symshape.graph.reshape_copies import ReshapeCopy
from symshape.graph.steps import Step, Value
from symshape.tracing.data.constant_folding import Contents
from symshape.tracing.data.unbacked import Counts
from symshape.tracing.op_arguments import Lifting, OpArguments, SavedResults
from symshape.tracing.symbolic.env import ShapeEnv
from symshape.tracing.symbolic.tensors import KnownLayouts, SymbolicTensor, Telling, UntrackedViews


# -- The lifetime of each traced tensor: the last value that was made before the tensor died.
#
# Python keeps a tensor as long as a variable names it, which is longer than it is read. The
# trace records when each symbolic tensor dies; the memory that the eager program needs follows
# from that.
class _Watch(weakref.ref[Any]):
    """A weak reference that knows its tensor's value, and which value was made last."""

    __slots__ = ("last_made", "value")

    value: Value
    last_made: list[int]


def _died(watch: weakref.ref[Any]) -> None:
    assert type(watch) is _Watch
    watch.value.held_until = watch.last_made[0]


class Holding:
    """A recorder of the lifetimes of one trace's tensors."""

    def __init__(self) -> None:
        self._last_made = [0]
        self._watches: list[_Watch] = []

    def watch(self, value: Value, tensor: Any) -> None:
        """Watch a tensor: when it dies, store in ``value`` which value was made last."""
        watch = _Watch(tensor, _died)
        watch.value, watch.last_made = value, self._last_made
        self.made(value)
        self._watches.append(watch)

    def made(self, value: Value) -> None:
        """Record that a value was made: tensors that die from now on died after it."""
        if value.index > self._last_made[0]:
            self._last_made[0] = value.index


_is_inference_mode = torch.is_inference_mode_enabled


class TraceState(ABC):
    """The state of one trace: its environment, its steps so far, and the real tensors that it read.

    Args:
        env: symbols, facts and guards.
        names: the names of real tensors, by ``id``.
        generators: the addresses of the random generators that existed before the trace; None for
            any.

    Attributes:
        env: symbols, facts and guards.
        steps: nodes and assertions in order.
        lifting: real tensors and constants.
        contents: the contents of tensors that the program made from sizes.
        copies: reshapes that could have been views.
        arguments: the values of tensor arguments.
        originals: while the trace lasts, the argument tensors, with their positions among the
            leaves.
        inference: the storages of those that are inference tensors.
        questions: the questions about arguments that the keys do not answer, with the answers.
        laid_out: the values whose strides are known exactly, those of dimensions of size 0 and 1
            too: arguments, and views of them that only pick and order dimensions.
        looked_at: the values whose memory layout the program read.
        lazy: for values that torch conjugates or negates lazily: whether it conjugates, whether it
            negates.
        untracked_views: the memory of which autograd does not know all views.
        saved: results that autograd saved, whose histories a graph would lose.
        told: the values that require gradients because the program set ``requires_grad``.
        own: the autograd calls of the program itself.
        op_arguments: converts the arguments of ops.
        counts: the numbers of nonzero elements of masks.
        writes: the values that the last op writes to, and the fake implementation that it is in.
        closed: whether the trace is over.
    """

    own: Telling

    def __init__(
        self, env: ShapeEnv, names: Mapping[int, str], generators: Collection[int] | None
    ) -> None:
        self.env = env
        self.steps: list[Step] = []
        self.lifting = Lifting(self.new_value, names)
        self.contents = Contents(env, self.steps, self.lifting.constants)
        self.copies: list[ReshapeCopy] = []
        self.arguments, self.inference = set[Value](), set[object]()
        self.originals: dict[Value, tuple[int, torch.Tensor]] = {}
        self.questions: dict[Question, Hashable] = {}
        self.laid_out, self.looked_at = KnownLayouts(), set[Value]()
        self.lazy: dict[Value, tuple[bool, bool]] = {}
        self.told: set[Value] = set()
        self.untracked_views, self.saved = UntrackedViews(env), SavedResults(self.told)
        self.op_arguments = OpArguments(self, self.lifting, self.saved, generators)
        self.counts = Counts()
        self.writes: tuple[Value, ...] = ()
        self.closed = False
        self._count = 0
        self._holding = Holding()
        self._grad, self._inference = torch.is_grad_enabled(), _is_inference_mode()

    # -- values
    def new_value(self, spec: TensorSpec, storage: object | None = None) -> Value:
        """Return a fresh graph value; without ``storage`` it shares memory with no other value."""
        value = Value(self._count, spec, object() if storage is None else storage)
        self._count += 1
        return value

    def stand_in(self, value: Value, tensor: SymbolicTensor | None = None) -> SymbolicTensor:
        """Return a symbolic tensor for a value; with ``tensor``, make the value live as long as
        that tensor.
        """
        if tensor is None:
            tensor = SymbolicTensor.make(value.spec, value, self)
        self._holding.watch(value, tensor)
        return tensor

    # -- what later calls must answer in the same way
    def ask(self, tensor: SymbolicTensor, what: str, about: Any = None) -> Hashable:
        """Return the answer to a question about the argument behind ``tensor``; later calls must
        answer the same.
        """
        position, original = self.originals[tensor._value]
        return self.note(Question(position, what, about), original)

    def note(self, question: Question, leaf: Any) -> Hashable:
        """Return the answer to a question about an argument; later calls must answer the same."""
        return self.questions.setdefault(question, question.answer(leaf))

    def modes_now(self) -> tuple[bool | None, bool | None]:
        """Return whether gradients are recorded, and inference mode; None where unchanged since the
        trace began.
        """
        grad, inference = torch.is_grad_enabled(), _is_inference_mode()
        return (
            None if grad is self._grad else grad,
            None if inference is self._inference else inference,
        )

    # -- recording
    @abstractmethod
    def dispatch(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Record a call of an op and return its outputs."""

    @abstractmethod
    def read_integer(self, op: OpOverload, tensor: SymbolicTensor, *args: int) -> Any:
        """Return an integer that only the data of the real tensor determine."""

    @abstractmethod
    def inferring(self) -> AbstractContextManager[None]:
        """Infer the ops that run inside, without recording them."""
