# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's house: which package imports which, and whether every arrow points the right way.

``make house`` prints the graph and fails where a rule of docs/developers-design.md is broken; unit tests ask the same.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tools import engine_words

TOP = Path(__file__).resolve().parents[1]
PLUGINS = "ansible_collections.sparkthor.cluster.plugins"
#: lines above which a file has to be split
FILE_LIMIT = 600
#: lines above which a function needs a reason in LONG_FUNCTIONS
FUNCTION_LIMIT = 60
#: lines from which on a util has tests of its own; shorter ones hold constants and types
TESTED_FROM = 35
#: lines of functions from which on a module or an action has unit tests: shorter ones are an argument spec and a call
CODE_FROM = {"modules": 60, "action": 35}
#: name of a longer function, as `make house` prints it -> why it is not split
LONG_FUNCTIONS: dict[str, str] = {}
#: file that starts programs by itself -> why not by module_utils._lib.command
STARTERS = {
    "module_utils._lib.command": "it is the one from which the others do",
    "module_utils._network.firewall_watch": "one file, installed alone on hosts that have no engine",
    "module_utils._engine.compiled": "gives a file to another user's program, or takes one of bounded size from it",
    "module_utils._measure.link": "leaves ib_write_bw's server running beside the measurement, and ends it",
    "module_utils._onhost.rank_process": "a rank and what ends its container, without a limit, in an event loop",
    "module_utils._onhost.container": "becomes Docker's client",
    "module_utils._onhost.launch": "becomes the engine",
    "action.cluster_bench": "a benchmark takes as long as it takes, and whoever watches it ends it",
}
#: calls that start a program, or become one
STARTS = re.compile(
    r"(?:.*\.)?(?:Popen|create_subprocess_\w+|subprocess_(?:exec|shell)|run_command)"
    r"|(?:subprocess\.)?(?:check_call|check_output|getoutput|getstatusoutput)|subprocess\.(?:run|call)"
    r"|os\.(?:system|popen|posix_spawnp?|spawn\w+|exec\w+)"
)
#: function that waits in a loop of its own, as `make house` prints it -> why not by module_utils._lib.deadline
WAITERS = {
    "action.engine_image_pull._follow": "shows how far it is, and ends with the unit and not with a time",
    "action.vllm_service._wait": "shows where it stands; when it ends is decided elsewhere, by what it was told so far",
    "module_utils._engine.compiled._written": "reads what a program writes for so long, and waits for nothing else",
    "module_utils._lib.deadline.ask_until": "it is the one by which the others do",
    "module_utils._measure.link._stream": "sends for so long, and waits for nothing",
    "module_utils._network.link_state.ping_links": "waits for packets, and what it sent once is sent again once",
    "module_utils._network.netplan_job.run": "works in rounds, until none of the last ones had anything to do",
    "module_utils._onhost.container.remove": "gives each attempt no more time than is left",
    "module_utils._onhost.control._drain": "ends with the quiet of several rounds, and with three reasons to give up",
    "module_utils._onhost.former_head.stay_down": "waits for ever",
    "module_utils._onhost.nodes_prepare.ask": "reaches Ray's workers as code of its own, without this collection",
    "module_utils._onhost.power_guard._run": "tries so many times, however long each takes",
    "module_utils._onhost.rank_head._prepare": "in an event loop, and for ever",
    "module_utils._onhost.rank_process.drop_caches": "in an event loop, which a sleep would stop",
    "module_utils._onhost.rank_process.listening": "in an event loop, which a sleep would stop",
    "module_utils._onhost.rank_worker.run": "in an event loop, and for ever",
    "module_utils._onhost.ray_prepare.wait_for_head": "waits for ever",
    "module_utils._store.fanout.listen": "tells what the last attempt ended with, from a program that is carried along",
    "module_utils._store.fanout.run": "goes by what its threads did last",
    "module_utils._store.fetch._more": "reads for so long, and waits for nothing",
    "plugin_utils._action.keeper.keep": "ends with the run that it is for",
    "plugin_utils._delivery.fanout.follow": "shows how far it is, with pauses that grow",
}
#: a call that lets time pass
SLEEPS = re.compile(r"(?:.*\.)?_?sleep")
#: what a loop goes by that ends with its time
CLOCKS = re.compile(r"\b(?:monotonic|clock)\(\)")
#: functions that several utils have under one name, because they are called alike
INTERFACES = frozenset(("read_now",))
#: words of the glossary's last column that are no names in code -> what to say instead
NO_NAMES = {
    **dict.fromkeys(("look", "looks"), "facts, observation or readiness"),
    **dict.fromkeys(("trouble", "troubles"), "finding or problem"),
    "mend": "fix",
}
#: what a kind of plugin may import; kinds that are not named are doors and import nothing of one another
ALLOWED = {
    "modules": {"module_utils"},
    "action": {"module_utils", "plugin_utils"},
    "filter": {"module_utils", "plugin_utils"},
    "lookup": {"module_utils", "plugin_utils"},
    "plugin_utils": {"module_utils", "plugin_utils"},
    "module_utils": {"module_utils"},
}


