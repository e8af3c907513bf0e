"""A letter means the same in the whole book, as chapter 76 says, or its chapter has a table of what it means there and elsewhere."""
import re

import nbformat
import pytest
from conftest import CHAPTERS, ROOT

PARTS = ("ground", "language", "accounting", "first_run", "noise", "learning", "evidence", "workshop")
REFERENCE = ROOT / "nbs/evidence/76_reference.ipynb"
READ = [path for path in CHAPTERS if path.parent.name in PARTS and path != REFERENCE]
MOST = ("λ", "Λ", "M", "S", "K", "E", "H", "L", "P", "Q", "V", "D")  # the letters with the most meanings

# Which of these letters a chapter uses with the meaning that chapter 76 gives them, so that it need not declare them.
# Whoever adds a letter here has read the chapter's mathematics.
AS_IN_REFERENCE = {
    "11_gossip": "λ",
    "14_protocol": "M",
    "15_algorithms": "M",
    "17_attackers": "M",
    "19_factorization": "KP",
    "21_shifts": "P",
    "22_solver": "P",
    "23_sensitivities": "P",
    "24_theorem8": "P",
    "25_exact": "P",
    "26_state_space": "KP",
    "27_filters": "P",
    "28_streaming": "KP",
    "30_reactions": "P",
    "33_seen": "P",
    "34_overheard": "P",
    "37_schedules": "M",
    "39_online": "P",
    "48_objectives": "S",
    "49_lean": "H",
    "50_certificates": "λ",
    "51_gram": "Vλ",
    "52_newton": "L",
    "57_directions": "HV",
    "58_insiders": "Hλ",
    "66_simulator": "K",
    "69_claims": "HL",
    "70_auditing": "P",
    "74_reconstruction": "MP",
    "80_distributed": "M",
}

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ", "vartheta": "θ", "iota": "ι", "kappa": "κ",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "upsilon": "υ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "ell": "ℓ",
}  # fmt: skip
ALPHABETS = ("mathcal", "mathbf", "mathbb", "mathfrak", "boldsymbol")
WORDS = r"\\(?:text(?:bf|it|rm)?|mathrm|operatorname\*?|begin|end|label|tag|v?phantom)\s*\{[^{}]*\}"
TOKEN = re.compile(rf"{WORDS}|\\(?:{'|'.join(ALPHABETS)})\s*(?:\{{[A-Za-z]\}}|[A-Za-z])|\\[A-Za-z]+|\\.|\S", re.S)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+(?:\n[^$\n]+)*?)(?<!\\)\$", re.S)
HEADER = re.compile(r"\| letter \| in (?:this chapter|chapters (\d\d) (?:to|and) (\d\d)) \| elsewhere \|")


def letters(tex, marks="_"):
    """The letters of a formula in LaTeX, in their order: `H`, `λ`, `mathcal P`.

    What follows one of the marks is left out: what stands below a letter is a part of its name, unless it says over what a sum runs.
    """
    tokens = TOKEN.findall(re.sub(r"\\begin\{array\}\{[^}]*\}", " ", tex))
    found, at, runs = [], 0, False
    while at < len(tokens):
        token = tokens[at]
        if token in marks and not runs:
            depth = 0
            while (at := at + 1) < len(tokens):
                depth += (tokens[at] == "{") - (tokens[at] == "}")
                if depth == 0: break
        elif alphabet := re.match(rf"\\({'|'.join(ALPHABETS)})\s*\{{?([A-Za-z])", token): found.append(" ".join(alphabet.groups()))
        elif re.fullmatch("[A-Za-z]", token): found.append(token)
        elif token[1:] in GREEK: found.append(GREEK[token[1:]])
        if token not in ("_", "^", "{", "}"): runs = bool(re.match(r"\\(sum|prod|min|max|inf|sup|big\w+)\b|\\operatorname", token))
        at += 1
    return found


