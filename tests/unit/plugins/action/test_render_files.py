# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible.errors import AnsibleActionFail, AnsibleTemplateError
from ansible_collections.sparkthor.cluster.plugins.action import render_files

# pytest-xdist has threads of its own; the process of an Ansible action has one
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
HOSTS = [f"spark-{number:03d}" for number in range(1, 101)]


@pytest.fixture(params=[1, 4])
def cores(request, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: request.param)
    return request.param


def test_order_and_hosts_are_kept_by_however_many_processes(cores):
    def work(host):
        return [{"path": f"/{host}", "content": str(os.getpid())}]

    found = list(render_files._on_all_cores(work, HOSTS))
    assert [host for host, _files in found] == HOSTS
    assert [files[0]["path"] for _host, files in found] == [f"/{host}" for host in HOSTS]
    others = {files[0]["content"] for _host, files in found} - {str(os.getpid())}
    assert bool(others) == (cores > 1)


def test_few_hosts_stay_in_this_process(cores):
    found = list(render_files._on_all_cores(lambda host: [{"path": host, "content": str(os.getpid())}], HOSTS[:31]))
    assert {files[0]["content"] for _host, files in found} == {str(os.getpid())}


def test_the_host_of_an_error_is_named(cores):
    def work(host):
        if host == "spark-077":
            raise AnsibleTemplateError("'nowhere' is undefined")
        return []

    with pytest.raises(AnsibleActionFail, match=r"^spark-077: .*nowhere"):
        list(render_files._on_all_cores(work, HOSTS))
