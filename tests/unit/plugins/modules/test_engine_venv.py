# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment and its module, with a stand-in for uv that lays down what the wheels are named after."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, set_digest
from ansible_collections.sparkthor.cluster.plugins.modules import engine_venv

MINOR = ".".join(platform.python_version_tuple()[:2])
PINS = {"ray": "2.60.0", "vllm": "0.32.0", "uv": "0.13.8"}

# what uv does, as far as these tests look: "venv TARGET" and "pip install --python=TARGET/bin/python WHEEL..."
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
for wheel in sys.argv:
    if wheel.endswith(".whl"):
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
        settings = {
            "path": str(self.path),
            "requirements": "lock",
            "python": sys.executable,
            "target": self.target(),
            **args,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
        }
        with patch_module_args(settings), pytest.raises(SystemExit):
            engine_venv.main()
        return json.loads(self._capsys.readouterr().out)

    def send(self, need: list[dict[str, Any]]) -> None:
        by_digest = {row[2]: row for row in self.target()["manifest"]}
        parts = []
        for item in need:
            name, size, sha256 = by_digest[item["sha256"]]
            upload = self.source.parent / f"upload-{sha256[:8]}"
            upload.write_bytes((self.source / name).read_bytes())
            parts.append({"file": str(upload), "sha256": sha256, "offset": 0, "size": size})
        assert self.call(stage="receive", parts=parts)["changed"] is True

    def converge(self, **args: Any) -> dict[str, Any]:
        result = self.call(**args)
        if result.get("need"):
            self.send(result["need"])
            result = self.call(**args)
        return result


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_from_nothing_to_an_environment_and_nothing_more(host: Host) -> None:
    prediction = host.call(check=True)
    assert prediction["changed"] is True
    assert not host.path.parent.exists()
    first = host.call()
    assert len(first["need"]) == 3
    assert not os.path.lexists(host.path)
    host.send(first["need"])
    result = host.call()
    assert result["changed"] is True
    assert result["diff"]["before"] == ""
    assert result["diff"]["after"] == "ray==2.60.0\nuv==0.13.8\nvllm==0.32.0\n"
    assert prediction["diff"] == result["diff"]
    assert host.path.is_symlink()
    assert os.readlink(host.path).startswith("venvs/")
    assert result["ansible_facts"]["sparkthor_engine"]["versions"] == {"ray": "2.60.0", "vllm": "0.32.0"}
    again = host.call()
    assert (again["changed"], again["problems"]) == (False, [])
    assert host.call(check=True)["changed"] is False


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda site: (site / "ray-2.60.0.dist-info" / "RECORD").unlink() or _rmdir(site / "ray-2.60.0.dist-info"),
            "ray",
        ),
        (lambda site: _rmdir(site / "vllm"), "vllm was removed"),
        (lambda site: (site / "numpy").mkdir(), "numpy was added"),
        (lambda site: os.rename(site / "ray-2.60.0.dist-info", site / "ray-2.61.0.dist-info"), "ray 2.61.0 instead of"),
        (lambda site: (site / "ray" / "big.bin").write_bytes(b""), "ray/big.bin has 0 bytes"),
        (lambda site: (site / "ray" / "big.bin").unlink(), "ray/big.bin was removed"),
        (lambda site: (site.parents[2] / "bin" / "ray").unlink(), "ray was removed"),
        (lambda site: (site.parents[2] / ".sparkthor-engine.json").unlink(), "not complete"),
    ],
)
def test_drift_is_found_and_fixed_beside_the_running_one(host: Host, damage: Any, problem: str) -> None:
    host.converge()
    before = os.path.realpath(host.path)
    damage(Path(before, "lib", f"python{MINOR}", "site-packages"))
    prediction = host.call(check=True)
    assert prediction["changed"] is True
    assert any(problem in found for found in prediction["problems"]), prediction["problems"]
    result = host.call()
    assert "need" not in result  # the wheels are still there
    assert result["changed"] is True
    assert host.call()["changed"] is False


def _rmdir(path: Path) -> None:
    for child in path.iterdir():
        child.unlink()
    path.rmdir()


def test_a_changed_file_needs_the_full_check(host: Host) -> None:
    host.converge()
    site = Path(os.path.realpath(host.path), "lib", f"python{MINOR}", "site-packages")
    (site / "ray" / "__init__.py").write_text("x = 2")
    (site / "vllm" / "__init__.py").unlink()
    assert host.call()["changed"] is False
    result = host.call(verify="full")
    assert result["problems"] == ["ray/__init__.py was changed", "vllm/__init__.py was removed"]
    assert host.call(verify="full")["changed"] is False


def test_an_update_keeps_the_environment_that_processes_run_from(host: Host) -> None:
    host.converge()
    first = os.path.realpath(host.path)
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    need = host.call()["need"]
    assert len(need) == 1  # the other wheels are linked from the set before
    host.send(need)
    result = host.call()
    assert "ray==2.60.0" in result["diff"]["before"]
    assert "ray==2.61.0" in result["diff"]["after"]
    second = os.path.realpath(host.path)
    assert os.path.isdir(first)
    host.pins["ray"] = "2.62.0"
    host.make_wheels()
    host.converge()
    assert not os.path.exists(first)
    assert os.path.isdir(second)
    assert len(list((host.path.parent / "wheels").glob("[0-9a-f]*"))) == 1


