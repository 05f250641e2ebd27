"""The saved page in a real browser: it answers what the engine answers, and everybody can use
it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import symshape
from guards import Guard, GuardSet, Origin, parse
from symshape.exploring.page import asset, embedded, script
from symshape.frontends.compiled import Compiled
from tests.symshape.exploring.browser import Page, windows


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from windows()


UNFOLDED = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


def branching(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 20:
        x = x[:20]
    if x.size(0) % 8 == 0:
        return (x.view(-1, 8) * y.size(0)).sum(1)
    if x.size(0) < y.size(0):
        return y[: x.size(0)] + x
    return torch.cat([x, y])


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    found = symshape.compile(branching, dynamic=True)
    for a, b in ((8, 3), (16, 5), (30, 4), (5, 9), (7, 2), (24, 24), (3, 4), (8, 3)):
        found(torch.ones(a), torch.ones(b))
    return found


@pytest.fixture(scope="module")
def saved(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return symshape.explore(compiled).save(tmp_path_factory.mktemp("report") / "cache.html")


def _dispatched(compiled: Compiled, values: tuple[int, ...]) -> int | None:
    """The position of the entry that the dispatch tree finds."""
    (family,) = (
        family for branch in compiled._cache.branches for family in branch.families.values()
    )
    found = family.tree.lookup(values)
    return None if found is None else family.entries.index(found)


@pytest.mark.slow
def test_dispatches_as_the_tree_does(page: Page, saved: Path, compiled: Compiled) -> None:
    page.open(saved)
    rng = random.Random(5)
    points = [(rng.randint(0, 40), rng.randint(0, 40)) for _ in range(1000)]
    points += [(0, 0), (2**53 + 8, 3), (8 * 10**6, 10**6)]
    ask = """
    const read = (value) => (typeof value === "string" ? BigInt(value) : value);
    return arguments[0].map((values) => app.space.serving(values.map(read)));
    """
    found = page.run(ask, [[v if v < 2**53 else str(v) for v in point] for point in points])
    assert found == [_dispatched(compiled, point) for point in points]
    assert None not in found or len(set(found)) > 2
    assert len(set(found)) > 3


def test_the_cells_that_are_drawn(page: Page, saved: Path, compiled: Compiled) -> None:
    """The colours of the pixels in the middle of 1,000 cells."""
    page.open(saved)
    page.run(
        "app.space.record.points = []; app.space.setAll([99, 99]);"
        "app.map.window = {x: [0, 39], y: [0, 39]}; app.map.draw(true)"
    )
    rng = random.Random(7)
    points = [(rng.randint(0, 39), rng.randint(0, 39)) for _ in range(1000)]
    drawn = page.run(
        """
        const map = app.map;
        const context = map.canvas.getContext("2d");
        const probe = document.createElement("canvas").getContext("2d");
        const read = (context, x, y) =>
            context.getImageData(Math.round(x), Math.round(y), 1, 1).data.join();
        const colours = map.palette.map((colour) => {
          probe.fillStyle = colour;
          probe.fillRect(0, 0, 1, 1);
          return read(probe, 0, 0);
        });
        const ratio = window.devicePixelRatio;
        return arguments[0].map(([x, y]) => {
          const at = colours.indexOf(read(context, map.toX(x) * ratio, map.toY(y) * ratio));
          return at < 0 ? null : at;
        });
        """,
        points,
    )
    assert page.run("return [app.map.cells.columns.stride, app.map.cells.rows.stride]") == [1, 1]
    wanted = [_dispatched(compiled, point) for point in points]
    assert drawn == wanted
    assert len(set(wanted)) >= 4


def test_sliders_change_verdicts(page: Page, tmp_path: Path) -> None:
    guards = GuardSet(
        [
            Guard(parse("n % 8 == 0"), Origin("model.py", 3, "f", "x.view(-1, 8)")),
            Guard(parse("n + m > 20")),
        ]
    )
    page.show(symshape.explore(guards), tmp_path)
    slide = """
    const slider = document.querySelector("input[type=range][aria-label=" + arguments[0] + "]");
    slider.value = arguments[1];
    slider.dispatchEvent(new Event("input"));
    return document.querySelector(".whatif").innerText;
    """
    assert "Every guard holds" in page.run(slide, "n", 16) + page.run(slide, "m", 16)
    said = page.run(slide, "n", 12)
    assert "outside the guards" in said
    assert "off by 4" in said  # 12 % 8 is 4, not 0
    assert "The nearest that passes: n = 8 " in said or "The nearest that passes: n = 16 " in said
    said = page.run(
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'go "
        "there').click();return document.querySelector('.whatif').innerText"
    )
    assert "Every guard holds" in said


def test_typing_numbers_beyond_doubles(page: Page, tmp_path: Path) -> None:
    page.show(symshape.explore(GuardSet.read("n % 3 == 1")), tmp_path)
    typed = """
    const input = document.querySelector("input[inputmode=numeric]");
    input.value = arguments[0];
    input.dispatchEvent(new Event("input"));
    return [input.hasAttribute("aria-invalid"), document.querySelector(".answer").innerText];
    """
    for value in (3 * 10**30 + 1, 3 * 10**30 + 2, 7, 8):
        invalid, said = page.run(typed, str(value))
        assert (invalid, "Every guard holds" in said) == (False, value % 3 == 1), value
    for wrong in ("-1", "1.5", "many", ""):
        assert page.run(typed, wrong)[0] is True


def test_every_view(page: Page, saved: Path) -> None:
    page.open(saved)
    assert "branching" in page.run("return document.querySelector('h1').innerText")
    assert "x.size(0) % 8" in page.tab("Guards")
    assert "if x.size(0) > 20:" in page.tab("Guards")
    assert "look at" in page.tab("Dispatch") or "try" in page.tab("Dispatch")
    assert "branching was traced again: the nearest entry" in page.tab("History")
    page.run("app.space.setAll([7, 2])")
    assert "aten.cat.default" in page.tab("Program")
    assert "alone" in page.tab("Compare")
    assert page.complaints() == []
    assert page.requests() == []


def test_a_symbol_lights_up(page: Page, tmp_path: Path) -> None:
    traced = symshape.trace(
        lambda a, b: (a * 2, torch.cat([a, b]), b + 1), torch.ones(3), torch.ones(4)
    )
    page.show(symshape.explore(traced), tmp_path)
    page.tab("Program")
    page.run(
        "[...document.querySelectorAll('.chip')].find((chip) => "
        "chip.textContent.startsWith('s0')).click()"
    )
    lit = page.run(
        "return [...document.querySelectorAll('.op.lit b')].map((each) => each.textContent)"
    )
    assert lit == ["aten.mul.Tensor", "aten.cat.default"]


def test_a_program_beside_what_runs(page: Page, tmp_path: Path) -> None:
    """Each op with what became of it in the padded program, repairs marked; kinds of moments that
    nobody knows.
    """
    compiled = symshape.compile(lambda x: x.softmax(0) * 2, dynamic=True, runner="padded")
    compiled(torch.ones(5))
    compiled._cache.history.note("invented", 1, entry=0, text="something new")
    page.show(symshape.explore(compiled), tmp_path)
    page.tab("Program")
    page.run("document.querySelectorAll('.program input[type=checkbox]')[1].click()")
    marked = page.run(
        "return [...document.querySelectorAll('.op.inserted b')].map((each) => each.textContent)"
    )
    assert "aten.where.self" in marked
    assert "aten._softmax.default" not in marked
    pairs = page.run("return [...document.querySelectorAll('.pair')].map((each) => each.innerText)")
    assert len(pairs) == 2
    assert "f32[s0]" in pairs[0]
    assert "f32[6]" in pairs[0]
    assert "mask: -inf beyond s0" in pairs[0]
    assert "x.size(0) up to 6" in page.run("return document.querySelector('.summary').innerText")
    history = page.tab("History")
    for kind in ("bucket made", "captured", "invented"):
        assert kind in history
    assert "something new" in history
    assert page.complaints() == []


def test_what_serves_an_entry(page: Page, tmp_path: Path) -> None:
    """The buckets with their figures, the pieces that run as they are with the user's line."""

    def picking(x: torch.Tensor) -> Any:
        y = x.sin().cos().tan().exp().abs().sqrt()
        return y, y[y > 1].sin().cos().tan().exp().abs().sqrt()

    compiled = symshape.compile(picking, dynamic=True, runner="padded")
    softmax = symshape.compile(lambda x: x.softmax(0) * 2, dynamic=True, runner="padded")
    for size in (5, 8, 30, 30):
        compiled(torch.randn(size))
        softmax(torch.randn(size))
    page.show(symshape.explore(softmax), tmp_path)
    told = page.tab("Serving")
    assert "all of it padded, 3 buckets" in told
    assert "s0<=6" in told
    assert "20 %" in told
    assert "undefined" not in told
    page.run("document.querySelector('.serving details summary').click()")
    assert "mask: -inf beyond s0 for aten._softmax.default" in page.tab("Serving")
    page.show(symshape.explore(compiled), tmp_path)
    told = page.tab("Serving")
    assert "piece 2 runs eagerly" in told
    assert "y[y > 1].sin()" in told
    assert "; a mask in place of what is selected (torch.where)" in told
    assert "undefined" not in told
    assert "NaN" not in told
    assert page.complaints() == []


