"""Quantities; tests/cluster compares the same function with the API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guided_operator.api.quantity import amount, canonical


@pytest.mark.parametrize("quantity", ["", "two", "1 Gi", "1KiB", "1..2", "1e99", "1e1.5", "e3", "."])
def test_no_quantity(quantity: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|range"):
        canonical(quantity)


QUANTITIES = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.decimals(0, 10**6, places=3).map(str) | st.integers(0, 10**6).map(str),
    st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E2"]),
)


@given(QUANTITIES)
def test_canonical_form_is_stable_and_means_the_same(quantity: str) -> None:
    shortened = canonical(quantity)
    assert canonical(shortened) == shortened
    assert amount(shortened) == amount(quantity)
