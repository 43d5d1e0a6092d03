import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.errors import LlmcalcError, MalformedConfigError
from llmcalc.sources.gguf_header import Skipped, read_header

from .gguf_files import gguf_bytes, info, pair, tensors_of_llama, text, write_llama

SAME = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_names_types_and_shapes(tmp_path: Path) -> None:
    found = read_header(write_llama(tmp_path / "a.gguf"))
    assert {tensor.name: tensor.shape for tensor in found.tensors} == tensors_of_llama()
    assert {tensor.dtype for tensor in found.tensors} == {"F16", "F32"}
    assert found.version == 3


def test_long_values_are_skipped_and_short_ones_kept(tmp_path: Path) -> None:
    found = read_header(write_llama(tmp_path / "a.gguf")).metadata
    assert found["tokenizer.ggml.tokens"] == Skipped(128)
    assert found["tokenizer.chat_template"] == Skipped(9000)
    assert found["tokenizer.ggml.scores"] == (0.5,) * 128
    assert found["llama.block_count"] == 3
    assert found["general.name"] == "Small"


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1", "TQ2_0"])
def test_quantized_tensors(tmp_path: Path, kind: str) -> None:
    if kind == "TQ2_0":
        pytest.importorskip("gguf")
        return  # rows of 64 are no whole block of 256: see test_rows_that_blocks_do_not_divide
    found = read_header(write_llama(tmp_path / "a.gguf", kind))
    assert {tensor.name: tensor.shape for tensor in found.tensors} == tensors_of_llama()
    assert {tensor.dtype for tensor in found.tensors if len(tensor.shape) > 1} == {kind}


def test_version_2_and_big_endian(tmp_path: Path) -> None:
    import gguf

    little = read_header(write_llama(tmp_path / "a.gguf"))
    path = write_llama(tmp_path / "b.gguf", endianess=gguf.GGUFEndian.BIG)
    assert path.read_bytes()[4:8] == b"\0\0\0\3"
    big = read_header(path)
    assert big.metadata == little.metadata
    assert [t[:3] for t in big.tensors] == [t[:3] for t in little.tensors]
    data = (tmp_path / "a.gguf").read_bytes()
    (tmp_path / "c.gguf").write_bytes(data[:4] + struct.pack("<I", 2) + data[8:])
    assert read_header(tmp_path / "c.gguf").version == 2


def test_a_header_longer_than_the_window(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "a.gguf", tokens=60_000)
    found = read_header(path)
    assert found.metadata["tokenizer.ggml.tokens"] == Skipped(60_000)
    assert found.metadata["tokenizer.ggml.scores"] == Skipped(60_000)
    assert len(found.tensors) == 30
    assert found.size > 1 << 20


