# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages name is there: links and their anchors, paths, playbooks, targets of make, recipes, units, options.

And what the pages once said wrongly is held against the code that decides it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "lab/README.md", "roles/*/README.md")
    for path in TOP.glob(pattern)
    if path.name != "CODE_OF_CONDUCT.md"
)
#: what a user reads; diaries, figures and lists that tests write are for developers
USER = [path for path in PAGES if TOP / "docs" in path.parents or path == TOP / "README.md"]
USER = [path for path in USER if not re.search("benchmarks|developers|changelog", str(path.relative_to(TOP)))]
#: a table that a tool writes (that of the plans in docs/recipes.md does not count either)
LONG = {"docs/catalogue.md"}
#: folders of the repository whose files are named in backticks
FOLDERS = ("playbooks", "roles", "plugins", "tests", "tools", "recipes", "inventories", "examples", "lab", "molecule")
FOLDERS += ("requirements", "changelogs", "meta", "docs", ".github")
PLAYBOOKS = {path.stem for path in (TOP / "playbooks").glob("*.yml")}
RECIPES = {path.stem for path in (TOP / "recipes").glob("*.yml")}
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("plugins", "roles", "playbooks")
    for path in sorted((TOP / folder).rglob("*"))
    if path.suffix in (".py", ".yml", ".j2", ".json")
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a forge and the site make of a page's headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(text_of(page)), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def named(page: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, text_of(page)))


