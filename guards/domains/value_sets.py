"""A set of integers, known as runs in remainder classes, as a condition that a person can read.

The runs of all classes are cut at as few places as possible; between two cuts the set repeats, and
is told as remainders (``s % 8 == 0``); single values that fall out of line are told apart
(``s != 4``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import attrs

from guards.domains.interval_arithmetic import Pair
from guards.domains.quasi_polynomial import Pieces, TooMany
from guards.terms import boolean, division
from guards.terms.term import Op, Term

MOST_ATOMS = 32  # a condition with more comparisons than this is not worth reading
_CUTS = 256
_CELLS = 400_000  # classes times segments
_HOLES = 3  # values that may fall out of line in one place

Pattern = tuple[int, frozenset[int]]  # a modulus, and the remainders of what is in
_EVERY: Pattern = (1, frozenset((0,)))
_NONE: Pattern = (1, frozenset())


@attrs.frozen
class _Segment:
    """Values between two cuts: which classes are in, of those that have a member there."""

    lo: int | None
    hi: int | None
    inside: Mapping[int, bool]
    pattern: Pattern


@attrs.define
class _Block:
    """Segments told together: bounds, a pattern, and values left out of it."""

    lo: int | None
    hi: int | None
    pattern: Pattern
    without: list[int]


def condition(truths: Pieces, symbol: Term) -> Term:
    """A condition that holds for those values of the domain where ``truths`` are true.

    Raises:
        TooMany: it would be too long.

    >>> from guards import parse
    >>> from guards.domains.quasi_polynomial import pieces_of
    >>> from guards.terms.arithmetic import symbol
    >>> s = symbol("s")
    >>> for text in ("s*s < 50", "s % 6 < 2 or s == 9", "s // 4 * 4 == s and s != 8"):
    ...     print(condition(pieces_of(parse(text), (0, None)), s))
    s <= 7
    s == 9 or s % 6 <= 1
    s % 4 == 0 and s != 8
    """
    segments = _segments(truths)
    if all(all(segment.inside.values()) for segment in segments):
        return boolean.TRUE
    apart = [part for segment in segments for part in _one_by_one(segment, truths.modulus)]
    found = [_joined(segments, truths, symbol)]
    if len(apart) != len(segments) and len(apart) <= _CUTS:
        found.append(_joined(apart, truths, symbol))
    found += _but_for_a_few(segments, truths.modulus, symbol)
    best = min(found, key=_atoms)
    if _atoms(best) > MOST_ATOMS:
        raise TooMany
    return best


def _atoms(condition: Term) -> int:
    if condition.op is Op.AND or condition.op is Op.OR:
        return sum(_atoms(part) for part in condition.args)
    return 1


def _but_for_a_few(segments: Sequence[_Segment], modulus: int, symbol: Term) -> list[Term]:
    """The pattern of one segment throughout, and the values that fall out of line, where they are
    few.
    """
    found = []
    for pattern in {segment.pattern: None for segment in (segments[0], segments[-1])}:
        odd: list[tuple[int, bool]] = []
        for segment in segments:
            if not _fits(segment, pattern, modulus):
                values = _values(segment, modulus)
                if values is None:
                    break
                odd += [
                    (value, what)
                    for value, what in values
                    if what is not (value % pattern[0] in pattern[1])
                ]
        else:
            if pattern[1] and len(odd) <= 2 * _HOLES:
                without = [boolean.ne(symbol, value) for value, what in odd if not what]
                added = [boolean.eq(symbol, value) for value, what in odd if what]
                found.append(
                    boolean.or_(boolean.and_(_remainders(pattern, symbol), *without), *added)
                )
    return found


def _joined(segments: Sequence[_Segment], truths: Pieces, symbol: Term) -> Term:
    blocks, single = _blocks(segments, truths.modulus)
    parts: dict[Pattern, list[Term]] = {}
    for block in blocks:
        parts.setdefault(block.pattern, []).append(_told(block, truths, symbol))
    told = [
        boolean.and_(_remainders(pattern, symbol), boolean.or_(*spans))
        for pattern, spans in parts.items()
    ]
    return boolean.or_(*told, *(boolean.eq(symbol, value) for value in single))


# -- cutting ---------------------------------------------------------------------------------------


def _members(truths: Pieces, rest: int) -> list[tuple[int | None, int | None, bool]]:
    """The runs of one class by their first and last members."""
    lo, modulus = truths.domain[0], truths.modulus
    found: list[tuple[int | None, int | None, bool]] = []
    start = None if lo is None else lo + (rest - lo) % modulus
    for last, what in truths.classes[rest]:
        end = None if last is None else last - (last - rest) % modulus
        if start is not None and end is not None and start > end:
            continue
        if found and found[-1][2] is (what is True):
            found[-1] = (found[-1][0], end, found[-1][2])
        else:
            found.append((start, end, what is True))
        if end is not None:
            start = end + modulus
    return found


def _segments(truths: Pieces) -> list[_Segment]:
    """The domain, cut so that between two cuts no class changes."""
    runs = [_members(truths, rest) if row else [] for rest, row in enumerate(truths.classes)]
    cuts = _cuts(runs)
    if len(cuts) > _CUTS or (len(cuts) + 1) * truths.modulus > _CELLS:
        raise TooMany
    lows = [truths.domain[0], *cuts]
    highs = [*(cut - 1 for cut in cuts), truths.domain[1]]
    found = []
    for lo, hi in zip(lows, highs, strict=True):
        inside = {}
        for rest, row in enumerate(runs):
            for first, last, what in row:
                if (last is None or lo is None or last >= lo) and (
                    first is None or hi is None or first <= hi
                ):
                    # some member of the run lies between the cuts, unless the class has none there
                    # at all
                    if lo is None or hi is None or lo + (rest - lo) % truths.modulus <= hi:
                        inside[rest] = what
                    break
        if inside:
            found.append(_Segment(lo, hi, inside, _pattern(inside, truths.modulus)))
    return found


def _one_by_one(segment: _Segment, modulus: int) -> list[_Segment]:
    """A segment as runs of values that are in and of those that are not, where it is too short to
    repeat itself.
    """
    lo, hi, number = segment.lo, segment.hi, segment.pattern[0]
    if lo is None or hi is None or number == 1 or hi - lo >= 2 * number:
        return [segment]
    made: list[_Segment] = []
    for value in range(lo, hi + 1):
        what = segment.inside.get(value % modulus)
        if what is None and not made:
            continue
        if made and (what is None or what is bool(made[-1].pattern[1])):
            last = made.pop()
            inside = {**last.inside, **({} if what is None else {value % modulus: what})}
            made.append(_Segment(last.lo, value, inside, last.pattern))
        else:
            assert what is not None
            start = value if made else lo
            made.append(_Segment(start, value, {value % modulus: what}, _EVERY if what else _NONE))
    return made


def _cuts(runs: Sequence[Sequence[tuple[int | None, int | None, bool]]]) -> list[int]:
    """Return as few cuts as possible, so that every change of every class has a cut between its two
    members.
    """
    changes = []
    for row in runs:
        for (_, before, _), (after, _, what) in pairwise(row):
            assert before is not None
            assert after is not None
            changes.append((after, before + 1, what))
    changes.sort()
    cuts: list[int] = []
    group: list[tuple[int, int, bool]] = []
    for change in changes:
        if group and change[1] > group[0][0]:
            cuts.append(_place(group))
            group = []
        group.append(change)
    return [*cuts, _place(group)] if group else cuts


def _place(group: Sequence[tuple[int, int, bool]]) -> int:
    """Just behind the last value that was in, where all go out; otherwise at the first that
    changes.
    """
    return group[0][0] if any(what for _, _, what in group) else max(left for _, left, _ in group)


def _divisors(number: int) -> Iterator[int]:
    return (d for d in range(1, number + 1) if number % d == 0)


def _pattern(inside: Mapping[int, bool], modulus: int) -> Pattern:
    """The least modulus that tells which classes are in."""
    for candidate in _divisors(modulus):
        seen: dict[int, bool] = {}
        if all(seen.setdefault(rest % candidate, what) is what for rest, what in inside.items()):
            return candidate, frozenset(rest for rest, what in seen.items() if what)
    raise AssertionError("the modulus itself tells them")


# -- gathering -------------------------------------------------------------------------------------


def _blocks(segments: Sequence[_Segment], modulus: int) -> tuple[list[_Block], list[int]]:
    """Segments of one pattern with small holes between them as one block, and single values."""
    blocks: list[_Block] = []
    single: list[int] = []
    index = 0
    while index < len(segments):
        segment = segments[index]
        index += 1
        if not segment.pattern[1]:
            continue
        values = _few(segment, modulus)
        pattern = segment.pattern if values is None else _ahead(segments, index, modulus)
        if pattern is None:
            single += values or []
            continue
        block = _Block(segment.lo, segment.hi, pattern, [])
        while True:
            found = _reached(segments, index, block.pattern, modulus)
            if found is None:
                break
            index, without, added = found
            block.hi = segments[index - 1].hi
            block.without += without
            single += added
        blocks.append(block)
    return blocks, single


def _values(segment: _Segment, modulus: int) -> list[tuple[int, bool]] | None:
    """The values of a short segment; None for a long one."""
    if segment.lo is None or segment.hi is None or segment.hi - segment.lo >= 4 * modulus + _HOLES:
        return None
    return [
        (value, segment.inside[value % modulus])
        for value in range(segment.lo, segment.hi + 1)
        if value % modulus in segment.inside
    ]


def _few(segment: _Segment, modulus: int) -> list[int] | None:
    """The values that are in, where they are so few that they are best named."""
    values = _values(segment, modulus)
    if values is None:
        return None
    named = [value for value, what in values if what]
    together = bool(named) and len(named) == named[-1] - named[0] + 1
    return named if len(named) <= (1 if together else _HOLES) else None


def _ahead(segments: Sequence[_Segment], index: int, modulus: int) -> Pattern | None:
    """The pattern that goes on for long behind a few values that follow it too, with fewer out of
    line between.
    """
    named = _few(segments[index - 1], modulus) or []
    for other in segments[index : index + 2]:
        if _few(other, modulus) is None and _fits(segments[index - 1], other.pattern, modulus):
            found = _reached(segments, index, other.pattern, modulus)
            if found is not None and len(found[1]) + len(found[2]) < len(named):
                return other.pattern
    return None


def _fits(segment: _Segment, pattern: Pattern, modulus: int) -> bool:
    """Return whether a segment follows a pattern, whose modulus divides that of all classes."""
    return all(what is (rest % pattern[0] in pattern[1]) for rest, what in segment.inside.items())


def _reached(
    segments: Sequence[_Segment], index: int, pattern: Pattern, modulus: int
) -> tuple[int, list[int], list[int]] | None:
    """The next segment that goes on with the pattern, beyond at most one in which a few values fall
    out of line.
    """
    if index < len(segments) and _fits(segments[index], pattern, modulus):
        return index + 1, [], []
    if index + 1 >= len(segments) or not _fits(segments[index + 1], pattern, modulus):
        return None
    values = _values(segments[index], modulus)
    if values is None:
        return None
    odd = [
        (value, what) for value, what in values if what is not (value % pattern[0] in pattern[1])
    ]
    if len(odd) > _HOLES:
        return None
    return (
        index + 2,
        [value for value, what in odd if not what],
        [value for value, what in odd if what],
    )


# -- telling ---------------------------------------------------------------------------------------


def _told(block: _Block, truths: Pieces, symbol: Term) -> Term:
    """The bounds of a block and what it leaves out, without bounds that the domain or the pattern
    make needless.
    """
    lo, hi = _tight(block, truths)
    parts = [boolean.ne(symbol, value) for value in block.without]
    if lo is not None and lo == hi:
        return boolean.eq(symbol, lo)
    if lo is not None:
        parts.append(boolean.ge(symbol, lo))
    if hi is not None:
        parts.append(boolean.le(symbol, hi))
    return boolean.and_(*parts)


def _tight(block: _Block, truths: Pieces) -> Pair:
    """The first and the last value of a block; None where nothing of its pattern lies beyond within
    the domain.
    """
    number, rests = block.pattern
    low, high = truths.domain
    lo, hi = block.lo, block.hi
    interesting = [bool(row) for row in truths.classes]

    def within(value: int) -> bool:
        return value % number in rests and interesting[value % truths.modulus]

    if lo is not None:
        while not within(lo):
            lo += 1
        before = range(
            lo - 1,
            max(lo - truths.modulus - 1, lo - truths.modulus - 1 if low is None else low - 1),
            -1,
        )
        lo = lo if any(within(value) for value in before) else None
    if hi is not None:
        while not within(hi):
            hi -= 1
        beyond = range(
            hi + 1,
            min(hi + truths.modulus + 1, hi + truths.modulus + 1 if high is None else high + 1),
        )
        hi = hi if any(within(value) for value in beyond) else None
    return lo, hi


def _remainders(pattern: Pattern, symbol: Term) -> Term:
    """The condition that a value follows the pattern, in as few comparisons as are found."""
    number, rests = pattern
    if len(rests) == number:
        return boolean.TRUE
    best = _by_runs(number, rests, symbol)
    for divisor in _divisors(number):
        coarse = frozenset(rest % divisor for rest in rests)
        out = {rest for rest in range(number) if rest % divisor in coarse} - rests
        if 1 < divisor < number and len(coarse) < divisor and len(out) < len(best):
            others = [boolean.ne(division.mod(symbol, number), rest) for rest in sorted(out)]
            made = [boolean.and_(boolean.or_(*_by_runs(divisor, coarse, symbol)), *others)]
            size = len(others) + len(_by_runs(divisor, coarse, symbol))
            best = made if size < len(best) else best
    return boolean.or_(*best)


def _by_runs(number: int, rests: frozenset[int], symbol: Term) -> list[Term]:
    """Runs of remainders, to be joined by ``or``."""
    rest = division.mod(symbol, number)
    out = sorted(set(range(number)) - rests)
    inside = sorted(rests)
    if len(out) == 1 and number > 2:
        return [boolean.ne(rest, out[0])]
    if len(inside) > 1 and not (0 in rests and number - 1 not in rests):
        runs = _runs(out)
        # what is in goes round the end
        if len(runs) == 1 and runs[0][0] > 0 and runs[0][1] < number - 1:
            low, high = runs[0]
            return [
                _between(rest, 0, low - 1, number),
                _between(rest, high + 1, number - 1, number),
            ]
    return [_between(rest, low, high, number) for low, high in _runs(inside)]


def _between(rest: Term, low: int, high: int, number: int) -> Term:
    if low == high:
        return boolean.eq(rest, low)
    below = boolean.TRUE if high == number - 1 else boolean.le(rest, high)
    return boolean.and_(below, boolean.TRUE if low == 0 else boolean.ge(rest, low))


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][1] + 1 == value:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return runs
