# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Netplan: what our file says, what everybody else's files say, and what is live.

Questions about netplan files are answered by netplan itself: files are copied into a private root folder and its
generator is run there, and the generated files are compared.  So two YAML files are "equal in meaning" when netplan
makes the same of them, and an edit is "pending" when netplan would make something else of the files than what the
network services were given last.  No YAML parser is needed on the host, and netplan's own merging rules hold.

The generator is called directly: the ``netplan generate`` command makes systemd reload all units even for a private
root, which may take the GPU away from running containers.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import ipaddress
import os
import re
import select
import shutil
import socket
import struct
import tempfile
import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan_job import FileState

MARKER = "# Ansible managed: sparkthor.cluster"
#: netplan's folders, in the order in which the generator looks (a name in a later one hides the same in an earlier)
SOURCES = ("/usr/lib/netplan", "/etc/netplan", "/run/netplan")
GENERATORS = ("/usr/libexec/netplan/configure", "/usr/libexec/netplan/generate", "/usr/lib/netplan/generate")
SHARED_RULES = "/run/udev/rules.d/90-netplan.rules"
#: suffix of a foreign file set aside; netplan, networkd and NetworkManager all ignore it
ASIDE = ".sparkthor-aside"


class NetplanError(Exception):
    """netplan refuses the files; ``path`` is the offending one where netplan names it."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NoNetplanError(NetplanError):
    """The host has no netplan at all."""


# --- our file ---------------------------------------------------------------------------------------------------------


def render(links: list[dict[str, Any]], renderer: str = "") -> str:
    """Our netplan file for these links; stable: NICs in the plan's order, keys always in the same order.

    ``ignore-carrier`` keeps the address while the other end of a cable is off, so that what is bound to it stays
    bound and the host may start before its peer.  No renderer unless asked for: the host's default then holds, and a
    renderer set for the whole file would change it for everybody else's NICs too.
    """
    lines = [MARKER, "network:", "  version: 2", "  ethernets:"]
    for link in links:
        lines.append(f"    {link['netdev']}:")
        if renderer:
            lines.append(f"      renderer: {renderer}")
        lines += [
            "      dhcp4: false",
            "      dhcp6: false",
            "      accept-ra: false",
            "      link-local: []",
            "      optional: true",
            "      ignore-carrier: true",
        ]
        if link.get("mtu"):
            lines.append(f"      mtu: {link['mtu']}")
        lines += ["      addresses:", f"        - {link['address']}"]
    return "\n".join(lines) + "\n"


def is_ours(content: str) -> bool:
    """Whether a file carries our marker as its first line."""
    return content.split("\n", 1)[0].strip() == MARKER


def _subnet(link: dict[str, Any]) -> str:
    """The link's subnet as text; plans carry it, so that nothing has to be worked out for every pair of hosts."""
    return link.get("subnet") or str(ipaddress.ip_interface(link["address"]).network)


def links_of(fabric: dict[str, Any], host: str) -> list[dict[str, Any]]:
    """One host's links with everybody who shares a subnet with them, out of the fabric plan of all hosts."""
    own = [link for link in (fabric.get(host) or {}).get("links") or [] if link.get("address")]
    peers: dict[str, list[dict[str, Any]]] = {_subnet(link): [] for link in own}
    for other, plan in fabric.items():
        if other == host:
            continue
        for link in plan.get("links") or []:
            found = peers.get(_subnet(link)) if link.get("address") else None
            if found is not None:
                address = link["address"].partition("/")[0]
                found.append({"host": other, "address": address, "mtu": link.get("mtu") or 0})
    return [
        {
            "netdev": link["netdev"],
            "address": link["address"],
            "mtu": link.get("mtu") or 0,
            "peers": peers[_subnet(link)],
        }
        for link in own
    ]


def render_environment(variables: dict[str, Any]) -> str:
    """An EnvironmentFile= for systemd: sorted, quoted only where systemd would split or drop something."""
    lines = [MARKER]
    for key in sorted(variables):
        value = str(variables[key])
        if "\n" in value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise ValueError(f"{key}: not a variable that an environment file can hold")
        if re.search(r"[\s\"'\\#;$`]", value):
            value = '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"{key}={value}")
    return "\n".join(lines) + "\n"


# --- netplan's answers ------------------------------------------------------------------------------------------------


