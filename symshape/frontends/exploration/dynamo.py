"""The report of a function that ``torch.compile`` compiled with a backend that is not ours."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import attrs
import torch

from guards.asking.reading import parse
from guards.domains.interval_arithmetic import Pair
from guards.errors import GuardsError
from guards.sets.guard import Guard
from guards.sets.guard_set import GuardSet
from guards.sets.origin import Origin
from guards.terms import boolean
from guards.terms.arithmetic import symbol
from symshape.errors import InputError, Reason, UnsupportedError
from symshape.exploring.report_records import EntryRecord, Report, SlotRecord, Space
from symshape.frontends.exploration.spaces import (
    Origins,
    SpaceMaker,
    fixed_value,
    linked_in_all,
    top_of,
)

# -- The target of a report on Dynamo: the code, the object and the arguments of a compiled
# function.
#
# Dynamo stores programs by code, and code is shared: by the instances of a class, and by all
# modules of ``torch.nn`` and functions of torch, which run inside one frame that Dynamo lends
# them. The guards of a program tell which object it is for. Written for torch 2.11 to 2.13.
_UNKNOWN = object()
# the frame around objects that have none: see torch._dynamo.external_utils
_LENT = "wrap_inline.<locals>.inner"


@attrs.frozen
class Target:
    """A function or module that Dynamo compiled.

    Attributes:
        code: the code by which Dynamo stores programs.
        name: the name of the function or the module's class.
        local: the variable of the code that holds ``owner``; empty where there is none.
        owner: the module, instance or function that was compiled.
        arguments: the caller's name for each source text (``args[0]``).
    """

    code: CodeType
    name: str
    local: str = ""
    owner: object = None
    arguments: Mapping[str, str] = attrs.field(factory=dict)


def target_of(fn: object) -> Target | None:
    """Return the target for a result of ``torch.compile`` or a module on which ``module.compile()``
    was called.

    None for anything else.
    """
    if isinstance(fn, torch.nn.Module):
        inner = getattr(fn, "_orig_mod", None)
        if inner is not None:
            lent = getattr(fn.forward, "_torchdynamo_orig_callable", None)
            return _target(lent if _is_lent(lent) else inner.forward)
        return _target(fn.forward) if getattr(fn, "_compiled_call_impl", None) is not None else None
    return _target(getattr(fn, "_torchdynamo_orig_callable", None))


def _is_lent(fn: object) -> bool:
    return isinstance(fn, FunctionType) and fn.__code__.co_qualname == _LENT


def _target(fn: object) -> Target | None:
    if isinstance(fn, FunctionType) and _is_lent(fn):
        owner = inspect.getclosurevars(fn).nonlocals.get("fn")
        called = owner.forward if isinstance(owner, torch.nn.Module) else owner
        name = type(owner).__qualname__ if isinstance(owner, torch.nn.Module) else _name(owner)
        return Target(fn.__code__, name, "fn", owner, _arguments(called))
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        code, owner = fn.__func__.__code__, fn.__self__
        name = type(owner).__qualname__ if isinstance(owner, torch.nn.Module) else code.co_qualname
        local = code.co_varnames[0] if code.co_argcount else ""
        return Target(code, name, local, owner, _wrapped_arguments(code, fn))
    plain = getattr(fn, "__code__", None)
    if not isinstance(plain, CodeType):
        return None
    return Target(plain, plain.co_qualname, arguments=_wrapped_arguments(plain, fn))


def _name(fn: object) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def _arguments(fn: object) -> dict[str, str]:
    """Return the inner function's names for the arguments of a frame that takes
    ``*args, **kwargs``.
    """
    try:
        parameters = inspect.signature(fn).parameters.values() if callable(fn) else ()
    except (TypeError, ValueError):
        return {}
    found = {f"kwargs['{each.name}']": each.name for each in parameters}
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found.update(
        {f"args[{place}]": each.name for place, each in enumerate(parameters) if each.kind in named}
    )
    return found


def _wrapped_arguments(code: CodeType, fn: object) -> dict[str, str]:
    """Return the wrapped function's names for the arguments that a decorator of it takes as
    ``*args, **kwargs``.
    """
    only_stars = code.co_argcount == isinstance(fn, MethodType) and not code.co_kwonlyargcount
    stars = code.co_varnames[code.co_argcount :][:2]
    return _arguments(fn) if only_stars and stars == ("args", "kwargs") else {}


class Owned:
    """A reader of the object that was compiled, for its guards; runs no code of the object."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def denies(self, condition: str) -> bool:
        """Return whether a guard on a type or an identity is certainly false for the object."""
        checks: dict[str, Callable[[object], int]] = {
            "___check_type_id": lambda it: id(type(it)),
            "___check_obj_id": id,
        }
        try:
            tree = ast.parse(
                condition.partition("), type=")[0].removesuffix(")") + ")", mode="eval"
            ).body
        except SyntaxError:
            return False
        match tree:
            case ast.Call(
                func=ast.Name(id=name), args=[source, ast.Constant(value=int(wanted))]
            ) if name in checks:
                found = self._at(source)
                return found is not _UNKNOWN and checks[name](found) != wanted
        return False

    def tensor(self, source: str) -> torch.Tensor | None:
        """Return the tensor that the object has at a source (``L['self'].weight``), if it has one
        there.
        """
        try:
            found = self._at(ast.parse(source, mode="eval").body)
        except SyntaxError:
            return None
        return found if isinstance(found, torch.Tensor) else None

    def _at(self, source: ast.expr) -> object:
        match source:
            case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(name))):
                return self._target.owner if name == self._target.local else _UNKNOWN
            case ast.Attribute(value=inner, attr=name):
                return _attribute(self._at(inner), name)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self._at(inner)
                plain = type(held) in (dict, list, tuple)
                try:
                    return held[key] if plain else _UNKNOWN  # type: ignore[index]
                except (LookupError, TypeError):
                    return _UNKNOWN
        return _UNKNOWN


