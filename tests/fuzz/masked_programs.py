"""Random programs of padded sequences and their mask: attention, pools, norms, losses, some right
and some wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs
import torch
import torch.nn.functional as functional

# By kind of result: S (batch, length, 4), M (batch, length) floats, K (batch, length) booleans, W
# (batch, length, length), Q (length, length) booleans, V (batch, 4), I (batch, length) integers;
# operands are named by their kinds.
TEMPLATES: tuple[tuple[str, str], ...] = (
    *(
        ("K", text)
        for text in ("mask.bool()", "mask == 0", "mask > 0", "~{K}", "{K} & {K}", "{K} | {K}")
    ),
    *(("K", text) for text in ("{I} != 3", "{M} > 0.5", "{S}.isnan().any(-1)", "{S}[..., 0] > 0")),
    *(
        ("M", text)
        for text in (
            "mask.float()",
            "1.0 - mask",
            "{K}.float()",
            "{M} * {M}",
            "{M} + {M}",
            "{S}.sum(-1)",
        )
    ),
    *(
        ("M", text)
        for text in ("{M} * mask", "{S}[..., 1]", "{M}.cumsum(1)", "{M} - 1.0", "{S}.mean(-1)")
    ),
    *(
        ("M", text)
        for text in ("(1.0 - mask) * -1e9", "{M} / mask.sum(1, keepdim=True)", "{M}.softmax(1)")
    ),
    *(
        ("M", text)
        for text in (
            "{M}.masked_fill({K}, 0.0)",
            "{M}.masked_fill(~mask.bool(), -1e9)",
            "{M}.flip(1)",
        )
    ),
    *(
        ("M", text)
        for text in ("torch.where({K}, {M}, {M})", "(-{M}.abs()).exp()", "{M}.maximum({M})")
    ),
    *(
        ("I", text)
        for text in (
            "ids",
            "ids * mask",
            "mask",
            "{I} + 1",
            "{I}.clamp(0, 5)",
            "mask.cumsum(1) - 1",
        )
    ),
    *(
        ("I", text)
        for text in ("torch.where({K}, {I}, 0)", "{I}.flip(1)", "{K}.long()", "{I}.sort(1).values")
    ),
    *(
        ("S", text)
        for text in (
            "x",
            "{S} * mask[..., None]",
            "{S} * {M}[..., None]",
            "{S} + {S}",
            "{S}.relu()",
        )
    ),
    *(
        ("S", text)
        for text in (
            "table[{I}.clamp(0, 5)]",
            "F.layer_norm({S}, (4,))",
            "{S} @ weight",
            "{S} + bias",
        )
    ),
    *(
        ("S", text)
        for text in ("{S} - {V}[:, None]", "{S} * {V}[:, None]", "{W} @ {S}", "{S}.cumsum(1)")
    ),
    *(
        ("S", text)
        for text in ("{S}.masked_fill({K}[..., None], 0.0)", "{S}.softmax(1)", "{S}.softmax(-1)")
    ),
    *(
        ("S", text)
        for text in (
            "torch.where({K}[..., None], {S}, {S})",
            "{S}.masked_fill({K}[..., None], -1e9)",
        )
    ),
    *(
        ("S", text)
        for text in (
            "{S}.view(-1, 4).view({S}.shape)",
            "{S}.transpose(0, 1).contiguous().transpose(0, 1)",
        )
    ),
    *(
        ("S", text)
        for text in (
            "F.pad({S}[:, 1:], (0, 0, 0, 1))",
            "F.pad({S}[:, :-1], (0, 0, 1, 0))",
            "{S}.flip(1)",
        )
    ),
    *(
        ("S", text)
        for text in (
            "F.conv1d({S}.transpose(1, 2), kernel, padding=1).transpose(1, 2)",
            "{S}.roll(1, 1)",
        )
    ),
    *(
        ("S", text)
        for text in (
            "F.group_norm({S}.transpose(1, 2), 2).transpose(1, 2)",
            "({S} - {S}.mean(1, True))",
        )
    ),
    *(
        ("S", text)
        for text in (
            "F.scaled_dot_product_attention({S}, {S}, {S}, attn_mask=mask[:, None, :].bool())",
        )
    ),
    *(
        ("S", text)
        for text in ("F.scaled_dot_product_attention({S}, {S}, {S}, is_causal=True)", "{S} / 2 + 1")
    ),
    *(
        ("S", text)
        for text in (
            "torch.cat([{S}[..., :2], {S}[..., 2:]], -1)",
            "{S}.view(*{S}.shape[:2], 2, 2).flatten(2)",
        )
    ),
    *(
        ("S", text)
        for text in (
            "{S}.clone().masked_fill_(~mask.bool()[..., None], 0.0)",
            "{S}.sort(-1).values",
        )
    ),
    *(
        ("W", text)
        for text in (
            "{S} @ {S}.transpose(1, 2)",
            "{W} + (1.0 - mask)[:, None, :] * -1e9",
            "{W}.softmax(-1)",
        )
    ),
    *(
        ("W", text)
        for text in (
            "{W}.masked_fill(~mask.bool()[:, None, :], -float('inf'))",
            "{W} * mask[:, None, :]",
        )
    ),
    *(
        ("W", text)
        for text in ("{W}.masked_fill(~{Q}, -float('inf'))", "{W} * mask[:, :, None]", "{W}.tril()")
    ),
    *(
        ("W", text)
        for text in (
            "{W}.masked_fill(~({Q} & mask[:, None, :].bool()), -1e9)",
            "{W} + {M}[:, None, :]",
        )
    ),
    *(
        ("W", text)
        for text in ("{W}.transpose(1, 2)", "{W} / 2", "{W} + {W}", "{W}.relu()", "{W} @ {W}")
    ),
    *(
        ("Q", text)
        for text in ("steps[None, :] <= steps[:, None]", "steps[None, :] < steps[:, None]", "{Q}.T")
    ),
    *(
        ("Q", text)
        for text in (
            "torch.ones(length, length, dtype=torch.bool).tril()",
            "{Q} & {Q}",
            "{Q} | {Q}",
        )
    ),
    *(
        ("Q", text)
        for text in (
            "torch.ones(length, length, dtype=torch.bool).triu(1)",
            "steps[:, None] == steps",
        )
    ),
    *(
        ("V", text)
        for text in (
            "{S}.mean(1)",
            "{S}.sum(1)",
            "({S} * mask[..., None]).sum(1)",
            "{S}.amax(1)",
            "{S}[:, 0]",
        )
    ),
    *(
        ("V", text)
        for text in (
            "({S} * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
            "{S}[:, -1]",
            "{V} + {V}",
        )
    ),
    *(
        ("V", text)
        for text in (
            "{S}.masked_fill(~mask.bool()[..., None], -float('inf')).amax(1)",
            "{V}.relu()",
        )
    ),
    *(
        ("V", text)
        for text in (
            "{S}[rows, mask.sum(1) - 1]",
            "{S}[{K}].sum(0).expand({S}.shape[0], 4)",
            "{V} @ weight",
        )
    ),
    *(
        ("V", text)
        for text in (
            "({M}[..., None] * {S}).sum(1)",
            "{S}[mask.bool()].sum(0) + {V}",
            "{V} * {M}.sum(1)[:, None]",
        )
    ),
    *(
        ("V", text)
        for text in ("F.cross_entropy({S}.flatten(0, 1), {I}.flatten().clamp(0, 3)) + {V}",)
    ),
    *(
        ("V", text)
        for text in (
            (
                "F.cross_entropy({S}.flatten(0, 1), {I}.clamp(0, 3).masked_fill(mask == 0, "
                "-100).flatten()) + {V}"
            ),
        )
    ),
)
FIRST = {
    "K": "mask.bool()",
    "M": "mask.float()",
    "I": "ids",
    "S": "x",
    "W": "x @ x.transpose(1, 2)",
    "Q": "steps[None, :] <= steps[:, None]",
    "V": "(x * mask[..., None]).sum(1)",
}


@attrs.frozen
class MaskedProgram:
    """Lines of a program of ``x`` (batch, length, 4), ``ids`` and ``mask`` (batch, length), and the
    results' names.

    With a ``loss`` the program returns the loss and its gradients by the weights instead.
    """

    lines: tuple[str, ...]
    results: tuple[str, ...]
    loss: str = ""

    def source(self) -> str:
        """The program as text."""
        body = [*self.lines, f"return ({', '.join(self.results)},)"]
        if self.loss:
            body = ["x = x * scale", *self.lines, f"loss = {self.loss}"]
            body += ["grads = torch.autograd.grad(loss, parameters, allow_unused=True)"]
            body += ["return (loss, *(each for each in grads if each is not None))"]
        head = [
            "steps, rows, length = torch.arange(x.shape[1]), torch.arange(x.shape[0]), x.shape[1]"
        ]
        return "\n".join(
            ["def program(x, ids, mask):", *(f"    {line}" for line in [*head, *body])]
        )

    def function(self) -> Callable[..., Any]:
        """The program as a function; its weights are those of a fixed seed."""
        generator = torch.Generator().manual_seed(0)
        names: dict[str, Any] = {"torch": torch, "F": functional}
        shapes = (
            ("weight", (4, 4)),
            ("bias", (4,)),
            ("table", (6, 4)),
            ("kernel", (4, 4, 3)),
            ("scale", (4,)),
        )
        for name, shape in shapes:
            names[name] = torch.randn(shape, generator=generator).requires_grad_(bool(self.loss))
        names["parameters"] = [names[name] for name, _ in shapes]
        exec(compile(self.source(), "<masked program>", "exec"), names)
        made: Callable[..., Any] = names["program"]
        return made


def with_gradients(rng: random.Random, program: MaskedProgram) -> MaskedProgram:
    """The gradients of a loss of the program's float results, most of them times the mask."""
    masks = {"s": " * mask[..., None]", "m": " * mask", "w": " * mask[:, :, None]"}
    terms = []
    for name in program.results:
        if name[0] not in "smwv":
            continue
        masked = masks.get(name[0], "") if rng.random() < 0.8 else ""
        square = " ** 2" if rng.random() < 0.5 else ""
        terms.append(f"({name}{square}{masked}).sum()")
    return attrs.evolve(program, loss=" + ".join(terms))


def random_masked_program(rng: random.Random) -> MaskedProgram:
    """A program of some lines; half of its operands are the latest of their kind."""
    made: dict[str, list[str]] = {}
    lines: list[str] = []

    def operand(kind: str) -> str:
        if kind not in made or rng.random() < 0.2:
            return f"({FIRST[kind]})"
        return made[kind][-1] if rng.random() < 0.6 else rng.choice(made[kind])

    for number in range(rng.randint(2, 12)):
        kind, text = rng.choice(TEMPLATES)
        while "{" in text:
            before, _, after = text.partition("{")
            wanted, _, rest = after.partition("}")
            text = f"{before}{operand(wanted)}{rest}"
        name = f"{kind.lower()}{number}"
        lines.append(f"{name} = {text}")
        made.setdefault(kind, []).append(name)
    names = [each for several in made.values() for each in several]
    last = lines[-1].partition(" ")[0]
    others = rng.sample(names, min(len(names), rng.randint(0, 2)))
    return MaskedProgram(tuple(lines), tuple(dict.fromkeys([last, *others])))