def source_files(folders: tuple[str, ...] = SOURCES) -> dict[str, str]:
    """All netplan YAML files by path, with content."""
    files = {}
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "*.yaml"))):
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
                files[path] = handle.read()
    return files


def parse_generator_error(text: str, scratch: str) -> NetplanError:
    """netplan's complaint with the real path instead of the private root's, permission warnings left out."""
    lines = [line for line in text.splitlines() if line.strip() and "WARNING **" not in line]
    message = "\n".join(lines).replace(scratch, "").strip() or "netplan's generator failed without a message"
    # with a position ("…yaml:3:5: Error …") or, for a file that is no YAML at all, without one
    found = re.search(r"(/\S+?\.yaml)(?::\d+(?::\d+)?)?:", message)
    return NetplanError(message, found.group(1) if found else "")


def generate(files: dict[str, str], generator: str = "") -> dict[str, FileState]:
    """What netplan makes of these files: generated path → content, mode and owner.  Changes nothing on the host."""
    generator = generator or next((path for path in GENERATORS if os.access(path, os.X_OK)), "")
    if not generator:
        raise NoNetplanError("netplan is not installed (no generator in /usr/libexec/netplan)")
    scratch = tempfile.mkdtemp(prefix="sparkthor-netplan-")
    try:
        os.makedirs(os.path.join(scratch, "usr/lib"), 0o700)
        os.symlink("usr/lib", os.path.join(scratch, "lib"))
        for path, content in files.items():
            target = scratch + path
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
                handle.write(content)
        rc, out, err = job.run([generator, "--root-dir", scratch], 15)
        if rc:
            raise parse_generator_error(err + out, scratch)
        return job.generated_files(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def owner_of(path: str) -> str:
    """The netplan id a generated file belongs to; empty for files shared by all."""
    name = os.path.basename(path)
    found = re.fullmatch(r"10-netplan-(.+)\.(?:network|link|netdev)", name)
    if not found:
        found = re.fullmatch(r"netplan-(.+)\.nmconnection", name)
    return found.group(1) if found else ""


def rule_blocks(text: str) -> dict[str, str]:
    """netplan's udev rules by the id they are for: a comment line ``# netplan: network.KIND.ID (…)`` starts each."""
    blocks: dict[str, str] = {}
    current = ""
    for line in text.splitlines(keepends=True):
        found = re.match(r"# netplan: network\.[a-z-]+\.(.+) \(on NetworkManager", line)
        if found:
            current = found.group(1)
        blocks[current] = blocks.get(current, "") + line
    return blocks


def merge_rules(live: str, wanted: str, ours: set[str]) -> str:
    """The live rules with our blocks as wanted: other people's rules stay what they are."""
    old, new = rule_blocks(live), rule_blocks(wanted)
    merged = {key: text for key, text in old.items() if key not in ours}
    merged.update({key: text for key, text in new.items() if key in ours})
    order = [key for key in new if key in merged] + [key for key in merged if key not in new]
    return "".join(merged[key] for key in order)


def _ini(text: str) -> list[tuple[str, str, str]]:
    """(section, key, value) of a generated file, in order; networkd repeats keys, so this is no dict."""
    section, items = "", []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and "=" in line:
            key, _sign, value = line.partition("=")
            items.append((section, key.strip(), value.strip()))
    return items


#: settings in which two generated files may differ and still mean the same fabric link
_INERT = {
    ("Link", "RequiredForOnline"),
    ("Link", "WakeOnLan"),
    ("Network", "LinkLocalAddressing"),
    ("Network", "ConfigureWithoutCarrier"),
    ("ethernet", "wake-on-lan"),
    ("connection", "uuid"),
    ("connection", "timestamp"),
    ("connection", "id"),
    ("ipv6", "method"),
    ("Network", "IPv6AcceptRA"),
    ("ipv6", "addr-gen-mode"),
    ("ipv6", "ip6-privacy"),
}


def meaning(generated: dict[str, FileState], netdevs: set[str]) -> dict[str, list[tuple[str, str, str]]]:
    """What generated files do to these NICs, without what is inert on a fabric port."""
    return {
        path: sorted(item for item in _ini(state["content"]) if item[:2] not in _INERT)
        for path, state in generated.items()
        if owner_of(path) in netdevs
    }


def same_meaning(one: dict[str, FileState], two: dict[str, FileState]) -> bool:
    """Whether two generations differ in nothing that matters, for any NIC."""
    ids = {owner_of(path) for path in (*one, *two)} - {""}
    return meaning(one, ids) == meaning(two, ids)


def _comparable(path: str, content: str, ours: set[str]) -> Any:
    if path.startswith("/run/udev/"):
        return {key: text for key, text in rule_blocks(content).items() if key not in ours}
    if path.endswith(".nmconnection"):
        # NetworkManager adds these two to a profile it has activated
        return sorted(item for item in _ini(content) if item[1] not in ("uuid", "timestamp"))
    return content


def pending_edits(wanted: dict[str, FileState], live: dict[str, FileState], ours: set[str]) -> list[dict[str, str]]:
    """Generated files, not ours, that the next ``netplan apply`` or boot would change: ``{path, id, detail}``."""
    pending = []
    for path in sorted({*wanted, *live}):
        identity = owner_of(path)
        if identity in ours or path.endswith("10-globally-managed-devices.conf"):
            continue
        new = _comparable(path, wanted[path]["content"], ours) if path in wanted else None
        old = _comparable(path, live[path]["content"], ours) if path in live else None
        if new == old or (path.startswith("/run/udev/") and not new and not old):
            continue
        if new is None:
            detail = "would be removed"
        elif old is None:
            detail = "would be added"
        elif path.endswith(".network"):
            before, after = live[path]["content"].splitlines(), wanted[path]["content"].splitlines()
            detail = "; ".join(
                [f"-{line}" for line in before if line and line not in after]
                + [f"+{line}" for line in after if line and line not in before]
            )
        else:
            detail = "would change"  # profiles may hold secrets: their content is not shown
        pending.append({"path": path, "id": identity, "detail": detail})
    return pending


def files_defining(identity: str, sources: dict[str, str]) -> list[str]:
    """Netplan files that have this id as a key; by text, only to name them in a message."""
    pattern = re.compile(r"(^|[\s{,])[\"']?" + re.escape(identity) + r"[\"']?\s*:", re.MULTILINE)
    return [path for path, content in sources.items() if pattern.search(content)]


# --- who else configures our NICs -------------------------------------------------------------------------------------


def network_matches(content: str, netdev: str, mac: str) -> bool:
    """Whether a networkd file's [Match] takes this NIC (by name, address or type, as systemd.network(5) has it).

    Conditions that cannot be judged from here (driver, path …) count as met only beside a matching name or address.
    """
    seen = False
    for section, key, value in _ini(content):
        if section != "Match":
            continue
        if key in ("Name", "OriginalName"):
            words = value.split()
            negate = bool(words) and words[0].startswith("!")
            if negate:
                words[0] = words[0][1:]
            if any(fnmatch.fnmatchcase(netdev, word) for word in words if word) == negate:
                return False
            seen = True
        elif key in ("MACAddress", "PermanentMACAddress"):
            if mac.lower() not in value.lower().replace("-", ":").split():
                return False
            seen = True
        elif key == "Type":
            if not any(fnmatch.fnmatchcase("ether", word) for word in value.split()):
                return False
            seen = True
    return seen


def profile_matches(content: str, netdev: str, mac: str) -> bool:
    """Whether a NetworkManager keyfile is meant for this NIC by name or address (a profile for any NIC is not)."""
    for section, key, value in _ini(content):
        if (section, key) == ("connection", "interface-name") and value == netdev:
            return True
        if (section, key) == ("match", "interface-name") and any(
            fnmatch.fnmatchcase(netdev, word) for word in re.split(r"[;,]", value) if word
        ):
            return True
        if key == "mac-address" and value.lower() == mac.lower() and mac:
            return True
    return False


_NETWORKD_FOLDERS = (
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
)
_PROFILE_FOLDERS = ("/etc/NetworkManager/system-connections", "/usr/lib/NetworkManager/system-connections")


def static_settings() -> dict[str, str]:
    """networkd files and NetworkManager profiles that do not come from netplan, by path."""
    found: dict[str, str] = {}
    for folders, suffix in ((_NETWORKD_FOLDERS, "*.network"), (_PROFILE_FOLDERS, "*.nmconnection")):
        for folder in folders:
            for path in sorted(glob.glob(os.path.join(folder, suffix))):
                state = job.read_state(path)
                if state is not None and "netplan-" not in os.path.basename(path):
                    found[path] = state["content"]
    return found


def foreign_settings(
    netdevs: dict[str, str], others: dict[str, FileState], sources: dict[str, str], static: dict[str, str]
) -> list[dict[str, Any]]:
    """Settings by others for our NICs (name → MAC): ``{path, netdev, netplan}``; ``path`` is the file a person edits.

    Lists of two netplan files merge, and of several networkd files the one first by name wins: either way the NIC
    would not become what the plan says.
    """
    found: list[dict[str, Any]] = []
    for netdev, mac in netdevs.items():
        paths: dict[str, bool] = {}
        for path, state in others.items():
            matches = (path.endswith(".network") and network_matches(state["content"], netdev, mac)) or (
                path.endswith(".nmconnection") and profile_matches(state["content"], netdev, mac)
            )
            if matches:
                for source in files_defining(owner_of(path), sources) or [path]:
                    paths[source] = True
        for path, content in static.items():
            if path.endswith(".network"):
                first = os.path.basename(path) < f"10-netplan-{netdev}.network"
                if first and network_matches(content, netdev, mac):
                    paths[path] = False
            elif profile_matches(content, netdev, mac):
                paths[path] = False
        found += [{"path": path, "netdev": netdev, "netplan": netplan} for path, netplan in paths.items()]
    return found


def configured_addresses(contents: list[str]) -> set[str]:
    """Addresses that networkd files or NetworkManager profiles give a NIC."""
    found = set()
    for content in contents:
        for section, key, value in _ini(content):
            if (section, key) in (("Network", "Address"), ("Address", "Address")) or (
                section in ("ipv4", "ipv6") and re.fullmatch(r"address\d*|addresses\d*", key)
            ):
                found |= {word.partition(",")[0] for word in value.split(";")}
    return {_normal(address) for address in found if address}


def _normal(address: str) -> str:
    try:
        interface = ipaddress.ip_interface(address)
    except ValueError:
        return address
    return f"{interface.ip}/{interface.network.prefixlen}"


def runtime_addresses(
    live: dict[str, dict[str, Any]], generated: dict[str, FileState], static: dict[str, str], ours: set[str]
) -> list[dict[str, str]]:
    """Addresses on other NICs that no file gives them though files configure the NIC: an apply would drop them.

    A NIC that no file takes (docker0, a bridge somebody made) is left alone by the network services, and an address
    with a lifetime comes from DHCP or a router.
    """
    found = []
    files = {**{path: state["content"] for path, state in generated.items()}, **static}
    for name, link in live.items():
        if name in ours or name == "lo":
            continue
        contents = [
            content
            for path, content in files.items()
            if (path.endswith(".network") and network_matches(content, name, link["mac"]))
            or (path.endswith(".nmconnection") and profile_matches(content, name, link["mac"]))
        ]
        if not contents:
            continue
        known = configured_addresses(contents)
        for address, item in link["addresses"].items():
            if item["scope"] == "global" and not item["dynamic"] and _normal(address) not in known:
                found.append({"netdev": name, "address": address})
    return found


# --- what was set aside -----------------------------------------------------------------------------------------------


def set_aside(path: str) -> dict[str, list[str]]:
    """Files that stand aside on this host: original path → copies, for netplan, networkd and NetworkManager."""
    found: dict[str, list[str]] = {}
    for folder in sorted({os.path.dirname(path), *SOURCES, _NETWORKD_FOLDERS[0], _PROFILE_FOLDERS[0]}):
        for copy in sorted(glob.glob(f"{glob.escape(folder)}/*{ASIDE}*")):
            original, _suffix, number = copy.rpartition(ASIDE)
            if re.fullmatch(r"(\.\d+)?", number):
                found.setdefault(original, []).append(copy)
    return found


def nics_of(path: str, content: str) -> set[str]:
    """NICs that one file configures: netplan's ids, or the names in a networkd file or NetworkManager profile."""
    if path.endswith(".yaml"):
        return {owner_of(name) for name in generate({path: content})} - {""}
    return {value for _section, key, value in _ini(content) if key in ("Name", "interface-name")}


# --- looking at a host ------------------------------------------------------------------------------------------------


def _finding(kind: str, message: str, mend: str, **where: Any) -> dict[str, Any]:
    return {"kind": kind, "message": message, "mend": mend, "path": "", "netdev": "", "address": "", **where}


def inspect(path: str, links: list[dict[str, Any]], renderer: str = "") -> dict[str, Any]:
    """Everything that would go wrong with a change, found without changing anything.

    Returns ``findings`` (each ``kind, message, mend, path, netdev, address``), the renderer of our NICs and, for the
    module, what netplan makes of the files as they are, without ours, and as planned.
    """
    findings: list[dict[str, Any]] = []
    sources = source_files()
    own = sources.get(path)
    others = {name: text for name, text in sources.items() if name != path}
    live = job.live_links()
    run_files = job.generated_files()
    static = static_settings()
    result: dict[str, Any] = {
        "findings": findings,
        "own": own,
        "sources": others,
        "live": live,
        "run": run_files,
        "wanted": {},
        "generated": {},
        "others": {},
        "renderer": "",
        "ids": set(),
        "aside": [],
        "static": static,
        "adoptable": False,
        "content": "",
        "foreign": own is not None and not is_ours(own),
    }
    for name in others:
        if os.path.basename(name) == os.path.basename(path) and name.startswith("/run/"):
            findings.append(
                _finding(
                    "shadowed",
                    f"{name} hides {path}",
                    f"remove {name} or move what it sets to a file of another name",
                    path=name,
                )
            )
    try:
        result["others"] = generate(others)
    except NoNetplanError as error:
        findings.append(
            _finding("no_netplan", str(error), "install the package netplan.io (sudo apt install netplan.io)")
        )
        return result
    except NetplanError as error:
        findings.append(
            _finding(
                "invalid_yaml",
                f"netplan refuses {error.path or 'its files'}: {error}",
                f"correct {error.path or 'the file'} (sudo netplan generate shows the same error)",
                path=error.path,
            )
        )
        return result
    try:
        result["generated"] = generate(sources) if own is not None else result["others"]
    except NetplanError as error:
        if not is_ours(own or ""):
            findings.append(
                _finding(
                    "invalid_yaml",
                    f"netplan refuses {error.path or path}: {error}",
                    f"correct or remove {error.path or path}",
                    path=error.path or path,
                )
            )
            return result
        result["generated"] = result["others"]  # ours and broken: it is about to be written anew
    before = {owner_of(name) for name in result["generated"]} - {owner_of(name) for name in result["others"]} - {""}
    ids = before | {link["netdev"] for link in links}
    result["ids"], result["previous"] = ids, before
    nics = {link["netdev"]: live.get(link["netdev"], {}).get("mac", "") for link in links}

    foreign = foreign_settings(nics, result["others"], others, static)
    for item in foreign:
        alone = False
        if item["netplan"]:
            with contextlib.suppress(NetplanError):
                alone = {owner_of(name) for name in generate({item["path"]: others[item["path"]]})} - {""} <= set(nics)
        elif item["path"].startswith("/etc/"):
            names = [value for _s, key, value in _ini(static[item["path"]]) if key in ("Name", "interface-name")]
            alone = names == [item["netdev"]]
        item["alone"] = alone
        findings.append(
            _finding(
                "foreign_settings",
                f"{item['path']} also configures fabric NIC {item['netdev']}",
                f"remove {item['netdev']} from {item['path']}"
                + (", or set roce_network_replace_foreign: true to have the file set aside" if alone else ""),
                path=item["path"],
                netdev=item["netdev"],
                alone=alone,
            )
        )
    result["aside"] = sorted({item["path"] for item in foreign if item["alone"]})

    for item in pending_edits(result["generated"], run_files, ids):
        if not item["id"] and any(f["kind"] == "pending_edit" for f in findings):
            continue  # shared rules follow from the file already named
        named = files_defining(item["id"], others) if item["id"] else []
        findings.append(
            _finding(
                "pending_edit",
                f"{' and '.join(named) or 'a netplan file'} holds a change that was never applied"
                f" ({item['id'] or os.path.basename(item['path'])}: {item['detail']})",
                "apply it (sudo netplan try) or take it back, then run again, or list pending_edit in preflight_accept",
                path=named[0] if named else item["path"],
                netdev=item["id"],
            )
        )
    for item in runtime_addresses(live, run_files, static, ids):
        findings.append(
            _finding(
                "runtime_address",
                f"{item['netdev']} has {item['address']} at run time only; the next netplan apply or reboot"
                " would drop it",
                f"add {item['address']} to the netplan file of {item['netdev']} and apply it, or remove it, or list"
                " runtime_address in preflight_accept",
                **item,
            )
        )

    if links:
        result["content"] = render(links, renderer)
        kept = {name: text for name, text in others.items() if name not in result["aside"]}
        try:
            result["wanted"] = generate({**kept, path: result["content"]})
        except NetplanError as error:
            findings.append(
                _finding(
                    "invalid_plan",
                    f"netplan refuses the file planned for {path}: {error}",
                    "correct fabric_cidr, fabric_mtu or fabric_overrides",
                    path=path,
                )
            )
            return result
        profiles = [name for name in result["wanted"] if name.endswith(".nmconnection") and owner_of(name) in nics]
        result["renderer"] = "NetworkManager" if profiles else "networkd"
        result["adoptable"] = own is not None and same_meaning(
            result["generated"], generate({**others, path: result["content"]})
        )
        if result["foreign"] and not result["adoptable"]:
            findings.append(
                _finding(
                    "foreign_file",
                    f"{path} was not written by this collection and means something else than the plan",
                    "make it match, remove it, or set roce_network_replace_foreign: true (a backup is kept)",
                    path=path,
                )
            )
        extra_known = configured_addresses(
            [state["content"] for name, state in result["generated"].items() if owner_of(name) in before]
        )
        for link in links:
            for address, item in live.get(link["netdev"], {}).get("addresses", {}).items():
                if (
                    item["family"] == "inet"
                    and item["scope"] == "global"
                    and address != link["address"]
                    and _normal(address) not in extra_known
                ):
                    findings.append(
                        _finding(
                            "foreign_address",
                            f"fabric NIC {link['netdev']} has {address}, which is neither planned nor from our file",
                            f"remove it (sudo ip address del {address} dev {link['netdev']}), allot it with"
                            " fabric_overrides, or set roce_network_replace_foreign: true",
                            netdev=link["netdev"],
                            address=address,
                        )
                    )
    return result


# --- links as they are ------------------------------------------------------------------------------------------------


def connected_routes() -> set[tuple[str, str]]:
    """(subnet, NIC) of the kernel's connected routes."""
    rc, out, _err = job.run(["ip", "-4", "route", "show", "table", "main", "proto", "kernel"])
    found = set()
    for line in out.splitlines() if rc == 0 else []:
        words = line.split()
        if len(words) > 2 and words[1] == "dev":
            found.add((words[0], words[2]))
    return found


def link_problems(
    links: list[dict[str, Any]], live: dict[str, dict[str, Any]], routes: set[tuple[str, str]]
) -> dict[str, list[str]]:
    """By NIC: where address, MTU, state or connected route differ from the plan."""
    problems: dict[str, list[str]] = {}
    for link in links:
        found = job.expectation_problems([link], live)
        if not found:
            subnet = str(ipaddress.ip_interface(link["address"]).network)
            if (subnet, link["netdev"]) not in routes:
                found.append(f"{link['netdev']} has no connected route to {subnet}")
            found += [
                f"{name} has a connected route to {subnet} as well as {link['netdev']}: one NIC per subnet"
                for network, name in sorted(routes)
                if network == subnet and name != link["netdev"]
            ]
        problems[link["netdev"]] = found
    return problems


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def payload_size(link: dict[str, Any], peer: dict[str, Any], live_mtu: int) -> int:
    """Bytes of ping payload that just fill the smaller MTU of both ends (20 IP + 8 ICMP go off).

    Without a planned MTU (an ordinary LAN, left as it is) the ends may differ, so only Ethernet's 1500 is asked for.
    """
    own = link.get("mtu") or min(live_mtu or 1500, 1500)
    return min(own, peer.get("mtu") or own) - 28


_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _SO_BINDTODEVICE = 10, 2, 25


def ping_links(
    links: list[dict[str, Any]], live: dict[str, dict[str, Any]], timeout: float = 0.7
) -> list[dict[str, Any]]:
    """One do-not-fragment echo to every peer of every link, each bound to its NIC, all at the same time.

    Raw sockets instead of the ping program: one process less per peer, and the program may be absent.  A second echo
    goes out after a third of the time, since the first packet to a cold neighbour may be lost.
    """
    sockets: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
    results: list[dict[str, Any]] = []
    waiting: dict[tuple[int, str], dict[str, Any]] = {}
    identity = os.getpid() & 0xFFFF
    try:
        for link in links:
            sock = None
            for peer in link.get("peers") or []:
                size = payload_size(link, peer, live.get(link["netdev"], {}).get("mtu", 0))
                entry = {
                    "netdev": link["netdev"],
                    "host": peer.get("host", ""),
                    "address": peer["address"],
                    "payload": size,
                    "reachable": False,
                    "rtt_ms": None,
                    "error": "no answer",
                }
                results.append(entry)
                try:
                    if sock is None:
                        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
                        sock.setblocking(False)
                        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
                        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, link["netdev"].encode() + b"\0")
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                        sockets[sock.fileno()] = (sock, link)
                    _send_echo(sock, entry, identity, 1)
                    waiting[(sock.fileno(), peer["address"])] = entry
                except OSError as error:
                    entry["error"] = _ping_error(error, size)
        start = time.monotonic()
        again = start + timeout / 3
        while waiting and (left := start + timeout - time.monotonic()) > 0:
            pause = min(left, max(again - time.monotonic(), 0)) if again else left
            ready, _w, _x = select.select(list(sockets), [], [], pause)
            for descriptor in ready:
                _receive(sockets[descriptor][0], descriptor, identity, waiting)
            if again and time.monotonic() >= again:
                again = 0.0
                for (descriptor, _address), entry in waiting.items():
                    with contextlib.suppress(OSError):
                        _send_echo(sockets[descriptor][0], entry, identity, 2)
    finally:
        for sock, _link in sockets.values():
            sock.close()
    return results


