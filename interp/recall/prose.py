"""Reading prose: sentences, questions with their replies, and what takes an earlier sentence back."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from interp.recall import prose_words as words
from interp.recall.parsing_lists import heading_says
from interp.recall.prose_grammar import read_clauses, read_question
from interp.recall.prose_groups import Said
from interp.recall.prose_words import Names, Span, Token

_PIECE = re.compile(r"[^\n.;!?]+[.;!?]*")
_BULLET = re.compile(r"\s*(?:[-*•+]\s+|\(?\d+[.)]\s+)")
_COURTESY = ("please", "let", "feel", "hope")
_AHEAD = frozenset("following below next these statements".split())
_AMENDS = frozenset("or if unless except otherwise only but".split())


@dataclass(frozen=True)
class Statement:
    """What one sentence says; `corrects` where it sets out to put something right."""

    said: Said
    span: Span
    corrects: bool = False


@dataclass
class Reading:
    """All that prose says.

    Attributes:
        statements: in the order of the text, those taken back left out.
        withdrawals: offsets before which every answer of whatever form was called wrong.
        doubted: (offset, pairs): a sentence that could not be read casts doubt on what stands before it about them.
        unread: sentences with names in them that could not be read, or were taken back.
    """

    statements: list[Statement] = field(default_factory=list)
    withdrawals: list[int] = field(default_factory=list)
    doubted: list[tuple[int, frozenset[frozenset[str]]]] = field(default_factory=list)
    unread: list[Span] = field(default_factory=list)


@dataclass
class _Piece:
    tokens: list[Token]
    span: Span
    end: str
    named: bool
    new_line: bool
    new_paragraph: bool

    @property
    def spoken(self) -> list[str]:
        return [t.text for t in self.tokens if t.kind == "word"]


def read_prose(text: str, names: Names, answered: Collection[frozenset[str]] = ()) -> Reading:
    """Read the sentences of a text, from which what other forms read about the pairs `answered` is blanked out."""
    pieces = _joined(list(_pieces(text, names)), names)
    reading, doubtful, pending, skip = Reading(), False, False, False
    for index, piece in enumerate(pieces):
        if piece.new_paragraph:
            doubtful = bool(index) and doubtful and pieces[index - 1].end == ":"
        following = pieces[index + 1] if index + 1 < len(pieces) else None
        if skip:  # the reply to a question
            skip = False
            continue
        if not piece.named:
            ahead, back, wrong = _remark(piece)
            doubtful = doubtful or ahead
            if wrong:  # unless the next sentence says what is right
                pending = True
            elif back:
                _take_back(reading, piece.span[0], None)
            continue
        corrects, denies, rest = _opening(piece.tokens)
        said: Said | None = None
        if piece.end.startswith("?"):
            said, skip = _asked(piece, following, names)
        elif not doubtful:
            said = read_clauses(rest, names)
        answers = {answer for _, answer in said} if said else set()
        if said and denies is not None and answers != {denies}:
            # "No, A is linked with C" puts something else right; "yes" to a denial is unclear.
            corrects, said = (True, said) if denies == 0 and answers == {1} else (corrects, None)
        if said is None:
            if pending:
                _take_back(reading, piece.span[0], None)
                reading.withdrawals.append(piece.span[0])
            _unread(reading, piece, text, names)
            pending = False
            continue
        if corrects or pending:
            known = {pair for s in reading.statements for pair, _ in s.said} | set(answered)
            if not {pair for pair, _ in said} <= known:  # it isn't clear what this puts right
                _take_back(reading, piece.span[0], None)
                reading.withdrawals.append(piece.span[0])
            corrects = True
        pending = False
        reading.statements.append(Statement(said, piece.span, corrects))
    if pending:
        _take_back(reading, len(text), None)
        reading.withdrawals.append(len(text))
    return reading


def _pieces(text: str, names: Names) -> Iterator[_Piece]:
    before = 0
    for m in _PIECE.finditer(text):
        bullet = _BULLET.match(m[0])
        start = m.start() + (bullet.end() if bullet else 0)
        tokens = names.tokens(text[start : m.end()].rstrip(".;!?"), start)
        gap = text[before : m.start()]
        if not any(t.kind != "mark" for t in tokens):
            continue
        breaks = gap.count("\n") if before else 2
        last = m[0].rstrip(' \t*_`"”')[-1:]
        end = last if last in ".;!?:," else ""
        yield _Piece(
            tokens,
            (start, m.end()),
            "?" if "?" in m[0] else end,
            any(t.kind == "name" for t in tokens) or read_clauses(tokens, names) is not None,
            breaks > 0 or bullet is not None,
            breaks > 1,
        )
        before = m.end()


def _joined(pieces: list[_Piece], names: Names) -> list[_Piece]:
    """Lines that break off join the next, unless each makes sense by itself."""
    out: list[_Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        broken_off = last is not None and not last.end and piece.new_line and not piece.new_paragraph
        whole = last is not None and (
            (last.named and read_clauses(_opening(last.tokens)[2], names)) or last.spoken in (["yes"], ["no"])
        )
        if last is not None and broken_off and not whole:
            span, tokens = (last.span[0], piece.span[1]), [*last.tokens, *piece.tokens]
            named = last.named or piece.named
            out[-1] = _Piece(tokens, span, piece.end, named, last.new_line, last.new_paragraph)
        else:
            out.append(piece)
    return out


def _remark(piece: _Piece) -> tuple[bool, bool, bool]:
    """Whether a sentence without names casts doubt on what follows, on what came before, and calls the latter wrong."""
    spoken = piece.spoken
    found = set(spoken)
    if not spoken or spoken[0] in _COURTESY or spoken[:2] == ["i", "hope"]:
        return False, False, False
    if piece.end in (":", "") and heading_says(piece.tokens) is not None and (piece.end or len(spoken) > 1):
        return False, False, False  # a heading, whose list another form has read
    wrong, doubt = bool(found & words.RETRACTIONS), bool(found & words.DOUBTS)
    denied = bool(found & words.NEGATORS)
    doubt = doubt or (denied and bool(found & {"sure", "certain", "confident"}))
    if not wrong and found & words.ABOUT_THE_REST:
        return False, False, False
    ahead = doubt or ((wrong or denied) and (piece.end == ":" or bool(found & _AHEAD)))
    bare_no = denied and len(spoken) <= 2
    return ahead, doubt or denied, (wrong or bare_no) and not doubt and not (ahead and not wrong)


def _opening(tokens: Sequence[Token]) -> tuple[bool, int | None, list[Token]]:
    """Whether a sentence begins with a correction, what a yes or no at its beginning announces, and the rest of it."""
    corrects, announces, rest = False, None, list(tokens)
    while rest and rest[0].kind in ("word", "mark"):
        first, after = rest[0].text, rest[1].text if len(rest) > 1 else ""
        if first in words.RETRACTIONS:
            corrects, rest = True, rest[1:]
        elif first in ("yes", "no", "nope", "correct") and after in (",", ":", "-", "–", "—", "!"):
            announces, rest = int(first in ("yes", "correct")), rest[1:]
        elif first in (",", ":", "-", "–", "—", "…") and (corrects or announces is not None):
            rest = rest[1:]
        else:
            break
    if corrects and announces == 0:  # "wait, no, ..."
        announces = None
    return corrects, announces, rest


def _asked(piece: _Piece, following: _Piece | None, names: Names) -> tuple[Said | None, bool]:
    """What a question and the reply behind it say, and whether the reply is used up."""
    tokens = piece.tokens
    if [t.text for t in tokens[:2]] in (["q", ":"], ["question", ":"]):
        tokens = tokens[2:]
    said = read_question(tokens, names)
    if said is None or following is None:
        return None, False
    spoken = following.spoken
    while spoken and spoken[0] in ("a", "answer"):
        spoken = spoken[1:]
    if following.named or not spoken or following.end == "?":
        return None, False
    pattern = (
        r"(yes|no)(?: (?:they|he|she|it|there) (?:are|is|do|does)( not)?"
        r"(?: (?:linked|connected|associated|tied))?)?"
    )
    reply = re.fullmatch(pattern, " ".join(spoken))
    if (
        not reply
        or (reply[1] == "yes" and reply[2])
        or (reply[1] == "no" and " " in reply[0] and not reply[2])
    ):
        return None, False
    return frozenset((pair, int(reply[1] == "yes")) for pair, _ in said), True


def _take_back(reading: Reading, before: int, pairs: set[frozenset[str]] | None) -> None:
    """Drop what was said before an offset about some pairs, or about all."""
    kept = []
    for statement in reading.statements:
        gone = {p for p, _ in statement.said if statement.span[0] < before and (pairs is None or p in pairs)}
        if not gone:
            kept.append(statement)
            continue
        reading.unread.append(statement.span)
        left = frozenset((p, answer) for p, answer in statement.said if p not in gone)
        if left:
            kept.append(Statement(left, statement.span, statement.corrects))
    reading.statements = kept


def _unread(reading: Reading, piece: _Piece, text: str, names: Names) -> None:
    start = piece.span[0]
    lines = [
        (start + m.start(), start + m.end()) for m in re.finditer(r"[^\n]+", text[start : piece.span[1]])
    ]
    reading.unread += [line for line in lines if names.within(text[slice(*line)])]
    spoken = piece.spoken
    named = [t.text for t in piece.tokens if t.kind == "name"]
    if spoken and spoken[0] in words.RETRACTIONS | {"no", "nope"}:
        _take_back(reading, piece.span[0], None)
        reading.withdrawals.append(piece.span[0])
    elif spoken and piece.tokens[0].kind == "word" and spoken[0] in _AMENDS and reading.statements:
        last = reading.statements[-1]
        _take_back(reading, piece.span[0], {p for p, _ in last.said})
    if set(spoken) & (words.DOUBTS | words.NEGATORS | words.RETRACTIONS) or piece.end == "?":
        pairs = frozenset(frozenset((u, v)) for u in named for v in named if u != v)
        _take_back(reading, piece.span[0], set(pairs))
        reading.doubted.append((piece.span[0], pairs))
