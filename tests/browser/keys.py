"""What Tab reaches in a widget, whether its focus is seen, what it is called; and what moves or is too wide there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator

MOST_STOPS = 300
NAMED = re.compile(r"\S")

# numbers what Tab must reach: all that takes the focus and is there to be seen
NUMBERED = """root => {
  document.activeElement.blur();
  const all = root.querySelectorAll('button, input, select, textarea, a[href], [tabindex]');
  const isThere = one => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true })
    && one.getBoundingClientRect().width > 0;
  return Array.from(all).filter(isThere).map((one, number) => {
    one.dataset.mkgStop = String(number);
    return one.outerHTML.slice(0, 200);
  });
}"""

# Tab goes on from here
BEGIN = """root => {
  const start = document.createElement('span');
  start.tabIndex = -1;
  root.prepend(start);
  start.focus();
  start.remove();
}"""

FOCUSED = """root => {
  const one = document.activeElement;
  return root.contains(one) && one !== root ? one.dataset.mkgStop ?? 'other' : null;
}"""

# lines around the element or in it, and its ground
LOOK = """one => Array.from([one, ...one.querySelectorAll('*')], part => {
  const { outlineStyle, outlineWidth, outlineColor, boxShadow, backgroundColor, display } = getComputedStyle(part);
  const outline = outlineStyle === 'none' || outlineWidth === '0px' ? '' : `${outlineWidth} ${outlineColor}`;
  return [outline, boxShadow, backgroundColor, display].join();
}).join(';')"""

# seconds that anything in the widget takes to change, and where it scrolls in its own time
MOVING = """root => {
  const parts = Array.from([root, ...root.querySelectorAll('*')])
    .flatMap(one => ['', '::before', '::after'].map(pseudo => [one, pseudo]));
  const seconds = time => parseFloat(time) * (time.trim().endsWith('ms') ? 0.001 : 1);
  const moves = ([one, pseudo]) => {
    const style = getComputedStyle(one, pseudo || null);
    const times = `${style.transitionDuration},${style.animationDuration}`.split(',');
    return style.scrollBehavior === 'smooth' || times.some(time => seconds(time) > 0.01);
  };
  return parts.filter(moves).map(([one, pseudo]) => one.className + pseudo);
}"""

WIDER = """root => {
  const edge = root.closest('.jp-OutputArea-output').getBoundingClientRect();
  const isWider = one => {
    const box = one.getBoundingClientRect();
    return box.left < edge.left - 1 || box.right > edge.right + 1 || one.scrollWidth > one.clientWidth + 1;
  };
  return [root, ...root.querySelectorAll('.mkg-widget')].filter(isWider).map(one => one.className);
}"""


# places in an element where text stands and nothing is to be clicked
PLACES = """root => {
  const found = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && found.length < 6; node = walker.nextNode()) {
    const own = node.parentElement;
    const control = own.closest('button, input, select, textarea, a, [role=treeitem], [tabindex="0"]');
    if (!node.data.trim() || root.contains(control)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const { left, top, width, height } = range.getBoundingClientRect();
    const at = [left + width / 2, top + height / 2];
    if (width > 4 && root.contains(document.elementFromPoint(...at))) found.push(at);
  }
  return found;
}"""
CELLS = "() => window.jupyterapp.shell.currentWidget.content.widgets.length"
KINDS = "() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => cell.model.type)"
OF_CELLS = ("a", "b", "m", "y", "d", "d", "x", "Escape", "d", "d")  # a notebook's keys that change its cells


@dataclass
class Walk:
    """What was wrong with the stops of Tab."""

    unreached: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


def walk(root: Locator) -> tuple[Walk, int]:
    """Press Tab through the widget: what is wrong, and how many controls there are."""
    texts = root.evaluate(NUMBERED)
    controls = [root.locator(f"[data-mkg-stop='{number}']") for number in range(len(texts))]
    looks = [control.evaluate(LOOK) for control in controls]
    found = Walk(unnamed=[text for text, control in zip(texts, controls, strict=True) if not has_name(control)])
    root.evaluate(BEGIN)
    focused: dict[int, str] = {}
    for _ in range(MOST_STOPS):
        root.page.keyboard.press("Tab")
        stop = root.evaluate(FOCUSED)
        if stop is None:
            break
        if stop != "other":
            focused[int(stop)] = root.page.locator(":focus").evaluate(LOOK)
    root.evaluate("() => document.activeElement.blur()")
    found.unreached = [text for number, text in enumerate(texts) if number not in focused]
    found.unseen = [texts[number] for number, look in focused.items() if look == looks[number]]
    return found, len(texts)


def press_after_clicks(root: Locator) -> int:
    """Click on text in a widget, place by place, and press the notebook's keys after each; how many places these were.

    The notebook must keep its cells, and the kinds of them.
    """
    page = root.page
    cells = page.evaluate(CELLS)
    kinds = page.evaluate(KINDS)
    places = root.evaluate(PLACES)
    for x, y in places:
        page.mouse.click(x, y)
        for key in OF_CELLS:
            page.keyboard.press(key)
            assert (page.evaluate(CELLS), page.evaluate(KINDS)) == (cells, kinds), f"{key} after a click at {x}, {y}"
    return len(places)


def has_name(control: Locator) -> bool:
    """Whether the browser has an accessible name for it."""
    from playwright.sync_api import expect

    try:
        expect(control).to_have_accessible_name(NAMED, timeout=200)
    except AssertionError:
        return False
    return True


def moving(root: Locator) -> list[str]:
    """Classes of what changes slowly or scrolls smoothly, although people asked for less motion."""
    return root.evaluate(MOVING)


def too_wide(root: Locator) -> list[str]:
    """Classes of the widgets that stand out of their output or are wider inside than they are."""
    return root.evaluate(WIDER)