def test_numbers_beside_formulas(page: Page, tmp_path: Path) -> None:
    traced = symshape.trace(
        lambda x: torch.cat([x, x]).view(-1, 2) @ torch.ones(2, 3), torch.ones(4)
    )
    page.show(symshape.explore(traced), tmp_path)
    page.run("app.space.set(0, 50)")
    said = page.run("return document.querySelector('.results').innerText")
    assert "f32[s0, 3]" in said
    assert "[50, 3]" in said
    assert f"{traced.cost().at(s0=50).flops}" in said


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [620, 1280])
def test_looks(page: Page, saved: Path, width: int, dark: bool) -> None:
    """No sideways scrolling, colours as the system wants them, and text that stands out from its
    ground.
    """
    page.open(saved, width=width, dark=dark)
    assert page.run("return document.documentElement.scrollWidth") <= width
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) is dark
    page.run("document.querySelector('.theme').click()")
    turned = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in turned[4:-1].split(",")) < 200) is not dark
    assert page.complaints() == []


@pytest.mark.parametrize("width", [620, 780, 1280])
def test_nothing_leaves_its_panel(page: Page, tmp_path: Path, width: int) -> None:
    """Long names stay inside their panel, tables are shown whole, and the map is beside the sliders
    where it fits.
    """

    def model(
        the_first_of_many_long_argument_names: torch.Tensor, another_of_them: torch.Tensor
    ) -> torch.Tensor:
        return the_first_of_many_long_argument_names * 2 + another_of_them

    compiled = symshape.compile(model, dynamic=True)
    for number in range(3, 30):
        compiled(torch.ones(number, 2 * number), torch.ones(number, 2 * number))
    page.show(symshape.explore(compiled), tmp_path, width=width)
    inside = """
    const panel = document.querySelector(".views").getBoundingClientRect();
    return [...document.querySelectorAll(".views select")].filter((each) => each.offsetParent)
      .every((each) => each.getBoundingClientRect().right <= panel.right);
    """
    assert page.run(inside)
    page.tab("History")
    assert page.run(inside)
    clipped = (
        "[...document.querySelectorAll('.scroll')].filter((each) => each.clientHeight < "
        "each.scrollHeight).length"
    )
    assert page.run(f"return {clipped}") == 0
    tops = page.run(
        "return ['.whatif', '.views'].map((each) => "
        "document.querySelector(each).getBoundingClientRect().top)"
    )
    assert (tops[0] == tops[1]) is (width > 640)