@dataclass
class House:
    """Files of ``plugins/`` below ``top`` by their dotted name, and what each imports of the others."""

    top: Path = TOP
    files: dict[str, Path] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)

    def package(self, name: str) -> str:
        """``module_utils._network`` for ``module_utils._network.netplan``; ``modules`` for a module."""
        parts = name.split(".")
        return ".".join(parts[:2]) if parts[0].endswith("_utils") else parts[0]

    def arrows(self) -> dict[str, set[str]]:
        """Package -> the other packages that it imports."""
        found: dict[str, set[str]] = {}
        for name, imported in self.imports.items():
            here = found.setdefault(self.package(name), set())
            here |= {self.package(other) for other in imported} - {self.package(name)}
        return found

    def reachable(self, roots: Iterator[str]) -> set[str]:
        seen: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += self.imports[name]
        return seen


def read(top: Path = TOP) -> House:
    """The house as it stands below ``top``."""
    house = House(top)
    base = top / "plugins"
    for path in sorted(base.rglob("*.py")):
        parts = path.relative_to(base).with_suffix("").parts
        house.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    for name, path in house.files.items():
        house.imports[name] = {found for found in _imported(name, path) for found in [_file(house, found)] if found}
    return house


def _tree(path: Path) -> ast.Module:
    return _parsed(path.read_text(encoding="utf-8"))


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _file(house: House, dotted: str) -> str:
    """The file that ``a.b.c`` names: itself, or what holds the name ``c``."""
    if dotted in house.files:
        return dotted
    outer = dotted.rpartition(".")[0]
    return outer if outer in house.files else ""


def _imported(name: str, path: Path) -> Iterator[str]:
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
        elif node.module and node.module.startswith(PLUGINS + "."):
            base = node.module[len(PLUGINS) + 1 :].split(".")
        else:
            continue
        for alias in node.names:
            yield ".".join([*base, alias.name])


