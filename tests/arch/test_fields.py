"""The reader of raw fields: who wins, what null means, what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc.arch.defaults import ClassDefaults
from llmcalc.arch.families.leftovers import refuse_structural, unread_warning
from llmcalc.arch.fields import Fields
from llmcalc.errors import InvalidInputError, UnsupportedLayerError


def fields(data: dict[str, Any], defaults: dict[str, Any] | None = None, **more: Any) -> Fields:
    return Fields(data, defaults=ClassDefaults("TestConfig", defaults or {}, {}), **more)


class TestWhoWins:
    def test_key_over_alias(self) -> None:
        assert fields({"n_embd": 1, "hidden_size": 2}).integer("hidden_size") == 2

    def test_alias_over_class(self) -> None:
        assert fields({"n_embd": 1}, {"hidden_size": 3}, path="text").integer("hidden_size") == 1

    def test_class_over_what_null_means(self) -> None:
        assert fields({}, {"head_dim": 128}).integer("head_dim", null=64) == 128

    def test_null_over_class(self) -> None:
        assert fields({"head_dim": None}, {"head_dim": 128}).integer("head_dim", null=64) == 64
        assert fields({"sliding_window": None}, {"sliding_window": 4096}).optional("sliding_window") is None

    def test_override_over_all(self) -> None:
        given = fields({"hidden_size": 2}, overrides={"hidden_size": 5})

        assert given.integer("hidden_size") == 5
        assert given.notes.overrides_used == {"hidden_size"}

    def test_bare_override_stays_out_of_towers(self) -> None:
        given = fields({"vision_config": {"hidden_size": 7}}, overrides={"hidden_size": 5})
        tower = given.child("vision_config", language=False)

        assert tower is not None
        assert tower.integer("hidden_size") == 7


class TestRecords:
    def test_defaults_are_told(self) -> None:
        given = fields({}, {"num_key_value_heads": 8, "vocab_size": 99})
        given.integer("num_key_value_heads")
        given.integer("vocab_size")

        assert given.notes.assumptions == ["num_key_value_heads is not given: 8, the default of TestConfig"]
        assert given.notes.warnings == ["vocab_size is not given: 99, the default of TestConfig"]

    def test_core_sizes_are_never_taken_from_the_class_at_the_top(self) -> None:
        with pytest.raises(InvalidInputError, match="hidden_size is missing"):
            fields({}, {"hidden_size": 4096}).integer("hidden_size")

    def test_partial_block_takes_its_own_class(self) -> None:
        assert fields({}, {"hidden_size": 4096}, path="text_config").integer("hidden_size") == 4096

    def test_unread_keys(self) -> None:
        given = fields({"hidden_size": 1, "strange": 2, "bos_token_id": 3, "inner": {"odd": 1}})
        given.integer("hidden_size")
        given.child("inner")

        assert unread_warning(given) == (
            "config fields that were not used and are not known to be harmless: inner.odd, strange"
        )

    def test_a_near_miss_is_named(self) -> None:
        given = fields({"num_key_value_headz": 8})
        given.integer("num_key_value_heads", null=4)

        assert "num_key_value_headz (did you mean num_key_value_heads?)" in str(unread_warning(given))

    @pytest.mark.parametrize("key", ["num_experts", "kv_lora_rank", "n_routed_experts"])
    def test_a_key_that_means_another_layout_is_refused(self, key: str) -> None:
        refuse_structural(fields({key: None}))
        with pytest.raises(UnsupportedLayerError, match=f"{key} is 8, a layout"):
            refuse_structural(fields({key: 8}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "x", [], {}, 1.5, -1, 0, 2**60])
def test_impossible_whole_numbers(value: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"config\.json: hidden_size"):
        fields({"hidden_size": value}).integer("hidden_size")


@pytest.mark.parametrize("value", ["4096", " 4096", 4096.0])
def test_numbers_in_disguise_are_taken_with_a_warning(value: Any) -> None:
    given = fields({"hidden_size": value})

    assert given.integer("hidden_size") == 4096
    assert len(given.notes.warnings) == 1


def test_per_layer_lists() -> None:
    assert fields({"widths": 3}).per_layer("widths", 2) == [3, 3]
    assert fields({"widths": [1, 2, 9]}).per_layer("widths", 2) == [1, 2]
    with pytest.raises(InvalidInputError, match="one entry for each of 4 layers"):
        fields({"widths": [1, 2]}).per_layer("widths", 4)