def test_names_of_the_user_label_the_map(page: Page, tmp_path: Path) -> None:
    sizes = {0: symshape.Dim("batch"), 1: symshape.Dim("length")}
    traced = symshape.trace(
        lambda ids, mask: ids * mask, torch.ones(3, 5), torch.ones(3, 5), dynamic=[sizes, sizes]
    )
    page.show(symshape.explore(traced), tmp_path)
    options = (
        "return [...document.querySelectorAll('.map select')].map((each) => "
        "each.selectedOptions[0].textContent)"
    )
    assert page.run(options) == ["batch", "length"]
    assert "ids.size(0) = mask.size(0)" in page.run(
        "return document.querySelector('.sliders').innerText"
    )


def test_the_history_begins_at_call_one(page: Page, tmp_path: Path) -> None:
    """Marks stand over the numbers of their calls, a trace has one row, and buckets are named by
    the user's names.
    """
    sizes = {0: symshape.Dim("batch"), 1: symshape.Dim("length")}
    compiled = symshape.compile(
        lambda ids, mask: (ids * mask).softmax(1),
        dynamic={"ids": sizes, "mask": sizes},
        runner="padded",
    )
    for batch, length in ((3, 5), (4, 9), (2, 30)):
        compiled(torch.ones(batch, length), torch.ones(batch, length))
    page.show(symshape.explore(compiled), tmp_path)
    said = page.tab("History")
    assert "batch up to 3, length up to 6" in said
    assert "ids.size(0) up to" not in said
    first, last = page.run(
        """
        const boxes = (what) =>
          [...document.querySelectorAll(what)].map((each) => each.getBoundingClientRect());
        const marks = boxes(".lanes circle").map((box) => box.x + box.width / 2);
        const [from, to] = boxes(".lanes text").slice(-2);
        return [Math.min(...marks) - from.left, to.right - Math.max(...marks)];
        """
    )
    assert 0 <= first < 12
    assert 0 <= last < 12


