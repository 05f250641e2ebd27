"""What the fuzzer ``world`` does with objects: programs that are given some, make some, and whose
classes are written.

The words are source text; ``worlds.py`` says what for.
"""

from __future__ import annotations

from tests.fuzz.lines import lines

CLASSES = (
    "class Given:\n    def __init__(self, a, by=2):\n        self.a = a\n        self.by = by\n"
    "    def scaled(self):\n        return self.a * self.by\n"
    "@dataclass\nclass Fields:\n    a: object\n    by: object = 2\n"
    "    def scaled(self):\n        return self.a + self.by\n"
    "class Narrow:\n    __slots__ = ('a', 'by')\n"
    "    def __init__(self, a, by=2):\n        self.a = a\n        self.by = by\n"
    "    def scaled(self):\n        return self.a - self.by\n"
    "KINDS = (Given, Fields, Narrow)\n"
)
"""Defined before all else: calls make objects of them."""

THINGS = {
    "GIVEN": "GIVEN = Given(torch.ones(3))",
    "FIELDS": "FIELDS = Fields(torch.ones(3), 3)",
    "LISTED": "LISTED = Fields(torch.ones(3), [1])",
    "NARROW": "NARROW = Narrow(torch.ones(3))",
}

_ANY = (
    "if isinstance(opts, KINDS):\n    x = x + opts.scaled().sum()",
    "if isinstance(opts, KINDS):\n    x = x * opts.by",
    "if isinstance(opts, KINDS):\n    opts.a = opts.a + 1",
    "if isinstance(opts, KINDS):\n    opts.by = x.shape[0]",
    "if hasattr(opts, 'extra'):\n    x = x + opts.extra",
    "x = x * (2 if opts else 3)",
    "x = x + (3 if opts == 5 else 4)",
    "if isinstance(opts, KINDS) and opts.a is y:\n    x = x * 3",
    "if hasattr(opts, 'a'):\n    opts.a.add_(1)",
    "if hasattr(opts, '__dict__'):\n    x = x + len(opts.__dict__)",
    "z = opts\nif isinstance(z, KINDS):\n    z.a, z.by = z.a * 2, k",
    "if callable(opts):\n    x = x + opts()",
)


def _of(name: str, kind: str) -> tuple[str, ...]:
    return (
        f"made = {kind}(x, k)\nx = made.scaled()",
        f"made = {kind}(x)\nx = x * (2 if made else 3)",
        f"made = {kind}(x, 3)\nmade.a = made.a + made.by\nx = made.a",
        f"made = {kind}(x, 3)\nx = x + getattr(made, 'extra', 1)",
        f"x = x + {name}.scaled().sum()",
        f"x = x * (2 if {name} else 3)",
        f"{name}.by = x.shape[0]",
        f"{name}.a = {name}.a + 1",
        f"{name}.a.mul_(2)",
        f"x = x + ({name}.a is y)",
        f"x = x * getattr({name}, 'extra', 1)",
    )


BODY = (
    *lines("", *_ANY),
    *lines("GIVEN", *_of("GIVEN", "Given")),
    *lines("FIELDS", *_of("FIELDS", "Fields"), "x = x + (Fields(1, k) == Fields(1, 2))"),
    *lines(
        "LISTED",
        "x = x + len(LISTED.by)",
        "LISTED.by.append(k)",
        "LISTED.a = LISTED.a + LISTED.by[0]",
    ),
    *lines("NARROW", *_of("NARROW", "Narrow")),
    *lines(
        "GIVEN", "for name, each in vars(GIVEN).items():\n    x = x + (each if name == 'by' else 0)"
    ),
    *lines(
        "GIVEN", "GIVEN.__dict__['by'] = k", "own = GIVEN.__dict__\nGIVEN.by = 7\nx = x + own['by']"
    ),
)
"""Statements of a program."""


def _written(name: str, kind: str) -> tuple[str, ...]:
    behind = "self.__dict__['by']" if name != "NARROW" else "5"
    return (
        f"{name}.by = 4",
        f"{name}.a = torch.full((3,), 2.0)",
        f"{name} = {kind}(torch.ones(3) * 3, 2.5)",
        f"{kind}.scaled = lambda self: self.a * 5",
        f"{kind}.extra = 3",
        f"{kind}.__bool__ = lambda self: False",
        f"{kind}.__len__ = lambda self: 0",
        f"{kind}.__call__ = lambda self: 2",
        f"{kind}.__eq__ = lambda self, other: True\n{kind}.__hash__ = object.__hash__",
        (
            f"{kind}.__init__ = lambda self, a, by=2: (setattr(self, 'a', a), setattr(self, 'by', "
            "1), None)[-1]"
        ),
        f"{kind}.by = property(lambda self: {behind}, lambda self, value: None)",
        f"{kind}.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value)",
        f"{kind}.extra = 1\ndel {kind}.extra",
        f"{kind}.__bool__ = len\ndel {kind}.__bool__",
    )


CHANGES = (
    *lines("GIVEN", *_written("GIVEN", "Given"), "GIVEN.extra = 2", "call(t(3), t(2), opts=GIVEN)"),
    *lines(
        "GIVEN",
        "Given.__getattr__ = lambda self, name: len(name) if name[0] != '_' else "
        "object.__getattribute__(self, name)",
    ),
    *lines(
        "GIVEN",
        "GIVEN.__class__ = Fields",
        "GIVEN.__dict__['by'] = 6",
        "call(t(4), t(2), 2, opts=[GIVEN])",
    ),
    *lines(
        "GIVEN",
        "GIVEN.__dict__ = {'a': torch.ones(1), 'by': 3}",
        "call(t(2), GIVEN.a.reshape(-1, 1), opts=GIVEN)",
    ),
    *lines("FIELDS", *_written("FIELDS", "Fields"), "Fields.by = 9"),
    *lines("LISTED", "LISTED.by.append(2)", "LISTED.by = [3]", "call(t(3), t(2), opts=LISTED)"),
    *lines("FIELDS", "call(t(3), t(2), opts=FIELDS)", "call(t(3), t(2), opts={'b': FIELDS})"),
    *lines("NARROW", *_written("NARROW", "Narrow"), "call(t(3), t(2), opts=NARROW)"),
)
"""What happens to objects and their classes between calls."""

CALLS = (
    *(
        "call(t(3), t(2), opts=Given(t(2)))",
        "call(t(4), t(2), opts=Given(t(3), 3))",
        "call(t(5), t(3), opts=Given(t(1), 2.5))",
    ),
    *("a = t(4); call(a, a, opts=Given(a))", "a = t(3); call(t(2), a, 2, opts=Fields(a, 4))"),
    *("call(t(3), t(2), opts=Fields(t(2)))", "call(t(2), t(2), opts=Fields(t(6)[::2], True))"),
    *("call(t(3), t(2), opts=Narrow(t(2)))", "call(t(4), t(3), opts=Narrow(t(3), 3))"),
    *(
        "call(t(3), t(2), opts=[Given(t(2)), 1])",
        "call(t(3), t(2), opts={'a': Fields(t(2)), 'by': 2})",
    ),
    "o = Given(t(2)); o.extra = 2; call(t(3), t(2), opts=o)",
    "call(t(3), t(2), opts=types.SimpleNamespace(a=t(2), by=2))",
)
"""More calls, which are drawn where a program has to do with objects."""