def ids(path: Path) -> str:
    return str(path.relative_to(TOP))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\((?!https?:|mailto:)([^()\s]+)\)", without_code(text_of(page))):
        path, _hash, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_path_of_the_repository_exists(page: Path) -> None:
    """In backticks; ``*`` is a pattern, a word in capitals a placeholder."""
    missing = []
    for path in named(page, rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*{{}},@-]+)`"):
        if re.search(r"\b[A-Z]{3,}\b|<|…|\bNAME\b|mine\b", path.replace("README", "")):
            continue
        parts = re.split(r"[{},]", path) if "{" in path else [path]
        wanted = [parts[0] + part + parts[-1] for part in parts[1:-1]] if "{" in path else parts
        beside = [TOP, page.parent, *((TOP / "plugins",) if path.startswith("meta") else ())]
        missing += [one for one in wanted if not any(list(folder.glob(one.rstrip("/"))) for folder in beside)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_names_a_playbook_and_a_target_of_make(page: Path) -> None:
    playbooks = named(page, r"playbooks/([a-z_]+)\.yml") | named(
        page, r"ansible-playbook sparkthor\.cluster\.([a-z_]+)"
    )
    makefile = text_of(TOP / "Makefile")
    targets = named(page, r"`make ([a-z-]+)") | named(page, r"^make ([a-z-]+)(?= |$)")
    assert playbooks - PLAYBOOKS == set()
    assert {target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_recipe_exists(page: Path) -> None:
    found = named(page, r"(?:vllm_serve_recipe|vllm_serve_degraded_recipe): ([\w.-]+)")
    found |= named(page, r"(?:-e recipe=|-e recipe_show=|-e recipe_export=)([\w.-]+)")
    examples = {name for name in found if name.startswith("my-") or name in ("NAME", "RECIPE")}
    assert found - RECIPES - examples == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_option_of_a_command_is_a_variable_of_the_code(page: Path) -> None:
    options = named(page, r"""-e ["']?([a-z]+(?:_[a-z]+)*)=""") | named(page, r"""-e '\{"([a-z_]+)":""")
    assert {name for name in options if not re.search(rf"\b{name}\b", SOURCES)} == set()


#: one word for the same thing in many playbooks
OF_SEVERAL = ("serving_group", "recipe=")


@pytest.mark.parametrize("source", [*PAGES, *sorted((TOP / "playbooks").glob("*.yml"))], ids=ids)
def test_a_variable_of_a_command_begins_with_the_name_of_a_playbook(source: Path) -> None:
    """Or with a role's: an extra variable goes before all others, and a short one meets a variable of the user's."""
    roles = (path.name for path in (TOP / "roles").iterdir())
    first = tuple(f"{name}_" for name in (*roles, *PLAYBOOKS, "fabric", "ansible", "roll_back", "sparkthor"))
    wrong = set()
    for line in re.sub(r"\\\n|\n#  +(?=\[?-e)", " ", text_of(source)).splitlines():
        for playbook, options in re.findall(r"playbooks/([a-z_]+)\.yml(.*)", line):
            names = re.findall(r"""-e ["']?(?:\{")?([a-z][a-z_]*=?)""", options)
            wrong |= {f"{playbook}.yml: {name}" for name in names if not name.startswith((*first, *OF_SEVERAL))}
    assert wrong == set()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_unit_of_ours_is_in_the_code(page: Path) -> None:
    units = named(page, r"\b(sparkthor-[a-z-]*[a-z])(?:\.service|\.target|\.timer)")
    assert {unit for unit in units if unit not in SOURCES} == set()


@pytest.mark.parametrize(
    "folder", ["plugins", "roles", "playbooks", "tools", "lab", "recipes", "examples", "inventories"]
)
def test_every_page_that_the_code_names_exists(folder: str) -> None:
    """Messages and comments lead a reader there."""
    missing = set()
    for path in sorted((TOP / folder).rglob("*")):
        if path.suffix in (".py", ".yml", ".j2", ".sh"):
            for name, anchor in re.findall(r"(?<![/\w])(docs/[\w/-]+\.md)(?:#([\w-]+))?", text_of(path)):
                page = TOP / name
                if not page.is_file() or (anchor and anchor not in anchors(page)):
                    missing.add(f"{ids(path)}: {name}#{anchor}")
    assert missing == set()


def prose_of(page: Path) -> int:
    """Words of a page without the table of plans, which a tool writes."""
    return len(re.sub(r"<!-- plans: begin -->.*?<!-- plans: end -->", "", text_of(page), flags=re.DOTALL).split())


@pytest.mark.parametrize("page", USER, ids=ids)
def test_a_page_is_read_in_minutes(page: Path) -> None:
    words = prose_of(page)
    if page.name == "README.md":
        assert words <= 700
    elif ids(page) not in LONG:
        assert words <= 1200


def test_all_pages_together_have_an_end() -> None:
    """Of what all users read; what a tool writes of the models is none, nor is what one kind of owner reads."""
    counted = [page for page in USER if not re.match(r"catalogue|switches|engines-", page.name)]
    assert sum(map(prose_of, counted)) <= 24_099


#: what a new owner reads for six answers: page, and its headings ("" is what stands before the first one)
ANSWERS = {
    "what happens to my machines": ("README.md", None),
    "and in detail": ("docs/changes.md", ["", "The way back"]),
    "which model, and how fast": ("docs/first-hour.md", ["What to choose"]),
    "where the logs are": ("docs/first-hour.md", ["Where the logs are"]),
    "how a machine is added": ("docs/lifecycle.md", ["", "Add a host"]),
    "how the collection is updated": ("docs/playbooks.md", ["Update the collection"]),
    "how engine and packages are": ("docs/upgrade.md", ["", "Driver, kernel and firmware"]),
}


def test_six_answers_are_read_in_minutes() -> None:
    words = 0
    for name, headings in ANSWERS.values():
        text = text_of(TOP / name)
        if headings is None:
            words += len(text.split())
            continue
        parts = re.split(r"^## (.*)$", f"## \n{text}", flags=re.MULTILINE)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        words += sum(len(f"{heading} {sections[heading]}".split()) for heading in headings)
    assert words <= 2500


#: they ask no host for root's rights
WITHOUT_SUDO = {"recipe", "render", "switch", "first_contact", "backup"}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_that_reaches_hosts_has_the_password_of_sudo(page: Path) -> None:
    """A newcomer types it as it stands. Hosts of the lab ask for no password."""
    lacking = []
    for line in text_of(page).replace("\\\n", " ").splitlines():
        found = re.match(r" *ansible-playbook (?:playbooks/|sparkthor\.cluster\.)?(\w+)", line)
        if found and found[1] not in WITHOUT_SUDO and not re.search(r"-i inventories/lab|\.lab/|doctor_logs=", line):
            lacking += [] if re.search(r" -K\b| --become-password-file ", line) else [line]
    assert lacking == []
    for name in WITHOUT_SUDO:
        plays = yaml.safe_load(text_of(TOP / f"playbooks/{name}.yml"))
        assert not any(play.get("become") for play in plays), name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_a_first_contact_is_typed_as_it_stands(page: Path) -> None:
    """Nothing of a new machine says who logs in there."""
    typed = re.findall(r"(ansible-playbook )?\S*first_contact(?:\.yml)? (-.*)", text_of(page))
    assert [found for found in typed if not found[0] or not found[1].startswith("-u ")] == []


# what the pages once said wrongly


def test_a_dead_host_is_left_out_of_the_inventory() -> None:
    """Preflight wants an answer of every host, so with a dead one no head moves."""
    page = text_of(TOP / "docs/lifecycle.md")
    dead = page.partition("\n## Replace a dead machine")[2].partition("\n## ")[0]
    assert "move the head" not in dead
    assert "(#remove-a-host)" in dead


def defaults(role: str) -> dict[str, Any]:
    entries = yaml.safe_load(text_of(TOP / "roles" / role / "meta/argument_specs.yml"))["argument_specs"]
    return {name: option.get("default") for entry in entries.values() for name, option in entry["options"].items()}


def test_what_changes_on_a_machine_and_its_switches() -> None:
    """The firewall is none of os_hardening's areas, and each switch that the page names is on."""
    rows = re.findall(r"^\| [^|]+ \|[^|]+\| `(\w+): (\w+)` \|$", text_of(TOP / "docs/changes.md"), re.MULTILINE)
    switches = {**defaults("os_hardening"), **defaults("firewall"), **defaults("vllm_serve"), **defaults("console")}
    assert len(rows) > 5
    for name, value in rows:
        if name != "fabric_topology":
            assert str(switches[name]).lower() != value, name
    assert defaults("os_hardening")["os_hardening_hold"] is False
    assert not any("upgrades held" in text_of(page).lower() for page in PAGES)


def test_swap_is_not_promised_to_be_off() -> None:
    assert not any("swapoff" in text_of(path) for path in (TOP / "roles").rglob("*.yml"))
    wrong = [ids(page) for page in USER if re.search(r"\bwithout [^.;|\n]*\bswap\b|\bno swap\b", text_of(page))]
    assert wrong == []


def test_the_python_versions_are_those_of_the_virtual_environment() -> None:
    low, high = re.findall(r"\(3, (\d+)\) <= sys.version_info\[:2\] <= \(3, (\d+)\)", text_of(TOP / "tools/venv.sh"))[0]
    for page in ("README.md", "docs/site/tutorial/lab.md", "docs/site/tutorial/hardware.md"):
        assert f"Python 3.{low} or 3.{high}" in " ".join(text_of(TOP / page).split()), page
    machines = text_of(TOP / "README.md").partition("\n## Your machines\n")[2]
    assert f"Python 3.{low} or 3.{high}" in machines
    assert f"| 3.{low}, 3.{high} |" in text_of(TOP / "docs/site/versions.md")
    assert f"Python 3.{low} or 3.{high}" in text_of(TOP / "tools/venv.sh")
    assert not any("macos" in text_of(page).lower() for page in USER)


def test_whether_the_api_has_tls_is_not_drawn_as_settled() -> None:
    assert ">http or https, API key<" in text_of(TOP / "docs/site/images/cluster.svg")
    assert defaults("vllm_serve")["vllm_serve_tls"] != "self_signed"


def test_no_inventory_says_that_no_model_divides_by_three() -> None:
    """The lab's own does: its heads are nine."""
    files = [*TOP.glob("inventories/*/group_vars/*.yml"), *TOP.glob("examples/*/group_vars/*.yml"), *PAGES]
    assert [ids(path) for path in files if re.search(r"no model's (?:head|number)", text_of(path))] == []


def test_what_is_said_to_change_nothing_takes_no_lock() -> None:
    page = text_of(TOP / "docs/playbooks.md")
    quiet = page.partition("These change nothing on hosts:")[2].partition("These do:")[0]
    names = re.findall(r"^\| `([a-z_]+)\.yml` \|", quiet, re.MULTILINE)
    assert len(names) > 8
    assert "contacts no host" in quiet
    locked = {name for name in names if re.search(r"tasks/lock\.yml", text_of(TOP / f"playbooks/{name}.yml"))}
    assert locked == set()


def test_pages_do_not_count_what_they_list() -> None:
    counting = r"\b[Tt]hese (?:two|three|four|five|six|seven|eight|nine|ten) (?:playbooks|only)"
    assert [ids(page) for page in USER if re.search(counting, text_of(page))] == []


def test_two_runs_of_one_cluster_are_said_to_be_kept_apart() -> None:
    assert (TOP / "playbooks/tasks/lock.yml").is_file()
    assert "one-controller-at-a-time" in text_of(TOP / "docs/scale.md")
    assert not any("not prevented" in text_of(page) for page in USER)
