# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the engine: names and digests, archives, what is inside, the image derived with Ray."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin

DIGEST = "sha256:" + "b" * 64
BASE = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "digest", "wanted", "pulled"),
    [
        (
            "nvcr.io/nvidia/vllm:26.10-py3",
            "",
            ("nvcr.io/nvidia/vllm", "26.10-py3", ""),
            "nvcr.io/nvidia/vllm:26.10-py3",
        ),
        ("nvcr.io/nvidia/vllm:26.10-py3", DIGEST, ("nvcr.io/nvidia/vllm", "26.10-py3", DIGEST), None),
        (f"vllm/vllm-openai@{DIGEST}", "", ("vllm/vllm-openai", "pinned", DIGEST), None),
        ("vllm/vllm-openai:nightly", DIGEST, ("vllm/vllm-openai", "nightly", DIGEST), None),
        ("localhost:5000/own/vllm:1", "", ("localhost:5000/own/vllm", "1", ""), "localhost:5000/own/vllm:1"),
    ],
)
def test_names_of_images(image: str, digest: str, wanted: tuple[str, str, str], pulled: str | None) -> None:
    reference = _image.parse_reference(image, digest)
    assert reference == wanted
    assert reference.pull == (pulled or f"{wanted[0]}@{DIGEST}")


@pytest.mark.parametrize(
    ("image", "digest", "words"),
    [
        ("", "", ["engine_image: ''"]),
        ("Not An Image", "", ["engine_image: 'Not An Image'"]),
        ("http://mirror.example/vllm:1", "", ["is not the name of an image"]),
        ("vllm/../../x:1", "", ["is not the name of an image"]),
        ("vllm/vllm-openai", "", ["names no tag", "engine_image_digest"]),
        ("vllm/vllm-openai:latest", "", ["a tag that moves"]),
        ("vllm/vllm-openai:nightly", "", ["a tag that moves"]),
        ("vllm/vllm-openai:1", "sha256:12", ["engine_image_digest: 'sha256:12'", "64 hexadecimal"]),
        ("vllm/vllm-openai:1@md5:3", "", ["engine_image: 'md5:3' is not a digest"]),
        (f"vllm/vllm-openai:1@{DIGEST}", BASE, ["keep one"]),
    ],
)
def test_names_that_say_too_little(image: str, digest: str, words: list[str]) -> None:
    with pytest.raises(EngineError) as caught:
        _image.parse_reference(image, digest)
    for word in words:
        assert word in str(caught.value)


def archive(
    path: Path,
    *,
    images: int = 1,
    config: bytes = b'{"architecture": "arm64"}',
    last: bool = False,
    index: list[str] | None = None,
) -> Path:
    name = hashlib.sha256(config).hexdigest()
    rows = [{"Config": f"blobs/sha256/{name}", "RepoTags": ["own/vllm:1"], "Layers": ["layer.tar"]}] * images
    files = [("manifest.json", json.dumps(rows).encode()), (f"blobs/sha256/{name}", config), ("layer.tar", b"x" * 5000)]
    if index is not None:
        files.append(("index.json", json.dumps({"manifests": [{"digest": digest} for digest in index]}).encode()))
    with tarfile.open(path, "w") as tar:
        for member, data in reversed(files) if last else files:
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("last", [False, True])
def test_an_archive_says_what_is_in_it(tmp_path: Path, last: bool) -> None:
    found = _image.read_archive(str(archive(tmp_path / "a.tar", last=last)))
    wanted = hashlib.sha256(b'{"architecture": "arm64"}').hexdigest()
    assert found == (f"sha256:{wanted}", ["own/vllm:1"], "arm64", [])
    # a row for each tag, before or behind all else
    indexed = _image.read_archive(str(archive(tmp_path / "b.tar", last=last, index=[DIGEST, DIGEST])))
    assert indexed == (f"sha256:{wanted}", ["own/vllm:1"], "arm64", [DIGEST])


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", size: int = -1) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if size < 0 else size
    return info.tobuf() + data + b"\0" * (-len(data) % 512)


ROWS = b'[{"Config": "c.json", "RepoTags": ["own/vllm:1"]}]'
LINKS = [
    (tarfile.SYMTYPE, "manifest.json"),
    (tarfile.LNKTYPE, "manifest.json"),
    (tarfile.SYMTYPE, "/etc/shadow"),
    (tarfile.LNKTYPE, "../../etc/shadow"),
    (tarfile.CHRTYPE, ""),
    (tarfile.FIFOTYPE, ""),
    (tarfile.DIRTYPE, ""),
]


