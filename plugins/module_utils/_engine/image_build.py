# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image built once from declared steps: patches, packages and other people's scripts on top of a pinned image.

One host builds it and writes it down for the others. Docker runs the steps in a container without a network and
without a capability; what comes out is tried before any host is told to use it. Nothing is left of a build that fails.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_share, patching, trial
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.image_host import DockerHost
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as engines
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, parse_manifest

#: the folder of the store in which the steps' files wait for the build
FOLDER = "build"
SCRIPT, PATCHER = "build.sh", "patching.py"


def build(params: Mapping[str, Any]) -> dict[str, Any]:
    """Build the image unless it is here, or say what of its files has to be sent.

    ``base`` is the image on this host that the steps change, by its ID.
    """
    host = DockerHost(params["work_dir"], params["timeout"])
    inputs, tag = params["inputs"], _image.built_tag(params["inputs"])
    if _image.is_built(host.image(tag), inputs):
        return {"changed": False, "built": tag}
    base = host.image(params["base"])
    if base is None:
        raise EngineError(f"{params['base']}: the image that is to be changed is gone: run again")
    manifest, store = parse_manifest(params["files"]), host.store()
    plan = store.plan(FOLDER, manifest)
    if plan.need:
        store.check_space(plan.bytes_needed, "the files of the image's steps")
        return {"changed": True, "need": plan.need}
    try:
        with host.alone():
            store.commit(FOLDER, manifest, plan.wrong)
            with _laid_out(store.folder(FOLDER), manifest, params["script"]) as place:
                labels = {_image.LABEL_BASE: base.image, _image.LABEL_BUILD: inputs}
                made = host.changed(base, tag, labels, place, ["/bin/sh", f"/mnt/{SCRIPT}"])
    except EngineError as error:
        raise EngineError(
            f"{params['recipe']}: its image could not be built, and nothing was changed: {error}"
        ) from error
    finally:
        store.remove(FOLDER)
    try:
        warnings = _tried(host, made, params)
    except EngineError as error:
        run_limited(["docker", "rmi", "--force", made], 60)
        raise EngineError(
            f"{params['recipe']}: its image was built and cannot serve, so it was removed: {error}"
        ) from error
    return {"changed": True, "built": tag, "warnings": warnings}


@contextlib.contextmanager
def _laid_out(folder: str, manifest: list[Entry], script: str) -> Iterator[str]:
    """What the container sees at /mnt: the steps' files, the script, and the program that applies patches."""
    place = tempfile.mkdtemp(prefix="build-", dir=os.path.dirname(folder))
    try:
        for entry in manifest:
            target = os.path.join(place, entry.path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(folder, entry.path), target)
        write_atomic(os.path.join(place, SCRIPT), script, mode=0o644)
        write_atomic(os.path.join(place, PATCHER), inspect.getsource(patching), mode=0o644)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _tried(host: DockerHost, image: str, params: Mapping[str, Any]) -> list[str]:
    """What is to be said of an image that was built here. Raises EngineError for one that cannot serve."""
    engine, recipe = engines.engine_of({"engine": params["engine"]}), params["recipe"]
    probe = host.probe(image, brought=True)
    said = _image.check_probe(probe, recipe, "", params["kind"], params["calls"], engine)
    if engine is not engines.DEFAULT:
        return said
    gpus = container.host_gpu_arguments(params["gpu"], container.docker_info())
    command = ["docker", "run", "--rm", "--interactive", "--name", trial.CONTAINER, "--network", "none"]
    command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pull", "never", "--log-driver", "none"]
    command += [*gpus, "--tmpfs", "/tmp:exec", "--env", "HOME=/tmp", "--entrypoint", str(probe["executable"]), image]
    _found, left_out = trial.attempt(command, False, 600, trial.available())
    return [*said, *([f"{recipe}: {left_out}"] if left_out else [])]


def share(params: Mapping[str, Any]) -> dict[str, Any]:
    """The image that was built, as ``saved`` for the other hosts."""
    host, tag = DockerHost(params["work_dir"], params["timeout"]), _image.built_tag(params["inputs"])
    found = host.image(tag)
    if found is None or not _image.is_built(found, params["inputs"]):
        raise EngineError(f"{tag} is not here after it was built: run again")
    entry, archive = image_share.written_down(host, found.image, tag, params["timeout"])
    told = {"image": archive.image, "others": archive.others, "entry": list(entry), "digest": "", "documents": []}
    return {"changed": False, "built": tag, "saved": told}
