# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the browser of the report's tests comes from; the scenario verify uses it."""

from __future__ import annotations

import shutil

import pytest

from tools import browser


@pytest.fixture
def machine(monkeypatch):
    """The programs of a machine, and what was run there; apt-get installs what it is told to."""
    there, ran = {"apt-get"}, []

    def run(argv, *_seconds, **_options):
        ran.append(argv)
        there.update(argv[argv.index("install") :] if "install" in argv else ())

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in there else None)
    monkeypatch.setattr(browser, "run", run)
    return there, ran


@pytest.mark.parametrize("name", browser.PROGRAMS)
def test_the_browser_of_the_machine_is_taken_as_it_is_installed(machine, name):
    there, ran = machine
    there.add(name)
    assert browser.program() == f"/usr/bin/{name}"
    assert ran == []


def test_it_is_installed_with_all_that_it_needs_and_not_unpacked(machine, monkeypatch):
    _there, ran = machine
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    assert browser.program() == f"/usr/bin/{browser.PACKAGE}"
    assert [argv[0] for argv in ran] == ["apt-get", "apt-get"]
    assert ran[-1][-2:] == [browser.PACKAGE, browser.FONTS]


@pytest.mark.parametrize(("user", "tools"), [(1000, {"apt-get"}), (0, set())])
def test_who_cannot_install_it_is_told_what_to_install(machine, monkeypatch, user, tools):
    there, ran = machine
    there.clear()
    there.update(tools)
    monkeypatch.setattr(browser.os, "geteuid", lambda: user)
    with pytest.raises(browser.BrowserError, match=f"apt-get install {browser.PACKAGE}"):
        browser.program()
    assert ran == []
