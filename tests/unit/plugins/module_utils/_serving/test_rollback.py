# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
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
        return rollback.differences(executor, required, self.good, f"{self.good}-rank", self.allowed)


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
    (tmp_path / "good" / "vllm.yaml").write_text("mod")
    assert _serving.kept_good(host.good) == {}
    (tmp_path / "good" / "vllm.yaml").unlink()
    assert _serving.kept_good(host.good) == {}


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


# --- copies of a rank, which the serving user could have written -------------------------------------------------

DECLARED = """# Ansible managed: sparkthor.cluster
HOME="/var/lib/sparkthor/cache"
NCCL_DEBUG="INFO"
PYTHONUNBUFFERED="1"
VLLM_NEW="1"
"""
SERVED = """# Ansible managed: sparkthor.cluster
HOME="/var/lib/sparkthor/cache"
NCCL_DEBUG="WARN"
PYTHONUNBUFFERED="1"
VLLM_TEXT="a \\"b\\" \\\\"
"""


class Rank:
    """The files of a rank and its copies, at paths that end as the real ones do."""

    def __init__(self, folder: Path) -> None:
        self.etc = folder / "etc"
        self.etc.mkdir()
        self.copies = folder / "last-good"
        self.group = {"host": "b", "command": ["/opt/sparkthor/venv/bin/vllm"], "cleanup": []}
        self.declare("group.json", json.dumps(self.group))
        self.declare("vllm.env", DECLARED)
        self.declare("vllm.yaml", "model: two\n")
        self.roots = folder / "roots"

    def declare(self, name: str, text: str) -> None:
        (self.etc / name).write_text(text)

    def keep(self, **files: str) -> None:
        """Whoever is the serving user writes copies and their index."""
        self.copies.mkdir(exist_ok=True)
        index = {}
        for stem, text in files.items():
            name = stem.replace("_", ".")
            (self.copies / name).write_text(text)
            index[str(self.etc / name)] = hashlib.sha256(text.encode()).hexdigest()
        (self.copies / "index.json").write_text(json.dumps({"files": index}))

    def after(self) -> dict[str, str | None]:
        allowed = [str(self.etc / name) for name in ("group.json", "serving.json", "vllm.env", "vllm.yaml")]
        changes = rollback.differences("mp", False, str(self.roots), str(self.copies), allowed)
        return {Path(change.path).name: change.after for change in changes}


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


def test_a_ranks_arguments_and_environment_go_back(rank: Rank) -> None:
    rank.keep(vllm_yaml="model: one\n", vllm_env=SERVED)
    # byte for byte what served, so that nothing seems to have changed afterwards
    assert rank.after() == {"vllm.yaml": "model: one\n", "vllm.env": SERVED}


def test_what_root_runs_is_not_taken_from_a_rank(rank: Rank) -> None:
    evil = {**rank.group, "command": ["/bin/sh", "-c", "id > /root/pwned"]}
    rank.keep(group_json=json.dumps(evil), serving_json=json.dumps({"ray": True, "unit": "ssh.service"}))
    assert rank.after() == {}
    (rank.etc / "group.json").unlink()
    assert rank.after() == {}


@pytest.mark.parametrize(
    "line",
    [
        'LD_PRELOAD="/tmp/evil.so"',
        'PYTHONPATH="/tmp"',
        'PATH="/tmp"',
        'BASH_ENV="/tmp/x"',
        'GLIBC_TUNABLES="x"',
        'DOCKER_HOST="tcp://evil"',
        'HOME="/tmp"',
        'HF_TOKEN_PATH="/run/credentials/other.service/x"',
        'SSL_CERT_FILE="/tmp/x"',
        "LD_PRELOAD=/tmp/evil.so",
    ],
)
def test_an_environment_that_root_obeys_is_not_taken_from_a_rank(rank: Rank, line: str) -> None:
    rank.keep(vllm_env=f"{line}\n{SERVED}")
    assert rank.after() == {"vllm.env": SERVED}
    # nor taken away: what is declared stays
    rank.keep(vllm_env='# Ansible managed: sparkthor.cluster\nNCCL_DEBUG="WARN"\n')
    text = rank.after()["vllm.env"]
    assert text is not None
    assert 'HOME="/var/lib/sparkthor/cache"' in text
    assert "VLLM_NEW" not in text


@pytest.mark.parametrize(
    "text",
    [
        'VLLM_A="x\nLD_PRELOAD=/tmp/evil.so\n',  # a quote that does not end
        "VLLM_A='x\nLD_PRELOAD=/tmp/evil.so\n'\n",
        "VLLM_A=x\\\nLD_PRELOAD=/tmp/evil.so\n",
        '# x\\\nVLLM_A="1"\n',  # systemd goes on with the comment
        'VLLM_A="1" LD_PRELOAD="/tmp/evil.so"\n',
        'export LD_PRELOAD="/tmp/evil.so"\n',
        " LD_PRELOAD=/tmp/evil.so\n",
    ],
)
def test_an_environment_that_could_be_read_in_two_ways_is_refused(rank: Rank, text: str) -> None:
    rank.keep(vllm_env=text)
    with pytest.raises(rollback.RollbackError, match=r"vllm\.env, line \d: is no assignment"):
        rank.after()


def test_a_value_of_several_lines_stays_one_value(rank: Rank) -> None:
    served = SERVED + 'VLLM_Z="one\nLD_PRELOAD=two"\n'
    rank.keep(vllm_env=served)
    assert rank.after()["vllm.env"] == served


def test_roots_own_copies_are_taken_as_they_are(rank: Rank) -> None:
    group = json.dumps({**rank.group, "members": {"10.0.0.1": "a"}})
    served = 'HOME="/elsewhere"\n'
    rank.keep(group_json=group, vllm_env=served)
    rank.copies.rename(rank.roots)
    rank.keep(vllm_yaml="model: evil\n")
    # but for who the group is and where it meets, which no rank rolls back either
    assert rank.after() == {"vllm.env": served}


def test_a_copy_is_no_link_and_no_pipe(rank: Rank, tmp_path: Path) -> None:
    """Root reads in a folder of another user's: a link would show root's files in one that all may read."""
    secret = tmp_path / "shadow"
    secret.write_text("root:x\n")
    rank.keep(vllm_yaml="root:x\n")
    copy = rank.copies / "vllm.yaml"
    copy.unlink()
    copy.symlink_to(secret)
    assert rank.after() == {}
    for pipe in (copy, rank.copies / "index.json"):
        pipe.unlink()
        os.mkfifo(pipe)
        assert rank.after() == {}
