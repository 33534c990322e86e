"""What `guidedmodel status` shows of pods that the status only counts: their pages, which are untrusted."""

import contextlib
import datetime as dt
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from guided_contract import status
from guided_contract.status import PodStatus, RankStatus, WorkersStatus
from guided_operator.cli import main
from guided_operator.cli.cluster import pages, tree
from guided_operator.cli.cluster.pages import Pages
from guided_operator.watch.page_fetch import MAX_PAGE_BYTES

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


def model(**said: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "tiny", "namespace": "models", "generation": 2},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 2, **said},
    }


def told(*ranks: RankStatus, **said: Any) -> PodStatus:
    workers = WorkersStatus(ready=2, restarts=0)
    return PodStatus(ready=True, **{"grammar_workers": workers, "ranks": list(ranks), **said})


def test_what_the_status_leaves_out_is_shown_of_the_pods_own_pages() -> None:
    fine, gone = (RankStatus(rank=0, state="Connected"), RankStatus(rank=1, state="Missing"))
    shown = model(
        readyReplicas=4,
        pods={"total": 4, "worst": [{"name": "m-1", "ready": True, "ranks": {"total": 2, "missing": 1}}]},
        ranks={"total": 8, "missing": 2, "worst": []},
    )
    assert pages.has_more(shown)
    found = Pages(
        {
            "m-0": told(fine),
            "m-1": told(fine, gone),
            "m-2": told(fine, RankStatus(rank=1, state="Connected", desyncs=3)),
            "m-3": "forbidden",
        }
    )
    assert tree.tree(shown, NOW, found).partition("pods")[2].partition("└─ next")[0] == (
        "  4 of 1 ready\n"
        "│  ├─ m-1  ready, 1 of 2 ranks connected, grammar workers: 2 ready, 0 restarts\n"
        "│  │  └─ rank 1  Missing\n"
        "│  ├─ m-0  ready, 1 of 1 ranks connected, grammar workers: 2 ready, 0 restarts\n"
        "│  ├─ m-2  ready, 2 of 2 ranks connected, grammar workers: 2 ready, 0 restarts\n"
        "│  │  └─ rank 1  Connected  differed from the others 3 times\n"
        "│  └─ m-3  not known\n"
        "│     └─ its status page cannot be read: forbidden\n"
    )
    unread = tree.tree(shown, NOW, Pages(error="no right to list pods"))
    assert "│  └─ 3 more: no right to list pods\n" in unread
    assert "│  │  └─ more ranks are missing, or differed from the others\n" in unread


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ({"total": 9, "missing": 0, "desynced": 0}, False),
        ({"total": 9, "missing": 1, "desynced": 0, "worst": [{"state": "Missing"}]}, False),
        ({"total": 9, "missing": 2, "desynced": 0, "worst": [{"state": "Missing"}]}, True),
        ({"total": 9, "missing": 1, "desynced": 1, "worst": [{"state": "Missing"}]}, True),
        ({"total": 9, "missing": 1, "desynced": 1, "worst": [{"state": "Missing", "desyncs": 1}]}, False),
    ],
)
def test_a_status_that_lists_all_that_is_bad_has_no_more_to_tell(
    ranks: dict[str, Any],
    more: bool,  # noqa: FBT001 - a table
) -> None:
    assert pages.has_more(model(ranks=ranks)) is more


GOOD = status.encode(told(*(RankStatus(rank=rank, state="Missing") for rank in range(9))))
# What a pod answers: status, headers, body; and what is shown of it.
ANSWERS: dict[str, tuple[int, dict[str, str], bytes, str]] = {
    "good": (200, {}, GOOD, "0 of 9 ranks connected"),
    "null": (200, {}, b"null", "cannot be read: Expected `object`, got `null`"),
    "list": (200, {}, b"[[[[", "cannot be read: "),
    "large": (200, {}, b" " * MAX_PAGE_BYTES + GOOD, "cannot be read: the answer has more than 65536 bytes"),
    "moved": (302, {"Location": "/version"}, b"", "cannot be read: the API server answered 302"),
    "rude": (500, {}, b'{"message": "\\u001b[2J\\u202eboo"}', "cannot be read: [2Jboo"),
}


@contextlib.contextmanager
def api_server(asked: list[str]) -> Iterator[str]:
    """Play an API server with one model, whose pods answer as above; `asked`: the paths, as they come."""
    name_only = [{"metadata": {"name": name}} for name in ANSWERS]
    ranks = {"total": 9, "missing": 9}
    listed = {
        "guidedmodels": [model(ranks=ranks, pods={"total": len(ANSWERS), "worst": []})],
        "pods": name_only,
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            parts = self.path.partition("?")[0].split("/")
            code, headers, body = 200, {}, b""
            if parts[-2:] == ["proxy", "status"]:
                code, headers, body, _ = ANSWERS[parts[-3].removesuffix(":8002")]
            else:
                found = {"metadata": {"resourceVersion": "1"}, "items": listed[parts[-1]]}
                body = json.dumps(found).encode()
            self.send_response(code)
            for header, value in headers.items():
                self.send_header(header, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_no_answer_of_a_pod_does_more_than_be_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    with api_server(asked) as url:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "models"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(config))
        assert main(["status", "tiny", "--kubeconfig", str(file)]) == 1
        shown = capsys.readouterr()
        assert main(["status", "--kubeconfig", str(file)]) == 1, "of all models, by their status alone"
        assert f"{len(ANSWERS)} more" in capsys.readouterr().out
    assert shown.err == ""
    for name, (*_, expected) in ANSWERS.items():
        assert expected in shown.out.partition(f"─ {name}  ")[2].partition("\n│  ├─ ")[0], name
    assert all(line.isprintable() for line in shown.out.splitlines())
    assert not [path for path in asked if path.startswith("/version")]
    assert sum("/proxy/" in path for path in asked) == len(ANSWERS)