@pytest.mark.parametrize(
    "members",
    [
        *([member("manifest.json", kind=kind, link=link)] for kind, link in LINKS),
        *(
            [member("manifest.json", text)]
            for text in (b"{}", b'{"0": {}}', b"5", b"null", b"[5]", b"[[]]", b"[{}]", b"[" * 100_000, b"\xff")
        ),
        [member("manifest.json", b'[{"Config": ["c.json"]}]'), member("c.json", b"{}")],
        [member("manifest.json", ROWS), member("c.json", b"[]")],
        [member("manifest.json", ROWS), member("c.json", b"[" * 100_000)],
        [member("manifest.json", ROWS), member("c.json", kind=tarfile.SYMTYPE, link="c.json")],
        # more than anybody has memory for
        [member("manifest.json", size=1 << 40)],
        [member(f"{number}.json", b"{" * (1 << 20)) for number in range(66)],
        [member("x", kind=tarfile.XHDTYPE, size=1 << 40)],
        [member("x", kind=tarfile.GNUTYPE_LONGNAME, size=1 << 40)],
    ],
)
def test_an_archive_that_somebody_made_up_is_refused(tmp_path: Path, members: list[bytes]) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(members) + b"\0" * 1024)
    with pytest.raises(EngineError, match=r"^engine_image_archive: .*a\.tar"):
        _image.read_archive(str(path))
    with contextlib.suppress(EngineError):
        assert sum(map(len, _image.archive_documents(str(path)))) <= _image.MOST_OF_ALL