def _attribute(held: Any, name: str) -> object:
    if held is _UNKNOWN:
        return _UNKNOWN
    own = getattr(held, "__dict__", {})
    if name == "__dict__":
        return own
    if name in own:
        return own[name]
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(held, torch.nn.Module) and name in own.get(kept, {}):
            return own[kept][name]
    return _UNKNOWN


# -- Guards of Dynamo's own cache entries, for functions that ``torch.compile`` compiled with any
# backend.
#
# No other module reads them. Torch has no public interface: this module reads the guards' text
# as ``TORCH_LOGS=guards`` prints it. A line that cannot be parsed is shown unchanged, and never
# interpreted. Written for torch 2.11 to 2.13.
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


_NOTE = (
    "The guards are those of Dynamo's own cache, read from their text. Guards that are not about "
    "sizes, or were not understood, are listed unchanged and are assumed to hold here. "
    "Entries are numbered as in TORCH_LOGS=recompiles; Dynamo tries them in this order."
)
_SMALL = (16, 256, 4096)  # sizes to begin with are no greater, if the guards hold for such
_OTHERS = (
    "Programs of the same code that are for other objects, or for this one as it was "
    "before, are left out: {}."
)


def dynamo_report(target: Target) -> Report:
    """Return a report of Dynamo's cache for a function or a module: conditions on integers, and the
    rest as text.
    """
    cache = read_dynamo(target)
    origins = Origins()
    facts = [("entries", str(len(cache.entries)))]
    notes = [_NOTE, _OTHERS.format(cache.others)] if cache.others else [_NOTE]
    space = attrs.evolve(_space(cache, origins), structure=_unread(cache))
    return Report(
        f"Dynamo's programs of {target.name}",
        "dynamo",
        facts,
        origins.records,
        [space],
        [],
        [],
        notes,
    )


def _unread(cache: DynamoCache) -> list[str]:
    """Return the guards that are not about sizes; first those that only some entries have, with
    the entries.
    """
    having: dict[str, list[str]] = {}
    for entry in cache.entries:
        for text in dict.fromkeys(entry.texts):
            having.setdefault(text, []).append(entry.name)
    every = len(cache.entries)
    found = []
    for text, names in sorted(having.items(), key=lambda item: (len(item[1]) == every, item[0])):
        short = text if len(text) < 200 else f"{text[:200]}…"
        found.append(short if len(names) == every else f"{short}  (only {', '.join(names)})")
    return found


def _space(cache: DynamoCache, origins: Origins) -> Space:
    names = tuple(cache.sources)
    maker = SpaceMaker(names, origins)
    ranges = {
        name: (0, None) if "(" in text else (None, None) for name, text in cache.sources.items()
    }
    entries = []
    for each in cache.entries:
        own = {
            name: limits
            for name, limits in ranges.items()
            if any(name in _symbols(g) for g in each.guards)
        }
        guard_set = GuardSet(each.guards, own)  # the other symbols are unbounded
        entries.append(
            EntryRecord(f"entry {each.name}", maker.guards(guard_set, cache.sources, cache.sources))
        )
    general = min(
        cache.entries,
        key=lambda each: sum(fixed_value(guard.term) is not None for guard in each.guards),
    )
    start = _start(cache, general)
    slots = [
        SlotRecord(
            name,
            text,
            ranges[name][0],
            None,
            start[name],
            top_of(start[name], None),
            _is_fixed(cache, name),
        )
        for name, text in cache.sources.items()
    ]
    links = linked_in_all([[guard.term for guard in each.guards] for each in cache.entries], names)
    return Space("", [], slots, links, maker.record(), entries)


def _symbols(guard: Guard) -> set[str]:
    return {each.name for each in guard.term.symbols}


def _fixed(entry: DynamoEntry) -> dict[str, int]:
    return dict(found for guard in entry.guards if (found := fixed_value(guard.term)) is not None)


def _is_fixed(cache: DynamoCache, name: str) -> bool:
    values = {_fixed(entry).get(name) for entry in cache.entries}
    return len(values) == 1 and None not in values


def _start(cache: DynamoCache, general: DynamoEntry) -> dict[str, int]:
    """Return initial values: small ones that the most general entry accepts, so that maps begin
    where calls are.
    """
    limits: dict[str, Pair] = {
        name: (0 if "(" in text else None, None) for name, text in cache.sources.items()
    }
    found = GuardSet(general.guards, limits).sample(1)
    for names in (tuple(limits), *((name,) for name in limits)):
        for most in _SMALL:
            tried = {**limits, **dict.fromkeys(names, (0, most))}
            smaller = GuardSet(general.guards, tried).sample(1)
            if smaller:
                found, limits = smaller, tried
                break
        if found and max(found[0].values(), default=0) <= _SMALL[0]:
            break
    return {name: found[0].get(name, 2) if found else 2 for name in cache.sources}
