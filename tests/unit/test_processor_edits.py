"""Which changes of a row can be applied, alone and among others of a step."""

from typing import Any

import numpy as np
import pytest

from guided_engine.processors.edits import LARGEST, MOST_IDS, Edits, EditsError, check, combined

VOCAB = 5000
RIGHT = [
    Edits(),
    Edits.only([]),  # an empty list makes floats
    Edits.add([4999, 0], [LARGEST, -LARGEST]),
    Edits.add([7], 3),
    Edits.forbid(np.arange(MOST_IDS, dtype=np.uint16)),
    Edits.add([1, 1], np.array([-np.inf, 0.5], np.float16)),
]


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Edits([1], floats(1)), "ids must be a numpy array of integers"),  # type: ignore[arg-type]
        (Edits(np.array([1]), [1.0]), "values must be a numpy array of floats"),  # type: ignore[arg-type]
        (Edits(np.array([1]), np.array([1])), "values must be a numpy array of floats"),
        (Edits(np.array([[1]]), floats(1)), "with one dimension"),
        (Edits(np.array([1, 2]), floats(1)), "2 ids and 1 values"),
        (Edits.forbid(np.arange(MOST_IDS + 1)), "1025 ids; at most 1024"),
        (Edits.forbid([VOCAB]), "from .* to 5000"),
        (Edits.forbid(np.array([2**64 - 1], np.uint64)), "ids must be from 0"),
        (Edits.add([1, 2, 3], [1, np.nan, 1]), "values must be from"),
        (Edits(np.array([5], object), floats(1)), "ids must be a numpy array of integers"),
        (Edits(np.array([1]), np.array([1e39])), "values must be from"),
        (Edits.add([1, 2], [-np.inf, -1e31]), "values must be from"),
    ],
)
def test_a_wrong_one_is_found_among_right_ones(wrong: Edits, why: str) -> None:
    for edits in ([wrong], [*RIGHT, wrong], [wrong, *RIGHT]):
        with pytest.raises(EditsError, match=why):
            check(edits, VOCAB)


def test_what_an_author_can_write_is_right() -> None:
    check([], VOCAB)
    check(RIGHT, VOCAB)
    for each in RIGHT:
        check([each], VOCAB)


def test_processors_that_name_too_many_ids_together_are_named_with_what_to_do() -> None:
    half = Edits.forbid(np.arange(600)), Edits.forbid(np.arange(500, 1100))
    assert len(combined({"a": half[0], "b": half[0]}).ids) == 600
    with pytest.raises(EditsError, match=r"1100 ids in a row \(a: 600, b: 600\).*select fewer processors"):
        combined({"a": half[0], "b": half[1]})