@pytest.mark.parametrize(
    "first",
    [[member("x", kind=tarfile.DIRTYPE)] * 10_001, [member("x", b"n" * (65 << 20), kind=tarfile.GNUTYPE_LONGNAME)]],
    ids=["members", "a name"],
)
def test_no_archive_is_read_beyond_what_an_image_has(tmp_path: Path, first: list[bytes]) -> None:
    """All that follows is as docker save writes it."""
    path = tmp_path / "a.tar"
    rest = [member("manifest.json", ROWS), member("c.json", b"{}"), b"\0" * 1024]
    path.write_bytes(gzip.compress(b"".join([*first, *rest]), 1))
    with pytest.raises(EngineError, match="cannot be read as an archive"):
        _image.read_archive(str(path))


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not on the controller"):
        _image.read_archive(str(tmp_path / "absent"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(EngineError, match="cannot be read as an archive"):
        _image.read_archive(str(tmp_path / "text"))
    with pytest.raises(EngineError, match="must hold one image"):
        _image.read_archive(str(archive(tmp_path / "two.tar", images=2)))
    with pytest.raises(EngineError, match="must hold one image"):
        _image.read_archive(str(archive(tmp_path / "none.tar", images=0)))
    cut = archive(tmp_path / "cut.tar")
    cut.write_bytes(cut.read_bytes()[:700])
    with pytest.raises(EngineError, match=r"cut\.tar"):
        _image.read_archive(str(cut))


def test_an_image_for_another_machine_is_refused() -> None:
    _image.check_architecture("arm64", "aarch64", "x")
    _image.check_architecture("", "aarch64", "x")
    with pytest.raises(EngineError, match="engine_image: y is for x86_64, this host is aarch64"):
        _image.check_architecture("amd64", "aarch64", "engine_image: y")


INSPECT = {
    "Id": BASE,
    "RepoDigests": [f"vllm/vllm-openai@{DIGEST}"],
    "Architecture": "arm64",
    "Config": {"Labels": {"sparkthor.base": "x", "sparkthor.lock": "y"}, "Cmd": ["bash"], "User": ""},
}


def test_an_inspected_image() -> None:
    image = _image.read_inspect(json.dumps([INSPECT]))
    assert _image.has_digest(image, DIGEST)
    assert _image.has_digest(image, BASE)
    assert not _image.has_digest(image, "sha256:" + "c" * 64)
    assert _image.has_digest(image, "sha256:" + "c" * 64, BASE)
    assert _image.is_derived(image, "x", "y")
    assert not _image.is_derived(image, "x", "z")
    assert not _image.is_derived(None, "x", "y")
    bare = _image.read_inspect(json.dumps({"Id": BASE, "RepoDigests": None, "Config": {"Labels": None}}))
    assert (bare.digests, bare.labels) == ([], {})


def test_the_probe_runs_and_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-"], input=_image.probe_program(), capture_output=True, text=True, check=True,
        env={"NCCL_IB_DISABLE": "1", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    found = _image.read_probe("noise\n" + done.stdout)
    assert found["executable"] == sys.executable
    assert found["nccl_environment"] == {"NCCL_IB_DISABLE": "1"}
    assert "pytest" in found["packages"]
    assert found["libraries"] == {}
    with pytest.raises(ValueError, match="no answer"):
        _image.read_probe("Killed\n")
    with pytest.raises(ValueError, match="nested too deeply"):
        _image.read_probe('{"packages":' + "[" * 100_000 + "]" * 100_000 + "}")


PINS = [Pin("ray", "2.60.0"), Pin("click", "8.5.1"), Pin("py-spy", "0.4.3"), Pin("uv", "0.13.8")]


def test_only_what_an_image_lacks_is_added() -> None:
    assert [str(pin) for pin in _image.lacking(PINS, {"click": "8.1.0", "vllm": "1"})] == [
        "ray==2.60.0",
        "py-spy==0.4.3",
    ]
    assert _image.lock_digest(PINS) == _image.lock_digest(list(reversed(PINS)))
    assert _image.lock_digest(PINS) != _image.lock_digest(PINS[1:])
    assert _image.derived_tag(BASE, "f" * 64) == f"sparkthor/engine:{'a' * 12}-{'f' * 12}"


def test_the_lock_of_ray_is_checked() -> None:
    assert _image.check_ray_lock(PINS, "lock") == "2.60.0"
    with pytest.raises(EngineError, match="uv is not pinned"):
        _image.check_ray_lock(PINS[:3], "lock")
    with pytest.raises(EngineError, match=r"lock: ray 2\.53\.0 is too old"):
        _image.check_ray_lock([Pin("ray", "2.53.0"), PINS[3]], "lock")
    with pytest.raises(EngineError, match=r"engine_ray_version is .2\.59\.0."):
        _image.check_ray_lock(PINS, "lock", "2.59.0")


PROBE: dict[str, Any] = {
    "executable": "/usr/bin/python3",
    "ray": "",
    "vllm": "/usr/local/bin/vllm",
    "packages": {"vllm": "0.31.0"},
    "nccl_files": {"/etc/nccl.conf": "# vendor\nNCCL_IB_DISABLE=1\n", "/root/.nccl.conf": "# nothing\n"},
    "nccl_environment": {"NCCL_VERSION": "2.30.7", "NCCL_DEBUG": "WARN"},
}


def test_an_image_must_have_vllm() -> None:
    _image.check_probe(PROBE, "own/vllm:1", "0.31.0")
    with pytest.raises(EngineError, match=r"own/vllm:1: there is no vLLM"):
        _image.check_probe({**PROBE, "packages": {}}, "own/vllm:1")
    with pytest.raises(EngineError, match=r"engine_vllm_version is .0\.32\.0., but own/vllm:1 has vllm 0\.31\.0"):
        _image.check_probe(PROBE, "own/vllm:1", "0.32.0")


def test_an_image_is_judged_by_each_library_that_the_model_calls() -> None:
    probe = {**PROBE, "libraries": {"_C": [[121], []], "_moe_C": [[90], []]}}
    named = _image.check_probe(probe, "own/vllm:1", kind="spark")
    assert [line.partition(" of ")[0] for line in named] == ["own/vllm:1: library _moe_C"]
    with pytest.raises(
        EngineError, match=r"own/vllm:1: its library _moe_C of vLLM 0\.31\.0, which a model with experts"
    ):
        _image.check_probe(probe, "own/vllm:1", kind="spark", calls=["experts"])


def test_programs_and_nccl_settings_inside() -> None:
    assert _image.commands(PROBE) == {
        "python": ["/usr/bin/python3"],
        "ray": ["/usr/bin/python3", "-m", "ray.scripts.scripts"],
        "vllm": ["/usr/local/bin/vllm"],
    }
    assert _image.commands({**PROBE, "ray": "/usr/local/bin/ray"})["ray"] == ["/usr/local/bin/ray"]
    assert _image.nccl_findings(PROBE) == ["/etc/nccl.conf: NCCL_IB_DISABLE=1", "environment: NCCL_DEBUG=WARN"]
    assert _image.nccl_findings({}) == []


def test_a_derived_image_differs_in_files_and_labels_alone() -> None:
    config = {"Entrypoint": ["vllm", "serve"], "Cmd": None, "User": ""}
    assert _image.commit_changes(config, {"sparkthor.base": BASE, "sparkthor.lock": "f" * 64}) == [
        f"LABEL sparkthor.base={BASE} sparkthor.lock={'f' * 64}",
        'ENTRYPOINT ["vllm", "serve"]',
        "CMD []",
        "USER 0",
    ]


def test_another_setting_is_another_engine() -> None:
    one = _image.settings_digest({"image": "a", "gpu": "cdi"})
    assert one == _image.settings_digest({"gpu": "cdi", "image": "a"})
    assert one != _image.settings_digest({"image": "a", "gpu": "gpus"})


def test_a_registry_knows_its_own_digests_alone() -> None:
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    digests = [f"vllm/vllm-openai@{two}", f"vllm/vllm-openai@{one}", f"mirror.example/vllm@{DIGEST}"]
    image = _image.read_inspect(json.dumps({"Id": BASE, "RepoDigests": digests}))
    assert _image.registry_digests(image, "docker.io/vllm/vllm-openai") == [one, two]
    assert _image.registry_digests(image, "mirror.example/vllm") == [DIGEST]
    assert _image.registry_digests(image, "own/vllm") == _image.registry_digests(None, "own/vllm") == []
