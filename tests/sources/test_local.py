import io
import json
import sys
from pathlib import Path

import pytest

from llmcalc.errors import MalformedConfigError, NotFoundError, SourceError
from llmcalc.sources import resolve

from .weights import write

CONFIG = b'{"model_type": "llama"}'
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "some-model").mkdir()
    (tmp_path / "some-model" / "config.json").write_bytes(CONFIG)
    return tmp_path / "some-model"


def refused(ref: object, kind: type[SourceError] = NotFoundError) -> str:
    with pytest.raises(kind) as caught:
        resolve(str(ref))
    return f"{caught.value.message} | {caught.value.hint}"


def test_file_and_folder_are_the_same_config(folder: Path) -> None:
    by_file, by_folder = resolve(str(folder / "config.json")), resolve(str(folder))
    assert by_file.data == by_folder.data == {"model_type": "llama"}
    assert by_file.provenance.name == by_folder.provenance.name == "some-model"
    assert by_file.provenance.source == "local"
    assert by_file.provenance.sha256 == by_folder.provenance.sha256
    assert by_file.provenance.revision is None
    assert by_folder.tensors is None
    assert by_folder.where == str(folder / "config.json")


def test_any_json_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine.json").write_bytes(CONFIG)
    monkeypatch.chdir(folder)
    for ref in ("mine.json", "./mine.json", str(folder / "mine.json")):
        assert resolve(ref).provenance.name == "mine"
    assert resolve(".").provenance.name == "some-model"
    assert resolve("config.json").provenance.name == "some-model"


def test_errors_name_the_file(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"{")
    assert str(folder / "config.json") in refused(folder, MalformedConfigError)


def test_what_is_not_there(tmp_path: Path) -> None:
    assert "no such file or folder" in refused(tmp_path / "nowhere")
    assert "no such file or folder" in refused(tmp_path / "nowhere.json")
    assert "no such file or folder" in refused(tmp_path / "nowhere.gguf").lower()
    assert "it is empty" in refused(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert "it holds notes.txt" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "notes.txt" / "config.json")
    (tmp_path / "dangling.json").symlink_to("gone.json")
    assert "no such file" in refused(tmp_path / "dangling.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    refused(tmp_path / "loop.json", SourceError)
    refused("./a\0b", SourceError)
    refused("./" + "x" * 5000, SourceError)


def test_a_folder_of_folders_points_inside(folder: Path) -> None:
    assert str(folder) in refused(folder.parent)


def test_adapter_folder(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "org/base"}')
    assert "LoRA adapter" in refused(tmp_path)
    assert "org/base" in refused(tmp_path)
    assert "org/base" in refused(tmp_path / "adapter_config.json", MalformedConfigError)
    (tmp_path / "adapter_config.json").write_text("[")
    assert "LoRA adapter" in refused(tmp_path)


def test_adapter_beside_a_model(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    write(folder / "adapter_model.safetensors", "lora")
    raw = resolve(str(folder))
    assert raw.tensors is None
    assert "adapter" in raw.warnings[0]


def test_diffusers_folder(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"_diffusers_version": "0.30"}')
    assert "diffusers" in refused(tmp_path)


def test_folder_of_gguf_files_lists_them(tmp_path: Path) -> None:
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in refused(tmp_path)


def test_native_format(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text('{"dim": 4096, "n_layers": 32}')
    assert "params.json" in refused(tmp_path)
    assert "native" in refused(tmp_path / "params.json", MalformedConfigError)


def test_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"nonsense")
    assert "does not begin with GGUF" in refused(path, MalformedConfigError)
    path.write_bytes(b"GGUF\x03\x00")
    assert "truncated GGUF header" in refused(path, MalformedConfigError)
    path.write_bytes(b"GGUF\x09\x00\x00\x00" + bytes(16))
    assert "version 9" in refused(path, MalformedConfigError)


def test_weights_without_a_config(folder: Path) -> None:
    path = write(folder / "model.safetensors", "x")
    (folder / "config.json").unlink()
    assert "weights, and no config.json beside them" in refused(path)


def test_headers_of_one_file(folder: Path) -> None:
    write(folder / "model.safetensors", "x", "y")
    write(folder / "consolidated.safetensors", "other names")
    tensors = resolve(str(folder)).tensors
    assert tensors is not None
    assert [(t.name, t.dtype, t.shape, t.shard) for t in tensors] == [
        ("x", "BF16", (2, 3), "model.safetensors"),
        ("y", "BF16", (2, 3), "model.safetensors"),
    ]
    assert resolve(str(folder / "config.json")).tensors is None


def index(folder: Path, **shards: str) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))


def test_headers_of_shards(folder: Path) -> None:
    write(folder / "model-00001-of-00002.safetensors", "x")
    write(folder / "model-00002-of-00002.safetensors", "y")
    write(folder / "stray.safetensors", "z")
    index(folder, x="model-00001-of-00002.safetensors", y="model-00002-of-00002.safetensors")
    raw = resolve(str(folder))
    assert [t.name for t in raw.tensors or ()] == ["x", "y"]
    assert raw.warnings == ()
    (folder / INDEX).unlink()
    assert [t.name for t in resolve(str(folder)).tensors or ()] == ["x", "y", "z"]


def test_missing_shards_are_named(folder: Path) -> None:
    write(folder / "model-00002-of-00003.safetensors", "y")
    assert "2 shards are missing: model-00001-of-00003.safetensors, model-00003-of-00003.safetensors" in refused(folder)
    index(folder, x="model-00001-of-00003.safetensors", y="model-00002-of-00003.safetensors")
    assert "1 shard is missing: model-00001-of-00003.safetensors" in refused(folder)
    assert INDEX in refused(folder)


def test_tensors_that_the_index_promises(folder: Path) -> None:
    write(folder / "a.safetensors", "x")
    write(folder / "b.safetensors", "x", "y")
    index(folder, x="a.safetensors", y="b.safetensors", z="b.safetensors")
    raw = resolve(str(folder))
    assert [(t.name, t.shard) for t in raw.tensors or ()] == [("x", "a.safetensors"), ("y", "b.safetensors")]
    assert "1 tensors" in raw.warnings[0]
    (folder / INDEX).unlink()
    assert "in two files" in resolve(str(folder)).warnings[0]


@pytest.mark.parametrize(
    "shards", [{}, {"x": "../a.safetensors"}, {"x": "/a.safetensors"}, {"x": "a\0.safetensors"}, {"x": 1}]
)
def test_index_that_is_wrong(folder: Path, shards: dict[str, object]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": shards}))
    assert "weight_map" in refused(folder, MalformedConfigError)


def test_truncated_header_in_a_folder(folder: Path) -> None:
    path = write(folder / "model.safetensors", "x")
    path.write_bytes(path.read_bytes()[:-1])
    assert "claims 12 bytes of tensors, the file has 11" in refused(folder, MalformedConfigError)
    path.write_bytes(path.read_bytes()[:20])
    assert "truncated header" in refused(folder, MalformedConfigError)


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(CONFIG))
    raw = resolve("-")
    assert raw.data == {"model_type": "llama"}
    assert (raw.provenance.source, raw.provenance.ref, raw.where) == ("stdin", "-", "standard input")


@pytest.mark.parametrize("stdin", [None, io.StringIO("{}"), Stdin(b"")])
def test_standard_input_that_holds_nothing(monkeypatch: pytest.MonkeyPatch, stdin: object) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    assert "standard input" in refused("-", SourceError)
