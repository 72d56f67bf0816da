"""Text that Markdown must not interpret."""

from __future__ import annotations

from acenode_app import messages


def test_markup_is_escaped() -> None:
    assert messages.escape("<b> *x* [a](b) $1$ :red[x]") == "\\<b\\> \\*x\\* \\[a\\]\\(b\\) \\$1\\$ \\:red\\[x\\]"