def formulas(text):
    """What stands between dollar signs in Markdown, outside code."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"(`+)(?:(?!`).)+?\1", "", text, flags=re.S)
    return [shown or inline for shown, inline in FORMULA.findall(text)]


def split(text):
    """Markdown without its tables of letters, and these tables: a list of header and rows, each row a list of cells."""
    rest, tables = [], []
    for line in text.split("\n"):
        inside = tables and tables[-1] is not None and line.startswith("|")
        if re.match(r"\| *(letter|symbol|here) *\|", line) and not inside: tables.append([line])
        elif inside: tables[-1].append(line)
        else:
            rest.append(line)
            if tables and tables[-1] is not None: tables.append(None)
    found = [(table[0], [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table[2:]]) for table in tables if table]
    return "\n".join(rest), found


class Chapter:
    """The letters of a chapter: those that its mathematics uses, and those that its tables declare."""

    def __init__(self, notebook, name):
        self.name, self.number, self.used, self.tables = name, int(name[:2]), set(), []
        for cell in notebook.cells:
            if cell.cell_type != "markdown": continue
            rest, tables = split(cell.source)
            self.tables += tables
            self.used |= {letter for formula in formulas(rest) for letter in letters(formula)}

    def rows(self):
        """The letters of each row, with the numbers of the chapters that its table is about."""
        for header, rows in self.tables:
            match = HEADER.fullmatch(header.strip())
            about = range(int(match[1]), int(match[2]) + 1) if match and match[1] else range(self.number, self.number + 1)
            for row in rows: yield {letter for formula in formulas(row[0]) for letter in letters(formula, "_^")}, about

    def declared(self, number):
        """Letters that this chapter's tables declare for the chapter of this number, one list entry for each row that does."""
        return [letter for row, about in self.rows() if number in about for letter in row]


def read(path):
    return Chapter(nbformat.read(path, as_version=4), path.stem)


BOOK = {path.stem: read(path) for path in READ}


def problems(chapter, book, meant, known):
    """What is wrong with a chapter's letters; `meant` are those that it uses as in the reference, whose letters are `known`."""
    declared = [letter for other in book for letter in other.declared(chapter.number)]
    own = [letter for row, _ in chapter.rows() for letter in row]
    for header, rows in chapter.tables:
        if not HEADER.fullmatch(header.strip()): yield f"a table of letters begins {header!r}, not '| letter | in this chapter | elsewhere |'"
        for row in rows:
            if len(row) != 3 or not row[1]: yield f"a row of a table of letters has not three entries: {row}"
    for letter in sorted(set(declared)):
        if declared.count(letter) > 1: yield f"{letter} is declared {declared.count(letter)} times"
    for letter in sorted(set(own) - chapter.used): yield f"{letter} is declared and not used"
    open_ = (chapter.used & set(MOST)) - set(declared)
    for letter in sorted(open_ - set(meant)): yield f"{letter} has several meanings: add it to the chapter's table, or, if it means what chapter 76 says, to AS_IN_REFERENCE"
    for letter in sorted(set(meant) - open_): yield f"{letter} is in AS_IN_REFERENCE, but the chapter declares it, or does not use it"
    for letter in sorted(set(meant) - known): yield f"{letter} is in AS_IN_REFERENCE, but not in the table of chapter 76"


def reference():
    """The rows of chapter 76's table of symbols: symbols as written, letters, and names of the chapters that introduce them."""
    for cell in nbformat.read(REFERENCE, as_version=4).cells:
        for header, rows in split(cell.source)[1] if cell.cell_type == "markdown" else []:
            if not header.startswith("| symbol | meaning"): continue
            for row in rows:
                symbols = [symbol.strip() for formula in formulas(row[0]) for symbol in re.split("[,;]", formula)]
                yield symbols, [letters(symbol, "_^") for symbol in symbols], re.findall(r"\b(\d\d_\w+)\.ipynb", row[-1])


KNOWN = {letter for _, row, _ in reference() for symbol in row for letter in symbol}


@pytest.mark.parametrize("name", BOOK)
def test_a_letter_means_what_it_means_elsewhere_or_its_chapter_says_so(name):
    assert list(problems(BOOK[name], BOOK.values(), AS_IN_REFERENCE.get(name, ""), KNOWN)) == []


