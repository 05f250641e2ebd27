"""The limits of AOTAutograd: reasons why it may be wrong about a graph of Dynamo's, or about a
call.

AOTAutograd traces a graph once more, makes every write functional, drops calls whose result is
unused, and calls decompositions in Python in place of torch's kernels. Each of the four can differ
from eager. A graph with such a doubt runs as Dynamo made it.
"""

from __future__ import annotations

import inspect
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad

from meta_fns.torch_internals import HigherOrderOperator, OpOverload, OpOverloadPacket
from symshape.errors import Reason, UnsupportedError
from symshape.runtime.runners.cuda.overlaps import may_overlap
from symshape.torch_internals import functorch, pytree
from symshape.torch_internals.autograd import top_saving_hooks
from symshape.torch_internals.dispatch import DispatchKey
from symshape.torch_internals.dynamo import TracingContext

_DECOMPOSED = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
_AS_TORCHS = frozenset(
    {
        "aten::matmul",
        "aten::matmul.out",
        "aten::broadcast_tensors",
        "aten::unsafe_chunk",
        "aten::tensor_split.tensor_indices_or_sections",
        "aten::empty.out",
        "aten::dropout",
        "aten::native_batch_norm",
        "aten::cudnn_batch_norm",
    }
)
"""Ops whose decomposition in Python calls the same kernels as torch's own code, and raises the same
errors.
"""
_NAMES_IN_PLACE = (
    "iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem"
)
_IN_PLACE = frozenset(getattr(operator, name) for name in _NAMES_IN_PLACE.split())
_CHECKED_BY_EAGER_ONLY = frozenset({"one_hot"})
"""Functions whose kernel in C++ checks the values of real tensors, and raises no error for fake
ones.
"""
_OPERATORS = "getitem add sub mul truediv neg eq ne lt le gt ge and_ or_ invert"
_FUNCTIONS = "arange zeros ones full empty zeros_like ones_like unsqueeze transpose where"
_CANNOT_FAIL = frozenset(
    {
        getattr,
        *(getattr(operator, name) for name in _OPERATORS.split()),
        *(getattr(torch, name) for name in _FUNCTIONS.split()),
    }
)
"""Functions that raise only errors of shapes and dtypes, which Dynamo meets first."""
_METHODS = "size stride dim to float bool long t transpose unsqueeze expand new_zeros"
_METHODS_THAT_CANNOT_FAIL = frozenset(_METHODS.split())


class KernelsOfTorch:
    """Decompositions in Python that are disabled while AOTAutograd traces a graph.

    Torch's kernels in C++ serve in their place, as in eager. Those kernels would fix symbolic
    sizes, so an op with such a decomposition is refused where sizes are symbolic. Other threads see
    torch's own tables all the time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = _Asking()
        self._users = 0  # entered contexts, of all threads
        self._tables: list[tuple[OpOverload, dict[Any, Any], dict[Any, Any]]] = []

    @contextmanager
    def __call__(self, symbolic: bool) -> Iterator[None]:
        """Disable the decompositions for the current thread.

        Args:
            symbolic: whether sizes of the graph are symbolic: a call of such an op raises
                ``UnsupportedError``.
        """
        with self._lock:
            if not self._users:
                self._replace()
            self._users += 1
        asked, self._asking.symbolic = self._asking.symbolic, symbolic
        try:
            yield
        finally:
            self._asking.symbolic = asked
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._put_back()

    def _replace(self) -> None:
        """Give each op with a decomposition tables whose answers depend on the thread."""
        self._tables = [(op, op.py_kernels, op._dispatch_cache) for op in _decomposed()]
        for op, kernels, _ in self._tables:
            op._dispatch_cache = _Uncached()
            op.py_kernels = _KernelsByThread(op, kernels, self._asking)

    def _put_back(self) -> None:
        """Restore each op's own tables, with everything that was registered meanwhile."""
        for op, kernels, cache in self._tables:
            kernels.update(op.py_kernels)
            op.py_kernels = kernels
            cache.clear()
            op._dispatch_cache = cache
        self._tables = []


class _Asking(threading.local):
    """The kind of graph that AOTAutograd traces in the current thread; None: the thread sees
    torch's own tables.
    """

    symbolic: bool | None = None


