# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host fetches an image for all: Docker pulls it in a unit of its own, and writes it into the store for the others.

The unit goes on when the controller or its connection is lost, and the next run finds it at work.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.image_host import ARCHIVE, DockerHost
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_plain, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import hash_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry

UNIT = "sparkthor-pull.service"
FOLDER = "/run/sparkthor-pull"
LOG = f"{FOLDER}/log"
#: name of the file that docker save writes
TAR = "image.tar"
#: manifests that are passed on with an image, at most
DOCUMENTS = 20
_PROGRAM = 'docker pull "$1" >"$2/log" 2>&1; echo $? >"$2/status"'
_LAYER = re.compile(r"^(?P<layer>[0-9a-f]{12}): (?P<state>.+)$", re.MULTILINE)
_UNPACKED = ("Pull complete", "Already exists")
_HERE = (*_UNPACKED, "Download complete", "Extracting")


def progress(log: str) -> str:
    """How far a pull is, by what Docker prints where there is no terminal; it tells no bytes there."""
    states = {match["layer"]: match["state"] for match in _LAYER.finditer(log)}
    if not states:
        return "waiting for the registry"
    here, unpacked = (sum(state in words for state in states.values()) for words in (_HERE, _UNPACKED))
    return f"{here} of {len(states)} layers downloaded, {unpacked} unpacked"


def _read(name: str) -> str:
    try:
        return read_plain(f"{FOLDER}/{name}").decode(errors="replace").strip()
    except OSError:
        return ""


def _active() -> bool:
    return run_limited(["systemctl", "is-active", "--quiet", UNIT], 30)[0] == 0


def _reference(params: Mapping[str, Any]) -> _image.Reference:
    return _image.parse_reference(params["image"], params["digest"])


def pull(params: Mapping[str, Any]) -> dict[str, Any]:
    """Begin to pull the image unless it is here; one pull that is under way goes on."""
    host, reference = DockerHost(params["work_dir"], params["timeout"]), _reference(params)
    if host.image(reference.pull) is not None:
        return {"changed": False, "pulling": False}
    if _active():
        if _read("image") == reference.pull:
            return {"changed": True, "pulling": True}
        run_limited(["systemctl", "stop", UNIT], 60)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    for name, text in (("image", reference.pull), ("log", ""), ("status", "")):
        write_atomic(f"{FOLDER}/{name}", text, mode=0o600)
    rc, out, err = run_limited(
        ["systemd-run", "--quiet", "--collect", f"--unit={UNIT}", f"--description=Pull {reference.pull}",
         # where Docker's client finds the registry's password
         f"--setenv=HOME={os.path.expanduser('~')}", f"--property=RuntimeMaxSec={params['timeout']}",
         "/bin/sh", "-c", _PROGRAM, "sh", reference.pull, FOLDER], 60
    )  # fmt: skip
    if rc:
        raise EngineError(f"systemd-run {UNIT} failed: {(err or out).strip() or rc}")
    return {"changed": True, "pulling": True}


def save(params: Mapping[str, Any]) -> dict[str, Any]:
    """The image that was pulled, as ``saved`` for the other hosts: written where their copies will lie."""
    host, reference = DockerHost(params["work_dir"], params["timeout"]), _reference(params)
    image = host.image(reference.pull)
    if image is None:
        log = _read("log").splitlines()
        why = log[-1] if log and _read("image") == reference.pull else "its unit ended without a word"
        raise EngineError(
            f"engine_image: {reference.pull} could not be pulled: {why}. Check its name and digest, log in to its "
            "registry there (docker login), or give it as engine_image_archive"
        )
    # before another host gets it
    _image.check_architecture(image.architecture, platform.machine(), f"engine_image: {reference.tagged}")
    if _read("image") == reference.pull and _read("status") == "0":
        # so that it goes when it is used no more
        host.note(image.image, brought=True)
    digests = _image.registry_digests(image, reference.name)
    told: dict[str, Any] = {"changed": False, "pulled": digests}
    if not params["share"]:
        return told
    host.docker("tag", image.image, reference.tagged)
    documents: list[str] = []

    def read(path: str) -> None:
        documents.extend(_documents(path, image, reference.name, digests))

    entry, archive = written_down(host, image.image, reference.tagged, params["timeout"], read)
    told["saved"] = {
        "image": archive.image,
        "others": archive.others,
        "entry": list(entry),
        "digest": digests[0] if digests else "",
        "documents": documents,
    }
    return told


def written_down(
    host: DockerHost, image: str, tag: str, seconds: float, read: Callable[[str], None] = lambda path: None
) -> tuple[Entry, _image.Archive]:
    """The file in the store, from which the fan-out passes an image on, and what it holds.

    ``read`` sees the archive before it is published. Raises EngineError or StoreError, and leaves nothing then.
    """
    store = host.store()
    store.check_space(host.size(image), f"{tag} for the other hosts")
    scratch = os.path.join(store.incoming, f"save-{os.getpid()}-{time.monotonic_ns()}")
    try:
        host.docker("save", "--output", scratch, tag, seconds=seconds)
        archive = _image.read_archive(scratch)
        read(scratch)
        entry = Entry(TAR, os.path.getsize(scratch), hash_file(scratch))
        os.chmod(scratch, PROVED)
        os.replace(scratch, os.path.join(store.incoming, entry.sha256))
    finally:
        if os.path.exists(scratch):
            os.unlink(scratch)
    if os.path.isdir(store.folder(ARCHIVE)):
        # of a run that was broken off
        store.remove(ARCHIVE)
    store.commit(ARCHIVE, [entry], [TAR])
    return entry, archive


def _documents(path: str, image: _image.Image, name: str, digests: list[str]) -> list[str]:
    """What shows the other hosts that this image is that of its registry's digest, as far as it can be had."""
    if not digests:
        return []
    found = _image.archive_documents(path)
    if not registry.proves(image.image, digests[0], found):
        found += registry.documents_of(name, digests[0], image.architecture)
    return [document.decode(errors="replace") for document in dict.fromkeys(found) if registry.names_others(document)][
        :DOCUMENTS
    ]
