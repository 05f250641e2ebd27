"""The structure of a call as JSON (equal for calls that may share an entry), and questions about
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch

from guards.terms.term import Term
from symshape.calls.arguments import (
    INT_KEY,
    Call,
    ConstantKey,
    LeafKey,
    TensorKey,
    identity_of,
)
from symshape.calls.floats import FloatLeaf
from symshape.calls.modes import Modes
from symshape.calls.questions import DATA, Question
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node
from symshape.store.descriptions import flat_key
from symshape.store.graph_format import GraphReader, GraphWriter
from symshape.store.json_values import (
    Json,
    TermsReader,
    TermsWriter,
    exactly,
    fields_of,
    from_json,
    integer_of,
    list_of,
    text_of,
    to_json,
    tree_to_json,
)
from symshape.store.store_errors import EntryError, NotStorable
from symshape.tracing.data.number_questions import COMPARE, Asked, is_number, is_plain

_FLOAT = f"{FloatLeaf.__module__}.{FloatLeaf.__qualname__}"
_QUESTIONS = (
    "attribute",
    "attributes",
    "hooked",
    "number",
    "is_leaf",
    "is_inference",
    "_is_view",
    "is_conj",
    "is_neg",
)


def structure_to_json(call: Call, modes: Modes) -> Json:
    """Return the structure of a call: equal for two calls only if one entry may serve both.

    Raises:
        NotStorable: an argument has no words.
    """
    return {
        "modes": modes_to_json(modes),
        "tree": tree_to_json(call.tree),
        "leaves": [_key_to_json(each) for each in call.keys],
        "duplicates": list(call.duplicates),
        "shared": list(call.shared),
    }


def varying_floats(call: Call, mine: Json, theirs: Json) -> list[int]:
    """Return the positions of floats in a call that the program of another call reads at run time.

    Empty if the structures differ in anything else.

    Args:
        call: the call.
        mine: its structure.
        theirs: that of the program's.
    """
    leaves, others = mine["leaves"], theirs["leaves"]
    if len(leaves) != len(others):
        return []
    found = [i for i, (one, other) in enumerate(zip(leaves, others, strict=True)) if one != other]
    if not all(type(call.leaves[i]) is float and others[i][-1:] == [_FLOAT] for i in found):
        return []
    instead = [others[i] if i in found else each for i, each in enumerate(leaves)]
    return found if {**mine, "leaves": instead} == theirs else []


def modes_to_json(modes: Modes) -> Json:
    """Return torch's modes as JSON."""
    autocast = [[device, str(dtype)] for device, dtype in modes.autocast]
    return [modes.grad, modes.inference, str(modes.dtype), autocast, modes.device]


def _key_to_json(key: LeafKey) -> Json:
    if isinstance(key, TensorKey):
        kind = [str(key.dtype), str(key.device), key.requires_grad, key.ndim, key.layout]
        return ["tensor", *kind, f"{key.kind.__module__}.{key.kind.__qualname__}"]
    if key is INT_KEY:
        return ["int"]
    if identity_of(key) is not None:  # what it is stands among the checks of the state
        return ["object"]
    assert isinstance(key, ConstantKey), key
    return ["constant", flat_key(key.constant_key)]


def questions_to_json(questions: Mapping[Question, Any]) -> Json:
    """Return the questions of a program about its arguments, with the answers; not those about
    numbers in tensors.

    Raises:
        NotStorable: it asked which object one is.
    """
    found = []
    for each, answer in questions.items():
        if each.what == DATA:
            continue
        if each.what == "is" or not (each.about is None or type(each.about) is str):
            raise NotStorable("a program that asks which object an argument is")
        found.append([each.position, each.what, each.about, flat_key(answer)])
    return found


def answered(data: Json, leaves: Sequence[Any]) -> dict[Question, Any] | None:
    """Return the questions with the answers of this call; None if an answer differs.

    Raises:
        EntryError: they are none.
    """
    found: dict[Question, Any] = {}
    for each in list_of(data, 10_000):
        position, what, about, answer = exactly(each, 4)
        if what not in _QUESTIONS and not (
            type(what) is str and what.startswith("is_") and what.isidentifier()
        ):
            raise EntryError(f"unknown question: {str(what)[:80]}")
        question = Question(integer_of(position), what, None if about is None else text_of(about))
        if question.position >= len(leaves) or not answers(question, answer, leaves):
            return None
        found[question] = question.among(leaves)
    return found


def answers(question: Question, answer: Json, leaves: Sequence[Any]) -> bool:
    """Return whether ``answer`` is the answer to a question for the leaves of a call."""
    try:
        return bool(flat_key(question.among(leaves)) == answer)
    except NotStorable:
        return False


# -- Ranks with devices of their own: ``cuda:0`` on one rank and ``cuda:1`` on another are no
# difference.
#
# Only comparisons ignore the device number. A program is for one device: its results may depend
# on the number (a branch on ``x.device.index``, a ``"cuda:0"`` in its code), and no recording
# excludes that.
_NUMBERED = re.compile(r'"([a-z]+:\d+)"')


def with_own_devices(structure: Json) -> Json:
    """Return a call's structure with accelerators numbered in order of appearance."""
    numbers: dict[str, str] = {}

    def numbered(device: Any) -> Any:
        kind, colon, _ = str(device).partition(":")
        return (
            numbers.setdefault(device, f"{kind} {len(numbers)}")
            if colon and kind != "cpu"
            else device
        )

    leaves = [
        [*each[:2], numbered(each[2]), *each[3:]] if each[0] == "tensor" else each
        for each in structure["leaves"]
    ]
    *modes, default = structure["modes"]
    return {**structure, "leaves": leaves, "modes": [*modes, numbered(default)]}


