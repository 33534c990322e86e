"""What a rank reads as an artefact: a file of the announced content."""

import hashlib
from pathlib import Path

import pytest

from guided_engine.ranks.loaded_grammars import LoadError, read_artifact

CONTENT = b"compiled"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class TestArtifact:
    def test_is_read_when_all_is_as_announced(self, tmp_path: Path) -> None:
        (tmp_path / "k").write_bytes(CONTENT)
        assert read_artifact(tmp_path, "k", SHA256) == CONTENT

    def test_of_other_content_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "k").write_bytes(CONTENT + b"!")
        with pytest.raises(LoadError, match="announced content"):
            read_artifact(tmp_path, "k", SHA256)

    def test_that_is_absent_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(LoadError, match="No such file"):
            read_artifact(tmp_path, "k", SHA256)
