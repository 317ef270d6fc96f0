"""Chains under a plain Trainer: the curves by brute force, the rule to the bit, batches of every kind."""

import math
from functools import partial

import brute
import plain
import pytest
import pytorch_lightning as pl
import torch
from plain import board, fit, table
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torchperc as tp
from torchperc.sequences import ChainPerceptron, collate, items

L = tp.lightning
pytestmark = [pytest.mark.filterwarnings(each) for each in (*plain.CHATTER, "ignore:Be aware that when using")]
TAGS, WIDTH = 3, 4


def made(count, seed=0, noise=0.3):
    """Integer features, and tags that depend on them and on the tag before, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    X, y = [], []
    for length in torch.randint(1, 6, (count,), generator=generator).tolist():
        x = torch.randint(-2, 3, (length, WIDTH), generator=generator).float()
        tags, before = [], 0
        for token in x:
            scores = (
                token[:TAGS] + torch.eye(TAGS)[(before + 1) % TAGS] + noise * torch.randn(TAGS, generator=generator)
            )
            before = int(scores.argmax())
            tags.append(before)
        X.append(x)
        y.append(torch.tensor(tags))
    return X, y


TRAIN, VAL = made(16), made(5, seed=1)  # as many as make a mean exact


class Listed(Dataset):
    """A user's own data set: one ((x, length), y) per item, padded already."""

    def __init__(self, X, y):
        self.x = nn.utils.rnn.pad_sequence(X, batch_first=True)
        self.y = nn.utils.rnn.pad_sequence(y, batch_first=True, padding_value=-100)
        self.lengths = [len(each) for each in y]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return (self.x[i], self.lengths[i]), self.y[i]


def loader(data, size=None, **options):
    return DataLoader(Listed(*data), size or len(data[0]), **options)


@torch.no_grad()
def judged(net, x, y, margin=0.0):
    """Loss, decision and whether it is a mistake, over all tag sequences."""
    weights = [(x @ net.weight.T).tolist(), net.transition.tolist(), net.end.tolist()]
    (_, best), (value, strongest) = brute.ranked(*weights)[0], brute.ranked(*weights, y=y.tolist(), margin=margin)[0]
    return value - brute.score(*weights, y.tolist()), best, list(strongest) != y.tolist()


def expected(net, data, margin=0.0):
    found = [judged(net, x, tags, margin) for x, tags in zip(*data, strict=True)]
    wrong = [
        sum(a != b for a, b in zip(best, y.tolist(), strict=True))
        for (_, best, _), y in zip(found, data[1], strict=True)
    ]
    return {
        "loss": sum(loss for loss, _, _ in found) / len(found),
        "error": sum(wrong) / sum(map(len, data[1])),
        "error/sequence": sum(map(bool, wrong)) / len(wrong),
        "mistakes": sum(mistake for _, _, mistake in found),
    }


def test_one_sequence_at_a_time_is_the_rule_to_the_bit(tmp_path):
    nets = [ChainPerceptron(WIDTH, TAGS) for _ in range(3)]
    fit(tmp_path / "given", L.LitTagger(nets[0], lr=1.0), loader(TRAIN, 1), epochs=3)
    collated = DataLoader(items(*TRAIN), 1, collate_fn=collate)
    fit(tmp_path / "collated", L.LitTagger(nets[1], lr=1.0), collated, epochs=3)
    result = tp.RuleTrainer(max_epochs=3, order="given").fit(nets[2], *TRAIN)
    assert len(result.log) > 10
    for net in nets[:2]:
        assert all(torch.equal(a, b) for a, b in zip(nets[2].parameters(), net.parameters(), strict=True))
    for name in ("given", "collated"):
        assert table(tmp_path / name)["mistakes"] == result.log.mistakes_by_epoch().tolist()


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_every_curve_by_brute_force(tmp_path, margin):
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS), margin, lr=0.25)
    before = []

    class Before(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            before.append({**expected(module.net, TRAIN, margin)})

    trainer = fit(tmp_path, lit, loader(TRAIN), loader(VAL, 2), epochs=3, callbacks=[Before()])
    csv, curves = table(tmp_path), board(tmp_path)
    for name in ("loss", "error", "error/sequence", "mistakes"):
        tag = name if name == "mistakes" else f"{name}/train"
        assert csv[tag] == pytest.approx([epoch[name] for epoch in before], rel=1e-6)
        assert [value for _, value in curves[tag]] == pytest.approx(csv[tag], rel=1e-6)
    last = expected(lit.net, VAL, margin)
    for name in ("loss", "error", "error/sequence"):
        assert csv[f"{name}/val"][-1] == pytest.approx(last[name], rel=1e-6)
    assert csv["norm"][-1] == pytest.approx(
        math.sqrt(sum(float(p.detach().square().sum()) for p in lit.net.parameters()))
    )
    assert "margin" not in csv
    assert all(value.dtype == torch.float64 for value in trainer.callback_metrics.values())


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
    csv = table(tmp_path)
    assert csv["error/train"][-1] < csv["error/train"][0]


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_a_checkpoint_gives_net_and_head_back(tmp_path, margin):
    net = ChainPerceptron(WIDTH, TAGS, dtype=torch.float64)
    lit = L.LitTagger(net, margin, lr=0.5)
    saved = ModelCheckpoint(tmp_path, "last")
    data = ([x.double() for x in TRAIN[0]], TRAIN[1])
    fit(tmp_path, lit, loader(data, 3), epochs=2, callbacks=[saved], enable_checkpointing=True)
    same = L.LitTagger.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert repr(same.net) == repr(net)
    assert same.criterion.margin == margin
    assert same.net.weight.dtype == torch.float64
    assert all(torch.equal(a, b) for a, b in zip(same.net.parameters(), net.parameters(), strict=True))
    assert same.hparams.margin == lit.hparams.margin
    alone = L.LitTagger(ChainPerceptron(WIDTH, TAGS, dtype=torch.float64), margin, lr=0.5)
    fit(tmp_path / "alone", alone, loader(data, 3), epochs=4)
    more = L.LitTagger(ChainPerceptron(WIDTH, TAGS, dtype=torch.float64), margin, lr=0.5)
    fit(tmp_path / "more", more, loader(data, 3), epochs=4, ckpt_path=tmp_path / "last.ckpt")
    assert torch.equal(alone.net.weight, more.net.weight)


# --- what is refused ---


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (lambda b: b.x, TypeError, r"\(\(x, lengths\), y\)"),
        (lambda b: (b.x, torch.tensor(b.lengths), b.y), ValueError, r"torch.int64 \(16,\)"),
        (lambda b: (b.x, b.y.float()), ValueError, "torch.float32"),
        (lambda b: (b.x, b.y, torch.tensor(b.lengths)), ValueError, r"\(x, y, lengths\)"),
        (lambda b: (b.x[:, :2], b.y), ValueError, "between 1 and T=2"),
        (lambda b: (b.x, b.y.roll(1, 1)), ValueError, "has tag -100"),
        (lambda b: ("x", b.y), TypeError, "found str"),
        (lambda b: ((b.x, torch.full((16,), 9)), b.y), ValueError, "between 1 and T=5"),
        (lambda b: (b.x, b.y.masked_fill(b.y == 1, 7)), ValueError, "tag 7"),
        (lambda b: (b.x, b.y, torch.full((16,), -1.0)), ValueError, "sample_weight"),
    ],
)
def test_wrong_batches_are_named(batch, error, message):
    lit = L.LitTagger(ChainPerceptron(WIDTH, TAGS))
    with pytest.raises(error, match=message):
        lit.validation_step(batch(Listed(*TRAIN)))
