"""Chains under a plain Trainer: the curves by brute force, the rule to the bit, batches of every kind."""

from functools import partial

import brute
import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import board, fit, table
from pytorch_lightning.callbacks import ModelCheckpoint
from refusals import refusals
from torch import nn
from torch.utils.data import DataLoader

import torchperc as tp
from torchperc.sequences import ChainPerceptron, collate, items

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in (*plain.CHATTER, "ignore:Be aware that when using")]
TAGS, WIDTH = 3, 4


def made(count, seed=0):
    """Integer features, and tags that depend on them and on the tag before, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    X, y = [], []
    for length in torch.randint(1, 6, (count,), generator=generator).tolist():
        x = torch.randint(-2, 3, (length, WIDTH), generator=generator).float()
        noise, tags = 0.3 * torch.randn(length, TAGS, generator=generator), [0]
        for token, moved in zip(x, noise, strict=True):
            tags.append(int((token[:TAGS] + torch.eye(TAGS)[(tags[-1] + 1) % TAGS] + moved).argmax()))
        X.append(x)
        y.append(torch.tensor(tags[1:]))
    return X, y


TRAIN, VAL = made(16), made(5, seed=1)  # as many as make a mean exact


def batch_of(X, y):
    """x and tags padded, and the lengths."""
    (x, lengths), tags = collate(list(zip(X, y, strict=True)))
    return x, tags, lengths


def loader(data, size=None):
    x, y, lengths = batch_of(*data)
    listed = [((x[i], lengths[i]), y[i]) for i in range(len(y))]
    return DataLoader(listed, size or len(listed))


@torch.no_grad()
def expected(net, X, y, margin=0.0):
    """The metrics over all tag sequences."""
    losses, wrong, mistakes = [], [], 0
    for x, tags in zip(X, y, strict=True):
        weights, own = [(x @ net.weight.T).tolist(), net.transition.tolist(), net.end.tolist()], tuple(tags.tolist())
        value, strongest = brute.ranked(*weights, y=own, margin=margin)[0]
        losses.append(value - brute.score(*weights, own))
        wrong.append(brute.hamming(brute.ranked(*weights)[0][1], own))
        mistakes += strongest != own
    means = {"loss": sum(losses) / len(y), "error": sum(wrong) / sum(map(len, y))}
    return {**means, "error/sequence": sum(map(bool, wrong)) / len(y), "mistakes": mistakes}


def test_one_sequence_at_a_time_is_the_rule_to_the_bit(tmp_path):
    rule = ChainPerceptron(WIDTH, TAGS)
    result = tp.RuleTrainer(max_epochs=3, order="given").fit(rule, *TRAIN)
    assert len(result.log) > 10
    collated = DataLoader(items(*TRAIN), 1, collate_fn=collate)
    for name, data in (("given", loader(TRAIN, 1)), ("collated", collated)):
        net = ChainPerceptron(WIDTH, TAGS)
        fit(tmp_path / name, L.LitTagger(net, lr=1.0), data, epochs=3)
        assert all(torch.equal(a, b) for a, b in zip(rule.parameters(), net.parameters(), strict=True))
        assert table(tmp_path / name)["mistakes"] == result.log.mistakes_by_epoch().tolist()


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_every_curve_by_brute_force(tmp_path, margin):
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), margin, lr=0.25)
    before = []

    class Before(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            before.append(expected(module.net, *TRAIN, margin))

    fit(tmp_path, lit, loader(TRAIN), loader(VAL, 2), epochs=3, callbacks=[Before()])
    csv, curves = table(tmp_path), board(tmp_path)
    for name in ("loss", "error", "error/sequence", "mistakes"):
        tag = name if name == "mistakes" else f"{name}/train"
        assert csv[tag] == pytest.approx([epoch[name] for epoch in before], rel=1e-6)
        assert [value for _, value in curves[tag]] == pytest.approx(csv[tag], rel=1e-6)
    last = expected(lit.net, *VAL, margin)
    for name in ("loss", "error", "error/sequence"):
        assert csv[f"{name}/val"][-1] == pytest.approx(last[name], rel=1e-6)
    assert "margin" not in csv


def test_a_net_of_your_own_may_give_the_scores(tmp_path):
    class Emitting(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.chain = nn.Linear(WIDTH, 8), ChainPerceptron(8, TAGS)

        def forward(self, x):
            return self.chain(torch.tanh(self.hidden(x.x)), x.lengths)

    torch.manual_seed(0)
    lit = L.LitTagger(Emitting(), optimizer=partial(torch.optim.Adam, lr=0.05))
    fit(tmp_path, lit, loader(TRAIN, 4), loader(VAL), epochs=30)
    errors = table(tmp_path)["error/train"]
    assert errors[-1] < errors[0]


def test_a_checkpoint_gives_the_net_back_and_resumes(tmp_path):
    def fresh():
        return L.LitTagger(ChainPerceptron(WIDTH, TAGS, dtype=torch.float64), 0.5, lr=0.5)

    lit, data = fresh(), ([x.double() for x in TRAIN[0]], TRAIN[1])
    saved = ModelCheckpoint(tmp_path, "last")
    fit(tmp_path, lit, loader(data, 3), epochs=2, callbacks=[saved], enable_checkpointing=True)
    same = L.LitTagger.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert (repr(same.net), same.criterion.margin, same.hparams.margin) == (repr(lit.net), 0.5, 0.5)
    assert all(torch.equal(a, b) for a, b in zip(same.net.parameters(), lit.net.parameters(), strict=True))
    alone, more = fresh(), fresh()
    fit(tmp_path / "alone", alone, loader(data, 3), epochs=4)
    fit(tmp_path / "more", more, loader(data, 3), epochs=4, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(alone.net.weight, more.net.weight)


def test_batches_to_predict_with_tags_or_without():
    lit, (x, y, lengths) = L.LitTagger(ChainPerceptron(WIDTH, TAGS)), batch_of(*TRAIN)
    lit.net.weight.data.normal_()
    found = lit.predict_step(((x, lengths), y))
    assert torch.equal(found == -100, y == -100)
    assert torch.equal(lit.predict_step((x, lengths)), found)
    for batch in (x, (x, y)):
        assert torch.equal(lit.predict_step(batch)[lengths == x.shape[1]], found[lengths == x.shape[1]])


test_wrong_batches_are_named = refusals(
    (lambda x, y, n: x, ValueError, "found 1 items"),
    (lambda x, y, n: (x, n, y), ValueError, r"torch.int64 \(16,\)"),
    (lambda x, y, n: (x, y, n), ValueError, r"\(x, y, lengths\)"),
    (lambda x, y, n: (x[:, :2], y), ValueError, "between 1 and T=2"),
    (lambda x, y, n: (x, y.roll(1, 1)), ValueError, "has tag -100"),
    (lambda x, y, n: ("x", y), TypeError, "found str"),
    (lambda x, y, n: (x, y, -n.double()), ValueError, "sample_weight"),
    by=lambda batch: L.LitTagger(ChainPerceptron(WIDTH, TAGS)).validation_step(batch(*batch_of(*TRAIN))),
)
