# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the layout, on made-up trees: each broken rule is named, and a sound tree has nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import house

OURS = house.PLUGINS
SOUND = {
    "modules/netplan_apply.py": f"from {OURS}.module_utils._network import netplan\n",
    "action/netplan_apply.py": f"from {OURS}.plugin_utils._plan.fabric import fabric_plan\n",
    "module_utils/_lib/files.py": "import os\n",
    "module_utils/_network/netplan.py": "from .._lib.files import write_atomic\nfrom . import routes\n",
    "module_utils/_network/routes.py": "",
    "module_utils/_onhost/watchdog.py": "from .._lib import files\n"
    "class Wanted: ...\ndef read_it(): ...\ndef _read_it(): ...\ndef read(): ...\ndef plan(): ...\n",
    "plugin_utils/_plan/fabric.py": f"from {OURS}.module_utils._network import netplan\n",
}


def changed(top: Path, name: str, text: str) -> house.House:
    """The sound tree with one file added or replaced; each has its tests."""
    for each, content in {**SOUND, name: text}.items():
        path = top / "plugins" / each
        test = top / "tests" / "unit" / "plugins" / Path(each).with_name(f"test_{path.name}")
        for folder in (path.parent, test.parent):
            folder.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        test.touch()
    return house.read(top)


def test_a_sound_tree(tmp_path: Path) -> None:
    found = changed(tmp_path, "filter/shape.py", f"from {OURS}.plugin_utils._plan import fabric\n")
    assert house.problems(found) == []
    assert found.imports["module_utils._network.netplan"] == {"module_utils._lib.files", "module_utils._network.routes"}
    assert found.arrows()["plugin_utils._plan"] == {"module_utils._network"}
    shown = "\n".join(house.show(found))
    assert (
        shown.index("module_utils._lib ") < shown.index("module_utils._network ") < shown.index("plugin_utils._plan ")
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (
            "module_utils/_onhost/watchdog.py",
            f"def late():\n    from {OURS}.plugin_utils._plan import fabric\n",
            "module_utils._onhost.watchdog imports plugin_utils._plan.fabric: module_utils must not read plugin_utils",
        ),
        (
            "module_utils/_onhost/watchdog.py",
            "import subprocess\nsubprocess.run(['nvidia-smi'], timeout=5, check=False)\n",
            "module_utils._onhost.watchdog line 2: the timeout of subprocess.run does not limit what hangs in the "
            "kernel: use run_limited of module_utils._lib.command",
        ),
        (
            "plugin_utils/_plan/fabric.py",
            "from subprocess import check_output\ncheck_output(['ip'], timeout=5)\n",
            "plugin_utils._plan.fabric line 2: the timeout of subprocess.check_output does not limit what hangs in the "
            "kernel: use run_limited of module_utils._lib.command",
        ),
        (
            "plugin_utils/_plan/fabric.py",
            "def ended(process):\n    process.kill()\n    return process.communicate()\n",
            "plugin_utils._plan.fabric line 3: process.communicate waits without a limit: give it a timeout",
        ),
        (
            "action/other.py",
            f"from {OURS}.action.netplan_apply import ActionModule\n",
            "action.other imports action.netplan_apply: action must not read action",
        ),
        (
            "modules/netplan_apply.py",
            f"from {OURS}.module_utils._network import netplan\nfrom ..plugin_utils._plan import fabric\n",
            "modules.netplan_apply imports plugin_utils._plan.fabric: modules must not read plugin_utils",
        ),
        (
            "module_utils/_network/alone.py",
            "",
            "module_utils._network.alone is reached from no module and not installed on hosts: "
            "it belongs to plugin_utils",
        ),
        (
            "module_utils/_onhost/watchdog.py",
            "#\n" * (house.FILE_LIMIT + 1),
            f"module_utils._onhost.watchdog has {house.FILE_LIMIT + 1} lines, more than {house.FILE_LIMIT}",
        ),
        (
            "module_utils/_onhost/watchdog.py",
            "async def turn():\n" + "    pass\n" * house.FUNCTION_LIMIT,
            f"module_utils._onhost.watchdog.turn has {house.FUNCTION_LIMIT + 1} lines, "
            f"more than {house.FUNCTION_LIMIT}: split it, or say in LONG_FUNCTIONS why not",
        ),
        (
            "plugin_utils/_plan/fabric.py",
            "def plan():\n    _trouble = 1\n",
            "plugin_utils._plan.fabric line 2: _trouble is no name: the glossary says finding or problem",
        ),
        (
            "plugin_utils/_plan/fabric.py",
            "class Wanted:\n    pass\n\n\ndef plan_it():\n    pass\n\n\ndef plan():\n    pass\n",
            "module_utils._onhost.watchdog and plugin_utils._plan.fabric each define Wanted: "
            "give each a name of its own",
        ),
        (
            "plugin_utils/_plan/fabric.py",
            "def read_it():\n    pass\n\n\ndef read():\n    pass\n\n\ndef _read_it():\n    pass\n",
            "module_utils._onhost.watchdog and plugin_utils._plan.fabric each define read_it: "
            "give each a name of its own",
        ),
    ],
)
def test_a_broken_rule_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    found = house.problems(changed(tmp_path, name, text))
    assert [line for line in found if "starts a program" not in line] == [problem]


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("import subprocess\nsubprocess.run(['ip'])\n", "subprocess.run"),
        ("import subprocess\nsubprocess.Popen(['ip'])\n", "subprocess.Popen"),
        ("from subprocess import run as go\ngo(['ip'])\n", "go"),
        ("import asyncio\nasyncio.create_subprocess_exec('ip')\n", "asyncio.create_subprocess_exec"),
        ("import os\nos.system('ip')\n", "os.system"),
        ("import os\nos.execvp('ip', [])\n", "os.execvp"),
        ("module = None\nmodule.run_command(['ip'])\n", "module.run_command"),
    ],
)
def test_programs_are_started_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, called: str
) -> None:
    tree = changed(tmp_path, "module_utils/_onhost/watchdog.py", text)
    [problem] = house.problems(tree)
    assert problem == (
        f"module_utils._onhost.watchdog line 2: {called} starts a program: let run_limited or run_alone of "
        "module_utils._lib.command do it, or say in STARTERS why not"
    )
    monkeypatch.setitem(house.STARTERS, "module_utils._onhost.watchdog", "it has to")
    assert house.problems(tree) == []
    [problem] = house.problems(changed(tmp_path, "module_utils/_onhost/watchdog.py", ""))
    assert problem == "module_utils._onhost.watchdog is in STARTERS and starts no program"


