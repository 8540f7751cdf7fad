"""The terminal is as it was, whatever happens."""

import io

import pytest

from shardbus.demo.terminal import ENTER, LEAVE, Terminal, is_screen


class Tty(io.StringIO):
    """A terminal in memory."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Gone(Tty):
    """A terminal whose window was closed."""

    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_screen_is_entered_once_and_left_once() -> None:
    stream = Tty()
    terminal = Terminal(stream, {})

    terminal.enter()
    terminal.enter()
    terminal.show(["one", "two"])
    terminal.leave()
    terminal.leave()

    assert stream.getvalue() == f"{ENTER}\x1b[Hone\x1b[K\ntwo\x1b[K\x1b[J{LEAVE}"


def test_a_terminal_that_was_never_entered_is_not_left() -> None:
    stream = Tty()

    Terminal(stream, {}).leave()

    assert stream.getvalue() == ""


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    terminal = Terminal(Gone(), {})

    terminal.enter()
    terminal.show(["one"])
    terminal.leave()


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)],
)
def test_no_color_is_respected(environment: dict[str, str], has_colour: bool) -> None:
    assert Terminal(Tty(), environment).look().has_colour is has_colour


def test_only_a_terminal_that_can_gets_a_screen() -> None:
    assert is_screen(Tty(), {"TERM": "xterm"})
    assert not is_screen(Tty(), {"TERM": "dumb"})
    assert not is_screen(Tty(), {})
    assert not is_screen(io.StringIO(), {"TERM": "xterm"})
