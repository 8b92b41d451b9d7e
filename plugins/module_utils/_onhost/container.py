# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the units of Ray and the engine:
# pylint: disable=ansible-bad-function
"""How the units of Ray and the engine run one that comes in a container image.

systemd owns what runs: the unit's process is the Docker client, attached, with no restart policy in Docker. A client
that was killed leaves its container behind, so a container is removed by name before each start and after each end of
its unit, and where Docker itself does not answer its processes are found by their control group and killed.

Everything is as without a container: same user, same paths, same network, process and IPC namespaces, so that gate,
watchdog and front proxy need not know.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._lib import command, environment_file, files
from .._lib.deadline import wait_until
from . import launch, location, places, ray_config

CONFIG = "/etc/sparkthor/container.json"
RUN_DIR = "/run/sparkthor/container"
CDI_DEVICE = "nvidia.com/gpu"
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
CAP_SYS_RESOURCE = 24
#: files at most; what systemd gives the units without a container
OPEN_FILES = 1048576
#: seconds for Docker to remove a container; what is left then is killed
PATIENCE = 8.0
#: of the caller's environment, for a question to the engine beside its running units
PASSED_ON = (
    *("RAY_ADDRESS", "RAY_AUTH_MODE", "PYTHONPYCACHEPREFIX", "VLLM_LOGGING_LEVEL"),
    *("RAY_gcs_rpc_server_connect_timeout_s", "RAY_gcs_rpc_server_reconnect_timeout_s"),
)
#: of the unit's environment, besides what environment files say
OF_THE_UNIT = (
    *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_USE_TLS", *ray_config.TLS_FILES),
    *("HF_TOKEN_PATH", "USER", "LOGNAME"),
)

#: of the caller's environment, for a rank of verify's all-reduce
OF_A_RANK = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "PYTHONUNBUFFERED")

#: what units run: Ray, and the engine of the host's own group or of one beside it
_SERVICE = re.compile(rf"ray|{places.SERVICE}(?:-[a-z][a-z0-9_]*)?")

#: (argv, seconds) -> (exit status, stdout, stderr)
Runner = Callable[[Sequence[str], float], "tuple[int, str, str]"]


class ContainerError(Exception):
    """A sentence for the journal or for a play's message."""


def client_environment() -> dict[str, str]:
    """Docker's client gets nothing that the serving user could have prepared for it."""
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C"}


def run(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    return command.run_limited(argv, seconds, environment=client_environment())


def load(path: str = CONFIG) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            config: dict[str, Any] = json.load(stream)
        for key in ("image", "user", "commands", "services"):
            config[key]
    except FileNotFoundError as error:
        raise ContainerError(f"{path} does not exist: run the engine role with engine_runtime: container") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContainerError(f"{path} cannot be used: {error!r}; run the engine role") from error
    return config


def container_name(service: str) -> str:
    return f"sparkthor-{service}"


def settings_of(config: Mapping[str, Any], service: str) -> dict[str, Any]:
    """What a unit gives its container; a group beside the host's own one has an environment of its own."""
    base, _dash, group = service.partition("-")
    found = dict(config["services"][base])
    if group:
        plain, own = places.OWN.environment, places.Places(group).environment
        found["env_files"] = [own if path == plain else path for path in found.get("env_files") or []]
    return found


# ---------------------------------------------------------------------------------------------------------------
# What a container gets
# ---------------------------------------------------------------------------------------------------------------


def cdi_devices(folders: Iterable[str]) -> bool:
    """Does one of Docker's CDI folders describe NVIDIA GPUs? JSON and YAML name the kind in the same words."""
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):
                if not name.endswith((".json", ".yaml", ".yml")):
                    continue
                with (
                    contextlib.suppress(OSError),
                    open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file,
                ):
                    if CDI_DEVICE in file.read(1 << 20):
                        return True
    return False