class _Uncached(dict[Any, Any]):
    """An op's dispatch cache that stores nothing, because the dispatch depends on the thread."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store nothing."""


class _KernelsByThread(dict[Any, Any]):
    """The Python kernels of an op, without its decompositions in a thread that has disabled them.

    Torch's dispatcher uses only ``in``, ``get`` and ``[]``.
    """

    def __init__(
        self, op: OpOverload, kernels: Mapping[Any, Callable[..., Any]], asking: _Asking
    ) -> None:
        super().__init__(kernels)
        self._op, self._asking = op, asking

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and not (
            self._asking.symbolic is False and key in _DECOMPOSED
        )

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the kernel of a dispatch key that the current thread sees."""
        try:
            return self[key]
        except KeyError:
            return default

    def __getitem__(self, key: Any) -> Any:
        if self._asking.symbolic is None or key not in _DECOMPOSED:
            return super().__getitem__(key)
        if key not in self:
            raise KeyError(key)
        return self._refuse

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(
            f"AOTAutograd computes {self._op} differently from eager", reason=Reason.DYNAMO_GRAPH
        )


kernels_of_torch = KernelsOfTorch()


def _decomposed() -> list[OpOverload]:
    """Return the ops with such a decomposition, found in Python's table of ops."""
    packets = [each for each in vars(torch.ops.aten).values() if isinstance(each, OpOverloadPacket)]
    overloads = [
        each for packet in packets for each in vars(packet).values() if isinstance(each, OpOverload)
    ]
    return [
        op
        for op in overloads
        if op.name() not in _AS_TORCHS and any(key in op.py_kernels for key in _DECOMPOSED)
    ]


def is_straight(module: torch.fx.GraphModule) -> bool:
    """Return whether a graph calls torch's functions only, so that it costs no more than the user's
    program.

    Higher-order ops and transforms of ``torch.func`` run slower in Dynamo's graph than decomposed.
    """
    targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
    held = [
        getattr(module, str(node.target), None)
        for node in module.graph.nodes
        if node.op == "get_attr"
    ]
    return (
        not any(node.op == "call_module" for node in module.graph.nodes)
        and not any(isinstance(each, HigherOrderOperator) for each in targets)
        and not any("functorch" in (getattr(each, "__module__", None) or "") for each in targets)
        and not any(isinstance(each, torch.nn.Module) for each in held)
    )


# -- reasons against a graph
def doubt(module: torch.fx.GraphModule, *, dead: bool = True) -> str:
    """Return why AOTAutograd may be wrong about a graph of Dynamo's; empty if there is no reason.

    Args:
        module: the graph.
        dead: whether lost errors of calls with unused results count.
    """
    nodes = list(module.graph.nodes)
    writes = [(node, found) for node in nodes for found in written_by(node)]
    if writes and any(_name(node) in ("as_strided", "as_strided_") for node in nodes):
        return "it writes, and it calls as_strided"
    for node in nodes:
        if _name(node) in _CHECKED_BY_EAGER_ONLY:
            return f"{_name(node)} checks the values of its argument in eager alone"
    if not torch.is_grad_enabled() and any(map(_turns_gradients_on, nodes)):
        return "it turns gradients on, in a call that has them off"
    for node, target in writes:
        if _may_overlap(node, target):
            return (
                f"{_name(node)} writes to a tensor whose elements may overlap, or overlap what "
                "it reads"
            )
    given = [node.meta.get("example_value") for node in nodes if node.op == "placeholder"]
    tracked = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
    for node, target in writes:
        if any(_share(each, target.meta["example_value"]) for each in tracked):
            return (
                f"{_name(node)} writes to an argument that requires gradients, which may be "
                "left without any"
            )
    results = pytree.tree_leaves(nodes[-1].args)
    if any(_is_unrecorded_view(each, given) for each in results):
        return "a result is a view, made without gradients, of a tensor that has them"
    unread = next(_dead(nodes, {node for node, _ in writes}), None) if dead else None
    return (
        ""
        if unread is None
        else f"nothing reads the result of {_name(unread)}, which may raise an error"
    )


