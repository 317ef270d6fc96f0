"""Text to tokens: by a plain program in Python, and by the rules as they are written."""

import io
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from torchperc.sequences.corpus import Column
from torchperc.sequences.tokens import Vocabulary, iter_lines, iter_text, tokenize

KNOWN = ["Dr.", "said", "'s", "n't", "$", "can't", "end.", "U.", "co-", "''"]


def is_mark(letter):
    return letter == "`" or unicodedata.category(letter)[0] == "P"


def opens(letter):
    return letter in "\"'`¿¡" or unicodedata.category(letter) in ("Ps", "Pi")


def closes(letter):
    return letter in "\"'’" or unicodedata.category(letter) in ("Pe", "Pf")


def runs(marks):
    found = []
    for letter in marks:
        if found and found[-1][0] == letter:
            found[-1] += letter
        else:
            found.append(letter)
    return found


def pieces(chunk, known):
    """Marks before, the word, marks behind."""
    if chunk in known:
        return [], chunk, []
    before, behind = [], []
    while chunk:
        first, more = chunk[0], chunk[1:2]
        money = unicodedata.category(first) == "Sc" and first in known
        if not (money or is_mark(first)) or (first == "-" and more and unicodedata.category(more) == "Nd"):
            break
        run = chunk[: len(chunk) - len(chunk.lstrip(first))]
        before.append(run)
        chunk = chunk[len(run) :]
        if chunk in known:
            break
    while chunk and chunk not in known and is_mark(chunk[-1]):
        run = chunk[len(chunk.rstrip(chunk[-1])) :]
        inner = any(
            a != "." and not is_mark(a) and unicodedata.category(a) != "Nd" and b == "."
            for a, b in pairwise(chunk[:-1])
        )
        initial = len(chunk) == 2 and unicodedata.category(chunk[0]) in ("Lu", "Lt")
        if run == "." and (inner or initial) and len(chunk.encode()) <= 64:
            break
        behind.insert(0, run)
        chunk = chunk[: -len(run)]
    return before, chunk, behind


def split_word(word, known):
    if word in known:
        return [word]
    place = max(word.rfind("'"), word.rfind("’"))
    if place <= 0 or place == len(word) - 1 or len(word[place:].encode()) > 17:
        return [word]
    if word[place + 1 :] in ("t", "T") and word[place - 1] in "nN" and place > 1:
        place -= 1
    return [word[:place], word[place:]] if word[place:] in known else [word]


def plain(text, known=()):
    """What the module describes, by a program that is slow and plain."""
    sentences = []
    for line in text.split("\n"):
        sentence, ended, chunks = [], False, line.split()
        for number, chunk in enumerate(chunks):
            if ended and not all(map(closes, chunk)):
                rest = "".join(chunks[number:])
                while rest and opens(rest[0]):
                    rest = rest[1:]
                if rest and unicodedata.category(rest[0]) in ("Lu", "Lt"):
                    sentences.append(sentence)
                    sentence = []
                ended = False
            before, word, behind = pieces(chunk, known)
            tokens = [*before, *(split_word(word, known) if word else []), *behind]
            marks = behind if word else before
            if word and word == chunk:
                ended = ended or all(letter in ".!?…。！？" for letter in word)
            else:
                ended = ended and not word
                for run in marks:
                    ended = run[0] in ".!?…。！？" or (ended and closes(run[0]))
            sentence += tokens
        if sentence:
            sentences.append(sentence)
    return sentences


def drawn(rng, letters, count=60):
    return "".join(rng.choice(list(letters), size=count))


