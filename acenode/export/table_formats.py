"""Write tables of texts as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PACKAGES = "% needs \\usepackage{booktabs,amssymb}"
LATEX = {"\\": r"\textbackslash{}", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{",
         "}": r"\}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "±": r"$\pm$", "×10⁻³": r"$\times 10^{-3}$",
         "×": r"$\times$", "−": "$-$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "–": "--", "≈": r"$\approx$",
         "▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "◐": r"$\circ$", "○": r"$\circ$"}


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def latex_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a LaTeX table; it needs the packages booktabs and amssymb."""
    body = [" & ".join(map(latex_text, line)) + r" \\" for line in (heads, *rows)]
    return "\n".join([r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}",
                      rf"\begin{{tabular}}{{{'l' * len(heads)}}}", r"\toprule", body[0], r"\midrule", *body[1:],
                      r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def latex_text(text: str) -> str:
    """Escape characters that LaTeX interprets or does not know."""
    text = text.replace("×10⁻³", "\0")  # a word of several characters
    return "".join(LATEX["×10⁻³"] if c == "\0" else LATEX.get(c, c) for c in text)
