# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How units run an engine out of an image: what a container gets, and that nothing of it stays behind."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container as _container
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.container import ContainerError

CONFIG = {
    "image": "sha256:" + "a" * 64,
    "user": "sparkthor",
    "gpu": "auto",
    "options": ["--shm-size", "1g"],
    "writable": ["/var/lib/sparkthor", "/tmp"],
    "readable": ["/etc/sparkthor", "/absent"],
    "nccl_conf": "/etc/nccl.conf",
    "commands": {"python": ["/usr/bin/python3"], "ray": ["/usr/local/bin/ray"], "vllm": ["/usr/local/bin/vllm"]},
    "services": {
        "ray": {"group": "sparkthor", "umask": "0022", "directory": "/var/lib/sparkthor", "oom_score_adj": 200},
        "vllm": {"group": "sparkthor-api", "umask": "0007", "oom_score_adj": 300},
    },
}


def arguments(service: str = "ray", **changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "ids": (990, 980, [44, 109]),
        "gpu": ["--device", "nvidia.com/gpu=all"],
        "limits": ["--ulimit", "memlock=-1:-1"],
        "env_file": "/run/e",
        "cid_file": "/run/c",
        "exists": lambda path: path != "/absent",
        **changes,
    }
    return _container.run_arguments(CONFIG, service, ["start", "--head"], **given)


def pairs(argv: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(argv))


def test_a_container_of_ray() -> None:
    argv = arguments()
    assert argv[:2] == ["docker", "run"]
    found = pairs(argv)
    for pair in (
        ("--network", "host"),
        ("--ipc", "host"),
        ("--pid", "host"),
        ("--restart", "no"),
        ("--pull", "never"),
        ("--name", "sparkthor-ray"),
        ("--user", "990:980"),
        ("--group-add", "44"),
        ("--group-add", "109"),
        ("--cap-drop", "ALL"),
        ("--cap-add", "IPC_LOCK"),
        ("--device", "nvidia.com/gpu=all"),
        ("--ulimit", "memlock=-1:-1"),
        ("--oom-score-adj", "200"),
        ("--env-file", "/run/e"),
        ("--cidfile", "/run/c"),
        ("--shm-size", "1g"),
        ("--mount", "type=bind,source=/var/lib/sparkthor,target=/var/lib/sparkthor"),
        ("--mount", "type=bind,source=/etc/sparkthor,target=/etc/sparkthor,readonly"),
        ("--mount", "type=bind,source=/etc/nccl.conf,target=/etc/nccl.conf,readonly"),
    ):
        assert pair in found, pair
    assert "/absent" not in " ".join(argv)
    assert "/dev/infiniband" not in argv
    # the umask is set inside, then the program takes the shell's place
    assert argv[argv.index(CONFIG["image"]) :] == [
        *(CONFIG["image"], "-c", 'umask "$0" && exec "$@"', "0022", "/usr/local/bin/ray", "start", "--head"),
    ]


def test_a_container_of_vllm_with_credentials_and_rdma() -> None:
    argv = arguments("vllm", credentials="/run/credentials/sparkthor-vllm.service", infiniband=True)
    place = "/run/credentials/sparkthor-vllm.service"
    assert ("--mount", f"type=bind,source={place},target={place},readonly") in pairs(argv)
    assert ("--device", "/dev/infiniband") in pairs(argv)
    assert argv[argv.index(CONFIG["image"]) + 3 :][:2] == ["0007", "/usr/local/bin/vllm"]


def test_an_image_cannot_bring_its_own_nccl_conf() -> None:
    argv = arguments(exists=lambda path: path != "/etc/nccl.conf")
    assert ("--mount", "type=bind,source=/dev/null,target=/etc/nccl.conf,readonly") in pairs(argv)


CDI_ON = {"ServerVersion": "28.1", "CDISpecDirs": ["/etc/cdi"], "Runtimes": {"runc": {}}}
CDI_OFF = {"ServerVersion": "26.1.5", "CDISpecDirs": [], "Runtimes": {"runc": {}, "nvidia": {}}}
BARE = {"ServerVersion": "26.1.5", "CDISpecDirs": [], "Runtimes": {"runc": {}}}


