# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every planned deployment, as the role renders it, through the parser of the vLLM that the lab installs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import media_domains

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


#: runs under the engine's Python: an image at a URL of loopback, and one in the URL itself
FETCH = """
import base64, http.server, io, json, sys, threading
from PIL import Image
from vllm.multimodal.media import MediaConnector
from vllm.multimodal.media.image import ImageMediaIO

asked = []
class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(image)
    def log_message(self, *words):
        pass

buffer = io.BytesIO()
Image.new("RGB", (2, 2)).save(buffer, "PNG")
image = buffer.getvalue()
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
found = {}
for name, domains in json.loads(sys.argv[1]).items():
    connector = MediaConnector(allowed_media_domains=domains)
    inline = "data:image/png;base64," + base64.b64encode(image).decode()
    for url in (f"http://127.0.0.1:{server.server_port}/x", inline):
        asked.clear()
        try:
            answer = str(connector.load_from_url(url, ImageMediaIO()).media.size)
        except ValueError as error:
            answer = str(error)
        found[f"{name} {url[:4]}"] = [answer, len(asked)]
print("RESULT " + json.dumps(found))
"""


def test_no_url_of_media_is_fetched_unless_its_domain_is_named(cluster: Cluster, tmp_path: Path) -> None:
    sys.path.insert(0, str(TOP / "lab" / "engine"))
    import prepare

    venv = prepare.prepare(None, venv=True)["venv"]
    # an empty list, which looks like no domain, is all of them for vLLM
    domains = {"none": media_domains([]), "named": media_domains(["127.0.0.1"]), "empty": []}
    done = subprocess.run(
        [f"{venv}/bin/python", "-c", FETCH, json.dumps(domains)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "VLLM_NO_USAGE_STATS": "1"},
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = json.loads(line.removeprefix("RESULT "))
    assert "must be from one of the allowed domains" in found["none http"][0]
    assert found["none http"][1] == 0
    assert found["none data"] == ["(2, 2)", 0]
    assert found["named http"] == found["empty http"] == ["(2, 2)", 1]
    # and that is what the host serves with
    served = yaml.safe_load(cluster.run(cluster.head, "cat /etc/sparkthor/vllm.yaml"))
    assert served["allowed-media-domains"] == domains["none"]


def test_the_table_of_the_host_is_that_of_its_parser(cluster: Cluster) -> None:
    text = cluster.run(cluster.head, "cat /opt/sparkthor/vllm-options-*.json", check=False)
    if not text:  # it was asked before it was made anew, and the controller keeps the answer
        engine = json.loads(cluster.run(cluster.head, "cat /opt/sparkthor/venv/.sparkthor-engine.json"))
        kept = Path(option_tables.kept(engine["digest"], "", cluster.head))
        told = kept.parent.parent.glob(f"*/{kept.name}")
        text = max(told, key=lambda path: path.stat().st_mtime).read_text(encoding="utf-8")
    table = vllm_args.valid_table(json.loads(text), "host")
    shipped, _exact = vllm_args.find_table("0.32.0")
    assert table["vllm"].startswith("0.32.0")
    # values may depend on the platform (devices of a CPU build), names and kinds do not
    assert {name: entry["kind"] for name, entry in table["options"].items()} == {
        name: entry["kind"] for name, entry in shipped["options"].items()
    }
