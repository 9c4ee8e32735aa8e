"""The options of the data source of Spark: what is wrong with one is said before anything is read."""

from __future__ import annotations

import json

import pytest

from kcompact.errors import ConfigError
from kcompact.spark_source.options import SourceOptions, View


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "load(): no path"),
        (
            {"path": "x", "stratingOffset": "1"},
            "option stratingOffset: kafka-log has no such option; did you mean starti",
        ),
        ({"path": "x", "subscribe": "a"}, "option subscribe: kafka-log has no such option; the options are columns, "),
        ({"path": "x", "view": "rows"}, "option view: 'rows' is none of records, committed, latest, batches"),
        (
            {"path": "x", "columns": "offset,kye"},
            "option columns: the view records has no column kye; did you mean key?",
        ),
        (
            {"path": "x", "columns": "offset", "view": "batches"},
            "option columns: the view batches has no column offset",
        ),
        ({"path": "x", "columns": " , "}, "option columns: names no column"),
        ({"path": "x", "columns": "key,KEY"}, "option columns: 'key,KEY' names a column twice"),
        ({"path": "x", "startingOffset": "-1"}, "option startingOffset: '-1' is not a whole number from 0 on"),
        ({"path": "x", "endingOffset": "earliest"}, "option endingOffset: 'earliest' is not a whole number from 0 on"),
        ({"path": "x", "endingTimestamp": "2024"}, None),
        ({"path": "x", "minPartitions": "0"}, "option minPartitions: '0' is not a whole number from 1 on"),
        ({"path": "x", "failOnDamage": "no"}, "option failOnDamage: 'no' is none of true, false"),
        ({"path": "x", "highWatermark": "end"}, "option highWatermark: 'end' is not a whole number from 0 on"),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, str], words: str | None) -> None:
    if words is None:
        assert SourceOptions.of(options).bounds.until_ms == 2024
        return
    with pytest.raises(ConfigError) as problem:
        SourceOptions.of(options)
    assert str(problem.value).startswith(words)


def test_names_are_in_any_case_and_paths_are_one_or_a_list() -> None:
    read = SourceOptions.of({"paths": json.dumps(["a", "b c"]), "VIEW": "Latest", "highwatermark": "LEO"})
    assert read.paths == ("a", "b c")
    assert (read.view, read.use_log_end, read.high_watermark) == (View.LATEST, True, None)
    assert read.columns[:8] == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    assert SourceOptions.of({"path": "a", "highWatermark": "7"}).plan_options(5).high_watermark == 7
