"""Private names of torch: each is used in one module, and most of them in the folders that are for
that.

A name is private where a part of it begins with an underscore, and in ``torch.fx.experimental``.
What torch documents by such a name is left out.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.discovery import REPOSITORY

FOLDERS = ("symshape.torch_internals", "meta_fns.torch_internals")
DOCUMENTED = re.compile(
    r"torch\.(ops\.|_check\b|_foreach_|Tensor\.(_is_view|_make_wrapper_subclass|_version)\b)"
)

# Names that are used elsewhere, most by one module that is about nothing else. Only to shrink.
ELSEWHERE = {
    "symshape.tracing.state.compare.torch_functions": {"torch._C._dynamo.guards.dict_version"},
    "symshape.tracing.state.compare.state": {"torch._C._dynamo.guards.TensorGuards"},
    "symshape.tracing.intercept.torch_functions.matmul_before_2_13": {
        "torch._decomp.decompositions"
    },
    "symshape.tracing.intercept.torch_functions.decompositions": {
        "torch._decomp",
        "torch._library.custom_ops.OPDEFS",
        "torch._library.fake_impl.set_ctx_getter",
        "torch._meta_registrations",
    },
    "symshape.frontends.cli.demo": {"torch._dynamo"},
    "symshape.frontends.exploration.dynamo": {
        "torch._dynamo.eval_frame._debug_get_cache_entry_list"
    },
    "symshape.frontends.dynamo_names": {"torch._dynamo.utils.get_metrics_context"},
    "symshape.runtime.runners.inductor.compile_request": {
        "torch._dynamo.source.ConstantSource",
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "torch.fx.experimental.symbolic_shapes.DimDynamic",
        "torch.fx.experimental.symbolic_shapes.ShapeEnv",
        "torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext",
    },
    "symshape.runtime.runners.inductor.code": {
        "torch._functorch._aot_autograd.aot_autograd_result"
    },
    "symshape.frontends.profilers": {"torch.autograd.profiler._is_profiler_enabled"},
    "symshape.store.ranks": {"torch.distributed.distributed_c10d._get_process_group_store"},
    "symshape.tracing.state.record.process_groups": {"torch.distributed.distributed_c10d._world"},
    "symshape.tracing.state.record.torch_flags": {
        "torch.distributions.Distribution._validate_args"
    },
}
# A variable of torch's module, which has to be read there each time, and on the path of calls.
EVERYWHERE = {"torch.autograd.forward_ad._current_level"}


def _is_private(name: str) -> bool:
    parts = name.split(".")
    hidden = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return (
        parts[0] == "torch"
        and (hidden or name.startswith("torch.fx.experimental"))
        and not DOCUMENTED.match(name)
    )


def private_names(source: str) -> Iterator[str]:
    """The private names of torch in a source: imported, or read as attributes of what is
    imported.
    """
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    yield alias.name
                    known[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield known[alias.asname or alias.name]

    def dotted(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            return f"{dotted(node.value)}.{node.attr}"
        return known.get(node.id, "") if isinstance(node, ast.Name) else ""

    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            yield dotted(node)


def _used() -> dict[str, set[str]]:
    """The modules that use each private name, in the words of the tables above."""
    listed = set().union(*ELSEWHERE.values()) | EVERYWHERE
    found: dict[str, set[str]] = defaultdict(set)
    for package in ("symshape", "meta_fns"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            for name in filter(_is_private, private_names(path.read_text(encoding="utf-8"))):
                whole = [each for each in listed if name == each or name.startswith(each + ".")]
                found[max(whole, key=len, default=name)].add(module)
    return found


def test_private_names_stand_in_their_folders() -> None:
    outside: dict[str, set[str]] = defaultdict(set)
    for name, modules in _used().items():
        for module in modules if name not in EVERYWHERE else ():
            if not module.startswith(FOLDERS):
                outside[module].add(name)
    grown = {module: names - ELSEWHERE.get(module, set()) for module, names in outside.items()}
    assert not any(grown.values()), f"put them into symshape/torch_internals: {grown}"
    assert outside == ELSEWHERE, "take what is gone out of ELSEWHERE"


def test_each_private_name_is_used_in_one_module() -> None:
    several = {
        name: modules
        for name, modules in _used().items()
        if len(modules) > 1 and name not in EVERYWHERE
    }
    assert not several


def test_parts_that_are_asked_for_by_name_are_asked_for_once() -> None:
    asked: dict[str, list[str]] = defaultdict(list)
    for path in sorted((REPOSITORY / "symshape" / "torch_internals").glob("*.py")):
        for name in re.findall(
            r'(?:needed|optional)\(\s*"(torch\.[\w.]+)"', path.read_text(encoding="utf-8")
        ):
            asked[name].append(path.stem)
    assert len(asked) > 50
    assert not {name: modules for name, modules in asked.items() if len(modules) > 1}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\ntorch._C._nn.linear(1)", ["torch._C._nn.linear"]),
        ("from torch._ops import OpOverload as O", ["torch._ops.OpOverload"]),
        (
            "from torch.utils import _pytree as p\np.keystr",
            ["torch.utils._pytree", "torch.utils._pytree.keystr"],
        ),
        ("import torch.fx.experimental.x", ["torch.fx.experimental.x"]),
        ("def f():\n    import torch._inductor.config", ["torch._inductor.config"]),
        (
            (
                "import torch\ntorch.add, torch.nn.Module.__init__, torch._check(True), "
                "torch.ops.aten._to_copy"
            ),
            [],
        ),
        ("self._C._nn", []),
    ],
)
def test_the_reader_of_names(source: str, found: list[str]) -> None:
    assert [each for each in private_names(source) if _is_private(each)] == found


def test_the_folder_is_there() -> None:
    assert (Path(REPOSITORY) / "symshape" / "torch_internals" / "private.py").is_file()
