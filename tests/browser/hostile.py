"""Hostile texts in every place where a model can carry one, and the watch for what they must not do."""

from typing import Any

from playwright.sync_api import Page

from cases.payloads import PAYLOADS

# every payload as slot name, class name, module of a class, attribute name and attribute value, and on the root
MODEL = """
from torch import nn

payloads = {payloads!r}

def hostile(text):
    module = type(text, (nn.Linear,), {{"__module__": text}})(2, 2)
    vars(module)[text] = text
    vars(module)["note"] = text
    return module

model = type(payloads[0], (nn.Module,), {{}})()
for text in payloads:
    model._modules[text] = hostile(text)
    model._modules["in " + text] = nn.Sequential(hostile(text), nn.ReLU())
"""

# runs before any script of every page
WATCH = """() => {
  window.__violations = [];
  document.addEventListener('securitypolicyviolation', event => window.__violations.push(event.blockedURI));
}"""

INSPECT = """selector => {
  const found = [];
  const foreign = ['SCRIPT', 'IFRAME', 'OBJECT', 'EMBED', 'FORM', 'META', 'BASE', 'LINK', 'MATH', 'AUDIO'];
  const addresses = ['href', 'src', 'action', 'xlink:href'];
  for (const root of document.querySelectorAll(selector)) {
    for (const element of [root, ...root.querySelectorAll('*')]) {
      if (foreign.includes(element.nodeName.toUpperCase())) { found.push(element.nodeName.toUpperCase()); }
      for (const { name, value } of element.attributes) {
        const link = addresses.includes(name) && /^\\s*(javascript|data:text)/i.test(value);
        if (/^on/i.test(name) || name.startsWith('data-commandlinker') || link) { found.push(`${name}=${value}`); }
      }
    }
  }
  return { found, ran: window.__xss ?? null, violations: window.__violations ?? [], at: location.href };
}"""


def model_code() -> str:
    return MODEL.format(payloads=PAYLOADS)


def inspect(page: Page, selector: str) -> dict[str, Any]:
    """What the texts have done: foreign elements and attributes `found`, `ran`, `violations` and the page's address."""
    return page.evaluate(INSPECT, selector)


def assert_harmless(page: Page, selector: str, address: str) -> None:
    assert inspect(page, selector) == {"found": [], "ran": None, "violations": [], "at": address}