def moved(body: str, theirs: Json, mine: Json) -> str:
    """Return an entry's text with the devices of another rank's call replaced by this rank's.

    Args:
        body: the text.
        theirs: the structure of the other's call.
        mine: that of this rank's, equal to it but for the numbers of devices.
    """
    instead = dict(zip(_devices(theirs), _devices(mine), strict=True))
    return _NUMBERED.sub(lambda found: f'"{instead.get(found[1], found[1])}"', body)


def _devices(structure: Json) -> list[str]:
    return [
        *(str(each[2]) for each in structure["leaves"] if each[0] == "tensor"),
        str(structure["modes"][-1]),
    ]


# -- Questions of a program about numbers in tensors (a branch on ``x.item() > 0``), as JSON and
# back.
#
# A question has a small graph that computes the two sides of each comparison, from copies of
# single numbers on the CPU.
_FIELDS = ("sources", "dtypes", "relations", "written", "graph", "integers")
_MOST = 10_000


def question_to_json(
    asked: Asked, terms: TermsWriter, number_of: Callable[[torch.Tensor, str], int]
) -> Json:
    """Return a question as JSON.

    Args:
        asked: it.
        terms: the table of formulas.
        number_of: of a tensor outside the arguments.

    Raises:
        NotStorable: a number is read from a tensor that nothing leads to.
    """

    def number(tensor: torch.Tensor) -> Json:
        try:
            return {"object": number_of(tensor, "")}
        except NotStorable:
            reason = (
                "a program that branches on a number in a tensor that another process could not "
                "find by the names that the program read"
            )
            raise NotStorable(reason) from None

    return {
        "sources": [each if type(each) is int else number(each) for each in asked.sources],  # type: ignore[arg-type]
        "dtypes": [to_json(each) for each in asked.dtypes],
        "relations": list(asked.relations),
        "written": [number(each) for each in asked.written],
        "graph": GraphWriter(asked.graph, terms, number_of).json(),
        "integers": [list(each) for each in asked.integers],
    }


def question_from_json(
    data: Json, terms: TermsReader, tensor: Callable[[int], torch.Tensor], leaves: int
) -> Question:
    """Return the question that :func:`question_to_json` wrote.

    Args:
        data: what it wrote.
        terms: the table of formulas.
        tensor: the tensor of each number.
        leaves: how many a call has.

    Raises:
        EntryError: it is none.
    """
    sources, dtypes, relations, written, graph, integers = fields_of(data, *_FIELDS)
    read: list[Any] = [
        integer_of(each, 0, leaves) if type(each) is int else _outside(each, tensor)
        for each in list_of(sources, _MOST)
    ]
    kinds = tuple(from_json(each) for each in list_of(dtypes, _MOST))
    asked_for = tuple(text_of(each, 8) for each in list_of(relations, _MOST))
    outside = tuple(_outside(each, tensor) for each in list_of(written, _MOST))
    computed = GraphReader(graph, terms, tensor, len(read)).graph()
    if len(kinds) != len(read) or not set(asked_for) <= COMPARE.keys():
        raise EntryError("a malformed question about numbers")
    whole = tuple(_integer(each, leaves) for each in list_of(integers, _MOST))
    _check(computed, kinds, len(asked_for), {name for name, _ in whole})
    asked = Asked.in_graph(computed, tuple(read), kinds, asked_for, outside, whole)
    return Question(asked.last, DATA, asked)


def _integer(data: Json, leaves: int) -> tuple[str, int]:
    found = exactly(data, 2)
    return text_of(found[0], 80), integer_of(found[1], 0, leaves)


def _outside(data: Json, tensor: Callable[[int], torch.Tensor]) -> torch.Tensor:
    (number,) = fields_of(data, "object")
    return tensor(integer_of(number))


def _check(graph: Graph, dtypes: Sequence[Any], relations: int, integers: Set[str]) -> None:
    """Check that a graph computes two numbers for each relation, from single numbers on the CPU and
    nothing else.

    Raises:
        EntryError: it does not.
    """
    inputs = [
        (each.position, is_number(each.value), each.value.spec.dtype) for each in graph.inputs
    ]
    if inputs != [(i, True, dtype) for i, dtype in enumerate(dtypes)] or graph.lifted:
        raise EntryError("a question whose numbers are not those that it reads")
    known: set[str] = set()
    for step in graph.steps:
        if (
            not isinstance(step, Node)
            or not is_plain(step)
            or step.grad is not None
            or step.inference is not None
        ):
            raise EntryError("a question that computes more than single numbers")
        _check_known(step.numbers, known, integers)
        known |= {each.symbol for each in step.bindings}
    if len(graph.outputs) != 2 * relations:
        raise EntryError("a question without two numbers for each comparison")
    _check_known(graph.outputs, known, integers)


def _check_known(numbers: Sequence[Any], known: Set[str], integers: Set[str]) -> None:
    for each in numbers:
        if isinstance(each, FloatTerm):
            if (
                not {symbol.name for symbol in each.symbols()} <= integers | known
                or not each.unbacked() <= known
            ):
                raise EntryError("a question about a number that is not known")
        elif isinstance(each, Term):
            if not {symbol.name for symbol in each.symbols} <= known:
                raise EntryError("a question about an integer that is not known")
        elif type(each) not in (bool, int, float):
            raise EntryError("a question about something that is not a number")
