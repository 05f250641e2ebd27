"""The recorded streams of ``bench_regret`` (sizes that never repeat, from the first call on):
figures and pictures.

The pictures are SVG without any library, readable on light and on dark pages: they bring their own
background and follow the reader's colour scheme.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate

import attrs

from tests.bench.report import RESULTS

NAMES = {
    "llama": "Llama-shaped, forward",
    "bert": "BERT-shaped, forward",
    "t5": "T5-shaped, forward",
    "unet": "U-Net",
    "speech": "speech encoder",
    "decode": "decoding with a KV cache",
    "gpt2_step": "GPT-2, whole training step",
    "gpt2_step_dropout": "GPT-2 step with dropout",
    "graphs": "message passing on graphs",
    "bert_mask": "BERT with a padding mask",
    "vit": "vision transformer",
    "detect": "detector of two stages",
    "mixtral": "decoder with experts",
    "bert_step_dropout": "BERT, whole training step, dropout",
    "resnet_step": "ResNet, whole training step",
    "lstm_step": "LSTM, whole training step",
    "encoder_step": "encoder, whole training step",
    "encoder_loss": "encoder, loss compiled, backward by the caller",
    "gpt2_loss": "GPT-2, loss compiled, backward by the caller",
    "gpt2_loss_dropout": "GPT-2 with dropout, loss compiled, backward by the caller",
    "bert_loss_dropout": "BERT with dropout, loss compiled, backward by the caller",
}
SHORT = ("llama", "bert", "t5", "unet", "decode", "gpt2_step", "gpt2_step_dropout", "graphs")
"""The streams of README; the page of benchmarks has all."""
LAST = 100  # calls, of the column that shows whether a stream still catches up
PEERS = {
    "compile": "torch.compile",
    "eager": "eager",
    "buckets": "hand-made buckets",
    "ours": "symshape",
}
_COMPARED = "padded_stream_llama-*.json"
_PASSES = {"first": "as sizes come", "warm": "of the same again", "never": "of new sizes"}
"""The passes of ``bench_padded_stream``, in words."""
_OFF = 3.0
"""A curve is cut off where its total is so many times the next lower one's: the others would be
flat beside it.
"""


@attrs.frozen
class Stream:
    """The seconds of each call of one stream, by peer, with the file and machine that they are
    from.

    Attributes:
        sizes: the sizes of the calls, in words; empty where no size repeats.
    """

    name: str
    file: str
    device: str
    torch: str
    seconds: Mapping[str, Sequence[float]]
    sizes: str = ""

    def total(self, peer: str) -> float:
        """Return the seconds of the calls that all peers made."""
        return sum(self.seconds[peer][: self.calls])

    @property
    def calls(self) -> int:
        """The number of calls that all peers made."""
        return min(map(len, self.seconds.values()))

    @property
    def on_cpu(self) -> bool:
        """Whether no accelerator took part: the models are small then."""
        return self.file.endswith("-cpu.json")

    @property
    def words(self) -> str:
        """The name of the stream, and that it ran on a CPU."""
        return NAMES.get(self.name, self.name) + (", on a CPU" if self.on_cpu else "")

    @property
    def ratio(self) -> float:
        """Our total over eager's."""
        return self.total("ours") / self.total("eager")

    @property
    def behind(self) -> float:
        """The most seconds by which our time so far was above eager's, over all prefixes."""
        ours, eager = (
            list(accumulate(self.seconds[peer][: self.calls])) for peer in ("ours", "eager")
        )
        return max(0.0, *(a - b for a, b in zip(ours, eager, strict=True)))

    @property
    def ahead_from(self) -> int | None:
        """The first call from which our time so far stays below eager's; None if it is above at the
        last call.
        """
        ours, eager = (
            list(accumulate(self.seconds[peer][: self.calls])) for peer in ("ours", "eager")
        )
        behind = max(
            (call for call, (a, b) in enumerate(zip(ours, eager, strict=True), 1) if a > b),
            default=0,
        )
        return None if behind == self.calls else behind + 1

    @property
    def last_ratio(self) -> float:
        """Our time over eager's for the last :data:`LAST` calls."""
        ours, eager = (sum(self.seconds[peer][: self.calls][-LAST:]) for peer in ("ours", "eager"))
        return ours / eager


def recorded(*, cpu: bool = False) -> list[Stream]:
    """Return the last recorded run of each stream, in the order of :data:`NAMES`; ``cpu``: those
    on a CPU instead of those on a device.
    """
    found = {each.name: each for each in every_run() if each.on_cpu is cpu}
    return sorted(found.values(), key=lambda each: (*NAMES, each.name).index(each.name))