def gpu_arguments(
    mode: str,
    info: Mapping[str, Any],
    described: bool,
    hook: bool,
    tegra: bool = False,
    has_gpu: bool = True,
) -> list[str]:
    """How this host's Docker hands the GPUs to a container.

    CDI is the best: a ``systemctl daemon-reload`` takes GPUs that the older hook gave away from running containers.
    """
    cdi_on = bool(info.get("CDISpecDirs"))
    runtime = "nvidia" in (info.get("Runtimes") or {})
    ways = {
        "cdi": ["--device", f"{CDI_DEVICE}=all"],
        "gpus": ["--gpus", "all"],
        "runtime": ["--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=all"],
        "none": [],
    }
    if mode != "auto":
        missing = {
            "cdi": "" if cdi_on and described else "no CDI specification of NVIDIA GPUs that Docker reads",
            "gpus": "" if hook else "no nvidia-container-runtime-hook on the path",
            "runtime": "" if runtime else "no runtime named nvidia in Docker",
            "none": "",
        }[mode]
        if missing:
            raise ContainerError(f"engine_container_gpu: {mode} cannot be had on this host: {missing}. {_fix(info)}")
        return ways[mode]
    if cdi_on and described:
        return ways["cdi"]
    if tegra and runtime:
        return ways["runtime"]
    if hook:
        return ways["gpus"]
    if runtime:
        return ways["runtime"]
    if has_gpu:
        raise ContainerError(f"Docker on this host has no way to hand the GPU to a container. {_fix(info)}")
    return []


def _fix(info: Mapping[str, Any]) -> str:
    text = "Install the NVIDIA container toolkit"
    if not info.get("CDISpecDirs"):
        text += (
            f" and switch CDI on (Docker {info.get('ServerVersion') or 'here'}: 25 or newer with "
            '{"features": {"cdi": true}} in /etc/docker/daemon.json; on by default from 28)'
        )
    return text + ", then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; or set engine_container_gpu."


def docker_info(runner: Runner = run) -> dict[str, Any]:
    status, out, err = runner(["docker", "info", "--format", "{{json .}}"], 20)
    try:
        info = json.loads(out) if status == 0 else {}
    except ValueError:
        info = {}
    errors = info.get("ServerErrors") or []
    if not info or errors:
        reason = "; ".join(errors) or err.strip() or f"docker info ended with {status}"
        raise ContainerError(f"Docker does not answer: {reason}")
    return info


def host_gpu_arguments(mode: str, info: Mapping[str, Any]) -> list[str]:
    path = client_environment()["PATH"]
    return gpu_arguments(
        mode,
        info,
        cdi_devices(info.get("CDISpecDirs") or []),
        any(shutil.which(name, path=path) for name in HOOKS),
        os.path.exists("/etc/nv_tegra_release"),
        bool(shutil.which("nvidia-smi", path=path)),
    )


