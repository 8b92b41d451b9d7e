#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the lab's container image: an archive such as ``docker save`` writes, without any container engine here.

    image.py              make it if it is lacking, print its paths as JSON on the last line

Two layers: the lab's own Debian bookworm (its Python is 3.11, which the CPU build of vLLM wants) and, installed into
that system's Python by uv, the wheels the lab's hosts would get. Ray is left out, because the images of vLLM and NGC
have none either: adding it is the engine role's work. The same inputs give the same bytes, so the image's digest is a
fact of the lock. Like the images people use, it carries an nccl.conf of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
for _folder in (HERE, os.path.join(HERE, "..", "..", "plugins", "module_utils"), os.path.join(HERE, "..")):
    if os.path.abspath(_folder) not in sys.path:
        sys.path.insert(0, os.path.abspath(_folder))

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import packages  # noqa: E402
import prepare  # noqa: E402
from _engine import pins as engine_pins  # noqa: E402
from sparklab import base  # noqa: E402

NAME = f"sparkthor-lab/vllm:{packages.VLLM_VERSION}"

#: raise when what is made changes in a way its inputs do not show
VERSION = "1"
#: what a container has no use for
UNWANTED = (
    *("boot", "usr/lib/modules", "var/cache", "var/lib/apt", "var/log", "usr/share/doc", "usr/share/man"),
    *("dev", "proc", "sys", "run", "tmp", "home", "etc/ssh", "usr/lib/systemd/boot", "usr/share/locale"),
)
#: repeats what some vendor images carry; the engine's unit must not follow it
NCCL_CONF = "NCCL_IB_DISABLE=1\n"
ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NCCL_VERSION=2.30.7")

INSTALL = r"""
set -e
root=$1 lower=$2 work=$3 wheels=$4 cache=$5
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/work" "$root"
mkdir -p "$root/tmp/wheels" "$root/tmp/cache" "$root/tmp/tools"
mount --bind "$wheels" "$root/tmp/wheels"
mount --bind "$cache" "$root/tmp/cache"
mount --bind "$work/tools" "$root/tmp/tools"
mount -t proc proc "$root/proc"
chroot "$root" env -i PATH=/usr/bin:/bin HOME=/tmp/tools UV_CACHE_DIR=/tmp/cache UV_NO_CONFIG=1 UV_OFFLINE=1 \
  UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy \
  /tmp/tools/uv pip install --quiet --python /usr/bin/python3.11 --break-system-packages --no-index --no-deps \
  --require-hashes --requirement /tmp/tools/requirements.txt
umount "$root/proc" "$root/tmp/wheels" "$root/tmp/cache" "$root/tmp/tools"
rm -rf "$root/tmp/wheels" "$root/tmp/cache" "$root/tmp/tools" "$root/tmp/.lock"
umount "$root"
"""


#: of Ray's closure, what nothing else in the engine's lock imports
RAYS_ALONE = frozenset(
    {
        *("ray", "aiohttp-cors", "colorful", "opencensus", "opencensus-context", "py-spy", "smart-open", "distlib"),
        *("virtualenv", "python-discovery", "google-auth", "proto-plus", "pyasn1", "pyasn1-modules"),
    }
)


def digest() -> str:
    made_by = hashlib.sha256()
    made_by.update(f"{VERSION}\0{prepare.lock_hash()}\0{base.base_name('bookworm')}\0{NCCL_CONF}\0{UNWANTED}".encode())
    made_by.update("\0".join([*sorted(RAYS_ALONE), *ENVIRONMENT, NAME]).encode())
    return made_by.hexdigest()[:12]


def paths(cache: str) -> str:
    return os.path.join(cache, "images", f"vllm-{digest()}.tar")


