# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.modules import nccl_conf


def _absent(name: str) -> Any:
    raise KeyError(name)


@pytest.fixture(autouse=True)
def _no_host_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nccl_conf, "ENVIRONMENT_FILES", (str(tmp_path / "environment"),))
    monkeypatch.setattr(nccl_conf.pwd, "getpwnam", _absent)
    real = nccl_conf.write_atomic
    # The running user need not be root
    monkeypatch.setattr(nccl_conf, "write_atomic", lambda path, text, uid, gid, mode: real(path, text, -1, -1, mode))


def run(capsys: pytest.CaptureFixture[str], check: bool = False, **params: Any) -> dict[str, Any]:
    with patch_module_args({**params, "_ansible_check_mode": check, "_ansible_diff": True}), pytest.raises(SystemExit):
        nccl_conf.main()
    return json.loads(capsys.readouterr().out)


def test_repair_and_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("# shipped\nNCCL_IB_DISABLE=1\n")
    path.chmod(0o640)
    wanted = {"path": str(path), "absent": ["NCCL_IB_DISABLE"], "planned": {"NCCL_IB_DISABLE": "0"}}
    predicted = run(capsys, check=True, **wanted)
    assert path.read_text() == "# shipped\nNCCL_IB_DISABLE=1\n"
    done = run(capsys, **wanted)
    assert predicted["diff"] == done["diff"]
    assert predicted["changed_paths"] == done["changed_paths"] == [str(path)]
    assert path.read_text() == "# shipped\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert done["backup"] == f"{path}.sparkthor-orig"
    assert done["sources"][-1]["settings"] == {}
    assert run(capsys, **wanted)["changed"] is False
    back = {"path": str(path), "absent": ["NCCL_IB_DISABLE"], "restore": True}
    assert run(capsys, **back)["changed"] is True
    assert path.read_text() == "# shipped\nNCCL_IB_DISABLE=1\n"
    assert run(capsys, **back)["changed"] is False
    assert [p.name for p in tmp_path.iterdir()] == ["nccl.conf"]


def test_new_file_goes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nccl.conf"
    assert run(capsys, path=str(path), present={"NCCL_IB_DISABLE": 1})["changed"] is True
    assert path.read_text() == "# Ansible managed: sparkthor.cluster\nNCCL_IB_DISABLE=1\n"
    assert run(capsys, path=str(path), present={"NCCL_IB_DISABLE": "1"})["changed"] is False
    assert run(capsys, path=str(path), absent=["NCCL_IB_DISABLE"], restore=True)["changed"] is True
    assert not path.exists()


@pytest.mark.parametrize(
    ("shipped", "edit", "theirs", "left"),
    [
        (None, {"present": {"NCCL_IB_DISABLE": "1"}}, "NCCL_DEBUG=INFO\n", "NCCL_DEBUG=INFO\n"),
        (
            "# shipped\nNCCL_IB_DISABLE=1\nNCCL_NET=IB\n",
            {"absent": ["NCCL_IB_DISABLE"]},
            "NCCL_DEBUG=INFO\n",
            "# shipped\nNCCL_NET=IB\nNCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\n",
        ),
        ("NCCL_IB_DISABLE=0\n", {"present": {"NCCL_IB_DISABLE": "1"}}, "# note\n", "NCCL_IB_DISABLE=0\n# note\n"),
    ],
)
def test_what_others_added_since_stays(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    shipped: str | None,
    edit: dict[str, Any],
    theirs: str,
    left: str,
) -> None:
    path = tmp_path / "nccl.conf"
    if shipped is not None:
        path.write_text(shipped)
    run(capsys, path=str(path), **edit)
    path.write_text(path.read_text() + theirs)
    back = {"path": str(path), "absent": ["NCCL_IB_DISABLE"], "restore": True}
    predicted = run(capsys, check=True, **back)
    done = run(capsys, **back)
    assert predicted["diff"] == done["diff"]
    assert (done["changed"], path.read_text()) == (True, left)
    assert run(capsys, **back)["changed"] is False
    assert [p.name for p in tmp_path.iterdir()] == ["nccl.conf"]


def test_a_file_that_somebody_removed_comes_back_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("NCCL_IB_DISABLE=1\n")
    run(capsys, path=str(path), absent=["NCCL_IB_DISABLE"])
    path.unlink()
    assert run(capsys, path=str(path), absent=["NCCL_IB_DISABLE"], restore=True)["changed"] is True
    assert path.read_text() == "NCCL_IB_DISABLE=1\n"


