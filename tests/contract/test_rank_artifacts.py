"""What a rank reads as an artefact: a plain file of its own user's, of the announced content."""

import hashlib
import os
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

    @pytest.mark.parametrize("name", ["../k", "/etc/passwd", "", ".", "..", "a/b"])
    def test_outside_the_folder_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(LoadError, match="plain file name"):
            read_artifact(tmp_path, name, SHA256)

    def test_that_is_absent_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(LoadError, match="No such file"):
            read_artifact(tmp_path, "k", SHA256)

    def test_that_is_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(CONTENT)
        (tmp_path / "k").symlink_to(tmp_path / "real")
        with pytest.raises(LoadError):
            read_artifact(tmp_path, "k", SHA256)

    def test_that_is_a_pipe_is_refused_at_once(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "k")
        with pytest.raises(LoadError, match="not a plain file"):
            read_artifact(tmp_path, "k", SHA256)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away; run as root to check this")
    def test_of_another_user_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "k").write_bytes(CONTENT)
        os.chown(tmp_path / "k", 12345, 12345)
        with pytest.raises(LoadError, match="belongs to user 12345"):
            read_artifact(tmp_path, "k", SHA256)
