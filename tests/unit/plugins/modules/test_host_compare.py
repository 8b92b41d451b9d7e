# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's side of the comparison: what its result tells, and what it keeps to itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.ansible_release import __version__ as core_version
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import ports
from ansible_collections.sparkthor.cluster.plugins.modules import host_compare

SECRET = "a-token-of-some-length"
FILE = {"path": "/nonexistent/token", "content": SECRET, "secret": True, "mode": "0600"}
COMPARISONS = [{"role": "ray_node", "module": "host_state", "arguments": {"files": [FILE]}}]


@pytest.mark.parametrize("outcome", ["bad options", "ports cannot be read", "compared"])
def test_no_secret_is_in_the_result_however_it_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    def probe(*_given: Any) -> dict[str, Any]:
        raise ports.ProbeError("no such port")

    monkeypatch.setattr(ports, "probe", probe)
    probes = {"bad options": {"host": "a", "bogus": 1}, "ports cannot be read": {"host": "a"}}
    given = {"probe": probes.get(outcome, {}), "comparisons": COMPARISONS}
    # the arguments in the result: the default of releases before 2.21, which has an option for it
    asked = {"_ansible_inject_invocation": True} if core_version >= "2.21" else {}
    asked["_ansible_verbosity"] = 3
    with patch_module_args({**given, **asked}), pytest.raises(SystemExit):
        host_compare.main()
    out = capsys.readouterr().out
    result = json.loads(out)
    assert result.get("failed", False) is (outcome != "compared")
    assert result["invocation"]["module_args"]["comparisons"] == "..."
    assert SECRET not in out


def test_whether_anything_was_compiled_is_told_with_the_rest(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def told(**given: Any) -> Any:
        with patch_module_args(given), pytest.raises(SystemExit):
            host_compare.main()
        return json.loads(capsys.readouterr().out).get("compiled")

    folders = {"engine_cache_dir": str(tmp_path)}
    assert told() is None
    assert told(folders=folders) is False
    (tmp_path / "triton/ab12").mkdir(parents=True)
    assert told(folders=folders) is False
    (tmp_path / "triton/ab12/kernel.cubin").write_bytes(b"x")
    assert told(folders=folders) is True
