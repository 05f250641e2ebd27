"""What the fuzzer ``world`` makes programs of: things that hold state, statements that use them,
changes between calls.

Everything is source text, so that a counterexample is a script.
"""

from __future__ import annotations

import re

from tests.fuzz import worlds_of_objects
from tests.fuzz.lines import lines

THINGS = {
    "SCALE": "SCALE = 2.0",
    "FLAG": "FLAG = True",
    "LABEL": "LABEL = 'a'",
    "COUNT": "COUNT = 0",
    "NUMBERS": "NUMBERS = [2, 3]",
    "TABLE": 'TABLE = {"a": 2, "b": 3}',
    "NESTED": 'NESTED = {"in": [1, {"deep": 2.0}], "pair": (1, [5])}',
    "NAMES": "NAMES = {1, 2}",
    "QUEUE": "QUEUE = deque([1, 2, 3])",
    "CONFIG": "@dataclass\nclass Inner:\n    shift: float = 0.5\n@dataclass\nclass Config:\n    "
    "gain: float = 2.0\n"
    "    inner: Inner = field(default_factory=Inner)\nCONFIG = Config()",
    "SLOT": 'class Slotted:\n    __slots__ = ("value", "other")\n    def __init__(self):\n        '
    "self.value = 2\n"
    "SLOT = Slotted()",
    "BOX": "class Box:\n    def __init__(self):\n        self.value = 3\n    def __call__(self):\n"
    "        return self.value\n"
    "    def __len__(self):\n        return self.value\n    @property\n"
    "    def double(self):\n        return self.value * 2\n"
    "BOX = Box()",
    "SETTINGS": "class SETTINGS:\n    level = 1",
    "ACT": "ACT = F.relu",
    "ARRAY": "ARRAY = np.arange(3.0)",
    "CHAIN": "CHAIN = collections.ChainMap({'a': 2}, {'b': 3})",
    "COUNTS": "COUNTS = collections.Counter(a=2)",
    "CONTEXT": "CONTEXT = contextvars.ContextVar('context', default=2)",
    "PAIR": "Pair = collections.namedtuple('Pair', 'left right')\nPAIR = Pair(2, [3])",
    "memo": "@functools.lru_cache\ndef memo(n):\n    return n * FACTOR\nFACTOR = 2",
    "OPEN": "class Open:\n    def __init__(self):\n        self.depth = 0\n    def "
    "__enter__(self):\n"
    "        self.depth += 1\n        return self.depth\n    def __exit__(self, *_):\n        "
    "self.depth -= 1\n"
    "OPEN = Open()",
    "W": "W = torch.arange(3.0) + 1",
    "GEN": "GEN = torch.Generator().manual_seed(1)",
    "RNG": "RNG = random.Random(1)",
    "ITER": "ITER = iter(range(1000))",
    "KEPT": "KEPT = []",
    "LOG": "LOG = []",
    "cell": "def make_cell():\n    held = 2\n    def get():\n        return held\n"
    "    def put(value):\n        nonlocal held\n"
    "        held = value\n    return get, put\nget_cell, put_cell = make_cell()",
    "helper": "def helper(x, by=2, *, plus=1):\n    return x * by + plus",
    "partial": "part = functools.partial(torch.mul, other=3)",
    "BAG": "class Bag:\n    def __init__(self, *items):\n        self.items = list(items)\n"
    "    def __getitem__(self, i):\n        return self.items[i]\n"
    "    def __iter__(self):\n        return iter(self.items)\n"
    "    def __bool__(self):\n        return len(self.items) > 2\n"
    "    def __contains__(self, item):\n        return item in self.items\n"
    "    def __float__(self):\n        return float(self.items[-1])\n"
    "    def __getattr__(self, name):\n        if name[0] == '_' or name == 'items':\n"
    "            raise AttributeError(name)\n        return self.items[0] + len(name)\n"
    "    def __rmul__(self, other):\n        return other * self.items[1]\nBAG = Bag(2, 3)",
    "THIN": "@dataclass(slots=True)\nclass Thin:\n    gain: float = 2.0\nTHIN = Thin()",
    "scaled": "class Scaled:\n    by = 2\n    def __init__(self, fn):\n        self.fn = fn\n      "
    "  self.calls = 0\n"
    "    def __call__(self, x):\n        return self.fn(x) * self.by\n"
    "@Scaled\ndef scaled(x):\n    return x + 1",
    "MANY": "MANY = list(range(1200))",
    "USER": "USER = collections.UserDict(a=2)",
    "PROXY": "BEHIND = {'a': 2}\nPROXY = types.MappingProxyType(BEHIND)",
    "BYTES": "BYTES = bytearray(b'23')",
    "NPGEN": "NPGEN = np.random.default_rng(1)",
    "DICE": "class Dice:\n    rng = random.Random(3)\n    def __call__(self):\n        return "
    "self.rng.random()\n"
    "DICE = Dice()",
    "TICKS": "TICKS = itertools.count(2)",
    "OUT": "OUT = io.StringIO()",
    "ELSEWHERE": "ELSEWHERE = types.ModuleType('fuzzed_elsewhere')\nELSEWHERE.K = 2\n"
    "sys.modules['fuzzed_elsewhere'] = ELSEWHERE",
    "HELD": "HELD = {'w': torch.ones(3), 'more': [torch.zeros(3)]}",
    "cached": "@functools.lru_cache\ndef cached(n):\n    return torch.full((3,), float(n))",
    "NET": "class Leaf(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.weight = nn.Parameter(torch.ones(3))\n        self.scale = 2.0\n        "
    "self.calls = 0\n"
    "    def forward(self, x):\n        return x * self.weight * self.scale\n"
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.parts = nn.ModuleList([Leaf(), Leaf()])\n        self.drop = nn.Dropout(0.5)\n"
    '        self.register_buffer("seen", torch.zeros(3))\n        self.flag = True\n        '
    "self.cache = None\n"
    "        self.sizes = [1]\n"
    "    def forward(self, x):\n        for part in self.parts:\n            x = part(x)\n"
    "        return self.drop(x) if self.flag else x + self.seen\n"
    "def double_hook(module, args, result):\n    return result * 2\n"
    "def plus_hook(module, args):\n    return (args[0] + 1,)\nNET = Net()",
    **worlds_of_objects.THINGS,
}
"""Definitions by name; a line says which it needs."""

