"""Verdicts of ``audit_padding``: proven, leaks with op, line, path and counterexample, and
unknown.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import nn

import symshape
from symshape.auditing import rules
from symshape.errors import InternalError
from tests.symshape.auditing.programs import (
    LABELS,
    LEAKS,
    LENGTHS,
    MASK,
    PROVEN,
    Program,
    X,
    example,
    seeded,
)

PADDED = {"x": {1: "length"}}


def audit(program: Program, **options: Any) -> symshape.PaddingAudit:
    with torch.no_grad():
        return symshape.audit_padding(program, example(), PADDED, "mask", **options)


@pytest.mark.parametrize("name", PROVEN)
def test_proven(name: str) -> None:
    found = audit(PROVEN[name])
    assert found.proven, str(found)
    assert found.runs


@pytest.mark.parametrize("name", LEAKS)
def test_leaks(name: str) -> None:
    program, op, repair = LEAKS[name]
    found = audit(program).outputs[0]
    assert found.verdict == "leaks", str(found)
    assert found.counterexample is not None
    assert found.counterexample.before != found.counterexample.after
    if op:
        assert found.step is not None
        assert found.step.op == op
        assert "programs.py:" in found.step.line
        assert [each.op for each in found.path].count(op)
    assert repair in found.repair


def test_unaffected_where_the_mask_is_valid() -> None:
    found = audit(lambda x, mask: (x.relu(), x[:, 1:], x @ x.transpose(1, 2)))
    assert [each.where for each in found.outputs] == [
        "where mask[i0, i1] is valid",
        "where mask[i0, i1+1] is valid",
        "where mask[i0, i1] and mask[i0, i2] are valid",
    ]


def test_not_a_number_is_outside_what_a_product_with_the_mask_needs() -> None:
    found = audit(PROVEN["masked mean"])["result"]
    assert found.assumes
    assert "finite" in found.assumes[0]
    assert found.breaks is not None
    assert found.breaks.kind == "not finite"
    strict = audit(PROVEN["masked mean"], padding="anything")["result"]
    assert strict.verdict == "leaks"
    assert audit(
        lambda x, mask: torch.where(mask.bool()[..., None], x, 0.0).sum(1), padding="anything"
    ).proven


def test_a_side_that_is_not_assumed() -> None:
    assert audit(PROVEN["causal attention"]).proven
    assert audit(PROVEN["causal attention"], side="any")["result"].verdict == "unknown"
    assert audit(PROVEN["first position"], side="any")["result"].verdict == "unknown"
    assert audit(PROVEN["masked mean"], side="any").proven


def test_unknown_names_the_op() -> None:
    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(x.transpose(1, 2) @ x + torch.eye(8)) * 0  # type: ignore[no-any-return]

    found = audit(program)["result"]
    assert found.verdict == "unknown"
    assert found.step is not None


def test_a_proof_that_a_run_contradicts_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(world: Any, node: Any, states: Any) -> list[Any]:
        return [
            each.with_(dirty=frozenset(), cause=None)
            for each in rules._reduction(world, node, states)
        ]

    monkeypatch.setitem(rules._RULES, "mean", lie)
    with pytest.raises(InternalError, match="proved that padding cannot change result"):
        audit(LEAKS["mean"][0])


def test_buffers_that_are_written_are_outputs() -> None:
    found = audit(seeded(lambda: _Normed()))
    assert found["norm.running_mean (written)"].verdict == "leaks"
    assert found["norm.num_batches_tracked (written)"].verdict == "proven"


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 2))  # type: ignore[no-any-return]


def test_the_model_is_left_as_it_was() -> None:
    module = seeded(_Normed)
    before = {name: each.clone() for name, each in module.state_dict().items()}
    arguments = example()
    audit(module)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert torch.equal(arguments["x"], X)


def _loss(program: Program, **options: Any) -> symshape.PaddingAudit:
    arguments = {"x": X, "mask": MASK, "labels": LABELS}
    padded = {"x": {1: "length"}, "labels": {1: "length"}}
    return symshape.audit_padding(program, arguments, padded, "mask", **options)


def test_losses() -> None:
    def ignored(x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x.flatten(0, 1), labels.flatten())

    def shifted(x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    def shifted_by_padding(
        x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        return functional.cross_entropy(
            x.flatten(0, 1), functional.pad(labels, (0, 1), value=-100)[:, 1:].flatten()
        )

    def counted(x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x.flatten(0, 1), labels.clamp(min=0).flatten())

    def squares(x: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(x, torch.zeros_like(x))

    for program in (ignored, shifted, shifted_by_padding):
        assert _loss(program, fixed={"labels": -100}).proven
    for program in (counted, squares):
        assert _loss(program, fixed={"labels": -100})["result"].verdict == "leaks"
    # nobody says that the labels of padding are ignored
    assert _loss(ignored)["result"].verdict == "leaks"


class _Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 4, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        made, state = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(made, batch_first=True)[0], state


def test_lengths() -> None:
    def mean(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        return (x * mask[..., None]).sum(1) / lengths[:, None]

    def last(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(x.shape[0]), lengths - 1]

    def beyond(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return x[torch.arange(x.shape[0]), lengths.clamp(max=4)]

    def one_more(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.shape[1]) <= lengths[:, None]
        return (x * mask[..., None]).sum(1)

    arguments = {"x": X, "lengths": LENGTHS}
    for program in (mean, last, seeded(_Packed)):
        found = symshape.audit_padding(program, arguments, PADDED, "lengths")
        assert found.proven, str(found)
    for program in (beyond, one_more):
        assert (
            symshape.audit_padding(program, arguments, PADDED, "lengths")["result"].verdict
            == "leaks"
        )


def test_left_padding() -> None:
    mask = MASK.flip(1)

    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1])
        seen = (steps[None, :] <= steps[:, None])[None] & mask[:, None, :].bool()
        scores = (x @ x.transpose(1, 2)).masked_fill(~seen, torch.finfo(x.dtype).min)
        return scores.softmax(-1) @ x

    def causal(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    assert symshape.audit_padding(program, {"x": X, "mask": mask}, PADDED, "mask").proven
    assert (
        symshape.audit_padding(causal, {"x": X, "mask": mask}, PADDED, "mask")["result"].verdict
        == "leaks"
    )


def test_masks_of_other_kinds() -> None:
    def hidden(x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(hidden[..., None], 0.0).sum(1)

    def additive(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x @ x.transpose(1, 2) + mask[:, 0]).softmax(-1) @ x

    assert symshape.audit_padding(hidden, {"x": X, "hidden": MASK == 0}, PADDED, "~hidden").proven
    for lowest in (-torch.inf, torch.finfo(torch.float32).min, -1e9):
        mask = torch.zeros(3, 1, 1, 5).masked_fill(MASK[:, None, None] == 0, lowest)
        assert symshape.audit_padding(additive, {"x": X, "mask": mask}, PADDED, "mask").proven
    weak = torch.zeros(3, 1, 1, 5).masked_fill(MASK[:, None, None] == 0, -2.0)
    assert (
        symshape.audit_padding(additive, {"x": X, "mask": weak}, PADDED, "mask")["result"].verdict
        == "leaks"
    )
    by_function = symshape.audit_padding(lambda x: x.cumsum(1), (X,), PADDED, lambda x: MASK)
    assert by_function.proven


def test_rows_of_padding() -> None:
    rows = torch.tensor([1, 1, 0])
    arguments, padded = {"x": X, "rows": rows}, {"x": {0: "batch"}}
    normed = symshape.audit_padding(
        lambda x, rows: functional.layer_norm(x, (8,)), arguments, padded, "rows"
    )
    assert normed.proven
    assert normed["result"].where == "where rows[i0] is valid"
    mean = symshape.audit_padding(lambda x, rows: x.mean(0), arguments, padded, "rows")
    assert mean["result"].verdict == "leaks"
    counted = symshape.audit_padding(
        lambda x, rows: (x * rows[:, None, None]).sum(0) / rows.sum(), arguments, padded, "rows"
    )
    assert counted.proven


def test_one_row_is_padded_too() -> None:
    found = symshape.audit_padding(
        lambda x, mask: (x.mean(1), x.relu()), {"x": X[1:2], "mask": MASK[1:2]}, PADDED, "mask"
    )
    assert [each.verdict for each in found.outputs] == ["leaks", "proven"]


def test_rows_without_a_valid_position_average_their_padding() -> None:
    mask = MASK.clone()
    mask[2] = 0
    query = torch.ones(3, 2, 8)

    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = query @ x.transpose(1, 2)
        return scores.masked_fill(mask[:, None] == 0, torch.finfo(x.dtype).min).softmax(-1) @ x

    assert (
        symshape.audit_padding(program, {"x": X, "mask": mask}, PADDED, "mask")["result"].verdict
        == "leaks"
    )
    assert symshape.audit_padding(program, {"x": X, "mask": MASK}, PADDED, "mask").proven


def _negative_zero(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (1 / (x * mask[..., None])).amax(1)


def _two_maxima(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.max(mask[..., None].float(), x).sum(1)


def _index_from_the_end(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x[:, torch.arange(x.shape[1]) - 1].sum(2)


def _before_the_first(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows, steps = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])
    return x[rows, steps - 1]


def _bits(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).view(torch.int32).sum(1)


def _signs(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask[..., None]).signbit().sum(1)


def _truth_of_positions(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    seen = torch.arange(x.shape[1]).bool() < mask.sum(1, keepdim=True)
    return torch.where(seen[..., None], x, 0.0).sum(1)


def _query_rows(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = (x @ x.transpose(1, 2)).masked_fill(mask[:, :, None] == 0, -torch.inf)
    weights = scores.masked_fill(mask[:, None] == 0, -torch.inf).softmax(-1) * mask[:, :, None]
    return torch.where((weights == 0).any(-1, keepdim=True), 1.0, x).sum(1)


def _written_slice(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    made = (x * mask[..., None]).clone()
    made[:, 0] = x[:, -1]
    return made.sum(1)


def _written_base(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    view = made.transpose(0, 1)
    made.copy_(x)
    return view.sum(0)


def _subtracted_mask(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    hidden = (1.0 - mask[:, None].float()) * -1e9
    return torch.add(x @ x.transpose(1, 2), hidden, alpha=-1).softmax(-1) @ x


def _bound_by_a_scaled_number(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return 1 / torch.ops.aten.add.Scalar(x.relu() * mask[..., None], 1, -0.0).sum(1)


def _random_by_padding(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).bernoulli_(x.sigmoid()).sum(1)


@pytest.mark.parametrize(
    "program",
    [
        _negative_zero,
        _two_maxima,
        _index_from_the_end,
        _before_the_first,
        _bits,
        _signs,
        _truth_of_positions,
        _query_rows,
        _written_slice,
        _written_base,
        _random_by_padding,
        _subtracted_mask,
        _bound_by_a_scaled_number,
    ],
)
def test_no_proof_where_padding_comes_by_a_back_door(program: Program) -> None:
    assert not audit(program).proven
