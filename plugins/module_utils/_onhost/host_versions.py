# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions a host runs, and on which of them hosts differ: for status.yml, the report and the page alike.

Reads files, and asks one program for the version of a package.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterable, Mapping

from .._lib import files
from . import location, places
from .engines import registry

Runner = Callable[[list[str]], tuple[int, str, str]]

CONTAINER, LAUNCH = location.command("container"), location.command("launch")
#: where the engine is while nothing that runs it says otherwise
ENGINE = "/opt/sparkthor/venv"
#: of all that an engine is made of, what two hosts must have in common and a person asks for
ENGINE_PARTS = (*registry.PACKAGES, "ray", "torch", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "transformers")
TOOLKIT = "nvidia-container-toolkit"
FIRMWARE = "NIC firmware"
KERNEL, DRIVER = "kernel", "driver"
DIGEST, SHOWN_TOOLKIT = "digest", "container toolkit"
#: how a part begins that only some hosts have by nature: what the host's serving group serves
MODEL = "model "
#: what is of the engine, and so of a serving group
OF_ENGINE = (*ENGINE_PARTS, DIGEST)
#: a Thor's kernel, driver, packages, images and NIC are other ones by nature, and wheels are named by their CUDA
BY_KIND = (KERNEL, DRIVER, FIRMWARE, SHOWN_TOOLKIT, DIGEST, "nvidia-nccl-cu13", "nvidia-nccl-cu12")
#: what makes hosts that differ equal again
FIX = "run site.yml on all hosts"


class HostVersions(files.Below):
    """Reads below a root folder."""

    def __init__(self, run: Runner, root: str = "/") -> None:
        super().__init__(root)
        self._run = run

    def engine(self) -> dict[str, str]:
        """What the engine is run from here: a virtual environment and its folder, or a container."""
        # the first is removed when Ray becomes the executor, the second stays when it is no longer
        for path, key in (("/etc/sparkthor/group.json", "command"), ("/etc/sparkthor/ray.json", "engine")):
            words = self._object(path).get(key)
            if isinstance(words, list) and words[: len(LAUNCH)] == LAUNCH and "--" in words:
                # what gives the engine its secrets, and then becomes it
                words = words[words.index("--") + 1 :]
            program = str(words[0]) if isinstance(words, list) and words else ""
            if isinstance(words, list) and words[: len(CONTAINER)] == CONTAINER:
                return {"runtime": "container", "path": ""}
            if program.startswith("/"):
                return {"runtime": "venv", "path": os.path.dirname(os.path.dirname(program))}
        return {"runtime": "venv", "path": ENGINE}

    def parts(self, engine: Mapping[str, str]) -> dict[str, str]:
        """Versions of the engine's parts, by the names of their metadata folders: one directory listing."""
        parts_read = {}
        if engine["runtime"] == "container":
            container = self._object("/etc/sparkthor/container.json")
            inside = container.get("versions") or {}
            parts_read = {str(name): str(version) for name, version in inside.items() if name in ENGINE_PARTS}
            parts_read[DIGEST] = str(container.get("image", "")).removeprefix("sha256:")[:12]
            return {**parts_read, **self.toolkit()}
        marker = self._object(f"{engine['path']}/.sparkthor-engine.json")
        if marker.get("digest"):
            parts_read[DIGEST] = str(marker["digest"])[:12]
        for folder in glob.glob(self._path(f"{engine['path']}/lib/python3.*/site-packages/*.dist-info")):
            name, _sep, version = os.path.basename(folder).removesuffix(".dist-info").partition("-")
            name = name.replace("_", "-").lower()
            if name in ENGINE_PARTS:
                parts_read[name] = version
        return parts_read

    def toolkit(self) -> dict[str, str]:
        """Version of the package by which containers get the GPU."""
        rc, out, _err = self._run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", TOOLKIT])
        state, _blank, version = out.strip().partition(" ")
        return {SHOWN_TOOLKIT: version} if rc == 0 and state == "installed" else {}

    def model(self) -> dict[str, str]:
        """Which revision of which model this host's rank loads; nothing where no file of it says so."""
        own = places.OWN
        for config in (own.group, own.config):
            told = self._object(config)
            try:
                name = registry.engine_of(told).config if told else ""
            except LookupError:
                continue
            folder = os.path.basename(registry.named_model(self._text(f"{own.etc}/{name}")).rstrip("/")) if name else ""
            base, mark, digest = folder.rpartition("@")
            if mark:
                return {f"{MODEL}{base}": digest[:12]}
        return {}

    def read(self) -> dict[str, str]:
        """All that a running host tells by its files; an empty version is left out."""
        devices = glob.glob(self._path("/sys/class/infiniband/*/fw_ver"))
        found = {
            **self.parts(self.engine()),
            **self.model(),
            **firmware(self._text(os.path.relpath(path, self._root)).strip() for path in devices),
            KERNEL: self._text("/proc/sys/kernel/osrelease").strip(),
            DRIVER: self._text("/sys/module/nvidia/version").strip(),
        }
        return {part: version for part, version in found.items() if version}


def firmware(versions: Iterable[str]) -> dict[str, str]:
    """Of all NICs of a host as one."""
    found = sorted({version for version in versions if version})
    return {FIRMWARE: ", ".join(found)} if found else {}


def differing(
    by_host: Mapping[str, Mapping[str, str]], kinds: Mapping[str, str], parts: Iterable[Collection[str]] = ()
) -> dict[str, dict[str, str]]:
    """The parts on which hosts differ that must not, with each one's version.  ``parts`` are the hosts of each serving
    group, where there are several: engines and models are theirs."""
    group = {host: number for number, hosts in enumerate(parts) for host in hosts}
    different: dict[str, dict[str, str]] = {}
    for part in dict.fromkeys(part for versions in by_host.values() for part in versions):
        of_model = part.startswith(MODEL)
        alike: dict[tuple[str, int], dict[str, str]] = {}
        for host, versions in by_host.items():
            kind = kinds.get(host, "") if part in BY_KIND else ""
            which = (kind, group.get(host, 0) if of_model or part in OF_ENGINE else 0)
            if part in versions or not of_model:
                alike.setdefault(which, {})[host] = versions.get(part, "-")
        for told in alike.values():
            # the same release built for another machine carries another local part
            if len({version.partition("+")[0] if part in ENGINE_PARTS else version for version in told.values()}) > 1:
                different.setdefault(part, {}).update(told)
    return different


def difference(part: str, by_host: Mapping[str, str]) -> str:
    """As a sentence."""
    told = ", ".join(f"{host} {version or '-'}" for host, version in by_host.items())
    return f"{part} differs: {told}"


def common(by_host: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What all these hosts have alike, in the first one's order, as far as a person asks for it."""
    first, *others = list(by_host.values()) or [{}]
    return {
        part: version
        for part, version in first.items()
        if version and part != DIGEST and all(told.get(part) == version for told in others)
    }
