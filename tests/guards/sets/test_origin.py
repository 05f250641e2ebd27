"""Origins: the user's line in short, for sentences and for tables."""

from __future__ import annotations

import pytest

from guards import Origin
from guards.sets.origin import COMPLEMENT, DECLARED


class TestOrigin:
    def test_names_the_users_line(self) -> None:
        origin = Origin("deep/in/model.py", 12, "forward", "if n > 2:", "aten.add", "broadcasting")
        assert str(origin) == "model.py:12 in forward (`if n > 2:`) [aten.add: broadcasting]"

    def test_without_a_file(self) -> None:
        assert (
            str(Origin("", 0, op="aten.mm", rule="inner sizes agree"))
            == "aten.mm: inner sizes agree"
        )

    def test_is_a_value(self) -> None:
        assert Origin("m.py", 1) == Origin("m.py", 1)
        assert len({Origin("m.py", 1), Origin("m.py", 1), Origin("m.py", 2)}) == 2

    def test_place_is_the_line_alone(self) -> None:
        origin = Origin("deep/in/model.py", 12, "forward", "if n > 2:", "aten.add", "broadcasting")
        assert origin.place == "model.py:12 in forward (`if n > 2:`)"
        assert Origin("", 0, rule="declared range").place == ""

    @pytest.mark.parametrize("folder", ["/tmp/ipykernel_4711", "ipykernel_1"])
    def test_a_cell_of_a_notebook(self, folder: str) -> None:
        assert Origin(f"{folder}/290384.py", 3).place == "cell:3"

    def test_cells_of_a_table(self) -> None:
        assert Origin("m.py", 12, "", "x + y", "aten.add").cells == ("m.py:12", "x + y", "aten.add")
        assert Origin("", 0, rule="complement").cells == ("", "", "complement")

    def test_those_that_no_line_has(self) -> None:
        assert (str(DECLARED), str(COMPLEMENT)) == ("declared range", "complement")
