import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.errors import MalformedConfigError
from llmcalc.sources import text
from llmcalc.sources.raw import RawConfig


def parse(data: bytes) -> RawConfig:
    return text.parse_config(data, "here/config.json", source="local", name="m", ref="here", origin="a test")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xef\xbb\xbf", "not valid JSON"),
        (b'{\n "a": 1,\n}', "line 3 column 1"),
        (b"[1]", "a list, expected a JSON object"),
        (b"null", "null, expected a JSON object"),
        (b'"x"', "a string"),
        (b"3", "int"),
        (b"[" * 100_000, "levels deep"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "levels deep"),
        (b'{"a": ' + b"1" * 5000 + b"}", "4,300 digits"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-16"),
        (b'{"a": "\\ud800"}', "not Unicode"),
        (b'{"\\ud800": 1}', "not Unicode"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (b"<html>", "line 1 column 1"),
        (b'{"peft_type": "LORA", "base_model_name_or_path": "org/base"}', "org/base"),
        (b'{"_class_name": "UNet", "_diffusers_version": "0.1"}', "diffusers"),
        (b'{"weight_map": {}}', "index of shards"),
        (b'{"dim": 4096, "n_layers": 32}', "params.json"),
    ],
)
def test_what_is_no_config_is_refused_by_name(data: bytes, says: str) -> None:
    with pytest.raises(MalformedConfigError) as caught:
        parse(data)
    assert "here/config.json" in caught.value.message
    assert says in f"{caught.value.message} {caught.value.hint}"


def test_byte_order_mark() -> None:
    raw = parse(b'\xef\xbb\xbf{"model_type": "llama"}')
    assert raw.data == {"model_type": "llama"}
    assert raw.warnings == ()


def test_provenance_holds_the_hash_of_the_bytes() -> None:
    data = b'{"model_type": "llama"}'
    assert parse(data).provenance.sha256 == hashlib.sha256(data).hexdigest()


def test_non_finite_values_are_named_with_their_place() -> None:
    raw = parse(b'{"a": {"b": [0.0, Infinity]}, "c": NaN, "d": -1e999}')
    assert [w.split(": ")[1].split(",")[0] for w in raw.warnings] == [
        "a.b[1] is Infinity",
        "c is NaN",
        "d is -Infinity",
    ]


def test_repeated_keys_are_a_warning_and_the_last_counts() -> None:
    raw = parse(b'{"a": 1, "a": 2}')
    assert raw.data == {"a": 2}
    assert "the key a is given twice" in raw.warnings[0]


def test_a_thousand_oddities_are_a_few_warnings() -> None:
    raw = parse(b'{"a": [' + b",".join([b"NaN"] * 1000) + b"]}")
    assert len(raw.warnings) == 9
    assert raw.warnings[-1] == "and 992 more of the same"


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(text, "LARGEST_FILE", 100)
    file = tmp_path / "config.json"
    file.write_bytes(b" " * 101)
    with file.open("rb") as opened, pytest.raises(MalformedConfigError, match="64 MiB"):
        text.read_bounded(opened, "x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def outcome(data: bytes) -> str:
    """The file that was read, or the message that refuses it."""
    try:
        raw = parse(data)
    except MalformedConfigError as error:
        return error.message
    assert isinstance(raw.data, dict)
    return raw.where


@given(st.binary(max_size=200))
def test_any_bytes_are_a_config_or_an_error(data: bytes) -> None:
    assert "\n" not in outcome(data)


@given(st.dictionaries(st.text(), JSON), st.data())
def test_mutated_json_is_a_config_or_an_error(value: dict[str, object], draw: st.DataObject) -> None:
    data = bytearray(json.dumps(value).encode())
    for _ in range(draw.draw(st.integers(0, 3))):
        place = draw.draw(st.integers(0, len(data)))
        data[place : place + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    assert "here/config.json" in outcome(bytes(data))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers()))
def test_json_comes_back_as_it_was_written(value: dict[str, object]) -> None:
    assert text.parse_json(json.dumps(value).encode(), "x") == (value, ())
