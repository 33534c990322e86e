"""Named grammars: a folder followed, what is in service, what is said of it. The workers are a fake."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guided_contract.errors import ErrorCode, GuidedError
from guided_contract.wire import Kind
from guided_sidecar.grammar.prepare.known import Grammar
from guided_sidecar.grammar.prepare.named_grammars import NamedGrammars
from guided_sidecar.grammar.worker_messages import Done
from support.sidecar import until

BROKEN = "(broken"


class FakeHolder:
    """Holds everything but what is broken, or what has to wait; keys are the texts themselves."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.tries = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.refusal = GuidedError(ErrorCode.GRAMMAR_INVALID, "Unclosed")

    async def hold(self, kind: Kind, spec: str) -> Grammar:
        del kind
        self.tries += 1
        await self.may_go_on.wait()
        if spec == BROKEN:
            raise self.refusal
        self.held.append(spec)
        return Grammar(spec, Done(backend="guidance", spec="", compile_ns=3_000_000, proof_ns=4_000_000))

    def release(self, key: str) -> None:
        self.held.remove(key)


class Mount:
    """A folder as a kubelet mounts a ConfigMap: files are links through ..data, which is swapped."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "mount"
        self.folder.mkdir()
        self._versions = 0

    def show(self, **files: str) -> None:
        """Show these files and no others; `card__Regex` is card.Regex."""
        self._versions += 1
        version = self.folder / f"..version-{self._versions}"
        version.mkdir()
        for name, text in files.items():
            (version / name.replace("__", ".")).write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.folder / "..data")
        for path in self.folder.iterdir():
            if not path.name.startswith("..") and path.name.replace(".", "__") not in files:
                path.unlink()
        for name in files:
            path = self.folder / name.replace("__", ".")
            if not path.is_symlink():
                path.symlink_to(Path("..data", path.name))


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@pytest.fixture
def holder() -> FakeHolder:
    return FakeHolder()


@pytest.fixture
async def named(mount: Mount, holder: FakeHolder) -> AsyncIterator[NamedGrammars]:
    made = NamedGrammars(mount.folder, holder, poll_s=0.01, retry_s=0.01)
    yield made
    await made.stop()


async def holding(named: NamedGrammars, mount: Mount, **files: str) -> None:
    """Show files, and wait until all of them are held."""
    mount.show(**files)
    named.start()
    await until(lambda: not named.awaited)


def states(named: NamedGrammars) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.reason) for one in named.states}


def refusal(named: NamedGrammars, name: str) -> str:
    with pytest.raises(GuidedError) as raised:
        named.resolve(name)
    assert raised.value.code is ErrorCode.GRAMMAR_UNKNOWN
    assert raised.value.path == "vllm_xargs.guided_grammar"
    return raised.value.message


async def test_every_grammar_of_the_folder_is_held(
    named: NamedGrammars, mount: Mount, holder: FakeHolder
) -> None:
    mount.show(card__JSONSchema="{}", code__Regex="a+", query__EBNF="root ::= x", tag__StructuralTag="[]")
    named.start()
    assert named.awaited == {"card", "code", "query", "tag"}
    assert states(named)["card"] == ("Pending", "")
    await until(lambda: not named.awaited)
    assert {name: named.resolve(name) for name in ("card", "code", "query", "tag")} == {
        "card": ("json", "{}"),
        "code": ("regex", "a+"),
        "query": ("grammar", "root ::= x"),
        "tag": ("structural_tag", "[]"),
    }
    assert {one.state for one in named.states} == {"Ready"}
    assert len(holder.held) == 4


async def test_a_change_takes_the_old_ones_place_when_it_is_loaded(
    named: NamedGrammars, mount: Mount, holder: FakeHolder
) -> None:
    await holding(named, mount, card__Regex="old")
    holder.may_go_on.clear()
    mount.show(card__JSONSchema="{}")
    await until(lambda: holder.tries == 2)
    assert named.resolve("card") == ("regex", "old")
    assert not named.awaited, "a pod that is ready stays so"
    holder.may_go_on.set()
    await until(lambda: named.resolve("card") == ("json", "{}"))
    assert holder.held == ["{}"]


async def test_a_refused_change_leaves_the_old_one_in_service_and_says_so(
    named: NamedGrammars, mount: Mount, holder: FakeHolder
) -> None:
    await holding(named, mount, card__Regex="old")
    mount.show(card__Regex=BROKEN)
    await until(lambda: states(named) == {"card": ("Stale", "Unclosed")})
    assert named.resolve("card") == ("regex", "old")
    assert holder.held == ["old"]
    mount.show(card__Regex="old")  # taken back
    await until(lambda: states(named) == {"card": ("Ready", "")})
    assert holder.held == ["old"]


async def test_a_removed_one_is_let_go_and_refused(
    named: NamedGrammars, mount: Mount, holder: FakeHolder
) -> None:
    await holding(named, mount, card__Regex="a", code__Regex="b")
    mount.show(code__Regex="b")
    await until(lambda: holder.held == ["b"])
    assert refusal(named, "card") == "this model has no grammar 'card'; its grammars: code"
    mount.show()
    await until(lambda: not holder.held)
    assert refusal(named, "x" * 500) == f"this model has no grammar '{'x' * 64}', nor any other named grammar"


async def test_a_refused_one_is_tried_again_and_awaited(
    named: NamedGrammars, mount: Mount, holder: FakeHolder
) -> None:
    mount.show(card__Regex=BROKEN)
    named.start()
    await until(lambda: states(named) == {"card": ("Failed", "Unclosed")})
    assert named.awaited == {"card"}
    assert named.resolve("card") == ("regex", BROKEN), "a request gets the compiler's own words"
    before = holder.tries
    await until(lambda: holder.tries > before)
    mount.show(card__Regex="mended")
    await until(lambda: not named.awaited)
    assert states(named) == {"card": ("Ready", "")}


async def test_one_without_a_text_is_pending_with_the_reason(named: NamedGrammars, mount: Mount) -> None:
    mount.show(card__Absent="there is no ConfigMap schemas")
    named.start()
    await until(lambda: states(named) == {"card": ("Pending", "there is no ConfigMap schemas")})
    assert named.awaited == {"card"}
    assert refusal(named, "card").endswith("has no text: there is no ConfigMap schemas")
    mount.show(card__Regex="a")
    await until(lambda: not named.awaited)


async def test_an_unreadable_file_does_not_take_the_old_text_out_of_service(
    named: NamedGrammars, mount: Mount
) -> None:
    """An editor's file is away for a moment, and comes back."""
    await holding(named, mount, card__Regex="a")
    (mount.folder / "..data" / "card.Regex").unlink()
    await until(lambda: states(named)["card"][0] == "Stale")
    assert "card.Regex cannot be read" in states(named)["card"][1]
    assert named.resolve("card") == ("regex", "a")
    mount.show(card__Regex="a")
    await until(lambda: states(named) == {"card": ("Ready", "")})
