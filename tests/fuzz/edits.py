"""Random programs as text, and edits of them that matter, that cannot matter, or that may.

A program is made of features, each with knobs: a knob that matters changes what the program
computes; one that cannot is of code and values that the program never looks at, of comments, of
lines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs

MATTERS, CANNOT, MAY = "matters", "cannot matter", "may matter"


@attrs.define
class Feature:
    """One way to read something outside the arguments.

    Attributes:
        name: for messages.
        top: lines of the module, by the knobs.
        made: lines of ``__init__``.
        used: lines of ``forward``, which make ``y`` from ``y``.
        knobs: by name, the value now, further values, and whether it matters.
    """

    name: str
    knobs: dict[str, tuple[str, Sequence[str], str]]
    top: str = ""
    made: str = ""
    used: str = ""
    over: str = ""

    def fill(self, text: str) -> str:
        for key, (value, _, _) in self.knobs.items():
            text = text.replace(f"<{key}>", value)
        return text


NUMBERS = ("0.5", "1.25", "-0.75", "2.0", "3.5")


def _number(rng: random.Random, kind: str = MATTERS) -> tuple[str, Sequence[str], str]:
    return rng.choice(NUMBERS), NUMBERS, kind


def _features(rng: random.Random, i: str) -> list[Feature]:
    n = lambda kind=MATTERS: _number(rng, kind)  # noqa: E731
    names = ("relu", "tanh", "sigmoid", "exp")
    pick = lambda values, kind=MATTERS: (rng.choice(values), values, kind)  # noqa: E731
    doc = ("", '    """Says something."""\n', '    """Says something else."""\n')
    return [
        Feature(
            "global", {"v": n(), "w": n(CANNOT)}, f"G{i} = <v>\nU{i} = <w>", used=f"y = y * G{i}"
        ),
        Feature(
            "helper",
            {"v": n(), "d": pick(doc, CANNOT), "w": n(CANNOT)},
            f"def h{i}(y):\n<d>    return y + <v>\n\ndef unused{i}(y):\n    return y * <w>",
            used=f"y = h{i}(y)",
        ),
        Feature(
            "list",
            {"v": n(), "w": n()},
            f"L{i} = [<v>, <w>]",
            used=f"for each in L{i}:\n    y = y * 2 + each",
        ),
        Feature(
            "tuple",
            {"v": n(), "w": n()},
            f"T{i} = (<v>, (<w>,))",
            used=f"y = y * T{i}[0] - T{i}[1][0]",
        ),
        Feature(
            "dict",
            {"v": pick(names), "w": n(MAY)},
            f"D{i} = {{'act': '<v>', 'other': <w>}}",
            used=f"y = getattr(torch, D{i}['act'])(y)",
        ),
        Feature(
            "attribute",
            {"v": n(), "w": n(CANNOT)},
            made=f"self.a{i} = <v>\nself.u{i} = <w>",
            used=f"y = y + self.a{i}",
        ),
        Feature("class attribute", {"v": n()}, over=f"c{i} = <v>", used=f"y = y * self.c{i}"),
        Feature(
            "method",
            {"v": n(), "d": pick(doc, CANNOT)},
            over=f"def m{i}(self, y):\n<d>    return y - <v>",
            used=f"y = self.m{i}(y)",
        ),
        Feature(
            "number in a tensor",
            {"v": n(MAY), "w": n(MAY)},
            f"NUMBER{i} = torch.tensor(<v>)",
            used=f"if NUMBER{i}.item() > <w>:\n    y = y * 2\nelse:\n    y = y - 1",
        ),
        Feature(
            "number in a buffer",
            {"v": n(), "w": n(MAY)},
            made=f"self.register_buffer('number{i}', torch.tensor(<v>))",
            used=f"rate{i} = (self.number{i} * <w>).abs().item()\ny = y * rate{i} if rate{i} > 1.0 "
            f"else y + rate{i}",
        ),
        Feature(
            "property",
            {"v": n()},
            over=f"@property\ndef p{i}(self):\n    return <v>",
            used=f"y = y + self.p{i}",
        ),
        Feature(
            "static method",
            {"v": n()},
            over=f"@staticmethod\ndef s{i}(y):\n    return y * <v>",
            used=f"y = self.s{i}(y)",
        ),
        Feature(
            "default", {"v": n()}, f"def d{i}(y, k=<v>):\n    return y + k", used=f"y = d{i}(y)"
        ),
        Feature(
            "keyword default",
            {"v": n()},
            f"def kd{i}(y, *, k=<v>):\n    return y + k",
            used=f"y = kd{i}(y)",
        ),
        Feature(
            "closure",
            {"v": n(), "w": n(CANNOT)},
            f"def make{i}(k, u):\n"
            f"    def inner(y):\n        return y * k\n\n    return inner\n\nI{i} = make{i}(<v>, "
            "<w>)",
            used=f"y = I{i}(y)",
        ),
        Feature(
            "decorator",
            {"v": n()},
            f"def deco{i}(f):\n    @functools.wraps(f)\n    def w(y):\n        return f(y) + <v>\n "
            "   return w\n\n"
            f"@deco{i}\ndef de{i}(y):\n    return y * 2",
            used=f"y = de{i}(y)",
        ),
        Feature(
            "enum",
            {"v": pick(("A", "B")), "w": n()},
            f"class E{i}(enum.Enum):\n    A = <w>\n    B = 7.5\n\nCHOSEN{i} = E{i}.<v>",
            used=f"y = y + CHOSEN{i}.value",
        ),
        Feature(
            "dataclass",
            {"v": n(), "w": n(CANNOT)},
            f"@dataclasses.dataclass\nclass C{i}:\n    k: float = 1.0\n    u: float = 1.0\n\n"
            f"CFG{i} = C{i}(<v>, <w>)",
            used=f"y = y * CFG{i}.k",
        ),
        Feature(
            "frozen",
            {"v": n()},
            f"@dataclasses.dataclass(frozen=True)\nclass F{i}:\n    k: float = 1.0\n",
            made=f"self.f{i} = F{i}(<v>)",
            used=f"y = y - self.f{i}.k",
        ),
        Feature(
            "named tuple",
            {"v": n()},
            f"NT{i} = collections.namedtuple('NT{i}', 'k')(<v>)",
            used=f"y = y + NT{i}.k",
        ),
        Feature(
            "slots",
            {"v": n()},
            f"class S{i}:\n    __slots__ = ('k',)\n    def __init__(self, k):\n        self.k = k\n"
            f"\nSL{i} = S{i}(<v>)",
            used=f"y = y * SL{i}.k",
        ),
        Feature(
            "partial",
            {"v": n(), "w": n()},
            f"def pf{i}(y, a, b=0.0):\n    return y * a + b\n\nP{i} = functools.partial(pf{i}, "
            "a=<v>, b=<w>)",
            used=f"y = P{i}(y)",
        ),
        Feature(
            "table",
            {"v": n(), "w": n(MAY), "k": pick(("'a'", "'b'"))},
            f"TABLE{i} = {{'a': lambda y: y + <v>, 'b': lambda y: y * 1.75 - <w>}}\nKEY{i} = <k>",
            used=f"y = TABLE{i}[KEY{i}](y)",
        ),
        Feature(
            "base",
            {"v": n()},
            f"class B{i}:\n    def scale(self, y):\n        return y * <v>\n\n"
            f"class X{i}(B{i}):\n    pass\n\nXX{i} = X{i}()",
            used=f"y = XX{i}.scale(y)",
        ),
        Feature(
            "operator",
            {"v": n()},
            f"class O{i}:\n    def __call__(self, y):\n        return y + <v>\n    def "
            "__getitem__(self, k):\n"
            f"        return k * <v>\n\nOO{i} = O{i}()",
            used=f"y = OO{i}(y) + OO{i}[2.0]",
        ),
        Feature(
            "environment",
            {"v": n()},
            f"os.environ['SYMSHAPE_FUZZ{i}'] = '<v>'",
            used=f"y = y + float(os.environ.get('SYMSHAPE_FUZZ{i}', '0'))",
        ),
        Feature(
            "child",
            {"v": pick(("ReLU", "Tanh", "Sigmoid", "GELU"))},
            made=f"self.n{i} = torch.nn.<v>()",
            used=f"y = self.n{i}(y)",
        ),
        Feature(
            "sequence",
            {"v": pick(("Tanh(), torch.nn.ReLU", "ReLU(), torch.nn.Tanh", "ReLU"))},
            made=f"self.q{i} = torch.nn.Sequential(torch.nn.<v>())",
            used=f"y = self.q{i}(y)",
        ),
        Feature(
            "option of a child",
            {"v": pick(("0.1", "0.3"))},
            made=f"self.lr{i} = torch.nn.LeakyReLU(<v>)",
            used=f"y = self.lr{i}(y)",
        ),
        Feature(
            "weight",
            {"v": n(MAY), "t": pick(("torch.float32", "torch.float64"))},
            made=f"self.w{i} = torch.nn.Parameter(torch.full((4,), <v>, dtype=<t>))",
            used=f"y = y * self.w{i}",
        ),
        Feature(
            "buffer",
            {"v": n(MAY), "s": pick(("(4,)", "(1,)", "()"))},
            made=f"self.register_buffer('b{i}', torch.full(<s>, <v>))",
            used=f"y = y + self.b{i} + self.b{i}.dim()",
        ),
        Feature(
            "gradients",
            {"v": pick(("True", "False"))},
            made=f"self.g{i} = torch.nn.Parameter(torch.ones(4), requires_grad=<v>)",
            used=f"y = y * self.g{i} + (1.0 if self.g{i}.requires_grad else 2.0)",
        ),
        Feature(
            "tied",
            {"v": pick((f"self.t{i}", "torch.nn.Parameter(torch.ones(4))"))},
            made=f"self.t{i} = torch.nn.Parameter(torch.ones(4))\nself.tt{i} = <v>",
            used=f"y = y + (3.0 if self.t{i} is self.tt{i} else 5.0)",
        ),
        Feature(
            "training",
            {"v": pick(("train", "eval"))},
            made="self.<v>()",
            used="y = y * (2.0 if self.training else 3.0)",
        ),
        Feature(
            "absent",
            {"v": pick((f"self.h{i} = 2.5", "pass"))},
            made="<v>",
            used=f"y = y + (self.h{i} if hasattr(self, 'h{i}') else 0.25)",
        ),
        Feature(
            "loop",
            {"v": pick(("1", "2", "3"))},
            f"R{i} = <v>",
            used=f"for _ in range(R{i}):\n    y = torch.tanh(y) + 0.5",
        ),
        Feature(
            "branch",
            {"v": n(), "t": pick(("2", "5", "100"))},
            f"LIMIT{i} = <t>",
            used=f"if x.shape[0] < LIMIT{i}:\n    y = y * <v>\nelse:\n    y = y - <v>",
        ),
        Feature(
            "text",
            {"v": pick(("bn,n->bn", "bn,n->b", "bn,n->n"))},
            f"EQ{i} = '<v>'",
            used=f"y = y + torch.einsum(EQ{i}, y, torch.ones(4, dtype=y.dtype)).sum()",
        ),
        Feature(
            "hook",
            {"v": pick(("", f"self.hk{i}.register_forward_hook(lambda m, a, o: o + 1.5)"))},
            made=f"self.hk{i} = torch.nn.Tanh()\n<v>",
            used=f"y = self.hk{i}(y)",
        ),
        Feature(
            "kernel",
            {"v": n()},
            f"def outer{i}():\n    k = <v>\n    return [lambda y: y + k, lambda y: y - k]\n\nFS{i} "
            f"= outer{i}()",
            used=f"y = FS{i}[0](y) * 1.5",
        ),
        Feature(
            "set",
            {"v": pick(("'a', 'b'", "'b', 'c'"))},
            f"SET{i} = frozenset((<v>,))",
            used=f"y = y + (1.0 if 'a' in SET{i} else 2.0)",
        ),
        Feature(
            "literal set",
            {"v": pick(("{'a', 'b'}", "{'b', 'c'}"))},
            f"W{i} = 'a'",
            used=f"y = y + (1.0 if W{i} in <v> else 2.0)",
        ),
        Feature(
            "try",
            {"v": n()},
            f"X{i}S = [<v>]",
            used=f"try:\n    y = y + X{i}S[0]\nexcept IndexError:\n    y = y - 1",
        ),
        Feature("constant tensor", {"v": n()}, used="y = y + torch.tensor([<v>, 1.0, 2.0, 3.0])"),
        Feature(
            "module function",
            {"v": pick(names)},
            f"from torch import <v> as fn{i}",
            used=f"y = fn{i}(y)",
        ),
        Feature("other module", {"v": n()}, used="y = other.shift(y)", over="", top="", made=""),
    ]


@attrs.define
class Program:
    """A program of several features.

    Attributes:
        features: what it reads.
        blank: lines and comments at its top.
        extra: functions that nobody calls.
        order: of the lines of the module, turned by so many.
    """

    features: list[Feature]
    blank: int = 0
    extra: int = 0
    order: int = 0
    comment: int = 0
    shift: str = "1.0"

    def text(self) -> str:
        """The module."""
        tops = [each.fill(each.top) for each in self.features if each.top]
        turn = self.order % max(1, len(tops))
        tops = tops[turn:] + tops[:turn]
        head = (
            "import collections, dataclasses, enum, functools, os\nimport torch\nimport "
            "other_of_fuzz as other\n"
        )
        lines = ["\n" * self.blank + head, *tops]
        lines += [f"def nobody{i}(x):\n    return x + {i}" for i in range(self.extra)]
        made = "".join(_indented(each.fill(each.made), 8) for each in self.features if each.made)
        over = "".join(
            _indented(each.fill(each.over), 4) + "\n" for each in self.features if each.over
        )
        used = "".join(_indented(each.fill(each.used), 8) for each in self.features)
        note = f"        # a remark {self.comment}\n" * (self.comment % 3)
        lines.append(
            f"class Model(torch.nn.Module):\n{over}    def __init__(self):\n        "
            f"super().__init__()\n{made}\n"
            f"    def forward(self, x):\n{note}        y = x * 1.0\n{used}        return y"
        )
        return "\n\n".join(lines) + "\n"

    def other(self) -> str:
        """The module that it imports."""
        value = next(
            (each.knobs["v"][0] for each in self.features if each.name == "other module"),
            self.shift,
        )
        return f"def shift(y):\n    return y + {value}\n"

    def edits(self, rng: random.Random) -> list[tuple[str, str, Callable[[], None]]]:
        """Edits: what each does, whether it matters, and the function that does it."""
        found: list[tuple[str, str, Callable[[], None]]] = [
            ("lines", CANNOT, lambda: setattr(self, "blank", self.blank + rng.randint(1, 5))),
            ("a function more", CANNOT, lambda: setattr(self, "extra", self.extra + 1)),
            ("another order", CANNOT, lambda: setattr(self, "order", self.order + 1)),
            ("a remark", CANNOT, lambda: setattr(self, "comment", self.comment + 1)),
        ]
        for feature in self.features:
            for key, (_, _, kind) in feature.knobs.items():
                found.append((f"{feature.name}: {key}", kind, _turn(rng, feature, key)))
        return found


def _turn(rng: random.Random, feature: Feature, key: str) -> Callable[[], None]:
    def turn() -> None:
        value, values, kind = feature.knobs[key]
        feature.knobs[key] = rng.choice([each for each in values if each != value]), values, kind

    return turn


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def random_program(rng: random.Random) -> Program:
    """A program of some of the features."""
    found = _features(rng, "1")
    return Program(rng.sample(found, rng.randint(2, 6)))