def problems(house: House) -> list[str]:
    """Every rule that is broken, a line each."""
    broken: list[str] = []
    for name, imported in sorted(house.imports.items()):
        kind = name.partition(".")[0]
        for other in sorted(imported):
            if other.partition(".")[0] not in ALLOWED.get(kind, set()):
                broken.append(f"{name} imports {other}: {kind} must not read {other.partition('.')[0]}")
    try:
        TopologicalSorter(house.arrows()).prepare()
    except CycleError as error:
        broken.append("packages import each other in a circle: " + " -> ".join(reversed(error.args[1])))
    broken += _without_limit(house)
    broken += _starters(house)
    broken += _waiters(house)
    broken += _shared_names(house)
    broken += _no_names(house)
    broken += _untested_doors(house)
    used = house.reachable(name for name in house.files if name.startswith("modules."))
    used |= house.reachable(name for name in house.files if name.startswith("module_utils._onhost."))
    for name in sorted(house.files):
        if name.startswith("module_utils.") and name not in used:
            broken.append(f"{name} is reached from no module and not installed on hosts: it belongs to plugin_utils")
        lines = len(house.files[name].read_text(encoding="utf-8").splitlines())
        if lines > FILE_LIMIT:
            broken.append(f"{name} has {lines} lines, more than {FILE_LIMIT}")
        test = test_file(name)
        if lines >= TESTED_FROM and test and not (house.top / test).exists():
            broken.append(f"{name} has no tests: write them in {test}")
    long = {name: length for length, name in functions(house) if length > FUNCTION_LIMIT}
    broken += [
        f"{name} has {length} lines, more than {FUNCTION_LIMIT}: split it, or say in LONG_FUNCTIONS why not"
        for name, length in long.items()
        if name not in LONG_FUNCTIONS
    ]
    broken += [f"{name} is in LONG_FUNCTIONS and is no long function" for name in LONG_FUNCTIONS if name not in long]
    return broken


def _shared_names(house: House) -> list[str]:
    """Public names that several utils define. A function of one word is read with its module's name: ``kept.apply``."""
    where: dict[str, list[str]] = {}
    for name, path in sorted(house.files.items()):
        for node in _tree(path).body if "_utils." in name else ():
            if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and "_" in node.name.strip("_")):
                where.setdefault(node.name, []).append(name)
    return [
        f"{' and '.join(names)} each define {name}: give each a name of its own"
        for name, names in where.items()
        if len(names) > 1 and not name.startswith("_") and name not in INTERFACES
    ]


def _no_names(house: House) -> list[str]:
    """Names in code for which the glossary has another word."""
    broken = []
    for name, path in sorted(house.files.items()):
        for node in ast.walk(_tree(path)):
            match node:
                case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word) | ast.ClassDef(name=word):
                    pass
                case ast.Name(id=word, ctx=ast.Store()) | ast.arg(arg=word) | ast.Attribute(attr=word, ctx=ast.Store()):
                    pass
                case _:
                    continue
            if instead := NO_NAMES.get(word.strip("_").lower()):
                broken.append(f"{name} line {node.lineno}: {word} is no name: the glossary says {instead}")
    return broken


def _untested_doors(house: House) -> list[str]:
    """Modules and actions with code of their own that have no unit file, and that no test of their kind imports."""
    broken = []
    for name, path in sorted(house.files.items()):
        kind, _dot, stem = name.partition(".")
        parts = _tree(path).body if kind in CODE_FROM else []
        code = [node for node in parts if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        lines = sum((node.end_lineno or 0) - node.lineno + 1 for node in code)
        if lines < CODE_FROM.get(kind, 1):
            continue
        folder = house.top / "tests/unit/plugins" / kind
        imported = re.compile(rf"plugins\.{kind}(?:\.{stem}\b| import (?:\([^)]*|[^\n]*)\b{stem}\b)")
        if not any(
            test.stem.startswith(f"test_{stem}") or imported.search(test.read_text(encoding="utf-8"))
            for test in folder.glob("test_*.py")
        ):
            broken.append(f"{name} has {lines} lines of code and no unit tests: write {folder}/test_{stem}.py")
    return broken


def _without_limit(house: House) -> list[str]:
    """Commands whose time limit is none: after it, subprocess waits without one for what may hang in the kernel."""
    broken = []
    for name, path in sorted(house.files.items()):
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition("subprocess.")[2]
            limited = "timeout" in {word.arg for word in node.keywords}
            if called.endswith(".communicate") and not limited:
                broken.append(f"{name} line {node.lineno}: {called} waits without a limit: give it a timeout")
            if limited and called in ("run", "call", "check_call", "check_output"):
                broken.append(
                    f"{name} line {node.lineno}: the timeout of subprocess.{called} does not limit what hangs in the "
                    "kernel: use run_limited of module_utils._lib.command"
                )
    return broken


def _starters(house: House) -> list[str]:
    """Files that start programs by themselves: one runner has limits, ends and outputs right."""
    starters = []
    starting = set()
    for name, path in sorted(house.files.items()):
        tree = _tree(path)
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "os", "asyncio")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if STARTS.fullmatch(imported.get(called, called)):
                starting.add(name)
                if name not in STARTERS:
                    starters.append(
                        f"{name} line {node.lineno}: {called} starts a program: let run_limited or run_alone of "
                        "module_utils._lib.command do it, or say in STARTERS why not"
                    )
    idle = [name for name in STARTERS if name in house.files and name not in starting]
    return [*starters, *(f"{name} is in STARTERS and starts no program" for name in idle)]