def may_raise_limits(status: str) -> bool:
    """From ``/proc/self/status``: without this capability Docker refuses limits above its own."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
    return False


def limit_arguments(may_raise: bool, memlock_hard: int, files_hard: int) -> list[str]:
    """Locked memory without limit, where this machine allows it to anybody, else as much as it allows."""
    memlock = -1 if may_raise or memlock_hard == resource.RLIM_INFINITY else memlock_hard
    files = OPEN_FILES if may_raise or files_hard == resource.RLIM_INFINITY else min(OPEN_FILES, files_hard)
    return ["--ulimit", f"memlock={memlock}:{memlock}", "--ulimit", f"nofile={files}:{files}"]


def host_limit_arguments() -> list[str]:
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
        may_raise = may_raise_limits(stream.read())
    memlock, files = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1], resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return limit_arguments(may_raise, memlock, files)


def environment_lines(environment: Mapping[str, str]) -> str:
    """What Docker reads with ``--env-file``. It knows no quotes, so a value cannot hold a line break."""
    lines = []
    for name, value in sorted(environment.items()):
        if "\n" in value:
            raise ContainerError(f"the environment variable {name} holds a line break: no container can be given it")
        lines.append(f"{name}={value}\n")
    return "".join(lines)


def bind(path: str, target: str = "", read_only: bool = False) -> list[str]:
    return ["--mount", f"type=bind,source={path},target={target or path}" + (",readonly" if read_only else "")]


def mount_arguments(config: Mapping[str, Any], exists: Callable[[str], bool] = os.path.exists) -> list[str]:
    """Folders of the host at the same place inside; those that are not there are left out."""
    argv: list[str] = []
    for key in ("writable", "readable"):
        for path in config.get(key) or []:
            if exists(path):
                argv += bind(path, read_only=key == "readable")
    return argv


def nccl_arguments(path: str, exists: Callable[[str], bool] = os.path.exists) -> list[str]:
    """The host's repaired nccl.conf in the place of the image's own; nothing there where the host has none."""
    return bind(path if exists(path) else "/dev/null", "/etc/nccl.conf", read_only=True)


def account(user: str, group: str = "") -> tuple[int, int, list[int]]:
    """Numbers of user, first group and further groups on this host; the image knows none of these names."""
    import grp

    try:
        entry = pwd.getpwnam(user)
        first = grp.getgrnam(group).gr_gid if group else entry.pw_gid
    except KeyError as error:
        raise ContainerError(f"{error.args[0]}: run the engine role") from error
    further = [number for number in os.getgrouplist(user, entry.pw_gid) if number != first]
    return entry.pw_uid, first, sorted(further)


def run_arguments(
    config: Mapping[str, Any],
    service: str,
    arguments: Sequence[str],
    *,
    ids: tuple[int, int, Sequence[int]],
    gpu: Sequence[str],
    limits: Sequence[str],
    env_file: str,
    cid_file: str,
    credentials: str = "",
    infiniband: bool = False,
    exists: Callable[[str], bool] = os.path.exists,
) -> list[str]:
    """``docker run`` for one of the units, in the foreground."""
    of_service = settings_of(config, service)
    argv = ["docker", "run", "--rm", "--restart", "no", "--pull", "never", "--log-driver", "none"]
    argv += [
        "--name",
        container_name(service),
        "--cidfile",
        cid_file,
        "--label",
        f"sparkthor.unit={container_name(service)}",
    ]
    argv += _access(config, ids, gpu, limits, env_file, infiniband, exists)
    argv += ["--oom-score-adj", str(int(of_service.get("oom_score_adj", 0)))]
    if credentials:
        argv += bind(credentials, read_only=True)
    argv += ["--workdir", str(of_service.get("directory") or "/"), *(str(word) for word in config.get("options") or [])]
    # Docker has no option for the umask, and the front proxy's user reaches the engine's socket by its group
    argv += ["--entrypoint", "/bin/sh", config["image"], "-c", 'umask "$0" && exec "$@"', str(of_service["umask"])]
    return [*argv, *config["commands"][service.partition("-")[0]], *arguments]


def _access(
    config: Mapping[str, Any],
    ids: tuple[int, int, Sequence[int]],
    gpu: Sequence[str],
    limits: Sequence[str],
    env_file: str,
    infiniband: bool,
    exists: Callable[[str], bool],
) -> list[str]:
    """What every container of the engine has of the host: whoever measures measures with the same."""
    uid, gid, further = ids
    # Host network and IPC as NCCL and Ray want them; the process namespace because Ray's node and the engine, each in a
    # container of its own, know each other by process number.
    argv = ["--network", "host", "--ipc", "host", "--pid", "host", "--userns", "host"]
    argv += ["--user", f"{uid}:{gid}"]
    for number in further:
        argv += ["--group-add", str(number)]
    argv += ["--cap-drop", "ALL", "--cap-add", "IPC_LOCK"]
    argv += ["--security-opt", "no-new-privileges", "--pids-limit", "-1"]
    argv += [*limits, *gpu]
    if infiniband:
        argv += ["--device", "/dev/infiniband"]
    argv += ["--env-file", env_file]
    argv += mount_arguments(config, exists)
    return argv + nccl_arguments(str(config.get("nccl_conf") or "/etc/nccl.conf"), exists)


def rank_arguments(
    config: Mapping[str, Any],
    arguments: Sequence[str],
    *,
    ids: tuple[int, int, Sequence[int]],
    gpu: Sequence[str],
    limits: Sequence[str],
    env_file: str,
    cid_file: str,
    infiniband: bool = False,
    exists: Callable[[str], bool] = os.path.exists,
) -> list[str]:
    """``docker run`` for the engine's Python beside the running engine; its program comes by standard input."""
    argv = ["docker", "run", "--rm", "--interactive", "--restart", "no", "--pull", "never", "--log-driver", "none"]
    argv += [
        "--name",
        container_name("rank"),
        "--cidfile",
        cid_file,
        "--label",
        f"sparkthor.unit={container_name('rank')}",
    ]
    argv += _access(config, ids, gpu, limits, env_file, infiniband, exists)
    python = config["commands"]["python"]
    return [*argv, "--workdir", "/", "--entrypoint", python[0], config["image"], *python[1:], *arguments]


