"""A wheel in a fresh environment: whole, at work outside the checkout, and as fast as the
checkout.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from symshape.native import loader
from symshape.native.extensions import EXTENSIONS
from tests.discovery import REPOSITORY
from tests.pages.markdown import DOCS, README, blocks
from tests.wheels import PACKAGES, Installed, install

COMPILE_ONE = (
    "import torch, symshape; f = symshape.compile(lambda x: x * 2); "
    "print(f(torch.ones(3)).tolist());"
)
SERVING = (
    "from symshape.native import extensions, loader; "
    "print(*(bool(loader.load(each.name)) for each in extensions.EXTENSIONS));"
)
HELP = """
import typer
from typer.testing import CliRunner
from symshape.frontends.cli.commands import app

def below(command, words):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from below(inner, [*words, name])

for words in below(typer.main.get_command(app), []):
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0 and "Usage: " in result.output, (words, result.output)
"""
CALLS = """
import json, time, torch, symshape
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
fast = symshape.compile(model, options=symshape.Options(plain_calls=False))
inputs = [torch.randn(n, 16) for n in (4, 5, 6, 7)]
times = {"eager": [], "ours": []}
with torch.no_grad():
    for x in inputs * 20:
        assert torch.equal(fast(x), model(x))
    for x in inputs * 1000:
        for name, run in (("eager", model), ("ours", fast)):
            start = time.perf_counter()
            run(x)
            times[name].append(time.perf_counter() - start)
