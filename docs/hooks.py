"""Hooks of MkDocs: notebooks become pages, links that leave docs/ become code, the keyboard reaches
what scrolls.

Each page is also copied as plain Markdown, for readers that are programs.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
_LINK = r"\[(?P<text>[^\]]+)\]\((?P<up>(?:\.\./)+)"
_OUTSIDE = re.compile(_LINK + r"(?P<path>(?:tests|CONTRIBUTING)[^)#]*)(?:#[^)]*)?\)")
_TO_NOTEBOOK = re.compile(r"\]\((?P<up>(?:\.\./)*)\.\./notebooks/(?P<name>\w+)\.ipynb")
_CODE = re.compile(r"(<pre[^>]*>(?:<span></span>)?)<code")
_DIALOG = 'data-md-component="search" role="dialog"'
_BOOSTS = {"questions.md": 8, "guides": 2, "reference": 0.5, "benchmarks.md": 0.5}
"""The factors of pages and folders in the ranking of the search, so that answers precede lists of
names.
"""
_DIRECTIVE = re.compile(r"^::: (\w+)\n(?: +.*\n?)*", re.MULTILINE)
_WIDEST = 100  # characters of a signature on one line
_FROM_NOTEBOOK = re.compile(r"\]\((?:\.\./(?P<page>docs/)|(?P<name>\w+)\.ipynb)")


def inside(markdown: str) -> str:
    """Return a page's text with its links to notebooks as links to their pages,
    ``notebooks/NAME.md``.
    """
    return _TO_NOTEBOOK.sub(r"](\g<up>notebooks/\g<name>.md", markdown)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its pictures by file name.

    Code cells whose source a notebook hides (``jupyter.source_hidden``) can be unfolded on the
    page.

    Raises:
        ValueError: a picture has no description (``alt`` in its cell's metadata), or an output is
            an error.
    """
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_FROM_NOTEBOOK.sub(_to_page, source))
            continue
        parts.append(
            _code(source, hidden=cell["metadata"].get("jupyter", {}).get("source_hidden", False))
        )
        for output in cell["outputs"]:
            name = f"{path.stem}-{len(pictures) + 1}.png"
            parts.append(_output(output, name, cell["metadata"].get("alt", ""), pictures))
    return "\n\n".join(parts) + "\n", pictures


def _to_page(found: re.Match[str]) -> str:
    """Return the beginning of a notebook's link as it is on its page."""
    return f"]({found['name']}.md" if found["name"] else "](../"


def _code(source: str, *, hidden: bool) -> str:
    """Return a cell's source as a block of code, without the magics of IPython; folded if it is
    hidden.
    """
    lines = [
        "```python",
        *(line for line in source.splitlines() if not line.startswith("%")),
        "```",
    ]
    if hidden:
        lines = ['??? example "Code"', "", *(f"    {line}".rstrip() for line in lines)]
    return "\n".join(lines)


def _output(output: dict[str, Any], name: str, alt: str, pictures: dict[str, bytes]) -> str:
    """Return an output as Markdown: the richest of its forms; a picture is added to ``pictures``
    under ``name``.
    """
    if output["output_type"] == "error":
        raise ValueError(f"a notebook has an error as output: {output['ename']}")
    data = {
        kind: "".join(text)
        for kind, text in output.get("data", {"text/plain": output.get("text", "")}).items()
    }
    if "image/png" in data:
        if not alt:
            raise ValueError(
                f"the cell of picture {name} has no description: write 'alt' into its metadata"
            )
        pictures[name] = base64.b64decode(data["image/png"])
        return f"![{alt}]({name})"
    if "text/html" in data:
        return f'<div class="output">{data["text/html"]}</div>'
    return data.get("text/markdown") or f"```text\n{data['text/plain'].rstrip()}\n```"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook, with its pictures."""
    from mkdocs.structure.files import File

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Weigh a page in the search, and write links to files that the site does not have as their
    paths.
    """
    folder = page.file.src_uri.partition("/")[0]
    page.meta["search"] = {"boost": _BOOSTS.get(folder, 1)}
    return _OUTSIDE.sub(
        lambda match: (
            f"{match['text']} (`{match['path']}`)"
            if match["text"] != match["path"]
            else f"`{match['path']}`"
        ),
        inside(markdown),
    )