# ---------------------------------------------------------------------------------------------------------------
# Ending one
# ---------------------------------------------------------------------------------------------------------------


def cid_path(service: str, run_dir: str = RUN_DIR) -> str:
    """Where Docker writes the id of a unit's container."""
    return os.path.join(run_dir, f"{service}.cid")


def processes_of(container: str, proc: str = "/proc") -> list[int]:
    """Processes in the control group of a container, without asking Docker."""
    processes = []
    for name in os.listdir(proc):
        if name.isdigit():
            with (
                contextlib.suppress(OSError),
                open(os.path.join(proc, name, "cgroup"), encoding="utf-8", errors="replace") as stream,
            ):
                if container in stream.read():
                    processes.append(int(name))
    return processes


def _end_processes(container: str, proc: str, kill: Callable[[int, int], None]) -> int:
    """SIGKILL for all in the container's control group, until none is there. Returns how many there were."""
    there: set[int] = set()

    def gone() -> bool:
        remains = processes_of(container, proc)
        there.update(remains)
        for pid in remains:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return not remains

    wait_until(gone, 2.0, 0.05)
    return len(there)


def remove(
    service: str,
    runner: Runner = run,
    run_dir: str = RUN_DIR,
    proc: str = "/proc",
    kill: Callable[[int, int], None] = os.kill,
) -> list[str]:
    """End and remove the unit's container, by force and for sure. Returns what is worth a line in the journal."""
    notes = []
    path = cid_path(service, run_dir)
    container = ""
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as stream:
        container = stream.read().strip()
    # The processes first: they share the host's process namespace, so Docker kills one of them, waits ten seconds and
    # more for the others to close what they have open, and has the container's name until then.
    if len(container) >= 12:
        killed = _end_processes(container, proc, kill)
        if killed:
            notes.append(f"killed {killed} processes that {container_name(service)} left")
    # its own --rm may have begun to remove it by now, and it has the name until that has ended
    end = time.monotonic() + PATIENCE
    while True:
        left = max(0.5, end - time.monotonic())
        status, _out, err = runner(["docker", "rm", "--force", "--volumes", container_name(service)], left)
        if "already in progress" not in err or time.monotonic() >= end:
            break
        time.sleep(0.1)
    if status != 0 and "No such container" not in err:
        notes.append(f"Docker could not remove {container_name(service)}: {err.strip()}")
        if len(container) >= 12 and processes_of(container, proc):
            # kept, because the next attempt needs the container's id
            return notes
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return notes


# ---------------------------------------------------------------------------------------------------------------
# Commands
# ---------------------------------------------------------------------------------------------------------------


def credentials_of(environment: Mapping[str, str]) -> str:
    """The unit's credentials, as far as a path in the environment leads there."""
    found = environment.get("CREDENTIALS_DIRECTORY", "")
    for name in OF_THE_UNIT:
        place = os.path.dirname(environment.get(name, ""))
        if not found and place.startswith("/run/credentials/"):
            found = place
    return found


def _given(names: Iterable[str]) -> dict[str, str]:
    """These variables of the caller's environment."""
    return {name: os.environ[name] for name in names if name in os.environ}


