# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving
from ansible_collections.sparkthor.cluster.plugins.modules import vllm_info


def test_what_is_returned_always_is_there_on_a_host_that_serves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CONFIG", str(tmp_path / "serving.json"))
    monkeypatch.setattr(serving, "STATE", str(tmp_path / "state.json"))
    monkeypatch.setattr(serving, "maintenance", lambda: None)
    monkeypatch.setattr(serving, "show", lambda _unit: {})
    with patch_module_args({}), pytest.raises(SystemExit) as stop:
        vllm_info.main()
    assert not stop.value.code
    result = json.loads(capsys.readouterr().out)
    documented = yaml.safe_load(vllm_info.RETURN)
    assert set(result) - {"changed", "invocation"} == {
        name for name, entry in documented.items() if entry["returned"] == "always"
    }
    assert (result["in_flight"], result["maintenance"], result["state"]) == (None, None, "unknown")