def _ping_error(error: OSError, size: int) -> str:
    if error.errno == errno.EMSGSIZE:
        return f"{size} bytes do not fit through this link unfragmented"
    return error.strerror or str(error)


def _send_echo(sock: socket.socket, entry: dict[str, Any], identity: int, sequence: int) -> None:
    body = b"\0" * entry["payload"]
    header = struct.pack("!BBHHH", 8, 0, 0, identity, sequence)
    header = struct.pack("!BBHHH", 8, 0, checksum(header), identity, sequence)  # a body of zeros adds nothing
    entry["_sent"] = time.monotonic()
    sock.sendto(header + body, (entry["address"], 0))


def _receive(
    sock: socket.socket, descriptor: int, identity: int, waiting: dict[tuple[int, str], dict[str, Any]]
) -> None:
    while True:
        try:
            packet, (source, _port) = sock.recvfrom(65535)
        except BlockingIOError:
            return
        except OSError:
            return  # an ICMP error for an earlier echo; the entry stays unanswered
        offset = (packet[0] & 0x0F) * 4
        if len(packet) < offset + 8:
            continue
        kind, _code, _sum, answered, _sequence = struct.unpack("!BBHHH", packet[offset : offset + 8])
        entry = waiting.get((descriptor, source))
        if kind == 0 and answered == identity and entry and len(packet) - offset - 8 == entry["payload"]:
            entry.update(reachable=True, error="", rtt_ms=round((time.monotonic() - entry["_sent"]) * 1000, 3))
            del waiting[(descriptor, source)]


