"""The table of floors in CONTRIBUTING, from the test that enforces them."""

from __future__ import annotations

from tests.test_architecture import FLOORS

__all__ = ["table"]


def table() -> str:
    """Return a Markdown table: the floors of each package, bottom-up; floors within a floor in
    parentheses.
    """
    rows = [f"| `{package}/` | {' '.join(_told(floors))} |" for package, floors in FLOORS.items()]
    return "\n".join(["| package | its floors, bottom-up |", "|---|---|", *rows, ""])


def _told(floors: tuple[str, ...]) -> list[str]:
    """Return each floor that is not within another one, with those within it in parentheses behind
    it.
    """
    found = []
    for top in dict.fromkeys(each for each in floors if "." not in each):
        inside = [
            each.partition(".")[2].replace(".", "/")
            for each in floors
            if each.startswith(f"{top}.")
        ]
        within = f" ({' '.join(f'`{each}`' for each in inside)})" if inside else ""
        found.append(f"`{top}`{within}")
    return found
