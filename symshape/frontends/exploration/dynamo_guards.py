"""Guards of Dynamo's own cache entries, for functions that ``torch.compile`` compiled with any backend.

The one place that reads them. There is no public way; what is read is the text of the guards as ``TORCH_LOGS=guards``
prints it, so that what this cannot read is shown as it stands and nothing is taken for what it is not. Written for
torch 2.11 to 2.13.
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
from symshape.errors import InputError, UnsupportedError
from symshape.frontends.exploration.dynamo_targets import Owned, Target

_CHECKED = ((2, 11), (2, 13))
_LINE = re.compile(r"^[|\s+-]*(?P<kind>[A-Z][A-Z0-9_]+): (?P<rest>.*)$")
_TENSOR = re.compile(
    r"^check_tensor\((?P<source>.+?), \w+, .*size=\[(?P<size>[^\]]*)\], stride=\[(?P<stride>[^\]]*)\]\)$"
)
_SIZE = re.compile(r"(?P<source>[LG]\['(?:[^'\\]|\\.)+'\](?:[.\w\[\]']*?))\.(?P<what>size|stride)\(\)\[(?P<dim>\d+)\]")
_OFFSET = re.compile(r"(?P<source>[LG]\['(?:[^'\\]|\\.)+'\](?:[.\w\[\]']*?))\.storage_offset\(\)")
_PLACE = re.compile(r"  # (?P<text>.*?)  # (?P<file>\S.*?):(?P<line>\d+) in (?P<function>\S+)")
_INTEGER = re.compile(r"^(?P<source>[LG]\['[^']+'\]) == (?P<value>-?\d+)$")


@attrs.frozen
class DynamoEntry:
    """One program of Dynamo's.

    Attributes:
        name: Dynamo's number of it.
        guards: those about integers, over the names of ``sources``.
        texts: the others, as they stand.
    """

    name: str
    guards: tuple[Guard, ...]
    texts: tuple[str, ...]


@attrs.frozen
class DynamoCache:
    """What Dynamo keeps for one function.

    Attributes:
        entries: in the order in which they are tried.
        sources: by the name of a symbol where its value is read, in the caller's words.
        others: how many programs of the same code are for other objects.
    """

    entries: tuple[DynamoEntry, ...]
    sources: Mapping[str, str]
    others: int = 0


def read_dynamo(target: Target) -> DynamoCache:
    """The entries that Dynamo keeps for something that it compiled, without those that are for other objects.

    Raises:
        UnsupportedError: this version of torch is another than those that this was written for, and differs.
        InputError: Dynamo keeps none.
    """
    try:
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        texts = [(str(each.compile_id), str(each.guard_manager)) for each in _debug_get_cache_entry_list(target.code)]
    except (ImportError, AttributeError, TypeError) as error:
        low, high = (".".join(map(str, version)) for version in _CHECKED)
        raise UnsupportedError(
            f"the guards of Dynamo cannot be read in torch {torch.__version__}: {error} (checked for {low} to {high})"
        ) from error
    reader = _Reader(target)
    entries = tuple(entry for name, text in texts if (entry := reader.entry(name, text)) is not None)
    if not entries:
        raise InputError(
            f"Dynamo keeps no program for {target.name}: call it once, or see TORCH_LOGS=graph_breaks (of a module of "
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
        """A program by the text of its guards; None where they say that it is for another object."""
        lines = []
        for line in text.splitlines():
            match = _LINE.match(line)
            if match is not None and match["kind"] != "TREE_GUARD_MANAGER":
                condition, _, comment = match["rest"].partition("  # ")
                lines.append((match["kind"], condition.strip(), comment))
        if any(self._owned.denies(condition) or self._another_tensor(condition) for _, condition, _ in lines):
            return None
        guards: dict[Guard, None] = {}
        left: list[str] = []
        for kind, condition, comment in lines:
            found = list(self._guards(kind, condition, _origin(f"  # {comment}", kind)))
            guards.update(dict.fromkeys(found))
            if not found and self._tensor(condition) is None:
                left.append(condition)
        return DynamoEntry(name, tuple(guards), tuple(left))

    def _tensor(self, condition: str) -> torch.Tensor | None:
        """The tensor of the object itself that a condition is about: there is nothing to ask of it."""
        match = _TENSOR.match(condition)
        return None if match is None else self._owned.tensor(match["source"])

    def _another_tensor(self, condition: str) -> bool:
        """Whether a condition is about a tensor of the object, with other sizes than that has."""
        match, tensor = _TENSOR.match(condition), self._tensor(condition)
        if match is None or tensor is None:
            return False
        sizes = _items(match["size"])
        wrong = (text not in ("None", str(size)) for text, size in zip(sizes, tensor.size(), strict=False))
        return len(sizes) != tensor.dim() or any(wrong)

    def _guards(self, kind: str, condition: str, origin: Origin) -> Iterator[Guard]:
        """What a line says about integers; nothing if it says nothing, or in a way that is not understood."""
        tensor = _TENSOR.match(condition)
        if tensor is not None:
            if self._owned.tensor(tensor["source"]) is not None:
                return
            for what in ("size", "stride"):
                for dim, text in enumerate(_items(tensor[what])):
                    name = self._symbol(f"{self._plain(tensor['source'])}.{what}({dim})")
                    if text != "None":
                        rule = "static" if what == "size" else "layout"
                        yield Guard(boolean.eq(symbol(name), int(text)), attrs.evolve(origin, rule=rule))
            return
        integer = _INTEGER.match(condition)
        if integer is not None:
            name = self._symbol(self._plain(integer["source"]))
            yield Guard(boolean.eq(symbol(name), int(integer["value"])), attrs.evolve(origin, rule="static"))
        elif kind in ("LAMBDA_GUARD", "SYMBOLIC_SHAPE_GUARD", "SHAPE_ENV"):
            yield from self._relation(condition, origin)

    def _relation(self, condition: str, origin: Origin) -> Iterator[Guard]:
        text = _SIZE.sub(lambda m: self._symbol(f"{self._plain(m['source'])}.{m['what']}({m['dim']})"), condition)
        text = _OFFSET.sub(lambda m: self._symbol(f"{self._plain(m['source'])}.storage_offset()"), text)
        text = re.sub(r"L\['(\w+)'\](?![.\[])", lambda m: self._symbol(m[1]), text)
        names = {node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name)}
        if not names or not names - {"min", "max", "Mod", "FloorDiv", "Min", "Max"} <= self.sources.keys():
            return
        try:
            yield Guard(parse(text), origin)
        except (GuardsError, TypeError):
            return

    def _plain(self, source: str) -> str:
        """``L['x']`` in the caller's words: ``x``."""
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


def _origin(comment: str, kind: str) -> Origin:
    match = _PLACE.search(comment)
    if match is None:
        return Origin("", 0, text=comment.removeprefix("  # ")[:200], rule=kind.lower())
    return Origin(match["file"], int(match["line"]), match["function"], match["text"].strip(), rule=kind.lower())