def verify(links: list[dict[str, Any]], wait: float = 0.0) -> list[dict[str, Any]]:
    """Each link as it is: ``netdev, address, mtu, carrier, ok, problems, peers``; asks again for up to ``wait`` s."""
    end = time.monotonic() + wait
    while True:
        live = job.live_links()
        problems = link_problems(links, live, connected_routes())
        sound = [link for link in links if not problems[link["netdev"]]]
        answers = ping_links(sound, live)
        report = []
        for link in links:
            state = live.get(link["netdev"], {})
            found = list(problems[link["netdev"]])
            mine = [
                {key: value for key, value in item.items() if not key.startswith("_")}
                for item in answers
                if item["netdev"] == link["netdev"]
            ]
            dead = [item for item in mine if not item["reachable"]]
            for item in dead:
                carrier = "" if state.get("carrier") else ", no carrier: cable or other end"
                found.append(
                    f"{link['netdev']} does not reach {item['host'] or 'its peer'} {item['address']} with"
                    f" {item['payload']} bytes unfragmented ({item['error']}{carrier})"
                )
            report.append(
                {
                    "netdev": link["netdev"],
                    "address": link["address"],
                    "mtu": state.get("mtu", 0),
                    "carrier": bool(state.get("carrier")),
                    "ok": not found,
                    "problems": found,
                    "peers": mine,
                }
            )
        if all(item["ok"] for item in report) or time.monotonic() >= end:
            return report
        time.sleep(0.5)