@pytest.mark.parametrize(
    ("mode", "info", "found", "wanted"),
    [
        ("auto", CDI_ON, {"described": True, "hook": True}, ["--device", "nvidia.com/gpu=all"]),
        ("auto", CDI_ON, {"described": False, "hook": True}, ["--gpus", "all"]),
        ("auto", CDI_OFF, {"described": True, "hook": True}, ["--gpus", "all"]),
        ("auto", CDI_OFF, {"described": False, "hook": True, "tegra": True}, ["--runtime", "nvidia"]),
        ("auto", CDI_OFF, {"described": False, "hook": False}, ["--runtime", "nvidia"]),
        ("auto", BARE, {"described": False, "hook": False, "has_gpu": False}, []),
        ("gpus", CDI_ON, {"described": True, "hook": True}, ["--gpus", "all"]),
        ("none", CDI_ON, {"described": True, "hook": True}, []),
    ],
)
def test_the_way_to_the_gpus(mode: str, info: dict[str, Any], found: dict[str, bool], wanted: list[str]) -> None:
    assert _container.gpu_arguments(mode, info, **found)[:2] == wanted


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("auto", ["no way to hand the GPU", "nvidia-ctk cdi generate", "Docker 26.1.5", "engine_container_gpu"]),
        ("cdi", ["engine_container_gpu: cdi cannot be had", "no CDI specification"]),
        ("gpus", ["engine_container_gpu: gpus cannot be had", "nvidia-container-runtime-hook"]),
        ("runtime", ["engine_container_gpu: runtime cannot be had", "no runtime named nvidia"]),
    ],
)
def test_no_way_to_the_gpus(mode: str, words: list[str]) -> None:
    with pytest.raises(ContainerError) as caught:
        _container.gpu_arguments(mode, BARE, False, False)
    for word in words:
        assert word in str(caught.value)


def test_cdi_descriptions(tmp_path: Path) -> None:
    assert not _container.cdi_devices([str(tmp_path / "absent"), str(tmp_path)])
    (tmp_path / "other.yaml").write_text("kind: vendor.com/device\n")
    (tmp_path / "notes.txt").write_text("kind: nvidia.com/gpu\n")
    assert not _container.cdi_devices([str(tmp_path)])
    (tmp_path / "nvidia.json").write_text('{"kind": "nvidia.com/gpu"}')
    assert _container.cdi_devices([str(tmp_path / "absent"), str(tmp_path)])


def test_limits_as_far_as_the_machine_allows() -> None:
    assert _container.may_raise_limits("Name: x\nCapEff:\t000001ffffffffff\n")
    assert not _container.may_raise_limits("CapEff:\t000001fffeffffff\n")
    assert not _container.may_raise_limits("Name: x\n")
    everything = ["--ulimit", "memlock=-1:-1", "--ulimit", "nofile=1048576:1048576"]
    assert _container.limit_arguments(True, 8 << 20, 4096) == everything
    assert _container.limit_arguments(False, resource.RLIM_INFINITY, resource.RLIM_INFINITY) == everything
    assert _container.limit_arguments(False, 8388608, 4096) == [
        *("--ulimit", "memlock=8388608:8388608", "--ulimit", "nofile=4096:4096")
    ]


def test_an_environment_is_written_for_docker() -> None:
    known = {"NCCL_IB_HCA": "=rocep1s0f1", "HOME": "/var/lib"}
    assert _container.environment_lines(known) == "HOME=/var/lib\nNCCL_IB_HCA==rocep1s0f1\n"
    with pytest.raises(ContainerError, match="HOME holds a line break"):
        _container.environment_lines({"HOME": "a\nb"})


def test_a_question_goes_into_rays_container_or_into_one_of_its_own() -> None:
    environment = {"RAY_ADDRESS": "10.0.0.1:6379", "SECRET": "x", "RAY_AUTH_TOKEN_PATH": "/etc/t"}
    inside = _container.ask_arguments(CONFIG, ["-", "a"], environment, True)
    assert inside == [
        *("docker", "exec", "--interactive", "--env", "RAY_ADDRESS=10.0.0.1:6379", "sparkthor-ray"),
        *("/usr/bin/python3", "-", "a"),
    ]
    own = _container.ask_arguments(CONFIG, ["-"], environment, False, (0, 0))
    for pair in (("--cap-drop", "ALL"), ("--user", "0:0"), ("--env", "RAY_AUTH_TOKEN_PATH=/etc/t")):
        assert pair in pairs(own)
    assert ("--mount", "type=bind,source=/etc/t,target=/etc/t,readonly") in pairs(own)
    assert own[-4:] == ["--entrypoint", "/usr/bin/python3", CONFIG["image"], "-"]
    assert "SECRET" not in " ".join(own)
    environment["PYTHONPYCACHEPREFIX"] = "/cache/py"
    compiled = ("--mount", "type=bind,source=/cache/py,target=/cache/py,readonly")
    warm = _container.ask_arguments(CONFIG, ["-"], environment, False, (998, 998), lambda _path: True)
    assert compiled in pairs(warm)
    for owner in ((0, 0), None):
        cold = _container.ask_arguments(CONFIG, ["-"], environment, False, owner, lambda _path: True)
        assert compiled not in pairs(cold), "root runs no bytecode that the serving user may have written"


