# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError

IMAGE = "sha256:" + "a" * 64


class Docker:
    """Answers by the first words of the command; what has no answer fails."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, str]] = {}
        self.calls: list[str] = []

    def __call__(self, argv: list[str], timeout: float, stdin: str | None = None) -> tuple[int, str, str]:
        line = " ".join(argv[1:])
        self.calls.append(line)
        found = [answer for words, answer in self.answers.items() if line.startswith(words)]
        return found[0] if found else (1, "", f"Error: No such image: {argv[-1]}")


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker()
    monkeypatch.setattr(image_host, "run_limited", found)
    return found


@pytest.fixture
def host(tmp_path: Path) -> image_host.DockerHost:
    return image_host.DockerHost(str(tmp_path / "work"), 60)


def inspected(name: str) -> tuple[int, str, str]:
    return 0, json.dumps([{"Id": name, "Architecture": "arm64", "Config": {"Labels": None}}]), ""


def test_a_failed_command_of_docker_says_why(host: image_host.DockerHost, docker: Docker) -> None:
    with pytest.raises(EngineError, match="docker pull own/vllm: Error: No such image"):
        host.docker("pull", "own/vllm")
    docker.answers["pull"] = (2, "", "")
    with pytest.raises(EngineError, match="docker pull own/vllm: exit status 2"):
        host.docker("pull", "own/vllm")


def test_whether_docker_answers(host: image_host.DockerHost, docker: Docker) -> None:
    assert host.answers() is False
    docker.answers["version"] = (0, "28.1\n", "")
    assert host.answers() is True


def test_the_first_of_the_names_that_is_there(host: image_host.DockerHost, docker: Docker) -> None:
    assert host.image("own/vllm:1", IMAGE) is None
    docker.answers[f"image inspect {IMAGE}"] = inspected(IMAGE)
    found = host.image("own/vllm:1", IMAGE)
    assert found is not None
    assert (found.image, found.architecture, found.labels) == (IMAGE, "arm64", {})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((127, "", "docker: not installed"), "there is none on this host. Install it"),
        ((1, "", "permission denied"), "docker image inspect: permission denied"),
    ],
)
def test_docker_that_cannot_be_asked(
    host: image_host.DockerHost, docker: Docker, answer: tuple[int, str, str], words: str
) -> None:
    docker.answers["image inspect"] = answer
    with pytest.raises(EngineError, match=words):
        host.image(IMAGE)


def test_an_image_is_probed_once(host: image_host.DockerHost, docker: Docker) -> None:
    docker.answers["run"] = (0, 'noise\n{"ray": "", "libraries": {}}\n', "")
    docker.answers["image inspect"] = inspected(IMAGE)
    found = host.probe(IMAGE)
    assert host.probe(IMAGE) == found
    assert len([line for line in docker.calls if line.startswith("run")]) == 1
    assert host.records() == {IMAGE: found}


def test_an_image_whose_python_does_not_run(host: image_host.DockerHost, docker: Docker) -> None:
    docker.answers["run"] = (126, "", "exec format error")
    with pytest.raises(EngineError, match=f"{IMAGE}: its Python cannot be run: .*exec format error"):
        host.probe(IMAGE)
    assert host.records() == {}


def test_images_made_here_that_nobody_needs_are_removed(host: image_host.DockerHost, docker: Docker) -> None:
    docker.answers["images"] = (0, "one\ntwo\none\n", "")
    docker.answers["image inspect"] = inspected(IMAGE)
    host.prune({"two"}, 0)
    assert [line for line in docker.calls if line.startswith("rmi")] == ["rmi one"]
    Path(host.work_dir).mkdir(exist_ok=True)
    records = {"old": {"brought": True}, "own": {}, "new": {"brought": True}}
    Path(host.work_dir, image_host.RECORD).write_text(json.dumps(records))
    docker.calls.clear()
    # the newest of what was brought here stays, and what a person had before is left alone
    host.prune({"two"}, 1)
    assert [line for line in docker.calls if line.startswith("rmi")] == ["rmi old", "rmi one"]


def test_a_file_that_is_not_there_reads_as_empty(tmp_path: Path) -> None:
    assert image_host.read(str(tmp_path / "none")) == ""
    (tmp_path / "some").write_text("x")
    assert image_host.read(str(tmp_path / "some")) == "x"
