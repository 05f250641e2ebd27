"""The official parser reads the metrics, and reads what ``stats()`` says."""

from __future__ import annotations

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

import symshape
from symshape.frontends.stats import Metric, Sample, prometheus_text


def _read(text: str) -> dict[tuple[str, ...], float]:
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("counter", "gauge") for family in families)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_the_parser_reads_is_what_stats_say() -> None:
    compiled = symshape.compile(lambda x: x.view(-1, 4) * 2, runner="padded", dynamic=True)
    for n in (8, 12, 4, 8):
        compiled(torch.ones(n))
    found, stats = _read(compiled.metrics()), compiled.stats()
    name = next(labels[1] for labels in found)
    for counter in (
        "calls",
        "hits",
        "misses",
        "traces",
        "evictions",
        "fallbacks",
        "refusals",
        "verified",
    ):
        assert found[f"symshape_{counter}_total", name] == getattr(stats, counter), counter
    assert found["symshape_calls_total", name] == 4
    assert found["symshape_entries", name] == stats.entries == 1
    assert found["symshape_cuda_graphs", name] == stats.cuda_graphs > 0
    assert found["symshape_trace_seconds_total", name] == pytest.approx(stats.trace_ms / 1e3)
    assert found["symshape_graph_bytes", name] > 0
    assert found["symshape_entry_calls", name, "0"] == 4


def test_labels_are_escaped_and_functions_are_put_together() -> None:
    odd = 'a "quoted"\\back\nslash'
    one, two = (
        Metric("symshape_entries", "gauge", "Entries.", [Sample({"function": f}, 1)])
        for f in (odd, "f")
    )
    text = prometheus_text([one, two])
    assert text.count("# TYPE") == 1
    assert _read(text) == {("symshape_entries", odd): 1, ("symshape_entries", "f"): 1}
