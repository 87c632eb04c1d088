"""Operator cases as data flows, for the page to name: js/src/core/shared/model/operator_names.test.ts reads them."""

import json

import pytest

from views.operator_cases import FILE, Forward, flow, flows


def test_the_flows_that_the_page_reads_are_those_of_today() -> None:
    # a wanted change is written with: python tests/widgets/write_golden.py
    assert json.loads(json.dumps(flows())) == json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize(
    ("run", "count"),
    [
        (lambda m, x, y: x.pow(2), 1),
        (lambda m, x, y: x * x, 1),
        (lambda m, x, y: x.square(), 1),
        (lambda m, x, y: x**3, 0),
        (lambda m, x, y: x * 2, 0),
        (lambda m, x, y: x * y, 0),
    ],
)
def test_squares_are_told(run: Forward, count: int) -> None:
    assert len(flow(run)["steps"]["square"]) == count
