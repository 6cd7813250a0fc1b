from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import InvalidRequest
from models.strict_json import MAX_DEPTH, dump_json, parse_json


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param(b"", "line 1", id="empty"),
        pytest.param(b'{"a":', "line 1", id="cut off"),
        pytest.param(b'{"a":\n1,}', "line 2", id="comma too many"),
        pytest.param(b"[1] 2", "Extra data", id="two values"),
        pytest.param(b"{'a':1}", "line 1", id="single quotes"),
        pytest.param(b"NaN", "NaN", id="NaN"),
        pytest.param(b'{"a":[Infinity]}', "Infinity", id="infinity"),
        pytest.param(b"[-Infinity]", "-Infinity", id="minus infinity"),
        pytest.param(b"1e999", "too large", id="a float beyond the largest"),
        pytest.param(b"-1e999", "too large", id="a float below the smallest"),
        pytest.param(b"1" * 5000, "digits", id="an integer of 5000 digits"),
        pytest.param(rb'"a\u0000b"', "NUL", id="NUL in a text"),
        pytest.param(rb'{"\u0000":1}', "NUL", id="NUL in a key"),
        pytest.param(rb'["\ud800"]', "surrogate", id="lone high surrogate"),
        pytest.param(rb'{"a":{"\udc00":1}}', "surrogate", id="lone low surrogate"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "64 levels", id="100,000 levels of lists"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "64 levels", id="100,000 levels of objects"),
        pytest.param(b"[" * 65 + b"]" * 65, "64 levels", id="one level too many"),
        pytest.param('{"a":1}'.encode("utf-16"), "UTF-8", id="UTF-16"),
        pytest.param('{"a":1}'.encode("utf-16-le"), "line 1", id="UTF-16 without a mark"),
        pytest.param('{"a":1}'.encode("utf-8-sig"), "BOM", id="byte order mark"),
        pytest.param(b'"\xff"', "UTF-8", id="a byte that is not UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "UTF-8", id="a surrogate in bytes"),
        pytest.param(b'"a\nb"', "control character", id="a raw line break in a text"),
    ],
)
def test_what_could_not_be_stored_or_sent_is_refused(source: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as caught:
        parse_json(source)

    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (b'{"a":[1,2.5,true,null,"x"]}', {"a": [1, 2.5, True, None, "x"]}),
        (rb'"\ud83d\ude00"', "😀"),
        ('"😀é"'.encode(), "😀é"),
        (b" [1e308] ", [1e308]),
        (b"12345678901234567890", 12345678901234567890),
        ('"text"', "text"),
    ],
)
def test_what_is_json_is_read(source: bytes | str, value: Any) -> None:
    assert parse_json(source) == value


def test_the_deepest_nesting_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert dump_json(parse_json(text)) == text


def test_writing_is_compact_in_order_and_readable() -> None:
    assert dump_json({"b": 1, "a": ["ü", None]}) == '{"b":1,"a":["ü",null]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dump_json(value)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


@given(st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20))
def test_what_is_written_is_read_again(value: Any) -> None:
    assert parse_json(dump_json(value).encode()) == value


@given(st.binary())
def test_any_bytes_are_read_as_json_does_or_refused(source: bytes) -> None:
    try:
        value = parse_json(source)
    except InvalidRequest:
        return
    assert value == json.loads(source)
