# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make docs``: the site, from docs/, the plugins' documentation, the roles' argument specs and the doctor's rules.

The pages are collected in .lab/docs/src and built into .lab/docs/html.  Nothing is fetched; a warning fails the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

TOP = Path(__file__).resolve().parent.parent
SITE = TOP / "docs" / "site"
RULES = TOP / "plugins" / "plugin_utils" / "_doctor" / "rules"
REPOSITORY = "https://github.com/sparkthor/sparkthor.cluster"

#: pages of the site that lie elsewhere in the repository
ELSEWHERE = {
    "lab/README.md": "lab.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.rst": "changelog.rst",
    "README.md": "index.md",
}
_LINK = re.compile(r"(?<=\])\((?P<target>[^()\s]+)\)")
#: a table of as many columns does not fit onto a phone
WIDE = 5
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~|:::)")


class BrokenLinkError(Exception):
    """A page links to what does not exist."""


def pages(top: Path = TOP) -> dict[str, str]:
    """By path in the repository, the path in the site of every page that people write."""
    written = {}
    for path in sorted((top / "docs").rglob("*.md")):
        parts = path.relative_to(top / "docs").parts
        written[path.relative_to(top).as_posix()] = "/".join(parts[1:] if parts[0] == "site" else parts)
    return {**ELSEWHERE, **written}


def relink(text: str, page: str, known: Mapping[str, str], top: Path = TOP) -> str:
    """Links of a page of the repository as they are in the site: pages to pages, a role to its reference, and any
    other file to the repository."""

    def replaced(match: re.Match[str]) -> str:
        return f"({_target(match['target'], page, known, top)})"

    lines, fenced = [], False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        lines.append(line if fenced else _LINK.sub(replaced, line))
    return "\n".join(lines)


def _target(target: str, page: str, known: Mapping[str, str], top: Path) -> str:
    if urlsplit(target).scheme or target.startswith("#"):
        return target
    name, _mark, anchor = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), name))
    here = os.path.dirname(known[page])
    if path == "README.md" and anchor:
        # the site has a page of its own in its place
        return f"{REPOSITORY}#{anchor}"
    role = re.fullmatch(r"roles/(\w+)(/README\.md)?", path)
    if path in known:
        relative = os.path.relpath(known[path], here)
    elif role:
        relative = os.path.relpath(f"collections/{role[1]}_role.rst", here)
    elif (top / path).suffix in (".png", ".svg") and (top / path).is_file():
        relative = os.path.relpath(path.removeprefix("docs/").removeprefix("site/"), here)
    elif (top / path).exists():
        relative = f"{REPOSITORY}/{'tree' if (top / path).is_dir() else 'blob'}/main/{path}"
    elif (top / "docs" / "site").joinpath(path.removeprefix("docs/site/")).exists() or path.startswith("docs/site/"):
        relative = target.partition("#")[0]  # a page that the build makes; Sphinx says if it does not
    else:
        raise BrokenLinkError(f"{page}: link to {target}, which does not exist")
    return f"{relative}#{anchor}" if anchor else relative


#: areas of the doctor's rules that are no plain words
SPELT = {"nccl": "NCCL", "sglang": "SGLang", "vllm": "vLLM"}


def rules() -> dict[str, list[dict[str, Any]]]:
    """By area, the doctor's rules as their files hold them."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(RULES.glob("*.yml"))}


def rule_page(area: str, found: list[dict[str, Any]]) -> str:
    """One area of the doctor's rules as a page: each symptom with its cause, its fix and where that is known from."""
    lines = [f"# {SPELT.get(area, area.capitalize())}", ""]
    for rule in sorted(found, key=lambda rule: str(rule["title"])):
        lines += [f"({rule['id']})=", f"## {rule['title']}", ""]
        shown = [item["has"] for item in rule.get("log") or () if item.get("has")]
        lines += [str(rule["symptom"]).strip(), ""] if rule.get("symptom") else []
        lines += ["In the log:", "", "```text", *shown, "```", ""] if shown else []
        lines += [f"**Cause.** {str(rule['cause']).strip()}", "", f"**Fix.** {str(rule['fix']).strip()}", ""]
        sources = [f"[{source['title']}]({source['url']})" for source in rule.get("source") or () if source.get("url")]
        lines += [f"Sources: {', '.join(sources)}. The doctor reports it as `{rule['id']}`.", ""]
    return "\n".join(lines)


def collect(target: Path) -> None:
    """Every page of the site below ``target``, but for the reference that antsibull-docs writes."""
    known = pages()
    for source, name in known.items():
        if source == "README.md":
            continue
        text = (TOP / source).read_text(encoding="utf-8")
        page = target / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(relink(text, source, known) if source.endswith(".md") else text, encoding="utf-8")
    for folder in (TOP / "docs" / "images", SITE / "images"):
        if folder.is_dir():
            shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
    symptoms = target / "symptoms"
    symptoms.mkdir()
    for area, found in rules().items():
        (symptoms / f"{area}.md").write_text(rule_page(area, found), encoding="utf-8")


def reference(target: Path) -> None:
    """A page for each module, filter, lookup and role."""
    folder = target / "collections"
    folder.mkdir()
    argv = [
        "antsibull-docs",
        "collection",
        "--use-current",
        "--squash-hierarchy",
        "--fail-on-error",
        "--no-breadcrumbs",
    ]
    subprocess.run([*argv, "--dest-dir", str(folder), "sparkthor.cluster"], cwd=TOP, check=True)
    for page in target.rglob("*.rst"):
        # the theme has the contents of every page beside it
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(r"^\.\. contents::.*\n(?: +\S.*\n)*", "", text, flags=re.MULTILINE), encoding="utf-8")


def label(html: str) -> str:
    """The page with the heading of its column at each cell of a wide table, which a phone shows row by row."""

    def wide(table: re.Match[str]) -> str:
        heads = [" ".join(re.sub(r"<[^>]+>", " ", head).split()) for head in _HEAD.findall(table[0])]
        if len(heads) < WIDE:
            return table[0]
        column = -1

        def cell(found: re.Match[str]) -> str:
            nonlocal column
            column = -1 if found[0].startswith("<tr") else column + 1
            return found[0] if column < 0 else f'<td data-label="{heads[column]}"{found[1]}>'

        return re.sub(r"<(?:tr|td)\b([^>]*)>", cell, table[0]).replace('class="docutils', 'class="wide docutils', 1)

    return re.sub(r"<table\b.*?</table>", wide, html, flags=re.DOTALL)


def build(source: Path, html: Path, version: str) -> None:
    argv = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--conf-dir", str(SITE)]
    argv += ["-D", f"version={version}", "-D", f"release={version}", str(source), str(html)]
    subprocess.run(argv, cwd=TOP, check=True)
    for page in html.rglob("*.html"):
        page.write_text(label(page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__)
    parser.add_argument("--dest", type=Path, default=TOP / ".lab" / "docs", help="folder of src/ and html/")
    dest = parser.parse_args().dest
    begun = time.monotonic()
    for folder in (dest / "src", dest / "html"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    version = yaml.safe_load((TOP / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    collect(dest / "src")
    reference(dest / "src")
    build(dest / "src", dest / "html", version)
    print(f"{dest / 'html' / 'index.html'} in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
