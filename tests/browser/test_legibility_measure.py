"""The measures of test_legibility.py on scenes made by hand: each fault is seen, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from browser.legibility import INPUT, OUTPUT, Figures, measure, table

FAULTS = [part.name for part in fields(Figures) if isinstance(getattr(Figures(), part.name), list)]
Scene = dict[str, Any]


def text(words: str, left: float, top: float, width: float = 40, size: float = 13, is_title: bool = True) -> Any:
    return {"text": words, "box": [left, top, width, size * 1.2], "size": size, "isTitle": is_title}


def card(name: str, left: float, top: float, parent: str | None = None) -> Any:
    texts = [text(name, left + 18, top + 8), text("of it", left + 18, top + 26, size=11, is_title=False)]
    return {"id": name, "parent": parent, "box": [left, top, 120, 50], "isOpen": False, "texts": texts}


def frame(name: str, box: list[float], parent: str | None = None) -> Any:
    title = text(name, box[0] + 30, box[1] + 12)
    return {"id": name, "parent": parent, "box": box, "isOpen": True, "texts": [title]}


def line(source: str, target: str, *points: tuple[float, float], label: Any = None) -> Any:
    return {"source": source, "target": target, "points": [list(p) for p in points], "labels": [label] if label else []}


def faultless() -> Scene:
    """Input → frame with first → second, and beside them a way around → output; aside, a card that nothing leads to."""
    shape = text("1×64", 165, 225, size=10, is_title=False)
    return {
        "width": 800,
        "height": 600,
        "look": {"x": 0, "y": 0, "zoom": 1},
        "covered": [[690, 500, 100, 90]],
        "items": [
            card(INPUT, 150, 20),
            frame("around", [100, 100, 300, 300]),
            card("around.first", 150, 150, "around"),
            card("around.second", 150, 300, "around"),
            card("aside", 500, 300),
            card(OUTPUT, 150, 450),
        ],
        "lines": [
            line(INPUT, "around.first", (260, 70), (260, 150)),
            line("around.first", "around.second", (210, 200), (210, 300), label=shape),
            line("around.second", OUTPUT, (210, 350), (210, 450)),
            line("around.first", OUTPUT, (250, 200), (250, 250), (330, 250), (330, 425), (250, 425), (250, 450)),
        ],
    }


def item(scene: Scene, name: str) -> Any:
    return next(item for item in scene["items"] if item["id"] == name)


def move(scene: Scene, name: str, left: float, top: float) -> None:
    moved = item(scene, name)
    dx, dy = left - moved["box"][0], top - moved["box"][1]
    for box in [moved["box"], *(text["box"] for text in moved["texts"])]:
        box[0] += dx
        box[1] += dy


def test_a_picture_without_a_fault_has_none() -> None:
    figures = measure(faultless())
    assert {name: found for name in FAULTS if (found := getattr(figures, name))} == {}
    assert (figures.cards, figures.frames, figures.lines) == (5, 1, 4)
    assert (figures.crossings, figures.diagonals, figures.zoom) == (0, 0, 1)
    assert figures.title_px == 13
    assert figures.text_px == 10
    assert figures.used == pytest.approx((620 - 100) * (500 - 20) / (800 * 600))
    assert figures.inked == pytest.approx(5 * 120 * 50 / (800 * 600))


def overlap(scene: Scene) -> None:
    move(scene, "aside", 380, 300)  # the frame ends at 400


def two_cards(scene: Scene) -> None:
    move(scene, "around.second", 240, 180)
    del scene["lines"][1:]


def out_of_the_frame(scene: Scene) -> None:
    move(scene, "around.second", 300, 300)
    del scene["lines"][1:]


def card_on_a_title(scene: Scene) -> None:
    move(scene, "around.first", 140, 105)
    del scene["lines"][:]


def through_a_card(scene: Scene) -> None:
    scene["lines"] = [line(INPUT, OUTPUT, (160, 70), (160, 85), (560, 85), (560, 475), (270, 475))]


def through_its_own_card(scene: Scene) -> None:
    scene["lines"] = [line(INPUT, "aside", (150, 40), (140, 40), (140, 60), (560, 60), (560, 300))]


def through_a_title(scene: Scene) -> None:
    scene["lines"][0]["points"] = [[155, 70], [155, 150]]


def through_a_title_along(scene: Scene) -> None:
    scene["lines"][0]["points"] = [[260, 70], [260, 120], [135, 120], [135, 175], [150, 175]]


def through_a_frame(scene: Scene) -> None:
    scene["lines"] = [line(INPUT, OUTPUT, (160, 70), (160, 90), (390, 90), (390, 440), (200, 440), (200, 450))]


def out_and_in_again(scene: Scene) -> None:
    way = [(150, 175), (80, 175), (80, 325), (150, 325)]
    scene["lines"] = [line("around.first", "around.second", *way)]


def in_out_and_in(scene: Scene) -> None:
    way = [(260, 70), (260, 130), (420, 130), (420, 240), (210, 240), (210, 200)]
    scene["lines"] = [line(INPUT, "around.first", *way)]


def on_each_other(scene: Scene) -> None:
    scene["lines"] = [
        line("around.first", "around.second", (210, 200), (210, 300)),
        line(INPUT, OUTPUT, (160, 70), (160, 90), (420, 90), (420, 475), (270, 475)),
        line("aside", "around.second", (500, 325), (420, 325), (420, 380), (300, 380), (300, 325), (270, 325)),
    ]


def loose_at_the_source(scene: Scene) -> None:
    scene["lines"][2]["points"][0][1] += 10


def loose_at_the_target(scene: Scene) -> None:
    scene["lines"][2]["points"][1][1] += 20  # under the card


def back_beside_itself(scene: Scene) -> None:
    way = [(620, 325), (660, 325), (660, 420), (740, 420), (740, 440), (300, 440), (300, 475), (270, 475)]
    scene["lines"] = [line("aside", OUTPUT, *way)]


def back_on_itself(scene: Scene) -> None:
    scene["lines"][2]["points"] = [[210, 350], [210, 430], [210, 415], [220, 415], [220, 450]]


def aside_with_no_need(scene: Scene) -> None:
    way = [(210, 350), (210, 370), (230, 370), (230, 390), (210, 390), (210, 450)]
    scene["lines"][2]["points"] = [list(point) for point in way]


def skip_broken(scene: Scene) -> None:
    """The card in the middle is in the row of the source, and the line around it is not."""
    move(scene, "aside", 500, 20)
    scene["items"].append(card("behind", 150, 520))
    scene["lines"] = [
        line(INPUT, "aside", (270, 45), (500, 45)),
        line("aside", "behind", (620, 45), (660, 45), (660, 500), (140, 500), (140, 550), (150, 550)),
        line(INPUT, "behind", (270, 30), (440, 30), (440, 80), (80, 80), (80, 560), (150, 560)),
    ]


def label_on_a_label(scene: Scene) -> None:
    scene["lines"][2]["labels"] = [text("1×65", 175, 230, size=10)]


def label_on_a_card(scene: Scene) -> None:
    scene["lines"][1]["labels"][0]["box"][1] = 195


def label_on_a_title(scene: Scene) -> None:
    scene["lines"][1]["labels"] = []
    scene["lines"][0]["labels"] = [text("1×3", 150, 110, width=120, size=10)]


def label_astray(scene: Scene) -> None:
    scene["lines"][1]["labels"][0]["box"][:2] = [240, 230]


def card_out_of_view(scene: Scene) -> None:
    move(scene, "aside", 690, 300)


def card_covered(scene: Scene) -> None:
    move(scene, "aside", 600, 460)


def output_below(scene: Scene) -> None:
    scene["look"] = {"x": 0, "y": 120, "zoom": 1}


def output_covered(scene: Scene) -> None:
    scene["covered"] = [[100, 480, 100, 100]]


def without_input(scene: Scene) -> None:
    scene["items"][0]["id"] = scene["lines"][0]["source"] = "conv1"


SEEN: list[tuple[Callable[[Scene], None], dict[str, list[str]]]] = [
    (overlap, {"overlaps": ["around and aside"]}),
    (two_cards, {"overlaps": ["around.first and around.second"]}),
    (out_of_the_frame, {"overlaps": ["around.second leaves around"]}),
    (card_on_a_title, {"overlaps": ["around.first on the title of around"]}),
    (through_a_card, {"through_cards": ["¤input → ¤output through aside"]}),
    (through_its_own_card, {"through_cards": ["¤input → aside through ¤input"]}),
    (through_a_title, {"through_titles": ["¤input → around.first through the title of around"]}),
    (through_a_title_along, {"through_titles": ["¤input → around.first through the title of around"]}),
    (through_a_frame, {"through_frames": ["¤input → ¤output through around"]}),
    (out_and_in_again, {"through_frames": ["around.first → around.second through around"]}),
    (in_out_and_in, {"through_frames": ["¤input → around.first through around"]}),
    (
        on_each_other,
        {"on_lines": ["¤input → ¤output on aside → around.second"], "hairpins": ["aside → around.second"]},
    ),
    (loose_at_the_source, {"loose_ends": ["around.second → ¤output at around.second"]}),
    (loose_at_the_target, {"loose_ends": ["around.second → ¤output at ¤output"]}),
    (back_beside_itself, {"hairpins": ["aside → ¤output"]}),
    (back_on_itself, {"hairpins": ["around.second → ¤output"]}),
    (aside_with_no_need, {"hairpins": ["around.second → ¤output"]}),
    (skip_broken, {"broken_skips": ["¤input → behind"]}),
    (
        label_on_a_label,
        {
            "labels": ["label '1×65' of around.second → ¤output on '1×64'"],
            "stray_labels": ["label '1×65' of around.second → ¤output"],
        },
    ),
    (label_on_a_card, {"labels": ["label '1×64' of around.first → around.second on around.first"]}),
    (label_on_a_title, {"labels": ["label '1×3' of ¤input → around.first on the title of around"]}),
    (label_astray, {"stray_labels": ["label '1×64' of around.first → around.second"]}),
    (card_out_of_view, {"out_of_view": ["aside"]}),
    (card_covered, {"covered": ["aside"]}),
    (output_below, {"out_of_view": ["¤output"], "ends": ["¤output"]}),
    (output_covered, {"covered": ["¤output"], "ends": ["¤output"]}),
    (without_input, {"ends": ["no input"]}),
]


@pytest.mark.parametrize(("spoil", "expected"), SEEN, ids=[spoil.__name__ for spoil, _ in SEEN])
def test_a_fault_is_seen(spoil: Callable[[Scene], None], expected: dict[str, list[str]]) -> None:
    scene = faultless()
    spoil(scene)
    figures = measure(scene)
    found = {name: found for name in FAULTS if (found := getattr(figures, name))}
    assert found == expected


def test_every_kind_of_fault_has_a_scene() -> None:
    assert {name for _, expected in SEEN for name in expected} == set(FAULTS)


def test_lines_that_cross() -> None:
    scene = faultless()
    scene["lines"].append(line("aside", "around.second", (500, 325), (270, 325)))
    assert measure(scene).crossings == 1
    scene["lines"][3]["source"] = "around.second"  # of two lines to the same card none can help it
    assert measure(scene).crossings == 0


def test_a_line_that_does_not_keep_to_right_angles() -> None:
    scene = faultless()
    scene["lines"][2]["points"][0][0] += 20
    assert measure(scene).diagonals == 1


def test_lines_side_by_side_are_two_from_three_units_on() -> None:
    for left, expected in ((417.5, ["¤input → ¤output on aside → around.second"]), (416, [])):
        scene = faultless()
        on_each_other(scene)
        for point in scene["lines"][2]["points"][1:3]:
            point[0] = left
        assert measure(scene).on_lines == expected


def test_a_line_may_run_back_past_a_card_and_aside_around_one() -> None:
    scene = faultless()
    scene["lines"] = [line("aside", OUTPUT, (620, 325), (660, 325), (660, 400), (140, 400), (140, 475), (150, 475))]
    assert measure(scene).hairpins == []  # the end of a row: what it comes back under is a card
    scene["lines"] = [line(INPUT, OUTPUT, (210, 70), (210, 85), (450, 85), (450, 430), (210, 430), (210, 450))]
    assert measure(scene).hairpins == []  # straight on it would run through two cards
    scene["lines"] = [line(INPUT, OUTPUT, (200, 70), (200, 110), (208, 110), (208, 140), (200, 140), (200, 450))]
    assert measure(scene).hairpins == []  # a step of a few units


def test_where_lines_turn_together_no_skip_is_broken() -> None:
    scene = faultless()
    move(scene, "aside", 150, 520)
    turn = [(270, 45), (660, 45), (660, 85), (130, 85)]
    scene["lines"] = [
        line(INPUT, "aside", *turn, (130, 545), (150, 545)),
        line("aside", OUTPUT, (210, 520), (210, 500)),
        line(INPUT, OUTPUT, *turn, (130, 475), (150, 475)),
    ]
    assert measure(scene).broken_skips == []


def test_what_lines_share_counts_once() -> None:
    scene = faultless()
    way = [(210, 200), (210, 250), (440, 250)]
    scene["lines"] = [
        line("around.first", "aside", *way, (440, 325), (500, 325)),
        line("around.first", OUTPUT, *way, (440, 475), (270, 475)),
    ]
    assert measure(scene).length == pytest.approx(50 + 230 + 225 + 60 + 170)


def test_a_way_around_is_longer_than_the_straight_way() -> None:
    scene = faultless()
    scene["lines"] = scene["lines"][:3]
    assert measure(scene).detour == 1
    scene["lines"] = [line(INPUT, OUTPUT, (270, 45), (450, 45), (450, 475), (270, 475))]
    assert measure(scene).detour == pytest.approx((180 + 430 + 180) / 430)


def test_text_and_share_follow_the_zoom() -> None:
    scene = faultless()
    scene["look"] = {"x": 10, "y": 10, "zoom": 0.5}
    figures = measure(scene)
    assert (figures.title_px, figures.text_px) == (6.5, 5)
    assert figures.used == pytest.approx(measure(faultless()).used / 4)
    item(scene, "aside")["texts"][0]["size"] = 8
    assert measure(scene).title_px == 4


def test_titles_that_were_cut() -> None:
    scene = faultless()
    item(scene, "aside")["texts"][0]["text"] = "asi…"
    item(scene, "aside")["texts"][1]["text"] = "of …"
    assert (measure(faultless()).cut_titles, measure(scene).cut_titles) == (0, 1)


def test_without_a_look_all_is_in_view() -> None:
    scene = faultless()
    move(scene, "aside", 2000, 1500)
    scene["covered"] = []
    assert measure(scene).out_of_view == ["aside"]
    del scene["look"]
    assert measure(scene).out_of_view == []
    assert measure(scene).zoom == pytest.approx((600 - 44) / (1550 - 20))


def test_the_table_has_a_line_for_each_scene() -> None:
    spoiled = faultless()
    overlap(spoiled)
    head, first, second = table([("one", measure(faultless())), ("other", measure(spoiled))])
    at = head.index("overlaps") + len("overlaps") - 1
    assert (first[at], second[at]) == ("0", "1")
    assert len(first) == len(second) == len(head)
