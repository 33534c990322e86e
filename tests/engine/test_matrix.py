"""The engine matrix: what rank-guided engines generate, against upstream's sync, unspeculated output.

A few of the cells, or those that MATRIX names; MATRIX=full (make test-matrix) runs all, and writes matrix.md
beside this file.
"""

import functools
import operator
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from devtools import tinymodel

from guided_contract.wire import Backend
from guided_engine.compat import minor
from support import matrix, matrix_answers, matrix_drafts, matrix_requests
from support.matrix import BACKENDS, Cell
from support.matrix_answers import Engines
from support.matrix_grammars import Grammars
from support.matrix_processors import ALIKE, References, log_probabilities

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1500),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

IS_NEW = minor.here().has_scheduled_passes
CELLS = matrix.here()
ON_V2 = [cell for cell in CELLS if cell.runner == "V2"]
SPECULATING = [cell for cell in CELLS if cell.speculates]
# Behind stages vLLM's scheduler has not the drafts whose masks it makes, and a batch is one of several in
# flight: docs/upstream-quirks.md.
FLAT = [cell for cell in SPECULATING if cell.pipeline_parallel == 1]
OF_A_DRAFT_MODEL = [cell for cell in FLAT if (cell.runner, cell.speculation) == ("V2", "draft")]
COMPARED = [cell for cell in SPECULATING if cell.sync != cell and cell.sync in CELLS]
FEWEST_COMPARED = 15
MANY = 1000  # digests, of some thousand tokens that the guided requests of a cell have


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    found = Engines(tmp_path_factory.mktemp("matrix"))
    yield found
    found.write(Path(__file__).with_name("matrix.md"))


@pytest.fixture(params=CELLS, ids=lambda cell: cell.name)
def cell(request: pytest.FixtureRequest) -> Cell:
    return cast("Cell", request.param)


def test_the_engine_is_what_the_cell_says(engines: Engines, cell: Cell) -> None:
    answers = engines.answers(cell)
    shares = cell.shares_a_process
    assert answers["facts"] == {"async": cell.is_async, "runner": cell.runner, "shares a process": shares}
    # So the comparison covers requests that were resumed, and that began in the middle.
    assert answers["num_preemptions"] > 0
    assert (answers["prefix_cache_hits"] > 0) == (cell.is_async and not cell.has_adapter)


