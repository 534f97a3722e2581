"""Words and shares as a page writes them: names that others chose (classes, files) made fit to be shown, percentages.

HTML escaping is the template's, not done here.
"""

JOINERS = "\u200c\u200d"  # invisible, yet part of correct spelling in several scripts
LONGEST_IN_PLOT = 14


def shown(name: str) -> str:
    """`name` with every character that draws nothing, or turns the text around it, as a replacement character."""
    return "".join(letter if letter.isprintable() or letter in JOINERS else "\ufffd" for letter in name) or "\ufffd"


def short(name: str, longest: int = LONGEST_IN_PLOT) -> str:
    """`shown(name)`, cut where a plot has no room for more."""
    text = shown(name)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def joined(names: list[str], most: int = 8) -> str:
    """A list in a sentence: a, b and c; a long one ends in how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def rough(number: float) -> str:
    """An expected count: one decimal where it is small enough to matter."""
    return f"{number:,.1f}" if number < 100 else f"{number:,.0f}"


def percent(share: float) -> str:
    """One decimal; what is not nothing never reads as nothing."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def probability(share: float) -> str:
    """As `percent`; no label is certain, whatever float32 rounds it to."""
    return "> 99.9 %" if share >= 0.9995 else percent(share)
