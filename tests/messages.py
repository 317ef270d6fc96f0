"""Messages like those of a phone, made in code: words of two kinds that overlap, so that no classifier is always right."""

import csv
import random

_WORDS = {
    "common": "the to and you it is in of for on that me my at this be we are have so with can call now today",
    "ham": "home tonight dinner lunch meeting bus train mum dad sleep work late sorry later wait lol morning",
    "spam": "prize win winner claim cash urgent txt stop mobile offer award voucher collect code £1000 credit",
}
_ENDS = ["", "", "", "!", "?", " :)", ", ok?", "…", " 😀", " 🎉🎉", "!!!", ' "quoted"', "\nBye"]


def messages(count, seed=0):
    """Pairs of a text and its label, spam or ham, about two of them in five spam."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = "spam" if draw.random() < 0.4 else "ham"
        other = "ham" if label == "spam" else "spam"
        kinds = draw.choices(["common", label, other], [9, 5, 1], k=draw.randint(8, 16))
        words = [draw.choice(_WORDS[kind].split()) for kind in kinds]
        made.append((" ".join(words).capitalize() + draw.choice(_ENDS), label))
    return made


def save(path, rows, names=("message", "label")):
    """A CSV file of rows, quoted where that is needed."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path
