"""Names of communities: what more of one's structures have than structures elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from itertools import count as count_from

from modulekg_widgets.engine.knowledge.contents import Contents

NEAR = 0.05  # terms whose shares differ by less are equally particular: the shorter one is taken
SECOND = 0.1  # least share of a community that a second term has to add
LONGEST = 40  # characters of a term
SEPARATORS = "_-. "

Term = str
Terms = Mapping[str, Sequence[Term]]  # of each structure, each once


def community_names(contents: Contents, number_of: Mapping[str, int]) -> list[str]:
    """A name for each community, by its number; no two are the same.

    A term is a family of models, a model or a class. It is as particular to a community as the share of the structures
    in it that have the term exceeds the share of those outside. One or two families name a community; where that name
    is another's too, one or two models do, then these with a class, with the number of structures, with a number that
    nothing else has. `number_of`: each structure's community by its fingerprint, from 0 without gaps.
    """
    parts: list[list[str]] = [[] for _ in range(max(number_of.values(), default=-1) + 1)]
    for key, number in number_of.items():
        parts[number].append(key)
    of_family, of_model, of_class = _families(contents), contents.holders, _classes(contents)
    totals = [_counted(number_of, terms) for terms in (of_family, of_model, of_class)]

    def grain(terms: Terms, total: Counter[Term], most: int) -> Callable[[int], list[Term]]:
        return lambda number: _particular(parts[number], terms, total, len(number_of), most)

    by_family, by_model = grain(of_family, totals[0], 2), grain(of_model, totals[1], 2)
    by_class = grain(of_class, totals[2], 1)

    def with_class(number: int) -> str:
        return " ".join([_joined(by_model(number) or by_family(number)), *by_class(number)]).strip()

    steps: list[Callable[[int], str]] = [
        lambda number: _joined(by_family(number) or by_class(number)),
        lambda number: _joined(by_model(number) or by_class(number)),
        with_class,
        lambda number: f"{with_class(number)}, {len(parts[number])} structure{'s' * (len(parts[number]) > 1)}",
    ]
    return _distinct(len(parts), steps)


def _distinct(count: int, steps: Sequence[Callable[[int], str]]) -> list[str]:
    """The first name of each that no other has at the same step, nor has already; at last one with a number."""
    names: dict[int, str] = {}
    for step in steps:
        proposed = {number: step(number) for number in range(count) if number not in names}
        uses = Counter([*proposed.values(), *names.values()])
        names.update({number: name for number, name in proposed.items() if name and uses[name] == 1})
    for number in range(count):
        if number not in names:
            taken, longest = set(names.values()), steps[-1](number)
            names[number] = next(name for n in count_from(number) if (name := f"{longest}, no. {n}") not in taken)
    return [names[number] for number in range(count)]


def _particular(part: list[str], terms: Terms, total: Counter[Term], size: int, most: int) -> list[Term]:
    """The terms that tell a community from the rest best; each after the first for what those before it leave open."""
    left, found = part, []
    outside = max(1, size - len(part))
    inside = _counted(part, terms)
    while left and len(found) < most:
        held = _counted(left, terms)
        shares = {
            term: count / len(part) - (total[term] - inside[term]) / outside for term, count in sorted(held.items())
        }
        best = max(shares.values(), default=0.0)
        if found and best < SECOND:
            break
        near = [term for term, share in shares.items() if share > best - NEAR and term not in found]
        if not near:
            break
        found.append(min(near, key=lambda term: (len(term), -shares[term], term)))
        left = [key for key in left if found[-1] not in terms[key]]
    return found


def _counted(keys: Iterable[str], terms: Terms) -> Counter[Term]:
    return Counter(chain.from_iterable(map(terms.__getitem__, keys)))


def _joined(terms: list[Term]) -> str:
    """`swin_v2_b + s`: what the second term has in common with the first, up to a separator, is said once."""
    shown = [_shortened(term) for term in terms]
    if len(shown) < 2:
        return "".join(shown)
    first, second = shown
    same = next((at for at, (one, two) in enumerate(zip(first, second, strict=False)) if one != two), 0)
    end = max(first.rfind(separator, 0, same) for separator in SEPARATORS) + 1
    return f"{first} + {second[end:]}"


def _shortened(term: Term) -> str:
    half = LONGEST // 2 - 1
    return term if len(term) <= LONGEST else f"{term[:half]}…{term[-half:]}"


def _families(contents: Contents) -> Terms:
    family = {model.name: contents.modules[model.root].class_name for model in contents.models.values()}
    return {key: tuple(dict.fromkeys([family[name] for name in held])) for key, held in contents.holders.items()}


def _classes(contents: Contents) -> Terms:
    return {key: (node.class_name,) for key, node in contents.modules.items()}