def write_layer(folder: str, target: str, leave_out: Iterable[str] = ()) -> tuple[str, str]:
    """A layer as a compressed archive with fixed times and order: (name in the image, digest of the plain layer)."""
    tar = [
        *("tar", "--create", "--directory", folder, "--sort=name", "--mtime=@0", "--numeric-owner"),
        *("--format=gnu", "--one-file-system", "--exclude=__pycache__"),
        *(f"--exclude=./{path}" for path in leave_out),
        ".",
    ]
    plain = hashlib.sha256()
    with open(target, "wb") as file:
        packer = subprocess.Popen(
            ["zstd", "-q", "-1", "-T1", "-c"], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE
        )
        maker = subprocess.Popen(tar, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert maker.stdout
        assert packer.stdin
        while block := maker.stdout.read(1 << 20):
            plain.update(block)
            packer.stdin.write(block)
        packer.stdin.close()
        if maker.wait() or packer.wait():
            raise prepare.PrepareError(f"{folder}: tar or zstd failed while the image's layer was made")
    return f"{plain.hexdigest()}/layer.tar", f"sha256:{plain.hexdigest()}"


def write_archive(
    target: str, layers: list[tuple[str, str, str]], name: str = NAME, environment: Sequence[str] = ENVIRONMENT
) -> str:
    """The archive out of (file, name, digest) for each layer; returns the image's digest."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": list(environment), "Cmd": ["bash"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [plain for _file, _name, plain in layers]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "sparkthor lab"} for _layer in layers],
    }
    text = json.dumps(config, sort_keys=True).encode()
    image = hashlib.sha256(text).hexdigest()
    manifest = [{"Config": f"{image}.json", "RepoTags": [name], "Layers": [inside for _file, inside, _plain in layers]}]
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as archive:

        def add(name: str, data: bytes) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))

        # what says what the archive holds comes first: whoever asks need not read gigabytes
        add("manifest.json", json.dumps(manifest).encode())
        add(f"{image}.json", text)
        for file, inside, _plain in layers:
            member = tarfile.TarInfo(inside)
            member.size = os.path.getsize(file)
            with open(file, "rb") as stream:
                archive.addfile(member, stream)
    return f"sha256:{image}"


def make(where: prepare.Paths, target: str, progress: prepare.Progress) -> None:
    """The archive of vLLM's image."""
    chosen = {pin: name for pin, name in wheels_of_the_lab(where).items() if pin.name not in RAYS_ALONE}
    wanted = {name: pin.hashes[0] for pin, name in chosen.items()}
    install(where, target, NAME, (where["wheel_dir"], wanted), progress)


def wheels_of_the_lab(where: prepare.Paths) -> dict[engine_pins.Pin, str]:
    """The lab's lock with the file of each wheel, without uv, which an image has no use for."""
    system = engine_pins.Target(prepare.PYTHON, prepare.MACHINE, prepare.GLIBC)
    pins = engine_pins.read_lock(prepare.LOCK, "lock")
    chosen, _missing = engine_pins.select_wheels(pins, os.listdir(where["wheel_dir"]), system)
    return {pin: name for pin, name in chosen.items() if pin.name != "uv"}


def install(
    where: prepare.Paths,
    target: str,
    name: str,
    wheels: tuple[str, dict[str, str]],
    progress: prepare.Progress,
    leave_out: Sequence[str] = (),
) -> None:
    """The archive of an image with the wheels (folder, SHA-256 by file), without paths of ``leave_out``."""
    lower = str(base.base("bookworm"))
    work = f"{target}.work"
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("upper", "work", "root", "tools"):
        os.makedirs(os.path.join(work, folder))
    try:
        pins = engine_pins.read_lock(prepare.LOCK, "lock")
        prepare.extract_uv(pins, where["wheel_dir"], os.path.join(work, "tools"))
        Path(work, "tools", "requirements.txt").write_text(engine_pins.wheel_lines("/tmp/wheels", wheels[1]), "utf-8")
        cache = os.path.join(where["cache"], "uv-cache")
        os.makedirs(cache, exist_ok=True)
        progress(f"image: installing {len(wheels[1])} wheels")
        script = ["unshare", "-m", "bash", "-c", INSTALL, "install", f"{work}/root", lower, work, wheels[0]]
        prepare._run([*script, cache], "image", f"{work}/upper", progress)
        Path(work, "upper", "etc").mkdir(exist_ok=True)
        Path(work, "upper", "etc", "nccl.conf").write_text(NCCL_CONF, encoding="utf-8")
        layers = []
        for number, (folder, without) in enumerate(((lower, UNWANTED), (f"{work}/upper", ("tmp", *leave_out)))):
            file = os.path.join(work, f"layer-{number}")
            progress(f"image: packing layer {number + 1} of 2")
            layers.append((file, *write_layer(folder, file, without)))
        write_archive(f"{target}.part", layers, name)
        os.replace(f"{target}.part", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def only(target: str, make_it: Callable[[], None]) -> None:
    """The archive, made where it lacks, instead of those of its kind that were made of other things."""
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(target):
        make_it()
        for other in os.listdir(folder):
            if other.startswith(f"{name.partition('-')[0]}-") and other.endswith(".tar") and other != name:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, other))


def prepare_image(cache: str | None = None, progress: prepare.Progress | None = None) -> dict[str, str]:
    """The archive and the folder of wheels, made where lacking."""
    say = progress or (lambda line: None)
    where = prepare.prepare(cache, progress=say)
    target = paths(where["cache"])
    with prepare._one_at_a_time(where["cache"]):
        only(target, lambda: make(where, target, say))
        prepare.point(os.path.join(prepare.LINKS, "image.tar"), target)
    say(f"image: {target}")
    return {"image": target, "name": NAME, "wheel_dir": where["wheel_dir"]}


def main() -> int:
    began = time.monotonic()
    try:
        found = prepare_image(progress=lambda line: print(line, flush=True))
    except (prepare.PrepareError, engine_pins.EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"done in {time.monotonic() - began:.1f} s")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
