#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray alone, as one read-only layer that all hosts of a lab share.

    ray_layer.py          make it if it is missing, print its path on the last line

Eight hosts that each install an engine of their own would need minutes and gigabytes, and their page caches as many
copies of the same libraries. Here `/opt/sparkthor/venv` lies once below all of them: the same wheels as the lab's
engine, of which only those are taken that `ray[default]` needs, installed by the same `uv` at the same place. What the
engine role does is shown elsewhere, with the whole engine.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__))
if HERE not in sys.path:
    sys.path.insert(0, HERE)

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import prepare  # noqa: E402
from sparklab import base  # noqa: E402
from sparklab.system import locked, run, say, words  # noqa: E402

VENV = "/opt/sparkthor/venv"
#: what ray[default] 2.60 needs, and uv, which installs it
NEEDED = words("""
    aiohappyeyeballs aiohttp aiohttp-cors aiosignal annotated-types attrs certifi cffi charset-normalizer click colorful
    cryptography distlib filelock frozenlist google-api-core google-auth googleapis-common-protos grpcio idna jsonschema
    jsonschema-specifications msgpack multidict opencensus opencensus-context opentelemetry-api
    opentelemetry-exporter-prometheus opentelemetry-proto opentelemetry-sdk opentelemetry-semantic-conventions packaging
    platformdirs prometheus-client propcache proto-plus protobuf py-spy pyasn1 pyasn1-modules pycparser pydantic
    pydantic-core python-discovery pyyaml ray referencing requests rpds-py six smart-open typing-extensions
    typing-inspection urllib3 uv virtualenv wrapt yarl
""")
# everything mounted lives in a private mount namespace and is gone with it
MAKE = f"""
    set -e
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
    mkdir -p "$2/root/mnt/wheels"
    mount --bind -o ro "$3" "$2/root/mnt/wheels"
    mount -t proc proc "$2/root/proc"
    mount --bind /dev "$2/root/dev"
    cp "$4" "$5" "$2/root/mnt/"
    do_in() {{ chroot "$1" env UV_NO_CONFIG=1 UV_CACHE_DIR=/mnt/cache UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never \
      "${{@:2}}"; }}
    do_in "$2/root" /mnt/uv venv -q --python /usr/bin/python3 {VENV}
    do_in "$2/root" /mnt/uv pip install -q --python {VENV}/bin/python --offline --no-index --no-deps \
      --require-hashes --find-links /mnt/wheels -r /mnt/lock.txt
    # a host would otherwise compile all of it at its first start
    chroot "$2/root" {VENV}/bin/python -m compileall -q -j 2 {VENV}/lib >/dev/null || :
    umount "$2/root/mnt/wheels"
    rm -rf "$2/root/mnt/"*
"""


def needed_pins() -> list[prepare.engine_pins.Pin]:
    """The pins of the lab's engine that Ray needs."""
    with open(prepare.LOCK, encoding="utf-8") as file:
        pins = prepare.engine_pins.parse_lock(file.read(), prepare.LOCK)
    chosen = [pin for pin in pins if pin.name in NEEDED]
    if len(chosen) != len(NEEDED):
        lacking = sorted(NEEDED - {pin.name for pin in pins})
        raise prepare.PrepareError(f"{prepare.LOCK} lacks what Ray needs: {', '.join(lacking)}")
    return chosen


def make(suite: str = "bookworm") -> Path:
    where = prepare.prepare(progress=say)
    lower = base.base(suite)
    pins = needed_pins()
    lock = prepare.engine_pins.requirement_lines(pins)
    digest = hashlib.sha256("\n".join([lower.name, MAKE, lock]).encode()).hexdigest()[:10]
    root = base.cache_root() / "base" / f"{suite}-ray-{digest}"
    if root.exists():
        return root
    with locked(base.cache_root() / f"layer-ray-{suite}.lock", waiting="waiting for another run that makes the layer"):
        if root.exists():
            return root
        say(f"making the Ray layer over {suite} (once)")
        work = root.with_name(f".{root.name}.part")
        run(["rm", "-rf", "--one-file-system", work], timeout=600)
        for folder in ("upper", "work", "root"):
            (work / folder).mkdir(parents=True)
        (work / "lock.txt").write_text(lock, encoding="utf-8")
        uv = prepare.extract_uv(pins, where["wheel_dir"], str(work))
        run(
            ["unshare", "-m", "bash", "-c", MAKE, "layer", lower, work, where["wheel_dir"], uv, work / "lock.txt"],
            timeout=1800,
        )
        (work / "upper").rename(root)
        run(["rm", "-rf", "--one-file-system", work], timeout=600)
        say("Ray layer ready")
    return root


if __name__ == "__main__":
    print(make())