def test_a_trace_has_one_row(page: Page, saved: Path) -> None:
    page.open(saved)
    page.tab("History")
    rows = page.run(
        "return [...document.querySelector('.timeline tbody').rows].map((each) => each.innerText)"
    )
    calls = [row.split()[0] for row in rows if "trace" in row or "new sizes" in row]
    assert len(calls) == len(set(calls)), rows
    assert any("x.size(0)=8" in row for row in rows if "trace" in row)


@pytest.mark.parametrize("width", [620, 1280])
def test_pages_of_dynamo(page: Page, tmp_path: Path, width: int) -> None:
    """Titles are lines or reasons, long names keep the map's tools in one line, and the map begins
    at small sizes.
    """

    class Wrapped(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return input_ids * attention_mask

    torch._dynamo.reset()
    compiled = torch.compile(Wrapped(), backend="eager", dynamic=True)
    for n in (70, 100):
        compiled(input_ids=torch.ones(2, n), attention_mask=torch.ones(2, n))
    page.show(symshape.explore(compiled), tmp_path, width=width)
    assert page.run("return app.space.values.every((value) => value <= 256)")
    tops = (
        "const tops = [...document.querySelectorAll('.map .tools > *')]"
        ".map((each) => each.getBoundingClientRect()); "
        "return Math.max(...tops.map((t) => t.top)) < Math.min(...tops.map((t) => t.bottom))"
    )
    assert page.run(tops)
    said = page.tab("Guards")
    for wrong in ("file a bug", "unknown", "lambda_guard"):
        assert wrong not in said
    labels = page.run("return document.querySelector('.sliders').innerText")
    assert "input_ids.size(1)" in labels
    assert "kwargs" not in labels


def test_a_function_without_a_program_says_why(page: Page, tmp_path: Path) -> None:
    compiled = symshape.compile(lambda x: x if x.sum() > 0 else -x)
    with pytest.warns(symshape.FallbackWarning):
        compiled(torch.ones(3))
    page.show(symshape.explore(compiled), tmp_path, width=620)
    said = page.run("return document.querySelector('.symshape').innerText")
    assert "No call could be traced" in said
    assert "Nothing was called" not in said
    assert "known only at run time" in said
    assert page.run("return [...document.querySelectorAll('details')].every((d) => d.hidden)")
    page.run("document.querySelector('.theme').click()")
    assert page.run("return document.documentElement.scrollWidth") <= 620
    assert page.complaints() == []


def test_sixteen_entries_have_colours_of_their_own(page: Page, saved: Path) -> None:
    page.open(saved)
    for _ in range(2):
        assert page.run("return new Set(app.map.palette).size") == 16
        page.run("document.querySelector('.theme').click()")


def test_a_focused_map_is_seen_to_be(page: Page, saved: Path) -> None:
    """The outline lies inside of the box that would cut it off."""
    from selenium.webdriver.common.keys import Keys

    page.open(saved)
    button = page.driver.find_elements("css selector", ".map .tools button")[-1]
    button.send_keys(Keys.TAB)
    style = page.run(
        "const at = document.activeElement; const style = getComputedStyle(at); "
        "return [at.tagName, style.outlineStyle, parseFloat(style.outlineOffset)]"
    )
    assert style[:2] == ["CANVAS", "solid"]
    assert style[2] < 0


def test_a_widget_has_the_theme_of_its_notebook(
    page: Page, compiled: Compiled, tmp_path: Path
) -> None:
    """As JupyterLab says it, whatever the system prefers; when it changes, too."""
    data = embedded(symshape.explore(compiled).report.to_json())
    path = tmp_path / "notebook.html"
    path.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><style>{asset('report.css')}</style>"
        '<body data-jp-theme-light="false"><div id="symshape"></div>'
        f'<script type="application/json" id="data">{data}</script>'
        f'<script type="module">{script()}\n'
        'const data = JSON.parse(document.getElementById("data").textContent);\n'
        'const el = document.getElementById("symshape");\n'
        "window.end = render({ model: { get: () => data }, el });"
        "</script>",
        encoding="utf-8",
    )
    page.visit(path)
    page.wait("return document.querySelector('.symshape h1') != null")
    ground = (
        "return getComputedStyle(document.querySelector('.symshape')).backgroundColor.slice(4, -1)"
        ".split(',').reduce((sum, part) => sum + Number(part), 0)"
    )
    assert page.driver.execute_script(ground) < 200
    page.driver.execute_script("document.body.dataset.jpThemeLight = 'true'")
    page.wait(f"return (() => {{ {ground} }})() > 600")
    page.driver.execute_script("window.end(); document.body.dataset.jpThemeLight = 'false'")
    assert page.driver.execute_script(ground) > 600
    assert page.complaints() == []


