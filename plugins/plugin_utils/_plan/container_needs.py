# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What arguments and variables need of a container beyond what the engine's has.

It has the host's network, IPC and /dev/shm, locked memory without limit, RDMA devices, IPC_LOCK as its one capability,
and Docker's own seccomp profile. A wider one is the user's own decision, so what lacks is named with the option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged

#: why numa-bind needs more than Docker gives
_NUMA = "binds memory to a NUMA node, which Docker's seccomp profile allows with the capability SYS_NICE alone"


class Need(NamedTuple):
    where: str  # the argument or variable
    value: Any
    why: str
    options: tuple[str, ...]  # words of `docker run` of which one is enough, the first one to be advised
    otherwise: str  # the way without it


_URING = "security-opt=seccomp=FILE"
_WITHOUT_PROFILE = "security-opt=seccomp=unconfined"


def _uring(where: str, value: Any, otherwise: str) -> Need:
    why = "uses io_uring, which Docker's seccomp profile refuses (a profile of your own has to allow io_uring_setup, "
    return Need(where, value, why + "io_uring_enter and io_uring_register)", (_URING, _WITHOUT_PROFILE), otherwise)


def _of_arguments(args: Mapping[str, Any]) -> Iterator[Need]:
    loader = str(args.get("load-format") or "")
    if "b12x" in loader:
        yield _uring("load-format", loader, "choose another load-format")
    if args.get("numa-bind") is True:
        yield Need("numa-bind", True, _NUMA, ("cap-add=SYS_NICE",), "leave it out: these hosts have one NUMA node")
    transfer = args.get("kv-transfer-config")
    extra = transfer.get("kv_connector_extra_config") if isinstance(transfer, Mapping) else None
    backends = extra.get("backends") if isinstance(extra, Mapping) else None
    for backend in backends if isinstance(backends, Sequence) and not isinstance(backends, str) else ():
        if backend == "GDS":
            why = "reads storage by the devices of nvidia-fs"
            yield Need("kv-transfer-config", backend, why, ("device=/dev/nvidia-fs0",), "choose another backend")
        if backend == "POSIX":
            yield _uring("kv-transfer-config", backend, "choose another backend")


def _of_environment(environment: Mapping[str, Any]) -> Iterator[Need]:
    for name, value in merged(environment).items():
        words = str(value).lower()
        if "URING" in name.upper() and words not in ("", "0", "false", "off", "no"):
            yield _uring(name, value, f"set {name} to 0")
        if name == "UCX_TLS" and "cma" in words.split(","):
            why = "reads the memory of another process, for which a container needs SYS_PTRACE"
            yield Need(name, value, why, ("cap-add=SYS_PTRACE",), "leave cma out")


def _given(options: Sequence[str]) -> list[str]:
    """The words of `docker run` as ``name=value``, with or without a blank between them."""
    words: list[str] = []
    for word in options:
        text = str(word)
        if text.startswith("--"):
            words.append(text[2:])
        elif words and "=" not in words[-1]:
            words[-1] += f"={text}"
    return words


def _met(need: Need, given: Sequence[str]) -> bool:
    if "privileged" in given or "privileged=true" in given:
        return True
    if _URING in need.options:
        return any(word.startswith("security-opt=seccomp") for word in given)
    everything = ("cap-add=ALL",) if need.options[0].startswith("cap-add") else ()
    return any(word.startswith((*need.options, *everything)) for word in given)


def lacking(args: Mapping[str, Any], environment: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    """A sentence for each need that ``engine_container_options`` does not meet; nothing for an engine in a venv."""
    given = _given(options)
    return [
        f"{need.where}={need.value!r} {need.why}: give engine_container_options the words "
        f"--{need.options[0].replace('=', ' ', 1)}, or {need.otherwise}"
        for need in (*_of_arguments(args), *_of_environment(environment))
        if not _met(need, given)
    ]
