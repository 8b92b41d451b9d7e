# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host for the engine's environment, with a stand-in for uv that lays down what the wheels are named after."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import set_digest
from ansible_collections.sparkthor.cluster.plugins.modules import engine_venv, store_receive

MINOR = ".".join(platform.python_version_tuple()[:2])
PINS = {"ray": "2.60.0", "vllm": "0.32.0", "uv": "0.13.8"}


# what uv does, as far as these tests look: "venv TARGET", "pip install --python=TARGET/bin/python --requirement=FILE"
UV = f"""#!{sys.executable}
import base64, hashlib, os, sys
if sys.argv[1] == "venv":
    os.makedirs(sys.argv[-1] + "/lib/python{MINOR}/site-packages")
    os.makedirs(sys.argv[-1] + "/bin")
    os.symlink({sys.executable!r}, sys.argv[-1] + "/bin/python")
    sys.exit()
target = next(word for word in sys.argv if word.startswith("--python="))[9:-len("/bin/python")]
assert "--no-index" in sys.argv and "--offline" in sys.argv and "--no-deps" in sys.argv
if os.path.exists(os.path.dirname(target) + "/fail"):
    sys.exit("disk on fire")
site = target + "/lib/python{MINOR}/site-packages/"
assert "--require-hashes" in sys.argv
listed = next(word for word in sys.argv if word.startswith("--requirement="))[14:]
for line in open(listed).read().splitlines():
    wheel, digest = line.split(" @ file://")[1].split(" --hash=sha256:")
    if hashlib.sha256(open(wheel, "rb").read()).hexdigest() != digest:
        sys.exit("Hash mismatch for " + wheel)
    name, version = os.path.basename(wheel).split("-")[:2]
    info = site + name + "-" + version + ".dist-info"
    os.makedirs(info)
    os.makedirs(site + name)
    with open(site + name + "/__init__.py", "w") as file:
        file.write("x = 1")
    with open(site + name + "/big.bin", "wb") as file:
        file.truncate(2 << 20)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1").digest()).rstrip(b"=").decode()
    with open(info + "/RECORD", "w") as file:
        file.write(name + "/__init__.py,sha256=" + digest + ",5\\n")
    open(target + "/bin/" + name, "w").close()
"""


class Host:
    """A host's folder and the module called on it as the controller's side calls it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = root / "opt" / "venv"
        self.source = root / "wheels"
        self.source.mkdir()
        self._capsys = capsys
        self.pins = dict(PINS)
        self.make_wheels()

    @property
    def environments(self) -> Path:
        return Path(f"{self.path}s")

    def make_wheels(self) -> None:
        for path in self.source.iterdir():
            path.unlink()
        for name, version in self.pins.items():
            with zipfile.ZipFile(self.source / f"{name}-{version}-py3-none-any.whl", "w") as archive:
                # with a fixed time: the same wheel made a moment later is the same wheel
                archive.writestr(zipfile.ZipInfo(f"{name}-{version}.data/scripts/{name}"), UV)

    def target(self) -> dict[str, Any]:
        rows = []
        for path in sorted(self.source.iterdir()):
            data = path.read_bytes()
            rows.append([path.name, len(data), hashlib.sha256(data).hexdigest()])
        digest = set_digest({row[0]: row[2] for row in rows})
        return {"python": MINOR, "machine": "x86_64", "digest": digest, "pins": self.pins, "manifest": rows}

    def call(self, check: bool = False, **args: Any) -> dict[str, Any]:
        given = {
            "path": str(self.path),
            "requirements": "lock",
            "python": sys.executable,
            "target": self.target(),
            **args,
        }
        return self._run(engine_venv, {**given, "_ansible_check_mode": check, "_ansible_diff": True})

    def _run(self, module: Any, given: dict[str, Any]) -> dict[str, Any]:
        # what Ansible deprecates it tells every owner, at each run
        deprecated = patch.object(AnsibleModule, "deprecate", side_effect=AssertionError)
        with patch_module_args(given), deprecated, pytest.raises(SystemExit):
            module.main()
        return json.loads(self._capsys.readouterr().out)

    def send(self, need: list[dict[str, Any]]) -> None:
        by_digest = {row[2]: row for row in self.target()["manifest"]}
        parts = []
        for item in need:
            name, size, sha256 = by_digest[item["sha256"]]
            upload = self.source.parent / f"upload-{sha256[:8]}"
            upload.write_bytes((self.source / name).read_bytes())
            parts.append({"file": str(upload), "sha256": sha256, "offset": 0, "size": size})
        root = str(self.path.parent / "wheels")
        assert self._run(store_receive, {"root": root, "parts": parts})["changed"] is True

    def converge(self, **args: Any) -> dict[str, Any]:
        result = self.call(**args)
        if result.get("need"):
            self.send(result["need"])
            result = self.call(**args)
        return result


def running_from(proc: Path, *folders: Path) -> str:
    """A /proc in which one process has something of each folder in its memory, and one may not be looked into."""
    row = "7f00-7f01 r-xp 00000000 00:2f 4711        "
    for number, folder in enumerate(folders, start=10):
        (proc / str(number)).mkdir(parents=True)
        (proc / str(number) / "maps").write_text(f"7f00-7f01 rw-p 0 00:00 0 \n{row}{folder}/lib/x.so\n")
    (proc / "9").mkdir(parents=True)
    (proc / "self").mkdir()
    return str(proc)
