# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's image on the controller: what the variables name, its archive, the wheels of Ray for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import (
    image as _image,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import (
    pins as _engine,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.image_share import DOCUMENTS, TAR
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError, parse_manifest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push, wheels
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import IMAGES, Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import image_steps

#: variables of the role: what each host lacks, and what the one that pulled the image wrote for the others
INSTALLED, PULLED = "__engine_installed", "__engine_pulled"
COMPLETED, BUILT = "__engine_completed", "__engine_built"
NO_DOCKER = (
    "engine_runtime: container needs Docker, and there is none on this host. Install it (docker.io or docker-ce, 25 or "
    "newer for CDI), or set engine_runtime: venv."
)


class WantedImage(NamedTuple):
    """What a host is to have, as far as the controller can tell."""

    image: str
    archive: _image.Archive | None
    archive_path: str  # links followed
    entry: tuple[str, int, str]  # of the archive's file: name, size, SHA-256
    pins: list[Pin]
    digest: str = ""  # as the variable gives it

    def target(self) -> dict[str, Any]:
        return {
            "image": self.image,
            "archive": self._archive(self.archive) if self.archive else {},
            "lock": _image.lock_digest(self.pins),
            "pins": [[pin.name, pin.version] for pin in self.pins],
        }

    def _archive(self, archive: _image.Archive) -> dict[str, Any]:
        return {"image": archive.image, "others": archive.others, "entry": list(self.entry)}


def read_wanted(args: Mapping[str, Any], machine: str = "") -> WantedImage:
    """Check all that can be checked before a host is touched."""
    source, pins = str(args.get("requirements") or ""), list[Pin]()
    if boolean(args.get("ray", True)):
        pins = _engine.read_lock(local(source), "engine_image_requirements")
        _image.check_ray_lock(pins, source, str(args.get("ray_version") or ""))
    image, digest = str(args.get("image") or ""), str(args.get("digest") or "")
    path = local(str(args.get("archive") or ""))
    if not path:
        if not image:
            raise EngineError(
                "engine_image is empty: name the image (name:tag), or a recipe that does, or give engine_image_archive"
            )
        _image.parse_reference(image, digest)
        return WantedImage(image, None, "", ("", 0, ""), pins, digest)
    real = os.path.realpath(path)
    archive = _image.read_archive(real)
    _image.check_architecture(archive.architecture, machine, f"engine_image_archive: {path}")
    image, _at, inside = image.partition("@")
    for variable, value in (("engine_image_digest", digest), ("engine_image", inside)):
        # which of its digests a host knows it by depends on that host's Docker
        if value and value not in (archive.image, *archive.others):
            raise EngineError(f"{variable} is {value}, but {path} holds {archive.image}: change one of the two.")
    image = image or next(iter(archive.tags), "")
    if not image:
        raise EngineError(f"engine_image is empty, and {path} names no tag: name the image in it (name:tag)")
    _image.parse_reference(image, archive.image)
    name = os.path.basename(real)
    size, sha256 = push.digests(os.path.dirname(real), [name])[name]
    return WantedImage(image, archive, real, (name, size, sha256), pins)


def recorded_name(wanted: WantedImage) -> str:
    """The tag that is recorded with its digest at the first pull; empty where the inventory names the digest itself."""
    return "" if wanted.archive else tag_of(wanted.image, wanted.digest)


def tag_of(image: str, digest: str) -> str:
    """The name of an image that a tag alone names; empty of one that is known by its digest."""
    reference = _image.parse_reference(image, digest)
    return "" if reference.digest else reference.tagged


class First(NamedTuple):
    """What a tag is recorded as at its first use, and what is to be said about it."""

    digest: str
    problem: str = ""
    warning: str = ""


def first(host: str, name: str, found: list[str], record: Record) -> First:
    """Record what a tag means: the registry's word where the controller gets one, else that of the first host.

    ``found``: the digests by which a host knows the image that it has under the tag. A host that has another one than
    the registry is a problem, because nobody can tell whether the tag was moved or the host lies.
    """
    known = record.of(IMAGES, name)
    if known:
        return First(known)
    repository, _colon, tag = name.rpartition(":")
    here = ("", "it is each host's own")
    asked, why = here if registry.on_each_host(repository) else registry.digest_of_tag(repository, tag)
    if asked and found and asked not in found:
        what = f"is {found[0]} there, and {asked} at its registry"
        fix = (
            f"to take the registry's run docker rmi {name} on that host; to keep the one that is there set "
            f"engine_image_digest: {found[0]}"
        )
        return First("", problem=str(Finding("image_moved", what, fix, host, "engine_image", name)))
    if asked:
        return First(record.keep(IMAGES, name, asked))
    if not found:
        return First("")
    warning = (
        f"engine_image: {name}: what it is was said by host {host} alone, {found[0]}, and all hosts are held to that: "
        f"the controller cannot ask the registry ({printable(why)}). engine_image_digest leaves no host a choice"
    )
    return First(record.keep(IMAGES, name, found[0]), warning=warning)


def moved(host: str, name: str, found: str, record: Record) -> Finding:
    """A tag that means another image than the one that was pulled first."""
    return Finding(
        "image_moved",
        f"is {found} there, but {record.of(IMAGES, name)} since its first pull (recorded in {record.path})",
        f"to keep the recorded image run docker rmi {name} on that host; to take the new one on all hosts remove its "
        f"line from the file, or set engine_image_digest: {found}",
        host,
        "engine_image",
        name,
    )


def compare(host: str, name: str, outcome: Mapping[str, Any], record: Record) -> None:
    """What a host ``pulled`` as this tag must be what was pulled first. Raises EngineError."""
    if outcome.get("failed"):
        raise EngineError(str(outcome.get("msg", outcome)))
    pulled, known = outcome.get("pulled"), record.of(IMAGES, name)
    # an inventory on the command line has no record
    if pulled and known and known not in pulled:
        raise EngineError(str(moved(host, name, pulled[0], record)).removeprefix(f"host {host}: "))


def keep_digest(host: str, name: str, outcome: dict[str, Any], record: Record) -> None:
    """Record what a tag means, and compare this host's image with it. Raises EngineError."""
    if not name or not outcome.get("pulled"):
        return
    meant = first(host, name, outcome["pulled"], record)
    if meant.problem:
        raise EngineError(meant.problem.removeprefix(f"host {host}: "))
    if meant.warning:
        outcome.setdefault("warnings", []).append(meant.warning)
    compare(host, name, outcome, record)


def build_of(
    args: Mapping[str, Any], wanted: WantedImage, digest: str, host: str, record: Record
) -> tuple[str, list[tuple[str, str]]]:
    """SHA-256 of all that makes the image of a recipe's steps, and their files; empty without steps.

    ``digest`` is the base image's as far as it is known. Raises EngineError for a base that nobody pins, and for a file
    that is not the declared one.
    """
    build = args.get("build") or {}
    steps = build.get("steps") or []
    if not steps:
        return "", []
    try:
        places = image_steps.places(steps, _steps_folder(build), str(build["recipe"]))
    except image_steps.StepError as error:
        raise EngineError(str(error)) from error
    base = wanted.archive.image if wanted.archive else _image.parse_reference(wanted.image, digest).digest
    if not base:
        base = first(host, recorded_name(wanted), [], record).digest
    if not base:
        raise EngineError(
            f"recipe {build['recipe']}: build changes {wanted.image}, and which image that is cannot be asked of its "
            "registry from here. Set engine_image_digest, or engine_image_archive."
        )
    return image_steps.inputs(base, str(build["script"]), steps), places


def _steps_folder(build: Mapping[str, Any]) -> str:
    return local(str(build.get("folder") or "")) or push.user_cache("build")


def wheels_for(outcome: Mapping[str, Any], args: Mapping[str, Any], download: bool) -> wheels.WheelSet:
    """Wheels for the image's Python, machine and C library, which need not be the host's."""
    target = wheels.target_of({}, outcome["probe"])
    if target is None:
        raise EngineError("the image says nothing about its Python")
    source = str(args["requirements"])
    asked = {name for name, _version in outcome["wanted"]}
    pins = [pin for pin in _engine.read_lock(local(source), "engine_image_requirements") if pin.name in asked]
    engine = _engine.Engine(source, pins, {})
    return wheels.prepare_wheels(
        engine, wheels.wheel_folder(str(args.get("wheel_dir") or ""), target), target, download
    )


def saved(told: Any) -> dict[str, Any]:
    """What a host says about the image that it wrote down for the others, in one shape. Raises EngineError."""
    told = told if isinstance(told, Mapping) else {}
    try:
        entry = parse_manifest([told.get("entry") or []])[0]
        others, digest = told.get("others") or [], str(told.get("digest") or "")
        names = [str(told.get("image")), *others, *([digest] if digest else [])]
        if entry.path != TAR or not all(isinstance(name, str) and _image.is_digest(name) for name in names):
            raise ValueError("an image is told by digests")
        documents = [foreign.text_of(text, 1 << 20) for text in list(told.get("documents") or [])[:DOCUMENTS]]
    except (StoreError, TypeError, ValueError) as error:
        raise EngineError(
            f"what it says about the image that it wrote for the others is no image ({error}): nothing "
            "was passed on. Look at what runs on that host"
        ) from error
    return {"image": names[0], "others": list(others), "entry": list(entry), "digest": digest, "documents": documents}


def results(variables: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """What the hosts that serve together with this one registered under this name."""
    together = (variables.get("sparkthor_cluster") or {}).get("hosts")
    hosts = [host for host in variables.get("ansible_play_hosts") or [] if together is None or host in together]
    return {host: variables["hostvars"][host].get(name) or {} for host in hosts}


def last_results(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the hosts that serve together said last of the image: after a copy over the fabric, or without one."""
    first, last = results(variables, INSTALLED), results(variables, COMPLETED)
    return {host: last[host] if {"unbuilt", "actions"} & set(last[host]) else first[host] for host in first}


def giver(results: Mapping[str, Mapping[str, Any]], head: str, lack: str = "lacks") -> tuple[str, bool]:
    """Of hosts that serve together, by their results: who passes the image on, and whether another one lacks it.

    One that has it, else the head, else the first that lacks it; nobody where none does.
    """
    lacking = [host for host, result in results.items() if result.get(lack)]
    if not lacking:
        return "", False
    having = [host for host, result in results.items() if "actions" in result]
    order = having or ([head] if head in lacking else []) or lacking
    return order[0], any(host != order[0] for host in lacking)