def _waiters(house: House) -> list[str]:
    """Functions that wait in a loop of their own: one helper has the end, the last question and the pauses right."""
    waiting: dict[str, int] = {}
    for name, path in sorted(house.files.items()):
        # of functions in each other the inner ones come later
        owners = {
            loop: function.name
            for function in ast.walk(_tree(path))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for loop in ast.walk(function)
            if isinstance(loop, ast.While | ast.For)
        }
        for loop, function in owners.items():
            if _waits(loop):
                waiting.setdefault(f"{name}.{function}", loop.lineno)
    told = [
        f"{name} waits in a loop of its own (line {line}): let ask_until, wait_until or lock of "
        "module_utils._lib.deadline do it, or say in WAITERS why not"
        for name, line in waiting.items()
        if name not in WAITERS
    ]
    there = [name for name in WAITERS if name.rpartition(".")[0] in house.files]
    return [*told, *(f"{name} is in WAITERS and waits in no loop" for name in there if name not in waiting)]


def _waits(loop: ast.While | ast.For) -> bool:
    """Whether a loop tries until something is so; the rounds of a program that never ends wait for nothing."""
    inside = list(ast.walk(loop))
    sleeps = any(isinstance(node, ast.Call) and SLEEPS.fullmatch(ast.unparse(node.func)) for node in inside)
    if isinstance(loop, ast.For):
        return sleeps and ast.unparse(loop.iter).startswith("range(")
    endless = isinstance(loop.test, ast.Constant) and not any(
        isinstance(node, ast.Break | ast.Return | ast.Raise) for node in inside
    )
    return (sleeps and not endless) or bool(CLOCKS.search(ast.unparse(loop.test)))


def test_file(name: str) -> str:
    """Where the tests of a util lie, below the top; empty for plugins, whose tests may span several of them."""
    *folders, file = name.split(".")
    if not folders or not folders[0].endswith("_utils"):
        return ""
    return "/".join(["tests/unit/plugins", *folders, f"test_{file}.py"])


def functions(house: House) -> list[tuple[int, str]]:
    """Length and name of every function, longest first."""
    by_length = [
        (node.end_lineno - node.lineno + 1, f"{name}.{node.name}")
        for name, path in house.files.items()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    return sorted(by_length, reverse=True)


def show(house: House) -> list[str]:
    """The graph and the figures, as lines."""
    arrows = house.arrows()
    lines = ["package                       lines  imports"]
    for package in TopologicalSorter(arrows).static_order() if _acyclic(arrows) else sorted(arrows):
        total = sum(
            len(path.read_text(encoding="utf-8").splitlines())
            for name, path in house.files.items()
            if house.package(name) == package
        )
        lines.append(f"{package:<28} {total:>6}  {', '.join(sorted(arrows.get(package, ()))) or '-'}")
    lines += ["", "longest functions"]
    lines += [f"{length:>6}  {name}" for length, name in functions(house)[:10]]
    return lines


def _acyclic(arrows: dict[str, set[str]]) -> bool:
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError:
        return False
    return True


def main() -> int:
    house, words = read(), engine_words.counted()
    broken = [*problems(house), *engine_words.grown(words, engine_words.held())]
    print("\n".join([*show(house), "", *engine_words.show(words), "", *(f"broken: {line}" for line in broken)]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
