"""Chains of inequalities, and what they say of products: ``a <= b``, ``b <= c``, so ``a <= c`` and
``a*a*b <= c*c*c``.

What a component knows of two terms at a time is an edge ``a*x <= b*y + c`` of a network, in which a
shortest path is the best bound of one term by another: no matter how many facts there are, a
question walks the network once.  A product of terms that are not negative is at most another one
where its factors are, one by one, at most factors of that one. All limits are counts.

*Source*: R. Shostak, "Deciding linear inequalities by computing loop residues", Journal of the ACM
28, 1981, 769-779 (paths of inequalities with two variables).
"""

from __future__ import annotations

from collections import deque

from guards.domains.interval_arithmetic import Pair
from guards.facts.component import Component
from guards.terms import arithmetic
from guards.terms.term import Monomials, Op, Term, among

Edge = tuple[int, int, int, int]  # (to, a, b, c): a * from <= b * to + c, with a > 0 and b > 0
Label = tuple[int, int, int]  # (a, b, c), of a start and where it leads
Part = tuple[int, int]  # (node, weight > 0)

_WIDEST = 4  # terms of a row that becomes edges
_MOST_PARTS = 5  # terms of a question
_FACTORS = 6  # of a product
_RELAXED = 20_000  # edges looked at from one start
_KEPT = 32  # starts whose labels are kept
_COMBINED = 48  # ways to put the bounds of a question's terms together
_LARGEST = 1 << 1024  # coefficients beyond this are not followed