def test_absent_file_needs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, path=str(tmp_path / "nccl.conf"), absent=["NCCL_IB_DISABLE"])
    assert result["changed"] is False
    assert result["sources"] == [
        {
            "name": str(tmp_path / "nccl.conf"),
            "rank": "system",
            "exists": False,
            "settings": {},
            "differs": {},
            "ineffective": [],
        }
    ]


def test_environment_and_conf_file_outrank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "mine.conf"
    conf.write_text("NCCL_NET=Socket\n")
    (tmp_path / "environment").write_text(f'PATH=/bin\nexport NCCL_DEBUG="INFO"\nNCCL_CONF_FILE={conf}\n')
    sources = run(capsys, path=str(tmp_path / "nccl.conf"), planned={"NCCL_NET": "IB"})["sources"]
    assert [source["rank"] for source in sources] == ["environment", "NCCL_CONF_FILE", "system"]
    assert sources[0]["settings"] == {"NCCL_DEBUG": "INFO", "NCCL_CONF_FILE": str(conf)}
    assert sources[1]["differs"] == {"NCCL_NET": {"value": "Socket", "planned": "IB"}}


def test_images(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def docker(argv: list[str], timeout: float) -> tuple[int, str, str]:
        argv = argv[argv.index("docker") :]
        calls.append(argv[1])
        if argv[1:3] == ["image", "inspect"]:
            return (0, '["PATH=/bin","NCCL_VERSION=2.30"]\n', "") if argv[-1] == "here:1" else (1, "", "no such image")
        if argv[1] == "cp" and argv[2] == "c0ffee:/etc/nccl.conf":
            Path(argv[3]).write_text("NCCL_IB_DISABLE=1\n")
            return 0, "", ""
        return (0, "c0ffee\n", "") if argv[1] in ("create", "rm") else (1, "", "no such file")

    monkeypatch.setattr(nccl_conf, "run_limited", docker)
    path = "/etc/nccl.conf"
    monkeypatch.setattr(nccl_conf, "read", lambda name: Path(name).read_bytes() if "copy" in name else None)
    sources = run(capsys, check=True, path=path, images=["here:1", "away:1"], planned={"NCCL_IB_DISABLE": "0"})[
        "sources"
    ]
    assert [(s["name"], s["exists"]) for s in sources[1:]] == [
        ("here:1 (environment)", True),
        ("here:1:/etc/nccl.conf", True),
        ("here:1:/root/.nccl.conf", False),
        ("away:1:/etc/nccl.conf", False),
    ]
    assert sources[2]["differs"] == {"NCCL_IB_DISABLE": {"value": "1", "planned": "0"}}
    assert calls.count("create") == calls.count("rm") == 1


def test_bad_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(capsys, path=str(tmp_path / "x"), present={"NCCL X": "1"})
    assert result["failed"] is True
    assert "'NCCL X' is not the name of a variable" in result["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_in_a_home_shows_no_file_of_roots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "hidden").write_text("NCCL_THING=of-root-alone\n")
    planted = tmp_path / "home" / ".nccl.conf"
    planted.parent.mkdir()
    if kind == "link":
        planted.symlink_to(tmp_path / "hidden")
        os.chown(planted, 65534, 65534, follow_symlinks=False)
    else:
        os.mkfifo(planted)
    monkeypatch.setattr(nccl_conf.pwd, "getpwnam", lambda name: SimpleNamespace(pw_dir=str(tmp_path / "home")))
    found = run(capsys, check=True, path=str(tmp_path / "nccl.conf"), users=["eve"])
    assert "of-root-alone" not in json.dumps(found)
    assert [source["exists"] for source in found["sources"] if source["name"] == str(planted)] == [False]


def test_a_link_in_an_image_shows_no_file_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool copies a link as a link."""
    (tmp_path / "hidden").write_text("NCCL_THING=of-root-alone\n")

    def docker(argv: list[str], _timeout: float) -> tuple[int, str, str]:
        os.symlink(tmp_path / "hidden", argv[-1])
        return 0, "", ""

    monkeypatch.setattr(nccl_conf, "run_limited", docker)
    assert nccl_conf.image_file("docker", "c0ffee", "/etc/nccl.conf") is None


def test_a_file_in_an_image_does_not_fill_this_host_s_disk(tmp_path: Path) -> None:
    """A long file of nothing takes a few bytes of an image."""
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nhead -c 5000000 /dev/zero > "$3"\nrc=$?\nwc -c < "$3" > {tmp_path}/took\nexit $rc\n')
    docker.chmod(0o755)
    assert nccl_conf.image_file(str(docker), "c0ffee", "/etc/nccl.conf") is None
    assert int((tmp_path / "took").read_text()) <= nccl_conf.LIMIT