@pytest.mark.parametrize("seed", range(20))
def test_as_the_plain_program(seed):
    rng = np.random.default_rng(seed)
    words = [
        *KNOWN,
        "Smith",
        "U.N.",
        "J.",
        "(",
        ")",
        '"',
        "``",
        "''",
        ".",
        "!",
        "...",
        "It's",
        "don't",
        "$5",
        "-5",
        "3.5",
        "a-b",
        "É",
        "日",
        "。",
        "’s",
        "«",
        "–",
        "\U0001f600",
    ]
    for text in (
        " ".join(rng.choice(words, size=40)),
        " ".join("".join(rng.choice(words, size=2)) for _ in range(30)) + "\n" + " ".join(rng.choice(words, size=9)),
        drawn(rng, "aBt.,!?'\"()-n$ 5\n"),
        drawn(rng, "éÉ。’“”«»… \u00a0\u3000a.\n`"),
    ):
        assert tokenize(text, Vocabulary.of(KNOWN)).sentences() == plain(text, set(KNOWN)), text
        assert tokenize(text).sentences() == plain(text), text
        assert tokenize(text, tokenized=True).sentences() == [line.split() for line in text.split("\n") if line.split()]


def test_text_that_is_tokenised_passes_unchanged():
    lines = ["The U.S. said : `` no '' .", "Is it ? Yes , Dr. No ."]
    words = {word for line in lines for word in line.split()}
    found = tokenize("\n".join(lines), Vocabulary.of(words))
    assert found.strings() == " ".join(lines).split()
    assert [len(sentence) for sentence in found.sentences()] == [8, 3, 5]


def test_a_stream_is_cut_at_lines_and_gives_the_same():
    text = "".join(f"Line {k}. It’s long! End\n" for k in range(200)).encode()
    whole = tokenize(text).sentences()
    for size in (1, 7, 1000):
        blocks = list(iter_lines(io.BytesIO(b"\xef\xbb\xbf" + text), name="f", size=max(size, 3)))
        assert b"".join(blocks) == text
    assert [s for corpus in iter_text(io.BytesIO(text)) for s in corpus.sentences()] == whole
    assert list(iter_text(io.BytesIO(b"\n \n"))) == []


def test_what_is_not_utf_8_is_named_by_line():
    with pytest.raises(ValueError, match=r"f, line 3: byte 0xff is not valid UTF-8"):
        list(iter_lines(io.BytesIO(b"a\nb\n\xff\n"), name="f", size=3))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_converted(encoding):
    text = "".join(f"Zeile {k}: äöü.\n" for k in range(50)) + "Ende"
    for size in (1, 7, 1000):
        blocks = list(iter_lines(io.BytesIO(text.encode(encoding)), name="f", size=size, encoding=encoding))
        assert b"".join(blocks).decode() == text
        assert all(block.endswith(b"\n") for block in blocks[:-1])
    with pytest.raises(ValueError, match=r"f, line 1 or later: not valid utf-16 .* encoding='utf-8'"):
        list(iter_lines(io.BytesIO(b"\xff\xfe\x00\xd8\n\x00"), name="f", encoding="utf-16"))


def test_a_vocabulary_is_a_set_of_words():
    words = [f"w{k}" for k in range(1000)] + ["é", ""]
    known = Vocabulary.of(words)
    assert sorted(known.words()) == sorted(words)
    assert known.knows(Column.of(["w5", "w1000", "é", "e"])).tolist() == [True, False, True, False]
    assert "w5" in known
    assert 5 not in known


def test_long_runs_of_marks_take_linear_time():
    assert tokenize("!?" * 100_000 + "a.?" * 100_000).tokens == 2 * 100_000 + 3
    longest = "x" * 300_000
    known = Vocabulary.of([longest, "x" * 255 + "."])
    assert known.table[0] == 256  # so many bytes at most are looked up at each mark
    assert longest in known
    assert tokenize("!?" * 30_000, known).tokens == 60_000
    assert tokenize("x" * 255 + ".", known).tokens == 1


@pytest.mark.parametrize("tokenized", [False, True])
def test_what_is_not_utf_8_is_refused(tokenized):
    for ending in (b"\xf0", b"\xe2\x82", b"\xff", b" \xc3"):
        with pytest.raises(ValueError, match=r"the text, line 2: byte 0x.. is not valid UTF-8"):
            tokenize(b"a\n" + b"b" * 5 + ending, tokenized=tokenized)
    with pytest.raises(ValueError, match="half a surrogate pair"):
        tokenize("a \ud800", tokenized=tokenized)
    for wrong in (None, 3, ["a"]):
        with pytest.raises(TypeError, match="text must be a string or bytes, found"):
            tokenize(wrong, tokenized=tokenized)
