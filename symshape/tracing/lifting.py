"""The real tensors that a program reads, and the constants in its code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import torch

from meta_fns import TensorSpec
from symshape.calls.arguments import computes_as_torch_tensor
from symshape.errors import Reason, UnsupportedError
from symshape.graph.steps import Lifted, Value
from symshape.torch_internals import dispatch
from symshape.tracing.state.instrument.hooks import tell
from symshape.tracing.state.record.class_lookups import special_methods
from symshape.tracing.symbolic.tensors import SymbolicTensor, Trace

_SMALL_CONSTANT = 256  # elements of a constant whose value is stored for .item()


class Lifting:
    """The real tensors of one trace, each with one value in the graph.

    Attributes:
        lifted: the lifted tensors, by ``id`` of the real tensor.
        tensors: the same tensors, by their values.
        constants: the ones among them that are constants in the program's code.
        in_memory: the number of these tensors in each storage, by its address.
    """

    def __init__(
        self, new_value: Callable[[TensorSpec, object], Value], names: Mapping[int, str]
    ) -> None:
        self.lifted: dict[int, Lifted] = {}
        self.tensors: dict[Value, torch.Tensor] = {}
        self.constants: dict[Value, torch.Tensor] = {}
        self.in_memory: Counter[int] = Counter()
        self._new_value = new_value
        self._names = names
        self._storages: dict[int, object] = {}
        self._made: dict[int, list[SymbolicTensor]] = {}

    def lift(self, tensor: torch.Tensor, constant: bool = False) -> Lifted:
        """Return the graph's entry for a real tensor that the program reads."""
        found = self.lifted.get(id(tensor))
        if found is None:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                if not computes_as_torch_tensor(type(tensor)):
                    raise UnsupportedError(
                        f"the program reads a {type(tensor).__name__}, which cannot be traced",
                        reason=Reason.LAYOUT,
                    )
                # subclasses may be changed later to override torch's functions
                tell(special_methods, type(tensor))
            if tensor.is_nested:
                raise UnsupportedError(
                    "the program reads a nested tensor, which cannot be traced",
                    reason=Reason.LAYOUT,
                )
            if tensor.layout is not torch.strided:
                raise UnsupportedError(
                    f"the program reads a tensor of layout {tensor.layout}; only strided is "
                    "supported",
                    reason=Reason.LAYOUT,
                )
            try:
                key = tensor.untyped_storage()._cdata
            except (RuntimeError, NotImplementedError) as error:
                raise UnsupportedError(
                    "the program reads a tensor without storage", reason=Reason.LAYOUT
                ) from error
            storage = self._storages.setdefault(key, object())
            name = self._names.get(id(tensor)) or f"constant{len(self.lifted)}"
            value = self._new_value(TensorSpec.of(tensor), storage)
            found = self.lifted[id(tensor)] = Lifted(name, tensor, value, constant)
            self.tensors[value] = tensor
            self.in_memory[key] += 1
            if constant:
                self.constants[value] = tensor
        return found

    def constant(self, tensor: torch.Tensor, trace: Trace) -> SymbolicTensor:
        """Return a stand-in for a constant in the code (``torch.tensor([1, 2])``), which each run
        copies afresh.
        """
        with dispatch.modes_disabled():
            kept = tensor.detach().clone()
        value = self.lift(kept, constant=True).value
        made = SymbolicTensor.make(value.spec, value, trace)
        if kept.numel() <= _SMALL_CONSTANT:
            made._known = kept
            self._made.setdefault(id(value.storage), []).append(made)
        return made

    def let_go(self) -> None:
        """Release the tensors after the trace: objects that live on for their sizes keep no tensor
        alive.
        """
        self.lifted, self.tensors, self.constants, self._made = {}, {}, {}, {}

    def forget(self, written: Iterable[Value]) -> None:
        """Forget the known values of constants in written memory, whichever tensor views it."""
        for value in written:
            for tensor in self._made.pop(id(value.storage), ()):
                tensor._known = None