def prepare_run(service: str, arguments: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Everything about this host that the command line needs, and the environment file beside it."""
    of_service = settings_of(config, service)
    # read as data: nothing of the files is in the environment of Docker's client, which is root's
    found = launch.environment(of_service.get("env_files") or [], of_service.get("without") or [], _given(OF_THE_UNIT))
    env_file = os.path.join(RUN_DIR, f"{service}.env")
    os.makedirs(RUN_DIR, mode=0o700, exist_ok=True)
    files.write_atomic(env_file, environment_lines(found), mode=0o600)
    return run_arguments(
        config,
        service,
        arguments,
        ids=account(config["user"], str(of_service.get("group") or "")),
        gpu=host_gpu_arguments(str(config.get("gpu") or "auto"), docker_info()),
        limits=host_limit_arguments(),
        env_file=env_file,
        cid_file=cid_path(service),
        credentials=credentials_of(os.environ),
        infiniband=os.path.isdir("/dev/infiniband"),
    )


def prepare_rank(arguments: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """The same for a rank of verify's all-reduce; what its caller says of the sweep goes before the files."""
    found = environment_file.read((environment_file.ENGINE, environment_file.FABRIC))
    found.update(_given(OF_A_RANK))
    env_file = os.path.join(RUN_DIR, "rank.env")
    os.makedirs(RUN_DIR, mode=0o700, exist_ok=True)
    files.write_atomic(env_file, environment_lines(found), mode=0o600)
    return rank_arguments(
        config,
        arguments,
        ids=account(config["user"]),
        gpu=host_gpu_arguments(str(config.get("gpu") or "auto"), docker_info()),
        limits=host_limit_arguments(),
        env_file=env_file,
        cid_file=cid_path("rank"),
        infiniband=os.path.isdir("/dev/infiniband"),
    )


def ask_arguments(
    config: Mapping[str, Any],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    running: bool,
    token_owner: tuple[int, int] | None = None,
    exists: Callable[[str], bool] = os.path.exists,
) -> list[str]:
    """Run the engine's Python once: in Ray's container if that is there, else in one of its own without rights."""
    passed = [word for name in PASSED_ON if name in environment for word in ("--env", f"{name}={environment[name]}")]
    python = config["commands"]["python"]
    if running:
        return ["docker", "exec", "--interactive", *passed, container_name("ray"), *python, *arguments]
    argv = ["docker", "run", "--rm", "--interactive", "--pull", "never", "--log-driver", "none", "--network", "host"]
    argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--label", "sparkthor.unit=question", *passed]
    argv += bind(location.LIBRARY, read_only=True)
    compiled = environment.get("PYTHONPYCACHEPREFIX", "")
    if compiled and exists(compiled) and token_owner is not None and token_owner[0] != 0:
        # what Ray's own container has compiled: without it a question costs seconds of compiling. Its user could have
        # written it, so root does not run it.
        argv += bind(compiled, read_only=True)
    token = environment.get("RAY_AUTH_TOKEN_PATH", "")
    if token and token_owner is not None:
        # the container's user is the file's owner, so that nothing has to be opened to anybody
        argv += ["--user", f"{token_owner[0]}:{token_owner[1]}", "--env", f"RAY_AUTH_TOKEN_PATH={token}"]
        argv += bind(token, read_only=True)
    return [*argv, "--env", "HOME=/tmp", "--entrypoint", python[0], config["image"], *python[1:], *arguments]


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    usage = (
        f"usage: sparkthor_host container run|show ray|{places.SERVICE}[-GROUP] ARGUMENTS…, rank ARGUMENTS…, "
        f"remove ray|{places.SERVICE}[-GROUP]|rank, python ARGUMENTS…"
    )
    try:
        if len(words) >= 2 and words[0] in ("run", "show") and _SERVICE.fullmatch(words[1]):
            config = load()
            if words[0] == "run":
                for note in remove(words[1]):
                    print(note, file=sys.stderr, flush=True)
            command = prepare_run(words[1], words[2:], config)
            if words[0] == "show":
                print(json.dumps(command, indent=1))
                return 0
        elif words[:1] == ["rank"]:
            config = load()
            # one of a run that was broken off
            remove("rank")
            command = prepare_rank(words[1:], config)
        elif len(words) == 2 and words[0] == "remove" and (words[1] == "rank" or _SERVICE.fullmatch(words[1])):
            for note in remove(words[1]):
                print(note, file=sys.stderr, flush=True)
            return 0
        elif words and words[0] == "python":
            config = load()
            state = run(["docker", "container", "inspect", "--format", "{{.State.Running}}", container_name("ray")], 10)
            token, owner = os.environ.get("RAY_AUTH_TOKEN_PATH", ""), None
            with contextlib.suppress(OSError):
                found = os.stat(token)
                owner = (found.st_uid, found.st_gid)
            if token.startswith("/run/credentials/"):
                # a unit's credential, which its user may read whoever owns it
                owner = account(config["user"])[:2]
            command = ask_arguments(config, words[1:], os.environ, state[1].strip() == "true", owner)
        elif words[:1] in (["--help"], ["-h"]):
            print(usage)
            return 0
        else:
            print(usage, file=sys.stderr)
            return 2
        os.execvpe(command[0], command, client_environment())
    except (ContainerError, launch.LaunchError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        # not 1, which the units take for an orderly end because Ray ends with it
        return 75
    return 0
