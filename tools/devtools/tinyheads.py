"""Builds drafters that read the tiny model's hidden states: an EAGLE-3 head, and MTP in a model like MiMo.

In one folder: `eagle3`, a head of `tiny`, and `mimo`, which is tiny's own weights in MiMo's architecture,
with a layer that predicts one token more; the tokenizer is tiny's.
Both are trained on what tiny answers, from fixed seeds, and kept in the cache; `eagle3-random` is untrained.
"""

from pathlib import Path

from devtools import cache, tinymodel


def heads() -> Path:
    """Return the folder that holds the drafters, building it the first time (a minute)."""
    target = tinymodel.models() / "tiny"
    here = Path(__file__)
    inputs: list[Path | str] = [here.with_name("tinyheads_training.py"), target.parent.name]

    def build(folder: Path) -> None:
        from devtools import tinyheads_training  # noqa: PLC0415 - torch is heavy

        tinyheads_training.build(folder, target)

    return cache.built("tinyheads", inputs, build)
