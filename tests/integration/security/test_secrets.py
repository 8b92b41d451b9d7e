# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets show nowhere, with one controller and with two, at -vvv; and values that cannot be used change nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import TOP
from tests.integration.security.conftest import Target
from tools import leaks

NAMES = ("api_key", "ray_token")
LOUD = ("-vvv", "--diff")
RAY_LOGS = "/var/lib/sparkthor/ray/t/session_latest/logs"


def secrets_of(target: Target) -> dict[str, str]:
    return {name: target.cluster.secret(name) for name in NAMES}


def test_no_secret_shows_on_any_host(target: Target) -> None:
    for name, secret in secrets_of(target).items():
        for host in target.hosts:
            assert leaks.places(target.cluster.lab, host, secret) == [], (name, host)


@pytest.mark.parametrize("written", ["plain", "base64", "url"])
def test_the_search_finds_what_is_there(target: Target, written: str) -> None:
    secret = "a-planted secret/of some+length"
    text = {
        "plain": secret,
        "base64": base64.b64encode(f"user:{secret}".encode()).decode(),
        "url": "a-planted%20secret%2Fof%20some%2Blength",
    }[written]
    target.run(target.hosts[-1], f"echo '{text}' >/var/log/planted.log")
    try:
        assert leaks.places(target.cluster.lab, target.hosts[-1], secret) == ["logs"]
    finally:
        target.run(target.hosts[-1], "rm /var/log/planted.log")


def test_a_second_controller_fetches_the_secrets_and_prints_none(target: Target, tmp_path: Path) -> None:
    before, folder = secrets_of(target), tmp_path / "other" / ".secrets"
    checked = target.play("site.yml", "--check", *LOUD, sparkthor_secrets_dir=str(folder))
    assert not folder.exists()
    second = target.play("site.yml", *LOUD, sparkthor_secrets_dir=str(folder))
    assert {name: (folder / name).read_text().strip() for name in NAMES} == before
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "*" in (folder / ".gitignore").read_text().splitlines()
    again = target.play("site.yml", *LOUD, sparkthor_secrets_dir=str(folder))
    assert set(again.changed.values()) == {0}, again.changed
    first = target.play("site.yml", *LOUD)
    assert set(first.changed.values()) == {0}, first.changed
    for outcome in (checked, second, again, first):
        # the output at -vvv has every result: facts, diffs and what the connection was answered
        assert "sparkthor_node" in outcome.output
        assert leaks.shown(outcome.output, before) == []
    for host in target.hosts:
        for name, secret in before.items():
            assert leaks.places(target.cluster.lab, host, secret) == [], (name, host)


def test_no_file_that_a_playbook_writes_on_the_controller_has_one(target: Target, tmp_path: Path) -> None:
    doctor = tmp_path / "doctor.json"
    target.play("playbooks/doctor.yml", ok=False, doctor_json=str(doctor))
    target.play("playbooks/status.yml", status_output="json", status_output_file=str(tmp_path / "status.json"))
    target.play("playbooks/report.yml", report_path=str(tmp_path / "report.html"), report_doctor=str(doctor))
    target.play("playbooks/render.yml", render_dir=str(tmp_path / "rendered"))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"doctor.json", "status.json", "report.html", "vllm.yaml"} <= {path.name for path in written}
    for path in written:
        assert leaks.shown(path.read_text(errors="replace"), secrets_of(target)) == [], path


def test_a_changed_environment_is_private_and_in_no_diff(target: Target) -> None:
    value = "seen-nowhere-in-any-diff"
    modes = target.run(target.head, "stat -c '%a %U' /etc/sparkthor/vllm.env").split()
    assert modes == ["600", "root"]
    outcome = target.play("site.yml", "--check", "--diff", vllm_serve_env={"SOME_SETTING": value})
    assert "/etc/sparkthor/vllm.env" in outcome.output
    assert value not in outcome.output
    # neither are the copy of what served, nor the record of what is served with
    good = "/var/lib/sparkthor-last-good"
    private = f"{good} {good}/index.json /run/sparkthor/vllm-started-with.json"
    assert target.run(target.head, f"stat -c '%a %U' {private}").split() == ["700", "root", *["600", "root"] * 2]
    assert "vllm.env-" in target.run(target.head, f"ls {good}")
    assert target.run(target.head, f"find {good} -type f ! -perm 600") == ""
    token = hashlib.sha256((target.cluster.secret("ray_token") + "\n").encode()).hexdigest()
    assert target.run(target.head, f"grep -rl {token} /run/sparkthor /var/lib/sparkthor*", check=False) == ""


def test_the_doctor_takes_no_secret_of_a_host_along(target: Target) -> None:
    secret = target.cluster.secret("ray_token")
    coded = base64.b64encode(f"user:{secret}".encode()).decode()
    planted = f"{RAY_LOGS}/worker-planted.err"
    target.run(target.head, f"printf '%s\\n' 'first {secret} then' '{coded} end' >{planted}")
    try:
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible")),
                target.head,
                *(f"--inventory={item}" for item in target.cluster.inventories),
                *("--become", "-vvv", "--extra-vars", f"lab_name={target.cluster.lab.name}"),
                *(
                    "--module-name",
                    "sparkthor.cluster.evidence_info",
                    "--args",
                    "ray=false key=of-this-run",
                ),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
            cwd=TOP,
        )
    finally:
        target.run(target.head, f"rm -f {planted}")
    assert "first ******** then" in done.stdout
    assert leaks.shown(done.stdout + done.stderr, secrets_of(target)) == []


REFUSED = (
    ({"vllm_serve_listen": ["localhost"]}, "vllm_serve_listen: 'localhost'"),
    ({"vllm_serve_front_max_body": "much"}, "vllm_serve_front_max_body: 'much'"),
    ({"vllm_serve_env": {"HF_TOKEN": "a-token-of-somebody"}}, "vllm_serve_hf_token"),
    ({"ray_node_temp_dir": "/tmp"}, "ray_node_temp_dir: '/tmp'"),
    ({"ray_node_ports": {"gcs": "8000"}}, "port 8000 is wanted by"),
    ({"model_store_models": [{"name": "../up", "source": "/srv/m"}]}, "name '../up'"),
    ({"engine_cache_dir": "/srv/shared/cache"}, "everybody may write to /srv/shared"),
)


@pytest.mark.parametrize(("variables", "words"), REFUSED, ids=[next(iter(row[0])) for row in REFUSED])
def test_what_the_last_roles_refuse_stops_the_run_before_a_change(
    target: Target, variables: dict[str, object], words: str
) -> None:
    before = target.invocations()
    target.run(target.hosts[-1], "mkdir -p /srv/shared && chmod 0777 /srv/shared")
    try:
        outcome = target.play("site.yml", ok=False, **variables)
    finally:
        target.run(target.hosts[-1], "rmdir /srv/shared")
    assert outcome.rc != 0
    assert sum(outcome.changed.values()) == 0
    [message] = {failure.partition(": ")[2] for failure in outcome.failures}
    assert "Nothing was changed" in message
    assert words in message
    assert "a-token-of-somebody" not in json.dumps(outcome.failures) + outcome.output
    assert target.invocations() == before


def test_words_of_the_command_line_mean_what_they_say(target: Target) -> None:
    given = (
        "vllm_serve_front_package_manage=false",
        "vllm_serve_api_port=8000",
        "os_hardening_swap=yes",
    )
    outcome = target.play("site.yml", *(f"--extra-vars={item}" for item in given))
    assert set(outcome.changed.values()) == {0}, outcome.changed
