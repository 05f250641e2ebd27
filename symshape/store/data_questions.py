"""Questions of a program about numbers in tensors (a branch on ``x.item() > 0``), as JSON and back.

A question has a small graph that computes the two sides of each comparison, from copies of single
numbers on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import torch

from guards.terms.term import Term
from symshape.calls.questions import DATA, Question
from symshape.graph.float_terms import FloatTerm
from symshape.graph.graph import Graph
from symshape.graph.steps import Node
from symshape.store.constants import (
    Json,
    exactly,
    fields_of,
    from_json,
    integer_of,
    list_of,
    text_of,
    to_json,
)
from symshape.store.graph_reading import GraphReader
from symshape.store.graph_writing import GraphWriter
from symshape.store.store_errors import EntryError, NotStorable
from symshape.store.terms import TermsReader, TermsWriter
from symshape.tracing.data.number_questions import COMPARE, Asked, is_number, is_plain

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
