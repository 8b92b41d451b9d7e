# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that takes the front proxy's configuration into use: what is served stays whole, whatever goes wrong."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[5] / "plugins"
#: refuses a configuration with the word broken in it
NGINX = '#!/bin/sh\nfor word; do last=$word; done\nif grep -q broken "$last"; then echo "unexpected end"; exit 1; fi\n'
#: what a disk that becomes full leaves of a copy
FULL = '#!/bin/sh\nfor word; do last=$word; done\nmkdir "$last" && echo half > "$last/keys.conf"\nexit 1\n'


class Front:
    def __init__(self, folder: Path) -> None:
        self.etc = folder / "etc"
        self.wanted, self.good = self.etc / "front", self.etc / "front.good"
        self.tools = folder / "bin"
        self.wanted.mkdir(parents=True)
        self.tools.mkdir()
        self.tool("nginx", NGINX)
        self.want("first")

    def tool(self, name: str, text: str) -> None:
        path = self.tools / name
        path.write_text(text)
        path.chmod(0o755)

    def want(self, text: str) -> None:
        (self.wanted / "nginx.conf").write_text(text)

    def run(self, action: str, user: str = "") -> subprocess.CompletedProcess[str]:
        path = f"{self.tools}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PLUGINS)}
        words = [sys.executable, "-B", "-m", "module_utils._onhost", "front-config", action, "--folder", str(self.etc)]
        words += ["--user", user or pwd.getpwuid(os.geteuid()).pw_name, "--blocked", str(self.etc.parent / "blocked")]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def served(self) -> str:
        return (self.good / "nginx.conf").read_text()

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.etc.iterdir())


@pytest.fixture
def front(tmp_path: Path) -> Front:
    made = Front(tmp_path)
    assert made.run("start").returncode == 0
    assert made.served() == "first"
    return made


def test_what_is_wanted_is_taken_whole(front: Front) -> None:
    front.want("second")
    assert front.run("reload").returncode == 0
    assert front.served() == "second"
    assert front.folders() == ["front", "front.good"]


@pytest.mark.parametrize(("action", "rc"), [("start", 0), ("reload", 1)])
def test_a_mistake_leaves_the_last_good_one(front: Front, action: str, rc: int) -> None:
    front.want("broken")
    done = front.run(action)
    assert (done.returncode, front.served()) == (rc, "first")
    assert "is not valid: unexpected end" in done.stderr


def test_keys_that_are_blocked_are_in_the_copy_until_they_are_not(front: Front) -> None:
    blocked = front.etc.parent / "blocked"
    blocked.write_text('{"blocked": ["web", "ci-2"]}')
    assert front.run("reload").returncode == 0
    assert (front.good / "blocked.conf").read_text() == '"~^ci-2$" "";\n"~^web$" "";\n'
    blocked.write_text('{"blocked": []}')
    assert front.run("start").returncode == 0
    assert not (front.good / "blocked.conf").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"blocked": "web"}', '{"blocked": ["a\\" 1; include /etc/passwd"]}'])
def test_a_list_of_blocked_keys_that_is_none_lets_nobody_in_again(front: Front, text: str) -> None:
    blocked = front.etc.parent / "blocked"
    blocked.write_text('{"blocked": ["web"]}')
    assert front.run("reload").returncode == 0
    blocked.write_text(text)
    for action, rc in (("start", 0), ("reload", 1)):
        done = front.run(action)
        assert (done.returncode, "remove it, which lets the keys in again" in done.stderr) == (rc, True)
        assert (front.good / "blocked.conf").read_text() == '"~^web$" "";\n'


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed to see who runs nginx")
def test_nginx_is_never_run_as_root() -> None:
    # pytest's own folders are closed to other users
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        front = Front(Path(folder))
        front.tool("nginx", '#!/bin/sh\nid -u; for word; do last=$word; done; cat "$last"; exit 1\n')
        done = front.run("start", "daemon")
        assert done.returncode == 1
        assert f"is not valid: {pwd.getpwnam('daemon').pw_uid}\nfirst" in done.stderr, done.stderr
        # what it refused is not kept anywhere
        assert front.folders() == ["front"]


@pytest.mark.parametrize(("action", "rc"), [("start", 0), ("reload", 1)])
def test_a_full_disk_leaves_the_last_good_one_and_no_half_copy(front: Front, action: str, rc: int) -> None:
    front.want("second")
    front.tool("cp", FULL)
    assert front.run(action).returncode == rc
    assert front.served() == "first"
    assert front.folders() == ["front", "front.good"]


def test_an_exchange_that_was_cut_off_between_its_two_steps(front: Front) -> None:
    front.good.rename(front.etc / "front.good.old")
    front.want("broken")
    assert front.run("start").returncode == 0
    assert front.served() == "first"


def test_a_certificate_is_made_once_for_its_names(front: Front) -> None:
    openssl = front.etc.parent / "asked"
    front.tool(
        "openssl",
        f"""#!/bin/sh
echo "$1" >>{openssl}
test "$1" = req || exit 0
while [ $# -gt 0 ]; do
  case $1 in -keyout) echo key >"$2" ;; -out) echo "certificate" >"$2" ;; esac
  shift
done
""",
    )
    (front.wanted / "self-signed").write_text("DNS:a\n")
    done = front.run("reload")
    assert (done.returncode, done.stdout) == (0, "making a certificate for DNS:a\n"), done.stderr
    assert (front.good / "tls.crt").read_text() == "certificate\n"
    assert (front.good / "tls.key").read_text() == "key\n"
    # root's, and nginx's to read
    assert (front.good / "tls.key").stat().st_mode & 0o037 == 0
    assert front.run("reload").stdout == ""
    (front.wanted / "self-signed").write_text("DNS:b\n")
    assert front.run("reload").stdout == "making a certificate for DNS:b\n"
    assert openssl.read_text().split() == ["req", "x509", "req"]


def test_a_certificate_is_due_before_it_expires(front: Front) -> None:
    """With the real openssl; without names for it none is made here, and none is due."""
    assert front.run("due").returncode == 1
    (front.wanted / "self-signed").write_text("DNS:a\n")
    assert front.run("due").returncode == 0
    assert front.run("reload").returncode == 0
    assert front.run("due").returncode == 1
    files = ["-keyout", str(front.wanted / "tls.key"), "-out", str(front.wanted / "tls.crt")]
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *files]
    subprocess.run([*new, "-days", "29", "-subj", "/CN=a"], check=True, capture_output=True)
    former = (front.good / "tls.crt").read_text()
    assert front.run("due").returncode == 0
    # to look changes nothing
    assert (front.good / "tls.crt").read_text() == former
    assert "making a certificate" in front.run("reload").stdout
    assert front.run("due").returncode == 1


def test_without_openssl_the_reason_is_named(front: Front) -> None:
    (front.wanted / "self-signed").write_text("DNS:a\n")
    front.tool("openssl", "#!/bin/sh\nexit 1\n")
    done = front.run("reload")
    assert done.returncode == 1
    assert "could not be made (is openssl installed?)" in done.stderr
    assert front.served() == "first"
