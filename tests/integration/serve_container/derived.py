# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another image out of an archive of ``docker save``: one more layer, another name; no container engine is needed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

#: a file of this name in a layer takes the file away that the layers below have
GONE = ".wh."


def newer_image(archive: Path, folder: Path) -> Path:
    """An archive of the same engine as an image of another name and ID."""
    path = folder / "image.tar"
    derive(archive, path, "sparkthor-lab/vllm:newer", {"etc/lab-image": b"newer\n"})
    return path


def derive(archive: Path, target: Path, name: str, files: dict[str, bytes]) -> str:
    """The archive ``target`` of the image ``name`` with these files by path; returns the image's ID."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as members:
        _add(members, files)
    plain = hashlib.sha256(layer.getvalue()).hexdigest()
    with tarfile.open(archive) as old, tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as new:
        row = json.loads(_read(old, "manifest.json"))[0]
        config = json.loads(_read(old, row["Config"]))
        config["rootfs"]["diff_ids"].append(f"sha256:{plain}")
        config["history"].append({"created": "1970-01-01T00:00:00Z", "created_by": name})
        text = json.dumps(config, sort_keys=True).encode()
        image = hashlib.sha256(text).hexdigest()
        manifest = [{"Config": f"{image}.json", "RepoTags": [name], "Layers": [*row["Layers"], f"{plain}/layer.tar"]}]
        _add(new, {"manifest.json": json.dumps(manifest).encode(), f"{image}.json": text})
        for path in row["Layers"]:
            new.addfile(old.getmember(path), old.extractfile(path))
        _add(new, {f"{plain}/layer.tar": layer.getvalue()})
    return f"sha256:{image}"


def _add(archive: tarfile.TarFile, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        member = tarfile.TarInfo(path)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))


def _read(archive: tarfile.TarFile, path: str) -> bytes:
    file = archive.extractfile(path)
    assert file is not None, path
    return file.read()