@pytest.mark.parametrize("drafts", COMPARED, ids=lambda c: c.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_drafts_are_proposed_and_accepted_in_async_as_in_sync(
    engines: Engines, drafts: Cell, backend: Backend
) -> None:
    """vLLM PR 24799: async scheduling with speculation must not cost accepted drafts.

    Request by request and position by position; but for those that were preempted, which draft anew, and for
    one: batches differ, so the likelier of two tokens that a drafter holds for equal may be the other one.
    """
    ours, theirs = (engines.answers(one)["drafts"][backend] for one in (drafts, drafts.sync))
    requests = matrix_requests.asked(backend, speculates=True)
    places = [
        place
        for place, (request, *pair) in enumerate(zip(requests, ours, theirs, strict=True))
        if matrix_drafts.lasted(*pair) and not _upstream_differs(drafts, request)
    ]
    told, wanted = ([matrix_drafts.by_position(of[place]) for place in places] for of in (ours, theirs))
    unlike = [pair for pair in zip(told, wanted, strict=True) if operator.ne(*pair)]
    same = len(places) - len(unlike)
    engines.tell(drafts, f"drafts, {backend}", same, len(places))
    assert len(unlike) <= 1, unlike
    assert len(places) >= FEWEST_COMPARED
    assert all(any(any(one[name]) for one in told) for name in told[0])


@pytest.mark.parametrize("drafts", [one for one in CELLS if one.reads_hidden_states], ids=lambda c: c.name)
def test_what_reads_the_models_hidden_states_is_given_the_right_ones(engines: Engines, drafts: Cell) -> None:
    """A trained drafter guesses from them; with others it is as good as a random one, and output the same."""
    share = matrix.accepted_share(engines.answers(drafts))
    assert (share > matrix.GUESSED) == (drafts.speculation != "eagle3-random")


@pytest.mark.parametrize("backend", BACKENDS)
def test_output_equals_upstreams_token_for_token(engines: Engines, cell: Cell, backend: Backend) -> None:
    """InternLM/lmdeploy PR 4167 and after (4341, 4349, 4559, 4590, 4605): ranks that shared matcher state."""
    ours = engines.answers(cell)[backend]
    requests = matrix_requests.asked(backend, speculates=cell.speculates, adapter=cell.has_adapter)
    # Upstream does not speculate, and so was asked for more.
    upstream = matrix_answers.reference(has_adapter=cell.has_adapter)[backend][: len(requests)]
    unlike = [
        request
        for request, a, b in zip(requests, ours, upstream, strict=True)
        if a != b and (_is_early(request, a) or not _is_early(request, b)) and not _goes_on(request, a, b)
    ]
    ended = sum(reason == "stop" for _, reason, _ in ours)
    engines.tell(cell, backend, len(ours) - len(unlike), len(ours))
    assert not [request for request in unlike if not _upstream_differs(cell, request)]
    assert ended >= 0.7 * len(ours)  # the corpus exercises ends, not only limits


def _is_early(request: matrix_requests.Request, answer: Sequence[Any]) -> bool:
    """Return whether an answer ended while the model reasoned, which ours may not: docs/reasoning.md."""
    tokens, reason, *_ = answer
    reasons = request.prompt.startswith(matrix_requests.REASONS)
    return reasons and reason == "stop" and _closing().isdisjoint(tokens)


def _goes_on(request: matrix_requests.Request, answer: Sequence[Any], upstream: Sequence[Any]) -> bool:
    """Return whether only drafts behind a stop string, no part of the text, are more, as before 0.32."""
    if IS_NEW or "stop" not in request.params or answer[1:] != upstream[1:]:
        return False
    (parts, firsts) = (
        [list(part) for is_end, part in groupby(one[0], (-1).__eq__) if not is_end]
        for one in (answer, upstream)
    )
    return all(part[: len(first)] == first for part, first in zip(parts, firsts, strict=True))


@functools.cache
def _closing() -> frozenset[int]:
    """Return the tokens that end the reasoning of support.reasoning_parser."""
    vocabulary = matrix_requests.tokenizer().get_vocab()
    return frozenset(token for text, token in vocabulary.items() if text.endswith(","))


def _upstream_differs(cell: Cell, request: matrix_requests.Request) -> bool:
    """Return whether it is asynchronous scheduling that differs, guided or not: docs/upstream-quirks.md."""
    return cell.runner == "V1" and cell.is_async and "min_tokens" in request.params


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars()


@pytest.fixture(scope="module")
def references(grammars: Grammars) -> References:
    return References(grammars)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fresh_matcher_accepts_every_token(
    engines: Engines, cell: Cell, backend: Backend, grammars: Grammars
) -> None:
    """vLLM 49694, 52620, 44006, 53181: async scheduling with speculation let illegal drafts through."""
    reasoned = 0
    requests = matrix_requests.asked(backend, speculates=cell.speculates, adapter=cell.has_adapter)
    for request, (tokens, _, _) in zip(requests, engines.answers(cell)[backend], strict=True):
        # What comes after an end that does not end the request is free.
        if request.kind == "none" or "ignore_eos" in request.params:
            continue
        for choice in matrix_requests.choices(tokens):
            content = grammars.content(request, choice)
            reasoned += 0 < len(content) < len(choice)
            assert grammars.accept(backend, request, content) == len(content), request
    assert reasoned >= 9  # vLLM PR 44993: some begin within a draft; what they give equals upstream's, above


def test_a_fault_ends_its_own_sequence_with_its_code(engines: Engines, cell: Cell) -> None:
    """vLLM RFC 5423, issues 43920, 51660, 24107, TensorRT-LLM PR 18896: it ended the engine, or all ranks."""
    answers = engines.answers(cell)
    faults = answers["faults"]
    ended = {name: answer for name, answer in faults.items() if name != "without faults"}
    codes = {name: (reason, code) for name, (_, reason, code) in ended.items() if reason == "error"}
    known = {
        "no ticket": ("error", "request_not_admitted"),
        "not loaded": ("error", "sequence_matcher_failed"),
        "dead end": ("error", "sequence_dead_end"),
    }
    failed = ("processor", "guided processor", "processor: NaN")
    of_processors = dict.fromkeys(failed, ("error", "sequence_processor_failed"))
    emptied = ("processor: nothing", "processor: only")  # the second together with its grammar
    of_processors |= dict.fromkeys(emptied, ("error", "sequence_processor_no_token"))
    assert codes == known | of_processors
    # Dropped with the step that failed: no token of it reaches the client.
    assert [faults[name][0] for name in (*emptied, "processor: NaN")] == [[], [], []]
    assert faults["no ticket"][0] == []
    assert faults["not loaded"][0] == []


def test_whoever_shares_a_batch_with_faults_is_untouched(engines: Engines, cell: Cell) -> None:
    answers = engines.answers(cell)
    faults, corpus = answers["faults"], matrix_requests.corpus()
    for name, request in (("healthy", corpus[0]), ("unguided", matrix_requests.unguided())):
        assert faults[name] == answers["xgrammar"][corpus.index(request)]
    if cell.keeps_seeds:
        assert {name: faults[name] for name in faults["without faults"]} == faults["without faults"]


def test_ranks_agree_at_every_token(engines: Engines, cell: Cell) -> None:
    found = engines.answers(cell)["agreement"]
    assert not found["desyncs"]
    assert not found["lost"]
    assert (found["compared"] > MANY) == (cell.tensor_parallel > 1)


def test_a_grammar_that_ends_before_min_tokens_ends_its_request(engines: Engines, cell: Cell) -> None:
    faults = engines.answers(cell)["faults"]
    assert faults["overlong"] == faults["colour"]
    tokens, reason, _ = faults["seeded overlong"]
    assert (tokens[-1], reason) == (tinymodel.EOS, "stop")


def test_an_abort_in_any_state_touches_nobody_and_frees_the_name(engines: Engines, cell: Cell) -> None:
    """InternLM/lmdeploy PR 4167: a request object used again still had the last one's matcher."""
    answers = engines.answers(cell)
    alone = answers["xgrammar"][: len(answers["live"])]
    assert answers["live"] == alone  # streamed
    assert answers["again"] == [alone[index % len(alone)] for index in range(len(answers["again"]))]
    assert answers["left"] == [0] * cell.ranks


@pytest.mark.parametrize("drafts", FLAT, ids=lambda c: c.name)
def test_drafts_that_stop_and_begin_again_amid_requests_change_no_token(
    engines: Engines, drafts: Cell
) -> None:
    """disableAbove: the number of draft tokens follows the batch, whatever is in flight."""
    answers = engines.answers(drafts)
    assert answers["crowded"] == answers["xgrammar"][: len(answers["crowded"])]
    runs = [number for number, _ in groupby(answers["draft tokens"])]
    most = drafts.num_drafts
    assert any(runs[place : place + 3] == [most, 0, most] for place, _ in enumerate(runs))


@pytest.mark.skipif(not IS_NEW, reason="before 0.32 no draft model is told how many passes a step asks for")
@pytest.mark.parametrize("drafts", OF_A_DRAFT_MODEL, ids=lambda c: c.name)
def test_a_draft_model_runs_as_often_as_a_step_asks_and_stays_itself(engines: Engines, drafts: Cell) -> None:
    """Behind steps without drafts it still knows the text: what it proposes is accepted."""
    answers = engines.answers(drafts)
    assert set(map(tuple, answers["draft passes"])) == {(0, 1), (drafts.num_drafts, drafts.num_drafts)}
    accepted, proposed = map(operator.sub, *answers["crowded drafts"])
    assert accepted > matrix.GUESSED * proposed > 0


def test_each_token_of_a_processor_is_its_references_choice(
    engines: Engines, cell: Cell, references: References
) -> None:
    """IBM/vllm PR 38: what a processor had read of a sequence was lost when it was preempted and resumed."""
    answers = engines.answers(cell)
    assert answers["preempted"] > 0
    requests = matrix_requests.processed()
    unlike, changed = [], set()
    for name, (tokens, _, _) in answers["processed"].items():
        chosen, index = name.split()
        request = requests[int(index)]
        if found := references.unlike(request, tokens, chosen):
            unlike.append((name, found))
        if references.unlike(request, tokens, ""):
            changed.add(chosen)
    count = len(answers["processed"])
    engines.tell(cell, "processors", count - len(unlike), count)
    assert not unlike
    assert changed == {*matrix_requests.PROCESSED}  # each had something to say


@pytest.mark.parametrize("cell", ON_V2, ids=lambda c: c.name)
@pytest.mark.parametrize("name", ["penalties", "top-k", "top-p", "logprobs"])
def test_a_processor_comes_behind_penalties_and_before_top_k_and_top_p(
    engines: Engines, cell: Cell, references: References, name: str
) -> None:
    chosen, request = matrix_requests.beside()[name]
    tokens, told = engines.answers(cell)["beside"][name]
    assert references.unlike(request, tokens, "")
    if name.startswith("top"):
        assert references.outside(request, tokens, chosen) == 0
        assert references.outside(request, tokens, "") > 0
    # What is drawn is not the first choice each time; nor what is penalised, without that.
    params = {"ignore_eos": True} if name == "penalties" else request.params
    others = msgspec.structs.replace(request, params=params)
    assert bool(references.unlike(others, tokens, chosen)) == (name != "logprobs")
    assert not references.unlike(request, tokens, chosen) or name.startswith("top")
    # Raw log-probabilities are the model's.
    rows = log_probabilities(references.logits(request, tokens))
    for token, row, pairs in zip(tokens, rows, told, strict=False):
        likely = dict(pairs)
        assert likely.keys() == {token, *np.argsort(row)[-2:].tolist()}
        assert likely == pytest.approx({one: row[one] for one in likely}, abs=ALIKE)
    assert len(told) == len(tokens) * (name == "logprobs")


@pytest.mark.parametrize("cell", ON_V2, ids=lambda c: c.name)
def test_a_thinking_budget_ends_it_beside_a_processor_and_a_grammar(
    engines: Engines, cell: Cell, references: References, grammars: Grammars
) -> None:
    chosen, request = matrix_requests.beside()["thinking"]
    tokens, _ = engines.answers(cell)["beside"]["thinking"]
    # The one token that neither the processor nor the model chose is the one that the budget forced.
    [(place, token, _)] = references.unlike(request, tokens, chosen)
    assert (place, token) == (matrix_requests.THINKING, matrix_requests.token(","))
    content = grammars.content(request, tokens)
    assert len(content) == len(tokens) - matrix_requests.THINKING - 1
    assert grammars.accept("xgrammar", request, content) == len(content) > 0
    assert references.unlike(msgspec.structs.replace(request, kind="none"), tokens, chosen)[1:]
    assert references.unlike(request, tokens, "")