quick = {name: sorted(found)[len(found) // 10] for name, found in times.items()}
print(quick["ours"] / quick["eager"])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A wheel in which nothing was compiled."""
    return install(tmp_path_factory.mktemp("wheel"), compiled="0")


@pytest.mark.slow
def test_every_file_of_the_packages_is_in_it(installed: Installed) -> None:
    left_out = {".so", ".pyd", ".pyc"}
    files = [each for name in PACKAGES for each in (REPOSITORY / name).rglob("*") if each.is_file()]
    wanted = {
        each.relative_to(REPOSITORY).as_posix() for each in files if each.suffix not in left_out
    }
    wanted |= {
        f"symshape/frontends/cli/error_pages/{each.name}" for each in (DOCS / "errors").glob("*.md")
    }
    assert wanted - installed.files == set()
    assert installed.files - wanted == set()


@pytest.mark.slow
def test_first_steps_of_the_readme(installed: Installed, tmp_path: Path) -> None:
    code = "".join(each.code for each in blocks(README.read_text(encoding="utf-8"))[:1])
    (tmp_path / "first.py").write_text(
        f"{code}\nprint(traced.output_specs.sizes[0], symshape.__file__)\n"
    )
    ran = installed.run("python", "first.py", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    formula, _, place = ran.stdout.strip().rpartition(" ")
    assert formula == "s0 + s1"
    assert installed.environment in Path(place).parents


@pytest.mark.slow
def test_commands_of_the_guides(installed: Installed, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    (tmp_path / "my_model.py").write_text(
        "import torch\n\ndef example():\n    return (lambda ids: ids.reshape(-1) * 2), "
        "(torch.ones(4, 16),)\n"
    )
    proven = installed.run(
        "symshape", "prove", "s0 // 8 * 8 == s0", "--assume", "s0 % 8 == 0", folder=tmp_path
    )
    assert proven.returncode == 0, proven.stdout + proven.stderr
    words = ["trace", "my_model:example", "--dynamic", "ids.0=batch:1:64", "--html", "trace.html"]
    traced = installed.run("symshape", *words, folder=tmp_path)
    assert "f32[16*batch]" in traced.stdout, traced.stderr
    assert "</script>" in (tmp_path / "trace.html").read_text(encoding="utf-8")
    page = installed.run("symshape", "error", "SYM204", folder=tmp_path)
    assert page.stdout.startswith("## Seeding inside\n"), page.stderr
    environment = installed.run(
        "symshape", "env", folder=tmp_path, variables={"SYMSHAPE_NATIVE": "0"}
    ).stdout
    assert f"0 of {len(EXTENSIONS)} extensions serve" in environment
    assert "SYMSHAPE_NATIVE=0" in environment


@pytest.mark.slow
def test_help_of_every_command(installed: Installed, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    installed.python(HELP, folder=tmp_path)


@pytest.mark.slow
def test_a_report_in_a_browser(installed: Installed, tmp_path: Path) -> None:
    from tests.symshape.exploring.browser import windows

    page = next(pages := windows())  # skips without a browser
    code = (
        "import torch, symshape; f = symshape.compile(lambda x: x.reshape(-1)); "
        "f(torch.ones(3, 4)); "
    )
    installed.python(
        f"{code} f(torch.ones(5, 4)); symshape.explore(f).save('report.html')", folder=tmp_path
    )
    page.open(tmp_path / "report.html")
    assert page.driver.find_element("id", "symshape").text
    pages.close()


@pytest.mark.slow
def test_a_cell_of_a_notebook(installed: Installed, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = (
        "import os, sys; os.environ['JUPYTER_PREFER_ENV_PATH'] = '1'\n"
        "import nbformat, nbclient\n"
        "cell = 'import torch, symshape; symshape.trace(lambda x: x.reshape(-1), torch.ones(3, "
        "4))'\n"
        "notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])\n"
        "nbclient.NotebookClient(notebook, timeout=240, kernel_name='python3').execute()\n"
        "print(notebook.cells[0].outputs[0]['data']['text/html'])\n"
    )
    assert "s0*s1" in installed.python(code, folder=tmp_path)


@pytest.mark.nightly
def test_guards_are_compiled_in_it(tmp_path: Path) -> None:
    """Where a C compiler is at hand; torch need not be."""
    pytest.importorskip("mypyc")
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    whole = install(tmp_path, compiled="")
    assert any(name.startswith("guards/compiled__mypyc") for name in whole.files)
    code = (
        "from guards.terms import term; import guards; print(term.__file__, guards.prove('x >= 0'))"
    )
    place, _, answer = whole.python(code, folder=tmp_path).strip().rpartition(" ")
    assert not place.endswith(".py")
    assert answer == "True"


@pytest.fixture(scope="module")
def compiling(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a user whose extensions were compiled by the first program."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("user")
    variables = {"SYMSHAPE_NATIVE_CACHE": str(folder / "cache"), "SYMSHAPE_NATIVE": "1"}
    first = installed.run("python", "-c", COMPILE_ONE + SERVING, folder=folder, variables=variables)
    assert first.stdout.split() == ["[2.0,", "2.0,", "2.0]", *["False"] * len(EXTENSIONS)], (
        first.stderr
    )
    assert first.stderr.count("in the background") == 1
    until = time.monotonic() + 800
    while not (reports := list((folder / "cache").glob("*/report.json"))):
        assert time.monotonic() < until, "the extensions were never compiled"
        time.sleep(1)
    assert json.loads(reports[0].read_text())["errors"] == {}
    return variables


@pytest.mark.nightly
def test_extensions_are_compiled_on_first_use(
    installed: Installed, compiling: dict[str, str], tmp_path: Path
) -> None:
    later = installed.run(
        "python", "-c", COMPILE_ONE + SERVING, folder=tmp_path, variables=compiling
    )
    assert later.stdout.split()[3:] == ["True"] * len(EXTENSIONS), later.stderr
    assert later.stderr == ""


@pytest.mark.nightly
def test_calls_are_as_fast_as_those_of_the_checkout(
    installed: Installed, compiling: dict[str, str], tmp_path: Path
) -> None:
    """Each against eager in its own process, in turn; the best of three."""
    if not all(loader.found(each.name).module for each in EXTENSIONS):
        pytest.skip("this checkout is not compiled: there is nothing to compare with")
    wheel, checkout = [], []
    for _ in range(3):
        wheel.append(float(installed.python(CALLS, folder=tmp_path, variables=compiling)))
        here = {"PYTHONPATH": str(REPOSITORY)}
        checkout.append(float(installed.python(CALLS, folder=tmp_path, variables=here)))
    assert min(wheel) < 1.3 * min(checkout), (wheel, checkout)