def _name(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def _turns_gradients_on(node: torch.fx.Node) -> bool:
    """Return whether a call turns gradients on, or inference mode off, for those after it."""
    wanted = {"_set_grad_enabled": True, "_enter_inference_mode": False}.get(_name(node))
    return wanted is not None and node.args != (not wanted,)


def _is_unrecorded_view(result: Any, given: Sequence[Any]) -> bool:
    """Return whether a result asks for gradients, and is a leaf that the graph made.

    Args:
        result: a node, or a constant.
        given: the values of the arguments, which a call such as ``contiguous`` may return.
    """
    if not isinstance(result, torch.fx.Node) or result.op not in ("call_function", "call_method"):
        return False
    value = result.meta.get("example_value")
    return (
        isinstance(value, torch.Tensor)
        and value.requires_grad
        and value.is_leaf
        and not any(value is each for each in given)
    )


_KEYWORDS = frozenset((operator.and_, operator.or_, operator.not_, operator.is_))
"""The functions with an underscore in their names since Python has those words itself."""


def written_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """Return the nodes whose tensors a call writes to, as far as its name, its schema or its
    arguments tell.
    """
    if node.op not in ("call_function", "call_method"):
        return []
    found: list[Any] = []
    target, name = node.target, _name(node)
    if isinstance(target, OpOverloadPacket):
        target = target.default if "default" in target.overloads() else target
    if isinstance(target, OpOverload):
        schema = target._schema.arguments
        given = dict(zip((each.name for each in schema), node.args, strict=False)) | node.kwargs
        found = [
            given.get(each.name)
            for each in schema
            if each.alias_info is not None and each.alias_info.is_write
        ]
    elif (
        target in _IN_PLACE
        or (name.endswith("_") and not name.endswith("__") and target not in _KEYWORDS)
        or name in ("__setitem__", "__iadd__")
    ):
        found = list(node.args[:1])
    elif _asks_in_place(node):
        found = [node.args[0] if node.args else node.kwargs.get("input")]
    found.append(node.kwargs.get("out"))
    return [each for each in pytree.tree_leaves(found) if isinstance(each, torch.fx.Node)]


def _asks_in_place(node: torch.fx.Node) -> bool:
    """Return whether a function of ``torch.nn.functional`` is told to write to its input."""
    if not callable(node.target) or not (node.args or node.kwargs):
        return False
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # a function of C without a signature
        return bool(node.kwargs.get("inplace"))
    return bool(bound.arguments.get("inplace"))


def _may_overlap(node: torch.fx.Node, target: torch.fx.Node) -> bool:
    """Return whether a call may write an element twice, or one that it also reads through another
    view.
    """
    written = target.meta.get("example_value")
    if not isinstance(written, torch.Tensor):
        return True
    sizes, strides = written.size(), written.stride()
    pairs: Iterator[tuple[Any, Any]] = zip(sizes, strides, strict=True)  # integers, or symbolic
    if any(isinstance(stride, int) and stride == 0 and size != 1 for size, stride in pairs):
        return True
    if sum(each is target for each in pytree.tree_leaves((node.args, node.kwargs))) > 1:
        return True
    others = (each for each in node.all_input_nodes if each is not target)
    values = (each.meta.get("example_value") for each in others)
    return any(
        isinstance(each, torch.Tensor) and each is not written and _share(each, written)
        for each in values
    )


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share a storage; True where torch cannot tell."""
    try:
        return bool(
            _inside(one).untyped_storage()._cdata == _inside(other).untyped_storage()._cdata
        )
    except (RuntimeError, NotImplementedError):  # no storage
        return True


def _inside(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that ``torch.func``'s transforms have wrapped."""
    while functorch.is_wrapped(tensor):
        tensor = functorch.unwrapped(tensor)
    return tensor


def _dead(nodes: Sequence[torch.fx.Node], writing: set[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """Yield the calls whose results are unused and that may raise an error."""
    needed: set[torch.fx.Node] = set()
    for node in reversed(nodes):
        if node.op == "output" or node in writing or node in needed:
            needed |= {node, *node.all_input_nodes}
    for node in nodes:
        if node in needed or node.op not in ("call_function", "call_method"):
            continue
        harmless = _METHODS_THAT_CANNOT_FAIL if node.op == "call_method" else _CANNOT_FAIL
        if node.target not in harmless and isinstance(
            node.meta.get("example_value"), (torch.Tensor, tuple, list)
        ):
            yield node


# -- reasons against a call
def written(arguments: int) -> Sequence[int]:
    """Return the positions of the arguments that the graph writes to, which AOTAutograd has just
    traced.

    Args:
        arguments: their number; all of them count as written where AOTAutograd's metadata do not
            fit.
    """
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    known = [] if metadata is None else metadata.input_info
    if len(known) != arguments:
        return range(arguments)
    return [
        position
        for position, each in enumerate(known)
        if each.mutates_data or each.mutates_metadata
    ]


class ProvenCalls:
    """A dispatcher of calls to AOTAutograd's version of a graph or, where that may be wrong, to
    Dynamo's graph.

    Calls under saved-tensor hooks run Dynamo's graph. A checkpoint compares the tensors that
    forward saves with those of its recomputation, and by then another graph, or another runner, may
    serve.

    Args:
        compiled: runs AOTAutograd's version.
        plainly: runs the graph as Dynamo made it, for calls under saved-tensor hooks and with
            forward-mode gradients, for which AOTAutograd has no rule; None: there is no backward.
        refused: returns a function that runs the graph as Dynamo made it, and warns, for
            overlapping arguments.
        positions: the arguments that the graph writes to.
        hooks_matter: whether ``plainly`` serves calls under saved-tensor hooks.
    """

    def __init__(
        self,
        compiled: Callable[..., Any],
        plainly: Callable[..., Any] | None,
        refused: Callable[[], Callable[..., Any]],
        positions: Sequence[int],
        *,
        hooks_matter: bool,
    ) -> None:
        self._hooks_matter = hooks_matter
        self._compiled, self._plainly, self._make_refused = compiled, plainly, refused
        self._refused: Callable[..., Any] | None = None
        self._positions = frozenset(positions)

    def serve(self, *args: Any) -> Any:
        """Return the graph's results."""
        if self._positions and _share_written(args, self._positions):
            if self._refused is None:
                self._refused = self._make_refused()
            return self._refused(*args)
        if self._plainly is not None and (
            forward_ad._current_level >= 0
            or (self._hooks_matter and top_saving_hooks(True) is not None)
        ):
            return self._plainly(*args)
        return self._compiled(*args)


def _share_written(args: Sequence[Any], positions: frozenset[int]) -> bool:
    """Return whether an argument at one of these positions may share memory with another one, or
    with itself.
    """
    tensors = [
        (each, number in positions)
        for number, each in enumerate(args)
        if isinstance(each, torch.Tensor)
    ]
    try:
        return may_overlap(tensors)
    except (RuntimeError, NotImplementedError):  # a tensor without a storage
        return True


# -- The arguments that each result of a graph of Dynamo's depends on, to drop gradients that eager
# does not make.
#
# AOTAutograd's backward takes zeros for the gradient of a result that the user's loss does not
# use. Arguments on which only such results depend get gradients of zeros, where eager leaves
# ``None``, which optimizers skip.
Reached = Sequence[frozenset[int]]


def reached(module: torch.fx.GraphModule) -> Reached | None:
    """Return for each result the tensors among the arguments, by number, that its gradient may
    reach.

    None: the same arguments for all results that require gradients, so that no gradient need be
    dropped.
    """
    known: dict[torch.fx.Node, frozenset[int]] = {}
    stored: dict[int, frozenset[int]] = {}  # by storage: the arguments that were written into it
    number = 0
    for node in module.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder":
            known[node] = frozenset(
                [number] if isinstance(value, torch.Tensor) and value.requires_grad else []
            )
            number += isinstance(value, torch.Tensor)
            continue
        given = frozenset[int]().union(
            *(known[each] | _stored(each, stored) for each in node.all_input_nodes)
        )
        if node.op == "output":
            results = pytree.tree_leaves(node.args[0])
            found = [
                known[each] | _stored(each, stored)
                if isinstance(each, torch.fx.Node)
                else frozenset[int]()
                for each in results
            ]
            return found if len({each for each in found if each}) > 1 else None
        for target in written_by(node):
            for place in _storages(target):
                stored[place] = stored.get(place, frozenset()) | given
        wants = [
            each.requires_grad
            for each in pytree.tree_leaves(value)
            if isinstance(each, torch.Tensor)
        ]
        known[node] = given if not wants or any(wants) else frozenset()
    return None


def _storages(node: torch.fx.Node) -> list[int]:
    """Return the storages of a node's results."""
    found = []
    for each in pytree.tree_leaves(node.meta.get("example_value")):
        if isinstance(each, torch.Tensor):
            try:
                found.append(each.untyped_storage()._cdata)
            except (RuntimeError, NotImplementedError):  # no storage of its own: it may share any
                found.append(-1)
    return found


def _stored(node: torch.fx.Node, stored: dict[int, frozenset[int]]) -> frozenset[int]:
    """Return the arguments that were written into the storages of a node's results."""
    return frozenset[int]().union(*(stored.get(each, frozenset()) for each in _storages(node)))


def without_zeros(compiled: Callable[..., Any], results: Reached) -> Callable[..., Any]:
    """Return a function that calls AOTAutograd's forward, whose backward then makes only the
    gradients of eager.
    """

    def serve(*args: Any) -> Any:
        made = compiled(*args)
        by_output: dict[int, frozenset[int]] = {}
        backward: Any = None
        for each, numbers in zip(made, results, strict=True):
            if isinstance(each, torch.Tensor) and each.requires_grad:
                found = _output_of(each)
                if found is None or (backward is not None and found[0] is not backward):
                    return made
                backward, output = found
                by_output[output] = by_output.get(output, frozenset()) | numbers
        tensors = sum(isinstance(each, torch.Tensor) for each in args)
        if backward is not None and len(backward.next_functions) == tensors:
            backward.register_hook(_dropping(by_output, frozenset(range(tensors))))
        return made

    return serve


def _output_of(tensor: torch.Tensor) -> tuple[Any, int] | None:
    """Return AOTAutograd's autograd node, and which of its outputs a result is, or is a view of."""
    node, output = tensor.grad_fn, tensor.output_nr
    while node is not None and "CompiledFunction" not in node.name():
        if not node.next_functions:
            return None
        node, output = node.next_functions[0]
    return None if node is None else (node, output)


def _dropping(
    by_output: dict[int, frozenset[int]], every: frozenset[int]
) -> Callable[[Any, Any], Any]:
    """Return a hook of AOTAutograd's node: it keeps the gradients that come from the outputs that
    have one.
    """

    def hook(inputs: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        used = (
            by_output.get(number, every) for number, each in enumerate(outputs) if each is not None
        )
        kept = frozenset[int]().union(*used)
        return tuple(each if number in kept else None for number, each in enumerate(inputs))

    return hook


# -- Gradients of gradients, which AOTAutograd refuses only where its backward reads a tensor that
# asks for gradients. Elsewhere it takes them for zeros.
def without_second_gradients(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls AOTAutograd's forward; gradients of the gradients that its
    backward makes raise ``RuntimeError``.
    """

    def serve(*args: Any) -> Any:
        made = compiled(*args)
        for each in made:
            found = _output_of(each) if isinstance(each, torch.Tensor) else None
            if found is not None:
                given = [
                    weakref.ref(each)
                    for each in args
                    if isinstance(each, torch.Tensor) and each.grad_fn is not None
                ]
                found[0].register_hook(_refusing(given, found[0].next_functions))
                break
        return made

    return serve


def _refusing(given: Sequence[weakref.ref[torch.Tensor]], nodes: Sequence[Any]) -> Any:
    """Return a hook of AOTAutograd's node: if a history of the gradients is asked for, they get one
    that raises.

    Args:
        given: the arguments with a history.
        nodes: the ``next_functions`` of AOTAutograd's node.
    """

    def hook(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        if not torch.is_grad_enabled():
            return None
        behind = [each for ref in given if (each := ref()) is not None] + _leaves(nodes)
        return tuple(None if each is None else _Refusing.apply(each, *behind) for each in inputs)

    return hook


def _leaves(nodes: Sequence[Any]) -> list[torch.Tensor]:
    """Return the leaves that a backward through these nodes comes to."""
    seen, left, found = set[Any](), list(nodes), list[torch.Tensor]()
    while left:
        node, _ = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        left += node.next_functions
        found += [node.variable] if hasattr(node, "variable") else []
    return found


class _Refusing(torch.autograd.Function):
    """A gradient that has none itself, with respect to any of the tensors behind it."""

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, *behind: torch.Tensor) -> torch.Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *given: Any) -> Any:
        raise RuntimeError(
            "torch.compile with aot_autograd does not support double backward, also not through "
            'backend="symshape"; compile this part with symshape.compile'
        )
