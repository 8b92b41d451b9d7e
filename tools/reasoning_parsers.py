# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make tests/truth/reasoning_parsers.json: what the reasoning parsers of vLLM's wheels make of two answers.

    python -m tools.reasoning_parsers 0.13.0 0.16.0 0.17.0

Of each wheel only the files of the parsers are read, by HTTP ranges, and their own code is run; what they import
besides is replaced by empty classes. An answer without the opening tag is what models write whose template puts that
tag into the prompt.
"""

from __future__ import annotations

import abc
import importlib
import importlib.abc
import importlib.machinery
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from pip._internal.models.index import PyPI
from pip._internal.network.lazy_wheel import LazyZipOverHTTP
from pip._internal.network.session import PipSession

FOUND = Path(__file__).parents[1] / "tests" / "truth" / "reasoning_parsers.json"
INDEX = f"{PyPI.simple_url}/vllm/"
ANSWERS = {"both tags": "<think>why</think>so", "closing tag alone": "why</think>so"}
PARSERS = ("qwen3", "deepseek_r1")
#: where vLLM's classes are, by parser and by the wheels' own age
_CLASSES = {
    "qwen3": (
        ("vllm.parser.engine.registered_adapters", "Qwen3ParserReasoningAdapter"),
        ("vllm.reasoning.qwen3_reasoning_parser", "Qwen3ReasoningParser"),
    ),
    "deepseek_r1": (("vllm.reasoning.deepseek_r1_reasoning_parser", "DeepSeekR1ReasoningParser"),),
}
_REAL = ("vllm/reasoning/", "vllm/parser/")


def sources(version: str) -> tuple[str, dict[str, str]]:
    """Name of a wheel of this version, and the sources of its parsers by path."""
    session = PipSession()
    answer = session.get(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    answer.raise_for_status()
    wheel = next(
        file
        for file in answer.json()["files"]
        if file["filename"].startswith(f"vllm-{version}-") and file["filename"].endswith("x86_64.whl")
    )
    with LazyZipOverHTTP(wheel["url"], session) as stream:
        archive = zipfile.ZipFile(stream)
        names = [name for name in archive.namelist() if name.startswith(_REAL) and name.endswith(".py")]
        return wheel["filename"], {name: archive.read(name).decode() for name in names}


class _Empty(abc.ABCMeta):
    """A class of which any attribute may be asked."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return mock.MagicMock(name=name)


class _Absent(ModuleType):
    """A module that is not in the wheel's parsers: its classes are empty ones, the rest are mocks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = _Empty(name, (), {"__init__": _keep}) if name[0].isupper() else mock.MagicMock(name=name)
        setattr(self, name, made)
        return made


def _keep(self: Any, *_args: Any, **given: Any) -> None:
    self.__dict__.update(given)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of the wheel's parsers as they are; every other one that is not installed is a mock."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def _path(self, name: str) -> str:
        plain = name.replace(".", "/")
        return next((path for path in (f"{plain}.py", f"{plain}/__init__.py") if path in self.files), "")

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> importlib.machinery.ModuleSpec:
        return importlib.machinery.ModuleSpec(name, self, is_package=not self._path(name).endswith(f"{name[-3:]}.py"))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if self._path(spec.name):
            return None
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        path = self._path(module.__spec__.name) if module.__spec__ else ""
        if path:
            exec(compile(self.files[path], path, "exec"), module.__dict__)


def tell(files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """By parser and answer what it takes for reasoning and for content."""
    sys.meta_path.append(_Finder(files))
    sys.modules["regex"] = re
    vocabulary = {tag: number for number, tag in enumerate(("<think>", "</think>", "<tool_call>", "</tool_call>"), 7)}
    tokenizer = mock.MagicMock()
    tokenizer.get_vocab.return_value = vocabulary
    tokenizer.vocab = vocabulary
    parsers: dict[str, dict[str, Any]] = {}
    for name in PARSERS:
        parser = next(
            getattr(importlib.import_module(module), cls)(tokenizer)
            for module, cls in _CLASSES[name]
            if f"{module.replace('.', '/')}.py" in files
        )
        extract = getattr(parser, "extract_reasoning", None) or parser.extract_reasoning_content
        parsers[name] = {}
        for words, answer in ANSWERS.items():
            reasoning, content = extract(answer, mock.MagicMock())
            parsers[name][words] = {"reasoning": reasoning, "content": content}
    return parsers


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["--one"]:
        wheel, files = sources(argv[1])
        print(json.dumps({"wheel": wheel, **tell(files)}))
        return 0
    known = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for version in argv:
        # each in a process of its own, because modules of one name are imported once
        command = [sys.executable, "-m", "tools.reasoning_parsers", "--one", version]
        known[version] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    order = sorted(known, key=lambda version: [int(part) for part in version.split(".")])
    FOUND.write_text(json.dumps({version: known[version] for version in order}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