def on_page_content(html: str, **_: Any) -> str:
    """Let the keyboard reach tables and code, which may scroll; the theme does so only for code on
    the screen.
    """
    return _CODE.sub(r'\1<code tabindex="0"', html.replace("<table>", '<table tabindex="0">'))


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's dialog of the search, for readers of screens."""
    return output.replace(_DIALOG, f'{_DIALOG} aria-label="Search"')


def on_post_template(output_content: str, **_: Any) -> str:
    """Do so on the page that stands for those that are not found."""
    return on_post_page(output_content)


def reference(package: Any) -> str:
    """Return the public names of a package (griffe's object), with signatures and docstrings, as
    Markdown.
    """
    parts = []
    for name in sorted(map(str, package.exports), key=str.lower):
        each = package[name]
        parts += _described(each.final_target if each.is_alias else each, name, "##")
    return "\n\n".join(parts) + "\n"


def _described(each: Any, name: str, heading: str) -> list[str]:
    """Return the heading, the signature and the docstring of an object, and those of the public
    members of a class.
    """
    if not each.docstring:
        return []
    text = re.sub(r"(?<!`)``(?!`)", "`", each.docstring.value).strip()
    parts = [f"{heading} `{name}`", *_signature(each, name), text]
    if each.is_class:
        for member in each.members.values():
            if not member.name.startswith("_") and not member.is_alias:
                parts += _described(member, f"{name}.{member.name}", heading + "#")
    return parts


def _signature(each: Any, name: str) -> list[str]:
    """Return the signature of a function, or of a class that attrs or the class itself gives a
    constructor, as code.
    """
    function = each.members.get("__init__", each) if each.is_class else each
    if each.is_class and not function.is_function:
        by_attrs = any("attrs." in str(decorator.value) for decorator in each.decorators)
        shown = [
            _field(member) for member in each.members.values() if by_attrs and _is_field(member)
        ]
        return _as_code(name, shown, "") if shown else []
    if not function.is_function:
        return []
    marks = {"variadic positional": "*", "variadic keyword": "**"}
    shown: list[str] = []
    for parameter in function.parameters:
        kind = parameter.kind.value
        if kind == "keyword-only" and not any(word.startswith("*") for word in shown):
            shown.append("*")
        if parameter.name in ("self", "cls"):
            continue
        noted = "" if parameter.annotation is None else f": {parameter.annotation}"
        equals = " = " if noted else "="
        default = (
            "" if parameter.default is None or kind in marks else f"{equals}{parameter.default}"
        )
        shown.append(f"{marks.get(kind, '')}{parameter.name}{noted}{default}")
    return _as_code(
        name, shown, "" if each.is_class or function.returns is None else f" -> {function.returns}"
    )


def _is_field(member: Any) -> bool:
    """Return whether a member of a class is an attribute with a type, and public."""
    public = (
        member.is_attribute and not member.name.startswith("_") and "property" not in member.labels
    )
    return bool(
        public and member.annotation is not None and "ClassVar" not in str(member.annotation)
    )


def _field(member: Any) -> str:
    """Return a field of an attrs class as a parameter."""
    value = "" if member.value is None else str(member.value)
    if value.startswith("attrs.field("):
        default = re.search(r"\bdefault=([^,()]+)", value)
        value = default[1] if default else "..." if "factory=" in value else ""
    return f"{member.name}: {member.annotation}" + (f" = {value}" if value else "")


def _as_code(name: str, shown: list[str], result: str) -> list[str]:
    """Return a signature as a block of code, on a line for each parameter where one line is too
    long.
    """
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) > _WIDEST:
        line = "\n    ".join([f"{name}(", *(f"{word}," for word in shown)]) + f"\n){result}"
    return [f"```python\n{line}\n```"]


def _package(handler: Any, name: str) -> Any:
    """Return griffe's object of a package, from what mkdocstrings has collected for the page."""
    return handler.collect(name, handler.get_options({}))


def on_post_build(config: Any, **_: Any) -> None:
    """Write each page as plain Markdown beside its HTML, for readers that are programs."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    handler = config["plugins"]["mkdocstrings"].get_handler("python")
    for path in docs.rglob("*.md"):
        target = site / path.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        target.write_text(
            _DIRECTIVE.sub(lambda found: reference(_package(handler, found[1])), text),
            encoding="utf-8",
        )
    for path in NOTEBOOKS.glob("*.ipynb"):
        (site / "notebooks" / f"{path.stem}.md").write_text(
            notebook_page(path)[0], encoding="utf-8"
        )
