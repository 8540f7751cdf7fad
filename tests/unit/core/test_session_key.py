"""Which session ids are one session: simple case mapping, pinned for ever."""

import unicodedata

import pytest

from shardbus.core.sessions.key import FOLDS, session_key, session_key_of

# How many characters have another key than themselves, and the table as a number.
FOLDED = 1_448
DIGEST = 1_168_523_613_357_999_824

SAME = [
    ("SessionId", "sessionId"),
    ("CUSTOMER-7", "customer-7"),
    ("8E2C0A5B-AAAA", "8e2c0a5b-aaaa"),
    ("ÄÖÜ", "äöü"),
    ("ÉCOLE", "école"),
    ("ΣΊΣΥΦΟΣ", "σίσυφος"),
    ("\N{GREEK SMALL LETTER SIGMA}", "ς"),
    ("Σ", "ς"),
    ("ЖУК", "жук"),
    ("\N{LATIN CAPITAL LETTER DZ WITH CARON}", "\N{LATIN SMALL LETTER DZ WITH CARON}"),
    (
        "\N{LATIN CAPITAL LETTER D WITH SMALL LETTER Z WITH CARON}",
        "\N{LATIN SMALL LETTER DZ WITH CARON}",
    ),
    ("\N{MICRO SIGN}", "\N{GREEK SMALL LETTER MU}"),
    ("\N{GREEK CAPITAL LETTER ALPHA WITH PROSGEGRAMMENI}", "\u1fb3"),
    ("\N{ROMAN NUMERAL EIGHT}", "\N{SMALL ROMAN NUMERAL EIGHT}"),
    ("\N{FULLWIDTH LATIN CAPITAL LETTER A}", "\N{FULLWIDTH LATIN SMALL LETTER A}"),
    ("\N{DESERET CAPITAL LETTER LONG I}", "\N{DESERET SMALL LETTER LONG I}"),
]
DIFFERENT = [
    # One character is never two.
    ("straße", "strasse"),
    ("straße", "STRASSE"),
    ("ß", "\N{LATIN CAPITAL LETTER SHARP S}"),
    ("\N{LATIN SMALL LIGATURE FI}", "fi"),
    ("\N{LATIN SMALL LETTER N PRECEDED BY APOSTROPHE}", "\N{MODIFIER LETTER APOSTROPHE}n"),
    # No language is asked: the letters of Turkish are four.
    ("i", "\N{LATIN SMALL LETTER DOTLESS I}"),
    ("I", "\N{LATIN SMALL LETTER DOTLESS I}"),
    ("I", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"),
    ("i", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"),
    ("\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "\N{LATIN SMALL LETTER DOTLESS I}"),
    # They look the same, or are the same letter in another costume.
    ("k", "\N{KELVIN SIGN}"),
    ("s", "\N{LATIN SMALL LETTER LONG S}"),
    ("å", "\N{ANGSTROM SIGN}"),
    ("ω", "\N{OHM SIGN}"),
    ("é", "e\N{COMBINING ACUTE ACCENT}"),
    ("a", "\N{FULLWIDTH LATIN SMALL LETTER A}"),
    ("a", "ä"),
    ("a", "a "),
    ("", " "),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_case_makes_no_other_session(one: str, other: str) -> None:
    assert session_key(one) == session_key(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_anything_else_makes_another_session(one: str, other: str) -> None:
    assert session_key(one) != session_key(other)


@pytest.mark.parametrize("name", ["", "a", "customer-7", "straße", "\udc80", "日本", "🙂"])
def test_an_id_without_capitals_is_its_own_key(name: str) -> None:
    """So that such sessions stay in the fragments where they always were."""
    assert session_key(name) == name


def _upper(character: str) -> str:
    """The simple upper case of a character by the tables of Python, which has only the full one."""
    if character in "\N{LATIN SMALL LETTER DOTLESS I}\N{LATIN SMALL LETTER LONG S}":
        return character
    for whole in (character.upper(), character.title()):
        if len(whole) == 1:
            return whole
    return character


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="pinned to Unicode 14")
def test_the_table_says_when_simple_upper_case_is_the_same() -> None:
    """Each character has a key; two have the same when their upper case is, and only then."""
    uppers: dict[str, set[str]] = {}
    for point in (*range(0xD800), *range(0xE000, 0x20000)):
        character = chr(point)
        uppers.setdefault(session_key(character), set()).add(_upper(character))
    folded = sum(session_key(chr(point)) != chr(point) for point in range(0x20000))

    assert [(key, each) for key, each in uppers.items() if len(each) > 1] == []
    assert len(uppers) == len(set.union(*uppers.values()))
    assert folded == FOLDED


def test_a_key_is_its_own_key_and_as_long_as_the_id() -> None:
    for point in (*range(0xD800), *range(0xE000, 0x20000)):
        key = session_key(chr(point))
        assert len(key) == 1
        assert session_key(key) == key


@pytest.mark.parametrize("name", [*(one for one, _ in SAME + DIFFERENT), "\N{SNOWMAN}A", "É" * 128])
def test_encoded_ids_have_the_same_keys(name: str) -> None:
    assert session_key_of(name.encode()) == session_key(name).encode()


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert session_key_of(b"A\xff\xc3") == b"a\xff\xc3"
    assert session_key_of("A\udc80".encode("utf-8", "surrogatepass")) == b"a\xed\xb2\x80"


def test_the_table_never_changes() -> None:
    """It chooses fragments: whoever adds characters moves sessions."""
    digest = 0
    for byte in FOLDS.encode():
        digest = (digest * 31 + byte) % (1 << 61)

    assert digest == DIGEST