def test_the_letters_with_the_most_meanings_are_declared_somewhere_and_chapters_exist():
    declared = {letter for chapter in BOOK.values() for row, _ in chapter.rows() for letter in row}
    assert set(MOST) - {"Λ"} <= declared
    assert set(AS_IN_REFERENCE) <= set(BOOK)


def test_every_symbol_of_the_reference_is_used_where_it_is_introduced():
    symbols = [symbol for row, _, _ in reference() for symbol in row]
    assert len(symbols) > 40 and len(symbols) == len(set(symbols))
    for row, names, chapters in reference():
        assert chapters, row
        for symbol, found in zip(row, names, strict=True): assert not found or any(set(found) <= BOOK[chapter].used for chapter in chapters), (symbol, chapters)
        for chapter in chapters: assert any(set(found) & BOOK[chapter].used for found in names) or not any(names), (row, chapter)


def test_the_reference_names_the_chapters_with_a_table():
    listed = {}
    for cell in nbformat.read(REFERENCE, as_version=4).cells:
        for header, rows in split(cell.source)[1] if cell.cell_type == "markdown" else []:
            if header.startswith("| letter | chapters"): listed |= {letters(formulas(row[0])[0])[0]: re.findall(r"\b(\d\d_\w+)\.ipynb", row[1]) for row in rows}
    with_tables = {letter: [name for name in sorted(BOOK) if any(letter in row for row, _ in BOOK[name].rows())] for letter in MOST}
    assert listed == {letter: names for letter, names in with_tables.items() if names}


def test_reading_letters_and_tables():
    assert letters(r"\mathcal P_{t+1} = \hat L^\top \lambda_k \operatorname{tr}(H_{vK})") == ["mathcal P", "L", "λ", "H"]
    assert letters(r"\sum_{k} W^{K+1} M_G \text{ of } \begin{array}{ll} x \end{array}") == ["k", "W", "K", "M", "x"]
    assert letters(r"R^{(I)}, C^{(t)}_{as}", "_^") == ["R", "C"]
    assert formulas("costs `$E$`, \\$5, $a$ and $b\nc$\n```\n$D$\n```\n$$\nQ\n$$") == ["a", "b\nc", "\nQ\n"]
    rest, tables = split("$x$\n\n| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$ | a | b |\n| $K$ | c | |\n\n$y$")
    assert "M" not in rest and "$y$" in rest and [row[0] for row in tables[0][1]] == ["$M$", "$K$"]


@pytest.mark.parametrize(
    "table, meant, complaint",
    [
        ("| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$ | a sum | harm |", "K", None),
        ("", "K", "M has several meanings"),
        ("| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$ | a sum | harm |", "", "K has several meanings"),
        ("| letter | in chapters 50 to 52 | elsewhere |\n|---|---|---|\n| $M$ | a sum | harm |", "K", "M has several meanings"),
        ("| letter | in chapters 97 to 99 | elsewhere |\n|---|---|---|\n| $M$, $K$ | a sum | harm |", "", None),
        ("| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$, $x$ | a sum | harm |", "K", "x is declared and not used"),
        ("| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$ | a | |\n| $M_k$ | b | |", "K", "M is declared 2 times"),
        ("| symbol | meaning in this chapter |\n|---|---|\n| $M$ | a sum |", "K", "a table of letters begins"),
        ("| letter | in this chapter | elsewhere |\n|---|---|---|\n| $M$, $K$ | a sum | harm |", "K", "K is in AS_IN_REFERENCE"),
    ],
)
def test_a_chapter_that_does_not_say_what_a_letter_means_is_noticed(table, meant, complaint):
    source = "Let $M_G = \\sum_k \\mathcal{S}_k K^{-1}$.\n\n" + table
    chapter = Chapter(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source)]), "98_made_up")
    found = list(problems(chapter, [chapter], meant, KNOWN))
    assert found == [] if complaint is None else any(problem.startswith(complaint) for problem in found), found