class Network:
    """The rows of a component as edges between its terms, each term twice: as itself, and negated.

    Attributes:
        index: the node of each term; that of its negation is one more.
        terms: the terms.
        edges: by node, where it leads.
        products: the nodes of products.
    """

    __slots__ = ("_labels", "component", "edges", "index", "products", "terms")

    def __init__(self, component: Component) -> None:
        self.component = component
        self.index: dict[Term, int] = {}
        self.terms: list[Term] = []
        self.edges: list[list[Edge]] = []
        self.products: list[int] = []
        self._labels: dict[int, dict[int, Label]] = {}
        for form, (lo, hi) in component.rows.items():
            if len(form) <= _WIDEST:
                if hi is not None:
                    self._add(form, 1, hi)
                if lo is not None:
                    self._add(form, -1, -lo)

    def node(self, term: Term) -> int:
        """The node of a term."""
        found = self.index.get(term)
        if found is None:
            found = self.index[term] = 2 * len(self.terms)
            self.terms.append(term)
            self.edges.append([])
            self.edges.append([])
            if term.op is Op.MUL:
                self.products.append(found)
        return found

    def range(self, node: int) -> Pair:
        """The range of a node's term, or of its negation."""
        lo, hi = self.component.bounds(self.terms[node >> 1])
        if node & 1:
            return (None if hi is None else -hi), (None if lo is None else -lo)
        return lo, hi

    def _add(self, form: Monomials, sign: int, most: int) -> None:
        """Add the edges that ``sign * form <= most`` implies between each two of its terms."""
        parts = [(self.node(m) | (sign * c < 0), abs(c)) for m, c in form]
        for i, (one, a) in enumerate(parts):
            for j, (other, b) in enumerate(parts):
                if i == j:
                    continue
                rest: int | None = most
                for k, (third, c) in enumerate(parts):
                    if k != i and k != j and rest is not None:
                        least = self.range(third)[0]
                        rest = None if least is None else rest - c * least
                if rest is not None:
                    self.edges[one].append((other ^ 1, a, b, rest))

    def labels(self, start: int) -> dict[int, Label]:
        """By node, the best bound found of ``start`` by that node."""
        found = self._labels.get(start)
        if found is None:
            if len(self._labels) >= _KEPT:
                self._labels.clear()
            found = self._labels[start] = self.reached(start, [])
        return found

    def reached(self, start: int, products: list[int]) -> dict[int, Label]:
        """Return the labels of :meth:`labels`, and those that are reached through products of these
        nodes.
        """
        found: dict[int, Label] = {start: (1, 1, 0)}
        waiting: deque[int] = deque([start])
        left = _RELAXED
        while waiting:
            here = waiting.popleft()
            a, b, c = found[here]
            edges = self.edges[here]
            if products:
                edges = edges + self._to_products(here, products)
            left -= len(edges)
            if left < 0:
                break
            for to, a2, b2, c2 in edges:
                if to == start:
                    continue
                label = _divided(a * a2, b * b2, b * c2 + c * a2)
                if label[0] > _LARGEST or label[1] > _LARGEST:
                    continue
                known = found.get(to)
                if known is None or self._better(to, label, known):
                    found[to] = label
                    waiting.append(to)
        return found

    def _better(self, node: int, one: Label, other: Label) -> bool:
        slope = one[1] * other[0] - other[1] * one[0]
        offset = one[2] * other[0] - other[2] * one[0]
        if slope == 0:
            return offset < 0
        least = self.range(node)[0]
        return slope < 0 and offset <= 0 and least is not None and least >= 0

    # -- products
    def _to_products(self, here: int, products: list[int]) -> list[Edge]:
        """Edges from a node to products that are not less, or from a negated one to those that are
        not greater.
        """
        found: list[Edge] = []
        one = self.terms[here >> 1]
        for node in products:
            other = self.terms[node >> 1]
            if other is one or (one.op is not Op.MUL and other.op is not Op.MUL):
                continue
            ratio = self._compared(other, one) if here & 1 else self._compared(one, other)
            if ratio is not None:
                a, b, c = ratio
                found.append((node | 1, b, a, c) if here & 1 else (node, a, b, c))
        return found

    def _compared(self, one: Term, other: Term) -> Label | None:
        """``a * one <= b * other + c``, with ``c <= 0``, factor by factor; None where that is not
        seen.
        """
        factors, others = list(arithmetic.factors(one)), list(arithmetic.factors(other))
        if len(factors) > _FACTORS or len(others) > _FACTORS:
            return None
        for factor in (*factors, *others):
            lo, _ = self.component.bounds(factor)
            if lo is None or lo < 0:
                return None
        return self._matched(factors, others)

    def _matched(self, factors: list[Term], others: list[Term]) -> Label | None:
        """Compare products as :meth:`_compared` does, matching each factor with a larger one among
        ``others``.

        Factors of ``others`` that are left over count by their ranges.

        From ``a*u <= b*v + c``, and ``p*r <= q*s + d`` for the other factors:
        ``a*p * u*r <= (b*v + c) * p*r``, and that is at most ``b*q * v*s + b*d*v + c*p*r``, where
        ``v`` and ``r`` are not below their least values.
        """
        if not factors:
            least = self._least(others)
            return (least, 1, 0) if least >= 1 else None
        factor, rest = factors[0], factors[1:]
        labels = self.labels(self.node(factor))
        for position, other in enumerate(others):
            label = labels.get(self.node(other))
            if among(other, others[:position]) or label is None or label[2] > 0:
                continue
            found = self._matched(rest, others[:position] + others[position + 1 :])
            if found is not None:
                (a, b, c), (p, q, d) = label, found
                return a * p, b * q, b * d * self._least([other]) + c * p * self._least(rest)
        _, hi = self.component.bounds(factor)
        if hi is None or hi < 1:
            return None
        found = self._matched(rest, others)
        return None if found is None else (found[0], found[1] * hi, found[2] * hi)

    def _least(self, factors: list[Term]) -> int:
        """The least value of a product of terms that are not negative."""
        found = 1
        for factor in factors:
            lo, _ = self.component.bounds(factor)
            found *= lo or 0
        return found


