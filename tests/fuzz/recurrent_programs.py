"""Random programs with recurrent layers, as text: layers that are shared, states from everywhere,
gradients inside.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WIDTH = 4  # of inputs, states and outputs of all layers, so that each fits behind each
SPACE = {
    "torch": torch,
    "nn": nn,
    "F": functional,
    "pack": pack_padded_sequence,
    "pad": pad_packed_sequence,
}
IMPORTS = (
    "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    "from torch.nn.utils.rnn import pack_padded_sequence as pack, pad_packed_sequence as pad"
)
ENDS = (
    "grad",
    "grad",
    "backward",
    "backward",
    "step",
    "step",
    "twice",
    "results",
    "results",
    "loss",
)
WRITES = (
    "{0}.mul_(2)",
    "{0}[0].sin_()",
    "{0}.add_(v.sum())",
    "{0}[..., :2].mul_({0}[..., 2:4])",
    "{0}.copy_({0} * 2)",
    "{0}.transpose(0, 1)[:1].zero_()",
    "{0}.flatten()[:3].add_(1)",
    "{0}[0] = v.mean()",
)
"""What is written to a result, in place."""


@attrs.frozen
class Layer:
    """A recurrent net: the name of its class, what it is made with, and how many of its states lie
    on each other.
    """

    name: str
    kind: str
    flags: tuple[str, ...]
    deep: int  # layers times ways
    ways: int
    cells: int  # the width of an LSTM's cells
    training: bool

    def text(self) -> str:
        """The line that makes it."""
        made = f"{self.name} = nn.{self.kind}({', '.join(self.flags)}).to(dtype)"
        return made if self.training else f"{made}.eval()"


@attrs.frozen
class Taken:
    """A tensor of the program that a layer can be given: its name, and how long it is, as text."""

    name: str
    length: str


@attrs.frozen
class RecurrentProgram:
    """A function ``build(cast=True) -> (program, weights)`` as text, and what the program's
    arguments are.

    ``cast`` says whether its autocast, if it has one, is on.

    Attributes:
        lines: of the text.
        states: the arguments behind the input and the lengths: their number of layers and their
            width.
        first: whether the batch comes first.
        batched: whether there is a batch.
        asks: whether the caller wants gradients of the arguments.
        end: what the program does with its loss.
        casts: whether autocast is on around its layers.
    """

    lines: tuple[str, ...]
    states: tuple[tuple[str, int, int], ...]
    first: bool
    batched: bool
    asks: bool
    dtype: str
    end: str
    casts: bool

    def source(self) -> str:
        """The function as text."""
        return "\n".join(self.lines)

    def build(self, cast: bool = True) -> tuple[Callable[..., Any], list[torch.Tensor]]:
        """The program with weights of its own, always the same."""
        space: dict[str, Any] = dict(SPACE)
        exec(compile(self.source(), "<program>", "exec"), space)
        made: tuple[Callable[..., Any], list[torch.Tensor]] = space["build"](cast)
        return made

    def call(self, batch: int, length: int, seed: int) -> str:
        """The lines that make the arguments, as text."""
        sizes = f"{length}, {WIDTH}"
        if self.batched:
            sizes = f"{batch}, {sizes}" if self.first else f"{length}, {batch}, {WIDTH}"
        wish = ".requires_grad_()" if self.asks else ""
        lines = [
            f"torch.manual_seed({seed})",
            f"x = torch.randn({sizes}, dtype={self.dtype}){wish}",
        ]
        lines.append(
            f"lengths = torch.randint(1, {length + 1}, ({batch},)); lengths[-1] = {length}"
        )
        for name, deep, width in self.states:
            shape = f"{deep}, {batch}, {width}" if self.batched else f"{deep}, {width}"
            lines.append(f"{name} = torch.randn({shape}, dtype={self.dtype}){wish}")
        return "\n".join(lines)

    def make(self, batch: int, length: int, seed: int) -> list[torch.Tensor]:
        """The arguments at these sizes."""
        space: dict[str, Any] = dict(SPACE)
        exec(self.call(batch, length, seed), space)
        return [space[name] for name in self.names]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return "x", "lengths", *(name for name, _, _ in self.states)


class _Grower:
    """Writes one program, line by line."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.first = rng.random() < 0.5
        self.batched = rng.random() < 0.85
        self.dtype = rng.choice(("torch.float64", "torch.float64", "torch.float32"))
        self.layers = [self.layer(number) for number in range(rng.choice((1, 1, 2, 2, 3)))]
        self.lines: list[str] = []
        self.pool = [Taken("x", "n")]
        self.outputs: list[str] = []  # what the loss may take
        self.given: dict[str, tuple[int, int]] = {}
        self.left: dict[str, str] = {}  # by layer: its last state
        self.retained: list[str] = []
        self.count = 0

    def layer(self, number: int) -> Layer:
        rng = self.rng
        kind = rng.choice(("LSTM", "LSTM", "GRU", "RNN"))
        deep, ways = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 2))
        projects = kind == "LSTM" and rng.random() < 0.25
        flags = [str(WIDTH), str(WIDTH + 1 if projects else WIDTH), str(deep)]
        flags += ["proj_size=4"] if projects else []
        flags += ["bidirectional=True"] if ways == 2 else []
        flags += ["batch_first=True"] if self.first else []
        flags += ["bias=False"] if rng.random() < 0.15 else []
        flags += ["nonlinearity='relu'"] if kind == "RNN" and rng.random() < 0.5 else []
        drops = deep > 1 and rng.random() < 0.3
        flags += ["dropout=0.5"] if drops else []
        training = not drops or rng.random() < 0.5
        cells = WIDTH + 1 if projects else WIDTH
        return Layer(f"net{number}", kind, tuple(flags), deep * ways, ways, cells, training)

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    @property
    def time(self) -> int:
        return 1 if self.first and self.batched else 0

    def along(self, cut: str) -> str:
        """An index of the steps."""
        return f"[:, {cut}]" if self.time else f"[{cut}]"

    # --- states -----------------------------------------------------------------------------------

    def state(self, layer: Layer, taken: Taken) -> str:
        """The text of a layer's first states, behind a comma; none for zeros."""
        rng = self.rng
        if rng.random() < 0.35:
            return ""
        if layer.name in self.left and rng.random() < 0.4:
            return f", {self.left[layer.name]}"
        if layer.kind != "LSTM":
            return f", {self.one_state(layer, taken, WIDTH, 'h')}"
        if layer.cells == WIDTH and rng.random() < 0.35:
            name = self.new("s")
            self.lines.append(f"{name} = {self.one_state(layer, taken, WIDTH, 'h')}")
            return f", ({name}, {name})"
        return (
            f", ({self.one_state(layer, taken, WIDTH, 'h')}, "
            f"{self.one_state(layer, taken, layer.cells, 'c')})"
        )

    def one_state(self, layer: Layer, taken: Taken, width: int, letter: str) -> str:
        rng, deep = self.rng, layer.deep
        if rng.random() < 0.3:
            name = f"{letter}{layer.name[3:]}"
            self.given[name] = (deep, width)
            return name + rng.choice(("", "", ".tanh()", " * 2", ".detach()"))
        batch = f"x.size({0 if self.first else 1}), " if self.batched else ""
        shape = f"{deep}, {batch}{width}"
        if width != WIDTH:
            return rng.choice(
                (
                    f"x.new_zeros({shape})",
                    f"v[0].expand({shape})",
                    f"(v.sum() * x.new_ones({shape}))",
                )
            )
        step = f"{taken.name}{self.along(rng.choice(('0', '-1')))}"
        stacked = f"torch.stack([{step}] * {deep})"
        bias = f"{layer.name}.weight_hh_l0[0]"
        return rng.choice(
            (
                stacked,
                f"{stacked}.tanh()",
                f"{step}.expand({shape})",
                f"{taken.name}.mean({self.time}).expand({shape}).contiguous()",
                f"x.new_zeros({shape})",
                f"v.expand({shape})",
                f"(v * x.new_ones({shape})).sin()",
                f"{bias}.expand({shape}).contiguous()",
                f"({bias} * {step}.mean()).expand({shape})",
            )
        )

    # --- steps ------------------------------------------------------------------------------------

    def apply(self) -> None:
        """One layer on a sequence."""
        rng = self.rng
        layer, taken = rng.choice(self.layers), rng.choice(self.pool[-3:])
        state = self.state(layer, taken)
        out, left = self.new("o"), self.new("s")
        packs = self.batched and taken.length == "n" and rng.random() < 0.25
        text, given = f"{out}, {left} = {layer.name}({taken.name}{state})", taken.name
        if packs:
            flags = f"batch_first={self.first}"
            given = f"pack({taken.name}, lengths, {flags}, enforce_sorted=False)"
            text = f"{out}, {left} = {layer.name}({given}{state})"
        if rng.random() < 0.1:
            self.lines += ["with torch.no_grad():", f"    {text}"]
        else:
            self.lines.append(text)
        if packs:
            self.outputs.append(
                f"{out}.data"
                if rng.random() < 0.3
                else left
                if layer.kind != "LSTM"
                else f"{left}[0]"
            )
            padded = self.new("o")
            total = rng.choice((f"{taken.name}.size({self.time})", "None"))
            self.lines.append(f"{padded} = pad({out}, {flags}, total_length={total})[0]")
            out = padded
        self.left[layer.name] = left
        states = [f"{left}[0]", f"{left}[1]"] if layer.kind == "LSTM" else [left]
        self.outputs += [out, *states]
        writes = rng.random() < 0.2
        if writes:
            self.write(rng.choice((out, *states)))
        if rng.random() < 0.2 and (
            not writes or (self.batched and not self.first)
        ):  # torch crashes for a hook of a view written to before
            self.hook(rng.choice((out, *states)))
        if layer.ways == 2:
            name = self.new("t")
            halves = (
                f"{out}[..., :4]",
                f"({out}[..., :4] + {out}[..., 4:])",
                f"{out}.chunk(2, -1)[1]",
            )
            self.lines.append(f"{name} = {rng.choice(halves)}")
            out = name
        self.pool.append(Taken(out, taken.length))

    def write(self, name: str) -> None:
        """Into a result, or a view of it."""
        self.lines.append(self.rng.choice(WRITES).format(name))

    def hook(self, name: str) -> None:
        form = self.rng.choice(("g * 3", "-g", f"{name}.detach().cos()", "None"))
        # oneDNN's layers are one node, which gives a hook None
        hook = f"lambda g: None if g is None else {form}"
        self.lines.append(f"if {name}.requires_grad: {name}.register_hook({hook})")
        if self.rng.random() < 0.2:
            self.lines.append(
                f"if {name}.requires_grad and not {name}.is_leaf: {name}.retain_grad()"
            )
            self.retained.append(name)

    def detour(self) -> None:
        """Something else than a layer between layers."""
        rng = self.rng
        taken = rng.choice(self.pool[-3:])
        a, name = taken.name, self.new("t")
        same = [each.name for each in self.pool if each.length == taken.length]
        forms = (
            (f"{a}.tanh()", taken.length),
            (f"{a} * 2", taken.length),
            (f"{a}.detach()", taken.length),
            (f"{a}.clone()", taken.length),
            (f"{a} * v", taken.length),
            (f"{a} + {rng.choice(same)}", taken.length),
            (f"{a}.flip({self.time})", taken.length),
            (f"{a}.transpose(0, 1).contiguous().transpose(0, 1)", taken.length),
            (f"{a}{self.along('1:')}", f"{taken.length} less"),
            (f"{a}{self.along('::2')}", f"{taken.length} half"),
            (f"torch.cat(({a}, {rng.choice(same)}), {self.time})", f"{taken.length} twice"),
            (f"F.layer_norm({a}, (4,))", taken.length),
        )
        text, length = rng.choice(forms)
        self.lines.append(f"{name} = {text}")
        self.pool.append(Taken(name, length))
        self.outputs.append(name)
        if rng.random() < 0.1:
            self.hook(name)

    def own_gradient(self) -> None:
        """A gradient in the middle, which goes on in the program."""
        taken = self.pool[-1]
        name, grad = self.new("t"), self.new("g")
        self.lines.append(
            f"{grad}, = torch.autograd.grad({self.loss()}, [x], retain_graph=True, "
            "allow_unused=True)"
        )
        if taken.length == "n":
            self.lines.append(
                f"{name} = {taken.name} if {grad} is None else {taken.name} - 0.1 * {grad}"
            )
            self.pool.append(Taken(name, "n"))
        self.outputs.append(f"{taken.name}")

    def loss(self) -> str:
        rng = self.rng
        chosen = rng.sample(self.outputs, min(len(self.outputs), rng.choice((1, 1, 2, 3))))
        if self.outputs[-1] not in chosen and rng.random() < 0.5:
            chosen.append(self.outputs[-1])
        forms = (
            "{}.sin().sum()",
            "{}.pow(2).sum()",
            "{}.mean()",
            "{}.cos().pow(2).sum()",
            "{}.sum()",
        )
        return " + ".join(rng.choice(forms).format(each) for each in chosen)

    def ending(self, end: str, inner: bool) -> list[str]:
        rng = self.rng
        wanted = rng.choice(("wanted", "[*wanted, x]", "wanted[:2]")) if inner else "wanted"
        if end == "results":
            chosen = rng.sample(self.outputs, min(len(self.outputs), rng.choice((1, 2, 3))))
            return [f"return {', '.join(chosen)},"]
        if end == "loss":
            return [f"return {self.loss()}"]
        lines = [f"loss = {self.loss()}"]
        if end == "grad":
            lines.append(
                f"return loss.detach(), *torch.autograd.grad(loss, {wanted}, allow_unused=True)"
            )
        elif end == "twice":
            lines.append(
                f"first = torch.autograd.grad(loss, {wanted}, retain_graph=True, allow_unused=True)"
            )
            lines.append(f"loss = {self.loss()}")
            lines.append(
                f"return loss.detach(), *first, *torch.autograd.grad(loss, {wanted}, "
                "allow_unused=True)"
            )
        else:
            clears = (
                "for each in weights: each.grad = None"
                if end != "step"
                else "optimizer.zero_grad()"
            )
            lines = ([clears] if end == "step" or rng.random() < 0.6 else []) + lines
            lines.append("loss.backward()")
            lines += ["optimizer.step()"] if end == "step" else []
            lines += [f"kept = {self.retained[-1]}.grad"] if self.retained else ["kept = None"]
            lines.append(
                rng.choice(
                    ("return loss.detach(), kept", f"return kept, {self.outputs[-1]}.detach()")
                )
            )
        return lines

    def grow(self) -> RecurrentProgram:
        rng = self.rng
        end = rng.choice(ENDS)
        inner = end not in ("results", "loss") and rng.random() < 0.5  # gradients of the input, too
        if inner:
            self.lines.append(
                rng.choice(
                    ("x = (x * 1).requires_grad_()", "x = x.detach().clone().requires_grad_()")
                )
            )
        for number in range(rng.choice((1, 2, 2, 3, 4))):
            if number and rng.random() < 0.5:
                self.detour()
            self.apply()
            if inner and rng.random() < 0.12:
                self.own_gradient()
        if rng.random() < 0.3:
            self.detour()
        ending = self.ending(end, inner)
        asks = rng.random() < (0.7 if end in ("results", "loss") else 0.08)
        states = tuple((name, *sizes) for name, sizes in self.given.items())
        head = f"    def program({', '.join(('x', 'lengths', *self.given))}):"
        casts = self.dtype == "torch.float32" and rng.random() < 0.4
        if casts:
            self.lines = [
                'with torch.autocast("cpu", torch.bfloat16, enabled=cast):',
                *(f"    {line}" for line in self.lines),
            ]
        body = [f"        {line}" for line in (*self.lines, *ending)]
        lines = (
            "def build(cast=True):",
            *self.beginning(),
            head,
            *body,
            "    return program, weights",
        )
        return RecurrentProgram(
            lines, states, self.first, self.batched, asks, self.dtype, end, casts
        )

    def beginning(self) -> list[str]:
        """Nets and weights, some of them frozen or with hooks."""
        rng = self.rng
        lines = [
            "torch.manual_seed(0)",
            f"dtype = {self.dtype}",
            *(each.text() for each in self.layers),
        ]
        lines.append("v = nn.Parameter(torch.randn(4, dtype=dtype))")
        lines.append(
            f"weights = [v, {', '.join(f'*{each.name}.parameters()' for each in self.layers)}]"
        )
        name = rng.choice(self.layers).name
        if rng.random() < 0.2:
            lines.append(f"for each in {name}.parameters(): each.requires_grad_(False)")
        elif rng.random() < 0.2:
            lines.append(
                f"{name}.{rng.choice(('weight_ih_l0', 'weight_hh_l0'))}.requires_grad_(False)"
            )
        if rng.random() < 0.15:
            weight = (
                f"{rng.choice(self.layers).name}.{rng.choice(('weight_ih_l0', 'weight_hh_l0'))}"
            )
            lines.append(f"if {weight}.requires_grad: {weight}.register_hook(lambda g: g * 5)")
        lines.append("wanted = [each for each in weights if each.requires_grad]")
        lines.append("optimizer = torch.optim.SGD(wanted, 1e-3, momentum=0.5)")
        return [f"    {line}" for line in lines]


def random_recurrent_program(rng: random.Random) -> RecurrentProgram:
    """A program; it may be one that eager refuses, by what it writes in place."""
    return _Grower(rng).grow()