PRELUDE = (
    "import collections, contextvars, copy, functools, io, itertools, os, random, sys, types\n"
    "from collections import deque\nfrom dataclasses import dataclass, field\nfrom decimal import "
    "Decimal\n"
    "import numpy as np\nimport torch\nimport torch.nn.functional as F\nimport "
    "torch.utils.checkpoint\n"
    "from torch import nn\n\n"
    "def t(n, by=1.0, grad=False):\n"
    "    return ((torch.arange(n * 3.0) - 1.25) * by).reshape(n, 3).requires_grad_(grad)\n"
    "\n@dataclass(frozen=True)\nclass Frozen:\n    value: object\n    note: object = "
    "field(default=0, compare=False)\n" + worlds_of_objects.CLASSES
)


FAILS = lines(
    "",
    "x = x + torch.ones(12)[y.sum(0).long().abs()]",
    "torch.linalg.cholesky(torch.eye(2) * (x.shape[0] - 2.5))",
)
"""Statements that fail by what tensors hold, which no trace sees; not beside ``IN_PLACE``:
docs/sharp-bits/state.md.
"""
IN_PLACE = re.compile(r"\w_\(|z\[:1\] = ")

BODY = (
    *lines(
        "",
        "x = x + k",
        "x = x * 2",
        "x = x[: max(k, 1)]",
        "x = torch.cat([x, y])",
        "x = x.t().contiguous().t()",
    ),
    *lines(
        "",
        "x = x.flip(0)",
        "x = x + y.sum()",
        "x = x.sum(0, keepdim=True) + x",
        "x = x.reshape(-1, 3)",
    ),
    *lines("", "if x.shape[0] > 2:\n    x = x * 3", "if x.shape[0] % 2:\n    x = x - 1"),
    *lines(
        "",
        "if x.shape[0] == y.shape[0]:\n    x = x + y",
        "if k:\n    x = -x",
        "if x is y:\n    x = x * 5",
    ),
    *lines("", "if x.requires_grad:\n    x = x * 7", "if torch.is_grad_enabled():\n    x = x + 2"),
    *lines(
        "", "if x.sum() > 0:\n    x = x * 2", "x = x * float(y.numel() + 1)", "x = x + x.shape[0]"
    ),
    *lines(
        "",
        'if isinstance(opts, dict):\n    x = x * opts["by"]',
        "if opts is not None:\n    x = x + len(opts)",
    ),
    *lines("", "x = x + torch.rand(3)", "y = y.clone()\ny.mul_(2)", "x = x.clone()\nx[:1] = 0"),
    *lines("", "if not y.requires_grad:\n    y.add_(1)", "if not x.requires_grad:\n    x.mul_(2)"),
    *lines("", "x = x + random.random()", "x = x + np.random.rand()"),
    *lines(
        "", "if x.shape[0] == 4:\n    raise ValueError('four')", "assert x.shape[0] != 5, 'five'"
    ),
    *lines("", "try:\n    x = x + torch.ones(4)\nexcept RuntimeError:\n    x = x + 4"),
    *FAILS,
    *lines(
        "",
        "if k == 2:\n    raise LookupError('two')",
        "x = x + x.view(-1, 9).sum()",
        "y[:, 0].add_(1)",
    ),
    *lines("FLAG", "if type(FLAG) is int:\n    raise RuntimeError('flag')"),
    *lines(
        "LABEL",
        "x = x + len(LABEL)",
        "if LABEL.endswith('b'):\n    x = x * 2",
        "x = x + {'a': 1}.get(LABEL, 3)",
    ),
    *lines("LABEL", "global LABEL\nLABEL = LABEL + 'c'"),
    *lines("", "print('ran')"),
    *lines(
        "",
        'if isinstance(opts, dict):\n    opts["seen"] = 1',
        "if isinstance(opts, list):\n    opts.append(1)",
    ),
    *lines("", 'x = x + int(os.environ.get("WORLD_FUZZ", 1))'),
    *lines(
        "",
        "if type(x) is torch.Tensor:\n    x = x + 1",
        "if isinstance(x, nn.Parameter):\n    x = x * 2",
    ),
    *lines(
        "",
        "z = copy.deepcopy(y)\nz.mul_(3)\nx = x + z.sum()",
        "x = x * {y: 3}[y]",
        "x = x + (id(x) == id(y))",
    ),
    *lines(
        "",
        "x = x + y.nbytes",
        "x = x + round(x.shape[0] + 7, -1)",
        "x = x + int(x.shape[0] / 3) + y.stride()[0]",
    ),
    *lines(
        "",
        "z = x.reshape(-1)\nif not x.requires_grad:\n    z[:1] = 7",
        "x = x + y.unfold(1, 2, 1).sum()",
    ),
    *lines(
        "",
        "x = torch.roll(x, 1, 0)",
        "x = x + y.conj().is_conj()",
        "if y.is_inference():\n    x = x * 9",
    ),
    *lines("", "torch._check(x.shape[0] != 6, lambda: f'six, not {x.shape[0]} and {y.shape}')"),
    *lines(
        "",
        "torch.set_grad_enabled(False)",
        "if getattr(y, 'tagged', 0):\n    x = x + y.tagged",
        "y.tagged = len(y)",
    ),
    *lines(
        "",
        "if isinstance(opts, Frozen):\n    x = x * opts.value + opts.note",
        "x = x + (opts == 1 and 3)",
    ),
    *lines(
        "",
        "if opts is not None and hasattr(opts, '__next__'):\n    x = x + next(opts)",
        "x = x + len(repr(opts))",
    ),
    *lines(
        "",
        "if isinstance(opts, (range, frozenset)):\n    x = x * sum(opts)",
        "y = y.clone()\ny.data.mul_(k + 1)",
    ),
    *lines("SCALE", "x = x * SCALE", "if SCALE > 2:\n    x = x + 1"),
    *lines("SCALE", 'x = x * globals()["SCALE"]'),
    *lines("FLAG", "x = x + 1 if FLAG else x - 1"),
    *lines(
        "COUNT", "x = x + COUNT", "global COUNT\nCOUNT += 1", "global COUNT\nCOUNT = x.shape[0]"
    ),
    *lines(
        "NUMBERS",
        "x = x * NUMBERS[0]",
        "x = x + len(NUMBERS)",
        "for n in NUMBERS:\n    x = x + n",
        "x = x + sum(NUMBERS)",
    ),
    *lines(
        "NUMBERS", "if 5 in NUMBERS:\n    x = -x", "NUMBERS[0] += 1", "NUMBERS.append(len(NUMBERS))"
    ),
    *lines("LOG", "LOG.append(1)"),
    *lines(
        "TABLE",
        'x = x + TABLE["a"]',
        'x = x + TABLE.get("c", 7)',
        'if "c" in TABLE:\n    x = x * 2',
    ),
    *lines(
        "TABLE",
        "for key, value in TABLE.items():\n    x = x * value",
        'TABLE["n"] = TABLE.get("n", 0) + 1',
    ),
    *lines(
        "NESTED",
        'x = x + NESTED["in"][1]["deep"]',
        'x = x * NESTED["pair"][1][0]',
        'NESTED["in"][0] += 1',
    ),
    *lines("NAMES", "if 2 in NAMES:\n    x = -x", "x = x + len(NAMES)", "NAMES.add(9)"),
    *lines(
        "QUEUE", "x = x + QUEUE[0]", "x = x + len(QUEUE)", "for each in QUEUE:\n    x = x + each"
    ),
    *lines("QUEUE", "QUEUE.append(1)", "if QUEUE:\n    x = x + QUEUE.popleft()"),
    *lines("CONFIG", "x = x * CONFIG.gain", "x = x + CONFIG.inner.shift", "CONFIG.gain += 1"),
    *lines("CONFIG", 'x = x * getattr(CONFIG, "ga" + "in")', "x = x + (CONFIG == Config())"),
    *lines("SLOT", "x = x + SLOT.value", 'if hasattr(SLOT, "other"):\n    x = x * 2'),
    *lines("SLOT", "SLOT.value += 1"),
    *lines("BOX", "x = x + BOX.value", "BOX.value += 1"),
    *lines("BOX", "x = x + BOX()", "x = x + len(BOX)", "x = x + BOX.double"),
    *lines("SETTINGS", "x = x + SETTINGS.level"),
    *lines(
        "SETTINGS",
        "SETTINGS.level += 1",
        "SETTINGS.level = 1",
        "setattr(SETTINGS, 'level', x.shape[0])",
    ),
    *lines(
        "SCALE FLAG",
        "global SCALE\nSCALE = 2.0",
        "global FLAG\nFLAG = True",
        "global FLAG\nFLAG = x.shape[0] > 2",
    ),
    *lines(
        "CONFIG SLOT BOX",
        "CONFIG.gain = 2.0",
        "SLOT.value = 2",
        "BOX.value = len(x)",
        "del BOX.value",
    ),
    *lines("ACT", "x = ACT(x)"),
    *lines(
        "ARRAY",
        "x = x + ARRAY[1]",
        "x = x + torch.from_numpy(ARRAY)",
        "x = x * len(ARRAY)",
        "ARRAY[0] += 1",
    ),
    *lines("CHAIN", "x = x + CHAIN['b']", "CHAIN['a'] = 2", "if 'c' in CHAIN:\n    x = -x"),
    *lines(
        "COUNTS",
        "x = x + COUNTS['a']",
        "x = x + COUNTS['z']",
        "COUNTS['a'] += 1",
        "COUNTS.update('ab')",
    ),
    *lines("CONTEXT", "x = x + CONTEXT.get()", "CONTEXT.set(CONTEXT.get() + 1)", "CONTEXT.set(2)"),
    *lines(
        "PAIR",
        "x = x + PAIR.left",
        "x = x * PAIR.right[0]",
        "left, (right,) = PAIR\nx = x + left - right",
    ),
    *lines("memo", "x = x + memo(2)", "x = x + memo(x.shape[0])", "memo.cache_clear()"),
    *lines(
        "OPEN",
        "with OPEN as depth:\n    x = x + depth",
        "with OPEN:\n    if k:\n        x = x + OPEN.depth",
    ),
    *lines("W", "x = x + W", "x = x * W[0]", "W.add_(1)", "x = x.detach()\nW.mul_(x.sum())"),
    *lines("GEN", "x = x + torch.rand(3, generator=GEN)", "x = x + (GEN.initial_seed() % 7)"),
    *lines("RNG", "x = x + RNG.random()"),
    *lines("ITER", "x = x + next(ITER)"),
    *lines(
        "KEPT",
        "KEPT.append(x.detach())",
        "KEPT[:] = [x.detach()]",
        "if KEPT:\n    x = x + KEPT[-1].sum()",
    ),
    *lines("cell", "x = x + get_cell()", "put_cell(get_cell() + 1)"),
    *lines("helper", "x = helper(x)", "x = helper(x, plus=3)"),
    *lines("helper", "helper.calls = getattr(helper, 'calls', 0) + 1"),
    *lines("partial", "x = part(x)"),
    *lines(
        "BAG",
        "x = x + BAG[0]",
        "for each in BAG:\n    x = x + each",
        "if BAG:\n    x = x * 2",
        "x = x * float(BAG)",
    ),
    *lines(
        "BAG",
        "if 3 in BAG:\n    x = -x",
        "x = x + BAG.abc",
        "x = x.shape[0] * BAG + x",
        "BAG.items.append(x.shape[0])",
    ),
    *lines("THIN", "x = x * THIN.gain", "THIN.gain += 1", "x = x + (THIN == Thin())"),
    *lines("scaled", "x = scaled(x)", "scaled.calls += 1", "x = x + scaled.calls"),
    *lines("MANY", "x = x + MANY[1100]", "x = x + sum(MANY) % 7", "MANY[1100] += 1"),
    *lines("USER", "x = x * USER['a']", "USER['n'] = USER.get('n', 0) + 1", "x = x + len(USER)"),
    *lines("PROXY", "x = x * PROXY['a']", "x = x + sum(PROXY.values())"),
    *lines("BYTES", "x = x + BYTES[0]", "BYTES.append(1)", "x = x + len(BYTES)"),
    *lines("NPGEN", "x = x + NPGEN.random()", "x = x + NPGEN.integers(9)"),
    *lines("DICE", "x = x + DICE()", "TICK = DICE\nx = x * TICK()"),
    *lines("TICKS", "x = x + next(TICKS)"),
    *lines(
        "OUT", "print('row', file=OUT)", "OUT.write(str(x.shape[0]))", "x = x + len(OUT.getvalue())"
    ),
    *lines(
        "ELSEWHERE",
        "from fuzzed_elsewhere import K\nx = x + K",
        "x = x + sys.modules['fuzzed_elsewhere'].K",
    ),
    *lines(
        "HELD",
        "x = x + HELD['w']",
        "HELD['w'].add_(1)",
        "x = x + HELD['more'][0].sum()",
        "HELD['last'] = x.detach()",
    ),
    *lines("ARRAY", "x = x + torch.tensor(ARRAY)", "x = x * float(ARRAY.sum())"),
    *lines("cached", "x = x + cached(2)", "x = x + cached(x.shape[0])"),
    *lines(
        "helper",
        "helper.kept = x.detach()",
        "if hasattr(helper, 'kept'):\n    x = x + helper.kept.sum()",
    ),
    *lines("SLOT", "SLOT.other = x.detach()"),
    *lines(
        "NET",
        "x = x * getattr(NET.parts[0].weight, 'gain', 2)",
        "x = x + (x.data_ptr() == NET.seen.data_ptr())",
    ),
    *lines(
        "NET", "x = NET(x)", "x = NET.parts[0](x)", "x = x + NET.seen", "x = x * NET.parts[1].scale"
    ),
    *lines(
        "NET",
        "x = NET.eval()(x)",
        "x = x + len(NET.parts)",
        "NET.seen.add_(1)",
        "NET.flag = not NET.flag",
    ),
    *lines(
        "NET",
        "NET.parts[0].calls += 1",
        "NET.cache = x.detach()",
        "if NET.cache is not None:\n    x = x + NET.cache.sum()",
    ),
    *lines("NET", "x = x + sum(NET.sizes)", "NET.last = x.shape[0]"),
    *lines(
        "NET",
        "NET.sizes.append(x.shape[0])",
        "NET.train()",
        "NET.parts[0].eval()",
        "NET.zero_grad()",
        "NET.parts[1].requires_grad_(True)",
    ),
    *lines(
        "NET",
        "x = torch.utils.checkpoint.checkpoint(NET, x, use_reentrant=False)",
        "x = x + next(NET.parameters())",
    ),
    *lines("NET", "for name, each in NET.named_parameters():\n    x = x + each.sum().detach()"),
    *worlds_of_objects.BODY,
)
"""Statements of ``program(x, y, k=1, opts=None)``."""

