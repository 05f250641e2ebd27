"""Guards of Dynamo's own cache entries, for functions that ``torch.compile`` compiled with any
backend.

No other module reads them. Torch has no public interface: this module reads the guards' text as
``TORCH_LOGS=guards`` prints it. A line that cannot be parsed is shown unchanged, and never
interpreted. Written for torch 2.11 to 2.13.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import attrs
import torch

from guards.asking.reading import parse
from guards.errors import GuardsError
from guards.sets.guard import Guard
from guards.sets.origin import Origin
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from symshape.errors import InputError, Reason, UnsupportedError
from symshape.frontends.exploration.dynamo_targets import Owned, Target

_CHECKED = ((2, 11), (2, 13))
_LINE = re.compile(r"^[|\s+-]*(?P<kind>[A-Z][A-Z0-9_]+): (?P<rest>.*)$")
_TENSOR = re.compile(
    r"^check_tensor\((?P<source>.+?), \w+, .*size=\[(?P<size>[^\]]*)\], "
    r"stride=\[(?P<stride>[^\]]*)\]\)$"
)
_SIZE = re.compile(
    r"(?P<source>[LG]\['(?:[^'\\]|\\.)+'\](?:[.\w\[\]']*?))\.(?P<what>size|stride)\(\)\[(?P<dim>"
    r"\d+)\]"
)
_OFFSET = re.compile(r"(?P<source>[LG]\['(?:[^'\\]|\\.)+'\](?:[.\w\[\]']*?))\.storage_offset\(\)")
_PLACE = re.compile(r"  # (?P<text>.*?)  # (?P<file>\S.*?):(?P<line>\d+) in (?P<function>\S+)")
_DUCK = re.compile(r"duck sizing added this equality .* had the same size (?P<size>\d+)")
_INTEGER = re.compile(r"^(?P<source>[LG]\['[^']+'\]) == (?P<value>-?\d+)$")


@attrs.frozen
class DynamoEntry:
    """One program of Dynamo's.

    Attributes:
        name: Dynamo's number for it.
        guards: the guards on integers, over the names of ``sources``.
        texts: the other guards, unchanged.
    """

    name: str
    guards: tuple[Guard, ...]
    texts: tuple[str, ...]


@attrs.frozen
class DynamoCache:
    """Dynamo's cache entries for one function.

    Attributes:
        entries: in the order in which they are tried.
        sources: where the value of each symbol is read, in the caller's words, by the symbol's
            name.
        others: how many programs of the same code are for other objects.
    """

    entries: tuple[DynamoEntry, ...]
    sources: Mapping[str, str]
    others: int = 0


def read_dynamo(target: Target) -> DynamoCache:
    """Return Dynamo's entries for an object that it compiled, without entries for other objects.

    Raises:
        UnsupportedError: this version of torch stores guards in another way.
        InputError: Dynamo has no entries.
    """
    try:
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        texts = [
            (str(each.compile_id), str(each.guard_manager))
            for each in _debug_get_cache_entry_list(target.code)
        ]
    except (ImportError, AttributeError, TypeError) as error:
        low, high = (".".join(map(str, version)) for version in _CHECKED)
        raise UnsupportedError(
            f"the guards of Dynamo cannot be read in torch {torch.__version__}: {error} (checked "
            f"for {low} to {high})",
            reason=Reason.INSTALLATION,
        ) from error
    reader = _Reader(target)
    entries = tuple(
        entry for name, text in texts if (entry := reader.entry(name, text)) is not None
    )
    if not entries:
        raise InputError(
            f"Dynamo keeps no program for {target.name}: call it once, or see "
            "TORCH_LOGS=graph_breaks (of a module of "
            "torch.nn Dynamo compiles torch.compile(module), and nothing after module.compile())"
        )
    return DynamoCache(entries, reader.sources, len(texts) - len(entries))


class _Reader:
    def __init__(self, target: Target) -> None:
        self.sources: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._arguments = target.arguments
        self._owned = Owned(target)

    def entry(self, name: str, text: str) -> DynamoEntry | None:
        """Return a program from the text of its guards; None if they are for another object."""
        lines = []
        for line in text.splitlines():
            match = _LINE.match(line)
            if match is not None and match["kind"] != "TREE_GUARD_MANAGER":
                condition, _, comment = match["rest"].partition("  # ")
                lines.append((match["kind"], condition.strip(), comment))
        if any(
            self._owned.denies(condition) or self._another_tensor(condition)
            for _, condition, _ in lines
        ):
            return None
        guards: dict[Guard, None] = {}
        left: list[str] = []
        for kind, condition, comment in lines:
            found = list(self._guards(kind, condition, _origin(f"  # {comment}")))
            guards.update(dict.fromkeys(found))
            if not found and self._tensor(condition) is None:
                left.append(condition)
        return DynamoEntry(name, tuple(guards), tuple(left))

    def _tensor(self, condition: str) -> torch.Tensor | None:
        """Return the tensor of the object itself that a condition tests: no guard is needed for
        it.
        """
        match = _TENSOR.match(condition)
        return None if match is None else self._owned.tensor(match["source"])

    def _another_tensor(self, condition: str) -> bool:
        """Return whether a condition tests a tensor of the object for other sizes than it has."""
        match, tensor = _TENSOR.match(condition), self._tensor(condition)
        if match is None or tensor is None:
            return False
        sizes = _items(match["size"])
        wrong = (
            text not in ("None", str(size))
            for text, size in zip(sizes, tensor.size(), strict=False)
        )
        return len(sizes) != tensor.dim() or any(wrong)

    def _guards(self, kind: str, condition: str, origin: Origin) -> Iterator[Guard]:
        """Yield the guards of a line on integers; none for a line that is not on integers or not
        understood.
        """
        tensor = _TENSOR.match(condition)
        if tensor is not None:
            if self._owned.tensor(tensor["source"]) is not None:
                return
            for what in ("size", "stride"):
                for dim, text in enumerate(_items(tensor[what])):
                    name = self._symbol(f"{self._plain(tensor['source'])}.{what}({dim})")
                    if text != "None":
                        rule = "static" if what == "size" else "layout"
                        yield Guard(
                            boolean.eq(symbol(name), int(text)), attrs.evolve(origin, rule=rule)
                        )
            return
        integer = _INTEGER.match(condition)
        if integer is not None:
            name = self._symbol(self._plain(integer["source"]))
            yield Guard(
                boolean.eq(symbol(name), int(integer["value"])), attrs.evolve(origin, rule="static")
            )
        elif kind in ("LAMBDA_GUARD", "SYMBOLIC_SHAPE_GUARD", "SHAPE_ENV"):
            yield from self._relation(condition, origin)

    def _relation(self, condition: str, origin: Origin) -> Iterator[Guard]:
        known = len(self._names)
        found = self._parsed(condition, origin)
        if found is not None:
            yield found
            return
        for source in list(self._names)[known:]:  # of a condition that nothing is read of
            del self.sources[self._names.pop(source)]

    def _parsed(self, condition: str, origin: Origin) -> Guard | None:
        text = _SIZE.sub(
            lambda m: self._symbol(f"{self._plain(m['source'])}.{m['what']}({m['dim']})"), condition
        )
        text = _OFFSET.sub(
            lambda m: self._symbol(f"{self._plain(m['source'])}.storage_offset()"), text
        )
        text = re.sub(r"L\['(\w+)'\](?![.\[])", lambda m: self._symbol(m[1]), text)
        names = {node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name)}
        if (
            not names
            or not names - {"min", "max", "Mod", "FloorDiv", "Min", "Max"} <= self.sources.keys()
        ):
            return None
        try:
            return Guard(parse(text), origin)
        except (GuardsError, TypeError):
            return None

    def _plain(self, source: str) -> str:
        """Return ``L['x']`` in the caller's words: ``x``."""
        words = re.sub(r"^L\['(\w+)'\]", r"\1", source)
        shown = next((text for text in self._arguments if words.startswith(text)), None)
        return words if shown is None else self._arguments[shown] + words.removeprefix(shown)

    def _symbol(self, source: str) -> str:
        name = self._names.get(source)
        if name is None:
            name = self._names[source] = f"d{len(self._names)}"
            self.sources[name] = source
        return name


def _tree(text: str) -> ast.AST:
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError:
        return ast.Module([], [])


def _items(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _origin(comment: str) -> Origin:
    match = _PLACE.search(comment)
    if match is None:
        return Origin("", 0, text=_without_line(comment.removeprefix("  # ").strip()))
    return Origin(match["file"], int(match["line"]), match["function"], match["text"].strip())


def _without_line(comment: str) -> str:
    """Return the reason of a guard for which Dynamo knows no line of the user's."""
    equal = _DUCK.match(comment)
    if equal is not None:
        return (
            f"duck sizing: the sizes were both {equal['size']} when Dynamo compiled "
            "(torch.fx.experimental._config.use_duck_shape = False avoids it)"
        )
    if not comment or comment.startswith("(unknown "):
        return "Dynamo names no line for these"
    return comment[:200]