class Docker:
    def __init__(self, *answer: Any) -> None:
        self.answer = answer or (0, "", "")
        self.calls: list[list[str]] = []

    def __call__(self, argv: Any, _seconds: float) -> tuple[int, str, str]:
        self.calls.append(list(argv))
        return self.answer  # type: ignore[return-value]


def test_an_ended_container_is_removed_by_name(tmp_path: Path) -> None:
    docker = Docker(1, "", "Error response from daemon: No such container: sparkthor-ray")
    (tmp_path / "ray.cid").write_text("")
    (tmp_path / "proc").mkdir()
    assert _container.remove("ray", docker, str(tmp_path), str(tmp_path / "proc")) == []
    assert docker.calls == [["docker", "rm", "--force", "--volumes", "sparkthor-ray"]]
    assert not (tmp_path / "ray.cid").exists()


def test_a_container_s_processes_are_killed_before_docker_removes_it(tmp_path: Path) -> None:
    container = "c" * 64
    (tmp_path / "ray.cid").write_text(container)
    proc = tmp_path / "proc"
    for pid, group in ((7, f"0::/system.slice/docker-{container}.scope"), (8, "0::/init.scope")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(group)
    (proc / "self").mkdir()
    killed = []

    def kill(pid: int, number: int) -> None:
        killed.append((pid, number))
        (proc / str(pid) / "cgroup").unlink()

    class Asked(Docker):
        def __call__(self, *given: Any) -> tuple[int, str, str]:
            assert killed, "Docker waits for what is still there"
            return super().__call__(*given)

    notes = _container.remove("ray", Asked(124, "", "docker gave no answer"), str(tmp_path), str(proc), kill)
    assert killed == [(7, signal.SIGKILL)]
    assert "killed 1 processes" in notes[0]
    assert "no answer" in notes[1]


def test_a_removal_that_docker_has_begun_itself_is_waited_for(tmp_path: Path) -> None:
    """A container is run with --rm: killing its processes first lets that begin before the question."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "ray.cid").write_text("c" * 64)
    busy = (1, "", "Error response from daemon: removal of container sparkthor-ray is already in progress")
    answers = [busy, busy, (1, "", "Error response from daemon: No such container: sparkthor-ray")]

    def docker(_argv: Any, _seconds: float) -> tuple[int, str, str]:
        return answers.pop(0)

    assert _container.remove("ray", docker, str(tmp_path), str(tmp_path / "proc")) == []
    assert answers == []


def test_docker_that_does_not_answer_is_named() -> None:
    with pytest.raises(ContainerError, match="Cannot connect"):
        _container.docker_info(Docker(1, "", "Cannot connect to the Docker daemon"))
    with pytest.raises(ContainerError, match="is the docker daemon running"):
        _container.docker_info(Docker(0, json.dumps({"ServerErrors": ["is the docker daemon running?"]}), ""))
    assert _container.docker_info(Docker(0, '{"ServerVersion": "28"}', ""))["ServerVersion"] == "28"


def test_a_missing_or_torn_configuration_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="run the engine role"):
        _container.load(str(tmp_path / "absent"))
    (tmp_path / "torn").write_text('{"image": ')
    with pytest.raises(ContainerError, match="torn cannot be used"):
        _container.load(str(tmp_path / "torn"))
    (tmp_path / "whole").write_text(json.dumps(CONFIG))
    assert _container.load(str(tmp_path / "whole"))["user"] == "sparkthor"


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(_container.os, "execvpe", lambda *given: ran.append(given))
    monkeypatch.setattr(_container, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(_container, "docker_info", lambda: BARE)
    monkeypatch.setattr(_container, "account", lambda user, group="": (990, 980, [44]))
    monkeypatch.setattr(_container, "host_gpu_arguments", lambda mode, info: ["--gpus", "all"])
    monkeypatch.setattr(_container, "run", Docker(0, "false\n", ""))
    monkeypatch.setattr(_container.remove, "__defaults__", (Docker(), str(tmp_path / "run"), "/proc", os.kill))
    environment = tmp_path / "ray.env"
    environment.write_text('NCCL_NET="IB"\nLD_PRELOAD="/evil.so"\nRAY_ADDRESS=10.0.0.1:6379\n')
    service = {**CONFIG["services"]["ray"], "env_files": [str(environment), "-/absent"], "without": ["RAY_ADDRESS"]}
    config = {**CONFIG, "services": {"ray": service}}
    monkeypatch.setattr(_container, "load", lambda: config)
    # of the caller's environment the container gets what the unit says, and of the engine's files everything
    monkeypatch.setenv("LD_AUDIT", "/of/the/caller.so")
    monkeypatch.delenv("NCCL_NET", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/run/credentials/x/ray_token")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    _container.main(["run", "ray", "start"])
    program, argv, given = ran[0]
    assert program == "docker"
    assert argv[-2:] == ["/usr/local/bin/ray", "start"]
    # the client is root's: nothing of the unit's environment reaches it
    assert sorted(given) == ["HOME", "LC_ALL", "PATH"]
    written = tmp_path / "run" / "ray.env"
    assert written.stat().st_mode & 0o777 == 0o600
    lines = written.read_text().splitlines()
    assert {"NCCL_NET=IB", "LD_PRELOAD=/evil.so"} <= set(lines)
    assert not [line for line in lines if line.startswith(("RAY_ADDRESS=", "LD_AUDIT="))]
    assert "RAY_AUTH_TOKEN_PATH=/run/credentials/x/ray_token" in lines
    service["env_files"].append("/absent")
    assert _container.main(["run", "ray", "start"]) == 75
    assert "/absent cannot be read" in capsys.readouterr().err
    service["env_files"].pop()
    assert _container.main(["show", "ray", "start"]) == 0
    assert json.loads(capsys.readouterr().out)[-1] == "start"
    _container.main(["python", "-"])
    assert ran[1][1][:2] == ["docker", "run"]
    assert _container.main(["dance"]) == 2
    assert "usage: sparkthor_host container" in capsys.readouterr().err

    def fail() -> dict[str, Any]:
        raise ContainerError("no configuration")

    monkeypatch.setattr(_container, "load", fail)
    # Ray's own end is 1, which the unit takes for an orderly one
    assert _container.main(["run", "ray"]) == 75
    assert "no configuration" in capsys.readouterr().err


def test_credentials_are_found_where_their_folder_is_not_named() -> None:
    assert _container.credentials_of({"CREDENTIALS_DIRECTORY": "/run/credentials/a"}) == "/run/credentials/a"
    hidden = {"HF_TOKEN_PATH": "/run/credentials/sparkthor-vllm.service/hf_token", "RAY_AUTH_TOKEN_PATH": "/etc/t"}
    assert _container.credentials_of(hidden) == "/run/credentials/sparkthor-vllm.service"
    assert _container.credentials_of({"HF_TOKEN_PATH": "/root/token"}) == ""


def test_the_engine_of_a_group_beside_another_is_a_container_of_its_own() -> None:
    plain = "/etc/sparkthor/vllm.env"
    files = ["/etc/sparkthor/engine.env", plain]
    config = {**CONFIG, "services": {**CONFIG["services"], "vllm": {**CONFIG["services"]["vllm"], "env_files": files}}}
    own = _container.settings_of(config, "vllm-embed")
    assert own["env_files"] == ["/etc/sparkthor/engine.env", "/etc/sparkthor/beside/embed/vllm.env"]
    assert _container.settings_of(config, "vllm")["env_files"] == files
    argv = arguments("vllm-embed")
    assert ("--name", "sparkthor-vllm-embed") in pairs(argv)
    assert argv[-3:] == ["/usr/local/bin/vllm", "start", "--head"]


def test_a_container_of_no_unit_of_ours_is_not_touched(capsys: pytest.CaptureFixture[str]) -> None:
    for service in ("vllm-../x", "ray-embed", "other"):
        assert _container.main(["remove", service]) == 2
    assert "vllm[-GROUP]" in capsys.readouterr().err