RESULTS = ("x", "(x, y)", '{"x": x, "n": x.shape[0]}', "[x, x[:1]]", "(x, None, k, 'text')")

(NEW_LABEL,) = lines("LABEL", "LABEL = LABEL + 'b'")
"""State that no symbol stands for, and that is new each time."""

CHANGES = (
    NEW_LABEL,
    *lines("LABEL", "LABEL = 'a'"),
    *lines(
        "SCALE", "SCALE = 3.0", "SCALE = 2", "SCALE = float(repr(float(SCALE)))", "SCALE = -0.0"
    ),
    *lines("FLAG", "FLAG = not FLAG", "FLAG = 1"),
    *lines("COUNT", "COUNT = 7", "COUNT = 0"),
    *lines(
        "NUMBERS",
        "NUMBERS[0] = 9",
        "NUMBERS.append(5)",
        "NUMBERS.reverse()",
        "NUMBERS = list(NUMBERS)",
        "NUMBERS = [4]",
    ),
    *lines(
        "TABLE",
        'TABLE["a"] = 9',
        'TABLE["c"] = 4',
        'TABLE.pop("c", None)',
        "TABLE = dict(reversed(TABLE.items()))",
    ),
    *lines(
        "NESTED",
        'NESTED["in"][1]["deep"] = 3.0',
        'NESTED["pair"][1][0] = 6',
        'NESTED["in"] = [1, {"deep": 4.0}]',
    ),
    *lines("NAMES", "NAMES.add(2)", "NAMES.discard(2)", "NAMES = {3}"),
    *lines("QUEUE", "QUEUE.appendleft(4)", "QUEUE.rotate(1)", "QUEUE.extend([7, 8])"),
    *lines(
        "CONFIG",
        "CONFIG.gain = 3.0",
        "CONFIG.inner.shift = 1.5",
        "CONFIG.inner = Inner(2.5)",
        "CONFIG = Config()",
    ),
    *lines("SLOT", "SLOT.value = 5", "SLOT.other = 1", "SLOT = Slotted()"),
    *lines("BOX", "BOX.value = 5", "BOX = Box()", "BOX.extra = 1"),
    *lines("BOX", "Box.__call__ = lambda self: 11"),
    *lines("SETTINGS", "SETTINGS.level = 4"),
    *lines("ACT", "ACT = torch.tanh", "ACT = lambda x: x - 3"),
    *lines(
        "W",
        "W = torch.ones(3)",
        "W.mul_(2)",
        "W.data = torch.full((3,), 4.0)",
        "W.requires_grad_()",
    ),
    *lines("GEN", "GEN.manual_seed(3)", "GEN = torch.Generator().manual_seed(5)"),
    *lines("RNG", "RNG.seed(3)", "RNG = random.Random(2)"),
    *lines("ITER", "ITER = iter([7] * 100)", "next(ITER)"),
    *lines("KEPT", "KEPT.clear()", "KEPT.append(torch.ones(1))"),
    *lines("cell", "put_cell(9)"),
    *lines("helper", "helper.__defaults__ = (5,)", "helper.__kwdefaults__ = {'plus': 6}"),
    *lines("helper", "def helper(x, by=2, *, plus=1):\n    return x - by"),
    *lines("partial", "part = functools.partial(torch.mul, other=4)"),
    *lines("partial", "part.keywords['other'] = 5"),
    *lines(
        "NET",
        "NET.eval()",
        "NET.train()",
        "NET.drop.eval()",
        "NET.flag = not NET.flag",
        "NET.parts[0].scale = 5.0",
    ),
    *lines(
        "NET",
        "NET.parts[1] = Leaf()",
        "NET.parts.append(Leaf())",
        "NET.parts[0].weight = nn.Parameter(torch.ones(3) * 3)",
    ),
    *lines(
        "NET",
        "NET.parts[0].weight.data.mul_(2)",
        "NET.seen.fill_(2)",
        "NET.seen = torch.ones(3)",
        "NET.cache = None",
    ),
    *lines(
        "NET",
        "NET.parts[0].weight.requires_grad_(False)",
        "NET.to(torch.float64)",
        "NET.sizes = [2, 3]",
        "NET = Net()",
    ),
    *lines(
        "NET",
        "NET.parts[0].register_forward_hook(double_hook)",
        "NET.register_forward_pre_hook(plus_hook)",
    ),
    *lines("NET", "NET.parts[0]._forward_hooks.clear()", "nn.init.zeros_(NET.parts[1].weight)"),
    *lines("NET", "NET.parts[0].forward = lambda x: x - 9", "Leaf.forward = lambda self, x: x - 8"),
    *lines(
        "ARRAY",
        "ARRAY[1] = 9",
        "ARRAY = np.arange(3.0) * 2",
        "ARRAY = ARRAY[::-1]",
        "ARRAY.flags.writeable = False",
    ),
    *lines(
        "CHAIN", "CHAIN['b'] = 9", "CHAIN.maps[1]['b'] = 8", "CHAIN = CHAIN.new_child({'c': 1})"
    ),
    *lines("COUNTS", "COUNTS['a'] = 9", "COUNTS['z'] += 1", "COUNTS.clear()"),
    *lines("CONTEXT", "CONTEXT.set(7)"),
    *lines("PAIR", "PAIR.right[0] = 9", "PAIR = Pair(4, [5])", "PAIR = PAIR._replace(left=2.0)"),
    *lines("memo", "FACTOR = 3\nmemo.cache_clear()", "memo(3)"),
    *lines("OPEN", "OPEN.depth = 4", "OPEN = Open()"),
    *lines(
        "BAG",
        "BAG.items.append(9)",
        "BAG.items[0] = 7",
        "BAG = Bag(4, 5, 6)",
        "Bag.__bool__ = lambda self: True",
    ),
    *lines("BAG", "Bag.__getitem__ = lambda self, i: 6", "Bag.__float__ = lambda self: 2.5"),
    *lines("THIN", "THIN.gain = 3.0", "THIN = Thin(4.0)", "THIN.gain = 2"),
    *lines("scaled", "scaled.by = 3", "Scaled.by = 4", "scaled.fn = lambda x: x - 1"),
    *lines("MANY", "MANY[1100] = 5", "MANY.append(1)", "MANY = list(range(1300))"),
    *lines("USER", "USER['a'] = 9", "USER.data['a'] = 8", "USER = collections.UserDict(a=2.0)"),
    *lines("PROXY", "BEHIND['a'] = 9", "BEHIND['b'] = 1"),
    *lines("BYTES", "BYTES[0] = 9", "BYTES = bytearray(b'4')"),
    *lines("NPGEN", "NPGEN = np.random.default_rng(2)", "NPGEN.random()"),
    *lines("DICE", "DICE.rng.seed(5)", "Dice.rng = random.Random(9)"),
    *lines("TICKS", "TICKS = itertools.count(5, 2)", "next(TICKS)"),
    *lines("OUT", "OUT.write('more')", "OUT = io.StringIO()"),
    *lines("ELSEWHERE", "ELSEWHERE.K = 3"),
    *lines(
        "HELD",
        "HELD['w'] = torch.ones(3) * 2",
        "HELD['w'].data = torch.zeros(3)",
        "HELD['w'].resize_(3).fill_(5)",
    ),
    *lines("HELD", "HELD['more'][0].mul_(2).add_(1)", "call(HELD['w'].reshape(1, 3), t(2))"),
    *lines("cached", "cached.cache_clear()", "cached(3)"),
    *lines(
        "helper",
        "helper.__code__ = (lambda x, by=2, *, plus=1: x * 5).__code__",
        "helper.kept = torch.ones(2)",
    ),
    *lines(
        "W",
        "call(W.reshape(1, 3), t(2))",
        "call(t(2), W.reshape(1, 3), opts=W)",
        "W = nn.Parameter(W.detach() + 1)",
    ),
    *lines(
        "NET", "call(NET.seen.reshape(1, 3), t(2))", "call(NET.parts[0].weight.reshape(1, 3), t(1))"
    ),
    *lines(
        "NET",
        "NET.parts[0].weight.gain = 3",
        "nn.modules.module.register_module_forward_hook(double_hook)",
    ),
    *lines(
        "NET",
        "nn.modules.module.register_module_forward_pre_hook(plus_hook)",
        "NET = copy.deepcopy(NET)",
    ),
    *lines("", "torch.manual_seed(2)", "random.seed(2)", "np.random.seed(2)"),
    *lines("", 'os.environ["WORLD_FUZZ"] = "3"'),
    *worlds_of_objects.CHANGES,
)
"""What happens to the world between calls."""

