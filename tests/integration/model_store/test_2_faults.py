# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What strikes while a copy runs, and bad input: it resumes or ends with a sentence; nothing bad becomes visible."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

from .conftest import MIB, NETS, STORE, Model, Site
from .rig import Rig

SIZE = 160 * MIB
PART = fanout_routes.part_size(SIZE)
KILL = "systemctl kill --signal=KILL sparkthor-fanout"


@pytest.fixture(scope="module", autouse=True)
def slow(site: Site) -> Iterator[None]:
    """A fabric, and links so slow that there is time to act."""
    run = site.play(tags="network")
    assert run.rc == 0, run.output
    site.rate(100)
    yield
    site.rate(None)


@pytest.fixture
def big(model: Model) -> Model:
    for number in range(4):
        model.add(f"model-{number}.safetensors", SIZE // 4)
    return model


def complete(site: Site, model: Model, hosts: dict[str, int]) -> None:
    """A later run finishes what an earlier one left; ``hosts``: bytes at most for each."""
    site.forget_reports()
    run = site.play(model)
    assert run.rc == 0, run.output
    site.check_everywhere(model)
    for host, limit in hosts.items():
        received = site.report(host).get("received", 0)
        print(f"{host}: {received / MIB:.0f} MiB of {model.size / MIB:.0f} in the later run")
        assert received <= limit


def test_a_receiver_is_killed_at_half(site: Site, big: Model) -> None:
    first, second, third = site.hosts
    play = site.begin(big, model_store_patience=15)
    site.until(second, 0.5)
    site.on(second, KILL)
    run = site.end(play)
    assert run.rc != 0
    assert f"host {second}: " in run.output
    assert "did not arrive" in run.output
    assert "run again" in run.output
    assert not site.visible(second, big.name)
    # the one behind took it from the one before
    assert site.report(third)["upstream"] == first
    assert not site.visible(third, big.name), "not every host has it"
    assert site.digests(third, f"{big.name}@*") == big.digests
    complete(site, big, {second: int(0.55 * SIZE), third: 0})


def test_a_link_is_cut_for_20_seconds(site: Site, big: Model) -> None:
    _first, second, third = site.hosts
    play = site.begin(big)
    site.until(second, 0.3)
    site.lab.cut(second, *NETS)
    time.sleep(20)
    site.lab.fix(second, *NETS)
    run = site.end(play)
    assert run.rc == 0, run.output
    site.check_everywhere(big)
    # nothing was sent twice but what was under way
    assert all(site.report(host)["received"] == SIZE for host in (second, third))


def test_the_sender_is_killed(site: Site, big: Model) -> None:
    first, second, third = site.hosts
    play = site.begin(big, model_store_patience=8)
    site.until(third, 0.5)
    site.on(first, KILL)
    run = site.end(play)
    assert run.rc != 0
    for host in (second, third):
        assert f"host {host}: nothing arrived for 8 s" in run.output
        assert not site.visible(host, big.name)
    assert f"no answer from {first} over the fabric" in run.output
    complete(site, big, {second: int(0.55 * SIZE), third: int(0.55 * SIZE)})


def test_a_disk_becomes_full_at_80_percent(site: Site, big: Model) -> None:
    _first, _second, third = site.hosts
    play = site.begin(big)
    site.until(third, 0.8)
    full = (
        f"cd {STORE}; fallocate -l $(df --output=avail -B1 . | tail -1) /var/lib/filler; df --output=avail . | tail -1"
    )
    assert int(site.on(third, full)) < 100
    run = site.end(play)
    # the room was taken before the first byte moved, so that only the last small notes may not fit
    if run.rc:
        assert f"host {third}" in run.output
        assert "No space left on device" in run.output
        assert not site.visible(third, big.name)
    else:
        site.check_everywhere(big)
    site.on(third, "rm -f /var/lib/filler")
    complete(site, big, {third: 0})


def test_no_room_is_known_before_a_byte_moves(site: Site, big: Model) -> None:
    third = site.hosts[2]
    site.on(third, f"fallocate -l $(( $(df --output=avail -B1 /var/lib | tail -1) - {SIZE // 2} )) /var/lib/filler")
    run = site.play(big)
    assert run.rc != 0
    assert "Nothing was changed: one problem to fix first." in run.said
    needs = f"model_store_models: {big.name} needs 168.0 MiB more under {STORE} (5 % reserve included)"
    assert f"host {third}: {needs}" in run.said
    assert not any(site.visible(host, big.name) or site.report(host) for host in site.hosts)


def test_a_flipped_bit_is_found_and_one_part_sent(site: Site, big: Model) -> None:
    second = site.hosts[1]
    assert site.play(big).rc == 0
    path = f"{STORE}/{big.name}/model-2.safetensors"
    flip = (
        f"import os; p='{path}'; s=os.stat(p); f=open(p,'r+b'); f.seek(23456789); b=f.read(1)[0]; f.seek(23456789); "
        "f.write(bytes([b ^ 4])); f.close(); os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))"
    )
    site.on(second, f'python3 -c "{flip}"')
    site.forget_reports()
    # sizes and times are as they were, so a quick check has nothing to say
    assert site.play(big).rc == 0
    assert site.report(second) == {}
    run = site.play(big, model_store_verify="full")
    assert run.rc == 0, run.output
    assert site.report(second)["received"] == PART
    site.check_everywhere(big)


def test_a_host_that_has_nine_tenths_gets_the_rest(site: Site, model: Model) -> None:
    for number in range(10):
        model.add(f"model-{number}.safetensors", 4 * MIB)
    assert site.play(model).rc == 0
    second, third = site.hosts[1:]
    site.on(second, f"rm {STORE}/{model.name}/model-7.safetensors")
    # and one whose file is there but for its last tenth, under its final name
    site.on(third, f"truncate -s {36 * MIB // 10} {STORE}/{model.name}/model-3.safetensors")
    site.forget_reports()
    run = site.play(model)
    assert run.rc == 0, run.output
    assert site.report(second)["received"] == 4 * MIB
    assert site.report(third)["received"] == PART
    site.check_everywhere(model)


def test_a_head_that_lost_everything_gets_it_from_the_others(site: Site, big: Model) -> None:
    assert site.play(big).rc == 0
    head, second, _third = site.hosts
    site.on(head, f"rm -rf {STORE}/{big.name} {STORE}/{big.name}@* {STORE}/.records")
    site.forget_reports()
    run = site.play(big)
    assert run.rc == 0, run.output
    assert f"{head}: models:" not in run.output.replace("sparkthor: ", "")
    assert (site.report(head)["received"], site.report(head)["upstream"]) == (SIZE, second)
    site.check_everywhere(big)


def test_a_peer_without_the_right_key_is_refused(site: Site, big: Model) -> None:
    first, second, third = site.hosts
    assert site.play(big).rc == 0
    rig = Rig(site.lab, "switch")
    rig.address()
    contents = [[digest, SIZE // 4, None] for digest in big.digests.values()]
    names = {digest: name for name, digest in big.digests.items()}
    for entry in contents:
        entry[2] = rig.part_digests(first, f"{STORE}/{big.name}/{names[entry[0]]}", PART)
    rig.on(first, f"mkdir -p /run/blobs; cd {STORE}/{big.name}; "
           + "; ".join(f"ln -sf $PWD/{name} /run/blobs/{digest}" for digest, name in names.items()))  # fmt: skip
    rig.start([first, second, third], contents, "/run/blobs", store="/run/elsewhere", patience=5,
              keys={second: "00" * 32})  # fmt: skip
    end = time.monotonic() + 60
    while rig.status(second).get(second, {}).get("state") != "failed" and time.monotonic() < end:
        time.sleep(0.3)
    report = rig.status(second)[second]
    assert "does not hold the key of this run" in report["error"]
    assert report["received"] == 0
    # a stranger without any key gets no further than the greeting
    rig.each([first, second, third], "systemctl stop fanout; rm -rf /run/elsewhere /run/blobs /run/fanout")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"name": "../../etc", "source": "/tmp"}, "named with letters, digits"),
        ({"name": "x", "source": "no-such-id"}, "neither a folder"),
        ({"name": "x", "source": "/nowhere/at/all"}, "is not a folder on the controller"),
        ({"name": "x", "source": "nonsense://bucket/x"}, "nonsense://bucket/x"),
    ],
)
def test_bad_declarations_stop_the_run(site: Site, declared: dict[str, str], message: str) -> None:
    run = site.play(declared)
    assert run.rc != 0
    assert message in run.output
    assert "model_store_models" in run.output


