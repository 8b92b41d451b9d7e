# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own watchdog over one command, on a machine without systemd: a rank is killed, the group comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "faults" / "unit.py"
#: an engine of two processes: answers while its rank lives and runs, and hangs when it does not
ENGINE = """
import http.server, json, os, socketserver, subprocess, sys, time
path = sys.argv[1]
if os.path.exists(path):
    os.unlink(path)
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "a-rank"])
class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self):
        return "unix"
    def log_message(self, *words):
        pass
    def say(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.say(b"vllm:prompt_tokens_total 1.0")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        while rank.poll() is not None or open("/proc/%d/stat" % rank.pid).read().split()[2] == "T":
            time.sleep(0.1)
        self.say(json.dumps({"choices": [{"text": "x"}]}).encode())
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
print("ready", flush=True)
Server(path, Handler).serve_forever()
"""


@pytest.mark.parametrize("stop", [False, True], ids=["killed", "stopped"])
def test_a_lost_rank_is_noticed_and_the_whole_group_started_anew(tmp_path: Path, stop: bool) -> None:
    (tmp_path / "engine.py").write_text(ENGINE)
    folder, door = tmp_path / "g", tmp_path / "engine.sock"
    words = [sys.executable, str(SCRIPT), "prove", "--folder", str(folder), "--socket", str(door), "--model", "m"]
    words += [
        "--kill",
        "a-rank$",
        "--interval",
        "1",
        "--deadline",
        "3",
        "--timeout",
        "180",
        *(["--stop"] if stop else []),
    ]
    done = subprocess.run(
        [*words, "--", sys.executable, str(tmp_path / "engine.py"), str(door)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "watchdog.log").read_text()
    result = json.loads(done.stdout)
    assert "a-rank" in result["killed"]
    assert result["left_over"] == []
    assert result["restarts"] == {"completion": 1}
    assert result["noticed"] < result["serving_again"] < 180
    assert any("restarting: completion timed out" in line for line in result["story"])
    # whatever ran is gone with it
    assert str(tmp_path) not in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
