import pytest

from compatcheck.core.terminal import disarm, escape_name, make_harmless


@pytest.mark.parametrize("code", ["0", "1", "2", "31", "32", "33", "36", "1;31"])
def test_colours_of_reports_stay(code):
    assert make_harmless(f"\x1b[{code}mHIGH\x1b[0m\n", coloured=True) == f"\x1b[{code}mHIGH\x1b[0m\n"
    assert make_harmless(f"\x1b[{code}mHIGH") == f"\\u001b[{code}mHIGH"


@pytest.mark.parametrize(
    "text", ["\x1b[8mhidden", "\x1b[2J", "\x1b]0;title\x07", "\x9b1A", "over\rwritten", "\x08", "\x7f"]
)
def test_commands_to_a_terminal_are_escapes(text):
    shown = make_harmless(text)
    assert make_harmless(text, coloured=True) == shown
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == text


def test_what_a_file_has_at_the_end_of_its_lines_stays():
    assert make_harmless("a\r\nb\tc\x0cd\n") == "a\r\nb\tc\x0cd\n"


def test_a_name_stays_in_its_line():
    assert escape_name("/opt/a\nb\r\u2028c\x1b[0m") == "/opt/a\\u000ab\\u000d\\u2028c\\u001b[0m"


def test_a_name_is_no_command_of_a_workflow():
    assert disarm("::error::x\n  ::set-output name=a::b\na::b ##[group]") == (
        ": :error::x\n  : :set-output name=a::b\na::b # #[group]"
    )