def test_a_link_out_of_the_model_is_refused(site: Site, model: Model) -> None:
    model.add("model.safetensors", 1000)
    (model.folder / "passwd").symlink_to("/etc/passwd")
    run = site.play(model)
    assert run.rc != 0
    assert "is a link that leads out of" in run.output
    assert not site.visible(site.hosts[0], model.name)


def test_the_list_of_models_and_removal_on_demand(site: Site, model: Model) -> None:
    model.add("model.safetensors", 3 * MIB)
    old = Model("old-model", model.folder.parent / "old", 0)
    old.add("w", 2 * MIB)
    assert site.play(model, old).rc == 0
    shown = site.play(model, playbook="models.yml", tags="all")
    assert shown.rc == 0, shown.output
    former = site.revision(site.hosts[0], "old-model")
    for host in site.hosts:
        assert f"{host} {former} 2.00 MB 1 files unused whole" in shown.said
        assert f"{host} {site.revision(host, model.name)} 3.00 MB 1 files declared whole" in shown.said
    kept = site.play(model, playbook="models.yml", tags="all", model_store_remove_unused=True,
                     model_store_keep=["old-model"])  # fmt: skip
    assert kept.rc == 0, kept.output
    assert site.visible(site.hosts[0], "old-model")
    gone = site.play(model, playbook="models.yml", tags="all", model_store_remove_unused=True)
    assert gone.rc == 0, gone.output
    assert f"{former} 2.00 MB 1 files removed" in gone.said
    assert not any(site.visible(host, "old-model") for host in site.hosts)
    site.check_everywhere(model)


def test_the_port_is_open_on_fabric_addresses_alone_and_only_while_a_copy_runs(site: Site, big: Model) -> None:
    second = site.hosts[1]
    play: subprocess.Popen[str] = site.begin(big)
    site.until(second, 0.2)
    listening = site.on(second, "ss -Hltn sport = :29870 | awk '{print $4}' | sort").split()
    assert listening == ["10.100.0.2:29870", "10.100.128.2:29870"]
    assert site.on(second, "ls /run/sparkthor-fanout").split() == ["fanout.pyz", "status.json"]  # the key is gone
    assert site.end(play).rc == 0
    assert site.on(second, "ss -Hltn sport = :29870") == ""