def _divided(a: int, b: int, c: int) -> Label:
    """``a * x <= b * y + c`` for integers, in lowest terms."""
    one, other = a, b
    while other:
        one, other = other, one % other
    return (a, b, c) if one == 1 else (a // one, b // one, c // one)


class _Question:
    """The question whether a sum is at most 0, decided by bounds of its terms by each other.

    All ways to combine these bounds are tried, up to a limit.
    """

    __slots__ = ("labels", "left", "network", "products")

    def __init__(self, network: Network, items: Monomials) -> None:
        self.network = network
        self.left = _COMBINED
        products = [network.node(m) for m, _ in items]
        if not any(m.op is Op.MUL for m, _ in items):
            products = []
        self.products = list(dict.fromkeys([*products, *network.products])) if products else []
        self.labels: dict[int, dict[int, Label]] = {}

    def bounds(self, node: int) -> dict[int, Label]:
        if not self.products:
            return self.network.labels(node)
        found = self.labels.get(node)
        if found is None:
            found = self.labels[node] = self.network.reached(node, self.products)
        return found

    def at_most_zero(self, parts: list[Part], constant: int) -> bool:
        """Return whether ``constant + sum(weight * node)`` is proven to be at most 0."""
        self.left -= 1
        if self.left < 0:
            return False
        most: int | None = constant
        for node, weight in parts:
            hi = self.network.range(node)[1]
            most = None if most is None or hi is None else most + weight * hi
        if most is not None and most <= 0:
            return True
        if not parts:
            return False
        (one, weight), rest = parts[0], parts[1:]
        labels = self.bounds(one)
        for position, (other, against) in enumerate(rest):
            label = labels.get(other ^ 1)
            if label is not None:
                others = rest[:position] + rest[position + 1 :]
                for left, number in _cancelled(one, weight, other, against, label):
                    scale = number[0]
                    scaled = left + [(node, w * scale) for node, w in others]
                    if self.at_most_zero(scaled, constant * scale + number[1]):
                        return True
        best = self._best(labels)
        if best is None:
            return False
        return self.at_most_zero(
            [(node, w * best[0]) for node, w in rest], constant * best[0] + weight * best[1]
        )

    def _best(self, labels: dict[int, Label]) -> tuple[int, int] | None:
        """``(a, b)`` with ``a * start <= b``: the least bound by a range, among all that were
        reached.
        """
        best: tuple[int, int] | None = None
        for node, (a, b, c) in labels.items():
            hi = self.network.range(node)[1]
            if hi is not None:
                number = b * hi + c
                if best is None or number * best[0] < best[1] * a:
                    best = a, number
        return best


def _cancelled(
    one: int, weight: int, other: int, against: int, label: Label
) -> list[tuple[list[Part], tuple[int, int]]]:
    """Cancel parts of ``weight * one + against * other`` by the bound
    ``a * one <= b * -other + c``.

    Returns pairs of the parts that are left and ``(scale, constant)``. As much of ``one`` is
    cancelled as ``other`` allows, or all of it.
    """
    a, b, c = label
    here, there = weight * b, against * a
    if here == there:
        return [([], (a, weight * c))]
    if here < there:
        return [([(other, there - here)], (a, weight * c))]
    return [
        ([(one, here - there)], (b, against * c)),  # against * other took there / b of one
        ([(other ^ 1, here - there)], (a, weight * c)),
    ]


def network_of(component: Component) -> Network:
    """The network of a component, made once."""
    found: Network | None = component.memo.network
    if found is None:
        found = component.memo.network = Network(component)
    return found


def at_most_zero(component: Component, term: Term) -> bool:
    """Return whether chains prove that a sum is at most 0 wherever the component holds.

    >>> from guards.asking.assumptions import facts_from
    >>> from guards import parse
    >>> facts = facts_from(None, ["a <= b", "b <= c"])
    >>> [
    ...     at_most_zero(facts.component(term), term)
    ...     for term in (parse("a*a*b - c*c*c"), parse("c - a"))
    ... ]
    [True, False]
    """
    constant, items = arithmetic.split(term)
    if not 0 < len(items) <= _MOST_PARTS:
        return False
    network = network_of(component)
    parts = [(network.node(m) | (c < 0), abs(c)) for m, c in items]
    return _Question(network, items).at_most_zero(parts, constant)


def refutes(component: Component, formula: Term) -> bool:
    """Return whether chains prove that a formula has no solution in the component."""
    op = formula.op
    if op is Op.AND:
        return any(refutes(component, part) for part in formula.args)
    if op is Op.OR:
        return all(refutes(component, part) for part in formula.args)
    if op is not Op.LE and op is not Op.EQ and op is not Op.NE:
        return op is Op.FALSE
    term = formula.args[0]
    if op is Op.LE:
        return at_most_zero(component, arithmetic.sub(1, term))
    negated = arithmetic.scale(term, -1)
    if op is Op.NE:
        return at_most_zero(component, term) and at_most_zero(component, negated)
    return at_most_zero(component, arithmetic.add(term, 1)) or at_most_zero(
        component, arithmetic.add(negated, 1)
    )