def test_by_keyboard(page: Page, saved: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(saved)
    tabs = page.driver.find_elements("css selector", "[role=tab]")
    tabs[0].send_keys(Keys.ARROW_RIGHT)
    assert page.run("return document.activeElement.textContent") == "Guards"
    assert page.run(
        "return document.querySelector('.tabpanel:not([hidden])').getAttribute('aria-labelledby')"
    ) == tabs[1].get_attribute("id")
    tabs[1].send_keys(Keys.HOME)
    page.run("app.space.setAll([8, 3])")
    canvas = page.driver.find_element("css selector", "canvas")
    canvas.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ENTER)
    assert page.run("return app.space.values") == [9, 4]


def test_hostile_texts_stay_text(page: Page, tmp_path: Path) -> None:
    bad = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
    guards = GuardSet(
        [Guard(parse("n > 2"), Origin(f"{bad}.py", 1, bad, bad, bad, bad)), Guard(parse("n > m"))]
    )
    page.show(symshape.explore(guards), tmp_path)
    page.tab("Guards")
    assert page.run("return window.hacked ?? null") is None
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert bad in page.run("return document.querySelector('.lines').innerText")
    static = symshape.explore(guards)._repr_html_()
    assert "<script" not in static
    assert "<img" not in static


@pytest.mark.slow
def test_axe_finds_nothing_serious(page: Page, saved: Path, tmp_path: Path) -> None:
    """Also of a program that is long, padded, and asks for scroll bars."""

    def deep(a_long_name_of_an_argument: torch.Tensor) -> torch.Tensor:
        x = a_long_name_of_an_argument
        for _ in range(40):
            x = x.softmax(1).cumsum(0) / x.flip(0).mean(0) + x.mean(1, keepdim=True)
        return x

    padded = symshape.compile(deep, dynamic=True, runner="padded")
    padded(torch.ones(5, 7))
    for path in (saved, symshape.explore(padded).save(tmp_path / "padded.html")):
        for dark in (False, True):
            page.open(path, dark=dark, width=620 if dark else 1280)
            for view in ("", "app.unfold()", UNFOLDED):  # as it opens, all tabs, all details
                page.run(view)
                serious = page.serious_findings()
                assert not serious, (view, dark, serious)


def test_a_large_report_opens_quickly(page: Page, tmp_path: Path) -> None:
    """2,000 calls of a program of about 300 ops: the file, its making, its opening (bench_explore
    has a GPT-2).
    """

    def deep(x: torch.Tensor) -> torch.Tensor:
        for _ in range(80):
            x = torch.relu(x @ x.t() @ x) + 1
        return x

    found = symshape.compile(deep, dynamic=True)
    found(torch.ones(4, 3))
    entry = found.entries[0]
    for number in range(2000):
        found._cache.seen(entry, (number + 5, number % 90)).calls += 1 + number % 7
    start = time.process_time()
    path = symshape.explore(found).save(tmp_path / "large.html")
    assert time.process_time() - start < 4  # 2 s where nothing else runs
    assert path.stat().st_size < 1_500_000
    page.open(path)
    assert page.worked() < 3000  # of the page's own thread: about 400 ms
    assert page.run("return performance.getEntriesByName('symshape-interactive').length") == 1
    assert len(page.run("return app.space.record.points")) == 2000
