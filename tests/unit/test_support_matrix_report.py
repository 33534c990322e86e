"""tests/engine/matrix.md: what ran now stands in place of what ran before, and the rest stays."""

from support.matrix import BACKENDS, FULL
from support.matrix_report import PAGE, Row, page


def rows_of(text: str) -> list[str]:
    return text.partition("|---|\n")[2].splitlines()


def test_cells_that_ran_replace_their_rows_in_the_order_of_the_matrix() -> None:
    first, second, third = FULL[:3]
    old = page("", (Row(cell, backend, 1, 2, 1, "old") for cell in (third, second) for backend in BACKENDS))
    gone = "| V0-tp1-none-sync | xgrammar | 1 of 2 | 1 | `old` |\n"
    new = page(old + gone, [Row(cell, "guidance", 2, 2, 2, "new") for cell in (third, first)])
    assert rows_of(new) == [
        f"| {first.name} | guidance | 2 of 2 | 2 | `new` |",
        f"| {second.name} | xgrammar | 1 of 2 | 1 | `old` |",
        f"| {second.name} | guidance | 1 of 2 | 1 | `old` |",
        f"| {third.name} | xgrammar | 1 of 2 | 1 | `old` |",
        f"| {third.name} | guidance | 2 of 2 | 2 | `new` |",
    ]
    assert new.partition("|---|\n")[0] == old.partition("|---|\n")[0]


def test_the_page_is_as_a_run_that_finds_nothing_new_writes_it() -> None:
    assert page(PAGE.read_text(), []) == PAGE.read_text()