CALLS = (
    *("call(t(3), t(2))", "call(t(4), t(2), 2)", "call(t(5), t(5), k=3)", "call(t(1), t(0))"),
    *(
        "call(t(0), t(3), 0)",
        "call(t(2), t(2), True)",
        "call(t(6), t(1), 1.0)",
        "call(t(6)[::2], t(2))",
    ),
    *(
        "a = t(4); call(a, a)",
        "a = t(5); call(a, a[:3])",
        "a = t(6); call(a[:3], a[3:], 2)",
        "a = t(4); call(a[1:], a)",
    ),
    *(
        "call(t(3, grad=True), t(2))",
        "call(t(3).double(), t(2).double())",
        "call(t(3, -1.0), t(2))",
    ),
    *(
        'call(t(3), t(2), opts={"by": 3})',
        "call(t(4), t(2), opts=[1, 2])",
        "call(t(3), t(2), opts=(1,))",
    ),
    *("with torch.no_grad(): call(t(3), t(2))", "with torch.inference_mode(): call(t(4), t(3))"),
    *(
        "call(t(3), t(2), opts=iter([1, 2, 3]))",
        "call(t(3), t(2), opts=Frozen(2))",
        "call(t(3), t(2), opts=Frozen(2.0))",
    ),
    *(
        "call(t(3), t(2), opts=Frozen(2, 3))",
        "call(t(3), t(2), opts=frozenset({1}))",
        "call(t(3), t(2), opts=frozenset({1.0}))",
    ),
    *(
        "call(t(3), t(2), opts=Decimal('1.0'))",
        "call(t(3), t(2), opts=Decimal('1.00'))",
        "call(t(3), t(2), opts={1: 2})",
    ),
    *(
        "call(t(3), t(2), opts={True: 2})",
        "call(t(3), t(2), opts=range(3))",
        "call(t(3), t(2), opts=range(0, 3, 1))",
    ),
    *(
        "call(t(3), t(2), -0.0)",
        "call(t(3), t(2), 0.0)",
        "call(nn.Parameter(t(3)), t(2))",
        "call(t(3), t(2), opts=-0.0)",
    ),
    *(
        "a = t(3); a.tagged = 4; call(t(2), a)",
        "with torch.inference_mode(): a = t(2)\ncall(t(4), a)",
    ),
    *("call(t(3), torch.ones(1, 3).expand(2, 3))", "call(t(3), torch._neg_view(t(2)))"),
    *(
        "in_thread(t(4), t(3), 2)",
        "in_thread(t(2), t(2))",
        "call(t(7), t(3), -1)",
        "call(t(8), t(8), 2)",
    ),
)
"""Calls; ``in_thread`` in a thread of its own."""
