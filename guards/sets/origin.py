"""The place in the user's program that a guard comes from."""

from __future__ import annotations

import os

import attrs

from guards.text.escaping import printable


@attrs.frozen
class Origin:
    """Why a guard exists: the user's line that needed it, and the op and rule that asked.

    >>> print(Origin("models/mlp.py", 12, "forward", "if a.size(0) > 2:"))
    mlp.py:12 in forward (`if a.size(0) > 2:`)
    >>> print(Origin("", 0, rule="declared range"))
    declared range
    """

    file: str
    line: int
    function: str = ""
    text: str = ""
    op: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.place, self._reason()) if part)

    @property
    def place(self) -> str:
        """The user's line in short: ``model.py:12 in forward (`if n > 2:`)``; empty when there is
        none.
        """
        if not self.file:
            return ""
        folder, name = os.path.split(self.file)
        # a notebook cell; its file has a number for a name
        if os.path.basename(folder).startswith("ipykernel_"):
            name = "cell"
        where = f"{name or self.file}:{self.line}"
        if self.function:
            where += f" in {self.function}"
        return printable(f"{where} (`{self.text}`)" if self.text else where)

    @property
    def cells(self) -> tuple[str, str, str]:
        """The parts for a table: where, the source text there, and the op and rule that asked.

        >>> Origin("models/mlp.py", 12, "forward", "x.view(-1, 8)", "aten::view", "view").cells
        ('mlp.py:12 in forward', 'x.view(-1, 8)', 'aten::view: view')
        """
        asked = ": ".join(part for part in (self.op, self.rule) if part)
        return attrs.evolve(self, text="").place, printable(self.text), printable(asked)

    def _reason(self) -> str:
        reason = ": ".join(part for part in (self.op, self.rule) if part)
        return printable(f"[{reason}]" if reason and self.file else reason)


DECLARED = Origin("", 0, rule="declared range")
"""The origin of a condition that comes from the range of a symbol."""

COMPLEMENT = Origin("", 0, rule="complement")
"""The origin of a guard that says that another set does not hold."""
