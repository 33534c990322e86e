"""What differs between vLLM's minors (compat/minor.py), each by the installed vLLM's own function."""

import ast
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from guided_contract import names
from guided_engine import ledger, versions
from guided_engine.compat import core_drafts, minor
from guided_engine.compat.runner import grammar_output
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan
from guided_operator.builders.configuration import pod_config
from guided_operator.builders.pod import pod_template
from support.manifests import SITE, guided_model
from support.rank import VOCAB, Rank, arrival

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
DRAFTS = 2


@pytest.mark.parametrize(
    "drafts", [{"a": [97, 97]}, {"b": [98, 98]}, {"a": [97, 97], "b": [98, 98]}, {"a": [97], "b": [98, 98]}]
)
def test_each_row_of_a_mask_reaches_its_own_requests_logits(drafts: dict[str, list[int]]) -> None:
    """Of two requests one writes a's alone, the other b's; with drafts each has several rows of logits."""
    from vllm.v1.structured_output.utils import apply_grammar_bitmask

    rank = Rank(mask_rows=minor.mask_rows(DRAFTS))
    letters = {"a": 97, "b": 98}
    rank.step([arrival(name, rank.load(f"{name}{{9}}"), prompt_tokens=[1]) for name in letters])
    rank.sampled(**{name: [token] for name, token in letters.items()})
    counts = {name: 1 + len(drafts.get(name, ())) for name in letters}
    masks = rank.step(computed=dict.fromkeys(letters, 1), scheduled=counts, drafts=drafts)
    logits = torch.zeros(sum(counts.values()), VOCAB)
    apply_grammar_bitmask(
        SimpleNamespace(scheduled_spec_decode_tokens=drafts),
        grammar_output(masks),
        SimpleNamespace(req_ids=["b", "a"], num_reqs=2),
        logits,
    )
    allowed = [(row == 0).nonzero().flatten().tolist() for row in logits]
    assert allowed == [[letters[name]] for name in ("b", "a") for _ in range(counts[name])]


@pytest.mark.parametrize("version", ["0.34.0", "0.33.0rc1"])
def test_a_minor_that_is_not_known_fails_by_name(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(minor, "installed_vllm", lambda: version)
    with pytest.raises(KeyError, match=f"vLLM {version} is not known"):
        minor.here.__wrapped__()


@pytest.mark.parametrize(("data", "nodes", "node"), [(1, 1, 0), (2, 1, 0), (1, 2, 0), (1, 2, 1)])
def test_a_minor_that_is_not_known_starts_by_vllms_own_command(
    monkeypatch: pytest.MonkeyPatch, data: int, nodes: int, node: int
) -> None:
    from vllm.entrypoints.cli import main, serve

    started: list[Any] = []
    monkeypatch.setattr(versions, "installed", {"vllm": "0.40.0"}.get)
    monkeypatch.setattr(main.importlib.metadata, "version", lambda _name: "0.40.0")
    monkeypatch.setattr(serve.ServeSubcommand, "cmd", started.append)
    spread = {"tensor": 2, "nodes": nodes, "data": data}
    model = guided_model(guidedDecoding={"placement": "Scheduler"}, parallelism=spread)
    words = pod_template(model, SITE)["spec"]["containers"][0]["args"]
    argv = plan(pod_config(model, SITE), words, {names.ENV_NODE: str(node)}, Cpus(1)).argv
    assert argv[1:4] == ("-m", main.__name__, "serve")
    monkeypatch.setattr(sys, "argv", [*argv[2:]])
    main.main()
    [args] = started
    told = args.model_tag, args.data_parallel_size, args.nnodes, args.node_rank, args.headless
    assert told == ("/models/models/tiny", data, nodes, node, node > 0)
    assert args.worker_cls == "auto"


def test_a_warm_up_adds_requests_that_have_no_processors() -> None:
    from guided_engine.compat import edits_v2

    edits: Any = object.__new__(edits_v2.EditsV2)
    edits._guide, edits._states = Rank().guide, SimpleNamespace(index_to_req_id={})
    assert edits.add_request(0, None) is False


def test_a_step_whose_drafts_nobody_can_use_proposes_none() -> None:
    from vllm.v1.core.sched.output import SchedulerOutput

    output = SchedulerOutput.make_empty()
    output.num_spec_tokens_to_schedule = 3
    assert core_drafts.drafts_of(output) == 3
    if minor.here().skips_drafts:
        output.skip_drafts = True
        assert core_drafts.drafts_of(output) == 0


def test_every_change_to_this_vllm_is_made() -> None:
    program = (
        "from guided_engine import ledger; from guided_contract.config import PodConfig\n"
        "pod = PodConfig(name='m', model='m', tokenizer='m', served_name='m', run_dir='/')\n"
        "made = ledger.apply_all(ledger.all_entries(), pod)\n"
        "print([(one.name, one.state) for one in made])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    found = ast.literal_eval(told.splitlines()[-1])
    left_out = [name for name, state in found if state != "Applied"]
    assert len(found) == len(ledger.all_entries())
    assert left_out == ([] if minor.here().has_scheduled_passes else ["draft-model-passes"])