def every_run() -> list[Stream]:
    """Return every recorded run of every stream, the oldest first."""
    found: list[Stream] = []
    files = [
        (json.loads(path.read_text(encoding="utf-8")), path.name)
        for path in RESULTS.glob("regret*.json")
    ]
    for content, file in sorted(files, key=lambda each: each[0]["date"]):
        peers: dict[str, dict[str, list[float]]] = {}
        for title, series in content.get("series", {}).items():
            name, peer, _ = title.split(", ")
            peers.setdefault(name, {})[peer] = [each / 1e3 for each in series]
        for name, seconds in peers.items():
            if {"eager", "ours"} <= seconds.keys():
                found.append(Stream(name, file, content["device"], content["torch"], seconds))
    return found


def slower(folder: str) -> str:
    """Return the table of streams that some recorded run found slower than eager, in all or in the
    last calls.
    """
    runs: dict[str, list[Stream]] = {}
    for each in every_run():
        runs.setdefault(each.words, []).append(each)
    lines = [
        (
            f"| stream | recorded runs | symshape / eager, newest | least | greatest | last {LAST} "
            "calls, newest |"
        ),
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in sorted(runs, key=lambda name: -max(each.ratio for each in runs[name])):
        newest, ratios = runs[name][-1], [each.ratio for each in runs[name]]
        if max(*ratios, newest.last_ratio, 0.0) > 1:
            named = f"[{name}]({folder}/{newest.file})"
            figures = (
                f"{newest.ratio:.2f} | {min(ratios):.2f} | {max(ratios):.2f} | "
                f"{newest.last_ratio:.2f}"
            )
            lines.append(f"| {named} | {len(ratios)} | {figures} |")
    return "\n".join(lines) + "\n"


def compared() -> Stream:
    """Return the newest recorded stream in which eager, torch.compile, buckets by hand and ours
    took part.

    It is the one of ``bench_padded_stream``: its passes one after the other.
    """
    names = {"eager": "eager", "compile": "compile", "buckets": "buckets", "ours-auto": "ours"}
    files = [
        (json.loads(path.read_text(encoding="utf-8")), path.name)
        for path in RESULTS.glob(_COMPARED)
    ]
    for content, file in sorted(files, key=lambda each: str(each[0]["date"]), reverse=True):
        series = content["series"]
        seconds = {
            peer: [ms / 1e3 for name in _PASSES for ms in series.get(f"{key}, {name}, ms", ())]
            for key, peer in names.items()
        }
        if all(seconds.values()) and len(set(map(len, seconds.values()))) == 1:
            calls = [
                f"{len(series[f'eager, {name}, ms'])} {words}" for name, words in _PASSES.items()
            ]
            return Stream(
                "llama", file, content["device"], content["torch"], seconds, ", ".join(calls)
            )
    raise FileNotFoundError(f"no {_COMPARED} has all of {', '.join(names)}")


def table(folder: str, *, short: bool = False) -> str:
    """Return the table of totals as Markdown; links lead to the results in ``folder``; ``short``:
    README's streams.
    """
    more = "" if short else f" last {LAST} calls, symshape / eager | ahead from call |"
    lines = [
        (
            "| stream, sizes never repeat | calls | eager s | symshape s | symshape / eager | most "
            f"behind eager s |{more}"
        ),
        "|---|--:|--:|--:|--:|--:|" + ("" if short else "--:|--:|"),
    ]
    for each in recorded():
        if short and each.name not in SHORT:
            continue
        name = f"[{each.words}]({folder}/{each.file})"
        figures = (
            f"{each.total('eager'):.2f} | {each.total('ours'):.2f} | {each.ratio:.2f} | "
            f"{each.behind:.2f}"
        )
        last = "" if short else f" {each.last_ratio:.2f} | {each.ahead_from or '–'} |"
        lines.append(f"| {name} | {each.calls} | {figures} |{last}")
    return "\n".join(lines) + "\n"


def on_cpus(folder: str) -> str:
    """Return the table of the streams on a CPU, torch.compile among the peers."""
    lines = [
        (
            "| small models, sizes never repeat | calls | eager s | torch.compile s | symshape s | "
            "symshape / eager | symshape's last calls / eager's |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for each in recorded(cpu=True):
        other = f"{each.total('compile'):.2f}" if "compile" in each.seconds else "–"
        lines.append(
            f"| [{NAMES.get(each.name, each.name)}]({folder}/{each.file}) | {each.calls} | "
            f"{each.total('eager'):.2f} | {other} | {each.total('ours'):.2f} | {each.ratio:.2f} | "
            f"{each.last_ratio:.2f} |"
        )
    return "\n".join(lines) + "\n"


def line(picture: str, folder: str) -> str:
    """Return the picture of :func:`compared` as Markdown, with its figures in words and a link to
    the run.
    """
    first = compared()
    totals = ", ".join(
        f"{words} {first.total(peer):.1f}" for peer, words in PEERS.items() if peer in first.seconds
    )
    what = f"{NAMES[first.name]}, {first.calls} calls of varying sizes"
    return f"[![Seconds so far: {what}: {totals}]({picture})]({folder}/{first.file})\n"


# -- pictures --------------------------------------------------------------------------------------

_STYLE = """
  svg { font: 15px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
  .card { fill: #ffffff; stroke: #d0d7de; } .grid { stroke: #e3e7eb; }
  .text { fill: #1f2328; } .soft { fill: #59636e; }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
  .eager { stroke: #6e7781; } .compile { stroke: #8250df; } .buckets { stroke: #bc6c00; }
  .ours { stroke: #0a5bd3; stroke-width: 3.5; }
  .name-eager { fill: #57606a; } .name-compile { fill: #8250df; } .name-buckets { fill: #9a5700; }
  .name-ours { fill: #0a5bd3; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d; } .grid { stroke: #252b33; } .text { fill: #f0f6fc; }
    .soft { fill: #9198a1; }
    .eager { stroke: #9198a1; } .compile { stroke: #ab7df8; }
    .buckets { stroke: #f0a63c; } .ours { stroke: #58a6ff; }
    .name-eager { fill: #b1bac4; } .name-compile { fill: #bc9bff; } .name-buckets { fill: #f0a63c; }
    .name-ours { fill: #79b8ff; }
  }
"""
_WIDTH, _HEIGHT = 860, 400  # units of the picture
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 250, 74, 52  # margins around the curves


def picture(stream: Stream) -> str:
    """Return the SVG of one stream: seconds so far over calls, one curve for each peer."""
    sums = {
        peer: list(accumulate(stream.seconds[peer][: stream.calls]))
        for peer in PEERS
        if peer in stream.seconds
    }
    step, top = _step(_most_shown([each[-1] for each in sums.values()]))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(call: float) -> float:
        return _LEFT + width * call / stream.calls

    def y(seconds: float) -> float:
        return _TOP + height * (1 - seconds / top)

    title = f"{NAMES.get(stream.name, stream.name)}: {stream.calls} calls" + (
        " of varying sizes" if stream.sizes else ", no size repeats"
    )
    about = stream.sizes or "first call included"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{title}">'
        ),
        f"<style>{_STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="8"/>',
        f'<text class="text" x="24" y="32" font-size="18" font-weight="600">{title}</text>',
        f'<text class="soft" x="24" y="54">seconds so far, {stream.device}, {about}</text>',
    ]
    for number in range(round(top / step) + 1):
        at = y(number * step)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + width}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        parts.append(
            f'<text class="soft" x="{_LEFT - 8}" y="{at + 5:.1f}" '
            f'text-anchor="end">{number * step:g}</text>'
        )
    parts += [
        f'<text class="soft" x="{x(call):.1f}" y="{_HEIGHT - 26}" '
        f'text-anchor="middle">{call}</text>'
        for call in range(0, stream.calls + 1, max(1, stream.calls // 3))
    ]
    parts.append(
        f'<text class="soft" x="{_LEFT + width / 2:.1f}" y="{_HEIGHT - 8}" '
        'text-anchor="middle">calls</text>'
    )
    names = _apart({peer: y(min(each[-1], top)) for peer, each in sums.items()})
    for peer, each in sums.items():
        points = " ".join(
            f"{x(call):.1f},{y(seconds):.1f}" for call, seconds in _within([0.0, *each], top)
        )
        parts.append(f'<polyline class="line {peer}" points="{points}"/>')
        name = f"{PEERS[peer]}, {each[-1]:.1f} s" + (" \N{UPWARDS ARROW}" if each[-1] > top else "")
        parts.append(
            f'<text class="name-{peer}" x="{_LEFT + width + 10}" '
            f'y="{names[peer] + 5:.1f}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _most_shown(totals: Sequence[float]) -> float:
    """Return the largest total, or the next lower one where the largest is :data:`_OFF` times
    that.
    """
    ordered = sorted(totals)
    off = len(ordered) > 2 and ordered[-1] > _OFF * ordered[-2]
    return ordered[-2] if off else ordered[-1]


def _within(sums: Sequence[float], top: float) -> list[tuple[float, float]]:
    """Return the points of a curve up to the place where it leaves the picture."""
    found: list[tuple[float, float]] = []
    for call, seconds in enumerate(sums):
        if seconds > top:
            before = sums[call - 1]
            return [*found, (call - 1 + (top - before) / (seconds - before), top)]
        found.append((call, seconds))
    return found


def _step(most: float) -> tuple[float, float]:
    """Return the distance of lines of the grid, and the top of the scale."""
    step = next(each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if most / each <= 6)
    return step, step * -(-most // step)


def _apart(heights: Mapping[str, float]) -> dict[str, float]:
    """Move names that would overlap 20 units apart, downwards; all stay above the axis."""
    placed: dict[str, float] = {}
    last = float("-inf")
    for peer, height in sorted(heights.items(), key=lambda each: each[1]):
        last = placed[peer] = max(height, last + 20)
    over = last - (_HEIGHT - _BOTTOM)
    return {peer: height - max(0.0, over) for peer, height in placed.items()}
