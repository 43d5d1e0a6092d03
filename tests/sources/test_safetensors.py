import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.errors import MalformedConfigError
from llmcalc.sources.raw import Tensor
from llmcalc.sources.safetensors import read_header

from .weights import entry, header, write


def test_names_types_and_shapes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", "x", "y")
    assert read_header(path) == (
        Tensor("x", "BF16", (2, 3), "a.safetensors"),
        Tensor("y", "BF16", (2, 3), "a.safetensors"),
    )


def test_scalars_empty_tensors_and_halves_of_bytes(tmp_path: Path) -> None:
    entries = {"s": entry("F32", [], 0, 4), "e": entry("I64", [0, 7], 4, 4), "q": entry("F4", [3, 2], 4, 7)}
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(entries) + bytes(7))
    assert [tensor.shape for tensor in read_header(path)] == [(), (0, 7), (3, 2)]


GOOD = {"x": entry("F16", [2], 0, 4)}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "truncated: 0 bytes"),
        (b"\x01\x02", "truncated"),
        ((500).to_bytes(8, "little") + b"{}", "truncated header: it claims 500 bytes, the file has 10"),
        ((10**9).to_bytes(8, "little") + b"{}", "1,000,000,000"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        ((4).to_bytes(8, "little") + b"{no}", "not valid JSON"),
        ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
        ((0).to_bytes(8, "little"), "empty"),
        ((27).to_bytes(8, "little") + b'{"x": 1, "x": 1           }', "given twice"),
        (header(GOOD) + bytes(3), "claims 4 bytes of tensors, the file has 3"),
        (header(GOOD) + bytes(9), "5 bytes follow"),
        (header({"x": entry("F16", [3], 0, 4)}) + bytes(4), "takes 6 bytes, its offsets span 4"),
        (header({"x": entry("F16", [2], 4, 8)}) + bytes(8), "leaves a gap"),
        (header({"x": entry("U8", [2], 0, 2), "y": entry("U8", [2], 1, 3)}) + bytes(3), "overlaps"),
        (header({"x": entry("Q9", [2], 0, 2)}) + bytes(2), "dtype is 'Q9'"),
        (header({"x": entry("U8", [-1], 0, 1)}), "shape is [-1]"),
        (header({"x": entry("U8", [True], 0, 1)}), "shape is [True]"),
        (header({"x": entry("U8", [2**64], 0, 1)}), "shape is"),
        (header({"x": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}}), "data_offsets is [1, 0]"),
        (header({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}), "data_offsets"),
        (header({"x": {"dtype": "U8", "shape": "1", "data_offsets": [0, 1]}}), "shape"),
        (header({"x": 1}), "not an object"),
    ],
)
def test_headers_that_are_wrong(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(MalformedConfigError) as caught:
        read_header(path)
    assert "bad.safetensors" in caught.value.message
    assert says in caught.value.message


def test_tensor_data_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "big.safetensors"
    size = 2**34
    with path.open("wb") as file:
        file.write(header({"x": entry("U8", [size], 0, size)}))
        file.truncate(file.tell() + size)
    tracemalloc.start()
    assert read_header(path)[0].shape == (size,)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 120), st.booleans())
def test_any_bytes_are_a_header_or_an_error(tmp_path: Path, noise: bytes, at: int, whole: bool) -> None:
    data = header(GOOD) + bytes(4)
    path = tmp_path / "noise.safetensors"
    path.write_bytes(noise if whole else data[:at] + noise + data[at + len(noise) :])
    try:
        message = str(path)
        assert isinstance(read_header(path), tuple)
    except MalformedConfigError as error:
        message = error.message
    assert "noise.safetensors" in message


def test_a_header_of_very_many_values(tmp_path: Path) -> None:
    """Small in the file, large once it is parsed."""
    text = b"{" + b",".join(b'"%d":0' % number for number in range(1_300_000)) + b"}"
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    tracemalloc.start()
    with pytest.raises(MalformedConfigError, match="more than 1,200,000 values"):
        read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