X = info(b"x", (4,))
KEY = pair(b"k", 4, struct.pack("<I", 1))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a GGUF file"),
        (b"GG", "not a GGUF file"),
        (b"GGUF", "24 are needed"),
        (b"GGUF" + struct.pack("<I", 3) + bytes(8), "truncated GGUF header: 16 bytes"),
        (gguf_bytes(version=1), "version 1, expected 2 or 3"),
        (gguf_bytes(version=4), "version 4"),
        (gguf_bytes(counts=(10**9, 0)), "claims 1,000,000,000 tensors"),
        (gguf_bytes(counts=(0, 10**12)), "claims 1,000,000,000,000 metadata keys"),
        (gguf_bytes(counts=(2**64 - 1, 0)), "claims 18,446,744,073,709,551,615 tensors"),
        (gguf_bytes((KEY,), (X,), data=16, counts=(1, 9)), "truncated|not UTF-8|claims|does not know"),
        (gguf_bytes((KEY, KEY)), "k is given twice"),
        (gguf_bytes((), (X, X), data=16), "tensor x is given twice"),
        (gguf_bytes((), (info(b"x", (4,)), info(b"y", (4,)),), data=16), "overlaps"),
        (gguf_bytes((), (info(b"x", (4,), offset=8),), data=32), "not aligned"),
        (gguf_bytes((), (X,), data=12), "ends at byte"),
        (gguf_bytes((), (info(b"x", (2**62,)),)), "ends at byte|2\\^63"),
        (gguf_bytes((), (info(b"x", (2**40, 2**40)),)), "2\\^63"),
        (gguf_bytes((), (info(b"x", (4,), offset=2**63),), data=16), "ends at byte"),
        (gguf_bytes((), (info(b"x", (1,) * 5),)), "5 dimensions"),
        (gguf_bytes((), (info(b"x", (4,), kind=4),)), "stored type 4"),
        (gguf_bytes((), (info(b"x", (33,), kind=2),)), "rows of 33 in Q4_0"),
        (gguf_bytes((), (info(b"\xff\xfe", (4,)),)), "is not UTF-8"),
        (gguf_bytes((), (info(b"n" * 300, (4,)),)), "300 bytes, more than 256"),
        (gguf_bytes((pair(b"\xff", 4, bytes(4)),)), "a metadata key is not UTF-8"),
        (gguf_bytes((pair(b"k", 8, text(b"\xc3")),)), "the text of k is not UTF-8"),
        (gguf_bytes((pair(b"k", 8, struct.pack("<Q", 2**31) + b"x"),)), "claims 2,147,483,648 bytes"),
        (gguf_bytes((struct.pack("<Q", 2**31) + b"x",), counts=(0, 1)), "key of 2,147,483,648 bytes"),
        (gguf_bytes((pair(b"k", 13, b""),)), "value type 13"),
        (gguf_bytes((pair(b"k", 9, struct.pack("<IQ", 9, 1)),)), "an array of type 9"),
        (gguf_bytes((pair(b"k", 9, struct.pack("<IQ", 8, 10**9)),)), "claims 1,000,000,000 texts in k"),
        (gguf_bytes((pair(b"k", 9, struct.pack("<IQ", 8, 2) + struct.pack("<Q", 2**40)),)), "claims"),
        (gguf_bytes((pair(b"k", 9, struct.pack("<IQ", 10, 2**61)),)), "the array k claims"),
        (gguf_bytes((pair(b"k", 9, struct.pack("<IQ", 4, 4000)),)), "truncated GGUF header"),
        (gguf_bytes((pair(b"general.alignment", 4, struct.pack("<I", 0)),)), "alignment is 0"),
        (gguf_bytes((pair(b"general.alignment", 4, struct.pack("<I", 3)),)), "alignment is 3"),
        (gguf_bytes((pair(b"general.alignment", 8, text(b"x")),)), "alignment is 'x'"),
    ],
)  # fmt: skip
def test_headers_that_are_wrong(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(MalformedConfigError, match=says) as caught:
        read_header(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "a.gguf", tokens=8)
    data, whole = path.read_bytes(), read_header(path)
    for size in [*range(0, whole.size, 7), whole.size - 1, len(data) - 33]:
        path.write_bytes(data[:size])
        with pytest.raises(MalformedConfigError):
            read_header(path)


@SAME
@given(st.data())
def test_bytes_changed_at_random(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "fuzz.gguf"
    if not path.exists():
        write_llama(path, tokens=4)
        (tmp_path / "good").write_bytes(path.read_bytes())
    good = bytearray((tmp_path / "good").read_bytes())
    end = 2600
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, end))
        good[at : at + 8] = data.draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 8))
    path.write_bytes(good)
    bounded(path)


@SAME
@given(st.binary(max_size=400))
def test_bytes_at_random(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "fuzz.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + data)
    bounded(path)


def bounded(path: Path) -> None:
    """Read to a config, or one of our errors; never much memory."""
    from llmcalc.arch.families import read_config
    from llmcalc.sources.gguf import read_gguf

    tracemalloc.start()
    try:
        read_config(read_gguf(path).data)
    except LlmcalcError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 50e6


def test_a_file_larger_than_the_disk(tmp_path: Path) -> None:
    """200 GB of data behind the header, all of it a hole in a sparse file."""
    import gguf

    path = tmp_path / "large.gguf"
    infos = tuple(info(f"t{index}".encode(), (10**6, 10**4), 1, index * 2 * 10**10) for index in range(10))
    data = gguf_bytes((), infos)
    path.write_bytes(data)
    with path.open("r+b") as file:
        file.truncate(len(data) + 2 * 10**11)
    tracemalloc.start()
    found = read_header(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.F16] == (1, 2)
    assert [tensor.shape for tensor in found.tensors] == [(10**4, 10**6)] * 10
    assert peak < 5e6


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    pairs = tuple(pair(f"k{index}".encode(), 9, struct.pack("<IQ", 0, 4096) + bytes(4096)) for index in range(300))
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes(pairs))
    with pytest.raises(MalformedConfigError, match="more than 16,777,216 bytes of metadata"):
        read_header(path)
