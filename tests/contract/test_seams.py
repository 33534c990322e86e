"""The vLLM that is installed does what the plugin was read against, and a change of meaning is found."""

import importlib.util
from pathlib import Path

import pytest
from devtools import seams

from guided_engine.versions import installed_vllm

_FOUND = importlib.util.find_spec("vllm")  # to import it takes seconds
assert _FOUND is not None
INSTALLED = Path(str(_FOUND.origin)).parents[1]


def test_nothing_that_the_plugin_relies_on_changed_unread() -> None:
    """What differs: read it by `make seams VLLM=...`, mend what it breaks, and sign it with SIGN=1."""
    version = str(installed_vllm()).split("+")[0]
    found = seams.hashes(seams.Source(INSTALLED))
    assert found == {name: of_each[version] for name, of_each in seams.signed().items()}


@pytest.mark.parametrize(
    ("seam", "was", "becomes", "word"),
    [
        ("vllm.v1.core.sched.output:SchedulerOutput", "set[str]", "dict[str, int]", "changed"),
        ("vllm.v1.structured_output.utils:apply_grammar_bitmask", "cumulative_index", "index", "changed"),
        ("vllm.v1.request:RequestStatus", "class RequestStatus", "class Status", "gone"),
    ],
)  # fmt: skip
def test_a_change_of_meaning_under_the_same_name_is_found(
    tmp_path: Path, seam: str, was: str, becomes: str, word: str
) -> None:
    module = Path(seam.partition(":")[0].replace(".", "/")).with_suffix(".py")
    (tmp_path / module).parent.mkdir(parents=True)
    text = (INSTALLED / module).read_text()
    assert was in text
    (tmp_path / module).write_text(text.replace(was, becomes))
    told = seams.compared(seam, seams.Source(INSTALLED), seams.Source(tmp_path))
    assert told[0] == word
    assert (becomes in told[1]) is (word == "changed")


def test_a_function_that_moved_is_found_where_it_is(tmp_path: Path) -> None:
    before, after = tmp_path / "before/vllm", tmp_path / "after/vllm"
    for folder, name in ((before, "a.py"), (after, "b.py")):
        folder.mkdir(parents=True)
        (folder / name).write_text("def f():\n    '''Say.'''\n    return 1  # one\n")
    sources = seams.Source(before.parent), seams.Source(after.parent)
    assert seams.compared("vllm.a:f", *sources) == ("moved", "to vllm.b")
    assert seams.compared("vllm.a:f", sources[0], sources[0]) == ("same", "")
