# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving as _serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import rollback


class Host:
    def __init__(self, folder: Path, ray: bool = True) -> None:
        self.good = str(folder / "good")
        self.yaml = folder / "vllm.yaml"
        self.env = folder / "vllm.env"
        self.paths = [str(self.yaml), str(self.env)]
        self.allowed = [*self.paths, str(folder / "serving.json")]
        self.yaml.write_text("model: one\n")

    def differences(self, executor: str = "mp", required: bool = True) -> list[rollback.Change]:
        return rollback.differences(executor, required, self.good, self.allowed)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_what_served_is_kept_once(host: Host) -> None:
    assert _serving.keep_good(host.paths, host.good) is True
    assert _serving.keep_good(host.paths, host.good) is False
    host.yaml.write_text("model: two\n")
    assert _serving.keep_good(host.paths, host.good) is True
    assert _serving.kept_good(host.good) == {str(host.yaml): "model: two\n", str(host.env): None}


def test_a_torn_copy_is_no_copy(host: Host, tmp_path: Path) -> None:
    _serving.keep_good(host.paths, host.good)
    [copy] = (tmp_path / "good").glob("vllm.yaml-*")
    copy.write_text("mod")
    assert _serving.kept_good(host.good) == {}
    copy.unlink()
    assert _serving.kept_good(host.good) == {}
    # the next time that this serves, it is made again
    assert _serving.keep_good(host.paths, host.good) is True
    assert _serving.kept_good(host.good) == {str(host.yaml): "model: one\n", str(host.env): None}


def test_nothing_but_the_newest_copies_stays(host: Host, tmp_path: Path) -> None:
    for text in ("model: one\n", "model: two\n"):
        host.yaml.write_text(text)
        _serving.keep_good(host.paths, host.good)
    (tmp_path / "good" / "vllm.yaml").write_text("of an earlier version")
    (tmp_path / "good" / "folder").mkdir()
    host.yaml.write_text("model: three\n")
    _serving.keep_good(host.paths, host.good)
    assert sorted(name.partition("-")[0] for name in os.listdir(host.good)) == ["index.json", "vllm.yaml"]
    assert {(tmp_path / "good" / name).stat().st_mode & 0o777 for name in os.listdir(host.good)} == {0o600}


def test_files_go_back_to_what_served(host: Host) -> None:
    _serving.keep_good(host.paths, host.good)
    assert host.differences() == []
    host.yaml.write_text("model: broken\n")
    host.env.write_text("NEW=1\n")
    changes = host.differences()
    assert [(change.before, change.after) for change in changes] == [
        ("NEW=1\n", None),
        ("model: broken\n", "model: one\n"),
    ]
    rollback.apply(changes)
    assert host.yaml.read_text() == "model: one\n"
    assert not host.env.exists()
    assert host.differences() == []


def test_the_environment_is_as_private_in_its_copy_its_diff_and_after_it(host: Host) -> None:
    host.env.write_text("OF_MINE=something-secret\n")
    host.env.chmod(0o640)
    _serving.keep_good(host.paths, host.good)
    assert {path.stat().st_mode & 0o777 for path in Path(host.good).iterdir()} == {0o600}
    assert Path(host.good).stat().st_mode & 0o777 == 0o700
    host.env.write_text("OF_MINE=another-secret\n")
    host.yaml.write_text("model: broken\n")
    changes = host.differences()
    shown = [change.shown() for change in changes]
    assert "-secret\n" not in str(shown)
    assert shown[0]["before"] != shown[0]["after"]
    assert (shown[1]["before"], shown[1]["after"]) == ("model: broken\n", "model: one\n")
    rollback.apply(changes)
    assert (host.env.read_text(), host.env.stat().st_mode & 0o777) == ("OF_MINE=something-secret\n", 0o640)
    host.env.unlink()
    rollback.apply(host.differences())
    assert host.env.stat().st_mode & 0o777 == 0o600
    assert host.yaml.stat().st_mode & 0o777 == 0o644


def test_only_files_of_the_configuration_are_written(host: Host, tmp_path: Path) -> None:
    other = tmp_path / "passwd"
    other.write_text("mine\n")
    _serving.keep_good([*host.paths, str(other)], host.good)
    other.write_text("root\n")
    assert host.differences() == []


def test_where_nothing_served_there_is_nothing_to_go_back_to(host: Host) -> None:
    with pytest.raises(rollback.RollbackError, match="no configuration has served on this host"):
        host.differences()
    assert host.differences(required=False) == []


def test_the_executor_is_not_a_matter_of_files(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = tmp_path / "serving.json"
    serving.write_text(json.dumps({"ray": True}))
    monkeypatch.setattr(rollback.executor_of, "__defaults__", (str(serving),))
    _serving.keep_good([*host.paths, str(serving)], host.good)
    assert host.differences("ray") == []
    with pytest.raises(rollback.RollbackError, match="vllm_serve_executor: ray"):
        host.differences("mp")
    assert host.differences("mp", required=False) == []


def test_who_the_group_is_stays_as_declared(tmp_path: Path) -> None:
    """On the head and on a worker alike, so that both sides meet in the same place."""
    group, env = tmp_path / "group.json", tmp_path / "vllm.env"
    group.write_text(json.dumps({"members": {"10.0.0.1": "a"}}))
    env.write_text('HOME="/elsewhere"\n')
    paths = [str(group), str(env)]
    _serving.keep_good(paths, str(tmp_path / "good"))
    group.write_text("{}")
    env.write_text('HOME="/declared"\n')
    changes = rollback.differences("mp", False, str(tmp_path / "good"), paths)
    assert [(change.path, change.after) for change in changes] == [(str(env), 'HOME="/elsewhere"\n')]


def test_what_the_serving_user_says_is_no_copy(tmp_path: Path) -> None:
    """Earlier versions had each rank keep its own, as that user."""
    assert not rollback.serving.GOOD.startswith("/var/lib/sparkthor/")
    path = tmp_path / "vllm.env"
    path.write_text("A=1\n")
    _serving.keep_good([str(path)], str(tmp_path / "good"))
    [copy] = (tmp_path / "good").glob("vllm.env-*")
    for plant in (lambda: os.mkfifo(copy), lambda: copy.write_text("LD_PRELOAD=/tmp/evil.so\n")):
        copy.unlink()
        plant()
        assert _serving.kept_good(str(tmp_path / "good")) == {}