@pytest.mark.parametrize(
    "text",
    [
        "while time.monotonic() < end:\n        ask()\n",
        "while end is None or clock() < end:\n        ask()\n",
        "while True:\n        if ask(): return\n        time.sleep(1)\n",
        "while not ask():\n        await asyncio.sleep(1)\n",
        "for _number in range(40):\n        self.sleep(1)\n",
    ],
)
def test_one_helper_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    name = "module_utils/_onhost/watchdog.py"
    tree = changed(tmp_path, name, f"async def wait():\n    {text}")
    assert house.problems(tree) == [
        "module_utils._onhost.watchdog.wait waits in a loop of its own (line 2): let ask_until, wait_until or lock of "
        "module_utils._lib.deadline do it, or say in WAITERS why not"
    ]
    monkeypatch.setitem(house.WAITERS, "module_utils._onhost.watchdog.wait", "it has to")
    assert house.problems(tree) == []
    [problem] = house.problems(changed(tmp_path, name, ""))
    assert problem == "module_utils._onhost.watchdog.wait is in WAITERS and waits in no loop"


def test_a_program_that_never_ends_waits_for_nothing(tmp_path: Path) -> None:
    text = "def main():\n    while True:\n        go_round()\n        time.sleep(1)\n"
    text += "def switch(hosts):\n    for host in hosts:\n        time.sleep(1)\n"
    assert house.problems(changed(tmp_path, "module_utils/_onhost/watchdog.py", text)) == []


def test_packages_in_a_circle(tmp_path: Path) -> None:
    text = f"from {OURS}.module_utils._network import netplan\n"
    (problem,) = house.problems(changed(tmp_path, "module_utils/_lib/files.py", text))
    assert problem.startswith("packages import each other in a circle: ")
    assert {"module_utils._lib", "module_utils._network"} <= set(problem.split(": ")[1].split(" -> "))


def test_the_graph_is_shown_although_it_has_a_circle(tmp_path: Path) -> None:
    text = f"from {OURS}.module_utils._network import netplan\n"
    assert any(
        line.startswith("module_utils._lib")
        for line in house.show(changed(tmp_path, "module_utils/_lib/files.py", text))
    )


def test_files_of_one_package_may_read_each_other(tmp_path: Path) -> None:
    assert house.problems(changed(tmp_path, "module_utils/_network/routes.py", "from . import netplan\n")) == []


def test_a_reason_allows_a_long_function_and_outlives_it_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "LONG_FUNCTIONS", {"module_utils._onhost.watchdog.turn": "a table"})
    long = "def turn():\n" + "    pass\n" * house.FUNCTION_LIMIT
    assert house.problems(changed(tmp_path, "module_utils/_onhost/watchdog.py", long)) == []
    (problem,) = house.problems(changed(tmp_path, "module_utils/_onhost/watchdog.py", "def turn(): pass\n"))
    assert problem == "module_utils._onhost.watchdog.turn is in LONG_FUNCTIONS and is no long function"


def test_a_util_without_tests_is_named_with_where_to_write_them(tmp_path: Path) -> None:
    text = "#\n" * house.TESTED_FROM
    assert house.problems(changed(tmp_path, "plugin_utils/_plan/fabric.py", text)) == []
    test = tmp_path / "tests/unit/plugins/plugin_utils/_plan/test_fabric.py"
    test.unlink()
    problem = (
        "plugin_utils._plan.fabric has no tests: write them in tests/unit/plugins/plugin_utils/_plan/test_fabric.py"
    )
    assert house.problems(house.read(tmp_path)) == [problem]
    (tmp_path / "plugins/plugin_utils/_plan/fabric.py").write_text("#\n" * (house.TESTED_FROM - 1))
    assert house.problems(house.read(tmp_path)) == [], "constants and types alone"


def test_a_module_needs_no_test_file_of_its_own(tmp_path: Path) -> None:
    found = changed(tmp_path, "modules/netplan_apply.py", "#\n" * house.TESTED_FROM)
    (tmp_path / "tests/unit/plugins/modules/test_netplan_apply.py").unlink()
    assert not [problem for problem in house.problems(found) if "no tests" in problem]


def test_a_module_and_an_action_with_code_have_tests(tmp_path: Path) -> None:
    text = "".join(f"def {name}():\n" + "    print()\n" * 30 for name in ("main", "ask"))
    found = changed(tmp_path, "modules/long.py", text)
    assert house.problems(found) == []
    (tmp_path / "tests/unit/plugins/modules/test_long.py").unlink()
    [problem] = house.problems(found)
    assert problem.startswith("modules.long has 62 lines of code and no unit tests: write ")
    imports = tmp_path / "tests/unit/plugins/modules/test_other.py"
    imports.write_text("from ansible_collections.sparkthor.cluster.plugins.modules import long\n")
    assert house.problems(found) == []