def test_a_failed_build_changes_nothing_that_is_in_use(host: Host) -> None:
    host.converge()
    before = os.path.realpath(host.path)
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    host.send(host.call()["need"])
    (host.environments / "fail").touch()
    result = host.call()
    assert result["failed"] is True
    assert "uv pip install failed: disk on fire" in result["msg"]
    assert os.path.realpath(host.path) == before
    (host.environments / "fail").unlink()
    assert host.call()["changed"] is True
    folders = [path for path in host.environments.iterdir() if path.is_dir()]
    assert len(folders) == 2  # the new one and the one before; the failed one is gone


def test_a_folder_at_our_path_is_refused(host: Host) -> None:
    host.path.mkdir(parents=True)
    result = host.call()
    assert result["failed"] is True
    assert "engine_venv_path" in result["msg"]


def test_another_python_is_refused_by_name(host: Host) -> None:
    host.send(host.call()["need"])
    target = {**host.target(), "python": "3.9"}
    result = host.call(target=target)
    assert result["failed"] is True
    assert f"is Python {platform.python_version()} on this host, but the wheels are for 3.9" in result["msg"]
    assert not os.path.lexists(host.path)


def test_a_disk_that_is_too_small_is_known_before_anything_moves(host: Host) -> None:
    result = host.call(target={**host.target(), "unpacked": 1 << 60})
    assert result["failed"] is True
    assert "Nothing was changed" in result["msg"]
    assert not host.path.parent.exists()


def test_a_second_builder_waits_and_says_so(host: Host) -> None:
    host.send(host.call()["need"])
    host.environments.mkdir(parents=True)
    with open(host.environments / ".lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = host.call(timeout=0)
    assert result["failed"] is True
    assert "another run has been building" in result["msg"]
    assert host.call()["changed"] is True


def test_the_probe(host: Host) -> None:
    found = host.call(stage="probe")["target"]
    assert found["version"] == platform.python_version()
    assert found["machine"] == platform.machine()
    result = host.call(stage="probe", python="/nowhere/python3")
    assert result["failed"] is True
    assert "engine_python: '/nowhere/python3' is not on this host" in result["msg"]


def test_an_interpreter_that_fails_is_reported() -> None:
    with pytest.raises(EngineError, match="does not run on this host: broken"):
        venv.probe_python("python3", lambda argv, environment, timeout: (1, "", "x\nbroken\n"))


LDD = """\tlinux-vdso.so.1 (0x00007fe766002000)
\tlibnuma.so.1 => not found
\tlibc10.so => not found
\tlibcuda.so.1 => not found
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007fe763800000)
"""


def test_missing_libraries_of_the_system_are_named(host: Host) -> None:
    assert venv.parse_ldd(LDD) == ["libnuma.so.1"]
    host.converge()
    real = os.path.realpath(host.path)
    site = Path(real, "lib", f"python{MINOR}", "site-packages")
    (site / "vllm" / "_C.abi3.so").touch()

    def run(argv, environment, timeout):
        return 0, LDD, ""

    assert venv.missing_libraries(real, MINOR, run) == {"libnuma.so.1": "vllm/_C.abi3.so"}
    # brought by another package of the environment: found at run time by its own path
    (site / "ray" / "libnuma.so.1").touch()
    assert venv.missing_libraries(real, MINOR, run) == {}


def running_from(proc: Path, *folders: Path) -> str:
    """A /proc in which one process has something of each folder in its memory, and one may not be looked into."""
    row = "7f00-7f01 r-xp 00000000 00:2f 4711        "
    for number, folder in enumerate(folders, start=10):
        (proc / str(number)).mkdir(parents=True)
        (proc / str(number) / "maps").write_text(f"7f00-7f01 rw-p 0 00:00 0 \n{row}{folder}/lib/x.so\n")
    (proc / "9").mkdir(parents=True)
    (proc / "self").mkdir()
    return str(proc)


def test_an_environment_that_something_runs_from_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "venv"
    made = {name: tmp_path / "venvs" / name for name in ("a.0", "a.01", "b.0", "c.0")}
    for folder in made.values():
        folder.mkdir(parents=True)
    proc = running_from(tmp_path / "proc", made["a.01"])
    keep = [str(made["c.0"]), str(made["b.0"])]
    assert venv.prune(str(path), keep, spare_running=True, proc=proc) == [str(made["a.0"])]
    assert sorted(os.listdir(tmp_path / "venvs")) == ["a.01", "b.0", "c.0"]
    # who wants the room more than the running engine gets it
    assert venv.prune(str(path), keep, proc=proc) == [str(made["a.01"])]


@pytest.mark.parametrize("keep", [True, False])
def test_what_runs_outlives_two_builds_without_a_restart(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: bool
) -> None:
    host.converge()
    runs = host.path.resolve()
    proc = running_from(tmp_path / "proc", runs)
    found = venv.in_use
    monkeypatch.setattr(venv, "in_use", lambda folders, _proc: found(folders, proc))
    for version in ("0.33.0", "0.34.0"):
        host.pins["vllm"] = version
        host.make_wheels()
        host.converge(keep_previous=keep)
    assert runs.exists() is keep
    assert len(os.listdir(host.environments)) - len([".lock"]) == (3 if keep else 1)
