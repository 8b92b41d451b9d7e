# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every planned deployment, as the role renders it, through the parser of the vLLM that the lab installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args

from tests.integration.conftest import TOP, Cluster

GOLDEN = TOP / "tests" / "fixtures" / "recipes" / "golden"
#: runs under the engine's Python: the configurations come in by name, what the parser made of them goes out
PARSE = """
import json, sys, tempfile, os
sys.path.insert(0, sys.argv[1])
from _engine import option_table
found = {}
for name, config in json.load(open(sys.argv[2])).items():
    path = os.path.join(tempfile.mkdtemp(), "vllm.yaml")
    json.dump(config, open(path, "w"))
    try:
        args = vars(option_table.build_parser().parse_args(["--config", path]))
        found[name] = {key: value for key, value in args.items() if isinstance(value, (str, int, float, bool, list))}
    except SystemExit as error:
        found[name] = {"refused": str(error.code)}
print("RESULT " + json.dumps(found))
"""


def test_the_real_parser_takes_every_deployment(cluster: Cluster, tmp_path: Path) -> None:
    sys.path.insert(0, str(TOP / "lab" / "engine"))
    import prepare

    venv = prepare.prepare(None, venv=True)["venv"]
    wanted = {path.stem: json.loads(path.read_text())["vllm_yaml"] for path in sorted(GOLDEN.glob("*.json"))}
    assert len(wanted) >= 8
    (tmp_path / "configs.json").write_text(json.dumps(wanted))
    done = subprocess.run(
        [f"{venv}/bin/python", "-c", PARSE, str(TOP / "plugins/module_utils"), str(tmp_path / "configs.json")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "VLLM_NO_USAGE_STATS": "1"},
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    parsed = json.loads(line.removeprefix("RESULT "))
    for name, config in wanted.items():
        assert "refused" not in parsed[name], (name, done.stderr[-2000:])
        for key, value in config.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                assert parsed[name][key.replace("-", "_")] == value, (name, key)
        assert parsed[name]["max_model_len"] == config["max-model-len"]


def test_the_table_of_the_host_is_that_of_its_parser(cluster: Cluster) -> None:
    text = cluster.run(cluster.head, "cat /opt/sparkthor/vllm-options-*.json", check=False)
    if not text:  # another host with the very same engine was asked before, and the controller keeps the answer
        engine = json.loads(cluster.run(cluster.head, "cat /opt/sparkthor/venv/.sparkthor-engine.json"))
        text = Path(option_tables.kept(engine["digest"])).read_text(encoding="utf-8")
    table = vllm_args.valid_table(json.loads(text), "host")
    shipped, _exact = vllm_args.find_table("0.32.0")
    assert table["vllm"].startswith("0.32.0")
    # values may depend on the platform (devices of a CPU build), names and kinds do not
    assert {name: entry["kind"] for name, entry in table["options"].items()} == {
        name: entry["kind"] for name, entry in shipped["options"].items()
    }
